//! A run, step by step: what each followed from, what it called, how long it took.
//!
//! The frame tree ([`super::trace`]) says everything; this says what a person asks first. An inline
//! child stands below the step that called it.

use std::collections::{BTreeMap, BTreeSet};

use ktsu_ledger::{Frame, Timestamp};
use ktsu_projections::Lineage;
use ktsu_projections::envelope::{Envelope, EnvelopeFold, Fault, Metrics, StepView};
use ktsu_projections::lineage::Node;
use ktsu_projections::run::FoldError;
use serde::Serialize;

/// A run or an inline child.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Told {
    /// `run_…`, or `run_…/call`.
    pub run_id: String,
    /// The workflow.
    pub workflow: String,
    /// Its version.
    pub version: String,
    /// The run's status.
    pub status: String,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Fault>,
    /// Milliseconds since the run was created.
    pub after_ms: u64,
    /// What all of it used.
    pub totals: Metrics,
    /// Every step, in file order.
    pub steps: Vec<Step>,
}

/// A step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Step {
    /// Its id.
    pub id: String,
    /// `agent`, `transform`, `webhook` or `workflow`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its status.
    pub status: String,
    /// Which attempt this is, once there is one.
    pub attempt: u32,
    /// The steps beside it that it followed from, by id.
    pub after: Vec<String>,
    /// The first frame about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frame: Option<u64>,
    /// Milliseconds since the run was created, once it began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after_ms: Option<u64>,
    /// Why it was skipped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skip_reason: Option<String>,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Fault>,
    /// What it used.
    pub metrics: Metrics,
    /// What left the process on its behalf, and the answers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<Call>,
    /// The child it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub child: Option<Box<Told>>,
}

/// A frame about a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Call {
    /// The frame.
    pub frame: u64,
    /// Its type.
    #[serde(rename = "type")]
    pub kind: String,
    /// Milliseconds since the run was created.
    pub after_ms: u64,
    /// At a glance.
    pub detail: String,
}

/// Tells a recorded run (`""`) or an inline child; none if there is no such child.
///
/// # Errors
/// [`FoldError`].
pub fn told(frames: &[Frame], scope: &str) -> Result<Option<Told>, FoldError> {
    let fold = EnvelopeFold::of(frames)?;
    let lineage = Lineage::of(frames);
    let mut about: BTreeMap<(&str, &str), Vec<&Node>> = BTreeMap::new();
    for node in lineage.nodes() {
        if let Some(step) = &node.step {
            about.entry((&node.scope, step)).or_default().push(node);
        }
    }
    let teller = Teller {
        fold: &fold,
        lineage: &lineage,
        about,
        start: frames.first().map(|frame| frame.at),
    };
    Ok(teller.run(scope))
}

struct Teller<'a> {
    fold: &'a EnvelopeFold,
    lineage: &'a Lineage,
    /// Frames by scope and step.
    about: BTreeMap<(&'a str, &'a str), Vec<&'a Node>>,
    start: Option<Timestamp>,
}

impl Teller<'_> {
    /// Children are as deep as their workflows are nested, which the kit bounds.
    fn run(&self, scope: &str) -> Option<Told> {
        let envelope: Envelope = self.fold.envelope(scope)?;
        let steps = envelope.steps.into_iter();
        let steps = steps.map(|step| self.step(scope, step)).collect();
        Some(Told {
            run_id: envelope.run_id,
            workflow: envelope.workflow,
            version: envelope.version,
            status: envelope.status,
            error: envelope.error,
            after_ms: envelope.created_at.map_or(0, |at| self.since(at)),
            totals: envelope.totals,
            steps,
        })
    }

    fn step(&self, scope: &str, view: StepView) -> Step {
        let about = self.about.get(&(scope, view.id.as_str()));
        let about = about.map_or(&[][..], Vec::as_slice);
        let inner = if scope.is_empty() {
            view.id.clone()
        } else {
            format!("{scope}/{}", view.id)
        };
        let calls = about.iter().filter(|node| !node.kind.starts_with("step."));
        Step {
            after: self.followed(scope, &view.id, about),
            frame: about.first().map(|node| node.seq),
            after_ms: about.first().map(|node| self.since(node.at)),
            calls: calls.map(|node| self.call(node)).collect(),
            child: (view.kind == "workflow" && !about.is_empty())
                .then(|| self.run(&inner).map(Box::new))
                .flatten(),
            id: view.id,
            kind: view.kind,
            status: view.status,
            attempt: view.attempt,
            skip_reason: view.skip_reason,
            error: view.error,
            metrics: view.metrics,
        }
    }

    /// The steps whose frames caused the first frame of this one.
    fn followed(&self, scope: &str, id: &str, about: &[&Node]) -> Vec<String> {
        let causes = about.first().map_or(&[][..], |node| node.cause.as_slice());
        let steps = causes
            .iter()
            .filter_map(|seq| self.lineage.node(*seq))
            .filter(|node| node.scope == scope)
            .filter_map(|node| node.step.clone())
            .filter(|step| step != id);
        let mut seen = BTreeSet::new();
        steps.filter(|step| seen.insert(step.clone())).collect()
    }

    fn call(&self, node: &Node) -> Call {
        Call {
            frame: node.seq,
            kind: node.kind.clone(),
            after_ms: self.since(node.at),
            detail: node.detail.clone(),
        }
    }

    fn since(&self, at: Timestamp) -> u64 {
        self.start.map_or(0, |start| at.millis_since(start))
    }
}
