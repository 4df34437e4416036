//! Verification of a whole ledger: the chain, which `ktsu-ledger` judges, and what the chain cannot
//! know: whether every run folds, and whether the derived rows say what the frames say.
//!
//! A ledger in use moves on while it is read. What looks wrong in one is therefore looked at a
//! second time, in a copy that stands still.

use std::path::Path;

use ktsu_ledger::StreamId;
use ktsu_ledger::backup::{self, BackupError};
use ktsu_ledger::lock;
use ktsu_ledger::store::{Reader, SqliteReader, StoreError};
use ktsu_ledger::verify::{Head, Kind, Options, Problem, Progress, Report, verify_file};
use ktsu_projections::index::RunRow;
use ktsu_projections::run::{FoldError, RunState};

/// Verifies the ledger at a path, without any lock.
///
/// # Errors
/// [`StoreError`] if there is nothing to verify; damage is in the report.
pub fn ledger(
    path: &Path,
    options: &Options,
    progress: &mut dyn FnMut(Progress),
) -> Result<Report, StoreError> {
    let report = still(path, options, progress)?;
    if report.is_sound() || lock::holder(path).is_none() {
        return Ok(report);
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let copy = path.with_file_name(format!("{name}.verify-{}", std::process::id()));
    match backup::backup(path, &copy, false) {
        Ok(_) => {
            let second = still(&copy, options, progress);
            let removed = std::fs::remove_file(&copy);
            drop(removed);
            second
        }
        // What cannot be copied is judged by what was seen.
        Err(BackupError::Exists(_) | BackupError::Owned { .. }) => Ok(report),
        Err(BackupError::Unsound(_) | BackupError::Store(_)) => Ok(report),
    }
}

/// Where every stream ends now: to be kept elsewhere, and given to a later verification.
///
/// # Errors
/// [`StoreError`].
pub fn heads(reader: &dyn Reader) -> Result<Vec<Head>, StoreError> {
    let mut heads = Vec::new();
    each_stream(reader, |stream| {
        let tail = reader.tail(stream)?;
        heads.extend(tail.map(|tail| Head {
            stream: stream.clone(),
            seq: tail.seq,
            hash: tail.hash,
        }));
        Ok(())
    })?;
    Ok(heads)
}

fn still(
    path: &Path,
    options: &Options,
    progress: &mut dyn FnMut(Progress),
) -> Result<Report, StoreError> {
    let mut report = verify_file(path, options, progress)?;
    // Frames that do not chain would only be reported a second time.
    if report.is_sound() {
        let reader = SqliteReader::open(path)?;
        let folded = each_stream(&reader, |stream| {
            if stream.kind() == "run" {
                report.problems.extend(fold_run(&reader, stream));
            }
            Ok(())
        });
        if let Err(error) = folded {
            report.problems.push(Problem {
                kind: Kind::Container,
                message: error.to_string(),
                seq: None,
                stream: None,
            });
        }
    }
    Ok(report)
}

fn each_stream(
    reader: &dyn Reader,
    mut take: impl FnMut(&StreamId) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let mut after: Option<StreamId> = None;
    loop {
        let page = reader.streams(after.as_ref(), 1000)?;
        let Some(last) = page.last() else {
            return Ok(());
        };
        page.iter().try_for_each(&mut take)?;
        after = Some(last.clone());
    }
}

/// Whether a run can be told from its frames, and its row with it.
fn fold_run(reader: &dyn Reader, stream: &StreamId) -> Option<Problem> {
    let problem = |seq, kind, message: String| {
        Some(Problem {
            kind,
            message,
            seq,
            stream: Some(stream.to_string()),
        })
    };
    let frames = match super::frames(reader, stream) {
        Ok(frames) => frames,
        Err(error) => return problem(None, Kind::Unreadable, error.to_string()),
    };
    let state = match RunState::fold(&frames) {
        Ok(state) => state,
        Err(error) => {
            let seq = match &error {
                FoldError::Refused(seq, _) => Some(*seq),
                FoldError::Empty | FoldError::Plan(_) => None,
            };
            return problem(seq, Kind::Unreadable, error.to_string());
        }
    };
    let row = match reader.row(stream) {
        Ok(row) => row,
        Err(error) => return problem(None, Kind::Index, error.to_string()),
    };
    let expected = RunRow::of(&state);
    let agrees = row.is_some_and(|row| {
        row.status == expected.status
            && row.workflow == expected.workflow
            && row.created_us == state.created().at.as_micros()
            && row.key == RunRow::key(&state)
            && row.open != state.status().is_terminal()
            && row.row == expected.to_json()
    });
    if agrees {
        return None;
    }
    let words = "its row in the list of runs does not say what its frames say";
    problem(None, Kind::Index, words.to_owned())
}
