use ktsu_history::report::{PartObject, PartRelation};

use super::*;

/// Numbers that look like chance and are the same in every run.
struct ChanceNumbers(u64);

impl ChanceNumbers {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % most
    }
}

fn part(count: usize, relations: &[(usize, usize, &'static str)]) -> WorldPart<'static> {
    let object = PartObject {
        id: "id",
        kind: Some("T"),
        name: None,
    };
    let relations = relations.iter().map(|(from, to, kind)| PartRelation {
        from: *from,
        to: *to,
        kind,
    });
    WorldPart {
        objects: vec![object; count],
        relations: relations.collect(),
        ..WorldPart::default()
    }
}

/// A corner and a size.
type Area = ((u32, u32), (u32, u32));

fn areas(drawing: &WorldDrawing) -> Vec<Area> {
    let boxes = drawing.corners.iter().map(|corner| (*corner, BOX));
    let labels = drawing.labels.iter();
    let labels = labels.map(|label| ((label.x, label.y), (label.width, LABEL_HEIGHT)));
    boxes.chain(labels).collect()
}

/// The faults of a drawing: boxes and names that overlap or are outside, and lines through them.
fn faults(drawing: &WorldDrawing) -> Vec<String> {
    let areas = areas(drawing);
    let mut faults = Vec::new();
    for (one, ((x, y), (width, height))) in areas.iter().enumerate() {
        if x + width > drawing.width || y + height > drawing.height {
            faults.push(format!("{one} is outside of the drawing"));
        }
        for (other, ((left, top), (wide, high))) in areas.iter().enumerate().skip(one + 1) {
            let is_beside = x + width <= *left || left + wide <= *x;
            let is_below = y + height <= *top || top + high <= *y;
            if !is_beside && !is_below {
                faults.push(format!("{one} and {other} overlap"));
            }
        }
    }
    for line in &drawing.lines {
        for pair in line.points.windows(2) {
            for part in 0..=20 {
                let between = |from: u32, to: u32| {
                    let (from, to) = (i64::from(from), i64::from(to));
                    (from + (to - from) * part / 20) as u32
                };
                let (x, y) = (between(pair[0].0, pair[1].0), between(pair[0].1, pair[1].1));
                let is_in = |((left, top), (wide, high)): &Area| {
                    x > *left && x < left + wide && y > *top && y < top + high
                };
                if let Some(one) = areas.iter().position(is_in) {
                    faults.push(format!("{line:?} crosses {one}"));
                }
            }
        }
    }
    faults
}

fn texts(drawing: &WorldDrawing) -> Vec<&str> {
    drawing.labels.iter().map(|one| one.text.as_str()).collect()
}

#[test]
fn nothing_overlaps_and_no_line_runs_through_a_box_or_a_name_also_in_circles() {
    let names = [
        "about",
        "of",
        "a relation with quite a long name of its own",
    ];
    for seed in 0..40 {
        let mut numbers = ChanceNumbers(seed);
        let count = 2 + seed as usize;
        let relations: Vec<_> = (0..numbers.below(2 * count))
            .map(|_| {
                (
                    numbers.below(count),
                    numbers.below(count),
                    names[numbers.below(3)],
                )
            })
            .collect();
        let part = part(count, &relations);
        let drawing = WorldDrawing::of(&part);
        assert_eq!(faults(&drawing), Vec::<String>::new(), "{seed}");
        assert_eq!(drawing, WorldDrawing::of(&part), "{seed}");
        assert_eq!(drawing.lines_left_out, 0, "{seed}");
        let mut order = drawing.order.clone();
        order.sort_unstable();
        assert_eq!(order, (0..count).collect::<Vec<_>>(), "each object once");
    }
}

#[test]
fn a_relation_leads_from_left_to_right_and_what_two_objects_share_is_one_line() {
    let drawing = WorldDrawing::of(&part(
        3,
        &[
            (0, 1, "about"),
            (0, 1, "about"),
            (1, 0, "of"),
            (2, 1, "about"),
            (2, 2, "like"),
        ],
    ));
    assert_eq!(texts(&drawing), ["about ×2 → ← of", "about"]);
    assert_eq!(drawing.loops[&2], "like");
    let x = |one: usize| drawing.corners[one].0;
    assert!(x(0) == x(2) && x(0) + BOX.0 < x(1), "{:?}", drawing.corners);
    let tips: Vec<(bool, bool)> = drawing
        .lines
        .iter()
        .map(|line| (line.tip_before, line.tip_behind))
        .collect();
    assert_eq!(
        tips,
        [(true, false), (false, true), (false, false), (false, true)]
    );
}

#[test]
fn a_circle_keeps_the_direction_of_each_relation() {
    let drawing = WorldDrawing::of(&part(3, &[(0, 1, "a"), (1, 2, "b"), (2, 0, "c")]));
    let c = drawing
        .labels
        .iter()
        .position(|one| one.text == "c")
        .unwrap();
    let [before, behind] = [&drawing.lines[2 * c], &drawing.lines[2 * c + 1]];
    assert_eq!(before.ends, [0, 2], "it is drawn from the left");
    assert!(
        before.tip_before && !behind.tip_behind,
        "and its tip is at its target"
    );
}

#[test]
fn objects_without_relations_are_in_rows_below_the_others() {
    let drawing = WorldDrawing::of(&part(7, &[(0, 1, "of")]));
    let below = drawing.corners[0].1.max(drawing.corners[1].1) + BOX.1;
    let alone = &drawing.corners[2..];
    assert!(alone.iter().all(|corner| corner.1 >= below), "{alone:?}");
    assert_eq!(
        alone.iter().filter(|corner| corner.1 == alone[0].1).count(),
        4
    );
    assert_eq!(WorldDrawing::of(&part(0, &[])), WorldDrawing::default());
}

#[test]
fn as_much_as_a_drawing_holds_is_laid_out_in_little_time() {
    let start = std::time::Instant::now();
    let chain = (1..MAX_OBJECTS).map(|to| (to - 1, to, "next"));
    let far = (2..MAX_OBJECTS).map(|to| (0, to, "far"));
    let relations: Vec<_> = chain.chain(far).take(MAX_RELATIONS).collect();
    let drawing = WorldDrawing::of(&part(MAX_OBJECTS, &relations));
    assert_eq!(
        drawing.labels.len() + drawing.lines_left_out,
        relations.len()
    );
    assert!(drawing.lines_left_out > 0, "the longest lines are left out");
    assert!(start.elapsed().as_secs() < 20, "{:?}", start.elapsed());
}
