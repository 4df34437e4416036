//! The life of a scope: a run, or an inline child.

use std::sync::Arc;

use ktsu_ledger::Timestamp;
use ktsu_ledger::event::SkipReason;

use super::invoked::InvokedAs;
use super::key::StepKey;
use super::output::StoredOutput;
use super::step::{Phase, Step, StepStatus};
use crate::run::outline::WorkflowShape;
use crate::step_name::path_in;

/// The status of a run (decision E1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RunStatus {
    /// Accepted, not begun.
    Pending,
    /// Under way.
    Running,
    /// Only a person can move it, or let it go on.
    Waiting,
    /// Ended well.
    Complete,
    /// Ended badly.
    Failed,
    /// Ended by a person.
    Cancelled,
}

impl RunStatus {
    /// As it is shown.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Complete => "complete",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// The status with this name.
    pub fn named(name: &str) -> Option<Self> {
        let all = [
            Self::Pending,
            Self::Running,
            Self::Waiting,
            Self::Complete,
            Self::Failed,
            Self::Cancelled,
        ];
        all.into_iter().find(|status| status.as_str() == name)
    }

    /// Returns `true` if nothing can change any more.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Complete | Self::Failed | Self::Cancelled)
    }
}

/// A run or an inline child: pending → running → complete | failed.
#[derive(Debug, Clone)]
pub struct Scope {
    /// Step ids from the run down, joined by `/`; empty for the run itself.
    pub path: String,
    /// The step that holds it; none for the run itself.
    pub parent: Option<StepKey>,
    /// The workflow that it runs.
    pub shape: Arc<WorkflowShape>,
    /// Its status.
    pub status: RunStatus,
    /// True if its webhooks are sent (seed 000, invariant 31).
    pub webhooks: bool,
    /// In file order.
    pub steps: Vec<Step>,
    /// Number of steps that are neither complete, nor failed, nor skipped.
    pub unsettled: usize,
    /// The frame that started it.
    pub started: Option<u64>,
    /// Its end, once it has ended.
    pub ended: Option<ScopeEnd>,
    /// True if the step that held it began again: it is of no consequence then.
    pub abandoned: bool,
    /// As what it runs, if a command began it.
    pub invoked: Option<Box<InvokedAs>>,
}

/// The end of a scope.
#[derive(Debug, Clone)]
pub struct ScopeEnd {
    /// The frame.
    pub seq: u64,
    /// The time of the end; what is said about it later is not a later end.
    pub at: Timestamp,
    /// Its output, if it completed and had one.
    pub output: Option<StoredOutput>,
}

impl Scope {
    /// A scope that has not begun.
    pub(crate) fn pending(
        path: String,
        parent: Option<StepKey>,
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

    /// Ends the scope without a result: the step that holds it began again.
    pub(crate) fn abandon(&mut self, seq: u64, at: Timestamp) {
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

    /// Steps that ended only because the run did: they were stopped, or never ran.
    pub(crate) fn closed_steps(&self) -> impl Iterator<Item = u32> {
        let steps = (0u32..).zip(&self.steps);
        let closed = |step: &Step| {
            let unrun = step.skipped == Some(SkipReason::RunFailed);
            unrun || step.stopped
        };
        steps
            .filter(move |(_, step)| closed(step))
            .map(|(at, _)| at)
    }
}
