//! Numbers without order that are the same in each run.

/// Marsaglia's xorshift64.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// A seed for any use. Odd, so that no odd multiple of it is 0.
    pub(crate) const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

    /// Begins with a seed, which is not 0.
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub(crate) fn next_u64(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Returns a random number below `count`, which is at most 2^32. Takes no division.
    pub(crate) fn below(&mut self, count: usize) -> usize {
        (((self.next_u64() >> 32) * count as u64) >> 32) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_below_a_count_are_all_of_them_about_equally_often() {
        let mut random = Random::new(u64::MAX / 3);
        let mut counts = [0_u32; 10];
        (0..10_000).for_each(|_| counts[random.below(10)] += 1);
        assert!(counts.iter().all(|count| (800..1200).contains(count)), "{counts:?}");
    }
}
