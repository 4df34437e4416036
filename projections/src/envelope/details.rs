//! The parts of envelopes beside the state of a run: times, usage, errors, remarks of agents. They
//! are noted frame by frame, in a live run as in one that is folded again.

use std::collections::BTreeMap;
use std::sync::Arc;

use ktsu_ledger::event::{
    AgentEvent, ItemEvent, PersonEvent, Reference, ReservedEvaluated, StepEvent, StepFailed,
};
use ktsu_ledger::{CanonicalJson, Event, Frame, Timestamp};
use serde_json::Value;

use super::offers::ToolOffers;
use super::scope::ScopeDetail;
use super::wait_time::{LeftOut, WaitBefore, WaitTime};
use super::{AgentRemarks, ErrorView, UsageView};
use crate::life::{changes, reserved};
use crate::run::{
    Phase, RunFold, RunState, StepKey, StepStatus, TaskPhase, TransitionError, WorkflowShape,
};
use crate::usage::Usage;

/// See the module documentation.
#[derive(Debug, Clone)]
pub struct EnvelopeDetails {
    /// Boxed, because most of a map's work is to move what it holds.
    pub(super) steps: BTreeMap<StepKey, Box<StepDetail>>,
    pub(super) scopes: BTreeMap<u32, ScopeDetail>,
    /// The cost with which a branch begins, in millionths of a US dollar.
    pub(super) prefix: Option<u64>,
    pub(super) offers: ToolOffers,
}

/// A run under way and the details of its envelope, which take the same frames.
pub struct DetailedRun<'a> {
    /// The state that decisions are made from.
    pub state: &'a mut RunState,
    /// The details.
    pub details: &'a mut EnvelopeDetails,
}

impl RunFold for DetailedRun<'_> {
    fn state(&self) -> &RunState {
        self.state
    }

    fn apply(&mut self, frame: &Frame) -> Result<(), TransitionError> {
        self.details.apply(self.state, frame)
    }
}

/// The details of a step, or of an item of a fan-out, that are shown and decide nothing.
#[derive(Debug, Clone, Default)]
pub(super) struct StepDetail {
    pub(super) started: Option<Timestamp>,
    pub(super) ended: Option<Timestamp>,
    pub(super) error: Option<ErrorView>,
    pub(super) raw: Option<CanonicalJson>,
    pub(super) said: AgentRemarks,
    usage: Usage,
    waited: WaitTime,
    /// Time between its start and its end that did not pass, or not in this branch, in milliseconds.
    left_out_ms: u64,
    /// The `agent.finished` and its outcome, until what follows from it is recorded.
    outcome: Option<(u64, CanonicalJson)>,
    /// True if it begins again with the data that it waited for: its time and its wait count on.
    is_resumed: bool,
    pub(super) items: BTreeMap<u32, StepDetail>,
}

impl EnvelopeDetails {
    /// The details after the first frame of a run, and the state after it.
    pub fn begin(state: &RunState, first: &Frame) -> Self {
        let mut details = Self {
            steps: BTreeMap::new(),
            scopes: BTreeMap::new(),
            prefix: state.fork().is_some().then_some(0),
            offers: ToolOffers::default(),
        };
        details.note(state, first, &WaitBefore::default());
        details
    }

    /// Has the state check and take a frame, and notes it.
    ///
    /// # Errors
    /// [`TransitionError`]; nothing is changed then.
    pub fn apply(&mut self, state: &mut RunState, frame: &Frame) -> Result<(), TransitionError> {
        let root = state.scope(0).filter(|_| frame.event.branched().is_some());
        let before = root.map(|root| Arc::clone(&root.shape));
        let still = WaitBefore::before(state, frame);
        let gap = LeftOut::before(state, frame);
        state.apply(frame)?;
        if let Some(before) = before {
            self.fork(state, &before);
        }
        self.note(state, frame, &still);
        self.leave_out(gap);
        Ok(())
    }

    fn note(&mut self, state: &RunState, frame: &Frame, still: &WaitBefore) {
        let at = state.scope_at(&frame.scope).unwrap_or_default();
        self.note_usage(state, frame, at, still);
        // What is posted, and a raised budget, reopen a run that had ended.
        let reopens = matches!(frame.event, Event::World(_) | Event::Foreign { .. });
        if reopens && state.scope(0).is_some_and(|root| root.ended.is_none()) {
            self.scopes.entry(0).or_default().begin_again();
        }
        if let Event::Run(_) | Event::Recompute(_) = &frame.event {
            self.scopes.entry(at).or_default().take(frame);
        } else if let Event::Step(event) = &frame.event {
            if let Some(detail) = self.detail(state, at, event.step()) {
                detail.take_step(frame.at, event);
            }
        } else if let Event::Item(event) = &frame.event {
            if let Some(detail) = self.detail(state, at, event.step()) {
                let item = detail.items.entry(event.item()).or_default();
                item.take_item(frame.at, event);
            }
        } else if let Event::Agent(event) = &frame.event {
            if let AgentEvent::Request(request) = event {
                self.offers.take(state, at, request);
            }
            if let Some(detail) = self.detail(state, at, event.step()) {
                if let Some(item) = event.item() {
                    let item = detail.items.entry(item).or_default();
                    item.take_agent(frame.seq, event);
                }
                detail.take_agent(frame.seq, event);
            }
        } else if let Event::Person(PersonEvent::SuspendResumed(resumed)) = &frame.event
            && let Some(detail) = self.detail(state, at, &resumed.step)
        {
            detail.is_resumed = true;
        }
    }

    fn detail(&mut self, state: &RunState, at: u32, step: &str) -> Option<&mut StepDetail> {
        let position = state.scope(at)?.shape.position(step)?;
        Some(self.steps.entry(StepKey::of(at, position)).or_default())
    }

    /// A branch begins: what its parent spent is set apart, steps are found again by their ids
    /// under another definition, and those that begin again have no times any more.
    fn fork(&mut self, state: &RunState, before: &WorkflowShape) {
        self.prefix = self
            .scopes
            .get(&0)
            .map(|detail| detail.usage.cost_micro_usd);
        let Some(root) = state.scope(0) else {
            return;
        };
        if !std::ptr::eq(before, Arc::as_ptr(&root.shape)) {
            self.offers.clear();
        }
        let mut steps = BTreeMap::new();
        for (at, mut detail) in std::mem::take(&mut self.steps) {
            if at.scope() != 0 {
                steps.insert(at, detail);
                continue;
            }
            let plan = at.position().and_then(|step| before.step(step));
            let Some(place) = plan.and_then(|plan| root.shape.position(&plan.id)) else {
                continue;
            };
            let held = root.steps.get(place as usize);
            if held.is_some_and(|step| step.status == StepStatus::Pending) {
                detail.begin_again();
            }
            steps.insert(StepKey::of(0, place), detail);
        }
        self.steps = steps;
    }

    /// A frame counts for its item, its step, its scope, and every scope and step around it (seed
    /// 000, invariants 27 and 29: an inline child's use is its parent's). All of them tell apart when
    /// only people could move them.
    fn note_usage(&mut self, state: &RunState, frame: &Frame, at: u32, still: &WaitBefore) {
        let uses = matches!(frame.event, Event::Webhook(_) | Event::Agent(_))
            || changes(frame).any(|change| change.is_for_people());
        let about = frame.event.task().filter(|_| uses);
        if let Some(pause) = still.ended_pause_ms {
            self.note_steering(state, frame.at, pause);
        }
        let position = about.and_then(|(step, _)| state.scope(at)?.shape.position(step));
        let mut inner = position.map(|step| StepKey::of(at, step));
        if let Some((step, (_, Some(item)))) = inner.zip(about) {
            let detail = self.steps.entry(step).or_default();
            let item = detail.items.entry(item).or_default();
            item.usage.apply(frame, false);
            item.waited.take(frame.at, still.item);
        }
        let mut at = at;
        // A step stands still by itself, one around it as the child that it holds does.
        let mut step_stood = still.step;
        let mut scopes = still.scopes.iter().copied();
        loop {
            let stood = scopes.next().unwrap_or_default();
            self.scopes.entry(at).or_default().usage.apply(frame, stood);
            if let Some(step) = inner {
                let step = self.steps.entry(step).or_default();
                step.usage.apply(frame, false);
                step.waited.take(frame.at, step_stood);
            }
            step_stood = stood;
            let held = state.scope(at);
            match held.and_then(|scope| scope.parent) {
                Some(parent) => {
                    let item = held.and_then(|scope| scope.invoked.as_ref()?.item);
                    if let Some(item) = item {
                        let detail = self.steps.entry(parent).or_default();
                        let item = detail.items.entry(item).or_default();
                        item.usage.apply(frame, false);
                    }
                    (at, inner) = (parent.scope(), Some(parent));
                }
                None => break,
            }
        }
    }

    /// Leaves out, for whatever is under way, a time that did not pass, or not in this branch.
    fn leave_out(&mut self, gap: LeftOut) {
        if gap.ms == 0 {
            return;
        }
        for (at, scope) in &mut self.scopes {
            // The run itself counts its branches and resumptions apart.
            if scope.ended.is_none() && (*at != 0 || gap.of_clock) {
                scope.usage.leave_out(gap.ms, *at == 0);
            }
        }
        for detail in self.steps.values_mut() {
            detail.leave_out(gap.ms);
            detail
                .items
                .values_mut()
                .for_each(|item| item.leave_out(gap.ms));
        }
    }

    /// A word about the whole run ends a pause, or the run: what is under way stood still meanwhile,
    /// and what waits for people has waited all the time.
    fn note_steering(&mut self, state: &RunState, at: Timestamp, paused_ms: u64) {
        let most = |waits: bool| if waits { u64::MAX } else { paused_ms };
        for (key, detail) in &mut self.steps {
            let step = state.step(*key);
            let Some(step) = step.filter(|step| step.status == StepStatus::Running) else {
                continue;
            };
            let waits = if let Phase::Child { scope } = step.phase {
                state.waits_only_for_people(scope)
            } else if step.awaits_invoked() {
                let mut open = state.invoked_scopes(*key);
                open.all(|child| state.waits_only_for_people(child))
            } else {
                state.awaits_people(step)
            };
            detail.waited.take_word(at, most(waits));
            let under_way = |item: &StepDetail| item.started.is_some() && item.ended.is_none();
            for (item, detail) in &mut detail.items {
                if under_way(detail) {
                    let task = state.task(*key, Some(*item));
                    let waits = task.is_some_and(|task| task.phase == TaskPhase::Suspended);
                    detail.waited.take_word(at, most(waits));
                }
            }
        }
    }
}

impl StepDetail {
    fn leave_out(&mut self, ms: u64) {
        if self.started.is_some() && self.ended.is_none() {
            self.left_out_ms = self.left_out_ms.saturating_add(ms);
            self.waited.leave_out(ms);
        }
    }

    /// Resets everything but what was used.
    fn begin_again(&mut self) {
        *self = Self {
            usage: self.usage,
            ..Self::default()
        };
    }

    fn take_step(&mut self, at: Timestamp, event: &StepEvent) {
        match event {
            StepEvent::Started(_) if self.is_resumed => self.is_resumed = false,
            StepEvent::Started(_) => {
                (self.started, self.waited) = (Some(at), WaitTime::default());
                self.left_out_ms = 0;
            }
            StepEvent::OutputChecked(_)
            | StepEvent::Noted(_)
            | StepEvent::Commanded(_)
            | StepEvent::CommandCompleted(_)
            | StepEvent::CommandsDeferred(_)
            | StepEvent::CommandsDiscarded(_)
            | StepEvent::ReviewRequested(_)
            | StepEvent::SuspendRequested(_) => {}
            StepEvent::ReservedEvaluated(one) => match one.item {
                Some(item) => self.items.entry(item).or_default().said.take(one),
                None => self.said.take(one),
            },
            StepEvent::Completed(_) | StepEvent::Skipped(_) => {
                self.ended = Some(at);
                self.outcome = None;
            }
            StepEvent::Reset(_) if self.is_resumed => {
                let before = std::mem::take(self);
                *self = Self {
                    started: before.started,
                    usage: before.usage,
                    waited: before.waited,
                    left_out_ms: before.left_out_ms,
                    is_resumed: true,
                    ..Self::default()
                };
            }
            StepEvent::Reset(_) => self.begin_again(),
            StepEvent::Failed(failed) => {
                let StepFailed { code, message, .. } = failed;
                self.fail(at, code, message, &failed.raw, failed.raw_from.as_ref());
            }
        }
    }

    fn take_item(&mut self, at: Timestamp, event: &ItemEvent) {
        match event {
            ItemEvent::Started(_) => {
                (self.started, self.waited) = (Some(at), WaitTime::default());
                self.left_out_ms = 0;
            }
            ItemEvent::Completed(_) => {
                self.ended = Some(at);
                self.outcome = None;
            }
            ItemEvent::Failed(failed) => {
                let (code, message) = (&failed.code, &failed.message);
                self.fail(at, code, message, &failed.raw, failed.raw_from.as_ref());
            }
        }
    }

    fn take_agent(&mut self, seq: u64, event: &AgentEvent) {
        if let AgentEvent::Response(answer) = event
            && answer.error.is_none()
        {
            self.said.model = Some(format!("{}/{}", answer.provider, answer.model));
        } else if let AgentEvent::Finished(finished) = event {
            let claimed = finished.metrics.as_ref().map(|claimed| &claimed.model);
            if let Some(model) = claimed.filter(|model| !model.is_empty()) {
                self.said.model = Some(model.clone());
            }
            self.outcome = Some((seq, finished.outcome.clone()));
        }
    }

    fn fail(
        &mut self,
        at: Timestamp,
        code: &str,
        message: &str,
        raw: &Option<CanonicalJson>,
        raw_from: Option<&Reference>,
    ) {
        self.ended = Some(at);
        let outcome = self.outcome.take();
        let there = || refused_output(outcome.as_ref()?, raw_from?);
        self.raw = raw.clone().or_else(there);
        self.error = Some(ErrorView {
            code: code.to_owned(),
            message: message.to_owned(),
            step: None,
        });
    }

    /// A call is what counts: a reflection that the budget forbade is none.
    pub(super) fn reflected(&self) -> bool {
        self.usage.reflect_calls > 0
    }

    pub(super) fn metrics(&self) -> UsageView {
        let took = self.started.zip(self.ended);
        let whole = took.map_or(0, |(from, to)| to.millis_since(from));
        let waited_ms = self.waited.millis();
        UsageView {
            duration_ms: whole.saturating_sub(waited_ms + self.left_out_ms),
            waited_ms,
            ..UsageView::of(&self.usage)
        }
    }
}

impl AgentRemarks {
    fn take(&mut self, one: &ReservedEvaluated) {
        let value = one.value.to_value();
        match one.field.as_str() {
            reserved::FLAGS => {
                let flags = value.as_array().map(Vec::as_slice).unwrap_or_default();
                let flags = flags.iter().filter_map(Value::as_str);
                self.flags = flags.map(str::to_owned).collect();
            }
            reserved::RATIONALE => self.rationale = value.as_str().map(str::to_owned),
            reserved::CONFIDENCE if !one.value.is_null() => {
                self.confidence = Some(one.value.clone());
            }
            _ => {}
        }
    }
}

/// The output that a failure refers to, if it is part of the outcome that is at hand.
fn refused_output(
    (seq, outcome): &(u64, CanonicalJson),
    place: &Reference,
) -> Option<CanonicalJson> {
    let path = place.path.strip_prefix("/outcome")?;
    let value = outcome
        .pointer(path)
        .filter(|_| place.frame == *seq && !path.is_empty())?;
    CanonicalJson::from_value(&value).ok()
}
