//! Checks commands of people about a whole run: pause, resume, cancel, terminate (decision P1).

use ktsu_ledger::event::{Principal, RunCommand, RunEvent};
use ktsu_ledger::{Actor, Cause, Draft, Event};
use ktsu_projections::run::RunState;

use super::intervention::{InterventionError, reject_recompute};
use crate::rules::DecisionRules;

/// A command that pauses or ends a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunControl {
    /// Nothing starts until it is resumed.
    Pause,
    /// It ends, and whoever works for it is told.
    Cancel,
    /// It ends, and nobody is told.
    Terminate,
}

impl RunControl {
    /// The verb, as commands and paths have it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pause => "pause",
            Self::Cancel => "cancel",
            Self::Terminate => "terminate",
        }
    }
}

/// Checks a person's word about a whole run. One that changes nothing is refused.
///
/// # Errors
/// [`InterventionError`].
pub fn steer(
    state: &RunState,
    steer: RunControl,
    by: Principal,
    reason: Option<String>,
) -> Result<Draft, InterventionError> {
    reject_recompute(state.stream())?;
    DecisionRules::from_recorded(state.rules())?;
    let allowed = match steer {
        RunControl::Pause => state.may_pause(),
        RunControl::Cancel | RunControl::Terminate => state.may_stop(),
    };
    if !allowed {
        return Err(InterventionError::ChangesNothing {
            word: steer.as_str(),
            status: status_text(state),
        });
    }
    let actor = Actor::Principal(by.id.clone());
    let word = RunCommand { by, reason };
    let event = match steer {
        RunControl::Pause => RunEvent::Paused(word),
        RunControl::Cancel => RunEvent::Cancelled(word),
        RunControl::Terminate => RunEvent::Terminated(word),
    };
    Ok(Draft {
        scope: String::new(),
        actor,
        cause: vec![Cause::Here(state.next_seq().saturating_sub(1))],
        event: Event::Run(event),
    })
}

/// The status of a run, in a word for people.
pub fn status_text(state: &RunState) -> &'static str {
    match state.paused() {
        Some(_) => "paused",
        None => state.status().as_str(),
    }
}
