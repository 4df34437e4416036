//! Responders that wait before they look (`after`), and steps whose output people have to decide on.

use ktsu_ledger::event::Candidate;
use ktsu_projections::life::review::ReviewState;
use ktsu_projections::life::suspension::SuspensionState;
use ktsu_projections::reviews::review_id;
use ktsu_projections::run::{RunState, StepKey};
use ktsu_projections::suspensions::suspend_id;
use ktsu_projections::world::Responding;

/// The frame that asks people about the output of a step, and that it waits for them; or the frame of
/// their decision, and that what follows from it waits for the run.
pub(super) fn review(state: &RunState, at: StepKey) -> Option<(u64, String)> {
    let review = state.task(at, None)?.review.as_deref()?;
    let stream = state.stream();
    let decided = match &review.state {
        ReviewState::Pending(pending) if !state.is_parked() => {
            let id = review_id(stream, pending.request);
            let words = format!("its output waits for the review {id}: ktsu approve {id}");
            return Some((pending.request, words));
        }
        ReviewState::Approved { seq, .. } => (*seq, "approved"),
        ReviewState::Refused(refusal) if refusal.rejects() => (refusal.seq(), "rejected"),
        ReviewState::Refused(_) | ReviewState::Pending(_) | ReviewState::Due => return None,
    };
    state.paused()?;
    let (seq, word) = decided;
    let name = stream.name();
    let words = format!("its output was {word}, and the run is paused: ktsu resume {name}");
    Some((seq, words))
}

/// The frame that asks for the data of a step, and that it waits for them; or the frame with the data,
/// and that what follows from it waits for the run.
pub(super) fn suspension(state: &RunState, at: StepKey) -> Option<(u64, String)> {
    let suspension = state.task(at, None)?.suspension.as_deref()?;
    let stream = state.stream();
    match &suspension.state {
        SuspensionState::Pending(pending) if !state.is_parked() => {
            let id = suspend_id(stream, pending.request);
            let words = format!("it waits for data: ktsu resume {id} --data @FILE");
            Some((pending.request, words))
        }
        SuspensionState::Resumed { seq, .. } => {
            state.paused()?;
            let name = stream.name();
            let words = format!("it has its data, and the run is paused: ktsu resume {name}");
            Some((*seq, words))
        }
        SuspensionState::Pending(_) | SuspensionState::Due | SuspensionState::TimedOut { .. } => {
            None
        }
    }
}

/// The reason why a step that is declared `on: resume` does not run by itself, and for which step
/// it does or will.
pub(super) fn resume_step(state: &RunState, scope: u32, position: u32) -> String {
    let alone = "it runs only in place of a suspended step that is resumed to it";
    let held = state.scope(scope);
    let named = held.and_then(|held| Some((held, held.shape.step(position)?.id.as_str())));
    let Some((held, name)) = named else {
        return alone.to_owned();
    };
    let waits = |step: &u32| {
        let task = state.task(StepKey::of(scope, *step), None);
        let suspended = task.is_some_and(|task| task.resume_step().as_deref() == Some(name));
        suspended && state.awaits_data(StepKey::of(scope, *step))
    };
    let mut all = 0..u32::try_from(held.steps.len()).unwrap_or(u32::MAX);
    if let Some(step) = all.clone().find(waits) {
        let step = held.path_of(step);
        return format!("{alone}; step {step} waits for data, and is then resumed to it");
    }
    match all.find(|step| state.resume_step(StepKey::of(scope, *step)) == Some(position)) {
        Some(step) => {
            let step = held.path_of(step);
            format!("{alone}; step {step} was, and has its output")
        }
        None => format!("{alone}, and none was"),
    }
}

/// True if a responder still waits with an event, and that or the outcome of it, in words. What it
/// decided when its timer fired is a decision of its own.
pub(super) fn waiting(state: &RunState, event: u64, told: &Candidate) -> (bool, String) {
    let after = told.after_ms.unwrap_or_default();
    let mut timers = state.responding().into_iter().flat_map(Responding::timers);
    let timer = timers.find(|one| one.event.seq == event && one.responder == told.responder);
    let Some(timer) = timer else {
        return (false, format!("it set a timer of {after} ms"));
    };
    let status = state.status();
    if status.is_terminal() {
        let words = format!(
            "it was to look {after} ms after it; the run is {}, so its timer does not fire",
            status.as_str()
        );
        return (false, words);
    }
    let words = match state.paused() {
        Some(_) => format!("it waits {after} ms after it, not counting the pause of the run"),
        None => format!("it waits until {}, {after} ms after it", timer.due),
    };
    (true, words)
}
