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
    waiting: BTreeMap<TaskOrder, Arc<TaskContext>>,
}

impl Tasks {
    pub(super) fn add(&mut self, order: TaskOrder, context: TaskContext) {
        let context = Arc::new(context);
        self.by_address.insert(Arc::clone(&context.address), order);
        self.waiting.insert(order, Arc::clone(&context));
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

    /// Those that are not announced, up to a place.
    pub(super) fn waiting_until(
        &self,
        end: Option<TaskOrder>,
    ) -> impl Iterator<Item = &Arc<TaskContext>> {
        let before = move |order: &TaskOrder| end.is_none_or(|end| *order < end);
        let waiting = self.waiting.iter();
        waiting
            .take_while(move |(order, _)| before(order))
            .map(|(_, task)| task)
    }

    pub(super) fn announce(&mut self, address: &str, seq: u64) {
        let Some(order) = self.by_address.get(address) else {
            return;
        };
        self.waiting.remove(order);
        if let Some(task) = self.all.get_mut(order) {
            task.phase = TaskPhase::Announced { seq };
        }
    }

    pub(super) fn end(&mut self, address: &str, seq: u64) -> Option<Arc<TaskContext>> {
        let order = self.by_address.get(address)?;
        self.waiting.remove(order);
        let task = self.all.get_mut(order)?;
        task.phase = TaskPhase::Ended { seq };
        Some(Arc::clone(&task.context))
    }

    pub(super) fn forget(&mut self, address: &str) {
        if let Some(order) = self.by_address.remove(address) {
            self.all.remove(&order);
            self.waiting.remove(&order);
        }
    }
}
