//! The smallest log on a simulated disk.

use palisade::sim::SimDisk;
use palisade::{BufferKind, Lsn, Options, Result, Wal};
use palisade_store::FileOptions;

use crate::watchdog::watch;

pub(crate) const SEGMENT_BYTES: u64 = 4096;
pub(crate) const HEADER_BYTES: u64 = 4096;
pub(crate) const SECTOR: u64 = 512;

pub(crate) fn options() -> Options {
    Options::new().buffer_bytes(4096)
}

pub(crate) fn open_as(disk: &SimDisk, buffer: BufferKind, options: Options) -> Result<Wal> {
    watch();
    let mut files = FileOptions::new();
    files.segment_bytes = Some(SEGMENT_BYTES);
    files.buffer = buffer;
    Wal::with_store(disk.open(&files)?, options)
}

pub(crate) fn open(disk: &SimDisk) -> Wal {
    let opened = open_as(disk, BufferKind::Auto, options());
    opened.unwrap_or_else(|error| panic!("{error}\n{}", disk.trace().join("\n")))
}

pub(crate) fn segment(number: u64) -> String {
    format!("segment-{number:020}")
}

/// Where `lsn` lies: the segment's file, and the beginning of its sector.
pub(crate) fn sector_of(lsn: Lsn) -> (String, u64) {
    let offset = HEADER_BYTES + lsn.as_u64() % SEGMENT_BYTES;
    (segment(lsn.segment(SEGMENT_BYTES)), offset / SECTOR * SECTOR)
}

/// The process of `wal` dies.
pub(crate) fn end_process(disk: &SimDisk, wal: Wal) {
    disk.kill();
    drop(wal);
}
