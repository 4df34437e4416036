//! Whether a failure could have been told from the files: a URL that is written out, or params: what is
//! written out and does not fit, or comes of a param that can never be there. Values of data may be
//! anything.

use ktsu_ledger::CanonicalJson;
use ktsu_ledger::event::plan::{Plan, StepWork, WorkflowPlan};
use ktsu_workflow::params::ParamsSchema;
use serde_json::Value;

/// What of it stands in the files.
pub(super) fn fault_of(plan: &Plan) -> Option<String> {
    plan.workflows.values().find_map(|workflow| {
        let mut steps = workflow.steps.iter();
        steps.find_map(|step| {
            let (given, schema, is_agent) = match &step.work {
                StepWork::Agent(call) => (&call.params, &plan.agents[&call.file].params, true),
                StepWork::Workflow(call) => {
                    (&call.params, &plan.workflows[&call.workflow].params, false)
                }
                StepWork::Transform(_) | StepWork::Webhook(_) => return None,
            };
            let found = given_wrongly(workflow, given.as_ref()?, schema.as_ref(), is_agent)?;
            Some(format!("step {}: {found}", step.id))
        })
    })
}

/// Whether a webhook of this id has a URL that is written out.
pub(super) fn has_plain_url(plan: &Plan, id: &str) -> bool {
    let steps = plan.workflows.values().flat_map(|workflow| &workflow.steps);
    let mut webhooks = steps
        .filter(|step| step.id == id)
        .filter_map(|step| match &step.work {
            StepWork::Webhook(webhook) => Some(&webhook.url),
            StepWork::Agent(_) | StepWork::Transform(_) | StepWork::Workflow(_) => None,
        });
    webhooks.any(|url| !url.contains("{{"))
}

fn given_wrongly(
    workflow: &WorkflowPlan,
    given: &CanonicalJson,
    schema: Option<&CanonicalJson>,
    is_agent: bool,
) -> Option<String> {
    let given = given.to_value();
    let schema = schema.and_then(|schema| ParamsSchema::compile(schema).ok());
    given.as_object()?.iter().find_map(|(name, value)| {
        if let Some(absent) = never_there(workflow, value) {
            return Some(format!("{name} comes of {absent}, which cannot be there"));
        }
        let schema = schema
            .as_ref()
            .filter(|_| !value.to_string().contains("{{"))?;
        // Agents take numbers and booleans as text.
        let is_text = is_agent && schema.type_of(name) == Some("string");
        let value = match value {
            Value::Number(_) | Value::Bool(_) if is_text => Value::from(value.to_string()),
            _ => value.clone(),
        };
        let violation = schema.check_one(name, value).into_iter().next()?;
        Some(format!("{name} is written out, and {}", violation.message))
    })
}

/// A param of the workflow that its own closed schema does not have, if a value is one whole.
fn never_there(workflow: &WorkflowPlan, value: &Value) -> Option<String> {
    let path = value
        .as_str()?
        .strip_prefix("{{ params.")?
        .strip_suffix(" }}")?;
    let length = path.find(|one: char| !one.is_ascii_alphanumeric() && one != '_');
    let name = &path[..length.unwrap_or(path.len())];
    let schema = workflow.params.as_ref()?.to_value();
    let closed = schema["additionalProperties"] == false && schema["patternProperties"].is_null();
    (closed && schema["properties"][name].is_null()).then(|| format!("params.{name}"))
}
