//! The places where a run with worlds can be forked with a change: not in the middle of what its
//! responders make of a trigger, which was decided for the definition and the params that were in
//! force.

use std::fmt;

use ktsu_ledger::Frame;
use ktsu_projections::run::{FoldError, RunState};

/// Responders are in the middle of what they make of a trigger.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct InsideFiringError {
    /// The position that was asked for.
    pub position: u64,
    /// The nearest position before it that is outside.
    pub before: u64,
    /// The nearest one behind it, if there is any.
    pub after: Option<u64>,
}

impl fmt::Display for InsideFiringError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            position, before, ..
        } = self;
        write!(
            f,
            "at {position} responders are in the middle of what they make of a trigger; with a \
             change, the run can be forked at {before}"
        )?;
        match self.after {
            Some(after) => write!(f, " or {after}"),
            None => Ok(()),
        }
    }
}

/// Finds the positions next to a position inside a firing that are outside; `None` if it is not
/// inside one.
///
/// # Errors
/// [`FoldError`].
pub(super) fn inside_firing(
    shared: &RunState,
    recorded: &[Frame],
    position: u64,
) -> Result<Option<InsideFiringError>, FoldError> {
    let Some((first, rest)) = recorded.split_first().filter(|_| is_inside(shared)) else {
        return Ok(None);
    };
    let mut state = RunState::fold(std::slice::from_ref(first))?;
    let mut found = InsideFiringError {
        position,
        before: 0,
        after: None,
    };
    for frame in rest {
        let refused = |error| FoldError::Refused(frame.seq, error);
        state.apply(frame).map_err(refused)?;
        if is_inside(&state) {
            continue;
        }
        if state.next_seq() > position {
            found.after = Some(state.next_seq());
            break;
        }
        found.before = state.next_seq();
    }
    Ok(Some(found))
}

/// Returns `true` if a run is inside a firing. One that has ended is not: what is left of its
/// firing makes nothing.
fn is_inside(state: &RunState) -> bool {
    let responding = state.responding();
    let inside = responding.is_some_and(|responding| responding.is_inside_firing());
    inside && !state.status().is_terminal()
}
