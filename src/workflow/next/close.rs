//! Closes a failing run: everything in progress is stopped, everything else skipped, and every
//! scope around the failure fails (seed 000, invariant 11; decision S4). Whatever is recorded
//! already is left out, so a log cut in the middle closes the same way.
//!
//! A failure in a workflow that an item of a fan-out runs closes what that item runs, and ends the
//! item: the fan-out says how many of them it tolerates.
//!
//! A run that a person ends is closed likewise, except that nothing is skipped: every step that had
//! not ended is stopped, even if it had not begun, and the person's command is the end of the run
//! itself (decision P1).

use ktsu_ledger::event::plan::StepWork;
use ktsu_ledger::event::{
    FinishReason, ItemEvent, ItemFailed, RunEvent, RunFailed, SkipReason, StepEvent, StepFailed,
    StepSkipped,
};
use ktsu_ledger::{Draft, Event};
use ktsu_projections::life::invoked::InvokedPath;
use ktsu_projections::lineage::item_name;
use ktsu_projections::run::steer::StopKind;
use ktsu_projections::run::{FailedItem, RunFailure, RunState, Scope, Step, StepStatus};
use ktsu_projections::step_name::path_in;

use super::child::world_hash;
use super::settle::{STOPPED_ELSEWHERE, stop_items};
use super::{DecisionBatch, WorkOutcome};

/// All that is left to record, in one unit that no bound divides.
pub(super) fn close(state: &RunState) -> Vec<Draft> {
    let mut unit = DecisionBatch::new(state, "");
    let Some(failing) = state.failing() else {
        return unit.drafts;
    };
    let item = failing.within.as_ref();
    let below = item.and_then(|item| item_path(state, item));
    // Children come after their parents in the list, so the reverse closes them first.
    let mut cause = failing.seq;
    for scope in state.scopes().iter().rev() {
        let ends = below
            .as_ref()
            .is_none_or(|below| scope.path.starts_with(below.as_str()));
        if scope.abandoned || !ends {
            continue;
        }
        let around = is_around(state, failing, scope);
        if let Some(ended) = &scope.ended {
            if around {
                cause = ended.seq;
            }
            continue;
        }
        for (at, step) in (0u32..).zip(&scope.steps) {
            let held_the_failure = around && holds(state, failing, scope, at);
            let closing = Closing {
                state,
                failing,
                held_the_failure,
                cause,
            };
            if let Some(seq) = closing.step(&mut unit, scope, at, step) {
                cause = seq;
            }
        }
        if scope.path.is_empty() {
            stop_asks(&mut unit, state, failing);
        }
        if around && state.stopped().is_some() {
            continue;
        }
        let event = RunEvent::Failed(scope_failed(state, failing, scope, around));
        let seq = unit.push_in(
            scope.path.clone(),
            Event::Run(event),
            vec![if around { cause } else { failing.seq }],
        );
        if around {
            cause = seq;
        }
    }
    if let Some(item) = item {
        fail_item(&mut unit, state, failing, item, cause);
    }
    unit.drafts
}

/// The prefix of the paths of all scopes that the commands of an item opened.
fn item_path(state: &RunState, item: &FailedItem) -> Option<String> {
    let scope = state.scope_of(item.step)?;
    let id = state.step_id(item.step)?;
    let task = path_in(&scope.path, &item_name(id, Some(item.item)));
    Some(format!("{task}/"))
}

/// Ends the item that a failure ends, and not the run.
fn fail_item(
    unit: &mut DecisionBatch,
    state: &RunState,
    failing: &RunFailure,
    item: &FailedItem,
    cause: u64,
) -> Option<()> {
    let (scope, position) = (state.scope_of(item.step)?, item.step.position()?);
    let task = state.task(item.step, Some(item.item))?;
    let closing = Closing {
        state,
        failing,
        held_the_failure: true,
        cause,
    };
    let (_, failed) = closing.invoked_failure(scope, position)?;
    let WorkOutcome::Failed { code, message, .. } = failed else {
        return None;
    };
    let event = ItemEvent::Failed(ItemFailed {
        attempt: task.attempt,
        code,
        item: item.item,
        message,
        raw: None,
        raw_from: None,
        step: state.step_id(item.step)?.to_owned(),
    });
    unit.push_in(scope.path.clone(), Event::Item(event), vec![cause]);
    Some(())
}

/// Stops what responders asked.
fn stop_asks(unit: &mut DecisionBatch, state: &RunState, failing: &RunFailure) {
    for (at, tasks) in state.open_asks() {
        let address = state.step_id(at).unwrap_or_default();
        let why = stopped_words(state.stopped());
        stop_items(unit, "", address, tasks, (stop_reason(failing), &why), None);
    }
}

/// As what a task ends that a failing run stops.
fn stop_reason(failing: &RunFailure) -> FinishReason {
    match failing.step.is_none() && failing.code == "run_timeout" {
        true => FinishReason::Timeout,
        false => FinishReason::Stopped,
    }
}

/// The data that is needed to close a step.
struct Closing<'a> {
    state: &'a RunState,
    failing: &'a RunFailure,
    /// True if the failure is inside the step's child.
    held_the_failure: bool,
    /// The end of that child.
    cause: u64,
}

impl Closing<'_> {
    /// Closes a step; tells the number of its end where later scopes fail because of it.
    fn step(&self, unit: &mut DecisionBatch, scope: &Scope, at: u32, step: &Step) -> Option<u64> {
        let failing = self.failing;
        if let (StepStatus::Running, Some(tasks)) = (step.status, &step.tasks) {
            let reason = stop_reason(failing);
            let id = scope.shape.step(at).map_or("", |step| step.id.as_str());
            let why = stopped_words(self.state.stopped());
            let failed = self.invoked_failure(scope, at);
            let failed = failed
                .as_ref()
                .and_then(|(item, failed)| Some(((*item)?, failed)));
            stop_items(unit, &scope.path, id, tasks, (reason, &why), failed);
        }
        let id = scope.shape.step(at).map(|step| step.id.clone());
        let id = id.unwrap_or_default();
        let failed = |code: &str, message: String| {
            StepEvent::Failed(StepFailed {
                attempt: step.attempt,
                code: code.to_owned(),
                message,
                raw: None,
                step: id.clone(),
                raw_from: None,
            })
        };
        let event = match (step.status, self.state.stopped()) {
            (StepStatus::Pending, Some(how)) => failed(
                "stopped",
                format!("never began: the run was {}", how.code()),
            ),
            (StepStatus::Pending, None) => StepEvent::Skipped(StepSkipped {
                detail: None,
                reason: SkipReason::RunFailed,
                step: id.clone(),
            }),
            (StepStatus::Running, _) if self.held_the_failure => {
                match self.invoked_failure(scope, at) {
                    Some((_, WorkOutcome::Failed { code, message, .. })) => failed(&code, message),
                    Some(_) | None => failed(
                        &failing.code,
                        format!("child workflow failed: {}", failing.message),
                    ),
                }
            }
            (StepStatus::Running, stopped) => failed("stopped", stopped_words(stopped)),
            (StepStatus::Complete | StepStatus::Failed | StepStatus::Skipped, _) => return None,
        };
        let held = self.held_the_failure;
        let cause = if held { self.cause } else { failing.seq };
        let seq = unit.push_in(scope.path.clone(), Event::Step(event), vec![cause]);
        held.then_some(seq)
    }

    /// As what a step, and an item of it, fails that holds the failure in a workflow that its commands
    /// ran.
    fn invoked_failure(&self, scope: &Scope, at: u32) -> Option<(Option<u32>, WorkOutcome)> {
        let work = &scope.shape.step(at)?.work;
        if !self.held_the_failure || !matches!(work, StepWork::Agent(_)) {
            return None;
        }
        let origin = &self.state.scope(self.failing.scope)?.path;
        // The scope that its command opened: of all around the failure, the one directly below it.
        let ends = origin.match_indices('/').map(|(end, _)| end);
        let paths = ends
            .chain([origin.len()])
            .filter_map(|end| origin.get(..end));
        let mut paths = paths.filter_map(InvokedPath::parse);
        let id = &scope.shape.step(at)?.id;
        let child = paths.find(|path| path.scope == scope.path && path.step == *id)?;
        let RunFailure { code, message, .. } = self.failing;
        let words = format!(
            "the invoked {}.{} failed: {code}: {message}",
            child.name, child.index
        );
        Some((child.item, WorkOutcome::failed("invoke_failed", words)))
    }
}

fn stopped_words(stopped: Option<StopKind>) -> String {
    match stopped {
        Some(how) => format!("stopped because the run was {}", how.code()),
        None => STOPPED_ELSEWHERE.to_owned(),
    }
}

fn scope_failed(state: &RunState, failing: &RunFailure, scope: &Scope, around: bool) -> RunFailed {
    if !around {
        return RunFailed {
            code: "stopped".to_owned(),
            message: stopped_words(state.stopped()),
            step: None,
            world: None,
        };
    }
    RunFailed {
        code: failing.code.clone(),
        message: failing.message.clone(),
        step: failed_path(state, failing, scope),
        world: world_hash(state, &scope.path),
    }
}

/// The failing step's path, seen from a scope around it.
fn failed_path(state: &RunState, failing: &RunFailure, scope: &Scope) -> Option<String> {
    let origin = state.scope(failing.scope)?;
    let whole = match failing.step {
        Some(step) => origin.path_of(step),
        None => origin.path.clone(),
    };
    let seen = whole
        .strip_prefix(scope.path.as_str())?
        .trim_start_matches('/');
    (!seen.is_empty()).then(|| seen.to_owned())
}

/// Returns `true` if a scope is the one the failure happened in, or holds it.
fn is_around(state: &RunState, failing: &RunFailure, scope: &Scope) -> bool {
    let origin = state
        .scope(failing.scope)
        .map_or("", |scope| scope.path.as_str());
    scope.path.is_empty()
        || origin
            .strip_prefix(scope.path.as_str())
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Returns `true` if a step is the one whose child holds the failure.
fn holds(state: &RunState, failing: &RunFailure, scope: &Scope, at: u32) -> bool {
    let path = scope.path_of(at);
    let origin = state
        .scope(failing.scope)
        .map_or("", |scope| scope.path.as_str());
    // No id has a dot: what follows one is an item whose command opened the scope.
    origin
        .strip_prefix(path.as_str())
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || rest.starts_with('.'))
}
