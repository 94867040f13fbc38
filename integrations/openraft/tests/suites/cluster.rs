//! Groups of openraft 0.10 with one member, whose logs share one log: the suite calls no `Raft`.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

use openraft_010::errors::{RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft_010::network::{RPCOption, RaftNetworkFactory, RaftNetworkV2};
use openraft_010::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse,
};
use openraft_010::storage::RaftStateMachine;
use openraft_010::type_config::alias::{SnapshotOf, VoteOf};
use openraft_010::{AnyError, BasicNode, Config, OptionalSend, Raft};
use palisade_openraft::v010::LogStore;
use palisade_streams::Streams;
use tokio::task::JoinSet;

use crate::machine::{Machine, Types};

/// A group with one member has nobody to talk to.
#[derive(Debug)]
struct NoNetwork;

fn nobody() -> Unreachable<Types> {
    Unreachable::new(&AnyError::error("the group has one member"))
}

impl RaftNetworkFactory<Types> for NoNetwork {
    type Network = NoNetwork;

    async fn new_client(&mut self, _: u64, _: &BasicNode) -> NoNetwork {
        NoNetwork
    }
}

impl RaftNetworkV2<Types> for NoNetwork {
    type SnapshotData = ();

    async fn append_entries(
        &mut self,
        _: AppendEntriesRequest<Types>,
        _: RPCOption,
    ) -> Result<AppendEntriesResponse<Types>, RPCError<Types>> {
        Err(nobody().into())
    }

    async fn vote(
        &mut self,
        _: VoteRequest<Types>,
        _: RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        Err(nobody().into())
    }

    async fn full_snapshot(
        &mut self,
        _: VoteOf<Types>,
        _: SnapshotOf<Types, ()>,
        _: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _: RPCOption,
    ) -> Result<SnapshotResponse<Types>, StreamingError<Types>> {
        Err(nobody().into())
    }
}

async fn start(streams: &Streams, group: u64, machine: Machine) -> Raft<Types, Machine> {
    let log = LogStore::open(streams, group.to_string()).unwrap();
    let config = Arc::new(Config::default().validate().unwrap());
    Raft::new(1, config, NoNetwork, log, machine).await.unwrap()
}

/// Writes from many tasks at a time, and returns the index of the last entry.
async fn write(streams: Streams, group: u64) -> u64 {
    let raft = start(&streams, group, Machine::default()).await;
    raft.initialize(BTreeMap::from([(1, BasicNode::default())])).await.unwrap();
    raft.wait(None).current_leader(1, "it leads itself").await.unwrap();
    let mut writes = JoinSet::new();
    for number in 0..100 {
        let raft = raft.clone();
        writes.spawn(async move { raft.client_write(number.to_string()).await.unwrap().log_id });
    }
    let last = writes.join_all().await.into_iter().map(|id| id.index()).max().unwrap();
    raft.shutdown().await.unwrap();
    last
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn groups_of_openraft_010_find_their_writes_after_a_kill() {
    const GROUPS: u64 = 8;
    let folder = tempfile::tempdir().unwrap();
    let streams = Streams::open(folder.path().join("log")).unwrap();
    let mut groups = JoinSet::new();
    for group in 0..GROUPS {
        let streams = streams.clone();
        groups.spawn(async move { (group, write(streams, group).await) });
    }
    let last = groups.join_all().await;
    streams.log().clone().abandon();
    drop(streams);

    let streams = Streams::open(folder.path().join("log")).unwrap();
    for (group, last) in last {
        let mut machine = Machine::default();
        let raft = start(&streams, group, machine.clone()).await;
        raft.wait(None).applied_index_at_least(Some(last), "all writes").await.unwrap();
        let (applied, membership) = machine.applied_state().await.unwrap();
        assert!(applied.unwrap().index() >= last);
        assert_eq!(membership.voter_ids().collect::<Vec<_>>(), [1]);
        raft.shutdown().await.unwrap();
    }
}
