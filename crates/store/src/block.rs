//! Sealed blocks: how the meta file, segment headers and the buffer's file begin
//! (`docs/format.md`).
//!
//! The first 24 bytes and the reach of the checksum are the same in every version, so that an
//! unknown version is not taken for damage.

use std::fmt;

use crate::{CodecId, KEY_ID_BYTES, Lsn, MAX_CODEC_NAME_BYTES, crc32c_append};
use crate::{MAX_CURSOR_NAME_BYTES, MAX_CURSORS, SavedCursor};

/// Bytes of a sealed block.
pub const BLOCK_BYTES: usize = 4096;
/// The only format version known.
pub(crate) const FORMAT_VERSION: u32 = 1;
const CODEC_FEATURE: u32 = 1;
const CURSORS_FEATURE: u32 = 2;
const KNOWN_FEATURES: u32 = CODEC_FEATURE | CURSORS_FEATURE;

const CODEC_BYTES: usize = MAX_CODEC_NAME_BYTES + KEY_ID_BYTES;
pub(crate) const CURSOR_BYTES: usize = MAX_CURSOR_NAME_BYTES + 16;

const CHECKSUM_AT: usize = 8;
const VERSION_AT: usize = 12;
const FEATURES_AT: usize = 16;
const FIELDS_AT: usize = 24;

pub(crate) type Block = [u8; BLOCK_BYTES];
pub(crate) type Magic = [u8; 8];

/// Why a block does not validate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockFault {
    /// It does not begin with the magic.
    Foreign,
    /// Its checksum is wrong.
    Damaged,
    /// Its version is unknown.
    Version(u32),
    /// It has these unknown incompatible feature bits.
    Features(u32),
    /// It has this unknown value in a reserved field.
    Reserved(u64),
}

impl BlockFault {
    /// Returns whether the block is whole, but of an unknown format.
    pub(crate) fn is_unsupported(self) -> bool {
        matches!(self, BlockFault::Version(_) | BlockFault::Features(_) | BlockFault::Reserved(_))
    }
}

impl fmt::Display for BlockFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BlockFault::Foreign => f.write_str("does not begin with Palisade's magic number"),
            BlockFault::Damaged => f.write_str("has a checksum that does not match its content"),
            BlockFault::Version(found) => {
                write!(f, "has format version {found}, known is {FORMAT_VERSION}")
            }
            BlockFault::Features(found) => write!(f, "needs the unknown feature bits {found:#x}"),
            BlockFault::Reserved(found) => {
                write!(f, "holds {found} in a reserved field; this version knows 0")
            }
        }
    }
}

#[derive(Debug)]
pub(crate) struct Writer {
    block: Block,
    at: usize,
}

impl Writer {
    pub(crate) fn new(magic: Magic) -> Writer {
        let mut block = [0; BLOCK_BYTES];
        block[..CHECKSUM_AT].copy_from_slice(&magic);
        block[VERSION_AT..FEATURES_AT].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        Writer { block, at: FIELDS_AT }
    }

    pub(crate) fn bytes(mut self, bytes: &[u8]) -> Writer {
        self.block[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
        self
    }

    pub(crate) fn u64(self, value: u64) -> Writer {
        self.bytes(&value.to_le_bytes())
    }

    /// Writes zeros up to `offset`.
    pub(crate) fn skip_to(mut self, offset: usize) -> Writer {
        debug_assert!(self.at <= offset, "fields overlap");
        self.at = offset;
        self
    }

    pub(crate) fn flag(self, value: bool) -> Writer {
        self.u64(u64::from(value))
    }

    /// Writes the codec's fields, or zeros, and sets its feature bit.
    pub(crate) fn codec(mut self, codec: Option<&CodecId>) -> Writer {
        let Some(id) = codec else { return self.bytes(&[0; CODEC_BYTES]) };
        self.add_feature(CODEC_FEATURE);
        self.bytes(id.name_bytes()).bytes(id.key_id())
    }

    /// Writes the cursors, and sets the feature bit if there are any.
    pub(crate) fn cursors(mut self, cursors: &[SavedCursor]) -> Writer {
        if !cursors.is_empty() {
            self.add_feature(CURSORS_FEATURE);
        }
        cursors.iter().fold(self.u64(cursors.len() as u64), |block, cursor| {
            let mut name = [0; MAX_CURSOR_NAME_BYTES];
            name[..cursor.name.len()].copy_from_slice(cursor.name.as_bytes());
            block.bytes(&name).u64(cursor.position.as_u64()).u64(cursor.max_lag)
        })
    }

    fn add_feature(&mut self, feature: u32) {
        let features = number_at(&self.block, FEATURES_AT) | feature;
        self.block[FEATURES_AT..FEATURES_AT + 4].copy_from_slice(&features.to_le_bytes());
    }

    pub(crate) fn seal(mut self) -> Block {
        seal(&mut self.block);
        self.block
    }
}

/// Reads the fields of a valid block in order.
#[derive(Debug)]
pub struct Reader<'a> {
    fields: &'a [u8],
    features: u32,
}

impl<'a> Reader<'a> {
    /// Checks `block`, which may be too short.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn open(block: &'a [u8], magic: Magic) -> Result<Reader<'a>, BlockFault> {
        if !block.starts_with(&magic) {
            return Err(BlockFault::Foreign);
        }
        if block.len() != BLOCK_BYTES || checksum(block) != number_at(block, CHECKSUM_AT) {
            return Err(BlockFault::Damaged);
        }
        let version = number_at(block, VERSION_AT);
        if version != FORMAT_VERSION {
            return Err(BlockFault::Version(version));
        }
        let features = number_at(block, FEATURES_AT);
        let unknown = features & !KNOWN_FEATURES;
        if unknown != 0 {
            return Err(BlockFault::Features(unknown));
        }
        Ok(Reader { fields: &block[FIELDS_AT..], features })
    }

    pub(crate) fn array<const N: usize>(&mut self) -> [u8; N] {
        let (field, rest) = self.fields.split_at(N);
        self.fields = rest;
        let mut array = [0; N];
        array.copy_from_slice(field);
        array
    }

    pub(crate) fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    pub(crate) fn skip_to(&mut self, offset: usize) {
        let at = BLOCK_BYTES - self.fields.len();
        debug_assert!(at <= offset, "fields overlap");
        self.fields = &self.fields[offset - at..];
    }

    pub(crate) fn flag(&mut self) -> bool {
        self.u64() != 0
    }

    pub(crate) fn codec(&mut self) -> Result<Option<CodecId>, BlockFault> {
        let (name, key) = (self.array(), self.array());
        if self.features & CODEC_FEATURE == 0 {
            return Ok(None);
        }
        CodecId::from_bytes(name, key).map(Some).ok_or(BlockFault::Damaged)
    }

    /// Reads the cursors; impossible ones are `Damaged`.
    pub(crate) fn cursors(&mut self) -> Result<Vec<SavedCursor>, BlockFault> {
        if self.features & CURSORS_FEATURE == 0 {
            return Ok(Vec::new());
        }
        let count = self.u64();
        let has_room =
            count <= MAX_CURSORS as u64 && self.fields.len() as u64 >= count * CURSOR_BYTES as u64;
        let cursors = (0..if has_room { count } else { 0 }).map(|_| {
            let name: [u8; MAX_CURSOR_NAME_BYTES] = self.array();
            let name = std::str::from_utf8(&name).map_err(|_| BlockFault::Damaged)?;
            let name = name.trim_end_matches('\0').to_owned();
            let (position, max_lag) = (Lsn::new(self.u64()), self.u64());
            Ok(SavedCursor { name, position, max_lag })
        });
        let cursors: Vec<SavedCursor> = cursors.collect::<Result<_, BlockFault>>()?;
        let are_ascending = cursors.is_sorted_by(|one, next| one.name < next.name);
        let are_valid = has_room && are_ascending && cursors.iter().all(SavedCursor::is_valid);
        if are_valid { Ok(cursors) } else { Err(BlockFault::Damaged) }
    }
}

/// Writes the checksum.
pub fn seal(block: &mut Block) {
    let checksum = checksum(block);
    block[CHECKSUM_AT..VERSION_AT].copy_from_slice(&checksum.to_le_bytes());
}

fn checksum(block: &[u8]) -> u32 {
    crc32c_append(0, &block[VERSION_AT..])
}

fn number_at(block: &[u8], at: usize) -> u32 {
    let mut bytes = [0; 4];
    bytes.copy_from_slice(&block[at..at + 4]);
    u32::from_le_bytes(bytes)
}

/// Returns what a later Palisade may write.
#[cfg(test)]
pub(crate) fn with_version(mut block: Block, version: u32) -> Block {
    block[VERSION_AT..FEATURES_AT].copy_from_slice(&version.to_le_bytes());
    seal(&mut block);
    block
}

#[cfg(test)]
pub(crate) fn with_features(mut block: Block, features: u32) -> Block {
    block[FEATURES_AT..FEATURES_AT + 4].copy_from_slice(&features.to_le_bytes());
    seal(&mut block);
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAGIC: Magic = *b"PALITEST";

    #[test]
    fn each_flipped_bit_is_found() {
        let block = Writer::new(MAGIC).u64(7).bytes(b"abc").seal();
        assert_eq!(Reader::open(&block, MAGIC).unwrap().u64(), 7);
        for bit in 0..BLOCK_BYTES * 8 {
            let mut flipped = block;
            flipped[bit / 8] ^= 1 << (bit % 8);
            let fault = Reader::open(&flipped, MAGIC).unwrap_err();
            let expected = if bit < 64 { BlockFault::Foreign } else { BlockFault::Damaged };
            assert_eq!(fault, expected, "bit {bit}");
        }
    }

    #[test]
    fn unknown_formats_are_not_reported_as_damage() {
        let block = Writer::new(MAGIC).seal();
        let newer = with_version(block, 2);
        assert_eq!(Reader::open(&newer, MAGIC).unwrap_err(), BlockFault::Version(2));
        let featured = with_features(block, 4);
        assert_eq!(Reader::open(&featured, MAGIC).unwrap_err(), BlockFault::Features(4));
        assert_eq!(Reader::open(&block[..100], MAGIC).unwrap_err(), BlockFault::Damaged);
        assert_eq!(Reader::open(&[], MAGIC).unwrap_err(), BlockFault::Foreign);
    }
}
