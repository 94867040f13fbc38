//! Stored bytes of a record: a byte that says which codec, then what the frame holds.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/palisade/tests/common/stored_bytes.rs"]
mod stored_bytes;

fuzz_target!(|input: &[u8]| drop(stored_bytes::read_stored_bytes(input)));
