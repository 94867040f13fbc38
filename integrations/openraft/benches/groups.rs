//! Durable appends a second of 1, 16 and 64 Raft groups: all in one log, and a log for each.
//!
//! ```sh
//! cargo bench -p palisade-openraft --all-features     # 5 rounds of 2 seconds
//! ROUNDS=9 SECONDS=5 cargo bench -p palisade-openraft --all-features
//! ```
//!
//! A task for each group appends an entry of 256 bytes through the `RaftLogStorage` of openraft
//! 0.10, waits until openraft hears that it is durable, and appends the next. The rounds take both
//! forms in turns. Prints the median of the rounds and their range.

#![expect(clippy::print_stdout, reason = "a program that prints its results")]

use std::time::{Duration, Instant};

use openraft_010::entry::RaftEntry;
use openraft_010::storage::{IOFlushed, RaftLogStorage};
use openraft_010::testing::log_id;
use openraft_010::type_config::TypeConfigExt;
use openraft_010::type_config::alias::EntryOf;
use palisade_openraft::v010::LogStore;
use palisade_streams::Streams;
use tokio::task::JoinSet;

openraft_010::declare_raft_types!(
    /// The types of the bench.
    Types: D = String, R = ()
);

const ENTRY_BYTES: usize = 256;

#[tokio::main]
async fn main() {
    let number = |name: &str, default| {
        std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
    };
    let (rounds, time) = (number("ROUNDS", 5), Duration::from_secs(number("SECONDS", 2)));
    println!("{:>6} {:>28} {:>14} {:>28}", "groups", "one log", "per sync", "a log each");
    for groups in [1, 16, 64] {
        let (mut shared, mut alone, mut per_sync) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..rounds {
            let (rate, of_a_sync) = measure(groups, 1, time).await;
            shared.push(rate);
            per_sync.push(of_a_sync);
            alone.push(measure(groups, groups, time).await.0);
        }
        per_sync.sort_by(f64::total_cmp);
        let per_sync = per_sync[per_sync.len() / 2];
        println!("{groups:>6} {:>28} {per_sync:>14.1} {:>28}", text(shared), text(alone));
    }
}

fn text(mut rates: Vec<f64>) -> String {
    rates.sort_by(f64::total_cmp);
    let (least, most) = (rates[0], rates[rates.len() - 1]);
    format!("{:.0}/s ({least:.0} to {most:.0})", rates[rates.len() / 2])
}

/// Returns the appends a second, and how many shared a sync.
async fn measure(groups: usize, logs: usize, time: Duration) -> (f64, f64) {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let open = |log: usize| Streams::open(folder.path().join(log.to_string())).expect("a new log");
    let streams: Vec<_> = (0..logs).map(open).collect();
    let store = |group: usize| {
        LogStore::<Types>::open(&streams[group % logs], group.to_string()).expect("a new group")
    };
    let stores: Vec<_> = (0..groups).map(store).collect();
    let syncs = || streams.iter().map(|streams| streams.log().stats().syncs).sum::<u64>();
    let (before, begun) = (syncs(), Instant::now());
    let mut tasks = JoinSet::new();
    for store in stores {
        tasks.spawn(append(store, begun + time));
    }
    let appends = tasks.join_all().await.into_iter().sum::<u64>() as f64;
    (appends / begun.elapsed().as_secs_f64(), appends / (syncs() - before) as f64)
}

/// Appends one entry after the other until `end`, and returns how many are durable.
async fn append(mut store: LogStore<Types>, end: Instant) -> u64 {
    let mut index = 0;
    while Instant::now() < end {
        let id = log_id::<Types>(1, 0, index);
        let entry = EntryOf::<Types>::new_normal(id, "x".repeat(ENTRY_BYTES));
        let (flushed, wait) = Types::oneshot();
        store.append([entry], IOFlushed::signal(flushed)).await.expect("an append");
        wait.await.expect("an answer").expect("a durable entry");
        index += 1;
    }
    index
}
