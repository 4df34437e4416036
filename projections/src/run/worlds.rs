//! The worlds of a run, if it loads any: see [`crate::world`].

use ktsu_ledger::event::plan::world::WorldBudget;
use ktsu_ledger::event::{AgentEvent, OverlaySet, PersonEvent, RunEvent, StepEvent, WorldEvent};
use ktsu_ledger::{Event, Frame, Timestamp};

use super::Scope;
use super::transition::{TransitionError, TransitionTarget};
use super::{Effective, FoldError, Outline, RunFailure, RunState, RunStatus, StepKey, Todo};
use crate::life::refusal::{Rule, holds};
use crate::world::responding::WorldRefusal;
use crate::world::wall_time::MovedBy;
use crate::world::{Reactions, Responding};

/// Since these decision rules, a branch of all frames of a complete run accepts posts only after it was
/// resumed. Under earlier rules it accepts them at once.
pub const BRANCHES_OPEN_RULES: u32 = 6;

impl RunState {
    /// The queue of its responders, and the world. Nothing: the run loads no worlds.
    pub fn responding(&self) -> Option<&Responding> {
        self.responding.as_deref()
    }

    /// Returns `true` if nothing is due in a run that loads worlds: it ends, unless something
    /// comes.
    pub fn worlds_are_idle(&self) -> bool {
        let Some(responding) = self.responding() else {
            return false;
        };
        let settled = self.todo() == Some(Todo::End { scope: 0 });
        let may_end = settled && !self.stands_still() && responding.is_idle();
        may_end && responding.next_timer().is_none() && !responding.has_open_tasks()
    }

    /// Returns `true` if only timers of responders, or people, can move the run: time that passes
    /// then is not used up.
    pub fn waits_for_responder_timers(&self) -> bool {
        let waiting = self
            .responding()
            .filter(|all| all.next_timer().is_some() && all.is_idle());
        let Some(responding) = waiting.filter(|_| !self.stands_still()) else {
            return false;
        };
        let settled = self.todo() == Some(Todo::End { scope: 0 });
        (settled && !responding.has_open_tasks()) || self.waits_for_people()
    }

    fn stands_still(&self) -> bool {
        self.failing().is_some() || self.is_parked() || self.paused().is_some()
    }

    /// Those that could move the run until now, for the count of the time that it uses up.
    pub(super) fn moved_by(&self) -> MovedBy {
        if self.waits_for_responder_timers() {
            return MovedBy::Timers;
        }
        let still = self.responding.is_some() && self.status() == RunStatus::Waiting;
        match still {
            true => MovedBy::People,
            false => MovedBy::Work,
        }
    }

    /// Returns `true` if its last frame says that it ends now.
    pub fn is_ending(&self) -> bool {
        self.idle.is_some() && self.idle == self.next_seq.checked_sub(1)
    }

    /// Returns `true` if the run accepts posts: it loads worlds and is in progress, or it is
    /// complete and continues with what is posted; a branch only after it was resumed. A recompute
    /// repeats what was asked, and nothing else.
    pub fn takes_posts(&self) -> bool {
        self.responding.is_some()
            && self.created.results.is_none()
            && match self.scope(0).map(|root| root.status) {
                Some(RunStatus::Running) => self.failing().is_none() && !self.is_parked(),
                Some(RunStatus::Complete) => {
                    !self.is_parked() || self.rules() < BRANCHES_OPEN_RULES
                }
                _ => false,
            }
    }

    /// Returns `true` if this is a branch of all frames of a complete run that loads worlds, and
    /// was not resumed: there is nothing to continue with but posts.
    pub fn opens_when_resumed(&self) -> bool {
        self.is_parked()
            && self.responding.is_some()
            && self.created.results.is_none()
            && self
                .scope(0)
                .is_some_and(|root| root.status == RunStatus::Complete)
    }

    /// Returns `true` if the run is complete, and its responders would react to something that came
    /// since: a person laid a value over the output of a step.
    pub fn has_unseen_triggers(&self) -> bool {
        let complete = self
            .scope(0)
            .is_some_and(|root| root.status == RunStatus::Complete);
        complete && self.responding().is_some_and(|all| !all.is_idle())
    }

    /// The step whose output a person overrode last, if responders of the run, which is complete, have
    /// not reacted yet.
    pub fn unseen_overlay(&self) -> Option<&str> {
        let root = self.scope(0).filter(|_| self.has_unseen_triggers())?;
        let overlaid = (0u32..).zip(&root.steps).filter_map(|(at, step)| {
            let last = step.overlay.values().map(|value| value.place.frame).max()?;
            Some((last, at))
        });
        let (_, at) = overlaid.max()?;
        root.shape.step(at).map(|plan| plan.id.as_str())
    }

    /// Returns `true` if responders of the run, which is complete, react to a value that a person
    /// lays over an output of a step.
    pub fn reacts_to_overlay(&self, set: &OverlaySet) -> bool {
        let complete = self
            .scope(0)
            .is_some_and(|root| root.status == RunStatus::Complete);
        complete
            && !self.is_parked()
            && self
                .responding()
                .is_some_and(|all| all.reacts_to_overlay(&set.field, &set.value))
    }

    /// Returns `true` if a person may raise the budget of the run's worlds: it is in progress, has
    /// completed, or failed because the budget is used up.
    pub fn may_raise_budget(&self) -> bool {
        let Some(responding) = self.responding().filter(|_| self.created.results.is_none()) else {
            return false;
        };
        match self.scope(0).map(|root| root.status) {
            Some(RunStatus::Running) => self.failing().is_none(),
            Some(RunStatus::Complete) => true,
            Some(RunStatus::Failed) => responding.exhausted().is_some(),
            _ => false,
        }
    }

    /// After a first frame.
    pub(super) fn unseen_worlds(outline: &Outline, frame: &Frame) -> Option<Box<Responding>> {
        let worlds = outline.worlds();
        if worlds.is_empty() {
            return None;
        }
        let mut responding = Responding::new(Reactions::of(worlds));
        responding.apply_time(frame, MovedBy::Work);
        responding.apply(frame);
        Some(Box::new(responding))
    }

    /// The definition changes: its worlds are the ones from here on.
    pub(super) fn redefine_worlds(&mut self, frame: &Frame) {
        let worlds = self.outline.worlds();
        match &mut self.responding {
            Some(responding) if !worlds.is_empty() => responding.redefine(Reactions::of(worlds)),
            other => *other = Self::unseen_worlds(&self.outline, frame),
        }
    }

    /// An event about a world: of the run itself, and only where it loads worlds.
    pub(super) fn check_world(
        &self,
        frame: &Frame,
        event: &WorldEvent,
    ) -> Result<TransitionTarget, TransitionError> {
        let responding = self
            .responding
            .as_deref()
            .ok_or(TransitionError::NoWorlds)?;
        if !frame.scope.is_empty() {
            return Err(TransitionError::Scope(frame.scope.clone()));
        }
        let status = self.scope(0).map_or(RunStatus::Pending, |root| root.status);
        let open = status == RunStatus::Running && !self.is_parked();
        let allowed = if matches!(event, WorldEvent::BudgetRaised(_)) {
            self.may_raise_budget()
        } else if event.post().is_some() {
            self.takes_posts()
        } else {
            open && self.failing().is_none()
        };
        let allowed = holds(Rule::World, allowed);
        self.require(allowed, frame, "the run", status.as_str())?;
        responding.check(frame, event)?;
        Ok(TransitionTarget::Nothing)
    }

    /// An event of a kit's own. It is legal anywhere; where worlds are loaded, what is posted has its
    /// number.
    pub(super) fn check_kit_event(
        &self,
        frame: &Frame,
    ) -> Result<TransitionTarget, TransitionError> {
        if let Some(responding) = self.responding.as_deref()
            && let Some((by, post)) = frame.event.posted()
        {
            if !frame.scope.is_empty() {
                return Err(TransitionError::Scope(frame.scope.clone()));
            }
            let status = self.status().as_str();
            let allowed = holds(Rule::World, self.takes_posts());
            self.require(allowed, frame, "the run", status)?;
            responding.check_post(frame, &by, &post)?;
        }
        Ok(TransitionTarget::Nothing)
    }

    /// Checks that the end of a run names the world that its frames made. To be called by a
    /// verifier, before or after the frame is applied: it costs as much as the world is large, and
    /// the engine that decides has just made the hash.
    ///
    /// # Errors
    /// [`WorldRefusal::Hash`].
    pub fn check_world_hash(&self, frame: &Frame) -> Result<(), WorldRefusal> {
        let named = if let Event::Run(RunEvent::Completed(end)) = &frame.event {
            &end.world
        } else if let Event::Run(RunEvent::Failed(end)) = &frame.event {
            &end.world
        } else {
            return Ok(());
        };
        let responding = self.responding().filter(|_| frame.scope.is_empty());
        let made = responding.map(|responding| responding.head().hash());
        match *named == made {
            true => Ok(()),
            false => Err(WorldRefusal::Hash {
                expected: made,
                got: named.clone(),
            }),
        }
    }

    /// As [`RunState::fold`], and every end names the world that its frames made.
    ///
    /// # Errors
    /// [`FoldError`].
    pub fn fold_with_world_hashes<'a>(
        frames: impl IntoIterator<Item = &'a Frame>,
    ) -> Result<Self, FoldError> {
        let mut frames = frames.into_iter();
        let first = frames.next().ok_or(FoldError::Empty)?;
        let mut state = Self::fold([first])?;
        for frame in frames {
            let folded = state.apply(frame);
            folded
                .and_then(|()| Ok(state.check_world_hash(frame)?))
                .map_err(|refusal| FoldError::Refused(frame.seq, refusal))?;
        }
        Ok(state)
    }

    /// The limits of the run's worlds in force: the lowest of each, unless a person raised it.
    pub fn world_budget(&self) -> Option<WorldBudget> {
        let responding = self.responding()?;
        let worlds = self.outline.worlds().values();
        let lowest = worlds.map(|world| world.budget).reduce(WorldBudget::lowest);
        lowest.map(|budget| responding.budget(budget))
    }

    /// Returns `true` if the time of the world's budget is used up at a moment.
    pub fn is_world_time_up(&self, at: Timestamp) -> bool {
        let limit = self.world_budget().and_then(|budget| {
            let responding = self.responding()?;
            responding.time_limit(budget.max_wall_ms)
        });
        limit.is_some_and(|(until, _)| until <= at)
    }

    /// Takes any frame, behind everything else that takes it. `until`: what could move the run until
    /// then.
    pub(super) fn apply_to_worlds(&mut self, frame: &Frame, until: MovedBy) {
        let refused = self.is_refused_by_worlds(frame);
        // Without worlds this is all that they cost.
        let Some(mut responding) = self.responding.take() else {
            return;
        };
        responding.apply_time(frame, until);
        responding.apply(frame);
        if refused {
            responding.refuse_call();
        }
        if frame.scope.is_empty() {
            self.apply_steps_to_worlds(frame, &mut responding);
        }
        self.responding = Some(responding);
        self.apply_to_responder_tasks(frame);
        self.fail_by_worlds(frame);
        if self.status().is_terminal() && frame.event.is_world_input() {
            self.reopen(frame);
        }
    }

    /// Returns `true` if a frame says that the budget of the worlds does not allow a model call.
    fn is_refused_by_worlds(&self, frame: &Frame) -> bool {
        let Event::Agent(AgentEvent::BudgetExhausted(spent)) = &frame.event else {
            return false;
        };
        self.world_cost_limit() == Some(spent.limit_micro_usd)
    }

    /// A run that had ended goes on because of what somebody posted, or with a raised budget. Steps
    /// that the end of the budget stopped, or kept from running, begin again.
    fn reopen(&mut self, frame: &Frame) {
        (self.parked, self.resumed) = (false, frame.seq);
        self.deadline_from = frame.at;
        let failed = self.failing.is_some();
        if failed {
            self.restart_responder_tasks(frame);
        }
        if let (None, Some(responding)) = (frame.event.posted(), &mut self.responding) {
            responding.take_up();
        }
        let root = self.scopes.first().filter(|_| failed);
        let closed = root.into_iter().flat_map(Scope::closed_steps);
        self.go_on(closed.collect());
    }

    /// A responder that fails ends the run unless it says otherwise (seed 000, invariant 11), and so
    /// does a budget that is used up.
    fn fail_by_worlds(&mut self, frame: &Frame) {
        let Event::World(event) = &frame.event else {
            return;
        };
        let goes_on = |responder: &str| {
            let responding = self.responding();
            responding.is_some_and(|all| all.reactions().goes_on(responder))
        };
        let (code, message) = if let WorldEvent::Failed(failed) = event
            && !goes_on(&failed.responder)
        {
            let message = format!("responder {}: {}", failed.responder, failed.message);
            (failed.code.clone(), message)
        } else if let WorldEvent::BudgetExhausted(exhausted) = event {
            let reasons = exhausted.reasons.join(", ");
            let message = format!("the budget of the world is used up: {reasons}");
            ("budget_exhausted".to_owned(), message)
        } else {
            return;
        };
        if self.failing().is_none() {
            self.fail(RunFailure {
                seq: frame.seq,
                scope: 0,
                step: None,
                code,
                message,
                within: None,
            });
        }
    }

    /// Completed steps stand in the world as objects.
    fn apply_steps_to_worlds(&self, frame: &Frame, responding: &mut Responding) {
        if let Event::Step(StepEvent::Completed(done)) = &frame.event {
            let root = self.scope(0);
            let position = root.and_then(|root| root.shape.position(&done.step));
            if let Some(Effective::Output(held)) =
                position.map(|at| self.effective(StepKey::of(0, at)))
            {
                responding.complete_step(frame, &done.step, &held.json);
            }
        } else if let Event::Person(PersonEvent::OverlaySet(set)) = &frame.event {
            responding.overlay_step(frame, &set.step, (&set.field, &set.value));
        }
    }
}
