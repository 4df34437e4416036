//! The rules of which frame may follow: the transition tables of runs, steps and webhooks.
//!
//! The check changes nothing and costs the same at frame ten and at frame ten thousand. Its result
//! says where the frame applies, so that nothing is looked up twice.

use ktsu_ledger::event::plan::StepWork;
use ktsu_ledger::event::{
    AgentEvent, ApprovalDecided, ContinueReason, Decision, ItemEvent, PersonEvent, RecomputeEvent,
    RunEvent, StepEvent, TimerFired, TimerKind, WebhookEvent, WorkerEvent, is_address,
};
use ktsu_ledger::{Cause, Event, Frame};

use super::notices::Notice;
use super::{
    Outline, Phase, PlanError, RunState, RunStatus, Scope, Step, StepKey, StepStatus, steer,
};
use crate::life::invoked::InvokedPath;
use crate::life::refusal::holds;
use crate::life::step::{is_stopped, task_of};
use crate::life::{self, Allowed, Refusal, Rule};

/// The reason why a frame does not follow from the state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TransitionError {
    /// A run begins with `run.created`, at number 0, in no scope.
    #[error("a run begins with run.created at number 0")]
    NotARun,
    /// Another stream's frame.
    #[error("the frame belongs to another stream")]
    Stream,
    /// A gap, or a number that was used.
    #[error("expected number {expected}, got {got}")]
    Sequence {
        /// The number that comes next.
        expected: u64,
        /// The frame's.
        got: u64,
    },
    /// `prev` is not the hash of the frame before.
    #[error("prev does not name the frame before")]
    Chain,
    /// Time ran backwards.
    #[error("earlier than the frame before")]
    Time,
    /// A cause that is not an earlier frame.
    #[error("cause {0} is not an earlier frame")]
    Cause(u64),
    /// No such scope, or one that exists already.
    #[error("no inline child runs at {0:?}")]
    Scope(String),
    /// No such step.
    #[error("there is no step {0:?} here")]
    Step(String),
    /// A table has no such arm.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The definition a branch goes on with is none.
    #[error(transparent)]
    Definition(#[from] PlanError),
    /// An event about a world, and the definition has none.
    #[error("the run loads no worlds")]
    NoWorlds,
    /// An event about a world that does not follow.
    #[error(transparent)]
    World(#[from] crate::world::responding::WorldRefusal),
    /// A type this version does not know; the stream is read-only here.
    #[error("{0} is unknown to this version of ktsu, for which the stream is read-only")]
    Unknown(String),
}

/// The place where a frame applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TransitionTarget {
    /// To a scope.
    Scope(u32),
    /// To a scope that begins with it, held by a step.
    Opens(StepKey),
    /// To a step, or to what a responder asked.
    Step(StepKey),
    /// To what a responder asks or runs, which begins with it.
    ResponderTask,
    /// To nothing that is folded here.
    Nothing,
}

impl RunState {
    /// Checks a frame without taking it.
    ///
    /// # Errors
    /// [`TransitionError`] says why it does not follow.
    pub fn check(&self, frame: &Frame) -> Result<(), TransitionError> {
        self.check_transition(frame).map(|_| ())
    }

    pub(super) fn check_transition(
        &self,
        frame: &Frame,
    ) -> Result<TransitionTarget, TransitionError> {
        self.check_position(frame)?;
        let waits = self.paused().is_some() && steer::starts_work(&frame.event);
        self.require(holds(Rule::Paused, !waits), frame, "the run", "paused")?;
        match &frame.event {
            Event::Run(event) => self.check_run(frame, event),
            Event::Recompute(event) => self.check_recompute(frame, event),
            Event::Worker(WorkerEvent::Dispatched(sent)) if self.begins_ask(sent) => {
                self.check_ask(frame, sent)
            }
            Event::World(event) => self.check_world(frame, event),
            Event::Foreign { .. } if frame.event.is_known() => self.check_kit_event(frame),
            Event::Step(_)
            | Event::Item(_)
            | Event::Agent(_)
            | Event::Worker(_)
            | Event::Webhook(_)
            | Event::Person(_) => self.check_of_step(frame),
            Event::Kv(_)
            | Event::Delivery(_)
            | Event::Eval(_)
            | Event::Store(_)
            | Event::Foreign { .. } => Err(TransitionError::Unknown(frame.event.kind().to_owned())),
        }
    }

    /// A frame about a step, or about what a responder asked: the table of its life.
    fn check_of_step(&self, frame: &Frame) -> Result<TransitionTarget, TransitionError> {
        let id = frame.event.task().map_or("", |(step, _)| step);
        let key = self.find(frame, id)?;
        let (state, work) = self.step_state(key, id)?;
        let at = StepAt { key, state };
        let allowed = match &frame.event {
            Event::Step(event) => self.check_step(at, work, event),
            Event::Item(event) => self.check_item(at, event),
            Event::Agent(event) => self.check_agent(at, event),
            Event::Worker(event) => self.check_worker(at, event),
            Event::Webhook(event) => self.check_webhook(at, work, event),
            Event::Person(event) => self.check_person(at, event),
            Event::Run(_)
            | Event::Recompute(_)
            | Event::World(_)
            | Event::Kv(_)
            | Event::Delivery(_)
            | Event::Eval(_)
            | Event::Store(_)
            | Event::Foreign { .. } => Ok(()),
        };
        self.require(allowed, frame, id, state.status.as_str())?;
        Ok(TransitionTarget::Step(key))
    }

    fn check_step(&self, at: StepAt<'_>, work: &StepWork, event: &StepEvent) -> Allowed {
        let (at, state) = (at.key, at.state);
        let stopped = self.stopped().is_some();
        let open = scope_of(self, at.scope())
            .is_some_and(|scope| is_open(scope) || (stopped && !scope.status.is_terminal()));
        holds(Rule::OpenScope, open)?;
        if matches!(event, StepEvent::Reset(_)) {
            let asked =
                matches!(at, StepKey::Of { scope: 0, step } if self.resetting().0.contains(&step));
            holds(Rule::Reset, asked || self.may_begin_again(at))?;
        }
        holds(Rule::Review, self.review_may(at, event))?;
        holds(Rule::Suspension, self.suspension_may(at, event))?;
        let never_begun =
            stopped && state.status == StepStatus::Pending && is_stopped(event, state);
        match never_begun {
            true => Ok(()),
            false => life::step::check(state, work, event, self.failing().is_some()),
        }
    }

    fn check_item(&self, at: StepAt<'_>, event: &ItemEvent) -> Allowed {
        at.is_running()?;
        let failing = self.failing().is_some();
        let tasks = at.state.tasks.as_deref().ok_or(Rule::ItemOrder)?;
        life::item::check(tasks, event, failing)
    }

    fn check_worker(&self, at: StepAt<'_>, event: &WorkerEvent) -> Allowed {
        at.is_running()?;
        holds(Rule::Failing, self.failing().is_none())?;
        let task = task_of(at.state, event.item()).ok_or(Rule::TaskOrder)?;
        task.check_worker(event)
    }

    fn check_webhook(&self, at: StepAt<'_>, work: &StepWork, event: &WebhookEvent) -> Allowed {
        if let Some(request) = event.approval() {
            let webhook = at.key;
            let may = self.may_change_notice(Notice { request, webhook }, event);
            return holds(Rule::Notice, may);
        }
        at.is_running()?;
        holds(Rule::WebhookOrder, matches!(work, StepWork::Webhook(_)))?;
        life::webhook::check(at.state, event)
    }

    fn check_person(&self, at: StepAt<'_>, event: &PersonEvent) -> Allowed {
        match event {
            PersonEvent::OverlaySet(set) => holds(Rule::Overlay, self.may_overlay(at.state, set)),
            PersonEvent::ReviewDecided(decided) => {
                let may = self.may_decide_review(at.key, decided);
                holds(Rule::Review, may)
            }
            PersonEvent::SuspendResumed(resumed) => {
                let may = self.may_resume_step(at.key, resumed);
                holds(Rule::Suspension, may)
            }
        }
    }

    /// Checks what holds for every frame: number, chain, time, causes.
    fn check_position(&self, frame: &Frame) -> Result<(), TransitionError> {
        let forks = frame.event.branched().is_some();
        if frame.stream != *self.stream() && !forks {
            return Err(TransitionError::Stream);
        }
        let (expected, got) = (self.next_seq, frame.seq);
        if got != expected {
            return Err(TransitionError::Sequence { expected, got });
        }
        if frame.prev != self.head {
            return Err(TransitionError::Chain);
        }
        if frame.at < self.at {
            return Err(TransitionError::Time);
        }
        let late = frame.cause.iter().find_map(|cause| match cause {
            Cause::Here(seq) if *seq >= got => Some(*seq),
            Cause::Here(_) | Cause::There(..) => None,
        });
        late.map_or(Ok(()), |seq| Err(TransitionError::Cause(seq)))
    }

    fn check_recompute(
        &self,
        frame: &Frame,
        event: &RecomputeEvent,
    ) -> Result<TransitionTarget, TransitionError> {
        let due = self.status().is_terminal() && !self.is_over() && frame.scope.is_empty();
        let compares = matches!(event, RecomputeEvent::Compared(_));
        let allowed = holds(Rule::Comparison, compares && due);
        self.require(allowed, frame, "the recompute", self.status().as_str())?;
        Ok(TransitionTarget::Scope(0))
    }

    fn check_run(
        &self,
        frame: &Frame,
        event: &RunEvent,
    ) -> Result<TransitionTarget, TransitionError> {
        if let (RunEvent::Started(started), false) = (event, frame.scope.is_empty()) {
            if let Some(path) = InvokedPath::parse(&frame.scope) {
                return self.check_invoked_start(frame, started, &path);
            }
            return self.check_child_start(frame, started.plan.as_deref());
        }
        if let RunEvent::Branched(branch) = event
            && let Some(Err(bad)) = branch.definition.as_ref().map(Outline::from_definition)
        {
            return Err(TransitionError::Definition(bad));
        }
        let at = self.scope_at(&frame.scope);
        let at = at.ok_or_else(|| TransitionError::Scope(frame.scope.clone()))?;
        let Some(scope) = scope_of(self, at) else {
            return Err(TransitionError::Scope(frame.scope.clone()));
        };
        let allowed = self.check_scope(frame, (at, scope), event);
        self.require(allowed, frame, "the run", scope.status.as_str())?;
        if let RunEvent::TimerFired(TimerFired {
            step: Some(step), ..
        }) = event
        {
            let at = self.find(frame, step)?;
            return Ok(TransitionTarget::Step(at));
        }
        Ok(TransitionTarget::Scope(at))
    }

    /// The table of a scope, and of what people say of the whole run.
    fn check_scope(&self, frame: &Frame, (at, scope): (u32, &Scope), event: &RunEvent) -> Allowed {
        let own = frame.scope.is_empty();
        let root = scope.parent.is_none();
        let live = !self.status().is_terminal() && !self.is_parked();
        match event {
            RunEvent::Created(_) => Err(Rule::ScopeOrder),
            RunEvent::Resumed(resumed) => {
                holds(Rule::Steering, own && self.may_resume(frame, resumed))
            }
            RunEvent::Paused(_) => holds(Rule::Steering, own && self.may_pause()),
            RunEvent::Cancelled(_) | RunEvent::Terminated(_) => {
                holds(Rule::Steering, own && self.may_stop())
            }
            RunEvent::Branched(branch) => holds(Rule::Steering, self.may_branch(frame, branch)),
            RunEvent::Started(_) => {
                holds(Rule::ScopeOrder, scope.status == RunStatus::Pending && root)
            }
            RunEvent::Continued(again) => {
                let idle = again.why != ContinueReason::Idle || self.worlds_are_idle();
                holds(Rule::ScopeOrder, live && root && idle)
            }
            RunEvent::ClockJumped(jumped) => {
                let since = frame.at.millis_since(self.at());
                let by = jumped.forward_ms.is_none_or(|by| by <= since);
                holds(Rule::Timer, live && root && by)
            }
            RunEvent::Completed(_) => {
                let ends = !root || self.responding().is_none() || self.is_ending();
                holds(Rule::Failing, self.failing().is_none())?;
                holds(
                    Rule::ScopeOrder,
                    is_open(scope) && scope.unsettled == 0 && ends,
                )
            }
            // A run that a person ends has no end of its own.
            RunEvent::Failed(_) => {
                let ends = self.stopped().is_none() || !root;
                let settled = !scope.status.is_terminal() && scope.unsettled == 0;
                holds(Rule::ScopeOrder, ends && settled)
            }
            RunEvent::TimerFired(fired) => holds(
                Rule::Timer,
                live && self.has_pending_timer(frame, at, fired),
            ),
        }
    }

    /// An inline child begins: its step has started, names that workflow, and holds no child yet.
    fn check_child_start(
        &self,
        frame: &Frame,
        plan: Option<&str>,
    ) -> Result<TransitionTarget, TransitionError> {
        if is_address(&frame.scope) && !frame.scope.contains('/') {
            return self.check_responder_run(frame, plan);
        }
        let unknown = || TransitionError::Scope(frame.scope.clone());
        let (parent, id) = frame.scope.rsplit_once('/').unwrap_or(("", &frame.scope));
        let scope = self.scope_at(parent).ok_or_else(unknown)?;
        let holder = scope_of(self, scope).ok_or_else(unknown)?;
        let step = holder.shape.position(id).ok_or_else(unknown)?;
        let at = StepKey::of(scope, step);
        let (state, work) = self.step_state(at, id)?;
        let names_it = matches!(work, StepWork::Workflow(child) if plan == Some(&child.workflow));
        let due = is_open(holder)
            && names_it
            && state.status == StepStatus::Running
            && state.phase == Phase::Begun;
        let allowed = holds(Rule::Child, due);
        self.require(allowed, frame, id, state.status.as_str())?;
        Ok(TransitionTarget::Opens(at))
    }

    fn has_pending_timer(&self, frame: &Frame, at: u32, fired: &TimerFired) -> bool {
        let Some(scope) = scope_of(self, at) else {
            return false;
        };
        if fired.responder.is_some() != (fired.timer == TimerKind::After) {
            return false;
        }
        match (fired.timer, &fired.step) {
            (TimerKind::RunTimeout, None) => {
                let times_out = self.outline.root().plan.policy.timeout_ms.is_some();
                let open = self.failing().is_none() && !self.status().is_terminal();
                scope.parent.is_none() && times_out && open
            }
            (TimerKind::Retry, Some(id)) => scope
                .shape
                .position(id)
                .and_then(|step| scope_of(self, at)?.steps.get(step as usize))
                .is_some_and(|step| matches!(step.phase, Phase::Backoff { .. })),
            (TimerKind::Review, Some(id)) => {
                let step = scope.shape.position(id);
                self.failing().is_none()
                    && step.is_some_and(|step| self.awaits_review(StepKey::of(at, step)))
            }
            (TimerKind::Suspend, Some(id)) => {
                let step = scope.shape.position(id);
                self.failing().is_none()
                    && step.is_some_and(|step| self.awaits_data(StepKey::of(at, step)))
            }
            (TimerKind::WorldBudget, None) => {
                let open = self.failing().is_none() && self.status() == RunStatus::Running;
                let uses_time = !self.waits_for_responder_timers();
                scope.parent.is_none() && open && uses_time && self.is_world_time_up(frame.at)
            }
            (TimerKind::After, None) => {
                let due = self
                    .responding()
                    .is_some_and(|all| all.may_fire(frame, fired));
                scope.parent.is_none() && is_open(scope) && self.failing().is_none() && due
            }
            (TimerKind::RunTimeout | TimerKind::WorldBudget | TimerKind::After, Some(_))
            | (TimerKind::Retry | TimerKind::Review | TimerKind::Suspend, None) => false,
        }
    }

    /// An agent's table, what the run's budget says to it (decision F4), and its definition.
    fn check_agent(&self, at: StepAt<'_>, event: &AgentEvent) -> Allowed {
        at.is_running()?;
        let task = task_of(at.state, event.item()).ok_or(Rule::TaskOrder)?;
        let affordable = match event {
            AgentEvent::BudgetExhausted(spent) => {
                [self.budget(), self.world_cost_limit()].contains(&Some(spent.limit_micro_usd))
                    && self.spend().cost_micro_usd == spent.cost_micro_usd
                    && spent.cost_micro_usd >= spent.limit_micro_usd
            }
            // A request that a recorded reply answers costs nothing.
            AgentEvent::Request(request) => {
                let first = || task.is_first_try() && self.repeats_replies();
                (self.may_call_model() || self.has_reply(request))
                    && (request.routing.is_none() || first())
            }
            AgentEvent::Response(_)
            | AgentEvent::Decided(_)
            | AgentEvent::ReflectStarted(_)
            | AgentEvent::ToolCalled(_)
            | AgentEvent::ToolReturned(_)
            | AgentEvent::ToolInDoubt(_)
            | AgentEvent::ApprovalRequested(_)
            | AgentEvent::ApprovalDecided(_)
            | AgentEvent::ApprovalExpired(_)
            | AgentEvent::Finished(_) => true,
        };
        holds(Rule::Budget, affordable)?;
        let by_engine = matches!(event, AgentEvent::Finished(end) if end.report.is_none())
            || matches!(event, AgentEvent::ToolInDoubt(doubt) if doubt.report.is_none());
        holds(Rule::Failing, by_engine || self.failing().is_none())?;
        task.check(event)?;
        self.check_permission(at, event)
    }

    /// Checks what the definition says to tools (seed 000, invariants 4, 5 and 34): a call is to a
    /// tool that the allowlists permit, and where people are asked first, by their word.
    fn check_permission(&self, at: StepAt<'_>, event: &AgentEvent) -> Allowed {
        let server = |name: &str| {
            let mut servers = self.servers(at.key).iter();
            // A branch does not change the world (decision F1).
            let found = servers.find(|server| server.name == name);
            found.filter(|server| !(server.stateful && self.suppresses_tools()))
        };
        if let AgentEvent::ToolCalled(called) = event {
            let permits = server(&called.server).is_some_and(|server| {
                let gated = server.approval(&called.tool).is_some();
                server.permits(&called.tool) && gated == called.approval.is_some()
            });
            return holds(Rule::Permission, permits);
        }
        if let AgentEvent::ApprovalRequested(asked) = event {
            let permits = server(&asked.server).is_some_and(|server| {
                let policy = server.approval(&asked.tool);
                server.permits(&asked.tool) && policy == Some(&asked.policy)
            });
            return holds(Rule::Permission, permits);
        }
        if let AgentEvent::ApprovalDecided(decided) = event {
            let may = self.may_decide(at.key, decided);
            return holds(Rule::Decider, may);
        }
        Ok(())
    }

    /// Returns `true` if this person may decide: the one who started the run may not approve where
    /// the policy says so.
    fn may_decide(&self, at: StepKey, decided: &ApprovalDecided) -> bool {
        let task = self.task(at, decided.item);
        let calls = task.and_then(|task| task.calls.as_deref());
        let call = calls.and_then(|calls| calls.awaiting_decision(decided.request));
        call.is_some_and(|call| match call.state.gate() {
            Some(gate) => {
                let own = decided.by.id == self.proposer().id;
                let approves = decided.decision == Decision::Approved;
                !(gate.policy.not_by_proposer && own && approves)
            }
            None => true,
        })
    }

    fn find(&self, frame: &Frame, id: &str) -> Result<StepKey, TransitionError> {
        self.step_at(&frame.scope, id)
            .ok_or_else(|| match self.scope_at(&frame.scope) {
                Some(_) => TransitionError::Step(id.to_owned()),
                None => TransitionError::Scope(frame.scope.clone()),
            })
    }

    fn step_state(&self, at: StepKey, id: &str) -> Result<(&Step, &StepWork), TransitionError> {
        let found = self.step(at).zip(self.work(at));
        found.ok_or_else(|| TransitionError::Step(id.to_owned()))
    }

    /// The refusal of a frame that breaks a rule.
    pub(super) fn require(
        &self,
        allowed: Allowed,
        frame: &Frame,
        subject: &str,
        status: &'static str,
    ) -> Result<(), TransitionError> {
        allowed.map_err(|rule| {
            TransitionError::Refused(Refusal {
                rule,
                event: frame.event.kind().to_owned(),
                subject: subject.to_owned(),
                status,
            })
        })
    }
}

/// A step that a frame is about.
#[derive(Clone, Copy)]
struct StepAt<'s> {
    key: StepKey,
    state: &'s Step,
}

impl StepAt<'_> {
    fn is_running(self) -> Allowed {
        holds(Rule::Running, self.state.status == StepStatus::Running)
    }
}

fn scope_of(state: &RunState, scope: u32) -> Option<&Scope> {
    state.scopes().get(scope as usize)
}

fn is_open(scope: &Scope) -> bool {
    scope.status == RunStatus::Running
}
