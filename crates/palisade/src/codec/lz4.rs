//! LZ4 blocks.

use std::cell::Cell;

use lz4_flex::block::{
    CompressTable, compress_into_with_table, decompress_into, get_maximum_output_size,
};

use super::{DEFAULT_THRESHOLD, failed};
use crate::{Codec, Result};

/// The codec `lz4` (feature `lz4`): compresses each record to an LZ4 block. Fast in both
/// directions, and made of safe Rust.
///
/// ```
/// use palisade::{Lz4, MemStore, Options, Wal};
///
/// let store = MemStore::new(1 << 20);
/// let wal = Wal::with_store(store, Options::new().codec(Lz4::new()))?;
/// let ticket = wal.append(&[7; 10_000])?;
/// assert!(ticket.end_lsn().bytes_since(ticket.lsn()) < 200);
/// assert_eq!(wal.get(ticket.lsn())?.data(), [7; 10_000]);
/// # Ok::<(), palisade::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Lz4 {
    threshold: usize,
}

/// Shorter records use a smaller table, which takes less time to clear.
const SMALL_BELOW: usize = 1 << 16;

thread_local! {
    static SMALL: Cell<Option<CompressTable>> = const { Cell::new(None) };
    static LARGE: Cell<Option<CompressTable>> = const { Cell::new(None) };
}

impl Lz4 {
    /// Returns the codec with the default threshold.
    #[must_use]
    pub fn new() -> Lz4 {
        Lz4 { threshold: DEFAULT_THRESHOLD }
    }

    /// Sets the length below which a record is stored as it is. Default 128 bytes. Can change with
    /// each open.
    #[must_use]
    pub fn threshold(self, bytes: usize) -> Lz4 {
        Lz4 { threshold: bytes }
    }
}

impl Default for Lz4 {
    fn default() -> Lz4 {
        Lz4::new()
    }
}

impl Codec for Lz4 {
    fn name(&self) -> &str {
        "lz4"
    }

    fn threshold(&self) -> Option<usize> {
        Some(self.threshold)
    }

    fn encode(&self, _: u16, data: &[u8], into: &mut Vec<u8>) -> Result<()> {
        into.resize(get_maximum_output_size(data.len()), 0);
        let is_small = data.len() + 1 < SMALL_BELOW;
        let kept = if is_small { &SMALL } else { &LARGE };
        let make = if is_small { CompressTable::small } else { CompressTable::large };
        // A thread that is ending has none.
        let mut table = kept.try_with(Cell::take).unwrap_or_default().unwrap_or_else(make);
        let len = compress_into_with_table(data, into, &mut table);
        let _ = kept.try_with(|kept| kept.set(Some(table)));
        into.truncate(len.map_err(|error| failed("the record cannot be compressed", error))?);
        Ok(())
    }

    fn decode(&self, _: u16, stored: &[u8], into: &mut [u8]) -> Result<usize> {
        decompress_into(stored, into).map_err(|error| failed("the bytes are no LZ4 block", error))
    }
}
