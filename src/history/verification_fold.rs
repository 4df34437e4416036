//! Folds runs while their frames are verified, so that frames in memory are not read again.
//!
//! Only ordinary runs are folded here. A run that has blobs besides its definition, that continues
//! after its end, or that is too long to be kept in memory beside others is set apart, and so is
//! one that does not fold: verification reads those again, one by one, and reports what is wrong.

use std::collections::HashMap;
use std::sync::Arc;

use ktsu_ledger::store::Reader;
use ktsu_ledger::verify::{VerifyObserver, VerifyProgress};
use ktsu_ledger::{Event, Frame, Hash, StreamId};
use ktsu_projections::run::{Outline, RunState};

use ktsu_run_index as rows;

/// The most bytes of frames whose runs are held at once.
const MAX_BYTES: usize = 128 * 1024 * 1024;
/// The approximate number of bytes that a run takes beside its frames.
const RUN_BYTES: usize = 4 * 1024;
/// The most definitions that are held at once.
const MAX_OUTLINES: usize = 256;

/// Runs, as far as they were seen.
pub(super) struct VerificationFold<'a> {
    progress: &'a mut dyn FnMut(VerifyProgress),
    runs: HashMap<StreamId, FoldedRun>,
    /// Bytes of the frames of runs under way.
    bytes: usize,
    /// Definitions by the hashes of their blobs.
    outlines: HashMap<Hash, Arc<Outline>>,
}

enum FoldedRun {
    /// Folded so far, from so many bytes.
    Open(Box<RunState>, usize),
    /// Over, with the digest of the row that it must have.
    Ended(Hash),
    /// To be read again.
    NotFolded,
}

impl<'a> VerificationFold<'a> {
    pub(super) fn new(progress: &'a mut dyn FnMut(VerifyProgress)) -> Self {
        Self {
            progress,
            runs: HashMap::new(),
            bytes: 0,
            outlines: HashMap::new(),
        }
    }

    /// The digest of the row that a run must have, if it was folded.
    pub(super) fn digest(&self, stream: &StreamId) -> Option<Hash> {
        match self.runs.get(stream)? {
            FoldedRun::Open(state, _) => Some(rows::row(state).digest()),
            FoldedRun::Ended(digest) => Some(*digest),
            FoldedRun::NotFolded => None,
        }
    }

    fn begin(&mut self, reader: &dyn Reader, frame: &Frame) -> Option<RunState> {
        let (definition, _) = frame.event.definition()?;
        let outline = match frame.ext.as_slice() {
            [] => Outline::from_definition(definition).ok()?,
            [only] if only.path == "/definition" && definition.is_null() => {
                self.outline(reader, only.hash)?
            }
            _ => return None,
        };
        RunState::begin(frame, outline).ok()
    }

    fn outline(&mut self, reader: &dyn Reader, hash: Hash) -> Option<Arc<Outline>> {
        if let Some(known) = self.outlines.get(&hash) {
            return Some(Arc::clone(known));
        }
        let definition = reader.blob_get(&hash).ok()??;
        let outline = Outline::from_definition(&definition).ok()?;
        if self.outlines.len() >= MAX_OUTLINES {
            self.outlines.clear();
        }
        self.outlines.insert(hash, Arc::clone(&outline));
        Some(outline)
    }

    /// Lets go of all runs under way.
    fn drop_open_runs(&mut self) {
        for run in self.runs.values_mut() {
            if matches!(run, FoldedRun::Open(..)) {
                *run = FoldedRun::NotFolded;
            }
        }
        self.bytes = 0;
    }
}

impl VerifyObserver for VerificationFold<'_> {
    fn progress(&mut self, frames: u64) {
        (self.progress)(VerifyProgress { frames });
    }

    fn frame(&mut self, reader: &dyn Reader, frame: &Frame, bytes: usize) {
        if matches!(frame.event, Event::Store(_)) || !rows::is_run(&frame.stream) {
            return;
        }
        let next = match self.runs.get_mut(&frame.stream) {
            Some(FoldedRun::Open(state, used)) => {
                *used += bytes;
                self.bytes += bytes;
                let folds = frame.ext.is_empty()
                    && state.apply(frame).is_ok()
                    && state.check_world_hash(frame).is_ok();
                let next = match folds {
                    true if !state.is_over() => None,
                    true => Some(FoldedRun::Ended(rows::row(state).digest())),
                    false => Some(FoldedRun::NotFolded),
                };
                if next.is_some() {
                    self.bytes -= *used;
                }
                next
            }
            Some(FoldedRun::NotFolded) => return,
            Some(FoldedRun::Ended(_)) => Some(FoldedRun::NotFolded),
            None => Some(
                self.begin(reader, frame)
                    .map_or(FoldedRun::NotFolded, |state| {
                        self.bytes += RUN_BYTES;
                        FoldedRun::Open(Box::new(state), RUN_BYTES)
                    }),
            ),
        };
        if let Some(next) = next {
            self.runs.insert(frame.stream.clone(), next);
        }
        if self.bytes > MAX_BYTES {
            self.drop_open_runs();
        }
    }
}
