//! Segment headers: the sealed block before the log's bytes. `docs/format.md` has the fields. An
//! archive, which has only segments, knows the codec from them.

#![allow(clippy::missing_errors_doc, reason = "the type of the error lists them")]

use std::error::Error as _;

use super::Segments;
use crate::block::{BLOCK_BYTES, Block, BlockFault, Magic, Reader, Writer};
use crate::folder::{Folder, READ_HEADER, segment_name};
use crate::{
    BadHeader, CodecId, Error, ErrorKind, Lsn, MIN_SEGMENT_BYTES, Predecessor, Segment,
    SegmentHeader, Uuid, check_segment_bytes,
};

const MAGIC: Magic = *b"PALISEGM";
const CODEC_AT: usize = 104;

/// Encodes a header.
pub fn encode(header: &SegmentHeader, log: &LogOf) -> Block {
    let predecessor = header.predecessor.unwrap_or_default();
    Writer::new(MAGIC)
        .bytes(&log.uuid.0)
        .u64(header.number)
        .u64(header.base.as_u64())
        .u64(log.segment_bytes)
        .u64(header.epoch)
        .u64(header.salt)
        .flag(header.predecessor.is_some())
        .u64(predecessor.epoch)
        .u64(predecessor.end.as_u64())
        .codec(log.codec.as_ref())
        .seal()
}

/// What a header stores of its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogOf {
    /// The identity of the log.
    pub uuid: Uuid,
    /// Bytes of log in a segment.
    pub segment_bytes: u64,
    /// The codec of the records.
    pub codec: Option<CodecId>,
}

/// Why a header does not fit the segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeaderFault {
    /// The block does not validate.
    Block(BlockFault),
    /// It is the header of something else, which the text names.
    Misplaced(String),
}

impl HeaderFault {
    /// Returns whether a later version wrote the block.
    pub fn is_unsupported(&self) -> bool {
        matches!(self, HeaderFault::Block(fault) if fault.is_unsupported())
    }
}

impl std::fmt::Display for HeaderFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            HeaderFault::Block(fault) => write!(f, "the segment's header {fault}"),
            HeaderFault::Misplaced(text) => f.write_str(text),
        }
    }
}

/// Decodes the header of segment `number`.
pub fn decode(
    block: &[u8],
    uuid: Uuid,
    segment_bytes: u64,
    number: u64,
) -> Result<SegmentHeader, HeaderFault> {
    let mut fields = Reader::open(block, MAGIC).map_err(HeaderFault::Block)?;
    let found_uuid = Uuid(fields.array());
    let header_number = fields.u64();
    let base = Lsn::new(fields.u64());
    let found_bytes = fields.u64();
    let (epoch, salt) = (fields.u64(), fields.u64());
    let is_first = fields.flag();
    let predecessor = Predecessor { epoch: fields.u64(), end: Lsn::new(fields.u64()) };
    if found_uuid != uuid {
        return misplaced(format!("the header is of log {found_uuid}, expected {uuid}"));
    }
    if found_bytes != segment_bytes {
        return misplaced(format!(
            "the header's segments have {found_bytes} bytes, expected {segment_bytes}"
        ));
    }
    if header_number != number || base.as_u64() != number.saturating_mul(segment_bytes) {
        return misplaced(format!(
            "the header is of segment {header_number} at LSN {base}, expected segment {number}"
        ));
    }
    let predecessor = is_first.then_some(predecessor);
    Ok(SegmentHeader { number, base, epoch, salt, predecessor })
}

/// Returns only the header's log, unchecked otherwise.
pub fn log_of(block: &[u8]) -> Result<LogOf, BlockFault> {
    let mut fields = Reader::open(block, MAGIC)?;
    let uuid = Uuid(fields.array());
    let (_number, _base) = (fields.u64(), fields.u64());
    let segment_bytes = fields.u64();
    // Everything divides by it.
    check_segment_bytes(segment_bytes, MIN_SEGMENT_BYTES).map_err(|_| BlockFault::Damaged)?;
    fields.skip_to(CODEC_AT);
    Ok(LogOf { uuid, segment_bytes, codec: fields.codec()? })
}

/// Returns only the header's segment number, unchecked otherwise.
pub fn number_of(block: &[u8]) -> Result<u64, BlockFault> {
    let mut fields = Reader::open(block, MAGIC)?;
    let _uuid: [u8; 16] = fields.array();
    Ok(fields.u64())
}

fn misplaced<T>(text: String) -> Result<T, HeaderFault> {
    Err(HeaderFault::Misplaced(text))
}

impl Segments {
    pub(crate) fn list(&self) -> crate::Result<Vec<Segment>> {
        self.list_from(0).map(|(_, segments)| segments)
    }

    pub(crate) fn list_from(&self, from: u64) -> crate::Result<(Vec<u64>, Vec<Segment>)> {
        let numbers = self.numbers()?;
        let looks = numbers.iter().filter(|number| **number >= from);
        // `look` returns `None` for a segment that was freed after the listing.
        let looks = looks.filter_map(|number| self.look(*number).transpose());
        let segments = looks.collect::<crate::Result<_>>()?;
        Ok((numbers, segments))
    }

    pub(super) fn numbers(&self) -> crate::Result<Vec<u64>> {
        if let Some(found) = self.found.lock().as_ref() {
            return Ok(found.clone());
        }
        self.folder.segment_numbers(self.shape.segment_bytes)
    }

    /// As `numbers`, for a caller that changes segments: later calls list the folder.
    pub(super) fn numbers_to_change(&self) -> crate::Result<Vec<u64>> {
        let numbers = self.numbers();
        *self.found.lock() = None;
        numbers
    }

    /// Removes from `numbers` the files below `made` without a valid header, which the log did not
    /// make: a header is durable before its segment has a name. This process, or the one before
    /// that came to a clean end, made those from `made` on.
    pub(super) fn keep_own(&self, made: u64, numbers: &mut Vec<u64>) -> crate::Result<()> {
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

    pub(super) fn look(&self, number: u64) -> crate::Result<Option<Segment>> {
        let Some(file) = self.file_to_read(number)? else { return Ok(None) };
        let block = file.read_header();
        let block = block.map_err(|error| self.named(READ_HEADER, number, error));
        listed(number, block, |block| self.check_header(block, number)).map(Some)
    }

    pub(super) fn check_header(&self, block: &[u8], number: u64) -> crate::Result<Segment> {
        check_header(&self.folder, block, self.shape.uuid, self.shape.segment_bytes, number)
    }
}

/// Returns segment `number` with what `check` finds, or with the failure to read its header.
///
/// # Errors
/// Those of `block`, except `Io`, and of `check`.
pub fn listed(
    number: u64,
    block: crate::Result<Vec<u8>>,
    check: impl FnOnce(&[u8]) -> crate::Result<Segment>,
) -> crate::Result<Segment> {
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

/// Refuses an unknown format only.
pub(crate) fn check_header(
    folder: &Folder,
    block: &[u8],
    uuid: Uuid,
    segment_bytes: u64,
    number: u64,
) -> crate::Result<Segment> {
    debug_assert!(block.len() <= BLOCK_BYTES, "a header is one block");
    match decode(block, uuid, segment_bytes, number) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::with_version;

    const UUID: Uuid = Uuid([7; 16]);
    const SEGMENT_BYTES: u64 = 65_536;
    const LOG: LogOf = LogOf { uuid: UUID, segment_bytes: SEGMENT_BYTES, codec: None };

    fn sample(predecessor: Option<Predecessor>) -> SegmentHeader {
        SegmentHeader {
            number: 3,
            base: Lsn::new(3 * SEGMENT_BYTES),
            epoch: 9,
            salt: 5,
            predecessor,
        }
    }

    #[test]
    fn headers_come_back_as_they_were() {
        for predecessor in [None, Some(Predecessor { epoch: 8, end: Lsn::new(72) })] {
            let block = encode(&sample(predecessor), &LOG);
            assert_eq!(decode(&block, UUID, SEGMENT_BYTES, 3), Ok(sample(predecessor)));
        }
    }

    #[test]
    fn headers_of_other_logs_places_and_versions_are_named() {
        let block = encode(&sample(None), &LOG);
        let text =
            |uuid, bytes, number| decode(&block, uuid, bytes, number).unwrap_err().to_string();
        assert!(text(Uuid([8; 16]), SEGMENT_BYTES, 3).contains("log 0707"));
        assert!(text(UUID, 4096, 3).contains("65536"));
        assert!(text(UUID, SEGMENT_BYTES, 4).contains("segment 3"));
        let newer = decode(&with_version(block, 2), UUID, SEGMENT_BYTES, 3);
        assert_eq!(newer, Err(HeaderFault::Block(BlockFault::Version(2))));
    }
}
