//! A run driven by hand: given frames, when an input, then frames. Tests play the webhooks and
//! runtimes, and the recorded history does so after a cut.

pub(super) mod history_tests;
mod tools_tests;

use std::sync::Arc;

use ktsu_ledger::event::plan::{ApprovalPolicy, OnReject, Plan};
use ktsu_ledger::event::{
    AgentDecided, AgentEvent, AgentFinished, ApprovalRequested, CallError, ClaimedMetrics,
    ContinueReason, DoubtReason, Effects, FinishReason, LlmRequest, LlmResponse, LostReason,
    PersonEvent, Principal, Purpose, ReportReference, Role, RunEvent, TimerKind, ToolCalled,
    ToolInDoubt, ToolReturned, UnsentReason, WebhookAnswer, WebhookEvent, WorkerEvent, WorkerLost,
};
use ktsu_ledger::{CanonicalJson, Draft, Event, Frame, StreamId, Timestamp};
use ktsu_projections::envelope::{DetailedRun, EnvelopeDetails, EnvelopeFold};
use ktsu_projections::lineage::item_name;
use ktsu_projections::run::{AgentTask, RunState, StepStatus, Todo};
use serde_json::{Value, json};

use super::admit::report::{ReportAdmission, losses, lost, report};
use super::admit::{self, Invocation, WebhookOutcome};
use super::definition::Definition;
use super::next::{Memo, next};
use super::replay::{Definitions, replay};
use super::timers;
use super::turn::{Turn, accept, apply_report, continuation};
use tools_tests::{argument, names, offered, wants};

/// More frames than any test needs: a run that decides for ever ends here.
const TOO_MANY: usize = 60_000;

/// A run driven by hand.
pub(crate) struct Driven {
    pub(super) definition: Arc<Definition>,
    pub state: RunState,
    /// Noted beside the state, as for a caller who waits.
    pub(super) details: EnvelopeDetails,
    pub(super) memo: Memo,
    pub frames: Vec<Frame>,
    pub(super) now: u64,
}

/// What a runtime says in one event of a report.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Say {
    Ask(Purpose),
    /// A turn, whose model is told of these tools: server and tool.
    Offer(Vec<(&'static str, &'static str)>),
    Reply {
        cost: u64,
    },
    /// A call that has no reply, and cost this all the same.
    NoReply {
        cost: u64,
    },
    Draft(Value),
    /// A reply that asks for these tools, and the decision to call them.
    Wants(Vec<&'static str>),
    /// That decision alone.
    Decide,
    /// A call is about to be sent: its place, the server, the tool.
    Call(u32, String, String),
    /// It was answered.
    Result(u32),
    /// It was answered with an error of the tool.
    Fails(u32),
    /// It was not sent.
    NotSent(u32, UnsentReason),
    /// No answer came.
    Doubt(u32),
    /// A person is to decide on it.
    Gate(u32, String, String),
    End(FinishReason, Value, Option<ClaimedMetrics>),
}

/// An output, as a runtime reports it.
pub(super) fn output(value: Value) -> Say {
    Say::End(FinishReason::Completed, json!({"output": value}), None)
}

/// An error, as a runtime reports it.
pub(super) fn error(code: &str, message: &str) -> Say {
    let outcome = json!({"error": {"code": code, "message": message, "retryable": false}});
    Say::End(FinishReason::Error, outcome, None)
}

/// Scope, step and item of a task's name: `a`, `f.2`, `call/f.2`.
pub(super) fn place(task: &str) -> (String, String, Option<u32>) {
    let (scope, rest) = task.rsplit_once('/').unwrap_or(("", task));
    let (step, item) = match rest.split_once('.') {
        Some(_) if rest.starts_with('@') => (rest, None),
        Some((step, item)) => (step, Some(item.parse().unwrap())),
        None => (rest, None),
    };
    (scope.to_owned(), step.to_owned(), item)
}

impl Driven {
    pub(crate) fn invoke(plan: Value, body: Value) -> Self {
        Self::invoke_under(crate::rules::RULES, plan, body)
    }

    /// A run that records these decision rules.
    pub(super) fn invoke_under(rules: u32, plan: Value, body: Value) -> Self {
        Self::invoke_as(rules, Effects::Execute, plan, body)
    }

    fn invoke_as(rules: u32, effects: Effects, plan: Value, body: Value) -> Self {
        let plan: Plan = serde_json::from_str(&plan.to_string()).unwrap();
        let definition = Arc::new(Definition::compile(plan).unwrap());
        let asked = Invocation {
            body,
            env: Default::default(),
            idempotency: None,
            lock: None,
            effects,
            no_cache: false,
            references: Vec::new(),
            principal: Principal {
                auth: "none".to_owned(),
                id: "local".to_owned(),
            },
        };
        let mut draft = admit::invocation(&definition, asked).unwrap();
        if let Event::Run(RunEvent::Created(created)) = &mut draft.event {
            created.rules = rules;
        }
        Self::begun(definition, "run_test", draft)
    }

    fn begun(definition: Arc<Definition>, name: &str, draft: Draft) -> Self {
        let memo = Memo::default();
        let at = Timestamp::from_micros(1_000_000);
        let stream = StreamId::run(name).unwrap();
        let accepted = accept(&definition, stream, draft, at, &memo);
        let (state, details, turn) = accepted.unwrap();
        let mut driven = Self {
            definition,
            state,
            details,
            memo,
            frames: Vec::new(),
            now: 1_000_000,
        };
        driven.record(turn);
        driven
    }

    fn record(&mut self, turn: Turn) {
        let frames = turn.sealed.into_iter().map(|sealed| sealed.frame);
        self.frames.extend(frames);
        assert!(self.frames.len() < TOO_MANY, "the run decides for ever");
        if turn.more {
            self.input(continuation(&self.state, ContinueReason::Bound));
        } else if self.state.worlds_are_idle() {
            self.input(continuation(&self.state, ContinueReason::Idle));
        } else {
            let more = next(&self.definition, &self.state, &self.memo);
            assert!(more.is_none(), "a turn ended before the fixpoint");
            let stuck = self.state.todo();
            let held = self.state.is_parked() || self.state.paused().is_some();
            let over = self.state.status().is_terminal() || held;
            let waits = matches!(stuck, Some(Todo::End { scope: 0 }))
                && self
                    .state
                    .responding()
                    .is_some_and(|all| all.has_open_tasks() || all.next_timer().is_some());
            assert!(
                over || waits || stuck.is_none(),
                "nothing comes of {stuck:?}"
            );
        }
    }

    pub(super) fn input(&mut self, draft: Draft) {
        self.inputs(vec![draft]);
    }

    pub(super) fn inputs(&mut self, drafts: Vec<Draft>) {
        self.now += 1_000;
        let at = Timestamp::from_micros(self.now);
        let mut run = DetailedRun {
            state: &mut self.state,
            details: &mut self.details,
        };
        let taken = apply_report(&self.definition, &mut run, drafts, at, &self.memo);
        self.record(taken.unwrap());
    }

    pub(crate) fn answer(&mut self, scope: &str, step: &str, sending: u32, status: u16) {
        let answer = WebhookAnswer {
            approval: None,
            attempt: 1,
            code: (status >= 300).then(|| "webhook_status".to_owned()),
            duration_ms: 3,
            response: CanonicalJson::null(),
            sending,
            status: Some(status),
            step: step.to_owned(),
            truncated: false,
        };
        let scope = scope.to_owned();
        let draft = admit::answer(&self.state, WebhookOutcome { scope, answer });
        self.input(draft.expect("the run waits for it"));
    }

    pub(super) fn task(&self, name: &str) -> &AgentTask {
        let (scope, step, item) = place(name);
        let at = self.state.step_at(&scope, &step);
        let task = at.and_then(|at| self.state.task(at, item));
        task.unwrap_or_else(|| panic!("no task {name}"))
    }

    /// The number of the task's next report.
    fn next_report(&self, name: &str) -> u32 {
        1 + self
            .task(name)
            .reports
            .last()
            .map_or(0, |seen| seen.report.n)
    }

    /// The events of a report, as the orchestrator makes them of what a runtime sent.
    pub(super) fn events(&self, name: &str, attempt: u32, n: u32, says: &[Say]) -> Vec<AgentEvent> {
        let (_, step, item) = place(name);
        let task = self.task(name);
        let digest = ktsu_ledger::Hash::of(format!("{says:?}").as_bytes()).to_string();
        let report = ReportReference { digest, n };
        let response = task.calls.as_ref().map_or(0, |calls| calls.response);
        let returned = |response: u64, call: u32, not_sent: Option<UnsentReason>| {
            AgentEvent::ToolReturned(Box::new(ToolReturned {
                attempt,
                call,
                called: None,
                content: CanonicalJson::parse(br#"[{"text":"ok","type":"text"}]"#).unwrap(),
                duration_ms: 2,
                is_error: not_sent.is_some(),
                item,
                not_sent,
                recorded: None,
                report: report.clone(),
                response,
                step: step.clone(),
                structured: None,
            }))
        };
        let asks = |purpose: Purpose, tools: Option<CanonicalJson>| {
            AgentEvent::Request(LlmRequest {
                attempt,
                base: match purpose {
                    Purpose::Turn => task.last_call.as_ref().map(|call| call.seq),
                    Purpose::Repair | Purpose::Reflect => None,
                },
                digest: String::new(),
                group: "std".to_owned(),
                item,
                max_tokens: 100,
                messages: CanonicalJson::parse(br#"[{"role":"user","content":"hi"}]"#).unwrap(),
                purpose,
                report: report.clone(),
                // As the orchestrator has it of every group; whether it counts is for admission to say.
                // All that responders ask is the same here, and is to be asked.
                routing: (!step.starts_with('@')).then(|| "routed".to_owned()),
                step: step.clone(),
                temperature_millionths: None,
                tools,
            })
        };
        let event = |say: &Say| match say.clone() {
            Say::Ask(purpose) => asks(purpose, None),
            Say::Offer(tools) => asks(Purpose::Turn, Some(offered(&tools))),
            Say::Reply { cost } | Say::NoReply { cost } => {
                AgentEvent::Response(Box::new(LlmResponse {
                    attempt,
                    attempts: Vec::new(),
                    cached: false,
                    content: matches!(say, Say::Reply { .. })
                        .then(|| CanonicalJson::string("text")),
                    cost_micro_usd: cost,
                    duration_ms: 7,
                    error: matches!(say, Say::NoReply { .. }).then(|| CallError {
                        code: "internal_error".to_owned(),
                        message: "upstream sent an empty reply".to_owned(),
                        retryable: false,
                    }),
                    input_hash: String::new(),
                    item,
                    model: "m".to_owned(),
                    output_hash: String::new(),
                    prices: String::new(),
                    provider: "scripted".to_owned(),
                    repeats: None,
                    report: Some(report.clone()),
                    request: task.open_call.as_ref().map_or(0, |call| call.seq),
                    saved: None,
                    step: step.clone(),
                    tokens_cached: 0,
                    tokens_in: 10,
                    tokens_out: 5,
                    tokens_reasoning: 0,
                    tool_calls: None,
                    unpriced: false,
                }))
            }
            Say::Decide => AgentEvent::Decided(AgentDecided {
                attempt,
                draft: None,
                item,
                report: report.clone(),
                response: Some(0),
                step: step.clone(),
            }),
            Say::Wants(tools) => AgentEvent::Response(Box::new(wants(
                self.task(name)
                    .open_call
                    .as_ref()
                    .map_or(0, |call| call.seq),
                (attempt, item, &step),
                &report,
                &tools,
            ))),
            Say::Call(call, server, tool) => AgentEvent::ToolCalled(Box::new(ToolCalled {
                again: None,
                approval: None,
                arguments: argument(response, call),
                attempt,
                call,
                digest: String::new(),
                idempotency_key: String::new(),
                item,
                report: report.clone(),
                response,
                server,
                step: step.clone(),
                tool,
            })),
            Say::Gate(call, server, tool) => {
                AgentEvent::ApprovalRequested(Box::new(ApprovalRequested {
                    arguments: argument(response, call),
                    attempt,
                    call,
                    digest: String::new(),
                    item,
                    policy: ApprovalPolicy {
                        not_by_proposer: false,
                        on_reject: OnReject::Fail,
                        quorum: 1,
                        timeout: None,
                    },
                    report: report.clone(),
                    response,
                    server,
                    step: step.clone(),
                    tool,
                }))
            }
            Say::Result(call) => returned(response, call, None),
            Say::Fails(call) => match returned(response, call, None) {
                AgentEvent::ToolReturned(mut returned) => {
                    returned.content =
                        CanonicalJson::parse(br#"[{"text":"no","type":"text"}]"#).unwrap();
                    returned.is_error = true;
                    AgentEvent::ToolReturned(returned)
                }
                other => other,
            },
            Say::NotSent(call, why) => returned(response, call, Some(why)),
            Say::Doubt(call) => AgentEvent::ToolInDoubt(ToolInDoubt {
                attempt,
                called: self.sending(name, call).called,
                item,
                reason: DoubtReason::NoAnswer,
                report: Some(report.clone()),
                step: step.clone(),
            }),
            Say::Draft(draft) => AgentEvent::Decided(AgentDecided {
                attempt,
                draft: Some(CanonicalJson::from_value(&draft).unwrap()),
                item,
                report: report.clone(),
                response: None,
                step: step.clone(),
            }),
            Say::End(reason, outcome, metrics) => AgentEvent::Finished(Box::new(AgentFinished {
                attempt,
                item,
                metrics,
                outcome: CanonicalJson::from_value(&outcome).unwrap(),
                reason,
                report: Some(report.clone()),
                step: step.clone(),
            })),
        };
        let decides = |say: &Say| {
            let wants = matches!(say, Say::Wants(_)) && !says.contains(&Say::Decide);
            wants.then(|| event(&Say::Decide))
        };
        let events = says
            .iter()
            .flat_map(|say| std::iter::once(event(say)).chain(decides(say)));
        events.collect()
    }

    /// Checks a report and takes it, if it is to be taken.
    pub(super) fn reports(
        &mut self,
        name: &str,
        attempt: u32,
        n: u32,
        says: &[Say],
    ) -> ReportAdmission {
        let (scope, ..) = place(name);
        let events = self.events(name, attempt, n, says);
        let judged = report(&self.state, &scope, events, &Default::default());
        if let ReportAdmission::Accepted(drafts) = &judged {
            self.inputs(drafts.clone());
        }
        judged
    }

    /// The next report of a task, which is taken.
    #[track_caller]
    pub(super) fn says(&mut self, name: &str, says: &[Say]) {
        let (attempt, n) = (self.task(name).attempt, self.next_report(name));
        let judged = self.reports(name, attempt, n, says);
        assert!(
            matches!(judged, ReportAdmission::Accepted(_)),
            "{name}: {judged:?}"
        );
    }

    #[track_caller]
    pub(super) fn asks(&mut self, name: &str) {
        self.says(name, &[Say::Ask(Purpose::Turn)]);
    }

    #[track_caller]
    pub(super) fn replies(&mut self, name: &str, cost: u64) {
        self.says(name, &[Say::Reply { cost }]);
    }

    #[track_caller]
    pub(super) fn finishes(&mut self, name: &str, value: Value) {
        self.says(name, &[output(value)]);
    }

    /// A call, its reply and the end with an output.
    #[track_caller]
    pub(super) fn does(&mut self, name: &str, value: Value) {
        self.asks(name);
        self.says(name, &[Say::Reply { cost: 10 }, output(value)]);
    }

    #[track_caller]
    pub(super) fn errs(&mut self, name: &str, code: &str, message: &str) {
        self.says(name, &[error(code, message)]);
    }

    /// The whole task in one `complete`, as a runtime does that reports nothing else.
    #[track_caller]
    pub(super) fn completes(&mut self, name: &str, value: Value, metrics: ClaimedMetrics) {
        self.completes_with(name, json!({"output": value}), metrics);
    }

    #[track_caller]
    pub(super) fn completes_with(&mut self, name: &str, outcome: Value, metrics: ClaimedMetrics) {
        let say = Say::End(FinishReason::Completed, outcome, Some(metrics));
        let judged = self.reports(name, self.task(name).attempt, 0, &[say]);
        assert!(
            matches!(judged, ReportAdmission::Accepted(_)),
            "{name}: {judged:?}"
        );
    }

    /// Whether a loss was news.
    pub(super) fn loses(&mut self, name: &str, reason: LostReason, runtime_alive: bool) -> bool {
        let (scope, step, item) = place(name);
        let news = WorkerLost {
            attempt: self.task(name).attempt,
            item,
            reason,
            runtime_alive,
            step,
        };
        let draft = lost(&self.state, &scope, news);
        draft.map(|draft| self.input(draft)).is_some()
    }

    /// The run's time is over.
    pub(super) fn times_out(&mut self) {
        let Some(deadline) = timers::deadline(&self.state) else {
            return;
        };
        self.now = self.now.max(deadline.as_micros());
        if let Some(draft) = timers::due(&self.state, deadline) {
            self.input(draft);
        }
    }

    pub(super) fn kinds(&self) -> Vec<String> {
        self.kinds_from(0)
    }

    pub(super) fn kinds_from(&self, from: usize) -> Vec<String> {
        self.frames[from..].iter().map(kind).collect()
    }

    pub(super) fn envelope(&self) -> Value {
        self.envelope_of("")
    }

    pub(super) fn envelope_of(&self, path: &str) -> Value {
        let fold = EnvelopeFold::of(&self.frames).unwrap();
        serde_json::to_value(fold.envelope(path).unwrap()).unwrap()
    }

    /// The envelope of the run under way is that of its frames, byte for byte.
    #[track_caller]
    pub(super) fn shows_what_its_frames_show(&self) {
        let fold = EnvelopeFold::of(&self.frames).unwrap();
        let text = |envelope| serde_json::to_string(&Some(envelope)).unwrap();
        let live = self.details.envelope(&self.state);
        assert_eq!(text(live), text(fold.envelope("")));
    }

    /// The envelope's view of a step.
    pub(super) fn step(&self, id: &str) -> Value {
        let (path, id, _) = place(id);
        let envelope = self.envelope_of(&path);
        let steps = envelope["steps"].as_array().unwrap();
        steps.iter().find(|step| step["id"] == *id).unwrap().clone()
    }

    /// The last frame of a type, as data.
    pub(super) fn last(&self, wanted: &str) -> Value {
        let found = self.frames.iter().rfind(|frame| kind(frame) == wanted);
        let found = found.unwrap_or_else(|| panic!("no {wanted} in {:?}", self.kinds()));
        data(found)
    }
}

fn task_name(event: &AgentEvent) -> String {
    item_name(event.step(), event.item())
}

fn join(scope: &str, name: &str) -> String {
    match scope {
        "" => name.to_owned(),
        _ => format!("{scope}/{name}"),
    }
}

/// Type and subject of a frame: `call:item.started f.2`.
pub(super) fn kind(frame: &Frame) -> String {
    let subject = match &frame.event {
        Event::Step(event) => item_name(event.step(), item_of(frame)),
        Event::Webhook(event) => event.step().to_owned(),
        Event::Item(event) => item_name(event.step(), Some(event.item())),
        Event::Agent(event) => item_name(event.step(), event.item()),
        Event::Worker(event) => item_name(event.step(), event.item()),
        _ => String::new(),
    };
    let scope = match frame.scope.as_str() {
        "" => String::new(),
        scope => format!("{scope}:"),
    };
    let text = format!("{scope}{} {subject}", frame.event.kind());
    text.trim_end().to_owned()
}

/// A frame's data.
pub(super) fn data(frame: &Frame) -> Value {
    let record = Draft {
        scope: frame.scope.clone(),
        actor: frame.actor.clone(),
        cause: frame.cause.clone(),
        event: frame.event.clone(),
    };
    let link = ktsu_ledger::frame::Link {
        stream: frame.stream.clone(),
        seq: frame.seq,
        prev: frame.prev,
    };
    let sealed = record.seal(link, frame.at).unwrap();
    let text = sealed.record.to_json_with(&sealed.frame);
    let mut whole: Value = serde_json::from_str(&text).unwrap();
    whole["data"].take()
}

fn item_of(frame: &Frame) -> Option<u32> {
    let item = data(frame)["item"].as_u64()?;
    u32::try_from(item).ok()
}
