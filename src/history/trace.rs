//! The causal tree of a run, and the way from one frame back to the root.

use std::collections::BTreeMap;

use ktsu_ledger::Frame;
use ktsu_projections::Lineage;
use ktsu_projections::lineage::Node;

/// The causal tree of a run as JSON, one tree a root; with a `scope`, of that inline child alone.
///
/// Each frame has `after_ms`, milliseconds since the run was created, and `effects`, what follows
/// from it first of all: one with several causes stands under the latest of them, so that every
/// frame stands once. A chain of steps nests as deep as it is long, so nothing here recurses.
///
/// # Errors
/// None that a frame of ours can cause.
pub fn tree(frames: &[Frame], scope: &str) -> Result<String, serde_json::Error> {
    let lineage = Lineage::of(frames);
    let start = frames.first().map(|frame| frame.at);
    let inside = |node: &&Node| super::shown::is_within(&node.scope, scope);
    let mut effects: BTreeMap<u64, Vec<&Node>> = BTreeMap::new();
    let mut roots = Vec::new();
    for node in lineage.nodes().iter().filter(inside) {
        let causes = node.cause.iter().filter_map(|seq| lineage.node(*seq));
        match causes.filter(inside).map(|cause| cause.seq).max() {
            Some(cause) => effects.entry(cause).or_default().push(node),
            None => roots.push(node),
        }
    }
    let mut out = String::from("[");
    let mut open = vec![Piece::Text("]")];
    put_all(&roots, &mut open);
    while let Some(piece) = open.pop() {
        let node = match piece {
            Piece::Text(text) => {
                out.push_str(text);
                continue;
            }
            Piece::Node(node) => node,
        };
        let after_ms = start.map_or(0, |start| node.at.millis_since(start));
        let members = serde_json::to_string(node)?;
        out.push_str(members.strip_suffix('}').unwrap_or(&members));
        out.push_str(&format!(",\"after_ms\":{after_ms}"));
        match effects.remove(&node.seq) {
            None => out.push('}'),
            Some(effects) => {
                out.push_str(",\"effects\":[");
                open.push(Piece::Text("]}"));
                put_all(&effects, &mut open);
            }
        }
    }
    Ok(out)
}

/// What is still to be written.
enum Piece<'a> {
    Text(&'static str),
    Node(&'a Node),
}

fn put_all<'a>(nodes: &[&'a Node], open: &mut Vec<Piece<'a>>) {
    for (place, node) in nodes.iter().enumerate().rev() {
        open.push(Piece::Node(node));
        if place > 0 {
            open.push(Piece::Text(","));
        }
    }
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
