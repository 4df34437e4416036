//! The schemas of `GET /runs/{id}/trace`.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use ktsu_contract::gateway::ModelAttempt;

/// The causal tree of a run, or the way from a frame to the root.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Trace {
    /// `run_…`.
    pub run_id: String,
    /// Every frame with its parent (without `?frame=`).
    pub tree: Option<Vec<Placed>>,
    /// The frame and all it follows from, latest first (with `?frame=`).
    pub chain: Option<Vec<Node>>,
    /// The webhook request (with `?frame=` of a `webhook.sent`).
    pub request: Option<Request>,
    /// Where a value came from: `path`, `value`, `chain`, `origins`, `deciders` (with `?of=`).
    pub origin: Option<serde_json::Value>,
    /// Why a step is where it is: `step`, `status`, `because` (with `?why_not=`).
    pub why_not: Option<serde_json::Value>,
}

/// A frame in the causal graph.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Node {
    /// Its number.
    pub seq: u64,
    /// Its type.
    #[serde(rename = "type")]
    pub kind: String,
    /// The inline child it belongs to.
    pub scope: String,
    /// The step it is about.
    pub step: Option<String>,
    /// Who appended it.
    pub actor: String,
    /// When.
    pub at: String,
    /// What it follows from, here.
    pub cause: Vec<u64>,
    /// What it follows from, in other streams.
    pub foreign: Option<Vec<String>>,
    /// Those of what it follows from that are not there.
    pub missing: Option<Vec<String>>,
    /// At a glance.
    pub detail: String,
}

/// A frame in the tree.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Placed {
    /// The parent frame: the latest of its causes; none for a root.
    pub parent: Option<u64>,
    /// Milliseconds since the run was created.
    pub after_ms: u64,
    /// The frame.
    #[serde(flatten)]
    pub node: Node,
    /// For a `webhook.sent`: the request. Bodies beyond 8 MiB in total are omitted; `?frame=`
    /// returns each.
    pub request: Option<Request>,
    /// For an `llm.response`: all attempts in order, unless the first model answered.
    pub attempts: Option<Vec<ModelAttempt>>,
}

/// The request of a webhook, rendered again from the record. Secrets are shown as their templates.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// The HTTP method.
    pub method: String,
    /// Where it went; absent if it cannot be rendered any more.
    pub url: Option<String>,
    /// The names of its headers.
    pub headers: Vec<String>,
    /// The body; absent if it cannot be rendered, or is omitted.
    pub body: Option<Value>,
    /// The length of the body.
    pub body_bytes: Option<u64>,
    /// Why this may differ from what was sent: the hash of the body differs from the recorded one,
    /// or the body cannot be rendered.
    pub problem: Option<String>,
}
