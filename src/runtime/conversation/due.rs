//! The actions that are due in a round of calls. All calls of a reply are checked before any is
//! sent.

use serde_json::{Value, json};

use super::action::{Action, ConversationLimits};
use super::end;
use super::round::{RoundCall, RoundCallState, ToolRound};
use crate::tools::catalogue::{CallVerdict, Catalogue, ToolTarget};
use crate::tools::sessions::OutgoingCall;
use crate::tools::{ToolCallResult, ToolError};
use ktsu_contract::report::{
    ApprovalRequested, Decided, Finished, ReportEvent, ToolCalled, ToolInDoubt, ToolReturned,
};
use ktsu_server::body::deeper_than;

/// Number of calls of a task that may be in progress at once.
pub(super) const MAX_CONCURRENT_CALLS: usize = 16;

/// Number of results that need no call in one report.
const MAX_RESULTS_PER_REPORT: usize = 64;

/// The text that a model gets for a call that a person rejected.
const REJECTED: &str = "Tool call rejected by human reviewer. Please find an alternative approach.";

/// The needs of a round, by what is to be done with them.
#[derive(Default)]
struct RoundPlan {
    /// May be reported at once: results that need no call, and calls to send.
    events: Vec<ReportEvent>,
    /// Announced calls to send.
    sends: Vec<OutgoingCall>,
    /// People are to be asked, once nothing else is under way.
    people: Vec<ReportEvent>,
    under_way: usize,
    results: usize,
    waits: bool,
    /// A name that no allowlist permits.
    not_permitted: Option<String>,
}

/// The next thing to do. `over`: the end that is due as soon as no call is in progress.
pub(super) fn next_action(
    round: &ToolRound,
    terms: &ConversationLimits,
    catalogue: &Catalogue,
    over: Option<&Finished>,
) -> Action {
    let mut due = RoundPlan::default();
    for (at, call) in (0..).zip(&round.calls) {
        due.add(round, at, call, terms, catalogue);
    }
    let end = match &due.not_permitted {
        Some(name) => Some(end::not_permitted(name)),
        None if round.last => Some(end::no_turns(terms.max_turns, Some(&round.text))),
        None => over.cloned(),
    };
    if let Some(end) = end {
        return match due.under_way {
            0 => Action::Finish(end),
            _ => Action::Wait,
        };
    }
    let mut events: Vec<ReportEvent> = decided(round).into_iter().collect();
    if !due.sends.is_empty() {
        return Action::Send(due.sends);
    }
    events.append(&mut due.events);
    if events
        .iter()
        .any(|event| !matches!(event, ReportEvent::Decided(_)))
    {
        return Action::Report(events);
    }
    if due.under_way > 0 {
        return Action::Wait;
    }
    if !due.people.is_empty() && !terms.people {
        let words = "a tool call needs a person's approval, and this orchestrator takes no \
                     reports; run the step with one that does";
        return Action::Finish(end::broken("approval_unsupported", words));
    }
    events.append(&mut due.people);
    match (events.is_empty(), due.waits) {
        (false, _) => Action::Report(events),
        (true, true) => Action::Suspend,
        // Every call has its result: the round is over before it gets here.
        (true, false) => Action::Finish(end::broken(
            "internal_error",
            "the task does not know how to go on",
        )),
    }
}

/// That the calls of the reply are to be made, unless it is said.
pub(super) fn decided(round: &ToolRound) -> Option<ReportEvent> {
    match round.decided {
        true => None,
        false => Some(ReportEvent::Decided(Decided {
            draft: None,
            response: Some(round.response),
        })),
    }
}

impl RoundPlan {
    fn add(
        &mut self,
        round: &ToolRound,
        at: u32,
        call: &RoundCall,
        terms: &ConversationLimits,
        catalogue: &Catalogue,
    ) {
        match &call.state {
            RoundCallState::Proposed => match catalogue.check_call(&call.asked, call.secret) {
                CallVerdict::Gated(target) => self.people.push(gate(round, at, &target)),
                verdict => self.apply_verdict(round, at, call, verdict),
            },
            RoundCallState::Allowed(target) => {
                let verdict = catalogue.check_approved(target, &call.asked, call.secret);
                self.apply_verdict(round, at, call, verdict);
            }
            RoundCallState::Rejected(reason) => {
                let text = match reason.as_deref().map(str::trim) {
                    None | Some("") => REJECTED.to_owned(),
                    Some(reason) => format!("{REJECTED} Reason: {reason}"),
                };
                self.refused(round, at, "rejected", &text);
            }
            RoundCallState::ConfirmedByPerson(result) => {
                let result = returned(round.response, at, texts(result), None);
                self.result(result);
            }
            RoundCallState::Called {
                target,
                called,
                key,
                sent,
            } => match sent {
                true => self.under_way += 1,
                false => self.sends.push(OutgoingCall {
                    called: *called,
                    server: target.server.clone(),
                    tool: target.tool.clone(),
                    arguments: call
                        .asked
                        .arguments
                        .as_object()
                        .cloned()
                        .unwrap_or_default(),
                    key: key.clone(),
                }),
            },
            RoundCallState::Lost { target, called } => {
                match (catalogue.stateful(&target.server), terms.people) {
                    (false, _) => {
                        match catalogue.check_approved(target, &call.asked, call.secret) {
                            // It was sent once, so that it is no call that was never sent.
                            CallVerdict::Refused(_, text) => {
                                self.result(error(round.response, at, &text))
                            }
                            verdict => self.apply_verdict(round, at, call, verdict),
                        }
                    }
                    (true, true) => {
                        let doubt = ToolInDoubt { called: *called };
                        self.people.push(ReportEvent::ToolInDoubt(doubt));
                    }
                    (true, false) => {
                        let text = "Error: the server gave no answer; whether the call happened \
                                    is not known.";
                        self.result(error(round.response, at, text));
                    }
                }
            }
            RoundCallState::Gated { .. } | RoundCallState::InDoubt { .. } => self.waits = true,
            RoundCallState::Returned(_) => {}
        }
    }

    fn apply_verdict(
        &mut self,
        round: &ToolRound,
        at: u32,
        call: &RoundCall,
        verdict: CallVerdict,
    ) {
        match verdict {
            CallVerdict::NotPermitted => self.not_permitted = Some(call.asked.name.clone()),
            CallVerdict::Refused(why, text) => self.refused(round, at, why, &text),
            CallVerdict::Gated(target) | CallVerdict::Allowed(target) => {
                self.announce(round, at, target)
            }
        }
    }

    fn announce(&mut self, round: &ToolRound, at: u32, target: ToolTarget) {
        let announced = self.events.len() - self.results;
        if announced + self.sends.len() + self.under_way < MAX_CONCURRENT_CALLS {
            self.events.push(ReportEvent::ToolCalled(ToolCalled {
                response: round.response,
                call: at,
                server: target.server,
                tool: target.tool,
            }));
        }
    }

    fn refused(&mut self, round: &ToolRound, at: u32, why: &str, text: &str) {
        self.result(ToolReturned {
            not_sent: Some(why.to_owned()),
            ..error(round.response, at, text)
        });
    }

    fn result(&mut self, result: ToolReturned) {
        if self.results < MAX_RESULTS_PER_REPORT {
            self.results += 1;
            self.events.push(ReportEvent::ToolReturned(result));
        }
    }
}

/// The event to report of an answer; nothing where a person has to say whether the call happened.
pub(super) fn report_answer(
    round: &ToolRound,
    called: u64,
    answer: Result<ToolCallResult, ToolError>,
    catalogue: &Catalogue,
) -> Option<ReportEvent> {
    let (at, target) = round.called(called)?;
    let result = match answer {
        Ok(result) => ToolReturned {
            is_error: result.is_error,
            duration_ms: result.duration_ms,
            ..returned(round.response, at, result.content, result.structured)
        },
        Err(error) if error.sent && catalogue.stateful(&target.server) => return None,
        Err(failed) => {
            let text = format!("Error: the tool could not be used: {failed}.");
            ToolReturned {
                duration_ms: failed.duration_ms,
                ..error(round.response, at, &text)
            }
        }
    };
    Some(ReportEvent::ToolReturned(result))
}

fn gate(round: &ToolRound, at: u32, target: &ToolTarget) -> ReportEvent {
    ReportEvent::ApprovalRequested(ApprovalRequested {
        response: round.response,
        call: at,
        server: target.server.clone(),
        tool: target.tool.clone(),
    })
}

fn error(response: u64, call: u32, text: &str) -> ToolReturned {
    ToolReturned {
        is_error: true,
        ..returned(response, call, texts(text), None)
    }
}

/// A result that a report can carry: what is nested too deep for a frame is told as text.
fn returned(
    response: u64,
    call: u32,
    content: Vec<Value>,
    structured: Option<Value>,
) -> ToolReturned {
    let shallow = |value: &Value| !deeper_than(value, MAX_DEPTH);
    let mut content: Vec<Value> = content
        .into_iter()
        .map(|block| match shallow(&block) {
            true => block,
            false => text(&block.to_string()),
        })
        .collect();
    let (structured, deep) = match structured {
        Some(value) if shallow(&value) => (Some(value), None),
        Some(value) => (None, Some(text(&value.to_string()))),
        None => (None, None),
    };
    if content.is_empty() {
        content.extend(deep);
    }
    ToolReturned {
        response,
        call,
        content,
        structured,
        ..ToolReturned::default()
    }
}

/// Levels that a result may have within its frame, and arguments within theirs.
pub(crate) const MAX_DEPTH: usize = 48;

fn texts(words: &str) -> Vec<Value> {
    vec![text(words)]
}

fn text(words: &str) -> Value {
    json!({"type": "text", "text": words})
}
