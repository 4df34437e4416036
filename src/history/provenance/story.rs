//! A run replayed on tracked values: the input, the output and the deciding values of each step.

pub(super) mod defined;
pub(super) mod folded;
pub(super) mod memo;
pub(super) mod names;
mod outputs;
pub(super) mod path;

use std::cell::RefCell;
use std::collections::HashMap;

use ktsu_ledger::Frame;
use ktsu_ledger::event::plan::StepWork;
use ktsu_ledger::event::{EnvValue, SkipReason};
use ktsu_projections::envelope::{EnvelopeFold, skip_marker};
use ktsu_projections::run::{Effective, ItemEnd, RunState, StepKey, StepStatus};
use ktsu_projections::step_name::path_in;
use serde_json::{Value, json};

use super::facts::{RunFacts, SetField, StepFacts};
use super::track::{StepTrack, TrackedOverlay, marked, object};
use super::worlds::WorldFacts;
use crate::RunReadError;
use defined::DefinitionHistory;
use folded::FoldedRun;
use ktsu_workflow::definition::{CompiledStep, CompiledWork};
use ktsu_workflow::expression::provenance::{FramePointer, Provenance, Tracked, union};
use ktsu_workflow::expression::{
    EvaluatedValue, EvaluationError, NameLookup, Tracker, from_json, from_value,
};
use ktsu_workflow::graph;
use ktsu_workflow::params;
use ktsu_workflow::rules::DecisionRules;
use ktsu_workflow::template::Template;
use memo::TraceMemo;
use names::ScopeNames;

/// A run, its definition, and its values with their places.
pub struct TracedRun<'f> {
    pub(super) frames: &'f [Frame],
    pub(super) defined: DefinitionHistory,
    pub(super) fold: EnvelopeFold,
    pub(super) facts: RunFacts,
    steps: HashMap<StepKey, StepTrack>,
    params: HashMap<u32, Tracked>,
    outputs: HashMap<u32, ScopeTrack>,
    /// The places that could have ended the run before the step that is traced next.
    so_far: Provenance,
    /// Cached results of [`TracedRun::survival_marks`].
    alive: RefCell<HashMap<u64, Provenance>>,
    /// The facts about the worlds of the run, if it loads any.
    pub(super) worlds: Option<WorldFacts>,
    pub(super) memo: TraceMemo,
}

/// The end of a scope.
#[derive(Debug, Clone, Default)]
struct ScopeTrack {
    output: Option<Tracked>,
    risk: Provenance,
}

impl<'f> TracedRun<'f> {
    /// Tells a recorded run. `frames` are the effective frames of its stream.
    ///
    /// # Errors
    /// [`RunReadError`].
    pub fn of(frames: &'f [Frame]) -> Result<Self, RunReadError> {
        let FoldedRun {
            fold,
            facts,
            worlds,
        } = FoldedRun::of(frames)?;
        let mut story = Self {
            frames,
            defined: DefinitionHistory::of(frames)?,
            fold,
            facts,
            steps: HashMap::new(),
            params: HashMap::new(),
            outputs: HashMap::new(),
            so_far: Provenance::default(),
            alive: RefCell::default(),
            worlds,
            memo: TraceMemo::default(),
        };
        let given = story.params_before(u64::MAX);
        story.trace_scope(0, given);
        story.trace_responder_runs();
        Ok(story)
    }

    /// The frames of the run.
    pub fn frames(&self) -> &'f [Frame] {
        self.frames
    }

    /// The state of the run.
    pub fn state(&self) -> &RunState {
        self.fold.state()
    }

    /// The track of a step.
    pub fn step(&self, at: StepKey) -> Option<&StepTrack> {
        self.steps.get(&at)
    }

    /// The params of a scope.
    pub(super) fn params(&self, scope: u32) -> Option<&Tracked> {
        self.params.get(&scope)
    }

    /// The output of a scope.
    pub(super) fn output(&self, scope: u32) -> Option<&Tracked> {
        self.outputs.get(&scope)?.output.as_ref()
    }

    /// The places that could have ended the run before a frame, or could have kept something from
    /// running that would have.
    pub(super) fn survival_marks(&self, frame: u64) -> Provenance {
        if let Some(known) = self.alive.borrow().get(&frame) {
            return known.clone();
        }
        // The marks are complete only once the whole run is traced.
        let is_whole = self.outputs.contains_key(&0);
        if !is_whole && frame == u64::MAX {
            return self.so_far.clone();
        }
        let before = |track: &&StepTrack| track.first.is_some_and(|first| first <= frame);
        let steps = self.steps.values().filter(before);
        let steps = steps.flat_map(|track| [&track.gate, &track.risk]);
        let scopes = self.outputs.iter().filter(|(scope, _)| {
            let ended = self.end_of(**scope);
            ended.is_some_and(|ended| ended <= frame)
        });
        let marks = union(steps.chain(scopes.map(|(_, track)| &track.risk)));
        if is_whole {
            self.alive.borrow_mut().insert(frame, marks.clone());
        }
        marks
    }

    /// Tells a scope, its children with it: as deep as workflows are nested, which the kit bounds.
    pub(super) fn trace_scope(&mut self, scope: u32, params: Tracked) {
        self.params.insert(scope, params);
        let Some(shape) = self.state().scope(scope).map(|held| held.shape.clone()) else {
            return;
        };
        let needs = shape.plan.steps.iter();
        let needs: Vec<Vec<usize>> = needs
            .map(|step| step.needs.iter().map(|need| *need as usize).collect())
            .collect();
        let order = graph::order(&needs).unwrap_or_default().concat();
        let mut order: Vec<u32> = order.into_iter().flat_map(u32::try_from).collect();
        // What has begun, began after what it needed then, under whatever definition that was.
        order.sort_by_key(|position| self.begun(scope, *position).unwrap_or(u64::MAX));
        for position in order {
            let track = self.trace_step(scope, position).unwrap_or_default();
            if track.first.is_some() {
                self.so_far = union([&self.so_far, &track.gate, &track.risk]);
            }
            self.steps.insert(StepKey::of(scope, position), track);
        }
        let output = self.trace_output(scope).unwrap_or_default();
        if self.end_of(scope).is_some() {
            self.so_far = self.so_far.and(&output.risk);
        }
        self.outputs.insert(scope, output);
    }

    fn trace_step(&mut self, scope: u32, position: u32) -> Option<StepTrack> {
        let held = self.state().scope(scope)?;
        let path = held.path.clone();
        let plan = held.shape.step(position)?.clone();
        let facts = self.facts.get(&path, &plan.id, None);
        let mut track = StepTrack {
            first: facts.first,
            ended: facts.ended,
            gate: self.gate(scope, position)?,
            ..StepTrack::default()
        };
        // A child is traced before its step.
        let mut tracker = Tracker::default();
        if let StepWork::Workflow(child) = &plan.work {
            let inner = path_in(&path, &plan.id);
            if let Some(at) = self.state().scope_at(&inner) {
                let given = self.child_params(scope, position, &child.workflow, &mut tracker);
                let given = given.unwrap_or_else(|| Tracked::literal(from_value(&json!({}))));
                tracker.inspect(given.dependencies());
                self.trace_scope(at, given.chosen_by(&track.gate));
            }
        }
        self.trace_invoked(scope, position, &track.gate);
        let (compiled, _) = self.compiled(scope, position)?;
        let acting = self.acting(scope, position)?;
        let made = self.computed_value(scope, position, acting, &facts, &mut track, &mut tracker);
        if compiled.schema.is_some()
            && let Some(made) = &made
        {
            tracker.inspect(made.dependencies());
        }
        track.risk = tracker.inspected();
        let why = track.gate.and(&track.risk);
        let step = self.state().step(StepKey::of(scope, position))?;
        let made = made.map(|made| made.chosen_by(&why));
        match step.status {
            StepStatus::Complete => {
                track.computed = self.held(scope, position, made, &why);
                track.overlays = self.overlaid(scope, position);
                track.value = track.before(u64::MAX);
            }
            StepStatus::Skipped => track.value = self.skipped(scope, position, &facts, &why),
            StepStatus::Failed => track.refused = made,
            StepStatus::Pending | StepStatus::Running => {}
        }
        Some(track)
    }

    /// The computed value of a completed step. The state says what it is, and the tracked one of
    /// what it was made.
    fn held(
        &self,
        scope: u32,
        position: u32,
        made: Option<Tracked>,
        why: &Provenance,
    ) -> Option<Tracked> {
        let step = self.state().step(StepKey::of(scope, position))?;
        let value = from_json(&step.output.as_ref()?.json);
        Some(match made {
            Some(made) => made.aligned(&value),
            None => Tracked::literal(value).chosen_by(why),
        })
    }

    /// The overlays of a step, in the order in which they were set.
    fn overlaid(&self, scope: u32, position: u32) -> Vec<TrackedOverlay> {
        let held = self.state().scope(scope);
        let id = held.and_then(|held| Some((held, &held.shape.step(position)?.id)));
        let said = id.map(|(held, id)| self.facts.overlays(&held.path, id));
        let tracked = |set: &SetField| {
            let place = FramePointer::new(set.seq, set.path.as_str());
            TrackedOverlay {
                seq: set.seq,
                field: set.field.clone(),
                value: Tracked::recorded(place, from_json(&set.value)),
            }
        };
        said.unwrap_or_default().iter().map(tracked).collect()
    }

    /// The run's params as a frame's decision saw them.
    pub(super) fn params_before(&self, frame: u64) -> Tracked {
        let (at, params) = self.state().params_before(frame);
        let place = || FramePointer::new(at, "/params");
        let read = || Tracked::recorded(place(), from_json(&params));
        self.memo.params(at, read)
    }

    /// The places that decided whether a step ran: its condition, and that what it needs ended
    /// well.
    fn gate(&self, scope: u32, position: u32) -> Option<Provenance> {
        let shape = &self.state().scope(scope)?.shape;
        let (step, needs) = self.compiled(scope, position)?;
        let mut marks = Vec::new();
        for need in needs.into_iter().filter_map(|id| shape.position(id)) {
            if let Some(track) = self.step(StepKey::of(scope, need)) {
                marks.extend([track.gate.clone(), track.risk.clone()]);
            }
        }
        if let Some(condition) = &step.condition {
            let mut tracker = Tracker::default();
            let value = condition.track(&self.names(scope, position), &mut tracker);
            marks.extend(value.ok().map(|value| value.shape()));
            marks.push(tracker.inspected());
        }
        Some(union(&marks))
    }

    /// The condition of a step, evaluated; none if it has none.
    pub fn condition(
        &self,
        scope: u32,
        position: u32,
        tracker: &mut Tracker,
    ) -> Option<Result<Tracked, EvaluationError>> {
        let (step, _) = self.compiled(scope, position)?;
        let condition = step.condition.as_ref()?;
        Some(condition.track(&self.names(scope, position), tracker))
    }

    /// The condition of a step, as it was written when the step was decided.
    pub fn condition_text(&self, scope: u32, position: u32) -> Option<String> {
        let (step, _) = self.compiled(scope, position)?;
        Some(step.condition.as_ref()?.source().to_owned())
    }

    /// The code and the words of a step's failure.
    pub fn fault_of(&self, scope: &str, position: u32) -> (String, String) {
        let envelope = self.fold.envelope(scope);
        let steps = envelope.into_iter().flat_map(|envelope| envelope.steps);
        let fault = steps
            .into_iter()
            .nth(position as usize)
            .and_then(|step| step.error);
        fault.map_or_else(Default::default, |fault| (fault.code, fault.message))
    }

    /// The names that a step mentions, as they were when it began.
    fn names(&self, scope: u32, position: u32) -> ScopeNames<'_> {
        let begun = self.begun(scope, position);
        self.names_before(scope, begun.unwrap_or(u64::MAX))
    }

    fn names_before(&self, scope: u32, before: u64) -> ScopeNames<'_> {
        ScopeNames {
            story: self,
            scope,
            step: None,
            item: None,
            before,
        }
    }

    /// The value that a step gave, or was about to give when it was refused.
    fn computed_value(
        &self,
        scope: u32,
        position: u32,
        step: &CompiledStep,
        facts: &StepFacts,
        track: &mut StepTrack,
        tracker: &mut Tracker,
    ) -> Option<Tracked> {
        facts.first?;
        match &step.work {
            CompiledWork::Transform(transform) => {
                transform.track(&self.names(scope, position), tracker).ok()
            }
            CompiledWork::Webhook { url, body, .. } => {
                let templates = [Some(url), body.as_ref()];
                for template in templates.into_iter().flatten() {
                    self.render(template, &self.names(scope, position), tracker);
                }
                // An error message contains the URL.
                let target = self.render(url, &self.names(scope, position), tracker);
                tracker.inspect(target.map(|url| url.dependencies()).unwrap_or_default());
                self.answered(facts, tracker)
            }
            CompiledWork::Workflow { .. } => {
                let held = self.state().scope(scope)?;
                let child = self.state().scope_at(&held.path_of(position))?;
                let empty = || Tracked::literal(from_value(&json!({})));
                Some(self.output(child).cloned().unwrap_or_else(empty))
            }
            CompiledWork::Agent { params, from, .. } => {
                let names = self.names(scope, position).of_step(position);
                tracker.inspect(names.let_begin());
                match from {
                    None => {
                        self.asked(params.as_ref(), &names, tracker);
                        self.replied(facts, tracker)
                    }
                    Some(from) => {
                        let over = from.track(&names, tracker).ok()?;
                        tracker.inspect(over.shape());
                        self.fan_out(scope, position, &over, params.as_ref(), track, tracker)
                    }
                }
            }
        }
    }

    /// A template; nothing where it cannot be evaluated.
    pub(super) fn render(
        &self,
        template: &Template,
        names: &impl NameLookup<Tracked>,
        tracker: &mut Tracker,
    ) -> Option<Tracked> {
        let secret = |name: &str| self.state().created().env.get(name) == Some(&EnvValue::Secret);
        let rules = DecisionRules::of(self.state());
        template.track(names, &secret, rules, tracker).ok()
    }

    /// The params of an agent are checked by its schema before it is asked.
    fn asked(&self, params: Option<&Template>, names: &ScopeNames<'_>, tracker: &mut Tracker) {
        let rendered = params.and_then(|params| self.render(params, names, tracker));
        if let Some(rendered) = rendered {
            tracker.inspect(rendered.dependencies());
        }
    }

    /// The result of an agent: all of its outcome is checked, and its draft before; people decided
    /// which of its calls were made.
    fn replied(&self, facts: &StepFacts, tracker: &mut Tracker) -> Option<Tracked> {
        for seq in &facts.words {
            let frame = self.frame(*seq);
            let path = match frame.and_then(|frame| frame.event.approval_decided()) {
                Some(_) => "/decision",
                None => "/request",
            };
            tracker.inspect(Provenance::at(FramePointer::new(*seq, path)));
        }
        let drafts = facts.decided.map(|seq| FramePointer::new(seq, "/draft"));
        let seq = facts.finished?;
        tracker.inspect(drafts.into_iter().collect());
        tracker.inspect(Provenance::at(FramePointer::new(seq, "/outcome")));
        let mut output = self
            .frame(seq)?
            .event
            .finished()?
            .outcome
            .pointer("/output")?;
        if let Some(members) = output.as_object_mut() {
            members.retain(|name, _| !ktsu_projections::life::reserved::is_reserved(name));
        }
        let place = FramePointer::new(seq, "/outcome/output");
        Some(Tracked::recorded(place, from_value(&output)))
    }

    fn answered(&self, facts: &StepFacts, tracker: &mut Tracker) -> Option<Tracked> {
        for seq in &facts.answers {
            for name in ["/status", "/code"] {
                tracker.inspect(Provenance::at(FramePointer::new(*seq, name)));
            }
        }
        let seq = *facts.answers.last()?;
        let status = Value::from(self.frame(seq)?.event.webhook_answer()?.status?);
        let place = FramePointer::new(seq, "/status");
        Some(object([
            ("sent", Tracked::literal(from_value(&Value::Bool(true)))),
            ("status_code", Tracked::recorded(place, from_value(&status))),
        ]))
    }

    fn fan_out(
        &self,
        scope: u32,
        position: u32,
        over: &Tracked,
        params: Option<&Template>,
        track: &mut StepTrack,
        tracker: &mut Tracker,
    ) -> Option<Tracked> {
        let held = self.state().scope(scope)?;
        let id = &held.shape.step(position)?.id;
        let tasks = held.steps.get(position as usize)?.tasks.as_deref()?;
        let mut results = Vec::new();
        for (index, task) in (0u32..).zip(&tasks.list) {
            let facts = self.facts.get(&held.path, id, Some(index));
            let names = ScopeNames {
                before: self.names(scope, position).before,
                story: self,
                scope,
                step: None,
                item: over.item(index as usize).map(|item| (item, index)),
            };
            self.asked(params, &names, tracker);
            let replied = self.replied(&facts, tracker);
            track.items.push(replied.clone());
            results.push(match (&task.ended, replied) {
                (Some(ItemEnd::Output(output)), Some(replied)) => {
                    replied.aligned(&from_json(output))
                }
                (Some(ItemEnd::Skipped(words)), _) => marked(
                    json!({"skipped": true, "reason": words, "item_index": index}),
                    "reason",
                    self.said(&facts, "/outcome/output/ktsu_skip_reason", words),
                ),
                (Some(ItemEnd::Failed(words)), _) => marked(
                    json!({"ktsu_error": words, "item_index": index}),
                    "ktsu_error",
                    self.said(&facts, "/outcome/error/message", words),
                ),
                (Some(ItemEnd::Output(output)), None) => Tracked::literal(from_json(output)),
                (None, _) => Tracked::literal(from_value(&Value::Null)),
            });
        }
        let results = Tracked::list(results, over.source()).chosen_by(over.chosen());
        Some(object([("results", results)]))
    }

    /// Words as an agent said them, if they stand where it would have. Where the engine ended the
    /// task they are the engine's, and people only decided.
    pub(super) fn said(&self, facts: &StepFacts, at: &str, words: &str) -> Tracked {
        let value = from_value(&Value::from(words));
        let reported = |seq: &u64| {
            let end = self.frame(*seq)?.event.finished();
            end.filter(|end| end.report.is_some())
        };
        let there = facts.finished.filter(|seq| {
            let place = reported(seq).zip(at.strip_prefix("/outcome"));
            let said = place.and_then(|(end, below)| end.outcome.pointer(below));
            said.as_ref().and_then(Value::as_str) == Some(words)
        });
        match there {
            Some(seq) => Tracked::recorded(FramePointer::new(seq, at), value),
            None => Tracked::literal(value),
        }
    }

    /// The marker of a step that was skipped (decision S3).
    fn skipped(
        &self,
        scope: u32,
        position: u32,
        facts: &StepFacts,
        why: &Provenance,
    ) -> Option<Tracked> {
        let effective = self.state().effective(StepKey::of(scope, position));
        let value = skip_marker(&effective)?;
        let reason = match effective {
            Effective::Skipped(words) => {
                self.said(facts, "/outcome/output/ktsu_skip_reason", words)
            }
            Effective::Suppressed(_) | Effective::Output(_) | Effective::Absent => {
                Tracked::literal(from_value(&value["reason"]))
            }
        };
        let held = self.state().step(StepKey::of(scope, position))?;
        let closed = held.skipped == Some(SkipReason::RunFailed);
        let rest = match closed {
            true => self.survival_marks(u64::MAX),
            false => Provenance::default(),
        };
        Some(marked(value, "reason", reason).chosen_by(&why.and(&rest)))
    }

    fn child_params(
        &self,
        scope: u32,
        position: u32,
        child: &str,
        tracker: &mut Tracker,
    ) -> Option<Tracked> {
        let (step, _) = self.compiled(scope, position)?;
        let CompiledWork::Workflow { params: template } = &step.work else {
            return None;
        };
        let given = match template {
            Some(template) => self.render(template, &self.names(scope, position), tracker)?,
            None => Tracked::literal(from_value(&json!({}))),
        };
        let schema = self.child_of(scope, position, child)?.params.as_ref();
        let mut body = given.to_value();
        let filled = template
            .as_ref()
            .map(Template::expression_pointers)
            .unwrap_or_default();
        let rules = DecisionRules::of(self.state());
        params::without_nulls(schema, &mut body, &filled, rules);
        let resolved = params::resolve(schema, body, rules).ok()?;
        Some(given.aligned(&from_value(&resolved)))
    }
}
