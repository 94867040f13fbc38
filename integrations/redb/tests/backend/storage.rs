//! The backend as a storage of bytes, against a vector.

use std::io;
use std::sync::Arc;

use crate::common::small;
use crate::dice::Dice;
use crate::seeds::{Seeded, sweep};
use palisade::disk::MemDisk;
use palisade::sim::SimDisk;
use palisade_redb::PalisadeBackend;
use redb::StorageBackend;

const MOST_BYTES: u64 = 60 * 4096;

fn content(backend: &PalisadeBackend) -> Vec<u8> {
    let mut bytes = vec![1; backend.len().unwrap() as usize];
    backend.read(0, &mut bytes).unwrap();
    bytes
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
            assert!(content(&backend) == model, "after the open");
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

/// A storage that crashes. With enough memory nothing is spilled, so each sync is atomic, whatever
/// it has.
struct History {
    disk: SimDisk,
    dice: Dice,
    model: Vec<u8>,
    /// What the storage may be after a crash.
    synced: Vec<Vec<u8>>,
}

impl Seeded for History {
    fn new(seed: u64) -> History {
        let (disk, dice) = (SimDisk::new(seed), Dice::new(seed));
        History { disk, dice, model: Vec::new(), synced: vec![Vec::new()] }
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
            self.model = content(&self.open().unwrap());
            let len = self.model.len();
            assert!(self.synced.contains(&self.model), "run {run}: {len} bytes");
            self.synced = vec![self.model.clone()];
        }
    }

    fn describe(&self) -> String {
        self.disk.trace().join("\n")
    }
}

impl History {
    fn open(&self) -> io::Result<PalisadeBackend> {
        let options = small().memory_bytes(MOST_BYTES * 2).log_bytes(64 << 10);
        Ok(options.open_on(self.disk.as_disk(), "/db")?)
    }

    /// Works until the process dies.
    fn work(&mut self) -> io::Result<()> {
        let backend = self.open()?;
        let History { disk, dice, model, synced } = self;
        for _ in 0..40 {
            match dice.below(5) {
                0 => {
                    synced.push(model.clone());
                    backend.sync_data()?;
                    if !disk.is_dead() {
                        synced.drain(..synced.len() - 1);
                    }
                }
                1 if dice.once_in(4) => backend.checkpoint()?,
                _ if disk.is_dead() => return Ok(()),
                _ => {
                    let at = dice.below(MOST_BYTES);
                    // Even, so never 3, the version of redb's format. A first page with it can look
                    // like the header of a database in the making: a sync leaves it to the next.
                    let fill = dice.below(128) as u8 * 2;
                    let data = vec![fill; 1 + dice.below(9000) as usize];
                    if dice.once_in(5) {
                        model.resize(at as usize, 0);
                        backend.set_len(at)?;
                    } else {
                        // Fails if it reads the base file of a dead process.
                        backend.write(at, &data)?;
                        let end = at as usize + data.len();
                        model.resize(model.len().max(end), 0);
                        model[at as usize..end].copy_from_slice(&data);
                    }
                }
            }
        }
        Ok(())
    }
}

#[test]
fn a_crash_leaves_the_bytes_of_a_sync() {
    let command = "--manifest-path integrations/redb/Cargo.toml --test backend a_crash_leaves";
    sweep(command, 100, |_: History| {});
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
    assert!(std::fs::read(path.join("base.redb")).unwrap() == content(&backend));

    backend.set_len(4096).unwrap();
    backend.set_len(5 * 4096).unwrap();
    backend.sync_data().unwrap();
    backend.close().unwrap();
    let file = std::fs::read(path.join("base.redb")).unwrap();
    assert!(file.len() >= 5 * 4096 && file.iter().all(|&byte| byte == 0));
}
