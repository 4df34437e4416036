//! Events of values that agents keep between runs: the streams `kv:NAMESPACE` of the tool server
//! `ktsu/kv` (decision A3).
//!
//! Each follows from the `tool.called` that caused it, and contains its idempotency key: a call
//! that is sent twice is one event.

use serde::{Deserialize, Serialize};

use crate::canonical::CanonicalJson;

/// A fact about a kept value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KvEvent {
    /// `kv.set` (input): a key has this value now.
    Set(KvSet),
    /// `kv.deleted` (input): a key has no value any more.
    Deleted(KvDeleted),
}

/// `kv.set`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KvSet {
    /// Of the call.
    pub idempotency_key: String,
    /// The key.
    pub key: String,
    /// The value.
    #[serde(default)]
    pub value: CanonicalJson,
}

/// `kv.deleted`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KvDeleted {
    /// Of the call.
    pub idempotency_key: String,
    /// The key.
    pub key: String,
}
