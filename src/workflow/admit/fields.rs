//! The fields that an output or params can have, if no others are possible. A person who sets
//! another name has made a typing error: the value would have no effect, or be refused with a less
//! helpful message.

use ktsu_ledger::CanonicalJson;
use ktsu_ledger::event::plan::{StepPlan, StepWork};
use ktsu_projections::run::{RunState, StepKey};
use serde_json::Value;

use crate::definition::{CompiledWorkflow, Definition};
use ktsu_codes::nearest;

/// A name that does not exist where it is used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place} cannot have a field {field:?}")]
pub struct UnknownFieldError {
    /// The place that has no such field: `the output of step "triage"`, `the params`.
    pub place: String,
    /// The field that was asked for.
    pub field: String,
    /// The name that was probably meant.
    pub near: Option<String>,
    /// Every name there is.
    pub known: Vec<String>,
}

impl UnknownFieldError {
    /// Refuses a field that is not among those that can exist.
    fn unless(place: &str, field: &str, known: Vec<String>) -> Result<(), Self> {
        if known.iter().any(|one| one == field) {
            return Ok(());
        }
        let near = nearest(field, known.iter().map(String::as_str)).map(str::to_owned);
        Err(Self {
            place: place.to_owned(),
            field: field.to_owned(),
            near,
            known,
        })
    }

    /// Advice for the person who asked for the field.
    pub fn hint(&self) -> String {
        match (&self.near, self.known.as_slice()) {
            (Some(near), _) => format!("did you mean {near}?"),
            (None, []) => "it has none at all".to_owned(),
            (None, known) => format!("it can have: {}", known.join(", ")),
        }
    }
}

/// Whose schemas an output passes.
#[derive(Debug, Clone, Copy)]
pub(super) struct StepSchemas {
    /// The position of the step.
    pub(super) step: u32,
    /// The position of the step by whose definition it ran: itself, or the one that it was resumed to.
    pub(super) acting: u32,
}

impl StepSchemas {
    /// Those of a step of a run.
    pub(super) fn of(state: &RunState, at: StepKey) -> Option<Self> {
        let step = at.position()?;
        let acting = state.acting_position(at)?;
        Some(Self { step, acting })
    }
}

/// Checks that the output of a step can have a field. A field that is there now can be replaced,
/// whatever is declared.
pub(super) fn check_output_field(
    definition: &Definition,
    workflow: &CompiledWorkflow,
    at: StepSchemas,
    output: &Value,
    field: &str,
) -> Result<(), UnknownFieldError> {
    let steps = &workflow.plan.steps;
    let Some(plan) = steps.get(at.step as usize) else {
        return Ok(());
    };
    let known = steps.get(at.acting as usize);
    let known = known.and_then(|acting| fields_of(definition, acting));
    let own = match &plan.work {
        // It may check the value within the output.
        StepWork::Transform(_) => None,
        StepWork::Agent(_) | StepWork::Webhook(_) | StepWork::Workflow(_) => {
            let schema = plan.schema.as_ref().map(CanonicalJson::to_value);
            schema.as_ref().and_then(closed)
        }
    };
    let place = format!("the output of step {:?}", plan.id);
    for mut known in known.into_iter().chain(own) {
        let here = output.as_object().into_iter().flatten();
        known.extend(here.map(|(name, _)| name.clone()));
        known.sort();
        known.dedup();
        UnknownFieldError::unless(&place, field, known)?;
    }
    Ok(())
}

/// The fields that what a step makes can have, where no others are possible.
fn fields_of(definition: &Definition, plan: &StepPlan) -> Option<Vec<String>> {
    match &plan.work {
        StepWork::Transform(_) => Some(vec!["result".to_owned()]),
        StepWork::Webhook(_) => Some(vec!["sent".to_owned(), "status_code".to_owned()]),
        StepWork::Agent(agent) if agent.for_each.is_some() => Some(vec!["results".to_owned()]),
        StepWork::Agent(agent) => {
            let file = definition.agents.get(&agent.file)?;
            closed(&file.file.output.to_value())
        }
        StepWork::Workflow(child) => {
            let child = definition.workflow(&child.workflow)?;
            let output = child.plan.output.as_ref();
            if let Some(Value::Object(map)) =
                output.and_then(|output| output.map.as_ref().map(CanonicalJson::to_value))
            {
                return Some(map.into_iter().map(|(name, _)| name).collect());
            }
            let schema =
                output.and_then(|output| output.schema.as_ref().map(CanonicalJson::to_value));
            // Without a map it is what one of its steps made: the last that completed.
            let of_steps = || {
                let steps = child.plan.steps.iter();
                let fields: Option<Vec<_>> =
                    steps.map(|step| fields_of(definition, step)).collect();
                fields.map(|fields| fields.concat())
            };
            schema.as_ref().and_then(closed).or_else(of_steps)
        }
    }
}

/// Checks that params can have what a path of names leads to.
pub(super) fn check_param_path(
    schema: Option<&CanonicalJson>,
    path: &[String],
) -> Result<(), UnknownFieldError> {
    let document = schema.map(CanonicalJson::to_value);
    let mut below = document.as_ref();
    let mut place = "the params".to_owned();
    for name in path {
        let Some(schema) = below else { break };
        if let Some(known) = closed(schema) {
            UnknownFieldError::unless(&place, name, known)?;
        }
        below = schema
            .get("properties")
            .and_then(|properties| properties.get(name));
        place = match place.as_str() {
            "the params" => format!("params.{name}"),
            place => format!("{place}.{name}"),
        };
    }
    Ok(())
}

/// The fields of a schema that allows no others.
fn closed(schema: &Value) -> Option<Vec<String>> {
    let is_closed = schema.get("additionalProperties") == Some(&Value::Bool(false))
        && schema.get("patternProperties").is_none();
    let properties = schema.get("properties").and_then(Value::as_object);
    let names = properties.into_iter().flatten().map(|(name, _)| name);
    // Reserved fields are taken out of an output before anybody sees it.
    let names = names.filter(|name| !ktsu_projections::life::reserved::is_reserved(name));
    is_closed.then(|| names.cloned().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn params_that_cannot_exist_are_refused_at_every_level() {
        let schema = json!({"additionalProperties": false, "properties": {
            "limit": {"type": "integer"},
            "user": {"additionalProperties": false, "properties": {"name": {}, "free": {}}},
            "open": {"properties": {"a": {}}}}});
        let schema = CanonicalJson::from_value(&schema).unwrap();
        let set = |path: &str| {
            let path: Vec<String> = path.split('.').map(str::to_owned).collect();
            check_param_path(Some(&schema), &path).map_err(|no| format!("{no}; {}", no.hint()))
        };
        for path in ["limit", "user.name", "user.free.deeper", "open.b.c", "open"] {
            assert_eq!(set(path), Ok(()), "{path}");
        }
        let refused = set("lmit").unwrap_err();
        assert_eq!(
            refused,
            "the params cannot have a field \"lmit\"; did you mean limit?"
        );
        let refused = set("user.nmae").unwrap_err();
        assert_eq!(
            refused,
            "params.user cannot have a field \"nmae\"; did you mean name?"
        );
        let refused = set("something").unwrap_err();
        assert!(
            refused.ends_with("it can have: limit, open, user"),
            "{refused}"
        );
        assert_eq!(check_param_path(None, &["anything".to_owned()]), Ok(()));
    }
}
