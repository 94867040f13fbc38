//! What a reader of a log needs of the place where it lies.

use std::fmt;

use crate::{Lsn, Result, Segment, State};

/// The reading half of a store: enough for recovery's decision and for tools beside a writer.
pub trait ReadStore: Send + Sync + fmt::Debug + 'static {
    /// Returns the state as it was last saved.
    ///
    /// # Errors
    /// `Io` if it cannot be read, `Corrupt` if no copy of it validates, `Unsupported` if its
    /// format is unknown.
    fn state(&self) -> Result<State>;

    /// Returns all segments that are present, in ascending order of their numbers.
    ///
    /// # Errors
    /// `Io` if they cannot be listed. A header that does not validate or cannot be read is no error
    /// here: recovery decides what it means.
    fn segments(&self) -> Result<Vec<Segment>>;

    /// Returns the numbers of all segments that are present, ascending, and the segments numbered
    /// `from` or above with their headers. The open of a closed log calls this, so that it reads no
    /// other headers.
    ///
    /// The default reads all of them, which suits a store that has them at hand.
    ///
    /// # Errors
    /// As [`segments`](ReadStore::segments).
    fn segments_from(&self, from: u64) -> Result<(Vec<u64>, Vec<Segment>)> {
        let mut segments = self.segments()?;
        let numbers = segments.iter().map(|segment| segment.number).collect();
        segments.retain(|segment| segment.number >= from);
        Ok((numbers, segments))
    }

    /// Reads log bytes that begin at `at` and returns how many there were.
    ///
    /// Reads up to the end of `into` or of the segment that holds `at`, whichever comes first;
    /// fewer bytes where the segment's file is shorter, 0 where there is no such segment.
    ///
    /// # Errors
    /// `Io`. A read error is never reported as an end.
    fn read(&self, at: Lsn, into: &mut [u8]) -> Result<usize>;

    /// Returns the epoch of the log buffer that an earlier process run left, and the durable LSN in
    /// its mark. Returns `None`, the default, if there is no such mark or it cannot be read.
    fn noted_durable(&self) -> Option<(u64, Lsn)> {
        None
    }

    /// Returns where the log lies, for error texts: a path, or a word such as `memory`.
    fn place(&self) -> String;

    /// Returns where segment `number` lies or must lie, for error texts. The default is the log's
    /// place.
    fn segment_place(&self, number: u64) -> String {
        let _ = number;
        self.place()
    }

    /// Returns what to do about a record or segment that is damaged or missing. `None`, the
    /// default, is the advice for a log.
    fn advice_on_damage(&self) -> Option<&'static str> {
        None
    }
}
