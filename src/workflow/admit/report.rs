//! Checks what runtimes report about their tasks. The result is the frames of one input, the answer
//! to an earlier identical report, a wait, or a refusal that writes nothing (decisions F4, W1-W3).

use ktsu_ledger::event::{
    AgentEvent, BudgetExhausted, FinishReason, LlmRequest, LlmResponse, LostReason, WorkerEvent,
    WorkerLost,
};
use ktsu_ledger::{Actor, CanonicalJson, Cause, Draft, Event, Timestamp};
use ktsu_projections::run::{
    Affordability, AgentTask, GroupPrices, Hint, RunState, StepKey, StepStatus, TaskId, steer,
};
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::tools;
use crate::effects::tasks_due;
use crate::timers;

/// The most bytes of a name: a frame keeps names whole.
const MAX_NAME: usize = 256;

/// The decision about a report.
#[derive(Debug)]
pub enum ReportAdmission {
    /// It is to be recorded, as one input.
    Accepted(Vec<Draft>),
    /// It asks for a model call that has to wait for others, since they may use the budget up, or
    /// since one of them is identical and its reply may answer this one; or the run is paused.
    Deferred(Vec<AgentEvent>),
    /// It was taken before, with these frames.
    Repeated {
        /// The first.
        first: u64,
        /// The last.
        last: u64,
    },
    /// The task is not waiting for it: another attempt, an end, other bytes under a used number.
    Stale,
    /// It does not follow from what was reported before.
    Malformed(String),
}

/// Checks a report about a task: events of one step, item, attempt and report, not empty.
///
/// A request for a model call stands alone, since it may have to wait (decision F4); a draft stands
/// last, since what follows depends on the answer (decision R2).
///
/// `prices` are those of model groups, where they are known: what calls under way reserve of the budget
/// of a world.
pub fn report(
    state: &RunState,
    scope: &str,
    mut events: Vec<AgentEvent>,
    prices: &GroupPrices,
) -> ReportAdmission {
    let Some(first) = events.first() else {
        return ReportAdmission::Malformed("a report has at least one event".to_owned());
    };
    let Some((place, task, running)) = task_of(state, scope, first.step(), first.item()) else {
        return repeated(state, first).unwrap_or(ReportAdmission::Stale);
    };
    let about = |event: &AgentEvent| {
        let report = event.report().cloned();
        (
            event.step().to_owned(),
            event.item(),
            event.attempt(),
            report,
        )
    };
    let subject = about(first);
    if events.iter().any(|event| about(event) != subject) {
        let words = "a report is about one task, and each of its events says so";
        return ReportAdmission::Malformed(words.to_owned());
    }
    if let Some(name) = events.iter().find_map(overlong) {
        return ReportAdmission::Malformed(format!("{name} is longer than {MAX_NAME} bytes"));
    }
    let Some(said) = first.report().filter(|_| first.attempt() == task.attempt) else {
        return ReportAdmission::Stale;
    };
    if let Some(seen) = task.accepted_report(said.n) {
        // What is said outside of reports has no number to tell a repetition by.
        return match seen.report == *said && said.n > 0 {
            true => ReportAdmission::Repeated {
                first: seen.first,
                last: seen.last,
            },
            false => ReportAdmission::Stale,
        };
    }
    if !running || !task.is_live() || state.failing().is_some() {
        return ReportAdmission::Stale;
    }
    let asks = |event: &AgentEvent| matches!(event, AgentEvent::Request(_));
    if events.len() > 1 && events.iter().any(asks) {
        let words = "a report with an llm.request carries nothing else";
        return ReportAdmission::Malformed(words.to_owned());
    }
    let drafts = |event: &AgentEvent| matches!(event, AgentEvent::Decided(decided) if decided.draft.is_some());
    let before = events.split_last().map_or(&[][..], |(_, before)| before);
    if before.iter().any(drafts) {
        let words = "an agent.decided is the last of its report: its answer says how to go on";
        return ReportAdmission::Malformed(words.to_owned());
    }
    if let [AgentEvent::Request(request)] = events.as_mut_slice() {
        prepare_for_cache(state, place, task, request);
    }
    if let Some(AgentEvent::Request(asked)) = events.first().filter(|asked| task.accepts(asked)) {
        match allowance(state, asked, prices) {
            Affordability::Affordable => {}
            Affordability::Held => return ReportAdmission::Deferred(events),
            Affordability::Refused => {
                events = vec![AgentEvent::BudgetExhausted(exhausted(state, asked))];
            }
        }
    }
    // Nothing starts while the run is paused (decision P1).
    if state.paused().is_some() && events.iter().any(steer::is_agent_request) {
        return match accept(state, scope, place, task, events.clone()) {
            ReportAdmission::Accepted(_) => ReportAdmission::Deferred(events),
            refused => refused,
        };
    }
    accept(state, scope, place, task, events)
}

/// A report about a question of a responder that has ended, if it was taken before.
fn repeated(state: &RunState, first: &AgentEvent) -> Option<ReportAdmission> {
    let said = first.report().filter(|said| said.n > 0)?;
    let seen = state.ended_report(first.step(), first.attempt(), said.n)?;
    (seen.report == *said).then_some(ReportAdmission::Repeated {
        first: seen.first,
        last: seen.last,
    })
}

/// Leaves to a request what the shell says of its routing only where an earlier reply may answer it;
/// its digest is known then.
fn prepare_for_cache(state: &RunState, step: StepKey, task: &AgentTask, request: &mut LlmRequest) {
    let item = request.item;
    let at = TaskId { step, item };
    request.routing.take_if(|_| !state.task_repeats_replies(at));
    if request.routing.is_some()
        && let Ok(digest) = request_digest(request, task)
    {
        request.digest = digest;
    }
}

/// Decides whether a model call may be made. One that an earlier reply answers costs nothing; one
/// that is identical to a call under way waits for that reply.
fn allowance(state: &RunState, request: &LlmRequest, prices: &GroupPrices) -> Affordability {
    if state.has_reply(request) {
        return Affordability::Affordable;
    }
    if state.awaits_reply(request) {
        return Affordability::Held;
    }
    match state.affords_a_call() {
        Affordability::Affordable => state.world_affords_a_call(prices),
        held_or_refused @ (Affordability::Held | Affordability::Refused) => held_or_refused,
    }
}

/// Returns `true` if a report says that the time of its task is over. Deadlines are the
/// orchestrator's to judge (decisions F3, P1), and a runtime elsewhere may not have heard yet that
/// they moved.
pub fn claims_timeout(events: &[AgentEvent]) -> bool {
    let late = |event: &AgentEvent| matches!(event, AgentEvent::Finished(end) if end.reason == FinishReason::Timeout);
    events.iter().any(late)
}

/// Returns `true` if the run's time is not over: it is paused, or its deadline is still to come.
/// Then a report that claims a timeout is not accepted: its task is treated as one that no runtime
/// works on any more.
pub fn has_time(state: &RunState, now: Timestamp) -> bool {
    state.paused().is_some() || timers::deadline(state).is_some_and(|until| until > now)
}

/// Puts the events into the form of frames, if each follows from the one before.
fn accept(
    state: &RunState,
    scope: &str,
    at: StepKey,
    task: &AgentTask,
    events: Vec<AgentEvent>,
) -> ReportAdmission {
    let servers = state.servers(at);
    let mut after = task.with_last_report_only();
    let mut drafts = Vec::with_capacity(events.len());
    for (seq, mut event) in (state.next_seq()..).zip(events) {
        if state.suppresses_tools()
            && let Some(words) = tools::lasting_change(&event, servers)
        {
            return ReportAdmission::Malformed(words);
        }
        let filled = tools::fill(&mut event, state.stream(), seq, &after, servers);
        if let Err(words) = filled.and_then(|()| fill_hashes(&mut event, &after, task)) {
            return ReportAdmission::Malformed(words);
        }
        // A reply and the decision that follows from it may go in one report.
        if let AgentEvent::Decided(decided) = &mut event
            && let Some(calls) = after.calls.as_ref().filter(|_| decided.draft.is_none())
        {
            decided.response = Some(calls.response);
        }
        if !after.accepts(&event) {
            let name = Event::Agent(event);
            let words = format!(
                "{} does not follow from what was reported before",
                name.kind()
            );
            return ReportAdmission::Malformed(words);
        }
        let cause = causes_of(&event, &after);
        after.apply(seq, state.at(), &event, Hint::default());
        drafts.push(Draft {
            scope: scope.to_owned(),
            actor: Actor::Runtime,
            cause,
            event: Event::Agent(event),
        });
    }
    ReportAdmission::Accepted(drafts)
}

/// The causes of a frame: the one that it follows from, and the recorded result that it repeats, if
/// this ledger holds it.
fn causes_of(event: &AgentEvent, after: &AgentTask) -> Vec<Cause> {
    let mut causes = vec![Cause::Here(cause_of(event, after.last))];
    let known = after
        .recorded_results
        .as_ref()
        .is_some_and(|record| record.of.is_some());
    if let AgentEvent::ToolReturned(returned) = event
        && let Some(at) = returned.recorded.as_ref().filter(|_| known)
    {
        let there = at.stream.parse().ok();
        causes.extend(there.map(|stream| Cause::There(stream, at.seq)));
    }
    causes
}

/// The cause of a frame: for a call the reply that asked for it, for a result its call.
fn cause_of(event: &AgentEvent, last: u64) -> u64 {
    if let AgentEvent::ToolCalled(called) = event {
        called.approval.unwrap_or(called.response)
    } else if let AgentEvent::ToolReturned(returned) = event {
        returned.called.unwrap_or(returned.response)
    } else if let AgentEvent::ToolInDoubt(doubt) = event {
        doubt.called
    } else if let AgentEvent::ApprovalRequested(asked) = event {
        asked.response
    } else {
        last
    }
}

/// The name that is too long, if one is.
fn overlong(event: &AgentEvent) -> Option<&'static str> {
    let names = match event {
        AgentEvent::Request(request) => vec![("group", &request.group)],
        AgentEvent::Response(answer) => {
            let attempts = answer.attempts.iter();
            let attempts =
                attempts.flat_map(|one| [("model", &one.model), ("status", &one.status)]);
            let own = [
                ("model", &answer.model),
                ("prices", &answer.prices),
                ("provider", &answer.provider),
            ];
            own.into_iter().chain(attempts).collect()
        }
        AgentEvent::ToolCalled(called) => vec![("server", &called.server), ("tool", &called.tool)],
        AgentEvent::ApprovalRequested(asked) => {
            vec![("server", &asked.server), ("tool", &asked.tool)]
        }
        _ => Vec::new(),
    };
    let mut names = names.into_iter();
    names.find_map(|(name, text)| (text.len() > MAX_NAME).then_some(name))
}

fn task_of<'a>(
    state: &'a RunState,
    scope: &str,
    step: &str,
    item: Option<u32>,
) -> Option<(StepKey, &'a AgentTask, bool)> {
    let at = state.step_at(scope, step)?;
    let running = state.step(at)?.status == StepStatus::Running;
    Some((at, state.task(at, item)?, running))
}

/// The refusal of a request, which is recorded in its place.
fn exhausted(state: &RunState, asked: &LlmRequest) -> BudgetExhausted {
    let cost_micro_usd = state.spend().cost_micro_usd;
    let of_workflow = state.budget().filter(|limit| cost_micro_usd >= *limit);
    let limit = of_workflow.or_else(|| state.world_cost_limit());
    BudgetExhausted {
        attempt: asked.attempt,
        cost_micro_usd,
        item: asked.item,
        limit_micro_usd: limit.unwrap_or_default(),
        report: asked.report.clone(),
        step: asked.step.clone(),
    }
}

/// Fills in what identifies a request and its reply across systems (decisions F7, W6).
///
/// # Errors
/// A request that names what is no part of its task.
fn fill_hashes(event: &mut AgentEvent, after: &AgentTask, task: &AgentTask) -> Result<(), String> {
    match event {
        AgentEvent::Request(request) => request.digest = request_digest(request, task)?,
        AgentEvent::Response(answer) => {
            let open = after.open_call.as_ref();
            answer.input_hash = open.map_or_else(String::new, |call| call.digest.clone());
            answer.output_hash = output_hash(answer);
        }
        _ => {}
    }
    Ok(())
}

/// SHA-256 over the request as canonical JSON; a base stands in it as its digest, and so does
/// whatever is named by its frame.
fn request_digest(request: &LlmRequest, task: &AgentTask) -> Result<String, String> {
    let mut whole = json!({
        "group": request.group,
        "max_tokens": request.max_tokens,
        "messages": tools::resolved(&request.messages.to_value(), task)?,
    });
    if let Some(temperature) = request.temperature_millionths {
        whole["temperature_millionths"] = json!(temperature);
    }
    if let Some(tools) = &request.tools {
        whole["tools"] = tools.to_value();
    }
    if let Some(base) = task.last_call.as_ref().filter(|_| request.base.is_some()) {
        whole["base"] = json!(base.digest);
    }
    Ok(sha256(
        &CanonicalJson::from_value(&whole).unwrap_or_default(),
    ))
}

fn output_hash(answer: &LlmResponse) -> String {
    let content = answer.content.clone().unwrap_or_default();
    let Some(calls) = &answer.tool_calls else {
        return sha256(&content);
    };
    let whole = json!({"content": content.to_value(), "tool_calls": calls.to_value()});
    sha256(&CanonicalJson::from_value(&whole).unwrap_or_default())
}

/// SHA-256 of canonical JSON, as it is written across systems.
pub fn sha256(json: &CanonicalJson) -> String {
    let mut text = "sha256:".to_owned();
    for byte in Sha256::digest(json.as_str().as_bytes()) {
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

/// Checks that a task's worker is lost: dropped if the task has moved on.
pub fn lost(state: &RunState, scope: &str, lost: WorkerLost) -> Option<Draft> {
    let (_, task, running) = task_of(state, scope, &lost.step, lost.item)?;
    let current = running && task.is_live() && task.attempt == lost.attempt;
    (current && state.failing().is_none() && !state.status().is_terminal()).then(|| Draft {
        scope: scope.to_owned(),
        actor: Actor::Orchestrator,
        cause: vec![Cause::Here(task.last)],
        event: Event::Worker(WorkerEvent::Lost(lost)),
    })
}

/// The losses that a restart means for work that was done within the process, each with its scope.
pub fn losses(state: &RunState) -> Vec<(String, WorkerLost)> {
    let lost = |at: TaskId| {
        let held = state.scope_of(at.step)?;
        let task = state.task(at.step, at.item)?;
        let lost = WorkerLost {
            attempt: task.attempt,
            item: at.item,
            reason: LostReason::Restart,
            runtime_alive: true,
            step: state.step_id(at.step)?.to_owned(),
        };
        Some((held.path.clone(), lost))
    };
    tasks_due(state).filter_map(lost).collect()
}
