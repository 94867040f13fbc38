//! The log's disk loses power, or the process dies, at a random call. Then the database is opened
//! again and compared with what its calls have promised: all acknowledged batches are there, each
//! is whole, and there is nothing else.
//!
//! The log is on a simulated disk, which loses or tears what was not synced. The tables are in a
//! real folder. `lsm-tree` calls no simulated disk, so a flush is one step between two calls of the
//! log. A crash within the flush is modelled afterwards: as long as the log was not truncated, the
//! tables of the last keyspaces may also be as they were before, the first of them with some of the
//! new files, whole or cut short, and the file `flushed` as it was before. After the truncation
//! they must be as the flush left them. After some crashes the log has too many segments: then the
//! first write of a process flushes.
//!
//! `PALISADE_FIRST_SEED` and `PALISADE_SEEDS` say which seeds are run; `cargo test` runs a few
//! hundred.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "progress of long runs")]

#[expect(dead_code, reason = "other harnesses with seeds use the rest")]
#[path = "../../../crates/palisade/tests/common/dice.rs"]
mod dice;
mod folders;
#[path = "../../../crates/palisade/tests/common/reached.rs"]
mod reached;
#[path = "../../../crates/palisade/tests/common/seeds.rs"]
mod seeds;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use palisade::disk::{DEFAULT_FILE_MODE, Disk};
use palisade::sim::{CallKind, FaultDisk, SimDisk, Target};
use palisade::{Lsn, OpenMode};
use palisade_lsm::{Database, Error, Keyspace, Options, Result};

use dice::Dice;
use folders::{copy_folder, files};
use reached::{Reached, sweep_reaching};
use seeds::Seeded;

/// Seeds of a plain `cargo test`.
const SEEDS: u64 = 200;
const PROCESSES: u64 = 4;
const STEPS: u64 = 25;
const LOG: &str = "/db/log";
const KEYSPACES: [&str; 2] = ["left", "right"];
/// The key that each batch sets to its number, in both keyspaces.
const COUNT: &[u8] = b"count";

/// What the seeds of a plain `cargo test` must come to.
const KINDS: [&str; 7] = [
    "opens that died",
    "flushes",
    "crashes within a flush",
    "closes",
    "batches that a crash kept without a promise",
    "batches that a crash took",
    "keyspaces that are not there after a crash",
];

type Map = BTreeMap<Vec<u8>, Vec<u8>>;
type World = [Map; 2];

fn log_options() -> palisade::Options {
    palisade::Options::new().segment_bytes(64 << 10).buffer_bytes(4 << 10)
}

/// Whether the log has a shared buffer, which outlives the process.
fn has_memory(seed: u64) -> bool {
    seed % 5 != 4
}

fn new_disk(seed: u64) -> SimDisk {
    let disk = SimDisk::new(seed);
    let disk = if has_memory(seed) { disk } else { disk.without_memory() };
    let os = disk.as_disk();
    os.create_folder(Path::new("/db"), DEFAULT_FILE_MODE).unwrap();
    os.open_folder(Path::new("/"), DEFAULT_FILE_MODE).unwrap().sync().unwrap();
    disk
}

struct Run {
    seed: u64,
    disk: SimDisk,
    dice: Dice,
    folder: tempfile::TempDir,
    /// What the database has after each batch since the last open. The first is what it had then.
    worlds: Vec<World>,
    /// The first of `worlds` that a power loss may leave.
    durable: usize,
    /// A copy of the tables from before the last flush or compaction that may not have ended, and
    /// the head of the log at that time.
    before: Option<(tempfile::TempDir, Lsn)>,
    batches: u64,
    /// How many of the keyspaces a call has opened, made or shown.
    created: usize,
    reached: Reached,
}

/// How a batch is written.
#[derive(Clone, Copy, PartialEq)]
enum Call {
    Append,
    AppendAndWait,
    Commit,
}

impl Seeded for Run {
    fn new(seed: u64) -> Run {
        Run {
            seed,
            disk: new_disk(seed),
            dice: Dice::new(seed),
            folder: tempfile::tempdir().unwrap(),
            worlds: vec![World::default()],
            durable: 0,
            before: None,
            batches: 0,
            created: 0,
            reached: Reached::new(&KINDS),
        }
    }

    fn run(&mut self) {
        for _ in 0..PROCESSES {
            let lifetime = self.dice.below(200);
            self.disk.crash_at(self.disk.calls() + lifetime);
            self.process();
            if !self.disk.is_dead() {
                self.disk.kill();
            }
            if self.dice.once_in(4) {
                // Without a shared buffer a kill takes what was not written to the file.
                if has_memory(self.seed) {
                    self.durable = self.worlds.len() - 1;
                }
                self.disk.restart();
            } else {
                self.disk.lose_power();
            }
            self.undo_flush();
            self.check();
        }
    }

    fn describe(&self) -> String {
        self.disk.trace().join("\n")
    }
}

impl Run {
    fn open(&self) -> Result<Database> {
        let options = Options::new().background(false).cache_bytes(64 << 10).log(log_options());
        options.open_on(self.disk.as_disk(), LOG, self.folder.path())
    }

    /// Opens the database and works on it, until the process dies or has made its steps.
    fn process(&mut self) {
        let opened = self.open();
        assert!(opened.is_ok() || self.disk.is_dead(), "seed {}: {:?}", self.seed, opened.err());
        let Ok(database) = opened else { return self.reached.add(1, "opens that died") };
        // After some crashes the log has too many segments, and the first write flushes.
        self.keep_tables(&database);
        let opened = self.keyspaces(&database);
        assert!(opened.is_ok() || self.disk.is_dead(), "seed {}: {:?}", self.seed, opened.err());
        let Ok(keyspaces) = opened else { return };
        for _ in 0..STEPS {
            let done = match self.dice.below(20) {
                0..8 => self.batch(&database, &keyspaces, Call::Append),
                8..10 => self.batch(&database, &keyspaces, Call::AppendAndWait),
                10..13 => self.batch(&database, &keyspaces, Call::Commit),
                13 => {
                    let appended = self.worlds.len() - 1;
                    database.sync().map(|()| self.durable = appended)
                }
                14..16 => {
                    self.read(&database, &keyspaces);
                    Ok(())
                }
                16..18 => self.flush(&database),
                18 => {
                    self.keep_tables(&database);
                    database.compact()
                }
                _ => self.change(&keyspaces),
            };
            if done.is_err() {
                assert!(self.disk.is_dead(), "seed {}: {done:?}", self.seed);
            }
            if self.disk.is_dead() {
                break;
            }
        }
        if self.dice.once_in(3) {
            let appended = self.worlds.len() - 1;
            let closed = database.close();
            assert!(closed.is_ok() || self.disk.is_dead(), "seed {}: {closed:?}", self.seed);
            if closed.is_ok() {
                self.durable = appended;
                self.reached.add(1, "closes");
            }
        }
        // As a kill: nothing more reaches the disk.
        self.disk.kill();
    }

    fn keyspaces(&mut self, database: &Database) -> Result<Vec<Keyspace>> {
        let mut opened = Vec::new();
        for name in KEYSPACES {
            opened.push(database.keyspace_or_create(name)?);
            self.created = self.created.max(opened.len());
        }
        Ok(opened)
    }

    fn batch(&mut self, database: &Database, keyspaces: &[Keyspace], call: Call) -> Result<()> {
        self.batches += 1;
        let mut world = self.worlds.last().unwrap().clone();
        let mut batch = database.batch();
        for (keyspace, map) in keyspaces.iter().zip(&mut world) {
            let count = self.batches.to_be_bytes().to_vec();
            batch.put(keyspace, COUNT, &count)?;
            map.insert(COUNT.to_vec(), count);
            for _ in 0..self.dice.below(3) {
                let key = vec![self.dice.below(12) as u8];
                if self.dice.once_in(3) {
                    batch.delete(keyspace, &key)?;
                    map.remove(&key);
                } else {
                    let value = self.value();
                    batch.put(keyspace, &key, &value)?;
                    map.insert(key, value);
                }
            }
        }
        let ticket = match call {
            Call::Commit => self.done(world, batch.commit().map(|_| None))?,
            _ => self.done(world, batch.append().map(Some))?,
        };
        if let (Some(ticket), Call::AppendAndWait) = (ticket, call) {
            ticket.wait()?;
        }
        if call != Call::Append {
            self.durable = self.worlds.len() - 1;
        }
        Ok(())
    }

    /// Puts or deletes one key.
    fn change(&mut self, keyspaces: &[Keyspace]) -> Result<()> {
        self.batches += 1;
        let number = self.dice.below(2) as usize;
        let mut world = self.worlds.last().unwrap().clone();
        let last = world[number].keys().next_back().filter(|key| *key != COUNT).cloned();
        let done = if let Some(key) = last.filter(|_| self.dice.once_in(2)) {
            world[number].remove(&key);
            keyspaces[number].delete(&key)
        } else {
            let (key, value) = (vec![self.dice.below(12) as u8], self.value());
            world[number].insert(key.clone(), value.clone());
            keyspaces[number].put(&key, &value)
        };
        self.done(world, done)?;
        self.durable = self.worlds.len() - 1;
        Ok(())
    }

    /// A value that no other batch has.
    fn value(&mut self) -> Vec<u8> {
        let mut value = self.batches.to_be_bytes().to_vec();
        value.resize(8 + self.dice.below(300) as usize, self.batches as u8);
        value
    }

    /// After an error the changes may be there, unless the flush before the append has failed. An
    /// append to the memory of a dead process returns `Ok`, and they may be there or not.
    fn done<T>(&mut self, world: World, called: Result<T>) -> Result<T> {
        if !matches!(called, Err(Error::Stopped(_))) {
            self.worlds.push(world);
        }
        called
    }

    /// A snapshot has a prefix of the batches, and a crash takes none of them back.
    fn read(&mut self, database: &Database, keyspaces: &[Keyspace]) {
        let snapshot = database.snapshot();
        assert_eq!(database.stats().durable_lsn, snapshot.lsn(), "seed {}", self.seed);
        let found = [0, 1].map(|number| collect(&snapshot, &keyspaces[number]));
        let shown = self.worlds.iter().rposition(|world| *world == found);
        let shown = shown.unwrap_or_else(|| panic!("seed {}: a torn snapshot", self.seed));
        assert!(shown >= self.durable, "seed {}: the snapshot is old", self.seed);
        self.durable = shown;
        let newest = database.newest_snapshot();
        if newest.is_durable() {
            self.durable = self.worlds.len() - 1;
        }
        let found = [0, 1].map(|number| collect(&newest, &keyspaces[number]));
        assert_eq!(found, *self.worlds.last().unwrap(), "seed {}", self.seed);
    }

    fn flush(&mut self, database: &Database) -> Result<()> {
        self.keep_tables(database);
        if self.dice.once_in(4) {
            self.disk.crash_at(self.disk.calls() + self.dice.below(8));
        }
        let appended = self.worlds.len() - 1;
        database.flush()?;
        self.durable = appended;
        self.before = None;
        self.reached.add(1, "flushes");
        Ok(())
    }

    fn keep_tables(&mut self, database: &Database) {
        let copy = tempfile::tempdir().unwrap();
        copy_folder(&self.folder.path().join("tables"), &copy.path().join("tables"));
        self.before = Some((copy, database.log().head_lsn()));
    }

    /// If the power was lost before the log was truncated, it may have been lost within the flush.
    fn undo_flush(&mut self) {
        let Some((before, head)) = self.before.take() else { return };
        let fork = self.disk.fork(0);
        fork.restart();
        let options = log_options().open_mode(OpenMode::MustExist);
        let recovery = options.recover_on(fork.as_disk(), LOG).unwrap();
        if recovery.head() != head {
            return;
        }
        self.reached.add(1, "crashes within a flush");
        // A flush writes the tables of one keyspace after the other, then the file `flushed`.
        let written = self.dice.below(4);
        if written < 3 || self.dice.once_in(2) {
            self.undo_note(&before.path().join("tables"));
        }
        for number in written..3 {
            let [old, new] = [before.path(), self.folder.path()]
                .map(|folder| folder.join(format!("tables/{number}")));
            if !old.exists() {
                continue; // the keyspace is not older than the process run
            }
            if number == written && self.dice.once_in(2) {
                self.add_new_files(&new, &old);
            }
            fs::remove_dir_all(&new).unwrap();
            copy_folder(&old, &new);
        }
    }

    /// Puts the file `flushed` back. What was to take its place may be there, whole or cut short.
    fn undo_note(&mut self, before: &Path) {
        let tables = self.folder.path().join("tables");
        let (note, new) = (tables.join("flushed"), tables.join("flushed.new"));
        let Ok(mut bytes) = fs::read(&note) else { return };
        bytes.truncate(self.dice.below(bytes.len() as u64 + 1) as usize);
        fs::write(new, bytes).unwrap();
        match fs::read(before.join("flushed")) {
            Ok(old) => fs::write(note, old).unwrap(),
            Err(_) => fs::remove_file(note).unwrap(),
        }
    }

    /// Copies some of the files that only `new` has, whole or cut short.
    fn add_new_files(&mut self, new: &Path, old: &Path) {
        for file in files(new) {
            let copy = old.join(file.strip_prefix(new).unwrap());
            if copy.exists() || self.dice.once_in(3) {
                continue;
            }
            let mut bytes = fs::read(&file).unwrap();
            if self.dice.once_in(2) {
                bytes.truncate(self.dice.below(bytes.len() as u64 + 1) as usize);
            }
            fs::write(copy, bytes).unwrap();
        }
    }

    /// Opens the database and compares it. What it has is durable from now on.
    fn check(&mut self) {
        let database = self.open();
        let database = database.unwrap_or_else(|error| panic!("seed {}: {error}", self.seed));
        let snapshot = database.snapshot();
        let names = database.keyspaces();
        assert!(names.len() >= self.created, "seed {}: only keyspaces {names:?}", self.seed);
        assert_eq!(names, KEYSPACES[..names.len()], "seed {}", self.seed);
        self.created = names.len();
        let missing = (KEYSPACES.len() - names.len()) as u64;
        self.reached.add(missing, "keyspaces that are not there after a crash");
        let found = KEYSPACES.map(|name| {
            database.keyspace(name).map_or(Map::new(), |keyspace| collect(&snapshot, &keyspace))
        });
        let matched = self.worlds.iter().rposition(|world| *world == found);
        let count = |world: &World| world[0].get(COUNT).map(|bytes| bytes[7]);
        let context = || {
            let counts: Vec<_> = self.worlds.iter().map(count).collect();
            format!("seed {}: {:?} in {counts:?} from {}", self.seed, count(&found), self.durable)
        };
        let matched = matched.unwrap_or_else(|| panic!("no such state, {}", context()));
        assert!(matched >= self.durable, "lost batches, {}", context());
        let last = self.worlds.len() - 1;
        self.reached
            .add((matched - self.durable) as u64, "batches that a crash kept without a promise");
        self.reached.add((last - matched) as u64, "batches that a crash took");
        (self.worlds, self.durable) = (vec![found], 0);
        // Half the runs go on with a log that was closed.
        if self.dice.once_in(2) {
            drop(snapshot);
            database.close().unwrap();
        }
    }
}

fn collect(snapshot: &palisade_lsm::Snapshot, keyspace: &Keyspace) -> Map {
    let pairs = snapshot.range::<&[u8]>(keyspace, ..).map(Result::unwrap);
    pairs.map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

#[test]
fn no_crash_loses_or_divides_an_acknowledged_batch() {
    let test = "--manifest-path integrations/lsm/Cargo.toml --test power_loss";
    sweep_reaching(test, SEEDS, |run: &Run| &run.reached);
}

/// A writer appends a batch beside the first sync of a flush. The flush seals the batch, so it must
/// sync the log again before it writes the batch to tables. Power is lost when one keyspace has its
/// new tables and the other does not.
#[test]
fn a_batch_that_is_appended_within_a_flush_stays_whole() {
    let sim = new_disk(0);
    let disk = FaultDisk::new(sim.as_disk());
    let (folder, old) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let open = |disk: Arc<dyn Disk>| {
        let options = Options::new().background(false).log(log_options());
        options.open_on(disk, LOG, folder.path()).unwrap()
    };
    let database = open(Arc::new(disk.clone()));
    let keyspaces = KEYSPACES.map(|name| database.keyspace_or_create(name).unwrap());
    let append = move |database: &Database, value: &[u8]| {
        let mut batch = database.batch();
        keyspaces.iter().for_each(|keyspace| batch.put(keyspace, COUNT, value).unwrap());
        batch.append().unwrap().lsn()
    };
    append(&database, b"before");
    let tables = |number: u8| folder.path().join(format!("tables/{number}"));
    copy_folder(&tables(2), old.path());

    let (left, before, has_appended) = (tables(1), files(&tables(1)).len(), AtomicBool::new(false));
    let (writer, killed) = (database.clone(), sim.clone());
    disk.watch(move |call| {
        let is_sync = (call.kind, call.target) == (CallKind::Sync, Target::Segment);
        // Relaxed: one thread makes these calls, and waits for the other one.
        if is_sync && !has_appended.swap(true, Ordering::Relaxed) {
            thread::scope(|scope| {
                scope.spawn(|| append(&writer, b"within")).join().unwrap();
            });
        } else if has_appended.load(Ordering::Relaxed) && files(&left).len() > before {
            killed.kill();
        }
        Ok(())
    });
    database.flush().unwrap_err();
    assert!(sim.is_dead());
    disk.watch(|_| Ok(()));
    drop(database);
    sim.lose_power();
    fs::remove_dir_all(tables(2)).unwrap();
    copy_folder(old.path(), &tables(2));
    fs::remove_file(folder.path().join("tables/flushed")).unwrap(); // a flush writes it last

    let database = open(sim.as_disk());
    let snapshot = database.snapshot();
    let [left, right] = KEYSPACES.map(|name| {
        let found = collect(&snapshot, &database.keyspace(name).unwrap());
        found.get(COUNT).cloned()
    });
    assert_eq!(left, right);
    assert_eq!(left.unwrap(), b"within");
}
