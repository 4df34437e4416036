//! The recorded tasks of a run's agents: the input of each, and how it ended.

use std::collections::{BTreeMap, HashMap};

use ktsu_codes::ErrorCode;
use ktsu_ledger::event::plan::world::WorldBudget;
use ktsu_ledger::event::plan::{AgentPlan, Plan, StepPlan, StepWork};
use ktsu_ledger::event::{
    AgentEvent, EnvValue, ItemEvent, RecomputeOf, Reference, RunEvent, SkipReason, StepEvent,
    StepInput, Violation, WorkerEvent,
};
use ktsu_ledger::{CanonicalJson, Event, Frame, StreamId, Timestamp};
use ktsu_projections::life::reserved::is_reserved;
use ktsu_projections::run::{FoldError, PlanError, RunState};
use ktsu_projections::step_name::path_in;
use serde_json::{Map, Value};

use super::asks::{RecordedAsk, recorded_asks};
use super::results::RecordedCalls;
use super::task_end::TaskEnd;
use crate::outcome::WAITS_FOR_DATA;

/// The record of a run's agents.
#[derive(Debug)]
pub struct RecordedRun {
    /// The stream.
    pub stream: StreamId,
    /// The number of its last frame.
    pub last: u64,
    /// The hash of its last frame.
    pub head: String,
    /// The definition that holds at the end.
    pub plan: Plan,
    /// The workflow's name.
    pub workflow: String,
    /// The workflow's version.
    pub version: String,
    /// The number of its decision rules.
    pub rules: u32,
    /// Its params.
    pub params: CanonicalJson,
    /// Values of environment variables, as far as a ledger may know them.
    pub env: BTreeMap<String, EnvValue>,
    /// For a recompute of a run: which.
    pub of: Option<RecomputeOf>,
    /// Names that stand for something of it alone.
    pub references: Vec<String>,
    /// By step and item, in the order they began.
    pub tasks: Vec<RecordedTask>,
    /// The questions that its responders asked, in the order in which they asked.
    pub asks: Vec<RecordedAsk>,
    /// The limits of its worlds, if it loads any.
    pub world_budget: Option<WorldBudget>,
}

/// One task of an agent.
#[derive(Debug, Clone)]
pub struct RecordedTask {
    /// The scope's path.
    pub scope: String,
    /// The step, as its workflow declares it.
    pub step: StepPlan,
    /// The plan of its agent.
    pub agent: AgentPlan,
    /// The step by whose definition it ran, if its step was resumed to another.
    pub resume_step: Option<String>,
    /// The item of a fan-out.
    pub item: Option<u32>,
    /// Its params by JSON pointer, as far as an expression made them; nothing where the value stays
    /// a template because it is a secret.
    pub given: BTreeMap<String, Option<Value>>,
    /// True if a runtime was asked.
    pub dispatched: bool,
    /// True if a model's reply is recorded.
    pub called: bool,
    /// Its calls of tools.
    pub calls: RecordedCalls,
    /// The commands that its agent gave besides its output.
    pub commands: Vec<Value>,
    /// The end of the task, if it has one.
    pub end: Option<TaskEnd>,
    /// The time at which it ended.
    pub ended_at: Option<Timestamp>,
    /// The `retryable` of its error, if it has one: true if it may succeed another time.
    pub retryable: Option<bool>,
    violations: Vec<Violation>,
}

/// The commands of an outcome.
fn commands(outcome: &CanonicalJson) -> Vec<Value> {
    // Most have none, and reading one takes time.
    let has = outcome.as_str().contains("\"commands\"");
    match has.then(|| outcome.pointer("/commands")).flatten() {
        Some(Value::Array(commands)) => commands,
        Some(_) | None => Vec::new(),
    }
}

impl RecordedTask {
    /// The path of the step from the run: `call/inner`.
    pub fn path(&self) -> String {
        path_in(&self.scope, &self.step.id)
    }

    /// The path of the step by whose definition it ran.
    pub fn definition_path(&self) -> String {
        let own = self.step.id.as_str();
        path_in(&self.scope, self.resume_step.as_deref().unwrap_or(own))
    }

    /// The params as the agent got them; what resolves through a secret as its template.
    pub fn input(&self) -> Value {
        let params = self.agent.params.as_ref().map(CanonicalJson::to_value);
        let mut params = params.unwrap_or_else(|| Value::Object(Map::new()));
        for (pointer, value) in &self.given {
            if let (Some(place), Some(value)) = (params.pointer_mut(pointer), value) {
                *place = value.clone();
            }
        }
        params
    }
}

/// The beginning of the places of params among a step's inputs.
const PARAMS: &str = "/params";

impl RecordedRun {
    /// Reads the frames of a run, or of a recompute, blobs put back.
    ///
    /// # Errors
    /// [`FoldError`].
    pub fn from_frames(frames: &[Frame]) -> Result<Self, FoldError> {
        let state = RunState::fold(frames)?;
        let (first, last) = match (frames.first(), frames.last()) {
            (Some(first), Some(last)) => (first, last),
            _ => return Err(FoldError::Empty),
        };
        let mut newest = frames.iter().rev();
        let brought = newest.find_map(|frame| frame.event.definition());
        let (definition, _) = brought.ok_or(FoldError::Empty)?;
        let plan = serde_json::from_str(definition.as_str());
        let plan: Plan =
            plan.map_err(|error| FoldError::Plan(PlanError::Unreadable(error.to_string())))?;
        let root = plan.workflows.get(&plan.root);
        let created = state.created();
        let mut walk = RecordedRunFold {
            state: &state,
            frames: frames.iter().map(|frame| (frame.seq, frame)).collect(),
            data: HashMap::new(),
            scopes: HashMap::from([(String::new(), plan.root.clone())]),
            plan: &plan,
            tasks: Vec::new(),
            at: first.at,
        };
        for frame in frames {
            walk.take(frame);
        }
        let asks = match state.responding() {
            Some(_) => recorded_asks(frames)?,
            None => Vec::new(),
        };
        Ok(Self {
            stream: last.stream.clone(),
            last: last.seq,
            head: last.hash.to_string(),
            tasks: walk.tasks,
            asks,
            world_budget: state.world_budget(),
            workflow: root.map(|root| root.name.clone()).unwrap_or_default(),
            version: root.map(|root| root.version.clone()).unwrap_or_default(),
            rules: state.rules(),
            params: created.params.clone(),
            env: created.env.clone(),
            references: created.references.clone(),
            of: created.of.clone(),
            plan: plan.clone(),
        })
    }

    /// The tasks that ended after somebody had worked on them: what can be asked for again.
    pub fn ended(&self) -> impl Iterator<Item = &RecordedTask> {
        let tasks = self.tasks.iter();
        tasks.filter(|task| task.dispatched && task.end.is_some())
    }

    /// The questions that were answered, or failed: what can be asked again.
    pub fn ended_asks(&self) -> impl Iterator<Item = &RecordedAsk> {
        self.asks.iter().filter(|ask| ask.end.is_some())
    }
}

struct RecordedRunFold<'a> {
    state: &'a RunState,
    frames: HashMap<u64, &'a Frame>,
    data: HashMap<u64, Value>,
    /// The workflow that runs in each scope.
    scopes: HashMap<String, String>,
    plan: &'a Plan,
    tasks: Vec<RecordedTask>,
    /// The moment of the frame that is being taken.
    at: Timestamp,
}

impl RecordedRunFold<'_> {
    fn take(&mut self, frame: &Frame) {
        self.at = frame.at;
        if let Event::Run(RunEvent::Started(started)) = &frame.event {
            if let Some(plan) = &started.plan {
                self.scopes.insert(frame.scope.clone(), plan.clone());
            }
        } else if let Event::Step(event) = &frame.event {
            self.take_step(&frame.scope, event);
        } else if let Event::Item(event) = &frame.event {
            self.take_item(&frame.scope, event);
        } else if let Event::Worker(WorkerEvent::Dispatched(sent)) = &frame.event {
            if let Some(task) = self.find(&frame.scope, &sent.step, sent.item) {
                task.dispatched = true;
            }
        } else if let Event::Agent(event) = &frame.event {
            self.take_agent(frame, event);
        }
    }

    fn take_agent(&mut self, frame: &Frame, event: &AgentEvent) {
        let plan = self.plan;
        let Some(task) = self.find(&frame.scope, event.step(), event.item()) else {
            return;
        };
        task.called |= matches!(event, AgentEvent::Response(_));
        if let AgentEvent::Finished(finished) = event {
            let said = finished.outcome.pointer("/error/retryable");
            task.retryable = said.and_then(|said| said.as_bool());
            task.commands = commands(&finished.outcome);
        }
        let file = plan.agents.get(&task.agent.file);
        let servers = file.map_or(&[][..], |file| file.servers.as_slice());
        task.calls.apply(frame, event, servers);
    }

    fn take_step(&mut self, scope: &str, event: &StepEvent) {
        let step = event.step();
        match event {
            StepEvent::Started(started) => {
                // A step that starts again starts afresh.
                self.forget(scope, step);
                if started.items.is_none() {
                    self.begin(
                        (scope, step),
                        None,
                        &started.input,
                        started.resume_step.as_deref(),
                    );
                }
            }
            StepEvent::OutputChecked(checked) => {
                let violations = checked.errors.clone();
                if let Some(task) = self.find(scope, step, checked.item) {
                    task.violations = violations;
                }
            }
            StepEvent::Completed(done) => {
                let output = done.output.as_ref().map(CanonicalJson::to_value);
                let output = output.or_else(|| self.output(done.output_from.as_ref()?));
                self.end(scope, step, None, output.map(TaskEnd::Output));
            }
            StepEvent::Failed(failed) => {
                let end = match is_refused_by_review(&failed.code) {
                    false if has_no_data(&failed.code) => Some(without_data()),
                    // The agent gave it; a recompute asks no one.
                    true => failed
                        .raw_from
                        .as_ref()
                        .and_then(|place| self.output(place))
                        .map(TaskEnd::Output),
                    false => {
                        let raw = failed.raw.as_ref().map(CanonicalJson::to_value);
                        let raw = raw.or_else(|| self.value(failed.raw_from.as_ref()?));
                        self.failed(scope, step, None, &failed.code, &failed.message, raw)
                    }
                };
                self.end(scope, step, None, end);
            }
            StepEvent::Skipped(skipped) if skipped.reason == SkipReason::AgentSkipped => {
                let words = skipped.detail.clone().unwrap_or_default();
                self.end(scope, step, None, Some(TaskEnd::Skipped(words)));
            }
            // A person took back what it came to: there is nothing until it starts again.
            StepEvent::Reset(_) => self.forget(scope, step),
            StepEvent::Skipped(_)
            | StepEvent::ReservedEvaluated(_)
            | StepEvent::Noted(_)
            | StepEvent::Commanded(_)
            | StepEvent::CommandCompleted(_)
            | StepEvent::CommandsDeferred(_)
            | StepEvent::CommandsDiscarded(_)
            | StepEvent::ReviewRequested(_)
            | StepEvent::SuspendRequested(_) => {}
        }
    }

    fn take_item(&mut self, scope: &str, event: &ItemEvent) {
        let (step, item) = (event.step(), Some(event.item()));
        match event {
            ItemEvent::Started(started) => self.begin((scope, step), item, &started.input, None),
            ItemEvent::Completed(done) => {
                let output = done.output_from.as_ref();
                let output = output
                    .and_then(|place| self.output(place))
                    .map(TaskEnd::Output);
                let skipped = done.skipped.clone().map(TaskEnd::Skipped);
                self.end(scope, step, item, skipped.or(output));
            }
            ItemEvent::Failed(failed) => {
                let raw = failed.raw.as_ref().map(CanonicalJson::to_value);
                let raw = raw.or_else(|| self.value(failed.raw_from.as_ref()?));
                let end = match has_no_data(&failed.code) {
                    true => Some(without_data()),
                    false => self.failed(scope, step, item, &failed.code, &failed.message, raw),
                };
                self.end(scope, step, item, end);
            }
        }
    }

    fn forget(&mut self, scope: &str, step: &str) {
        self.tasks
            .retain(|task| task.scope != scope || task.step.id != step);
    }

    fn begin(
        &mut self,
        (scope, step): (&str, &str),
        item: Option<u32>,
        input: &BTreeMap<String, StepInput>,
        resume_step: Option<&str>,
    ) {
        let workflow = self.scopes.get(scope);
        let workflow = workflow.and_then(|key| self.plan.workflows.get(key));
        let named = |id: &str| workflow.and_then(|one| one.steps.iter().find(|one| one.id == id));
        let acting = named(resume_step.unwrap_or(step)).map(|acting| &acting.work);
        let (Some(plan), Some(StepWork::Agent(agent))) = (named(step), acting) else {
            return;
        };
        let mut given = BTreeMap::new();
        for (pointer, one) in input {
            if let Some(pointer) = pointer.strip_prefix(PARAMS) {
                let value = match one {
                    StepInput::Ref(place) => Some(self.value(place).unwrap_or_default()),
                    StepInput::Value { value, .. } => Some(value.to_value()),
                    StepInput::Template(_) => None,
                };
                given.insert(pointer.to_owned(), value);
            }
        }
        self.tasks.push(RecordedTask {
            scope: scope.to_owned(),
            step: plan.clone(),
            agent: agent.clone(),
            resume_step: resume_step.map(str::to_owned),
            item,
            given,
            dispatched: false,
            called: false,
            calls: RecordedCalls::default(),
            commands: Vec::new(),
            end: None,
            ended_at: None,
            retryable: None,
            violations: Vec::new(),
        });
    }

    fn find(&mut self, scope: &str, step: &str, item: Option<u32>) -> Option<&mut RecordedTask> {
        // Whoever is asked for began lately.
        let mut tasks = self.tasks.iter_mut().rev();
        tasks.find(|task| task.item == item && task.step.id == step && task.scope == scope)
    }

    fn end(&mut self, scope: &str, step: &str, item: Option<u32>, end: Option<TaskEnd>) {
        let at = self.at;
        if let Some(task) = self.find(scope, step, item) {
            task.end = end;
            task.ended_at = Some(at);
        }
    }

    fn failed(
        &mut self,
        scope: &str,
        step: &str,
        item: Option<u32>,
        code: &str,
        message: &str,
        raw: Option<Value>,
    ) -> Option<TaskEnd> {
        let task = self.find(scope, step, item);
        let violations = task.map(|task| task.violations.clone());
        Some(TaskEnd::Failed {
            code: code.to_owned(),
            message: message.to_owned(),
            raw,
            violations: violations.unwrap_or_default(),
        })
    }

    /// An agent's output without its reserved fields.
    fn output(&mut self, place: &Reference) -> Option<Value> {
        let mut value = self.value(place)?;
        if let Some(members) = value.as_object_mut() {
            members.retain(|name, _| !is_reserved(name));
        }
        Some(value)
    }

    /// The value at a place. Outputs first, as steps see them: of a fan-out no frame holds it.
    fn value(&mut self, place: &Reference) -> Option<Value> {
        if let Some(value) = self.state.value_at(place) {
            return Some(value);
        }
        let data = match self.data.get(&place.frame) {
            Some(data) => data,
            None => {
                let data = self.frames.get(&place.frame)?.event.data();
                self.data.entry(place.frame).or_insert(data)
            }
        };
        data.pointer(&place.path).cloned()
    }
}

/// Returns `true` if a step, or a task of a recompute, failed because it asked for data and got
/// none.
fn has_no_data(code: &str) -> bool {
    let codes = [ErrorCode::SuspendTimedOut, ErrorCode::StepSuspended];
    codes.iter().any(|waited| waited.as_str() == code)
}

/// The end of what asked for data: no output, in the run as in its recompute.
fn without_data() -> TaskEnd {
    TaskEnd::Skipped(WAITS_FOR_DATA.to_owned())
}

/// Returns `true` if a step failed because its outcome was not approved.
fn is_refused_by_review(code: &str) -> bool {
    let codes = [ErrorCode::ReviewRejected, ErrorCode::ReviewTimedOut];
    codes.iter().any(|refused| refused.as_str() == code)
}
