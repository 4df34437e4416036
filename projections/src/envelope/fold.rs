//! The fold behind envelopes: the run's state, and what only the envelope needs.

use std::collections::BTreeMap;
use std::sync::Arc;

use ktsu_ledger::event::plan::StepWork;
use ktsu_ledger::event::{
    AgentEvent, EnvValue, ItemEvent, RecomputeEvent, Reference, ReservedEvaluated, RunEvent,
    StepEvent, StepFailed,
};
use ktsu_ledger::{CanonicalJson, Event, Frame, Timestamp};
use serde_json::{Value, json};

use super::scope::ScopeDetail;
use super::wait_time::{WaitBefore, WaitTime};
use super::{
    AgentRemarks, BranchView, Envelope, ErrorView, ItemCountsView, ItemView, REDACTED, StepView,
    UsageView, skip_marker, step_kind,
};
use crate::lineage::item_name;
use crate::run::{
    AgentTask, Effective, FoldError, ItemEnd, Phase, RunState, Scope, Step, StepStatus, TaskPhase,
    Tasks, WorkflowShape, reserved,
};
use crate::step_name::scoped_run;
use crate::usage::Usage;

/// Folds a run into envelopes: its own, and those of its inline children.
#[derive(Debug, Clone)]
pub struct EnvelopeFold {
    state: RunState,
    steps: BTreeMap<(u32, u32), StepDetail>,
    scopes: BTreeMap<u32, ScopeDetail>,
    /// What a branch had cost where it begins, in millionths of a US dollar.
    prefix: Option<u64>,
    /// Outputs of scopes as they are now, where a person changed a step after the end.
    outputs: BTreeMap<u32, CanonicalJson>,
}

/// What is shown of a step, or of an item of a fan-out, and decides nothing.
#[derive(Debug, Clone, Default)]
struct StepDetail {
    started: Option<Timestamp>,
    ended: Option<Timestamp>,
    error: Option<ErrorView>,
    raw: Option<CanonicalJson>,
    said: AgentRemarks,
    usage: Usage,
    waited: WaitTime,
    /// The `agent.finished` and its outcome, until what follows from it is recorded.
    outcome: Option<(u64, CanonicalJson)>,
    items: BTreeMap<u32, StepDetail>,
}

impl EnvelopeFold {
    /// Folds a whole recorded run.
    ///
    /// # Errors
    /// [`FoldError`] names the first frame that does not follow from those before it.
    pub fn of(frames: &[Frame]) -> Result<Self, FoldError> {
        let (first, rest) = frames.split_at(frames.len().min(1));
        let state = RunState::fold(first)?;
        let mut fold = Self {
            prefix: state.fork().is_some().then_some(0),
            state,
            steps: BTreeMap::new(),
            scopes: BTreeMap::new(),
            outputs: BTreeMap::new(),
        };
        for frame in first {
            fold.note(frame, &WaitBefore::default());
        }
        for frame in rest {
            let shape = fold.state.scope(0).map(|root| Arc::clone(&root.shape));
            let still = WaitBefore::before(&fold.state, frame);
            let taken = fold.state.apply(frame);
            taken.map_err(|refusal| FoldError::Refused(frame.seq, refusal))?;
            if let (Event::Run(RunEvent::Branched(_)), Some(shape)) = (&frame.event, shape) {
                fold.fork(&shape);
            }
            fold.note(frame, &still);
        }
        Ok(fold)
    }

    /// The state underneath.
    pub fn state(&self) -> &RunState {
        &self.state
    }

    /// Whether a person laid something over a step of a run or an inline child after that had ended
    /// with an output. The output that is recorded does not show it.
    pub fn has_overlay_after_end(&self, scope: u32) -> bool {
        let Some(scope) = self.state.scope(scope) else {
            return false;
        };
        let ended = scope.ended.as_ref().filter(|end| end.output.is_some());
        let mut overlays = scope.steps.iter().flat_map(|step| step.overlay.values());
        ended.is_some_and(|end| overlays.any(|over| over.seq > end.seq))
    }

    /// Shows an output in place of the recorded one. What an output is made of is known to those
    /// who evaluate expressions, not here.
    pub fn override_output(&mut self, scope: u32, output: CanonicalJson) {
        self.outputs.insert(scope, output);
    }

    /// The envelope of the run (`""`) or of an inline child, if there is one at that path.
    pub fn envelope(&self, path: &str) -> Option<Envelope> {
        let at = self.state.scope_at(path)?;
        let scope = self.state.scope(at)?;
        let detail = self.scopes.get(&at).cloned().unwrap_or_default();
        Some(Envelope {
            run_id: scoped_run(self.state.stream().name(), path),
            workflow: scope.shape.plan.name.clone(),
            version: scope.shape.plan.version.clone(),
            status: match path {
                "" => self.state.status().as_str().to_owned(),
                _ => scope.status.as_str().to_owned(),
            },
            branch: self.branch().filter(|_| path.is_empty()),
            error: detail.error,
            params: self.state.params(at),
            env: match scope.parent {
                None => self.env(),
                Some(_) => BTreeMap::new(),
            },
            steps: self.step_views(at, scope),
            output: self.output(at, scope),
            totals: UsageView::of(&detail.usage),
            created_at: detail.began,
            ended_at: detail.ended,
        })
    }

    fn output(&self, at: u32, scope: &Scope) -> Option<CanonicalJson> {
        let recorded = scope.ended.as_ref()?.output.as_ref()?;
        let shown = self.outputs.get(&at);
        Some(shown.unwrap_or(&recorded.json).clone())
    }

    fn branch(&self) -> Option<BranchView> {
        let fork = self.state.fork()?;
        Some(BranchView {
            parent_run_id: fork.parent.clone(),
            fork_position: fork.position,
            inherited_cost_micro_usd: self.prefix.unwrap_or_default(),
        })
    }

    fn env(&self) -> BTreeMap<String, String> {
        let shown = |value: &EnvValue| match value {
            EnvValue::Value(value) => value.clone(),
            EnvValue::Secret => REDACTED.to_owned(),
        };
        let env = &self.state.created().env;
        env.iter()
            .map(|(name, value)| (name.clone(), shown(value)))
            .collect()
    }

    fn step_views(&self, at: u32, scope: &Scope) -> Vec<StepView> {
        let steps = scope.shape.plan.steps.iter().zip(&scope.steps);
        (0u32..)
            .zip(steps)
            .map(|(position, (plan, step))| {
                let detail = self.steps.get(&(at, position)).cloned().unwrap_or_default();
                let metrics = detail.metrics();
                let reflected = detail.reflected();
                let fan_out = is_fan_out(&plan.work) && step.started.is_some();
                let tasks = step.tasks.as_deref();
                StepView {
                    id: plan.id.clone(),
                    kind: step_kind(&plan.work).to_owned(),
                    status: match self.state.awaits_people(step) {
                        true => PENDING_APPROVAL.to_owned(),
                        false => step.status.as_str().to_owned(),
                    },
                    attempt: step.attempt,
                    started_at: detail.started,
                    ended_at: detail.ended,
                    output: output_view(self.state.effective(at, position)),
                    computed: step
                        .effective
                        .as_ref()
                        .and(step.output.as_ref())
                        .map(|held| held.json.clone()),
                    overlay: step
                        .overlay
                        .iter()
                        .map(|(field, over)| (field.clone(), over.value.clone()))
                        .collect(),
                    raw_output: detail.raw,
                    skip_reason: skip_reason(step),
                    error: detail.error,
                    reflected: matches!(plan.work, StepWork::Agent(_)).then_some(reflected),
                    said: detail.said,
                    counts: fan_out.then(|| counts(step.status, tasks)),
                    items: fan_out.then(|| item_views(&plan.id, tasks, detail.items)),
                    metrics,
                }
            })
            .collect()
    }

    fn note(&mut self, frame: &Frame, still: &WaitBefore) {
        let at = self.state.scope_at(&frame.scope).unwrap_or_default();
        self.note_usage(frame, at, still);
        match &frame.event {
            Event::Run(event) => self.scopes.entry(at).or_default().take(frame, event),
            Event::Recompute(RecomputeEvent::Created(_)) => {
                self.scopes.entry(at).or_default().began = Some(frame.at);
            }
            Event::Step(event) => {
                if let Some(detail) = self.detail(at, event.step()) {
                    detail.take_step(frame.at, event);
                }
            }
            Event::Item(event) => {
                if let Some(detail) = self.detail(at, event.step()) {
                    let item = detail.items.entry(event.item()).or_default();
                    item.take_item(frame.at, event);
                }
            }
            Event::Agent(event) => {
                if let Some(detail) = self.detail(at, event.step()) {
                    if let Some(item) = event.item() {
                        let item = detail.items.entry(item).or_default();
                        item.take_agent(frame.seq, event);
                    }
                    detail.take_agent(frame.seq, event);
                }
            }
            Event::Recompute(RecomputeEvent::Compared(_))
            | Event::Worker(_)
            | Event::Webhook(_)
            | Event::Person(_)
            | Event::Kv(_)
            | Event::Store(_)
            | Event::Foreign { .. } => {}
        }
    }

    fn detail(&mut self, at: u32, step: &str) -> Option<&mut StepDetail> {
        let position = self.state.scope(at)?.shape.position(step)?;
        Some(self.steps.entry((at, position)).or_default())
    }

    /// A branch begins: what its parent spent is set apart, steps are found again by their ids
    /// under another definition, and those that begin again have no times any more.
    fn fork(&mut self, before: &WorkflowShape) {
        self.prefix = self
            .scopes
            .get(&0)
            .map(|detail| detail.usage.cost_micro_usd);
        let Some(root) = self.state.scope(0) else {
            return;
        };
        let mut steps = BTreeMap::new();
        for ((scope, step), mut detail) in std::mem::take(&mut self.steps) {
            let id = before.step(step).map_or("", |step| step.id.as_str());
            let place = match scope {
                0 => root.shape.position(id),
                _ => Some(step),
            };
            let Some(place) = place else { continue };
            let held = root.steps.get(place as usize).filter(|_| scope == 0);
            if held.is_some_and(|step| step.status == StepStatus::Pending) {
                detail.begin_again();
            }
            steps.insert((scope, place), detail);
        }
        self.steps = steps;
    }

    /// A frame counts for its item, its step, its scope, and every scope and step around it (seed
    /// 000, invariants 27 and 29: an inline child's use is its parent's). All of them tell apart when
    /// only people could move them.
    fn note_usage(&mut self, frame: &Frame, at: u32, still: &WaitBefore) {
        let uses = matches!(frame.event, Event::Webhook(_) | Event::Agent(_));
        let about = frame.event.task().filter(|_| uses);
        if let Some(pause) = still.ended_pause_ms {
            self.note_steering(frame.at, pause);
        }
        let mut inner = about.and_then(|(step, _)| self.state.scope(at)?.shape.position(step));
        if let Some((step, (_, Some(item)))) = inner.zip(about) {
            let detail = self.steps.entry((at, step)).or_default();
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
                let step = self.steps.entry((at, step)).or_default();
                step.usage.apply(frame, false);
                step.waited.take(frame.at, step_stood);
            }
            step_stood = stood;
            match self.state.scope(at).and_then(|scope| scope.parent) {
                Some((parent, step)) => (at, inner) = (parent, Some(step)),
                None => break,
            }
        }
    }

    /// A word about the whole run ends a pause, or the run: what is under way stood still meanwhile,
    /// and what waits for people has waited all the time.
    fn note_steering(&mut self, at: Timestamp, paused_ms: u64) {
        let state = &self.state;
        let most = |waits: bool| if waits { u64::MAX } else { paused_ms };
        for ((scope, position), detail) in &mut self.steps {
            let step = state.step(*scope, *position);
            let Some(step) = step.filter(|step| step.status == StepStatus::Running) else {
                continue;
            };
            let waits = if let Phase::Child { scope } = step.phase {
                state.waits_only_for_people(scope)
            } else {
                state.awaits_people(step)
            };
            detail.waited.take_word(at, most(waits));
            let under_way = |item: &StepDetail| item.started.is_some() && item.ended.is_none();
            for (item, detail) in &mut detail.items {
                if under_way(detail) {
                    let task = state.task(*scope, *position, Some(*item));
                    let waits = task.is_some_and(|task| task.phase == TaskPhase::Suspended);
                    detail.waited.take_word(at, most(waits));
                }
            }
        }
    }
}

impl StepDetail {
    /// What was used stays used.
    fn begin_again(&mut self) {
        *self = Self {
            usage: self.usage,
            ..Self::default()
        };
    }

    fn take_step(&mut self, at: Timestamp, event: &StepEvent) {
        match event {
            StepEvent::Started(_) => {
                (self.started, self.waited) = (Some(at), WaitTime::default());
            }
            StepEvent::OutputChecked(_) => {}
            StepEvent::ReservedEvaluated(one) => match one.item {
                Some(item) => self.items.entry(item).or_default().said.take(one),
                None => self.said.take(one),
            },
            StepEvent::Completed(_) | StepEvent::Skipped(_) => {
                self.ended = Some(at);
                self.outcome = None;
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
        match event {
            AgentEvent::Response(answer) if answer.error.is_none() => {
                self.said.model = Some(format!("{}/{}", answer.provider, answer.model));
            }
            AgentEvent::Finished(finished) => {
                let claimed = finished.metrics.as_ref().map(|claimed| &claimed.model);
                if let Some(model) = claimed.filter(|model| !model.is_empty()) {
                    self.said.model = Some(model.clone());
                }
                self.outcome = Some((seq, finished.outcome.clone()));
            }
            AgentEvent::Request(_)
            | AgentEvent::Response(_)
            | AgentEvent::Decided(_)
            | AgentEvent::ReflectStarted(_)
            | AgentEvent::BudgetExhausted(_)
            | AgentEvent::ToolCalled(_)
            | AgentEvent::ToolReturned(_)
            | AgentEvent::ToolInDoubt(_)
            | AgentEvent::ApprovalRequested(_)
            | AgentEvent::ApprovalDecided(_)
            | AgentEvent::ApprovalExpired(_) => {}
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
    fn reflected(&self) -> bool {
        self.usage.reflect_calls > 0
    }

    fn metrics(&self) -> UsageView {
        let took = self.started.zip(self.ended);
        let whole = took.map_or(0, |(from, to)| to.millis_since(from));
        let waited_ms = self.waited.millis();
        UsageView {
            duration_ms: whole.saturating_sub(waited_ms),
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

fn is_fan_out(work: &StepWork) -> bool {
    match work {
        StepWork::Agent(plan) => plan.for_each.is_some(),
        StepWork::Transform(_) | StepWork::Webhook(_) | StepWork::Workflow(_) => false,
    }
}

fn counts(status: StepStatus, tasks: Option<&Tasks>) -> ItemCountsView {
    let Some(tasks) = tasks else {
        return ItemCountsView::default();
    };
    let has_ended = !matches!(status, StepStatus::Pending | StepStatus::Running);
    let started = u32::try_from(tasks.list.len()).unwrap_or(u32::MAX);
    let never = tasks.items.unwrap_or_default().saturating_sub(started);
    ItemCountsView {
        succeeded: tasks.succeeded,
        failed: tasks.failed,
        skipped: tasks.skipped + if has_ended { never } else { 0 },
    }
}

fn item_views(
    step: &str,
    tasks: Option<&Tasks>,
    mut details: BTreeMap<u32, StepDetail>,
) -> Vec<ItemView> {
    let tasks = tasks.filter(|tasks| tasks.items.is_some());
    let list = tasks.map_or(&[][..], |tasks| tasks.list.as_slice());
    (0u32..)
        .zip(list)
        .map(|(item, task)| {
            let detail = details.remove(&item).unwrap_or_default();
            item_view(step, item, task, detail)
        })
        .collect()
}

/// Where a step stands that can go on only after somebody has decided (decision E1).
const PENDING_APPROVAL: &str = "pending_approval";

fn item_view(step: &str, item: u32, task: &AgentTask, detail: StepDetail) -> ItemView {
    let (status, output, skip_reason) = match &task.ended {
        None => (StepStatus::Running, None, None),
        Some(ItemEnd::Output(output)) => (StepStatus::Complete, Some(output.clone()), None),
        Some(ItemEnd::Failed(_)) => (StepStatus::Failed, None, None),
        Some(ItemEnd::Skipped(reason)) => {
            let marker = json!({"skipped": true, "reason": reason, "item_index": item});
            let marker = CanonicalJson::from_value(&marker).ok();
            (StepStatus::Skipped, marker, Some(reason.clone()))
        }
    };
    ItemView {
        item,
        id: item_name(step, Some(item)),
        status: match task.phase == TaskPhase::Suspended {
            true => PENDING_APPROVAL.to_owned(),
            false => status.as_str().to_owned(),
        },
        attempt: task.attempt,
        started_at: detail.started,
        ended_at: detail.ended,
        output,
        skip_reason,
        reflected: detail.reflected(),
        metrics: detail.metrics(),
        raw_output: detail.raw,
        error: detail.error,
        said: detail.said,
    }
}

/// The agent's words, where it was the agent who wanted the step skipped.
fn skip_reason(step: &Step) -> Option<String> {
    let reason = step.skipped?;
    let words = step.skip_detail.as_deref();
    Some(words.unwrap_or(reason.as_str()).to_owned())
}

fn output_view(value: Effective<'_>) -> Option<CanonicalJson> {
    match value {
        Effective::Output(held) => Some(held.json.clone()),
        Effective::Skipped(_) | Effective::Suppressed(_) => {
            skip_marker(&value).and_then(|marker| CanonicalJson::from_value(&marker).ok())
        }
        Effective::Absent => None,
    }
}
