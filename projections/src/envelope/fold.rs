//! The fold behind envelopes: the run's state, and what only the envelope needs.

use std::collections::BTreeMap;

use ktsu_ledger::{CanonicalJson, Frame};

use super::Envelope;
use super::details::EnvelopeDetails;
use super::view::Shown;
use crate::run::{FoldError, RunState, TransitionError};

/// Folds a run into envelopes: its own, and those of its inline children.
#[derive(Debug, Clone)]
pub struct EnvelopeFold {
    state: RunState,
    details: EnvelopeDetails,
    /// Outputs of scopes as they are now, where a person changed a step after the end.
    outputs: BTreeMap<u32, CanonicalJson>,
}

impl EnvelopeFold {
    /// Folds a whole recorded run.
    ///
    /// # Errors
    /// [`FoldError`] names the first frame that does not follow from those before it.
    pub fn of(frames: &[Frame]) -> Result<Self, FoldError> {
        let (first, rest) = frames.split_first().ok_or(FoldError::Empty)?;
        let mut fold = Self::begin(RunState::fold([first])?, first);
        for frame in rest {
            let taken = fold.apply(frame);
            taken.map_err(|refusal| FoldError::Refused(frame.seq, refusal))?;
        }
        Ok(fold)
    }

    /// Begins with the state after the first frame of a run.
    pub fn begin(state: RunState, first: &Frame) -> Self {
        Self {
            details: EnvelopeDetails::begin(&state, first),
            state,
            outputs: BTreeMap::new(),
        }
    }

    /// Takes the next frame.
    ///
    /// # Errors
    /// [`TransitionError`]; nothing is changed then.
    pub fn apply(&mut self, frame: &Frame) -> Result<(), TransitionError> {
        self.details.apply(&mut self.state, frame)
    }

    /// The state underneath.
    pub fn state(&self) -> &RunState {
        &self.state
    }

    /// Returns `true` if a person laid something over a step of a run or an inline child after that
    /// had ended with an output. The output that is recorded does not show it.
    pub fn has_overlay_after_end(&self, scope: u32) -> bool {
        let Some(scope) = self.state.scope(scope) else {
            return false;
        };
        let ended = scope.ended.as_ref().filter(|end| end.output.is_some());
        let mut overlays = scope.steps.iter().flat_map(|step| step.overlay.values());
        ended.is_some_and(|end| overlays.any(|over| over.place.frame > end.seq))
    }

    /// Shows an output in place of the recorded one. What an output is made of is known to those
    /// who evaluate expressions, not here.
    pub fn override_output(&mut self, scope: u32, output: CanonicalJson) {
        self.outputs.insert(scope, output);
    }

    /// The envelope of the run (`""`) or of an inline child, if there is one at that path.
    pub fn envelope(&self, path: &str) -> Option<Envelope> {
        let shown = Shown {
            state: &self.state,
            details: &self.details,
            outputs: &self.outputs,
        };
        shown.envelope(path)
    }
}
