//! A node: its log, its state machine, and a task for each connection.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use openraft_09::error::{ForwardToLeader, RaftError};
use openraft_09::{BasicNode, Config, LogId, Raft, SnapshotPolicy, TryAsRef};
use palisade_openraft::v09::LogStore;
use palisade_streams::Streams;
use serde::Serialize;
use tokio::net::{TcpListener, TcpStream};

use crate::machine::{Machine, Types};
use crate::network::{Answer, Client, Network, ReadIndex, Refused, Request, receive, send};

/// A read gives up if the node does not apply what it needs for so long.
const READ_PATIENCE: Duration = Duration::from_secs(2);

#[derive(Clone)]
struct Node {
    machine: Machine,
    raft: Raft<Types>,
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("machine", &self.machine).finish_non_exhaustive()
    }
}

/// Runs node `id` until the process ends. It makes a snapshot after `snapshot_every` entries.
pub(crate) async fn run(
    id: u64,
    address: &str,
    snapshot_every: u64,
    folder: &Path,
) -> io::Result<()> {
    let machine = Machine::open(folder)?;
    let streams = Streams::open(folder.join("log"))?;
    let log = LogStore::open(&streams, "kv")?;
    let config = Config {
        heartbeat_interval: 100,
        election_timeout_min: 500,
        election_timeout_max: 1000,
        snapshot_policy: SnapshotPolicy::LogsSinceLast(snapshot_every),
        max_in_snapshot_log_to_keep: snapshot_every / 4,
        ..Config::default()
    };
    let config = Arc::new(config.validate().map_err(io::Error::other)?);
    let raft = Raft::new(id, config, Network, log, machine.clone()).await;
    let node = Node { machine, raft: raft.map_err(io::Error::other)? };
    let listener = TcpListener::bind(address).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        // It ends with an error when the other side is gone.
        tokio::spawn(node.clone().serve(stream));
    }
}

impl Node {
    async fn serve(self, mut stream: TcpStream) -> io::Result<()> {
        loop {
            let request = receive(&mut stream).await?;
            self.answer(&mut stream, request).await?;
        }
    }

    async fn answer(&self, stream: &mut TcpStream, request: Request) -> io::Result<()> {
        match request {
            Request::Append(request) => {
                send(stream, &self.raft.append_entries(request).await).await
            }
            Request::Vote(request) => send(stream, &self.raft.vote(request).await).await,
            Request::Snapshot(request) => {
                send(stream, &self.raft.install_snapshot(request).await).await
            }
            Request::Start(nodes) => {
                let started = self.raft.initialize(nodes).await;
                answer(stream, started.map_err(|error| Refused::Failed(error.to_string()))).await
            }
            Request::Write(key, value) => {
                let written = self.raft.client_write((key, value)).await;
                answer(stream, written.map(drop).map_err(refused)).await
            }
            Request::Read(key) => answer(stream, self.read(&key).await).await,
            Request::ReadIndex => {
                answer(stream, self.raft.ensure_linearizable().await.map_err(refused)).await
            }
            Request::Snapshots => answer(stream, Ok(self.machine.snapshots())).await,
            Request::Dump => answer(stream, Ok(self.machine.map())).await,
            Request::Leader => answer(stream, Ok(self.raft.current_leader().await)).await,
        }
    }

    /// Reads what this node has, once it has applied all that was committed before the call.
    async fn read(&self, key: &str) -> Answer<Option<u64>> {
        let read_index = self.read_index().await?.map_or(0, |id| id.index);
        let wait = self.raft.wait(Some(READ_PATIENCE));
        let applied = wait.applied_index_at_least(Some(read_index), "read").await;
        applied.map_err(|error| Refused::Failed(error.to_string()))?;
        Ok(self.machine.get(key))
    }

    async fn read_index(&self) -> Answer<Option<LogId<u64>>> {
        let error = match self.raft.ensure_linearizable().await {
            Ok(id) => return Ok(id),
            Err(error) => error,
        };
        let Some((leader, node)) = error
            .forward_to_leader()
            .and_then(|forward| Some((forward.leader_id?, forward.leader_node.clone()?)))
        else {
            return Err(refused(error));
        };
        let answer = Client::new(leader, node.addr).call::<ReadIndex>(&Request::ReadIndex).await;
        answer.map_err(|error| Refused::Failed(error.to_string()))?
    }
}

async fn answer<T: Serialize>(stream: &mut TcpStream, answer: Answer<T>) -> io::Result<()> {
    send(stream, &answer).await
}

fn refused<E>(error: RaftError<u64, E>) -> Refused
where
    E: fmt::Debug + TryAsRef<ForwardToLeader<u64, BasicNode>>,
    RaftError<u64, E>: ToString,
{
    match error.forward_to_leader::<BasicNode>() {
        Some(forward) => Refused::NotLeader(forward.leader_id),
        None => Refused::Failed(error.to_string()),
    }
}
