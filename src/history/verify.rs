//! Verification of a whole ledger: the chain, which `ktsu-ledger` verifies, and what the chain
//! cannot show: whether every run folds and ends with the world that it names, and whether the
//! derived rows match the frames.
//!
//! A ledger in use changes while it is read. Anything that looks wrong in one is therefore checked
//! again, in a snapshot.

use std::collections::{HashMap, HashSet};

use ktsu_ledger::backup::{self, BackupError};
use ktsu_ledger::branch::{self, Ancestry as BranchPath};
use ktsu_ledger::lock;
use ktsu_ledger::store::{Reader, StoreError};
use ktsu_ledger::verify::{
    Head, ProblemKind, VerifyOptions, VerifyProblem, VerifyProgress, VerifyReport,
};
use ktsu_ledger::{Hash, Ledger, LedgerPlace, StreamId};
use ktsu_projections::run::{FoldError, RunState};
use serde::Serialize;

use super::evals::EvalVerifier;
use super::verification_fold::VerificationFold;
use ktsu_run_index as rows;

/// Verifies the ledger at a place, without any lock.
///
/// # Errors
/// [`StoreError`] if there is nothing to verify; damage is in the report.
pub fn ledger(
    place: impl Into<LedgerPlace>,
    options: &VerifyOptions,
    progress: &mut dyn FnMut(VerifyProgress),
) -> Result<VerifyReport, StoreError> {
    let place = &place.into();
    let report = verify_once(place, options, progress)?;
    let Some(path) = place.file() else {
        return Ok(report);
    };
    if report.is_sound() || lock::holder(path).is_none() {
        return Ok(report);
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let copy = path.with_file_name(format!("{name}.verify-{}", std::process::id()));
    match backup::backup(path, &copy, false) {
        Ok(_) => {
            let second = verify_once(&LedgerPlace::from(&copy), options, progress);
            let removed = std::fs::remove_file(&copy);
            drop(removed);
            second
        }
        // What cannot be copied is checked by what was seen.
        Err(BackupError::Exists(_) | BackupError::Owned { .. }) => Ok(report),
        Err(BackupError::Unsound(_) | BackupError::Store(_)) => Ok(report),
    }
}

/// The present ends of all streams: to be kept elsewhere, and given to a later verification.
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

/// The end of a stream, and how much of it there is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StreamEnd {
    /// The stream.
    pub stream: String,
    /// The hash of its last frame.
    pub head: Hash,
    /// The number of its last frame.
    pub seq: u64,
    /// Its frames; of a branch those it shares with what it was forked from, too.
    pub frames: u64,
    /// The number of frames that it shares.
    pub shared: u64,
    /// The blobs that its frames name.
    pub blobs: u64,
}

/// The end of a stream; nothing where none of it can be read.
pub fn end(reader: &dyn Reader, stream: &StreamId) -> Option<StreamEnd> {
    let tail = reader.tail(stream).ok()??;
    let path = BranchPath::of(reader, stream).ok();
    let mut blobs = HashSet::new();
    let mut from = 0;
    // What cannot be read was reported; the rest still counts.
    while let Some(path) = &path
        && let Ok(page) = path.read(reader, from, 1000)
        && let Some(last) = page.last()
    {
        from = last.seq.saturating_add(1);
        let frames = page.iter().filter_map(|record| record.decode_bare().ok());
        blobs.extend(frames.flat_map(|frame| frame.ext).map(|one| one.hash));
    }
    Some(StreamEnd {
        stream: stream.to_string(),
        head: tail.hash,
        seq: tail.seq,
        frames: tail.seq.saturating_add(1),
        shared: path.and_then(|path| path.forked()).unwrap_or(0),
        blobs: blobs.len() as u64,
    })
}

/// A function that returns `true` if a problem concerns a run: it is about the ledger, about the
/// run itself, or about a frame that the run shares with what it was forked from.
pub fn concerns(reader: &dyn Reader, stream: &StreamId) -> impl Fn(&VerifyProblem) -> bool + use<> {
    let path = BranchPath::of(reader, stream).ok();
    let own = stream.to_string();
    move |problem| match (&problem.stream, problem.seq, &path) {
        (None, ..) => true,
        (Some(named), ..) if *named == own => true,
        (Some(named), Some(seq), Some(path)) => {
            path.owner(seq).is_some_and(|owner| owner.as_str() == named)
        }
        (Some(_), ..) => false,
    }
}

fn verify_once(
    place: &LedgerPlace,
    options: &VerifyOptions,
    progress: &mut dyn FnMut(VerifyProgress),
) -> Result<VerifyReport, StoreError> {
    let mut runs = VerificationFold::new(progress);
    let ledger = Ledger::open(place);
    let mut report = ledger.verify(options, &mut runs)?;
    // Where the file cannot be opened, that was reported.
    let Ok(reader) = ledger.snapshot() else {
        return Ok(report);
    };
    let mut known = HashMap::new();
    for problem in &report.problems {
        if let Some(stream) = &problem.stream {
            let found = known.entry(stream.clone()).or_insert(KnownDamage::Row);
            if problem.kind != ProblemKind::Index {
                *found = KnownDamage::Frames;
            }
        }
    }
    let mut without_row = 0u64;
    let mut evals = EvalVerifier::new();
    let folded = each_stream(&reader, |stream| {
        let known = known.get(stream.as_str());
        // Frames that do not chain would only be reported a second time.
        if stream.is_eval() && known.is_none() {
            report.problems.extend(evals.problem(&reader, stream));
        }
        if !rows::is_run(stream) || known == Some(&KnownDamage::Frames) {
            return Ok(());
        }
        match check_row(&reader, stream, &runs) {
            RowCheck::Agrees => {}
            RowCheck::WithoutRow => without_row += 1,
            RowCheck::Wrong(problem) if problem.kind == ProblemKind::Index && known.is_some() => {}
            RowCheck::Wrong(problem) => report.problems.push(problem),
        }
        Ok(())
    });
    if let Err(error) = folded {
        report.problems.push(VerifyProblem {
            kind: ProblemKind::Container,
            message: error.to_string(),
            seq: None,
            stream: None,
        });
    }
    report.not_covered.extend(evals.not_covered());
    if without_row > 0 {
        report.not_covered.push(format!(
            "whether the list of runs agrees for {without_row} runs that are not in it: the next \
             start makes it again"
        ));
    }
    Ok(report)
}

pub(super) fn each_stream(
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

/// The part of a stream that is known to be damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KnownDamage {
    Row,
    Frames,
}

/// The result of comparing a run's frames with its row.
enum RowCheck {
    Agrees,
    /// Rows may be deleted at any time.
    WithoutRow,
    Wrong(VerifyProblem),
}

/// As [`fold_run`], where the run was folded already: only its row is looked at. What does not
/// agree with it may have moved on since.
fn check_row(reader: &dyn Reader, stream: &StreamId, runs: &VerificationFold<'_>) -> RowCheck {
    match (runs.digest(stream), reader.row(stream)) {
        (Some(expected), Ok(Some(row))) if row.digest() == expected => RowCheck::Agrees,
        (Some(_), Ok(None)) => RowCheck::WithoutRow,
        _ => fold_run(reader, stream),
    }
}

/// Folds a run and compares the result with its row.
fn fold_run(reader: &dyn Reader, stream: &StreamId) -> RowCheck {
    let problem = |seq, kind, message: String| {
        RowCheck::Wrong(VerifyProblem {
            kind,
            message,
            seq,
            stream: Some(stream.to_string()),
        })
    };
    let frames = match branch::frames(reader, stream) {
        Ok(frames) => frames,
        Err(error) => return problem(None, ProblemKind::Unreadable, error.to_string()),
    };
    let state = match RunState::fold_with_world_hashes(&frames) {
        Ok(state) => state,
        Err(FoldError::Empty) => {
            let words = "all its frames are missing".to_owned();
            return problem(Some(0), ProblemKind::Gap, words);
        }
        Err(error) => {
            let seq = match &error {
                FoldError::Refused(seq, _) => Some(*seq),
                FoldError::Empty | FoldError::Plan(_) => None,
            };
            return problem(seq, ProblemKind::Unreadable, error.to_string());
        }
    };
    let row = match reader.row(stream) {
        Ok(Some(row)) => row,
        Ok(None) => return RowCheck::WithoutRow,
        Err(error) => return problem(None, ProblemKind::Index, error.to_string()),
    };
    let expected = rows::row(&state);
    if rows::agrees(&row, &expected) {
        return RowCheck::Agrees;
    }
    // A row is written with the frame that changes it, so it is never ahead of its frames.
    if rows::is_ahead(&row.status, &expected.status) {
        let words = format!(
            "frames are missing from here on: the list of runs says {}, the frames before say {}",
            row.status, expected.status
        );
        return problem(Some(state.next_seq()), ProblemKind::Gap, words);
    }
    let words = "its row in the list of runs does not say what its frames say";
    problem(None, ProblemKind::Index, words.to_owned())
}
