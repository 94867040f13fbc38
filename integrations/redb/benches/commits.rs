//! Durable commits a second of redb, on this backend and on redb's file backend in turns.
//!
//!     cargo bench -p palisade-redb                 # 5 rounds of 20000 commits
//!     ROUNDS=9 COMMITS=50000 cargo bench -p palisade-redb
//!
//! Each round makes a new database in a folder on disk, with a table of 100 000 entries, and then
//! commits transactions that each give one random key a new value of 100 bytes. The time of this
//! backend includes a checkpoint at the end. Prints the median of the rounds and their range. A
//! round of some thousand commits shows only the first second of a log.
//!
//! The last lines show what no backend can save in a commit with one sync: the time of redb itself,
//! on its memory backend, and an overwrite of 8 KiB with its sync.

#![expect(clippy::print_stdout, reason = "a program that prints its results")]

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use palisade_redb::PalisadeBackend;
use redb::backends::InMemoryBackend;
use redb::{Builder, Database, TableDefinition};

const TABLE: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("table");
const ENTRIES: u64 = 100_000;
const VALUE_BYTES: usize = 100;

fn main() {
    let number = |name: &str, default| {
        std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
    };
    let (rounds, commits) = (number("ROUNDS", 5), number("COMMITS", 20_000));
    println!("{:>12} {:>12} {:>22} {:>12} {:>22} {:>6}", "commits", "here", "", "file", "", "");
    for (name, quick_repair) in [("one phase", false), ("quick repair", true)] {
        let (mut here, mut file) = (Vec::new(), Vec::new());
        let (mut log_bytes, mut stall) = (0, Duration::ZERO);
        for round in 0..rounds {
            let seed = round + 1;
            here.push(in_a_folder(|path| {
                let backend = PalisadeBackend::open(path).expect("a new storage");
                let db = Builder::new().create_with_backend(backend.clone()).expect("a database");
                load(&db);
                backend.checkpoint().expect("a checkpoint");
                let (start, from) = (Instant::now(), backend.log().reserved_lsn());
                update(&db, commits, seed, quick_repair);
                log_bytes = backend.log().reserved_lsn().bytes_since(from) / commits;
                let before = Instant::now();
                backend.checkpoint().expect("a checkpoint");
                stall = stall.max(before.elapsed());
                commits as f64 / start.elapsed().as_secs_f64()
            }));
            file.push(in_a_folder(|path| {
                let db = Database::create(path).expect("a database");
                load(&db);
                let start = Instant::now();
                update(&db, commits, seed, quick_repair);
                commits as f64 / start.elapsed().as_secs_f64()
            }));
        }
        let (ours, theirs) = (Figure::of(here), Figure::of(file));
        let ratio = ours.median / theirs.median;
        println!("{name:>12} {ours} {theirs} {ratio:>5.2}x");
        println!("    {log_bytes} bytes of log a commit, longest checkpoint {stall:?}");
    }
    let memory = (0..rounds).map(|round| in_memory(commits, round + 1)).collect();
    let syncs = (0..rounds).map(|_| in_a_folder(|path| overwrites(path, commits))).collect();
    println!("{:>12} {}", "redb alone", Figure::of(memory));
    println!("{:>12} {}", "8 KiB, sync", Figure::of(syncs));
}

/// One-phase commits of redb on its memory backend, whose sync does nothing.
fn in_memory(commits: u64, seed: u64) -> f64 {
    let db = Builder::new().create_with_backend(InMemoryBackend::new()).expect("a database");
    load(&db);
    let start = Instant::now();
    update(&db, commits, seed, false);
    commits as f64 / start.elapsed().as_secs_f64()
}

/// Overwrites of 8 KiB of a file, each with a sync of its data.
fn overwrites(path: &Path, count: u64) -> f64 {
    const BYTES: usize = 8 << 10;
    let file = std::fs::File::create(path).expect("a file");
    let write = |at: u64| file.write_all_at(&[7; BYTES], at * BYTES as u64).expect("a write");
    (0..count).for_each(write);
    file.sync_all().expect("a sync");
    let start = Instant::now();
    for at in 0..count {
        write(at);
        file.sync_data().expect("a sync");
    }
    count as f64 / start.elapsed().as_secs_f64()
}

fn in_a_folder(run: impl FnOnce(&Path) -> f64) -> f64 {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    run(&folder.path().join("db"))
}

fn load(db: &Database) {
    let transaction = db.begin_write().expect("a transaction");
    {
        let mut table = transaction.open_table(TABLE).expect("the table");
        for key in 0..ENTRIES {
            table.insert(key, &[7; VALUE_BYTES][..]).expect("an insert");
        }
    }
    transaction.commit().expect("a commit");
}

fn update(db: &Database, commits: u64, seed: u64, quick_repair: bool) {
    let mut random = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    for _ in 0..commits {
        random ^= random << 13; // xorshift
        random ^= random >> 7;
        random ^= random << 17;
        let mut transaction = db.begin_write().expect("a transaction");
        transaction.set_quick_repair(quick_repair);
        let mut table = transaction.open_table(TABLE).expect("the table");
        table.insert(random % ENTRIES, &[random as u8; VALUE_BYTES][..]).expect("an update");
        drop(table);
        transaction.commit().expect("a commit");
    }
}

struct Figure {
    median: f64,
    least: f64,
    most: f64,
}

impl Figure {
    fn of(mut rates: Vec<f64>) -> Figure {
        rates.sort_by(f64::total_cmp);
        Figure { median: rates[rates.len() / 2], least: rates[0], most: rates[rates.len() - 1] }
    }
}

impl std::fmt::Display for Figure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let range = format!("({:.0} to {:.0})", self.least, self.most);
        write!(f, "{:>10.0}/s {range:>22}", self.median)
    }
}
