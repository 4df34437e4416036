//! Outputs in which people replace fields, against the schemas of their steps (decision F2).

use ktsu_ledger::event::Violation;
use ktsu_ledger::event::plan::StepWork;
use ktsu_projections::life::reserved::is_reserved;
use ktsu_projections::run::{RunState, StepKey};
use serde_json::Value;

use super::InterventionError;
use crate::admit::fields::{self, StepSchemas};
use crate::airlock;
use crate::definition::{CompiledStep, CompiledWorkflow, Definition};
use crate::failure_text::violations;
use crate::rules::DecisionRules;

/// Puts values over fields of an output, each of which must be one that it can have, and none of which
/// is reserved; the whole then passes the air-lock of its step (decision F2).
///
/// # Errors
/// [`InterventionError`].
pub(in crate::admit) fn check_replaced<'v>(
    definition: &Definition,
    (workflow, at): (&CompiledWorkflow, StepSchemas),
    output: &mut Value,
    values: impl IntoIterator<Item = (&'v String, &'v Value)>,
    rules: DecisionRules,
) -> Result<(), InterventionError> {
    for (field, value) in values {
        if is_reserved(field) {
            return Err(InterventionError::Reserved(field.clone()));
        }
        fields::check_output_field(definition, workflow, at, output, field)
            .map_err(InterventionError::NoField)?;
        output[field.as_str()] = value.clone();
    }
    let found = output_violations(definition, workflow, at, output, rules);
    if found.is_empty() {
        return Ok(());
    }
    let plan = workflow.plan.steps.get(at.step as usize);
    Err(InterventionError::Refused {
        step: plan.map(|plan| plan.id.clone()).unwrap_or_default(),
        violations: violations(found),
    })
}

/// The violations of the schemas of a step, as a definition has them, by its effective output.
pub fn overlay_conflicts(
    definition: &Definition,
    state: &RunState,
    step: StepKey,
) -> Vec<Violation> {
    let found = || {
        let held = state.scope_of(step)?;
        let output = state.step(step)?.effective.as_ref()?;
        let workflow = definition.workflow(&held.shape.key)?;
        let rules = DecisionRules::from_recorded(state.rules()).ok()?;
        let output = output.json.to_value();
        let at = StepSchemas::of(state, step)?;
        Some(output_violations(definition, workflow, at, &output, rules))
    };
    violations(found().unwrap_or_default())
}

/// The violations of the schemas of a step by an output: its own, and that of whatever makes it.
fn output_violations(
    definition: &Definition,
    workflow: &CompiledWorkflow,
    at: StepSchemas,
    output: &Value,
    rules: DecisionRules,
) -> Vec<airlock::SchemaViolation> {
    let compiled: Option<&CompiledStep> = workflow.steps.get(at.step as usize);
    let plan = workflow.plan.steps.get(at.acting as usize);
    let (Some(compiled), Some(plan)) = (compiled, plan) else {
        return Vec::new();
    };
    // Whatever rules the run has: the output is new.
    let own = compiled.checked_part(output);
    if let Some(refused) = own.and_then(|(schema, part)| schema.too_expensive(part)) {
        return vec![refused];
    }
    let mut found = compiled.check_output(output, rules);
    match &plan.work {
        StepWork::Agent(agent) => {
            let schema = definition
                .agents
                .get(&agent.file)
                .map(|agent| &agent.output);
            let Some(schema) = schema else { return found };
            let parts = output.get("results").and_then(Value::as_array);
            let whole = std::slice::from_ref(output);
            let parts = agent
                .for_each
                .as_ref()
                .and(parts)
                .map_or(whole, |list| list);
            if let Some(refused) = parts.iter().find_map(|part| schema.too_expensive(part)) {
                return vec![refused];
            }
            match (&agent.for_each, output.get("results")) {
                (None, _) => found.extend(airlock::check_output(schema, output, rules)),
                // What failed or was skipped is among the results as a marker.
                (Some(_), Some(Value::Array(results))) => {
                    for (item, result) in results.iter().enumerate() {
                        if result.get("skipped").is_none() && result.get("ktsu_error").is_none() {
                            found.extend(
                                airlock::check_output(schema, result, rules)
                                    .into_iter()
                                    .map(|one| {
                                        let pointer = format!("/results/{item}{}", one.pointer);
                                        airlock::SchemaViolation { pointer, ..one }
                                    }),
                            );
                        }
                    }
                }
                (Some(_), _) => {}
            }
        }
        StepWork::Workflow(child) => {
            let child = definition.workflow(&child.workflow);
            let schema = child.and_then(|child| child.output.as_ref()?.1.as_ref());
            found.extend(
                schema
                    .map(|schema| schema.check(output))
                    .unwrap_or_default(),
            );
        }
        StepWork::Transform(_) | StepWork::Webhook(_) => {}
    }
    found
}
