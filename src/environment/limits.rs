//! Bounds of what an environment file may set.

/// The most runs under way at once. A waiting run takes some ten kilobytes, so this many stay well
/// within a gigabyte.
pub const MAX_ACTIVE_RUNS: usize = 50_000;

/// The most connections at once that can be asked for: what a machine has descriptors for.
pub(super) const MAX_CONNECTIONS: usize = 65_536;

/// The most bytes of a request's body (decision H2).
pub const MAX_BODY_BYTES: usize = 1024 * 1024;
/// The most work that the answer to a trace over HTTP may be allowed to take: some seventeen minutes.
pub const MAX_TRACE_WORK: usize = 1_000_000_000;

/// The most days that ended runs can be kept for: a hundred years.
pub(super) const MAX_RETENTION_DAYS: i64 = 36_500;
