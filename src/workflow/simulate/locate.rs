//! Finds the recorded frames that a divergence contradicts.

use std::collections::HashMap;

use ktsu_ledger::Frame;
use ktsu_projections::Lineage;
use ktsu_projections::lineage::{LineageNode, item_name};
use ktsu_projections::step_name::path_in;

use super::Divergence;
use super::DivergenceKind::{
    ApprovalTimeout, Condition, Failure, Firing, GateAdded, GateRemoved, Group, Items, Limit,
    NoRecord, NotByProposer, Object, OnReject, Order, Output, Param, Policy, Prompt, Publish,
    Quorum, Relation, Reserved, ResumeSchema, Retry, ReviewRemoved, ReviewRoles, RunOutput, Schema,
    ServerRemoved, Status, StepAdded, StepRemoved, SuspendRemoved, SuspendRoles, SuspendTimeout,
    Template, ToolNotPermitted, Unused, Webhook,
};

/// Finds the frame of each divergence that has none yet. What history does not have stands nowhere.
pub(super) fn locate_frames(divergences: &mut [Divergence], recorded: &[Frame]) {
    let lineage = Lineage::from_frames(recorded);
    let mut about: HashMap<String, Vec<&LineageNode>> = HashMap::new();
    for node in lineage.nodes() {
        let step = node.step.as_deref().unwrap_or_default();
        about
            .entry(path_in(&node.scope, step))
            .or_default()
            .push(node);
    }
    for one in divergences.iter_mut().filter(|one| one.frame.is_none()) {
        let name = match one.what {
            // It is about the steps of a scope, one after another.
            Order => path_in(&one.step, &moved(one)),
            _ if one.step.is_empty() => String::new(),
            _ => item_name(&one.step, one.item),
        };
        let nodes = about.get(&name).map_or(&[][..], Vec::as_slice);
        one.frame = frame(one, nodes);
    }
}

/// The first step that history came to in another order.
fn moved(one: &Divergence) -> String {
    let steps = |side: &Option<serde_json::Value>| {
        let steps = side.as_ref().and_then(serde_json::Value::as_array);
        steps.cloned().unwrap_or_default()
    };
    let (was, is) = (steps(&one.history), steps(&one.decided));
    let first = was.iter().zip(&is).find(|(was, is)| was != is);
    let first = first.and_then(|(was, _)| was.as_str());
    first.unwrap_or_default().to_owned()
}

/// Of the frames about a step, or about the run, the one that says what differs.
fn frame(one: &Divergence, nodes: &[&LineageNode]) -> Option<u64> {
    let of_kind = |kinds: &[&str]| {
        let found = nodes
            .iter()
            .filter(|node| kinds.contains(&node.kind.as_str()));
        found.map(|node| node.seq).collect::<Vec<u64>>()
    };
    let first = |kinds: &[&str]| of_kind(kinds).first().copied();
    let last = |kinds: &[&str]| of_kind(kinds).last().copied();
    match one.what {
        // What differs in a world has its frame already, if history has one.
        StepAdded | NoRecord | Object | Relation | Firing | Publish => None,
        Param | Policy => first(&["run.created"]),
        StepRemoved | Order | Condition => first(&["step.started", "step.skipped"]),
        Template | Items => first(&["step.started", "item.started"]),
        Prompt | Group | Limit => first(&["worker.dispatched"]),
        Schema => first(&["step.output_checked"]),
        Reserved => first(&["reserved.evaluated"]),
        Webhook | Retry => first(&["webhook.sent"]),
        Output | Status | Failure | RunOutput => last(&[
            "step.completed",
            "step.failed",
            "step.skipped",
            "item.completed",
            "item.failed",
            "run.completed",
            "run.failed",
        ]),
        Unused => {
            let kind = one.history.as_ref().and_then(serde_json::Value::as_str);
            first(&[kind.unwrap_or_default()])
        }
        GateAdded | GateRemoved | OnReject | ApprovalTimeout | Quorum | NotByProposer
        | ToolNotPermitted | ServerRemoved => first(&["approval.requested", "tool.called"]),
        ReviewRemoved | ReviewRoles => first(&["review.requested"]),
        ResumeSchema | SuspendRemoved | SuspendRoles | SuspendTimeout => {
            first(&["suspend.requested"])
        }
    }
}
