//! The calls of tools of a run: one for each that a model asked for, with what people said to it and
//! what came of it.

use std::collections::BTreeMap;

use ktsu_ledger::event::{AgentEvent, ItemEvent, StepEvent};
use ktsu_ledger::{CanonicalJson, Event, Frame};
use ktsu_projections::Lineage;
use ktsu_projections::lineage::item_name;

/// A call that a model asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCallTrace {
    /// The inline child, or empty.
    pub scope: String,
    /// The step; for an item `STEP.INDEX`.
    pub step: String,
    /// `SERVER.TOOL`; the tool alone where no server was asked.
    pub tool: String,
    /// The reply that asks for it, and its place there.
    pub asked: (u64, u32),
    /// What people said, in order: `approved by ann`.
    pub people: Vec<String>,
    /// What came of it, in words.
    pub outcome: String,
    /// Whether the model got an error, or nothing.
    pub failed: bool,
    /// The `tool.returned`.
    pub returned: Option<u64>,
    stands: TraceProgress,
}

/// How far a call is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TraceProgress {
    Asked,
    Approved,
    Called,
    Over,
}

/// The calls of a run and of its inline children, in the order they were first spoken of.
pub fn uses(frames: &[Frame]) -> Vec<ToolCallTrace> {
    let mut fold = ToolCallFold {
        lineage: Lineage::from_frames(frames),
        uses: Vec::new(),
        places: BTreeMap::new(),
        spoken: BTreeMap::new(),
        replies: BTreeMap::new(),
    };
    for frame in frames {
        fold.take(frame);
    }
    fold.uses
}

struct ToolCallFold {
    lineage: Lineage,
    uses: Vec<ToolCallTrace>,
    /// By reply and place.
    places: BTreeMap<(u64, u32), usize>,
    /// By the frames that ask or tell of it.
    spoken: BTreeMap<u64, usize>,
    /// What replies ask for.
    replies: BTreeMap<u64, CanonicalJson>,
}

impl ToolCallFold {
    fn take(&mut self, frame: &Frame) {
        match &frame.event {
            Event::Agent(event) => self.agent(frame, event),
            Event::Step(StepEvent::Completed(_) | StepEvent::Failed(_) | StepEvent::Skipped(_)) => {
                if let Some(step) = self.step_of(frame.seq) {
                    self.end(&frame.scope, &step);
                }
            }
            Event::Item(ItemEvent::Completed(_) | ItemEvent::Failed(_)) => {
                if let Some(item) = self.step_of(frame.seq) {
                    self.end(&frame.scope, &item);
                }
            }
            Event::Run(_)
            | Event::Recompute(_)
            | Event::Step(_)
            | Event::Item(_)
            | Event::Worker(_)
            | Event::Webhook(_)
            | Event::Person(_)
            | Event::Kv(_)
            | Event::Store(_)
            | Event::Foreign { .. } => {}
        }
    }

    fn agent(&mut self, frame: &Frame, event: &AgentEvent) {
        match event {
            AgentEvent::Response(answer) => {
                if let Some(calls) = &answer.tool_calls {
                    self.replies.insert(frame.seq, calls.clone());
                }
            }
            AgentEvent::ApprovalRequested(asked) => {
                let tool = format!("{}.{}", asked.server, asked.tool);
                let one = self.at(frame, event, (asked.response, asked.call), Some(tool));
                one.stands(TraceProgress::Asked, "waits for people");
            }
            AgentEvent::ToolCalled(called) => {
                let tool = format!("{}.{}", called.server, called.tool);
                let one = self.at(frame, event, (called.response, called.call), Some(tool));
                one.stands(TraceProgress::Called, "no answer yet");
            }
            AgentEvent::ToolReturned(returned) => {
                let words = self.detail(frame.seq);
                let one = self.at(frame, event, (returned.response, returned.call), None);
                one.stands(TraceProgress::Over, &words);
                one.failed = returned.is_error;
                one.returned = Some(frame.seq);
            }
            AgentEvent::ToolInDoubt(doubt) => {
                let words = format!("in doubt: {}", self.detail(frame.seq));
                if let Some(one) = self.spoken_of(doubt.called, frame.seq) {
                    one.stands(TraceProgress::Asked, &words);
                    one.failed = true;
                }
            }
            AgentEvent::ApprovalDecided(decided) => {
                let word = decided.decision.as_str();
                let said = format!("{word} by {}", decided.by.id);
                if let Some(one) = self.spoken_of(decided.request, frame.seq) {
                    one.people.push(said);
                    if one.stands == TraceProgress::Asked && word == "approved" {
                        one.stands(TraceProgress::Approved, "not called yet");
                    }
                }
            }
            AgentEvent::ApprovalExpired(expired) => {
                if let Some(one) = self.spoken_of(expired.request, frame.seq) {
                    one.people.push("nobody decided in time".to_owned());
                }
            }
            AgentEvent::Finished(finished) => {
                let name = item_name(&finished.step, finished.item);
                self.end(&frame.scope, &name);
            }
            AgentEvent::Request(_)
            | AgentEvent::Decided(_)
            | AgentEvent::ReflectStarted(_)
            | AgentEvent::BudgetExhausted(_) => {}
        }
    }

    /// The call at a place of a reply; a new one, if it was not spoken of before.
    fn at(
        &mut self,
        frame: &Frame,
        event: &AgentEvent,
        asked: (u64, u32),
        tool: Option<String>,
    ) -> &mut ToolCallTrace {
        let at = match self.places.get(&asked) {
            Some(at) => *at,
            None => {
                self.uses.push(ToolCallTrace {
                    scope: frame.scope.clone(),
                    step: item_name(event.step(), event.item()),
                    tool: tool.unwrap_or_else(|| self.name(asked)),
                    asked,
                    people: Vec::new(),
                    outcome: String::new(),
                    failed: false,
                    returned: None,
                    stands: TraceProgress::Asked,
                });
                let at = self.uses.len() - 1;
                self.places.insert(asked, at);
                at
            }
        };
        self.spoken.insert(frame.seq, at);
        &mut self.uses[at]
    }

    /// The call that a frame tells of, which names an earlier one that does.
    fn spoken_of(&mut self, earlier: u64, frame: u64) -> Option<&mut ToolCallTrace> {
        let at = *self.spoken.get(&earlier)?;
        self.spoken.insert(frame, at);
        self.uses.get_mut(at)
    }

    /// The tool as the model names it.
    fn name(&self, (response, call): (u64, u32)) -> String {
        let asked = self.replies.get(&response).map(CanonicalJson::to_value);
        let name =
            asked.and_then(|asked| Some(asked.get(call as usize)?["name"].as_str()?.to_owned()));
        name.unwrap_or_default()
    }

    fn detail(&self, seq: u64) -> String {
        let node = self.lineage.node(seq);
        node.map(|node| node.detail.clone()).unwrap_or_default()
    }

    fn step_of(&self, seq: u64) -> Option<String> {
        self.lineage.node(seq)?.step.clone()
    }

    /// What is not over in a step or an item that ends is over with it.
    fn end(&mut self, scope: &str, name: &str) {
        let items = format!("{name}.");
        let here = |one: &&mut ToolCallTrace| {
            one.scope == scope && (one.step == name || one.step.starts_with(&items))
        };
        for one in self.uses.iter_mut().filter(here) {
            match one.stands {
                TraceProgress::Asked if !one.failed => {
                    one.stands(TraceProgress::Over, "not called: its step ended")
                }
                TraceProgress::Approved => {
                    one.stands(TraceProgress::Over, "not called: its step ended")
                }
                TraceProgress::Called => {
                    one.stands(TraceProgress::Over, "no answer: its step ended")
                }
                // A doubt that nobody settled stays one.
                TraceProgress::Asked | TraceProgress::Over => continue,
            }
            one.failed = true;
        }
    }
}

impl ToolCallTrace {
    fn stands(&mut self, stands: TraceProgress, outcome: &str) {
        self.stands = stands;
        outcome.clone_into(&mut self.outcome);
    }

    /// All of it: `desk.put, approved by ann: a result after 3 ms`.
    pub fn summary(&self) -> String {
        let mut words = vec![self.tool.as_str()];
        words.extend(self.people.iter().map(String::as_str));
        format!("{}: {}", words.join(", "), self.outcome)
    }
}
