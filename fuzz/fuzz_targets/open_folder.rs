//! Whole folders. The mutator is the one of the tests: it never makes a record's checksum right,
//! so whatever a log gives that nobody appended is a fault of the log.
#![no_main]

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use libfuzzer_sys::{fuzz_mutator, fuzz_target};
use palisade_store::fuzzing::{Image, mutate, open_folder};

/// A name that no other process has, in memory where there is such a place.
fn scratch() -> &'static Path {
    static SCRATCH: OnceLock<PathBuf> = OnceLock::new();
    SCRATCH.get_or_init(|| {
        let memory = Path::new("/dev/shm");
        let parent = if memory.is_dir() { memory.to_path_buf() } else { std::env::temp_dir() };
        parent.join(format!("palisade-fuzz-{}", std::process::id()))
    })
}

fuzz_target!(|input: &[u8]| {
    // What an input that crashed has left.
    let _ = std::fs::remove_dir_all(scratch());
    open_folder(input, scratch());
});

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
