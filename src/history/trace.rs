//! The causal tree of a run, and the way from one frame back to the root.

use ktsu_ledger::Frame;
use ktsu_projections::Lineage;
use ktsu_projections::lineage::Node;
use serde::Serialize;

/// A frame in the tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Placed {
    /// The frame it stands under; none for a root.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<u64>,
    /// Milliseconds since the run was created.
    pub after_ms: u64,
    /// The frame.
    #[serde(flatten)]
    pub node: Node,
}

/// The causal tree of a run, in the order of the frames; with a `scope`, of that inline child.
///
/// A frame with several causes stands under the latest of them, so that each stands once. The tree
/// is told as a list with parents: a chain of steps would nest as deep as it is long, and readers
/// of JSON give up at a hundred levels.
pub fn tree(frames: &[Frame], scope: &str) -> Vec<Placed> {
    let lineage = Lineage::of(frames);
    let start = frames.first().map(|frame| frame.at);
    let inside = |node: &Node| super::shown::is_within(&node.scope, scope);
    let placed = |node: &Node| {
        let causes = node.cause.iter().filter_map(|seq| lineage.node(*seq));
        let causes = causes.filter(|cause| inside(cause)).map(|cause| cause.seq);
        Placed {
            parent: causes.max(),
            after_ms: start.map_or(0, |start| node.at.millis_since(start)),
            node: node.clone(),
        }
    };
    let nodes = lineage.nodes().iter();
    nodes.filter(|node| inside(node)).map(placed).collect()
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
