//! What the tests share.

use std::ops::Range;

use palisade_redb::Options;

/// Numbers by SplitMix64.
#[derive(Debug)]
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    /// Returns a number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % end
    }
}

/// Returns options with which checkpoints, long changes and spills are frequent.
pub(crate) fn small() -> Options {
    let log = palisade::Options::new().segment_bytes(64 << 10).buffer_bytes(64 << 10);
    Options::new().log(log).memory_bytes(24 * 4096).log_bytes(192 << 10)
}

/// Returns the seeds to run: `PALISADE_REDB_SEED`, or so many as `PALISADE_REDB_SEEDS` says, or
/// `default`.
pub(crate) fn seeds(default: u64) -> Range<u64> {
    let number = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    match (number("PALISADE_REDB_SEED"), number("PALISADE_REDB_SEEDS")) {
        (Some(seed), _) => seed..seed + 1,
        (None, count) => 0..count.unwrap_or(default),
    }
}
