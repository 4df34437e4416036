//! The tasks of runs. A run has one task at most, and it begins here.
//!
//! ```text
//! invoke, fork, recompute ── begin ────┐
//! the start of the engine ── recover ──┼─▶ RunTask, registered until it is dropped
//! a message to a run ─────── deliver ──┘
//! ```

use std::collections::HashMap;
use std::sync::Arc;

use ktsu_ledger::StreamId;
use ktsu_projections::envelope::EnvelopeDetails;
use ktsu_projections::run::RunState;
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};

use super::clock::ClockReading;
use super::drain::AwaitedEffects;
use super::idempotency::IdempotencyKeys;
use super::run::{AwaitedEnvelope, EnvelopeForCaller, Message, Progress, RunTask};
use super::startup::{self, LoadRunError};
use super::{InvokeError, ReadKind, Shared, wait_for};
use ktsu_workflow::definition::Definition;
use ktsu_workflow::next::Memo;
use ktsu_workflow::turn::Turn;

/// The active runs, and what is needed to start or recover one.
pub(super) struct RunRegistry {
    /// By run. Held for a few lines only, never across an await.
    tasks: Mutex<HashMap<String, RunHandle>>,
    /// Held while a recorded run gets a task, so that no run has two.
    recovering: tokio::sync::Mutex<()>,
    /// Definitions of recorded runs, each compiled once however many runs share it.
    pub(super) definitions: Mutex<HashMap<String, Arc<Definition>>>,
    /// One run per idempotency key.
    pub(super) keys: IdempotencyKeys,
    max_active: usize,
    drain: watch::Sender<Option<AwaitedEffects>>,
    stop: watch::Sender<bool>,
}

/// A run under way, as others find it. It ends when its task does, so others hold it weakly.
#[derive(Clone)]
pub(super) struct RunHandle {
    /// The progress of the run.
    pub(super) progress: watch::Receiver<Progress>,
    /// The channel on which it takes messages.
    pub(super) mailbox: mpsc::WeakSender<Box<Message>>,
}

/// A run that is not recorded yet.
pub(super) struct NewRun {
    /// The definition of its workflow.
    pub(super) definition: Arc<Definition>,
    /// Its state after the first turn.
    pub(super) state: RunState,
    /// The first turn.
    pub(super) turn: Turn,
    /// Values read while the turn was decided.
    pub(super) memo: Memo,
    /// The clock reading at that moment.
    pub(super) observed: ClockReading,
}

impl RunHandle {
    /// Sends a message to the task. Returns whether the task still existed.
    pub(super) async fn send(&self, message: Box<Message>) -> bool {
        match self.mailbox.upgrade() {
            Some(mailbox) => mailbox.send(message).await.is_ok(),
            None => false,
        }
    }
}

impl RunRegistry {
    /// An empty registry. `definitions` are those of the current kit.
    pub(super) fn new(
        max_active: usize,
        definitions: impl IntoIterator<Item = Arc<Definition>>,
    ) -> Self {
        let definitions = definitions.into_iter();
        let definitions = definitions.map(|one| (one.digest.clone(), one)).collect();
        Self {
            tasks: Mutex::default(),
            recovering: tokio::sync::Mutex::default(),
            definitions: Mutex::new(definitions),
            keys: IdempotencyKeys::default(),
            max_active,
            drain: watch::Sender::new(None),
            stop: watch::Sender::new(false),
        }
    }

    /// A run under way.
    pub(super) fn get(&self, run: &str) -> Option<RunHandle> {
        self.tasks.lock().get(run).cloned()
    }

    /// Number of active runs.
    pub(super) fn len(&self) -> usize {
        self.tasks.lock().len()
    }

    /// Returns `true` if another run may get a task.
    pub(super) fn has_room(&self) -> bool {
        !*self.stop.borrow() && self.len() < self.max_active
    }

    /// Nothing new starts from now on, in any run.
    pub(super) fn drain(&self, awaited: AwaitedEffects) {
        self.drain.send_replace(Some(awaited));
    }

    /// The effects that the runs wait for before the engine stops; `None` as long as it is not
    /// draining.
    pub(super) fn draining(&self) -> watch::Receiver<Option<AwaitedEffects>> {
        self.drain.subscribe()
    }

    /// Returns `true` if nothing new may start.
    pub(super) fn is_draining(&self) -> bool {
        self.drain.borrow().is_some()
    }

    /// The progress of each run that has effects in flight, while the engine is draining.
    pub(super) fn undrained(&self) -> Vec<watch::Receiver<Progress>> {
        let tasks = self.tasks.lock();
        let progress = tasks.values().map(|run| run.progress.clone());
        progress.filter(|run| !run.borrow().drained).collect()
    }

    /// Stops all tasks.
    pub(super) fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Hears when all tasks are to stop.
    pub(super) fn stopping(&self) -> watch::Receiver<bool> {
        self.stop.subscribe()
    }

    /// A task begins. It is found by its run until it is [dropped](Self::remove).
    pub(super) fn register(&self, run: &str, handle: RunHandle) {
        self.tasks.lock().insert(run.to_owned(), handle);
    }

    /// A task has ended.
    pub(super) fn remove(&self, run: &str) {
        self.tasks.lock().remove(run);
    }

    /// Begins a run, and returns once its first turn is durable.
    ///
    /// # Errors
    /// [`InvokeError::LedgerStopped`].
    pub(super) async fn begin(shared: &Arc<Shared>, new: NewRun) -> Result<(), InvokeError> {
        Self::begin_awaited(shared, new, None).await.map(drop)
    }

    /// As [`RunRegistry::begin`]. A caller who waits for the end gives the details of the envelope
    /// so far.
    ///
    /// # Errors
    /// [`InvokeError::LedgerStopped`].
    pub(super) async fn begin_awaited(
        shared: &Arc<Shared>,
        new: NewRun,
        details: Option<EnvelopeDetails>,
    ) -> Result<Option<AwaitedEnvelope>, InvokeError> {
        let (mut task, mut progress) =
            RunTask::new(shared, new.definition, new.state, new.memo, new.observed);
        let awaited = details.map(|details| {
            let (caller, awaited) = EnvelopeForCaller::new(details, progress.clone());
            task.show_end(caller);
            awaited
        });
        let recorded = task.start(new.turn);
        let durable = wait_for(&mut progress, |progress| progress.durable >= Some(recorded));
        durable.await.map_err(InvokeError::LedgerStopped)?;
        Ok(awaited)
    }

    /// While this is held, no ended run goes on: none gets a task.
    pub(super) async fn keep_ended(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.recovering.lock().await
    }

    /// Recovers a recorded run, unless it is active. `admits` decides whether it may continue.
    ///
    /// # Errors
    /// Why it cannot be read, or may not continue.
    pub(super) async fn recover<E: From<LoadRunError>>(
        shared: &Arc<Shared>,
        run: &StreamId,
        admits: impl FnOnce(&Definition, &RunState) -> Result<(), E>,
    ) -> Result<(), E> {
        let _recovering = shared.runs.recovering.lock().await;
        match shared.runs.get(run.name()) {
            Some(_) => Ok(()),
            None => Self::resume(shared, run, None, admits).await,
        }
    }

    /// Delivers a message to a run's task; recovers the run first if it has none and `admits`
    /// allows it. If the task ends before it handles the message, the message is dropped.
    ///
    /// # Errors
    /// Why the run cannot be read, or may not go on.
    pub(super) async fn deliver<E: From<LoadRunError>>(
        shared: &Arc<Shared>,
        run: &StreamId,
        message: Box<Message>,
        admits: impl FnOnce(&Definition, &RunState) -> Result<(), E>,
    ) -> Result<(), E> {
        if let Some(handle) = shared.runs.get(run.name()) {
            handle.send(message).await;
            return Ok(());
        }
        let _recovering = shared.runs.recovering.lock().await;
        if let Some(handle) = shared.runs.get(run.name()) {
            handle.send(message).await;
            return Ok(());
        }
        Self::resume(shared, run, Some(*message), admits).await
    }

    /// Folds a recorded run and gives it a task. Others are kept from doing the same.
    async fn resume<E: From<LoadRunError>>(
        shared: &Arc<Shared>,
        run: &StreamId,
        message: Option<Message>,
        admits: impl FnOnce(&Definition, &RunState) -> Result<(), E>,
    ) -> Result<(), E> {
        let (folding, stream) = (Arc::clone(shared), run.clone());
        let folded = shared.readers.with_kind(ReadKind::Run, move |reader| {
            startup::fold(&folding, reader, &stream)
        });
        let (definition, state) = folded.await?;
        admits(&definition, &state)?;
        let observed = ClockReading::now(&shared.clock);
        let (task, _) = RunTask::new(shared, definition, state, Memo::default(), observed);
        task.resume(message);
        Ok(())
    }
}
