//! The subschemas of a document as a graph: what each applies to the same place of a value, and what
//! to the places below it.

use std::collections::BTreeMap;

use jsonschema::Validator;
use serde_json::Value;

use super::limits::MAX_VISITS_PER_PAIR;
use super::text::PatternCost;

/// Steps to compare one value of a list with the others.
pub(super) const STEPS_TO_COMPARE: u64 = 8;

/// A subschema, by its number in [`Graph::nodes`].
pub(super) type NodeId = u32;

/// A subschema: the others that it applies, and the cost of a visit beyond itself.
#[derive(Debug, Default)]
pub(super) struct SchemaNode {
    /// To the same place.
    pub(super) in_place: Vec<NodeId>,
    /// To the same place, where it has a member of this name.
    pub(super) dependent: Vec<(String, NodeId)>,
    /// To the member of this name.
    pub(super) properties: BTreeMap<String, NodeId>,
    /// To members whose names match.
    pub(super) patterns: Vec<NamePattern>,
    /// To members that neither of these two speaks of.
    pub(super) additional: Vec<NodeId>,
    /// To the names of members.
    pub(super) names: Option<NodeId>,
    /// To the first items, one each.
    pub(super) prefix: Vec<NodeId>,
    /// To the items after those.
    pub(super) items: Option<NodeId>,
    /// To every item.
    pub(super) every_item: Vec<NodeId>,
    /// True if it comes to itself again at the same place.
    pub(super) endless: bool,
    /// True if it compares the items of a list.
    pub(super) unique: bool,
    /// The costs for a text.
    pub(super) text: Vec<PatternCost>,
    /// Names that it looks for in every object: `properties`, `required` and their like.
    pub(super) listed_names: u64,
    /// Those of them that may be missing, each a failure of its own.
    pub(super) required_names: u64,
    /// The values of its `enum`.
    pub(super) listed: ListedValues,
}

/// Values that others are compared with.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct ListedValues {
    pub(super) count: u64,
    /// With all values within them.
    pub(super) all: u64,
}

/// A pattern of names, and the subschema that applies to members whose names match.
pub(super) struct NamePattern {
    pub(super) source: String,
    pub(super) cost: PatternCost,
    pub(super) target: NodeId,
    pub(super) matcher: Option<Validator>,
}

impl NamePattern {
    /// Returns `true` if a name matches, as the validator has it.
    pub(super) fn matches(&self, name: &Value) -> bool {
        let matcher = self.matcher.as_ref();
        matcher.is_none_or(|matcher| matcher.is_valid(name))
    }
}

impl std::fmt::Debug for NamePattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.source)
    }
}

impl SchemaNode {
    /// Lists names that may be missing.
    pub(super) fn require(&mut self, names: u64) {
        self.listed_names += names;
        self.required_names += names;
    }

    /// Returns `true` if it applies anything to members of objects.
    pub(super) fn has_members(&self) -> bool {
        !(self.properties.is_empty() && self.patterns.is_empty() && self.additional.is_empty())
            || self.names.is_some()
    }

    /// Returns `true` if it applies anything to items of lists.
    pub(super) fn has_items(&self) -> bool {
        !(self.prefix.is_empty() && self.every_item.is_empty()) || self.items.is_some()
    }

    /// Everything it applies to the same place.
    pub(super) fn beside(&self) -> impl Iterator<Item = NodeId> {
        let dependent = self.dependent.iter().map(|(_, node)| *node);
        self.in_place.iter().copied().chain(dependent)
    }

    /// Everything it applies below.
    pub(super) fn below(&self) -> impl Iterator<Item = NodeId> {
        let members = self.properties.values().copied();
        let members = members.chain(self.patterns.iter().map(|pattern| pattern.target));
        let members = members
            .chain(self.additional.iter().copied())
            .chain(self.names);
        let items = self.prefix.iter().copied().chain(self.items);
        members.chain(items).chain(self.every_item.iter().copied())
    }

    /// Steps for each byte of a value, at the most.
    fn steps_per_byte(&self) -> u64 {
        let names = self.patterns.iter().map(|pattern| pattern.cost);
        let text = self.text.iter().copied().chain(names);
        let text = text.fold(0, |sum: u64, cost| sum.saturating_add(cost.places()));
        text.saturating_add(if self.unique { STEPS_TO_COMPARE } else { 0 })
    }

    /// Steps for each value because of what it lists, at the most.
    fn listed_per_value(&self) -> u64 {
        self.listed_names.saturating_add(self.listed.all)
    }
}

/// The subschemas of one document; the first is the document itself.
#[derive(Debug)]
pub(super) struct Graph {
    pub(super) nodes: Vec<SchemaNode>,
    /// The place of each in an order in which what applies to the same place comes later.
    pub(super) rank: Vec<u32>,
    /// The reverse of `rank`.
    pub(super) by_rank: Vec<NodeId>,
    /// Paths to all subschemas together; `None` with a recursion, or with too many to one.
    paths: Option<u64>,
    steps_per_byte: u64,
    listed_per_value: u64,
}

impl Graph {
    /// Of the nodes of a document.
    pub(super) fn of(mut nodes: Vec<SchemaNode>) -> Self {
        let rank = rank(&mut nodes);
        let mut by_rank = vec![0; nodes.len()];
        for (node, at) in (0..).zip(&rank) {
            if let Some(place) = by_rank.get_mut(*at as usize) {
                *place = node;
            }
        }
        let counted = paths(&nodes);
        let paths = counted.as_ref().map(|counted| {
            let sum = |sum: u64, paths: &u64| sum.saturating_add(*paths);
            counted.iter().fold(0, sum)
        });
        let times = |at: usize| {
            let times = counted.as_ref().and_then(|counted| counted.get(at));
            times.copied().unwrap_or(MAX_VISITS_PER_PAIR)
        };
        let all = |steps: fn(&SchemaNode) -> u64| {
            let each = nodes.iter().enumerate();
            let each = each.map(|(at, node)| steps(node).saturating_mul(times(at)));
            each.fold(0, u64::saturating_add)
        };
        let steps_per_byte = all(SchemaNode::steps_per_byte);
        let listed_per_value = all(SchemaNode::listed_per_value);
        Self {
            nodes,
            rank,
            by_rank,
            paths,
            steps_per_byte,
            listed_per_value,
        }
    }

    pub(super) fn node(&self, node: NodeId) -> Option<&SchemaNode> {
        self.nodes.get(node as usize)
    }

    /// Returns `true` if no value makes more than [`MAX_VISITS_PER_PAIR`] visits of any pair.
    pub(super) fn paths_are_few(&self) -> bool {
        self.paths.is_some()
    }

    pub(super) fn paths(&self) -> u64 {
        self.paths.unwrap_or(u64::MAX)
    }

    pub(super) fn steps_per_byte(&self) -> u64 {
        self.steps_per_byte
    }

    pub(super) fn listed_per_value(&self) -> u64 {
        self.listed_per_value
    }
}

/// An order in which what a subschema applies to the same place comes after it. Marks those that
/// come to themselves again, and drops the edge that does.
pub(super) fn rank(nodes: &mut [SchemaNode]) -> Vec<u32> {
    #[derive(Clone, Copy, PartialEq)]
    enum Mark {
        New,
        Open,
        Done,
    }
    let mut marks = vec![Mark::New; nodes.len()];
    let mut after = Vec::with_capacity(nodes.len());
    for start in 0..nodes.len() {
        if marks[start] != Mark::New {
            continue;
        }
        marks[start] = Mark::Open;
        let mut open = vec![(start, nodes[start].beside().collect::<Vec<_>>())];
        while let Some((at, rest)) = open.last_mut() {
            let at = *at;
            let Some(next) = rest.pop() else {
                marks[at] = Mark::Done;
                after.push(at);
                open.pop();
                continue;
            };
            match marks[next as usize] {
                Mark::Done => {}
                Mark::Open => {
                    let node = &mut nodes[at];
                    node.endless = true;
                    node.in_place.retain(|one| *one != next);
                    node.dependent.retain(|(_, one)| *one != next);
                }
                Mark::New => {
                    let next = next as usize;
                    marks[next] = Mark::Open;
                    open.push((next, nodes[next].beside().collect()));
                }
            }
        }
    }
    let mut rank = vec![0; nodes.len()];
    for (at, node) in (0..).zip(after.into_iter().rev()) {
        rank[node] = at;
    }
    rank
}

/// The number of paths to each subschema, unless there is a recursion or too many to one.
fn paths(nodes: &[SchemaNode]) -> Option<Vec<u64>> {
    let all = |node: &SchemaNode| node.beside().chain(node.below()).collect::<Vec<_>>();
    if nodes.iter().any(|node| node.endless) {
        return None;
    }
    let mut into = vec![0u32; nodes.len()];
    for target in nodes.iter().flat_map(all) {
        into[target as usize] += 1;
    }
    let mut paths = vec![0u64; nodes.len()];
    *paths.first_mut()? = 1;
    let mut ready: Vec<usize> = (0..nodes.len()).filter(|at| into[*at] == 0).collect();
    let mut seen = 0;
    while let Some(at) = ready.pop() {
        seen += 1;
        if paths[at] > MAX_VISITS_PER_PAIR {
            return None;
        }
        for target in all(&nodes[at]) {
            let target = target as usize;
            paths[target] = paths[target].saturating_add(paths[at]);
            into[target] -= 1;
            if into[target] == 0 {
                ready.push(target);
            }
        }
    }
    (seen == nodes.len()).then_some(paths)
}
