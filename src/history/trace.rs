//! The causal tree of a run, and the chain from one frame back to the root.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use ktsu_ledger::event::CallAttempt;
use ktsu_ledger::store::{Reader, StoreError};
use ktsu_ledger::{Frame, StreamId};
use ktsu_projections::Lineage;
use ktsu_projections::lineage::LineageNode;
use ktsu_projections::step_name::path_in;
use serde::Serialize;

use super::frame_page::MAX_BYTES;
use super::webhooks::{self, WebhookRequest};
use super::work_meter::{TooMuchWork, WorkMeter};

/// A frame in the tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TraceNode {
    /// The parent frame; none for a root.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<u64>,
    /// Milliseconds since the run was created.
    pub after_ms: u64,
    /// The frame.
    #[serde(flatten)]
    pub node: LineageNode,
    /// For a `webhook.sent`: what was sent to the endpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<WebhookRequest>,
    /// Every model that was asked, in order, where it is a reply that not one model alone gave.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<CallAttempt>,
}

/// The work of reading a frame and of placing it among the others.
pub const FRAME_WORK: u64 = 4;

/// The causal tree of a run, in the order of the frames; with a `scope`, of that inline child. Only
/// what is wanted of it.
///
/// The parent of a frame with several causes is the latest of them. The tree is a list with parents:
/// a chain of steps would nest as deep as it is long, and JSON parsers give up at a hundred levels.
///
/// # Errors
/// [`TooMuchWork`]: of what is listed; the work for all frames, [`FRAME_WORK`] each, is the caller's
/// to count, before it reads them.
pub fn tree(
    frames: &[Frame],
    scope: &str,
    wanted: &TraceFilter,
    meter: &mut WorkMeter,
) -> Result<Vec<TraceNode>, TooMuchWork> {
    let lineage = Lineage::from_frames(frames);
    let start = frames.first().map(|frame| frame.at);
    let inside = |node: &LineageNode| super::frame_page::is_within(&node.scope, scope);
    let placed = |node: &LineageNode| {
        let causes = node.cause.iter().filter_map(|seq| lineage.node(*seq));
        let causes = causes.filter(|cause| inside(cause)).map(|cause| cause.seq);
        TraceNode {
            parent: causes.max(),
            after_ms: start.map_or(0, |start| node.at.millis_since(start)),
            node: node.clone(),
            request: None,
            attempts: attempts(frames, node.seq),
        }
    };
    let nodes = lineage.nodes().iter();
    let nodes = nodes.filter(|node| inside(node) && wanted.matches(*node));
    let mut tree = Vec::new();
    for node in nodes {
        meter.spend_copy(size_of_node(node))?;
        tree.push(placed(node));
    }
    Ok(tree)
}

/// About how many bytes a node takes.
fn size_of_node(node: &LineageNode) -> usize {
    node.detail.len() + node.cause.len() * size_of::<u64>()
}

/// Puts the requests of webhooks into a tree.
///
/// # Errors
/// [`TooMuchWork`].
pub fn attach_requests(
    frames: &[Frame],
    tree: &mut [TraceNode],
    meter: &mut WorkMeter,
) -> Result<(), TooMuchWork> {
    let listed: HashSet<u64> = tree.iter().map(|placed| placed.node.seq).collect();
    let listed = |seq| listed.contains(&seq);
    let mut requests = webhooks::requests_within(frames, listed, MAX_BYTES, meter)?;
    for placed in tree {
        placed.request = requests.remove(&placed.node.seq);
    }
    Ok(())
}

/// The models that were asked for the reply that a frame holds.
fn attempts(frames: &[Frame], seq: u64) -> Vec<CallAttempt> {
    let frame = usize::try_from(seq).ok().and_then(|seq| frames.get(seq));
    let answer = frame.and_then(|frame| frame.event.response());
    answer.map_or_else(Vec::new, |answer| answer.attempts.clone())
}

/// A frame and everything it follows from, each once, latest first; none if there is no such frame.
pub fn ancestors(frames: &[Frame], seq: u64) -> Option<Vec<LineageNode>> {
    chain(frames, seq, Lineage::ancestors)
}

/// A frame and everything that follows from it, each once, in order; none if there is no such frame.
pub fn descendants(frames: &[Frame], seq: u64) -> Option<Vec<LineageNode>> {
    chain(frames, seq, Lineage::descendants)
}

fn chain(
    frames: &[Frame],
    seq: u64,
    follow: impl Fn(&Lineage, u64) -> Vec<u64>,
) -> Option<Vec<LineageNode>> {
    let lineage = Lineage::from_frames(frames);
    lineage.node(seq)?;
    let chain = follow(&lineage, seq).into_iter();
    Some(chain.filter_map(|seq| lineage.node(seq).cloned()).collect())
}

/// Says of frames which of their causes in other streams are not there.
///
/// # Errors
/// [`StoreError`].
pub fn mark_missing_causes<'n>(
    reader: &dyn Reader,
    nodes: impl IntoIterator<Item = &'n mut LineageNode>,
) -> Result<(), StoreError> {
    let mut tails: HashMap<StreamId, Option<u64>> = HashMap::new();
    for node in nodes {
        for cause in &node.foreign {
            let named = cause.rsplit_once('#');
            let named = named.and_then(|(name, seq)| Some((name.parse().ok()?, seq.parse().ok()?)));
            let Some((stream, seq)): Option<(StreamId, u64)> = named else {
                continue;
            };
            let last = match tails.entry(stream) {
                Entry::Occupied(known) => *known.get(),
                Entry::Vacant(new) => {
                    let tail = reader.tail(new.key())?;
                    *new.insert(tail.map(|tail| tail.seq))
                }
            };
            if last.is_none_or(|last| seq > last) && !node.missing.contains(cause) {
                node.missing.push(cause.clone());
            }
        }
    }
    Ok(())
}

/// A selection of frames.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TraceFilter {
    /// About this step, by path: `step`, `call/inner`; what is inside it counts too.
    pub step: Option<String>,
    /// Prefixes of types; a `*` at the end is ignored.
    pub kinds: Vec<String>,
    /// From this number on.
    pub since: Option<u64>,
    /// Up to this number.
    pub until: Option<u64>,
    /// Only those that say that something failed.
    pub failed: bool,
}

impl TraceFilter {
    /// Returns `true` if every frame is wanted.
    pub fn is_all(&self) -> bool {
        *self == Self::default()
    }

    /// Returns `true` if a frame is wanted.
    pub fn matches<'a>(&self, frame: impl Into<FrameSubject<'a>>) -> bool {
        let node = frame.into();
        let kind = self.kinds.iter().map(|kind| kind.trim_end_matches('*'));
        let of_kind =
            self.kinds.is_empty() || kind.into_iter().any(|kind| node.kind.starts_with(kind));
        let failed = [".failed", ".dead", ".lost", ".exhausted"];
        let failed = failed.iter().any(|end| node.kind.ends_with(end));
        of_kind
            && self.since.is_none_or(|since| node.seq >= since)
            && self.until.is_none_or(|until| node.seq <= until)
            && (failed || !self.failed)
            && self.step.as_deref().is_none_or(|step| is_about(node, step))
    }
}

/// What a frame is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameSubject<'a> {
    /// Its number.
    pub seq: u64,
    /// Its type.
    pub kind: &'a str,
    /// The inline child it belongs to.
    pub scope: &'a str,
    /// The step, or the item of a step.
    pub step: Option<&'a str>,
}

impl<'a> From<&'a LineageNode> for FrameSubject<'a> {
    fn from(node: &'a LineageNode) -> Self {
        Self {
            seq: node.seq,
            kind: &node.kind,
            scope: &node.scope,
            step: node.step.as_deref(),
        }
    }
}

/// Returns `true` if a frame is about a step, or about what is inside it.
pub fn is_about<'a>(frame: impl Into<FrameSubject<'a>>, step: &str) -> bool {
    let frame = frame.into();
    let step = step.strip_prefix("step.").unwrap_or(step);
    let path = path_in(frame.scope, frame.step.unwrap_or_default());
    let rest = path.strip_prefix(step);
    !step.is_empty() && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '.']))
}
