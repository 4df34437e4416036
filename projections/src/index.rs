//! One row per run, for lists and filters. Can be rebuilt from frames at any time.

use ktsu_ledger::{CanonicalJson, Timestamp};
use serde::{Deserialize, Serialize};

use crate::run::RunState;

/// A run in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRow {
    /// Number of questions to people: about calls of tools and outcomes of steps, and for data.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub approvals: u32,
    /// The recorded cost of its model calls when it ended, in millionths of a US dollar; absent before, and in rows
    /// of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_micro_usd: Option<u64>,
    /// Time at which it was accepted.
    pub created_at: Timestamp,
    /// Time at which it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// The error code, if it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// For a branch: how many frames it shares.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fork_position: Option<u64>,
    /// Digest of what its idempotency key was used for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_digest: Option<String>,
    /// Since when it is paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused_at: Option<Timestamp>,
    /// For a branch: what it was forked from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_run_id: Option<String>,
    /// The principal that started it, or forked it; absent in rows of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
    /// `run_…` or `branch_…`.
    pub run_id: String,
    /// See [`crate::run::RunStatus`].
    pub status: String,
    /// The workflow's version.
    pub version: String,
    /// The workflow.
    pub workflow: String,
}

impl RunRow {
    /// The row of a run as it stands.
    pub fn from_state(state: &RunState) -> Self {
        let plan = &state.outline().root().plan;
        let fork = state.fork();
        Self {
            approvals: u32::try_from(state.count_asked()).unwrap_or(u32::MAX),
            cost_micro_usd: Self::cost(state),
            created_at: fork.map_or(state.created().at, |fork| fork.at),
            fork_position: fork.map(|fork| fork.position),
            paused_at: state.paused().map(|pause| pause.at),
            parent_run_id: fork.map(|fork| fork.parent.clone()),
            ended_at: ended_at(state),
            error: state.failing().map(|failing| failing.code.clone()),
            idempotency_digest: match fork {
                None => state.created().idempotency_digest.clone(),
                Some(_) => None,
            },
            principal: Some(match fork {
                Some(fork) => fork.by.id.clone(),
                None => state.created().principal.id.clone(),
            }),
            run_id: state.stream().name().to_owned(),
            status: state.status().as_str().to_owned(),
            version: plan.version.clone(),
            workflow: plan.name.clone(),
        }
    }

    /// The recorded cost, once a run has ended: before, it changes too often for a row.
    pub fn cost(state: &RunState) -> Option<u64> {
        ended_at(state).map(|_| state.spend().cost_micro_usd)
    }

    /// The key by which a repeated request is looked up: the client's key, as one client uses it
    /// for one workflow.
    pub fn idempotency_key(state: &RunState) -> Option<String> {
        if state.fork().is_some() {
            // The key is its run's.
            return None;
        }
        let created = state.created();
        let key = created.idempotency_key.as_ref()?;
        Some(scoped_key(
            &created.principal.id,
            &state.outline().root().plan.name,
            key,
        ))
    }

    /// As a store keeps it.
    pub fn to_json(&self) -> CanonicalJson {
        serde_json::to_value(self)
            .ok()
            .and_then(|value| CanonicalJson::from_value(&value).ok())
            .unwrap_or_default()
    }
}

/// The time at which a run ended. A branch of one that had ended, ended when it was made.
fn ended_at(state: &RunState) -> Option<Timestamp> {
    let root = state.scopes().first()?;
    let ended = root.ended.as_ref()?.at;
    let forked = state.fork().map(|fork| fork.at);
    Some(forked.map_or(ended, |forked| forked.max(ended)))
}

/// A client's key, as no other client and no other workflow has it.
pub fn scoped_key(principal: &str, workflow: &str, key: &str) -> String {
    format!("{principal}/{workflow}/{key}")
}
