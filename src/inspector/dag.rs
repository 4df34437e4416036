//! The drawing of a directed acyclic graph: boxes in layers from the top, lines between them.
//!
//! ```text
//! edges ──layers──▶ rows, with bends on long lines ──sweeps──▶ order ──columns──▶ places ──▶ lines
//! ```
//!
//! [`layout`] is a pure function of the sizes of the boxes and the edges between them. Every line runs down:
//! straight at the height of boxes, where it has a column of its own, and aslant in the room between two
//! rows, where there are no boxes.

use std::collections::BTreeMap;

/// The room between two boxes of a row.
const BOX_APART: u32 = 28;
/// The room between a line that passes a row and its neighbours.
const LINE_APART: u32 = 16;
/// The least room between two rows.
const ROW_APART: u32 = 34;
/// What is added to it, at most, where lines go far to a side.
const MAX_ROW_EXTRA: u32 = 50;
/// The room between the lines that begin or end at one box, at most.
const PORT_APART: u32 = 16;
/// The most bends of all long lines; the longest lines beyond that are left out.
const MAX_BENDS: usize = 20_000;
/// How often the rows are put in order, down and up in turns.
const ORDER_SWEEPS: usize = 8;
/// How often the rows are placed, down and up in turns.
const PLACE_SWEEPS: usize = 12;

/// The size of a box.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BoxSize {
    /// Its width, which is even.
    pub(crate) width: u32,
    /// Its height.
    pub(crate) height: u32,
}

/// A graph, laid out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct DagLayout {
    /// The width of all of it.
    pub(crate) width: u32,
    /// Its height.
    pub(crate) height: u32,
    /// The upper left corner of each box.
    pub(crate) corners: Vec<(u32, u32)>,
    /// The boxes by row, from the left.
    pub(crate) rows: Vec<Vec<usize>>,
    /// The lines.
    pub(crate) lines: Vec<DagLine>,
    /// The number of lines that are left out.
    pub(crate) lines_left_out: usize,
}

/// A line between two boxes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DagLine {
    /// The box in which it begins.
    pub(crate) from: usize,
    /// The box in which it ends.
    pub(crate) to: usize,
    /// Its points in pairs: each pair is a straight piece down a row; between pairs, it runs aslant.
    pub(crate) points: Vec<(u32, u32)>,
}

/// The layer of each box: the number of edges on the longest path to it. Edges of circles count for nothing.
pub(crate) fn layers(count: usize, edges: &[(usize, usize)]) -> Vec<usize> {
    let mut open = vec![0usize; count];
    let mut below = vec![Vec::new(); count];
    for (from, to) in edges {
        if *from < count && *to < count {
            open[*to] += 1;
            below[*from].push(*to);
        }
    }
    let mut layers = vec![0; count];
    let mut free: Vec<usize> = (0..count).filter(|one| open[*one] == 0).collect();
    while let Some(one) = free.pop() {
        for to in &below[one] {
            layers[*to] = layers[*to].max(layers[one] + 1);
            open[*to] -= 1;
            if open[*to] == 0 {
                free.push(*to);
            }
        }
    }
    layers
}

/// Lays out a graph. Edges of circles are left out.
pub(crate) fn layout(sizes: &[BoxSize], edges: &[(usize, usize)]) -> DagLayout {
    layout_apart(sizes, edges, BOX_APART)
}

/// Lays out a graph with so much room between two boxes of a row.
pub(crate) fn layout_apart(
    sizes: &[BoxSize],
    edges: &[(usize, usize)],
    box_apart: u32,
) -> DagLayout {
    let mut graph = LayeredGraph::of(sizes, edges);
    graph.box_apart = box_apart;
    graph.put_in_order();
    let centres = graph.columns();
    graph.drawn(sizes, &centres)
}

/// Boxes and bends in rows. A bend is where a long line passes a row.
struct LayeredGraph {
    /// The width of each box, and none of a bend.
    widths: Vec<Option<u32>>,
    /// The neighbours in the row above.
    above: Vec<Vec<usize>>,
    /// The neighbours in the row below.
    below: Vec<Vec<usize>>,
    /// From the left.
    rows: Vec<Vec<usize>>,
    /// The boxes and bends of each line, from its beginning.
    chains: Vec<Vec<usize>>,
    lines_left_out: usize,
    box_apart: u32,
}

impl LayeredGraph {
    fn of(sizes: &[BoxSize], edges: &[(usize, usize)]) -> Self {
        let layers = layers(sizes.len(), edges);
        let span = |(from, to): &(usize, usize)| {
            let both = layers.get(*from).zip(layers.get(*to));
            both.and_then(|(from, to)| to.checked_sub(*from))
                .filter(|span| *span > 0)
        };
        let mut spans: Vec<_> = edges
            .iter()
            .filter_map(|edge| Some((span(edge)?, *edge)))
            .collect();
        spans.sort_unstable();
        spans.dedup();
        let mut bends = 0usize;
        let kept = spans.iter().take_while(|(span, _)| {
            bends += span - 1;
            bends <= MAX_BENDS
        });
        let mut kept: Vec<(usize, usize)> = kept.map(|(_, edge)| *edge).collect();
        kept.sort_unstable();
        let mut rows = vec![Vec::new(); layers.iter().max().map_or(0, |last| last + 1)];
        for (one, layer) in layers.iter().enumerate() {
            rows[*layer].push(one);
        }
        let mut graph = Self {
            widths: sizes.iter().map(|size| Some(size.width)).collect(),
            above: vec![Vec::new(); sizes.len()],
            below: vec![Vec::new(); sizes.len()],
            rows,
            chains: Vec::new(),
            lines_left_out: spans.len() - kept.len(),
            box_apart: BOX_APART,
        };
        for (from, to) in kept {
            graph.add_line(from, to, layers[from] + 1..layers[to]);
        }
        graph
    }

    fn add_line(&mut self, from: usize, to: usize, passed: std::ops::Range<usize>) {
        let mut chain = vec![from];
        for layer in passed {
            let bend = self.widths.len();
            self.widths.push(None);
            self.above.push(Vec::new());
            self.below.push(Vec::new());
            self.rows[layer].push(bend);
            chain.push(bend);
        }
        chain.push(to);
        for pair in chain.windows(2) {
            self.below[pair[0]].push(pair[1]);
            self.above[pair[1]].push(pair[0]);
        }
        self.chains.push(chain);
    }

    /// The place of each box and bend in its row.
    fn positions(&self) -> Vec<usize> {
        let mut positions = vec![0; self.widths.len()];
        for row in &self.rows {
            for (at, one) in row.iter().enumerate() {
                positions[*one] = at;
            }
        }
        positions
    }

    /// Sweeps down and up: each row by the medians of its neighbours in the one before. The order with the
    /// fewest crossings stays.
    fn put_in_order(&mut self) {
        let mut best = (usize::MAX, self.rows.clone());
        for sweep in 0..ORDER_SWEEPS {
            let is_down = sweep % 2 == 0;
            let neighbours = if is_down { &self.above } else { &self.below };
            let mut positions = self.positions();
            let mut order: Vec<usize> = (0..self.rows.len()).collect();
            if !is_down {
                order.reverse();
            }
            for row in order {
                let row = &mut self.rows[row];
                let wish = |one: usize| median(&neighbours[one], &positions);
                let mut wishes: Vec<(usize, usize)> = row
                    .iter()
                    .map(|one| (wish(*one).unwrap_or(2 * positions[*one]), *one))
                    .collect();
                wishes.sort_by_key(|(wish, _)| *wish);
                for (at, (_, one)) in wishes.iter().enumerate() {
                    row[at] = *one;
                    positions[*one] = at;
                }
            }
            let crossings = self.crossings();
            if crossings < best.0 {
                best = (crossings, self.rows.clone());
            }
            if crossings == 0 {
                break;
            }
        }
        self.rows = best.1;
    }

    /// The number of times that lines cross each other.
    fn crossings(&self) -> usize {
        let positions = self.positions();
        let mut crossings = 0;
        for (row, next) in self.rows.iter().zip(self.rows.iter().skip(1)) {
            let mut ends = CountTree::of(next.len());
            for one in row {
                let mut to: Vec<usize> = self.below[*one].iter().map(|to| positions[*to]).collect();
                to.sort_unstable();
                crossings += to.iter().map(|to| ends.above(*to)).sum::<usize>();
                to.iter().for_each(|to| ends.add(*to));
            }
        }
        crossings
    }

    /// The centre of each box and bend: in order, and as near to the neighbours as there is room.
    fn columns(&self) -> Vec<f64> {
        let mut centres = vec![0.0; self.widths.len()];
        for row in &self.rows {
            for pair in row.windows(2) {
                centres[pair[1]] = centres[pair[0]] + self.apart(pair[0], pair[1]);
            }
        }
        for sweep in 0..PLACE_SWEEPS {
            let last = sweep + 2 >= PLACE_SWEEPS;
            let mut order: Vec<usize> = (0..self.rows.len()).collect();
            if sweep % 2 == 1 {
                order.reverse();
            }
            for row in order {
                let wish = |one: &usize| match (sweep % 2, last) {
                    (_, true) => self.wish(*one, &centres, true, true),
                    (0, _) => self.wish(*one, &centres, true, false),
                    (_, _) => self.wish(*one, &centres, false, true),
                };
                let row = &self.rows[row];
                let wishes: Vec<(f64, f64)> = row.iter().map(wish).collect();
                let apart: Vec<f64> = row
                    .windows(2)
                    .map(|pair| self.apart(pair[0], pair[1]))
                    .collect();
                for (one, centre) in row.iter().zip(nearest(&wishes, &apart)) {
                    centres[*one] = centre;
                }
            }
        }
        self.straighten(&mut centres);
        centres
    }

    /// The centre that a box or a bend wishes for, and the weight of the wish.
    fn wish(&self, one: usize, centres: &[f64], above: bool, below: bool) -> (f64, f64) {
        let above = self.above[one].iter().filter(|_| above);
        let below = self.below[one].iter().filter(|_| below);
        let mut sum = (0.0, 0.0);
        for other in above.chain(below) {
            // Long lines are straight first of all, and boxes near boxes.
            let weight = match (self.widths[one], self.widths[*other]) {
                (None, None) => 8.0,
                (Some(_), Some(_)) => 3.0,
                _ => 1.0,
            };
            sum = (sum.0 + centres[*other] * weight, sum.1 + weight);
        }
        match sum {
            (_, 0.0) => (centres[one], 0.1),
            (centre, weight) => (centre / weight, weight),
        }
    }

    /// The least room between the centres of neighbours in a row.
    fn apart(&self, left: usize, right: usize) -> f64 {
        let half = |one: usize| self.widths[one].unwrap_or(0) / 2;
        let between = match (self.widths[left], self.widths[right]) {
            (Some(_), Some(_)) => self.box_apart,
            _ => LINE_APART,
        };
        f64::from(half(left) + half(right) + between)
    }

    /// Gives the bends of a line, and boxes that follow one another alone, one column where there is room.
    fn straighten(&self, centres: &mut [f64]) {
        for centre in centres.iter_mut() {
            *centre = (*centre + 0.5).floor();
        }
        let positions = self.positions();
        let mut row_of = vec![0; self.widths.len()];
        for (at, row) in self.rows.iter().enumerate() {
            row.iter().for_each(|one| row_of[*one] = at);
        }
        for piece in self.straight_pieces() {
            let (mut least, mut most) = (f64::MIN, f64::MAX);
            let mut sum = 0.0;
            for one in &piece {
                let (row, at) = (&self.rows[row_of[*one]], positions[*one]);
                if let Some(left) = at.checked_sub(1).and_then(|at| row.get(at)) {
                    least = least.max(centres[*left] + self.apart(*left, *one));
                }
                if let Some(right) = row.get(at + 1) {
                    most = most.min(centres[*right] - self.apart(*one, *right));
                }
                sum += centres[*one];
            }
            if least <= most {
                // Few enough for their number to be exact.
                let mean = (sum / piece.len() as f64 + 0.5).floor();
                let column = mean.clamp(least, most);
                piece.iter().for_each(|one| centres[*one] = column);
            }
        }
    }

    /// What should have one column: the bends of each line, and what follows from one box alone and
    /// is followed by one alone.
    fn straight_pieces(&self) -> Vec<Vec<usize>> {
        let is_one_piece = |one: usize, next: usize| {
            let alone = self.below[one].len() == 1 && self.above[next].len() == 1;
            alone || (self.widths[one].is_none() && self.widths[next].is_none())
        };
        let mut seen = vec![false; self.widths.len()];
        let mut pieces = Vec::new();
        for first in self.rows.iter().flatten() {
            let mut piece = Vec::new();
            let mut next = Some(*first);
            while let Some(one) = next.filter(|one| !seen[*one]) {
                seen[one] = true;
                piece.push(one);
                let below = self.below[one].first().copied();
                next = below.filter(|below| is_one_piece(one, *below));
            }
            if piece.len() > 1 {
                pieces.push(piece);
            }
        }
        pieces
    }

    fn drawn(&self, sizes: &[BoxSize], centres: &[f64]) -> DagLayout {
        let left = |one: usize| centres[one] - f64::from(self.widths[one].unwrap_or(0) / 2);
        let all = 0..self.widths.len();
        let start = all.clone().map(left).fold(f64::MAX, f64::min);
        // Whole numbers from 0 on, by the rounding before.
        let x = |place: f64| (place - start).max(0.0) as u32;
        let right = |one: usize| x(left(one)) + self.widths[one].unwrap_or(0);
        let ports = self.ports(centres);
        let shifted = |line: usize, end: usize, one: usize| {
            let centre = f64::from(x(centres[one]));
            (centre + ports.get(&(line, end)).copied().unwrap_or(0.0)).max(0.0) as u32
        };
        let tops = self.tops(sizes, centres);
        let mut corners = vec![(0, 0); sizes.len()];
        let mut bands = vec![(0, 0); self.widths.len()];
        for (row, (top, bottom)) in self.rows.iter().zip(&tops) {
            for one in row {
                bands[*one] = (*top, *bottom);
                if let Some(corner) = corners.get_mut(*one) {
                    *corner = (x(left(*one)), *top);
                }
            }
        }
        let lines = self.chains.iter().enumerate().filter_map(|(line, chain)| {
            let (from, to) = chain.first().zip(chain.last())?;
            let begin = shifted(line, 0, *from);
            let end = shifted(line, 1, *to);
            let under = bands[*from].0 + sizes[*from].height;
            let mut points = vec![(begin, under), (begin, bands[*from].1)];
            for bend in &chain[1..chain.len() - 1] {
                let column = x(centres[*bend]);
                points.extend([(column, bands[*bend].0), (column, bands[*bend].1)]);
            }
            points.extend([(end, bands[*to].0), (end, bands[*to].0)]);
            Some(DagLine {
                from: *from,
                to: *to,
                points,
            })
        });
        let boxes = self.rows.iter().map(|row| {
            let boxes = row
                .iter()
                .copied()
                .filter(|one| self.widths[*one].is_some());
            boxes.collect()
        });
        DagLayout {
            width: all.map(right).max().unwrap_or(0),
            height: tops.last().map_or(0, |(_, bottom)| *bottom),
            corners,
            rows: boxes.collect(),
            lines: lines.collect(),
            lines_left_out: self.lines_left_out,
        }
    }

    /// The top and the bottom of each row. Where lines go far to a side, rows are further apart.
    fn tops(&self, sizes: &[BoxSize], centres: &[f64]) -> Vec<(u32, u32)> {
        let mut tops = Vec::with_capacity(self.rows.len());
        let mut top = 0;
        for row in &self.rows {
            let heights = row.iter().filter_map(|one| sizes.get(*one));
            let height = heights.map(|size| size.height).max().unwrap_or(0);
            let aside = row.iter().flat_map(|one| {
                let below = self.below[*one].iter();
                below.map(|to| (centres[*to] - centres[*one]).abs())
            });
            let aside = aside.fold(0.0, f64::max);
            tops.push((top, top + height));
            // At most a small number.
            let extra = (aside / 12.0).min(f64::from(MAX_ROW_EXTRA)) as u32;
            top += height + ROW_APART + extra;
        }
        tops
    }

    /// Where lines begin (0) and end (1) beside the centre of their box, which several share.
    fn ports(&self, centres: &[f64]) -> BTreeMap<(usize, usize), f64> {
        let mut at_boxes: BTreeMap<(usize, usize), Vec<(f64, usize)>> = BTreeMap::new();
        for (line, chain) in self.chains.iter().enumerate() {
            if let [from, next, ..] = chain.as_slice() {
                let lines = at_boxes.entry((*from, 0)).or_default();
                lines.push((centres[*next], line));
            }
            if let [.., before, to] = chain.as_slice() {
                let lines = at_boxes.entry((*to, 1)).or_default();
                lines.push((centres[*before], line));
            }
        }
        let mut ports = BTreeMap::new();
        for ((one, end), mut lines) in at_boxes {
            lines.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
            let room = f64::from(self.widths[one].unwrap_or(0)) * 0.8;
            // Few enough for their number to be exact.
            let count = lines.len() as f64;
            let apart = f64::from(PORT_APART).min(room / count);
            for (at, (_, line)) in lines.into_iter().enumerate() {
                let aside = (at as f64 - (count - 1.0) / 2.0) * apart;
                ports.insert((line, end), aside.round());
            }
        }
        ports
    }
}

/// Twice the median of the positions of neighbours.
fn median(neighbours: &[usize], positions: &[usize]) -> Option<usize> {
    let mut places: Vec<usize> = neighbours.iter().map(|one| positions[*one]).collect();
    places.sort_unstable();
    let half = places.len() / 2;
    let upper = places.get(half)?;
    match places.len() % 2 {
        0 => places.get(half - 1).map(|lower| lower + upper),
        _ => Some(2 * upper),
    }
}

/// The places nearest to those wished for (a place and its weight each), in the given order and at least
/// so far apart: neighbours that would be too near become one block at the mean of its wishes.
fn nearest(wishes: &[(f64, f64)], apart: &[f64]) -> Vec<f64> {
    let mut offsets = vec![0.0; wishes.len()];
    for at in 1..wishes.len() {
        offsets[at] = offsets[at - 1] + apart[at - 1];
    }
    let mut blocks: Vec<(f64, f64, usize)> = Vec::new();
    for ((wish, weight), offset) in wishes.iter().zip(&offsets) {
        let mut block = ((wish - offset) * weight, *weight, 1);
        while let Some(last) = blocks.pop_if(|last| last.0 / last.1 >= block.0 / block.1) {
            block = (last.0 + block.0, last.1 + block.1, last.2 + block.2);
        }
        blocks.push(block);
    }
    let places = blocks.iter().flat_map(|(sum, weight, count)| {
        let place = sum / weight;
        std::iter::repeat_n(place, *count)
    });
    places
        .zip(&offsets)
        .map(|(place, offset)| place + offset)
        .collect()
}

/// Counts how many of the numbers that were added are above another one.
struct CountTree {
    sums: Vec<usize>,
    count: usize,
}

impl CountTree {
    fn of(most: usize) -> Self {
        Self {
            sums: vec![0; most + 1],
            count: 0,
        }
    }

    fn add(&mut self, number: usize) {
        self.count += 1;
        let mut at = number + 1;
        while let Some(sum) = self.sums.get_mut(at) {
            *sum += 1;
            at += at & at.wrapping_neg();
        }
    }

    fn above(&self, number: usize) -> usize {
        let (mut at, mut not_above) = (number + 1, 0);
        while at > 0 {
            not_above += self.sums[at];
            at -= at & at.wrapping_neg();
        }
        self.count - not_above
    }
}

#[cfg(test)]
#[path = "dag_tests.rs"]
mod tests;
