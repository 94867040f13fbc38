//! Which shard has a stream.

use crate::directory::stable_hash;

/// Returns the number of the shard that has the stream `name` in a set of `count` shards.
///
/// The key is the name, or what the name has in braces: what lies between its first `{` and the
/// next `}`, if that is not empty. The high 32 bits of the key's hash, times `count`, give the
/// shard in their high 32 bits. The low bits of the hash of the name choose the stripe, so the
/// streams of a shard lie in all stripes.
///
/// Part of the format of a set: no version may change it, nor [`stable_hash`].
pub(crate) fn shard_of(name: &[u8], count: usize) -> usize {
    let high = stable_hash(key_of(name)) >> 32;
    ((high * count as u64) >> 32) as usize
}

fn key_of(name: &[u8]) -> &[u8] {
    let in_braces = || {
        let open = name.iter().position(|&byte| byte == b'{')?;
        let rest = &name[open + 1..];
        let key = &rest[..rest.iter().position(|&byte| byte == b'}')?];
        (!key.is_empty()).then_some(key)
    };
    in_braces().unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::{Directory, STRIPES};

    #[test]
    fn a_name_has_the_same_shard_in_all_versions() {
        // The name, the hash of its key, and its shard of 1, 2, 3 and 16.
        let all: [(&[u8], u64, [usize; 4]); 9] = [
            (b"orders", 0xcba2_f202_8164_3578, [0, 1, 2, 12]),
            (b"group 7", 0x07bc_8b3b_2d84_8201, [0, 0, 0, 0]),
            (b"\xff\x00", 0xb8b3_2623_c0da_3e34, [0, 1, 2, 11]),
            (b"tenant 7", 0x31d0_de16_7238_4226, [0, 0, 0, 3]),
            (b"{tenant 7}orders", 0x31d0_de16_7238_4226, [0, 0, 0, 3]),
            (b"}{a}{b}", 0x2ef7_d131_6eb8_6f71, [0, 0, 0, 2]),
            (b"{}x", 0xae5a_fe6b_4544_1251, [0, 1, 2, 10]),
            (b"a{b", 0x940d_122e_f7bd_e08a, [0, 1, 1, 9]),
            (b"{a", 0x1e5b_0655_8c8c_7a87, [0, 0, 0, 1]),
        ];
        for (name, hash, shards) in all {
            let text = name.escape_ascii();
            assert_eq!(stable_hash(key_of(name)), hash, "{text}");
            assert_eq!([1, 2, 3, 16].map(|count| shard_of(name, count)), shards, "{text}");
        }
    }

    #[test]
    fn streams_spread_evenly_over_shards_and_the_stripes_of_each() {
        for count in [2, 3, 16] {
            let mut shards = vec![vec![0; STRIPES as usize]; count];
            for n in 0..100 * STRIPES {
                let name = format!("stream {n}").into_bytes();
                let stripe = Directory::stripe_of(&name) as usize;
                shards[shard_of(&name, count)][stripe] += 1;
            }
            let even = 100 * STRIPES / count as u32;
            for stripes in shards {
                let streams: u32 = stripes.iter().sum();
                assert!(streams.abs_diff(even) < even / 20, "{streams} of {even}");
                let used = stripes.iter().filter(|&&streams| streams > 0).count();
                assert!(used > STRIPES as usize * 98 / 100, "{used} stripes");
            }
        }
    }
}
