//! A run of an archive from its beginning, with all that it shares, and what its definition says of
//! the tools its agents may call.

use std::borrow::Cow;

use ktsu_ledger::event::plan::{Plan, ServerPlan, Work};
use ktsu_ledger::{Event, Frame};

use super::super::archive::Placed;
use super::{Evidence, Wrong};

/// The frames of a run or branch in order, those before a fork included; those about agents with
/// their blobs put back.
pub(super) struct History<'a> {
    evidence: &'a Evidence,
    pub(super) stream: &'a str,
    pub(super) frames: Vec<Cow<'a, Frame>>,
}

impl Evidence {
    /// The histories in which models were asked, or tools.
    pub(super) fn histories(&self) -> Result<Vec<History<'_>>, Wrong> {
        let streams = self.by_stream().into_iter();
        let streams = streams.filter(|(_, frames)| frames.iter().any(|one| is_about_agents(one)));
        streams
            .map(|(stream, own)| self.history(stream, &own))
            .collect()
    }

    fn history<'a>(&'a self, stream: &'a str, own: &[&Placed]) -> Result<History<'a>, Wrong> {
        let last = own.last().map_or(0, |last| last.frame.seq);
        let frame = |seq| {
            let placed = self.shared(stream, seq);
            let words = || Wrong::new(format!("the frames of {stream} cannot be read"));
            let frame = &placed.ok_or_else(words)?.frame;
            if frame.ext.is_empty() || !matches!(frame.event, Event::Agent(_)) {
                return Ok(Cow::Borrowed(frame));
            }
            let words = || Wrong::at(frame.id(), "one of its blobs is missing or another");
            self.whole(stream, seq).map(Cow::Owned).ok_or_else(words)
        };
        Ok(History {
            evidence: self,
            stream,
            frames: (0..=last).map(frame).collect::<Result<_, _>>()?,
        })
    }
}

impl History<'_> {
    /// A frame with its blobs put back.
    pub(super) fn whole(&self, seq: u64) -> Option<Frame> {
        self.evidence.whole(self.stream, seq)
    }

    /// As [`History::whole`], of another stream of the archive.
    pub(super) fn elsewhere(&self, stream: &str, seq: u64) -> Option<Frame> {
        self.evidence.whole(stream, seq)
    }

    /// The definition that a frame brings.
    pub(super) fn plan(&self, frame: &Frame) -> Result<Plan, Wrong> {
        let whole = self.evidence.whole(self.stream, frame.seq);
        let plan = whole.and_then(|whole| {
            let (definition, _) = whole.event.definition()?;
            serde_json::from_str(definition.as_str()).ok()
        });
        plan.ok_or_else(|| Wrong::at(frame.id(), "its definition cannot be read"))
    }
}

/// The server that an agent step calls by this name.
pub(super) fn server<'p>(
    plan: &'p Plan,
    scope: &str,
    step: &str,
    name: &str,
) -> Option<&'p ServerPlan> {
    let mut workflow = plan.workflows.get(&plan.root)?;
    for id in scope.split('/').filter(|id| !id.is_empty()) {
        let child = workflow.steps.iter().find(|step| step.id == id)?;
        let Work::Workflow(child) = &child.work else {
            return None;
        };
        workflow = plan.workflows.get(&child.workflow)?;
    }
    let step = workflow.steps.iter().find(|one| one.id == step)?;
    let Work::Agent(agent) = &step.work else {
        return None;
    };
    let servers = &plan.agents.get(&agent.file)?.servers;
    servers.iter().find(|server| server.name == name)
}

fn is_about_agents(placed: &Placed) -> bool {
    matches!(
        placed.frame.event.kind().split_once('.'),
        Some(("llm" | "tool" | "approval", _))
    )
}
