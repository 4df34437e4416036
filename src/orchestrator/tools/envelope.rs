//! `ktsu/envelope`: the outputs of the steps that the calling step depends on, and nothing else
//! (decision A3; seed 000, invariant 15).

use ktsu_projections::run::{Effective, RunState, StepKey};
use serde_json::{Value, json};

use super::CallResult;

/// The tools that it offers.
pub(super) fn tools() -> Value {
    json!([
        {
            "name": "envelope-get",
            "description": "The output of a step that this step depends on.",
            "inputSchema": {
                "type": "object",
                "properties": {"step": {"type": "string", "description": "The id of the step."}},
                "required": ["step"],
                "additionalProperties": false,
            },
        },
        {
            "name": "envelope-list",
            "description": "The steps that this step depends on, and where each stands.",
            "inputSchema": {"type": "object", "properties": {}, "additionalProperties": false},
        },
    ])
}

/// The result of a call for a step.
pub(crate) fn visible_outputs(
    state: &RunState,
    scope: u32,
    step: u32,
    tool: &str,
    arguments: &Value,
) -> CallResult {
    let held = state.scope(scope).ok_or("there is no such run")?;
    let plan = held.shape.step(step).ok_or("there is no such step")?;
    match tool {
        "envelope-get" => {
            let wanted = arguments["step"].as_str().unwrap_or_default();
            let position = held.shape.position(wanted);
            let declared = position.filter(|at| plan.needs.contains(at));
            let at = declared
                .ok_or_else(|| format!("{:?} does not depend on a step {wanted:?}", plan.id))?;
            Ok(json!({"step": wanted, "output": output(state.effective(StepKey::of(scope, at)))}))
        }
        "envelope-list" => {
            let steps = plan.needs.iter().filter_map(|at| {
                let id = &held.shape.step(*at)?.id;
                let status = held.steps.get(*at as usize)?.status.as_str();
                Some(json!({"status": status, "step": id}))
            });
            Ok(json!({"steps": steps.collect::<Vec<_>>()}))
        }
        other => Err(format!("there is no tool {other:?}")),
    }
}

fn output(effective: Effective<'_>) -> Value {
    match effective {
        Effective::Output(held) => held.json.to_value(),
        Effective::Skipped(reason) => json!({"reason": reason, "skipped": true}),
        Effective::Suppressed(reason) => json!({"reason": reason.as_str(), "suppressed": true}),
        Effective::Absent => Value::Null,
    }
}
