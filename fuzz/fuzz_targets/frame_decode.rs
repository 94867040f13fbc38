//! Frames: UUID, epoch, salt and LSN, then any bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| palisade_verification::fuzzing::frame_decode(input));
