//! What the tests share.

use std::ops::Range;

use palisade_redb::Options;

use crate::seeds::number;

/// Returns options with which checkpoints, long changes and spills are frequent.
pub(crate) fn small() -> Options {
    let log = palisade::Options::new().segment_bytes(64 << 10).buffer_bytes(64 << 10);
    Options::new().log(log).memory_bytes(24 * 4096).log_bytes(192 << 10)
}

/// Returns the seeds that the environment names, or as many as `usual`: see `seeds.rs`.
pub(crate) fn seeds(usual: u64) -> Range<u64> {
    let first = number("PALISADE_FIRST_SEED").unwrap_or(0);
    first..first + number("PALISADE_SEEDS").unwrap_or(usual)
}
