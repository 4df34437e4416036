//! The tasks of responders: what they asked models or had workflows do, until they have reacted to
//! its end.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use ktsu_ledger::event::{AgentFinished, FinishReason};

use super::trigger::TaskContext;

/// The error code of a gateway for a model group that it does not know.
const UNKNOWN_GROUP: &str = "unknown_group";

/// The most items for which one firing of a responder asks a model or runs a workflow: each is kept
/// until it ends, with the world as of the trigger.
pub const MAX_TASKS: u32 = 10_000;

/// A task, and where it stands.
#[derive(Debug, Clone)]
pub struct WorldTask {
    /// Its origin.
    pub context: Arc<TaskContext>,
    /// Its phase.
    pub phase: ResponderTaskPhase,
    /// Number of times that it was begun.
    pub attempts: u32,
    /// True if it is set aside because no gateway knows its model group.
    pub is_unanswered: bool,
    /// The frame that set it aside, if it is.
    pub set_aside_by: Option<u64>,
}

/// The phase of a task, which is forgotten when its responder has reacted to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponderTaskPhase {
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
    /// It came to nothing, and is asked or run again when a person takes the run up again: no gateway
    /// knows its model group, the run ended meanwhile, or its responder failed.
    SetAside,
}

impl ResponderTaskPhase {
    /// As messages call it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Announced { .. } => "running",
            Self::Ended { .. } => "ended",
            Self::SetAside => "set aside",
        }
    }
}

/// The place of a task: its trigger, its responder among the candidates, its item.
pub(super) type TaskOrder = (u64, u32, u32);

#[derive(Debug, Clone, Default)]
pub(super) struct WorldTasks {
    all: BTreeMap<TaskOrder, WorldTask>,
    by_address: HashMap<Arc<str>, TaskOrder>,
    by_responder: BTreeMap<Arc<str>, TasksOfResponder>,
}

/// The tasks of one responder that wait, and the number of those announced.
#[derive(Debug, Clone, Default)]
struct TasksOfResponder {
    waiting: BTreeMap<TaskOrder, Arc<TaskContext>>,
    announced: u32,
}

impl WorldTasks {
    pub(super) fn add(&mut self, order: TaskOrder, context: TaskContext) {
        let context = Arc::new(context);
        self.by_address.insert(Arc::clone(&context.address), order);
        let responder = Arc::clone(&context.responder);
        let of_responder = self.by_responder.entry(responder).or_default();
        of_responder.waiting.insert(order, Arc::clone(&context));
        let phase = ResponderTaskPhase::Waiting;
        let task = WorldTask {
            context,
            phase,
            attempts: 0,
            is_unanswered: false,
            set_aside_by: None,
        };
        self.all.insert(order, task);
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

    /// Number of tasks of a responder that are announced and have not ended.
    pub(super) fn announced(&self, responder: &str) -> u32 {
        let found = self.by_responder.get(responder);
        found.map_or(0, |one| one.announced)
    }

    /// It begins, for the first time or again: as attempt `attempt`, or as the next one.
    pub(super) fn announce(&mut self, address: &str, seq: u64, attempt: Option<u32>) {
        self.change(address, ResponderTaskPhase::Announced { seq });
        let order = self.by_address.get(address);
        if let Some(task) = order.and_then(|order| self.all.get_mut(order)) {
            task.attempts = attempt.unwrap_or(task.attempts + 1);
        }
    }

    /// This frame says that it came to nothing.
    pub(super) fn set_aside(&mut self, address: &str, seq: u64) {
        self.change(address, ResponderTaskPhase::SetAside);
        if let Some(task) = self.get_mut(address) {
            task.set_aside_by = Some(seq);
        }
    }

    fn get_mut(&mut self, address: &str) -> Option<&mut WorldTask> {
        self.all.get_mut(self.by_address.get(address)?)
    }

    /// It is set aside, because no gateway knows its model group.
    pub(super) fn leave_unanswered(&mut self, address: &str, seq: u64) {
        self.set_aside(address, seq);
        if let Some(task) = self.get_mut(address) {
            task.is_unanswered = true;
        }
    }

    /// Those that are at such a phase wait to begin anew.
    pub(super) fn wait_again(&mut self, holds: impl Fn(ResponderTaskPhase) -> bool) {
        let again = self.all.values().filter(|task| holds(task.phase));
        let again: Vec<_> = again.map(|task| task.context.address.clone()).collect();
        for address in again {
            self.change(&address, ResponderTaskPhase::Waiting);
        }
    }

    pub(super) fn end(&mut self, address: &str, seq: u64) -> Option<Arc<TaskContext>> {
        self.change(address, ResponderTaskPhase::Ended { seq })
    }

    pub(super) fn forget(&mut self, address: &str) {
        if self
            .change(address, ResponderTaskPhase::Ended { seq: 0 })
            .is_none()
        {
            return;
        }
        if let Some(order) = self.by_address.remove(address) {
            self.all.remove(&order);
        }
    }

    fn change(&mut self, address: &str, phase: ResponderTaskPhase) -> Option<Arc<TaskContext>> {
        let order = self.by_address.get(address)?;
        let task = self.all.get_mut(order)?;
        let before = std::mem::replace(&mut task.phase, phase);
        (task.is_unanswered, task.set_aside_by) = (false, None);
        let responder = &task.context.responder;
        let one = self.by_responder.entry(Arc::clone(responder)).or_default();
        let was = u32::from(matches!(before, ResponderTaskPhase::Announced { .. }));
        let is = u32::from(matches!(phase, ResponderTaskPhase::Announced { .. }));
        one.announced = (one.announced + is).saturating_sub(was);
        match phase {
            ResponderTaskPhase::Waiting => {
                drop(one.waiting.insert(*order, Arc::clone(&task.context)))
            }
            ResponderTaskPhase::Announced { .. }
            | ResponderTaskPhase::Ended { .. }
            | ResponderTaskPhase::SetAside => {
                one.waiting.remove(order);
            }
        }
        if one.waiting.is_empty() && one.announced == 0 {
            self.by_responder.remove(responder);
        }
        Some(Arc::clone(&task.context))
    }
}

/// Returns `true` if a model was not asked in the end, or its reply was not waited for: the run was
/// ended, or no gateway knows the model group.
pub(super) fn came_to_nothing(end: &AgentFinished) -> bool {
    let stopped = matches!(end.reason, FinishReason::Stopped | FinishReason::Timeout);
    (end.report.is_none() && stopped) || has_no_gateway(end)
}

/// Returns `true` if no gateway knows the model group that was asked.
pub(super) fn has_no_gateway(end: &AgentFinished) -> bool {
    let code = end.outcome.pointer("/error/code");
    code.is_some_and(|code| code == UNKNOWN_GROUP)
}
