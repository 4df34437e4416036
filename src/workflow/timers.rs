//! The timers of a run: when each wait ends, and which ends first.
//!
//! The state contains what happened and when; the durations are computed here.

use ktsu_ledger::event::plan::{StepWork, WebhookPlan};
use ktsu_ledger::event::{RunEvent, TimerFired, TimerKind};
use ktsu_ledger::{Actor, Cause, Draft, Event, Timestamp};
use ktsu_projections::run::{Phase, RunState, RunStatus, StepKey};
use ktsu_projections::world::ResponderTimer;

use super::admit::{approval, review, suspend};

/// A timer to set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timer {
    /// The time at which it is due, by the wall clock.
    pub until: Timestamp,
    /// The whole time it was set for, in milliseconds: what is left is never more.
    pub span_ms: u64,
}

/// A webhook that failed and is to be sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PendingRetry {
    /// The time at which it is sent again.
    pub until: Timestamp,
    /// The step.
    pub step: StepKey,
    /// The frame of the failure.
    pub failed: u64,
    /// The time for which it waits, in milliseconds.
    pub wait_ms: u64,
}

/// The time at which the run times out, if it may.
pub fn deadline(state: &RunState) -> Option<Timestamp> {
    let timeout = state.outline().root().plan.policy.timeout_ms?;
    (!state.status().is_terminal()).then(|| state.deadline_from().plus_millis(timeout))
}

/// The declared retries that wait for their time.
pub fn retries(state: &RunState) -> impl Iterator<Item = PendingRetry> {
    state.retries().filter_map(|at| retry(state, at))
}

/// The next sending of a webhook that failed, and its time.
pub fn retry(state: &RunState, at: StepKey) -> Option<PendingRetry> {
    let Phase::Backoff {
        seq,
        since,
        sending,
    } = state.step(at)?.phase
    else {
        return None;
    };
    let StepWork::Webhook(plan) = state.work(at)? else {
        return None;
    };
    let wait_ms = wait_ms(plan, sending);
    Some(PendingRetry {
        until: since.plus_millis(wait_ms),
        step: at,
        failed: seq,
        wait_ms,
    })
}

/// The time to wait after a sending that failed, in milliseconds: twice as long each time (decision
/// S5).
fn wait_ms(plan: &WebhookPlan, sending: u32) -> u64 {
    let doublings = sending.saturating_sub(1).min(20);
    let first = plan.retry.as_ref().map_or(0, |retry| retry.backoff_ms);
    first.saturating_mul(1 << doublings)
}

/// The timer for the time limit of the world's budget, while the run uses time: not while only
/// people or timers of responders can move it.
fn world_deadline(state: &RunState) -> Option<Timer> {
    if state.status() != RunStatus::Running || state.waits_for_responder_timers() {
        return None;
    }
    let responding = state.responding().filter(|worlds| !worlds.is_time_up())?;
    let budget = state.world_budget()?;
    let (until, span_ms) = responding.time_limit(budget.max_wall_ms)?;
    Some(Timer { until, span_ms })
}

/// The input that ends the time of the world's budget, if it is used up.
pub fn world_time_up(state: &RunState, now: Timestamp) -> Option<Draft> {
    let deadline = world_deadline(state).filter(|_| waits_for_time(state))?;
    (deadline.until <= now).then(|| fired(String::new(), 0, TimerKind::WorldBudget, None))
}

fn fired(scope: String, cause: u64, timer: TimerKind, step: Option<String>) -> Draft {
    let responder = None;
    of(
        scope,
        cause,
        TimerFired {
            responder,
            step,
            timer,
        },
    )
}

fn of(scope: String, cause: u64, fired: TimerFired) -> Draft {
    Draft {
        scope,
        actor: Actor::Orchestrator,
        cause: vec![Cause::Here(cause)],
        event: Event::Run(RunEvent::TimerFired(fired)),
    }
}

/// The timer of the responder that has waited longest.
fn responder_timer(state: &RunState) -> Option<ResponderTimer<'_>> {
    state.responding()?.next_timer()
}

/// The input that ends the wait of a responder (`after`), whenever that is.
pub fn responder_waited(timer: &ResponderTimer<'_>) -> Draft {
    let fired = TimerFired {
        responder: Some(timer.responder.to_owned()),
        step: None,
        timer: TimerKind::After,
    };
    of(String::new(), timer.event.seq, fired)
}

/// Returns `true` if time moves the run at all: not one that is parked or paused, has ended or is
/// being closed.
fn waits_for_time(state: &RunState) -> bool {
    let still = state.is_parked() || state.paused().is_some();
    !still && !state.status().is_terminal() && state.failing().is_none()
}

/// The timer to set next, if the run waits for one.
pub fn next(state: &RunState) -> Option<Timer> {
    if !waits_for_time(state) {
        return None;
    }
    let deadline = deadline(state).map(|until| Timer {
        until,
        span_ms: until.millis_since(state.deadline_from()),
    });
    let retry = retries(state).min().map(|retry| Timer {
        until: retry.until,
        span_ms: retry.wait_ms,
    });
    let approval = approval::next_deadline(state).map(|(until, asked)| Timer {
        until,
        span_ms: {
            let gate = asked.call.state.gate();
            let timeout = gate.and_then(|gate| gate.policy.timeout.as_ref());
            timeout.map_or(0, |timeout| timeout.ms)
        },
    });
    let review = review::next_deadline(state).map(|(until, asked)| Timer {
        until,
        span_ms: asked.review.policy.timeout.ms,
    });
    let suspension = suspend::next_deadline(state).map(|(until, asked)| Timer {
        until,
        span_ms: asked.suspension.policy.timeout_ms,
    });
    let waited = responder_timer(state).map(|timer| Timer {
        until: timer.due,
        span_ms: timer.after_ms,
    });
    deadline
        .into_iter()
        .chain(waited)
        .chain(retry)
        .chain(approval)
        .chain(review)
        .chain(suspension)
        .chain(world_deadline(state))
        .min_by_key(|timer| timer.until)
}

/// Returns `true` if the run waits for time and its deadline has passed.
pub fn is_overdue(state: &RunState, now: Timestamp) -> bool {
    waits_for_time(state) && deadline(state).is_some_and(|deadline| deadline <= now)
}

/// The input of the timer that is due, if one is: the run's time first, then that of the world's
/// budget, then any wait for people, then any wait of a responder, then any retry.
pub fn due(state: &RunState, now: Timestamp) -> Option<Draft> {
    if !waits_for_time(state) {
        return None;
    }
    if is_overdue(state, now) {
        return Some(fired(String::new(), 0, TimerKind::RunTimeout, None));
    }
    if let Some(used_up) = world_time_up(state, now) {
        return Some(used_up);
    }
    if let Some(expired) = approval::expired(state, now) {
        return Some(expired);
    }
    if let Some(expired) = review::expired(state, now) {
        return Some(expired);
    }
    if let Some(expired) = suspend::expired(state, now) {
        return Some(expired);
    }
    if let Some(timer) = responder_timer(state).filter(|timer| timer.due <= now) {
        return Some(responder_waited(&timer));
    }
    let retry = retries(state).min()?;
    let scope = state.scope_of(retry.step)?;
    let id = state.step_id(retry.step)?.to_owned();
    let path = scope.path.clone();
    (retry.until <= now).then(|| fired(path, retry.failed, TimerKind::Retry, Some(id)))
}
