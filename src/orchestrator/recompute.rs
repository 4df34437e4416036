//! Recomputes: runs of a definition of agents alone, compared with the run they are of.
//!
//! A recompute goes through everything a run goes through, so its model calls are frames, its budget
//! holds, and it is taken up after a crash. What is its own is the beginning, and that it is over only
//! once it is compared.

use std::sync::Arc;

use ktsu_ledger::StreamId;
use ktsu_ledger::branch::frames;
use ktsu_ledger::event::{Principal, RecomputeCompared};
use ktsu_ledger::id::RECOMPUTE;
use ktsu_ledger::store::{Reader, StoreError};
use ktsu_projections::run::{FoldError, RunState};
use tokio::sync::mpsc;

use super::clock::Observed;
use super::registry::{NewRun, RunRegistry};
use super::run::Message;
use super::{Accepted, InvokeError, Orchestrator, Shared, lock};
use ktsu_workflow::next::Memo;
use ktsu_workflow::recompute::{self, NotRecomputed, Prepared, Recorded};
use ktsu_workflow::{rules, turn};

/// Why no recompute was started. Nothing was recorded.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum NotBegun {
    /// The run is not one that can be recomputed.
    #[error(transparent)]
    Run(#[from] NotRecomputed),
    /// The gateway at hand has no model group of this name.
    #[error("the gateway at hand has no model group {0}")]
    LacksGroup(String),
    /// The engine does not take it.
    #[error(transparent)]
    Engine(#[from] InvokeError),
    /// The ledger cannot be read.
    #[error("{0}")]
    Store(String),
}

impl From<StoreError> for NotBegun {
    fn from(error: StoreError) -> Self {
        Self::Store(error.to_string())
    }
}

impl Orchestrator {
    /// Starts the recompute of a run, or of one of its steps, and returns once its first turn is
    /// durable.
    ///
    /// # Errors
    /// [`NotBegun`].
    pub async fn recompute(
        &self,
        run: StreamId,
        step: Option<String>,
        principal: Principal,
    ) -> Result<Accepted, NotBegun> {
        let readers = &self.shared.readers;
        let step = step.map(|step| self.shared.secrets.redactor.redact_text(&step));
        let prepared = readers.with(move |reader| {
            let frames = frames(reader, &run)?;
            rules::all_known(&frames).map_err(NotRecomputed::from)?;
            let recorded = Recorded::of(&frames).map_err(NotRecomputed::from)?;
            let prepared = recompute::prepare(&recorded, step.as_deref(), principal);
            Ok::<_, NotBegun>(prepared?)
        });
        self.begin(prepared.await?).await
    }

    /// Starts a recompute that was prepared elsewhere.
    ///
    /// # Errors
    /// [`NotBegun`].
    pub async fn begin(&self, prepared: Prepared) -> Result<Accepted, NotBegun> {
        let shared = &self.shared;
        shared.has_room()?;
        let Prepared {
            definition,
            created,
        } = prepared;
        let definition = Arc::new(definition);
        if let Some(step) = shared.peers.lacks_runtime_for(&definition) {
            return Err(InvokeError::NoRuntime(step).into());
        }
        if let Some(group) = shared.peers.lacks(&definition) {
            return Err(NotBegun::LacksGroup(group));
        }
        let internal = |words: String| NotBegun::Engine(InvokeError::Internal(words));
        let run_id = format!("{RECOMPUTE}{}", uuid::Uuid::now_v7().simple());
        let stream = StreamId::run(&run_id).map_err(|error| internal(error.to_string()))?;
        let memo = Memo::default();
        let observed = Observed::now(&shared.clock);
        let begun = turn::begin(&definition, stream, created, observed.clock, &memo);
        let (state, turn) = begun.map_err(|broken| internal(broken.to_string()))?;
        lock(&shared.runs.definitions).insert(definition.digest.clone(), Arc::clone(&definition));
        let new = NewRun {
            definition,
            state,
            turn,
            memo,
            observed,
        };
        RunRegistry::begin(shared, new).await?;
        Ok(Accepted {
            run_id,
            created: true,
        })
    }
}

/// Compares a recompute that has ended with the run it is of, and tells its task.
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
            .with(move |reader| compared(reader, &own, &of.stream, &of.head));
        match compared.await {
            Ok(compared) => {
                // A task that has ended meanwhile compares again when it is taken up.
                let _ = mailbox.send(Box::new(Message::Compared(compared))).await;
            }
            Err(error) => {
                tracing::error!(run = name, "the recompute cannot be compared: {error}");
            }
        }
    });
}

/// Why a recompute cannot be compared.
#[derive(Debug, thiserror::Error)]
enum NotCompared {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Fold(#[from] FoldError),
    #[error("{0}")]
    Run(String),
}

fn compared(
    reader: &dyn Reader,
    own: &StreamId,
    run: &str,
    head: &str,
) -> Result<RecomputeCompared, NotCompared> {
    let run: StreamId = run
        .parse()
        .map_err(|error: ktsu_ledger::id::ParseStreamIdError| {
            NotCompared::Run(error.to_string())
        })?;
    let mut history = frames(reader, &run)?;
    // The run may have gone on since; what was recomputed is what it was then.
    let end = history
        .iter()
        .position(|frame| frame.hash.to_string() == head);
    let end = end.ok_or_else(|| NotCompared::Run(format!("{run} has no frame {head}")))?;
    history.truncate(end + 1);
    let recorded = Recorded::of(&history)?;
    Ok(recompute::compare(&recorded, &frames(reader, own)?)?)
}
