//! The activity of agents in a run, frame by frame: their tasks, the calls that the last reply of
//! each requests, and the decisions people were asked for. Used by the claims `tools` and
//! `approvals`.
//!
//! For each claim, the first problem is kept. A frame with a problem is applied all the same.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use ktsu_ledger::event::plan::Plan;
use ktsu_ledger::event::{
    AgentEvent, ApprovalRequested, BranchCreated, Effects, Principal, ReportReference, StepEvent,
    ToolCalled,
};
use ktsu_ledger::{Actor, Event, Frame, Timestamp};
use ktsu_projections::life::call::RequestedCall;
use ktsu_projections::life::review::Review;
use ktsu_projections::life::suspension::Suspension;
use ktsu_projections::life::{Change, DeadlineShift, Task, changes};
use ktsu_projections::run::StepStatus;
use serde_json::Value;

use super::ClaimFailure;
use super::history::History;
use super::repeated::RepeatedResults;
use ktsu_workflow::admit::tools::RECOMPUTE_KIND;

/// The claim that something is wrong with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ClaimKind {
    Tools,
    Approvals,
}

/// The facts that are known of a run at a frame.
pub(super) struct AgentTimeline<'a> {
    pub(super) history: &'a History<'a>,
    pub(super) tasks: BTreeMap<TimelineKey<'a>, TaskProgress<'a>>,
    /// The tools that each request offered its model, and its digest.
    pub(super) offers: BTreeMap<u64, Rc<Value>>,
    pub(super) digests: BTreeMap<u64, &'a str>,
    pub(super) made: BTreeSet<String>,
    pub(super) decided: BTreeSet<String>,
    /// A decision by somebody who was not asked who they are.
    pub(super) unauthenticated: Option<String>,
    /// The reviews of outcomes that people are asked for, by scope and step.
    pub(super) reviews: BTreeMap<(&'a str, &'a str), Review>,
    /// By which other steps' definitions steps run, by scope and step.
    pub(super) resumed_to: BTreeMap<(&'a str, &'a str), &'a str>,
    /// The suspensions of steps that wait for data, by scope and step.
    pub(super) suspensions: BTreeMap<(&'a str, &'a str), Suspension>,
    pub(super) proposer: &'a str,
    definition: Option<&'a Frame>,
    plan: Option<Rc<Plan>>,
    pub(super) ended: bool,
    /// Since when it is paused, if it is.
    paused: Option<Timestamp>,
    /// True if calls to stateful servers are held back.
    pub(super) suppresses: bool,
    /// Of a recompute: what answers the calls that are held back.
    pub(super) results: RepeatedResults,
    pub(super) wrong: BTreeMap<ClaimKind, ClaimFailure>,
}

/// A task: scope, step and item.
pub(super) type TimelineKey<'a> = (&'a str, &'a str, Option<u32>);

/// The facts that are known of a task.
#[derive(Default)]
pub(super) struct TaskProgress<'a> {
    pub(super) attempt: Option<u32>,
    /// The last report of the attempt.
    pub(super) report: Option<&'a ReportReference>,
    /// The request without a reply.
    pub(super) request: Option<u64>,
    /// The last reply, and what it asks for.
    pub(super) response: Option<u64>,
    pub(super) calls: Vec<CheckedCall<'a>>,
    /// The attempt that got it, and what its model was told of.
    pub(super) replied: Option<u32>,
    pub(super) offered: Option<Rc<Value>>,
    /// True if the agent has decided to make the calls.
    pub(super) decided: bool,
    /// True if it asks people, and waits for them.
    pub(super) awaits_people: bool,
    /// The code that it has to end with, because of what people said or did not say.
    pub(super) forced_failure: Option<&'static str>,
    /// True if it is over, or the engine is about to end it.
    pub(super) over: bool,
    /// The digests of what later requests may name by its frame.
    pub(super) context_digests: BTreeMap<u64, String>,
}

/// A call that a reply asks for, and how far it is.
#[derive(Default)]
pub(super) struct CheckedCall<'a> {
    /// The call that the model asked for; its state is not used, because a frame that must not
    /// follow is applied here all the same.
    pub(super) requested: RequestedCall,
    pub(super) sent: Vec<(&'a Frame, &'a ToolCalled)>,
    /// True if it is on its way.
    pub(super) open: bool,
    pub(super) gate: Option<Question<'a>>,
    pub(super) doubt: Option<Question<'a>>,
    pub(super) returned: bool,
}

/// A question to people about a call, and its outcome.
pub(super) struct Question<'a> {
    pub(super) request: u64,
    pub(super) digest: &'a str,
    /// Of a gate; nothing of a call in doubt.
    pub(super) gate: Option<&'a ApprovalRequested>,
    pub(super) until: Option<Timestamp>,
    pub(super) approved_by: BTreeSet<&'a str>,
    pub(super) state: QuestionState,
    pub(super) result: Option<&'a str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QuestionState {
    Open,
    Approved,
    Rejected,
    Happened,
    Expired,
}

impl<'a> AgentTimeline<'a> {
    /// Reads a history to its end.
    pub(super) fn of(history: &'a History<'a>) -> Result<Self, ClaimFailure> {
        let kind = history.stream.split(':').next();
        let mut timeline = Self {
            history,
            tasks: BTreeMap::new(),
            offers: BTreeMap::new(),
            digests: BTreeMap::new(),
            made: BTreeSet::new(),
            decided: BTreeSet::new(),
            unauthenticated: None,
            reviews: BTreeMap::new(),
            resumed_to: BTreeMap::new(),
            suspensions: BTreeMap::new(),
            proposer: "",
            definition: None,
            plan: None,
            ended: false,
            paused: None,
            suppresses: kind == Some(RECOMPUTE_KIND),
            results: RepeatedResults::default(),
            wrong: BTreeMap::new(),
        };
        let mut before = None;
        for frame in &history.frames {
            let early = before.replace(frame.at).is_some_and(|at| frame.at < at);
            let words = "it is earlier than the frame before it";
            timeline.fail_if(ClaimKind::Approvals, frame, early, words);
            timeline.take(frame)?;
        }
        Ok(timeline)
    }

    /// Says that something is wrong at a frame, if it is.
    pub(super) fn fail_if(
        &mut self,
        of: ClaimKind,
        frame: &Frame,
        wrong: bool,
        words: &'static str,
    ) {
        if wrong {
            let wrong = || ClaimFailure::at(frame.id(), words);
            self.wrong.entry(of).or_insert_with(wrong);
        }
    }

    /// The definition that holds here.
    pub(super) fn plan(&mut self, frame: &Frame) -> Result<Rc<Plan>, ClaimFailure> {
        if let Some(plan) = &self.plan {
            return Ok(Rc::clone(plan));
        }
        let missing = || ClaimFailure::at(frame.id(), "its run has no definition");
        let plan = self.history.plan(self.definition.ok_or_else(missing)?)?;
        let plan = Rc::new(plan);
        self.plan = Some(Rc::clone(&plan));
        Ok(plan)
    }

    /// A person's word about a run is appended in that person's name.
    fn check_speaker(&mut self, frame: &Frame, by: &Principal) {
        let other = frame.actor != Actor::Principal(by.id.clone());
        let words = "the person named is not the one who appended it";
        self.fail_if(ClaimKind::Approvals, frame, other, words);
    }

    /// Gives everybody who is asked as much more time.
    fn postpone(&mut self, by_ms: u64) {
        let tasks = self.tasks.values_mut();
        tasks.for_each(|task| task.postpone(by_ms));
        let reviews = self.reviews.values_mut();
        reviews.for_each(|review| review.postpone(by_ms));
        let suspensions = self.suspensions.values_mut();
        suspensions.for_each(|suspension| suspension.postpone(by_ms));
    }

    /// The time for the people who are asked: while a run is paused, that of the pause.
    pub(super) fn time(&self, frame: &Frame) -> Timestamp {
        self.paused.unwrap_or(frame.at)
    }

    fn take(&mut self, frame: &'a Frame) -> Result<(), ClaimFailure> {
        for change in changes(frame) {
            self.follow(frame, change);
        }
        // It continues with what is posted, or with a raised budget.
        self.ended &= !frame.event.is_world_input();
        if let Event::Agent(event) = &frame.event {
            let place = (frame.scope.as_str(), event.step(), event.item());
            let mut task = self.tasks.remove(&place).unwrap_or_default();
            let taken = self.take_agent(&mut task, frame, event);
            self.tasks.insert(place, task);
            return taken;
        }
        if let Event::Step(StepEvent::Started(started)) = &frame.event {
            let other = started.resume_step.as_deref();
            let other = other.map(|other| ((&*frame.scope, &*started.step), other));
            self.resumed_to.extend(other);
        }
        self.take_review(frame)?;
        self.take_suspension(frame)
    }

    /// Follows what moves a whole run, a step or a task.
    fn follow(&mut self, frame: &'a Frame, change: Change<'a>) {
        match change {
            Change::Created(created) => {
                self.proposer = &created.principal.id;
                self.define(frame);
            }
            Change::Forked(branch) => self.branch(frame, branch),
            Change::Resumed(by) => {
                self.check_speaker(frame, by);
                self.ended = false;
                if let Some(since) = self.paused.take() {
                    self.postpone(frame.at.millis_since(since));
                }
            }
            Change::Paused(by) => {
                self.check_speaker(frame, by);
                self.paused = Some(frame.at);
            }
            Change::Stopped(_, by) => {
                self.check_speaker(frame, by);
                (self.paused, self.ended) = (None, true);
            }
            Change::DeadlinesMoved(by_ms, DeadlineShift::Clock) => self.postpone(by_ms),
            Change::ScopeMoved(status) => {
                self.ended |= status.is_terminal() && frame.scope.is_empty();
            }
            Change::StepMoved(step, StepStatus::Running | StepStatus::Pending) => {
                self.begin(&frame.scope, step);
            }
            Change::Dispatched(Task { step, item }, attempt) => {
                let task = self.tasks.entry((&frame.scope, step, item)).or_default();
                task.attempt = Some(attempt);
                task.report = None;
                (task.awaits_people, task.over) = (false, false);
            }
            _ => {}
        }
    }

    fn define(&mut self, frame: &'a Frame) {
        self.definition = Some(frame);
        self.plan = None;
    }

    /// Takes the beginning of a branch: what was under way at a fork has not happened in the branch
    /// (decision F1).
    fn branch(&mut self, frame: &'a Frame, branch: &'a BranchCreated) {
        self.proposer = &branch.by.id;
        self.ended = false;
        self.suppresses = branch.effects == Effects::Suppress;
        if branch.digest.is_some() {
            self.define(frame);
        }
        if branch.digest.is_some() || branch.restarts {
            self.tasks.clear();
            self.reviews.clear();
            self.suspensions.clear();
        }
        self.reviews.values_mut().for_each(Review::ask_again);
        let suspensions = self.suspensions.values_mut();
        suspensions.for_each(Suspension::ask_again);
        for task in self.tasks.values_mut() {
            task.forced_failure = None;
            (task.awaits_people, task.over) = (false, false);
            for call in task.calls.iter_mut().filter(|call| !call.returned) {
                call.reset_unreturned();
            }
        }
    }

    /// Forgets what a step, or a child in it, did before it began anew.
    fn begin(&mut self, scope: &str, step: &str) {
        let inner = format!("{scope}/{step}");
        let inner = inner.trim_start_matches('/');
        let stays = |at: &str, one: &str| {
            let rest = at.strip_prefix(inner);
            let within = rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
            (at, one) != (scope, step) && !within
        };
        self.tasks.retain(|(at, one, _), _| stays(at, one));
        self.reviews.retain(|(at, one), _| stays(at, one));
        self.suspensions.retain(|(at, one), _| stays(at, one));
        self.resumed_to.retain(|(at, one), _| stays(at, one));
    }

    /// The step by whose definition another runs: itself, or the one that it was resumed to.
    pub(super) fn acting<'s>(&'s self, frame: &'s Frame, step: &'s str) -> &'s str {
        let other = self.resumed_to.get(&(&*frame.scope, step));
        other.copied().unwrap_or(step)
    }

    fn take_agent(
        &mut self,
        task: &mut TaskProgress<'a>,
        frame: &'a Frame,
        event: &'a AgentEvent,
    ) -> Result<(), ClaimFailure> {
        self.check_report(task, frame, event);
        match event {
            AgentEvent::Request(asked) => self.check_request(task, frame, asked),
            AgentEvent::Response(answer) => self.check_reply(task, frame, answer),
            AgentEvent::Decided(decided) => self.decide_to_call(task, frame, decided),
            AgentEvent::ToolCalled(called) => self.call(task, frame, called)?,
            AgentEvent::ToolInDoubt(doubt) => self.doubt(task, frame, doubt),
            AgentEvent::ToolReturned(returned) => self.answer(task, frame, returned),
            AgentEvent::ApprovalRequested(asked) => self.gate(task, frame, asked)?,
            AgentEvent::ApprovalDecided(decided) => self.decide(task, frame, decided),
            AgentEvent::ApprovalExpired(expired) => self.expire(task, frame, expired),
            AgentEvent::Finished(finished) => {
                self.finish(task, frame, finished);
                self.end(task, frame, finished);
                *task = TaskProgress {
                    attempt: task.attempt,
                    over: true,
                    ..TaskProgress::default()
                };
            }
            AgentEvent::ReflectStarted(_) | AgentEvent::BudgetExhausted(_) => {}
        }
        Ok(())
    }
}

impl<'a> TaskProgress<'a> {
    /// Gives the people who are asked as much more time: the clock went forward, and that time did
    /// not pass.
    fn postpone(&mut self, by_ms: u64) {
        for gate in self.calls.iter_mut().filter_map(|call| call.gate.as_mut()) {
            gate.until = gate.until.map(|until| until.plus_millis(by_ms));
        }
    }

    /// The call at a place, if the last reply asks for it.
    pub(super) fn call(&mut self, response: u64, call: u32) -> Option<&mut CheckedCall<'a>> {
        let known = self.response == Some(response);
        self.calls.get_mut(call as usize).filter(|_| known)
    }

    /// The question that a frame asks.
    pub(super) fn question(&mut self, request: u64) -> Option<&mut Question<'a>> {
        let calls = self.calls.iter_mut();
        let mut asked = calls.flat_map(|call| call.gate.iter_mut().chain(&mut call.doubt));
        asked.find(|asked| asked.request == request)
    }

    /// Returns `true` if the model has not got every result.
    pub(super) fn waits(&self) -> bool {
        self.calls.iter().any(|call| !call.returned)
    }
}

impl CheckedCall<'_> {
    pub(super) fn of(wanted: &Value) -> Self {
        Self {
            requested: RequestedCall::parse(wanted),
            ..Self::default()
        }
    }

    fn reset_unreturned(&mut self) {
        self.sent.clear();
        self.open = false;
        (self.gate, self.doubt) = (None, None);
    }
}

impl<'a> Question<'a> {
    pub(super) fn new(request: u64, digest: &'a str) -> Self {
        Self {
            request,
            digest,
            gate: None,
            until: None,
            approved_by: BTreeSet::new(),
            state: QuestionState::Open,
            result: None,
        }
    }
}
