//! The most that checking one value may take, and what counts.

/// So many visits are always made.
pub const MAX_VISITS: u64 = 10_000;

/// So many visits of each pair are always made: a long list has one of each item.
pub const MAX_VISITS_PER_PAIR: u64 = 16;

/// The most steps of `pattern`, of lengths and formats, and of `uniqueItems`.
pub const MAX_STEPS: u64 = 1 << 24;

/// A value that may break more rules is answered with one: a validator keeps some 400 bytes of each
/// until all are known, alternatives that fail among them.
pub(super) const MAX_FAILURES: u64 = 100_000;

/// So many steps take about as long as a visit that fails.
pub(super) const STEPS_PER_VISIT: u64 = 256;

/// The most pairs that are counted.
pub(super) const MAX_PAIRS: u64 = 1 << 24;

/// A choice of whether what a subschema lists counts: names in `properties`, `required` and their
/// like, values in `enum`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Measure {
    /// It does not, and patterns for names count as if all names were one text; a schema without
    /// recursion may be visited as often as one likes: decision rules 6.
    Unlisted,
    /// It does.
    Listed,
}
