//! The most that checking one value may take.

/// So many visits are always made.
pub const MAX_VISITS: u64 = 10_000;

/// So many visits of each pair are always made: a long list has one of each item.
pub const MAX_VISITS_PER_PAIR: u64 = 16;

/// The most steps of `pattern`, of lengths and formats, and of `uniqueItems`.
pub const MAX_STEPS: u64 = 1 << 24;

/// The most pairs that are counted.
pub(super) const MAX_PAIRS: u64 = 1 << 24;
