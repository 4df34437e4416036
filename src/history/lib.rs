//! Inspection of recorded runs, without side effects.

pub mod answer_rows;
pub mod approvals;
mod argument_lines;
pub mod checked_run;
pub mod diff;
pub mod emitted;
pub mod eval_list;
mod eval_record;
pub mod eval_sheet;
pub mod evals;
pub mod event_page;
pub mod family;
pub mod find;
pub mod fork_estimate;
pub mod fork_outcome;
mod frame_index;
pub mod frame_page;
pub mod frame_types;
pub mod frame_window;
mod frames_ahead;
pub mod held_back;
pub mod indexed_reader;
pub mod json_text;
mod judge_usage;
pub mod kit_comparison;
pub mod layers;
mod making_checks;
pub mod parallel;
pub mod payload;
pub mod payload_search;
pub mod provenance;
pub mod recompute;
pub mod recorded_prompts;
pub mod replay;
pub mod report;
pub mod run_cache;
pub mod run_list;
pub mod skeleton;
pub mod steering;
pub mod step_record;
pub mod step_summaries;
pub mod steps;
mod tool_outcomes;
pub mod tools;
pub mod trace;
mod traversal;
mod verification_fold;
pub mod verify;
pub mod webhooks;
pub mod why_not;
pub mod work_meter;
pub mod world;
pub mod world_labels;
pub mod world_moment;
pub mod world_timeline;

#[cfg(test)]
mod against_tests;
#[cfg(test)]
mod trace_work_tests;
#[cfg(test)]
mod watched_reader;
#[cfg(test)]
mod world_tests;

pub use argument_lines::argument_lines;
pub use ktsu_ledger::branch::Blobs;

use ktsu_ledger::store::{Reader, StoreError};
use ktsu_ledger::{Frame, StreamId};
use ktsu_projections::envelope::EnvelopeFold;
use ktsu_projections::run::FoldError;

pub use ktsu_workflow::current_output::fold;

use ktsu_run_index::{ListedRun, check_end};

/// The reason why a recorded run cannot be shown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RunReadError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The list of runs says that it went further than its frames do.
    #[error("its frames say less than the list of runs does; `ktsu verify` says more")]
    Cut,
    /// Its frames do not fold.
    #[error("{0}; `ktsu verify` says more")]
    Fold(#[from] FoldError),
    /// The definition it carries does not compile.
    #[error("the recorded definition cannot be read: {0}")]
    Definition(String),
}

/// All frames of a stream, blobs put back.
///
/// # Errors
/// [`StoreError`], also where frames are missing at the end.
pub fn frames(reader: &dyn Reader, stream: &StreamId) -> Result<Vec<Frame>, StoreError> {
    let frames = frames_ahead::frames(reader, stream)?;
    check_end(reader, stream)?;
    Ok(frames)
}

/// The fold behind the envelopes of a run; none if there is no such run.
///
/// # Errors
/// [`RunReadError`].
pub fn envelope(
    reader: &dyn Reader,
    stream: &StreamId,
) -> Result<Option<EnvelopeFold>, RunReadError> {
    let read = envelope_and_frames(reader, stream)?;
    Ok(read.map(|(fold, _)| fold))
}

/// As [`envelope`], with the frames that were folded.
///
/// # Errors
/// [`RunReadError`].
pub fn envelope_and_frames(
    reader: &dyn Reader,
    stream: &StreamId,
) -> Result<Option<(EnvelopeFold, Vec<Frame>)>, RunReadError> {
    let listed = ListedRun::read(reader, stream)?;
    let frames = frames_ahead::frames(reader, stream)?;
    if frames.is_empty() && listed.is_none() {
        return Ok(None);
    }
    if frames.is_empty() {
        // A removal takes frames and row at once: it may have come between the two reads.
        if ListedRun::read(reader, stream)?.is_none() {
            return Ok(None);
        }
        reader.found_damage(&format!("{stream}: all its frames are missing"));
    }
    let folded = fold(&frames)?;
    let status = folded.state().status().as_str();
    match listed.is_some_and(|listed| listed.is_cut(reader, status)) {
        true => Err(RunReadError::Cut),
        false => Ok(Some((folded, frames))),
    }
}
