//! Facts about tool calls that follow from the definition and the state, whatever the reporter
//! says: digests, idempotency keys, approvals, policies (seed 000, invariants 4 and 34; decisions
//! A1, A4); and, in a recompute, the recorded results for calls that are not sent.

use ktsu_ledger::event::plan::ServerPlan;
use ktsu_ledger::event::{AgentEvent, ToolReturned, UnsentReason};
use ktsu_ledger::{CanonicalJson, Hash, StreamId};
use ktsu_projections::life::call::{CallState, RequestedCall};
use ktsu_projections::run::{AgentTask, TaskResults};
use serde_json::{Value, json};

/// The kind of the streams of recomputes, and of baselines that are held against a kit.
pub const RECOMPUTE_KIND: &str = "recompute";

/// Fills in what a report leaves open; says why it cannot be taken.
///
/// # Errors
/// Words for whoever reported.
pub(super) fn fill(
    event: &mut AgentEvent,
    stream: &StreamId,
    seq: u64,
    task: &AgentTask,
    servers: &[ServerPlan],
) -> Result<(), String> {
    let wanted = |response: u64, call: u32| {
        let calls = task.calls.as_deref();
        let wanted = calls.and_then(|calls| calls.get(response, call));
        wanted.ok_or_else(|| format!("frame {response} asks for no call {call} that is still open"))
    };
    match event {
        AgentEvent::ToolCalled(called) => {
            check_permitted(servers, &called.server, &called.tool)?;
            check_recompute_sends(stream, servers, &called.server, &called.tool)?;
            let wanted = wanted(called.response, called.call)?;
            check_no_secret(wanted)?;
            called.digest.clone_from(&wanted.digest);
            let (again, approval) = sent_before(&wanted.state);
            called.again = again;
            called.approval = approval;
            called.idempotency_key = idempotency_key(stream, called.again.unwrap_or(seq));
            let gated = of(servers, &called.server).and_then(|one| one.approval(&called.tool));
            if gated.is_some() && called.approval.is_none() {
                return Err(format!(
                    "{} of {} is not to be called before a person has approved it",
                    called.tool, called.server
                ));
            }
        }
        AgentEvent::ApprovalRequested(asked) => {
            check_permitted(servers, &asked.server, &asked.tool)?;
            check_recompute_sends(stream, servers, &asked.server, &asked.tool)?;
            let wanted = wanted(asked.response, asked.call)?;
            check_no_secret(wanted)?;
            asked.digest.clone_from(&wanted.digest);
            let policy = of(servers, &asked.server).and_then(|one| one.approval(&asked.tool));
            asked.policy = policy.cloned().ok_or_else(|| {
                format!("nobody is asked about {} of {}", asked.tool, asked.server)
            })?;
        }
        AgentEvent::ToolReturned(returned) => {
            let wanted = wanted(returned.response, returned.call)?;
            returned.called = called(returned, wanted);
            if let Some(record) = &task.recorded_results {
                substitute_recorded(returned, wanted, record);
            }
        }
        AgentEvent::Request(_)
        | AgentEvent::Response(_)
        | AgentEvent::Decided(_)
        | AgentEvent::ReflectStarted(_)
        | AgentEvent::BudgetExhausted(_)
        | AgentEvent::ToolInDoubt(_)
        | AgentEvent::ApprovalDecided(_)
        | AgentEvent::ApprovalExpired(_)
        | AgentEvent::Finished(_) => {}
    }
    Ok(())
}

/// The key that is sent along with a call, so that its server can recognize a call that it has
/// seen. Of the stream: a branch has keys of its own (decision F1).
pub fn idempotency_key(stream: &StreamId, first: u64) -> String {
    let text = format!("ktsu tool call\n{stream}#{first}");
    let hash = Hash::of(text.as_bytes()).to_string();
    hash.chars().take(32).collect()
}

/// The messages of a request with the digests of the frames they name, as its own digest is made.
///
/// # Errors
/// The frame that is none of the task's, or not of that kind.
pub(super) fn resolved(messages: &Value, task: &AgentTask) -> Result<Value, String> {
    let Some(list) = messages.as_array() else {
        return Ok(messages.clone());
    };
    let resolved = list.iter().map(|message| {
        let Some(frame) = message.get("frame").filter(|frame| !frame.is_null()) else {
            return Ok(message.clone());
        };
        let known = frame
            .as_u64()
            .and_then(|frame| task.context_digests.get(&frame));
        let role = message
            .get("role")
            .and_then(Value::as_str)
            .unwrap_or_default();
        match known {
            Some(digest) if ["assistant", "tool"].contains(&role) => {
                Ok(serde_json::json!({"digest": digest, "role": role}))
            }
            _ => Err(format!(
                "a message names frame {frame}, which is no part of the task"
            )),
        }
    });
    resolved.collect::<Result<Vec<_>, _>>().map(Value::Array)
}

fn of<'s>(servers: &'s [ServerPlan], name: &str) -> Option<&'s ServerPlan> {
    servers.iter().find(|server| server.name == name)
}

fn check_permitted(servers: &[ServerPlan], server: &str, tool: &str) -> Result<(), String> {
    match of(servers, server) {
        None => Err(format!("the agent has no tool server {server:?}")),
        Some(one) if !one.permits(tool) => Err(format!("tool_not_permitted: {tool}")),
        Some(_) => Ok(()),
    }
}

/// Puts what is recorded of a call that was not sent in the place of what the runtime says of it.
/// The model is told what it was told then: a result, an error of the tool, a person's rejection.
fn substitute_recorded(returned: &mut ToolReturned, wanted: &RequestedCall, record: &TaskResults) {
    if let Some(result) = record
        .result_for(wanted)
        .filter(|_| returned.not_sent.is_some())
    {
        returned.content = result.content.clone();
        returned.duration_ms = 0;
        returned.is_error = result.is_error;
        returned.not_sent = result.not_sent;
        returned.recorded = Some(Box::new(result.recorded.clone()));
        returned.structured.clone_from(&result.structured);
    } else if returned.not_sent == Some(UnsentReason::SuppressedInBranch) {
        let tool = record.target(&wanted.name);
        let tool = tool.map_or_else(
            || wanted.name.clone(),
            |(server, tool)| format!("{tool} of {server}"),
        );
        let place = record.of.as_deref().unwrap_or("the baseline");
        let words = format!(
            "Error: suppressed_in_branch: no recorded result of {tool} with these arguments is left \
             in {place}, and a recompute calls no server that keeps something and asks nobody, so \
             the call was not sent."
        );
        let content = json!([{"type": "text", "text": words}]);
        returned.content = CanonicalJson::from_value(&content).unwrap_or_default();
        returned.structured = None;
    }
}

/// Returns `true` if a recompute does not send calls of a tool: its server keeps something, or
/// reads the run, which a recompute is not; or a person would have to approve it.
pub fn is_withheld(server: &ServerPlan, tool: &str) -> bool {
    server.stateful || server.reads_its_run() || server.approval(tool).is_some()
}

/// A recompute changes nothing and asks nobody, whatever its runtime was told.
fn check_recompute_sends(
    stream: &StreamId,
    servers: &[ServerPlan],
    server: &str,
    tool: &str,
) -> Result<(), String> {
    let changes = of(servers, server).is_some_and(|one| is_withheld(one, tool));
    match stream.kind() == RECOMPUTE_KIND && changes {
        true => Err(format!(
            "a recompute does not change the world: {tool} of {server} is not to be called"
        )),
        false => Ok(()),
    }
}

/// The reason why a branch that keeps to itself does not make a call: what it changes lasts
/// (decision F1).
pub(super) fn lasting_change(event: &AgentEvent, servers: &[ServerPlan]) -> Option<String> {
    let (server, tool) = event.target()?;
    let stateful = of(servers, server).is_some_and(|one| one.stateful);
    stateful.then(|| {
        format!("a branch does not change the world: {tool} of {server} is not to be called")
    })
}

fn check_no_secret(wanted: &RequestedCall) -> Result<(), String> {
    match wanted.secret {
        true => Err("the arguments hold a secret: such a call is not sent".to_owned()),
        false => Ok(()),
    }
}

/// The first sending of a call, and the approval it has.
fn sent_before(state: &CallState) -> (Option<u64>, Option<u64>) {
    match state {
        CallState::Approved(gate) => (None, Some(gate.request)),
        CallState::ToResend(sending) | CallState::Sent(sending) => {
            (Some(sending.first), sending.approval)
        }
        CallState::Requested
        | CallState::AwaitingApproval(_)
        | CallState::Rejected
        | CallState::InDoubt { .. }
        | CallState::Confirmed { .. }
        | CallState::Unresolved
        | CallState::Returned { .. } => (None, None),
    }
}

/// The call that a result answers.
fn called(returned: &ToolReturned, wanted: &RequestedCall) -> Option<u64> {
    match &wanted.state {
        CallState::Sent(sending) if returned.not_sent.is_none() => Some(sending.called),
        CallState::Confirmed { called } if returned.not_sent.is_none() => Some(*called),
        _ => None,
    }
}
