//! What is due in a round of calls, judged on what is recorded: all of them before any is sent.

use serde_json::{Value, json};

use super::action::{Action, Terms};
use super::end;
use super::round::{Call, Round, State};
use crate::tools::catalogue::{Catalogue, Target, Verdict};
use crate::tools::sessions::Sending;
use crate::tools::{Returned, ToolError};
use ktsu_contract::report::{
    ApprovalRequested, Decided, Event, Finished, ToolCalled, ToolInDoubt, ToolReturned,
};

/// How many calls of a task are under way at once.
pub(super) const AT_ONCE: usize = 16;

/// How many results that need no call go into one report.
const TOGETHER: usize = 64;

/// What a model is told of a call that a person rejected.
const REJECTED: &str = "Tool call rejected by human reviewer. Please find an alternative approach.";

/// What a round asks for, by what is to be done with it.
#[derive(Default)]
struct Due {
    /// May be reported at once: results that need no call, and calls to send.
    events: Vec<Event>,
    /// Announced calls to send.
    sends: Vec<Sending>,
    /// People are to be asked, once nothing else is under way.
    people: Vec<Event>,
    under_way: usize,
    results: usize,
    waits: bool,
    /// A name that no allowlist permits.
    not_permitted: Option<String>,
}

/// What to do now. `over`: the end that is due as soon as nothing is under way.
pub(super) fn due(
    round: &Round,
    terms: &Terms,
    catalogue: &Catalogue,
    over: Option<&Finished>,
) -> Action {
    let mut due = Due::default();
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
    let mut events: Vec<Event> = decided(round).into_iter().collect();
    if !due.sends.is_empty() {
        return Action::Send(due.sends);
    }
    events.append(&mut due.events);
    if events
        .iter()
        .any(|event| !matches!(event, Event::Decided(_)))
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
pub(super) fn decided(round: &Round) -> Option<Event> {
    match round.decided {
        true => None,
        false => Some(Event::Decided(Decided {
            draft: None,
            response: Some(round.response),
        })),
    }
}

impl Due {
    fn add(&mut self, round: &Round, at: u32, call: &Call, terms: &Terms, catalogue: &Catalogue) {
        match &call.state {
            State::Asked => match catalogue.judge(&call.asked, call.secret) {
                Verdict::Gated(target) => self.people.push(gate(round, at, &target)),
                verdict @ (Verdict::NotPermitted | Verdict::Refused(..) | Verdict::Free(_)) => {
                    self.judged(round, at, call, verdict);
                }
            },
            State::Allowed(target) => {
                let verdict = catalogue.settled(target, &call.asked, call.secret);
                self.judged(round, at, call, verdict);
            }
            State::Rejected(reason) => {
                let text = match reason.as_deref().map(str::trim) {
                    None | Some("") => REJECTED.to_owned(),
                    Some(reason) => format!("{REJECTED} Reason: {reason}"),
                };
                self.refused(round, at, "rejected", &text);
            }
            State::Settled(result) => {
                let result = returned(round.response, at, texts(result), None);
                self.result(result);
            }
            State::Called {
                target,
                called,
                key,
                sent,
            } => match sent {
                true => self.under_way += 1,
                false => self.sends.push(Sending {
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
            State::Lost { target, called } => {
                match (catalogue.stateful(&target.server), terms.people) {
                    (false, _) => match catalogue.settled(target, &call.asked, call.secret) {
                        // It was sent once, so that it is no call that was never sent.
                        Verdict::Refused(_, text) => self.result(error(round.response, at, &text)),
                        verdict
                        @ (Verdict::NotPermitted | Verdict::Gated(_) | Verdict::Free(_)) => {
                            self.judged(round, at, call, verdict);
                        }
                    },
                    (true, true) => {
                        let doubt = ToolInDoubt { called: *called };
                        self.people.push(Event::ToolInDoubt(doubt));
                    }
                    (true, false) => {
                        let text = "Error: the server gave no answer; whether the call happened \
                                    is not known.";
                        self.result(error(round.response, at, text));
                    }
                }
            }
            State::Gated { .. } | State::Doubted { .. } => self.waits = true,
            State::Returned(_) => {}
        }
    }

    fn judged(&mut self, round: &Round, at: u32, call: &Call, verdict: Verdict) {
        match verdict {
            Verdict::NotPermitted => self.not_permitted = Some(call.asked.name.clone()),
            Verdict::Refused(why, text) => self.refused(round, at, why, &text),
            Verdict::Gated(target) | Verdict::Free(target) => self.announce(round, at, target),
        }
    }

    fn announce(&mut self, round: &Round, at: u32, target: Target) {
        let announced = self.events.len() - self.results;
        if announced + self.sends.len() + self.under_way < AT_ONCE {
            self.events.push(Event::ToolCalled(ToolCalled {
                response: round.response,
                call: at,
                server: target.server,
                tool: target.tool,
            }));
        }
    }

    fn refused(&mut self, round: &Round, at: u32, why: &str, text: &str) {
        self.result(ToolReturned {
            not_sent: Some(why.to_owned()),
            ..error(round.response, at, text)
        });
    }

    fn result(&mut self, result: ToolReturned) {
        if self.results < TOGETHER {
            self.results += 1;
            self.events.push(Event::ToolReturned(result));
        }
    }
}

/// What to report of an answer; nothing where a person has to say whether the call happened.
pub(super) fn answered(
    round: &Round,
    called: u64,
    answer: Result<Returned, ToolError>,
    catalogue: &Catalogue,
) -> Option<Event> {
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
    Some(Event::ToolReturned(result))
}

fn gate(round: &Round, at: u32, target: &Target) -> Event {
    Event::ApprovalRequested(ApprovalRequested {
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
    let shallow = |value: &Value| super::super::reply::depth(value) <= MAX_DEPTH;
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
