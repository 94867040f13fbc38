//! Writes and reads a second, of this engine, of fjall and of RocksDB in turns. fjall has the same
//! trees with the same settings, and another log. RocksDB takes part if its program `db_bench` is
//! installed: package `rocksdb-tools` of Debian has it, or `DB_BENCH` names it.
//!
//!     cargo bench -p palisade-lsm --bench beside                # 5 rounds
//!     ROUNDS=9 SCALE=2 cargo bench -p palisade-lsm --bench beside
//!
//! Each round opens a new database of each engine in a folder on disk. Keys have 16 bytes, in
//! random order; values have 100. A durable write of fjall is an `insert`, then a `persist` with
//! `PersistMode::SyncData`; one of RocksDB has `sync`. The writes that are not durable survive a
//! kill of the process in all engines. Prints the median of the rounds and their range.

#![expect(clippy::print_stdout, reason = "a program that prints its results")]

mod rocksdb;

use std::path::Path;
use std::thread;
use std::time::Instant;

use fjall::{KeyspaceCreateOptions, PersistMode};

use crate::rocksdb::DbBench;

const VALUE: [u8; 100] = [7; 100];

/// The calls that this engine and fjall have.
trait Engine: Sync + Sized {
    fn open(path: &Path) -> Self;
    fn put_durable(&self, key: [u8; 16]);
    fn put(&self, key: [u8; 16]);
    fn get(&self, key: [u8; 16]) -> bool;
    /// Moves all to one sorted run of tables.
    fn merge(&self);
}

struct Here(palisade_lsm::Keyspace);

impl Engine for Here {
    fn open(path: &Path) -> Here {
        let database = palisade_lsm::Database::open(path).expect("a new database");
        let opened = database.log().recovery_report();
        assert!(opened.appends_survive_kill, "the log's buffer is on the heap: not comparable");
        Here(database.create_keyspace("bench").expect("a new keyspace"))
    }

    fn put_durable(&self, key: [u8; 16]) {
        self.0.put(key, VALUE).expect("a write");
    }

    fn put(&self, key: [u8; 16]) {
        self.0.append_put(key, VALUE).expect("a write");
    }

    fn get(&self, key: [u8; 16]) -> bool {
        self.0.get(key).expect("a read").is_some()
    }

    fn merge(&self) {
        self.0.database().flush().expect("a flush");
        self.0.database().compact().expect("a compaction");
    }
}

struct Fjall(fjall::Database, fjall::Keyspace);

impl Engine for Fjall {
    fn open(path: &Path) -> Fjall {
        let database = fjall::Database::builder(path).open().expect("a new database");
        let keyspace = database.keyspace("bench", KeyspaceCreateOptions::default);
        Fjall(database, keyspace.expect("a new keyspace"))
    }

    fn put_durable(&self, key: [u8; 16]) {
        self.put(key);
        self.0.persist(PersistMode::SyncData).expect("a sync");
    }

    fn put(&self, key: [u8; 16]) {
        self.1.insert(key, VALUE).expect("a write");
    }

    fn get(&self, key: [u8; 16]) -> bool {
        self.1.get(key).expect("a read").is_some()
    }

    fn merge(&self) {
        self.1.rotate_memtable_and_wait().expect("a flush");
        self.1.major_compact().expect("a compaction");
    }
}

/// The key with this number, of an order that looks random.
fn key(number: u64) -> [u8; 16] {
    let mixed = (number + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (u128::from(mixed ^ (mixed >> 32)) << 64 | u128::from(number)).to_be_bytes()
}

/// Returns the calls a second of so many threads.
fn rate(threads: u64, calls: u64, call: impl Fn(u64) + Sync) -> f64 {
    let start = Instant::now();
    thread::scope(|scope| {
        for thread in 0..threads {
            let call = &call;
            scope.spawn(move || (0..calls).for_each(|number| call(number * threads + thread)));
        }
    });
    (threads * calls) as f64 / start.elapsed().as_secs_f64()
}

#[derive(Clone, Copy)]
enum Work {
    Durable { threads: u64, calls: u64 },
    Append { threads: u64, calls: u64 },
    GetFromMemtable { keys: u64 },
    GetFromTables { threads: u64, keys: u64 },
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder")
}

fn run<E: Engine>(work: Work) -> f64 {
    let folder = folder();
    let engine = E::open(folder.path());
    let get = |keys: u64, number: u64| {
        assert!(engine.get(key(number.wrapping_mul(7919) % keys)), "every key is there");
    };
    match work {
        Work::Durable { threads, calls } => {
            rate(threads, calls, |number| engine.put_durable(key(number)))
        }
        Work::Append { threads, calls } => rate(threads, calls, |number| engine.put(key(number))),
        Work::GetFromMemtable { keys } => {
            (0..keys).for_each(|number| engine.put(key(number)));
            rate(1, keys * 2, |number| get(keys, number))
        }
        Work::GetFromTables { threads, keys } => {
            (0..keys).for_each(|number| engine.put(key(number)));
            engine.merge();
            rate(threads, keys, |number| get(keys, number)); // fills the caches
            rate(threads, keys * 2, |number| get(keys, number))
        }
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

fn main() {
    let number = |name: &str, default| {
        std::env::var(name).map_or(default, |text| text.parse::<u64>().expect("a number"))
    };
    let (rounds, scale) = (number("ROUNDS", 5), number("SCALE", 1));
    let works = [
        ("durable, 1 thread", Work::Durable { threads: 1, calls: 3000 * scale }),
        ("durable, 8 threads", Work::Durable { threads: 8, calls: 2000 * scale }),
        ("durable, 32 threads", Work::Durable { threads: 32, calls: 1000 * scale }),
        ("not durable, 1 thread", Work::Append { threads: 1, calls: 1_000_000 * scale }),
        ("not durable, 8 threads", Work::Append { threads: 8, calls: 125_000 * scale }),
        ("get, memtable, 1 thread", Work::GetFromMemtable { keys: 200_000 }),
        ("get, tables, 1 thread", Work::GetFromTables { threads: 1, keys: 200_000 }),
        ("get, tables, 8 threads", Work::GetFromTables { threads: 8, keys: 200_000 }),
    ];
    let rocksdb = DbBench::find();
    let column = rocksdb.as_ref().map(|found| format!("RocksDB {}", found.version));
    if column.is_none() {
        println!("RocksDB is left out: db_bench is not installed, and DB_BENCH names none");
    }
    let column = column.unwrap_or_default();
    println!("{:>24} {:>35} {:>35} {:>6} {column:>35}", "", "here", "fjall", "");
    for (name, work) in works {
        let (mut here, mut fjall, mut others) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..rounds {
            here.push(run::<Here>(work));
            fjall.push(run::<Fjall>(work));
            others.extend(rocksdb.as_ref().map(|found| found.rate(work, folder().path())));
        }
        let here = Figure::of(here);
        let beside = |other: Figure| format!("{other} {:>5.2}x", here.median / other.median);
        let rocksdb = if others.is_empty() { String::new() } else { beside(Figure::of(others)) };
        println!("{name:>24} {here} {} {rocksdb}", beside(Figure::of(fjall)));
    }
}
