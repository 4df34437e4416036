//! Observes one run: keeps what is to be logged and counted until the frames it depends on are
//! durable.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use ktsu_ledger::event::{AgentEvent, RunEvent, StepEvent};
use ktsu_ledger::{Event, Frame, Timestamp};
use ktsu_projections::run::{RunState, RunStatus};

use super::Telemetry;
use super::log;
use super::metrics::WorkflowMetrics;
use super::milestone::{Milestone, RunEnd, StepKind};
use super::milestone::{milestone, name, step_end, step_ended, step_kind};
use super::person_waits::{PersonWaitChange, PersonWaits};

/// The most requests and steps of a run whose beginnings are remembered; beyond it the group of a
/// call counts as unknown and a step's time is not counted.
const MAX_REMEMBERED: usize = 4096;

/// One observation.
#[derive(Debug)]
enum Observation {
    /// Transforms that ended, by outcome.
    Transforms([u32; 3]),
    /// A frame that operators hear of, and the model group it is about.
    Milestone(Box<Milestone>, Option<String>),
    /// The run's status changed.
    StatusChanged(Option<RunStatus>, RunStatus),
    /// The run ended.
    Ended(Box<RunEnd>),
    /// A run or a branch was accepted.
    Accepted,
    /// Reviews or suspensions were asked for, or ended.
    PersonWaits(PersonWaitChange),
}

/// The observations of one run, which are logged and counted as soon as they are durable.
pub struct RunObserver {
    telemetry: Arc<Telemetry>,
    /// None for what is no run: a recompute's calls count, itself does not.
    workflow: Option<Arc<WorkflowMetrics>>,
    name: String,
    status: Option<RunStatus>,
    /// The frame that ended it, and when, while it is over.
    ended: Option<(u64, Timestamp)>,
    /// The time that it had been over before it began again.
    over_ms: u64,
    /// Model groups by the frame of their request.
    groups: HashMap<u64, String>,
    /// The times at which steps began that are not transforms, by scope and id.
    begun: HashMap<(String, String), Timestamp>,
    person_waits: PersonWaits,
    waiting: VecDeque<(u64, Observation)>,
    /// The last of them that is to be told when it happens, and not when something else does.
    urgent: Option<u64>,
}

impl RunObserver {
    /// Watches a run from its first turn on.
    pub fn new(telemetry: &Arc<Telemetry>, state: &RunState) -> Self {
        let name = name(&state.outline().root().plan.name);
        let is_run = state.stream().kind() != "recompute";
        Self {
            workflow: is_run.then(|| telemetry.metrics().workflow(&name)),
            telemetry: Arc::clone(telemetry),
            name,
            status: None,
            ended: None,
            over_ms: 0,
            groups: HashMap::new(),
            begun: HashMap::new(),
            person_waits: PersonWaits::default(),
            waiting: VecDeque::new(),
            urgent: None,
        }
    }

    /// All of the run so far was there before.
    pub fn restore(&mut self, state: &RunState) {
        self.status = Some(state.status());
        self.ended = end_of(state);
        let metrics = self.telemetry.metrics().person_waits();
        self.person_waits.restore(state, metrics);
        let steps = state.scopes().iter().flat_map(|scope| &scope.steps);
        let tasks = steps.filter_map(|step| step.tasks.as_deref());
        for call in tasks
            .flat_map(|tasks| &tasks.list)
            .filter_map(|task| task.open_call.as_ref())
        {
            if self.groups.len() < MAX_REMEMBERED {
                self.groups.insert(call.seq, name(&call.group));
            }
        }
    }

    /// Takes the frames of a turn, and the state after it.
    pub fn note<'a>(&mut self, frames: impl Iterator<Item = &'a Frame>, state: &RunState) {
        let mut transforms = [0; 3];
        for frame in frames {
            self.person_waits.take(frame);
            match &frame.event {
                Event::Step(StepEvent::ReviewRequested(_) | StepEvent::SuspendRequested(_)) => {
                    self.note_other(frame);
                }
                Event::Step(event) => self.note_step(frame, event, state, &mut transforms),
                Event::Run(RunEvent::Resumed(resumed)) if resumed.from.is_some() => {
                    self.note_reopening(frame);
                    self.note_other(frame);
                }
                event if event.is_world_input() => {
                    self.note_reopening(frame);
                    self.note_other(frame);
                }
                _ => self.note_other(frame),
            }
        }
        let last = state.next_seq().saturating_sub(1);
        if transforms != [0; 3] {
            self.waiting
                .push_back((last, Observation::Transforms(transforms)));
        }
        if let Some(change) = self.person_waits.end_turn(state) {
            self.waiting
                .push_back((last, Observation::PersonWaits(change)));
            self.urgent = Some(last);
        }
        self.note_status(last, state);
    }

    /// The time since the end of a run that goes on is none of its own.
    fn note_reopening(&mut self, frame: &Frame) {
        let over = self.ended.take();
        let over = over.map(|(_, since)| frame.at.millis_since(since));
        self.over_ms += over.unwrap_or(0);
    }

    /// Counts the end of a transform, and remembers when any other step began until it ends.
    fn note_step(
        &mut self,
        frame: &Frame,
        event: &StepEvent,
        state: &RunState,
        transforms: &mut [u32; 3],
    ) {
        let outcome = step_end(event);
        if outcome.is_none() && !matches!(event, StepEvent::Started(_)) {
            return;
        }
        let key = || (frame.scope.clone(), event.step().to_owned());
        match (step_kind(state, &frame.scope, event.step()), outcome) {
            (Some(StepKind::Transform), Some(outcome)) => {
                if let Some(count) = transforms.get_mut(outcome as usize) {
                    *count += 1;
                }
            }
            (Some(StepKind::Transform) | None, _) => {}
            (Some(kind), Some(outcome)) => {
                let begun = self.begun.remove(&key());
                let ended = step_ended(frame, event, (kind, outcome), begun);
                self.push(frame.seq, ended, None);
            }
            (Some(_), None) if self.begun.len() < MAX_REMEMBERED => {
                self.begun.insert(key(), frame.at);
            }
            (Some(_), None) => {}
        }
    }

    fn note_other(&mut self, frame: &Frame) {
        let group = match &frame.event {
            Event::Agent(AgentEvent::Request(request)) => {
                if self.groups.len() < MAX_REMEMBERED {
                    self.groups.insert(frame.seq, name(&request.group));
                }
                None
            }
            Event::Agent(AgentEvent::Response(response)) => self.groups.remove(&response.request),
            _ => None,
        };
        if let Some(milestone) = milestone(frame) {
            self.push(frame.seq, milestone, group);
        }
    }

    fn note_status(&mut self, last: u64, state: &RunState) {
        let now = state.status();
        if self.status.is_none() {
            self.waiting.push_back((last, Observation::Accepted));
        }
        if self.status != Some(now) {
            self.waiting
                .push_back((last, Observation::StatusChanged(self.status, now)));
            self.status = Some(now);
            self.urgent = Some(last);
        }
        let ended = end_of(state);
        if self.ended != ended {
            self.ended = ended;
            if ended.is_some() {
                self.groups.clear();
                self.begun.clear();
            }
            if let Some(mut end) = RunEnd::of(state) {
                end.duration_ms = end.duration_ms.saturating_sub(self.over_ms);
                self.waiting
                    .push_back((last, Observation::Ended(Box::new(end))));
                self.urgent = Some(last);
            }
        }
    }

    fn push(&mut self, seq: u64, milestone: Milestone, group: Option<String>) {
        let is_logged = log::is_on(milestone.level);
        if is_logged {
            self.urgent = Some(seq);
        }
        if is_logged || milestone.count.is_some() {
            let observed = Observation::Milestone(Box::new(milestone), group);
            self.waiting.push_back((seq, observed));
        }
    }

    /// Returns `true` if something waits for the disk that is to be logged when it happens.
    pub fn is_urgent(&self) -> bool {
        self.urgent.is_some()
    }

    /// Logs and counts what is durable.
    pub fn durable(&mut self, durable: Option<u64>, run_id: &str) {
        while let Some((_, observed)) = self.waiting.pop_front_if(|(seq, _)| durable >= Some(*seq))
        {
            self.emit(run_id, observed);
        }
        if self.urgent <= durable {
            self.urgent = None;
        }
    }

    fn emit(&self, run_id: &str, observed: Observation) {
        let metrics = self.telemetry.metrics();
        match (observed, &self.workflow) {
            (Observation::Transforms(ended), _) => metrics.transforms(ended),
            (Observation::PersonWaits(change), _) => metrics.person_waits().count(&change),
            (Observation::Milestone(milestone, group), _) => {
                metrics.count(&milestone, group.as_deref());
                self.log(run_id, &milestone);
            }
            (Observation::Ended(end), workflow) => {
                if let Some(workflow) = workflow {
                    workflow.end(&end);
                }
                self.log(run_id, &end.milestone());
            }
            (Observation::StatusChanged(from, to), Some(workflow)) => {
                workflow.change_status(from, Some(to))
            }
            (Observation::Accepted, Some(workflow)) => workflow.accept(),
            (Observation::StatusChanged(..) | Observation::Accepted, None) => {}
        }
    }

    fn log(&self, run_id: &str, milestone: &Milestone) {
        if log::is_on(milestone.level) {
            log::write(run_id, &self.name, milestone);
        }
    }
}

/// The frame that ended the run, and when, if one did.
fn end_of(state: &RunState) -> Option<(u64, Timestamp)> {
    let root = state.scopes().first()?;
    root.ended.as_ref().map(|end| (end.seq, end.at))
}
