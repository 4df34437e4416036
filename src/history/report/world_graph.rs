//! The objects and relations of a world as a diagram. Names of nodes are made here, labels are
//! escaped: text from data cannot leave its label.

use std::collections::{BTreeMap, BTreeSet};

use super::mermaid::label;
use crate::world::WorldView;
use crate::world_labels::WorldLabels;

/// The most objects that are drawn, with those that relations name but the view does not have.
const MAX_NODES: usize = 500;
/// The most relations that are drawn.
const MAX_EDGES: usize = 2000;
/// The most characters of a label.
const MAX_LABEL: usize = 120;

/// The language of a diagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GraphFormat {
    /// A Mermaid flowchart.
    Mermaid,
    /// A directed graph of Graphviz.
    Dot,
}

/// A diagram of a world, or of a part of it. What exceeds the limits is counted in a node of its
/// own.
pub fn world_graph(view: &WorldView, labels: &WorldLabels, format: GraphFormat) -> String {
    let part = WorldPart::of(view, labels, (MAX_NODES, MAX_EDGES));
    let mut lines = vec![format.head().to_owned()];
    let nodes = (1..).zip(&part.objects);
    lines.extend(nodes.map(|(at, node)| format.node(at, node.id, node.name.as_deref())));
    let left_out = part.objects_left_out + part.relations_left_out;
    if left_out > 0 {
        lines.push(format.node(0, &format!("{left_out} more"), None));
    }
    let edges = part.relations.iter();
    lines.extend(edges.map(|edge| format.edge(edge.from + 1, edge.to + 1, edge.kind)));
    lines.extend(format.end().map(str::to_owned));
    lines.join("\n") + "\n"
}

/// The part of a world that is drawn.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorldPart<'v> {
    /// Objects, with the ends of relations that are not in the view or do not exist.
    pub objects: Vec<PartObject<'v>>,
    /// Relations between them.
    pub relations: Vec<PartRelation<'v>>,
    /// The number of objects of the view beside these.
    pub objects_left_out: usize,
    /// The number of relations of the view beside these.
    pub relations_left_out: usize,
}

/// An object of a part of a world.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartObject<'v> {
    /// Its id.
    pub id: &'v str,
    /// Its type; none if there is no such object.
    pub kind: Option<&'v str>,
    /// Its name.
    pub name: Option<String>,
}

/// A relation between two objects, by their places in the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartRelation<'v> {
    /// The object it begins at.
    pub from: usize,
    /// The object it ends at.
    pub to: usize,
    /// Its type.
    pub kind: &'v str,
}

impl<'v> WorldPart<'v> {
    /// Of a view, with at most so many objects and relations.
    pub fn of(view: &'v WorldView, labels: &'v WorldLabels, most: (usize, usize)) -> Self {
        let mut part = Self::default();
        let mut places: BTreeMap<&str, usize> = BTreeMap::new();
        let of_view = view.objects.iter().map(|object| {
            let name = || labels.of_object(&object.kind, &object.data);
            (object.id.as_str(), Some((object.kind.as_str(), name())))
        });
        let ends = view.relations.iter();
        let ends = ends.flat_map(|relation| [&relation.source_id, &relation.target_id]);
        let ends = ends.map(|id| (id.as_str(), labels.find(id)));
        let mut left_out = BTreeSet::new();
        for (id, found) in of_view.chain(ends) {
            if places.contains_key(id) {
                continue;
            }
            if part.objects.len() == most.0 {
                left_out.insert(id);
                continue;
            }
            places.insert(id, part.objects.len());
            let (kind, name) = found.map_or((None, None), |(kind, name)| (Some(kind), name));
            part.objects.push(PartObject { id, kind, name });
        }
        let relations = view.relations.iter().filter_map(|relation| {
            Some(PartRelation {
                from: *places.get(relation.source_id.as_str())?,
                to: *places.get(relation.target_id.as_str())?,
                kind: &relation.kind,
            })
        });
        part.relations = relations.take(most.1).collect();
        part.objects_left_out = left_out.len();
        part.relations_left_out = view.relations.len() - part.relations.len();
        part
    }
}

impl GraphFormat {
    fn head(self) -> &'static str {
        match self {
            Self::Mermaid => "flowchart LR",
            Self::Dot => "digraph world {\n  rankdir=LR\n  node [shape=box]",
        }
    }

    fn end(self) -> Option<&'static str> {
        match self {
            Self::Mermaid => None,
            Self::Dot => Some("}"),
        }
    }

    fn node(self, at: usize, id: &str, title: Option<&str>) -> String {
        let (id, title) = (self.label(id), self.label(title.unwrap_or_default()));
        let between = match self {
            _ if title.is_empty() => "",
            Self::Mermaid => "<br/>",
            Self::Dot => "\\n",
        };
        match self {
            Self::Mermaid => format!("  o{at}[\"{id}{between}{title}\"]"),
            Self::Dot => format!("  o{at} [label=\"{id}{between}{title}\"]"),
        }
    }

    fn edge(self, from: usize, to: usize, kind: &str) -> String {
        let kind = self.label(kind);
        match self {
            Self::Mermaid => format!("  o{from} -->|\"{kind}\"| o{to}"),
            Self::Dot => format!("  o{from} -> o{to} [label=\"{kind}\"]"),
        }
    }

    fn label(self, text: &str) -> String {
        match self {
            Self::Mermaid => label(text),
            Self::Dot => {
                let shown = text.chars().take(MAX_LABEL);
                let escaped = shown.flat_map(|one| match one {
                    '"' | '\\' => [Some('\\'), Some(one)],
                    one if one.is_control() => [Some(' '), None],
                    one => [Some(one), None],
                });
                escaped.flatten().collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ktsu_ledger::CanonicalJson;

    use crate::world::{ObjectView, RelationView};

    fn json(text: &str) -> CanonicalJson {
        CanonicalJson::parse(text.as_bytes()).unwrap()
    }

    fn object(id: &str, data: &str) -> ObjectView {
        ObjectView {
            id: id.to_owned(),
            kind: "T".to_owned(),
            data: json(data),
            created: None,
            changed: 1,
        }
    }

    fn relation(from: &str, to: &str, kind: &str) -> RelationView {
        RelationView {
            id: format!("{from}{to}"),
            kind: kind.to_owned(),
            source_id: from.to_owned(),
            target_id: to.to_owned(),
            data: json("{}"),
            created: None,
            changed: 1,
        }
    }

    fn view(objects: Vec<ObjectView>, relations: Vec<RelationView>) -> WorldView {
        WorldView {
            events: 0,
            run_id: "run_1".to_owned(),
            at: 1,
            world_hash: String::new(),
            objects,
            relations,
            context: json("{}"),
            next: None,
        }
    }

    #[test]
    fn objects_are_nodes_and_relations_edges_also_to_what_is_not_there() {
        let view = view(
            vec![object("a", r#"{"n":1,"text":"first"}"#), object("b", "{}")],
            vec![relation("a", "b", "about"), relation("b", "gone", "of")],
        );
        assert_eq!(
            world_graph(&view, &WorldLabels::default(), GraphFormat::Mermaid),
            "flowchart LR\n  o1[\"a<br/>first\"]\n  o2[\"b\"]\n  o3[\"gone\"]\n  \
             o1 -->|\"about\"| o2\n  o2 -->|\"of\"| o3\n"
        );
        assert_eq!(
            world_graph(&view, &WorldLabels::default(), GraphFormat::Dot),
            "digraph world {\n  rankdir=LR\n  node [shape=box]\n  o1 [label=\"a\\nfirst\"]\n  \
             o2 [label=\"b\"]\n  o3 [label=\"gone\"]\n  o1 -> o2 [label=\"about\"]\n  \
             o2 -> o3 [label=\"of\"]\n}\n"
        );
    }

    #[test]
    fn no_text_leaves_its_label() {
        let text = r#"{"t":"\"] --> x\\\"; click\n<script>"}"#;
        let view = view(
            vec![object("a\"\\", text)],
            vec![relation("a\"\\", "z", "\"|")],
        );
        let mermaid = world_graph(&view, &WorldLabels::default(), GraphFormat::Mermaid);
        for line in mermaid.lines().skip(1) {
            assert_eq!(line.matches('"').count(), 2, "{line}");
            assert!(!line.contains('\\') && !line.contains("<script"), "{line}");
        }
        let dot = world_graph(&view, &WorldLabels::default(), GraphFormat::Dot);
        assert!(
            dot.contains(r#"  o1 [label="a\"\\\n\"] --> x\\\"; click <script>"]"#),
            "{dot}"
        );
        assert!(dot.contains(r#"  o1 -> o2 [label="\"|"]"#), "{dot}");
    }

    #[test]
    fn a_large_world_is_cut_and_says_so() {
        let objects = (0..MAX_NODES + 7).map(|at| object(&format!("o-{at}"), "{}"));
        let relations = (0..MAX_EDGES + 3).map(|_| relation("o-0", "o-1", "r"));
        let view = view(objects.collect(), relations.collect());
        let graph = world_graph(&view, &WorldLabels::default(), GraphFormat::Dot);
        assert_eq!(graph.lines().count(), 3 + MAX_NODES + 1 + MAX_EDGES + 1);
        assert!(graph.contains("  o0 [label=\"10 more\"]"), "{graph}");
    }
}
