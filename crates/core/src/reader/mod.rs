//! Reading: frames and records out of the store, never out of the log buffer.

mod epoch_span;
mod frame_copy;
mod frame_reader;
mod record;
mod records;

pub(crate) use self::epoch_span::EpochSpan;
pub(crate) use self::frame_copy::{CopiedFrames, FrameCopy, FrameSource, PIECE_BYTES};
pub(crate) use self::frame_reader::{FrameReader, UNREADABLE_BYTES, missing_segment};
pub use self::record::{Record, RecordBuf};
pub use self::records::{OwnedRecords, Records};
pub(crate) use self::records::{Pinned, Relist, truncated_meanwhile};
