//! What responders asked models or had workflows do, and has not ended.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::trigger::TaskContext;

/// A task, and where it stands.
#[derive(Debug, Clone)]
pub struct WorldTask {
    /// Where it came from.
    pub context: Arc<TaskContext>,
    /// Where it stands.
    pub phase: TaskPhase,
}

/// Where a task stands. It is forgotten when its responder has reacted to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskPhase {
    /// Not announced.
    Waiting,
    /// Announced by this frame.
    Announced {
        /// Its number.
        seq: u64,
    },
    /// Ended by this frame, to which its responder has not reacted yet.
    Ended {
        /// Its number.
        seq: u64,
    },
}

/// The place of a task: its trigger, its responder among the candidates, its item.
pub(super) type TaskOrder = (u64, u32, u32);

#[derive(Debug, Clone, Default)]
pub(super) struct Tasks {
    all: BTreeMap<TaskOrder, WorldTask>,
    by_address: HashMap<Arc<str>, TaskOrder>,
    by_responder: BTreeMap<Arc<str>, TasksOfResponder>,
}

/// What one responder has asked or run.
#[derive(Debug, Clone, Default)]
struct TasksOfResponder {
    waiting: BTreeMap<TaskOrder, Arc<TaskContext>>,
    announced: u32,
}

impl Tasks {
    pub(super) fn add(&mut self, order: TaskOrder, context: TaskContext) {
        let context = Arc::new(context);
        self.by_address.insert(Arc::clone(&context.address), order);
        let responder = Arc::clone(&context.responder);
        let of_responder = self.by_responder.entry(responder).or_default();
        of_responder.waiting.insert(order, Arc::clone(&context));
        let phase = TaskPhase::Waiting;
        self.all.insert(order, WorldTask { context, phase });
    }

    pub(super) fn get(&self, address: &str) -> Option<&WorldTask> {
        self.all.get(self.by_address.get(address)?)
    }

    /// All of them, in the order in which they were decided on.
    pub(super) fn all(&self) -> impl Iterator<Item = &WorldTask> {
        self.all.values()
    }

    /// Of each responder the first one that is not announced, up to a place, in the order in which
    /// they were decided on.
    pub(super) fn waiting_until(&self, end: Option<TaskOrder>) -> Vec<&Arc<TaskContext>> {
        let responders = self.by_responder.values();
        let first = responders.filter_map(|one| one.waiting.first_key_value());
        let mut first: Vec<_> = first
            .filter(|(order, _)| end.is_none_or(|end| **order < end))
            .collect();
        first.sort_unstable_by_key(|(order, _)| **order);
        first.into_iter().map(|(_, task)| task).collect()
    }

    /// How many tasks of a responder are announced and have not ended.
    pub(super) fn announced(&self, responder: &str) -> u32 {
        let found = self.by_responder.get(responder);
        found.map_or(0, |one| one.announced)
    }

    pub(super) fn announce(&mut self, address: &str, seq: u64) {
        self.change(address, TaskPhase::Announced { seq });
    }

    pub(super) fn end(&mut self, address: &str, seq: u64) -> Option<Arc<TaskContext>> {
        self.change(address, TaskPhase::Ended { seq })
    }

    pub(super) fn forget(&mut self, address: &str) {
        if self.change(address, TaskPhase::Ended { seq: 0 }).is_none() {
            return;
        }
        if let Some(order) = self.by_address.remove(address) {
            self.all.remove(&order);
        }
    }

    fn change(&mut self, address: &str, phase: TaskPhase) -> Option<Arc<TaskContext>> {
        let order = self.by_address.get(address)?;
        let task = self.all.get_mut(order)?;
        let before = std::mem::replace(&mut task.phase, phase);
        let responder = &task.context.responder;
        if let Some(one) = self.by_responder.get_mut(responder) {
            let was = u32::from(matches!(before, TaskPhase::Announced { .. }));
            let is = u32::from(matches!(phase, TaskPhase::Announced { .. }));
            one.announced = (one.announced + is).saturating_sub(was);
            one.waiting.remove(order);
            if one.waiting.is_empty() && one.announced == 0 {
                self.by_responder.remove(responder);
            }
        }
        Some(Arc::clone(&task.context))
    }
}
