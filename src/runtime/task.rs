//! One task, from its dispatch to the answer to its last report.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use super::callbacks::Silence;
use super::conversation::{self, Action, Conversation};
use super::model::Models;
use super::prompt::Prompt;
use super::record::{Record, Stop};
use crate::contract::gateway;
use crate::contract::report::{
    Answer, Decided, Event, Failure, Finished, LlmRequest, LlmResponse, Purpose, Told,
};
use crate::contract::runtime::Invoke;

/// The time of a task that names none.
const DEFAULT_TIME: Duration = Duration::from_secs(3600);

/// How long the end of a task whose time is over is reported.
const LAST_WORDS: Duration = Duration::from_secs(60);

/// What a task works with.
pub(super) struct Work {
    pub(super) invoke: Invoke,
    pub(super) record: Record,
    pub(super) models: Models,
    /// Of the gateway.
    pub(super) silence: Silence,
}

/// Works, and sees to it that every end is reported: a timeout and a panic, too.
pub(super) async fn run(work: Arc<Work>) {
    let given = work.invoke.timeout_ms.map(Duration::from_millis);
    let time = given.unwrap_or(DEFAULT_TIME);
    // Aborted when dropped, so that whoever aborts this task aborts the work.
    let mut under_way = JoinSet::new();
    let worker = Arc::clone(&work);
    under_way.spawn(async move {
        worker.work().await;
    });
    let end = match tokio::time::timeout(time, under_way.join_next()).await {
        Ok(None | Some(Ok(()))) => return,
        Ok(Some(Err(error))) => {
            tracing::error!(%error, run_id = work.invoke.run_id, "a task broke off");
            internal_error("the task broke off by a fault of the runtime")
        }
        Err(_) => {
            under_way.shutdown().await;
            let message = format!("no output within {} ms", time.as_millis());
            conversation::failed("timeout", failure("timeout", message), None)
        }
    };
    let _ = tokio::time::timeout(LAST_WORDS, work.finish(end)).await;
}

impl Work {
    /// The conversation to its end. What the orchestrator refuses for good would be refused in every
    /// attempt: the task is ended by that, with an error that is short enough to be taken.
    async fn work(&self) {
        match self.converse().await {
            // Nobody waits for it, so there is nothing to say.
            Ok(()) | Err(Stop::Unwanted) => {}
            Err(Stop::Refused(status)) => {
                let words = format!("the orchestrator refused a report of this task with {status}");
                let end = conversation::failed("error", failure("report_refused", words), None);
                if self.finish(end).await.is_err() {
                    tracing::error!(
                        run_id = self.invoke.run_id,
                        step_id = self.invoke.step_id,
                        "the orchestrator refuses the end of a task, too; the task is dropped"
                    );
                }
            }
        }
    }

    /// The loop: asks what comes next, does it, and goes on with what is recorded of it.
    async fn converse(&self) -> Result<(), Stop> {
        if !self.invoke.tool_servers.is_empty() {
            let message = "this runtime cannot use tool servers; dispatch the step without them";
            let error = failure("tools_not_supported", message.to_owned());
            return self
                .finish(conversation::failed("error", error, None))
                .await;
        }
        let prompt = Prompt::of(&self.invoke);
        let mut conversation = Conversation::new(prompt, self.invoke.max_turns);
        for event in &self.invoke.history {
            conversation.feed(event);
        }
        loop {
            let answer = match conversation.next() {
                Action::Call { purpose, messages } => {
                    let answer = self.announce(purpose, messages).await?;
                    if let Some(error) = answer.refused {
                        return self.finish(conversation::refused(error)).await;
                    }
                    answer
                }
                Action::Ask { seq, messages } => {
                    let response = self.ask(seq, messages).await;
                    let then = conversation.after(&response);
                    let mut events = vec![Event::Response(response)];
                    match then {
                        Action::Finish(end) => {
                            events.push(Event::Finished(end));
                            return self.record.add(events).await.map(drop);
                        }
                        Action::Decide(draft) => events.push(Event::Decided(Decided {
                            draft: Some(draft),
                            response: None,
                        })),
                        // A request may be held, and then stands alone (decision F4).
                        Action::Call { .. } | Action::Ask { .. } => {}
                    }
                    self.record.add(events).await?
                }
                Action::Decide(draft) => {
                    let decided = Event::Decided(Decided {
                        draft: Some(draft),
                        response: None,
                    });
                    self.record.add(vec![decided]).await?
                }
                Action::Finish(end) => return self.finish(end).await,
            };
            if !take(&mut conversation, &answer) {
                let words = "the orchestrator did not say what it recorded of a report";
                return self.finish(internal_error(words)).await;
            }
        }
    }

    /// Reports that a model is about to be called. In full: a base saves nothing while an agent has
    /// one turn.
    async fn announce(
        &self,
        purpose: Purpose,
        messages: Vec<gateway::Message>,
    ) -> Result<Answer, Stop> {
        let request = LlmRequest {
            base: None,
            group: self.invoke.model.group.clone(),
            max_tokens: self.invoke.model.max_tokens,
            messages: messages.into_iter().map(Told::Text).collect(),
            purpose,
            tools: None,
        };
        self.record.add(vec![Event::Request(request)]).await
    }

    async fn ask(&self, seq: u64, messages: Vec<gateway::Message>) -> LlmResponse {
        let Invoke {
            run_id, step_id, ..
        } = &self.invoke;
        let call = gateway::Invoke {
            run_id: Some(run_id.clone()),
            step_id: Some(step_id.clone()),
            group: self.invoke.model.group.clone(),
            messages,
            max_tokens: self.invoke.model.max_tokens,
            temperature: None,
            tools: Vec::new(),
        };
        self.models
            .ask(seq, &name(run_id, step_id, seq), &call, &self.silence)
            .await
    }

    async fn finish(&self, end: Finished) -> Result<(), Stop> {
        self.record.add(vec![Event::Finished(end)]).await.map(drop)
    }
}

/// The name of a model call. As long however deep the run of a child is: a gateway takes no name of
/// more than 255 characters.
pub(super) fn name(run_id: &str, step_id: &str, seq: u64) -> String {
    let words = format!("{run_id}/{step_id}/{seq}");
    format!("ktsu-{}", blake3::hash(words.as_bytes()).to_hex())
}

/// Goes on with what is recorded. False if that leads nowhere.
fn take(conversation: &mut Conversation, answer: &Answer) -> bool {
    let mut moved = false;
    for event in &answer.events {
        moved |= conversation.feed(event);
    }
    if answer.reflect {
        moved |= conversation.reflect();
    }
    moved
}

fn internal_error(message: &str) -> Finished {
    conversation::failed("error", failure("internal_error", message.to_owned()), None)
}

fn failure(code: &str, message: String) -> Failure {
    Failure {
        code: code.to_owned(),
        message,
        retryable: false,
    }
}
