//! The frames that are logged and counted, and the members of them that are shown: names, numbers
//! and codes, never a payload.

use ktsu_ledger::event::plan::StepWork;
use ktsu_ledger::event::{
    AgentEvent, ContinueReason, DoubtReason, LostReason, PersonEvent, Principal, RunEvent,
    StepEvent, WebhookEvent, WorkerEvent, WorldEvent,
};
use ktsu_ledger::{Event, Frame, Timestamp};
use ktsu_projections::run::{RunState, RunStatus};
use tracing::Level;

/// The kind of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum StepKind {
    /// An agent reasons.
    Agent,
    /// Data is reshaped.
    Transform,
    /// An endpoint is called.
    Webhook,
    /// A workflow runs inline.
    Workflow,
}

impl StepKind {
    /// All of them.
    pub(super) const ALL: [Self; 4] = [Self::Agent, Self::Transform, Self::Webhook, Self::Workflow];

    /// As labels and log lines have it.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Transform => "transform",
            Self::Webhook => "webhook",
            Self::Workflow => "workflow",
        }
    }
}

/// The outcome of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum StepOutcome {
    /// Well.
    Complete,
    /// Badly.
    Failed,
    /// It did not run.
    Skipped,
}

impl StepOutcome {
    /// All of them.
    pub(super) const ALL: [Self; 3] = [Self::Complete, Self::Failed, Self::Skipped];

    /// As labels and log lines have it.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
        }
    }
}

/// The metrics that count a milestone, together with its fields.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum MilestoneCount {
    /// A step ended that is not a transform; those are counted by the turn. Where its beginning was
    /// not seen, the time it took is not known.
    Step,
    /// A call ended, of this kind and with this outcome. What was never sent took no time.
    Call(&'static str, &'static str),
    /// A model answered.
    Model {
        tokens_cached: u64,
        tokens_reasoning: u64,
    },
}

/// The fields of a log line besides the run.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct MilestoneFields {
    pub(super) step: Option<String>,
    pub(super) item: Option<u32>,
    pub(super) attempt: Option<u32>,
    pub(super) principal: Option<String>,
    pub(super) status: Option<&'static str>,
    pub(super) code: Option<String>,
    pub(super) duration_ms: Option<u64>,
    pub(super) cost_micro_usd: Option<u64>,
    /// The kind of a step.
    pub(super) kind: Option<&'static str>,
    /// The model group.
    pub(super) group: Option<String>,
    /// `server.tool`.
    pub(super) tool: Option<String>,
    pub(super) model: Option<String>,
    pub(super) tokens_in: Option<u64>,
    pub(super) tokens_out: Option<u64>,
    /// Of a webhook: which sending.
    pub(super) sending: Option<u32>,
    /// The status that an endpoint answered with.
    pub(super) http_status: Option<u16>,
}

/// Something that operators hear of.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Milestone {
    pub(super) level: Level,
    pub(super) words: &'static str,
    pub(super) fields: MilestoneFields,
    pub(super) count: Option<MilestoneCount>,
}

/// The end of a run, or of what a person made of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RunEnd {
    pub(super) status: RunStatus,
    pub(super) duration_ms: u64,
    pub(super) cost_micro_usd: u64,
    pub(super) code: Option<String>,
    pub(super) step: Option<String>,
}

impl RunEnd {
    /// The end of a run, if it has ended.
    pub(super) fn of(state: &RunState) -> Option<Self> {
        let root = state.scopes().first()?;
        let ended = root.ended.as_ref()?.at;
        let begun = state.fork().map_or(state.created().at, |fork| fork.at);
        let failing = state
            .failing()
            .filter(|_| state.status() == RunStatus::Failed);
        let step = failing.and_then(|failing| {
            let scope = state.scope(failing.scope)?;
            failing.step.map(|step| scope.path_of(step))
        });
        Some(Self {
            status: state.status(),
            duration_ms: ended.millis_since(begun),
            cost_micro_usd: state.spend().cost_micro_usd,
            code: failing.map(|failing| code(&failing.code)),
            step,
        })
    }

    pub(super) fn milestone(self) -> Milestone {
        let words = match self.status {
            RunStatus::Complete => "run completed",
            RunStatus::Cancelled => "run cancelled",
            _ => "run failed",
        };
        let fields = MilestoneFields {
            step: self.step,
            status: Some(self.status.as_str()),
            code: self.code,
            duration_ms: Some(self.duration_ms),
            cost_micro_usd: Some(self.cost_micro_usd),
            ..MilestoneFields::default()
        };
        info(words, fields)
    }
}

/// The kind of the step that a frame is about.
pub(super) fn step_kind(state: &RunState, scope: &str, step: &str) -> Option<StepKind> {
    let scope = state.scope(state.scope_at(scope)?)?;
    let plan = scope.shape.step(scope.shape.position(step)?)?;
    Some(match plan.work {
        StepWork::Agent(_) => StepKind::Agent,
        StepWork::Transform(_) => StepKind::Transform,
        StepWork::Webhook(_) => StepKind::Webhook,
        StepWork::Workflow(_) => StepKind::Workflow,
    })
}

/// The outcome of a step, if a frame ends one.
pub(super) fn step_end(event: &StepEvent) -> Option<StepOutcome> {
    match event {
        StepEvent::Completed(_) => Some(StepOutcome::Complete),
        StepEvent::Failed(_) => Some(StepOutcome::Failed),
        StepEvent::Skipped(_) => Some(StepOutcome::Skipped),
        _ => None,
    }
}

/// The end of a step that is not a transform.
pub(super) fn step_ended(
    frame: &Frame,
    event: &StepEvent,
    (kind, outcome): (StepKind, StepOutcome),
    begun: Option<Timestamp>,
) -> Milestone {
    let (attempt, code) = match event {
        StepEvent::Completed(completed) => (Some(completed.attempt), None),
        StepEvent::Failed(failed) => (Some(failed.attempt), Some(code(&failed.code))),
        StepEvent::Skipped(skipped) => (None, Some(skipped.reason.as_str().to_owned())),
        _ => (None, None),
    };
    let fields = MilestoneFields {
        attempt,
        code,
        status: Some(outcome.as_str()),
        duration_ms: begun.map(|begun| frame.at.millis_since(begun)),
        kind: Some(kind.as_str()),
        ..at(frame, event.step(), None)
    };
    debug("step ended", fields, Some(MilestoneCount::Step))
}

/// The milestone for operators in a frame; the ends of steps and of the run aside.
pub(super) fn milestone(frame: &Frame) -> Option<Milestone> {
    match &frame.event {
        Event::Run(event) => run(frame, event),
        Event::Recompute(_) => {
            let by = &frame.event.created()?.principal;
            Some(human_action("recompute accepted", by))
        }
        Event::Person(PersonEvent::OverlaySet(set)) => {
            let overlaid = human_action("output overlaid", &set.by);
            Some(of_step(overlaid, frame, &set.step))
        }
        Event::Person(PersonEvent::ReviewDecided(decided)) => {
            let mut milestone = human_action("review decided", &decided.by);
            milestone.fields.status = Some(decided.decision.as_str());
            Some(of_step(milestone, frame, &decided.step))
        }
        Event::Person(PersonEvent::SuspendResumed(resumed)) => {
            let milestone = human_action("step resumed", &resumed.by);
            Some(of_step(milestone, frame, &resumed.step))
        }
        Event::Step(StepEvent::SuspendRequested(asked)) => {
            let fields = at(frame, &asked.step, None);
            Some(info("run waits for data", fields))
        }
        Event::Step(StepEvent::ReviewRequested(asked)) => {
            let fields = at(frame, &asked.step, None);
            Some(info("run waits for a review", fields))
        }
        Event::Agent(event) => agent(frame, event),
        Event::Worker(event) => Some(worker(frame, event)),
        Event::Webhook(event) => Some(webhook(frame, event)),
        Event::World(WorldEvent::BudgetRaised(raised)) => {
            Some(human_action("budget raised", &raised.by))
        }
        Event::Step(_)
        | Event::Item(_)
        | Event::World(_)
        | Event::Kv(_)
        | Event::Delivery(_)
        | Event::Eval(_)
        | Event::Store(_)
        | Event::Foreign { .. } => None,
    }
}

fn run(frame: &Frame, event: &RunEvent) -> Option<Milestone> {
    let plain = |words| info(words, MilestoneFields::default());
    Some(match event {
        RunEvent::Created(created) => human_action("run accepted", &created.principal),
        RunEvent::Branched(branch) => human_action("branch accepted", &branch.by),
        RunEvent::Started(_) if frame.scope.is_empty() => plain("run started"),
        RunEvent::Continued(again) if again.why == ContinueReason::Restart => plain("run resumed"),
        RunEvent::Resumed(resumed) => {
            let milestone = human_action("run resumed", &resumed.by);
            match &resumed.from {
                Some(step) => of_step(milestone, frame, step),
                None => milestone,
            }
        }
        RunEvent::Paused(word) => human_action("run paused: waits for ktsu resume", &word.by),
        RunEvent::Cancelled(word) => human_action("run is being cancelled", &word.by),
        RunEvent::Terminated(word) => human_action("run is being terminated", &word.by),
        // The end of a run is taken from its state, see `RunEnd`.
        _ => return None,
    })
}

fn agent(frame: &Frame, event: &AgentEvent) -> Option<Milestone> {
    let mut fields = at(frame, event.step(), event.item());
    fields.attempt = Some(event.attempt());
    Some(match event {
        AgentEvent::Request(request) => {
            fields.group = Some(name(&request.group));
            debug("model asked", fields, None)
        }
        AgentEvent::Response(response) => {
            fields.code = response.error.as_ref().map(|error| code(&error.code));
            fields.model = Some(name(&response.model));
            fields.duration_ms = Some(response.duration_ms);
            fields.cost_micro_usd = Some(response.cost_micro_usd);
            fields.tokens_in = Some(response.tokens_in);
            fields.tokens_out = Some(response.tokens_out);
            if response.repeats.is_some() {
                return Some(debug("model reply repeated", fields, None));
            }
            let count = MilestoneCount::Model {
                tokens_cached: response.tokens_cached,
                tokens_reasoning: response.tokens_reasoning,
            };
            debug("model answered", fields, Some(count))
        }
        AgentEvent::ToolCalled(called) => {
            fields.tool = Some(tool(&called.server, &called.tool));
            debug("tool called", fields, None)
        }
        AgentEvent::ToolReturned(returned) => {
            let sent = returned.called.is_some();
            let outcome = match (&returned.recorded, sent, returned.is_error) {
                (Some(_), _, _) => "recorded",
                (None, false, _) => "not_sent",
                (None, true, true) => "failed",
                (None, true, false) => "ok",
            };
            fields.status = Some(outcome);
            fields.duration_ms = sent.then_some(returned.duration_ms);
            debug(
                "tool returned",
                fields,
                Some(MilestoneCount::Call("tool", outcome)),
            )
        }
        AgentEvent::ToolInDoubt(doubt) => {
            let reason = match doubt.reason {
                DoubtReason::NoAnswer => "no_answer",
                DoubtReason::WorkerLost => "worker_lost",
                DoubtReason::TaskEnded => "task_ended",
            };
            fields.code = Some(reason.to_owned());
            let mut milestone = info("whether a tool call happened is not known", fields);
            milestone.count = Some(MilestoneCount::Call("tool", "in_doubt"));
            milestone
        }
        AgentEvent::ApprovalRequested(asked) => {
            fields.tool = Some(tool(&asked.server, &asked.tool));
            info("run waits for approval", fields)
        }
        AgentEvent::ApprovalDecided(decided) => {
            fields.status = Some(decided.decision.as_str());
            fields.principal = Some(decided.by.id.clone());
            info("approval decided", fields)
        }
        AgentEvent::ApprovalExpired(_) => info("approval expired", fields),
        AgentEvent::BudgetExhausted(_) => info("the budget is used up", fields),
        AgentEvent::Decided(_) | AgentEvent::ReflectStarted(_) | AgentEvent::Finished(_) => {
            return None;
        }
    })
}

fn worker(frame: &Frame, event: &WorkerEvent) -> Milestone {
    let mut fields = at(frame, event.step(), event.item());
    let words = match event {
        WorkerEvent::Dispatched(sent) => {
            fields.attempt = Some(sent.attempt);
            "task dispatched"
        }
        WorkerEvent::Lost(lost) => {
            fields.attempt = Some(lost.attempt);
            let reason = match lost.reason {
                LostReason::Heartbeat => "heartbeat",
                LostReason::Instance => "instance",
                LostReason::Restart => "restart",
            };
            fields.code = Some(reason.to_owned());
            "worker lost"
        }
    };
    debug(words, fields, None)
}

fn webhook(frame: &Frame, event: &WebhookEvent) -> Milestone {
    let mut fields = at(frame, event.step(), None);
    let (answer, outcome) = match event {
        WebhookEvent::Sent(sent) => {
            fields.attempt = Some(sent.attempt);
            fields.sending = Some(sent.sending);
            return debug("webhook sent", fields, None);
        }
        WebhookEvent::Dead(dead) => {
            fields.attempt = Some(dead.attempt);
            return debug("webhook given up", fields, None);
        }
        WebhookEvent::Delivered(delivered) => (delivered, "ok"),
        WebhookEvent::Failed(failed) => (failed, "failed"),
    };
    let fields = MilestoneFields {
        attempt: Some(answer.attempt),
        sending: Some(answer.sending),
        status: Some(outcome),
        code: answer.code.as_deref().map(code),
        http_status: answer.status,
        duration_ms: Some(answer.duration_ms),
        ..fields
    };
    debug(
        "webhook answered",
        fields,
        Some(MilestoneCount::Call("webhook", outcome)),
    )
}

fn info(words: &'static str, fields: MilestoneFields) -> Milestone {
    Milestone {
        level: Level::INFO,
        words,
        fields,
        count: None,
    }
}

fn debug(words: &'static str, fields: MilestoneFields, count: Option<MilestoneCount>) -> Milestone {
    Milestone {
        level: Level::DEBUG,
        words,
        fields,
        count,
    }
}

/// The milestone of a person's action on a run.
pub(super) fn human_action(words: &'static str, by: &Principal) -> Milestone {
    let fields = MilestoneFields {
        principal: Some(by.id.clone()),
        ..MilestoneFields::default()
    };
    info(words, fields)
}

fn of_step(mut milestone: Milestone, frame: &Frame, step: &str) -> Milestone {
    milestone.fields.step = Some(path(frame, step));
    milestone
}

fn at(frame: &Frame, step: &str, item: Option<u32>) -> MilestoneFields {
    MilestoneFields {
        step: Some(path(frame, step)),
        item,
        ..MilestoneFields::default()
    }
}

fn path(frame: &Frame, step: &str) -> String {
    match frame.scope.is_empty() {
        true => step.to_owned(),
        false => format!("{}/{step}", frame.scope),
    }
}

fn tool(server: &str, tool: &str) -> String {
    format!("{}.{}", name(server), name(tool))
}

/// The most bytes of a code.
const MAX_CODE: usize = 64;
/// The most bytes of a name.
const MAX_NAME: usize = 128;

/// A name as it is shown. Those of brought definitions, and of workers elsewhere, are whatever
/// somebody wrote, and are not shown unless they look like one.
pub(super) fn name(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-:/@".contains(&byte);
    shown(name, MAX_NAME, plain)
}

/// A code as it is shown: those of workers elsewhere are whatever they send, and are not shown
/// unless they look like one.
pub(super) fn code(code: &str) -> String {
    let plain = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'.' | b'-');
    shown(code, MAX_CODE, plain)
}

fn shown(text: &str, most: usize, plain: impl Fn(u8) -> bool) -> String {
    match !text.is_empty() && text.len() <= most && text.bytes().all(plain) {
        true => text.to_owned(),
        false => "other".to_owned(),
    }
}

#[cfg(test)]
#[path = "milestone_tests.rs"]
mod tests;
