//! CRC-32C by the processor's own instruction, in four lanes.
//!
//! The instruction takes 3 cycles and one can begin in each cycle, so words that follow each other
//! wait, and words of different *lanes* do not. A *block* has four lanes of equal length.
//! Carry-less multiplications with powers of x join their states: to skip n bits is to multiply by
//! x^n modulo the polynomial, and the instruction does the reduction.
//!
//! Source: V. Gopal and others, "Fast CRC Computation for iSCSI Polynomial Using CRC32
//! Instruction", Intel, 2011. Two crates check every result (`checksum.rs`).

/// Continues `crc`, or returns `None` if the processor lacks the instructions or has faster ones.
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn append(_crc: u32, _data: &[u8]) -> Option<u32> {
    None
}

/// As `append`, for little-endian words.
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn append_words<const N: usize>(_crc: u32, _words: [u64; N]) -> Option<u32> {
    None
}

#[cfg(target_arch = "x86_64")]
pub(super) use x86_64::{append, append_words};

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use std::arch::is_x86_feature_detected as has;
    use std::arch::x86_64::{
        _mm_clmulepi64_si128, _mm_crc32_u8, _mm_crc32_u64, _mm_cvtsi64_si128, _mm_cvtsi128_si64,
    };

    type Word = [u8; 8];
    type Block<const LANE: usize> = [[Word; LANE]; 4];

    /// From here on 512-bit multiplications are faster.
    const WIDE_BYTES: usize = 512;
    /// Without its first term, bits in reverse: bit 31 is x^0.
    const POLYNOMIAL: u32 = 0x82f6_3b78;

    struct Lanes<const WORDS: usize>;

    impl<const WORDS: usize> Lanes<WORDS> {
        /// The factors x^(n - 33) that move a lane's state past the n bits behind it. The product
        /// of two reversed numbers of 32 bits is one bit short of 64, and the instruction adds 32
        /// of its own.
        const PAST: [i64; 3] = [Self::past(3), Self::past(2), Self::past(1)];

        const fn past(lanes: usize) -> i64 {
            let x_to_31 = 1;
            times_x(x_to_31, 64 * (lanes * WORDS - 1)) as i64
        }
    }

    const fn times_x(mut reversed: u32, times: usize) -> u32 {
        let mut done = 0;
        while done < times {
            let carry = if reversed & 1 == 1 { POLYNOMIAL } else { 0 };
            reversed = reversed >> 1 ^ carry;
            done += 1;
        }
        reversed
    }

    #[inline(always)]
    pub(crate) fn append(crc: u32, data: &[u8]) -> Option<u32> {
        if data.len() >= WIDE_BYTES && has!("avx512vl") && has!("vpclmulqdq") {
            return None;
        }
        by_lanes(crc, data)
    }

    #[inline(always)]
    #[expect(unsafe_code, reason = "the compiler does not know what processor this is")]
    fn by_lanes(crc: u32, data: &[u8]) -> Option<u32> {
        if !has!("sse4.2") || !has!("pclmulqdq") {
            return None;
        }
        // SAFETY: the processor has both features that the function is compiled for.
        Some(unsafe { crc32c(crc, data) })
    }

    #[inline(always)]
    #[expect(unsafe_code, reason = "the compiler does not know what processor this is")]
    pub(crate) fn append_words<const N: usize>(crc: u32, words: [u64; N]) -> Option<u32> {
        if !has!("sse4.2") {
            return None;
        }
        // SAFETY: the processor has the feature that the function is compiled for.
        Some(unsafe { crc32c_words(crc, words) })
    }

    #[target_feature(enable = "sse4.2")]
    fn crc32c_words<const N: usize>(crc: u32, words: [u64; N]) -> u32 {
        let mut state = u64::from(!crc);
        for word in words {
            state = _mm_crc32_u64(state, word);
        }
        !(state as u32)
    }

    #[target_feature(enable = "sse4.2,pclmulqdq")]
    fn crc32c(crc: u32, data: &[u8]) -> u32 {
        let (words, rest) = data.as_chunks();
        let (state, words) = in_blocks::<8>(u64::from(!crc), words);
        let (mut state, words) = in_blocks::<4>(state, words);
        for word in words {
            state = step(state, word);
        }
        // A state has 32 bits; the instruction's wide form keeps them in a word.
        let mut state = state as u32;
        for &byte in rest {
            state = _mm_crc32_u8(state, byte);
        }
        !state
    }

    #[inline]
    #[target_feature(enable = "sse4.2,pclmulqdq")]
    fn in_blocks<const LANE: usize>(mut state: u64, words: &[Word]) -> (u64, &[Word]) {
        let (lanes, _) = words.as_chunks();
        let (blocks, _) = lanes.as_chunks();
        for block in blocks {
            state = in_lanes::<LANE>(state, block);
        }
        (state, &words[blocks.len() * 4 * LANE..])
    }

    #[inline]
    #[target_feature(enable = "sse4.2,pclmulqdq")]
    fn in_lanes<const LANE: usize>(state: u64, [a, b, c, d]: &Block<LANE>) -> u64 {
        let mut states = [state, 0, 0, 0];
        for i in 0..LANE - 1 {
            states[0] = step(states[0], &a[i]);
            states[1] = step(states[1], &b[i]);
            states[2] = step(states[2], &c[i]);
            states[3] = step(states[3], &d[i]);
        }
        let last = LANE - 1;
        let [past_a, past_b, past_c] = Lanes::<LANE>::PAST;
        let past = times(step(states[0], &a[last]), past_a)
            ^ times(step(states[1], &b[last]), past_b)
            ^ times(step(states[2], &c[last]), past_c);
        // The last step of the fourth lane reduces the products, too.
        _mm_crc32_u64(states[3], u64::from_le_bytes(d[last]) ^ past)
    }

    #[inline]
    #[target_feature(enable = "sse4.2")]
    fn step(state: u64, word: &Word) -> u64 {
        _mm_crc32_u64(state, u64::from_le_bytes(*word))
    }

    #[inline]
    #[target_feature(enable = "pclmulqdq")]
    fn times(state: u64, factor: i64) -> u64 {
        let (state, factor) = (_mm_cvtsi64_si128(state.cast_signed()), _mm_cvtsi64_si128(factor));
        _mm_cvtsi128_si64(_mm_clmulepi64_si128::<0>(state, factor)).cast_unsigned()
    }

    #[cfg(all(test, not(loom)))]
    mod tests {
        use proptest::prelude::*;

        use super::*;

        proptest! {
            #[test]
            fn any_length_in_lanes_agrees_with_crc32c(
                seed: u32,
                data in proptest::collection::vec(any::<u8>(), 0..8 * WIDE_BYTES),
                start in 0..64_usize,
            ) {
                let data = &data[start.min(data.len())..];
                if let Some(checksum) = by_lanes(seed, data) {
                    prop_assert_eq!(checksum, crc32c::crc32c_append(seed, data));
                }
            }
        }
    }
}
