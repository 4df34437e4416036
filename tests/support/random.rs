//! Random numbers that can be had again.

/// A sequence of numbers, the same for the same seed.
pub(crate) struct RandomNumbers(u64);

impl RandomNumbers {
    /// From the seed of this test run, [`ktsu_campaign::seed`], which is printed with a failure.
    pub(crate) fn seeded() -> Self {
        let seed = ktsu_campaign::seed();
        eprintln!("KTSU_TEST_SEED={seed}");
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// The next number, below a bound.
    pub(crate) fn next(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }
}
