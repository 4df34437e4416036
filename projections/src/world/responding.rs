//! The queue of a run's responders: a cursor into its stream, folded from frames alone.
//!
//! ```text
//! frames ──▶ head: the world after the last of them
//!    └─▶ queue: what responders have not seen yet
//!          └─▶ current: the trigger at the cursor, and the world as of it
//!                └─▶ firing: what is left to make of it ──▶ frames
//! ```
//!
//! A trigger is taken when the one before it is done: all of its outputs were made, or the next
//! trigger's `responder.fired` says that the rest of them makes nothing. A responder with `after` sets
//! a timer instead, which is a trigger of its own once it has fired. Responders see the world as
//! of the trigger ([`Responding::current`]); what they make is checked against the head
//! ([`Responding::head`]). A log that is cut after any frame gives the same queue, cursor and output.

mod check;
mod firing;
mod limits;
mod pending;
mod queue;
mod redefine;
mod timers;
mod waiting;

use std::collections::VecDeque;
use std::sync::Arc;

use ktsu_ledger::event::{
    Candidate, Derivation, FiringVerdict, OutputRejected, Posted, RunEvent, TaskKind, TimerKind,
    WorldBudgetExhausted, WorldEvent,
};
use ktsu_ledger::{CanonicalJson, Cause, Event, Frame};

pub use check::WorldRefusal;
pub use firing::{Firing, OutputPlace};
pub use pending::PendingTrigger;
pub use timers::{MAX_TIMERS, ResponderTimer};

use crate::life::scope::RunStatus;
use crate::life::{Change, changes};
use queue::{KeySource, QueuedFrame, QueuedSubject, QueuedTrigger, subject_of, take};
use timers::Timers;

use super::activity::{Activity, is_address};
use super::budget::LatestLimits;
use super::derivation::{GOAL_ACTOR, TriggerKey};
use super::failures::Failures;
use super::graph::{World, WorldChange};
use super::posts::Posts;
use super::reactions::Reactions;
use super::steps::{STEP_OBJECT, member};
use super::tasks::{
    ResponderTaskPhase, TaskOrder, WorldTask, WorldTasks, came_to_nothing, has_no_gateway,
};
use super::trigger::{TaskContext, Trigger, TriggerSubject};
use super::wall_time::WallTime;

/// See the module documentation.
#[derive(Debug, Clone)]
pub struct Responding {
    reactions: Arc<Reactions>,
    head: World,
    /// As of the current trigger; without one, of the cursor.
    seen: World,
    queue: VecDeque<QueuedFrame>,
    /// Number of frames in the queue that are triggers.
    queued_triggers: u64,
    current: Option<Arc<Trigger>>,
    /// Of the current trigger, once its candidates are evaluated; of a reply from the beginning.
    firing: Option<Firing>,
    tasks: WorldTasks,
    timers: Timers,
    activity: Activity,
    posts: Posts,
    /// Number of times that steps completed or were overlaid.
    step_ordinal: u64,
    has_fired: bool,
    is_loaded: bool,
    /// The output that was rejected, until its responder has failed with it.
    rejected: Option<Box<OutputRejected>>,
    /// Entries of the goal before this one are made, or make nothing.
    next_of_goal: u32,
    /// Limits that people raised.
    raised: LatestLimits,
    /// The end of the budget, until limits are raised.
    exhausted: Option<Box<WorldBudgetExhausted>>,
    wall: WallTime,
    /// True if the timer of the budget fired, until limits are raised.
    is_time_up: bool,
    failures: Failures,
    /// True if a model call was refused, since the cost had reached its limit, until limits are
    /// raised.
    is_call_refused: bool,
}

impl Responding {
    /// Before the first frame of a run that loads these worlds.
    pub fn new(reactions: Arc<Reactions>) -> Self {
        let world = World::new(Arc::clone(reactions.fields()));
        Self {
            reactions,
            head: world.clone(),
            seen: world,
            queue: VecDeque::new(),
            queued_triggers: 0,
            current: None,
            firing: None,
            tasks: WorldTasks::default(),
            timers: Timers::default(),
            activity: Activity::default(),
            posts: Posts::default(),
            step_ordinal: 0,
            has_fired: false,
            is_loaded: false,
            rejected: None,
            next_of_goal: 0,
            raised: LatestLimits::default(),
            exhausted: None,
            wall: WallTime::default(),
            is_time_up: false,
            failures: Failures::default(),
            is_call_refused: false,
        }
    }

    /// The world after the last frame: outputs are checked against it.
    pub fn head(&self) -> &World {
        &self.head
    }

    /// The trigger at the cursor, and the world as of it. Nothing: responders have seen everything.
    pub fn current(&self) -> Option<(&Arc<Trigger>, &World)> {
        self.current.as_ref().map(|trigger| (trigger, &self.seen))
    }

    /// The outputs that are left of the current trigger. Nothing: its candidates are not evaluated
    /// yet.
    pub fn firing(&self) -> Option<&Firing> {
        self.firing.as_ref()
    }

    /// The trigger behind the current one, and the world as of it: what is next if the rest of the
    /// current one makes nothing. Costs as much as the frames between the two.
    pub fn after_current(&self) -> Option<(Arc<Trigger>, World)> {
        // Posts that nobody reacts to may have piled up.
        if self.queued_triggers == 0 {
            return None;
        }
        let mut world = self.seen.clone();
        self.queue.iter().find_map(|queued| {
            let trigger = take(&mut world, queued)?;
            Some((Arc::new(trigger), world.clone()))
        })
    }

    /// Number of triggers behind the current one.
    pub fn queued_triggers(&self) -> u64 {
        self.queued_triggers
    }

    /// Returns `true` if `kit.loaded` is recorded.
    pub fn is_loaded(&self) -> bool {
        self.is_loaded
    }

    /// Returns `true` if responders have seen all frames. Outputs of the last trigger may be left
    /// whose entries make nothing, which only evaluating them shows; what they asked may be under
    /// way.
    pub fn is_idle(&self) -> bool {
        self.current.is_none() || (self.may_be_done() && self.queued_triggers == 0)
    }

    /// The tasks to whose end their responders have not reacted yet, in the order in which they
    /// were decided on.
    pub fn tasks(&self) -> impl Iterator<Item = &WorldTask> {
        self.tasks.all()
    }

    /// Returns `true` if something that was asked or run is still to end, or its responder to react
    /// to its end.
    pub fn has_open_tasks(&self) -> bool {
        let mut phases = self.tasks.all().map(|task| task.phase);
        phases.any(|phase| phase != ResponderTaskPhase::SetAside)
    }

    /// The questions of responders that no gateway can answer, since it does not know the model
    /// group. They are asked again when a person has the run continue.
    pub fn unanswered(&self) -> impl Iterator<Item = &Arc<TaskContext>> {
        let unanswered = self.tasks.all().filter(|task| task.is_unanswered);
        unanswered.map(|task| &task.context)
    }

    /// Returns `true` if a name is that of a responder, or the address of something that one asked
    /// or ran.
    pub fn knows(&self, name: &str) -> bool {
        self.reactions.place(name).is_some() || self.tasks.get(name).is_some()
    }

    /// A task by its address.
    pub fn task(&self, address: &str) -> Option<&WorldTask> {
        self.tasks.get(address)
    }

    /// Tasks that are not announced, and whose turn it is, since all that precedes them is made: of
    /// each responder the first, in the order in which they were decided on. Candidates of the trigger
    /// under way before `passed` make nothing more.
    pub fn due_tasks(&self, passed: Option<u32>) -> Vec<&Arc<TaskContext>> {
        let end = self.firing.as_ref().zip(self.current.as_ref());
        let end = end.map(|(firing, trigger)| {
            let at = firing.next().map_or(u32::MAX, |place| place.candidate);
            (trigger.seq, at.max(passed.unwrap_or_default()), 0)
        });
        self.tasks.waiting_until(end)
    }

    /// Number of tasks of a responder that are announced and have not ended.
    pub fn announced_tasks(&self, responder: &str) -> u32 {
        self.tasks.announced(responder)
    }

    /// Depth and counts of world frames.
    pub fn activity(&self) -> &Activity {
        &self.activity
    }

    /// The reactions of responders: who reacts to what.
    pub fn reactions(&self) -> &Arc<Reactions> {
        &self.reactions
    }

    /// The next entry of what the goal of the run becomes. Nothing: responders have begun to react.
    pub fn next_of_goal(&self) -> Option<u32> {
        (!self.has_fired).then_some(self.next_of_goal)
    }

    /// An output that was rejected: `responder.failed` comes next.
    pub fn rejected(&self) -> Option<&OutputRejected> {
        self.rejected.as_deref()
    }

    /// Takes a frame that [`Responding::check`] allows, whatever it is about.
    pub fn apply(&mut self, frame: &Frame) {
        self.activity.apply(frame);
        if let Event::World(event) = &frame.event {
            self.apply_world(frame, event);
        } else if let Event::Foreign { kind, .. } = &frame.event {
            if let Some(posted) = Posted::of(&frame.event) {
                let key = KeySource::Root(self.posts.take(frame, &posted.by, &posted.post));
                let queued = (key, QueuedSubject::Posted(posted.data), None);
                self.enqueue(frame, kind, WorldChange::Nothing, queued);
            }
        } else if let Event::Run(RunEvent::TimerFired(fired)) = &frame.event {
            self.is_time_up |= fired.timer == TimerKind::WorldBudget;
            self.fire_timer(frame, fired);
        } else {
            changes(frame).for_each(|change| self.follow(frame, change));
        }
        self.advance();
    }

    /// Follows what responders ask or run: each is announced, and ends, or comes to nothing.
    fn follow(&mut self, frame: &Frame, change: Change<'_>) {
        if let Change::Forked(_) = change {
            self.posts.begin_branch();
        } else if let Change::Dispatched(task, attempt) = change {
            if is_address(task.step) {
                self.tasks.announce(task.step, frame.seq, Some(attempt));
            }
        } else if let Change::ScopeMoved(status) = change {
            let own = is_address(&frame.scope);
            if own && status == RunStatus::Running {
                self.tasks.announce(&frame.scope, frame.seq, None);
            } else if own && status == RunStatus::Failed {
                self.tasks.set_aside(&frame.scope, frame.seq);
            }
        } else if let Change::Finished(task, end) = change
            && is_address(task.step)
        {
            match (came_to_nothing(end), has_no_gateway(end)) {
                (true, true) => self.tasks.leave_unanswered(task.step, frame.seq),
                (true, false) => self.tasks.set_aside(task.step, frame.seq),
                (false, _) => self.end_task(frame, task.step, end.outcome.clone()),
            }
        }
    }

    /// A step of the run itself completed with this output. Called behind [`Responding::apply`] of
    /// its frame by the state of the run, which knows outputs that stand in other frames.
    pub fn complete_step(&mut self, frame: &Frame, step: &str, output: &CanonicalJson) {
        let change = self.head.complete_step(frame.seq, step, output);
        let queued = (
            self.step_key(frame, step),
            QueuedSubject::Change { patch: None },
            None,
        );
        self.enqueue(frame, "step.completed", change, queued);
        self.advance();
    }

    /// A person replaced a field of the output of a step of the run itself. Called as
    /// [`Responding::complete_step`].
    pub fn overlay_step(&mut self, frame: &Frame, step: &str, field: (&str, &CanonicalJson)) {
        let (change, patch) = self.head.overlay_step(frame.seq, step, field);
        let patch = Some(patch);
        let queued = (
            self.step_key(frame, step),
            QueuedSubject::Change { patch },
            None,
        );
        self.enqueue(frame, "object.patched", change, queued);
        self.advance();
    }

    /// Returns `true` if a responder reacts to such an overlay.
    pub fn reacts_to_overlay(&self, field: &str, value: &CanonicalJson) -> bool {
        let patch = member(field, value);
        let reacting = self
            .reactions
            .candidates("object.patched", Some(STEP_OBJECT), Some(&patch));
        !reacting.is_empty()
    }

    /// Ends what a responder asked or ran with this outcome, `{output}` or `{error}`: its responder
    /// reacts to it.
    pub fn end_task(&mut self, frame: &Frame, address: &str, outcome: CanonicalJson) {
        if let Some(task) = self.tasks.end(address, frame.seq) {
            let key = KeySource::Root(TriggerKey::reply(address));
            let subject = QueuedSubject::Reply(task, outcome);
            let queued = (key, subject, Some(Vec::new()));
            self.enqueue(frame, frame.event.kind(), WorldChange::Nothing, queued);
            self.advance();
        }
    }

    /// A decision about the trigger behind the current one says that the rest of this makes nothing.
    fn reach(&mut self, frame: &Frame) {
        if !is_about(self.current.as_ref(), frame) && self.may_be_done() {
            self.close();
            self.advance();
        }
    }

    /// Returns `true` if the task with this address has not begun.
    fn is_waiting(&self, address: Option<&str>) -> bool {
        let task = address.and_then(|address| self.tasks.get(address));
        task.is_some_and(|task| task.phase == ResponderTaskPhase::Waiting)
    }

    /// Returns `true` if what is left of the current trigger may make nothing: of a reply, its
    /// responder says when it is done.
    fn may_be_done(&self) -> bool {
        let reply = self
            .current
            .as_deref()
            .is_some_and(|trigger| matches!(trigger.subject, TriggerSubject::Reply { .. }));
        self.firing.is_some() && !reply
    }

    fn apply_world(&mut self, frame: &Frame, event: &WorldEvent) {
        let posted = event.by().is_some();
        let of_trigger = match event {
            WorldEvent::Loaded(_) | WorldEvent::BudgetExhausted(_) => false,
            // What could not begin is of a trigger that may be long past.
            WorldEvent::Failed(failed) => !self.is_waiting(failed.address.as_deref()),
            WorldEvent::ObjectCreated(_)
            | WorldEvent::ObjectPatched(_)
            | WorldEvent::RelationCreated(_)
            | WorldEvent::RelationRemoved(_)
            | WorldEvent::Noted(_)
            | WorldEvent::Commanded(_)
            | WorldEvent::Rejected(_)
            | WorldEvent::Fired(_)
            | WorldEvent::Completed(_)
            | WorldEvent::BudgetRaised(_) => true,
        };
        if of_trigger && !posted {
            self.reach(frame);
        }
        match event {
            WorldEvent::Fired(fired) => self.fire(frame, &fired.candidates),
            WorldEvent::Completed(done) => {
                self.tasks.forget(&done.address);
                self.close();
            }
            WorldEvent::Failed(failed) => {
                self.rejected = None;
                let goes_on = self.reactions.goes_on(&failed.responder);
                if goes_on {
                    self.failures.take(failed);
                }
                if let Some(address) = &failed.address {
                    match goes_on {
                        true => self.tasks.forget(address),
                        false => self.tasks.set_aside(address, frame.seq),
                    }
                }
                if failed.responder == GOAL_ACTOR && !self.has_fired {
                    self.next_of_goal = u32::MAX;
                }
                let firing = self
                    .firing
                    .as_mut()
                    .filter(|_| is_about(self.current.as_ref(), frame));
                if firing.is_some_and(|firing| firing.abandon(&failed.responder)) {
                    self.close();
                }
            }
            WorldEvent::Loaded(_) => self.is_loaded = true,
            // Nobody reacts to it.
            WorldEvent::Commanded(command) => self.pass_output(frame, &command.derived),
            WorldEvent::Rejected(rejected) => {
                self.rejected = Some(Box::new(rejected.clone()));
            }
            WorldEvent::ObjectCreated(_)
            | WorldEvent::ObjectPatched(_)
            | WorldEvent::RelationCreated(_)
            | WorldEvent::RelationRemoved(_)
            | WorldEvent::Noted(_)
            | WorldEvent::BudgetExhausted(_)
            | WorldEvent::BudgetRaised(_) => {
                if let WorldEvent::BudgetRaised(raised) = event {
                    self.raised.take(raised);
                    self.exhausted = None;
                    (self.is_time_up, self.is_call_refused) = (false, false);
                } else if let WorldEvent::BudgetExhausted(exhausted) = event {
                    self.exhausted = Some(Box::new(exhausted.clone()));
                }
                let change = self.head.apply_event(frame.seq, event);
                let subject = if let WorldEvent::ObjectPatched(patched) = event {
                    let patch = Some(patched.patch.clone());
                    QueuedSubject::Change { patch }
                } else if let WorldEvent::Noted(note) = event {
                    QueuedSubject::Posted(note.data.clone())
                } else {
                    QueuedSubject::Change { patch: None }
                };
                let key = self.key_of(frame, event);
                self.enqueue(frame, frame.event.kind(), change, (key, subject, None));
                if let Some(derived) = event.derived() {
                    self.pass_output(frame, derived);
                }
            }
        }
    }

    /// The parts that the key of this event is made of.
    fn key_of(&mut self, frame: &Frame, event: &WorldEvent) -> KeySource {
        let posted = event.by().zip(event.post());
        let posted = posted.map(|(by, post)| self.posts.take(frame, by, post));
        if let WorldEvent::ObjectCreated(created) = event
            && let Some(key) = &created.key
        {
            return KeySource::Root(TriggerKey::keyed(&created.kind, key));
        }
        if let Some(key) = posted {
            return KeySource::Root(key);
        }
        match (event.derived(), &self.current) {
            (Some(derived), Some(current)) if derived.responder.is_some() => {
                KeySource::Output(current.key.clone(), derived.clone())
            }
            (Some(derived), _) => KeySource::Root(TriggerKey::goal(derived.entry)),
            (None, _) => KeySource::Root(TriggerKey::step("", "", frame.seq)),
        }
    }

    fn step_key(&mut self, frame: &Frame, step: &str) -> KeySource {
        self.step_ordinal += 1;
        KeySource::Root(TriggerKey::step(&frame.scope, step, self.step_ordinal))
    }

    /// Puts a frame behind the cursor.
    fn enqueue(
        &mut self,
        frame: &Frame,
        kind: &str,
        change: WorldChange,
        (key, subject, candidates): (KeySource, QueuedSubject, Option<Vec<u32>>),
    ) {
        let is_change = matches!(subject, QueuedSubject::Change { .. });
        let (about, patch) = subject_of(&subject, &change);
        if is_change && about.is_none() {
            // Nothing has happened that anybody could react to.
            if change != WorldChange::Nothing {
                let trigger = None;
                self.queue.push_back(QueuedFrame { change, trigger });
            }
            return;
        }
        let is_reply = candidates.is_some();
        let candidates =
            candidates.unwrap_or_else(|| self.reactions.candidates(kind, about, patch));
        let trigger = (is_reply || !candidates.is_empty()).then(|| {
            Box::new(QueuedTrigger {
                seq: frame.seq,
                at: self.timers.own_time(frame.at),
                kind: kind.to_owned(),
                actor: frame.actor.to_string(),
                key,
                subject,
                candidates,
            })
        });
        self.queued_triggers += u64::from(trigger.is_some());
        if trigger.is_some() || change != WorldChange::Nothing {
            self.queue.push_back(QueuedFrame { change, trigger });
        }
    }

    /// Moves the cursor to the next trigger, unless there is one at it.
    fn advance(&mut self) {
        while self.current.is_none() {
            let Some(queued) = self.queue.pop_front() else {
                return;
            };
            let Some(trigger) = take(&mut self.seen, &queued) else {
                continue;
            };
            self.queued_triggers = self.queued_triggers.saturating_sub(1);
            if let TriggerSubject::Reply { task, .. } = &trigger.subject {
                self.firing = Some(Firing::reply(&task.responder));
            }
            self.current = Some(Arc::new(trigger));
        }
    }

    /// The current trigger is done.
    fn close(&mut self) {
        self.current = None;
        self.firing = None;
    }

    /// A trigger's candidates were evaluated.
    fn fire(&mut self, frame: &Frame, candidates: &[Candidate]) {
        self.has_fired = true;
        let Some(trigger) = self
            .current
            .clone()
            .filter(|_| is_about(self.current.as_ref(), frame))
        else {
            return;
        };
        for (at, candidate) in (0u32..).zip(candidates) {
            if let (FiringVerdict::Fired, Some(kind)) = (candidate.verdict, candidate.task) {
                self.add_tasks(&trigger, (at, candidate), kind);
            }
        }
        self.set_timers(&trigger, candidates);
        let firing = Firing::of(candidates);
        match firing.next() {
            Some(_) => self.firing = Some(firing),
            None => self.close(),
        }
    }

    fn add_tasks(
        &mut self,
        trigger: &Arc<Trigger>,
        (at, candidate): (u32, &Candidate),
        kind: TaskKind,
    ) {
        let responder: Arc<str> = candidate.responder.as_str().into();
        for count in 0..candidate.items.unwrap_or(1) {
            let item = candidate.items.map(|_| count);
            let order: TaskOrder = (trigger.seq, at, count);
            let context = TaskContext {
                address: trigger.key.address(&responder, item).into(),
                responder: Arc::clone(&responder),
                item,
                kind,
                trigger: Arc::clone(trigger),
                world: self.seen.clone(),
            };
            self.tasks.add(order, context);
        }
    }

    /// An output of the current trigger was made.
    fn pass_output(&mut self, frame: &Frame, derived: &Derivation) {
        let Some(responder) = &derived.responder else {
            self.next_of_goal = derived.entry.saturating_add(1);
            return;
        };
        if !is_about(self.current.as_ref(), frame) {
            return;
        }
        if let Some(firing) = &mut self.firing {
            firing.pass(responder, derived.item, derived.entry);
            if firing.next().is_none() {
                self.close();
            }
        }
    }
}

/// Returns `true` if a frame's first cause is this trigger.
fn is_about(trigger: Option<&Arc<Trigger>>, frame: &Frame) -> bool {
    trigger.is_some_and(|trigger| frame.cause.first() == Some(&Cause::Here(trigger.seq)))
}
