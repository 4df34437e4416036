//! The content of the first frame of a run.

use std::collections::BTreeMap;

use ktsu_ledger::event::{EnvValue, Limits, Principal, RecomputeOf};
use ktsu_ledger::{CanonicalJson, Timestamp};

use super::pins::Pins;
use crate::life::recorded_results::RecomputeResults;

/// The content of `run.created`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunHeader {
    /// Time of the frame.
    pub at: Timestamp,
    /// Validated params.
    pub params: CanonicalJson,
    /// Environment values.
    pub env: BTreeMap<String, EnvValue>,
    /// Bounds of a turn.
    pub limits: Limits,
    /// Version of the decision rules.
    pub rules: u32,
    /// The principal who asked for the run.
    pub principal: Principal,
    /// Digest of the definition.
    pub digest: String,
    /// The client's idempotency key.
    pub idempotency_key: Option<String>,
    /// Digest of what the key was used for.
    pub idempotency_digest: Option<String>,
    /// For a recompute of a run: which.
    pub of: Option<RecomputeOf>,
    /// The setting for its webhooks and messages: sent or held back.
    pub effects: ktsu_ledger::event::Effects,
    /// True if every model call is made.
    pub no_cache: bool,
    /// The tools its lock names, if it has one that does.
    pub pins: Option<Box<Pins>>,
    /// Names that stand for something of this run alone.
    pub references: Vec<String>,
    /// The recorded results that answer the calls that a recompute does not send.
    pub results: Option<Box<RecomputeResults>>,
}
