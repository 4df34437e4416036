//! Seeds and sizes of random tests, for every crate of the workspace.
//!
//! | variable | meaning |
//! |---|---|
//! | `KTSU_CAMPAIGN=full` | ten times the cases, larger campaigns, and fresh seeds |
//! | `KTSU_TEST_SEED=N` | the seed of every random test; [`DEFAULT_SEED`] unless given |
//!
//! So the tests of two clones make the same choices, and a failure can be repeated. `proptest` keeps a
//! failing input in the folder `proptest-regressions` beside its crate, to be committed as a case.

use std::hash::{BuildHasher, Hasher};
use std::sync::LazyLock;

use proptest::test_runner::{Config, RngSeed};

/// The seed of random tests unless another is wanted.
pub const DEFAULT_SEED: u64 = 1;

/// How many times as many cases a full campaign has.
const FULL: u32 = 10;

/// The configuration of a property that is tested with so many cases.
pub fn config(cases: u32) -> Config {
    Config {
        cases: if is_full() { cases * FULL } else { cases },
        rng_seed: RngSeed::Fixed(seed()),
        ..Config::default()
    }
}

/// The seed of every random test of this process. A fresh one is printed.
///
/// # Panics
/// If `KTSU_TEST_SEED` is not a number.
pub fn seed() -> u64 {
    static SEED: LazyLock<u64> = LazyLock::new(|| {
        let given = std::env::var("KTSU_TEST_SEED").ok();
        choose(given.as_deref(), is_full(), fresh)
    });
    *SEED
}

/// Whether campaigns are run in full: `KTSU_CAMPAIGN=full`.
pub fn is_full() -> bool {
    std::env::var("KTSU_CAMPAIGN").is_ok_and(|size| size == "full")
}

fn choose(given: Option<&str>, is_full: bool, fresh: impl Fn() -> u64) -> u64 {
    match given {
        Some(given) => given.parse().expect("KTSU_TEST_SEED is a number"),
        None if is_full => fresh(),
        None => DEFAULT_SEED,
    }
}

#[expect(
    clippy::print_stderr,
    reason = "whoever repeats a failure needs the seed"
)]
fn fresh() -> u64 {
    // The keys of a hasher are the random numbers that the standard library has.
    let seed = std::hash::RandomState::new().build_hasher().finish() >> 16;
    eprintln!("KTSU_TEST_SEED={seed}");
    seed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_is_fixed_unless_another_or_a_full_campaign_is_wanted() {
        let fresh = || 99;
        assert_eq!(choose(None, false, fresh), DEFAULT_SEED);
        assert_eq!(choose(None, true, fresh), 99);
        assert_eq!(choose(Some("7"), true, fresh), 7);
        assert_eq!(choose(Some("7"), false, fresh), 7);
    }
}
