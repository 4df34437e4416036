//! Applies frames about reviews to the state, and says which reviews are pending.

use ktsu_ledger::event::plan::ReviewPolicy;
use ktsu_ledger::event::{CommandKind, Reference, ReviewDecided, StepCommand, StepEvent};
use ktsu_ledger::{CanonicalJson, Frame};
use serde_json::Value;

use super::{AgentTask, RunState, StepKey, StepStatus, TaskId, TaskPhase};
use crate::life::overlays::{OverlayValue, REVIEWED_FIELDS};
use crate::life::review::{PendingReview, Review, ReviewDue};

/// A review that people are asked for.
#[derive(Debug, Clone, Copy)]
pub struct AskedReview<'a> {
    /// The step.
    pub step: StepKey,
    /// Its task, whose outcome it is about.
    pub task: &'a AgentTask,
    /// The review.
    pub review: &'a PendingReview,
}

impl RunState {
    /// The reviews that people are asked for, in the order they were asked.
    pub fn pending_reviews(&self) -> Vec<AskedReview<'_>> {
        if !self.has_suspended() {
            return Vec::new();
        }
        let asked = |(at, task): (TaskId, _)| {
            let task: &AgentTask = task;
            let review = task.review.as_ref()?.pending()?;
            Some(AskedReview {
                step: at.step,
                task,
                review,
            })
        };
        let mut found: Vec<AskedReview<'_>> = self.suspended_tasks().filter_map(asked).collect();
        found.sort_by_key(|asked| asked.review.request);
        found
    }

    /// Returns `true` if a task is an item of a fan-out. A recompute has its tasks in fan-outs, of
    /// which its params say which tasks of the run those are.
    pub fn is_fan_out_item(&self, at: StepKey, item: Option<u32>) -> bool {
        let Some(item) = item else { return false };
        if self.created().results.is_none() {
            return true;
        }
        let held = self.scope_of(at).zip(at.position());
        let plan = held.and_then(|(held, step)| held.shape.step(step));
        let params = self.created().params.to_value();
        plan.is_some_and(|plan| {
            let tasks = &params["steps"][plan.id.as_str()]["tasks"];
            tasks[item as usize]["item"].is_u64()
        })
    }

    /// Number of questions to people: about calls of tools and outcomes of steps, and for data.
    pub fn count_asked(&self) -> usize {
        self.pending_decisions().len()
            + self.pending_reviews().len()
            + self.pending_suspensions().len()
    }

    /// Returns `true` if a step waits for the decision of a review.
    pub(super) fn awaits_review(&self, at: StepKey) -> bool {
        let running = self
            .step(at)
            .is_some_and(|step| step.status == StepStatus::Running);
        let task = self.task(at, None);
        running && task.is_some_and(|task| task.review_due() == Some(ReviewDue::Wait))
    }

    /// The review of an attempt of a step.
    fn review_of(&self, at: StepKey, attempt: u32) -> Option<&Review> {
        let task = self.task(at, None);
        task.filter(|task| task.attempt == attempt)?
            .review
            .as_deref()
    }

    /// Returns `true` if a frame about a review may follow, and for any other frame.
    pub(super) fn review_may(&self, at: StepKey, event: &StepEvent) -> bool {
        let of = |attempt: u32| self.review_of(at, attempt);
        let policy = || self.review_policy(at);
        if let StepEvent::CommandsDeferred(event) = event {
            of(event.attempt).is_some_and(|review| review.may_defer(event))
        } else if let StepEvent::CommandsDiscarded(event) = event {
            of(event.attempt).is_some_and(|review| review.may_discard(event))
                || self.suspension_may_discard(at, event)
        } else if let StepEvent::ReviewRequested(event) = event {
            of(event.attempt).is_some_and(|review| review.may_ask(event, policy()))
        } else if let StepEvent::Commanded(event) = event {
            event.kind != CommandKind::Review
                || (self.may_wait_for_people(at, event) && policy().is_some())
        } else {
            true
        }
    }

    /// The policy of the reviews that a step may ask for.
    pub fn review_policy(&self, at: StepKey) -> Option<&ReviewPolicy> {
        let plan = self.agent_plan(at)?;
        self.outline.agent(&plan.file)?.review.as_ref()
    }

    pub(super) fn may_decide_review(&self, at: StepKey, event: &ReviewDecided) -> bool {
        let review = self.review_of(at, event.attempt);
        let is_live = !self.is_parked() && self.failing().is_none();
        let reserved = event
            .overlay
            .keys()
            .any(|field| crate::life::reserved::is_reserved(field));
        is_live
            && !reserved
            && self.awaits_review(at)
            && review.is_some_and(|review| review.may_decide(event, &self.proposer().id))
    }

    /// A review is commanded. In a recompute it is not carried out.
    pub(super) fn request_review(&mut self, frame: &Frame, at: StepKey, command: &StepCommand) {
        if command.kind != CommandKind::Review || command.suppressed {
            return;
        }
        if let Some(task) = self.task_mut(at, command.item) {
            task.review = Some(Box::new(Review::new(frame.seq, task.order.siblings())));
        }
    }

    pub(super) fn apply_review(&mut self, frame: &Frame, at: StepKey, event: &StepEvent) {
        let Some(task) = self.task_mut(at, None) else {
            return;
        };
        task.last = frame.seq;
        if let (Some(suspension), StepEvent::CommandsDiscarded(_)) = (&mut task.suspension, event) {
            suspension.discard();
        }
        if let Some(review) = &mut task.review {
            if let StepEvent::CommandsDeferred(_) = event {
                review.defer();
            } else if let StepEvent::CommandsDiscarded(_) = event {
                review.discard();
            } else if let StepEvent::ReviewRequested(event) = event {
                review.ask(frame.seq, frame.at, event);
            }
        }
        self.reclassify_task(at, None);
    }

    pub(super) fn decide_review(&mut self, frame: &Frame, at: StepKey, event: &ReviewDecided) {
        if !event.overlay.is_empty() {
            let members = event.overlay.iter();
            let members = members.map(|(field, value)| (field.clone(), value.to_value()));
            let overlay = CanonicalJson::from_value(&Value::Object(members.collect()));
            self.overlays.insert(frame.seq, overlay.unwrap_or_default());
        }
        self.change_review(frame, at, |review| review.decide(frame.seq, event));
    }

    pub(super) fn time_out_review(&mut self, frame: &Frame, at: StepKey) {
        self.change_review(frame, at, |review| review.time_out(frame.seq));
    }

    fn change_review(&mut self, frame: &Frame, at: StepKey, change: impl FnOnce(&mut Review)) {
        let Some(task) = self.task_mut(at, None) else {
            return;
        };
        task.last = frame.seq;
        if let Some(review) = &mut task.review {
            change(review);
        }
        self.reclassify_task(at, None);
    }

    /// The fields of the output of a step that completes that people replaced, with their values.
    pub(super) fn overlay_of_review(
        &self,
        at: StepKey,
    ) -> impl Iterator<Item = (String, OverlayValue)> + use<> {
        let task = self.task(at, None);
        let finished = |task: &&AgentTask| matches!(task.phase, TaskPhase::Finished { .. });
        let review = task
            .filter(finished)
            .and_then(|task| task.review.as_deref());
        let overlay = review.into_iter().flat_map(Review::overlay);
        let values = overlay.map(|(field, replaced)| {
            let place = Reference {
                frame: replaced.seq,
                path: format!("{REVIEWED_FIELDS}{}", super::escape(field)),
            };
            let value = replaced.value.clone();
            (field.clone(), OverlayValue { place, value })
        });
        values.collect::<Vec<_>>().into_iter()
    }

    /// A branch begins while people are asked: they are asked again (decision F1).
    pub(super) fn ask_reviews_again(&mut self) {
        let asked = self.pending_reviews().into_iter();
        let asked: Vec<StepKey> = asked.map(|asked| asked.step).collect();
        for at in asked {
            if let Some(task) = self.task_mut(at, None)
                && let Some(review) = &mut task.review
            {
                review.ask_again();
            }
            self.reclassify_task(at, None);
        }
    }
}
