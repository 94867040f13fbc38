//! One bit of a file, and what it belongs to.

use palisade::Lsn;

pub(crate) const SEGMENT_BYTES: u64 = 4096;
pub(crate) const BLOCK_BYTES: u64 = 4096;
/// Ring's offset in the log buffer's file; before it lie the block and the marks.
pub(crate) const RING_OFFSET: u64 = 8192;
pub(crate) const RING_BYTES: u64 = 4096;
/// Bytes of a slot of the marks.
pub(crate) const SLOT_BYTES: u64 = 2048;
/// No block and no slot has fields beyond it, but the state, which has a list of epochs.
pub(crate) const FIELD_BYTES: u64 = 128;
/// Where the other fields of the state end.
pub(crate) const STATE_BYTES: u64 = 200;
/// Where the list has bytes, in a log of one epoch.
pub(crate) const LIST_BYTES: std::ops::Range<u64> = 256..296;
/// What of which file: a row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    SegmentHeader,
    SegmentBody,
    Meta,
    BufferBlock,
    Marks,
    Ring,
}

/// All bits of which bytes are flipped. Of each other byte it is one bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Sweep {
    /// Of fields.
    Fields,
    /// Of fields and records.
    Records,
    /// Of every byte.
    All,
}

/// One bit of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flip<'a> {
    pub(crate) file: &'a str,
    pub(crate) byte: usize,
    pub(crate) bit: u32,
}

impl Flip<'_> {
    pub(crate) fn part(&self) -> Part {
        let byte = self.byte as u64;
        match self.file {
            "meta" => Part::Meta,
            name if is_buffer(name) && byte < BLOCK_BYTES => Part::BufferBlock,
            name if is_buffer(name) && byte < RING_OFFSET => Part::Marks,
            name if is_buffer(name) => Part::Ring,
            _ if byte < BLOCK_BYTES => Part::SegmentHeader,
            _ => Part::SegmentBody,
        }
    }

    /// The sweep that flips all bits of this byte. Behind a sealed block's fields lie zeros under
    /// the block's checksum, and behind a slot of the marks nothing at all.
    pub(crate) fn sweep(&self) -> Sweep {
        let within = self.byte as u64;
        let is_of_a_field = match self.part() {
            Part::SegmentBody | Part::Ring => return Sweep::Records,
            Part::Marks => within % SLOT_BYTES < FIELD_BYTES,
            Part::SegmentHeader | Part::BufferBlock => within % BLOCK_BYTES < FIELD_BYTES,
            Part::Meta => {
                let within = within % BLOCK_BYTES;
                within < STATE_BYTES || LIST_BYTES.contains(&within)
            }
        };
        if is_of_a_field { Sweep::Fields } else { Sweep::All }
    }

    pub(crate) fn segment(&self) -> Option<u64> {
        self.file.strip_prefix("segment-")?.parse().ok()
    }

    /// Whether the byte holds a part of the log's bytes `[from, to)`.
    pub(crate) fn lies_in(&self, from: Lsn, to: Lsn) -> bool {
        let byte = self.byte as u64;
        match self.part() {
            Part::SegmentBody => {
                let base = self.segment().map_or(0, |number| number * SEGMENT_BYTES);
                let lsn = Lsn::new(base + byte - BLOCK_BYTES);
                from <= lsn && lsn < to
            }
            Part::Ring => {
                let within =
                    (byte - RING_OFFSET + RING_BYTES - from.as_u64() % RING_BYTES) % RING_BYTES;
                within < to.bytes_since(from)
            }
            _ => false,
        }
    }
}

/// Whether the file is the log buffer's, which lies in memory.
pub(crate) fn is_buffer(name: &str) -> bool {
    name.starts_with("/memory/")
}
