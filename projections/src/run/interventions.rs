//! Applies people's interventions to the state: forks, resumptions, overlays (seeds 002 and 004;
//! decisions F1-F3).

mod suppression;

pub(super) use suppression::Suppression;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ktsu_ledger::event::plan::StepWork;
use ktsu_ledger::event::{
    BranchCreated, Effects, EnvValue, OverlaySet, Principal, Reference, RunResumed, StepReset,
    is_address,
};
use ktsu_ledger::{CanonicalJson, Frame, Hash, Timestamp};

use super::OverlayValue;
use super::outline::Outline;
use super::transition::TransitionError;
use super::{
    Phase, RunHeader, RunState, RunStatus, Scope, Step, StepKey, StepStatus, StoredOutput, Todo,
};
use crate::world::steps::is_step_object;

/// Params and environment, and the frame that holds them: `run.created`, or a `branch.created`
/// that changes them.
#[derive(Debug, Clone)]
pub(super) struct ParamsSource {
    pub(super) frame: u64,
    pub(super) params: Option<CanonicalJson>,
    pub(super) env: Option<BTreeMap<String, EnvValue>>,
}

/// The point where a branch begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForkPoint {
    /// The run or branch that it was forked from: `run_…` or `branch_…`.
    pub parent: String,
    /// Number of frames that it shares.
    pub position: u64,
    /// The person who forked.
    pub by: Principal,
    /// Time of the fork.
    pub at: Timestamp,
}

impl RunState {
    /// The state after a `branch.created` that shares nothing with its parent.
    pub(super) fn begin_branch(
        frame: &Frame,
        branch: &BranchCreated,
        outline: Arc<Outline>,
    ) -> Result<Self, TransitionError> {
        let first = frame.seq == 0 && branch.fork_position == 0 && frame.prev == Hash::ZERO;
        let named = frame.stream.name() == branch.branch_id && frame.scope.is_empty();
        let (Some(params), true) = (&branch.params, first && named) else {
            return Err(TransitionError::NotARun);
        };
        let created = RunHeader {
            at: frame.at,
            params: params.clone(),
            env: branch.env.clone().unwrap_or_default(),
            limits: branch.limits.unwrap_or_default(),
            rules: branch.rules,
            principal: branch.by.clone(),
            digest: branch.digest.clone().unwrap_or_default(),
            idempotency_key: None,
            idempotency_digest: None,
            of: None,
            effects: Effects::Execute,
            no_cache: false,
            pins: None,
            references: branch.references.clone(),
            results: None,
        };
        let mut state = Self::pending(frame, outline, created);
        state.park(frame, branch);
        Ok(state)
    }

    /// Returns `true` if a person has to say that the run continues.
    pub fn is_parked(&self) -> bool {
        self.parked
    }

    /// The point where the branch begins, if this is one.
    pub fn fork(&self) -> Option<&ForkPoint> {
        self.fork.as_ref()
    }

    /// The person who started what continues here: the run, or the branch.
    pub fn proposer(&self) -> &Principal {
        self.fork
            .as_ref()
            .map_or(&self.created.principal, |fork| &fork.by)
    }

    /// Steps of the run that a person wants to begin again, and the frame that says so.
    pub fn resetting(&self) -> (&BTreeSet<u32>, u64) {
        (&self.resetting, self.resumed)
    }

    /// The frame that holds the params.
    pub fn params_frame(&self) -> u64 {
        let holds = |origin: &&ParamsSource| origin.params.is_some();
        let last = self.origins.iter().rev().find(holds);
        last.map_or(0, |origin| origin.frame)
    }

    /// The params as they were before a frame, and the frame that holds them.
    pub fn params_before(&self, frame: u64) -> (u64, CanonicalJson) {
        let known = self.origins.iter().rev().filter(|one| one.frame < frame);
        let mut known = known.filter_map(|one| Some((one.frame, one.params.clone()?)));
        known.next().unwrap_or((0, self.created.params.clone()))
    }

    /// The frame that holds the values of the environment.
    pub fn env_frame(&self) -> u64 {
        let holds = |origin: &&ParamsSource| origin.env.is_some();
        let last = self.origins.iter().rev().find(holds);
        last.map_or(0, |origin| origin.frame)
    }

    /// The steps of the run that begin again with one: those that depend on it, and all that was
    /// stopped or skipped because the run failed.
    pub fn restarted_with(&self, from: u32) -> BTreeSet<u32> {
        let mut found = BTreeSet::new();
        let Some(root) = self.scopes.first() else {
            return found;
        };
        let mut open = vec![from];
        while let Some(step) = open.pop() {
            if found.insert(step) {
                open.extend(root.shape.dependants(step));
            }
        }
        found.extend(root.closed_steps());
        let begun = |at: &u32| {
            let step = root.steps.get(*at as usize);
            step.is_some_and(|step| step.status != StepStatus::Pending)
        };
        found.retain(begun);
        found
    }

    /// The first step that failed and does not begin again with a set of steps. With it the run
    /// would still have a step that failed.
    pub fn failure_outside(&self, restarted: &BTreeSet<u32>) -> Option<u32> {
        let root = self.scopes.first()?;
        let steps = (0u32..).zip(&root.steps);
        let mut failed = steps.filter(|(_, step)| step.status == StepStatus::Failed);
        failed.find_map(|(at, _)| (!restarted.contains(&at)).then_some(at))
    }

    pub(super) fn may_branch(&self, frame: &Frame, branch: &BranchCreated) -> bool {
        frame.scope.is_empty()
            && frame.seq == branch.fork_position
            && frame.stream.kind() == "branch"
            && frame.stream.name() == branch.branch_id
            && frame.stream != self.stream
    }

    pub(super) fn may_resume(&self, frame: &Frame, resumed: &RunResumed) -> bool {
        let ended = self.status().is_terminal();
        let paused = self.paused().map(|pause| frame.at.millis_since(pause.at));
        if resumed.paused_ms != paused {
            return false;
        }
        match &resumed.from {
            None if ended => self.opens_when_resumed() && self.to_ask_again(None).is_none(),
            None => self.parked || paused.is_some(),
            Some(from) if is_address(from) => self.may_ask_again(from),
            Some(from) if is_step_object(from) => self.has_unseen_triggers(),
            Some(from) => {
                let root = self.scopes.first();
                let step = root.and_then(|root| root.shape.position(from));
                let whole = |step| self.failure_outside(&self.restarted_with(step)).is_none();
                (self.parked || ended) && step.is_some_and(whole)
            }
        }
    }

    /// A branch goes on from here once a person says so. Attempts under way count as lost: tasks
    /// are sent out again with what is recorded of them, webhooks that were not answered begin
    /// afresh, under an id of the branch.
    pub(super) fn apply_branch(&mut self, frame: &Frame, branch: &BranchCreated) {
        self.origins.push(ParamsSource {
            frame: frame.seq,
            params: branch.params.clone(),
            env: branch.env.clone(),
        });
        if let Some(params) = &branch.params {
            self.created.params = params.clone();
        }
        if let Some(env) = &branch.env {
            self.created.env.clone_from(env);
        }
        self.created.rules = branch.rules;
        self.stream = frame.stream.clone();
        self.park(frame, branch);
        if branch.restarts || branch.definition.is_some() {
            let root = self.scopes.first().into_iter().flat_map(|root| &root.steps);
            let running = (0u32..)
                .zip(root)
                .filter(|(_, step)| step.status == StepStatus::Running);
            for step in running.map(|(at, _)| at).collect::<Vec<_>>() {
                self.reset(frame, StepKey::of(0, step));
            }
            self.restart_responder_tasks(frame);
        } else {
            self.reset_in_flight_work(frame);
        }
        if let Some(outline) = branch.definition.as_ref().and_then(|definition| {
            // What does not hang together is refused before (`check`).
            Outline::from_definition(definition).ok()
        }) {
            self.redefine(outline, branch.digest.clone());
            self.redefine_worlds(frame);
        }
    }

    fn park(&mut self, frame: &Frame, branch: &BranchCreated) {
        (self.parked, self.paused) = (true, None);
        self.suppression = self.suppression.forked(branch.effects);
        self.fork = Some(ForkPoint {
            parent: branch.parent_run_id.clone(),
            position: frame.seq,
            by: branch.by.clone(),
            at: frame.at,
        });
    }

    fn reset_in_flight_work(&mut self, frame: &Frame) {
        for at in self.under_way() {
            if let Some(task) = self.task_mut(at.step, at.item) {
                task.mark_lost(frame.seq);
            }
            self.reclassify_task(at.step, at.item);
        }
        self.ask_reviews_again();
        self.ask_for_data_again();
        self.count_suspended();
        self.forget_notices();
        for scope in 0..u32::try_from(self.scopes.len()).unwrap_or(u32::MAX) {
            let steps = self
                .scope(scope)
                .map_or(&[][..], |scope| scope.steps.as_slice());
            let sent = |at: StepKey, step: &Step| {
                let unanswered = matches!(
                    step.phase,
                    Phase::Begun
                        | Phase::Sent { .. }
                        | Phase::Backoff { .. }
                        | Phase::ToResend { .. }
                );
                let is_webhook = matches!(self.work(at), Some(StepWork::Webhook(_)));
                is_webhook && unanswered && step.status == StepStatus::Running
            };
            let keys = (0u32..).map(|step| StepKey::of(scope, step));
            let sent = keys.zip(steps).filter(|(at, step)| sent(*at, step));
            for at in sent.map(|(at, _)| at).collect::<Vec<_>>() {
                self.reset(frame, at);
            }
        }
    }

    /// Goes on under another definition: steps of the run are found again by their ids, and those
    /// that have ended stay as they are.
    fn redefine(&mut self, outline: Arc<Outline>, digest: Option<String>) {
        let shape = Arc::clone(outline.root());
        self.outline = outline;
        self.created.digest = digest.unwrap_or_default();
        self.todo.clear();
        let Some(root) = self.scopes.first_mut() else {
            return;
        };
        let before = std::mem::replace(
            root,
            Scope::pending(String::new(), None, Arc::clone(&shape), true),
        );
        root.status = before.status;
        root.started = before.started;
        root.ended.clone_from(&before.ended);
        let mut moved = BTreeMap::new();
        for (at, step) in (0u32..).zip(before.steps) {
            let id = before.shape.step(at).map(|plan| plan.id.as_str());
            let Some(place) = id.and_then(|id| shape.position(id)) else {
                continue;
            };
            moved.insert(at, place);
            if let Some(new) = root.steps.get_mut(place as usize) {
                *new = step;
            }
        }
        self.move_references(&moved);
        self.recount_calls();
        self.recount(0);
        let own = self.scopes.first().map(|root| root.status);
        if own == Some(RunStatus::Pending) {
            self.todo.insert(Todo::Start);
        }
    }

    /// Positions in the run that were noted elsewhere.
    fn move_references(&mut self, moved: &BTreeMap<u32, u32>) {
        let place = |at: StepKey| match at {
            StepKey::Of { scope: 0, step } => moved
                .get(&step)
                .map_or(StepKey::Gone, |place| StepKey::of(0, *place)),
            StepKey::Of { .. } | StepKey::Responder { .. } | StepKey::Gone => at,
        };
        self.produced.retain(|_, at| {
            *at = place(*at);
            *at != StepKey::Gone
        });
        for scope in &mut self.scopes {
            scope.parent = scope.parent.map(place);
        }
        let failed = self.failing.as_mut().filter(|failing| failing.scope == 0);
        if let Some(failing) = failed {
            failing.step = failing.step.and_then(|step| moved.get(&step).copied());
        }
    }

    pub(super) fn apply_resumed(&mut self, frame: &Frame, resumed: &RunResumed) {
        let from = resumed.from.as_ref().and_then(|from| {
            let root = self.scopes.first()?;
            match is_address(from) || is_step_object(from) {
                true => Some(root.closed_steps().collect()),
                false => Some(self.restarted_with(root.shape.position(from)?)),
            }
        });
        let ended = self.status().is_terminal();
        if self.parked || ended {
            self.deadline_from = frame.at;
        }
        if ended {
            self.restart_responder_tasks(frame);
        }
        if let Some(responding) = &mut self.responding {
            responding.take_up();
        }
        self.postpone(resumed.paused_ms.unwrap_or_default());
        (self.parked, self.paused) = (false, None);
        self.resumed = frame.seq;
        let Some(from) = from else { return };
        self.go_on(from);
    }

    /// The run goes on, and these of its steps begin again.
    pub(super) fn go_on(&mut self, resetting: BTreeSet<u32>) {
        (self.stopped, self.failing) = (None, None);
        self.resetting = resetting;
        if let Some(root) = self.scopes.first_mut()
            && root.status.is_terminal()
        {
            root.status = RunStatus::Running;
            root.ended = None;
        }
        self.recount(0);
    }

    pub(super) fn apply_reset(&mut self, frame: &Frame, at: StepKey, _: &StepReset) {
        if let StepKey::Of { scope: 0, step } = at {
            self.resetting.remove(&step);
        }
        self.reset(frame, at);
    }

    /// A step is as if it had not begun, but for its attempts, what a person set, and the data that it
    /// waited for.
    fn reset(&mut self, frame: &Frame, at: StepKey) {
        self.todo.remove(&Todo::Step(at));
        self.todo.remove(&Todo::Effect(at));
        let children = (0u32..).zip(&self.scopes);
        let held = children.filter(|(_, child)| child.parent == Some(at));
        for child in held.map(|(child, _)| child).collect::<Vec<_>>() {
            self.abandon(frame, child);
        }
        let given = self.next_resumption(at);
        if let Some(given) = &given {
            self.keep_resumption(at, given);
        }
        if let Some(step) = self.step_mut(at) {
            let open = step.begin_again();
            step.resumption = given.map(Box::new);
            self.retries.remove(&at);
            self.spend.close_all(&open);
            self.end_announced(&open);
        }
        self.count_suspended();
        self.forget_notices();
        self.recount(at.scope());
    }

    /// An inline child of a step that begins again, and all inside it, is of no consequence.
    pub(super) fn abandon(&mut self, frame: &Frame, at: u32) {
        // A scope is opened after the one around it, so one pass in order finds all inside.
        let mut inside = BTreeSet::from([at]);
        for (child, scope) in (0u32..).zip(&self.scopes).skip(at as usize) {
            if scope
                .parent
                .is_some_and(|parent| inside.contains(&parent.scope()))
            {
                inside.insert(child);
            }
        }
        for scope in inside {
            self.abandon_one(frame, scope);
        }
    }

    fn abandon_one(&mut self, frame: &Frame, at: u32) {
        let Some(scope) = self.scopes.get_mut(at as usize) else {
            return;
        };
        if !scope.abandoned {
            scope.abandon(frame.seq, frame.at);
            let path = scope.path.clone();
            let steps = scope.steps.clone();
            if self.by_path.get(&path) == Some(&at) {
                self.by_path.remove(&path);
            }
            for (step, held) in (0u32..).zip(&steps) {
                self.todo.remove(&Todo::Step(StepKey::of(at, step)));
                self.todo.remove(&Todo::Effect(StepKey::of(at, step)));
                self.spend.close_all(held);
                self.end_announced(held);
            }
            self.todo.remove(&Todo::End { scope: at });
            self.retries.retain(|key| key.scope() != at);
        }
    }

    /// Works out again what the steps of a scope wait for.
    fn recount(&mut self, at: u32) {
        let Some(scope) = self.scopes.get_mut(at as usize) else {
            return;
        };
        let settled: Vec<bool> = scope.steps.iter().map(Step::is_settled).collect();
        let open = |need: &&u32| !settled.get(**need as usize).copied().unwrap_or(true);
        for (step, plan) in scope.steps.iter_mut().zip(&scope.shape.plan.steps) {
            step.waiting_on = plan.needs.iter().filter(open).count();
        }
        scope.unsettled = settled.iter().filter(|settled| !**settled).count();
        let has_begun = scope.status == RunStatus::Running;
        let ends = has_begun && scope.unsettled == 0;
        let steps: Vec<(StepKey, bool, Todo)> = (0u32..)
            .map(|step| StepKey::of(at, step))
            .zip(&scope.steps)
            .filter(|(_, step)| step.status == StepStatus::Pending)
            .map(|(step, held)| {
                let ready = has_begun && held.waiting_on == 0;
                (step, ready, super::apply::to_do(scope, step))
            })
            .collect();
        for (step, ready, todo) in steps {
            self.todo.remove(&Todo::Step(step));
            self.todo.remove(&Todo::Effect(step));
            if ready {
                self.todo.insert(todo);
            }
        }
        match ends {
            true => self.todo.insert(Todo::End { scope: at }),
            false => self.todo.remove(&Todo::End { scope: at }),
        };
    }

    pub(super) fn may_overlay(&self, step: &Step, set: &OverlaySet) -> bool {
        let output = step.output.as_ref();
        step.status == StepStatus::Complete
            && output.is_some_and(|held| held.json.as_str().starts_with('{'))
            && !crate::life::reserved::is_reserved(&set.field)
    }

    pub(super) fn apply_overlay(&mut self, frame: &Frame, at: StepKey, set: &OverlaySet) {
        self.overlays.insert(frame.seq, set.value.clone());
        if let Some(step) = self.step_mut(at) {
            let place = Reference {
                frame: frame.seq,
                path: "/value".to_owned(),
            };
            let overlaid = OverlayValue {
                place,
                value: set.value.clone(),
            };
            step.overlay.insert(set.field.clone(), overlaid);
            step.apply_overlay();
        }
    }

    /// Params, values of the environment, overlays and data that a step waited for, by the frame that
    /// holds them.
    pub(super) fn supplied_value(&self, reference: &Reference) -> Option<serde_json::Value> {
        let overlay = ["/value", "/overlay", "/data"];
        let overlay = overlay
            .iter()
            .find_map(|name| reference.path.strip_prefix(name));
        if let Some(path) = overlay {
            return self.overlays.get(&reference.frame)?.pointer(path);
        }
        let origin = self
            .origins
            .iter()
            .find(|one| one.frame == reference.frame)?;
        if let Some(path) = reference.path.strip_prefix("/params") {
            return origin.params.as_ref()?.pointer(path);
        }
        let name = reference
            .path
            .strip_prefix("/env/")?
            .strip_suffix("/value")?;
        match origin.env.as_ref()?.get(name)? {
            EnvValue::Value(value) => Some(serde_json::Value::from(value.as_str())),
            EnvValue::Secret => None,
        }
    }
}

impl StoredOutput {
    /// The place of a part of the value; nothing if it is not in one place.
    pub fn locate(&self, pointer: &str) -> Option<Reference> {
        let within = |place: &Reference, rest: &str| Reference {
            frame: place.frame,
            path: format!("{}{rest}", place.path),
        };
        if self.overlaid.is_empty() {
            return Some(within(&self.location, pointer));
        }
        let segments = pointer.strip_prefix('/')?;
        let (field, rest) = match segments.find('/') {
            Some(end) => segments.split_at(end),
            None => (segments, ""),
        };
        match self.overlaid.get(&super::unescape(field)) {
            Some(place) => Some(within(place, rest)),
            None => Some(within(&self.location, pointer)),
        }
    }
}
