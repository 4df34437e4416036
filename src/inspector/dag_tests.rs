use std::time::Instant;

use super::*;

const SIZE: BoxSize = BoxSize {
    width: 100,
    height: 40,
};

/// Numbers that look like chance and are the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % most
    }
}

/// A graph of some boxes of several sizes, with edges from earlier ones to later ones.
fn chance(seed: u64, count: usize, most_needs: usize) -> (Vec<BoxSize>, Vec<(usize, usize)>) {
    let mut numbers = Numbers(seed);
    let size = |numbers: &mut Numbers| BoxSize {
        width: 60 + 2 * numbers.below(100) as u32,
        height: 30 + numbers.below(60) as u32,
    };
    let sizes = (0..count).map(|_| size(&mut numbers)).collect();
    let mut edges = Vec::new();
    for to in 1..count {
        for _ in 0..numbers.below(most_needs + 1) {
            edges.push((numbers.below(to), to));
        }
    }
    (sizes, edges)
}

/// The faults of a layout: boxes that overlap, lines that do not run down, lines through boxes.
fn faults(sizes: &[BoxSize], layout: &DagLayout) -> Vec<String> {
    let mut faults = Vec::new();
    let boxes: Vec<_> = layout.corners.iter().zip(sizes).collect();
    let within = |(x, y): (u32, u32), one: usize| {
        let ((left, top), size) = boxes[one];
        x > *left && x < left + size.width && y > *top && y < top + size.height
    };
    for (one, ((left, top), size)) in boxes.iter().enumerate() {
        if left + size.width > layout.width || top + size.height > layout.height {
            faults.push(format!("{one} is outside of the drawing"));
        }
        for (other, ((x, y), other_size)) in boxes.iter().enumerate().skip(one + 1) {
            let beside = left + size.width <= *x || x + other_size.width <= *left;
            let below = top + size.height <= *y || y + other_size.height <= *top;
            if !beside && !below {
                faults.push(format!("{one} and {other} overlap"));
            }
        }
    }
    for line in &layout.lines {
        for pair in line.points.windows(2) {
            let [(x, y), (to_x, to_y)] = [pair[0], pair[1]];
            if to_y < y {
                faults.push(format!("{line:?} runs up"));
            }
            for part in 0..=20 {
                let between = |from: u32, to: u32| {
                    let (from, to) = (i64::from(from), i64::from(to));
                    (from + (to - from) * part / 20) as u32
                };
                let at = (between(x, to_x), between(y, to_y));
                let crossed = (0..boxes.len()).find(|one| within(at, *one));
                if let Some(one) = crossed {
                    faults.push(format!("{line:?} crosses {one}"));
                }
            }
        }
        let ends = line.points.first().zip(line.points.last()).unwrap();
        for (one, (x, y), is_end) in [(line.from, *ends.0, false), (line.to, *ends.1, true)] {
            let ((left, top), size) = boxes[one];
            let edge = if is_end { *top } else { top + size.height };
            if y != edge || x < *left || x > left + size.width {
                faults.push(format!("{line:?} does not meet {one}"));
            }
        }
    }
    faults
}

/// A drawing as text: a row of numbers for each row of boxes at about its place, and the columns of lines below.
fn text(layout: &DagLayout) -> Vec<String> {
    let row = |row: &Vec<usize>| {
        let mut line = String::new();
        for one in row {
            let place = layout.corners[*one].0 as usize / 8;
            while line.len() < place {
                line.push(' ');
            }
            line.push_str(&format!("[{one}]"));
        }
        line
    };
    layout.rows.iter().map(row).collect()
}

fn drawn(count: usize, edges: &[(usize, usize)]) -> DagLayout {
    let sizes = vec![SIZE; count];
    let layout = layout(&sizes, edges);
    assert_eq!(faults(&sizes, &layout), Vec::<String>::new());
    layout
}

#[test]
fn a_box_is_below_all_that_it_follows_and_lines_do_not_cross_where_they_need_not() {
    // 0 ─▶ 1, 2, 3 ─▶ 4, and 5, 6 after 3 and 1, given so that file order crosses lines.
    let edges = [
        (0, 1),
        (0, 2),
        (0, 3),
        (1, 4),
        (2, 4),
        (3, 4),
        (3, 5),
        (1, 6),
    ];
    let layout = drawn(7, &edges);
    assert_eq!(
        text(&layout),
        [
            "                [0]",
            "[1]             [2]             [3]",
            "[6]             [4]             [5]",
        ]
    );
}

#[test]
fn a_long_line_passes_beside_the_boxes_between_its_ends_in_one_column() {
    let edges = [(0, 1), (1, 2), (2, 3), (3, 4), (0, 4)];
    let layout = drawn(5, &edges);
    assert_eq!(text(&layout), ["  [0]", "[1]", "[2]", "[3]", "  [4]"]);
    let long = layout
        .lines
        .iter()
        .find(|line| (line.from, line.to) == (0, 4));
    let points = &long.unwrap().points;
    let columns: Vec<u32> = points[2..8].iter().map(|(x, _)| *x).collect();
    assert!(columns.iter().all(|x| *x == columns[0]), "{points:?}");
}

#[test]
fn no_boxes_overlap_and_every_line_runs_down_beside_boxes_that_are_not_its_ends() {
    for seed in 0..60 {
        let count = 2 + seed as usize;
        let (sizes, edges) = chance(seed, count, 1 + seed as usize % 4);
        let layout = layout(&sizes, &edges);
        let all: std::collections::BTreeSet<_> = edges.iter().collect();
        assert_eq!(layout.lines.len(), all.len());
        assert_eq!(faults(&sizes, &layout), Vec::<String>::new(), "{seed}");
        assert_eq!(layout, super::layout(&sizes, &edges), "{seed}");
    }
}

#[test]
fn sweeps_take_most_crossings_away() {
    let (mut given, mut left) = (0, 0);
    for seed in 100..110 {
        let (sizes, edges) = chance(seed, 30, 2);
        let mut graph = LayeredGraph::of(&sizes, &edges);
        given += graph.crossings();
        graph.put_in_order();
        left += graph.crossings();
    }
    assert!(left * 3 < given, "{left} of {given} are left");
}

#[test]
fn circles_and_edges_to_nothing_are_left_out() {
    let layout = drawn(4, &[(0, 1), (1, 2), (2, 1), (2, 2), (0, 9), (9, 0), (0, 3)]);
    let ends: Vec<_> = layout
        .lines
        .iter()
        .map(|line| (line.from, line.to))
        .collect();
    assert!(ends.contains(&(0, 1)) && ends.contains(&(0, 3)), "{ends:?}");
    assert_eq!(super::layout(&[], &[]), DagLayout::default());
}

#[test]
fn a_large_graph_is_laid_out_in_little_time_and_a_deep_one_without_recursion() {
    let start = Instant::now();
    let (sizes, edges) = chance(7, 2_000, 3);
    let layout = layout(&sizes, &edges);
    assert!(layout.lines.len() > 1_500);
    let chain: Vec<(usize, usize)> = (1..10_000).map(|to| (to - 1, to)).collect();
    let deep = super::layout(&vec![SIZE; 10_000], &chain);
    assert_eq!((deep.rows.len(), deep.width), (10_000, SIZE.width));
    // Every step after the first and after the one before: half of the steps would have 50 million bends.
    let mut both = chain;
    both.extend((2..10_000).map(|to| (0, to)));
    let bounded = super::layout(&vec![SIZE; 10_000], &both);
    assert_eq!(bounded.lines.len() + bounded.lines_left_out, both.len());
    assert!(bounded.lines_left_out > 9_000 && bounded.lines.len() > 9_999);
    assert!(start.elapsed().as_secs() < 20, "{:?}", start.elapsed());
}
