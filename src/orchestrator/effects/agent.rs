//! Dispatches tasks to a runtime. The request is rendered from the state and the recorded frames,
//! so that a repeated dispatch is identical.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::http::StatusCode;
use ktsu_ledger::branch::frames;
use ktsu_ledger::event::{AgentEvent, AgentFinished, FinishReason, ReportReference};
use ktsu_ledger::{CanonicalJson, Event, Frame, Timestamp};
use ktsu_projections::calls::CallHistory;
use ktsu_projections::life::call::CallState;
use ktsu_projections::run::{RunState, TaskId};
use serde_json::json;
use tokio::sync::mpsc;

use super::servers::{self, ServerSetupOutcome};
use crate::Shared;
use crate::peers::ServicePeer;
use crate::recorded::{recorded, with_repeated_text};
use crate::run::{Message, ReportMessage, ReportOrigin};
use crate::runtimes::{TaskPlacement, Unavailability};
use crate::supervise::WatchRequest;
use crate::token::TaskName;
use ktsu_contract::in_process::AgentRuntime;
use ktsu_contract::runtime::{
    BUSY, InvokeAgent, ModelSettings, PromptMessage, RecordedFrame, ResumeInput, TaskAccepted,
    TaskRefused,
};
use ktsu_workflow::definition::Definition;
use ktsu_workflow::next::{Memo, task_spec};
use ktsu_workflow::timers;

/// The time a runtime may take to accept a task.
const DISPATCH_TIMEOUT: Duration = Duration::from_secs(30);
/// The pause before a runtime is tried again; doubles up to [`MAX_RETRY_PAUSE`].
const MIN_RETRY_PAUSE: Duration = Duration::from_millis(50);
const MAX_RETRY_PAUSE: Duration = Duration::from_secs(2);

/// The outcome of an offer to a runtime.
enum OfferOutcome {
    /// It has the task.
    Taken,
    /// It will never take it, for this reason.
    Refused(String),
    /// Another may take it, or this one later.
    Unavailable(Unavailability),
}

/// A task ready to go.
pub(crate) struct Dispatch {
    name: TaskName,
    scope: String,
    step: String,
    /// The frame at which the step began; what it did before it was begun again is of no
    /// consequence.
    since: u64,
    invoke: InvokeAgent,
    /// The reason why the task cannot be dispatched: the code and message that end it.
    hopeless: Option<(&'static str, String)>,
}

/// Begins to watch a task that is with a runtime.
pub(crate) fn watch(
    shared: &Shared,
    state: &RunState,
    place: TaskId,
    mailbox: &mpsc::Sender<Box<Message>>,
) -> Option<()> {
    let scope = state.scope_of(place.step)?;
    let step = state.step_id(place.step)?;
    let task = state.task(place.step, place.item)?;
    let name = TaskName::new(state.stream().name(), &scope.path, step, place.item);
    let task = WatchRequest {
        attempt: task.attempt,
        scope: scope.path.clone(),
        step: step.to_owned(),
        item: place.item,
        mailbox: mailbox.downgrade(),
    };
    shared.supervisor.watch(name, task);
    Some(())
}

/// Puts an announced task together; nothing if the state no longer wants it sent, or if it has to
/// wait for a secret.
pub(crate) fn prepare(
    shared: &Shared,
    state: &RunState,
    definition: &Definition,
    memo: &Memo,
    (place, now): (TaskId, Timestamp),
) -> Option<Dispatch> {
    let task = state.task(place.step, place.item)?;
    if !task.is_live() {
        return None;
    }
    let scope = state.scope_of(place.step)?;
    let step = state.step_id(place.step)?;
    let held = state.step(place.step)?;
    let spec = task_spec(definition, state, memo, place)?;
    let (servers, hopeless) =
        match servers::server_setup(shared, state, definition, memo, place, spec.servers) {
            ServerSetupOutcome::Ready(servers) => (servers, None),
            ServerSetupOutcome::WaitsForSecret => return None,
            ServerSetupOutcome::Refused(code, words) => (Vec::new(), Some((code, words))),
        };
    let name = TaskName::new(state.stream().name(), &scope.path, step, place.item);
    let token = shared.peers.tokens.token(&name, task.attempt);
    let url = |what: &str| {
        let run = name.run.replace('/', "%2F");
        let (own, step) = (&shared.peers.own_url, &name.step);
        format!("{own}/runs/{run}/steps/{step}/{what}?token={token}")
    };
    let invoke = InvokeAgent {
        run_id: name.run.clone(),
        step_id: name.step.clone(),
        attempt: task.attempt,
        item: place.item,
        agent_name: spec.agent,
        system: spec.system,
        user_message: spec.user,
        text_reply: spec.schema.is_none(),
        messages: spec
            .messages
            .into_iter()
            .map(|(role, content)| PromptMessage { role, content })
            .collect(),
        reflect: spec.reflect,
        confidence_threshold: spec.threshold.map(|most| f64::from(most) / 1_000_000.0),
        max_turns: spec.max_turns,
        model: ModelSettings {
            priced_only: state.uses_priced_models_only()
                || (state.limits_world_cost() && !shared.peers.is_free(&spec.group)),
            cache: state.task_repeats_replies(place) && shared.peers.routing(&spec.group).is_some(),
            group: spec.group,
            max_tokens: spec.max_tokens,
            temperature: spec
                .temperature_millionths
                .map(|one| f64::from(one) / 1_000_000.0),
        },
        tool_servers: servers,
        output_schema: spec.schema.as_ref().map(CanonicalJson::to_value),
        callback_url: url("complete"),
        report_url: Some(url("report")),
        history: Vec::new(),
        resume: state.resumption(place.step).map(|given| ResumeInput {
            checkpoint: given.checkpoint.to_value(),
            data: given.data.to_value(),
        }),
        timeout_ms: timers::deadline(state).map(|until| until.millis_since(now)),
    };
    Some(Dispatch {
        name,
        scope: scope.path.clone(),
        step: step.to_owned(),
        since: held.started?,
        invoke,
        hopeless,
    })
}

/// Dispatches tasks of one run. The recorded frames of tasks that were dispatched before are read
/// once for all of them.
pub(crate) fn send_all(
    shared: &Arc<Shared>,
    state: &RunState,
    tasks: Vec<Dispatch>,
    mailbox: &mpsc::Sender<Box<Message>>,
) {
    let (first, again): (Vec<_>, Vec<_>) =
        tasks.into_iter().partition(|task| task.invoke.attempt == 1);
    for task in first {
        task.begin(shared, mailbox);
    }
    if again.is_empty() {
        return;
    }
    let (shared, mailbox, stream) = (Arc::clone(shared), mailbox.clone(), state.stream().clone());
    tokio::spawn(async move {
        let name = stream.name().to_owned();
        let read = shared
            .readers
            .with(move |reader| frames(reader, &stream))
            .await;
        let frames = match read {
            Ok(frames) => frames,
            Err(error) => {
                // No heartbeat will name these tasks, so they are lost and dispatched again.
                tracing::error!(run = name, "cannot read the recorded frames: {error}");
                return;
            }
        };
        let forgotten = dispatch_forgotten(&frames);
        for mut task in again {
            task.invoke.history = task.history(&frames, &forgotten);
            task.begin(&shared, &mailbox);
        }
    });
}

impl Dispatch {
    /// The recorded frames of the task from before this attempt, without those that a branch
    /// discards.
    fn history(&self, frames: &[Frame], forgotten: &BTreeSet<u64>) -> Vec<RecordedFrame> {
        let about = |frame: &&Frame| {
            let Event::Agent(event) = &frame.event else {
                return false;
            };
            frame.seq > self.since
                && frame.scope == self.scope
                && event.step() == self.step
                && event.item() == self.invoke.item
                && !forgotten.contains(&frame.seq)
        };
        let own = frames.iter().filter(about).map(recorded);
        own.map(|frame| with_repeated_text(frame, frames)).collect()
    }

    /// Gives the task to the runtime, wherever that is.
    fn begin(self, shared: &Arc<Shared>, mailbox: &mpsc::Sender<Box<Message>>) {
        match &shared.peers.runtime_here {
            Some(runtime) if self.hopeless.is_none() => self.hand_over(shared, &**runtime),
            _ => drop(tokio::spawn(self.send(Arc::clone(shared), mailbox.clone()))),
        }
    }

    /// Gives the task to the runtime of this process.
    fn hand_over(self, shared: &Shared, runtime: &dyn AgentRuntime) {
        let attempt = self.invoke.attempt;
        match runtime.start(self.invoke) {
            Ok(accepted) => {
                let instance = accepted.runtime_id.as_deref();
                let supervisor = &shared.supervisor;
                supervisor.accepted((0, &self.name, attempt), instance, accepted.places);
            }
            // It is stopping, and the engine with it; or a later attempt has taken its place.
            Err(refusal) => tracing::debug!(
                run = self.name.run,
                status = refusal.status,
                "the runtime does not take a task: {}",
                refusal.body.message
            ),
        }
    }

    /// Sends the task until a runtime responds or the task is no longer wanted (decision W4).
    async fn send(self, shared: Arc<Shared>, mailbox: mpsc::Sender<Box<Message>>) {
        if let Some((code, words)) = &self.hopeless {
            return self.dispatch_refused(&mailbox, code, words).await;
        }
        if shared.peers.runtimes.is_empty() {
            let words = "no runtime is configured: start the orchestrator with --runtime-url";
            return self
                .dispatch_refused(&mailbox, "runtime_unconfigured", words)
                .await;
        }
        if let Some(words) = self.offer_until_taken(&shared).await {
            let words = shared.secrets.redactor().redact_text(&words);
            self.dispatch_refused(&mailbox, "runtime_refused", &words)
                .await;
        }
    }

    /// Offers the task to one runtime after the other, in rounds. Gives the words of a refusal that
    /// ends it.
    async fn offer_until_taken(&self, shared: &Shared) -> Option<String> {
        let body = Bytes::from(serde_json::to_vec(&self.invoke).unwrap_or_default());
        let (supervisor, attempt) = (&shared.supervisor, self.invoke.attempt);
        let mut pause = MIN_RETRY_PAUSE;
        let mut tried = vec![false; shared.peers.runtimes.len()];
        shared.identify_unknown_runtimes().await;
        while supervisor.awaits_runtime(&self.name, attempt) && !shared.runs.is_draining() {
            match supervisor.place(&tried) {
                TaskPlacement::Offer(index, place) => {
                    let is_long = pause >= MAX_RETRY_PAUSE;
                    let offered = self.offer(shared, index, body.clone(), is_long).await;
                    drop(place);
                    supervisor.offer_ended();
                    match offered {
                        OfferOutcome::Taken => return None,
                        OfferOutcome::Refused(words) => return Some(words),
                        OfferOutcome::Unavailable(why) => supervisor.unavailable(index, why),
                    }
                    if let Some(tried) = tried.get_mut(index) {
                        *tried = true;
                    }
                }
                TaskPlacement::Full(look) => {
                    supervisor.waits_for_place(&self.name, attempt);
                    let _ = tokio::time::timeout(look, supervisor.place_freed()).await;
                    tried.fill(false);
                    pause = MIN_RETRY_PAUSE;
                }
                TaskPlacement::Exhausted => {
                    // A runtime that is being restarted is back before long.
                    tokio::time::sleep(pause).await;
                    tried.fill(false);
                    pause = (pause * 2).min(MAX_RETRY_PAUSE);
                }
            }
        }
        None
    }

    /// Sends the task to one runtime.
    async fn offer(
        &self,
        shared: &Shared,
        index: usize,
        body: Bytes,
        is_long: bool,
    ) -> OfferOutcome {
        let failing = OfferOutcome::Unavailable(Unavailability::Failing);
        let Some(ServicePeer { url, peer }) = shared.peers.runtimes.get(index) else {
            return failing;
        };
        let run = &self.name.run;
        match peer
            .post_with_timeout(DISPATCH_TIMEOUT, "/invoke", &[], body)
            .await
        {
            Ok((status, body)) if (200..300).contains(&status) => {
                let accepted: Option<TaskAccepted> = serde_json::from_slice(&body).ok();
                let (instance, places) =
                    accepted.map_or((None, None), |it| (it.runtime_id, it.places));
                let task = (index, &self.name, self.invoke.attempt);
                shared
                    .supervisor
                    .accepted(task, instance.as_deref(), places);
                OfferOutcome::Taken
            }
            Ok((status, body)) => {
                let refused: Option<TaskRefused> = serde_json::from_slice(&body).ok();
                if is_final(status) {
                    let why = refused.map(|refused| refused.message).unwrap_or_default();
                    return OfferOutcome::Refused(format!(
                        "the runtime refused the task with status {status}: {why}"
                    ));
                }
                if refused.is_some_and(|refused| refused.error == BUSY) {
                    return OfferOutcome::Unavailable(Unavailability::Busy);
                }
                match is_long {
                    true => tracing::warn!(run, url, status, "the runtime is not ready"),
                    false => tracing::debug!(run, url, status, "dispatching the task again"),
                }
                failing
            }
            Err(error) => {
                match is_long {
                    true => tracing::warn!(run, url, "no response from the runtime: {error}"),
                    false => tracing::debug!(run, url, %error, "dispatching the task again"),
                }
                failing
            }
        }
    }

    /// Ends the task: no runtime will.
    async fn dispatch_refused(
        &self,
        mailbox: &mpsc::Sender<Box<Message>>,
        code: &str,
        words: &str,
    ) {
        let outcome = json!({"error": {"code": code, "message": words, "retryable": false}});
        let outcome = CanonicalJson::from_value(&outcome).unwrap_or_default();
        let finished = AgentFinished {
            attempt: self.invoke.attempt,
            item: self.invoke.item,
            metrics: None,
            reason: FinishReason::Error,
            report: Some(ReportReference {
                digest: ktsu_ledger::Hash::of(outcome.as_str().as_bytes()).to_string(),
                n: 0,
            }),
            outcome,
            step: self.step.clone(),
        };
        let (reply, _) = tokio::sync::oneshot::channel();
        let message = Message::Report(ReportMessage {
            scope: self.scope.clone(),
            events: vec![AgentEvent::Finished(Box::new(finished))],
            origin: ReportOrigin::Process,
            reply,
        });
        // Fails if the run has ended meanwhile.
        let _ = mailbox.send(Box::new(message)).await;
    }
}

/// The frames that a branch discards: calls from before the fork without a result, and their
/// approvals (decision F1).
fn dispatch_forgotten(frames: &[Frame]) -> BTreeSet<u64> {
    let mut forgotten = BTreeSet::new();
    let mut calls = CallHistory::default();
    // The frames about each call without a result.
    let mut open: BTreeMap<(u64, u32), Vec<u64>> = BTreeMap::new();
    for frame in frames {
        if frame.event.branched().is_some() {
            forgotten.extend(std::mem::take(&mut open).into_values().flatten());
        }
        if let Some(call) = calls.apply(frame) {
            match call.call.state {
                CallState::Returned { .. } => drop(open.remove(&call.key)),
                _ => open.entry(call.key).or_default().push(frame.seq),
            }
        }
    }
    forgotten
}

/// Returns `true` if repeating the same request is pointless after this status.
fn is_final(status: u16) -> bool {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let later = [StatusCode::TOO_MANY_REQUESTS, StatusCode::REQUEST_TIMEOUT];
    status.is_client_error() && !later.contains(&status)
}
