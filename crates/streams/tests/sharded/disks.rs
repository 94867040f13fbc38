//! The disks under the sets of the tests.

use std::sync::Arc;

use palisade::disk::{Disk, MemDisk};
use palisade::sim::SimDisk;
use palisade::{ErrorKind, Result};
use palisade_streams::{Options, Sharded};

/// Small segments, and no thread: a test decides when the keepers work.
pub(crate) fn options() -> Options {
    Options::new().log(log()).background(false)
}

pub(crate) fn log() -> palisade::Options {
    palisade::Options::new().segment_bytes(64 << 10).buffer_bytes(64 << 10)
}

pub(crate) fn kind<T: std::fmt::Debug>(result: Result<T>) -> ErrorKind {
    result.unwrap_err().kind()
}

/// Folders of one disk in memory.
pub(crate) fn folders(disk: &MemDisk, paths: &[&str]) -> Vec<(Arc<dyn Disk>, String)> {
    let on_disk = |path: &&str| (Arc::new(disk.clone()) as Arc<dyn Disk>, (*path).to_owned());
    paths.iter().map(on_disk).collect()
}

/// Opens the set of three shards on `disk`.
pub(crate) fn open_three(disk: &MemDisk) -> Sharded {
    Sharded::open_on(folders(disk, &["/0", "/1", "/2"]), &options()).unwrap()
}

/// A simulated disk for each shard. One thread at a time uses a disk, so that the seed fixes all
/// that happens.
#[derive(Debug)]
pub(crate) struct Disks(pub(crate) Vec<SimDisk>);

impl Disks {
    pub(crate) fn new(seed: u64, count: u64) -> Disks {
        Disks((0..count).map(|number| SimDisk::new(seed * count + number)).collect())
    }

    /// Opens the set with buffers so small that long names need many chunks for a checkpoint.
    pub(crate) fn open(&self) -> Result<Sharded> {
        let options = options().log(log().buffer_bytes(16 << 10));
        Sharded::open_on(self.0.iter().map(|disk| (disk.as_disk(), "/log")), &options)
    }

    /// Copies of the disks, on which no process runs.
    pub(crate) fn fork(&self) -> Disks {
        Disks(self.0.iter().map(|disk| disk.fork(1)).collect())
    }

    pub(crate) fn calls(&self) -> Vec<u64> {
        self.0.iter().map(SimDisk::calls).collect()
    }

    /// Ends the process on all disks, and begins another one.
    pub(crate) fn end<T>(&self, opened: T, loses_power: bool) {
        self.0.iter().for_each(SimDisk::kill);
        drop(opened);
        for disk in &self.0 {
            if loses_power {
                disk.lose_power();
            }
            disk.restart();
        }
    }
}
