//! Appends records of 256 bytes for `verification/instructions.sh`, which counts the instructions
//! of [`appends`] under valgrind.

use std::hint::black_box;

use palisade::{Options, Wal};

const RECORD_BYTES: usize = 256;
/// So many frames of 280 bytes are less than half the buffer, which `write_bytes` asks for: no
/// append completes a piece that must be written.
const MOST: usize = 29_000;

fn main() {
    let count = match std::env::args().nth(1) {
        Some(number) if number != "--bench" => number.parse().expect("a number of records"),
        _ => MOST,
    };
    assert!(count <= MOST, "{count} appends are too many, expected at most {MOST}");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let wal = Options::new().write_bytes(8 << 20).open(folder.path()).expect("a new log");
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
