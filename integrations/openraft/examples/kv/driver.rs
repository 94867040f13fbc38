//! The driver: starts the nodes, writes, kills, and checks.

use std::collections::BTreeMap;
use std::error::Error;
use std::io;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use openraft_09::BasicNode;
use palisade_streams::Streams;
use serde::de::DeserializeOwned;
use tokio::time::{sleep, timeout};

use crate::network::{Answer, Client, Refused, Request};

pub(crate) type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const NODES: u64 = 3;
const WRITERS: u64 = 4;
/// A call that takes longer is made again, on another node.
const CALL_PATIENCE: Duration = Duration::from_secs(3);
/// The driver gives up if no node answers for so long.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(20);

/// A node's process. The drop kills it.
#[derive(Debug)]
struct Process {
    id: u64,
    address: String,
    folder: PathBuf,
    child: Option<Child>,
}

impl Process {
    fn start(&mut self) -> io::Result<()> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["node", &self.id.to_string(), &self.address]).arg(&self.folder);
        self.child = Some(command.stdin(Stdio::piped()).spawn()?);
        Ok(())
    }

    fn kill(&mut self) -> io::Result<()> {
        if let Some(mut child) = self.child.take() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

/// A client of the cluster, which asks another node if one does not answer.
#[derive(Debug)]
struct Cluster {
    clients: BTreeMap<u64, Client>,
}

impl Cluster {
    fn new(addresses: &BTreeMap<u64, String>) -> Cluster {
        let client = |(&id, address): (&u64, &String)| (id, Client::new(id, address));
        Cluster { clients: addresses.iter().map(client).collect() }
    }

    async fn try_call<T: DeserializeOwned>(&mut self, node: u64, request: &Request) -> Answer<T> {
        let client = self.clients.get_mut(&node).expect("nodes are numbered from 1 on");
        match timeout(CALL_PATIENCE, client.call(request)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => Err(Refused::Failed(error.to_string())),
            Err(late) => Err(Refused::Failed(late.to_string())),
        }
    }

    /// Asks until a node answers, first `node`, and returns the answer and who gave it.
    async fn call<T: DeserializeOwned>(
        &mut self,
        mut node: u64,
        request: &Request,
    ) -> Outcome<(T, u64)> {
        let begun = Instant::now();
        loop {
            let refused = match self.try_call(node, request).await {
                Ok(answer) => return Ok((answer, node)),
                Err(refused) => refused,
            };
            if begun.elapsed() > PATIENCE {
                return Err(format!("no node answers {request:?}: {refused:?}").into());
            }
            node = match refused {
                Refused::NotLeader(Some(leader)) if leader != node => leader,
                _ => node % NODES + 1,
            };
            sleep(PAUSE).await;
        }
    }

    /// Waits until this node answers.
    async fn wait_for<T: DeserializeOwned>(&mut self, node: u64, request: &Request) -> Outcome<T> {
        let begun = Instant::now();
        loop {
            match self.try_call(node, request).await {
                Ok(answer) => return Ok(answer),
                Err(refused) if begun.elapsed() > PATIENCE => {
                    return Err(format!("node {node} does not answer: {refused:?}").into());
                }
                Err(_) => sleep(PAUSE).await,
            }
        }
    }
}

fn key(number: u64) -> String {
    format!("key {number}")
}

fn value(number: u64) -> String {
    format!("value {number}")
}

/// Writes each `WRITERS`th number, and reads each from some node after its acknowledgement.
async fn write(
    mut cluster: Cluster,
    first: u64,
    writes: u64,
    acknowledged: Arc<AtomicU64>,
) -> Outcome<()> {
    let mut leader = 1;
    for number in (first..writes).step_by(WRITERS as usize) {
        // The outcome of a call that failed is unknown. The same write again does no harm.
        let request = Request::Write(key(number), value(number));
        ((), leader) = cluster.call(leader, &request).await?;
        let request = Request::Read(key(number));
        let (found, node) = cluster.call::<Option<String>>(number % NODES + 1, &request).await?;
        if found.as_deref() != Some(&value(number)) {
            return Err(format!("node {node} returned {found:?} for {}", key(number)).into());
        }
        // Relaxed: only the number counts.
        let done = acknowledged.fetch_add(1, Ordering::Relaxed) + 1;
        if done.is_multiple_of(1000) {
            println!("{done} writes acknowledged, and read");
        }
    }
    Ok(())
}

/// Waits until so many writes are acknowledged.
async fn reach(acknowledged: &AtomicU64, count: u64) -> Outcome<()> {
    let mut last = (0, Instant::now());
    loop {
        let now = acknowledged.load(Ordering::Relaxed);
        if now >= count {
            return Ok(());
        }
        if now > last.0 {
            last = (now, Instant::now());
        } else if last.1.elapsed() > PATIENCE {
            return Err(format!("the writes stopped at {now}").into());
        }
        sleep(PAUSE).await;
    }
}

/// Kills the nodes in turn, and starts each again. Every other one stays away for so long that the
/// others have purged what it needs, so that it gets a snapshot. Returns how many were leaders.
async fn kill_in_turn(
    nodes: &mut [Process],
    mut cluster: Cluster,
    kills: u64,
    writes: u64,
    acknowledged: &AtomicU64,
) -> Outcome<u64> {
    let mut leaders = 0;
    for (kill, turn) in (1..=kills).zip((0..nodes.len()).cycle()) {
        let (at, part) = (writes * kill / (kills + 1), writes / (kills + 1));
        reach(acknowledged, at).await?;
        let node = &mut nodes[turn];
        let leader = cluster.try_call::<Option<u64>>(node.id, &Request::Leader).await;
        leaders += u64::from(matches!(leader, Ok(Some(leader)) if leader == node.id));
        node.kill()?;
        let away = if kill % 2 == 0 { part * 9 / 10 } else { part / 10 };
        reach(acknowledged, at + away).await?;
        node.start()?;
        cluster.wait_for::<Option<u64>>(node.id, &Request::Leader).await?;
    }
    Ok(leaders)
}

/// Checks on each node that it has each write.
async fn check(cluster: &mut Cluster, writes: u64) -> Outcome<()> {
    let expected: BTreeMap<_, _> = (0..writes).map(|number| (key(number), value(number))).collect();
    for node in 1..=NODES {
        // Returns when the node has applied all that was committed.
        cluster.wait_for::<Option<String>>(node, &Request::Read(key(0))).await?;
        let found: BTreeMap<String, String> = cluster.wait_for(node, &Request::Dump).await?;
        let lost = expected.iter().find(|(key, value)| found.get(*key) != Some(*value));
        if let Some((key, _)) = lost {
            return Err(format!("node {node} has lost {key}: {:?}", found.get(key)).into());
        }
        if found.len() != expected.len() {
            return Err(format!("node {node} has {} keys", found.len()).into());
        }
        println!("node {node} has all {} writes", found.len());
    }
    Ok(())
}

/// Runs all, and fails with the first thing that is wrong.
pub(crate) async fn run(writes: u64, kills: u64) -> Outcome<()> {
    let folder = tempfile::tempdir()?;
    // The ports are free when the listeners are dropped.
    let listeners = (0..NODES).map(|_| TcpListener::bind("127.0.0.1:0"));
    let listeners = listeners.collect::<io::Result<Vec<_>>>()?;
    let mut addresses = BTreeMap::new();
    for (id, listener) in (1..).zip(&listeners) {
        addresses.insert(id, listener.local_addr()?.to_string());
    }
    drop(listeners);
    let mut nodes = Vec::new();
    for (&id, address) in &addresses {
        let folder = folder.path().join(id.to_string());
        let mut node = Process { id, address: address.clone(), folder, child: None };
        node.start()?;
        nodes.push(node);
    }
    let mut cluster = Cluster::new(&addresses);
    for id in 1..=NODES {
        cluster.wait_for::<Option<u64>>(id, &Request::Leader).await?;
    }
    let members = addresses.iter().map(|(&id, address)| (id, BasicNode::new(address)));
    cluster.wait_for::<()>(1, &Request::Start(members.collect())).await?;

    let (begun, acknowledged) = (Instant::now(), Arc::new(AtomicU64::new(0)));
    let mut writers = tokio::task::JoinSet::new();
    for first in 0..WRITERS {
        writers.spawn(write(Cluster::new(&addresses), first, writes, Arc::clone(&acknowledged)));
    }
    let killing = Cluster::new(&addresses);
    let leaders = kill_in_turn(&mut nodes, killing, kills, writes, &acknowledged);
    let written = async {
        while let Some(ended) = writers.join_next().await {
            ended??;
        }
        Outcome::Ok(())
    };
    let (leaders, ()) = tokio::try_join!(leaders, written)?;
    let seconds = begun.elapsed().as_secs_f64();
    println!("{writes} writes and reads and {kills} kills, {leaders} of leaders: {seconds:.1} s");

    check(&mut cluster, writes).await?;
    println!("now all nodes at once");
    nodes.iter_mut().try_for_each(Process::kill)?;
    nodes.iter_mut().try_for_each(Process::start)?;
    check(&mut cluster, writes).await?;
    println!("{} kills, no acknowledged write lost", kills + NODES);

    // A killed node leaves its log buffer in memory. An open takes it back, and a close removes it.
    nodes.iter_mut().try_for_each(Process::kill)?;
    for node in &nodes {
        Streams::open(node.folder.join("log"))?.close()?;
    }
    Ok(())
}
