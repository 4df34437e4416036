//! Which frames may follow about a step: where it stands, and where its tasks stand.

use ktsu_ledger::event::plan::StepWork;
use ktsu_ledger::event::{CommandKind, SkipReason, StepEvent, WebhookEvent};

use crate::run::invoked;
use crate::run::{AgentTask, Phase, Step, StepStatus, TaskAction, TaskPhase, Tasks};

pub(super) fn task_of(step: &Step, item: Option<u32>) -> Option<&AgentTask> {
    step.tasks.as_ref()?.get(item)
}

/// A step's table.
pub(super) fn step_may(step: &Step, work: &StepWork, event: &StepEvent, failing: bool) -> bool {
    let running = step.status == StepStatus::Running;
    let ready = step.status == StepStatus::Pending && step.waiting_on == 0;
    match event {
        // `check_transition` has checked that a person requested it, or that the data are there.
        StepEvent::Reset(reset) => reset.attempt == step.attempt,
        StepEvent::Started(started) => {
            let fans_out = matches!(work, StepWork::Agent(plan) if plan.for_each.is_some());
            let counted = started.items.is_none() || fans_out;
            ready && !failing && counted && started.attempt == step.attempt + 1
        }
        StepEvent::ReservedEvaluated(one) => {
            running && has_ended(task_of(step, one.item), one.attempt)
        }
        StepEvent::OutputChecked(checked) if matches!(work, StepWork::Agent(_)) => {
            let task = task_of(step, checked.item);
            let whole = checked.item.is_none()
                && is_fan_out(step)
                && checked.attempt == step.attempt
                && step.phase == Phase::Begun
                && may_have_output(step, work);
            running && (whole || has_ended(task, checked.attempt))
        }
        // In order, after the verdict; of what is skipped there is none.
        StepEvent::Noted(note) => {
            let next = |task: &&AgentTask| task.notes == note.index && task.may_note();
            let task = task_of(step, note.item).filter(next);
            running && !failing && has_passed(task, note.attempt)
        }
        StepEvent::Commanded(command) => {
            let next = |task: &&AgentTask| task.may_command(command);
            let plan = match work {
                StepWork::Agent(plan) => Some(plan),
                StepWork::Transform(_) | StepWork::Webhook(_) | StepWork::Workflow(_) => None,
            };
            let task = task_of(step, command.item).filter(next);
            // What suspends its step has no output that could be checked.
            let verdict = (command.kind != CommandKind::Suspend).then_some(true);
            let checked = |task: &&AgentTask| task.checked == verdict;
            let passed = has_passed(task.filter(checked), command.attempt);
            running && !failing && passed && invoked::declares(plan, command)
        }
        StepEvent::CommandCompleted(done) => {
            let task = task_of(step, done.item);
            running && !failing && task.is_some_and(|task| task.may_complete(done))
        }
        // `check_transition` has checked these.
        StepEvent::CommandsDeferred(_)
        | StepEvent::CommandsDiscarded(_)
        | StepEvent::ReviewRequested(_)
        | StepEvent::SuspendRequested(_) => running && !failing,
        StepEvent::OutputChecked(checked) => {
            running && checked.attempt == step.attempt && may_have_output(step, work)
        }
        StepEvent::Completed(completed) => {
            running
                && !failing
                && completed.attempt == step.attempt
                && may_have_output(step, work)
                && !matches!(step.phase, Phase::Checked { valid: false, .. })
        }
        // Nothing that a runtime was given is left behind without an end.
        StepEvent::Failed(failed) => {
            let tasks = step.tasks.as_deref();
            running && failed.attempt == step.attempt && tasks.is_none_or(Tasks::is_at_rest)
        }
        // A failing run skips whatever has not begun; otherwise only what is ready is skipped, and
        // what its agent wants skipped.
        StepEvent::Skipped(skipped) => match step.status {
            StepStatus::Pending => failing || ready,
            StepStatus::Running => {
                let asked = skipped.reason == SkipReason::AgentSkipped;
                asked && !failing && has_ended(task_of(step, None), step.attempt)
            }
            StepStatus::Complete | StepStatus::Failed | StepStatus::Skipped => false,
        },
    }
}

fn is_fan_out(step: &Step) -> bool {
    step.tasks
        .as_ref()
        .is_some_and(|tasks| tasks.items.is_some())
}

/// Whether an attempt of a task has ended, and nobody checked its output yet.
fn has_ended(task: Option<&AgentTask>, attempt: u32) -> bool {
    task.is_some_and(|task| {
        let ended = matches!(task.phase, TaskPhase::Finished { .. });
        ended && task.attempt == attempt && task.checked.is_none() && task.suspension.is_none()
    })
}

/// Whether an attempt of a task has ended, and its output was not refused.
fn has_passed(task: Option<&AgentTask>, attempt: u32) -> bool {
    task.is_some_and(|task| {
        let ended = matches!(task.phase, TaskPhase::Finished { .. });
        ended && task.attempt == attempt && task.checked != Some(false)
    })
}

/// Whether a running step can have come to an output.
fn may_have_output(step: &Step, work: &StepWork) -> bool {
    match (work, &step.phase) {
        (_, Phase::Checked { .. }) => true,
        (StepWork::Agent(plan), _) => {
            let Some(tasks) = &step.tasks else {
                return false;
            };
            match tasks.get(None) {
                Some(task) => {
                    let finished = matches!(task.phase, TaskPhase::Finished { .. });
                    finished && task.checked != Some(false) && task.may_end()
                }
                None => tasks.next_action(plan) == Some(TaskAction::End),
            }
        }
        (StepWork::Transform(_), phase) => *phase == Phase::Begun,
        (StepWork::Webhook(_), phase) => matches!(phase, Phase::Delivered { .. }),
        (StepWork::Workflow(_), phase) => matches!(phase, Phase::Child { .. }),
    }
}

/// Whether a step ends because a person ended the run, in the attempt that it is in.
pub(super) fn is_stopped(event: &StepEvent, step: &Step) -> bool {
    matches!(event, StepEvent::Failed(failed)
        if failed.code == "stopped" && failed.attempt == step.attempt)
}

/// A webhook's table.
pub(super) fn webhook_may(step: &Step, event: &WebhookEvent) -> bool {
    match (event, &step.phase) {
        (WebhookEvent::Sent(sent), Phase::Begun) => sent.sending == 1,
        (WebhookEvent::Sent(sent), Phase::ToResend { sending, .. }) => sent.sending == *sending,
        (
            WebhookEvent::Delivered(answer) | WebhookEvent::Failed(answer),
            Phase::Sent { sending, .. },
        ) => answer.sending == *sending && answer.attempt == step.attempt,
        (WebhookEvent::Dead(_), Phase::Undelivered { dead, .. }) => !dead,
        _ => false,
    }
}
