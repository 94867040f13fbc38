//! The protocol: a message is its length in four bytes, then the message in postcard.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use openraft_09::error::{InstallSnapshotError, RPCError, RaftError, RemoteError, Unreachable};
use openraft_09::network::{Backoff, RPCOption, RaftNetwork, RaftNetworkFactory};
use openraft_09::raft::{
    AppendEntriesRequest, AppendEntriesResponse, InstallSnapshotRequest, InstallSnapshotResponse,
    VoteRequest, VoteResponse,
};
use openraft_09::{BasicNode, LogId};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::machine::Types;

/// What a node is asked for. The type of each answer stands beside it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    /// `Result<AppendEntriesResponse, RaftError>`
    Append(AppendEntriesRequest<Types>),
    /// `Result<VoteResponse, RaftError>`
    Vote(VoteRequest<u64>),
    /// `Result<InstallSnapshotResponse, RaftError<InstallSnapshotError>>`
    Snapshot(InstallSnapshotRequest<Types>),
    /// Makes the cluster: `Answer<()>`
    Start(BTreeMap<u64, BasicNode>),
    /// Acknowledged when a majority has it durably: `Answer<()>`
    Write(String, u64),
    /// A linearizable read, on any node: `Answer<Option<u64>>`
    Read(String),
    /// Up to where a read must have applied, from the leader: `Answer<Option<LogId>>`
    ReadIndex,
    /// All that the node has applied: `Answer<BTreeMap<String, u64>>`
    Dump,
    /// How many snapshots the process has made and got: `Answer<(u64, u64)>`
    Snapshots,
    /// The leader that the node knows: `Answer<Option<u64>>`
    Leader,
}

/// An answer, or why there is none.
pub(crate) type Answer<T> = Result<T, Refused>;

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Refused {
    /// The leader that the node knows.
    NotLeader(Option<u64>),
    Failed(String),
}

/// The answer to [`Request::ReadIndex`].
pub(crate) type ReadIndex = Answer<Option<LogId<u64>>>;

pub(crate) async fn send(stream: &mut TcpStream, message: &impl Serialize) -> io::Result<()> {
    let bytes = postcard::to_stdvec(message).map_err(io::Error::other)?;
    let len = u32::try_from(bytes.len()).map_err(io::Error::other)?;
    stream.write_all(&[&len.to_le_bytes(), &bytes[..]].concat()).await
}

pub(crate) async fn receive<T: DeserializeOwned>(stream: &mut TcpStream) -> io::Result<T> {
    let mut bytes = vec![0; stream.read_u32_le().await? as usize];
    stream.read_exact(&mut bytes).await?;
    postcard::from_bytes(&bytes).map_err(io::Error::other)
}

/// A connection to a node, which is made when it is needed.
#[derive(Debug)]
pub(crate) struct Client {
    node: u64,
    address: String,
    connection: Option<TcpStream>,
}

impl Client {
    pub(crate) fn new(node: u64, address: impl Into<String>) -> Client {
        Client { node, address: address.into(), connection: None }
    }

    /// Asks the node. A call that fails or is dropped also drops the connection, so that no later
    /// call reads its answer.
    pub(crate) async fn call<T: DeserializeOwned>(&mut self, request: &Request) -> io::Result<T> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => {
                let connection = TcpStream::connect(&self.address).await?;
                connection.set_nodelay(true)?;
                connection
            }
        };
        send(&mut connection, request).await?;
        let answer = receive(&mut connection).await?;
        self.connection = Some(connection);
        Ok(answer)
    }

    async fn rpc<T, E>(&mut self, request: Request) -> Result<T, RpcError<E>>
    where
        T: DeserializeOwned,
        E: std::error::Error + DeserializeOwned,
    {
        let answer = self.call::<Result<T, RaftError<u64, E>>>(&request).await;
        let answer = answer.map_err(|error| Unreachable::new(&error))?;
        answer.map_err(|error| RemoteError::new(self.node, error).into())
    }
}

type RpcError<E> = RPCError<u64, BasicNode, RaftError<u64, E>>;
type NoError = openraft_09::error::Infallible;

impl RaftNetwork<Types> for Client {
    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<Types>,
        _: RPCOption,
    ) -> Result<AppendEntriesResponse<u64>, RpcError<NoError>> {
        self.rpc(Request::Append(request)).await
    }

    async fn install_snapshot(
        &mut self,
        request: InstallSnapshotRequest<Types>,
        _: RPCOption,
    ) -> Result<InstallSnapshotResponse<u64>, RpcError<InstallSnapshotError>> {
        self.rpc(Request::Snapshot(request)).await
    }

    async fn vote(
        &mut self,
        request: VoteRequest<u64>,
        _: RPCOption,
    ) -> Result<VoteResponse<u64>, RpcError<NoError>> {
        self.rpc(Request::Vote(request)).await
    }

    fn backoff(&self) -> Backoff {
        Backoff::new(std::iter::repeat(Duration::from_millis(100)))
    }
}

/// Makes the connections of a node to the others.
#[derive(Debug)]
pub(crate) struct Network;

impl RaftNetworkFactory<Types> for Network {
    type Network = Client;

    async fn new_client(&mut self, target: u64, node: &BasicNode) -> Client {
        Client::new(target, &node.addr)
    }
}
