//! The causal tree of a run, and the way from one frame back to the root.

use std::collections::BTreeMap;

use ktsu_ledger::Frame;
use ktsu_projections::Lineage;
use ktsu_projections::lineage::Node;
use serde::Serialize;

/// A frame, and what follows from it first of all.
///
/// A frame with several causes stands under the latest of them, so that every frame stands once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Branch {
    /// The frame.
    #[serde(flatten)]
    pub node: Node,
    /// Milliseconds since the run was created.
    pub after_ms: u64,
    /// What follows from it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub effects: Vec<Branch>,
}

/// The causal tree of a run, one tree a root; with a `scope`, of that inline child alone.
pub fn tree(frames: &[Frame], scope: &str) -> Vec<Branch> {
    let lineage = Lineage::of(frames);
    let start = frames.first().map(|frame| frame.at);
    // Built from the last frame to the first: what follows from a frame always comes after it, so
    // no depth of nesting needs a stack.
    let mut hanging: BTreeMap<u64, Vec<Branch>> = BTreeMap::new();
    let mut roots = Vec::new();
    let inside = |seq: u64| {
        let node = lineage.node(seq);
        node.is_some_and(|node| super::shown::is_within(&node.scope, scope))
    };
    for node in lineage.nodes().iter().rev().filter(|node| inside(node.seq)) {
        let mut effects = hanging.remove(&node.seq).unwrap_or_default();
        effects.reverse();
        let branch = Branch {
            after_ms: start.map_or(0, |start| node.at.millis_since(start)),
            node: node.clone(),
            effects,
        };
        match node.cause.iter().filter(|cause| inside(**cause)).max() {
            Some(cause) => hanging.entry(*cause).or_default().push(branch),
            None => roots.push(branch),
        }
    }
    roots.reverse();
    roots
}

/// A frame and everything it follows from, each once, latest first; none if there is no such frame.
pub fn ancestors(frames: &[Frame], seq: u64) -> Option<Vec<Node>> {
    let lineage = Lineage::of(frames);
    lineage.node(seq)?;
    let chain = lineage.ancestors(seq);
    Some(
        chain
            .into_iter()
            .filter_map(|seq| lineage.node(seq).cloned())
            .collect(),
    )
}
