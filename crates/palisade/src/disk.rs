//! The seam between the store and the file systems below it.
//!
//! A log runs over any [`Disk`]: the operating system ([`OsDisk`]), memory ([`MemDisk`]), the
//! simulated disk (feature `sim`), or one of your own, which takes twelve methods. The store opens
//! its folder once, by its path, and reaches each file through that [`DiskFolder`], so that no
//! moved or replaced folder sends an open log into another one. To plain I/O errors the store adds
//! the file's name.
//!
//! A log needs from its disk:
//! - a completed [`sync_data`](DiskFile::sync_data) covers all bytes written before it began;
//! - a completed [`sync`](DiskFolder::sync) of the folder covers all names;
//! - a [`rename`](DiskFolder::rename) is atomic, also in a power loss;
//! - a power loss before the sync of a write leaves the bytes below its first one as they were; a
//!   log with `pad_to_block` does not need this.
//!
//! [`check`](conformance::check) makes the calls of a log. The example `counting_disk` of the crate
//! `palisade` implements a disk.

pub use palisade_core::conformance;
pub use palisade_store::disk::{
    Access, Background, DEFAULT_FILE_MODE, Disk, DiskFile, DiskFolder, FileIdentity,
    FolderIdentity, Host, Kind, MemDisk, OsDisk, ZeroSteps, file_system,
};
