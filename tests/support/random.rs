//! Random numbers that can be had again.

/// A sequence of numbers, the same for the same seed.
pub(crate) struct RandomNumbers(u64);

impl RandomNumbers {
    /// From the seed that `KTSU_TEST_SEED` names, or another one at each start. It is printed, so that a
    /// failure can be repeated.
    pub(crate) fn seeded() -> Self {
        let seed = std::env::var("KTSU_TEST_SEED").ok();
        let other = || u64::from(std::process::id()) << 16 | 1;
        let seed = seed.map_or_else(other, |seed| seed.parse().unwrap());
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
