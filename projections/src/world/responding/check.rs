//! The rules of which frame about a world may follow.

use std::borrow::Cow;
use std::sync::Arc;

use ktsu_ledger::event::{Candidate, Post, Principal, WorldEvent};
use ktsu_ledger::{Actor, Frame};

use super::firing::Firing;
use super::{Responding, is_about};
use crate::world::derivation::GOAL_ACTOR;
use crate::world::steps::is_step_object;
use crate::world::tasks::MAX_TASKS;
use crate::world::trigger::{Trigger, TriggerSubject};

/// The reason why a frame about a world does not follow.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WorldRefusal {
    /// It is patched, and there is no such object (decision F8).
    #[error("there is no object {0:?}")]
    UnknownObject(String),
    /// Objects that stand for steps are made by steps alone.
    #[error("{0:?} stands for a step")]
    StepObject(String),
    /// It was neither posted nor made by a responder, or both.
    #[error("an event is either posted or derived")]
    Origin,
    /// Its actor is not the one it says it is from.
    #[error("the actor is not the one it is from")]
    Actor,
    /// Posts are numbered without gaps.
    #[error("expected post {expected}, got {got}")]
    Post {
        /// The number of the next post.
        expected: u64,
        /// The frame's.
        got: u64,
    },
    /// Its first cause is not the trigger at the cursor.
    #[error("its cause is not the trigger that responders are at")]
    Trigger,
    /// The verdicts are not those of the trigger's candidates.
    #[error("its candidates are not those of the trigger")]
    Candidates,
    /// A responder waits that does not say so, or does not wait though it does; or it asks for more
    /// items than it may.
    #[error("a verdict is not one that its responder can have")]
    Verdict,
    /// It is not an output that is left of the trigger.
    #[error("it is not an output that is left of the trigger")]
    Output,
    /// There is no such task, or it has not ended.
    #[error("nothing has ended at {0:?}")]
    Task(String),
    /// It can happen once.
    #[error("it happened before")]
    Again,
    /// The budget is used up.
    #[error("the budget is used up")]
    Exhausted,
    /// The end of the run names another world than its frames made.
    #[error("the world at the end is {}, and not {}", shown(.expected), shown(.got))]
    Hash {
        /// Of the world that the frames made; nothing where no worlds are loaded.
        expected: Option<String>,
        /// The hash that the end names.
        got: Option<String>,
    },
}

fn shown(hash: &Option<String>) -> &str {
    hash.as_deref().unwrap_or("none")
}

impl Responding {
    /// Returns `true` if responders are in the middle of what they make of a trigger: it was
    /// decided what that is, and some of it is left, or makes nothing. What other responders would
    /// make has no place there.
    pub fn is_inside_firing(&self) -> bool {
        let made = |firing: &Firing| firing.next().is_none_or(|next| next.entry > 0);
        let is_inside = |firing| self.may_be_done() || made(firing);
        self.firing.as_ref().is_some_and(is_inside)
    }

    /// Checks that an event about a world follows from the frames so far. Costs the same in a small
    /// world and in a large one.
    ///
    /// # Errors
    /// [`WorldRefusal`] says why not.
    pub fn check(&self, frame: &Frame, event: &WorldEvent) -> Result<(), WorldRefusal> {
        if self.head.is_exhausted() && !matches!(event, WorldEvent::BudgetRaised(_)) {
            return Err(WorldRefusal::Exhausted);
        }
        let fails = matches!(
            event,
            WorldEvent::Failed(_) | WorldEvent::BudgetExhausted(_)
        );
        if self.rejected.is_some() && event.by().is_none() && !fails {
            return Err(WorldRefusal::Output);
        }
        match event {
            WorldEvent::ObjectCreated(created) => {
                self.check_object(&created.id)?;
                self.check_origin(frame, event)
            }
            WorldEvent::ObjectPatched(patched) => {
                self.check_object(&patched.id)?;
                if self.head.object(&patched.id).is_none() {
                    return Err(WorldRefusal::UnknownObject(patched.id.clone()));
                }
                self.check_origin(frame, event)
            }
            WorldEvent::RelationCreated(_)
            | WorldEvent::RelationRemoved(_)
            | WorldEvent::Noted(_) => self.check_origin(frame, event),
            WorldEvent::Commanded(_) | WorldEvent::Rejected(_) => self.check_origin(frame, event),
            WorldEvent::Fired(fired) => self.check_fired(frame, &fired.candidates),
            WorldEvent::Completed(done) => {
                self.check_actor(frame, Some(&done.responder))?;
                self.check_ended(frame, &done.address, &done.responder)
            }
            WorldEvent::Failed(failed) => {
                self.check_actor(frame, Some(&failed.responder))?;
                match &failed.address {
                    Some(address) if self.is_waiting(Some(address)) => {
                        self.check_unbegun(frame, address, &failed.responder)
                    }
                    Some(address) => self.check_ended(frame, address, &failed.responder),
                    None if failed.responder == GOAL_ACTOR && !self.has_fired => Ok(()),
                    None => {
                        let (_, firing) = self.at(frame).ok_or(WorldRefusal::Trigger)?;
                        let firing = firing.ok_or(WorldRefusal::Trigger)?;
                        match firing.is_under_way(&failed.responder) {
                            true => Ok(()),
                            false => Err(WorldRefusal::Trigger),
                        }
                    }
                }
            }
            WorldEvent::Loaded(_) => match self.is_loaded || self.has_fired {
                true => Err(WorldRefusal::Again),
                false => Ok(()),
            },
            WorldEvent::BudgetExhausted(_) | WorldEvent::BudgetRaised(_) => Ok(()),
        }
    }

    /// Checks that an event may come with a post: the next one, or the last, whose events are one
    /// input.
    ///
    /// # Errors
    /// [`WorldRefusal`] says why not.
    pub fn check_post(
        &self,
        frame: &Frame,
        by: &Principal,
        post: &Post,
    ) -> Result<(), WorldRefusal> {
        if frame.actor != Actor::Principal(by.id.clone()) {
            return Err(WorldRefusal::Actor);
        }
        if self.head.is_exhausted() {
            return Err(WorldRefusal::Exhausted);
        }
        let (expected, got) = (self.next_post(), post.n);
        match got == expected || self.posts.continues(frame, by, post) {
            true => Ok(()),
            false => Err(WorldRefusal::Post { expected, got }),
        }
    }

    fn check_object(&self, id: &str) -> Result<(), WorldRefusal> {
        match is_step_object(id) {
            true => Err(WorldRefusal::StepObject(id.to_owned())),
            false => Ok(()),
        }
    }

    /// Posted by somebody, or an output that is left.
    fn check_origin(&self, frame: &Frame, event: &WorldEvent) -> Result<(), WorldRefusal> {
        match (event.by(), event.post(), event.derived()) {
            (Some(by), Some(post), None) => self.check_post(frame, by, post),
            (None, None, Some(derived)) => {
                let responder = derived.responder.as_deref();
                self.check_actor(frame, responder)?;
                let Some(responder) = responder else {
                    // What the goal makes comes before everything else.
                    let next = self.next_of_goal();
                    return match next.is_some_and(|next| derived.entry >= next) {
                        true => Ok(()),
                        false => Err(WorldRefusal::Output),
                    };
                };
                let (_, firing) = self.at(frame).ok_or(WorldRefusal::Trigger)?;
                let place =
                    firing.and_then(|one| one.place(responder, derived.item, derived.entry));
                place.map(|_| ()).ok_or(WorldRefusal::Output)
            }
            _ => Err(WorldRefusal::Origin),
        }
    }

    /// A responder is the actor of what it makes; the goal of a run has a name of its own.
    fn check_actor(&self, frame: &Frame, responder: Option<&str>) -> Result<(), WorldRefusal> {
        let name = responder.unwrap_or(GOAL_ACTOR);
        match matches!(&frame.actor, Actor::Responder(actor) if actor == name) {
            true => Ok(()),
            false => Err(WorldRefusal::Actor),
        }
    }

    fn check_fired(&self, frame: &Frame, candidates: &[Candidate]) -> Result<(), WorldRefusal> {
        if frame.actor != Actor::Orchestrator {
            return Err(WorldRefusal::Actor);
        }
        let (trigger, firing) = self.at(frame).ok_or(WorldRefusal::Trigger)?;
        if firing.is_some() {
            return Err(WorldRefusal::Trigger);
        }
        let names = trigger.candidates.iter().map(|at| self.reactions.name(*at));
        let told = candidates.iter().map(|one| Some(one.responder.as_str()));
        let same = names.map(|name| name.map(|name| &**name)).eq(told);
        let many = |one: &Candidate| one.items.is_some_and(|items| items > MAX_TASKS);
        let few = !candidates.iter().any(|one| one.task.is_some() && many(one));
        let right = few && self.sets_timers_as_told(&trigger, candidates);
        match (same, right) {
            (true, true) => Ok(()),
            (true, false) => Err(WorldRefusal::Verdict),
            (false, _) => Err(WorldRefusal::Candidates),
        }
    }

    /// Checks that a task that has not begun is of this responder, and of the trigger that the
    /// frame names.
    fn check_unbegun(
        &self,
        frame: &Frame,
        address: &str,
        responder: &str,
    ) -> Result<(), WorldRefusal> {
        let task = self.tasks.get(address).map(|task| &task.context);
        let task = task.filter(|task| *task.responder == *responder);
        match task.is_some_and(|task| is_about(Some(&task.trigger), frame)) {
            true => Ok(()),
            false => Err(WorldRefusal::Task(address.to_owned())),
        }
    }

    /// Checks that what was asked or run has ended, and that its responder reacts to that.
    fn check_ended(
        &self,
        frame: &Frame,
        address: &str,
        responder: &str,
    ) -> Result<(), WorldRefusal> {
        let (trigger, _) = self.at(frame).ok_or(WorldRefusal::Trigger)?;
        let ended = match &trigger.subject {
            TriggerSubject::Reply { task, .. } => {
                *task.address == *address && *task.responder == *responder
            }
            TriggerSubject::Object { .. }
            | TriggerSubject::Relation(_)
            | TriggerSubject::Posted(_) => false,
        };
        match ended {
            true => Ok(()),
            false => Err(WorldRefusal::Task(address.to_owned())),
        }
    }

    /// The trigger that a decision is about, and what is left of it: the current one, or the one
    /// behind it if what is left of that may make nothing.
    fn at(&self, frame: &Frame) -> Option<(Arc<Trigger>, Option<Cow<'_, Firing>>)> {
        if is_about(self.current.as_ref(), frame) {
            let firing = self.firing.as_ref().map(Cow::Borrowed);
            return Some((Arc::clone(self.current.as_ref()?), firing));
        }
        if !self.may_be_done() {
            return None;
        }
        let (next, _) = self.after_current()?;
        let firing = match &next.subject {
            TriggerSubject::Reply { task, .. } => Some(Cow::Owned(Firing::reply(&task.responder))),
            TriggerSubject::Object { .. }
            | TriggerSubject::Relation(_)
            | TriggerSubject::Posted(_) => None,
        };
        is_about(Some(&next), frame).then_some((next, firing))
    }
}
