//! The activity of responders in a run, as people read it first: a tree of events, who reacted to
//! each, what was asked or run for it, and what that cost.
//!
//! The tree is a list with parents, since a chain of reactions may be as long as a run. Of many that are
//! alike below one event, the first few are kept, and the others are counted.

use std::collections::{BTreeMap, HashMap};

use ktsu_ledger::event::{Candidate, FiringVerdict, RunEvent, TaskKind, WorkerEvent, WorldEvent};
use ktsu_ledger::{Cause, Event, Frame, Timestamp};
use ktsu_projections::usage::Usage;
use ktsu_projections::world::activity::{is_address, is_world_frame};
use serde::Serialize;

/// The most events below one that are alike: of one type, made by one responder.
const MAX_ALIKE: usize = 8;
/// The most events in a tree.
const MAX_EVENTS: usize = 2_000;

/// The activity in the worlds of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct WorldTimeline {
    /// The number of world frames: those that a budget of events counts, the calls of models among
    /// them.
    pub events: u64,
    /// The number of times that a responder reacted to something.
    pub reactions: u64,
    /// The events, each behind the one it follows from, and below it.
    pub tree: Vec<WorldEntry>,
}

/// An event, or what a responder asked or ran.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct WorldEntry {
    /// Its frame: of what was asked or run, the one that announced it.
    pub frame: u64,
    /// The entry that it is below; none for what nothing in the world led to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<u64>,
    /// The type of the frame.
    #[serde(rename = "type")]
    pub kind: String,
    /// The object or the relation it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub about: Option<String>,
    /// The maker of the event: a responder, `goal`, or `by NAME` for what was posted.
    pub actor: String,
    /// Milliseconds since the run was created.
    pub after_ms: u64,
    /// The question or the workflow of a responder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<WorldTaskEntry>,
    /// Responders that it triggered and that did not react.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub passed: Vec<String>,
    /// Failures below it: responder, code and message.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<String>,
    /// The number of entries below it that are left out, with all that is below those.
    #[serde(skip_serializing_if = "is_zero")]
    pub left_out: u64,
}

/// A question that a responder asked a model, or a workflow that it ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WorldTaskEntry {
    /// `@NAME.KEY`.
    pub address: String,
    /// `ask` or `run`.
    pub kind: &'static str,
    /// `running`, `complete` or `failed`.
    pub status: &'static str,
    /// Milliseconds from its announcement to its end, or to its last frame.
    pub duration_ms: u64,
    /// Model calls.
    pub llm_calls: u64,
    /// Tokens sent.
    pub tokens_in: u64,
    /// Tokens received.
    pub tokens_out: u64,
    /// Millionths of a US dollar.
    pub cost_micro_usd: u64,
}

fn waits(responder: &str) -> String {
    format!("{responder}: waits")
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Returns `true` for the frame that says which worlds a run loads.
pub(crate) fn is_load(frame: &Frame) -> bool {
    matches!(frame.event.world(), Some(WorldEvent::Loaded(_)))
}

/// The responders that a frame says were asked about another one.
pub(crate) fn candidates_of(frame: &Frame) -> &[Candidate] {
    if let Some(WorldEvent::Fired(fired)) = frame.event.world() {
        &fired.candidates
    } else {
        &[]
    }
}

/// The maker of an event: a responder, `goal`, or `by NAME` for what was posted; else the actor.
pub(crate) fn maker_of(frame: &Frame) -> String {
    let event = frame.event.world();
    let by = event.and_then(WorldEvent::by);
    match (by, event.and_then(WorldEvent::derived)) {
        (Some(by), _) => format!("by {}", by.id),
        (None, Some(derived)) => {
            let responder = derived.responder.clone();
            responder.unwrap_or_else(|| "goal".to_owned())
        }
        (None, None) => frame.actor.to_string(),
    }
}

/// The tree of a recorded run; nothing if it loads no worlds.
pub fn world_timeline(frames: &[Frame]) -> Option<WorldTimeline> {
    if !frames.iter().any(is_load) {
        return None;
    }
    let mut builder = WorldTimelineBuilder {
        start: frames.first().map(|frame| frame.at),
        ..WorldTimelineBuilder::default()
    };
    for frame in frames {
        builder.take(frame);
    }
    Some(builder.finish())
}

#[derive(Default)]
struct WorldTimelineBuilder {
    start: Option<Timestamp>,
    entries: Vec<WorldEntry>,
    /// Positions among the entries, by frame.
    by_frame: HashMap<u64, usize>,
    /// Positions of what was asked or run, by address, with what it used.
    tasks: HashMap<String, (usize, Usage)>,
    /// The frames that ended it.
    ends: HashMap<u64, String>,
    reactions: u64,
    events: u64,
}

impl WorldTimelineBuilder {
    fn take(&mut self, frame: &Frame) {
        self.events += u64::from(is_world_frame(frame));
        self.take_task(frame);
        if let Some(event) = frame.event.world() {
            self.take_event(frame, event);
        } else if frame.event.is_of_kit() {
            self.add(frame, None);
        } else if let Event::Run(RunEvent::TimerFired(fired)) = &frame.event
            && let Some(responder) = &fired.responder
            && let Some(at) = self.parent(frame)
        {
            // What follows from the timer follows from what it was set for.
            self.by_frame.insert(frame.seq, at);
            if let Some(entry) = self.entries.get_mut(at) {
                let waits = waits(responder);
                entry.passed.retain(|one| *one != waits);
            }
        }
    }

    fn take_event(&mut self, frame: &Frame, event: &WorldEvent) {
        match event {
            WorldEvent::Fired(fired) => {
                let fires = |verdict| verdict == FiringVerdict::Fired;
                let all = fired.candidates.iter();
                self.reactions += all.clone().filter(|one| fires(one.verdict)).count() as u64;
                let passed = all.filter(|one| !fires(one.verdict));
                let passed = passed.map(|one| match (&one.reason, one.after_ms) {
                    (Some(reason), _) => format!("{}: {reason}", one.responder),
                    (None, Some(_)) => waits(&one.responder),
                    (None, None) => one.responder.clone(),
                });
                let passed: Vec<String> = passed.collect();
                if let Some(entry) = self.parent(frame).and_then(|at| self.entries.get_mut(at)) {
                    entry.passed.extend(passed);
                }
            }
            WorldEvent::Failed(failed) => {
                let words = format!("{}: {}: {}", failed.responder, failed.code, failed.message);
                let address = failed.address.as_deref();
                let task = address.and_then(|address| self.tasks.get(address));
                let at = task.map(|(at, _)| *at).or_else(|| self.parent(frame));
                if let Some(entry) = at.and_then(|at| self.entries.get_mut(at)) {
                    entry.failed.push(words);
                    if let Some(task) = &mut entry.task {
                        task.status = "failed";
                    }
                }
            }
            WorldEvent::Completed(_) | WorldEvent::Rejected(_) | WorldEvent::Loaded(_) => {}
            _ => self.add(frame, event.subject()),
        }
    }

    /// Takes a frame that belongs to something that a responder asked or ran.
    fn take_task(&mut self, frame: &Frame) {
        let root = frame.scope.split('/').next().unwrap_or_default();
        let step = frame.event.task().map_or("", |(step, _)| step);
        let address = match is_address(root) {
            true => root,
            false => step,
        };
        if !is_address(address) {
            return;
        }
        if !self.tasks.contains_key(address) {
            let kind = match &frame.event {
                Event::Worker(WorkerEvent::Dispatched(_)) => TaskKind::Ask,
                Event::Run(RunEvent::Started(_)) => TaskKind::Run,
                _ => return,
            };
            self.begin_task(frame, address, kind);
        }
        let Some((at, used)) = self.tasks.get_mut(address) else {
            return;
        };
        used.apply(frame, false);
        let Some(task) = self.entries.get_mut(*at).and_then(|one| one.task.as_mut()) else {
            return;
        };
        task.duration_ms = used.duration_ms;
        task.llm_calls = used.llm_calls;
        task.tokens_in = used.tokens_in;
        task.tokens_out = used.tokens_out;
        task.cost_micro_usd = used.cost_micro_usd;
        let status = match &frame.event {
            event if event.finished().is_some_and(|end| end.step == address) => {
                let failed = event
                    .finished()
                    .and_then(|end| end.outcome.pointer("/error"));
                Some(failed.map_or("complete", |_| "failed"))
            }
            Event::Run(RunEvent::Completed(_)) if frame.scope == address => Some("complete"),
            Event::Run(RunEvent::Failed(_)) if frame.scope == address => Some("failed"),
            Event::Worker(WorkerEvent::Dispatched(_)) | Event::Run(RunEvent::Started(_)) => {
                Some("running")
            }
            _ => None,
        };
        if let Some(status) = status {
            task.status = status;
            if status != "running" {
                self.ends.insert(frame.seq, address.to_owned());
            }
        }
    }

    fn begin_task(&mut self, frame: &Frame, address: &str, kind: TaskKind) {
        let responder = address.trim_start_matches('@');
        let responder = responder
            .rsplit_once('.')
            .map_or(responder, |(name, _)| name);
        let at = self.entries.len();
        let entry = WorldEntry {
            frame: frame.seq,
            parent: self.parent_frame(frame),
            kind: frame.event.kind().to_owned(),
            actor: responder.to_owned(),
            after_ms: self.since(frame.at),
            task: Some(WorldTaskEntry {
                address: address.to_owned(),
                kind: match kind {
                    TaskKind::Ask => "ask",
                    TaskKind::Run => "run",
                },
                status: "running",
                duration_ms: 0,
                llm_calls: 0,
                tokens_in: 0,
                tokens_out: 0,
                cost_micro_usd: 0,
            }),
            ..WorldEntry::default()
        };
        self.by_frame.insert(frame.seq, at);
        self.entries.push(entry);
        self.tasks
            .insert(address.to_owned(), (at, Usage::default()));
    }

    fn add(&mut self, frame: &Frame, about: Option<&str>) {
        let actor = maker_of(frame);
        self.by_frame.insert(frame.seq, self.entries.len());
        self.entries.push(WorldEntry {
            frame: frame.seq,
            parent: self.parent_frame(frame),
            kind: frame.event.kind().to_owned(),
            about: about.map(str::to_owned),
            actor,
            after_ms: self.since(frame.at),
            ..WorldEntry::default()
        });
    }

    /// The entry that a frame follows from: what it reacts to, or what was asked or run.
    fn parent(&self, frame: &Frame) -> Option<usize> {
        let mut causes = frame.cause.iter().filter_map(|cause| match cause {
            Cause::Here(seq) => Some(*seq),
            Cause::There(..) => None,
        });
        causes.find_map(|seq| match self.ends.get(&seq) {
            Some(address) => self.tasks.get(address).map(|(at, _)| *at),
            None => self.by_frame.get(&seq).copied(),
        })
    }

    fn parent_frame(&self, frame: &Frame) -> Option<u64> {
        let parent = self.parent(frame).and_then(|at| self.entries.get(at));
        parent.map(|entry| entry.frame)
    }

    fn since(&self, at: Timestamp) -> u64 {
        self.start.map_or(0, |start| at.millis_since(start))
    }

    /// Keeps the first of those that are alike; what follows from one that is left out is left out,
    /// too. A parent always comes before what is below it.
    fn finish(self) -> WorldTimeline {
        let mut kept: Vec<WorldEntry> = Vec::new();
        let mut places: HashMap<u64, usize> = HashMap::new();
        let mut alike: BTreeMap<(Option<u64>, String, String), usize> = BTreeMap::new();
        let mut left_out = 0u64;
        for entry in self.entries {
            let parent = entry.parent.map(|parent| places.get(&parent).copied());
            if parent == Some(None) {
                // Below one that is left out, and counted with it.
                continue;
            }
            let key = (entry.parent, entry.actor.clone(), entry.kind.clone());
            let count = alike.entry(key).or_default();
            *count += 1;
            if *count > MAX_ALIKE || kept.len() >= MAX_EVENTS {
                let parent = parent.flatten().and_then(|at| kept.get_mut(at));
                match parent {
                    Some(parent) => parent.left_out += 1,
                    None => left_out += 1,
                }
                continue;
            }
            places.insert(entry.frame, kept.len());
            kept.push(entry);
        }
        if left_out > 0
            && let Some(last) = kept.iter_mut().rfind(|entry| entry.parent.is_none())
        {
            last.left_out += left_out;
        }
        WorldTimeline {
            events: self.events,
            reactions: self.reactions,
            tree: kept,
        }
    }
}
