//! A run or an inline child, and its steps.

use std::collections::BTreeMap;
use std::sync::Arc;

use ktsu_ledger::event::{Reference, SkipReason, StepInput};
use ktsu_ledger::{CanonicalJson, Timestamp};

use super::invoked::InvokedAs;
use super::overlays::OverlayValue;
use super::suspension::Resumption;
use super::tasks::Tasks;
use super::{RunStatus, WorkflowShape};
use crate::step_name::path_in;

/// A run or an inline child: pending → running → complete | failed.
#[derive(Debug, Clone)]
pub struct Scope {
    /// Step ids from the run down, joined by `/`; empty for the run itself.
    pub path: String,
    /// The scope and step that hold it; none for the run itself.
    pub parent: Option<(u32, u32)>,
    /// What it runs.
    pub shape: Arc<WorkflowShape>,
    /// Where it stands.
    pub status: RunStatus,
    /// Whether its webhooks are sent (seed 000, invariant 31).
    pub webhooks: bool,
    /// In file order.
    pub steps: Vec<Step>,
    /// How many steps are neither complete, nor failed, nor skipped.
    pub unsettled: usize,
    /// The frame that started it.
    pub started: Option<u64>,
    /// How it ended.
    pub ended: Option<ScopeEnd>,
    /// Whether the step that held it began again: it is of no consequence then.
    pub abandoned: bool,
    /// As what it runs, if a command began it.
    pub invoked: Option<Box<InvokedAs>>,
}

/// The end of a scope.
#[derive(Debug, Clone)]
pub struct ScopeEnd {
    /// The frame.
    pub seq: u64,
    /// When; what is said about it later is no later end.
    pub at: Timestamp,
    /// Its output, if it completed and had one.
    pub output: Option<StoredOutput>,
}

/// A value and where it stands.
#[derive(Debug, Clone)]
pub struct StoredOutput {
    /// The value.
    pub json: CanonicalJson,
    /// The frame and member that hold it, without overlays; see [`StoredOutput::locate`].
    pub location: Reference,
    /// The fields a person laid over it, and where those are.
    pub overlaid: BTreeMap<String, Reference>,
}

/// Where a step stands (decision E1).
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

/// How far a running step is.
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
        /// Which sending.
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
        /// What went wrong.
        code: String,
        /// The HTTP status, if there was an answer.
        status: Option<u16>,
        /// Which sending this was.
        sending: u32,
        /// Whether `webhook.dead` is recorded.
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
    /// Where it stands.
    pub status: StepStatus,
    /// How far it is, while running.
    pub phase: Phase,
    /// How many of the steps it needs are unsettled.
    pub waiting_on: usize,
    /// Counted from 1; 0 before the first.
    pub attempt: u32,
    /// What it was started with; kept for inline children, whose params these are, and fan-outs.
    pub input: BTreeMap<String, StepInput>,
    /// The frame that started it.
    pub started: Option<u64>,
    /// The frame that ended it.
    pub ended: Option<u64>,
    /// What it gave, as it was computed.
    pub output: Option<StoredOutput>,
    /// What a person laid over its output, by field.
    pub overlay: BTreeMap<String, OverlayValue>,
    /// The output with that over it, if there is both.
    pub effective: Option<StoredOutput>,
    /// Whether it failed because the run did.
    pub stopped: bool,
    /// Why it was skipped.
    pub skipped: Option<SkipReason>,
    /// What its agent said when it asked to be skipped.
    pub skip_detail: Option<String>,
    /// The HTTP status its webhook was answered with.
    pub delivered: Option<u16>,
    /// Its tasks, if it is an agent step under way, or was one.
    pub tasks: Option<Box<Tasks>>,
    /// What it is given besides its params, if it runs again after a suspension.
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

impl Scope {
    /// A scope that has not begun.
    pub(super) fn pending(
        path: String,
        parent: Option<(u32, u32)>,
        shape: Arc<WorkflowShape>,
        webhooks: bool,
    ) -> Self {
        let steps: Vec<Step> = shape
            .plan
            .steps
            .iter()
            .map(|step| Step::pending(step.needs.len()))
            .collect();
        Self {
            path,
            parent,
            status: RunStatus::Pending,
            webhooks,
            unsettled: steps.len(),
            steps,
            started: None,
            ended: None,
            abandoned: false,
            invoked: None,
            shape,
        }
    }

    /// Nothing of it is under way any more, and nobody looks at it.
    pub(super) fn abandon(&mut self, seq: u64, at: Timestamp) {
        self.abandoned = true;
        self.status = RunStatus::Failed;
        self.ended = Some(ScopeEnd {
            seq,
            at,
            output: None,
        });
        for step in &mut self.steps {
            if matches!(step.status, StepStatus::Pending | StepStatus::Running) {
                step.status = StepStatus::Skipped;
                step.phase = Phase::Begun;
            }
        }
    }

    /// The path of a step below this scope, from the run down.
    pub fn path_of(&self, step: u32) -> String {
        let id = self.shape.step(step).map_or("", |step| step.id.as_str());
        path_in(&self.path, id)
    }
}

impl Step {
    pub(super) fn pending(waiting_on: usize) -> Self {
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

    /// See [`super::RunState::effective`].
    pub(super) fn effective(&self) -> Effective<'_> {
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
    pub(super) fn begin_again(&mut self) -> Self {
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
    pub(super) fn apply_overlay(&mut self) {
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
