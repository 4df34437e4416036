//! The request that starts a run, and its results.

use std::collections::BTreeMap;
use std::sync::Arc;

use ktsu_ledger::event::{Effects, Principal};
use ktsu_ledger::store::StoreError;
use serde_json::Value;

use crate::references::References;

/// A request to start a run.
#[derive(Debug, Clone)]
pub struct InvokeRequest {
    /// The workflow's name.
    pub workflow: String,
    /// The body: a JSON object.
    pub body: Value,
    /// The client's `Idempotency-Key`.
    pub idempotency_key: Option<String>,
    /// The setting whether its webhooks and messages are sent.
    pub effects: Effects,
    /// Model groups, and what is used in place of each.
    pub groups: BTreeMap<String, String>,
    /// True if every model call is to be made, although an earlier reply of the run may answer it.
    pub no_cache: bool,
    /// The caller.
    pub principal: Principal,
    /// The values behind names of the run, if it has any.
    pub references: Option<Arc<References>>,
}

/// A run that exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunAccepted {
    /// `run_…`.
    pub run_id: String,
    /// False if an earlier request with the same idempotency key started it.
    pub created: bool,
}

/// The reason why no run was started. Nothing was recorded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvokeError {
    /// Unknown, or a sub-workflow; the error does not reveal which (seed 000, invariant 30).
    #[error("there is no such workflow")]
    UnknownWorkflow,
    /// The params do not fit (seed 000, invariant 14).
    #[error("the params do not fit their schema")]
    Params(Vec<ktsu_ledger::event::Violation>),
    /// The workflow has an agent step, and nothing is there to run it.
    #[error("step {0} is an agent step, and no runtime is configured")]
    NoRuntime(String),
    /// Each principal needs a value of its own for a secret, and the caller has none.
    #[error("{principal} has no value for {variable}, and there is no common one")]
    NoKey {
        /// The variable.
        variable: String,
        /// The caller.
        principal: String,
    },
    /// The key was used for another request.
    #[error("the idempotency key was used for another request")]
    KeyReused,
    /// Not enough disk space.
    #[error("not enough disk space to start a run")]
    DiskFull,
    /// The ledger stopped after an error.
    #[error("the ledger has stopped: {0}")]
    LedgerStopped(String),
    /// Whether the key was used before cannot be read.
    #[error("{0}")]
    Unread(StoreError),
    /// Too many runs are under way, or the engine is stopping.
    #[error("too many active runs")]
    Overloaded,
    /// The engine is about to stop.
    #[error("the engine is about to stop and starts nothing new")]
    Draining,
    /// An internal invariant was violated.
    #[error("{0}")]
    Internal(String),
}
