//! The whole history of a run of an archive, including its shared prefix, and what its definition
//! says about the tools its agents may call.

use std::collections::BTreeSet;

use ktsu_ledger::event::plan::world::ResponderPlan;
use ktsu_ledger::event::plan::{Plan, ServerPlan, StepWork, WorkflowPlan};
use ktsu_ledger::event::{StepEvent, is_address};
use ktsu_ledger::{Event, Frame};

use super::super::archive::PositionedFrame;
use super::content::too_large;
use super::reading::EvidenceArchive;
use super::{ArchiveVerifyOptions, ClaimFailure};

/// The frames of a run or branch in order, those before a fork included; those about agents and
/// what people decided with their blobs put back.
pub(super) struct History<'a> {
    evidence: &'a EvidenceArchive,
    pub(super) stream: &'a str,
    pub(super) frames: Vec<Frame>,
}

impl EvidenceArchive {
    /// Checks the histories in which models were asked, or tools, one after another; gives the
    /// first that is too large to be held.
    pub(super) fn each_history(
        &self,
        against: &ArchiveVerifyOptions,
        judge: &mut dyn FnMut(&History<'_>) -> Result<(), ClaimFailure>,
    ) -> Result<Option<String>, ClaimFailure> {
        let about_agents: BTreeSet<String> = self
            .each()
            // The model calls of evals are those of checks, which evals judge.
            .filter(|placed| is_about_agents(placed) && !placed.frame.stream.is_eval())
            .map(|placed| placed.frame.stream.to_string())
            .collect();
        let mut large = None;
        for (stream, (_, last)) in self.by_stream() {
            if !about_agents.contains(stream) {
                continue;
            }
            if self.is_too_large(stream, last, against) {
                large.get_or_insert_with(|| too_large(stream));
                continue;
            }
            judge(&self.history(stream, last)?)?;
        }
        Ok(large)
    }

    fn history<'a>(&'a self, stream: &'a str, last: u64) -> Result<History<'a>, ClaimFailure> {
        let frame = |seq| {
            let placed = self.shared(stream, seq);
            let words = || ClaimFailure::new(format!("the frames of {stream} cannot be read"));
            let placed = placed.ok_or_else(words)?;
            let frame = &placed.frame;
            let about = matches!(
                frame.event,
                Event::Agent(_) | Event::Person(_) | Event::Step(StepEvent::SuspendRequested(_))
            );
            if frame.ext.is_empty() || !about {
                return Ok(frame.clone());
            }
            let words = || ClaimFailure::at(frame.id(), "one of its blobs is missing or another");
            self.whole(stream, seq).ok_or_else(words)
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
    pub(super) fn plan(&self, frame: &Frame) -> Result<Plan, ClaimFailure> {
        let whole = self.evidence.whole(self.stream, frame.seq);
        let plan = whole.and_then(|whole| {
            let (definition, _) = whole.event.definition()?;
            serde_json::from_str(definition.as_str()).ok()
        });
        plan.ok_or_else(|| ClaimFailure::at(frame.id(), "its definition cannot be read"))
    }
}

/// The work of a step, as a definition has it. A scope begins with the address of what a responder runs,
/// `@NAME.KEY`, or with a step; behind one with an agent stands what its commands run, `NAME.N`.
pub(super) fn work<'p>(plan: &'p Plan, scope: &str, step: &str) -> Option<&'p StepWork> {
    let mut steps = workflow(plan, scope)?.steps.iter();
    Some(&steps.find(|one| one.id == step)?.work)
}

/// The workflow of a scope, as a definition has it.
fn workflow<'p>(plan: &'p Plan, scope: &str) -> Option<&'p WorkflowPlan> {
    let mut workflow = plan.workflows.get(&plan.root)?;
    let mut ids = scope.split('/').filter(|id| !id.is_empty());
    while let Some(id) = ids.next() {
        let child = match is_address(id) {
            true => responder(plan, id)?.work.child()?,
            false => {
                // An item of a fan-out holds what its commands run.
                let is = |name: &str| workflow.steps.iter().find(|step| step.id == name);
                let step = is(id).or_else(|| is(numbered(id)?.0))?;
                match &step.work {
                    StepWork::Workflow(child) => child,
                    StepWork::Agent(agent) => {
                        let (name, _) = numbered(ids.next()?)?;
                        &agent.may_invoke.get(name)?.child
                    }
                    StepWork::Transform(_) | StepWork::Webhook(_) => return None,
                }
            }
        };
        workflow = plan.workflows.get(&child.workflow)?;
    }
    Some(workflow)
}

/// Returns `true` if a step may be resumed to another of its workflow.
pub(super) fn may_resume_to(plan: &Plan, scope: &str, step: &str, other: &str) -> bool {
    let Some(workflow) = workflow(plan, scope) else {
        return false;
    };
    let find = |id: &str| workflow.steps.iter().find(|one| one.id == id);
    let both = find(step).zip(find(other));
    both.is_some_and(|(step, other)| other.may_resume(step))
}

/// `NAME.N`: an item of a fan-out, or what a command runs.
fn numbered(id: &str) -> Option<(&str, u32)> {
    let (name, number) = id.rsplit_once('.')?;
    Some((name, number.parse().ok()?))
}

/// Whose question or run has this address.
fn responder<'p>(plan: &'p Plan, address: &str) -> Option<&'p ResponderPlan> {
    let (name, _) = address.strip_prefix('@')?.rsplit_once('.')?;
    let mut all = plan
        .worlds
        .values()
        .flat_map(|world| world.all_responders());
    all.find(|one| one.name == name)
}

/// The server that an agent step calls by this name.
pub(super) fn server<'p>(
    plan: &'p Plan,
    scope: &str,
    step: &str,
    name: &str,
) -> Option<&'p ServerPlan> {
    let StepWork::Agent(agent) = work(plan, scope, step)? else {
        return None;
    };
    let servers = &plan.agents.get(&agent.file)?.servers;
    servers.iter().find(|server| server.name == name)
}

fn is_about_agents(placed: &PositionedFrame) -> bool {
    matches!(
        placed.frame.event.kind().split_once('.'),
        Some(("llm" | "tool" | "approval" | "review" | "suspend", _))
    )
}
