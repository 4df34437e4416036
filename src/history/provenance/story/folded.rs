//! The one fold of a run's frames behind every answer about its values, and what recorded frames hold.

use ktsu_ledger::Frame;
use ktsu_projections::envelope::EnvelopeFold;
use ktsu_projections::run::{FoldError, RunState};
use ktsu_workflow::current_output::with_current_outputs;
use serde_json::Value;

use super::super::facts::RunFacts;
use super::super::worlds::WorldFacts;
use super::TracedRun;

/// The result of folding all frames of a run.
pub(in crate::provenance) struct FoldedRun {
    /// The envelopes, and the state underneath.
    pub(in crate::provenance) fold: EnvelopeFold,
    /// The frames of each step.
    pub(in crate::provenance) facts: RunFacts,
    /// The frames of its worlds; none if it loads none.
    pub(in crate::provenance) worlds: Option<WorldFacts>,
}

impl FoldedRun {
    /// Folds the effective frames of a run.
    pub(in crate::provenance) fn of(frames: &[Frame]) -> Result<Self, FoldError> {
        let (first, rest) = frames.split_first().ok_or(FoldError::Empty)?;
        let mut fold = EnvelopeFold::begin(RunState::fold([first])?, first);
        let (mut facts, mut worlds) = (RunFacts::default(), WorldFacts::default());
        for frame in rest {
            if let Some(responding) = fold.state().responding() {
                worlds.see_trigger(responding, frame);
            }
            let folded = fold.apply(frame);
            folded.map_err(|refusal| FoldError::Refused(frame.seq, refusal))?;
            facts.take(fold.state(), frame);
            if let Some(responding) = fold.state().responding() {
                worlds.take(responding, frame);
            }
        }
        let fold = with_current_outputs(fold, frames);
        Ok(Self {
            worlds: fold.state().responding().map(|_| worlds),
            facts,
            fold,
        })
    }
}

impl<'f> TracedRun<'f> {
    /// A frame by its number.
    pub(crate) fn frame(&self, seq: u64) -> Option<&'f Frame> {
        self.frames.get(usize::try_from(seq).ok()?)
    }

    /// The data of a frame, as a tree.
    pub(in crate::provenance) fn data(&self, seq: u64) -> Option<Value> {
        Some(self.frame(seq)?.event.data())
    }
}
