//! Zstd frames.

use std::cell::Cell;
use std::io;

use zstd::bulk::{Compressor, Decompressor};

use super::{DEFAULT_THRESHOLD, failed};
use crate::{Codec, Result};

/// The codec `zstd` (feature `zstd`): compresses each record to a Zstandard frame. It compresses
/// better than [`Lz4`](crate::Lz4), which has an example, and is slower. The library is C code.
///
/// Each thread that appends keeps a compressor: about a megabyte at the default level, some hundred
/// megabytes at the highest ones. Each thread that reads keeps a decompressor of less than 200 KiB.
#[derive(Clone, Debug)]
pub struct Zstd {
    level: i32,
    threshold: usize,
}

/// The fastest of the ordinary levels: appends wait for the compression.
const DEFAULT_LEVEL: i32 = 1;

thread_local! {
    // With the level that it is set to.
    static COMPRESSOR: Cell<Option<(i32, Compressor<'static>)>> = const { Cell::new(None) };
    static DECOMPRESSOR: Cell<Option<Decompressor<'static>>> = const { Cell::new(None) };
}

impl Zstd {
    /// Returns the codec with the default level and threshold.
    #[must_use]
    pub fn new() -> Zstd {
        Zstd { level: DEFAULT_LEVEL, threshold: DEFAULT_THRESHOLD }
    }

    /// Sets the level, from 1 (fast) to 22; negative levels are faster still, and 0 is Zstandard's
    /// own default, 3. Default 1. The nearest level in Zstandard's range counts. Can change with
    /// each open.
    #[must_use]
    pub fn level(self, level: i32) -> Zstd {
        Zstd { level, ..self }
    }

    /// As [`Lz4::threshold`](crate::Lz4::threshold).
    #[must_use]
    pub fn threshold(self, bytes: usize) -> Zstd {
        Zstd { threshold: bytes, ..self }
    }

    fn compress(&self, data: &[u8], into: &mut Vec<u8>) -> io::Result<()> {
        // A thread that is ending has none.
        let kept = COMPRESSOR.try_with(Cell::take).unwrap_or_default();
        let mut compressor = match kept {
            Some((level, compressor)) if level == self.level => compressor,
            Some((_, mut compressor)) => {
                compressor.set_compression_level(self.level)?;
                compressor
            }
            None => Compressor::new(self.level)?,
        };
        into.reserve(zstd::zstd_safe::compress_bound(data.len()));
        compressor.compress_to_buffer(data, into)?;
        let _ = COMPRESSOR.try_with(|kept| kept.set(Some((self.level, compressor))));
        Ok(())
    }
}

impl Default for Zstd {
    fn default() -> Zstd {
        Zstd::new()
    }
}

impl Codec for Zstd {
    fn name(&self) -> &str {
        "zstd"
    }

    fn threshold(&self) -> Option<usize> {
        Some(self.threshold)
    }

    fn encode(&self, _: u16, data: &[u8], into: &mut Vec<u8>) -> Result<()> {
        self.compress(data, into).map_err(|error| failed("the record cannot be compressed", error))
    }

    fn decode(&self, _: u16, stored: &[u8], into: &mut [u8]) -> Result<usize> {
        let kept = DECOMPRESSOR.try_with(Cell::take).unwrap_or_default();
        let decompressed = kept.map_or_else(Decompressor::new, Ok).and_then(|mut decompressor| {
            let len = decompressor.decompress_to_buffer(stored, into);
            let _ = DECOMPRESSOR.try_with(|kept| kept.set(Some(decompressor)));
            len
        });
        decompressed.map_err(|error| failed("the bytes are no Zstandard frame", error))
    }
}
