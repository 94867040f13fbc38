//! A simulated disk loses power, or its process dies, at a random call; then the database is opened
//! again. It must have all transactions whose commits have returned, whole, and nothing else. The
//! log and the base file both lie on that disk.
//!
//! `PALISADE_FIRST_SEED` and `PALISADE_SEEDS` say which seeds are run; `cargo test` runs a few
//! hundred.

use crate::common::small;
use crate::dice::Dice;
use crate::model::Model;
use crate::seeds::{Seeded, sweep};
use palisade::sim::{CallKind, Fault, FaultKind, SimDisk};
use palisade_redb::{Options, PalisadeBackend};
use redb::{Builder, Database};

/// Seeds of a plain `cargo test`.
const SEEDS: u64 = 150;
const COMMAND: &str = "--manifest-path integrations/redb/Cargo.toml --test backend no_crash";
const PROCESSES: u64 = 4;
const STEPS: u64 = 25;

/// Of three histories, one has a log that only its limit keeps short, and one a limit that the
/// longest commits exceed.
fn options(seed: u64) -> Options {
    let log = palisade::Options::new().segment_bytes(64 << 10).buffer_bytes(64 << 10);
    let limited = |segments: u64| {
        let log = log.clone().max_bytes(segments * ((64 << 10) + 4096));
        Options::new().log(log).memory_bytes(100 * 4096).log_bytes(1 << 30)
    };
    match seed % 3 {
        0 => small(),
        1 => limited(12),
        _ => limited(4),
    }
}

/// A database, and what it may have after a crash.
struct History {
    seed: u64,
    disk: SimDisk,
    dice: Dice,
    /// What the last commit that returned `Ok` has made durable.
    durable: Model,
    /// What a commit has made durable that has not returned, if it has.
    begun: Option<Model>,
}

impl Seeded for History {
    fn new(seed: u64) -> History {
        let disk = match seed % 5 {
            4 => SimDisk::new(seed).without_memory(),
            _ => SimDisk::new(seed),
        };
        disk.fail(Fault::rate(20, FaultKind::ShortWrite));
        disk.fail(Fault::rate(20, FaultKind::Interrupted).only(CallKind::Write));
        History { seed, disk, dice: Dice::new(seed), durable: Model::default(), begun: None }
    }

    fn run(&mut self) {
        for run in 0..PROCESSES {
            self.disk.crash_at(self.disk.calls() + self.dice.below(400));
            if let Err(error) = self.process() {
                let is_full = self.seed % 3 == 2 && error.contains("max_bytes");
                assert!(is_full || self.disk.is_dead(), "process {run}: {error}");
            }
            match self.dice.below(3) {
                0 => self.disk.restart(),
                _ => self.disk.lose_power(),
            }
            self.check(run);
        }
    }

    fn describe(&self) -> String {
        self.disk.trace().join("\n")
    }
}

impl History {
    fn open(&self) -> Result<(PalisadeBackend, Database), Box<dyn std::error::Error>> {
        let backend = options(self.seed).open_on(self.disk.as_disk(), "/db")?;
        let db = Builder::new().set_cache_size(64 << 10).create_with_backend(backend.clone())?;
        Ok((backend, db))
    }

    /// Opens the database and works on it, until the process dies or has made its steps.
    fn process(&mut self) -> Result<(), String> {
        let (_, mut db) = self.open().map_err(|error| error.to_string())?;
        // What the database shows: not all of it may be durable.
        let mut shown = self.durable.clone();
        for _ in 0..STEPS {
            if self.dice.once_in(12) {
                // Begins with a durable commit of what is shown.
                self.begun = Some(shown.clone());
                db.compact().map_err(|error| error.to_string())?;
                self.returned(&shown);
            } else {
                let mut begun = None;
                let keep = &mut |after: &Model| begun = Some(after.clone());
                let done = shown.transaction(&db, &mut self.dice, keep);
                self.begun = begun.or(self.begun.take());
                let (after, is_durable) = done.map_err(|error| error.to_string())?;
                shown = after;
                if is_durable {
                    self.returned(&shown);
                }
            }
            if self.disk.is_dead() {
                return Ok(());
            }
        }
        // A close makes everything durable that is shown.
        self.begun = Some(shown.clone());
        drop(db);
        self.returned(&shown);
        Ok(())
    }

    /// A durable commit of what is shown has returned. It promises nothing if the process is dead.
    fn returned(&mut self, shown: &Model) {
        if !self.disk.is_dead() {
            (self.durable, self.begun) = (shown.clone(), None);
        }
    }

    /// Opens the database and compares it. What it has is durable from now on.
    fn check(&mut self, run: u64) {
        let (backend, mut db) =
            self.open().unwrap_or_else(|error| panic!("process {run}: {error}"));
        let found = Model::read(&db).unwrap();
        let is_begun = self.begun.as_ref().is_some_and(|begun| *begun == found);
        assert!(found == self.durable || is_begun, "process {run}");
        if self.dice.once_in(4) {
            assert!(db.check_integrity().unwrap(), "process {run}");
        }
        // Half the runs begin with a log that was not closed.
        if self.dice.once_in(2) {
            backend.log().clone().abandon();
        }
        drop(db);
        (self.durable, self.begun) = (found, None);
    }
}

#[test]
fn no_crash_loses_a_commit_or_shows_a_part_of_one() {
    sweep(COMMAND, SEEDS, |_: History| {});
}
