//! Agent steps in progress: their tasks, and what is due next for them.
//!
//! A **task** is a step, or an item of a fan-out, given to an agent: waiting → dispatched →
//! finished → settled. Between these, a lost task is dispatched again as its next attempt. A plain
//! step has one task; a fan-out has one for each item that was started.

use std::collections::BTreeMap;

use ktsu_ledger::event::{
    AgentEvent, LlmRequest, LlmResponse, LostReason, Purpose, StepInput, ToolReturned, WorkerEvent,
};
use ktsu_ledger::{CanonicalJson, Hash, Timestamp};
use serde_json::json;

use super::call::{ForcedFailure, RequestedCalls};
use super::command_order::CommandOrder;
use super::commanded::ModelCommands;
use super::invoked::InvokedChildren;
use super::model_call::{CallSize, ModelCall};
use super::recorded_results::TaskResults;
use super::refusal::{Allowed, Rule, holds};
use super::reports::{self, AcceptedReport};
use super::reserved;
use super::review::{Review, ReviewDue};
use super::suspension::{Suspension, SuspensionDue};

/// The number of times that a lost task is sent out again, losses by a restart of the orchestrator
/// not counted (decision W3).
pub const MAX_LOSSES: u32 = 3;

/// A task.
#[derive(Debug, Clone, Default)]
pub struct AgentTask {
    /// Its phase.
    pub phase: TaskPhase,
    /// Counted from 1; before the first dispatch, that of the last before the step began again.
    pub attempt: u32,
    /// The input that an item was started with.
    pub input: BTreeMap<String, StepInput>,
    /// The last frame about it.
    pub last: u64,
    /// The frame that sent it out, as long as a runtime has it.
    pub dispatched: Option<u64>,
    /// The model call that is not answered.
    pub open_call: Option<ModelCall>,
    /// The last model call of this attempt.
    pub last_call: Option<ModelCall>,
    /// The tools its last reply asked for.
    pub calls: Option<Box<RequestedCalls>>,
    /// Digests of what later requests may name by its frame: replies that ask for tools, results.
    pub context_digests: BTreeMap<u64, String>,
    /// In a recompute: what answers the calls that are not sent.
    pub recorded_results: Option<Box<TaskResults>>,
    /// Its draft, if it may reflect.
    pub draft: Option<CanonicalJson>,
    /// The state of its reflection.
    pub reflection: Reflection,
    /// True if a reserved field fails the run, whatever a fan-out tolerates (decision R4).
    pub fails_run: bool,
    /// Number of reserved fields that are evaluated.
    pub evaluated: usize,
    /// The air-lock's verdict.
    pub checked: Option<bool>,
    /// In which order the commands of its outcome get their frames.
    pub order: CommandOrder,
    /// Number of events of its outcome that have their notes.
    pub notes: u32,
    /// Number of commands of its outcome that have their frames.
    pub commands: u32,
    /// The review of its outcome, if the outcome asks for one.
    pub review: Option<Box<Review>>,
    /// The suspension that its outcome asks for, if it suspends its step.
    pub suspension: Option<Box<Suspension>>,
    /// The workflows that those commands run, if they run any.
    pub invoked: Option<Box<InvokedChildren>>,
    /// The commands that its model gave by tools and that were accepted.
    pub commanded: ModelCommands,
    /// Reports of this attempt, in order.
    pub reports: Vec<AcceptedReport>,
    /// The end of the item, once it is settled.
    pub ended: Option<ItemEnd>,
    losses: u32,
    /// True if its step had begun before, and was begun again.
    begun_again: bool,
}

/// The phase of a task.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum TaskPhase {
    /// Not sent out yet.
    #[default]
    Waiting,
    /// A runtime has it.
    Dispatched,
    /// A runtime has it, and waits to learn whether to reflect.
    Drafted,
    /// No runtime has it: people are to decide on its calls.
    Suspended,
    /// They have, and it is to be sent out again.
    Resuming,
    /// It is to fail: people rejected a call, or did not decide in time.
    ForcedToFail(ForcedFailure),
    /// Its worker is lost and it is to be sent out again.
    Lost,
    /// Its worker is lost and no other is to be had.
    Abandoned,
    /// It ended; the frame and the outcome.
    Finished {
        /// The `agent.finished`.
        seq: u64,
        /// The outcome.
        outcome: CanonicalJson,
    },
    /// The consequences of its end are recorded.
    Settled,
}

/// The state of the one more look at a draft (decision R2).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Reflection {
    /// There is none, or none yet.
    #[default]
    No,
    /// A draft calls for one; the runtime waits for the word to start.
    Due,
    /// The runtime may ask.
    Started,
    /// The runtime asked: it does so once.
    Asked,
}

/// Facts of the definition about a frame that is applied.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Hint {
    /// Of a draft: whether it leads to a reflection.
    pub reflects: bool,
    /// Of a call: whether its server is stateful.
    pub stateful: bool,
}

/// The digest of a result as a model gets it.
pub fn result_digest(returned: &ToolReturned) -> String {
    let result = json!({
        "content": returned.content.to_value(),
        "is_error": returned.is_error,
        "structured": returned.structured.as_ref().map(CanonicalJson::to_value),
    });
    let result = CanonicalJson::from_value(&result).unwrap_or_default();
    Hash::of(result.as_str().as_bytes()).to_string()
}

/// The end of an item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ItemEnd {
    /// With an output, reserved fields stripped.
    Output(CanonicalJson),
    /// Skipped by its agent, which says why.
    Skipped(String),
    /// Failed; the message.
    Failed(String),
}

impl AgentTask {
    /// A task that is to be sent out; `last` is the frame that asks for it.
    pub(crate) fn waiting(input: BTreeMap<String, StepInput>, last: u64, attempt: u32) -> Self {
        Self {
            input,
            last,
            attempt,
            begun_again: attempt > 0,
            ..Self::default()
        }
    }

    /// Returns `true` if a runtime may report about it.
    pub fn is_live(&self) -> bool {
        matches!(self.phase, TaskPhase::Dispatched | TaskPhase::Drafted)
    }

    /// Returns `true` if it moves only after a person has acted: decided on a call or on its
    /// outcome, or given the data that it waits for.
    pub fn awaits_people(&self) -> bool {
        self.phase == TaskPhase::Suspended
            || self.review_due() == Some(ReviewDue::Wait)
            || self.suspension_due() == Some(SuspensionDue::Wait)
    }

    /// The action that is due for the review of its outcome, if that has one.
    pub fn review_due(&self) -> Option<ReviewDue> {
        Some(self.review.as_ref()?.due())
    }

    /// Returns `true` if its outcome counts, as far as people are asked.
    pub(crate) fn has_passed_review(&self) -> bool {
        self.review_due()
            .is_none_or(|due| due == ReviewDue::CarryOut)
    }

    /// Returns `true` if it waits for the answer to a call that this attempt made.
    pub fn awaits_answer(&self) -> bool {
        let calls = self.calls.iter().flat_map(|calls| calls.sent_calls());
        self.open_call.is_some() || calls.into_iter().any(|call| call.attempt == self.attempt)
    }

    /// Returns `true` if an earlier reply may answer its requests: neither did a person begin its
    /// step again, nor did a runtime lose it. Restarts of the orchestrator do not count, as a run
    /// that is cut off continues like one that is not; nor do the dispatches after an approval.
    pub fn is_first_try(&self) -> bool {
        !self.begun_again && self.losses == 0
    }

    /// Returns `true` if it has been sent out and has not ended.
    pub fn is_unfinished(&self) -> bool {
        !matches!(
            self.phase,
            TaskPhase::Waiting | TaskPhase::Finished { .. } | TaskPhase::Settled
        )
    }

    /// The report of this attempt with a number.
    pub fn accepted_report(&self, n: u32) -> Option<&AcceptedReport> {
        reports::numbered(&self.reports, n)
    }

    /// The task as checking its next report needs it: of the reports taken before, the last.
    pub fn with_last_report_only(&self) -> Self {
        Self {
            phase: self.phase.clone(),
            attempt: self.attempt,
            last: self.last,
            open_call: self.open_call.clone(),
            last_call: self.last_call.clone(),
            calls: self.calls.clone(),
            recorded_results: self.recorded_results.clone(),
            draft: self.draft.clone(),
            reflection: self.reflection,
            reports: self.reports.last().cloned().into_iter().collect(),
            ..Self::default()
        }
    }

    /// Returns `true` if a frame belongs to the report by which the task began to wait for people.
    fn continues_last_report(&self, event: &AgentEvent) -> bool {
        let last = self.reports.last().map(|seen| &seen.report);
        self.phase == TaskPhase::Suspended && event.report().is_some() && last == event.report()
    }

    /// Returns `true` if the model has the results of all tools it asked for.
    fn has_results(&self) -> bool {
        self.calls.as_ref().is_none_or(|calls| calls.are_done())
    }

    /// Returns `true` if a frame of its agent may follow.
    pub fn accepts(&self, event: &AgentEvent) -> bool {
        self.check(event).is_ok()
    }

    /// The agent's table.
    ///
    /// # Errors
    /// The rule that the frame breaks.
    pub(crate) fn check(&self, event: &AgentEvent) -> Allowed {
        let current = event.attempt() == self.attempt;
        if let AgentEvent::Response(answer) = event {
            let report = answer.report.as_ref();
            let reported = report.is_none_or(|report| reports::is_next(&self.reports, report));
            let live = current && self.is_live() && reported;
            return holds(Rule::ModelOrder, self.accepts_reply(answer, live));
        }
        holds(Rule::Attempt, current)?;
        holds(Rule::TaskOrder, self.is_in_phase_for(event))?;
        if let Some(report) = event.report() {
            holds(Rule::Report, reports::is_next(&self.reports, report))?;
        }
        self.check_order(event)
    }

    /// Returns `true` if the phase of the task admits a frame: of its runtime, of people, or of the
    /// engine.
    fn is_in_phase_for(&self, event: &AgentEvent) -> bool {
        match event {
            AgentEvent::Request(_)
            | AgentEvent::Response(_)
            | AgentEvent::Decided(_)
            | AgentEvent::BudgetExhausted(_)
            | AgentEvent::ToolCalled(_)
            | AgentEvent::ToolReturned(_) => self.is_live(),
            AgentEvent::ApprovalRequested(_)
            | AgentEvent::ToolInDoubt(_)
            | AgentEvent::Finished(_) => match event.report() {
                Some(_) => self.is_live() || self.continues_last_report(event),
                None => self.is_unfinished(),
            },
            AgentEvent::ReflectStarted(_) => self.phase == TaskPhase::Drafted,
            AgentEvent::ApprovalDecided(_) | AgentEvent::ApprovalExpired(_) => {
                self.phase == TaskPhase::Suspended
            }
        }
    }

    /// The order of calls of models and tools, and what an output rests on.
    fn check_order(&self, event: &AgentEvent) -> Allowed {
        match event {
            AgentEvent::Request(request) => holds(Rule::ModelOrder, self.accepts_request(request)),
            AgentEvent::Decided(decided) if decided.draft.is_some() => {
                let drafts = self.draft.is_none() && self.has_results();
                holds(Rule::ModelOrder, self.open_call.is_none() && drafts)
            }
            AgentEvent::Decided(_) => {
                holds(Rule::ModelOrder, self.open_call.is_none())?;
                self.check_call(event)
            }
            AgentEvent::BudgetExhausted(_) => holds(Rule::ModelOrder, self.open_call.is_none()),
            AgentEvent::ToolReturned(returned) => {
                self.check_call(event)?;
                holds(Rule::CallOrder, self.matches_recorded_result(returned))
            }
            AgentEvent::ToolCalled(_)
            | AgentEvent::ToolInDoubt(_)
            | AgentEvent::ApprovalRequested(_)
            | AgentEvent::ApprovalDecided(_)
            | AgentEvent::ApprovalExpired(_) => self.check_call(event),
            AgentEvent::Finished(finished) => {
                let calls = self.calls.as_ref();
                holds(Rule::AtRest, calls.is_none_or(|calls| calls.are_at_rest()))?;
                let given = finished.report.is_none() || self.accepts_outcome(&finished.outcome);
                holds(Rule::Output, given)
            }
            AgentEvent::Response(_) | AgentEvent::ReflectStarted(_) => Ok(()),
        }
    }

    /// The table of the calls that its last reply asks for.
    fn check_call(&self, event: &AgentEvent) -> Allowed {
        let calls = self.calls.as_ref();
        let accepts = calls.is_some_and(|calls| calls.accepts(event, self.attempt));
        holds(Rule::CallOrder, accepts)
    }

    fn accepts_request(&self, request: &LlmRequest) -> bool {
        let last = self.last_call.as_ref();
        let follows = request
            .base
            .is_none_or(|base| last.is_some_and(|call| call.seq == base));
        let purposed = match (&self.draft, request.purpose) {
            (None, Purpose::Turn | Purpose::Repair) => true,
            (Some(_), Purpose::Reflect) => self.reflection == Reflection::Started,
            (None, Purpose::Reflect) | (Some(_), Purpose::Turn | Purpose::Repair) => false,
        };
        self.open_call.is_none() && follows && purposed && self.has_results()
    }

    /// Returns `true` if a result is what the record gives for its call: where there is one for it,
    /// no other.
    fn matches_recorded_result(&self, returned: &ToolReturned) -> bool {
        let calls = self.calls.as_ref();
        let call = calls.and_then(|calls| calls.get(returned.response, returned.call));
        match (&self.recorded_results, call) {
            (Some(record), Some(call)) => record.accepts(call, returned),
            (None, _) | (_, None) => returned.recorded.is_none(),
        }
    }

    /// Returns `true` if an output is the one that a draft leads to (decision R2): without a
    /// reflection the draft itself, with one the result of its call.
    fn accepts_outcome(&self, outcome: &CanonicalJson) -> bool {
        let gives = outcome
            .pointer("/output")
            .is_some_and(|output| !output.is_null());
        if gives && !self.has_results() {
            return false;
        }
        let (Some(draft), Some(output)) = (&self.draft, outcome.pointer("/output")) else {
            return true;
        };
        match self.reflection {
            Reflection::No => output.is_null() || output == draft.to_value(),
            Reflection::Due | Reflection::Started => output.is_null(),
            Reflection::Asked => self.open_call.is_none() || output.is_null(),
        }
    }

    /// The worker's table.
    ///
    /// # Errors
    /// The rule that the frame breaks.
    pub(crate) fn check_worker(&self, event: &WorkerEvent) -> Allowed {
        match event {
            WorkerEvent::Dispatched(sent) => {
                let due = matches!(
                    self.phase,
                    TaskPhase::Waiting | TaskPhase::Lost | TaskPhase::Resuming
                );
                holds(Rule::TaskOrder, due)?;
                holds(Rule::Attempt, sent.attempt == self.attempt + 1)
            }
            WorkerEvent::Lost(lost) => {
                holds(Rule::TaskOrder, self.is_live())?;
                holds(Rule::Attempt, lost.attempt == self.attempt)
            }
        }
    }

    /// Applies a frame of its agent that [`AgentTask::accepts`] allows.
    pub fn apply(&mut self, seq: u64, at: Timestamp, event: &AgentEvent, hint: Hint) {
        self.last = seq;
        if let Some(report) = event.report() {
            reports::take(&mut self.reports, seq, report);
        }
        match event {
            AgentEvent::Request(request) => {
                let call = ModelCall {
                    seq,
                    digest: request.digest.clone(),
                    group: request.group.clone(),
                    size: CallSize::of(
                        request,
                        request
                            .base
                            .and(self.last_call.as_ref().map(|call| call.size)),
                    ),
                    key: None,
                    reply: None,
                };
                if let Some(record) = &mut self.recorded_results {
                    record.set_offered_tools(request.tools.as_ref());
                }
                self.open_call = Some(call.clone());
                self.last_call = Some(call);
                if request.purpose == Purpose::Reflect {
                    self.reflection = Reflection::Asked;
                }
            }
            AgentEvent::Response(answer) => {
                self.open_call = None;
                self.calls = RequestedCalls::of(seq, answer).map(Box::new);
                if self.calls.is_some() {
                    self.context_digests.insert(seq, answer.output_hash.clone());
                }
            }
            AgentEvent::Decided(decided) => {
                self.apply_call(seq, at, event, hint);
                if decided.draft.is_none() {
                    return;
                }
                self.draft = decided.draft.clone();
                if hint.reflects {
                    self.phase = TaskPhase::Drafted;
                    self.reflection = Reflection::Due;
                }
            }
            AgentEvent::ReflectStarted(_) => {
                self.phase = TaskPhase::Dispatched;
                self.reflection = Reflection::Started;
            }
            AgentEvent::BudgetExhausted(_) => {}
            AgentEvent::ToolReturned(returned) => {
                self.context_digests.insert(seq, result_digest(returned));
                if let Some(calls) = &self.calls {
                    self.commanded.returned(calls, returned);
                }
                if let (Some(record), Some(at)) = (&mut self.recorded_results, &returned.recorded) {
                    record.mark_used(at);
                }
                self.apply_call(seq, at, event, hint);
            }
            AgentEvent::ToolCalled(_)
            | AgentEvent::ToolInDoubt(_)
            | AgentEvent::ApprovalRequested(_)
            | AgentEvent::ApprovalDecided(_)
            | AgentEvent::ApprovalExpired(_) => self.apply_call(seq, at, event, hint),
            AgentEvent::Finished(finished) => {
                self.open_call = None;
                self.draft = None;
                self.calls = None;
                self.context_digests.clear();
                self.phase = TaskPhase::Finished {
                    seq,
                    outcome: finished.outcome.clone(),
                };
            }
        }
    }

    /// Applies a frame about a call: the task waits for people, continues after them, or ends by
    /// their word.
    fn apply_call(&mut self, seq: u64, at: Timestamp, event: &AgentEvent, hint: Hint) {
        let Some(calls) = &mut self.calls else {
            return;
        };
        let doomed = calls.apply(seq, at, event, hint.stateful);
        let decided = calls.are_decided();
        let people = matches!(
            event,
            AgentEvent::ApprovalDecided(_) | AgentEvent::ApprovalExpired(_)
        );
        let asks = matches!(event, AgentEvent::ApprovalRequested(_))
            || matches!(event, AgentEvent::ToolInDoubt(_) if !decided && !self.has_stateful_calls_in_flight());
        self.phase = match (doomed, people, asks) {
            (Some(doomed), _, _) => TaskPhase::ForcedToFail(doomed),
            (None, true, _) if decided => TaskPhase::Resuming,
            (None, _, true) => TaskPhase::Suspended,
            (None, _, false) => return,
        };
    }

    /// Returns `true` if it was lost with calls to stateful servers under way.
    pub(crate) fn has_stateful_calls_in_flight(&self) -> bool {
        let sent = self.calls.iter().flat_map(|calls| calls.sent_calls());
        self.phase == TaskPhase::Lost && sent.into_iter().any(|sending| sending.stateful)
    }

    /// A branch begins while it is under way: it is sent out again, with what is recorded of it.
    /// Calls whose results are not recorded are made anew, and people asked again (decision F1).
    pub(crate) fn mark_lost(&mut self, seq: u64) {
        self.last = seq;
        self.phase = TaskPhase::Lost;
        if let Some(calls) = &mut self.calls {
            calls.reset_unreturned();
        }
    }

    /// Takes a frame about its worker.
    pub(crate) fn apply_worker(&mut self, seq: u64, event: &WorkerEvent) {
        self.last = seq;
        match event {
            WorkerEvent::Dispatched(sent) => {
                self.attempt = sent.attempt;
                self.dispatched = Some(seq);
                // A draft that was to be answered still is.
                self.phase = match self.reflection {
                    Reflection::Due => TaskPhase::Drafted,
                    Reflection::No | Reflection::Started | Reflection::Asked => {
                        TaskPhase::Dispatched
                    }
                };
                self.last_call = None;
                self.reports.clear();
            }
            WorkerEvent::Lost(lost) => {
                self.losses += u32::from(lost.reason != LostReason::Restart);
                let again = lost.runtime_alive && self.losses <= MAX_LOSSES;
                self.phase = if again {
                    TaskPhase::Lost
                } else {
                    TaskPhase::Abandoned
                };
            }
        }
    }
}

/// The output of an outcome, without its reserved fields.
pub fn output_without_reserved_fields(outcome: &CanonicalJson) -> Option<CanonicalJson> {
    let mut output = outcome.pointer("/output")?;
    if let Some(members) = output.as_object_mut() {
        members.retain(|name, _| !reserved::is_reserved(name));
    }
    CanonicalJson::from_value(&output).ok()
}

impl AgentTask {
    pub(crate) fn settle(&mut self, seq: u64, end: ItemEnd) {
        self.last = seq;
        self.phase = TaskPhase::Settled;
        self.ended = Some(end);
    }

    /// Returns `true` if a response may follow that belongs to no report, or that belongs to one: a
    /// repeated reply where one is known, and word for word that; otherwise what a runtime reports.
    fn accepts_reply(&self, answer: &LlmResponse, live: bool) -> bool {
        let open = self.open_call.as_ref();
        let Some(call) = open.filter(|call| call.seq == answer.request) else {
            return false;
        };
        match (&call.reply, &answer.report) {
            (Some(reply), None) => {
                let task = (answer.step.as_str(), answer.item);
                let current = answer.attempt == self.attempt && self.is_unfinished();
                current && *answer == reply.repeated(call, task, self.attempt)
            }
            (None, Some(_)) => live,
            (Some(_), Some(_)) | (None, None) => false,
        }
    }
}
