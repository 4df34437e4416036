//! The reasons why a step did not run, did not complete, or is not done yet: back to the first
//! cause.

mod invoked;
mod reasons;
mod responder;
mod waiting;

use std::collections::HashSet;

use ktsu_ledger::event::plan::StepWork;
use ktsu_ledger::event::{Effects, ItemEvent, SkipReason, StepEvent};
use ktsu_ledger::{Event, Frame};
use ktsu_projections::run::{Phase, Scope, Step, StepKey, StepStatus};
use ktsu_projections::step_name::StepName;

pub use reasons::{Reason, WhyNot};

use super::provenance::{FieldNotFoundError, TraceError, TracedRun, origins};
use super::traversal::depth_first;
use ktsu_workflow::expression::provenance::{FramePointer, Provenance};
use ktsu_workflow::expression::{EvaluatedValue, Tracker};
use ktsu_workflow::timers;

/// The reasons why a step has the status it has, or why a responder did not react. A step comes
/// before a responder of its name, unless there is an object or a relation that the responder
/// should have reacted to.
///
/// # Errors
/// [`TraceError`] if there is neither.
pub fn why_not_of(
    story: &TracedRun<'_>,
    within: &str,
    name: &str,
    object: Option<&str>,
) -> Result<WhyNot, TraceError> {
    let has_worlds = within.is_empty() && story.state().responding().is_some();
    if object.is_some() {
        return story.within_bound(responder::why_not(story, name, object));
    }
    let answer = match of_step(story, within, name) {
        Err(mut no_step) if has_worlds => responder::why_not(story, name, None).map_err(|error| {
            // A run may have no steps of its own.
            no_step.message = format!("there is neither a step nor a responder {name:?}");
            no_step.there.extend(error.there);
            no_step
        }),
        found => found,
    };
    story.within_bound(answer)
}

/// The reasons why a step has the status it has; `path` is seen from `within`.
///
/// # Errors
/// [`TraceError`] if there is no such step.
pub fn why_not(story: &TracedRun<'_>, within: &str, path: &str) -> Result<WhyNot, TraceError> {
    story.within_bound(of_step(story, within, path))
}

fn of_step(story: &TracedRun<'_>, within: &str, path: &str) -> Result<WhyNot, FieldNotFoundError> {
    let name = StepName::parse(path).within(within);
    let mut walk = Explainer {
        story,
        seen: HashSet::new(),
        because: Vec::new(),
    };
    let (status, first) = match (walk.invoked_child(&name), name.item) {
        (Some(found), _) => found,
        (None, None) => {
            let (status, first) = walk.path(&name.path)?;
            (status.as_str(), Some(first))
        }
        (None, Some(item)) => walk.item(&name, item)?,
    };
    if let Some(first) = first {
        depth_first(first, |at| walk.explain(at));
    }
    Ok(WhyNot {
        run_id: story.state().stream().name().to_owned(),
        step: name.to_string(),
        object: None,
        status: status.to_owned(),
        because: shortened(walk.because),
    })
}

/// All reasons, or those at both ends of a chain that is too long to be read.
fn shortened(mut because: Vec<Reason>) -> Vec<Reason> {
    let left_out = because.len().saturating_sub(MAX_REASONS);
    if left_out > 0 {
        let from = MAX_REASONS / 2;
        let between = Reason {
            step: String::new(),
            frame: None,
            text: format!("{left_out} more reasons in between"),
            values: Vec::new(),
        };
        because.splice(from..from + left_out, [between]);
    }
    because
}

/// The most reasons in an answer.
const MAX_REASONS: usize = 1000;

struct Explainer<'s, 'f> {
    story: &'s TracedRun<'f>,
    seen: HashSet<StepKey>,
    because: Vec<Reason>,
}

impl Explainer<'_, '_> {
    /// The status of a step, and the step to explain first: that of the child it is in, if the child
    /// never began.
    fn path(&mut self, path: &str) -> Result<(StepStatus, StepKey), FieldNotFoundError> {
        let (mut scope, mut id) = path.rsplit_once('/').unwrap_or(("", path));
        let mut whole = path;
        let state = self.story.state();
        while state.scope_at(scope).is_none() {
            self.require_step(scope, id)?;
            let text = format!("its workflow {scope} never began");
            self.push_reason(whole, None, text, &Provenance::default());
            whole = scope;
            (scope, id) = whole.rsplit_once('/').unwrap_or(("", whole));
        }
        let at = state.step_at(scope, id);
        let at = at.ok_or_else(|| self.no_step(scope, id))?;
        let status = match state.step(at) {
            Some(step) if whole == path => step.status,
            _ => StepStatus::Pending,
        };
        Ok((status, at))
    }

    /// The status of an item of a fan-out, and the step to explain if the item never began.
    fn item(
        &mut self,
        name: &StepName,
        item: u32,
    ) -> Result<(&'static str, Option<StepKey>), FieldNotFoundError> {
        let (scope, id) = name.path.rsplit_once('/').unwrap_or(("", &name.path));
        let state = self.story.state();
        let at = state.step_at(scope, id);
        let at = at.ok_or_else(|| self.no_step(scope, id))?;
        let step = state.step(at);
        let count = step.and_then(|step| step.tasks.as_deref()?.items);
        let last = last_item_event(self.story.frames(), (scope, id), item);
        let ran = self.in_invoked(at, Some(item));
        let (status, text) = match last.map(|(_, event)| event) {
            None if count.is_none_or(|count| item >= count) => {
                let path = &name.path;
                return Err(FieldNotFoundError {
                    message: format!("there is no item {:?}", name.to_string()),
                    unnamed: "the step has no such item".to_owned(),
                    there: vec![match count {
                        None | Some(0) => format!("{path}, without items"),
                        Some(count) => format!("{path}.0 to {path}.{}", count - 1),
                    }],
                });
            }
            None => ("pending", "it never began".to_owned()),
            Some(ItemEvent::Started(_)) => {
                let people = step.is_some_and(|step| state.awaits_people(step));
                let text = match (&ran, people) {
                    (Some((child, _)), _) => format!("it waits for the workflow {child}"),
                    (None, true) => {
                        "it waits for its agent, or for people to decide: ktsu approvals".to_owned()
                    }
                    (None, false) => "it waits for its agent".to_owned(),
                };
                ("running", text)
            }
            Some(ItemEvent::Completed(done)) => match &done.skipped {
                Some(why) => ("skipped", format!("its agent skipped it: {why}")),
                None => ("complete", "it completed".to_owned()),
            },
            Some(ItemEvent::Failed(failed)) => {
                let text = format!("it failed with {}: {}", failed.code, failed.message);
                ("failed", text)
            }
        };
        let values = match last {
            Some((seq, ItemEvent::Failed(_))) => Provenance::at(FramePointer::new(seq, "/code")),
            _ => Provenance::default(),
        };
        self.push_reason(&name.to_string(), last.map(|(seq, _)| seq), text, &values);
        let below = ran.map(|(_, step)| step).filter(|_| status == "running");
        let ask = last.is_none().then_some(at);
        Ok((status, below.or(ask)))
    }

    /// Checks that a child that never began would have such a step.
    fn require_step(&self, scope: &str, id: &str) -> Result<(), FieldNotFoundError> {
        let outline = self.story.state().outline();
        let mut shape = outline.root().clone();
        for name in scope.split('/') {
            let step = shape.position(name).and_then(|at| shape.step(at).cloned());
            let child = step.and_then(|step| match step.work {
                StepWork::Workflow(child) => outline.workflow(&child.workflow).cloned(),
                StepWork::Agent(_) | StepWork::Transform(_) | StepWork::Webhook(_) => None,
            });
            shape = child.ok_or_else(|| self.no_step("", scope))?;
        }
        let found = shape.position(id).map(|_| ());
        found.ok_or_else(|| self.no_step(scope, id))
    }

    fn no_step(&self, scope: &str, id: &str) -> FieldNotFoundError {
        let state = self.story.state();
        let held = state.scope_at(scope).and_then(|at| state.scope(at));
        let steps = held.into_iter().flat_map(|held| &held.shape.plan.steps);
        FieldNotFoundError {
            message: format!("there is no step {id:?}"),
            unnamed: "the run has no such step".to_owned(),
            there: steps.map(|step| step.id.clone()).take(20).collect(),
        }
    }

    fn push_reason(
        &mut self,
        step: &str,
        frame: Option<u64>,
        text: impl Into<String>,
        values: &Provenance,
    ) {
        self.because.push(Reason {
            step: step.to_owned(),
            frame,
            text: text.into(),
            values: origins(self.story, values),
        });
    }

    /// Adds the reason for the status of a step, and returns the steps that explain it.
    fn explain(&mut self, at: StepKey) -> Vec<StepKey> {
        let story = self.story;
        let StepKey::Of {
            scope,
            step: position,
        } = at
        else {
            return Vec::new();
        };
        if !self.seen.insert(at) {
            return Vec::new();
        }
        let Some(held) = story.state().scope(scope) else {
            return Vec::new();
        };
        let Some(step) = held.steps.get(position as usize) else {
            return Vec::new();
        };
        let path = held.path_of(position);
        match step.status {
            StepStatus::Complete => {
                self.push_reason(&path, step.ended, "it completed", &Provenance::default());
                Vec::new()
            }
            StepStatus::Skipped => self.skipped(scope, position, held, step, &path),
            StepStatus::Failed => self.failed(scope, position, held, step, &path),
            StepStatus::Running => self.running(at, step, &path),
            StepStatus::Pending => self.pending(scope, position, held, &path),
        }
    }

    fn skipped(
        &mut self,
        scope: u32,
        position: u32,
        held: &Scope,
        step: &Step,
        path: &str,
    ) -> Vec<StepKey> {
        let story = self.story;
        let none = Provenance::default();
        let Some(reason) = step.skipped else {
            return Vec::new();
        };
        let (text, values) = match reason {
            SkipReason::ConditionFalse | SkipReason::ConditionError => {
                let text = story.condition_text(scope, position).unwrap_or_default();
                let mut tracker = Tracker::default();
                match story.condition(scope, position, &mut tracker) {
                    Some(Ok(value)) => {
                        let words = format!("its condition {text} is {}", value.to_value());
                        (words, value.dependencies())
                    }
                    Some(Err(error)) => {
                        let words = format!("its condition {text} has no value: {}", error.message);
                        (words, tracker.inspected())
                    }
                    None => (format!("its condition {text} did not hold"), none),
                }
            }
            SkipReason::DependencySkipped => ("a step it needs was skipped".to_owned(), none),
            SkipReason::RunFailed => ("the run failed before it began".to_owned(), none),
            SkipReason::AgentSkipped => {
                let words = step.skip_detail.as_deref().unwrap_or_default();
                let value = story.step(StepKey::of(scope, position));
                let value = value.and_then(|track| track.value.as_ref()?.find("/reason"));
                let values = value.map(|value| value.sources()).unwrap_or_default();
                (format!("its agent skipped it: {words}"), values)
            }
            SkipReason::OnApproval => ("it fires for approvals only".to_owned(), none),
            SkipReason::OnResume => (waiting::resume_step(story.state(), scope, position), none),
            SkipReason::WebhooksSuppressed => {
                let state = story.state();
                let shared = |seq| state.fork().is_none_or(|fork| seq < fork.position);
                let text = match step.ended.is_none_or(shared) {
                    true if state.created().effects == Effects::Suppress => {
                        "webhooks of this run are not sent: it was created with effects=suppress"
                    }
                    false if state.suppresses_effects() => {
                        "webhooks of a branch are not sent unless it is forked with --effects \
                         execute"
                    }
                    true | false => {
                        "webhooks of this child are suppressed: the step that calls it and its own \
                         file must both say execute"
                    }
                };
                (text.to_owned(), none)
            }
        };
        self.push_reason(path, step.ended, text, &values);
        match reason {
            SkipReason::DependencySkipped => needs(scope, position, held, |step| {
                let reasons = [SkipReason::AgentSkipped, SkipReason::DependencySkipped];
                step.skipped.is_some_and(|reason| reasons.contains(&reason))
            }),
            SkipReason::RunFailed => self.first_failure(),
            _ => Vec::new(),
        }
    }

    fn failed(
        &mut self,
        scope: u32,
        position: u32,
        held: &Scope,
        step: &Step,
        path: &str,
    ) -> Vec<StepKey> {
        let (code, message) = self.story.fault_of(&held.path, position);
        let text = format!("it failed with {code}: {message}");
        let failing = self.story.state().failing();
        let is_first = failing.is_some_and(|one| (one.scope, one.step) == (scope, Some(position)));
        let track = self
            .story
            .step(StepKey::of(scope, position))
            .filter(|_| is_first);
        let values = track.map(|track| track.risk.clone()).unwrap_or_default();
        self.push_reason(path, step.ended, text, &values);
        match is_first {
            true => Vec::new(),
            false => self.first_failure(),
        }
    }

    /// The step whose failure failed the run. If there is none, the failure is added as a reason.
    fn first_failure(&mut self) -> Vec<StepKey> {
        let Some(failing) = self.story.state().failing().cloned() else {
            return Vec::new();
        };
        if let Some(step) = failing.step {
            return vec![StepKey::of(failing.scope, step)];
        }
        let text = format!("the run failed with {}: {}", failing.code, failing.message);
        self.push_reason("", Some(failing.seq), text, &Provenance::default());
        Vec::new()
    }

    fn running(&mut self, at: StepKey, step: &Step, path: &str) -> Vec<StepKey> {
        let state = self.story.state();
        let mut values = Provenance::default();
        let mut next = Vec::new();
        let asked = waiting::review(state, at).or_else(|| waiting::suspension(state, at));
        if let Some((frame, text)) = asked {
            self.push_reason(path, Some(frame), text, &values);
            return next;
        }
        let (frame, text) = match &step.phase {
            Phase::Sent { seq, sending } => {
                let text = format!("it waits for the answer to sending {sending} of its webhook");
                (Some(*seq), text)
            }
            Phase::Backoff { seq, since, .. } => {
                let retry = timers::retry(state, at);
                let until = retry.map_or(*since, |retry| retry.until);
                values = Provenance::at(FramePointer::new(*seq, "/code"));
                let text = format!("it waits until {until} to send its webhook again");
                (Some(*seq), text)
            }
            Phase::Child { scope } => {
                let steps = state.scope(*scope).map(|child| &child.steps);
                let steps = (0u32..).zip(steps.into_iter().flatten());
                let mut open = steps.filter(|(_, step)| step.status == StepStatus::Running);
                next.extend(
                    open.next()
                        .map(|(position, _)| StepKey::of(*scope, position)),
                );
                let text = "it waits for the workflow it calls".to_owned();
                (step.started, text)
            }
            Phase::Begun
            | Phase::Checked { .. }
            | Phase::Delivered { .. }
            | Phase::Undelivered { .. }
            | Phase::ToResend { .. } => {
                let tasks = step.tasks.as_deref();
                let list = tasks.map_or(&[][..], |tasks| tasks.list.as_slice());
                let open = list.iter().filter(|task| task.is_unfinished()).count();
                let last = list.iter().map(|task| task.last).max();
                let ran = self.in_invoked(at, None);
                next.extend(ran.as_ref().filter(|_| open == 0).map(|(_, step)| *step));
                match (open, tasks.and_then(|tasks| tasks.items)) {
                    (0, _) if !next.is_empty() => {
                        let child = ran.map(|(child, _)| child).unwrap_or_default();
                        (last, format!("it waits for the workflow {child}"))
                    }
                    _ if state.awaits_people(step) => {
                        let text = "it waits for people to decide: ktsu approvals".to_owned();
                        (last, text)
                    }
                    (0, _) => (last.or(step.started), "it is being decided".to_owned()),
                    (_, None) => (last.or(step.started), "it waits for its agent".to_owned()),
                    (open, Some(items)) => {
                        let text = format!("it waits for {open} of {items} items");
                        (last.or(step.started), text)
                    }
                }
            }
        };
        self.push_reason(path, frame, text, &values);
        next
    }

    fn pending(&mut self, scope: u32, position: u32, held: &Scope, path: &str) -> Vec<StepKey> {
        let none = Provenance::default();
        let open = |step: &Step| matches!(step.status, StepStatus::Pending | StepStatus::Running);
        let plan = held.shape.step(position);
        let waits = plan.is_some_and(|plan| {
            let mut needs = plan.needs.iter();
            needs.any(|need| held.steps.get(*need as usize).is_some_and(open))
        });
        if let Some(seq) = self.story.reset_frame(scope, position) {
            self.push_reason(path, Some(seq), "it was taken back to begin again", &none);
        }
        if waits {
            let text = "it has not begun: something it needs is not done";
            self.push_reason(path, None, text, &none);
            return needs(scope, position, held, open);
        }
        let state = self.story.state();
        let name = state.stream().name();
        let parked = state.fork().filter(|_| state.is_parked());
        let (seq, text) = match (parked, state.paused()) {
            (Some(fork), _) => {
                let text = format!("the branch waits for a person: ktsu resume {name}");
                (Some(fork.position), text)
            }
            (None, Some(pause)) => {
                let text = format!("the run is paused: ktsu resume {name}");
                (Some(pause.seq), text)
            }
            (None, None) => (None, "it is about to begin".to_owned()),
        };
        self.push_reason(path, seq, text, &none);
        Vec::new()
    }
}

/// The last event about an item in the latest attempt of its step.
fn last_item_event<'f>(
    frames: &'f [Frame],
    (scope, step): (&str, &str),
    item: u32,
) -> Option<(u64, &'f ItemEvent)> {
    let mut last = None;
    for frame in frames.iter().filter(|frame| frame.scope == scope) {
        match &frame.event {
            Event::Step(event @ (StepEvent::Started(_) | StepEvent::Reset(_)))
                if event.step() == step =>
            {
                last = None;
            }
            Event::Item(event) if event.step() == step && event.item() == item => {
                last = Some((frame.seq, event));
            }
            _ => {}
        }
    }
    last
}

/// Every step that a step needs and that fits.
fn needs(scope: u32, position: u32, held: &Scope, fits: impl Fn(&Step) -> bool) -> Vec<StepKey> {
    let plan = held.shape.step(position);
    let needs = plan.into_iter().flat_map(|plan| &plan.needs);
    let fitting = needs.filter(|need| held.steps.get(**need as usize).is_some_and(&fits));
    fitting.map(|need| StepKey::of(scope, *need)).collect()
}

#[cfg(test)]
mod tests {
    use ktsu_ledger::event::{ItemStarted, StepReset};
    use ktsu_ledger::{Actor, Hash, StreamId, Timestamp};

    use super::*;

    #[test]
    fn an_item_is_as_the_latest_attempt_of_its_step_left_it() {
        let step = || "fan".to_owned();
        let frame = |seq, event| Frame {
            actor: Actor::Orchestrator,
            at: Timestamp::default(),
            cause: Vec::new(),
            event,
            ext: Vec::new(),
            hash: Hash::of(b""),
            prev: Hash::of(b""),
            scope: String::new(),
            seq,
            stream: StreamId::run("run_x").unwrap(),
        };
        let started = |seq, item| {
            let (input, step) = (Default::default(), step());
            let event = ItemEvent::Started(ItemStarted { input, item, step });
            frame(seq, Event::Item(event))
        };
        let (attempt, step) = (1, step());
        let reset = StepEvent::Reset(StepReset { attempt, step });
        let reset = frame(3, Event::Step(reset));
        let frames = [started(1, 0), started(2, 1), reset, started(4, 0)];
        let last = |count: usize, item| {
            let last = last_item_event(&frames[..count], ("", "fan"), item);
            last.map(|(seq, _)| seq)
        };
        assert_eq!(last(2, 1), Some(2));
        assert_eq!(last(3, 1), None);
        assert_eq!(last(4, 0), Some(4));
        assert_eq!(last_item_event(&frames, ("call", "fan"), 0), None);
        assert_eq!(last_item_event(&frames, ("", "other"), 0), None);
    }
}
