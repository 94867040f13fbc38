//! The files of the Palisade write-ahead log: segments, state, log buffer, and the disks below. The
//! feature `sim` adds `sim`, a simulated disk.
//!
//! `palisade-core` knows which bytes are records: see `docs/architecture.md`.

pub mod block;
pub mod buffer_file;
#[cfg(any(test, feature = "sim"))]
#[doc(hidden)]
pub mod chance;
pub mod checksum;
mod codec;
pub mod disk;
mod error;
mod file;
pub mod folder;
mod lsn;
mod mem;
pub mod memory;
pub mod meta;
#[cfg(all(test, loom))]
mod models;
pub mod open;
mod options;
mod reader;
pub mod segment;
#[cfg(feature = "sim")]
pub mod sim;
mod state;
#[doc(hidden)]
pub mod sync;
#[cfg(feature = "sim")]
#[doc(hidden)]
pub mod testing;
#[cfg(test)]
mod tests;

pub use buffer_file::OldBuffer;
pub use checksum::crc32c_append;
pub use codec::{Codec, CodecId, KEY_ID_BYTES, MAX_CODEC_NAME_BYTES, check_codec};
pub use disk::{DEFAULT_FILE_MODE, file_system};
pub use error::{Error, ErrorKind, Result};
pub use file::FileStore;
pub use lsn::Lsn;
pub use mem::{IntoStore, MemStore};
pub use memory::{Memory, MemoryKind};
pub use options::{
    BufferKind, DEFAULT_SEGMENT_BYTES, FileOptions, MAX_BUFFER_BYTES, MAX_SEGMENT_BYTES,
    MIN_BUFFER_BYTES, MIN_FILE_BYTES, MIN_SEGMENT_BYTES, OpenMode, check_segment_bytes,
};
pub use reader::{BufferPlace, FileReader, ReadStore};
pub use segment::{OnRelease, ReleasedSegment};
pub use state::{
    BadHeader, Epoch, EpochBase, EpochExtent, FilesTaken, MAX_BASES, MAX_CURSOR_NAME_BYTES,
    MAX_CURSORS, Predecessor, SavedCursor, Segment, SegmentHeader, State, TailSource, Uuid,
};
