//! A run of responders alone, in memory: what [`super::next`] gives is appended and folded.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

use jmespath::Rcvar;
use ktsu_ledger::event::{
    AgentEvent, AgentFinished, FinishReason, LlmRequest, LlmResponse, ObjectCreated, ObjectPatched,
    Post, Principal, Purpose, ReportReference, WorkerDispatched, WorkerEvent, WorldEvent,
};
use ktsu_ledger::{
    Actor, CanonicalJson, Cause, Draft, Event, Frame, Hash, Link, StreamId, Timestamp,
};
use ktsu_projections::world::activity::is_world_frame;
use ktsu_projections::world::{Reactions, Responding, TaskContext, World};
use serde_json::{Value, json};

use super::{RespondContext, ResponderMemo, Response, TaskRequest, next, task_request};
use crate::definition::Definition;
use crate::expression::from_value;
use crate::plans_tests::{plan, workflow};
use crate::respond::goal_of;
use crate::rules::DecisionRules;

/// A definition with one world.
pub(super) fn definition(worlds: &[&Value]) -> Definition {
    let mut plan = plan(json!({"main": workflow("main", json!([]))}));
    for world in worlds {
        let path = format!("worlds/{}.world.yaml", world["name"].as_str().unwrap());
        plan["worlds"][path] = Value::clone(world);
    }
    let compiled = Definition::compile(serde_json::from_value(plan).unwrap());
    compiled.unwrap_or_else(|faults| panic!("{faults:?}"))
}

pub(super) struct Loop<'d> {
    definition: &'d Definition,
    goal: &'static str,
    pub(super) responding: Responding,
    pub(super) frames: Vec<Frame>,
    memo: ResponderMemo,
    /// What responders failed with.
    pub(super) failures: Vec<String>,
    /// How often its params were read, except for its goal.
    pub(super) reads: Rc<Cell<u32>>,
    params: Box<dyn Fn() -> Rcvar>,
    given: Box<dyn Fn() -> Option<Rcvar>>,
    env: BTreeMap<String, ktsu_ledger::event::EnvValue>,
}

impl<'d> Loop<'d> {
    pub(super) fn new(definition: &'d Definition, goal: &'static str) -> Self {
        let worlds = definition.worlds().unwrap();
        let params = move || from_value(&json!({ "goal": goal }));
        let reads = Rc::new(Cell::new(0));
        let counted = Rc::clone(&reads);
        Self {
            reads,
            definition,
            goal,
            responding: Responding::new(Reactions::of(worlds.worlds())),
            frames: Vec::new(),
            memo: ResponderMemo::default(),
            failures: Vec::new(),
            params: Box::new(move || {
                counted.set(counted.get() + 1);
                params()
            }),
            given: Box::new(move || goal_of(&params())),
            env: BTreeMap::new(),
        }
    }

    /// The same run after a restart: nothing but some of its frames is left.
    pub(super) fn restarted(&self, frames: &[Frame]) -> Self {
        let mut again = Self::new(self.definition, self.goal);
        for frame in frames {
            again.take(frame.clone());
        }
        again
    }

    fn context(&self) -> RespondContext<'_> {
        RespondContext {
            worlds: self.definition.worlds().unwrap(),
            params: &self.params,
            goal: &self.given,
            env: &self.env,
            rules: DecisionRules::NEWEST,
            suppresses: false,
        }
    }

    /// Decides until nothing is left to decide.
    pub(super) fn run(&mut self) {
        while self.step() {}
    }

    /// Decides on one thing.
    pub(super) fn step(&mut self) -> bool {
        let mut memo = std::mem::take(&mut self.memo);
        let response = next(self.context(), &self.responding, &mut memo);
        self.memo = memo;
        match response {
            None => return false,
            Some(Response::Frame(draft)) => self.append(*draft),
            Some(Response::Rejected(drafts)) => {
                for draft in *drafts {
                    self.failures.push(draft.event.data().to_string());
                    self.append(draft);
                }
            }
            Some(Response::Failed(draft)) => {
                self.failures.push(draft.event.data().to_string());
                self.append(*draft);
            }
            Some(Response::Announce(task)) => self.announce(&task),
        }
        true
    }

    pub(super) fn append(&mut self, draft: Draft) {
        let link = Link {
            stream: "run:r".parse::<StreamId>().unwrap(),
            seq: self.frames.len() as u64,
            prev: self.frames.last().map_or(Hash::ZERO, |frame| frame.hash),
        };
        let sealed = draft.seal(link, Timestamp::from_micros(0)).unwrap();
        self.take(sealed.frame);
    }

    fn take(&mut self, frame: Frame) {
        if let Event::World(event) = &frame.event {
            let checked = self.responding.check(&frame, event);
            assert_eq!(checked, Ok(()), "{} {}", frame.seq, frame.event.data());
        }
        self.responding.apply(&frame);
        self.frames.push(frame);
    }

    /// Dispatches a task, and records its request as its runtime would.
    fn announce(&mut self, task: &TaskContext) {
        let request = task_request(self.context(), task).unwrap();
        let Some(TaskRequest::Ask(messages)) = request else {
            panic!("{request:?}");
        };
        let messages = messages
            .iter()
            .map(|(role, text)| json!({"role": role, "content": text}));
        let messages = CanonicalJson::from_value(&messages.collect()).unwrap();
        let step = task.address.to_string();
        let dispatched = Event::Worker(WorkerEvent::Dispatched(WorkerDispatched {
            attempt: 1,
            item: None,
            step: step.clone(),
        }));
        let cause = vec![Cause::Here(task.trigger.seq)];
        self.append(draft(Actor::Orchestrator, cause, dispatched));
        self.request(step, messages);
    }

    fn request(&mut self, step: String, messages: CanonicalJson) {
        let cause = vec![Cause::Here(self.frames.len() as u64 - 1)];
        let request = Event::Agent(AgentEvent::Request(LlmRequest {
            attempt: 1,
            base: None,
            digest: String::new(),
            group: "fast".to_owned(),
            item: None,
            max_tokens: 1024,
            messages,
            purpose: Purpose::Turn,
            report: report(1),
            routing: None,
            step,
            temperature_millionths: None,
            tools: None,
        }));
        self.append(draft(Actor::Runtime, cause, request));
    }

    /// Addresses of tasks that have not ended, in order.
    pub(super) fn open_tasks(&self) -> Vec<String> {
        let ended = self.frames.iter().filter_map(|frame| match &frame.event {
            Event::Agent(AgentEvent::Finished(end)) => Some(end.step.clone()),
            _ => None,
        });
        let ended: Vec<String> = ended.collect();
        let tasks = self.responding.tasks();
        let open = tasks.map(|task| task.context.address.to_string());
        open.filter(|address| !ended.contains(address)).collect()
    }

    /// A model answers.
    pub(super) fn reply(&mut self, address: &str, text: &str) {
        let request = self.frames.iter().rev().find(|frame| {
            matches!(&frame.event, Event::Agent(AgentEvent::Request(asked)) if asked.step == address)
        });
        let request = match request.map(|frame| frame.seq) {
            Some(request) => request,
            // It was cut off after its dispatch: asked again.
            None => {
                self.request(address.to_owned(), CanonicalJson::null());
                self.frames.len() as u64 - 1
            }
        };
        let answered = self.frames.iter().any(|frame| {
            matches!(&frame.event, Event::Agent(AgentEvent::Response(one)) if one.step == address)
        });
        if !answered {
            let response = Box::new(response(address, text, request));
            let response = Event::Agent(AgentEvent::Response(response));
            self.append(draft(Actor::Runtime, vec![Cause::Here(request)], response));
        }
        self.finish(address, &json!({"output": text}));
    }

    pub(super) fn finish(&mut self, address: &str, outcome: &Value) {
        let cause = vec![Cause::Here(self.frames.len() as u64 - 1)];
        let finished = Event::Agent(AgentEvent::Finished(Box::new(AgentFinished {
            attempt: 1,
            item: None,
            metrics: None,
            outcome: CanonicalJson::from_value(outcome).unwrap(),
            reason: FinishReason::Completed,
            report: Some(report(2)),
            step: address.to_owned(),
        })));
        self.append(draft(Actor::Runtime, cause, finished));
    }

    /// A person posts an object.
    pub(super) fn post(&mut self, id: &str, kind: &str, data: &Value) {
        let event = WorldEvent::ObjectCreated(ObjectCreated {
            by: Some(person()),
            data: CanonicalJson::from_value(data).unwrap(),
            derived: None,
            id: id.to_owned(),
            key: None,
            kind: kind.to_owned(),
            post: Some(self.next_post()),
        });
        self.append(draft(
            Actor::Principal("ann".to_owned()),
            vec![],
            Event::World(event),
        ));
    }

    /// A person patches an object.
    pub(super) fn post_patch(&mut self, id: &str, patch: &Value) {
        let event = WorldEvent::ObjectPatched(ObjectPatched {
            by: Some(person()),
            derived: None,
            id: id.to_owned(),
            patch: CanonicalJson::from_value(patch).unwrap(),
            post: Some(self.next_post()),
            withheld: CanonicalJson::null(),
        });
        self.append(draft(
            Actor::Principal("ann".to_owned()),
            vec![],
            Event::World(event),
        ));
    }

    fn next_post(&self) -> Post {
        Post {
            digest: "d".to_owned(),
            key: None,
            n: self.responding.next_post(),
        }
    }

    pub(super) fn world(&self) -> &World {
        self.responding.head()
    }

    /// The types of the frames that count.
    pub(super) fn world_frames(&self) -> Vec<&str> {
        let frames = self.frames.iter().filter(|frame| is_world_frame(frame));
        frames.map(|frame| frame.event.kind()).collect()
    }

    /// How many objects there are of a type, and relations.
    pub(super) fn count(&self, kind: &str) -> usize {
        let relations = self.world().relations();
        let relations = relations.iter().filter(|relation| *relation.kind == *kind);
        self.world().count(kind, &[]) + relations.count()
    }
}

fn person() -> Principal {
    Principal {
        auth: "token".to_owned(),
        id: "ann".to_owned(),
    }
}

fn report(n: u32) -> ReportReference {
    ReportReference {
        digest: String::new(),
        n,
    }
}

fn draft(actor: Actor, cause: Vec<Cause>, event: Event) -> Draft {
    Draft {
        scope: String::new(),
        actor,
        cause,
        event,
    }
}

fn response(step: &str, text: &str, request: u64) -> LlmResponse {
    LlmResponse {
        attempt: 1,
        attempts: Vec::new(),
        cached: false,
        content: Some(CanonicalJson::string(text)),
        cost_micro_usd: 1,
        duration_ms: 0,
        error: None,
        input_hash: String::new(),
        item: None,
        model: String::new(),
        output_hash: String::new(),
        prices: String::new(),
        provider: String::new(),
        repeats: None,
        report: Some(report(2)),
        request,
        saved: None,
        step: step.to_owned(),
        tokens_cached: 0,
        tokens_in: 0,
        tokens_out: 0,
        tokens_reasoning: 0,
        tool_calls: None,
        unpriced: false,
    }
}
