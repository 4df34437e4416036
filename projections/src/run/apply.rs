//! Applies a frame to the state, and maintains the set of things to decide.

use std::collections::BTreeMap;

use ktsu_ledger::event::plan::{StepWork, Webhooks};
use ktsu_ledger::event::{
    ContinueReason, PersonEvent, RecomputeEvent, Reference, RunCompleted, RunEvent, RunFailed,
    RunStarted, SkipReason, StepEvent, TimerKind, Verdict, WorkerEvent,
};
use ktsu_ledger::{CanonicalJson, Event, Frame};

use super::notices::Notice;
use super::steer::StopKind;
use super::transition::{TransitionError, TransitionTarget};
use super::{
    Phase, RunFailure, RunState, RunStatus, Scope, ScopeEnd, Step, StepKey, StepStatus,
    StoredOutput, Todo,
};
use crate::life::tasks::Tasks;

/// The first decision rules under which the failure of a run whose time is over names its limit.
const NAMED_TIMEOUT_RULES: u32 = 6;

impl RunState {
    /// Takes a frame, after checking it.
    ///
    /// # Errors
    /// [`TransitionError`]; the state is then unchanged.
    pub fn apply(&mut self, frame: &Frame) -> Result<(), TransitionError> {
        let target = self.check_transition(frame)?;
        let until = self.moved_by();
        match (&frame.event, target) {
            (Event::Run(event), TransitionTarget::Scope(scope)) => {
                self.apply_run(frame, scope, event)
            }
            (Event::Run(RunEvent::Started(started)), TransitionTarget::Opens(at)) => {
                self.open_child(frame, at, started);
            }
            (Event::Worker(WorkerEvent::Dispatched(sent)), TransitionTarget::ResponderTask) => {
                if let Some(step) = self.begin_ask(frame, sent) {
                    self.apply_worker(frame, step, &WorkerEvent::Dispatched(sent.clone()));
                }
            }
            (Event::Run(RunEvent::Started(started)), TransitionTarget::ResponderTask) => {
                if let Some(step) = self.begin_responder_run(frame, started) {
                    self.open_child(frame, step, started);
                }
            }
            (Event::Recompute(RecomputeEvent::Compared(compared)), _) => {
                self.compared = Some(compared.status);
            }
            (Event::Run(RunEvent::TimerFired(fired)), TransitionTarget::Step(at))
                if fired.timer == TimerKind::Review =>
            {
                self.time_out_review(frame, at);
            }
            (Event::Run(RunEvent::TimerFired(fired)), TransitionTarget::Step(at))
                if fired.timer == TimerKind::Suspend =>
            {
                self.change_suspension(frame, at, |one| one.time_out(frame.seq));
            }
            (Event::Run(_), TransitionTarget::Step(at)) => self.retry_now(frame, at),
            (Event::Step(event), TransitionTarget::Step(at)) => {
                self.apply_step(frame, at, event);
            }
            (Event::Item(event), TransitionTarget::Step(at)) => {
                self.apply_item(frame, at, event);
            }
            (Event::Agent(event), TransitionTarget::Step(at)) => {
                self.apply_agent(frame, at, event);
            }
            (Event::Worker(event), TransitionTarget::Step(at)) => {
                self.apply_worker(frame, at, event);
            }
            (Event::Webhook(event), TransitionTarget::Step(webhook))
                if let Some(request) = event.approval() =>
            {
                let notice = Notice { request, webhook };
                self.take_notice(frame, notice, event);
            }
            (Event::Webhook(event), TransitionTarget::Step(at)) => {
                self.apply_webhook(frame, at, event);
            }
            (Event::Person(PersonEvent::OverlaySet(set)), TransitionTarget::Step(at)) => {
                self.apply_overlay(frame, at, set);
            }
            (Event::Person(PersonEvent::ReviewDecided(decided)), TransitionTarget::Step(at)) => {
                self.decide_review(frame, at, decided);
            }
            (Event::Person(PersonEvent::SuspendResumed(resumed)), TransitionTarget::Step(at)) => {
                self.change_suspension(frame, at, |one| one.resume(frame.seq, resumed));
            }
            _ => {}
        }
        self.end_if_stopped(frame);
        self.replies.pass(frame);
        self.apply_to_worlds(frame, until);
        self.next_seq = frame.seq + 1;
        self.head = frame.hash;
        self.at = frame.at;
        Ok(())
    }

    /// The message for a run whose time is over; under rules from [`NAMED_TIMEOUT_RULES`] on, with
    /// the time that it had.
    fn timeout_message(&self) -> String {
        let words = "the run took longer than its model_policy.timeout_s";
        let limit = self.outline.root().plan.policy.timeout_ms;
        match limit.filter(|_| self.rules() >= NAMED_TIMEOUT_RULES) {
            Some(ms) if ms % 1000 == 0 => format!("{words} of {}", ms / 1000),
            Some(ms) => {
                let seconds = format!("{}.{:03}", ms / 1000, ms % 1000);
                format!("{words} of {}", seconds.trim_end_matches('0'))
            }
            None => words.to_owned(),
        }
    }

    fn apply_run(&mut self, frame: &Frame, scope: u32, event: &RunEvent) {
        match event {
            RunEvent::Started(_) => {
                self.todo.remove(&Todo::Start);
                self.begin_scope(frame, scope);
            }
            RunEvent::Completed(completed) => self.complete_scope(frame, scope, completed),
            RunEvent::Failed(failed) => self.fail_scope(frame, scope, failed),
            RunEvent::TimerFired(fired) if fired.timer == TimerKind::RunTimeout => {
                self.fail(RunFailure {
                    seq: frame.seq,
                    scope,
                    step: None,
                    code: "run_timeout".to_owned(),
                    message: self.timeout_message(),
                    within: None,
                });
            }
            RunEvent::Resumed(resumed) => self.apply_resumed(frame, resumed),
            RunEvent::Paused(word) => self.pause(frame, word),
            RunEvent::Cancelled(word) => self.stop(frame, StopKind::Cancel, word),
            RunEvent::Terminated(word) => self.stop(frame, StopKind::Terminate, word),
            RunEvent::Branched(branch) => self.apply_branch(frame, branch),
            RunEvent::ClockJumped(jumped) => {
                self.postpone(jumped.forward_ms.unwrap_or_default());
            }
            RunEvent::Continued(again) if again.why == ContinueReason::Idle => {
                self.idle = Some(frame.seq);
            }
            RunEvent::Created(_) | RunEvent::Continued(_) | RunEvent::TimerFired(_) => {}
        }
    }

    fn begin_scope(&mut self, frame: &Frame, at: u32) {
        let Some(scope) = self.scopes.get_mut(at as usize) else {
            return;
        };
        scope.status = RunStatus::Running;
        scope.started = Some(frame.seq);
        if scope.steps.is_empty() {
            self.todo.insert(Todo::End { scope: at });
        }
        let ready: Vec<Todo> = (0u32..)
            .zip(&scope.steps)
            .filter(|(_, step)| step.waiting_on == 0)
            .map(|(step, _)| to_do(scope, StepKey::of(at, step)))
            .collect();
        self.todo.extend(ready);
    }

    fn open_child(&mut self, frame: &Frame, at: StepKey, started: &RunStarted) {
        let shape = started
            .plan
            .as_deref()
            .and_then(|key| self.outline.workflow(key))
            .cloned();
        let child = u32::try_from(self.scopes.len()).unwrap_or(u32::MAX);
        let (Some(shape), Some(holder)) = (shape, self.step_mut(at)) else {
            return;
        };
        let invoked = holder.tasks.is_some();
        if !invoked {
            holder.phase = Phase::Child { scope: child };
            self.todo.remove(&Todo::Step(at));
        }
        let webhooks = started.webhooks == Some(Webhooks::Execute);
        let opened = Scope::pending(frame.scope.clone(), Some(at), shape, webhooks);
        self.by_path.insert(frame.scope.clone(), child);
        self.scopes.push(opened);
        self.begin_scope(frame, child);
        if invoked {
            self.begin_invoked(at, child, started);
        }
    }

    fn complete_scope(&mut self, frame: &Frame, at: u32, completed: &RunCompleted) {
        let output = self.stored_output(
            frame,
            completed.output.as_ref(),
            completed.output_from.as_ref(),
        );
        self.end_scope(frame, at, RunStatus::Complete, output);
        let held = self.scope(at);
        let (parent, invoked) =
            held.map_or((None, None), |held| (held.parent, held.invoked.clone()));
        if let Some((parent, invoked)) = parent.zip(invoked) {
            self.end_invoked(frame, parent, &invoked);
        } else if let Some(at) = self.scope(at).and_then(|scope| scope.parent)
            && !at.is_of_responder()
        {
            self.todo.insert(Todo::Step(at));
        }
    }

    fn fail_scope(&mut self, frame: &Frame, at: u32, failed: &RunFailed) {
        self.end_scope(frame, at, RunStatus::Failed, None);
        if self.failing.is_none() {
            let within = self.item_around(at, false);
            self.fail(RunFailure {
                seq: frame.seq,
                scope: at,
                step: None,
                code: failed.code.clone(),
                message: failed.message.clone(),
                within,
            });
        }
    }

    pub(super) fn end_scope(
        &mut self,
        frame: &Frame,
        at: u32,
        status: RunStatus,
        output: Option<StoredOutput>,
    ) {
        self.todo.remove(&Todo::End { scope: at });
        if let Some(scope) = self.scopes.get_mut(at as usize) {
            scope.status = status;
            scope.ended = Some(ScopeEnd {
                seq: frame.seq,
                at: frame.at,
                output,
            });
        }
    }

    fn apply_step(&mut self, frame: &Frame, at: StepKey, event: &StepEvent) {
        match event {
            StepEvent::Started(started) => {
                let keeps_input =
                    matches!(self.work(at), Some(StepWork::Workflow(_))) || started.items.is_some();
                let is_agent = matches!(self.work(at), Some(StepWork::Agent(_)));
                let Some(step) = self.step_mut(at) else {
                    return;
                };
                step.status = StepStatus::Running;
                step.phase = Phase::Begun;
                step.attempt = started.attempt;
                step.started = Some(frame.seq);
                if keeps_input {
                    step.input.clone_from(&started.input);
                }
                if is_agent {
                    let before = started.attempt.saturating_sub(1);
                    let tasks = Tasks::begin(started.items, frame.seq, before);
                    step.tasks = Some(Box::new(tasks));
                    self.update_todo(at);
                }
            }
            StepEvent::ReservedEvaluated(one) => {
                if let Some(task) = self.task_mut(at, one.item) {
                    task.evaluated += 1;
                    task.fails_run |= one.verdict == Verdict::FailRun;
                    task.last = frame.seq;
                }
            }
            StepEvent::OutputChecked(checked) => {
                if let Some(task) = self.task_mut(at, checked.item) {
                    task.checked = Some(checked.valid);
                    task.last = frame.seq;
                } else if let Some(step) = self.step_mut(at) {
                    step.phase = Phase::Checked {
                        valid: checked.valid,
                        seq: frame.seq,
                    };
                }
            }
            StepEvent::Noted(note) => {
                if let Some(task) = self.task_mut(at, note.item) {
                    task.notes += 1;
                    task.last = frame.seq;
                }
            }
            StepEvent::Commanded(command) => {
                if let Some(task) = self.task_mut(at, command.item) {
                    task.commands += 1;
                    task.last = frame.seq;
                }
                self.request_review(frame, at, command);
                self.request_suspension(frame, at, command);
                self.request_invoke(frame, at, command);
                self.reclassify_task(at, command.item);
            }
            StepEvent::CommandsDeferred(_)
            | StepEvent::CommandsDiscarded(_)
            | StepEvent::ReviewRequested(_) => self.apply_review(frame, at, event),
            StepEvent::SuspendRequested(asked) => {
                self.change_suspension(frame, at, |one| {
                    one.ask(frame.seq, frame.at, asked);
                });
            }
            StepEvent::CommandCompleted(done) => {
                if let Some(task) = self.task_mut(at, done.item) {
                    task.complete_command();
                    task.last = frame.seq;
                }
                self.reclassify_task(at, done.item);
            }
            StepEvent::Completed(done) => {
                let held = match self.agents_output(frame, at, done) {
                    Some(held) => Some(held),
                    None => {
                        self.stored_output(frame, done.output.as_ref(), done.output_from.as_ref())
                    }
                };
                self.produced.insert(frame.seq, at);
                if let Some(held) = &held {
                    self.produced.entry(held.location.frame).or_insert(at);
                }
                let replaced = self.overlay_of_review(at);
                if let Some(step) = self.step_mut(at) {
                    step.output = held;
                    step.overlay.extend(replaced);
                    step.apply_overlay();
                }
                self.settle(frame, at, StepStatus::Complete);
            }
            StepEvent::Reset(reset) => self.apply_reset(frame, at, reset),
            StepEvent::Failed(failed) => {
                let tasks = self.step(at).and_then(|step| step.tasks.as_deref());
                let fatal = tasks.is_some_and(Tasks::fail_run);
                if let Some(step) = self.step_mut(at) {
                    step.stopped = failed.code == "stopped";
                }
                self.settle(frame, at, StepStatus::Failed);
                if self.failing.is_none() {
                    let within = self.item_around(at.scope(), fatal);
                    self.fail(RunFailure {
                        seq: frame.seq,
                        scope: at.scope(),
                        step: at.position(),
                        code: failed.code.clone(),
                        message: failed.message.clone(),
                        within,
                    });
                }
            }
            StepEvent::Skipped(skipped) => {
                if let Some(step) = self.step_mut(at) {
                    step.skipped = Some(skipped.reason);
                    if skipped.reason == SkipReason::AgentSkipped {
                        step.skip_detail.clone_from(&skipped.detail);
                    }
                }
                self.settle(frame, at, StepStatus::Skipped);
            }
        }
    }

    /// A step has ended: who waited for it may now be ready.
    fn settle(&mut self, frame: &Frame, at: StepKey, status: StepStatus) {
        self.todo.remove(&Todo::Step(at));
        self.todo.remove(&Todo::Effect(at));
        let StepKey::Of {
            scope: holder,
            step,
        } = at
        else {
            return;
        };
        let Some(scope) = self.scopes.get_mut(holder as usize) else {
            return;
        };
        scope.unsettled = scope.unsettled.saturating_sub(1);
        if let Some(settled) = scope.steps.get_mut(step as usize) {
            match settled.phase {
                Phase::Backoff { .. } => {
                    self.retries.remove(&at);
                }
                Phase::Sent { seq, .. } => {
                    self.announced.remove(&seq);
                }
                Phase::Begun
                | Phase::Checked { .. }
                | Phase::Delivered { .. }
                | Phase::Undelivered { .. }
                | Phase::ToResend { .. }
                | Phase::Child { .. } => {}
            }
            settled.status = status;
            settled.ended = Some(frame.seq);
            settled.phase = Phase::Begun;
            if let Some(tasks) = &mut settled.tasks {
                tasks.close();
            }
        }
        let shape = scope.shape.clone();
        for dependant in shape.dependants(step) {
            if let Some(waiting) = scope.steps.get_mut(*dependant as usize) {
                waiting.waiting_on = waiting.waiting_on.saturating_sub(1);
                if waiting.waiting_on == 0 && waiting.status == StepStatus::Pending {
                    let dependant = StepKey::of(holder, *dependant);
                    self.todo.insert(to_do(scope, dependant));
                }
            }
        }
        if scope.unsettled == 0 {
            self.todo.insert(Todo::End { scope: holder });
        }
    }

    pub(super) fn fail(&mut self, failing: RunFailure) {
        // What an item does not end goes on.
        if failing.within.is_none() {
            self.retries.clear();
        }
        self.failing = Some(failing);
    }

    /// The value of an output and where it stands, whether it is in this frame or an earlier one.
    fn stored_output(
        &self,
        frame: &Frame,
        output: Option<&CanonicalJson>,
        from: Option<&Reference>,
    ) -> Option<StoredOutput> {
        if let Some(json) = output {
            return Some(StoredOutput {
                json: json.clone(),
                location: Reference {
                    frame: frame.seq,
                    path: "/output".to_owned(),
                },
                overlaid: BTreeMap::new(),
            });
        }
        let place = from?;
        Some(StoredOutput {
            json: self.shared_value(place)?,
            location: place.clone(),
            overlaid: BTreeMap::new(),
        })
    }

    /// The value at a place, shared where it is a whole output.
    fn shared_value(&self, place: &Reference) -> Option<CanonicalJson> {
        if let Some(held) = self
            .produced(place.frame)
            .filter(|held| held.location == *place)
        {
            return Some(held.json.clone());
        }
        if place.path == "/output" {
            let mut ends = self
                .scopes
                .iter()
                .rev()
                .filter_map(|scope| scope.ended.as_ref());
            if let Some(end) = ends.find(|end| end.seq == place.frame) {
                return end.output.as_ref().map(|held| held.json.clone());
            }
        }
        CanonicalJson::from_value(&self.value_at(place)?).ok()
    }

    pub(super) fn step_mut(&mut self, at: StepKey) -> Option<&mut Step> {
        match at {
            StepKey::Of { scope, step } => {
                let scope = self.scopes.get_mut(scope as usize)?;
                scope.steps.get_mut(step as usize)
            }
            StepKey::Responder { .. } => Some(&mut self.responder_tasks.get_mut(at)?.step),
            StepKey::Gone => None,
        }
    }

    /// The work of a step: its own, or that of the step that it was resumed to.
    pub fn work(&self, at: StepKey) -> Option<&StepWork> {
        match at {
            StepKey::Of { scope, .. } => {
                let position = self.acting_position(at)?;
                Some(&self.scope(scope)?.shape.step(position)?.work)
            }
            StepKey::Responder { .. } => Some(&self.responder_task(at)?.work),
            StepKey::Gone => None,
        }
    }
}

/// The entry of a step of a scope in the set of things to decide.
pub(super) fn to_do(scope: &Scope, at: StepKey) -> Todo {
    let plan = at.position().and_then(|step| scope.shape.step(step));
    match plan.map(|step| &step.work) {
        Some(StepWork::Webhook(_) | StepWork::Agent(_)) => Todo::Effect(at),
        Some(StepWork::Transform(_) | StepWork::Workflow(_)) | None => Todo::Step(at),
    }
}
