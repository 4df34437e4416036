//! The keys of a step of a run, and of a task of one, while the run is folded.

use std::cmp::Ordering;

/// A step of a run, or what a responder asks or runs, which is kept like a step of the run itself.
///
/// In order: by scope, and what responders have begun behind the steps of the run itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StepKey {
    /// A step of a workflow.
    Of {
        /// Position in [`RunState::scopes`](crate::run::RunState::scopes).
        scope: u32,
        /// Position in the scope's steps.
        step: u32,
    },
    /// A question that a responder asks, or a workflow that it runs.
    Responder {
        /// In the order in which they began.
        task: u32,
    },
    /// A step of the run itself that the definition of a branch no longer has.
    Gone,
}

impl StepKey {
    /// A step of a workflow, by its positions.
    pub const fn of(scope: u32, step: u32) -> Self {
        Self::Of { scope, step }
    }

    /// The scope that it is in; what responders begin is in the run itself.
    pub const fn scope(self) -> u32 {
        match self {
            Self::Of { scope, .. } => scope,
            Self::Responder { .. } | Self::Gone => 0,
        }
    }

    /// Its position in the steps of its scope; nothing for what is not one of them.
    pub const fn position(self) -> Option<u32> {
        match self {
            Self::Of { step, .. } => Some(step),
            Self::Responder { .. } | Self::Gone => None,
        }
    }

    /// Returns `true` if a responder asks or runs it.
    pub const fn is_of_responder(self) -> bool {
        matches!(self, Self::Responder { .. })
    }

    const fn rank(self) -> (u32, u8, u32) {
        match self {
            Self::Of { scope, step } => (scope, 0, step),
            Self::Responder { task } => (0, 1, task),
            Self::Gone => (0, 2, 0),
        }
    }
}

impl Ord for StepKey {
    fn cmp(&self, other: &Self) -> Ordering {
        self.rank().cmp(&other.rank())
    }
}

impl PartialOrd for StepKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// A task of a run: what one step has an agent do, or an item of its fan-out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TaskId {
    /// The step.
    pub step: StepKey,
    /// The item of a fan-out.
    pub item: Option<u32>,
}

impl TaskId {
    /// That of a whole step.
    pub const fn step(step: StepKey) -> Self {
        Self { step, item: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_responders_begin_is_due_behind_the_steps_of_the_run_and_before_those_of_its_children() {
        let first = StepKey::Responder { task: 0 };
        let second = StepKey::Responder { task: 1 };
        let mut all = [StepKey::of(1, 0), second, StepKey::of(0, u32::MAX), first];
        all.sort();
        let wanted = [StepKey::of(0, u32::MAX), first, second, StepKey::of(1, 0)];
        assert_eq!(all, wanted);
    }
}
