//! Evals: what checks found about runs, appended to streams of their own.

use std::str::FromStr as _;

use ktsu_ledger::appender::AppendError;
use ktsu_ledger::event::{AgentEvent, EvalEvent};
use ktsu_ledger::store::{AppendRefusal, Entry, Tail};
use ktsu_ledger::{Actor, Cause, Draft, Event, StreamId};
use serde_json::Value;

use super::{InvokeError, Orchestrator};

/// The reason why no eval was recorded. Nothing of it is.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum EvalAppendError {
    /// The engine takes nothing new.
    #[error(transparent)]
    Engine(#[from] InvokeError),
    /// The run was removed meanwhile.
    #[error("the run was removed")]
    Removed,
    /// The ledger cannot be written.
    #[error("{0}")]
    Ledger(String),
}

/// The stream of an eval under way, and where it ends.
#[derive(Debug)]
pub struct EvalStream {
    /// Its name.
    pub stream: StreamId,
    end: Option<Tail>,
}

impl Orchestrator {
    /// Returns `true` if a value holds a secret of the kit.
    pub fn holds_secret(&self, value: &Value) -> bool {
        let mut without = value.clone();
        self.shared.secrets.redactor().redact_value(&mut without);
        without != *value
    }

    /// A stream for a new eval. Nothing is recorded yet.
    ///
    /// # Errors
    /// [`EvalAppendError`]: the engine takes nothing new.
    pub fn new_eval(&self) -> Result<EvalStream, EvalAppendError> {
        self.shared.has_room()?;
        let name = format!("eval:eval_{}", uuid::Uuid::now_v7().simple());
        let stream = StreamId::from_str(&name);
        let stream = stream.map_err(|error| EvalAppendError::Ledger(error.to_string()))?;
        Ok(EvalStream { stream, end: None })
    }

    /// The stream of an eval that was interrupted. Nothing new is recorded.
    ///
    /// # Errors
    /// [`EvalAppendError`]: the engine takes nothing new, or the ledger cannot be read.
    pub async fn open_eval(&self, stream: StreamId) -> Result<EvalStream, EvalAppendError> {
        self.shared.has_room()?;
        let asked = stream.clone();
        let end = self.shared.readers.with(move |reader| reader.tail(&asked));
        let end = end.await;
        let end = end.map_err(|error| EvalAppendError::Ledger(error.to_string()))?;
        Ok(EvalStream { stream, end })
    }

    /// Appends events of an eval, as one, and returns once that is durable.
    ///
    /// # Errors
    /// [`EvalAppendError`].
    pub async fn append_eval(
        &self,
        eval: &mut EvalStream,
        events: Vec<(Vec<Cause>, EvalEvent)>,
    ) -> Result<(), EvalAppendError> {
        let drafts = events.into_iter().map(|(cause, event)| Draft {
            scope: String::new(),
            actor: Actor::Orchestrator,
            cause,
            event: Event::Eval(event),
        });
        self.append_to_eval(eval, drafts.collect()).await
    }

    /// Appends model calls of the checks of an eval, each in the scope of the run that it is about, as
    /// one, and returns once that is durable.
    ///
    /// # Errors
    /// [`EvalAppendError`].
    pub async fn append_eval_calls(
        &self,
        eval: &mut EvalStream,
        calls: Vec<(String, Vec<Cause>, AgentEvent)>,
    ) -> Result<(), EvalAppendError> {
        let drafts = calls.into_iter().map(|(scope, cause, event)| Draft {
            scope,
            actor: Actor::Orchestrator,
            cause,
            event: Event::Agent(event),
        });
        self.append_to_eval(eval, drafts.collect()).await
    }

    async fn append_to_eval(
        &self,
        eval: &mut EvalStream,
        drafts: Vec<Draft>,
    ) -> Result<(), EvalAppendError> {
        let shared = &self.shared;
        let (stream, after) = (&eval.stream, eval.end);
        let entry = Entry::from_drafts(stream, after, drafts, (shared.clock)());
        let entry = entry.map_err(|error| EvalAppendError::Ledger(error.to_string()))?;
        let end = entry.tail();
        let appender = shared.appender.clone();
        // The queue of the appender may be full.
        let appended = tokio::task::spawn_blocking(move || appender.append(entry)).await;
        match appended.map_err(|error| EvalAppendError::Ledger(error.to_string()))? {
            Ok(_) => {
                eval.end = Some(end);
                Ok(())
            }
            Err(AppendError::Refused(AppendRefusal::NoSuchCause { .. })) => {
                Err(EvalAppendError::Removed)
            }
            Err(error) => Err(EvalAppendError::Ledger(error.to_string())),
        }
    }
}
