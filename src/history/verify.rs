//! Verification of a whole ledger: the chain, which `ktsu-ledger` judges, and what the chain cannot
//! know: whether every run folds, and whether the derived rows say what the frames say.

use ktsu_ledger::store::{Filter, Reader, StoreError};
use ktsu_ledger::verify::{Options, Problem, Report, verify};
use ktsu_ledger::{Frame, StreamId};
use ktsu_projections::index::RunRow;
use ktsu_projections::run::RunState;

/// Verifies a ledger.
///
/// # Errors
/// [`StoreError`] if it cannot even be opened; damage is in the report.
pub fn ledger(reader: &dyn Reader, options: &Options) -> Result<Report, StoreError> {
    let mut report = verify(reader, options);
    // Frames that do not chain would only be reported a second time.
    if report.problems.is_empty() {
        fold_runs(reader, &mut report);
        count_rows(reader, &mut report);
    }
    Ok(report)
}

fn fold_runs(reader: &dyn Reader, report: &mut Report) {
    let mut after: Option<StreamId> = None;
    loop {
        let page = match reader.streams(after.as_ref(), 1000) {
            Ok(page) => page,
            Err(error) => return report.problems.push(Problem::of_store("index", &error)),
        };
        let Some(last) = page.last() else { return };
        after = Some(last.clone());
        for stream in page.iter().filter(|stream| stream.kind() == "run") {
            if let Err(problem) = fold_run(reader, stream) {
                report.problems.push(problem);
            }
        }
    }
}

fn fold_run(reader: &dyn Reader, stream: &StreamId) -> Result<(), Problem> {
    let failed = |error: StoreError| Problem::of_stream(stream, None, "unreadable", &error.to_string());
    let frames: Vec<Frame> = super::frames(reader, stream).map_err(failed)?;
    let state = RunState::fold(&frames).map_err(|error| {
        let seq = match &error {
            ktsu_projections::run::FoldError::Refused(seq, _) => Some(*seq),
            ktsu_projections::run::FoldError::Empty
            | ktsu_projections::run::FoldError::Plan(_) => None,
        };
        Problem::of_stream(stream, seq, "fold", &error.to_string())
    })?;
    let expected = RunRow::of(&state);
    let row = reader.row(stream).map_err(failed)?;
    let says = row.as_ref().map(|row| row.row.clone());
    let agrees = row.as_ref().is_some_and(|row| {
        row.status == expected.status
            && row.workflow == expected.workflow
            && row.created_us == state.created().at.as_micros()
            && row.key == RunRow::key(&state)
            && row.open != state.status().is_terminal()
    });
    if agrees && says == Some(expected.to_json()) {
        return Ok(());
    }
    let words = "the index row does not say what the frames say; it is derived, and made again at \
                 the next start after `ktsu verify --repair-index`";
    Err(Problem::of_stream(stream, None, "index", words))
}

/// A row about a run that does not exist would stand in every list.
fn count_rows(reader: &dyn Reader, report: &mut Report) {
    let mut cursor = None;
    loop {
        let page = match reader.list(&Filter::default(), cursor.as_ref(), 1000) {
            Ok(page) => page,
            Err(error) => return report.problems.push(Problem::of_store("index", &error)),
        };
        for row in &page.rows {
            if !matches!(reader.tail(&row.stream), Ok(Some(_))) {
                let words = "an index row about a run that has no frames";
                report.problems.push(Problem::of_stream(&row.stream, None, "index", words));
            }
        }
        match page.next {
            Some(next) => cursor = Some(next),
            None => return,
        }
    }
}
