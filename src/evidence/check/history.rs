//! A run of an archive from its beginning, with all that it shares, and what its definition says of
//! the tools its agents may call.

use ktsu_ledger::event::plan::{Plan, ServerPlan, Work};
use ktsu_ledger::event::{AgentEvent, RunEvent};
use ktsu_ledger::{Event, Frame, Hash, Json};

use super::super::archive::Placed;
use super::{Evidence, Wrong};

/// The frames of a run or branch in order, those before a fork included.
pub(super) struct History<'a> {
    evidence: &'a Evidence,
    stream: &'a str,
    pub(super) frames: Vec<&'a Frame>,
}

impl Evidence {
    /// The histories in which agents asked for tools.
    pub(super) fn histories(&self) -> Result<Vec<History<'_>>, Wrong> {
        let streams = self.by_stream().into_iter();
        let streams = streams.filter(|(_, frames)| frames.iter().any(|one| is_about_tools(one)));
        let history = |(stream, own): (&'_ str, Vec<&Placed>)| {
            let last = own.last().map_or(0, |last| last.frame.seq);
            let frames = (0..=last).map(|seq| Some(&self.shared(stream, seq)?.frame));
            let frames = frames.collect::<Option<Vec<_>>>();
            frames.ok_or_else(|| Wrong::new(format!("the frames of {stream} cannot be read")))
        };
        let mut histories = Vec::new();
        for (stream, own) in streams {
            histories.push(History {
                evidence: self,
                stream,
                frames: history((stream, own))?,
            });
        }
        Ok(histories)
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

    /// What a reply of a task asks for: the digest of the arguments of one of its calls.
    pub(super) fn asked(
        &self,
        task: (&str, Option<u32>),
        response: u64,
        call: u32,
    ) -> Option<String> {
        let frame = self.evidence.whole(self.stream, response)?;
        let Event::Agent(AgentEvent::Response(answer)) = frame.event else {
            return None;
        };
        (task == (answer.step.as_str(), answer.item)).then_some(())?;
        let calls = answer.tool_calls?.to_value();
        let arguments = calls.get(call as usize)?.get("arguments")?;
        let text = Json::from_value(arguments).ok()?;
        Some(Hash::of(text.as_str().as_bytes()).to_string())
    }

    /// The definition that holds from a frame on, if the frame brings one.
    pub(super) fn plan(&self, frame: &Frame) -> Option<Result<Plan, Wrong>> {
        let brings = match &frame.event {
            Event::Run(RunEvent::Branched(branch)) => branch.digest.is_some(),
            other => other.created().is_some(),
        };
        brings.then(|| {
            let external = frame.ext.iter().find(|one| one.path == "/definition");
            let text = external.and_then(|one| {
                let text = self.evidence.blob(&one.hash)?;
                (Hash::of(text) == one.hash).then_some(text)
            });
            let plan = text.and_then(|text| serde_json::from_slice(text).ok());
            plan.ok_or_else(|| Wrong::at(frame.id(), "its definition cannot be read"))
        })
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

fn is_about_tools(placed: &Placed) -> bool {
    matches!(
        placed.frame.event.kind().split_once('.'),
        Some(("tool" | "approval", _))
    )
}
