//! The segments in the folder, and what their headers say.

use std::error::Error as _;

use super::Segments;
use super::header::{self, HeaderFault};
use crate::block::BLOCK_BYTES;
use crate::folder::{Folder, segment_name};
use crate::{BadHeader, Segment};
use crate::{Error, ErrorKind, Result, Uuid};

/// What a failed read of a header was to do.
pub(crate) const READ_HEADER: &str = "read the segment's header";

impl Segments {
    /// Returns all segments in the folder, with what their headers say.
    pub(crate) fn list(&self) -> Result<Vec<Segment>> {
        self.list_from(0).map(|(_, segments)| segments)
    }

    /// Returns the numbers of all segments in the folder, ascending, and the segments numbered
    /// `from` or above, with what their headers say.
    pub(crate) fn list_from(&self, from: u64) -> Result<(Vec<u64>, Vec<Segment>)> {
        let numbers = self.numbers()?;
        let looks = numbers.iter().filter(|number| **number >= from);
        // `look` returns `None` for a segment that was freed after the listing.
        let looks = looks.filter_map(|number| self.look(*number).transpose());
        let segments = looks.collect::<Result<_>>()?;
        Ok((numbers, segments))
    }

    /// Returns the numbers of all segments in the folder, ascending.
    pub(super) fn numbers(&self) -> Result<Vec<u64>> {
        if let Some(found) = self.found.lock().as_ref() {
            return Ok(found.clone());
        }
        self.folder.segment_numbers(self.shape.segment_bytes)
    }

    /// Returns what `numbers` does, for a caller that changes the segments: later calls of
    /// `numbers` list the folder.
    pub(super) fn numbers_to_change(&self) -> Result<Vec<u64>> {
        let numbers = self.numbers();
        *self.found.lock() = None;
        numbers
    }

    /// Removes from `numbers` the files below number `made` whose headers do not validate: the log
    /// did not make them, or is not sure. So they stay in the folder. A header is durable before
    /// its segment has a name, so no crash leaves such a file. From `made` on, this process has
    /// made the files, or the process before it that came to a clean end.
    pub(super) fn keep_own(&self, made: u64, numbers: &mut Vec<u64>) -> Result<()> {
        let mut own = Vec::with_capacity(numbers.len());
        for &number in numbers.iter() {
            let is_own = number >= made
                || self
                    .look(number)?
                    .is_some_and(|segment| !matches!(segment.header, Err(BadHeader::Damaged(_))));
            own.extend(is_own.then_some(number));
        }
        *numbers = own;
        Ok(())
    }

    /// Returns segment `number` with what its header says, or `None` if there is no such segment.
    pub(super) fn look(&self, number: u64) -> Result<Option<Segment>> {
        let Some(file) = self.file_to_read(number)? else { return Ok(None) };
        let block = file.read_header();
        let block = block.map_err(|error| self.named(READ_HEADER, number, error));
        listed(number, block, |block| self.check_header(block, number)).map(Some)
    }

    pub(super) fn check_header(&self, block: &[u8], number: u64) -> Result<Segment> {
        check_header(&self.folder, block, self.shape.uuid, self.shape.segment_bytes, number)
    }
}

/// Returns segment `number` with what `check` finds in the block of its header. A block that the
/// medium cannot read is part of the result, too.
///
/// # Errors
/// Those of `block`, except `Io`, and those of `check`.
pub fn listed(
    number: u64,
    block: Result<Vec<u8>>,
    check: impl FnOnce(&[u8]) -> Result<Segment>,
) -> Result<Segment> {
    match block {
        Ok(block) => check(&block),
        Err(error) if error.kind() == ErrorKind::Io => {
            let cause = error.source().map(ToString::to_string).unwrap_or_default();
            let text = format!("the segment's header cannot be read: {cause}");
            Ok(Segment { number, header: Err(BadHeader::Unreadable(text)) })
        }
        Err(error) => Err(error),
    }
}

/// Returns segment `number` with what the header in `block` says. Refuses an unknown format. Any
/// other fault is part of the result, and recovery decides about it.
pub(crate) fn check_header(
    folder: &Folder,
    block: &[u8],
    uuid: Uuid,
    segment_bytes: u64,
    number: u64,
) -> Result<Segment> {
    debug_assert!(block.len() <= BLOCK_BYTES, "a header is one block");
    match header::decode(block, uuid, segment_bytes, number) {
        Err(fault) if fault.is_unsupported() => {
            let text = fault.to_string();
            let path = folder.path().join(segment_name(number));
            Err(Error::new(ErrorKind::Unsupported, text).at_path(path).at_segment(number))
        }
        other => Ok(Segment { number, header: other.map_err(damaged) }),
    }
}

/// Returns why a header with this fault is none.
#[must_use]
pub fn damaged(fault: HeaderFault) -> BadHeader {
    BadHeader::Damaged(fault.to_string())
}
