//! A workflow that another part of a definition runs inline.

use serde::{Deserialize, Serialize};

use crate::canonical::CanonicalJson;

/// Another workflow, inline (seed 000, invariant 29): what a workflow step does, and what a
/// responder of a world may do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildPlan {
    /// An object of templates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub params: Option<CanonicalJson>,
    /// The parent's half of the dual opt-in (seed 000, invariant 31).
    pub webhooks: Webhooks,
    /// A key of [`Plan::workflows`](super::Plan::workflows).
    pub workflow: String,
}

/// A workflow that the agent of a step may invoke by a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InvokePlan {
    /// The workflow. Its params are those of the command.
    pub child: ChildPlan,
    /// The number of workflows of one command that run at once.
    pub concurrency: u32,
    /// The most inputs that one command may have.
    pub max_items: u32,
}

/// The treatment of the webhooks of a child workflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Webhooks {
    /// Sent, if the parent or the child agrees as well.
    Execute,
    /// Skipped, never failed.
    Suppress,
}
