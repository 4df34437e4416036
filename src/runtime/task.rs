//! One task, from its dispatch to the response to its last report.

mod draining;
mod model_call;
mod servers;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use parking_lot::Mutex;

use super::callbacks::{Callbacks, UnreachableWarning};
use super::conversation::{self, Action, Conversation, ConversationLimits};
use super::deadline::{DeadlineElapsedError, PausableDeadline};
use super::model::ModelClient;
use super::prompt::AgentPrompt;
use super::record::{RecordError, TaskRecorder};
use super::tasks::EndingFlag;
use super::tools::ToolClient;
use super::tools::catalogue::Catalogue;
use super::tools::sessions::{OutgoingCall, Sessions};
use ktsu_contract::report::{
    Decided, FailureDetails, Finished, LlmResponse, ReportAck, ReportEvent,
};
use ktsu_contract::runtime::InvokeAgent;
use ktsu_server::{InFlight, InFlightGuard};

pub(super) use model_call::name;

/// The time of a task that names none.
const DEFAULT_TASK_TIMEOUT: Duration = Duration::from_secs(3600);

/// The gateway's code for a model group that it does not know.
const UNKNOWN_GROUP: &str = "unknown_group";

/// The time for which the end of a task whose time is over is reported.
const FINAL_REPORT_TIMEOUT: Duration = Duration::from_secs(60);

/// The parts that a task works with.
pub(super) struct AgentTaskContext {
    pub(super) invoke: InvokeAgent,
    pub(super) time: PausableDeadline,
    /// Set once the end is reported.
    pub(super) ending: EndingFlag,
    pub(super) record: TaskRecorder,
    pub(super) models: ModelClient,
    pub(super) tools: Arc<dyn ToolClient>,
    /// By which way the orchestrator's own tool servers are reached.
    pub(super) orchestrator: Callbacks,
    /// Of the gateway.
    pub(super) silence: UnreachableWarning,
    /// Events that have to be reported before the end, whichever part of the task finds that it has
    /// come.
    pub(super) final_events: Mutex<Vec<ReportEvent>>,
    /// The state that shows whether the runtime is about to stop.
    pub(super) draining: InFlight,
    /// Present until the task is parked.
    pub(super) in_flight: Mutex<Option<InFlightGuard>>,
}

/// The reason why a conversation breaks off.
enum HaltError {
    /// Its reports are not taken.
    Stop(RecordError),
    /// The task's time is over.
    Time,
}

impl From<DeadlineElapsedError> for HaltError {
    fn from(DeadlineElapsedError: DeadlineElapsedError) -> Self {
        Self::Time
    }
}

impl From<RecordError> for HaltError {
    fn from(stop: RecordError) -> Self {
        Self::Stop(stop)
    }
}

/// The outcome of a step of the loop.
enum LoopOutcome {
    /// It goes on with what is recorded.
    Recorded(ReportAck),
    /// It goes on as it is.
    Continue,
    /// It has ended, or is nobody's business any more.
    Ended,
}

/// A task's tools, and the calls under way.
#[derive(Default)]
struct Toolbox {
    catalogue: Catalogue,
    sessions: Sessions,
    open: bool,
}

/// Works, and sees to it that every end is reported: a timeout and a panic, too.
pub(super) async fn run(work: AgentTaskContext) {
    let late = async {
        work.time.elapsed().await;
        tokio::time::sleep(FINAL_REPORT_TIMEOUT).await;
    };
    let done = tokio::select! {
        biased;
        done = AssertUnwindSafe(work.work()).catch_unwind() => done,
        () = late => {
            return tracing::warn!(
                run_id = work.invoke.run_id,
                step_id = work.invoke.step_id,
                "could not deliver the end of an expired task; dropping it"
            );
        }
    };
    match done {
        Ok(()) => {}
        Err(_) => {
            tracing::error!(run_id = work.invoke.run_id, "a task panicked");
            let words = "the task broke off by a fault of the runtime";
            let end = conversation::broken("internal_error", words);
            let _ = tokio::time::timeout(FINAL_REPORT_TIMEOUT, work.finish(end)).await;
        }
    }
}

impl AgentTaskContext {
    /// The conversation to its end. What the orchestrator refuses for good would be refused in every
    /// attempt: the task is ended by that, with an error that is short enough to be taken.
    async fn work(&self) {
        let end = match self.converse().await {
            // Nobody waits for it, so there is nothing to say.
            Ok(()) | Err(HaltError::Stop(RecordError::Unwanted)) => return,
            Err(HaltError::Stop(RecordError::Refused(status))) => {
                let words = format!("the orchestrator refused a report of this task with {status}");
                conversation::broken("report_refused", words)
            }
            Err(HaltError::Time) => {
                let words = format!(
                    "no output within {} ms",
                    time_limit(&self.invoke).as_millis()
                );
                let error = conversation::failure("timeout", words);
                conversation::failed("timeout", error, None)
            }
        };
        if let Err(RecordError::Refused(_)) = self.finish(end).await {
            tracing::error!(
                run_id = self.invoke.run_id,
                step_id = self.invoke.step_id,
                "the orchestrator also refused the end of a task; dropping it"
            );
        }
    }

    /// The loop: asks what comes next, does it, and goes on with what is recorded of it.
    async fn converse(&self) -> Result<(), HaltError> {
        let terms = ConversationLimits {
            max_turns: self.invoke.max_turns,
            text_reply: self.invoke.text_reply,
            people: self.record.takes_reports(),
        };
        let prompt = AgentPrompt::of(&self.invoke);
        let mut conversation = Conversation::new(prompt, terms, &self.invoke.history);
        let mut bench = Toolbox::default();
        loop {
            self.remember_final_events(&conversation);
            if !bench.open
                && conversation.needs_tools()
                && let Err(error) = self.time.within(self.open(&mut bench)).await?
            {
                return Ok(self.finish(servers::unopened(&error)).await?);
            }
            self.time
                .within(compile(&conversation, &bench.catalogue))
                .await?;
            let action = conversation.next(&bench.catalogue);
            let action = match self.is_held_back(&action) {
                false => action,
                // What is in flight is recorded, and what follows waits for the next runtime.
                true if bench.sessions.has_calls() => Action::Wait,
                true => self.park().await,
            };
            let then = self.act(action, &mut conversation, &mut bench);
            let answer = match then.await? {
                LoopOutcome::Ended => return Ok(()),
                LoopOutcome::Continue => continue,
                LoopOutcome::Recorded(answer) => answer,
            };
            if let Some(error) = answer.refused {
                return Ok(self.finish(conversation::refused(error)).await?);
            }
            if !apply_recorded(&mut conversation, &answer) {
                let words = "the orchestrator did not say what it recorded of a report";
                let end = conversation::broken("internal_error", words);
                return Ok(self.finish(end).await?);
            }
            if answer.suspended {
                return Ok(());
            }
        }
    }

    async fn act(
        &self,
        action: Action,
        conversation: &mut Conversation,
        bench: &mut Toolbox,
    ) -> Result<LoopOutcome, HaltError> {
        let answer = match action {
            Action::Call(call) => {
                let announced = self.unless_held(self.announce(*call));
                self.time.within(announced).await??
            }
            Action::Ask(asking) => {
                let response = self.time.within(self.ask(*asking)).await?;
                if let Some(error) = self.unanswered(&response) {
                    self.finish(conversation::refused(error)).await?;
                    return Ok(LoopOutcome::Ended);
                }
                let then = conversation.after(&response);
                let over = matches!(then, Some(ReportEvent::Finished(_)));
                // A request may be held, and then stands alone (decision F4).
                if over {
                    self.ending.set();
                }
                let events = std::iter::once(ReportEvent::Response(response)).chain(then);
                let answer = self.record.add(events.collect()).await?;
                if over {
                    return Ok(LoopOutcome::Ended);
                }
                answer
            }
            Action::Decide(draft) => {
                let decided = ReportEvent::Decided(Decided {
                    draft: Some(draft),
                    response: None,
                });
                self.record.add(vec![decided]).await?
            }
            Action::Report(events) if draining::begins_calls(&events) => {
                self.unless_held(self.record.add(events)).await?
            }
            Action::Report(events) => self.record.add(events).await?,
            Action::Send(sends) => {
                for sending in sends {
                    conversation.sent(sending.called);
                    let key = self.key(&sending);
                    bench.sessions.send(sending, key, self.time.until());
                }
                return Ok(LoopOutcome::Continue);
            }
            Action::Wait => {
                let answers = self.time.within(bench.sessions.answers()).await?;
                if answers.is_empty() {
                    let words = "the task waits for a call that is not under way";
                    let end = conversation::broken("internal_error", words);
                    self.finish(end).await?;
                    return Ok(LoopOutcome::Ended);
                }
                let events = answers.into_iter().filter_map(|(called, answer)| {
                    conversation.answered(called, answer, &bench.catalogue)
                });
                match events.collect::<Vec<_>>() {
                    events if events.is_empty() => return Ok(LoopOutcome::Continue),
                    events => self.record.add(events).await?,
                }
            }
            Action::Suspend => return Ok(LoopOutcome::Ended),
            Action::Finish(end) => {
                self.remember_final_events(conversation);
                self.finish(end).await?;
                return Ok(LoopOutcome::Ended);
            }
        };
        Ok(LoopOutcome::Recorded(answer))
    }

    /// The reason why a question of a responder has no reply at all: there is no model to ask. It
    /// stays open, and is asked again when the run is resumed.
    fn unanswered(&self, response: &LlmResponse) -> Option<FailureDetails> {
        let is_question = !self.invoke.messages.is_empty();
        let error = response.error.clone().filter(|_| is_question)?;
        (error.code == UNKNOWN_GROUP).then_some(error)
    }

    /// The name of a tool call: the orchestrator's, which outlives the attempt; or one of our own
    /// where nobody records any.
    fn key(&self, sending: &OutgoingCall) -> String {
        let InvokeAgent {
            run_id, step_id, ..
        } = &self.invoke;
        let own = || name(run_id, step_id, sending.called);
        sending.key.clone().unwrap_or_else(own)
    }

    fn remember_final_events(&self, conversation: &Conversation) {
        *self.final_events.lock() = conversation.final_events();
    }

    async fn finish(&self, end: Finished) -> Result<(), RecordError> {
        let mut events = std::mem::take(&mut *self.final_events.lock());
        events.push(ReportEvent::Finished(end));
        self.ending.set();
        self.record.add(events).await.map(drop)
    }
}

/// The time that a task has.
pub(super) fn time_limit(invoke: &InvokeAgent) -> Duration {
    let given = invoke.timeout_ms.map(Duration::from_millis);
    given.unwrap_or(DEFAULT_TASK_TIMEOUT)
}

/// Compiles what the calls of a reply are held against, on a thread that nobody waits for: the
/// schemas are strangers'.
async fn compile(conversation: &Conversation, catalogue: &Catalogue) {
    let schemas = catalogue.uncompiled(&conversation.calls());
    if schemas.is_empty() {
        return;
    }
    let compiling = tokio::task::spawn_blocking(move || {
        for known in schemas {
            let _ = known.compile();
        }
    });
    // One that broke off is met again where the call is checked.
    let _ = compiling.await;
}

/// Goes on with what is recorded. False if that leads nowhere.
fn apply_recorded(conversation: &mut Conversation, answer: &ReportAck) -> bool {
    let mut moved = false;
    for event in &answer.events {
        moved |= conversation.feed(event);
    }
    if answer.reflect {
        moved |= conversation.reflect();
    }
    moved
}
