//! Workflow steps and the ends of scopes.

use std::collections::BTreeMap;

use ktsu_ledger::event::plan::ChildPlan;
use ktsu_ledger::event::{Reference, RunCompleted, RunEvent, RunFailed, StepInput};
use ktsu_ledger::{CanonicalJson, Draft, Event};
use ktsu_projections::run::{
    Phase, RunState, RunStatus, Step as StepState, StepStatus, StoredOutput,
};
use ktsu_projections::step_name::path_in;
use serde_json::{Value, json};

use super::names::computed;
use super::open::{ChildOpening, Opener};
use super::{DecisionBatch, Memo, StepContext, StepDecision, WorkOutcome};
use crate::defaults::segment;
use crate::definition::{CompiledStep, CompiledWork, Definition};
use crate::failure_text::clipped;
use crate::params;
use crate::template::{Leaf, LeafSource, Template};
use ktsu_schema::message_at;

/// An output that was computed, or the place of one that stands elsewhere.
type ScopeOutput = (Option<CanonicalJson>, Option<Reference>);

impl StepDecision<'_> {
    /// Starts the step with the child's params, and the child with it.
    pub(super) fn start_child(&mut self, plan: &ChildPlan) {
        match self.child_params(self.step, plan) {
            Ok(input) => {
                let started = self.started(input);
                self.open_child(plan, started);
            }
            Err(failed) => {
                let started = self.started(BTreeMap::new());
                self.settle(self.attempt(), failed, vec![started]);
            }
        }
    }

    /// Opens the child's scope.
    pub(super) fn open_child(&mut self, plan: &ChildPlan, started: u64) {
        let opening = ChildOpening {
            opener: Opener::Step,
            around: self.scope,
            plan,
            path: path_in(&self.scope.path, &self.step.id),
            input: BTreeMap::new(),
            cause: started,
        };
        opening.decide(self.state, &mut self.unit);
    }

    /// Ends a step whose child has ended well; one that ended badly fails the run elsewhere.
    pub(super) fn child_ended(&mut self, held: &StepState) -> Option<()> {
        let path = path_in(&self.scope.path, &self.step.id);
        let child = self.state.scope(self.state.scope_at(&path)?)?;
        if child.status != RunStatus::Complete {
            return None;
        }
        let ended = child.ended.as_ref()?;
        let cause = match held.phase {
            Phase::Checked { .. } => vec![held.started?],
            _ => vec![ended.seq],
        };
        match &ended.output {
            Some(output) => {
                let value = output.json.to_value();
                let place = Some(output.location.clone());
                self.settle_output(held.attempt, &value, place, cause);
            }
            None => self.settle(held.attempt, WorkOutcome::Output(json!({})), cause),
        }
        Some(())
    }
}

impl StepContext<'_> {
    /// The params a child gets, each by reference where it stands elsewhere already.
    fn child_params(
        &self,
        step: &CompiledStep,
        plan: &ChildPlan,
    ) -> Result<BTreeMap<String, StepInput>, WorkOutcome> {
        let failed = |message: &str| WorkOutcome::failed("expression_failed", message);
        let CompiledWork::Workflow { params: template } = &step.work else {
            return Err(failed("not a workflow step"));
        };
        let mut body = json!({});
        let mut leaves = Vec::new();
        let mut filled = Vec::new();
        if let Some(template) = template {
            let secret = |name: &str| self.names.is_secret(name);
            let rendered = template.render(&self.names, &secret, self.rules());
            let rendered = rendered.map_err(|error| failed(&error.message))?;
            (body, leaves, filled) = (
                rendered.value,
                rendered.leaves,
                template.expression_pointers(),
            );
        }
        if leaves.iter().any(|leaf| leaf.source == LeafSource::Secret) {
            return Err(failed("a secret cannot be handed to a child workflow"));
        }
        let child = self.definition.workflow(&plan.workflow);
        let schema = child.and_then(|child| child.params.as_ref());
        params::without_nulls(schema, &mut body, &filled, self.rules());
        // What was left out is given by nobody.
        leaves.retain(|leaf| body.pointer(&leaf.at).is_some());
        let given = body.clone();
        let resolved = params::resolve(schema, body, self.rules());
        let resolved = resolved.map_err(|found| {
            let code = crate::airlock::code_of_first(&found, "invalid_params");
            let first = self.first_violation(found);
            WorkOutcome::failed(
                code,
                format!(
                    "workflow step \"{}\" does not fit the params of its child{first}",
                    step.id
                ),
            )
        })?;
        let Value::Object(members) = &resolved else {
            return Ok(BTreeMap::new());
        };
        // Where defaults were filled in, it is not what stands elsewhere any more.
        let recorded = self.rules().filled_params_are_recorded();
        let stands =
            |leaf: &Leaf| !recorded || given.pointer(&leaf.at) == resolved.pointer(&leaf.at);
        let mut input = BTreeMap::new();
        for (name, value) in members {
            let at = format!("/{}", segment(name));
            self.child_param(&at, value, &leaves, &stands, &mut input);
        }
        Ok(input)
    }

    /// One param: by reference if it stands elsewhere as it is, else as a value in which whatever
    /// stands elsewhere is null, with references of their own for those places.
    fn child_param(
        &self,
        at: &str,
        value: &Value,
        leaves: &[Leaf],
        stands: &dyn Fn(&Leaf) -> bool,
        given: &mut BTreeMap<String, StepInput>,
    ) {
        let below = |leaf: &&Leaf| {
            let rest = leaf.at.strip_prefix(at);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let mut rest = value.clone();
        let mut roots = Vec::new();
        for leaf in leaves.iter().filter(below) {
            let whole = value.pointer(leaf.at.strip_prefix(at).unwrap_or_default());
            let one = self
                .names
                .recorded_input(&leaf.source, whole.unwrap_or(&Value::Null));
            match (
                &one,
                rest.pointer_mut(leaf.at.strip_prefix(at).unwrap_or_default()),
            ) {
                (StepInput::Ref(_), Some(place)) if stands(leaf) => {
                    *place = Value::Null;
                    given.insert(format!("/params{}", leaf.at), one);
                }
                _ => match &leaf.source {
                    LeafSource::Path { root, .. } => roots.push(root),
                    LeafSource::Computed { roots: several } => roots.extend(several),
                    LeafSource::Secret => {}
                },
            }
        }
        let key = format!("/params{at}");
        given
            .entry(key)
            .or_insert_with(|| computed(self.names.frames(roots), &rest));
    }

    /// Ends the scope: its output is mapped, or that of its last completed step (decision S7).
    pub(super) fn end(&self) -> Option<Vec<Draft>> {
        let mut unit = DecisionBatch::new(self.state, &self.scope.path);
        let cause = self.leaves();
        match self.scope_output() {
            Ok((output, output_from)) => {
                let event = RunEvent::Completed(RunCompleted {
                    output,
                    output_from,
                    world: world_hash(self.state, &self.scope.path),
                });
                unit.push(Event::Run(event), cause);
            }
            Err((code, message)) => {
                let event = RunEvent::Failed(RunFailed {
                    code: code.to_owned(),
                    message: clipped(message),
                    step: None,
                    world: world_hash(self.state, &self.scope.path),
                });
                unit.push(Event::Run(event), cause);
            }
        }
        Some(unit.drafts)
    }

    fn scope_output(&self) -> Result<ScopeOutput, (&'static str, String)> {
        let (map, schema) = match &self.workflow.output {
            Some((map, schema)) => (map.as_ref(), schema.as_ref()),
            None => (None, None),
        };
        let (output, place, value) = if let Some(map) = map {
            let value = self.mapped(map)?;
            let deep = |_| {
                (
                    "expression_failed",
                    "the output is nested too deeply".to_owned(),
                )
            };
            let json = CanonicalJson::from_value(&value).map_err(deep)?;
            (Some(json), None, value)
        } else {
            match self.last_output() {
                // Reading the tree costs; without a schema nobody looks at it.
                Some(held) if schema.is_none() && held.overlaid.is_empty() => {
                    (None, held.locate(""), Value::Null)
                }
                Some(held) => {
                    let place = held.locate("");
                    // What a person laid over it stands in no one place.
                    let json = place.is_none().then(|| held.json.clone());
                    (json, place, held.json.to_value())
                }
                None => (None, None, json!({})),
            }
        };
        let found = schema.map(|schema| crate::airlock::check_output(schema, &value, self.rules()));
        if let Some(first) = found.into_iter().flatten().next() {
            let what = match self.rules().reports_json_pointers() {
                true => message_at(&first.message, &first.pointer),
                false => format!("{} at {:?}", first.message, first.pointer),
            };
            let message = format!(
                "air-lock validation failed on the output of workflow \"{}\": {what}",
                self.workflow.plan.name
            );
            let code = crate::airlock::code_of(&first.rule, "schema_violation");
            return Err((code, message));
        }
        Ok((output, place))
    }

    /// The value of `output.map`.
    fn mapped(&self, map: &Template) -> Result<Value, (&'static str, String)> {
        let secret = |name: &str| self.names.is_secret(name);
        let rendered = map.render(&self.names, &secret, self.rules());
        let rendered = rendered.map_err(|error| ("expression_failed", error.message))?;
        Ok(rendered.value)
    }

    /// The output of the last completed step in file order.
    fn last_output(&self) -> Option<&StoredOutput> {
        let done = |step: &&StepState| step.status == StepStatus::Complete;
        let last = self.scope.steps.iter().rev().find(done)?;
        last.effective.as_ref().or(last.output.as_ref())
    }

    /// The ends of the steps nobody waits for; of an empty scope, its start.
    fn leaves(&self) -> Vec<u64> {
        let ends = (0u32..).zip(&self.scope.steps).filter_map(|(at, step)| {
            let last = self.scope.shape.dependants(at).is_empty();
            step.ended.filter(|_| last)
        });
        let mut ends: Vec<u64> = ends.collect();
        if ends.is_empty() {
            ends.extend(self.scope.started);
        }
        ends.sort_unstable();
        ends
    }
}

/// The hash of the world that the end of a run names; nothing at the end of a child, and where no
/// worlds are loaded.
pub(super) fn world_hash(state: &RunState, scope: &str) -> Option<String> {
    let responding = state.responding().filter(|_| scope.is_empty())?;
    Some(responding.head().hash())
}

/// The output of a scope as its steps stand now, whatever was recorded at its end: what a person
/// laid over a step afterwards is part of it. Nothing if it cannot be made.
pub fn output_now(definition: &Definition, state: &RunState, scope: u32) -> Option<CanonicalJson> {
    let memo = Memo::default();
    let at = StepContext::new(definition, state, &memo, scope, None)?;
    match at
        .workflow
        .output
        .as_ref()
        .and_then(|(map, _)| map.as_ref())
    {
        Some(map) => CanonicalJson::from_value(&at.mapped(map).ok()?).ok(),
        None => at.last_output().map(|held| held.json.clone()),
    }
}
