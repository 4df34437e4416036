//! The next unit of decisions, from the state alone.
//!
//! A **unit** is a group of frames that belong together: a pure step's start, check and end; an
//! effect's start and announcement; everything that closes a failing run. [`next`] decides from the
//! current state, never from the last event, so after a crash, or a log cut in the middle of a
//! unit, it returns the rest of the same unit. Recovery needs nothing else.

mod agent;
mod ask;
mod budget;
mod child;
mod close;
mod names;
mod notice;
mod open;
mod repeat;
mod servers;
mod settle;
mod summary;
mod task;
mod task_end;
mod transform;
mod webhook;
mod world;

pub use agent::task_spec;
pub use budget::dropped_outputs;
pub(crate) use budget::{
    MAX_COST_LIMIT, MAX_DEPTH_LIMIT, MAX_EVENTS_LIMIT, MAX_TIME_LIMIT, limit_text,
};
pub use child::output_now;
pub use names::{Memo, ScopedNames};
pub use notice::{notice_body, notice_id};
pub use servers::{ServerSpec, missing_value_code, secret_values};
pub use summary::{MAX_SUMMARY, step_summaries};
pub use task::TaskSpec;
pub use webhook::{
    REQUEST_HEADERS, SIGNATURE_HEADERS, WebhookPreview, delivery_id, service_of, webhook_preview,
};

use std::collections::BTreeMap;
use std::ops::Deref;

use ktsu_ledger::event::plan::StepWork;
use ktsu_ledger::event::{
    OutputChecked, Reference, RunEvent, RunStarted, SkipReason, StepCompleted, StepEvent,
    StepFailed, StepInput, StepReset, StepSkipped, StepStarted, Violation,
};
use ktsu_ledger::{Actor, CanonicalJson, Cause, Draft, Event};
use ktsu_projections::run::{Phase, RunState, Scope, StepKey, StepStatus, Todo};
use serde_json::Value;

use super::airlock::SchemaViolation;
use super::definition::{CompiledStep, CompiledWorkflow, Definition};
use super::expression::truthy;
use super::failure_text::{clipped, violations};
use super::rules::DecisionRules;

/// The next unit, or nothing: the run has ended, or waits for the world.
pub fn next(definition: &Definition, state: &RunState, memo: &Memo) -> Option<Vec<Draft>> {
    if state.status().is_terminal() || state.is_parked() || state.paused().is_some() {
        return None;
    }
    if let Some(resets) = resets(state) {
        return Some(resets);
    }
    if state.failing().is_some() {
        return Some(close::close(state));
    }
    if let Some(reply) = repeat::repeat(state) {
        return Some(reply);
    }
    if let Some(exhausted) = budget::over_budget(definition, state) {
        return Some(exhausted);
    }
    if let Some(notice) = notice::announce(definition, state, memo) {
        return Some(notice);
    }
    match state.todo() {
        None | Some(Todo::Step { .. } | Todo::End { .. }) => {
            if let Some(unit) = world::respond(definition, state, memo) {
                return Some(unit);
            }
        }
        Some(Todo::Start | Todo::Effect { .. }) => {}
    }
    // A run that loads worlds ends when its responders say so.
    let goes_on = state.responding().is_some() && !state.is_ending();
    let todo = match goes_on {
        true => state.todo_before_end(),
        false => state.todo(),
    };
    match todo? {
        Todo::Start => {
            let mut unit = DecisionBatch::new(state, "");
            unit.push(
                Event::Run(RunEvent::Started(RunStarted::default())),
                vec![0],
            );
            Some(unit.drafts)
        }
        Todo::End { scope } => StepContext::new(definition, state, memo, scope, None)?.end(),
        Todo::Effect(at) | Todo::Step(at) => match at {
            StepKey::Of { scope, step } => {
                StepContext::new(definition, state, memo, scope, Some(step))?.step()
            }
            StepKey::Responder { .. } => ask::advance(definition, state, memo, at),
            StepKey::Gone => None,
        },
    }
}

/// The resets of the steps that a person wants to begin again, in file order.
fn resets(state: &RunState) -> Option<Vec<Draft>> {
    let (steps, resumed) = state.resetting();
    let root = state.scope(0)?;
    let mut unit = DecisionBatch::new(state, "");
    for at in steps {
        let event = StepEvent::Reset(StepReset {
            attempt: root.steps.get(*at as usize)?.attempt,
            step: root.shape.step(*at)?.id.clone(),
        });
        unit.push(Event::Step(event), vec![resumed]);
    }
    (!unit.drafts.is_empty()).then_some(unit.drafts)
}

/// Drafts that will stand next to each other, and the numbers they will get.
pub(super) struct DecisionBatch {
    scope: String,
    first: u64,
    /// In order.
    pub(super) drafts: Vec<Draft>,
}

impl DecisionBatch {
    pub(super) fn new(state: &RunState, scope: &str) -> Self {
        Self {
            scope: scope.to_owned(),
            first: state.next_seq(),
            drafts: Vec::new(),
        }
    }

    /// Adds a frame in the unit's scope and tells its number.
    pub(super) fn push(&mut self, event: Event, cause: Vec<u64>) -> u64 {
        let scope = self.scope.clone();
        self.push_in(scope, event, cause)
    }

    pub(super) fn push_in(&mut self, scope: String, event: Event, cause: Vec<u64>) -> u64 {
        let seq = self.first + self.drafts.len() as u64;
        self.drafts.push(Draft {
            scope,
            actor: Actor::Orchestrator,
            cause: cause.into_iter().map(Cause::Here).collect(),
            event,
        });
        seq
    }
}

/// A place in a run where something is to be decided.
pub(super) struct StepContext<'a> {
    definition: &'a Definition,
    state: &'a RunState,
    scope: &'a Scope,
    workflow: &'a CompiledWorkflow,
    memo: &'a Memo,
    names: ScopedNames<'a>,
    position: u32,
}

/// The decisions about one step, as they are made.
pub(super) struct StepDecision<'a> {
    at: StepContext<'a>,
    step: &'a CompiledStep,
    /// The step by whose definition it runs: itself, or the one that it was resumed to.
    acting: &'a CompiledStep,
    unit: DecisionBatch,
}

impl<'a> Deref for StepDecision<'a> {
    type Target = StepContext<'a>;

    fn deref(&self) -> &Self::Target {
        &self.at
    }
}

impl StepContext<'_> {
    /// The first thing that is wrong with params, to follow words of their own.
    fn first_violation(&self, found: Vec<SchemaViolation>) -> String {
        self.rules().first_violation(found)
    }
}

/// The result of a step's work.
pub(super) enum WorkOutcome {
    /// An output, made here.
    Output(Value),
    /// It failed.
    Failed {
        code: String,
        message: String,
        raw: Option<CanonicalJson>,
    },
}

impl WorkOutcome {
    pub(super) fn failed(code: &str, message: impl Into<String>) -> Self {
        Self::Failed {
            code: code.to_owned(),
            message: clipped(message.into()),
            raw: None,
        }
    }
}

impl StepDecision<'_> {
    fn skip(&mut self, reason: SkipReason, detail: Option<String>) {
        let event = StepEvent::Skipped(StepSkipped {
            detail,
            reason,
            step: self.step.id.clone(),
        });
        let causes = self.start_causes();
        self.unit.push(Event::Step(event), causes);
    }

    fn start(&mut self) {
        match &self.workflow_work() {
            Some(StepWork::Transform(_)) => self.run_transform(None),
            Some(StepWork::Webhook(plan)) => self.announce(plan),
            Some(StepWork::Workflow(plan)) => self.start_child(plan),
            Some(StepWork::Agent(plan)) => self.start_agent(plan),
            None => {}
        }
    }

    /// The rest of a step that has started.
    fn advance(&mut self) -> Option<()> {
        let held = self.scope.steps.get(self.position as usize)?;
        let started = held.started?;
        match (self.workflow_work()?, &held.phase) {
            (StepWork::Transform(_), _) => self.run_transform(Some(started)),
            (StepWork::Webhook(plan), Phase::Begun) => self.send(plan, 1, started),
            (StepWork::Webhook(plan), Phase::ToResend { seq, sending }) => {
                self.send(plan, *sending, *seq);
            }
            (StepWork::Webhook(_), _) => self.answered(held)?,
            (StepWork::Workflow(plan), Phase::Begun) => self.open_child(plan, started),
            (StepWork::Workflow(_), _) => self.child_ended(held)?,
            (StepWork::Agent(plan), _) => self.advance_agent(plan, held)?,
        }
        Some(())
    }

    /// Adds `step.started`.
    fn started(&mut self, input: BTreeMap<String, StepInput>) -> u64 {
        self.started_with(input, None)
    }

    /// Adds `step.started`, with the number of items if the step fans out.
    fn started_with(&mut self, input: BTreeMap<String, StepInput>, items: Option<u32>) -> u64 {
        let event = StepEvent::Started(StepStarted {
            attempt: self.attempt(),
            input,
            items,
            resume_step: (self.acting.id != self.step.id).then(|| self.acting.id.clone()),
            step: self.step.id.clone(),
        });
        self.unit.push(Event::Step(event), self.start_causes())
    }

    /// Adds the verdict of the air-lock.
    fn checked(
        &mut self,
        item: Option<u32>,
        attempt: u32,
        errors: &[Violation],
        cause: Vec<u64>,
    ) -> u64 {
        let event = StepEvent::OutputChecked(OutputChecked {
            attempt,
            errors: errors.to_vec(),
            item,
            step: self.step.id.clone(),
            valid: errors.is_empty(),
        });
        self.unit.push(Event::Step(event), cause)
    }

    /// Adds the end of a step: through the air-lock, unless its verdict is recorded already.
    fn settle(&mut self, attempt: u32, outcome: WorkOutcome, cause: Vec<u64>) {
        match outcome {
            WorkOutcome::Output(value) => self.settle_output(attempt, &value, None, cause),
            failed @ WorkOutcome::Failed { .. } => {
                self.fail_step(attempt, failed, None, cause);
            }
        }
    }

    /// Adds `step.failed`; `raw_from` says where the refused output is, if an earlier frame has it.
    fn fail_step(
        &mut self,
        attempt: u32,
        failed: WorkOutcome,
        raw_from: Option<Reference>,
        cause: Vec<u64>,
    ) {
        let WorkOutcome::Failed { code, message, raw } = failed else {
            return;
        };
        let event = StepEvent::Failed(StepFailed {
            attempt,
            code,
            message,
            raw,
            raw_from,
            step: self.step.id.clone(),
        });
        self.unit.push(Event::Step(event), cause);
    }

    /// Adds the verdict of the air-lock where the step has one (seed 000, invariant 9), then the
    /// end. `from` says where the output stands, if that is an earlier frame.
    fn settle_output(
        &mut self,
        attempt: u32,
        value: &Value,
        from: Option<Reference>,
        cause: Vec<u64>,
    ) {
        let Ok(json) = CanonicalJson::from_value(value) else {
            let failed =
                WorkOutcome::failed("expression_failed", "the output is nested too deeply");
            return self.settle(attempt, failed, cause);
        };
        let errors = self.step.schema.as_ref();
        let errors = errors.map(|_| violations(self.step.check_output(value, self.rules())));
        self.complete(attempt, errors, (Some(json), from), cause);
    }

    /// Adds the verdict of the air-lock, if the step has one, then the end of the step. The output,
    /// if there is one, is recorded unless an earlier frame has it.
    fn complete(
        &mut self,
        attempt: u32,
        errors: Option<Vec<Violation>>,
        (output, output_from): (Option<CanonicalJson>, Option<Reference>),
        mut cause: Vec<u64>,
    ) {
        let held = self.scope.steps.get(self.position as usize);
        match (&errors, held.map(|step| &step.phase)) {
            // A log cut between the verdict and the end.
            (_, Some(Phase::Checked { seq, .. })) => cause = vec![*seq],
            (Some(errors), _) => cause = vec![self.checked(None, attempt, errors, cause)],
            (None, _) => {}
        }
        if let Some(first) = errors.iter().flatten().next() {
            let (code, message) = (
                super::airlock::code_of(&first.rule, "schema_violation"),
                settle::air_lock_message(self.step, None, first),
            );
            let failed = match output {
                None => WorkOutcome::failed(code, message),
                // Recorded runs have these messages whole.
                raw => WorkOutcome::Failed {
                    code: code.to_owned(),
                    message,
                    raw,
                },
            };
            return self.settle(attempt, failed, cause);
        }
        let event = StepEvent::Completed(StepCompleted {
            attempt,
            output: output.filter(|_| output_from.is_none()),
            output_from,
            step: self.step.id.clone(),
            stripped: Vec::new(),
        });
        self.unit.push(Event::Step(event), cause);
    }
}

impl<'a> StepContext<'a> {
    fn new(
        definition: &'a Definition,
        state: &'a RunState,
        memo: &'a Memo,
        scope: u32,
        step: Option<u32>,
    ) -> Option<Self> {
        let held = state.scope(scope)?;
        Some(Self {
            definition,
            state,
            scope: held,
            workflow: definition.workflow(&held.shape.key)?,
            memo,
            names: ScopedNames::new(state, scope, memo).of_step(step),
            position: step.unwrap_or_default(),
        })
    }

    /// The rules that the run is decided by.
    fn rules(&self) -> DecisionRules {
        DecisionRules::of(self.state)
    }

    /// Whatever comes next for the step.
    fn step(self) -> Option<Vec<Draft>> {
        let state = self.scope.steps.get(self.position as usize)?;
        let step = self.workflow.steps.get(self.position as usize)?;
        let plan = self.scope.shape.step(self.position)?;
        let mut decision = StepDecision {
            unit: DecisionBatch::new(self.state, &self.scope.path),
            acting: self.acting_step()?,
            at: self,
            step,
        };
        match state.status {
            StepStatus::Pending => {
                let skipped = decision.skipped_need();
                match skipped.or_else(|| decision.skip_reason(step, &plan.work)) {
                    Some((reason, detail)) => decision.skip(reason, detail),
                    None => decision.start(),
                }
            }
            StepStatus::Running => decision.advance()?,
            StepStatus::Complete | StepStatus::Failed | StepStatus::Skipped => return None,
        }
        let drafts = decision.unit.drafts;
        (!drafts.is_empty()).then_some(drafts)
    }

    /// The reason to skip the step where something that it needs was skipped by its agent, or
    /// because of one: it is then skipped before any condition is asked (decision S3).
    fn skipped_need(&self) -> Option<(SkipReason, Option<String>)> {
        let plan = self.scope.shape.step(self.position)?;
        let skipped = plan.needs.iter().find(|need| {
            let step = self.scope.steps.get(**need as usize);
            let reason = step.and_then(|step| step.skipped);
            matches!(
                reason,
                Some(SkipReason::AgentSkipped | SkipReason::DependencySkipped)
            )
        })?;
        let id = &self.scope.shape.step(*skipped)?.id;
        let detail = format!("step {id} was skipped");
        Some((SkipReason::DependencySkipped, Some(detail)))
    }

    /// The reason to skip the step instead of starting it, if there is one (decisions S3, T3).
    fn skip_reason(
        &self,
        compiled: &CompiledStep,
        work: &StepWork,
    ) -> Option<(SkipReason, Option<String>)> {
        if matches!(work, StepWork::Webhook(webhook) if webhook.on_approval) {
            return Some((SkipReason::OnApproval, None));
        }
        if matches!(work, StepWork::Agent(agent) if agent.on_resume) {
            return Some((SkipReason::OnResume, None));
        }
        if let Some(condition) = &compiled.condition {
            match condition.evaluate(&self.names) {
                Err(error) => return Some((SkipReason::ConditionError, Some(error.message))),
                Ok(value) if !truthy(&value) => return Some((SkipReason::ConditionFalse, None)),
                Ok(_) => {}
            }
        }
        let silent = matches!(work, StepWork::Webhook(_)) && !self.sends_effects();
        let silent = silent && !self.sends_to_a_service(compiled);
        silent.then_some((SkipReason::WebhooksSuppressed, None))
    }

    /// Returns `true` if a webhook goes to a service of this run alone, which a run without effects
    /// calls as it calls tools. In a branch the service is gone.
    fn sends_to_a_service(&self, step: &CompiledStep) -> bool {
        self.scope.webhooks && !self.state.suppresses_tools() && self.is_to_a_service(step)
    }

    /// Returns `true` if anything is sent to the outside from here: parent and child agreed to it,
    /// and neither the run nor the branch suppresses effects.
    fn sends_effects(&self) -> bool {
        self.scope.webhooks && !self.state.suppresses_effects()
    }

    /// The attempt that is under way or, of a step that has not begun, the one to come.
    fn attempt(&self) -> u32 {
        let held = self.scope.steps.get(self.position as usize);
        held.map_or(1, |step| match step.status {
            StepStatus::Pending => step.attempt + 1,
            _ => step.attempt.max(1),
        })
    }

    fn workflow_work(&self) -> Option<&'a StepWork> {
        self.state.work(self.key())
    }

    /// The key of the step in the state of the run.
    fn key(&self) -> StepKey {
        StepKey::of(self.names.scope(), self.position)
    }

    /// The step by whose definition this one runs: itself, or the one that it was resumed to.
    fn acting_step(&self) -> Option<&'a CompiledStep> {
        self.workflow
            .steps
            .get(self.state.acting_position(self.key())? as usize)
    }

    /// The frames a ready step follows from: the ends of what it needs, or its scope's start.
    fn start_causes(&self) -> Vec<u64> {
        let needs = self
            .scope
            .shape
            .step(self.position)
            .map(|step| step.needs.as_slice());
        let ends = needs.unwrap_or_default().iter().filter_map(|need| {
            let step = self.scope.steps.get(*need as usize)?;
            step.ended
        });
        let mut ends: Vec<u64> = ends.collect();
        if ends.is_empty() {
            ends.extend(self.scope.started);
        }
        ends.sort_unstable();
        ends
    }
}
