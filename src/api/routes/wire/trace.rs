//! The schemas of `GET /runs/{id}/trace`.

use ktsu_history::provenance::ProvenanceAnswer;
use ktsu_history::trace::TraceNode;
use ktsu_history::webhooks::WebhookRequest;
use ktsu_history::why_not::WhyNot;
use ktsu_projections::lineage::LineageNode;
use serde::Serialize;
use utoipa::ToSchema;

use ktsu_contract::gateway::ModelAttempt;

/// The causal tree of a run, or the way from a frame to the root.
#[derive(Debug, Clone, Default, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Trace {
    /// `run_…`.
    pub run_id: String,
    /// Every frame, each with the one it stands under (without `?frame=`).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Placed>>)]
    pub tree: Option<Vec<TraceNode>>,
    /// The frame and all it follows from, latest first (with `?frame=`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chain: Option<Vec<LineageNode>>,
    /// What was sent to an endpoint, whole (with `?frame=` of a `webhook.sent`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<WebhookRequest>,
    /// Where a value came from: `path`, `value`, `chain`, `origins`, `deciders` (with `?of=`).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    pub origin: Option<ProvenanceAnswer>,
    /// Why a step is where it is, or a responder did not react: `step`, `status`, `because` (with
    /// `?why_not=`).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    pub why_not: Option<WhyNot>,
}

/// A frame in the tree: the description of a [`TraceNode`], whose attempts are those of the ledger.
#[derive(Serialize, ToSchema)]
pub struct Placed {
    /// The parent frame: the latest of its causes; none for a root.
    pub parent: Option<u64>,
    /// Milliseconds since the run was created.
    pub after_ms: u64,
    /// The frame.
    #[serde(flatten)]
    pub node: LineageNode,
    /// What was sent to an endpoint, of a `webhook.sent`. Bodies beyond 8 MiB in all are left out:
    /// `?frame=` gives each.
    pub request: Option<WebhookRequest>,
    /// Of an `llm.response`: every model that was asked, in order, where it was not the one that
    /// answered alone.
    pub attempts: Option<Vec<ModelAttempt>>,
}
