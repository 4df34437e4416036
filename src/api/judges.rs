//! Models that judge: asked for the checks of runs, with every request on the disk before it is sent,
//! and every reply before a result rests on it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::TryFutureExt as _;
use futures_util::future::{BoxFuture, try_join_all};
use ktsu_contract::gateway::{ChatMessage, InvokeModel};
use ktsu_contract::report::{FailureDetails, LlmResponse};
use ktsu_eval::{
    CausedEvent, EvalRecord, EvalSpec, EvalWriter, JudgeCall, JudgeQuestion, JudgeReplies,
    JudgeStep, JudgeSubject, RecordedCall, ServiceRecords,
};
use ktsu_history::checked_run::CheckedRun;
use ktsu_ledger::StreamId;
use ktsu_ledger::event::{CheckResult, LlmRequest, ScenarioStarted};
use ktsu_orchestrator::{EvalAppendError, EvalStream, Orchestrator};
use ktsu_runtime::{GatewayLink, ModelClient};
use serde_json::json;
use tokio::sync::{Mutex, Semaphore};

/// Calls of checks under way at once in this process.
const MAX_CALLS: usize = 16;

/// The time a reply may take, its retries in the gateway included.
const REPLY_TIMEOUT: Duration = Duration::from_secs(300);

/// The gateway that checks ask. Cloning is cheap; clones share the places.
#[derive(Clone)]
pub struct JudgeModels {
    client: Option<ModelClient>,
    places: Arc<Semaphore>,
}

/// An eval that is recorded, and the models that its checks ask. Several runs may be judged at a time.
pub struct EvalLog {
    orchestrator: Orchestrator,
    models: JudgeModels,
    stream: StreamId,
    /// Held while frames are appended, because their numbers follow one another: only by tasks of their
    /// own, which come to an end whatever their callers wait for.
    state: Arc<Mutex<LogState>>,
    /// The record of an earlier process.
    before: Option<EvalRecord>,
    cost_micro_usd: AtomicU64,
}

struct LogState {
    orchestrator: Orchestrator,
    eval: EvalStream,
    writer: EvalWriter,
}

/// Work on what is recorded.
type Working<'s, T> = BoxFuture<'s, Result<T, EvalAppendError>>;

impl LogState {
    async fn append(&mut self, events: Vec<CausedEvent>) -> Result<(), EvalAppendError> {
        let orchestrator = &self.orchestrator;
        orchestrator.append_eval(&mut self.eval, events).await
    }

    async fn append_calls(&mut self, calls: Vec<RecordedCall>) -> Result<(), EvalAppendError> {
        let orchestrator = &self.orchestrator;
        orchestrator.append_eval_calls(&mut self.eval, calls).await
    }
}

/// A run that is judged: its place in the eval, and its last frame.
struct Judged<'r> {
    place: (u32, u32),
    run: &'r (StreamId, u64),
}

impl std::fmt::Debug for JudgeModels {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JudgeModels").finish_non_exhaustive()
    }
}

impl Default for JudgeModels {
    fn default() -> Self {
        Self::new(None)
    }
}

impl JudgeModels {
    /// Models behind a gateway; none where no gateway is known.
    pub fn new(gateway: Option<GatewayLink>) -> Self {
        Self {
            client: gateway.map(ModelClient::new),
            places: Arc::new(Semaphore::new(MAX_CALLS)),
        }
    }

    async fn ask(&self, request: u64, key: &str, call: InvokeModel) -> LlmResponse {
        let _place = self.places.acquire().await.ok();
        let Some(client) = &self.client else {
            return failed(request, "no_gateway", NO_GATEWAY);
        };
        let asked = client.ask_alone(request, key, call);
        match tokio::time::timeout(REPLY_TIMEOUT, asked).await {
            Ok(answer) => answer,
            Err(_) => {
                let words = format!("no reply within {} seconds", REPLY_TIMEOUT.as_secs());
                failed(request, "timeout", &words)
            }
        }
    }
}

/// The fault of a reply that belongs to no request.
const NO_REQUEST: &str = "a reply answers no request";

/// The reason why no model is asked.
const NO_GATEWAY: &str = "no model gateway is known here, so no model can judge";

fn failed(request: u64, code: &str, message: &str) -> LlmResponse {
    LlmResponse {
        request,
        error: Some(FailureDetails {
            code: code.to_owned(),
            message: message.to_owned(),
            retryable: false,
        }),
        ..LlmResponse::default()
    }
}

impl EvalLog {
    /// An eval whose next frames are those of `writer`. `before`: what is recorded of one that is
    /// resumed.
    pub fn new(
        orchestrator: &Orchestrator,
        models: &JudgeModels,
        (eval, writer): (EvalStream, EvalWriter),
        before: Option<EvalRecord>,
    ) -> Self {
        let spent = before.as_ref().map_or(0, |it| it.usage().cost_micro_usd);
        Self {
            orchestrator: orchestrator.clone(),
            models: models.clone(),
            stream: eval.stream.clone(),
            state: Arc::new(Mutex::new(LogState {
                orchestrator: orchestrator.clone(),
                eval,
                writer,
            })),
            before,
            cost_micro_usd: AtomicU64::new(spent),
        }
    }

    /// The stream.
    pub fn stream(&self) -> &StreamId {
        &self.stream
    }

    /// The cost of its checks, in millionths of a US dollar.
    pub fn cost_micro_usd(&self) -> u64 {
        self.cost_micro_usd.load(Ordering::Relaxed)
    }

    /// The scenario and the replica that are judged next.
    ///
    /// # Errors
    /// [`EvalAppendError`].
    pub async fn next_run(&self) -> Result<(u32, u32), EvalAppendError> {
        self.with(|state| {
            let next = state.writer.next_run();
            Box::pin(async move { Ok(next) })
        })
        .await
    }

    /// Works on what is recorded, after those that came before.
    async fn with<T: Send + 'static>(
        &self,
        work: impl for<'s> FnOnce(&'s mut LogState) -> Working<'s, T> + Send + 'static,
    ) -> Result<T, EvalAppendError> {
        let state = Arc::clone(&self.state);
        let worked = tokio::spawn(async move { work(&mut *state.lock().await).await });
        let worked = worked.await;
        worked.map_err(|error| EvalAppendError::Ledger(error.to_string()))?
    }

    /// Appends the results of the next run, or why there are none.
    ///
    /// # Errors
    /// [`EvalAppendError`].
    pub async fn judged(
        &self,
        started: ScenarioStarted,
        results: Result<Vec<CheckResult>, String>,
    ) -> Result<Vec<CausedEvent>, EvalAppendError> {
        self.with(move |state| {
            let events = state.writer.judged(started, results);
            Box::pin(state.append(events.clone()).map_ok(|()| events))
        })
        .await
    }

    /// Appends the end.
    ///
    /// # Errors
    /// [`EvalAppendError`].
    pub async fn finish(&self) -> Result<(), EvalAppendError> {
        self.with(|state| {
            let events = state.writer.finish();
            Box::pin(state.append(events))
        })
        .await
    }

    /// The replies of models to the checks of a run: those that are recorded, and those to the
    /// questions asked now. `files`: the text of its files, or the reason why there is none.
    /// `services`: what those of the suite received.
    ///
    /// # Errors
    /// [`EvalAppendError`]: a call cannot be recorded, so it is not made.
    pub async fn replies(
        &self,
        place: (u32, u32),
        run: &StreamId,
        spec: &EvalSpec,
        checked: &CheckedRun,
        (files, services): (Option<Result<String, String>>, Option<&ServiceRecords>),
    ) -> Result<JudgeReplies, EvalAppendError> {
        let frames = checked.frames.len() as u64;
        let before = self.before.as_ref();
        let known = before.map(|record| record.calls_of(place, run, frames));
        let known = known.unwrap_or_default();
        let files = files.map(|files| files.map(|text| self.orchestrator.redacted(&text)));
        let (mut questions, mut refused) = (Vec::new(), BTreeMap::new());
        for (invariant, check) in spec.judges() {
            let text = match &files {
                Some(Ok(text)) => Ok(Some(text.as_str())),
                Some(Err(why)) => Err(why.clone()),
                None => Ok(None),
            };
            let asked = text.and_then(|files| {
                let envelope = &checked.envelope;
                let subject = JudgeSubject {
                    envelope,
                    files,
                    services,
                };
                JudgeQuestion::of(&invariant.name, check, &subject)
            });
            match asked.and_then(|question| self.permitted(question)) {
                Ok(question) => questions.push(question),
                Err(why) => drop(refused.insert(invariant.name.clone(), why)),
            }
        }
        let last = (run.clone(), frames.saturating_sub(1));
        let judged = Judged { place, run: &last };
        let asked = questions.iter().map(|question| {
            let known = known.iter().filter(|call| call.is_of(&question.check));
            self.ask(&judged, question, known.cloned().collect())
        });
        let mut calls = try_join_all(asked).await?.concat();
        calls.sort_by_key(|call| call.request);
        Ok(JudgeReplies { calls, refused })
    }

    /// Refuses what must not leave this process, and every question where there is no gateway.
    fn permitted(&self, question: JudgeQuestion) -> Result<JudgeQuestion, String> {
        if self.models.client.is_none() {
            return Err(NO_GATEWAY.to_owned());
        }
        match self.orchestrator.holds_secret(&json!(question.texts())) {
            true => Err("what is judged holds a secret of the kit, and is not sent".to_owned()),
            false => Ok(question),
        }
    }

    /// All calls of a question, in which nothing is left to ask.
    async fn ask(
        &self,
        judged: &Judged<'_>,
        question: &JudgeQuestion,
        mut calls: Vec<JudgeCall>,
    ) -> Result<Vec<JudgeCall>, EvalAppendError> {
        loop {
            match question.next(&calls) {
                JudgeStep::Done => return Ok(calls),
                JudgeStep::Record(requests) => {
                    calls.extend(self.record(judged, requests).await?);
                }
                JudgeStep::Send(waiting) => {
                    let waiting = calls.iter().filter(|it| waiting.contains(&it.request));
                    let sent = waiting.map(|call| self.send(judged, question, call, &calls));
                    for answered in try_join_all(sent).await? {
                        let request = answered.request;
                        let mut open = calls.iter_mut();
                        if let Some(call) = open.find(|call| call.request == request) {
                            *call = answered;
                        }
                    }
                }
            }
        }
    }

    async fn record(
        &self,
        judged: &Judged<'_>,
        requests: Vec<LlmRequest>,
    ) -> Result<Vec<JudgeCall>, EvalAppendError> {
        let (place, run) = (judged.place, judged.run.clone());
        self.with(move |state| {
            let (calls, recorded) = state.writer.requests(place, &run, requests);
            Box::pin(state.append_calls(recorded).map_ok(|()| calls))
        })
        .await
    }

    /// Sends a recorded request, and records the reply.
    async fn send(
        &self,
        judged: &Judged<'_>,
        question: &JudgeQuestion,
        call: &JudgeCall,
        calls: &[JudgeCall],
    ) -> Result<JudgeCall, EvalAppendError> {
        let messages = question.messages(call, calls).into_iter();
        let messages = messages.map(|message| ChatMessage {
            role: message.role.to_owned(),
            content: message.content,
            ..ChatMessage::default()
        });
        let invoke = InvokeModel {
            run_id: Some(judged.run.0.name().to_owned()),
            step_id: Some(question.check.clone()),
            group: question.group().to_owned(),
            messages: messages.collect(),
            max_tokens: question.max_tokens(),
            temperature: Some(question.temperature()),
            tools: Vec::new(),
            priced_only: false,
        };
        let key = format!("{}/{}", self.stream.name(), call.request);
        let answer = self.models.ask(call.request, &key, invoke).await;
        let sample = (question.check.as_str(), call.sample());
        let cost = answer.cost_micro_usd;
        let answer = self.orchestrator.reply_to_check(sample, answer);
        let broken = |why: String| EvalAppendError::Ledger(why);
        let answer = answer.map_err(|error| broken(error.to_string()))?;
        let (mut call, place) = (call.clone(), judged.place);
        let recording =
            self.with(
                move |state| match state.writer.answer(place, &mut call, answer) {
                    Some(recorded) => {
                        Box::pin(state.append_calls(vec![recorded]).map_ok(|()| call))
                    }
                    None => Box::pin(async { Err(EvalAppendError::Ledger(NO_REQUEST.to_owned())) }),
                },
            );
        let call = recording.await?;
        self.cost_micro_usd.fetch_add(cost, Ordering::Relaxed);
        Ok(call)
    }
}
