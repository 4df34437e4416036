//! Translates the frame numbers in recorded inputs to the simulated run, where one step more or
//! less shifts all later numbers.

use std::collections::HashMap;

use ktsu_ledger::event::{AgentEvent, PersonEvent, StepEvent, ToolInDoubt};
use ktsu_ledger::{CanonicalJson, Event, Frame};
use serde_json::{Value, json};

/// A frame that did not come about: nothing follows from it.
const MISSING_SEQ: u64 = u64::MAX;

/// Gives whatever an event names the numbers it has `here`.
pub(super) fn renumber(event: &mut Event, here: impl Fn(u64) -> Option<u64>) {
    let to = |seq: &mut u64| *seq = here(*seq).unwrap_or(MISSING_SEQ);
    if let Event::Person(PersonEvent::ReviewDecided(decided)) = event {
        to(&mut decided.request);
    }
    if let Event::Person(PersonEvent::SuspendResumed(resumed)) = event {
        to(&mut resumed.request);
    }
    let Event::Agent(event) = event else { return };
    match event {
        AgentEvent::Request(request) => {
            request.base = request.base.and_then(&here);
            if let Some(messages) = renumbered_messages(&request.messages, &here) {
                request.messages = messages;
            }
        }
        AgentEvent::Response(response) => to(&mut response.request),
        AgentEvent::Decided(decided) => decided.response.iter_mut().for_each(to),
        AgentEvent::ToolCalled(called) => {
            to(&mut called.response);
            to(&mut called.arguments.frame);
            called.again.iter_mut().for_each(to);
            called.approval.iter_mut().for_each(to);
        }
        AgentEvent::ToolReturned(returned) => {
            to(&mut returned.response);
            returned.called.iter_mut().for_each(to);
        }
        AgentEvent::ToolInDoubt(doubt) => to(&mut doubt.called),
        AgentEvent::ApprovalRequested(asked) => {
            to(&mut asked.response);
            to(&mut asked.arguments.frame);
        }
        AgentEvent::ApprovalDecided(decided) => to(&mut decided.request),
        AgentEvent::ApprovalExpired(expired) => to(&mut expired.request),
        AgentEvent::ReflectStarted(_)
        | AgentEvent::BudgetExhausted(_)
        | AgentEvent::Finished(_) => {}
    }
}

/// The recorded decision that a frame of the run that is tried is, and its number there, if people
/// answer it: that they are asked about an outcome or for data, or that no one knows whether a call of a
/// lost worker happened.
pub(super) fn answered(
    frame: &Frame,
    recorded: &[Frame],
    numbers: &HashMap<u64, u64>,
) -> Option<(u64, u64)> {
    matching_review(frame, recorded, numbers).or_else(|| matching_doubt(frame, recorded, numbers))
}

/// The recorded question about the same outcome, or for the same data.
fn matching_review(
    frame: &Frame,
    recorded: &[Frame],
    numbers: &HashMap<u64, u64>,
) -> Option<(u64, u64)> {
    let asked = |frame: &Frame| {
        let (step, attempt) = match &frame.event {
            Event::Step(StepEvent::ReviewRequested(asked)) => (&asked.step, asked.attempt),
            Event::Step(StepEvent::SuspendRequested(asked)) => (&asked.step, asked.attempt),
            _ => return None,
        };
        Some((step.clone(), attempt, frame.event.kind().to_owned()))
    };
    let about = asked(frame)?;
    let mut recorded = recorded.iter();
    let before = recorded.find(|one| {
        let same = one.scope == frame.scope && asked(one).as_ref() == Some(&about);
        same && !numbers.contains_key(&one.seq)
    });
    Some((before?.seq, frame.seq))
}

fn matching_doubt(
    frame: &Frame,
    recorded: &[Frame],
    numbers: &HashMap<u64, u64>,
) -> Option<(u64, u64)> {
    let about = doubt(frame)?.called;
    let mut recorded = recorded.iter();
    let before = recorded.find(|one| {
        let called = doubt(one).and_then(|doubt| numbers.get(&doubt.called));
        called == Some(&about)
    });
    Some((before?.seq, frame.seq))
}

/// A doubt that no runtime reports.
fn doubt(frame: &Frame) -> Option<&ToolInDoubt> {
    match &frame.event {
        Event::Agent(AgentEvent::ToolInDoubt(doubt)) if doubt.report.is_none() => Some(doubt),
        _ => None,
    }
}

/// Messages that name frames, with the numbers these have; nothing where none does.
fn renumbered_messages(
    messages: &CanonicalJson,
    here: impl Fn(u64) -> Option<u64>,
) -> Option<CanonicalJson> {
    let mut messages = messages.to_value();
    let mut any = false;
    for message in messages.as_array_mut()? {
        let frame = message.get("frame").and_then(Value::as_u64);
        if let (Some(frame), Some(message)) = (frame, message.as_object_mut()) {
            // One that is not here is told as none: numbers are those of frames.
            message.insert("frame".to_owned(), json!(here(frame)));
            any = true;
        }
    }
    any.then(|| CanonicalJson::from_value(&messages).ok())
        .flatten()
}
