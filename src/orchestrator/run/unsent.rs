//! The frames that a run's task hands to the appender: decided ones, with the run's row where that
//! changed.

use std::sync::Arc;

use ktsu_ledger::Sealed;
use ktsu_ledger::store::{Entry, IndexRow};
use ktsu_projections::index::RunRow;
use ktsu_projections::run::RunStatus;

use super::RunTask;
use ktsu_run_index as rows;

/// The values that a run's row in the list of runs depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct IndexFingerprint {
    status: RunStatus,
    is_over: bool,
    /// The frame that ended it.
    ended: Option<u64>,
    /// Number of calls and outcomes that people are asked about.
    asked: usize,
    /// The frame that paused it.
    paused: Option<u64>,
    /// What it cost, once it has ended.
    cost: Option<u64>,
}

/// Turns that are decided, and that the appender does not have yet.
#[derive(Default)]
pub(super) struct UnsentTurns {
    frames: Vec<Sealed>,
    /// The bytes of their bodies.
    pub(super) bytes: usize,
    /// The run's row, where they change it.
    row: Option<IndexRow>,
    /// True if the run is over by them.
    ended: bool,
}

impl RunTask {
    /// Puts the frames of a turn, which the state has taken in, with what is to be sent.
    pub(super) fn add_unsent(&mut self, frames: Vec<Sealed>) {
        let bodies = frames.iter().map(|sealed| sealed.record.body.len());
        self.unsent.bytes += bodies.sum::<usize>();
        self.unsent.frames.extend(frames);
        self.unsent.ended = self.state.is_over();
        if let Some(row) = self.index_row() {
            self.unsent.row = Some(row);
        }
    }

    /// Hands what is decided to the appender as one entry, and registers what to do once it is
    /// durable.
    pub(super) fn send(&mut self) {
        let UnsentTurns {
            frames, row, ended, ..
        } = std::mem::take(&mut self.unsent);
        let Some(last) = frames.last().map(|sealed| sealed.record.seq) else {
            return;
        };
        let progress = Arc::clone(&self.progress);
        let entry = Entry::from_sealed(frames);
        let entry = entry.and_then(|(entry, _)| match row {
            Some(row) => entry.with_index(row),
            None => Ok(entry),
        });
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => return self.failed(&error.to_string()),
        };
        self.shared.appender.submit(
            entry,
            Box::new(move |outcome| {
                progress.send_modify(|progress| match outcome {
                    Ok(_) => {
                        progress.durable = Some(last);
                        progress.ended = ended;
                    }
                    Err(error) => progress.failed = Some(error.to_string()),
                });
            }),
        );
        if let Some(caller) = self.awaited.take_if(|_| ended) {
            caller.send(&self.state);
        }
    }

    /// The run's row, where its status has changed: lists need nothing else, and rows cost.
    fn index_row(&mut self) -> Option<IndexRow> {
        let fingerprint = self.index_fingerprint();
        if self.indexed == Some(fingerprint) {
            return None;
        }
        self.indexed = Some(fingerprint);
        Some(rows::row(&self.state))
    }

    /// The values that the row depends on. A run that ended, began again and ended within a turn
    /// has another end.
    pub(super) fn index_fingerprint(&self) -> IndexFingerprint {
        let root = self.state.scopes().first();
        let ended = root.and_then(|root| root.ended.as_ref()).map(|end| end.seq);
        let asked = self.state.count_asked();
        let paused = self.state.paused().map(|pause| pause.seq);
        IndexFingerprint {
            status: self.state.status(),
            is_over: self.state.is_over(),
            ended,
            asked,
            paused,
            cost: RunRow::cost(&self.state),
        }
    }
}
