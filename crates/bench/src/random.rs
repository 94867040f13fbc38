//! Numbers without order that are the same in each run.

/// Marsaglia's xorshift64.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
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
}
