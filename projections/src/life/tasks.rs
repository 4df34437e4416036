//! The tasks of one agent step, and what is due next for them: a plain step has one, a fan-out one
//! for each item that was started.

use std::collections::{BTreeMap, BTreeSet};

use ktsu_ledger::CanonicalJson;
use ktsu_ledger::event::plan::{AgentPlan, FanOut};

use super::task::{AgentTask, ItemEnd, TaskPhase};

/// The tasks of one agent step.
#[derive(Debug, Clone, Default)]
pub struct Tasks {
    /// One for a plain step; for a fan-out those that were started, by index.
    pub list: Vec<AgentTask>,
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
    pub(crate) before: u32,
    /// Tasks to be sent out.
    outgoing: BTreeSet<u32>,
    /// Tasks to be checked.
    pending: BTreeSet<u32>,
    /// Tasks that wait for people.
    pub(crate) suspended: BTreeSet<u32>,
}

/// Counts of the items of a fan-out that has ended, by how they ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ItemCounts {
    /// With an output.
    pub succeeded: u32,
    /// Without one, those that were stopped included.
    pub failed: u32,
    /// Skipped by their agent, or never started.
    pub skipped: u32,
}

/// The action that is due for an agent step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskAction {
    /// A task is to be sent out, for the first time or again.
    Dispatch(u32),
    /// The next item is to be started.
    Start(u32),
    /// A draft is to be reflected on.
    Reflect(u32),
    /// A lost task is given up.
    GiveUp(u32),
    /// A task is to fail, because of a call that people rejected or did not decide on in time.
    Reject(u32),
    /// A lost task left calls to stateful servers behind: nobody knows whether they happened.
    Doubt(u32),
    /// A finished task is to be checked.
    Settle(u32),
    /// Too many items failed, or one that no fan-out tolerates.
    Fail,
    /// Every item is settled.
    End,
}

impl TaskAction {
    /// Returns `true` if something is about to leave the process.
    pub fn is_effect(self) -> bool {
        matches!(self, Self::Dispatch(_) | Self::Start(_))
    }
}

impl Tasks {
    pub(crate) fn of(items: Option<u32>) -> Self {
        Self {
            items,
            ..Self::default()
        }
    }

    /// The task of an item; of a plain step its only one.
    pub fn get(&self, item: Option<u32>) -> Option<&AgentTask> {
        (item.is_some() == self.items.is_some()).then_some(())?;
        self.list.get(item.unwrap_or_default() as usize)
    }

    pub(crate) fn get_mut(&mut self, item: Option<u32>) -> Option<&mut AgentTask> {
        (item.is_some() == self.items.is_some()).then_some(())?;
        self.list.get_mut(item.unwrap_or_default() as usize)
    }

    /// The name of a task within its step.
    pub fn item(&self, index: u32) -> Option<u32> {
        self.items.map(|_| index)
    }

    /// Number of items that are neither settled nor still to come.
    fn under_way(&self) -> u32 {
        let started = u32::try_from(self.list.len()).unwrap_or(u32::MAX);
        started - self.settled()
    }

    fn settled(&self) -> u32 {
        self.succeeded + self.failed + self.skipped
    }

    /// Returns `true` if more items failed than `max_failures` of the definition allows.
    pub fn too_many_failed(&self, plan: &FanOut) -> bool {
        plan.max_failures >= 0 && i64::from(self.failures()) > plan.max_failures
    }

    /// Counts of the items of a fan-out, by how they ended; those that never started count as
    /// skipped (decision R4).
    pub fn counts(&self) -> ItemCounts {
        let ended = self.succeeded + self.failed;
        ItemCounts {
            succeeded: self.succeeded,
            failed: self.failed,
            skipped: self.items.unwrap_or_default().saturating_sub(ended),
        }
    }

    /// Returns `true` if a reserved field of one of them fails the run.
    pub(crate) fn fail_run(&self) -> bool {
        self.fatal.is_some() || self.list.iter().any(|task| task.fails_run)
    }

    /// Number of items that failed by themselves.
    pub fn failures(&self) -> u32 {
        self.failed - self.stopped
    }

    /// Returns `true` if nothing of it is under way.
    pub fn is_at_rest(&self) -> bool {
        match self.items {
            Some(_) => self.under_way() == 0,
            None => !self.list.iter().any(AgentTask::is_unfinished),
        }
    }

    /// Files a task under what is to be done about it.
    pub(crate) fn reclassify(&mut self, item: Option<u32>) {
        let index = item.unwrap_or_default();
        self.outgoing.remove(&index);
        self.pending.remove(&index);
        self.suspended.remove(&index);
        match self.list.get(index as usize).map(|task| &task.phase) {
            Some(TaskPhase::Lost) if self.leaves_doubts(index) => self.pending.insert(index),
            Some(TaskPhase::Waiting | TaskPhase::Lost | TaskPhase::Resuming) => {
                self.outgoing.insert(index)
            }
            Some(TaskPhase::Finished { .. }) if self.awaits_invoked(index) => false,
            Some(TaskPhase::Finished { .. }) if self.awaits_people(index) => {
                self.suspended.insert(index)
            }
            Some(
                TaskPhase::Drafted
                | TaskPhase::Abandoned
                | TaskPhase::ForcedToFail(_)
                | TaskPhase::Finished { .. },
            ) => self.pending.insert(index),
            Some(TaskPhase::Suspended) => self.suspended.insert(index),
            Some(TaskPhase::Dispatched | TaskPhase::Settled) | None => false,
        };
    }

    fn awaits_invoked(&self, index: u32) -> bool {
        let task = self.list.get(index as usize);
        task.is_some_and(AgentTask::awaits_invoked)
    }

    fn awaits_people(&self, index: u32) -> bool {
        let task = self.list.get(index as usize);
        task.is_some_and(AgentTask::awaits_people)
    }

    fn leaves_doubts(&self, index: u32) -> bool {
        let task = self.list.get(index as usize);
        task.is_some_and(AgentTask::has_stateful_calls_in_flight)
    }

    /// The action that is due next. What ends an item comes before the start of another, which it
    /// may forbid. Costs no more with many items than with few.
    pub fn next_action(&self, plan: &AgentPlan) -> Option<TaskAction> {
        let fan_out = plan.for_each.as_ref().zip(self.items);
        if let Some((each, _)) = fan_out
            && (self.fatal.is_some() || self.too_many_failed(each))
        {
            return Some(TaskAction::Fail);
        }
        if let Some(index) = self.outgoing.first() {
            return Some(TaskAction::Dispatch(*index));
        }
        if let Some(index) = self.pending.first() {
            return match self.list.get(*index as usize).map(|task| &task.phase)? {
                TaskPhase::Drafted => Some(TaskAction::Reflect(*index)),
                TaskPhase::Abandoned => Some(TaskAction::GiveUp(*index)),
                TaskPhase::Finished { .. } => Some(TaskAction::Settle(*index)),
                TaskPhase::ForcedToFail(_) => Some(TaskAction::Reject(*index)),
                TaskPhase::Lost => Some(TaskAction::Doubt(*index)),
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
            return Some(TaskAction::Start(next));
        }
        (self.settled() == items).then_some(TaskAction::End)
    }

    /// The step's output, if it is a fan-out: what its items gave, in input order (seed 000,
    /// invariant 26).
    pub fn results(&self) -> CanonicalJson {
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
        CanonicalJson::from_value(&serde_json::json!({ "results": results })).unwrap_or_default()
    }
}

impl Tasks {
    /// The tasks of a step that begins; `last` is the frame that begins it. No attempt has the
    /// number of one `before`, or a runtime of that time could speak for it.
    pub(crate) fn begin(items: Option<u32>, last: u64, before: u32) -> Self {
        let mut tasks = Self::of(items);
        tasks.before = before;
        if items.is_none() {
            tasks
                .list
                .push(AgentTask::waiting(BTreeMap::new(), last, before));
            tasks.reclassify(None);
        }
        tasks
    }

    /// The step has ended: reports and outcomes are of no use any more.
    pub(crate) fn close(&mut self) {
        for task in &mut self.list {
            if let TaskPhase::Finished { .. } = task.phase {
                task.phase = TaskPhase::Settled;
            }
        }
    }
}
