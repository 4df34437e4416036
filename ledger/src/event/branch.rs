//! Events of forks: where a branch begins, and what it changes.
//!
//! A branch continues the numbering of its parent: `branch.created` has the number of the fork
//! position and names the hash of the frame before it, which is in the parent.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::start::{EnvValue, Limits, Principal};
use crate::canonical::CanonicalJson;
use crate::id::{ParseStreamIdError, StreamId};

/// `branch.created`: the first frame of its own in a `branch:` stream. The branch waits until
/// `run.resumed`; attempts under way at the fork position count as lost (decision F1).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BranchCreated {
    /// `branch_…`, the name of the stream.
    pub branch_id: String,
    /// The principal that forked.
    pub by: Principal,
    /// The definition from here on, if it changes; kept as a blob that runs share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub definition: Option<CanonicalJson>,
    /// BLAKE3 of the definition's canonical text, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// The treatment of calls to the world after the fork position.
    pub effects: Effects,
    /// Name and version of the engine that made it.
    pub engine: String,
    /// Values of the environment from here on, if they change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env: Option<BTreeMap<String, EnvValue>>,
    /// The number of frames it shares with its parent; the number of this frame, too.
    pub fork_position: u64,
    /// The bounds of a turn, where no `run.created` is shared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<Limits>,
    /// The params from here on, if they change: validated, whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub params: Option<CanonicalJson>,
    /// The run or branch it was forked from: `run_…` or `branch_…`.
    pub parent_run_id: String,
    /// The reason given for the fork.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Names that stand for something of the parent alone, where no `run.created` is shared.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub references: Vec<String>,
    /// True if unfinished steps begin afresh, because what they rest on has changed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub restarts: bool,
    /// The version of the decision rules from here on.
    pub rules: u32,
    /// The workflow's version, where the definition changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The workflow's name, where the definition changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<String>,
}

/// The treatment of calls to the world in a branch (decision F1), and of webhooks and messages in a
/// run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effects {
    /// They are made, in a branch under ids of its own.
    Execute,
    /// Webhooks are not sent: their steps are skipped. A branch does not call stateful tools either.
    Suppress,
}

impl BranchCreated {
    /// The parent stream.
    ///
    /// # Errors
    /// [`ParseStreamIdError`] if the name is not valid.
    pub fn parent(&self) -> Result<StreamId, ParseStreamIdError> {
        StreamId::run(&self.parent_run_id)
    }
}
