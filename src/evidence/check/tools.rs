//! Whether every call of a tool is accounted for: asked for by a model with these arguments,
//! permitted by the definition, answered once or known to be in doubt; and every result that no call
//! gave repeats a recorded one.

use std::collections::{BTreeMap, BTreeSet};

use ktsu_ledger::event::plan::Plan;
use ktsu_ledger::event::{AgentEvent, RunEvent, ToolCalled, ToolReturned};
use ktsu_ledger::{Event, Frame};

use super::history::{History, server};
use super::repeated::Results;
use super::{Claim, Evidence, Wrong};

/// What is known of the calls of a run at a frame.
#[derive(Default)]
struct Calls<'a> {
    plan: Option<Plan>,
    made: BTreeMap<u64, (&'a Frame, &'a ToolCalled)>,
    /// Calls without an answer, and the frames that made them.
    open: BTreeMap<u64, &'a Frame>,
    /// What has its result: reply and place.
    returned: BTreeSet<(u64, u32)>,
    /// Of a recompute: what it repeats, and the frames that do.
    results: Results,
    repeated: BTreeSet<u64>,
    ended: bool,
}

impl Evidence {
    /// Whether every call of a tool is accounted for.
    pub(super) fn tools(&self) -> Claim {
        let judged = self.histories().and_then(|histories| {
            let mut open = None;
            let mut made = BTreeSet::new();
            for history in &histories {
                let calls = calls_of(history)?;
                let stray = calls.open.values().next();
                if let Some(frame) = stray.filter(|_| calls.ended) {
                    let words = "its run has ended, and nothing says what became of the call";
                    return Err(Wrong::at(frame.id(), words));
                }
                open = open.or(stray.map(|frame| frame.id()));
                let frames = history.frames.iter();
                let called = frames.filter(|frame| {
                    calls.made.contains_key(&frame.seq) || calls.repeated.contains(&frame.seq)
                });
                made.extend(called.map(|frame| frame.id()));
            }
            Ok((made.len(), open))
        });
        match judged {
            Err(wrong) => Claim::failed("tools", wrong),
            Ok((_, Some(frame))) => Claim {
                frame: Some(frame),
                ..Claim::not_covered("tools", "its run goes on, and the call has no result yet")
            },
            Ok((0, None)) => Claim::proven("tools", "no tool was called"),
            Ok((made, None)) => Claim::proven("tools", format!("{made} calls are accounted for")),
        }
    }
}

fn calls_of<'a>(history: &'a History<'_>) -> Result<Calls<'a>, Wrong> {
    let mut calls = Calls::default();
    for &frame in &history.frames {
        let taken = calls.take(history, frame);
        taken.map_err(|words| Wrong::at(frame.id(), words))?;
        if let Some(plan) = history.plan(frame) {
            calls.plan = Some(plan?);
        }
    }
    Ok(calls)
}

impl<'a> Calls<'a> {
    fn take(&mut self, history: &History<'_>, frame: &'a Frame) -> Result<(), &'static str> {
        match &frame.event {
            Event::Run(RunEvent::Branched(_)) => {
                // What was on its way is the parent's to account for.
                self.open.clear();
                self.ended = false;
            }
            Event::Run(_) if frame.scope.is_empty() => match frame.event.kind() {
                "run.completed" | "run.failed" | "run.cancelled" | "run.terminated" => {
                    self.ended = true;
                }
                "run.resumed" => self.ended = false,
                _ => {}
            },
            Event::Agent(AgentEvent::ToolCalled(called)) => self.call(history, frame, called)?,
            Event::Agent(AgentEvent::ToolReturned(returned)) => {
                self.answer(history, frame.seq, returned)?;
            }
            Event::Agent(AgentEvent::ToolInDoubt(doubt)) => {
                self.open.remove(&doubt.called);
                if !self.made.contains_key(&doubt.called) {
                    return Err("it is about a call that was never made");
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn call(
        &mut self,
        history: &History<'_>,
        frame: &'a Frame,
        called: &'a ToolCalled,
    ) -> Result<(), &'static str> {
        let place = format!("/tool_calls/{}/arguments", called.call);
        let task = (called.step.as_str(), called.item);
        let asked = history.asked(task, called.response, called.call);
        if (called.arguments.frame, called.arguments.path.as_str()) != (called.response, &place)
            || asked.as_ref() != Some(&called.digest)
        {
            return Err("its arguments are not those that the reply asks for");
        }
        let plan = self.plan.as_ref();
        let server = plan.and_then(|plan| server(plan, &frame.scope, &called.step, &called.server));
        if !server.is_some_and(|server| server.permits(&called.tool)) {
            return Err("its definition does not permit the call");
        }
        if let Some(first) = called.again {
            // A branch has keys of its own.
            let same = |(sent, it): &&(&Frame, &ToolCalled)| {
                (it.response, it.call) == (called.response, called.call)
                    && (sent.stream != frame.stream || it.idempotency_key == called.idempotency_key)
            };
            if self.made.get(&first).filter(same).is_none() {
                return Err("it says that it is sent again, and is another call");
            }
            let made = &self.made;
            let again = |seq: &u64| made.get(seq).and_then(|(_, it)| it.again);
            self.open
                .retain(|seq, _| *seq != first && again(seq) != Some(first));
        }
        self.made.insert(frame.seq, (frame, called));
        self.open.insert(frame.seq, frame);
        Ok(())
    }

    fn answer(
        &mut self,
        history: &History<'_>,
        seq: u64,
        returned: &ToolReturned,
    ) -> Result<(), &'static str> {
        let place = (returned.response, returned.call);
        if !self.returned.insert(place) {
            return Err("the call has a result already");
        }
        if returned.recorded.is_some() {
            self.repeated.insert(seq);
            return self.results.take(history, seq);
        }
        if returned.not_sent.is_some() {
            return Ok(());
        }
        let called = returned.called;
        let made = called.and_then(|called| self.made.get(&called));
        if made.is_none_or(|(_, made)| (made.response, made.call) != place) {
            return Err("it is the result of a call that was never made");
        }
        self.open.retain(|seq, _| Some(*seq) != called);
        Ok(())
    }
}
