//! The seam between the store and the file systems below it.
//!
//! The store of a log runs over any [`Disk`]: the operating system ([`OsDisk`]), memory
//! ([`MemDisk`]), the simulated disk (feature `sim`), or one of your own. A store opens its folder
//! once, by its path, and reaches each file through that [`DiskFolder`], so a folder that is moved
//! or replaced while the log is open cannot send it into another one. Errors are plain I/O errors;
//! the store adds the file's name.
//!
//! What a log needs from its disk:
//! - a completed [`sync_data`](DiskFile::sync_data) covers all bytes written before it began;
//! - a completed [`sync`](DiskFolder::sync) of the folder covers all names;
//! - a [`rename`](DiskFolder::rename) is atomic, also in a power loss;
//! - a write damages no byte outside of its sectors of 512 bytes, or the log is opened with
//!   `pad_to_block`.
//!
//! [`check`](conformance::check) runs a disk through the calls that a log makes. The example
//! `counting_disk` of the crate `palisade` implements one.

pub use palisade_core::conformance;
pub use palisade_store::disk::{
    Access, Background, DEFAULT_FILE_MODE, Disk, DiskFile, DiskFolder, FileIdentity,
    FolderIdentity, Host, Kind, MemDisk, OsDisk, ZeroSteps, file_system,
};
