//! Replays recorded runs: folds them, or decides them again from their inputs alone.
//!
//! There is no client here: whatever a replay needs and the ledger does not contain is an error.

use ktsu_ledger::branch;
use ktsu_ledger::event::Role;
use ktsu_ledger::store::{Reader, StoreError};
use ktsu_ledger::{Hash, StreamId};
use ktsu_projections::run::{FoldError, RunStatus};
use serde::Serialize;
use serde_json::{Value, json};

use super::RunReadError;
use super::verify::each_stream;
use ktsu_run_index::is_run;
use ktsu_workflow::replay::{Definitions, ReplayError, replay};

/// A run that was replayed to its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReplayReport {
    /// Its id.
    pub run_id: String,
    /// The status it comes to.
    pub status: RunStatus,
    /// The number of its frames.
    pub frames: u64,
    /// The number of inputs among them.
    pub inputs: u64,
    /// The hash of the last one, which covers all before it.
    pub head: Hash,
}

/// The reason why a run was not replayed to its end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RunReplayError {
    /// It cannot be read: a frame or a blob is missing or damaged.
    #[error(transparent)]
    Unreadable(#[from] RunReadError),
    /// It cannot be decided again, or came out otherwise.
    #[error(transparent)]
    Stopped(#[from] ReplayError),
}

impl From<StoreError> for RunReplayError {
    fn from(error: StoreError) -> Self {
        Self::Unreadable(error.into())
    }
}

impl From<FoldError> for RunReplayError {
    fn from(error: FoldError) -> Self {
        Self::Unreadable(error.into())
    }
}

/// The verdict of a replay as JSON. A divergence is a verdict, not a failure.
pub fn verdict(stream: &StreamId, report: Result<&ReplayReport, &RunReplayError>) -> Value {
    let failed = match report {
        Ok(report) => {
            let mut body = json!(report);
            body["verdict"] = json!("ok");
            return body;
        }
        Err(failed) => failed,
    };
    let mut body = json!({
        "run_id": stream.name(),
        "verdict": "could_not_run",
        "message": failed.to_string(),
    });
    if let RunReplayError::Stopped(stopped) = failed {
        body["why"] = json!(stopped.name());
        if let ReplayError::Diverged(diverged) = stopped {
            body["verdict"] = json!("diverged");
            body["divergence"] = json!(diverged);
        }
    }
    body
}

/// Folds a run.
///
/// # Errors
/// [`RunReplayError::Unreadable`]; [`ReplayError::NoRoot`] for frames that do not begin with a root.
pub fn folded(reader: &dyn Reader, stream: &StreamId) -> Result<ReplayReport, RunReplayError> {
    replay_with(reader, stream, |frames| {
        Ok(ktsu_projections::RunState::fold(frames)?.status())
    })
}

/// Decides a run again from its recorded inputs and its recorded definition.
///
/// # Errors
/// [`RunReplayError`].
pub fn strict(
    reader: &dyn Reader,
    stream: &StreamId,
    definitions: &mut Definitions,
) -> Result<ReplayReport, RunReplayError> {
    replay_with(reader, stream, |frames| {
        Ok(replay(frames, definitions)?.status())
    })
}

fn replay_with(
    reader: &dyn Reader,
    stream: &StreamId,
    status: impl FnOnce(&[ktsu_ledger::Frame]) -> Result<RunStatus, RunReplayError>,
) -> Result<ReplayReport, RunReplayError> {
    // Frames that are missing at the end are not an error here: they show in the verdict.
    let frames = branch::frames(reader, stream)?;
    let (Some(first), Some(last)) = (frames.first(), frames.last()) else {
        return Err(ReplayError::NoRoot("is empty".to_owned()).into());
    };
    let kind = first.event.kind();
    if first.event.created().is_none() && kind != "branch.created" {
        return Err(ReplayError::NoRoot(format!("begins with {kind}")).into());
    }
    let inputs = frames.iter().filter(|one| one.event.role() == Role::Input);
    Ok(ReplayReport {
        run_id: stream.name().to_owned(),
        status: status(&frames)?,
        frames: frames.len() as u64,
        inputs: inputs.count() as u64,
        head: last.hash,
    })
}

/// Every run, branch and recompute of a ledger, in the order of their names.
///
/// # Errors
/// [`StoreError`].
pub fn streams(reader: &dyn Reader) -> Result<Vec<StreamId>, StoreError> {
    let mut found = Vec::new();
    each_stream(reader, |stream| {
        found.extend(Some(stream).filter(|stream| is_run(stream)).cloned());
        Ok(())
    })?;
    Ok(found)
}
