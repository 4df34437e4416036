//! What people say about a whole run, judged: that it stands still, goes on, ends (decision P1).

use ktsu_ledger::event::{Principal, RunEvent, RunWord};
use ktsu_ledger::{Actor, Cause, Draft, Event};
use ktsu_projections::run::RunState;

use super::person::{NotSaid, is_no_recompute};
use crate::rules::DecisionRules;

/// What is to become of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Steer {
    /// Nothing starts until it is resumed.
    Pause,
    /// It ends, and whoever works for it is told.
    Cancel,
    /// It ends, and nobody is told.
    Terminate,
}

impl Steer {
    /// The verb, as commands and paths have it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pause => "pause",
            Self::Cancel => "cancel",
            Self::Terminate => "terminate",
        }
    }
}

/// Judges a person's word about a whole run. One that changes nothing is refused.
///
/// # Errors
/// [`NotSaid`].
pub fn steer(
    state: &RunState,
    steer: Steer,
    by: Principal,
    reason: Option<String>,
) -> Result<Draft, NotSaid> {
    is_no_recompute(state.stream())?;
    DecisionRules::known(state.rules())?;
    let allowed = match steer {
        Steer::Pause => state.may_pause(),
        Steer::Cancel | Steer::Terminate => state.may_stop(),
    };
    if !allowed {
        return Err(NotSaid::ChangesNothing {
            word: steer.as_str(),
            status: standing(state),
        });
    }
    let actor = Actor::Principal(by.id.clone());
    let word = RunWord { by, reason };
    let event = match steer {
        Steer::Pause => RunEvent::Paused(word),
        Steer::Cancel => RunEvent::Cancelled(word),
        Steer::Terminate => RunEvent::Terminated(word),
    };
    Ok(Draft {
        scope: String::new(),
        actor,
        cause: vec![Cause::Here(state.next_seq().saturating_sub(1))],
        event: Event::Run(event),
    })
}

/// Where a run stands, in a word for people.
pub fn standing(state: &RunState) -> &'static str {
    match state.paused() {
        Some(_) => "paused",
        None => state.status().as_str(),
    }
}
