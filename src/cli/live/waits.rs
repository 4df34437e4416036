//! The time that running steps have waited for people, computed from frames as they arrive, by the
//! rule of the envelopes: a task waits while an approval is pending and no call is in progress; a
//! step, while all of its open tasks wait; a step with a child, while everything in the child
//! waits.

use std::collections::{BTreeMap, BTreeSet};

use ktsu_ledger::event::{AgentEvent, ItemEvent, StepEvent, WebhookEvent, WorkerEvent};
use ktsu_ledger::{Event, Frame, Timestamp};
use ktsu_projections::used_time::ends_wait_for_people;

/// The waits of everything under way, by scope and step.
#[derive(Debug, Clone, Default)]
pub(super) struct Waits {
    steps: BTreeMap<(String, String), StepWait>,
}

#[derive(Debug, Clone, Default)]
struct StepWait {
    /// True if it holds a child, which moves it.
    holds: bool,
    /// True if something else than people moves it, such as a webhook.
    moves: bool,
    clock: WaitClock,
    /// By item; a step without items has one, without a number.
    tasks: BTreeMap<Option<u32>, TaskWait>,
}

#[derive(Debug, Clone, Default)]
struct TaskWait {
    clock: WaitClock,
    ended: bool,
    /// Calls that people are asked about, and calls that are being made.
    asked: BTreeSet<u32>,
    made: BTreeMap<u32, u64>,
}

#[derive(Debug, Clone, Copy, Default)]
struct WaitClock {
    last: Option<Timestamp>,
    waited_ms: u64,
}

impl WaitClock {
    fn leave_out(&mut self, ms: u64) {
        self.last = self.last.map(|last| last.plus_millis(ms));
    }

    fn take(&mut self, at: Timestamp, still: bool) {
        let last = self.last.replace(at).unwrap_or(at);
        if still {
            self.waited_ms = self.waited_ms.saturating_add(at.millis_since(last));
        }
    }
}

impl Waits {
    /// So many milliseconds before the next frame are no wait.
    pub(super) fn leave_out(&mut self, ms: u64) {
        for step in self.steps.values_mut() {
            step.clock.leave_out(ms);
            step.tasks
                .values_mut()
                .for_each(|task| task.clock.leave_out(ms));
        }
    }
}

impl TaskWait {
    fn is_still(&self) -> bool {
        !self.asked.is_empty() && self.made.is_empty()
    }

    fn note(&mut self, frame: &Frame) {
        match &frame.event {
            Event::Agent(AgentEvent::ApprovalRequested(asked)) => {
                self.asked.insert(asked.call);
            }
            Event::Agent(AgentEvent::ToolCalled(called)) => {
                self.asked.remove(&called.call);
                self.made.insert(called.call, frame.seq);
            }
            Event::Agent(AgentEvent::ToolReturned(returned)) => {
                self.asked.remove(&returned.call);
                self.made.remove(&returned.call);
            }
            Event::Agent(AgentEvent::ToolInDoubt(doubt)) => {
                let call = self.made.iter().find(|(_, seq)| **seq == doubt.called);
                if let Some(call) = call.map(|(call, _)| *call) {
                    self.made.remove(&call);
                    self.asked.insert(call);
                }
            }
            Event::Agent(AgentEvent::Request(_)) | Event::Worker(WorkerEvent::Dispatched(_)) => {
                self.asked.clear();
                self.made.clear();
            }
            Event::Item(ItemEvent::Completed(_) | ItemEvent::Failed(_))
            | Event::Agent(AgentEvent::Finished(_)) => self.ended = true,
            _ => {}
        }
    }
}

impl Waits {
    /// Applies a frame about a step, before anything else is done with it.
    pub(super) fn apply(&mut self, frame: &Frame) {
        let Some((step, item)) = frame.event.task() else {
            return;
        };
        let (scope, at) = (frame.scope.as_str(), frame.at);
        if matches!(frame.event, Event::Step(StepEvent::Started(_))) {
            self.begin(scope, step, at);
        }
        let ends = ends_wait_for_people(frame);
        let place = (scope.to_owned(), step.to_owned());
        let still = ends && self.steps.get(&place).is_some_and(StepWait::is_still);
        // What is around it stands still where everything in it does.
        let around: Vec<(String, String, bool)> = outer(scope)
            .map(|(outer, holder, path)| (outer, holder, ends && self.is_waiting(&path)))
            .collect();
        if let Some(held) = self.steps.get_mut(&place) {
            held.moves |= matches!(frame.event, Event::Webhook(WebhookEvent::Sent(_)));
            if matches!(frame.event, Event::Item(ItemEvent::Started(_))) {
                held.tasks.insert(item, TaskWait::default());
            }
            let task = held.tasks.entry(item).or_default();
            let task_still = ends && task.is_still();
            task.clock.take(at, task_still);
            task.note(frame);
            held.clock.take(at, still);
        }
        for (scope, step, still) in around {
            if let Some(held) = self.steps.get_mut(&(scope, step)) {
                held.holds = true;
                held.clock.take(at, still);
            }
        }
    }

    /// The time that a step, or an item of it, waited, in milliseconds.
    pub(super) fn of(&self, scope: &str, step: &str, item: Option<u32>) -> u64 {
        let held = self.steps.get(&(scope.to_owned(), step.to_owned()));
        let clock = held.and_then(|held| match item {
            None => Some(held.clock),
            Some(_) => held.tasks.get(&item).map(|task| task.clock),
        });
        clock.map_or(0, |clock| clock.waited_ms)
    }

    /// A step that has ended moves nothing any more.
    pub(super) fn end(&mut self, scope: &str, step: &str) -> u64 {
        let held = self.steps.remove(&(scope.to_owned(), step.to_owned()));
        held.map_or(0, |held| held.clock.waited_ms)
    }

    fn begin(&mut self, scope: &str, step: &str, at: Timestamp) {
        let mut begun = StepWait::default();
        begun.clock.take(at, false);
        self.steps
            .insert((scope.to_owned(), step.to_owned()), begun);
    }

    /// Returns `true` if nothing but people moves what is under way in a scope and below it.
    fn is_waiting(&self, scope: &str) -> bool {
        let below = format!("{scope}/");
        let within = self
            .steps
            .iter()
            .filter(|((inner, _), _)| inner == scope || inner.starts_with(&below));
        let mut own = within.filter(|(_, step)| !step.holds).peekable();
        own.peek().is_some() && own.all(|(_, step)| step.is_still())
    }
}

impl StepWait {
    fn is_still(&self) -> bool {
        // What is said of a fan-out as a whole is about none of its tasks.
        let has_items = self.tasks.keys().any(Option::is_some);
        let own = self
            .tasks
            .iter()
            .filter(|(item, _)| item.is_some() || !has_items);
        let mut open = own
            .map(|(_, task)| task)
            .filter(|task| !task.ended)
            .peekable();
        !self.moves && open.peek().is_some() && open.all(TaskWait::is_still)
    }
}

/// The steps around a scope, from the inside out: the scope each stands in, its id, and the scope it
/// holds.
fn outer(scope: &str) -> impl Iterator<Item = (String, String, String)> + '_ {
    let mut rest = (!scope.is_empty()).then_some(scope);
    std::iter::from_fn(move || {
        let path = rest?;
        let (outer, step) = path.rsplit_once('/').unwrap_or(("", path));
        rest = (!outer.is_empty()).then_some(outer);
        Some((outer.to_owned(), step.to_owned(), path.to_owned()))
    })
}
