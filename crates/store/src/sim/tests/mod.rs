//! What each fault of the simulated disk may do, and what it must not.

mod faults;
mod losses;
mod names;
mod process_runs;

use std::io::IoSlice;

use super::*;
use crate::disk::{Access, DiskFile, DiskFolder, read_full, write_bytes};

/// Makes the log's folder, and syncs its name.
fn begin(disk: &SimDisk) -> Arc<dyn DiskFolder> {
    disk.as_disk().create_folder(&absolute(FOLDER), 0o600).unwrap();
    disk.as_disk().open_folder(Path::new("/"), 0o600).unwrap().sync().unwrap();
    folder(disk)
}

/// Opens the log's folder for the process that runs now.
fn folder(disk: &SimDisk) -> Arc<dyn DiskFolder> {
    disk.as_disk().open_folder(&absolute(FOLDER), 0o600).unwrap()
}

/// Makes a file with the bytes `content`, which are on the medium, as is its name.
fn durable_file(folder: &Arc<dyn DiskFolder>, name: &str, content: &[u8]) -> Box<dyn DiskFile> {
    let file = folder.open(name, Access::Fresh).unwrap();
    write_bytes(file.as_ref(), 0, content).unwrap();
    file.sync_data().unwrap();
    folder.sync().unwrap();
    file
}

/// Makes the log's folder, and a durable file `file` in it.
fn with_file(disk: &SimDisk, content: &[u8]) -> (Arc<dyn DiskFolder>, Box<dyn DiskFile>) {
    let log = begin(disk);
    let file = durable_file(&log, "file", content);
    (log, file)
}

fn content(file: &dyn DiskFile) -> Vec<u8> {
    let mut bytes = vec![0; file.len().unwrap() as usize];
    assert_eq!(read_full(file, 0, &mut bytes).unwrap(), bytes.len());
    bytes
}

/// Loses power. Sectors get `fate`, everything else is kept.
fn lose_sectors(disk: &SimDisk, fate: Fate) {
    disk.lose_power_choosing(&mut |loss| if loss.is_sector() { fate } else { Fate::Keep });
}
