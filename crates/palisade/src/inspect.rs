//! Reads a log in a folder without opening it, also while a process writes to it.
//!
//! Nothing in this module writes to the log, or reads records from the log buffer. So it does not
//! see records that only the log buffer holds. A verification reads how far the log buffer notes
//! the log durable.

pub use palisade_core::inspect::{BadPlace, Gap, Inspector, Outcome, Salvage, Salvaged, Verdict};
pub use palisade_store::{
    BadHeader, BufferPlace, Predecessor, SavedCursor, Segment, SegmentHeader, State,
};
