//! A seeded generator: SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).

#[derive(Clone, Debug, Default)]
pub struct Chance {
    state: u64,
}

impl Chance {
    pub fn new(seed: u64) -> Chance {
        Chance { state: seed }
    }

    /// Returns another stream, fixed by this state and `seed`.
    #[cfg(feature = "sim")]
    pub fn branch(&self, seed: u64) -> Chance {
        Chance { state: Chance::new(self.state ^ seed.rotate_left(32)).draw() }
    }

    pub fn draw(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        // Slightly uneven for huge limits, which nothing here has.
        self.draw() % limit.max(1)
    }

    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// Returns true `count` times in `of`.
    #[cfg(feature = "sim")]
    pub fn is(&mut self, count: u64, of: u64) -> bool {
        self.below(of) < count
    }

    pub fn fill(&mut self, bytes: &mut [u8]) {
        for piece in bytes.chunks_mut(8) {
            let random = self.draw().to_le_bytes();
            piece.copy_from_slice(&random[..piece.len()]);
        }
    }
}
