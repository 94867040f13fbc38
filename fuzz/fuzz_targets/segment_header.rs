//! Segment headers and the state: any bytes, as they are and with a right checksum.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| palisade_verification::fuzzing::segment_header(input));
