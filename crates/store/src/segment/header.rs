//! Segment headers: the sealed block at the start of a segment's file.
//!
//! ```text
//! offset  bytes  field
//!      0     24  magic PALISEGM, checksum, version, feature bits
//!     24     16  UUID of the log
//!     40      8  segment number
//!     48      8  base LSN
//!     56      8  bytes of log in a segment
//!     64      8  epoch
//!     72      8  salt of the epoch
//!     80      8  1 in an epoch's first segment, else 0
//!     88      8  number of the epoch before
//!     96      8  exclusive end of the epoch before
//!    104     32  name of the log's codec, then zeros    136 16  its key identifier
//! ```
//!
//! The feature bit of the codec is set if the log has one. An archive has nothing but segments: it
//! knows the codec from here.
//!
//! The log's bytes follow behind the block.

#![allow(clippy::missing_errors_doc, reason = "the type of the error lists them")]

use crate::block::{Block, BlockFault, Magic, Reader, Writer};
use crate::{CodecId, Lsn, MIN_SEGMENT_BYTES, Uuid, check_segment_bytes};
use crate::{Predecessor, SegmentHeader};

const MAGIC: Magic = *b"PALISEGM";
const CODEC_AT: usize = 104;

/// Encodes `header`, of a segment of `log`, as a block.
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

/// What a header says of its log as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogOf {
    /// The identity of the log.
    pub uuid: Uuid,
    /// Bytes of log in a segment.
    pub segment_bytes: u64,
    /// The codec of the records.
    pub codec: Option<CodecId>,
}

/// Why a header is none of the segment that it was read for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeaderFault {
    /// The block itself does not validate.
    Block(BlockFault),
    /// It validates and is the header of something else, which the text names.
    Misplaced(String),
}

impl HeaderFault {
    /// Returns whether a later version of Palisade wrote the block.
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

/// Reads the header of segment `number` of the log `uuid`.
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

/// Returns the log that the header in `block` belongs to. Does not check the other fields.
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

/// Returns the number of the segment that the header in `block` belongs to. Does not check the
/// other fields.
pub fn number_of(block: &[u8]) -> Result<u64, BlockFault> {
    let mut fields = Reader::open(block, MAGIC)?;
    let _uuid: [u8; 16] = fields.array();
    Ok(fields.u64())
}

fn misplaced<T>(text: String) -> Result<T, HeaderFault> {
    Err(HeaderFault::Misplaced(text))
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
