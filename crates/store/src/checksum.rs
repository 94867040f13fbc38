//! The log's checksum: CRC-32C (Castagnoli).
//!
//! Each implementation serves where it was measured to be faster
//! (`docs/decisions/0001-dependencies-and-checksum.md`): `lanes` for headers, short payloads and
//! processors without wider instructions, otherwise `crc-fast`.

mod lanes;

use crc_fast::{CrcAlgorithm, Digest};

/// Returns the CRC-32C of the bytes that gave `crc`, followed by `data`. Begin with 0.
#[inline]
#[must_use]
pub fn crc32c_append(crc: u32, data: &[u8]) -> u32 {
    match lanes::append(crc, data) {
        Some(checksum) => checksum,
        None => by_crate(crc, data),
    }
}

/// As [`crc32c_append`], for a few whole little-endian words.
#[inline]
pub fn crc32c_append_words<const N: usize>(crc: u32, words: [u64; N]) -> u32 {
    match lanes::append_words(crc, words) {
        Some(checksum) => checksum,
        None => by_crate(crc, words.map(u64::to_le_bytes).as_flattened()),
    }
}

fn by_crate(crc: u32, data: &[u8]) -> u32 {
    if crc == 0 { crc_fast::crc32_iscsi(data) } else { long_append(crc, data) }
}

/// Uses a digest, because one call of `crc-fast`, which has less to set up, takes no state.
fn long_append(crc: u32, data: &[u8]) -> u32 {
    // A digest's state is the checksum without its last step, the inversion.
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(!crc));
    digest.update(data);
    // The checksum is 32 bits wide, whatever the width of the crate's return type.
    digest.finalize() as u32
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LENGTHS: usize = 1025;
    const ALIGNMENTS: usize = 64;
    const SEEDS: [u32; 4] = [0, 1, 0x8000_0000, u32::MAX];

    #[test]
    fn check_values_of_the_published_algorithm() {
        assert_eq!(crc32c_append(0, b""), 0);
        assert_eq!(crc32c_append(0, b"123456789"), 0xe306_9283);
        assert_eq!(crc32c_append(0, &[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c_append(0, &[0xff; 32]), 0x62a8_ab43);
    }

    #[test]
    fn each_length_and_alignment_agrees_with_crc32c() {
        let bytes = noise(LENGTHS + ALIGNMENTS);
        for length in 0..LENGTHS {
            for start in 0..ALIGNMENTS {
                let data = &bytes[start..start + length];
                let seed = SEEDS[(length + start) % SEEDS.len()];
                assert_agrees(seed, data);
            }
        }
    }

    #[test]
    fn each_split_gives_the_checksum_of_the_whole() {
        let bytes = noise(LENGTHS);
        let whole = crc32c::crc32c(&bytes);
        for split in 0..=bytes.len() {
            let (head, tail) = bytes.split_at(split);
            assert_eq!(crc32c_append(crc32c_append(0, head), tail), whole, "split at {split}");
        }
    }

    proptest! {
        #[test]
        fn any_words_give_the_checksum_of_their_bytes(seed: u32, words: [u64; 4]) {
            let bytes = words.map(u64::to_le_bytes);
            let expected = crc32c::crc32c_append(seed, bytes.as_flattened());
            prop_assert_eq!(crc32c_append_words(seed, words), expected);
            prop_assert_eq!(by_crate(seed, bytes.as_flattened()), expected);
        }

        #[test]
        fn any_bytes_with_any_seed_agree_with_crc32c(
            seed: u32,
            data in proptest::collection::vec(any::<u8>(), 0..4 * LENGTHS),
            start in 0..ALIGNMENTS,
        ) {
            let data = &data[start.min(data.len())..];
            prop_assert_eq!(crc32c_append(seed, data), crc32c::crc32c_append(seed, data));
            prop_assert_eq!(long_append(seed, data), crc32c::crc32c_append(seed, data));
            prop_assert_eq!(crc32c_append(0, data), crc32c::crc32c(data));
        }

        #[test]
        fn any_three_parts_give_the_checksum_of_the_whole(
            data in proptest::collection::vec(any::<u8>(), 0..8 * LENGTHS),
            first: prop::sample::Index,
            second: prop::sample::Index,
        ) {
            let (a, b) = (first.index(data.len() + 1), second.index(data.len() + 1));
            let (a, b) = (a.min(b), a.max(b));
            let parts = [&data[..a], &data[a..b], &data[b..]];
            let joined = parts.iter().fold(0, |crc, part| crc32c_append(crc, part));
            prop_assert_eq!(joined, crc32c::crc32c(&data));
        }
    }

    fn assert_agrees(seed: u32, data: &[u8]) {
        let expected = crc32c::crc32c_append(seed, data);
        let length = data.len();
        assert_eq!(crc32c_append(seed, data), expected, "{length} bytes with seed {seed:#x}");
        assert_eq!(long_append(seed, data), expected, "{length} bytes with seed {seed:#x}");
        assert_eq!(by_crate(0, data), crc32c::crc32c(data), "{length} bytes");
    }

    fn noise(bytes: usize) -> Vec<u8> {
        let mut state = 0x9e37_79b9_u32;
        let step = |_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        (0..bytes).map(step).collect()
    }
}
