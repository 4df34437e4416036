//! Verifies that a ledger is what was appended, as far as the ledger itself can show it.
//!
//! Every stored byte of every frame and blob is read once, in order of appending, and hashed
//! unchanged. Nothing is trusted and nothing is re-serialised. Damage of any kind is a
//! [`VerifyProblem`] in the [`VerifyReport`], never an error of the verifier.
//!
//! ```text
//! frames     columns, strict reading, chain, causes, heads             verify/frames
//! tree       every checkpoint: signature, key, root              verify/checkpoints
//! blobs      that they are there; hash, canonical text                 verify/blobs
//! inspect    the container: pages, schema, meta, gaps in the order     (store)
//! look-ups   what readers will answer: tails, names, index rows        here
//! ```
//!
//! A ledger in use may be verified: each part is checked only against parts that are not newer.
//!
//! **What a chain cannot show:** frames cut off the end with everything before relinked. Only a
//! head recorded elsewhere can; the report says if none was given.

mod blobs;
mod checkpoints;
mod frames;
mod report;

use std::collections::BTreeSet;

pub use report::{ProblemKind, VerifyProblem, VerifyReport};

use crate::event::RunRemoved;
use crate::frame::Frame;
use crate::hash::Hash;
use crate::id::StreamId;
use crate::store::{Audit, Filter, Reader, StoreError, Tail};
use frames::SeenFrames;

/// The number of frames that are looked at between two reports of progress.
const PAGE: usize = 1_000;

/// A frame that is known from elsewhere to exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// Its stream.
    pub stream: StreamId,
    /// Its number.
    pub seq: u64,
    /// Its hash.
    pub hash: Hash,
}

/// A checkpoint kept elsewhere: the ledger must extend it.
pub type TrustedCheckpoint = crate::note::Checkpoint;

/// A problem of a frame.
type Findings = (ProblemKind, String);

/// The records from elsewhere that a ledger is verified against.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VerifyOptions {
    /// Heads recorded elsewhere.
    pub heads: Vec<Head>,
    /// Checkpoints kept elsewhere, with verified signatures.
    pub checkpoints: Vec<TrustedCheckpoint>,
}

/// The progress of a verification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VerifyProgress {
    /// Frames looked at.
    pub frames: u64,
}

/// Observes frames during verification.
pub trait VerifyObserver {
    /// So many frames were looked at.
    fn progress(&mut self, frames: u64) {
        let _ = frames;
    }

    /// A frame that is sound as far as the frames before it show; without its blobs. `bytes` is the
    /// length of its body.
    fn frame(&mut self, reader: &dyn Reader, frame: &Frame, bytes: usize) {
        let _ = (reader, frame, bytes);
    }
}

/// An observer that only receives progress.
pub(crate) struct ProgressOnly<'a>(pub(crate) &'a mut dyn FnMut(VerifyProgress));

impl VerifyObserver for ProgressOnly<'_> {
    fn progress(&mut self, frames: u64) {
        (self.0)(VerifyProgress { frames });
    }
}

/// Verifies everything that a reader provides.
pub fn verify(
    reader: &dyn Reader,
    options: &VerifyOptions,
    progress: &mut dyn FnMut(VerifyProgress),
) -> VerifyReport {
    verify_before(reader, options, &mut ProgressOnly(progress))
}

/// As [`verify`], before an onlooker.
pub(crate) fn verify_before(
    reader: &dyn Reader,
    options: &VerifyOptions,
    onlooker: &mut dyn VerifyObserver,
) -> VerifyReport {
    let mut report = VerifyReport::default();
    let mut frames = SeenFrames::new(options);
    frames.scan(reader, &mut report, onlooker);
    frames.blobs.check(reader, &mut report);
    let inspection = reader.audit().map(Audit::inspect).unwrap_or_default();
    if let Some(error) = &inspection.failed {
        report.note_failure(error);
    }
    for problem in inspection.problems {
        report.find(None, None, ProblemKind::Container, problem);
    }
    check_removals(reader, &frames, &inspection.removed, &mut report);
    frames.finish(inspection.epoch, &mut report);
    look_up(reader, &frames, &mut report);
    report.note_not_covered(options, &frames.unknown);
    report
}

/// Holds what the container says was removed against the frames that record it, and the other way
/// round. A removal may be newer than the frames that were read: it is looked up then.
fn check_removals(
    reader: &dyn Reader,
    frames: &SeenFrames,
    removed: &[(String, u64)],
    report: &mut VerifyReport,
) {
    for (name, count) in removed {
        let newer = || newer_removal(reader, name).map(|event| event.frames);
        let recorded = frames.removed.get(name).map(|event| event.frames);
        let problem = match recorded.or_else(newer) {
            Some(recorded) if recorded == *count => continue,
            Some(recorded) => format!("{count} frames are gone, and {recorded} were removed"),
            None => {
                format!("{count} frames are recorded as removed, without an authority")
            }
        };
        report.find(Some(name), None, ProblemKind::Container, problem);
    }
    let listed: BTreeSet<&str> = removed.iter().map(|(name, _)| name.as_str()).collect();
    let recorded = frames.removed.keys();
    for name in recorded.filter(|name| !listed.contains(name.as_str())) {
        let message = "it is recorded as removed, and was not".to_owned();
        report.find(Some(name), None, ProblemKind::Container, message);
    }
}

/// The removal of a stream that was recorded while the frames were read, if there is one.
fn newer_removal(reader: &dyn Reader, name: &str) -> Option<RunRemoved> {
    let removed = reader.removed(&name.parse().ok()?).ok().flatten()?;
    (removed.event.stream.as_str() == name).then_some(removed.event)
}

/// Makes the look-ups that readers make, and compares the results with what was read.
fn look_up(reader: &dyn Reader, frames: &SeenFrames, report: &mut VerifyReport) {
    for (name, tail) in frames.tails() {
        let Ok(stream) = name.parse::<StreamId>() else {
            let said = "this does not name a stream".to_owned();
            report.find(Some(name), None, ProblemKind::Column, said);
            continue;
        };
        let seq = tail.map(|tail| tail.seq);
        match look_up_tail(reader, &stream, tail) {
            Ok(true) => {}
            // It was removed meanwhile.
            Ok(false) if newer_removal(reader, name).is_some() => {}
            Ok(false) => {
                let message = "a look-up by name does not find it".to_owned();
                report.find(Some(name), seq, ProblemKind::Container, message);
            }
            // A frame that was found damaged is not found as it should be either.
            Err(StoreError::Damaged(_)) if report.names(name) => {}
            Err(error) => {
                report.note_failure(&error);
                report.find(Some(name), seq, ProblemKind::Container, error.to_string());
            }
        }
    }
    if let Err(error) = look_up_names(reader, frames, report) {
        report.note_failure(&error);
        report.find(None, None, ProblemKind::Container, error.to_string());
    }
    if let Err(error) = look_up_rows(reader, report) {
        report.find(None, None, ProblemKind::Index, error.to_string());
    }
}

/// Returns `true` if a stream is found by its name, up to the last frame that was read or further.
fn look_up_tail(
    reader: &dyn Reader,
    stream: &StreamId,
    seen: Option<Tail>,
) -> Result<bool, StoreError> {
    let Some(seen) = seen else {
        return Ok(true);
    };
    let found = reader.read(stream, seen.seq, 1)?;
    let same = |seq, hash| seq == seen.seq && hash == seen.hash;
    let read = found.first().is_some_and(|it| same(it.seq, it.hash));
    let tail = reader.tail(stream)?;
    Ok(read && tail.is_some_and(|it| it.seq > seen.seq || same(it.seq, it.hash)))
}

/// Reports the streams that were read and are not listed.
fn look_up_names(
    reader: &dyn Reader,
    frames: &SeenFrames,
    report: &mut VerifyReport,
) -> Result<(), StoreError> {
    let mut listed = BTreeSet::new();
    loop {
        let page = reader.streams(listed.last(), PAGE)?;
        if page.is_empty() {
            break;
        }
        listed.extend(page);
    }
    for (name, _) in frames.tails() {
        let found = name.parse().is_ok_and(|name| listed.contains(&name));
        if !found && newer_removal(reader, name).is_none() {
            let message = "it is not in the list of streams".to_owned();
            report.find(Some(name), None, ProblemKind::Container, message);
        }
    }
    Ok(())
}

/// Index rows can be rebuilt at any time; wrong ones are reported all the same.
fn look_up_rows(reader: &dyn Reader, report: &mut VerifyReport) -> Result<(), StoreError> {
    let wrong = reader.wrong_rows()?;
    for (name, why) in &wrong {
        report.find(Some(name), None, ProblemKind::Index, why.clone());
    }
    if !wrong.is_empty() {
        // A list stops at the first of them.
        return Ok(());
    }
    let mut cursor = None;
    loop {
        let page = reader.list(&Filter::default(), cursor.as_ref(), PAGE)?;
        for row in &page.rows {
            let name = Some(row.stream.as_str());
            if reader.tail(&row.stream)?.is_none() && reader.removed(&row.stream)?.is_none() {
                let message = "an index row of a stream without frames".to_owned();
                report.find(name, None, ProblemKind::Index, message);
            }
            let by_key = match &row.key {
                Some(key) => reader
                    .by_key(key)?
                    .is_some_and(|it| it.stream == row.stream),
                None => true,
            };
            let is_found = reader.row(&row.stream)?.is_some() && by_key;
            if !is_found && reader.removed(&row.stream)?.is_none() {
                let message = "its index row is not found by stream or key".to_owned();
                report.find(name, None, ProblemKind::Index, message);
            }
        }
        cursor = page.next;
        if cursor.is_none() {
            return Ok(());
        }
    }
}
