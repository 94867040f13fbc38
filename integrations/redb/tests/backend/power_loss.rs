//! A simulated disk loses power, or its process dies, at a random call; then the database is opened
//! again. It must have all transactions whose commits have returned, whole, and nothing else. The
//! log and the base file both lie on that disk.
//!
//! `PALISADE_FIRST_SEED` and `PALISADE_SEEDS` say which seeds are run; `cargo test` runs a few
//! hundred.

use crate::common::small;
use crate::dice::Dice;
use crate::model::{Ending, Model};
use crate::reached::{Reached, sweep_reaching};
use crate::seeds::Seeded;
use palisade::sim::{CallKind, Fault, FaultKind, SimDisk};
use palisade_redb::{Options, PalisadeBackend};
use redb::{Builder, Database, StorageBackend};

/// Seeds of a plain `cargo test`.
const SEEDS: u64 = 150;
const COMMAND: &str = "--manifest-path integrations/redb/Cargo.toml --test backend no_crash";
const PROCESSES: u64 = 4;
/// The most steps of a process. It often dies before.
const STEPS: u64 = 25;

const CHECKPOINT: &str = "checkpoints that were called";
const CHECKPOINT_CRASH: &str = "crashes in checkpoints that were called";
const COMPACTION: &str = "compactions";
const CLOSE: &str = "closes";
const TRUNCATION: &str = "truncations that were not called";
const GROWTH: &str = "growth of the file";
const SHRINK: &str = "shrinks of the file";
const ABANDONED: &str = "abandoned logs";
const FULL: &str = "steps that a full log has failed";
const OPEN_CRASH: &str = "crashes in opens";
const STEP_CRASH: &str = "crashes in steps";
const CLOSE_CRASH: &str = "crashes in closes";
const LATE: &str = "commits found that had not returned";
const KINDS: [&str; 18] = [
    name(Ending::OnePhase),
    name(Ending::TwoPhases),
    name(Ending::QuickRepair),
    name(Ending::NotDurable),
    name(Ending::Aborted),
    CHECKPOINT,
    CHECKPOINT_CRASH,
    COMPACTION,
    CLOSE,
    TRUNCATION,
    GROWTH,
    SHRINK,
    ABANDONED,
    FULL,
    OPEN_CRASH,
    STEP_CRASH,
    CLOSE_CRASH,
    LATE,
];

const fn name(ending: Ending) -> &'static str {
    match ending {
        Ending::OnePhase => "one-phase commits",
        Ending::TwoPhases => "two-phase commits",
        Ending::QuickRepair => "commits with quick repair",
        Ending::NotDurable => "commits that are not durable",
        Ending::Aborted => "aborts",
    }
}

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
    reached: Reached,
}

impl Seeded for History {
    fn new(seed: u64) -> History {
        let disk = match seed % 5 {
            4 => SimDisk::new(seed).without_memory(),
            _ => SimDisk::new(seed),
        };
        disk.fail(Fault::rate(20, FaultKind::ShortWrite));
        disk.fail(Fault::rate(20, FaultKind::Interrupted).only(CallKind::Write));
        let (durable, reached) = (Model::default(), Reached::new(&KINDS));
        History { seed, disk, dice: Dice::new(seed), durable, begun: None, reached }
    }

    fn run(&mut self) {
        for run in 0..PROCESSES {
            self.disk.crash_at(self.disk.calls() + self.dice.below(400));
            if let Err(error) = self.process() {
                assert!(self.disk.is_dead(), "process {run}: {error}");
            }
            match self.dice.below(3) {
                0 => self.disk.restart(),
                _ => self.disk.lose_power(),
            }
            // Else the next process opens what is left, and may die in that open.
            if run + 1 == PROCESSES || self.dice.once_in(2) {
                self.check(run);
            }
        }
    }

    fn describe(&self) -> String {
        self.disk.trace().join("\n")
    }
}

impl History {
    /// Opens the database and compares it. What it has is durable from now on.
    fn open(&mut self) -> Result<(PalisadeBackend, Database), String> {
        let opened = options(self.seed).open_on(self.disk.as_disk(), "/db");
        let backend = opened.map_err(|error| error.to_string())?;
        let builder = &mut Builder::new();
        let opened = builder.set_cache_size(64 << 10).create_with_backend(backend.clone());
        let db = opened.map_err(|error| error.to_string())?;
        let found = Model::read(&db).map_err(|error| error.to_string())?;
        let is_begun = self.begun.as_ref().is_some_and(|begun| *begun == found);
        assert!(found == self.durable || is_begun, "an open has found something else");
        if self.disk.is_dead() {
            return Err("the process has died in the open".to_string());
        }
        self.reached.add(u64::from(found != self.durable), LATE);
        (self.durable, self.begun) = (found, None);
        Ok((backend, db))
    }

    /// Opens the database and works on it, until the process dies or has made its steps.
    fn process(&mut self) -> Result<(), String> {
        let opened = self.open();
        self.reached.add(u64::from(opened.is_err() && self.disk.is_dead()), OPEN_CRASH);
        let (backend, mut db) = opened?;
        // What the database shows: not all of it may be durable.
        let mut shown = self.durable.clone();
        for _ in 0..self.dice.below(STEPS) {
            let (len, head) = (backend.len().unwrap(), backend.log().head_lsn());
            let is_called = self.dice.once_in(12);
            let done = match is_called {
                true => backend.checkpoint().map_err(|error| error.to_string()),
                false => self.step(&mut db, &mut shown),
            };
            if self.disk.is_dead() {
                self.reached.add(1, if is_called { CHECKPOINT_CRASH } else { STEP_CRASH });
                return Ok(());
            }
            match done {
                Err(error) if !is_called && self.is_full(&error) => {
                    self.reached.add(1, FULL);
                    return Ok(()); // the database needs another open
                }
                done => done?,
            }
            self.reached.add(u64::from(is_called), CHECKPOINT);
            let new_len = backend.len().unwrap();
            self.reached.add(u64::from(new_len > len), GROWTH);
            self.reached.add(u64::from(new_len < len), SHRINK);
            let is_truncated = backend.log().head_lsn() > head;
            self.reached.add(u64::from(is_truncated && !is_called), TRUNCATION);
        }
        // A close makes everything durable that is shown.
        self.begun = Some(shown.clone());
        let closed = db.close().map_err(|error| error.to_string());
        if self.disk.is_dead() {
            self.reached.add(1, CLOSE_CRASH);
            return Ok(());
        }
        match closed {
            // Rare: not each run of the test comes to it.
            Err(error) if self.is_full(&error) => Ok(()),
            closed => {
                closed?;
                self.reached.add(1, CLOSE);
                self.returned(&shown);
                Ok(())
            }
        }
    }

    /// Whether a step failed because the log is too short for it.
    fn is_full(&self, error: &str) -> bool {
        self.seed % 3 == 2 && error.contains("max_bytes")
    }

    fn step(&mut self, db: &mut Database, shown: &mut Model) -> Result<(), String> {
        if self.dice.once_in(12) {
            // Begins with a durable commit of what is shown.
            self.begun = Some(shown.clone());
            db.compact().map_err(|error| error.to_string())?;
            self.reached.add(1, COMPACTION);
            self.returned(shown);
            return Ok(());
        }
        let mut begun = None;
        let keep = &mut |after: &Model| begun = Some(after.clone());
        let done = shown.transaction(db, &mut self.dice, keep);
        self.begun = begun.or(self.begun.take());
        let (after, ending) = done.map_err(|error| error.to_string())?;
        self.reached.add(1, name(ending));
        *shown = after;
        if ending.is_durable() {
            self.returned(shown);
        }
        Ok(())
    }

    /// A durable commit of what is shown has returned. It promises nothing if the process is dead.
    fn returned(&mut self, shown: &Model) {
        if !self.disk.is_dead() {
            (self.durable, self.begun) = (shown.clone(), None);
        }
    }

    /// Opens the database, which nothing disturbs, and ends the process.
    fn check(&mut self, run: u64) {
        let opened = self.open();
        let (backend, mut db) = opened.unwrap_or_else(|error| panic!("process {run}: {error}"));
        if self.dice.once_in(4) {
            assert!(db.check_integrity().unwrap(), "process {run}");
        }
        // Half the runs begin with a log that was not closed.
        if self.dice.once_in(2) {
            backend.log().clone().abandon();
            self.reached.add(1, ABANDONED);
        }
        drop(db);
    }
}

#[test]
fn no_crash_loses_a_commit_or_shows_a_part_of_one() {
    sweep_reaching(COMMAND, SEEDS, |history: &History| &history.reached);
}
