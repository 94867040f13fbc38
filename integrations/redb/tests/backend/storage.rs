//! The backend as a storage of bytes, against a vector.

use std::io;
use std::sync::Arc;

use crate::common::{Dice, seeds, small};
use palisade::disk::MemDisk;
use palisade::sim::SimDisk;
use palisade_redb::{Options, PalisadeBackend};
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
    if dice.below(6) == 0 {
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

fn check_range(backend: &PalisadeBackend, model: &[u8], dice: &mut Dice, context: &str) {
    let at = dice.below(model.len() as u64 + 1) as usize;
    let len = dice.below((model.len() - at) as u64 + 1) as usize;
    let mut bytes = vec![1; len];
    backend.read(at as u64, &mut bytes).unwrap();
    assert!(bytes == model[at..at + len], "{context}: {len} bytes at {at}");
    let beyond = backend.read(at as u64, &mut vec![0; model.len() - at + 1]);
    assert_eq!(beyond.unwrap_err().kind(), io::ErrorKind::UnexpectedEof, "{context}");
}

#[test]
fn reads_return_what_was_written_also_after_a_close() {
    for seed in seeds(60) {
        let mut dice = Dice(seed);
        let disk = MemDisk::new();
        let mut model = Vec::new();
        for run in 0..4 {
            let context = format!("seed {seed}, run {run}");
            let backend = small().open_on(Arc::new(disk.clone()), "/db").unwrap();
            assert!(content(&backend) == model, "{context}: after the open");
            for _ in 0..40 {
                match dice.below(8) {
                    0 => backend.sync_data().unwrap(),
                    1 => backend.checkpoint().unwrap(),
                    _ => change(&backend, &mut model, &mut dice),
                }
                assert_eq!(backend.len().unwrap(), model.len() as u64, "{context}");
                check_range(&backend, &model, &mut dice, &context);
            }
            backend.sync_data().unwrap();
            if dice.below(2) == 0 {
                backend.close().unwrap();
                assert!(backend.log().records().unwrap().into_iter().count() <= 1, "{context}");
            }
        }
    }
}

/// With enough memory nothing is spilled, so each sync is atomic, whatever it has.
#[test]
fn a_crash_leaves_the_bytes_of_a_sync() {
    let options = || small().memory_bytes(MOST_BYTES * 2).log_bytes(64 << 10);
    for seed in seeds(100) {
        let mut dice = Dice(seed);
        let disk = SimDisk::new(seed);
        let (mut model, mut synced) = (Vec::new(), vec![Vec::new()]);
        for run in 0..5 {
            disk.crash_at(disk.calls() + dice.below(120));
            let _ = work(&options(), &disk, &mut dice, &mut model, &mut synced);
            if dice.below(2) == 0 {
                disk.restart()
            } else {
                disk.lose_power()
            };
            let backend = options().open_on(disk.as_disk(), "/db").unwrap();
            model = content(&backend);
            assert!(synced.contains(&model), "seed {seed}, run {run}: {} bytes", model.len());
            synced = vec![model.clone()];
        }
    }
}

/// Works until the process dies. Keeps in `synced` what the storage may be after that.
fn work(
    options: &Options,
    disk: &SimDisk,
    dice: &mut Dice,
    model: &mut Vec<u8>,
    synced: &mut Vec<Vec<u8>>,
) -> io::Result<()> {
    let backend = options.clone().open_on(disk.as_disk(), "/db")?;
    for _ in 0..40 {
        match dice.below(5) {
            0 => {
                synced.push(model.clone());
                backend.sync_data()?;
                if !disk.is_dead() {
                    synced.drain(..synced.len() - 1);
                }
            }
            1 if dice.below(4) == 0 => backend.checkpoint()?,
            _ if disk.is_dead() => return Ok(()),
            _ => {
                let at = dice.below(MOST_BYTES);
                // Even, so never 3, the version of redb's format. A first page with it can look
                // like the header of a database in the making: a sync leaves it to the next one.
                let fill = dice.below(128) as u8 * 2;
                let data = vec![fill; 1 + dice.below(9000) as usize];
                if dice.below(5) == 0 {
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
