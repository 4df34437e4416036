//! The life of a step: pending → running → complete | failed | skipped, and how far it is meanwhile.

use std::collections::BTreeMap;

use ktsu_ledger::event::plan::StepWork;
use ktsu_ledger::event::{CommandKind, SkipReason, StepCommand, StepEvent, StepInput};
use ktsu_ledger::{CanonicalJson, Timestamp};

use super::invoked;
use super::output::StoredOutput;
use super::overlays::OverlayValue;
use super::refusal::{Allowed, Rule, holds};
use super::suspension::Resumption;
use super::task::{AgentTask, TaskPhase};
use super::tasks::{TaskAction, Tasks};

/// The status of a step (decision E1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum StepStatus {
    /// Not begun.
    Pending,
    /// Under way.
    Running,
    /// Ended well.
    Complete,
    /// Ended badly.
    Failed,
    /// Will not run.
    Skipped,
}

impl StepStatus {
    /// As it is shown.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Complete => "complete",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
        }
    }
}

/// The phase of a running step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phase {
    /// Nothing beyond its start, or not even that.
    Begun,
    /// The air-lock checked its output.
    Checked {
        /// The verdict.
        valid: bool,
        /// The frame.
        seq: u64,
    },
    /// A webhook is on its way.
    Sent {
        /// The number of the sending.
        sending: u32,
        /// The frame that announced it.
        seq: u64,
    },
    /// A webhook was answered with 200 to 299.
    Delivered {
        /// The frame.
        seq: u64,
        /// The HTTP status.
        status: u16,
    },
    /// A webhook failed and will not be sent again.
    Undelivered {
        /// The frame.
        seq: u64,
        /// The error code.
        code: String,
        /// The HTTP status, if there was an answer.
        status: Option<u16>,
        /// The number of this sending.
        sending: u32,
        /// True if `webhook.dead` is recorded.
        dead: bool,
    },
    /// A webhook failed and waits for its next sending.
    Backoff {
        /// The frame of the failure.
        seq: u64,
        /// Since when, by the run's own time. Moves where the clock jumps.
        since: Timestamp,
        /// The sending that failed.
        sending: u32,
    },
    /// A webhook is to be sent again.
    ToResend {
        /// The frame of the timer.
        seq: u64,
        /// The sending that comes.
        sending: u32,
    },
    /// An inline child runs.
    Child {
        /// Its position among the scopes.
        scope: u32,
    },
}

/// A step.
#[derive(Debug, Clone)]
pub struct Step {
    /// Its status.
    pub status: StepStatus,
    /// Its phase, while running.
    pub phase: Phase,
    /// Number of unsettled steps that it needs.
    pub waiting_on: usize,
    /// Counted from 1; 0 before the first.
    pub attempt: u32,
    /// The input that it was started with; kept for inline children, whose params these are, and
    /// fan-outs.
    pub input: BTreeMap<String, StepInput>,
    /// The frame that started it.
    pub started: Option<u64>,
    /// The frame that ended it.
    pub ended: Option<u64>,
    /// The output that it gave, as it was computed.
    pub output: Option<StoredOutput>,
    /// The values that a person laid over its output, by field.
    pub overlay: BTreeMap<String, OverlayValue>,
    /// The output with that over it, if there is both.
    pub effective: Option<StoredOutput>,
    /// True if it failed because the run did.
    pub stopped: bool,
    /// The reason why it was skipped.
    pub skipped: Option<SkipReason>,
    /// The reason that its agent gave when it asked to be skipped.
    pub skip_detail: Option<String>,
    /// The HTTP status its webhook was answered with.
    pub delivered: Option<u16>,
    /// Its tasks, if it is an agent step under way, or was one.
    pub tasks: Option<Box<Tasks>>,
    /// The checkpoint and the data that it is given besides its params, if it runs again after a
    /// suspension.
    pub resumption: Option<Box<Resumption>>,
}

/// A step's value as later steps see it.
#[derive(Debug, Clone, Copy)]
pub enum Effective<'a> {
    /// Its output.
    Output(&'a StoredOutput),
    /// It was skipped: `{"skipped": true, "reason": …}`.
    Skipped(&'a str),
    /// A webhook that was not sent: `{"suppressed": true, "reason": …}`.
    Suppressed(SkipReason),
    /// It has none yet, or never will.
    Absent,
}

impl Step {
    /// Returns `true` if it has ended.
    pub(crate) fn is_settled(&self) -> bool {
        matches!(
            self.status,
            StepStatus::Complete | StepStatus::Failed | StepStatus::Skipped
        )
    }

    pub(crate) fn pending(waiting_on: usize) -> Self {
        Self {
            status: StepStatus::Pending,
            phase: Phase::Begun,
            waiting_on,
            attempt: 0,
            input: BTreeMap::new(),
            started: None,
            ended: None,
            output: None,
            overlay: BTreeMap::new(),
            effective: None,
            stopped: false,
            skipped: None,
            skip_detail: None,
            delivered: None,
            tasks: None,
            resumption: None,
        }
    }

    /// See [`crate::run::RunState::effective`].
    pub(crate) fn effective(&self) -> Effective<'_> {
        let output = self.effective.as_ref().or(self.output.as_ref());
        match (self.status, output, self.skipped) {
            (StepStatus::Complete, Some(held), _) => Effective::Output(held),
            (StepStatus::Skipped, _, Some(SkipReason::WebhooksSuppressed)) => {
                Effective::Suppressed(SkipReason::WebhooksSuppressed)
            }
            (StepStatus::Skipped, _, Some(reason)) => {
                Effective::Skipped(self.skip_detail.as_deref().unwrap_or(reason.as_str()))
            }
            _ => Effective::Absent,
        }
    }
}

impl Step {
    /// Begins again; gives what it was. What people replaced in a review was about the outcome of that
    /// attempt; what a person set holds for all of them.
    pub(crate) fn begin_again(&mut self) -> Self {
        let tasks = self.tasks.iter().flat_map(|tasks| &tasks.list);
        let attempt = tasks.map(|task| task.attempt).max().unwrap_or_default();
        let overlay = self.overlay.iter().filter(|(_, over)| !over.is_of_review());
        let overlay = overlay.map(|(field, over)| (field.clone(), over.clone()));
        let again = Self {
            attempt: attempt.max(self.attempt),
            overlay: overlay.collect(),
            ..Self::pending(0)
        };
        std::mem::replace(self, again)
    }

    /// Works out the effective output: the computed one with a person's fields over it.
    pub(crate) fn apply_overlay(&mut self) {
        self.effective = None;
        let Some(held) = self.output.as_ref().filter(|_| !self.overlay.is_empty()) else {
            return;
        };
        let serde_json::Value::Object(mut members) = held.json.to_value() else {
            return;
        };
        let mut overlaid = BTreeMap::new();
        for (field, over) in &self.overlay {
            members.insert(field.clone(), over.value.to_value());
            overlaid.insert(field.clone(), over.place.clone());
        }
        if let Ok(json) = CanonicalJson::from_value(&serde_json::Value::Object(members)) {
            let place = held.location.clone();
            self.effective = Some(StoredOutput {
                json,
                location: place,
                overlaid,
            });
        }
    }
}

pub(crate) fn task_of(step: &Step, item: Option<u32>) -> Option<&AgentTask> {
    step.tasks.as_ref()?.get(item)
}

/// A step's table: whether a frame about it may follow. Whether it may begin again, and whether people
/// or data are waited for, is decided by those who know that.
///
/// # Errors
/// The rule that the frame breaks.
pub(crate) fn check(step: &Step, work: &StepWork, event: &StepEvent, failing: bool) -> Allowed {
    let ready = step.status == StepStatus::Pending && step.waiting_on == 0;
    match event {
        StepEvent::Reset(reset) => holds(Rule::Attempt, reset.attempt == step.attempt),
        StepEvent::Started(started) => {
            let fans_out = matches!(work, StepWork::Agent(plan) if plan.for_each.is_some());
            holds(Rule::Ready, ready)?;
            holds(Rule::Failing, !failing)?;
            holds(Rule::ItemOrder, started.items.is_none() || fans_out)?;
            holds(Rule::Attempt, started.attempt == step.attempt + 1)
        }
        // A failing run skips whatever has not begun; otherwise only what is ready is skipped, and
        // what its agent wants skipped.
        StepEvent::Skipped(_) if step.status == StepStatus::Pending => {
            holds(Rule::Ready, failing || ready)
        }
        StepEvent::ReservedEvaluated(_)
        | StepEvent::OutputChecked(_)
        | StepEvent::Noted(_)
        | StepEvent::Commanded(_)
        | StepEvent::CommandCompleted(_)
        | StepEvent::CommandsDeferred(_)
        | StepEvent::CommandsDiscarded(_)
        | StepEvent::ReviewRequested(_)
        | StepEvent::SuspendRequested(_)
        | StepEvent::Completed(_)
        | StepEvent::Failed(_)
        | StepEvent::Skipped(_) => {
            holds(Rule::Running, step.status == StepStatus::Running)?;
            check_running(step, work, event, failing)
        }
    }
}

/// The table of a step in progress.
fn check_running(step: &Step, work: &StepWork, event: &StepEvent, failing: bool) -> Allowed {
    match event {
        StepEvent::ReservedEvaluated(one) => {
            let ended = has_ended(task_of(step, one.item), one.attempt);
            holds(Rule::OutcomeOrder, ended)
        }
        StepEvent::OutputChecked(checked) if matches!(work, StepWork::Agent(_)) => {
            let task = task_of(step, checked.item);
            let whole = checked.item.is_none()
                && is_fan_out(step)
                && checked.attempt == step.attempt
                && step.phase == Phase::Begun
                && may_have_output(step, work);
            let ended = || has_ended(task, checked.attempt);
            holds(Rule::OutcomeOrder, whole || ended())
        }
        StepEvent::OutputChecked(checked) => {
            holds(Rule::Attempt, checked.attempt == step.attempt)?;
            holds(Rule::Output, may_have_output(step, work))
        }
        // In order, after the verdict; of what is skipped there is none.
        StepEvent::Noted(note) => {
            let next = |task: &&AgentTask| task.notes == note.index && task.may_note();
            let task = task_of(step, note.item).filter(next);
            holds(Rule::Failing, !failing)?;
            holds(Rule::OutcomeOrder, has_passed(task, note.attempt))
        }
        StepEvent::Commanded(command) => {
            holds(Rule::Failing, !failing)?;
            check_command(step, work, command)
        }
        StepEvent::CommandCompleted(done) => {
            holds(Rule::Failing, !failing)?;
            let task = task_of(step, done.item);
            let right = task.is_some_and(|task| task.may_complete(done));
            holds(Rule::OutcomeOrder, right)
        }
        StepEvent::Completed(completed) => {
            holds(Rule::Failing, !failing)?;
            holds(Rule::Attempt, completed.attempt == step.attempt)?;
            let refused = matches!(step.phase, Phase::Checked { valid: false, .. });
            holds(Rule::Output, may_have_output(step, work) && !refused)
        }
        // Nothing that a runtime was given is left behind without an end.
        StepEvent::Failed(failed) => {
            let tasks = step.tasks.as_deref();
            holds(Rule::Attempt, failed.attempt == step.attempt)?;
            holds(Rule::AtRest, tasks.is_none_or(Tasks::is_at_rest))
        }
        StepEvent::Skipped(skipped) => {
            let asked = skipped.reason == SkipReason::AgentSkipped;
            holds(Rule::Failing, !failing)?;
            let ended = asked && has_ended(task_of(step, None), step.attempt);
            holds(Rule::OutcomeOrder, ended)
        }
        StepEvent::CommandsDeferred(_)
        | StepEvent::CommandsDiscarded(_)
        | StepEvent::ReviewRequested(_)
        | StepEvent::SuspendRequested(_) => holds(Rule::Failing, !failing),
        StepEvent::Started(_) | StepEvent::Reset(_) => Err(Rule::Ready),
    }
}

/// A command is the next one of its outcome, and declared.
fn check_command(step: &Step, work: &StepWork, command: &StepCommand) -> Allowed {
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
    holds(Rule::OutcomeOrder, passed)?;
    holds(Rule::Permission, invoked::declares(plan, command))
}

fn is_fan_out(step: &Step) -> bool {
    step.tasks
        .as_ref()
        .is_some_and(|tasks| tasks.items.is_some())
}

/// Returns `true` if an attempt of a task has ended, and its output is not checked yet.
fn has_ended(task: Option<&AgentTask>, attempt: u32) -> bool {
    task.is_some_and(|task| {
        let ended = matches!(task.phase, TaskPhase::Finished { .. });
        ended && task.attempt == attempt && task.checked.is_none() && task.suspension.is_none()
    })
}

/// Returns `true` if an attempt of a task has ended, and its output was not refused.
fn has_passed(task: Option<&AgentTask>, attempt: u32) -> bool {
    task.is_some_and(|task| {
        let ended = matches!(task.phase, TaskPhase::Finished { .. });
        ended && task.attempt == attempt && task.checked != Some(false)
    })
}

/// Returns `true` if a running step can have come to an output.
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

/// Returns `true` if a step ends because a person ended the run, in the attempt that it is in.
pub(crate) fn is_stopped(event: &StepEvent, step: &Step) -> bool {
    matches!(event, StepEvent::Failed(failed)
        if failed.code == "stopped" && failed.attempt == step.attempt)
}

impl Step {
    /// Returns `true` if it moves only as the workflows do that its commands run.
    pub(crate) fn awaits_invoked(&self) -> bool {
        let Some(tasks) = self.tasks.as_deref() else {
            return false;
        };
        let stands = |task: &AgentTask| {
            let still = task.phase == TaskPhase::Settled || task.awaits_people();
            still || task.awaits_invoked()
        };
        self.status == StepStatus::Running
            && tasks.list.iter().any(AgentTask::awaits_invoked)
            && tasks.list.iter().all(stands)
    }
}
