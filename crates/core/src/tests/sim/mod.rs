//! A log on the simulated disk.

mod logs;
mod preparer;
mod repair;

use std::path::PathBuf;
use std::sync::Arc;

use palisade_store::FileOptions;
use palisade_store::disk::DiskFolder;
use palisade_store::sim::SimDisk;

/// The folder in which the log lies.
const FOLDER: &str = "/log";

fn absolute(path: &str) -> PathBuf {
    std::path::absolute(path).unwrap()
}

/// Opens the log's folder for the process that runs now.
fn folder(disk: &SimDisk) -> Arc<dyn DiskFolder> {
    disk.as_disk().open_folder(&absolute(FOLDER), 0o600).unwrap()
}

fn files(segment_bytes: u64) -> FileOptions {
    FileOptions { segment_bytes: Some(segment_bytes), ..FileOptions::default() }
}
