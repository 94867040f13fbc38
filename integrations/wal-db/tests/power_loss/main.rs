//! A simulated disk loses power, or its process dies, at a random call; then the log is opened
//! again and compared with what its calls have promised.
//!
//! An engine that empties the log by removing its file first writes its state to a file, which it
//! renames, and syncs no folder. If the log's file is there after a crash, the records must be
//! there, too, or the state.
//!
//! `PALISADE_FIRST_SEED` and `PALISADE_SEEDS` say which seeds are run; `cargo test` runs a few
//! hundred.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "progress and figures of long runs")]

#[expect(dead_code, reason = "other harnesses with seeds use the rest")]
#[path = "../../../../crates/palisade/tests/common/dice.rs"]
mod dice;
#[path = "../../../../crates/palisade/tests/common/reached.rs"]
mod reached;
mod run;
#[path = "../../../../crates/palisade/tests/common/seeds.rs"]
mod seeds;
mod world;

use std::path::Path;
use std::sync::Arc;

use palisade::Options;
use palisade::disk::Disk;
use wal_db::{FileStore, Result, SegmentedStore, Wal, WalStore};

use reached::sweep_reaching;
use run::{Run, read};
use seeds::Seeded;

/// Seeds of a plain `cargo test`.
const SEEDS: u64 = 300;
const FOLDER: &str = "/db";
const FILE: &str = "wal.log";
/// Small, so that some records have parts.
const BUFFER_BYTES: usize = 4096;
/// What the seeds of a plain `cargo test` must come to.
const KINDS: [&str; 17] = [
    "opens of a log with records",
    "crashes within an open",
    "appends",
    "appends of long records",
    "syncs",
    "truncations of the suffix",
    "truncations of the suffix after a long record on segments",
    "truncations after a record that is gone",
    "truncations of the prefix",
    "truncations of the prefix before a long record",
    "emptied logs",
    "clean ends",
    "second handles of a log that is as it was",
    "second handles after the file was away",
    "second handles after the file's second name was removed",
    "second handles that emptied the log",
    "crashes within the open of a second handle",
];

fn open_file(disk: Arc<dyn Disk>) -> Result<Wal> {
    let store = FileStore::open_on(disk, Path::new(FOLDER).join(FILE))?;
    let options = Options::new().segment_bytes(64 << 10).buffer_bytes(BUFFER_BYTES);
    Wal::with_store(store.with_options(options))
}

fn open_segmented(disk: Arc<dyn Disk>) -> Result<Wal<SegmentedStore>> {
    let store = SegmentedStore::open_on(disk, Path::new(FOLDER).join("log"), 64 << 10)?;
    Wal::with_store(store)
}

/// The two kinds of logs, in turns.
enum History {
    File(Run<FileStore>),
    Segmented(Run<SegmentedStore>),
}

impl Seeded for History {
    fn new(seed: u64) -> History {
        if seed.is_multiple_of(2) {
            History::File(Run::new(seed, open_file, false))
        } else {
            History::Segmented(Run::new(seed, open_segmented, true))
        }
    }

    fn run(&mut self) {
        match self {
            History::File(run) => run.all(),
            History::Segmented(run) => run.all(),
        }
    }

    fn describe(&self) -> String {
        let (History::File(Run { disk, .. }) | History::Segmented(Run { disk, .. })) = self;
        disk.trace().join("\n")
    }
}

/// The first open dies at each of its calls, and the next one finds what it has made. Then a record
/// is acknowledged, and power is lost.
fn first_open_dies<S: WalStore>(open: fn(Arc<dyn Disk>) -> Result<Wal<S>>) {
    for (call, seed) in (0..60).flat_map(|call| (0..8).map(move |seed| (call, seed))) {
        let run = Run::new(seed, open, false);
        run.disk.crash_at(run.disk.calls() + call);
        drop(open(run.disk.as_disk()));
        run.disk.kill();
        run.disk.restart();
        let wal = open(run.disk.as_disk()).unwrap();
        wal.append_and_sync(b"record").unwrap();
        run.disk.kill();
        drop(wal);
        run.disk.lose_power();
        let wal = open(run.disk.as_disk()).unwrap();
        assert_eq!(read(&wal).unwrap().len(), 1, "call {call}, seed {seed}");
    }
}

#[test]
fn a_first_open_that_dies_leaves_no_name_to_power_loss() {
    first_open_dies(open_file);
    first_open_dies(open_segmented);
}

#[test]
fn no_crash_loses_what_was_acknowledged() {
    let test = "--manifest-path integrations/wal-db/Cargo.toml --test power_loss";
    sweep_reaching(test, SEEDS, |history: &History| {
        let (History::File(Run { reached, .. }) | History::Segmented(Run { reached, .. })) =
            history;
        reached
    });
}
