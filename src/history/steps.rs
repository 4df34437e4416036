//! A run, step by step: what each followed from, what it called, how long it took.
//!
//! The frame tree ([`super::trace`]) contains everything; this is the summary that people read
//! first. An inline child is listed below the step that called it.

use std::collections::{BTreeMap, BTreeSet};

use ktsu_ledger::event::{AgentEvent, CallAttempt, FinishReason, StepEvent, Verdict, WorkerEvent};
use ktsu_ledger::{Event, Frame, Timestamp};
use ktsu_projections::Lineage;
use ktsu_projections::envelope::{
    AgentRemarks, Envelope, EnvelopeFold, ErrorView, ItemCountsView, ItemView, ShownStatus,
    StepView, UsageView,
};
use ktsu_projections::lineage::{LineageNode, item_name};
use ktsu_projections::run::{FoldError, RunStatus};
use ktsu_projections::step_name::path_in;
use serde::Serialize;

use super::frame_page::MAX_BYTES;
use super::steering::SteeringState;
use super::webhooks::{self, WebhookRequest};
use super::world_timeline::{WorldTimeline, world_timeline};

/// A run or an inline child.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RunTimeline {
    /// `run_…`, or `run_…/call`.
    pub run_id: String,
    /// The workflow.
    pub workflow: String,
    /// Its version.
    pub version: String,
    /// The run's status.
    pub status: RunStatus,
    /// The error with which it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorView>,
    /// That people paused or cancelled it.
    #[serde(flatten)]
    pub steered: SteeringState,
    /// Milliseconds since the run was created.
    pub after_ms: u64,
    /// The usage of all of it.
    pub totals: UsageView,
    /// Every step, in file order.
    pub steps: Vec<StepTimeline>,
    /// The activity of responders, in a run that loads worlds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub world: Option<WorldTimeline>,
}

/// A step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StepTimeline {
    /// Its id.
    pub id: String,
    /// `agent`, `transform`, `webhook` or `workflow`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its status.
    pub status: ShownStatus,
    /// The number of the attempt, once there is one.
    pub attempt: u32,
    /// The steps beside it that it followed from, by id.
    pub after: Vec<String>,
    /// The first frame about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frame: Option<u64>,
    /// Milliseconds since the run was created, once it began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after_ms: Option<u64>,
    /// The step by whose definition it runs, if it was resumed to one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resume_step: Option<String>,
    /// The reason why it was skipped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skip_reason: Option<String>,
    /// The error with which it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorView>,
    /// For agent steps: whether an agent looked at its draft once more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reflected: Option<bool>,
    /// The remarks of its agent beside its output.
    #[serde(flatten)]
    pub said: AgentRemarks,
    /// The counts of how its items ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counts: Option<ItemCountsView>,
    /// Its usage.
    pub metrics: UsageView,
    /// The calls that left the process on its behalf, and their outcomes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<TimelineEntry>,
    /// The items that were started, by index.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub items: Vec<ItemTimeline>,
    /// The child it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub child: Option<Box<RunTimeline>>,
    /// The workflows that its commands ran, in the order of items, commands and inputs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub invoked: Vec<RunTimeline>,
}

/// An item of a fan-out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ItemTimeline {
    /// `STEP.INDEX`.
    pub id: String,
    /// `running`, `complete`, `failed` or `skipped`.
    pub status: ShownStatus,
    /// The number of the attempt, once there is one.
    pub attempt: u32,
    /// The first frame about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frame: Option<u64>,
    /// Milliseconds since the run was created, once it began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after_ms: Option<u64>,
    /// Its agent's reason to skip it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skip_reason: Option<String>,
    /// The error with which it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorView>,
    /// True if its agent looked at its draft once more.
    pub reflected: bool,
    /// The remarks of its agent beside its output.
    #[serde(flatten)]
    pub said: AgentRemarks,
    /// Its usage.
    pub metrics: UsageView,
    /// The calls that left the process on its behalf, and their outcomes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<TimelineEntry>,
}

/// A model's answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ModelAnswer {
    /// The request.
    pub request: u64,
    /// The request, at a glance.
    pub asked: String,
    /// `provider/model`.
    pub model: String,
    /// Tokens sent.
    pub tokens_in: u64,
    /// Tokens received.
    pub tokens_out: u64,
    /// Millionths of a US dollar.
    pub cost_micro_usd: u64,
    /// From sending to answer, in milliseconds.
    pub duration_ms: u64,
    /// The reason why there is no reply: code and message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Every model that was asked, in order, where it was not the one that answered alone. What they
    /// used is part of what the call used.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<CallAttempt>,
}

/// A frame about a call or about the worker that makes the calls.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TimelineEntry {
    /// The frame.
    pub frame: u64,
    /// Its type.
    #[serde(rename = "type")]
    pub kind: String,
    /// Milliseconds since the run was created.
    pub after_ms: u64,
    /// At a glance.
    pub detail: String,
    /// The answer of a model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer: Option<ModelAnswer>,
    /// The request to an endpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<WebhookRequest>,
    /// True if it can be left out, because other entries imply it.
    #[serde(skip)]
    pub is_plain: bool,
}

/// The timeline of a recorded run (`""`) or an inline child; none if there is no such child.
///
/// # Errors
/// [`FoldError`].
pub fn timeline(frames: &[Frame], scope: &str) -> Result<Option<RunTimeline>, FoldError> {
    let fold = EnvelopeFold::of(frames)?;
    let lineage = Lineage::from_frames(frames);
    let mut about: BTreeMap<(String, String), Vec<&LineageNode>> = BTreeMap::new();
    for node in lineage.nodes() {
        if let Some(step) = &node.step {
            let key = (node.scope.clone(), step.clone());
            about.entry(key).or_default().push(node);
        }
    }
    let builder = TimelineBuilder {
        frames,
        fold: &fold,
        lineage: &lineage,
        about,
        requests: webhooks::requests(frames, |_| true, MAX_BYTES),
        start: frames.first().map(|frame| frame.at),
    };
    Ok(builder.run(scope))
}

struct TimelineBuilder<'a> {
    frames: &'a [Frame],
    fold: &'a EnvelopeFold,
    lineage: &'a Lineage,
    /// Frames by scope and by step or item.
    about: BTreeMap<(String, String), Vec<&'a LineageNode>>,
    /// The requests to endpoints, by frame.
    requests: BTreeMap<u64, WebhookRequest>,
    start: Option<Timestamp>,
}

impl TimelineBuilder<'_> {
    /// Children are as deep as their workflows are nested, which the kit bounds.
    fn run(&self, scope: &str) -> Option<RunTimeline> {
        let envelope: Envelope = self.fold.envelope(scope)?;
        let steps = envelope.steps.into_iter();
        let steps = steps.map(|step| self.step(scope, step)).collect();
        Some(RunTimeline {
            run_id: envelope.run_id,
            workflow: envelope.workflow,
            version: envelope.version,
            status: envelope.status,
            error: envelope.error,
            steered: SteeringState::of(self.fold.state()),
            after_ms: envelope.created_at.map_or(0, |at| self.since(at)),
            totals: envelope.totals,
            steps,
            world: match scope {
                "" => world_timeline(self.frames),
                _ => None,
            },
        })
    }

    fn step(&self, scope: &str, view: StepView) -> StepTimeline {
        let about = self.about(scope, &view.id);
        let items = view.items.into_iter().flatten();
        StepTimeline {
            after: self.predecessors(scope, &view.id, about),
            frame: about.first().map(|node| node.seq),
            after_ms: about.first().map(|node| self.since(node.at)),
            calls: self.calls(about),
            child: (view.kind == "workflow" && !about.is_empty())
                .then(|| self.run(&path_in(scope, &view.id)).map(Box::new))
                .flatten(),
            items: items.map(|item| self.item(scope, &view.id, item)).collect(),
            invoked: view
                .invoked
                .iter()
                .filter_map(|one| self.run(&one.run))
                .collect(),
            id: view.id,
            kind: view.kind,
            status: view.status,
            attempt: view.attempt,
            resume_step: view.resume_step,
            skip_reason: view.skip_reason,
            error: view.error,
            reflected: view.reflected,
            said: view.said,
            counts: view.counts,
            metrics: view.metrics,
        }
    }

    fn item(&self, scope: &str, step: &str, view: ItemView) -> ItemTimeline {
        let about = self.about(scope, &item_name(step, Some(view.item)));
        ItemTimeline {
            frame: about.first().map(|node| node.seq),
            after_ms: about.first().map(|node| self.since(node.at)),
            calls: self.calls(about),
            id: view.id,
            status: view.status,
            attempt: view.attempt,
            skip_reason: view.skip_reason,
            error: view.error,
            reflected: view.reflected,
            said: view.said,
            metrics: view.metrics,
        }
    }

    /// The frames about a step, without those about its items, or about an item.
    fn about(&self, scope: &str, name: &str) -> &[&LineageNode] {
        let about = self.about.get(&(scope.to_owned(), name.to_owned()));
        about.map_or(&[], Vec::as_slice)
    }

    /// The calls of a step or an item, without the frames of its start and end.
    fn calls(&self, about: &[&LineageNode]) -> Vec<TimelineEntry> {
        let tells = |kind: &str| !kind.starts_with("step.") && !kind.starts_with("item.");
        let calls = about.iter().filter(|node| tells(&node.kind));
        let mut calls: Vec<TimelineEntry> = calls.map(|node| self.call(node)).collect();
        let answers = calls.iter().filter_map(|call| call.answer.as_ref());
        let answered: BTreeSet<u64> = answers.map(|answer| answer.request).collect();
        for call in &mut calls {
            call.is_plain |= answered.contains(&call.frame);
        }
        calls
    }

    /// The steps whose frames caused the first frame of this one.
    fn predecessors(&self, scope: &str, id: &str, about: &[&LineageNode]) -> Vec<String> {
        let first = about.first();
        first.map_or_else(Vec::new, |node| steps_before(self.lineage, node, scope, id))
    }

    fn call(&self, node: &LineageNode) -> TimelineEntry {
        let frame = usize::try_from(node.seq).ok();
        let frame = frame.and_then(|seq| self.frames.get(seq));
        TimelineEntry {
            frame: node.seq,
            kind: node.kind.clone(),
            after_ms: self.since(node.at),
            detail: node.detail.clone(),
            answer: frame.and_then(|frame| self.answer(&frame.event)),
            request: self.requests.get(&node.seq).cloned(),
            is_plain: frame.is_some_and(|frame| is_plain(&frame.event)),
        }
    }

    fn answer(&self, event: &Event) -> Option<ModelAnswer> {
        let answer = event.response()?;
        let asked = self.lineage.node(answer.request);
        let error = answer.error.as_ref();
        Some(ModelAnswer {
            request: answer.request,
            asked: asked.map(|node| node.detail.clone()).unwrap_or_default(),
            model: format!("{}/{}", answer.provider, answer.model),
            tokens_in: answer.tokens_in,
            tokens_out: answer.tokens_out,
            cost_micro_usd: answer.cost_micro_usd,
            duration_ms: answer.duration_ms,
            error: error.map(|error| format!("{}: {}", error.code, error.message)),
            attempts: answer.attempts.clone(),
        })
    }

    fn since(&self, at: Timestamp) -> u64 {
        self.start.map_or(0, |start| at.millis_since(start))
    }
}

/// The steps of a scope that a frame about another one follows from, each once.
pub(super) fn steps_before(
    lineage: &Lineage,
    node: &LineageNode,
    scope: &str,
    id: &str,
) -> Vec<String> {
    let steps = node
        .cause
        .iter()
        .filter_map(|seq| lineage.node(*seq))
        .filter(|node| node.scope == scope)
        .filter_map(|node| node.step.as_deref())
        // The id of a step has no dot, the name of an item has one.
        .map(|name| name.split('.').next().unwrap_or(name).to_owned())
        .filter(|step| step != id);
    let mut seen = BTreeSet::new();
    steps.filter(|step| seen.insert(step.clone())).collect()
}

/// Returns `true` if a frame is part of the ordinary course of a task.
fn is_plain(event: &Event) -> bool {
    match event {
        Event::Worker(WorkerEvent::Dispatched(sent)) => sent.attempt == 1,
        Event::Agent(AgentEvent::Decided(_)) => true,
        Event::Agent(AgentEvent::Finished(finished)) => {
            matches!(
                finished.reason,
                FinishReason::Completed | FinishReason::Stopped
            )
        }
        Event::Step(StepEvent::ReservedEvaluated(one)) => {
            matches!(one.verdict, Verdict::Pass | Verdict::Noted)
        }
        _ => false,
    }
}
