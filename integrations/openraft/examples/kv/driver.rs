//! The driver: starts the nodes, writes, kills, and checks.

use std::collections::BTreeMap;
use std::error::Error;
use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use openraft_09::BasicNode;
use palisade_streams::Streams;
use serde::de::DeserializeOwned;
use tokio::time::{sleep, timeout};

use crate::history::{History, name};
use crate::network::{Answer, Client, Refused, Request};

pub(crate) type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const NODES: u64 = 3;
const WRITERS: u64 = 4;
/// An odd number: so each key is read in both ways of [`write`].
const KEYS_OF_A_WRITER: u64 = 9;
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
    snapshot_every: u64,
    folder: PathBuf,
    child: Option<Child>,
}

impl Process {
    fn start(&mut self) -> io::Result<()> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["node", &self.id.to_string(), &self.address]);
        command.arg(self.snapshot_every.to_string()).arg(&self.folder);
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

/// The key that a writer writes in this turn. No other one writes it.
fn key(writer: u64, turn: u64) -> usize {
    (turn % KEYS_OF_A_WRITER * WRITERS + writer % WRITERS) as usize
}

/// Writes each `WRITERS`th number, counted from `writer` on. After each acknowledgement it reads a
/// key from some node: the same one, or the one that the next writer may be writing.
async fn write(
    mut cluster: Cluster,
    writer: u64,
    writes: u64,
    history: Arc<History>,
) -> Outcome<()> {
    let mut leader = 1;
    for (turn, number) in (0..).zip((writer..writes).step_by(WRITERS as usize)) {
        let written = key(writer, turn);
        let value = history.begin_write(written);
        // The outcome of a call that failed is unknown. The same write again does no harm.
        ((), leader) = cluster.call(leader, &Request::Write(name(written), value)).await?;
        let done = history.end_write(written, value);

        let asked = key(writer + turn % 2, turn);
        let read = history.begin_read(asked);
        let request = Request::Read(name(asked));
        let (found, node) = cluster.call(number % NODES + 1, &request).await?;
        history.end_read(&read, found).map_err(|wrong| format!("at node {node}, {wrong}"))?;
        if done.is_multiple_of(1000) {
            println!("{done} writes acknowledged, and as many reads");
        }
    }
    Ok(())
}

/// Waits until so many writes are acknowledged.
async fn reach(history: &History, count: u64) -> Outcome<()> {
    let mut last = (0, Instant::now());
    loop {
        let now = history.acknowledged();
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

/// What the nodes have done.
#[derive(Debug, Default)]
struct Totals {
    /// How many nodes were leaders when they were killed.
    leaders: u64,
    snapshots_built: u64,
    snapshots_installed: u64,
}

impl Totals {
    fn add_snapshots(&mut self, (built, installed): (u64, u64)) {
        self.snapshots_built += built;
        self.snapshots_installed += installed;
    }
}

/// Kills the nodes in turn, and starts each again. Every other one stays away for so long that the
/// others have purged what it needs, so that it gets a snapshot.
async fn kill_in_turn(
    nodes: &mut [Process],
    mut cluster: Cluster,
    kills: u64,
    writes: u64,
    history: &History,
) -> Outcome<Totals> {
    let mut totals = Totals::default();
    for (kill, turn) in (1..=kills).zip((0..nodes.len()).cycle()) {
        let (at, part) = (writes * kill / (kills + 1), writes / (kills + 1));
        reach(history, at).await?;
        let node = &mut nodes[turn];
        let leader = cluster.try_call::<Option<u64>>(node.id, &Request::Leader).await;
        totals.leaders += u64::from(matches!(leader, Ok(Some(leader)) if leader == node.id));
        if let Ok(snapshots) = cluster.try_call(node.id, &Request::Snapshots).await {
            totals.add_snapshots(snapshots);
        }
        node.kill()?;
        let away = if kill % 2 == 0 { part * 9 / 10 } else { part / 10 };
        reach(history, at + away).await?;
        node.start()?;
        cluster.wait_for::<Option<u64>>(node.id, &Request::Leader).await?;
    }
    Ok(totals)
}

/// Checks on each node that it has each write.
async fn check(cluster: &mut Cluster, history: &History) -> Outcome<()> {
    for node in 1..=NODES {
        // Returns when the node has applied all that was committed.
        cluster.wait_for::<Option<u64>>(node, &Request::Read(name(0))).await?;
        let found = cluster.wait_for(node, &Request::Dump).await?;
        history.judge(&found).map_err(|wrong| format!("at node {node}, {wrong}"))?;
        println!("node {node} has all {} writes", found.values().sum::<u64>());
    }
    Ok(())
}

/// Waits for the snapshots of all nodes, and fails if there were none.
async fn count_snapshots(cluster: &mut Cluster, kills: u64, totals: &mut Totals) -> Outcome<()> {
    for node in 1..=NODES {
        totals.add_snapshots(cluster.wait_for(node, &Request::Snapshots).await?);
    }
    let Totals { snapshots_built, snapshots_installed, .. } = *totals;
    println!("{snapshots_built} snapshots made, {snapshots_installed} installed");
    if kills > 1 && (snapshots_built == 0 || snapshots_installed == 0) {
        return Err("no node has got a snapshot; call it with more writes for each kill".into());
    }
    Ok(())
}

/// Starts all nodes. Each makes a snapshot several times while one of them is away for long.
fn start(folder: &Path, writes: u64, kills: u64) -> Outcome<(Vec<Process>, BTreeMap<u64, String>)> {
    let snapshot_every = (writes / (kills + 1) / 4).clamp(4, 200);
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
        let (address, folder) = (address.clone(), folder.join(id.to_string()));
        let mut node = Process { id, address, snapshot_every, folder, child: None };
        node.start()?;
        nodes.push(node);
    }
    Ok((nodes, addresses))
}

/// Runs all, and fails with the first thing that is wrong.
pub(crate) async fn run(writes: u64, kills: u64) -> Outcome<()> {
    let folder = tempfile::tempdir()?;
    let (mut nodes, addresses) = start(folder.path(), writes, kills)?;
    let mut cluster = Cluster::new(&addresses);
    for id in 1..=NODES {
        cluster.wait_for::<Option<u64>>(id, &Request::Leader).await?;
    }
    let members = addresses.iter().map(|(&id, address)| (id, BasicNode::new(address)));
    cluster.wait_for::<()>(1, &Request::Start(members.collect())).await?;

    let (begun, history) =
        (Instant::now(), Arc::new(History::new((WRITERS * KEYS_OF_A_WRITER) as usize)));
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..WRITERS {
        writers.spawn(write(Cluster::new(&addresses), writer, writes, Arc::clone(&history)));
    }
    let killing = Cluster::new(&addresses);
    let killed = kill_in_turn(&mut nodes, killing, kills, writes, &history);
    let written = async {
        while let Some(ended) = writers.join_next().await {
            ended??;
        }
        Outcome::Ok(())
    };
    let (mut totals, ()) = tokio::try_join!(killed, written)?;
    let seconds = begun.elapsed().as_secs_f64();
    println!(
        "{writes} writes and reads and {kills} kills, {} of leaders: {seconds:.1} s",
        totals.leaders
    );

    check(&mut cluster, &history).await?;
    count_snapshots(&mut cluster, kills, &mut totals).await?;
    println!("now all nodes at once");
    nodes.iter_mut().try_for_each(Process::kill)?;
    nodes.iter_mut().try_for_each(Process::start)?;
    check(&mut cluster, &history).await?;
    println!("{} kills, no acknowledged write lost", kills + NODES);

    // A killed node leaves its log buffer in memory. An open takes it back, and a close removes it.
    nodes.iter_mut().try_for_each(Process::kill)?;
    for node in &nodes {
        Streams::open(node.folder.join("log"))?.close()?;
    }
    Ok(())
}
