//! Which frame about a world may follow.

use ktsu_ledger::event::{Candidate, WorldEvent};
use ktsu_ledger::{Actor, Frame};

use super::{Responding, is_about};
use crate::world::steps::is_step_object;
use crate::world::trigger::TriggerSubject;

/// Why a frame about a world does not follow.
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
}

impl Responding {
    /// Whether an event about a world follows from the frames so far. Costs the same in a small
    /// world and in a large one.
    ///
    /// # Errors
    /// [`WorldRefusal`] says why not.
    pub fn check(&self, frame: &Frame, event: &WorldEvent) -> Result<(), WorldRefusal> {
        if self.head.is_exhausted() && !matches!(event, WorldEvent::BudgetRaised(_)) {
            return Err(WorldRefusal::Exhausted);
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
            WorldEvent::Rejected(_) => self.check_origin(frame, event),
            WorldEvent::Fired(fired) => self.check_fired(frame, &fired.candidates),
            WorldEvent::Completed(done) => {
                self.check_actor(frame, Some(&done.responder))?;
                let current = self
                    .current
                    .as_ref()
                    .filter(|_| is_about(self.current.as_ref(), frame));
                let ended = current.is_some_and(|trigger| match &trigger.subject {
                    TriggerSubject::Reply { task, .. } => {
                        *task.address == *done.address && *task.responder == *done.responder
                    }
                    TriggerSubject::Object { .. }
                    | TriggerSubject::Relation(_)
                    | TriggerSubject::Posted(_) => false,
                });
                ended
                    .then_some(())
                    .ok_or_else(|| WorldRefusal::Task(done.address.clone()))
            }
            WorldEvent::Failed(failed) => {
                self.check_actor(frame, Some(&failed.responder))?;
                match &failed.address {
                    Some(address) => match self.tasks.get(address) {
                        Some(task) if *task.context.responder == *failed.responder => Ok(()),
                        _ => Err(WorldRefusal::Task(address.clone())),
                    },
                    None => self.check_under_way(frame, &failed.responder),
                }
            }
            WorldEvent::Loaded(_) => match self.is_loaded || self.has_fired {
                true => Err(WorldRefusal::Again),
                false => Ok(()),
            },
            WorldEvent::BudgetExhausted(_) | WorldEvent::BudgetRaised(_) => Ok(()),
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
            (Some(by), Some(post), None) => {
                if frame.actor != Actor::Principal(by.id.clone()) {
                    return Err(WorldRefusal::Actor);
                }
                let (expected, got) = (self.next_post(), post.n);
                match got == expected || (got == self.post.0 && got > 0) {
                    true => Ok(()),
                    false => Err(WorldRefusal::Post { expected, got }),
                }
            }
            (None, None, Some(derived)) => {
                let responder = derived.responder.as_deref();
                self.check_actor(frame, responder)?;
                let Some(responder) = responder else {
                    // What the goal makes comes before everything else.
                    return match self.has_fired {
                        true => Err(WorldRefusal::Output),
                        false => Ok(()),
                    };
                };
                if !is_about(self.current.as_ref(), frame) {
                    return Err(WorldRefusal::Trigger);
                }
                let firing = self.firing.as_ref();
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
        let next;
        let trigger = match (&self.current, &self.firing) {
            (Some(current), None) => current,
            (Some(current), Some(_)) if !is_reply(&current.subject) => {
                next = self.after_current().ok_or(WorldRefusal::Trigger)?.0;
                &next
            }
            _ => return Err(WorldRefusal::Trigger),
        };
        if is_reply(&trigger.subject) || !is_about(Some(trigger), frame) {
            return Err(WorldRefusal::Trigger);
        }
        let names = trigger.candidates.iter().map(|at| self.reactions.name(*at));
        let told = candidates.iter().map(|one| Some(one.responder.as_str()));
        match names.map(|name| name.map(|name| &**name)).eq(told) {
            true => Ok(()),
            false => Err(WorldRefusal::Candidates),
        }
    }

    fn check_under_way(&self, frame: &Frame, responder: &str) -> Result<(), WorldRefusal> {
        let firing = self.firing.as_ref();
        let under_way = firing.is_some_and(|firing| firing.is_under_way(responder));
        match under_way && is_about(self.current.as_ref(), frame) {
            true => Ok(()),
            false => Err(WorldRefusal::Trigger),
        }
    }
}

fn is_reply(subject: &TriggerSubject) -> bool {
    matches!(subject, TriggerSubject::Reply { .. })
}

/// The name of the actor of what the goal of a run becomes.
pub const GOAL_ACTOR: &str = "goal";
