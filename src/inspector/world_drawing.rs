//! The drawing of a world: objects as boxes in columns, relations as lines between them with their names.
//!
//! ```text
//! relations ──bundles──▶ one line between two objects ──acyclic──▶ the layers of `dag`, laid on their side
//! ```
//!
//! [`WorldDrawing::of`] is a pure function of the part of the world. The name of a relation has a place in the
//! layout as a box has, so no line and no box covers it.

use std::collections::BTreeMap;

use ktsu_history::report::WorldPart;

use crate::dag::{BoxSize, DagLine, layout_apart};
use crate::graph_words::{text_width, that_fits};

/// The most objects of a drawing.
pub(crate) const MAX_OBJECTS: usize = 200;
/// The most relations of a drawing.
pub(crate) const MAX_RELATIONS: usize = 400;
/// The width and the height of a box.
pub(crate) const BOX: (u32, u32) = (212, 46);
/// The height of the name of a relation.
pub(crate) const LABEL_HEIGHT: u32 = 18;
/// The most pixels of the name of a relation.
const MAX_LABEL: u32 = 170;
/// The room beside the name of a relation.
const LABEL_PAD: u32 = 5;
/// The least room between two boxes of a column.
const APART: u32 = 14;
/// The room between boxes without relations, and above them.
const GRID_APART: u32 = 16;
/// The fewest boxes without relations in a row, where there are as many.
const GRID_COLUMNS: u32 = 4;

/// A world, laid out. Places are in pixels.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct WorldDrawing {
    /// Its width.
    pub(crate) width: u32,
    /// Its height.
    pub(crate) height: u32,
    /// The upper left corner of the box of each object.
    pub(crate) corners: Vec<(u32, u32)>,
    /// The objects in reading order.
    pub(crate) order: Vec<usize>,
    /// The names of relations.
    pub(crate) labels: Vec<RelationLabel>,
    /// The lines: two for each name, one on each side of it.
    pub(crate) lines: Vec<RelationLine>,
    /// By object: the names of its relations to itself.
    pub(crate) loops: BTreeMap<usize, String>,
    /// The number of lines that are left out.
    pub(crate) lines_left_out: usize,
}

/// The names of the relations between two objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RelationLabel {
    /// Its left edge.
    pub(crate) x: u32,
    /// Its upper edge.
    pub(crate) y: u32,
    /// Its width.
    pub(crate) width: u32,
    /// The names.
    pub(crate) text: String,
    /// As much of them as there is room for.
    pub(crate) shown: String,
    /// The objects.
    pub(crate) ends: [usize; 2],
}

/// Half of the line between two objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RelationLine {
    /// Its points in pairs: each pair is a straight piece, and between pairs it is curved.
    pub(crate) points: Vec<(u32, u32)>,
    /// True if a tip is where it begins, at an object.
    pub(crate) tip_before: bool,
    /// True if a tip is where it ends, at an object.
    pub(crate) tip_behind: bool,
    /// The objects.
    pub(crate) ends: [usize; 2],
}

/// All relations between two objects.
#[derive(Debug, Default)]
struct RelationBundle<'v> {
    /// How many there are of each type from the first to the second.
    along: BTreeMap<&'v str, usize>,
    /// And from the second to the first.
    against: BTreeMap<&'v str, usize>,
}

impl WorldDrawing {
    /// Draws a part of a world.
    pub(crate) fn of(part: &WorldPart<'_>) -> Self {
        let count = part.objects.len();
        let mut loops: BTreeMap<usize, BTreeMap<&str, usize>> = BTreeMap::new();
        let mut bundles: BTreeMap<(usize, usize), RelationBundle<'_>> = BTreeMap::new();
        for relation in &part.relations {
            let (from, to) = (relation.from, relation.to);
            let of_type = match from.cmp(&to) {
                std::cmp::Ordering::Equal => loops.entry(from).or_default(),
                std::cmp::Ordering::Less => &mut bundles.entry((from, to)).or_default().along,
                std::cmp::Ordering::Greater => &mut bundles.entry((to, from)).or_default().against,
            };
            *of_type.entry(relation.kind).or_default() += 1;
        }
        let bundles: Vec<_> = bundles.into_iter().collect();
        let edges = bundles
            .iter()
            .map(|((one, other), bundle)| match bundle.along.is_empty() {
                true => (*other, *one),
                false => (*one, *other),
            });
        let edges = without_circles(count, edges.collect());
        let mut drawing = Self {
            corners: vec![(0, 0); count],
            loops: loops
                .into_iter()
                .map(|(at, types)| (at, names(&types)))
                .collect(),
            ..Self::default()
        };
        drawing.place(&edges, &bundles);
        drawing
    }

    /// Places what has relations in columns, and everything else below in rows.
    fn place(
        &mut self,
        edges: &[(usize, usize)],
        bundles: &[((usize, usize), RelationBundle<'_>)],
    ) {
        let mut inside = vec![None; self.corners.len()];
        let mut related = Vec::new();
        for one in edges.iter().flat_map(|(from, to)| [*from, *to]) {
            if inside[one].is_none() {
                inside[one] = Some(related.len());
                related.push(one);
            }
        }
        let texts: Vec<String> = edges
            .iter()
            .zip(bundles)
            .map(|((from, _), ((one, _), bundle))| match from == one {
                true => both_ways(&bundle.along, &bundle.against),
                false => both_ways(&bundle.against, &bundle.along),
            })
            .collect();
        // A drawing that runs across is one that runs down, on its side: sizes are given with their sides changed.
        let of_box = BoxSize {
            width: BOX.1,
            height: BOX.0,
        };
        let mut sizes = vec![of_box; related.len()];
        sizes.extend(texts.iter().map(|text| BoxSize {
            width: LABEL_HEIGHT,
            height: text_width(text).min(MAX_LABEL) + 2 * LABEL_PAD,
        }));
        let inner = |one: usize| inside[one].unwrap_or_default();
        let halves = edges.iter().zip(related.len()..);
        let halves =
            halves.flat_map(|((from, to), label)| [(inner(*from), label), (label, inner(*to))]);
        let halves: Vec<(usize, usize)> = halves.collect();
        let layout = layout_apart(&sizes, &halves, APART);
        (self.width, self.height) = (layout.height, layout.width);
        for (one, corner) in related.iter().zip(&layout.corners) {
            self.corners[*one] = (corner.1, corner.0);
        }
        let rows = layout.rows.iter().flatten();
        self.order.extend(rows.filter_map(|one| related.get(*one)));
        let mut found: BTreeMap<usize, [Option<&DagLine>; 2]> = BTreeMap::new();
        for line in &layout.lines {
            match line.to.checked_sub(related.len()) {
                Some(at) => found.entry(at).or_default()[0] = Some(line),
                None => found.entry(line.from - related.len()).or_default()[1] = Some(line),
            }
        }
        for (at, (from, to)) in edges.iter().enumerate() {
            let [Some(before), Some(behind)] = found.get(&at).copied().unwrap_or_default() else {
                self.lines_left_out += 1;
                continue;
            };
            let ((one, _), bundle) = &bundles[at];
            let (along, against) = match from == one {
                true => (&bundle.along, &bundle.against),
                false => (&bundle.against, &bundle.along),
            };
            let ends = [*from, *to];
            let points = |line: &DagLine| line.points.iter().map(|(x, y)| (*y, *x)).collect();
            self.lines.push(RelationLine {
                points: points(before),
                tip_before: !against.is_empty(),
                tip_behind: false,
                ends,
            });
            self.lines.push(RelationLine {
                points: points(behind),
                tip_before: false,
                tip_behind: !along.is_empty(),
                ends,
            });
            let (size, corner) = (
                sizes[related.len() + at],
                layout.corners[related.len() + at],
            );
            let (start, fits) = that_fits(&texts[at], MAX_LABEL);
            self.labels.push(RelationLabel {
                x: corner.1,
                y: corner.0,
                width: size.height,
                shown: if fits {
                    start.to_owned()
                } else {
                    format!("{start}…")
                },
                text: texts[at].clone(),
                ends,
            });
        }
        self.place_alone(&inside);
    }

    /// Places objects without relations in rows below the others.
    fn place_alone(&mut self, inside: &[Option<usize>]) {
        let step = (BOX.0 + GRID_APART, BOX.1 + GRID_APART);
        let columns = ((self.width + GRID_APART) / step.0).max(GRID_COLUMNS);
        let top = match self.height {
            0 => 0,
            height => height + 2 * GRID_APART,
        };
        let alone = (0..inside.len()).filter(|one| inside[*one].is_none());
        for (at, one) in (0u32..).zip(alone) {
            let corner = (at % columns * step.0, top + at / columns * step.1);
            self.corners[one] = corner;
            self.order.push(one);
            self.width = self.width.max(corner.0 + BOX.0);
            self.height = self.height.max(corner.1 + BOX.1);
        }
    }
}

/// `about`, `about, of ×3`.
fn names(types: &BTreeMap<&str, usize>) -> String {
    let names = types.iter().map(|(kind, count)| match count {
        1 => (*kind).to_owned(),
        count => format!("{kind} ×{count}"),
    });
    names.collect::<Vec<_>>().join(", ")
}

/// The names of what leads along a line and against it. Where both do, each has an arrow.
fn both_ways(along: &BTreeMap<&str, usize>, against: &BTreeMap<&str, usize>) -> String {
    match (along.is_empty(), against.is_empty()) {
        (_, true) => names(along),
        (true, false) => names(against),
        (false, false) => format!("{} → ← {}", names(along), names(against)),
    }
}

/// The same edges with some turned, so that there are no circles: those that lead back to where a walk through the
/// graph came from.
fn without_circles(count: usize, mut edges: Vec<(usize, usize)>) -> Vec<(usize, usize)> {
    let mut below: Vec<Vec<usize>> = vec![Vec::new(); count];
    for (at, (from, _)) in edges.iter().enumerate() {
        below[*from].push(at);
    }
    // Not seen, on the walk, or done.
    let mut seen = vec![0u8; count];
    for first in 0..count {
        let mut walk: Vec<(usize, usize)> = Vec::new();
        if seen[first] == 0 {
            seen[first] = 1;
            walk.push((first, 0));
        }
        while let Some((one, next)) = walk.last_mut() {
            let one = *one;
            let Some(edge) = below[one].get(*next).copied() else {
                seen[one] = 2;
                walk.pop();
                continue;
            };
            *next += 1;
            let to = edges[edge].1;
            match seen[to] {
                0 => {
                    seen[to] = 1;
                    walk.push((to, 0));
                }
                1 => edges[edge] = (to, one),
                _ => {}
            }
        }
    }
    edges
}

#[cfg(test)]
#[path = "world_drawing_tests.rs"]
mod tests;
