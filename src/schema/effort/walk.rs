//! Counts the visits of a value, place by place.
//!
//! Every place of a value has one place above it, so what is visited there follows from what was
//! visited above, with how often: nothing else has to be remembered. What is remembered is bounded by
//! how deeply the value is nested times the subschemas that apply to one place.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use serde_json::{Map, Value, map};

use super::graph::{Graph, NodeId, STEPS_TO_COMPARE, SchemaNode};
use super::limits::{MAX_STEPS, Measure};

/// The cost of checking one value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) visits: u64,
    pub(super) pairs: u64,
    pub(super) steps: u64,
    /// Rules that the value can break at the most.
    pub(super) failures: u64,
    /// There are more pairs than were to be counted.
    pub(super) ended_early: bool,
}

/// The number of values in a value, itself among them, and of bytes of text, names among them.
pub(super) fn size(value: &Value) -> (u64, u64) {
    let (mut values, mut bytes) = (0u64, 0u64);
    let mut open = vec![value];
    while let Some(value) = open.pop() {
        values += 1;
        match value {
            Value::String(text) => bytes += text.len() as u64,
            Value::Array(items) => open.extend(items),
            Value::Object(members) => {
                bytes += members.keys().map(|name| name.len() as u64).sum::<u64>();
                open.extend(members.values());
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
    (values, bytes)
}

/// Counts what checking a value takes, up to so many pairs.
pub(super) fn count(graph: &Graph, value: &Value, most_pairs: u64, measure: Measure) -> Count {
    let mut walk = Walk {
        graph,
        measure,
        count: Count::default(),
        times: vec![0; graph.nodes.len()],
        waiting: BinaryHeap::new(),
    };
    let mut open = Vec::new();
    walk.times_of(0, 1);
    open.extend(walk.visit(value));
    while let Some(place) = open.last_mut() {
        walk.count.ended_early = walk.count.pairs > most_pairs;
        if walk.count.ended_early || walk.count.steps > MAX_STEPS {
            break;
        }
        let Some(below) = place.next(&mut walk) else {
            open.pop();
            continue;
        };
        open.extend(walk.visit(below));
    }
    walk.count
}

/// A subschema, and how often it visits a place.
type Visited = (NodeId, u64);

/// A place whose members or items are being looked at.
enum Open<'v> {
    Object(map::Iter<'v>, Vec<Visited>),
    Array(
        std::iter::Enumerate<std::slice::Iter<'v, Value>>,
        Vec<Visited>,
    ),
}

impl<'v> Open<'v> {
    /// The next place below, with what visits it noted in the walk.
    fn next(&mut self, walk: &mut Walk<'_>) -> Option<&'v Value> {
        match self {
            Self::Object(members, visited) => {
                let (name, value) = members.next()?;
                walk.member(name, visited);
                Some(value)
            }
            Self::Array(items, visited) => {
                let (index, value) = items.next()?;
                walk.item(index, visited);
                Some(value)
            }
        }
    }
}

struct Walk<'g> {
    graph: &'g Graph,
    measure: Measure,
    count: Count,
    /// The number of visits of each subschema to the place that is looked at, by its rank.
    times: Vec<u64>,
    /// The ranks of those that do.
    waiting: BinaryHeap<Reverse<u32>>,
}

impl<'g> Walk<'g> {
    fn times_of(&mut self, node: NodeId, more: u64) {
        let Some(rank) = self.graph.rank.get(node as usize) else {
            return;
        };
        if let Some(times) = self.times.get_mut(*rank as usize) {
            if *times == 0 {
                self.waiting.push(Reverse(*rank));
            }
            *times = times.saturating_add(more);
        }
    }

    /// The next subschema that visits the place, after all that apply it there.
    fn next_visited(&mut self) -> Option<(NodeId, &'g SchemaNode, u64)> {
        let Reverse(rank) = self.waiting.pop()?;
        let node = *self.graph.by_rank.get(rank as usize)?;
        let times = std::mem::take(self.times.get_mut(rank as usize)?);
        Some((node, self.graph.node(node)?, times))
    }

    fn counted(&mut self, node: &SchemaNode, times: u64) {
        self.count.pairs += 1;
        self.count.visits = match node.endless {
            true => u64::MAX,
            false => self.count.visits.saturating_add(times),
        };
        self.count.failures = self.count.failures.saturating_add(times);
    }

    fn step(&mut self, times: u64, steps: u64) {
        let steps = steps.saturating_mul(times);
        self.count.steps = self.count.steps.saturating_add(steps);
    }

    /// Counts the visits of one place. What is below it, if anything visits that.
    fn visit<'v>(&mut self, value: &'v Value) -> Option<Open<'v>> {
        let mut below = Vec::new();
        let mut compared = None;
        let mut names = None;
        while let Some((id, node, times)) = self.next_visited() {
            self.counted(node, times);
            for next in &node.in_place {
                self.times_of(*next, times);
            }
            if self.measure == Measure::Listed {
                self.listed(node, times, value);
            }
            match value {
                Value::String(text) => self.text(node, times, text.len() as u64),
                Value::Array(items) => {
                    if node.unique {
                        let steps = compared.get_or_insert_with(|| {
                            let (values, bytes) = size(value);
                            values
                                .saturating_mul(STEPS_TO_COMPARE)
                                .saturating_add(bytes)
                        });
                        self.step(times, *steps);
                    }
                    if node.has_items() && !items.is_empty() {
                        self.step(times, items.len() as u64);
                        below.push((id, times));
                    }
                }
                Value::Object(members) => {
                    for (name, next) in &node.dependent {
                        if members.contains_key(name) {
                            self.times_of(*next, times);
                        }
                    }
                    if node.has_members() && !members.is_empty() {
                        let bytes = names.get_or_insert_with(|| {
                            members.keys().map(|name| name.len() as u64).sum::<u64>()
                        });
                        self.names(node, times, (members.len() as u64, *bytes));
                        below.push((id, times));
                    }
                }
                Value::Null | Value::Bool(_) | Value::Number(_) => {}
            }
        }
        match value {
            _ if below.is_empty() => None,
            Value::Object(members) => {
                self.visit_names(members, &below);
                Some(Open::Object(members.iter(), below))
            }
            Value::Array(items) => Some(Open::Array(items.iter().enumerate(), below)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
        }
    }

    fn text(&mut self, node: &SchemaNode, times: u64, bytes: u64) {
        for cost in &node.text {
            self.step(times, cost.steps(bytes));
        }
    }

    /// Counts the cost of looking for each name and each value that a subschema lists.
    fn listed(&mut self, node: &SchemaNode, times: u64, value: &Value) {
        let (names, values) = match value {
            Value::Object(_) => {
                let missing = node.required_names.saturating_mul(times);
                self.count.failures = self.count.failures.saturating_add(missing);
                (node.listed_names, node.listed.all)
            }
            Value::Array(_) => (0, node.listed.all),
            _ => (0, node.listed.count),
        };
        self.step(times, names.saturating_add(values));
    }

    /// Counts the cost of looking through the names of an object.
    fn names(&mut self, node: &SchemaNode, times: u64, (members, bytes): (u64, u64)) {
        let patterns = node.patterns.iter().map(|pattern| match self.measure {
            Measure::Listed => pattern.cost.steps_of_texts(members, bytes),
            Measure::Unlisted => pattern.cost.steps(bytes),
        });
        let steps = patterns.fold(members, u64::saturating_add);
        self.step(times, steps);
    }

    /// The names of members are places of their own.
    fn visit_names(&mut self, members: &Map<String, Value>, visited: &[Visited]) {
        let naming = visited.iter().filter_map(|(id, times)| {
            let names = self.graph.node(*id)?.names?;
            Some((names, *times))
        });
        let naming: Vec<Visited> = naming.collect();
        if naming.is_empty() {
            return;
        }
        for name in members.keys() {
            for (node, times) in &naming {
                self.times_of(*node, *times);
            }
            while let Some((_, node, times)) = self.next_visited() {
                self.counted(node, times);
                self.text(node, times, name.len() as u64);
                for next in &node.in_place {
                    self.times_of(*next, times);
                }
            }
        }
    }

    fn member(&mut self, name: &str, visited: &[Visited]) {
        let mut text = None;
        for (id, times) in visited {
            let Some(node) = self.graph.node(*id) else {
                continue;
            };
            let property = node.properties.get(name);
            let mut named = property.is_some();
            if let Some(property) = property {
                self.times_of(*property, *times);
            }
            for pattern in &node.patterns {
                let name = text.get_or_insert_with(|| Value::String(name.to_owned()));
                if pattern.matches(name) {
                    named = true;
                    self.times_of(pattern.target, *times);
                }
            }
            if !named {
                for additional in &node.additional {
                    self.times_of(*additional, *times);
                }
            }
        }
    }

    fn item(&mut self, index: usize, visited: &[Visited]) {
        for (id, times) in visited {
            let Some(node) = self.graph.node(*id) else {
                continue;
            };
            if let Some(item) = node.prefix.get(index).copied().or(node.items) {
                self.times_of(item, *times);
            }
            for each in &node.every_item {
                self.times_of(*each, *times);
            }
        }
    }
}
