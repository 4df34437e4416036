//! Agent steps under way: their tasks, and what is due next for them.
//!
//! A **task** is a step, or an item of a fan-out, given to an agent: waiting → dispatched →
//! finished → settled, with losses in between that send it out again as its next attempt. A plain
//! step has one task; a fan-out has one for each item that was started.

use std::collections::{BTreeMap, BTreeSet};

use ktsu_ledger::event::plan::{AgentPlan, FanOut};
use ktsu_ledger::event::{
    AgentEvent, Given, LostReason, Purpose, Report, ToolReturned, WorkerEvent,
};
use ktsu_ledger::{Hash, Json, Timestamp};
use serde_json::json;

use super::calls::{Calls, Doomed};
use super::reserved;

/// How often a lost task is sent out again, those that a restart of the orchestrator cost not
/// counted (decision W3).
pub const MAX_LOSSES: u32 = 3;

/// The tasks of one agent step.
#[derive(Debug, Clone, Default)]
pub struct Tasks {
    /// One for a plain step; for a fan-out those that were started, by index.
    pub list: Vec<Task>,
    /// For a fan-out: how many items there are.
    pub items: Option<u32>,
    /// Items that ended well.
    pub succeeded: u32,
    /// Items that failed, those that were stopped included.
    pub failed: u32,
    /// Items that were stopped because the fan-out or the run failed.
    pub stopped: u32,
    /// The first of those that failed by themselves.
    pub first_failed: Option<u32>,
    /// Items their agent skipped.
    pub skipped: u32,
    /// The item that fails the run whatever is tolerated (decision R4).
    pub fatal: Option<u32>,
    /// The code it failed with.
    pub fatal_code: Option<String>,
    /// Attempts of before the step was begun again.
    pub(super) before: u32,
    /// Tasks to be sent out.
    outgoing: BTreeSet<u32>,
    /// Tasks to be judged.
    pending: BTreeSet<u32>,
}

/// A task.
#[derive(Debug, Clone, Default)]
pub struct Task {
    /// How far it is.
    pub phase: TaskPhase,
    /// Counted from 1; before the first dispatch, that of the last before the step began again.
    pub attempt: u32,
    /// What an item was started with.
    pub input: BTreeMap<String, Given>,
    /// The last frame about it.
    pub last: u64,
    /// The model call that is not answered.
    pub open: Option<Call>,
    /// The last model call of this attempt.
    pub asked: Option<Call>,
    /// The tools its last reply asked for.
    pub calls: Option<Box<Calls>>,
    /// Digests of what later requests may name by its frame: replies that ask for tools, results.
    pub told: BTreeMap<u64, String>,
    /// Its draft, if it may reflect.
    pub draft: Option<Json>,
    /// How far its reflection is.
    pub reflection: Reflection,
    /// Whether a reserved field fails the run, whatever a fan-out tolerates (decision R4).
    pub fails_run: bool,
    /// How many reserved fields are evaluated.
    pub evaluated: usize,
    /// The air-lock's verdict.
    pub checked: Option<bool>,
    /// Reports of this attempt, in order.
    pub reports: Vec<Seen>,
    /// What the item gave, once it is settled.
    pub ended: Option<ItemEnd>,
    losses: u32,
}

/// How far a task is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum TaskPhase {
    /// Not sent out yet.
    #[default]
    Waiting,
    /// A runtime has it.
    Dispatched,
    /// A runtime has it, and waits to be told whether to reflect.
    Drafted,
    /// No runtime has it: people are to decide on its calls.
    Suspended,
    /// They have, and it is to be sent out again.
    Resuming,
    /// What they said, or did not say, ends it.
    Doomed(Doomed),
    /// Its worker is lost and it is to be sent out again.
    Lost,
    /// Its worker is lost and no other is to be had.
    Abandoned,
    /// It ended; the frame and the outcome.
    Finished {
        /// The `agent.finished`.
        seq: u64,
        /// What came of it.
        outcome: Json,
    },
    /// What follows from its end is recorded.
    Settled,
}

/// How far the one more look at a draft is (decision R2).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Reflection {
    /// There is none, or none yet.
    #[default]
    No,
    /// A draft calls for one; the runtime waits to be told.
    Due,
    /// The runtime may ask.
    Started,
    /// The runtime asked: it does so once.
    Asked,
}

/// What the definition says about a frame that is taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Hint {
    /// Of a draft: whether it leads to a reflection.
    pub reflects: bool,
    /// Of a call: whether its server is stateful.
    pub stateful: bool,
}

/// The digest of what a model is told of a result.
fn result_digest(returned: &ToolReturned) -> String {
    let told = json!({
        "content": returned.content.to_value(),
        "is_error": returned.is_error,
        "structured": returned.structured.as_ref().map(Json::to_value),
    });
    let told = Json::from_value(&told).unwrap_or_default();
    Hash::of(told.as_str().as_bytes()).to_string()
}

/// A model call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// The `llm.request`.
    pub seq: u64,
    /// Its digest.
    pub digest: String,
}

/// A report that was taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// Number and digest.
    pub report: Report,
    /// Its first frame.
    pub first: u64,
    /// Its last frame.
    pub last: u64,
}

/// How the items of a fan-out that has ended did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// With an output.
    pub succeeded: u32,
    /// Without one, those that were stopped included.
    pub failed: u32,
    /// Skipped by their agent, or never started.
    pub skipped: u32,
}

/// How an item ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ItemEnd {
    /// With an output, reserved fields stripped.
    Output(Json),
    /// Skipped by its agent, which says why.
    Skipped(String),
    /// Failed; the message.
    Failed(String),
}

/// What is due for an agent step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// A task is to be sent out, for the first time or again.
    Dispatch(u32),
    /// The next item is to be started.
    Start(u32),
    /// A draft is to be reflected on.
    Reflect(u32),
    /// A lost task is given up.
    GiveUp(u32),
    /// What people said ends a task.
    Reject(u32),
    /// A lost task left calls to stateful servers behind: nobody knows whether they happened.
    Doubt(u32),
    /// A finished task is to be judged.
    Settle(u32),
    /// Too many items failed, or one that no fan-out tolerates.
    Fail,
    /// Every item is settled.
    End,
}

impl Due {
    /// Whether something is about to leave the process.
    pub fn is_effect(self) -> bool {
        matches!(self, Self::Dispatch(_) | Self::Start(_))
    }
}

impl Task {
    /// A task that is to be sent out; `last` is the frame that asks for it.
    pub(super) fn waiting(input: BTreeMap<String, Given>, last: u64, attempt: u32) -> Self {
        Self {
            input,
            last,
            attempt,
            ..Self::default()
        }
    }

    /// Whether a runtime may report about it.
    pub fn is_live(&self) -> bool {
        matches!(self.phase, TaskPhase::Dispatched | TaskPhase::Drafted)
    }

    /// Whether it has been sent out and has not ended.
    pub fn is_unfinished(&self) -> bool {
        !matches!(
            self.phase,
            TaskPhase::Waiting | TaskPhase::Finished { .. } | TaskPhase::Settled
        )
    }

    /// The report of this attempt with a number.
    pub fn seen(&self, n: u32) -> Option<&Seen> {
        if n == 0 {
            // A `complete` is the last.
            return self.reports.last().filter(|seen| seen.report.n == 0);
        }
        let of = |seen: &Seen| match seen.report.n {
            0 => u32::MAX,
            n => n,
        };
        let at = self.reports.binary_search_by_key(&n, of).ok()?;
        self.reports.get(at)
    }

    /// The task as judging its next report needs it: of the reports taken before, the last.
    pub fn sketch(&self) -> Self {
        Self {
            phase: self.phase.clone(),
            attempt: self.attempt,
            last: self.last,
            open: self.open.clone(),
            asked: self.asked.clone(),
            calls: self.calls.clone(),
            draft: self.draft.clone(),
            reflection: self.reflection,
            reports: self.reports.last().cloned().into_iter().collect(),
            ..Self::default()
        }
    }

    /// Whether a report is the next one, or goes on with the last.
    fn may_report(&self, report: &Report) -> bool {
        match self.reports.last() {
            // The end is the only frame of a `complete`.
            Some(last) if last.report.n == 0 => false,
            _ if report.n == 0 => true,
            Some(last) if last.report.n == report.n => last.report == *report,
            // One that got no answer may be missing: its sender may have had no time left.
            Some(last) => report.n > last.report.n,
            None => true,
        }
    }

    /// Whether a runtime that is told to wait for people is still in the report that asks for it.
    fn goes_on(&self, event: &AgentEvent) -> bool {
        let last = self.reports.last().map(|seen| &seen.report);
        self.phase == TaskPhase::Suspended && event.report().is_some() && last == event.report()
    }

    /// Whether the model has the results of all tools it asked for.
    fn has_results(&self) -> bool {
        self.calls.as_ref().is_none_or(|calls| calls.are_done())
    }

    /// The agent's table: whether a frame may follow.
    pub fn may(&self, event: &AgentEvent) -> bool {
        let current = event.attempt() == self.attempt;
        let live = current && self.is_live();
        let speaks = live || (current && self.goes_on(event));
        let reported = event.report().is_none_or(|report| self.may_report(report));
        let calls = || {
            let calls = self.calls.as_ref();
            calls.is_some_and(|calls| calls.may(event, self.attempt))
        };
        match event {
            AgentEvent::Request(request) => {
                let follows = request
                    .base
                    .is_none_or(|base| self.asked.as_ref().is_some_and(|call| call.seq == base));
                let purposed = match (&self.draft, request.purpose) {
                    (None, Purpose::Turn | Purpose::Repair) => true,
                    (Some(_), Purpose::Reflect) => self.reflection == Reflection::Started,
                    (None, Purpose::Reflect) | (Some(_), Purpose::Turn | Purpose::Repair) => false,
                };
                live && reported && self.open.is_none() && follows && purposed && self.has_results()
            }
            AgentEvent::Response(answer) => {
                let open = self.open.as_ref();
                live && reported && open.is_some_and(|call| call.seq == answer.request)
            }
            AgentEvent::Decided(decided) => {
                let fits = match decided.draft {
                    Some(_) => self.draft.is_none() && self.has_results(),
                    None => calls(),
                };
                live && reported && self.open.is_none() && fits
            }
            AgentEvent::ReflectStarted(_) => current && self.phase == TaskPhase::Drafted,
            AgentEvent::BudgetExhausted(_) => live && reported && self.open.is_none(),
            AgentEvent::ToolCalled(_) | AgentEvent::ToolReturned(_) => live && reported && calls(),
            AgentEvent::ApprovalRequested(_) => speaks && reported && calls(),
            AgentEvent::ToolInDoubt(doubt) => match doubt.report {
                Some(_) => speaks && reported && calls(),
                None => current && self.is_unfinished() && calls(),
            },
            AgentEvent::ApprovalDecided(_) | AgentEvent::ApprovalExpired(_) => {
                current && self.phase == TaskPhase::Suspended && calls()
            }
            AgentEvent::Finished(finished) => {
                let calls = self.calls.as_ref();
                let at_rest = calls.is_none_or(|calls| calls.are_at_rest());
                at_rest
                    && match finished.report {
                        Some(_) => speaks && reported && self.ends_with(&finished.outcome),
                        None => current && self.is_unfinished(),
                    }
            }
        }
    }

    /// Whether an output is the one that a draft leads to (decision R2): without a reflection the
    /// draft itself, with one what its call gave.
    fn ends_with(&self, outcome: &Json) -> bool {
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
            Reflection::Asked => self.open.is_none() || output.is_null(),
        }
    }

    /// The worker's table.
    pub(super) fn may_work(&self, event: &WorkerEvent) -> bool {
        match event {
            WorkerEvent::Dispatched(sent) => {
                matches!(
                    self.phase,
                    TaskPhase::Waiting | TaskPhase::Lost | TaskPhase::Resuming
                ) && sent.attempt == self.attempt + 1
            }
            WorkerEvent::Lost(lost) => self.is_live() && lost.attempt == self.attempt,
        }
    }

    fn note_report(&mut self, seq: u64, report: &Report) {
        match self.reports.last_mut() {
            Some(last) if last.report == *report => last.last = seq,
            _ => self.reports.push(Seen {
                report: report.clone(),
                first: seq,
                last: seq,
            }),
        }
    }

    /// Takes a frame of its agent, which [`Task::may`] follow.
    pub fn take(&mut self, seq: u64, at: Timestamp, event: &AgentEvent, hint: Hint) {
        self.last = seq;
        if let Some(report) = event.report() {
            self.note_report(seq, report);
        }
        match event {
            AgentEvent::Request(request) => {
                let call = Call {
                    seq,
                    digest: request.digest.clone(),
                };
                self.open = Some(call.clone());
                self.asked = Some(call);
                if request.purpose == Purpose::Reflect {
                    self.reflection = Reflection::Asked;
                }
            }
            AgentEvent::Response(answer) => {
                self.open = None;
                self.calls = Calls::of(seq, answer).map(Box::new);
                if self.calls.is_some() {
                    self.told.insert(seq, answer.output_hash.clone());
                }
            }
            AgentEvent::Decided(decided) => {
                self.take_call(seq, at, event, hint);
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
                self.told.insert(seq, result_digest(returned));
                self.take_call(seq, at, event, hint);
            }
            AgentEvent::ToolCalled(_)
            | AgentEvent::ToolInDoubt(_)
            | AgentEvent::ApprovalRequested(_)
            | AgentEvent::ApprovalDecided(_)
            | AgentEvent::ApprovalExpired(_) => self.take_call(seq, at, event, hint),
            AgentEvent::Finished(finished) => {
                self.open = None;
                self.draft = None;
                self.calls = None;
                self.told.clear();
                self.phase = TaskPhase::Finished {
                    seq,
                    outcome: finished.outcome.clone(),
                };
            }
        }
    }

    /// What a call leads to: the task waits for people, goes on after them, or ends by their word.
    fn take_call(&mut self, seq: u64, at: Timestamp, event: &AgentEvent, hint: Hint) {
        let Some(calls) = &mut self.calls else {
            return;
        };
        let doomed = calls.take(seq, at, event, hint.stateful);
        let decided = calls.are_decided();
        let people = matches!(
            event,
            AgentEvent::ApprovalDecided(_) | AgentEvent::ApprovalExpired(_)
        );
        let asks = matches!(event, AgentEvent::ApprovalRequested(_))
            || matches!(event, AgentEvent::ToolInDoubt(_) if !decided && !self.leaves_doubts());
        self.phase = match (doomed, people, asks) {
            (Some(doomed), _, _) => TaskPhase::Doomed(doomed),
            (None, true, _) if decided => TaskPhase::Resuming,
            (None, _, true) => TaskPhase::Suspended,
            (None, _, false) => return,
        };
    }

    /// Whether it was lost with calls to stateful servers under way.
    fn leaves_doubts(&self) -> bool {
        let sent = self.calls.iter().flat_map(|calls| calls.sent());
        self.phase == TaskPhase::Lost && sent.into_iter().any(|sending| sending.stateful)
    }

    /// A branch begins while it is under way: it is sent out again, with what is recorded of it.
    /// Calls whose results are not recorded are made anew, and people asked again (decision F1).
    pub(super) fn lose(&mut self, seq: u64) {
        self.last = seq;
        self.phase = TaskPhase::Lost;
        if let Some(calls) = &mut self.calls {
            calls.forget();
        }
    }

    /// Takes a frame about its worker.
    pub(super) fn take_worker(&mut self, seq: u64, event: &WorkerEvent) {
        self.last = seq;
        match event {
            WorkerEvent::Dispatched(sent) => {
                self.attempt = sent.attempt;
                // A draft that was to be answered still is.
                self.phase = match self.reflection {
                    Reflection::Due => TaskPhase::Drafted,
                    Reflection::No | Reflection::Started | Reflection::Asked => {
                        TaskPhase::Dispatched
                    }
                };
                self.asked = None;
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

impl Tasks {
    pub(super) fn of(items: Option<u32>) -> Self {
        Self {
            items,
            ..Self::default()
        }
    }

    /// The task of an item; of a plain step its only one.
    pub fn get(&self, item: Option<u32>) -> Option<&Task> {
        (item.is_some() == self.items.is_some()).then_some(())?;
        self.list.get(item.unwrap_or_default() as usize)
    }

    pub(super) fn get_mut(&mut self, item: Option<u32>) -> Option<&mut Task> {
        (item.is_some() == self.items.is_some()).then_some(())?;
        self.list.get_mut(item.unwrap_or_default() as usize)
    }

    /// The name of a task within its step.
    pub fn item(&self, index: u32) -> Option<u32> {
        self.items.map(|_| index)
    }

    /// How many items are neither settled nor still to come.
    fn under_way(&self) -> u32 {
        let started = u32::try_from(self.list.len()).unwrap_or(u32::MAX);
        started - self.settled()
    }

    fn settled(&self) -> u32 {
        self.succeeded + self.failed + self.skipped
    }

    /// Whether more items failed than the file bears.
    pub fn too_many_failed(&self, plan: &FanOut) -> bool {
        plan.max_failures >= 0 && i64::from(self.failures()) > plan.max_failures
    }

    /// How the items of a fan-out ended; those that never started count as skipped (decision R4).
    pub fn counts(&self) -> Counts {
        let ended = self.succeeded + self.failed;
        Counts {
            succeeded: self.succeeded,
            failed: self.failed,
            skipped: self.items.unwrap_or_default().saturating_sub(ended),
        }
    }

    /// How many items failed by themselves.
    pub fn failures(&self) -> u32 {
        self.failed - self.stopped
    }

    /// Whether nothing of it is under way.
    pub fn is_at_rest(&self) -> bool {
        match self.items {
            Some(_) => self.under_way() == 0,
            None => !self.list.iter().any(Task::is_unfinished),
        }
    }

    /// Files a task under what is to be done about it.
    pub(super) fn file(&mut self, item: Option<u32>) {
        let index = item.unwrap_or_default();
        self.outgoing.remove(&index);
        self.pending.remove(&index);
        match self.list.get(index as usize).map(|task| &task.phase) {
            Some(TaskPhase::Lost) if self.leaves_doubts(index) => self.pending.insert(index),
            Some(TaskPhase::Waiting | TaskPhase::Lost | TaskPhase::Resuming) => {
                self.outgoing.insert(index)
            }
            Some(
                TaskPhase::Drafted
                | TaskPhase::Abandoned
                | TaskPhase::Doomed(_)
                | TaskPhase::Finished { .. },
            ) => self.pending.insert(index),
            Some(TaskPhase::Dispatched | TaskPhase::Suspended | TaskPhase::Settled) | None => false,
        };
    }

    fn leaves_doubts(&self, index: u32) -> bool {
        let task = self.list.get(index as usize);
        task.is_some_and(Task::leaves_doubts)
    }

    /// What is due next. What ends an item comes before the start of another, which it may forbid.
    /// Costs no more with many items than with few.
    pub fn due(&self, plan: &AgentPlan) -> Option<Due> {
        let fan_out = plan.for_each.as_ref().zip(self.items);
        if let Some((each, _)) = fan_out
            && (self.fatal.is_some() || self.too_many_failed(each))
        {
            return Some(Due::Fail);
        }
        if let Some(index) = self.outgoing.first() {
            return Some(Due::Dispatch(*index));
        }
        if let Some(index) = self.pending.first() {
            return match self.list.get(*index as usize).map(|task| &task.phase)? {
                TaskPhase::Drafted => Some(Due::Reflect(*index)),
                TaskPhase::Abandoned => Some(Due::GiveUp(*index)),
                TaskPhase::Finished { .. } => Some(Due::Settle(*index)),
                TaskPhase::Doomed(_) => Some(Due::Reject(*index)),
                TaskPhase::Lost => Some(Due::Doubt(*index)),
                TaskPhase::Waiting
                | TaskPhase::Dispatched
                | TaskPhase::Suspended
                | TaskPhase::Resuming
                | TaskPhase::Settled => None,
            };
        }
        let (each, items) = fan_out?;
        let next = u32::try_from(self.list.len()).unwrap_or(u32::MAX);
        let room = each.concurrency == 0 || self.under_way() < each.concurrency;
        if next < items && room {
            return Some(Due::Start(next));
        }
        (self.settled() == items).then_some(Due::End)
    }

    /// The step's output, if it is a fan-out: what its items gave, in input order (seed 000,
    /// invariant 26).
    pub fn results(&self) -> Json {
        let mut results = Vec::with_capacity(self.list.len());
        for (index, task) in self.list.iter().enumerate() {
            results.push(match &task.ended {
                Some(ItemEnd::Output(output)) => output.to_value(),
                Some(ItemEnd::Skipped(reason)) => serde_json::json!(
                    {"skipped": true, "reason": reason, "item_index": index}
                ),
                Some(ItemEnd::Failed(message)) => serde_json::json!(
                    {"ktsu_error": message, "item_index": index}
                ),
                None => serde_json::Value::Null,
            });
        }
        Json::from_value(&serde_json::json!({ "results": results })).unwrap_or_default()
    }
}

/// The output of an outcome, without its reserved fields.
pub fn stripped(outcome: &Json) -> Option<Json> {
    let mut output = outcome.pointer("/output")?;
    if let Some(members) = output.as_object_mut() {
        members.retain(|name, _| !reserved::is_reserved(name));
    }
    Json::from_value(&output).ok()
}
