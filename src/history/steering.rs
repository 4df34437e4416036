//! The current effect of people's commands on a whole run: that it is paused, or cancelled
//! (decision P1).

use ktsu_ledger::Timestamp;
use ktsu_projections::run::RunState;
use ktsu_projections::run::steer::SteeringRecord;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// See the module documentation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct SteeringState {
    /// The command that paused it, while it is paused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<SteeringView>,
    /// The command that ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancelled: Option<SteeringView>,
}

/// A person's word.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SteeringView {
    /// When.
    #[schema(value_type = String)]
    pub at: Timestamp,
    /// Who.
    pub by: String,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl SteeringState {
    /// The current state of a run.
    pub fn of(state: &RunState) -> Self {
        Self {
            paused: state.paused().map(SteeringView::of),
            cancelled: state.stopped_by().map(SteeringView::of),
        }
    }
}

impl SteeringView {
    fn of(spoken: &SteeringRecord) -> Self {
        Self {
            at: spoken.at,
            by: spoken.word.by.id.clone(),
            reason: spoken.word.reason.clone(),
        }
    }
}

impl std::fmt::Display for SteeringView {
    /// `since 2026-11-22 14:00:00Z by olga: why`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let at = self.at.to_string();
        let (date, time) = at.split_once('T').unwrap_or(("", &at));
        let time = time.get(..8).unwrap_or(time);
        write!(f, "since {date} {time}Z by {}", self.by)?;
        match &self.reason {
            Some(reason) => write!(f, ": {reason}"),
            None => Ok(()),
        }
    }
}
