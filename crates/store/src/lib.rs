//! Stores for the Palisade write-ahead log: in memory and in a folder of files.
//!
//! - [`MemStore`] is the same on a disk in memory, and real enough to recover from.
//! - [`disk`] is the seam to the file systems below: a disk of your own takes twelve methods.
//! - [`FileStore`] is a folder: a lock file, a meta file, the log buffer's file, segments of
//!   fixed size, and spares that become segments.
//! - [`FileReader`] reads such a folder beside the process that writes it.
//! - [`OnRelease`] is a callback that gets each segment before the log loses it; [`Archive`] copies
//!   it into a folder, [`ArchiveReader`] reads that folder.
//! - `sim`, with the feature of that name: a simulated disk under the store on files, which loses
//!   power, kills its process and fails by a seed.
//!
//! The stores implement the traits of [`palisade_core::store`]. `docs/architecture.md` shows what
//! calls them.

mod archive;
mod block;
mod buffer_file;
#[cfg(any(test, feature = "fuzzing", feature = "sim"))]
mod chance;
mod copy;
pub mod disk;
mod file;
mod folder;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod mem;
mod meta;
#[cfg(all(test, loom))]
mod models;
mod open;
mod options;
mod reader;
mod repair;
mod restore;
mod segment;
#[cfg(feature = "sim")]
pub mod sim;

#[cfg(test)]
mod tests;

pub use archive::{Archive, ArchiveReader};
#[doc(hidden)]
pub use copy::{check_apart, write_copy, write_copy_on};
pub use disk::{DEFAULT_FILE_MODE, file_system};
pub use file::FileStore;
pub use mem::{IntoStore, MemStore};
pub use options::{BufferKind, DEFAULT_SEGMENT_BYTES, FileOptions, MIN_FILE_BYTES, OpenMode};
pub use reader::{BufferPlace, FileReader};
pub use repair::Repair;
pub use restore::{Restore, RestoreFrom};
pub use segment::{OnRelease, ReleasedSegment};
