//! The graph of a run: its plan as boxes and lines, laid out.
//!
//! [`draw`] is a pure function of the skeleton and the view. A fan-out is one box; a box that is opened
//! holds the steps of its children, or its items. What would be too much is one box that says how much it is.

use std::collections::{BTreeMap, BTreeSet};

use ktsu_history::skeleton::RunSkeleton;

use crate::dag::{BoxSize, DagLayout, layers, layout};
use crate::graph_step::{GraphStep, id_of};
use crate::graph_words::text_width;

/// The most boxes of a drawing.
const MAX_BOXES: usize = 600;
/// The most boxes of one row.
const MAX_BOXES_IN_ROW: usize = 40;
/// The most boxes beside each other in an opened fan-out.
const ITEMS_IN_ROW: usize = 4;
/// The most levels of boxes within boxes.
const MAX_DEPTH: usize = 8;
/// The widths of boxes.
const WIDTHS: (u32, u32) = (148, 252);
/// The height of a line of text.
const LINE: u32 = 17;
/// The room between the text of a box and its upper and lower edge.
const PAD: u32 = 8;
/// The room around what an opened box holds.
const INNER: u32 = 14;
/// The room of the name of a child.
const LABEL: u32 = 22;
/// The room of the sign before a name, and of what opens a box behind it.
const BESIDE_NAME: u32 = 66;

/// How a graph is looked at.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GraphView {
    /// The step that is selected, by its path.
    pub selected: Option<String>,
    /// The steps whose children or items are shown inside them, by their paths.
    pub open: BTreeSet<String>,
}

/// A graph, laid out. Places are in pixels.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GraphDrawing {
    /// Its width.
    pub width: u32,
    /// Its height.
    pub height: u32,
    /// What is drawn, in reading order; what is inside a box comes after it.
    pub marks: Vec<GraphMark>,
    /// The number of lines that are left out.
    pub lines_left_out: usize,
    /// The number of children that are left out of boxes that are open.
    pub children_left_out: usize,
}

/// Something in a drawing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GraphMark {
    /// The name of a child above its steps, where a box holds several.
    Label {
        /// Its left edge.
        x: u32,
        /// Its base line.
        y: u32,
        /// The name.
        text: String,
    },
    /// A line between two boxes.
    Line(GraphLine),
    /// A box.
    Node(GraphNode),
}

/// A line between two boxes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GraphLine {
    /// Its points in pairs: each pair is a straight piece, and between pairs it is curved.
    pub points: Vec<(u32, u32)>,
    /// True if the step at its end began.
    pub is_past: bool,
    /// True if it begins or ends at what is selected.
    pub is_near: bool,
}

/// A box: a step, an item, or the sum of others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GraphNode {
    /// Its left edge.
    pub x: u32,
    /// Its upper edge.
    pub y: u32,
    /// Its width.
    pub width: u32,
    /// Its height.
    pub height: u32,
    /// The path of the step or the item; none of the sum of others.
    pub path: Option<String>,
    /// The class of its status.
    pub class: &'static str,
    /// The sign of its status.
    pub sign: &'static str,
    /// Its name, and what else is written in it.
    pub lines: Vec<String>,
    /// All about it in words.
    pub words: String,
    /// The steps beside it that it waits for.
    pub needs: Vec<String>,
    /// True if it is open, false if it can be opened.
    pub open: Option<bool>,
    /// True if it is selected.
    pub is_selected: bool,
    /// How many boxes it is in.
    pub depth: usize,
}

/// Draws the plan of a run.
pub fn draw(run: &RunSkeleton, view: &GraphView) -> GraphDrawing {
    draw_steps(&run.steps, view)
}

/// Draws the plan of a run or of a definition.
pub(crate) fn draw_steps<S: GraphStep>(steps: &[S], view: &GraphView) -> GraphDrawing {
    let mut groups = GraphGroups::of(steps, view);
    groups.place();
    groups.drawing()
}

/// The steps that have to be open for one to be seen, from the outermost; none if there is no such step.
pub(crate) fn around<S: GraphStep>(steps: &[S], path: &str) -> Option<Vec<String>> {
    let mut left: Vec<(&S, Option<usize>)> = Vec::new();
    left.extend(steps.iter().map(|step| (step, None)));
    let mut at = 0;
    while let Some((step, parent)) = left.get(at).copied() {
        if step.path() == path {
            let mut around = Vec::new();
            let mut next = parent;
            while let Some((step, parent)) = next.and_then(|at| left.get(at)) {
                around.push(step.path().to_owned());
                next = *parent;
            }
            around.reverse();
            return Some(around);
        }
        let inner = step.children().flat_map(|(_, steps)| steps);
        left.extend(
            step.items()
                .iter()
                .chain(inner)
                .map(|step| (step, Some(at))),
        );
        at += 1;
    }
    None
}

/// What one box of a group is.
enum GroupNode<'r, S> {
    Step(&'r S),
    /// The sum of steps or items.
    Rest(Vec<&'r S>),
    /// The sum of items that are left out of the skeleton.
    Folded {
        count: u64,
        complete: u64,
    },
}

/// Steps that are laid out together: those of a run or a child, or the items of a fan-out.
struct GraphGroup<'r, S> {
    label: Option<String>,
    depth: usize,
    nodes: Vec<GroupNode<'r, S>>,
    edges: Vec<(usize, usize)>,
    /// The groups that each box holds.
    inner: BTreeMap<usize, Vec<usize>>,
    sizes: Vec<BoxSize>,
    layout: DagLayout,
    /// Its upper left corner.
    corner: (u32, u32),
    /// True if it is the items of a fan-out.
    is_fan_out: bool,
}

/// Groups, each after the one that holds it.
struct GraphGroups<'r, S> {
    all: Vec<GraphGroup<'r, S>>,
    selected: Option<&'r str>,
    open: BTreeSet<String>,
    room: usize,
    children_left_out: usize,
}

impl<'r, S: GraphStep> GraphGroups<'r, S> {
    fn of(steps: &'r [S], view: &'r GraphView) -> Self {
        let selected = view.selected.as_deref();
        let around = selected.and_then(|path| around(steps, path));
        let mut groups = Self {
            all: Vec::new(),
            selected,
            open: view
                .open
                .iter()
                .cloned()
                .chain(around.into_iter().flatten())
                .collect(),
            room: MAX_BOXES,
            children_left_out: 0,
        };
        groups.add_steps(None, None, steps);
        let mut at = 0;
        while at < groups.all.len() {
            groups.open_nodes(at);
            at += 1;
        }
        groups
    }

    /// Adds a group inside a box of another one, or the outermost.
    fn add(
        &mut self,
        parent: Option<(usize, usize)>,
        label: Option<String>,
    ) -> &mut GraphGroup<'r, S> {
        let at = self.all.len();
        let mut depth = 0;
        if let Some((group, node)) = parent
            && let Some(group) = self.all.get_mut(group)
        {
            depth = group.depth + 1;
            group.inner.entry(node).or_default().push(at);
        }
        self.all.push(GraphGroup {
            label,
            depth,
            nodes: Vec::new(),
            edges: Vec::new(),
            inner: BTreeMap::new(),
            sizes: Vec::new(),
            layout: DagLayout::default(),
            corner: (0, 0),
            is_fan_out: false,
        });
        &mut self.all[at]
    }

    /// Opens what is to be open in a group.
    fn open_nodes(&mut self, at: usize) {
        if self.all[at].depth >= MAX_DEPTH {
            return;
        }
        let nodes = self.all[at].nodes.iter().enumerate();
        let opened = nodes.filter_map(|(node, one)| match one {
            GroupNode::Step(step) if self.open.contains(step.path()) => Some((node, *step)),
            GroupNode::Step(_) | GroupNode::Rest(_) | GroupNode::Folded { .. } => None,
        });
        for (node, step) in opened.collect::<Vec<_>>() {
            for (name, steps) in step.children() {
                if self.room == 0 {
                    self.children_left_out += 1;
                    continue;
                }
                let several = step.children().count() > 1 || step.has_items();
                self.add_steps(Some((at, node)), several.then_some(name), steps);
            }
            if step.has_items() {
                self.add_items((at, node), step);
            }
        }
    }

    /// Adds steps with the edges of their plan. Of a row with too many, those stay that did not just complete;
    /// where the drawing has no more room, all rows that follow are one box.
    fn add_steps(&mut self, parent: Option<(usize, usize)>, label: Option<String>, steps: &'r [S]) {
        let ids = steps.iter().enumerate();
        let ids: BTreeMap<&str, usize> = ids.map(|(at, step)| (id_of(step), at)).collect();
        let needs = steps.iter().enumerate().flat_map(|(to, step)| {
            let from = step.needs().iter().filter_map(|id| ids.get(id.as_str()));
            from.map(move |from| (*from, to))
        });
        let needs: Vec<(usize, usize)> = needs.collect();
        let layers = layers(steps.len(), &needs);
        let mut rows: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (step, layer) in layers.iter().enumerate() {
            rows.entry(*layer).or_default().push(step);
        }
        let mut node_of = vec![0; steps.len()];
        let mut nodes: Vec<GroupNode<'r, S>> = Vec::new();
        let mut rest = Vec::new();
        for row in rows.into_values() {
            let most = MAX_BOXES_IN_ROW.min(self.room);
            if most == 0 || !rest.is_empty() {
                rest.extend(row);
                continue;
            }
            let (shown, folded) = self.chosen(steps, row, most);
            self.room -= shown.len();
            for step in shown {
                node_of[step] = nodes.len();
                nodes.push(GroupNode::Step(&steps[step]));
            }
            if !folded.is_empty() {
                folded.iter().for_each(|step| node_of[*step] = nodes.len());
                let folded = folded.iter().map(|step| &steps[*step]);
                nodes.push(GroupNode::Rest(folded.collect()));
            }
        }
        if !rest.is_empty() {
            rest.iter().for_each(|step| node_of[*step] = nodes.len());
            let rest = rest.iter().map(|step| &steps[*step]);
            nodes.push(GroupNode::Rest(rest.collect()));
        }
        let edges = needs
            .iter()
            .map(|(from, to)| (node_of[*from], node_of[*to]));
        let edges: BTreeSet<_> = edges.filter(|(from, to)| from != to).collect();
        let group = self.add(parent, label);
        group.nodes = nodes;
        group.edges = edges.into_iter().collect();
    }

    /// The steps of a row that are shown, in file order, and the others.
    fn chosen(&self, steps: &[S], row: Vec<usize>, most: usize) -> (Vec<usize>, Vec<usize>) {
        if row.len() <= most {
            return (row, Vec::new());
        }
        let rank = |step: &usize| {
            let step = &steps[*step];
            (Some(step.path()) != self.selected, step.is_plain())
        };
        let mut ranked = row;
        ranked.sort_by_key(rank);
        let mut folded = ranked.split_off(most);
        ranked.sort_unstable();
        folded.sort_unstable();
        (ranked, folded)
    }

    /// Adds the items of a fan-out: some beside each other, in order.
    fn add_items(&mut self, parent: (usize, usize), step: &'r S) {
        let shown = self.room.min(step.items().len());
        self.room -= shown;
        let (items, rest) = step.items().split_at(shown);
        let mut nodes: Vec<GroupNode<'r, S>> = items.iter().map(GroupNode::Step).collect();
        if !rest.is_empty() {
            nodes.push(GroupNode::Rest(rest.iter().collect()));
        }
        if let Some(folded) = step.folded() {
            nodes.push(GroupNode::Folded {
                count: folded.count,
                complete: folded.complete,
            });
        }
        let group = self.add(Some(parent), None);
        group.nodes = nodes;
        group.is_fan_out = true;
    }

    /// Lays out every group: sizes from the inside to the outside, then places from the outside to the inside.
    fn place(&mut self) {
        for at in (0..self.all.len()).rev() {
            let group = &self.all[at];
            let nodes = group.nodes.iter().enumerate();
            let sizes = nodes.map(|(node, one)| self.size(one, group.inner.get(&node)));
            let mut sizes: Vec<BoxSize> = sizes.collect();
            if group.is_fan_out {
                let widest = sizes.iter().map(|size| size.width).max().unwrap_or(0);
                sizes.iter_mut().for_each(|size| size.width = widest);
            }
            let layout = match group.is_fan_out {
                true => grid(&sizes),
                false => layout(&sizes, &group.edges),
            };
            (self.all[at].layout, self.all[at].sizes) = (layout, sizes);
        }
        for at in 0..self.all.len() {
            let inner = self.all[at].inner.clone();
            for (node, groups) in inner {
                let (own, corner) = (&self.all[at], self.all[at].corner);
                let inside = own.layout.corners.get(node).copied().unwrap_or_default();
                let width = own.sizes.get(node).map_or(0, |size| size.width);
                let mut y = corner.1 + inside.1 + text_height(&self.lines(&own.nodes[node]));
                for group in groups {
                    let group = &mut self.all[group];
                    y += if group.label.is_some() { LABEL } else { 4 };
                    let aside = width.saturating_sub(group.layout.width) / 2;
                    group.corner = (corner.0 + inside.0 + aside, y);
                    y += group.layout.height + INNER;
                }
            }
        }
    }

    fn size(&self, node: &GroupNode<'_, S>, inner: Option<&Vec<usize>>) -> BoxSize {
        let lines = self.lines(node);
        let widths = lines.iter().enumerate().map(|(at, line)| {
            let beside = if at == 0 { BESIDE_NAME } else { 24 };
            text_width(line) + beside
        });
        let widest = widths.max().unwrap_or(0).clamp(WIDTHS.0, WIDTHS.1);
        let mut size = BoxSize {
            width: widest + widest % 2,
            height: text_height(&lines),
        };
        for group in inner
            .into_iter()
            .flatten()
            .filter_map(|at| self.all.get(*at))
        {
            let layout = &group.layout;
            let width = layout.width + layout.width % 2 + 2 * INNER;
            size.width = size.width.max(width);
            size.height += layout.height + INNER + if group.label.is_some() { LABEL } else { 4 };
        }
        size
    }

    /// What is written in a box.
    fn lines(&self, node: &GroupNode<'_, S>) -> Vec<String> {
        match node {
            GroupNode::Step(step) => step.lines(),
            GroupNode::Rest(steps) => {
                let complete = steps.iter().filter(|step| step.is_plain()).count();
                S::sum(steps.len() as u64, complete as u64)
            }
            GroupNode::Folded { count, complete } => S::sum(*count, *complete),
        }
    }

    /// Everything in reading order, without recursion: a stack of groups, each with its next box.
    fn drawing(&self) -> GraphDrawing {
        let mut drawing = GraphDrawing {
            children_left_out: self.children_left_out,
            ..GraphDrawing::default()
        };
        if let Some(whole) = self.all.first() {
            (drawing.width, drawing.height) = (whole.layout.width, whole.layout.height);
        }
        let mut open: Vec<(usize, Vec<usize>)> = vec![(0, Vec::new())];
        self.begin(0, &mut open, &mut drawing);
        while let Some((at, left)) = open.last_mut() {
            let (at, next) = (*at, left.pop());
            let Some(node) = next else {
                open.pop();
                continue;
            };
            let group = &self.all[at];
            drawing.marks.push(GraphMark::Node(self.node(group, node)));
            for inner in group.inner.get(&node).into_iter().flatten().rev() {
                open.push((*inner, Vec::new()));
                self.begin(*inner, &mut open, &mut drawing);
            }
        }
        drawing
    }

    /// Draws what is below the boxes of a group, and notes them in the order in which they are read.
    fn begin(&self, at: usize, open: &mut [(usize, Vec<usize>)], drawing: &mut GraphDrawing) {
        let group = &self.all[at];
        let rows = group.layout.rows.iter().flatten().copied();
        if let Some(last) = open.last_mut() {
            last.1 = rows.collect();
            last.1.reverse();
        }
        let (left, top) = group.corner;
        drawing.lines_left_out += group.layout.lines_left_out;
        if let Some(label) = &group.label {
            drawing.marks.push(GraphMark::Label {
                x: left,
                y: top.saturating_sub(8),
                text: label.clone(),
            });
        }
        for line in &group.layout.lines {
            let ends = [line.from, line.to];
            let is_near = ends.iter().any(|end| self.is_selected(&group.nodes[*end]));
            let is_past = match &group.nodes[line.to] {
                GroupNode::Step(step) => step.has_begun(),
                GroupNode::Rest(steps) => steps.iter().any(|step| step.has_begun()),
                GroupNode::Folded { .. } => true,
            };
            drawing.marks.push(GraphMark::Line(GraphLine {
                points: line
                    .points
                    .iter()
                    .map(|(x, y)| (x + left, y + top))
                    .collect(),
                is_past,
                is_near,
            }));
        }
    }

    fn is_selected(&self, node: &GroupNode<'_, S>) -> bool {
        match node {
            GroupNode::Step(step) => self.selected == Some(step.path()),
            GroupNode::Rest(_) | GroupNode::Folded { .. } => false,
        }
    }

    fn node(&self, group: &GraphGroup<'_, S>, at: usize) -> GraphNode {
        let node = &group.nodes[at];
        let (x, y) = group.layout.corners[at];
        let size = group.sizes[at];
        let lines = self.lines(node);
        let (mut class_of, mut sign_of, mut open) = ("rest", "…", None);
        let (mut path, mut needs, mut all) = (None, Vec::new(), lines.join(", "));
        if let GroupNode::Step(step) = node {
            (class_of, sign_of, all) = (step.class(), step.sign(), step.words());
            path = Some(step.path().to_owned());
            needs = step.needs().to_vec();
            let is_open = group.inner.contains_key(&at);
            let can_open = step.has_items() || step.children().next().is_some();
            open = (can_open && (is_open || group.depth < MAX_DEPTH)).then_some(is_open);
        }
        GraphNode {
            x: x + group.corner.0,
            y: y + group.corner.1,
            width: size.width,
            height: size.height,
            path,
            class: class_of,
            sign: sign_of,
            lines,
            words: all,
            needs,
            open,
            is_selected: self.is_selected(node),
            depth: group.depth,
        }
    }
}

/// Boxes beside and below each other, of one size.
fn grid(sizes: &[BoxSize]) -> DagLayout {
    let width = sizes.iter().map(|size| size.width).max().unwrap_or(0);
    let height = sizes.iter().map(|size| size.height).max().unwrap_or(0);
    let places = (0u32..).zip(sizes);
    let in_row = ITEMS_IN_ROW as u32;
    let corners = places.map(|(at, _)| (at % in_row * (width + 10), at / in_row * (height + 10)));
    let corners: Vec<(u32, u32)> = corners.collect();
    DagLayout {
        width: corners.iter().map(|(x, _)| x + width).max().unwrap_or(0),
        height: corners.iter().map(|(_, y)| y + height).max().unwrap_or(0),
        rows: vec![(0..sizes.len()).collect()],
        corners,
        ..DagLayout::default()
    }
}

fn text_height(lines: &[String]) -> u32 {
    let lines = u32::try_from(lines.len()).unwrap_or(u32::MAX);
    lines.saturating_mul(LINE) + 2 * PAD
}

#[cfg(test)]
#[path = "graph_tests.rs"]
mod tests;
