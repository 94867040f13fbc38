//! The backend as a storage of bytes, against a vector.

use std::io;
use std::sync::Arc;

use crate::common::small;
use crate::dice::Dice;
use crate::reached::{Reached, sweep_reaching};
use crate::seeds::{Seeded, sweep};
use palisade::disk::MemDisk;
use palisade::sim::{Fate, SimDisk};
use palisade_redb::PalisadeBackend;
use redb::StorageBackend;

const MOST_BYTES: u64 = 60 * 4096;

fn content(backend: &PalisadeBackend) -> io::Result<Vec<u8>> {
    let mut bytes = vec![1; backend.len()? as usize];
    backend.read(0, &mut bytes)?;
    Ok(bytes)
}

/// Makes a random write or a random change of the length, in the storage and in `model`.
fn change(backend: &PalisadeBackend, model: &mut Vec<u8>, dice: &mut Dice) {
    let (at, step) = (dice.below(MOST_BYTES), [1, 512, 4096][dice.below(3) as usize]);
    let at = at / step * step;
    if dice.once_in(6) {
        model.resize(at as usize, 0);
        return backend.set_len(at).unwrap();
    }
    let len = (1 + dice.below(5 * 4096)).div_ceil(step) * step;
    let fill = dice.below(256) as u8;
    let data: Vec<u8> = (0..len).map(|byte| (byte as u8) | fill).collect();
    let end = (at + len) as usize;
    model.resize(model.len().max(end), 0);
    model[at as usize..end].copy_from_slice(&data);
    backend.write(at, &data).unwrap();
}

fn check_range(backend: &PalisadeBackend, model: &[u8], dice: &mut Dice) {
    let at = dice.below(model.len() as u64 + 1) as usize;
    let len = dice.below((model.len() - at) as u64 + 1) as usize;
    let mut bytes = vec![1; len];
    backend.read(at as u64, &mut bytes).unwrap();
    assert!(bytes == model[at..at + len], "{len} bytes at {at}");
    let beyond = backend.read(at as u64, &mut vec![0; model.len() - at + 1]);
    assert_eq!(beyond.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
}

/// A storage without crashes.
struct Workload {
    dice: Dice,
    run: u32,
}

impl Seeded for Workload {
    fn new(seed: u64) -> Workload {
        Workload { dice: Dice::new(seed), run: 0 }
    }

    fn run(&mut self) {
        let Workload { dice, run } = self;
        let disk = MemDisk::new();
        let mut model = Vec::new();
        while *run < 4 {
            let backend = small().open_on(Arc::new(disk.clone()), "/db").unwrap();
            assert!(content(&backend).unwrap() == model, "after the open");
            for _ in 0..40 {
                match dice.below(8) {
                    0 => backend.sync_data().unwrap(),
                    1 => backend.checkpoint().unwrap(),
                    _ => change(&backend, &mut model, dice),
                }
                assert_eq!(backend.len().unwrap(), model.len() as u64);
                check_range(&backend, &model, dice);
            }
            backend.sync_data().unwrap();
            if dice.once_in(2) {
                backend.close().unwrap();
                assert!(backend.log().records().unwrap().into_iter().count() <= 1);
            }
            *run += 1;
        }
    }

    fn describe(&self) -> String {
        format!("run {}", self.run)
    }
}

#[test]
fn reads_return_what_was_written_also_after_a_close() {
    let command = "--manifest-path integrations/redb/Cargo.toml --test backend reads_return";
    sweep(command, 60, |_: Workload| {});
}

const WAITING: &str = "syncs that wait";
const ORDERED: &str = "syncs that only order";
const LOST: &str = "losses of ordered syncs";
const CHECKPOINT: &str = "checkpoints of ordered syncs";
const CHECKPOINT_CRASH: &str = "crashes in checkpoints of ordered syncs";
const OPEN_CRASH: &str = "crashes in opens";

/// Where redb's header has the slot of the current commit.
const FLAGS: usize = 9;

/// Returns the begin of redb's header, with `slot` as that of the current commit. A sync that does
/// not move it only orders.
fn header(slot: u8) -> [u8; 193] {
    let mut header = [0; 193];
    header[..FLAGS].copy_from_slice(b"redb\x1A\x0A\xA9\x0D\x0A");
    (header[FLAGS], header[64], header[192]) = (slot, 3, 3);
    header
}

/// A storage that crashes. With enough memory nothing is spilled, so each sync is atomic, whatever
/// it has.
struct History {
    disk: SimDisk,
    dice: Dice,
    /// Whether each sync has redb's header, so that some of them only order.
    has_header: bool,
    model: Vec<u8>,
    /// What the storage may be after a crash: as of the last sync that was durable, or a later one.
    synced: Vec<Vec<u8>>,
    reached: Reached,
}

impl Seeded for History {
    fn new(seed: u64) -> History {
        History {
            disk: SimDisk::new(seed),
            dice: Dice::new(seed),
            has_header: seed % 2 == 1,
            model: Vec::new(),
            synced: vec![Vec::new()],
            reached: Reached::new(&[
                WAITING,
                ORDERED,
                LOST,
                CHECKPOINT,
                CHECKPOINT_CRASH,
                OPEN_CRASH,
            ]),
        }
    }

    fn run(&mut self) {
        for run in 0..5 {
            self.disk.crash_at(self.disk.calls() + self.dice.below(120));
            let worked = self.work();
            assert!(worked.is_ok() || self.disk.is_dead(), "run {run}: {worked:?}");
            if self.dice.once_in(2) {
                self.disk.restart()
            } else {
                self.disk.lose_power()
            };
        }
        self.open().unwrap();
    }

    fn describe(&self) -> String {
        self.disk.trace().join("\n")
    }
}

impl History {
    /// Opens the storage and compares it. What it has is durable from now on.
    fn open(&mut self) -> io::Result<PalisadeBackend> {
        let options = small().memory_bytes(MOST_BYTES * 2).log_bytes(64 << 10);
        let opened = options.open_on(self.disk.as_disk(), "/db");
        self.reached.add(u64::from(opened.is_err()), OPEN_CRASH);
        let backend = opened?;
        let found = content(&backend)?;
        let Some(at) = self.synced.iter().rposition(|synced| *synced == found) else {
            panic!("{} bytes that no sync has left", found.len());
        };
        // The last one may be a sync that has not returned.
        self.reached.add(u64::from(self.synced.len() - at > 2), LOST);
        if !self.disk.is_dead() {
            self.synced = vec![found.clone()];
        }
        self.model = found;
        Ok(backend)
    }

    /// Works until the process dies.
    fn work(&mut self) -> io::Result<()> {
        let backend = self.open()?;
        for _ in 0..40 {
            match self.dice.below(5) {
                0 => self.sync(&backend)?,
                1 if self.dice.once_in(4) => self.checkpoint(&backend)?,
                _ if self.disk.is_dead() => return Ok(()),
                _ => {
                    let at = self.dice.below(MOST_BYTES);
                    // Even, so never 3, the version of redb's format. A first page with it can look
                    // like the header of a database in the making: a sync leaves it to the next.
                    let fill = self.dice.below(128) as u8 * 2;
                    let data = vec![fill; 1 + self.dice.below(9000) as usize];
                    if self.dice.once_in(5) {
                        self.model.resize(at as usize, 0);
                        backend.set_len(at)?;
                    } else {
                        self.write(&backend, at, &data)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn write(&mut self, backend: &PalisadeBackend, at: u64, data: &[u8]) -> io::Result<()> {
        // Fails if it reads the base file of a dead process.
        backend.write(at, data)?;
        let end = at as usize + data.len();
        self.model.resize(self.model.len().max(end), 0);
        self.model[at as usize..end].copy_from_slice(data);
        Ok(())
    }

    fn sync(&mut self, backend: &PalisadeBackend) -> io::Result<()> {
        let mut waits = true;
        if self.has_header {
            let slot = self.dice.below(2) as u8;
            let last = self.synced.last().and_then(|synced| synced.get(FLAGS));
            waits = last != Some(&slot);
            self.write(backend, 0, &header(slot))?;
        }
        self.synced.push(self.model.clone());
        backend.sync_data()?;
        self.reached.add(1, if waits { WAITING } else { ORDERED });
        if waits {
            self.last_is_durable();
        }
        Ok(())
    }

    fn checkpoint(&mut self, backend: &PalisadeBackend) -> io::Result<()> {
        let has_ordered = self.synced.len() > 1;
        let done = backend.checkpoint();
        let kind = if done.is_ok() { CHECKPOINT } else { CHECKPOINT_CRASH };
        self.reached.add(u64::from(has_ordered), kind);
        done?;
        self.last_is_durable();
        Ok(())
    }

    /// A call has returned that makes the last sync durable. It promises nothing if the process is
    /// dead.
    fn last_is_durable(&mut self) {
        if !self.disk.is_dead() {
            self.synced.drain(..self.synced.len() - 1);
        }
    }
}

#[test]
fn a_crash_leaves_the_bytes_of_a_sync() {
    let command = "--manifest-path integrations/redb/Cargo.toml --test backend a_crash_leaves";
    sweep_reaching(command, 100, |history: &History| &history.reached);
}

#[test]
fn a_checkpoint_makes_durable_what_was_only_ordered() {
    for has_checkpoint in [false, true] {
        let disk = SimDisk::new(1);
        let backend = small().open_on(disk.as_disk(), "/db").unwrap();
        backend.write(0, &header(0)).unwrap();
        backend.write(4096, &[6; 4096]).unwrap();
        backend.sync_data().unwrap();
        backend.write(4096, &[7; 4096]).unwrap();
        backend.sync_data().unwrap();
        if has_checkpoint {
            backend.checkpoint().unwrap();
        }
        disk.lose_power_choosing(&mut |_| Fate::Drop);
        let found = content(&small().open_on(disk.as_disk(), "/db").unwrap()).unwrap();
        let fill = if has_checkpoint { 7 } else { 6 };
        assert!(found.len() == 2 * 4096 && found[4096..].iter().all(|&byte| byte == fill));
    }
}

#[test]
fn a_missing_parent_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("missing").join("db");
    let text = PalisadeBackend::open(path).unwrap_err().to_string();
    assert!(text.contains("make the folder in which it is to lie first"), "{text}");
}

#[test]
fn a_checkpoint_leaves_a_file_with_all_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("db");
    let backend = small().open(&path).unwrap();
    backend.write(3 * 4096, &[7; 4096]).unwrap();
    backend.set_len(9 * 4096).unwrap();
    backend.sync_data().unwrap();
    backend.checkpoint().unwrap();
    assert!(std::fs::read(path.join("base.redb")).unwrap() == content(&backend).unwrap());

    backend.set_len(4096).unwrap();
    backend.set_len(5 * 4096).unwrap();
    backend.sync_data().unwrap();
    backend.close().unwrap();
    let file = std::fs::read(path.join("base.redb")).unwrap();
    assert!(file.len() >= 5 * 4096 && file.iter().all(|&byte| byte == 0));
}
