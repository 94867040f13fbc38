//! Appends records of 256 bytes for `verification/instructions.sh`, which counts the instructions
//! of [`appends`] under valgrind.

use std::hint::black_box;

use palisade::{Options, Wal};

const RECORD_BYTES: usize = 256;
/// Half of the log buffer, the most that a piece can have.
const WRITE_BYTES: usize = 8 << 20;
/// So many frames of 280 bytes are shorter than `WRITE_BYTES`: no append completes a piece.
const MOST: usize = 29_000;

fn main() {
    let count = std::env::args().nth(1).expect("the number of records");
    let count = count.parse().expect("a number");
    assert!(count <= MOST, "{count} appends are too many, expected at most {MOST}");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let wal = Options::new().write_bytes(WRITE_BYTES).open(folder.path()).expect("a new log");
    appends(&wal, count);
    wal.close().expect("a close");
}

/// The counted function: the appender's thread, and only what it does in `append`.
#[inline(never)]
fn appends(wal: &Wal, count: usize) {
    let record = black_box([0x5a_u8; RECORD_BYTES]);
    for _ in 0..count {
        wal.append(black_box(&record)).expect("an append");
    }
}
