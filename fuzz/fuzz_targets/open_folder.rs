//! Whole folders. The mutator is the one of the tests: it never makes a record's checksum right,
//! so whatever a log gives that nobody appended is a fault of the log.
#![no_main]

use libfuzzer_sys::{fuzz_mutator, fuzz_target};
use palisade_verification::fuzzing::{Image, mutate, open_folder};

fuzz_target!(|input: &[u8]| open_folder(input));

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    let Some(mut image) = Image::decode(&data[..size]) else { return size };
    mutate(&mut image, u64::from(seed));
    let bytes = image.encode();
    if bytes.len() > max_size.min(data.len()) {
        return size;
    }
    data[..bytes.len()].copy_from_slice(&bytes);
    bytes.len()
});
