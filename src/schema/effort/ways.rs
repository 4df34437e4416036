//! Recursions that come to one definition at one place by two ways.
//!
//! Both ways start from one subschema, go down the value by the same names, meet in one definition,
//! and come back to where they started. Such a recursion doubles with each level of a value. Many
//! schemas have one: each branch of a union of recursive forms has a field of the same name.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use jsonschema::Validator;
use serde_json::Value;

use super::builder;
use super::graph::{NamePattern, NodeId, SchemaNode, rank};

/// The most that are found in a schema.
const MAX_FOUND: usize = 16;

/// The most pairs of subschemas that are looked at.
const MAX_LOOKS: usize = 200_000;

/// A definition to which a recursion comes at one place of a value by two ways. All are JSON
/// pointers into the schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TwoWays {
    /// The definition that both come to.
    pub definition: String,
    /// The subschemas that lead there.
    pub ways: [String; 2],
}

/// The definitions of a schema that a recursion reaches by two ways, one pair of ways for each.
pub(crate) fn two_ways(
    document: &Value,
    single: &dyn Fn(&Value) -> Option<Validator>,
) -> Vec<TwoWays> {
    if !builder::refers(document) {
        return Vec::new();
    }
    let (mut nodes, ids) = builder::read(document, single);
    rank(&mut nodes);
    let search = Search {
        group: groups(&nodes),
        nodes: &nodes,
    };
    let found = search.all();
    let wanted: HashSet<NodeId> = found
        .iter()
        .flat_map(|(definition, ways)| [*definition, ways[0], ways[1]])
        .collect();
    let pointers = pointers(document, &ids, &wanted);
    let named = |node: NodeId| pointers.get(&node).cloned();
    let mut found: Vec<TwoWays> = found
        .into_iter()
        .filter_map(|(definition, [one, other])| {
            let mut ways = [named(one)?, named(other)?];
            ways.sort();
            Some(TwoWays {
                definition: named(definition)?,
                ways,
            })
        })
        .collect();
    found.sort_by(|a, b| a.ways.cmp(&b.ways));
    found
}

/// The pointers of some subschemas.
fn pointers(
    document: &Value,
    ids: &HashMap<*const Value, NodeId>,
    wanted: &HashSet<NodeId>,
) -> HashMap<NodeId, String> {
    let mut found = HashMap::new();
    if wanted.is_empty() {
        return found;
    }
    let mut open = vec![(document, String::new())];
    while let Some((value, at)) = open.pop() {
        if let Some(id) = ids.get(&std::ptr::from_ref(value))
            && wanted.contains(id)
        {
            found.insert(*id, at.clone());
        }
        match value {
            Value::Object(members) => open.extend(members.iter().map(|(name, value)| {
                let name = name.replace('~', "~0").replace('/', "~1");
                (value, format!("{at}/{name}"))
            })),
            Value::Array(items) => {
                let items = items.iter().enumerate();
                open.extend(items.map(|(index, value)| (value, format!("{at}/{index}"))));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    found
}

/// For each subschema the group of those that come to each other, 0 for none.
fn groups(nodes: &[SchemaNode]) -> Vec<u32> {
    let targets = |at: usize| -> Vec<usize> {
        let node = &nodes[at];
        let all = node.beside().chain(node.below());
        all.map(|node| node as usize).collect()
    };
    let count = nodes.len();
    let mut reached = vec![false; count];
    let mut after = Vec::with_capacity(count);
    for start in 0..count {
        if std::mem::replace(&mut reached[start], true) {
            continue;
        }
        let mut open = vec![(start, targets(start))];
        while let Some((at, rest)) = open.last_mut() {
            match rest.pop() {
                Some(next) if std::mem::replace(&mut reached[next], true) => {}
                Some(next) => open.push((next, targets(next))),
                None => {
                    after.push(*at);
                    open.pop();
                }
            }
        }
    }
    let mut sources = vec![Vec::new(); count];
    for at in 0..count {
        for target in targets(at) {
            sources[target].push(at);
        }
    }
    let mut group = vec![0; count];
    let mut seen = vec![false; count];
    for (number, start) in (1..).zip(after.into_iter().rev()) {
        let (mut members, mut open) = (Vec::new(), vec![start]);
        while let Some(at) = open.pop() {
            if !std::mem::replace(&mut seen[at], true) {
                members.push(at);
                open.extend(sources[at].iter().filter(|source| !seen[**source]));
            }
        }
        let comes_back = members.len() > 1 || targets(start).contains(&start);
        for at in members {
            group[at] = if comes_back { number } else { 0 };
        }
    }
    group
}

/// The members or items below a place that something applies to.
#[derive(Clone, Copy)]
enum Below<'n> {
    Name(&'n str),
    Pattern(&'n NamePattern),
    Other(&'n SchemaNode),
    Names,
    Item(usize),
    ItemsFrom(usize),
    EveryItem,
}

impl Below<'_> {
    /// Returns `true` if both can apply to one place.
    fn meets(self, other: Self) -> bool {
        match (self, other) {
            (Self::Name(a), Self::Name(b)) => a == b,
            (Self::Name(name), Self::Pattern(pattern))
            | (Self::Pattern(pattern), Self::Name(name)) => {
                pattern.matches(&Value::String(name.to_owned()))
            }
            (Self::Pattern(a), Self::Pattern(b)) => a.source == b.source,
            (Self::Name(name), Self::Other(node)) | (Self::Other(node), Self::Name(name)) => {
                let text = Value::String(name.to_owned());
                !node.properties.contains_key(name)
                    && !node.patterns.iter().any(|pattern| pattern.matches(&text))
            }
            (Self::Pattern(pattern), Self::Other(node))
            | (Self::Other(node), Self::Pattern(pattern)) => {
                !node.patterns.iter().any(|one| one.source == pattern.source)
            }
            (Self::Other(_), Self::Other(_)) | (Self::Names, Self::Names) => true,
            (Self::Item(a), Self::Item(b)) => a == b,
            (Self::Item(at), Self::ItemsFrom(from)) | (Self::ItemsFrom(from), Self::Item(at)) => {
                at >= from
            }
            (Self::ItemsFrom(_), Self::ItemsFrom(_)) => true,
            (Self::EveryItem, Self::Item(_) | Self::ItemsFrom(_) | Self::EveryItem)
            | (Self::Item(_) | Self::ItemsFrom(_), Self::EveryItem) => true,
            _ => false,
        }
    }
}

type Found = (NodeId, [NodeId; 2]);

struct Search<'n> {
    nodes: &'n [SchemaNode],
    group: Vec<u32>,
}

impl<'n> Search<'n> {
    /// One pair of ways for each definition.
    fn all(&self) -> BTreeMap<NodeId, [NodeId; 2]> {
        let mut found = BTreeMap::new();
        let mut looks = MAX_LOOKS;
        for start in (0..).take(self.nodes.len()) {
            if self.group_of(start) == 0 {
                continue;
            }
            for (definition, ways) in self.from(start, &mut looks) {
                found.entry(definition).or_insert(ways);
            }
            if looks == 0 || found.len() >= MAX_FOUND {
                break;
            }
        }
        found
    }

    fn group_of(&self, node: NodeId) -> u32 {
        self.group.get(node as usize).copied().unwrap_or(0)
    }

    /// The subschemas that one applies to its own place, itself first, within its group; and the
    /// first of them that comes twice, with those that apply it.
    fn beside(&self, start: NodeId) -> (Vec<NodeId>, Option<Found>) {
        let mut list = vec![start];
        let mut from: HashMap<NodeId, NodeId> = HashMap::from([(start, start)]);
        let mut twice = None;
        let mut at = 0;
        while let Some(node) = list.get(at).copied() {
            at += 1;
            for next in self.nodes[node as usize].beside() {
                if self.group_of(next) != self.group_of(start) {
                    continue;
                }
                match from.get(&next) {
                    Some(first) => {
                        twice.get_or_insert((next, [*first, node]));
                    }
                    None => {
                        from.insert(next, node);
                        list.push(next);
                    }
                }
            }
        }
        (list, twice)
    }

    /// The subschemas that are applied below a place by any of some subschemas, within a group.
    fn below(&self, nodes: &[NodeId], group: u32) -> Vec<(Below<'n>, NodeId)> {
        let mut found = Vec::new();
        for node in nodes {
            let node = &self.nodes[*node as usize];
            let named = node.properties.iter();
            found.extend(named.map(|(name, target)| (Below::Name(name), *target)));
            let patterns = node.patterns.iter();
            found.extend(patterns.map(|pattern| (Below::Pattern(pattern), pattern.target)));
            let others = node.additional.iter();
            found.extend(others.map(|target| (Below::Other(node), *target)));
            found.extend(node.names.map(|target| (Below::Names, target)));
            let prefix = node.prefix.iter().enumerate();
            found.extend(prefix.map(|(index, target)| (Below::Item(index), *target)));
            let from = Below::ItemsFrom(node.prefix.len());
            found.extend(node.items.map(|target| (from, target)));
            let every = node.every_item.iter();
            found.extend(every.map(|target| (Below::EveryItem, *target)));
        }
        found.retain(|(_, target)| self.group_of(*target) == group);
        found
    }

    /// The subschemas that one comes to by two ways.
    fn from(&self, start: NodeId, looks: &mut usize) -> Vec<Found> {
        let group = self.group_of(start);
        let (beside, twice) = self.beside(start);
        let mut found: Vec<Found> = twice.into_iter().collect();
        let below = self.below(&beside, group);
        let mut seen = HashSet::new();
        let mut open = VecDeque::new();
        for (a, b) in pairs(&below, &below) {
            *looks = looks.saturating_sub(1);
            open.push_back(((a, b), [a, b]));
        }
        while let Some(((a, b), ways)) = open.pop_front() {
            if *looks == 0 {
                break;
            }
            *looks -= 1;
            let place = (a.min(b), a.max(b));
            if a == b || !seen.insert(place) {
                continue;
            }
            let ((of_a, _), (of_b, _)) = (self.beside(a), self.beside(b));
            let meeting = of_a.iter().find(|node| of_b.contains(node));
            match meeting {
                Some(definition) => found.push((*definition, ways)),
                None => {
                    let (below_a, below_b) = (self.below(&of_a, group), self.below(&of_b, group));
                    for pair in pairs(&below_a, &below_b) {
                        *looks = looks.saturating_sub(1);
                        open.push_back((pair, ways));
                    }
                }
            }
        }
        found
    }
}

/// The targets of two lists that can apply to one place.
fn pairs<'n>(
    one: &'n [(Below<'n>, NodeId)],
    other: &'n [(Below<'n>, NodeId)],
) -> impl Iterator<Item = (NodeId, NodeId)> {
    one.iter().flat_map(move |(a, to_a)| {
        let meeting = other.iter().filter(move |(b, _)| a.meets(*b));
        meeting.filter_map(move |(_, to_b)| (to_a != to_b).then_some((*to_a, *to_b)))
    })
}
