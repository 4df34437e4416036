//! Runs that have ended: those of this eval, and those that an earlier one has recorded.

use std::collections::BTreeMap;
use std::sync::Arc;

use ktsu_eval::{EvalRecord, JudgedRun};
use ktsu_history::evals;
use ktsu_ledger::StreamId;
use ktsu_ledger::event::EvalStatus;
use ktsu_readers::ReaderPool;

use super::super::Failure;
use super::folders::{KeptOfRun, RunFolder, RunFolders};

/// The error of a run without a verdict whose files or databases are not kept, or cannot be made
/// again.
const NOT_KEPT: &str = "not_kept";

/// The reasons why there is no verdict on a run, as evals record them.
const ERRORS: [&str; 3] = ["waiting", "timeout", NOT_KEPT];

/// Runs that are judged as they are, by scenario and replica.
pub(super) type KnownRuns = BTreeMap<(usize, u32), KnownRun>;

/// A run that has ended.
pub(super) struct EndedReplica {
    pub(super) run: StreamId,
    pub(super) wall_ms: u64,
    /// Runs of the same replica that were interrupted.
    pub(super) abandoned: Vec<StreamId>,
    /// The reason why there is no verdict, if there is none.
    pub(super) error: Option<&'static str>,
    /// Its folder, if it has one.
    pub(super) folder: Option<RunFolder>,
}

/// A run that an earlier eval has recorded.
#[derive(Debug, Clone)]
pub(super) struct KnownRun {
    run: StreamId,
    /// The reason why it has no verdict, whatever it is judged by.
    error: Option<&'static str>,
    /// The eval, and the frame of it that has what the run left.
    recorded: (StreamId, u64),
    /// True if it runs again where its folder cannot be made again.
    may_run_again: bool,
}

impl EndedReplica {
    /// One that was recorded before.
    pub(super) fn recorded(run: StreamId) -> Self {
        Self {
            run,
            wall_ms: 0,
            abandoned: Vec::new(),
            error: None,
            folder: None,
        }
    }
}

impl KnownRun {
    /// Those of an eval that have a verdict. All others run again.
    pub(super) fn with_verdict(eval: &StreamId, record: &EvalRecord) -> KnownRuns {
        let judged = record.runs.iter().filter(|judged| {
            let finished = judged.finished.as_ref();
            finished.is_some_and(|finished| finished.status != EvalStatus::Error)
        });
        judged.map(|judged| Self::of(eval, judged, true)).collect()
    }

    /// All of an eval: nothing runs again.
    pub(super) fn all(eval: &StreamId, record: &EvalRecord) -> KnownRuns {
        let judged = record.runs.iter();
        judged.map(|judged| Self::of(eval, judged, false)).collect()
    }

    fn of(eval: &StreamId, judged: &JudgedRun, may_run_again: bool) -> ((usize, u32), Self) {
        let started = &judged.started;
        let error = judged.finished.as_ref().and_then(|it| it.error.as_deref());
        let known = Self {
            run: started.run.clone(),
            error: error.and_then(|error| ERRORS.into_iter().find(|one| *one == error)),
            recorded: (eval.clone(), judged.seq),
            may_run_again,
        };
        ((started.scenario as usize, started.replica), known)
    }

    /// The run as it ended, with its folder as it was; none if it has to run again.
    pub(super) async fn ended(
        &self,
        folders: Option<&Arc<RunFolders>>,
        readers: &ReaderPool,
    ) -> Result<Option<EndedReplica>, Failure> {
        let mut ended = EndedReplica::recorded(self.run.clone());
        ended.error = self.error.filter(|error| *error != NOT_KEPT);
        let Some(folders) = folders.cloned().filter(|_| ended.error.is_none()) else {
            return Ok(Some(ended));
        };
        let (eval, seq) = self.recorded.clone();
        let kept = kept_of(readers, eval, seq).await?;
        let made = tokio::task::spawn_blocking(move || folders.made_again(&kept));
        ended.folder = made.await.map_err(Failure::of)??;
        if ended.folder.is_none() && self.may_run_again {
            return Ok(None);
        }
        if ended.folder.is_none() {
            ended.error = Some(NOT_KEPT);
        }
        Ok(Some(ended))
    }
}

/// The record of what a run left, as this frame of an eval has it: up to megabytes, of thousands of
/// runs.
pub(super) async fn kept_of(
    readers: &ReaderPool,
    eval: StreamId,
    seq: u64,
) -> Result<KeptOfRun, Failure> {
    let read = readers.with(move |reader| evals::started(reader, &eval, seq));
    let started = read.await?;
    Ok(
        started.map_or_else(KeptOfRun::default, |started| KeptOfRun {
            services: started.services,
            workspace: started.workspace,
        }),
    )
}
