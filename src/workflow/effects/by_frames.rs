//! The effects that should be in progress, by the frames alone: an oracle for tests, independent of
//! the state of a run. Tests of recorded runs outside this crate include this file as well.

use std::collections::BTreeMap;

use ktsu_ledger::event::{
    AgentEvent, Decision, DoubtReason, ItemEvent, RecomputeEvent, RunEvent, StepEvent, TimerKind,
    WebhookEvent, WorkerEvent, WorldEvent,
};
use ktsu_ledger::{Event, Frame};
use ktsu_projections::run::{RunState, StepKey};

use super::{Effect, EffectKind, effects_due, effects_due_in};

/// Cuts a log after every frame. What is due of the folded state is what was announced and has not
/// ended, and a run that lived until there has begun all of it, each once. Tells how much that was.
#[track_caller]
pub(crate) fn hold_at_every_cut(frames: &[Frame]) -> usize {
    let mut frames_say = ByFrames::default();
    frames_say.take(&frames[0]);
    let mut state = RunState::fold(&frames[..1]).unwrap();
    let mut begun: BTreeMap<u64, Subject> = BTreeMap::new();
    let mut last = 0;
    for frame in &frames[1..] {
        state.apply(frame).unwrap();
        frames_say.take(frame);
        let due = subjects(&state, &effects_due(&state));
        let told = (frame.seq, frame.event.kind());
        assert_eq!(due, frames_say.due(), "after {told:?}");
        let new = subjects(&state, &effects_due_in(&state, last + 1..=frame.seq));
        last = frame.seq;
        for (announced, subject) in new {
            assert_eq!(begun.insert(announced, subject), None, "begun twice");
        }
        for effect in &due {
            assert_eq!(begun.get(effect.0), Some(effect.1), "not begun at {told:?}");
        }
    }
    begun.len()
}

/// Scope, step, item, and of a notice the request it is about.
type Subject = (String, String, Option<u32>, Option<u64>);

/// The effects that the frames so far announced.
#[derive(Debug, Default)]
struct ByFrames {
    open: BTreeMap<Subject, u64>,
    /// Requests that wait for people: the task, how many have to approve, how many did.
    requests: BTreeMap<u64, (Subject, u32, u32)>,
    failing: bool,
    /// The decision rules of the run.
    rules: u32,
    ended: Option<u64>,
    /// True if a recompute waits to be compared.
    to_compare: bool,
}

impl ByFrames {
    /// The effects that are due, by the frame that announced each.
    fn due(&self) -> BTreeMap<u64, Subject> {
        if let Some(ended) = self.ended {
            let comparison = (String::new(), String::new(), None, None);
            return self
                .to_compare
                .then_some((ended, comparison))
                .into_iter()
                .collect();
        }
        if self.failing {
            return BTreeMap::new();
        }
        let waits =
            |request: &Option<u64>| request.is_none_or(|one| self.requests.contains_key(&one));
        let due = self.open.iter().filter(|((.., request), _)| waits(request));
        due.map(|(subject, seq)| (*seq, subject.clone())).collect()
    }

    /// Takes the next frame.
    fn take(&mut self, frame: &Frame) {
        let subject = |step: &str, item: Option<u32>, request: Option<u64>| {
            (frame.scope.clone(), step.to_owned(), item, request)
        };
        match &frame.event {
            Event::Run(RunEvent::Branched(branch)) => self.rules = branch.rules,
            event => self.rules = event.created().map_or(self.rules, |created| created.rules),
        }
        match &frame.event {
            Event::Webhook(WebhookEvent::Sent(sent)) => {
                let about = subject(&sent.step, None, sent.approval);
                self.open.insert(about, frame.seq);
            }
            Event::Webhook(event) => {
                self.open
                    .remove(&subject(event.step(), None, event.approval()));
            }
            Event::Worker(WorkerEvent::Dispatched(sent)) => {
                self.open
                    .insert(subject(&sent.step, sent.item, None), frame.seq);
            }
            Event::Worker(WorkerEvent::Lost(lost)) => {
                self.open.remove(&subject(&lost.step, lost.item, None));
            }
            Event::Agent(event) => {
                self.agent(frame.seq, subject(event.step(), event.item(), None), event);
            }
            Event::Step(event) => self.step(&frame.scope, event),
            // What an item ran ended the item, and not the run.
            Event::Item(ItemEvent::Failed(failed)) if failed.code == "invoke_failed" => {
                self.failing &= self.rules < 6;
            }
            Event::Run(event) => self.run(frame, event),
            Event::Recompute(event) => {
                self.to_compare = matches!(event, RecomputeEvent::Created(_));
            }
            Event::World(WorldEvent::BudgetExhausted(_)) => self.failing = true,
            event if event.is_world_input() => (self.failing, self.ended) = (false, None),
            _ => {}
        }
    }

    fn agent(&mut self, seq: u64, task: Subject, event: &AgentEvent) {
        match event {
            AgentEvent::ApprovalRequested(asked) => {
                self.open.remove(&task);
                self.requests
                    .insert(seq, (task, asked.policy.quorum.max(1), 0));
            }
            AgentEvent::ToolInDoubt(doubt) if doubt.reason != DoubtReason::TaskEnded => {
                self.open.remove(&task);
            }
            AgentEvent::Finished(_) => {
                self.open.remove(&task);
                self.requests.retain(|_, (about, ..)| *about != task);
            }
            AgentEvent::ApprovalExpired(expired) => {
                self.requests.remove(&expired.request);
            }
            AgentEvent::ApprovalDecided(decided) => {
                if let Some((_, quorum, approvals)) = self.requests.get_mut(&decided.request) {
                    *approvals += 1;
                    let approved = decided.decision == Decision::Approved;
                    if !approved || approvals >= quorum {
                        self.requests.remove(&decided.request);
                    }
                }
            }
            _ => {}
        }
    }

    fn step(&mut self, scope: &str, event: &StepEvent) {
        let ends = matches!(
            event,
            StepEvent::Completed(_) | StepEvent::Failed(_) | StepEvent::Skipped(_)
        );
        let id = event.step();
        if ends || matches!(event, StepEvent::Reset(_)) {
            let own = |subject: &Subject| subject.0 == scope && subject.1 == id;
            self.open
                .retain(|subject, _| !own(subject) || subject.3.is_some());
        }
        if matches!(event, StepEvent::Reset(_)) {
            let path = match scope {
                "" => id.to_owned(),
                scope => format!("{scope}/{id}"),
            };
            let inside = |other: &str| {
                let rest = other.strip_prefix(&path);
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            };
            self.open.retain(|subject, _| !inside(&subject.0));
            self.requests.retain(|_, (task, ..)| {
                !inside(&task.0) && (task.0.as_str(), task.1.as_str()) != (scope, id)
            });
        }
        self.failing |= matches!(event, StepEvent::Failed(_));
    }

    fn run(&mut self, frame: &Frame, event: &RunEvent) {
        match event {
            RunEvent::Completed(_) if frame.scope.is_empty() => self.ended = Some(frame.seq),
            RunEvent::Failed(_) => {
                self.failing = true;
                if frame.scope.is_empty() {
                    self.ended = Some(frame.seq);
                }
            }
            RunEvent::TimerFired(fired) => self.failing |= fired.timer == TimerKind::RunTimeout,
            RunEvent::Cancelled(_) | RunEvent::Terminated(_) => self.failing = true,
            RunEvent::Resumed(resumed) if resumed.from.is_some() => {
                (self.failing, self.ended) = (false, None);
            }
            RunEvent::Branched(_) => {
                self.open.clear();
                self.requests.clear();
                self.to_compare = false;
            }
            _ => {}
        }
    }
}

/// Effects by the frame that announces each, named as frames name them.
fn subjects(state: &RunState, due: &[Effect]) -> BTreeMap<u64, Subject> {
    let name = |at: StepKey, item: Option<u32>, request: Option<u64>| {
        let held = state.scope_of(at).unwrap();
        let step = state.step_id(at).unwrap().to_owned();
        (held.path.clone(), step, item, request)
    };
    let subject = |effect: &Effect| match effect.kind {
        EffectKind::Webhook(at) | EffectKind::Task(at) => name(at.step, at.item, None),
        EffectKind::Notice(notice) => name(notice.webhook, None, Some(notice.request)),
        EffectKind::Comparison => (String::new(), String::new(), None, None),
    };
    let found: BTreeMap<u64, Subject> = due
        .iter()
        .map(|one| (one.announced, subject(one)))
        .collect();
    assert_eq!(found.len(), due.len(), "a frame announces one effect");
    found
}
