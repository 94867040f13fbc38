//! What must hold for the simulated disk itself.

use palisade_core::{Options, Wal};

use super::*;

fn files() -> FileOptions {
    FileOptions { segment_bytes: Some(4096), ..FileOptions::default() }
}

fn open(disk: &SimDisk) -> Wal {
    let mut options = Options::new();
    options.buffer_bytes = 4096;
    Wal::with_store(disk.open(&files()).unwrap(), &options).unwrap()
}

#[test]
fn what_was_committed_survives_every_power_loss() {
    for seed in 0..200 {
        let disk = SimDisk::new(seed);
        let log = open(&disk);
        let lsn = log.commit(b"acknowledged").unwrap();
        log.append(b"not yet").unwrap();
        disk.lose_power();
        drop(log);
        let log = open(&disk);
        assert_eq!(log.get(lsn).unwrap().data(), b"acknowledged", "seed {seed}");
    }
}
