//! Statuses as people see them.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::run::{RunStatus, StepStatus};

/// The status of a step or of an item as people see it (decision E1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShownStatus {
    /// Its own.
    Own(StepStatus),
    /// Only people can move it.
    PendingApproval,
}

impl ShownStatus {
    /// The status of what only people can move, or of everything else.
    pub(super) fn of(status: StepStatus, awaits_people: bool) -> Self {
        match awaits_people {
            true => Self::PendingApproval,
            false => Self::Own(status),
        }
    }

    /// Returns `true` for the end of a step or an item.
    pub fn is_end(self) -> bool {
        match self {
            Self::Own(status) => !matches!(status, StepStatus::Pending | StepStatus::Running),
            Self::PendingApproval => false,
        }
    }

    /// As it is shown.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Own(status) => status.as_str(),
            Self::PendingApproval => "pending_approval",
        }
    }
}

impl Default for ShownStatus {
    fn default() -> Self {
        Self::Own(StepStatus::Pending)
    }
}

impl Serialize for ShownStatus {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl Serialize for RunStatus {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl fmt::Display for ShownStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Display for RunStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
