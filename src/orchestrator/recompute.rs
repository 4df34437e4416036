//! Recomputes: runs with the agents of another run, compared with it.
//!
//! A recompute is an ordinary run: its model calls are frames, its budget applies, and it is
//! recovered after a crash. Only its start is special, and that it ends only after the comparison.

use std::str::FromStr as _;
use std::sync::Arc;

use ktsu_ledger::StreamId;
use ktsu_ledger::branch::frames;
use ktsu_ledger::event::{Principal, RecomputeCompared};
use ktsu_ledger::id::RECOMPUTE;
use ktsu_ledger::store::{Reader, StoreError};
use ktsu_projections::run::{FoldError, RunState};
use tokio::sync::mpsc;

use super::run::Message;
use super::{InvokeError, Orchestrator, ReadKind, ReplyAt, RunAccepted, Shared, begin_run, new_id};
use ktsu_workflow::recompute::{self, PreparedRecompute, RecomputeError, RecordedRun};
use ktsu_workflow::rules;

/// The reason why no recompute was started. Nothing was recorded.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum RecomputeStartError {
    /// The run is not one that can be recomputed.
    #[error(transparent)]
    Run(#[from] RecomputeError),
    /// The gateway has no model group of this name.
    #[error("the gateway has no model group {0}")]
    LacksGroup(String),
    /// The engine does not take it.
    #[error(transparent)]
    Engine(#[from] InvokeError),
    /// The ledger cannot be read.
    #[error("{0}")]
    Store(String),
}

impl From<StoreError> for RecomputeStartError {
    fn from(error: StoreError) -> Self {
        Self::Store(error.to_string())
    }
}

impl Orchestrator {
    /// Starts the recompute of a run, or of one of its steps, and returns once its first turn is
    /// durable.
    ///
    /// # Errors
    /// [`RecomputeStartError`].
    pub async fn recompute(
        &self,
        run: StreamId,
        step: Option<String>,
        principal: Principal,
    ) -> Result<RunAccepted, RecomputeStartError> {
        let readers = &self.shared.readers;
        let step = step.map(|step| self.shared.secrets.redactor().redact_text(&step));
        let prepared = readers.with_kind(ReadKind::Search, move |reader| {
            let frames = frames(reader, &run)?;
            rules::check_rules_known(&frames).map_err(RecomputeError::from)?;
            let recorded = RecordedRun::from_frames(&frames).map_err(RecomputeError::from)?;
            let prepared = recompute::prepare(&recorded, step.as_deref(), principal);
            Ok::<_, RecomputeStartError>(prepared?)
        });
        self.begin(prepared.await?).await
    }

    /// Starts a recompute that was prepared elsewhere.
    ///
    /// # Errors
    /// [`RecomputeStartError`].
    pub async fn begin(
        &self,
        prepared: PreparedRecompute,
    ) -> Result<RunAccepted, RecomputeStartError> {
        let shared = &self.shared;
        shared.has_room()?;
        let PreparedRecompute {
            definition,
            created,
        } = prepared;
        let definition = Arc::new(definition);
        if let Some(step) = shared.peers.lacks_runtime_for(&definition) {
            return Err(InvokeError::NoRuntime(step).into());
        }
        if let Some(group) = shared.peers.missing_group(&definition) {
            return Err(RecomputeStartError::LacksGroup(group));
        }
        let digest = definition.digest.clone();
        let compiled = Arc::clone(&definition);
        shared.runs.definitions.lock().insert(digest, compiled);
        let reply = ReplyAt::Start;
        let (accepted, _) =
            begin_run(shared, new_id(RECOMPUTE), &definition, created, reply).await?;
        Ok(accepted)
    }
}

/// Compares an ended recompute with its original run, and notifies its task.
pub(super) fn compare(
    shared: &Arc<Shared>,
    state: &RunState,
    mailbox: &mpsc::Sender<Box<Message>>,
) {
    let Some(of) = state.created().of.clone() else {
        return;
    };
    let (shared, mailbox, own) = (Arc::clone(shared), mailbox.clone(), state.stream().clone());
    tokio::spawn(async move {
        let name = own.name().to_owned();
        let compared = shared
            .readers
            .with(move |reader| compare_with_run(reader, &own, &of.stream, &of.head));
        match compared.await {
            Ok(compared) => {
                // If the task has ended meanwhile, the comparison is repeated when it is recovered.
                let _ = mailbox.send(Box::new(Message::Compared(compared))).await;
            }
            Err(error) => {
                tracing::error!(run = name, "cannot compare the recompute: {error}");
            }
        }
    });
}

/// The reason why a recompute cannot be compared.
#[derive(Debug, thiserror::Error)]
enum RecomputeCompareError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Fold(#[from] FoldError),
    #[error("{0}")]
    Run(String),
}

fn compare_with_run(
    reader: &dyn Reader,
    own: &StreamId,
    run: &str,
    head: &str,
) -> Result<RecomputeCompared, RecomputeCompareError> {
    let run = StreamId::from_str(run);
    let run = run.map_err(|error| RecomputeCompareError::Run(error.to_string()))?;
    // The original run may have more frames since; only those before the recompute count.
    let history = recompute::until(frames(reader, &run)?, head);
    let missing = || RecomputeCompareError::Run(format!("{run} has no frame {head}"));
    let history = history.ok_or_else(missing)?;
    let recorded = RecordedRun::from_frames(&history)?;
    Ok(recompute::compare(&recorded, &frames(reader, own)?)?)
}
