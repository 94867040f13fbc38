//! Reads a log in a folder without opening it, also while a process writes to it.

#[doc(hidden)]
pub use palisade_core::inspect::LogParts;
pub use palisade_core::inspect::{BadPlace, Gap, Inspector, Outcome, Salvage, Salvaged, Verdict};
pub use palisade_store::{
    BadHeader, BufferPlace, Predecessor, SavedCursor, Segment, SegmentHeader, State,
};
