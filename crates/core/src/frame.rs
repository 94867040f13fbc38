//! Frames: the layout of a record in the log. `docs/format.md`, "Frames", has the bytes.

use palisade_store::checksum::{crc32c_append, crc32c_append_words};

use crate::{Error, ErrorKind, Lsn, Result, Uuid};

/// Bytes of a frame's header.
pub const HEADER_BYTES: usize = 24;
/// Frames start at multiples of this.
pub const ALIGN_BYTES: u64 = 8;
/// The `durable_lag` of a frame without a durable watermark.
pub const LAG_UNKNOWN: u64 = u64::MAX;

/// The longest record or batch, with its header: 512 MiB. A longer length is not trusted.
pub const MAX_FRAME_BYTES: u64 = (palisade_store::MAX_BUFFER_BYTES / 2) as u64;

/// The unit that power loss may damage as a whole. (Models have small rings.)
pub(crate) const BLOCK_BYTES: u64 = if cfg!(loom) { 64 } else { 4096 };

const SHORT_PADDING_BYTES: usize = 8;
/// The flag of a batch member.
pub const FLAG_MEMBER: u8 = 1;
/// The flag of a payload that the codec made.
pub const FLAG_ENCODED: u8 = 2;
const FLAG_MAY_IGNORE: u8 = 0x80;

/// Returns the bytes that a record takes in the log. In a batch, the next record's LSN is
/// `lsn.plus(framed_bytes(payload_bytes))`.
///
/// ```
/// assert_eq!(palisade::framed_bytes(0), 24);
/// assert_eq!(palisade::framed_bytes(256), 280);
/// ```
#[must_use]
pub const fn framed_bytes(payload_bytes: usize) -> u64 {
    (HEADER_BYTES as u64 + payload_bytes as u64).next_multiple_of(ALIGN_BYTES)
}

#[inline]
pub(crate) fn check_record_len(len: usize, most: usize) -> Result<()> {
    if len <= most { Ok(()) } else { Err(too_large(len, most)) }
}

#[cold]
fn too_large(len: usize, most: usize) -> Error {
    let text = format!("a record or batch of {len} bytes; at most {most} fit into this log");
    Error::new(ErrorKind::TooLarge, text)
}

/// Returns the error for a record or a segment at `at` that would be above the last LSN.
pub(crate) fn no_lsn_left(at: Lsn) -> Error {
    let text = "the log has used up all of its LSNs: begin another one";
    Error::new(ErrorKind::OutOfRange, text).at_lsn(at)
}

/// The kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A record of the user.
    Data,
    /// Records that are recovered together or not at all.
    Batch,
    /// Fills a range that was reserved and not used.
    Padding,
    /// Evidence of durability, written by `checkpoint` and `close`.
    Mark,
    /// A kind that this version does not know.
    Unknown {
        /// The kind's number.
        number: u8,
        /// Whether a reader may skip it.
        may_ignore: bool,
    },
}

impl Kind {
    const fn number(self) -> u8 {
        match self {
            Kind::Data => 1,
            Kind::Batch => 2,
            Kind::Padding => 3,
            Kind::Mark => 4,
            Kind::Unknown { number, .. } => number,
        }
    }

    const fn from_number(number: u8, flags: u8) -> Kind {
        match number {
            1 => Kind::Data,
            2 => Kind::Batch,
            3 | KIND_SHORT_PADDING => Kind::Padding,
            4 => Kind::Mark,
            _ => Kind::Unknown { number, may_ignore: flags & FLAG_MAY_IGNORE != 0 },
        }
    }
}

const KIND_SHORT_PADDING: u8 = 5;

/// The start value of an epoch's header checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochSeed(u32);

impl EpochSeed {
    /// Returns the seed of an epoch.
    #[must_use]
    pub fn new(uuid: Uuid, epoch: u64, salt: u64) -> EpochSeed {
        let crc = crc32c_append(0, &uuid.0);
        let crc = crc32c_append(crc, &epoch.to_le_bytes());
        EpochSeed(crc32c_append(crc, &salt.to_le_bytes()))
    }

    pub(crate) const fn bits(self) -> u32 {
        self.0
    }

    pub(crate) const fn from_bits(bits: u32) -> EpochSeed {
        EpochSeed(bits)
    }

    /// Returns the checksum of a header with bytes 4..8 in `first`, 8..16 in `middle` and 16..24 in
    /// `last`.
    #[inline]
    fn checksum(self, at: Lsn, first: u32, middle: u64, last: u64) -> u32 {
        crc32c_append_words(self.0, [at.as_u64(), middle, last, u64::from(first)])
    }
}

/// A frame's header, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Its kind.
    pub kind: Kind,
    /// [`FLAG_MEMBER`] and [`FLAG_ENCODED`], or none of them.
    // One byte: with a `bool` for each, the processor stalls at each header, where `Option` stores
    // them one by one and loads them as a word.
    pub flags: u8,
    /// The user's tag.
    pub tag: u16,
    /// Bytes of the payload, or those that a padding skips.
    pub payload_bytes: u32,
    /// CRC-32C of the payload.
    pub payload_checksum: u32,
    /// This frame's LSN minus the durable watermark when it was reserved.
    pub durable_lag: u64,
    /// Bytes of the whole frame.
    pub frame_bytes: u64,
}

impl Header {
    /// Creates a header without flags and durable watermark.
    #[must_use]
    pub fn new(kind: Kind, tag: u16, payload_bytes: u32, payload_checksum: u32) -> Header {
        Header {
            kind,
            flags: 0,
            tag,
            payload_bytes,
            payload_checksum,
            durable_lag: LAG_UNKNOWN,
            frame_bytes: framed_bytes(payload_bytes as usize),
        }
    }

    /// Returns the header with [`FLAG_MEMBER`] if `is_member`.
    #[inline]
    #[must_use]
    pub fn member_if(self, is_member: bool) -> Header {
        Header { flags: self.flags | if is_member { FLAG_MEMBER } else { 0 }, ..self }
    }

    /// Returns the header with [`FLAG_ENCODED`] if `is_encoded`.
    #[inline]
    #[must_use]
    pub fn encoded_if(self, is_encoded: bool) -> Header {
        Header { flags: self.flags | if is_encoded { FLAG_ENCODED } else { 0 }, ..self }
    }

    /// Encodes this header, except that of a short padding: [`padding`].
    #[must_use]
    pub fn encode(&self, seed: EpochSeed, at: Lsn) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        for (to, word) in bytes.chunks_exact_mut(8).zip(self.encode_words(seed, at)) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// As `encode`, in little-endian words, which stay in registers up to the log buffer.
    #[inline]
    pub(crate) fn encode_words(&self, seed: EpochSeed, at: Lsn) -> [u64; HEADER_BYTES / 8] {
        let may_ignore = matches!(self.kind, Kind::Unknown { may_ignore: true, .. });
        let flags = self.flags | if may_ignore { FLAG_MAY_IGNORE } else { 0 };
        let first = first_word(self.kind.number(), flags, self.tag);
        let middle = u64::from(self.payload_bytes) | (u64::from(self.payload_checksum) << 32);
        let checksum = seed.checksum(at, first, middle, self.durable_lag);
        [u64::from(checksum) | (u64::from(first) << 32), middle, self.durable_lag]
    }

    /// Decodes the header at the start of `bytes`. Returns `None` if it does not validate or is cut
    /// off, or if the frame is longer than `room`, the bytes to the end of its segment.
    #[inline]
    #[must_use]
    pub fn decode(bytes: &[u8], seed: EpochSeed, at: Lsn, room: u64) -> Option<Header> {
        let ([head, rest @ ..], _) = bytes.as_chunks() else { return None };
        let first = (u64::from_le_bytes(*head) >> 32) as u32;
        match (first.to_le_bytes()[0], rest) {
            (0, _) => None,
            (KIND_SHORT_PADDING, _) => Header::decode_short(*head, seed, at, room),
            (_, [middle, last, ..]) => Header::decode_words(
                [head, middle, last].map(|word| u64::from_le_bytes(*word)),
                seed,
                at,
                room,
            ),
            _ => None,
        }
    }

    /// Returns whether a header can begin with these words, without a checksum.
    #[inline]
    pub(crate) fn can_begin_with(head: u64, middle: u64, room: u64) -> bool {
        let [.., number, _, _, _] = head.to_le_bytes();
        let is_short = number == KIND_SHORT_PADDING;
        number != 0 && (is_short || framed_bytes(middle as u32 as usize) <= room)
    }

    #[inline]
    fn decode_words(
        [head, middle, durable_lag]: [u64; 3],
        seed: EpochSeed,
        at: Lsn,
        room: u64,
    ) -> Option<Header> {
        let (stored, first) = (head as u32, (head >> 32) as u32);
        let [number, flags, ..] = first.to_le_bytes();
        let payload_bytes = middle as u32;
        let frame_bytes = framed_bytes(payload_bytes as usize);
        // Not trusted yet. An impossible length spares a search through old bytes the checksum.
        if frame_bytes > room || stored != seed.checksum(at, first, middle, durable_lag) {
            return None;
        }
        Some(Header {
            kind: Kind::from_number(number, flags),
            flags: flags & (FLAG_MEMBER | FLAG_ENCODED),
            tag: (first >> 16) as u16,
            payload_bytes,
            payload_checksum: (middle >> 32) as u32,
            durable_lag,
            frame_bytes,
        })
    }

    #[cold]
    fn decode_short(head: [u8; 8], seed: EpochSeed, at: Lsn, room: u64) -> Option<Header> {
        let head = u64::from_le_bytes(head);
        let (stored, first) = (head as u32, (head >> 32) as u32);
        Header::short((first >> 16) as u16)
            .filter(|short| short.frame_bytes <= room && stored == seed.checksum(at, first, 0, 0))
    }

    fn short(frame_bytes: u16) -> Option<Header> {
        let fits = frame_bytes == 8 || frame_bytes == 16;
        // Lazily: with other lengths, which any payload may have, the difference underflows.
        fits.then(|| Header {
            kind: Kind::Padding,
            flags: 0,
            tag: 0,
            payload_bytes: u32::from(frame_bytes) - SHORT_PADDING_BYTES as u32,
            payload_checksum: 0,
            durable_lag: LAG_UNKNOWN,
            frame_bytes: u64::from(frame_bytes),
        })
    }

    /// Refuses the frame if readers must know its kind, and do not.
    pub(crate) fn check_known(&self, at: Lsn) -> Result<()> {
        let Kind::Unknown { number, may_ignore: false } = self.kind else { return Ok(()) };
        let text = format!("a record of kind {number}, which this version does not know");
        Err(Error::new(ErrorKind::Unsupported, text).at_lsn(at))
    }

    /// Returns whether the frame lies in a batch.
    #[inline]
    #[must_use]
    pub fn is_member(&self) -> bool {
        self.flags & FLAG_MEMBER != 0
    }

    /// Returns whether the codec made the payload.
    #[inline]
    #[must_use]
    pub fn is_encoded(&self) -> bool {
        self.flags & FLAG_ENCODED != 0
    }

    /// Returns whether `payload` is this frame's. A padding has none.
    #[inline]
    #[must_use]
    pub fn matches(&self, payload: &[u8]) -> bool {
        self.kind == Kind::Padding || crc32c_append(0, payload) == self.payload_checksum
    }

    /// Returns whether the durable watermark is at least 0: of bytes that pass for a header by
    /// chance, almost none.
    #[must_use]
    pub fn fits_at(&self, at: Lsn) -> bool {
        self.durable_lag == LAG_UNKNOWN || self.durable_lag <= at.as_u64()
    }

    /// Returns the durable watermark that this frame is evidence of.
    #[must_use]
    pub fn durable(&self, at: Lsn) -> Option<Lsn> {
        at.as_u64().checked_sub(self.durable_lag).map(Lsn::new)
    }
}

/// Returns the head of a padding for `[at, at + bytes)`, a range in one segment whose length is a
/// multiple of 8, and how many of its bytes count.
#[must_use]
pub fn padding(
    seed: EpochSeed,
    at: Lsn,
    bytes: u64,
    durable_lag: u64,
) -> ([u8; HEADER_BYTES], usize) {
    debug_assert!(bytes >= ALIGN_BYTES && bytes.is_multiple_of(ALIGN_BYTES));
    if bytes >= HEADER_BYTES as u64 {
        let rest = (bytes - HEADER_BYTES as u64) as u32;
        let header = Header { durable_lag, ..Header::new(Kind::Padding, 0, rest, 0) };
        return (header.encode(seed, at), HEADER_BYTES);
    }
    let first = first_word(KIND_SHORT_PADDING, 0, bytes as u16);
    let mut head = [0; HEADER_BYTES];
    head[..4].copy_from_slice(&seed.checksum(at, first, 0, 0).to_le_bytes());
    head[4..8].copy_from_slice(&first.to_le_bytes());
    (head, SHORT_PADDING_BYTES)
}

const fn first_word(kind: u8, flags: u8, tag: u16) -> u32 {
    kind as u32 | (flags as u32) << 8 | (tag as u32) << 16
}

/// Returns the largest length if the address space is smaller.
#[inline]
pub(crate) fn in_memory(log_bytes: u64) -> usize {
    usize::try_from(log_bytes).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests;
