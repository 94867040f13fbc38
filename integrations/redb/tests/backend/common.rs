//! What the tests share.

use palisade_redb::Options;

/// Returns options with which checkpoints, long changes and spills are frequent.
pub(crate) fn small() -> Options {
    let log = palisade::Options::new().segment_bytes(64 << 10).buffer_bytes(64 << 10);
    Options::new().log(log).memory_bytes(24 * 4096).log_bytes(192 << 10)
}
