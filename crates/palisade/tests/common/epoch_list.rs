//! The list of epochs in the state of a closed log, as docs/format.md has it.

use palisade::crc32c_append;

const BLOCK_BYTES: usize = 4096;
const CHECKSUM: std::ops::Range<usize> = 8..12;
const LIST_AT: usize = 256;

/// Epochs in the list of the first copy of the state, in the file `meta`.
pub(crate) fn len(meta: &[u8]) -> u64 {
    u64::from_le_bytes(meta[LIST_AT..LIST_AT + 8].try_into().unwrap())
}

/// The file with zeros in the place of the list, as if the list had no room.
pub(crate) fn removed(meta: &[u8]) -> Vec<u8> {
    changed(meta, |copy| copy[LIST_AT..].fill(0))
}

/// The file with a change to both copies of the state, under checksums that hold.
pub(crate) fn changed(meta: &[u8], change: impl Fn(&mut [u8])) -> Vec<u8> {
    let mut meta = meta.to_vec();
    let copies = meta.chunks_exact_mut(BLOCK_BYTES).filter(|block| block.starts_with(b"PALIMETA"));
    for copy in copies {
        change(copy);
        let checksum = crc32c_append(0, &copy[CHECKSUM.end..]);
        copy[CHECKSUM].copy_from_slice(&checksum.to_le_bytes());
    }
    meta
}
