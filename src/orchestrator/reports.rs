//! Reports of runtimes: authorized, redacted, passed to the run, and acknowledged once durable
//! (decisions W1-W5).

mod error;
mod events;

use ktsu_ledger::branch::frames;
use ktsu_ledger::event::{AgentEvent, LlmResponse, ReportReference, Role};
use ktsu_ledger::store::StoreError;
use ktsu_ledger::{Event, Frame, Hash, Sealed, StreamId};
use serde::de::DeserializeOwned;
use tokio::sync::oneshot;

pub use self::error::ReportError;
use self::events::ReportContext;
use super::recorded::{put_text, read_frame, recorded, repeated_frame, with_repeated_text};
use super::run::{Message, ReportMessage, ReportOrigin, ReportOutcome};
use super::token::TaskName;
use super::{Orchestrator, ReadKind, wait_for};
use ktsu_contract::report::{
    self as wire, FailureDetails, Heartbeat, HeartbeatAck, ReportAck, TaskCompletion,
};
use ktsu_workflow::admit::report::{ReportAdmission, report};

/// A task, as a path names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskAddress {
    /// The run's stream.
    pub stream: StreamId,
    /// The inline child, or empty.
    pub scope: String,
    /// The step.
    pub step: String,
    /// The item of a fan-out.
    pub item: Option<u32>,
}

impl TaskAddress {
    /// Its name in tokens.
    pub fn name(&self) -> TaskName {
        TaskName::new(self.stream.name(), &self.scope, &self.step, self.item)
    }

    /// The event of a frame, if it is about this task and its agent.
    fn event_of<'f>(&self, frame: &'f Frame) -> Option<&'f AgentEvent> {
        event_about(frame, &self.scope, (&self.step, self.item))
    }
}

/// The event of a frame, if it is about the agent of a task.
fn event_about<'f>(
    frame: &'f Frame,
    scope: &str,
    task: (&str, Option<u32>),
) -> Option<&'f AgentEvent> {
    let Event::Agent(event) = &frame.event else {
        return None;
    };
    let own = frame.scope == scope && (event.step(), event.item()) == task;
    own.then_some(event)
}

impl Orchestrator {
    /// The attempt that a token belongs to.
    ///
    /// # Errors
    /// [`ReportError::Unauthorized`].
    pub fn authorize(&self, task: &TaskAddress, token: &str) -> Result<u32, ReportError> {
        let attempt = self.shared.peers.tokens.attempt(&task.name(), token);
        attempt.ok_or(ReportError::Unauthorized)
    }

    /// The attempt that the holder of a link may resume.
    pub fn authorize_resume(&self, task: &TaskName, token: &str) -> Option<u32> {
        self.shared.peers.tokens.resumes(task, token)
    }

    /// The link by which a suspended attempt can be given its data: a capability. That it is made is
    /// logged, and for whom.
    pub fn resume_link(&self, task: &TaskName, attempt: u32, by: &str) -> String {
        let (run, step) = (&task.run, &task.step);
        tracing::info!(
            run,
            step,
            attempt,
            principal = by,
            "link to resume a step made"
        );
        let token = self.shared.peers.tokens.resume_token(task, attempt);
        let run = task.run.replace('/', "%2F");
        let own = &self.shared.peers.own_url;
        format!(
            "{own}/runs/{run}/steps/{}/resume/link?token={token}",
            task.step
        )
    }

    /// The reply of a model to a check, as frames have it: redacted, without its digests. `check`:
    /// the invariant; `sample`: the number of the question.
    ///
    /// # Errors
    /// [`ReportError::Malformed`].
    pub fn reply_to_check(
        &self,
        (check, sample): (&str, u32),
        answer: wire::LlmResponse,
    ) -> Result<LlmResponse, ReportError> {
        let context = ReportContext {
            attempt: sample,
            item: None,
            step: check,
            report: ReportReference {
                digest: String::new(),
                n: 1,
            },
            redactor: self.shared.secrets.redactor(),
            routing: None,
        };
        context.response(answer)
    }

    /// Takes a report, and returns once it is durable.
    ///
    /// # Errors
    /// [`ReportError`]; nothing is recorded.
    pub async fn report(
        &self,
        task: TaskAddress,
        attempt: u32,
        report: wire::Report,
        bytes: &[u8],
        origin: ReportOrigin,
    ) -> Result<ReportAck, ReportError> {
        if report.attempt != attempt {
            return Err(ReportError::Stale);
        }
        if report.n == 0 {
            let words = "the number of a report is counted from 1";
            return Err(ReportError::Malformed(words.to_owned()));
        }
        let n = report.n;
        let about = self.report_context(&task, attempt, n, bytes);
        let events = about.events(report)?;
        let taken = self.submit_report(&task, events, (attempt, n), origin);
        match taken.await? {
            Some(ack) => Ok(ack),
            None => {
                let events = about.events(read_again(bytes)?)?;
                self.after_the_end(&task, events, n).await
            }
        }
    }

    /// Takes the end of a task from a runtime that reports nothing else.
    ///
    /// # Errors
    /// [`ReportError`]; nothing is recorded.
    pub async fn complete(
        &self,
        task: TaskAddress,
        attempt: u32,
        completion: TaskCompletion,
        bytes: &[u8],
    ) -> Result<(), ReportError> {
        let about = self.report_context(&task, attempt, 0, bytes);
        let events = vec![about.completed(completion)?];
        let taken = self.submit_report(&task, events, (attempt, 0), ReportOrigin::Socket);
        if taken.await?.is_none() {
            let events = vec![about.completed(read_again(bytes)?)?];
            self.after_the_end(&task, events, 0).await?;
        }
        Ok(())
    }

    fn report_context<'a>(
        &'a self,
        task: &'a TaskAddress,
        attempt: u32,
        n: u32,
        bytes: &[u8],
    ) -> ReportContext<'a> {
        ReportContext {
            attempt,
            item: task.item,
            step: &task.step,
            report: ReportReference {
                digest: Hash::of(bytes).to_string(),
                n,
            },
            redactor: self.shared.secrets.redactor(),
            routing: self.shared.peers.groups.as_ref(),
        }
    }

    /// Records a heartbeat. An instance that does not name another's tasks replaces it only if the
    /// health of a runtime confirms that: a runtime beside it must not cost it its tasks.
    pub async fn heartbeat(&self, beat: &Heartbeat) -> HeartbeatAck {
        let supervisor = &self.shared.supervisor;
        let (heard, is_unknown) = supervisor.heartbeat(beat);
        if is_unknown {
            self.shared.identify_runtimes(&beat.runtime_id).await;
            supervisor.instance_replaced(beat);
        }
        heard
    }

    /// Gives a report to its run; nothing comes of it if the run is not under way.
    async fn submit_report(
        &self,
        task: &TaskAddress,
        events: Vec<AgentEvent>,
        (attempt, n): (u32, u32),
        origin: ReportOrigin,
    ) -> Result<Option<ReportAck>, ReportError> {
        let shared = &self.shared;
        let Some(under_way) = shared.runs.get(task.stream.name()) else {
            return Ok(None);
        };
        let supervisor = &shared.supervisor;
        supervisor.record_contact(&task.name(), attempt);
        let leads_outside = leads_outside(&events);
        let (reply, replied) = oneshot::channel();
        let message = Message::Report(ReportMessage {
            scope: task.scope.clone(),
            events,
            origin,
            reply,
        });
        let taken = match under_way.send(Box::new(message)).await {
            true => replied.await.ok(),
            false => None,
        };
        let Some(taken) = taken else {
            // The run ended while the report was on its way.
            return Ok(None);
        };
        let mut progress = under_way.progress;
        let (first, last, ack) = match taken {
            ReportOutcome::New { last, ack } => (0, last, Some(ack)),
            ReportOutcome::Again { first, last } => (first, last, None),
            ReportOutcome::Stale => return Err(ReportError::Stale),
            ReportOutcome::Malformed(words) => return Err(ReportError::Malformed(words)),
        };
        if origin == ReportOrigin::Socket || leads_outside || ack.is_none() {
            let durable = wait_for(&mut progress, |progress| progress.durable >= Some(last)).await;
            durable.map_err(ReportError::Unavailable)?;
        }
        match ack {
            Some(ack) => self.with_repeated_text(task, *ack).await.map(Some),
            None => Ok(Some(answer_from(n, task, &self.frames(task).await?, first))),
        }
    }

    /// A report about a run that is not under way: the answer of before, if it was given, and
    /// nothing else.
    async fn after_the_end(
        &self,
        task: &TaskAddress,
        events: Vec<AgentEvent>,
        n: u32,
    ) -> Result<ReportAck, ReportError> {
        let frames = self.frames(task).await?;
        let state = ktsu_projections::run::RunState::fold(&frames);
        let state = state.map_err(|error| ReportError::Unavailable(error.to_string()))?;
        let ended = state.status().is_terminal();
        let awaits = awaits_decision(&events);
        match report(&state, &task.scope, events, &self.shared.peers.prices) {
            // An engine that was draining left open what follows from it.
            ReportAdmission::Repeated { first, .. } if awaits && is_undecided(&frames, first) => {
                let words = "what follows from the report is not decided yet";
                Err(ReportError::Unavailable(words.to_owned()))
            }
            ReportAdmission::Repeated { first, .. } => Ok(answer_from(n, task, &frames, first)),
            // The task is still wanted and the run will be resumed: retry later.
            ReportAdmission::Accepted(_) | ReportAdmission::Deferred(_) if !ended => {
                let words = "the run is not under way just now";
                Err(ReportError::Unavailable(words.to_owned()))
            }
            ReportAdmission::Accepted(_)
            | ReportAdmission::Deferred(_)
            | ReportAdmission::Stale => Err(ReportError::Stale),
            ReportAdmission::Malformed(words) => Err(ReportError::Malformed(words)),
        }
    }

    /// Puts the text of a repeated reply into an answer. It is recorded elsewhere in the run, and
    /// durable by the time the answer is given.
    async fn with_repeated_text(
        &self,
        task: &TaskAddress,
        mut ack: ReportAck,
    ) -> Result<ReportAck, ReportError> {
        for response in &mut ack.events {
            let Some(seq) = repeated_frame(response) else {
                continue;
            };
            let stream = task.stream.clone();
            let readers = &self.shared.readers;
            let read = readers.with(move |reader| read_frame(reader, &stream, seq));
            let unreadable = |error: StoreError| ReportError::Unavailable(error.to_string());
            if let Some(frame) = read.await.map_err(unreadable)? {
                put_text(response, &frame);
            }
        }
        Ok(ack)
    }

    /// Everything that is recorded of a task's run.
    async fn frames(&self, task: &TaskAddress) -> Result<Vec<Frame>, ReportError> {
        let stream = task.stream.clone();
        let readers = &self.shared.readers;
        let read = readers.with_kind(ReadKind::Run, move |reader| frames(reader, &stream));
        let unreadable = |error: StoreError| ReportError::Unavailable(error.to_string());
        read.await.map_err(unreadable)
    }
}

/// A body that was read before.
fn read_again<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ReportError> {
    serde_json::from_slice(bytes).map_err(|error| ReportError::Malformed(error.to_string()))
}

/// Returns `true` if the answer to a report is followed by another report before anything else can
/// happen.
pub(super) fn next_is_due(report: &ReportMessage) -> bool {
    let ends = |event: &AgentEvent| matches!(event, AgentEvent::Finished(_));
    report.origin == ReportOrigin::Process
        && !leads_outside(&report.events)
        && !report.events.iter().any(ends)
}

/// Returns `true` if the answer to a report gives the decision about its task: that it reflects, or
/// waits for a person.
pub(super) fn awaits_decision(events: &[AgentEvent]) -> bool {
    let decided = |event: &AgentEvent| matches!(event, AgentEvent::Decided(_));
    events.iter().any(decided)
}

/// Returns `true` if nothing was decided since a frame.
fn is_undecided(frames: &[Frame], since: u64) -> bool {
    let mut later = frames.iter().filter(|frame| frame.seq >= since);
    later.all(|frame| frame.event.role() == Role::Input)
}

/// Returns `true` if the process is left once these events are recorded: they announce a call.
fn leads_outside(events: &[AgentEvent]) -> bool {
    let announces =
        |event: &AgentEvent| matches!(event, AgentEvent::Request(_) | AgentEvent::ToolCalled(_));
    events.iter().any(announces)
}

/// The outcome of a report that was taken, from the frames of its turn. The first of them decides
/// which are about its task.
pub(super) fn outcome(turn: &[Sealed], origin: ReportOrigin) -> ReportOutcome {
    let frames = turn.iter().map(|sealed| &sealed.frame);
    let frames = frames.filter(|frame| matches!(frame.event, Event::Agent(_)));
    let Some(first) = frames.clone().next() else {
        return ReportOutcome::Stale;
    };
    let last = frames.clone().next_back().map_or(0, |frame| frame.seq);
    let Event::Agent(event) = &first.event else {
        return ReportOutcome::Stale;
    };
    let n = event.report().map_or(0, |report| report.n);
    let task = (event.step(), event.item());
    let about = |frame: &&Frame| event_about(frame, &first.scope, task).is_some();
    let ends = |frame: &Frame| matches!(frame.event, Event::Agent(AgentEvent::Finished(_)));
    let lists = origin == ReportOrigin::Socket || !frames.clone().filter(about).any(ends);
    let ack = Box::new(answer(n, frames.filter(|frame| lists && about(frame))));
    ReportOutcome::New { last, ack }
}

/// The frames of a report, and the decisions about its task that followed.
fn from<'f>(task: &TaskAddress, frames: &'f [Frame], first: u64) -> Vec<&'f Frame> {
    let mut rest = frames.iter().skip_while(|frame| frame.seq < first);
    let Some(input) = rest.next() else {
        return Vec::new();
    };
    let Event::Agent(event) = &input.event else {
        return Vec::new();
    };
    let report = event.report().cloned();
    let mut found = vec![input];
    for frame in rest {
        let Some(event) = task.event_of(frame) else {
            continue;
        };
        let follows = match event {
            AgentEvent::ReflectStarted(_) => true,
            AgentEvent::Response(answer) => answer.repeats.is_some(),
            _ => false,
        };
        if !follows && event.report() != report.as_ref() {
            break;
        }
        found.push(frame);
    }
    found
}

/// As [`answer`], of a report whose frames begin there.
fn answer_from(n: u32, task: &TaskAddress, frames: &[Frame], first: u64) -> ReportAck {
    let mut answer = answer(n, from(task, frames, first).into_iter());
    let events = answer.events.into_iter();
    answer.events = events
        .map(|event| with_repeated_text(event, frames))
        .collect();
    answer
}

/// The recorded part of a report, and the decision about its task, from the frames of both.
fn answer<'f>(n: u32, frames: impl Iterator<Item = &'f Frame>) -> ReportAck {
    let mut answer = ReportAck {
        n,
        events: Vec::new(),
        reflect: false,
        suspended: false,
        refused: None,
    };
    for frame in frames {
        let Event::Agent(event) = &frame.event else {
            continue;
        };
        match event {
            AgentEvent::ReflectStarted(_) => answer.reflect = true,
            AgentEvent::ApprovalRequested(_) | AgentEvent::ToolInDoubt(_) => {
                answer.suspended = true;
            }
            AgentEvent::BudgetExhausted(spent) => {
                answer.refused = Some(FailureDetails {
                    code: "budget_exceeded".to_owned(),
                    message: format!(
                        "the run has used {} of its budget of {}",
                        ktsu_projections::lineage::dollars(spent.cost_micro_usd),
                        ktsu_projections::lineage::dollars(spent.limit_micro_usd)
                    ),
                    retryable: false,
                });
            }
            _ => {}
        }
        answer.events.push(recorded(frame));
    }
    answer
}
