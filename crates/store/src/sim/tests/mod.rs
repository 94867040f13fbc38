//! What must hold for the simulated disk: what each fault may do, and what it must not.

mod faults;
mod logs;
mod losses;
mod names;
mod preparer;
mod process_runs;
mod repair;

use std::io::IoSlice;
use std::path::PathBuf;

use super::*;
use crate::disk::{Access, Disk, DiskFile, read_full, write_bytes};

/// The log's folder, made and synced.
fn begin(disk: &SimDisk) -> Process {
    let process = disk.process();
    process.create_folder(&path(""), 0o600).unwrap();
    process.sync_folder(std::path::Path::new("/")).unwrap();
    process
}

fn path(name: &str) -> PathBuf {
    in_folder(name)
}

/// A file with the bytes `content`, which, and its name, are on the medium.
fn durable_file(process: &Process, name: &str, content: &[u8]) -> Box<dyn DiskFile> {
    let file = process.open(&path(name), Access::Fresh).unwrap();
    write_bytes(file.as_ref(), 0, content).unwrap();
    file.sync_data().unwrap();
    process.sync_folder(&path("")).unwrap();
    file
}

fn content(file: &dyn DiskFile) -> Vec<u8> {
    let mut bytes = vec![0; file.len().unwrap() as usize];
    assert_eq!(read_full(file, 0, &mut bytes).unwrap(), bytes.len());
    bytes
}

/// Sectors get `fate`, everything else is kept.
fn lose_sectors(disk: &SimDisk, fate: Fate) {
    disk.lose_power_choosing(&mut |loss| if loss.is_sector() { fate } else { Fate::Keep });
}
