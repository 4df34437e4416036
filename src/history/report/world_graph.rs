//! The objects and relations of a world as a diagram. Names of nodes are made here, labels are
//! escaped: text from data cannot leave its label.

use std::collections::BTreeMap;

use ktsu_ledger::CanonicalJson;
use serde_json::Value;

use super::mermaid::label;
use crate::world::{ObjectView, WorldView};

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
pub fn world_graph(view: &WorldView, format: GraphFormat) -> String {
    let diagram = Diagram::of(view);
    let mut lines = vec![format.head().to_owned()];
    let nodes = (1..).zip(&diagram.nodes);
    lines.extend(nodes.map(|(at, lines)| format.node(at, lines)));
    if diagram.left_out > 0 {
        let more = (format!("{} more", diagram.left_out), String::new());
        lines.push(format.node(0, &more));
    }
    let edges = diagram.edges.iter();
    lines.extend(edges.map(|edge| format.edge(edge.from + 1, edge.to + 1, edge.kind)));
    lines.extend(format.end().map(str::to_owned));
    lines.join("\n") + "\n"
}

/// The part of a world that is drawn.
pub(super) struct Diagram<'v> {
    /// Two lines for each object: its id, and what it is about.
    pub(super) nodes: Vec<(String, String)>,
    /// Relations between them.
    pub(super) edges: Vec<Edge<'v>>,
    /// The number of objects and relations beside these.
    pub(super) left_out: usize,
}

/// A relation between two nodes, by their places in the list.
pub(super) struct Edge<'v> {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) kind: &'v str,
}

impl<'v> Diagram<'v> {
    pub(super) fn of(view: &'v WorldView) -> Self {
        let nodes = Nodes::of(view);
        let edges = view.relations.iter().filter_map(|relation| {
            Some(Edge {
                from: *nodes.places.get(relation.source_id.as_str())?,
                to: *nodes.places.get(relation.target_id.as_str())?,
                kind: &relation.kind,
            })
        });
        let edges: Vec<Edge<'_>> = edges.take(MAX_EDGES).collect();
        Self {
            left_out: nodes.left_out + view.relations.len() - edges.len(),
            nodes: nodes.labels,
            edges,
        }
    }
}

/// The objects that are drawn.
struct Nodes<'v> {
    /// Their places in the list, by id.
    places: BTreeMap<&'v str, usize>,
    /// Two lines for each.
    labels: Vec<(String, String)>,
    left_out: usize,
}

impl<'v> Nodes<'v> {
    fn of(view: &'v WorldView) -> Self {
        let mut nodes = Self {
            places: BTreeMap::new(),
            labels: Vec::new(),
            left_out: 0,
        };
        for object in &view.objects {
            nodes.add(&object.id, || title(object));
        }
        for relation in &view.relations {
            for end in [&relation.source_id, &relation.target_id] {
                nodes.add(end, String::new);
            }
        }
        nodes
    }

    fn add(&mut self, id: &'v str, title: impl FnOnce() -> String) {
        if self.places.contains_key(id) {
            return;
        }
        if self.labels.len() == MAX_NODES {
            self.left_out += 1;
            return;
        }
        self.places.insert(id, self.labels.len());
        self.labels.push((id.to_owned(), title()));
    }
}

/// The title of an object: the first text among its data.
fn title(object: &ObjectView) -> String {
    let first = |data: &CanonicalJson| {
        let data = data.to_value();
        let mut texts = data.as_object()?.values().filter_map(Value::as_str);
        texts.find(|text| !text.is_empty()).map(str::to_owned)
    };
    first(&object.data).unwrap_or_default()
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

    fn node(self, at: usize, (id, title): &(String, String)) -> String {
        let (id, title) = (self.label(id), self.label(title));
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
    use crate::world::RelationView;

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
            world_graph(&view, GraphFormat::Mermaid),
            "flowchart LR\n  o1[\"a<br/>first\"]\n  o2[\"b\"]\n  o3[\"gone\"]\n  \
             o1 -->|\"about\"| o2\n  o2 -->|\"of\"| o3\n"
        );
        assert_eq!(
            world_graph(&view, GraphFormat::Dot),
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
        let mermaid = world_graph(&view, GraphFormat::Mermaid);
        for line in mermaid.lines().skip(1) {
            assert_eq!(line.matches('"').count(), 2, "{line}");
            assert!(!line.contains('\\') && !line.contains("<script"), "{line}");
        }
        let dot = world_graph(&view, GraphFormat::Dot);
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
        let graph = world_graph(&view, GraphFormat::Dot);
        assert_eq!(graph.lines().count(), 3 + MAX_NODES + 1 + MAX_EDGES + 1);
        assert!(graph.contains("  o0 [label=\"10 more\"]"), "{graph}");
    }
}
