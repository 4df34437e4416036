//! Commands of people: overlays, resumptions, pauses, cancellations, approval decisions, posts.
//!
//! An ended run and a waiting branch have no task. A command starts one, which lives until the
//! command and its consequences are done.
//!
//! ```text
//! command ─▶ the run's task, or a new one ─admit▶ turn ─▶ appender ─durable▶ reply
//! ```

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use ktsu_ledger::StreamId;
use ktsu_ledger::event::Principal;
use ktsu_projections::run::{RunState, RunStatus};
use serde_json::Value;
use tokio::sync::{oneshot, watch};

use super::registry::RunRegistry;
use super::run::{Message, Progress};
use super::{InvokeError, Orchestrator, Shared, startup, wait_for};
use ktsu_secret::Redactor;
use ktsu_workflow::admit::approval::{ApprovalCommand, ApprovalDecisionError};
use ktsu_workflow::admit::budget::RaisedBudget;
use ktsu_workflow::admit::intervention::{InterventionError, OverlayCommand};
use ktsu_workflow::admit::post::{PostCommand, PostError, PostedEvent};
use ktsu_workflow::admit::review::{ReviewCommand, ReviewDecisionError};
use ktsu_workflow::admit::steer::RunControl;
use ktsu_workflow::admit::suspend::{StepResumption, StepResumptionError};
use ktsu_workflow::definition::Definition;

/// A person's command about a run.
#[derive(Debug, Clone)]
pub enum HumanCommand {
    /// A field of an output gets another value.
    Overlay(OverlayCommand),
    /// Continues a waiting branch, or restarts steps.
    Resume {
        /// The step to begin again with.
        from: Option<String>,
        /// Limits of the world's budget that are raised.
        raise: Option<RaisedBudget>,
        /// The person who commands it.
        by: Principal,
        /// The reason, where one was given.
        reason: Option<String>,
    },
    /// The whole run is paused or ended.
    Steer {
        /// The control: pause, unpause or cancel.
        steer: RunControl,
        /// True if only the principal that started the run may command it.
        own_only: bool,
        /// The person who commands it.
        by: Principal,
        /// The reason, where one was given.
        reason: Option<String>,
    },
    /// A call of a tool may be made, or may not.
    Decide(ApprovalCommand),
    /// The outcome of a step counts, or does not.
    Review(ReviewCommand),
    /// Data for a step that waits for them.
    ResumeStep(StepResumption),
    /// Events for the world of the run.
    Post(PostCommand),
}

/// The receipt for a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommandReceipt {
    /// The frame that records it.
    pub seq: u64,
    /// The last frame of its turn.
    pub last: u64,
    /// The status of the run after the command.
    pub status: RunStatus,
    /// Of a post: its number.
    pub post: Option<u64>,
}

/// The reason why nothing was done. Nothing was recorded.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The run moved on since it was looked at.
    #[error("the run ends with frame {actual}, not with {expected}")]
    Stale {
        /// The expected last frame.
        expected: u64,
        /// The actual last frame.
        actual: u64,
    },
    /// Retention removed the run meanwhile.
    #[error("the run was removed")]
    Removed,
    /// The command was refused.
    #[error(transparent)]
    NotSaid(#[from] InterventionError),
    /// A decision about a call, refused.
    #[error(transparent)]
    NotDecided(#[from] ApprovalDecisionError),
    /// A decision about an outcome, refused.
    #[error(transparent)]
    NotReviewed(#[from] ReviewDecisionError),
    /// Data for a step, refused.
    #[error(transparent)]
    StepNotResumed(#[from] StepResumptionError),
    /// A post, refused.
    #[error(transparent)]
    NotPosted(#[from] PostError),
    /// A name in a post contains a secret. The error does not repeat it.
    #[error("an id or a type contains a secret value, which would be recorded")]
    SecretInName,
    /// The engine cannot do it now.
    #[error(transparent)]
    NotInvoked(#[from] InvokeError),
    /// The run cannot be read.
    #[error("{0}")]
    Unreadable(String),
    /// The given definition contains a secret. The error does not repeat it.
    #[error("the definition contains a secret value, which would be recorded")]
    HoldsSecret,
    /// Nothing here has the model group that it needs.
    #[error("the gateway has no model group {0:?}")]
    NoGroup(String),
}

impl From<startup::LoadRunError> for CommandError {
    fn from(lost: startup::LoadRunError) -> Self {
        match lost {
            startup::LoadRunError::Rules(unknown) => Self::NotSaid(unknown.into()),
            startup::LoadRunError::Unreadable(why) => Self::Unreadable(why),
        }
    }
}

/// The result of a command, and the last frame it depends on. A refusal depends on frames, too:
/// whoever learns that somebody else was first must find that recorded.
pub(super) type CommandAnswer = (
    u64,
    watch::Receiver<Progress>,
    Result<CommandReceipt, CommandError>,
);

/// The channel for the result.
pub(super) type CommandReply = oneshot::Sender<CommandAnswer>;

/// The time a runtime may take to accept a notice that something new waits for it.
const WAKE_TIMEOUT: Duration = Duration::from_secs(2);

/// Number of attempts to deliver a command, where the run's task ends in between.
const MAX_DELIVERY_ATTEMPTS: usize = 16;

impl Orchestrator {
    /// Carries out a person's command about a run, and returns once it is durable. `expected`: the number of
    /// the last frame the person knows of (decision F2).
    ///
    /// # Errors
    /// [`CommandError`].
    pub async fn submit_command(
        &self,
        run: &StreamId,
        command: HumanCommand,
        expected: Option<u64>,
    ) -> Result<CommandReceipt, CommandError> {
        // A run under way may be ended, or held, while the engine drains: that starts nothing.
        if !(self.is_draining() && command.is_steering() && self.watch(run.name()).is_some()) {
            self.shared.has_room()?;
        }
        let is_keyless_post = matches!(&command, HumanCommand::Post(post) if post.key.is_none());
        if is_keyless_post && let Some(refused) = self.refused_before(run).await {
            return Err(refused.into());
        }
        for attempt in 0..MAX_DELIVERY_ATTEMPTS {
            if attempt > 0 && self.is_draining() {
                return Err(InvokeError::Draining.into());
            }
            let (reply, answer) = oneshot::channel();
            let message = Box::new(Message::Command {
                command: command.clone(),
                expected,
                reply,
            });
            self.deliver(run, message).await?;
            // The task may end in between; then the next one gets the command.
            if let Ok((last, mut progress, said)) = answer.await {
                // Of the task that answered: it may have ended since, because the ledger did.
                let durable = |progress: &Progress| progress.durable >= Some(last);
                let waited = wait_for(&mut progress, durable).await;
                waited.map_err(InvokeError::LedgerStopped)?;
                if said.is_ok() && command.concerns_runtimes() {
                    self.shared.wake_runtimes();
                }
                if let (true, Err(CommandError::NotPosted(refused))) = (is_keyless_post, &said) {
                    self.note_refused(run, refused).await;
                }
                return said;
            }
        }
        Err(InvokeError::Overloaded.into())
    }

    /// The reason why a post to a run that has ended badly was refused, if it is refused again. An
    /// error in reading is left to those who then read the run.
    async fn refused_before(&self, run: &StreamId) -> Option<PostError> {
        let shared = &self.shared;
        if shared.runs.get(run.name()).is_some() || !shared.refused_posts.knows(run) {
            return None;
        }
        let (shared, run) = (Arc::clone(shared), run.clone());
        let readers = shared.readers.clone();
        let found = readers.with(move |reader| shared.refused_posts.find(reader, &run));
        found.await.ok().flatten()
    }

    /// Remembers a refusal that depends on the state of the run alone.
    async fn note_refused(&self, run: &StreamId, refused: &PostError) {
        match refused {
            PostError::NoWorlds | PostError::NotOpen(_) | PostError::Exhausted(_) => {}
            PostError::NotResumed
            | PostError::KeyReused
            | PostError::Stale { .. }
            | PostError::NoSuchFrame { .. }
            | PostError::NoSubject(_)
            | PostError::Unfit { .. }
            | PostError::IsRecompute
            | PostError::Rules(_) => return,
        }
        let (shared, run, refused) = (Arc::clone(&self.shared), run.clone(), refused.clone());
        let readers = shared.readers.clone();
        let noted = readers.with(move |reader| shared.refused_posts.note(reader, &run, refused));
        // Then the next post reads the run again.
        let _ = noted.await;
    }

    /// Delivers a message to a run's task; recovers the run if it has none.
    async fn deliver(&self, run: &StreamId, message: Box<Message>) -> Result<(), CommandError> {
        let shared = &self.shared;
        // A recovered run continues, unless the command pauses or ends it.
        let sets_going =
            matches!(&*message, Message::Command { command, .. } if !command.is_steering());
        let admits = |definition: &Definition, state: &RunState| {
            let unfinished = !state.is_over() && !state.is_parked() && state.paused().is_none();
            match sets_going && unfinished {
                true => shared.can_run(definition),
                false => Ok(()),
            }
        };
        RunRegistry::deliver(shared, run, message, admits).await
    }
}

/// Takes secrets out of an overlay: out of names of steps and fields, too, since a refusal repeats
/// them.
pub(super) fn redact_overlay(overlay: &mut OverlayCommand, redactor: &Redactor) {
    overlay.step = redactor.redact_text(&overlay.step);
    overlay.field = redactor.redact_text(&overlay.field);
    redactor.redact_value(&mut overlay.value);
    overlay.reason = redactor.redact_text(&overlay.reason);
}

impl Shared {
    /// Checks that the needs of a definition are met here, so that a resumed run does not fail for
    /// lack of them.
    pub(super) fn can_run(&self, definition: &Definition) -> Result<(), CommandError> {
        if let Some(step) = self.peers.lacks_runtime_for(definition) {
            return Err(InvokeError::NoRuntime(step).into());
        }
        match self.peers.missing_group(definition) {
            Some(group) => Err(CommandError::NoGroup(group)),
            None => Ok(()),
        }
    }

    /// Has the runtimes ask what they are to stop, without waiting for their next heartbeats. One
    /// that does not know how learns it then.
    fn wake_runtimes(&self) {
        for runtime in self.peers.runtimes.iter().cloned() {
            tokio::spawn(async move {
                let asked = runtime
                    .peer
                    .post_with_timeout(WAKE_TIMEOUT, "/beat", &[], Bytes::new())
                    .await;
                if let Err(error) = asked {
                    tracing::debug!(%error, "cannot notify the runtime before its next heartbeat");
                }
            });
        }
    }
}

impl HumanCommand {
    /// Returns `true` if the command lets the run continue.
    pub(super) fn may_wake_run(&self) -> bool {
        match self {
            Self::Resume { .. }
            | Self::Decide(_)
            | Self::Review(_)
            | Self::ResumeStep(_)
            | Self::Post(_) => true,
            Self::Overlay(_) | Self::Steer { .. } => false,
        }
    }

    /// Returns `true` if it holds or ends a run.
    pub(super) fn is_steering(&self) -> bool {
        matches!(self, Self::Steer { .. })
    }

    /// Returns `true` if those who work for the run are to hear of it.
    fn concerns_runtimes(&self) -> bool {
        match self {
            Self::Steer { steer, .. } => *steer != RunControl::Terminate,
            Self::Resume { .. } => true,
            Self::Overlay(_)
            | Self::Decide(_)
            | Self::Review(_)
            | Self::ResumeStep(_)
            | Self::Post(_) => false,
        }
    }

    /// Redacts the text of a command before validation (decision K3).
    pub(super) fn redact(&mut self, redactor: &Redactor) {
        let redact = |text: &mut Option<String>| {
            *text = text.as_deref().map(|text| redactor.redact_text(text));
        };
        match self {
            Self::Overlay(overlay) => redact_overlay(overlay, redactor),
            Self::Resume { from, reason, .. } => [from, reason].into_iter().for_each(redact),
            Self::Steer { reason, .. } => redact(reason),
            Self::Decide(decide) => {
                redact(&mut decide.reason);
                redact(&mut decide.result);
            }
            Self::Review(review) => {
                redact(&mut review.reason);
                let overlay = std::mem::take(&mut review.overlay).into_iter();
                let redacted = overlay.map(|(field, mut value)| {
                    redactor.redact_value(&mut value);
                    (redactor.redact_text(&field), value)
                });
                review.overlay = redacted.collect();
            }
            Self::ResumeStep(given) => {
                redact(&mut given.reason);
                redactor.redact_value(&mut given.data);
            }
            Self::Post(post) => {
                for data in post.events.iter_mut().filter_map(PostedEvent::data_mut) {
                    let mut value = Value::Object(std::mem::take(data));
                    redactor.redact_value(&mut value);
                    if let Value::Object(redacted) = value {
                        *data = redacted;
                    }
                }
            }
        }
    }

    /// Returns `true` if a name that would be recorded as it is contains a secret.
    pub(super) fn names_secret(&self, redactor: &Redactor) -> bool {
        match self {
            Self::Post(post) => {
                let mut names = post.events.iter().flat_map(PostedEvent::names);
                names.any(|name| redactor.finds(name))
            }
            Self::Overlay(_)
            | Self::Resume { .. }
            | Self::Steer { .. }
            | Self::Decide(_)
            | Self::Review(_)
            | Self::ResumeStep(_) => false,
        }
    }
}
