use ktsu_history::skeleton::{ChildSpan, FoldedItems, StepSpan};
use ktsu_projections::envelope::ShownStatus;
use ktsu_projections::envelope::{ItemCountsView, UsageView};
use ktsu_projections::run::{RunStatus, StepStatus};

use super::*;

fn step(path: &str, kind: &str, status: StepStatus, needs: &[&str]) -> StepSpan {
    let began = status != StepStatus::Pending;
    StepSpan {
        path: path.to_owned(),
        kind: kind.to_owned(),
        status: ShownStatus::Own(status),
        attempt: 1,
        after: Vec::new(),
        needs: needs.iter().map(|id| (*id).to_owned()).collect(),
        frame: began.then_some(1),
        from_ms: began.then_some(0),
        attempt_from_ms: None,
        until_ms: (status == StepStatus::Complete).then_some(40),
        skip_reason: None,
        error: None,
        metrics: UsageView::default(),
        attempts: Vec::new(),
        earlier_attempts: 0,
        calls: Vec::new(),
        earlier_calls: 0,
        counts: None,
        items: Vec::new(),
        folded: None,
        children: Vec::new(),
    }
}

fn child(of: &str, steps: Vec<StepSpan>) -> ChildSpan {
    ChildSpan {
        run_id: format!("run_1/{of}"),
        workflow: "child".to_owned(),
        version: "1.0.0".to_owned(),
        status: RunStatus::Complete,
        steps,
    }
}

fn run(steps: Vec<StepSpan>) -> RunSkeleton {
    RunSkeleton {
        run_id: "run_1".to_owned(),
        workflow: "w".to_owned(),
        version: "1.0.0".to_owned(),
        status: RunStatus::Running,
        error: None,
        principal: "ada".to_owned(),
        branch: None,
        created_at: ktsu_ledger::Timestamp::from_micros(0),
        ended_at: None,
        last_ms: 100,
        frames: 9,
        waiting: 0,
        paused: None,
        cancelled: None,
        pauses: Vec::new(),
        loads_worlds: false,
        totals: UsageView::default(),
        steps,
    }
}

/// A fan-out, a step that was skipped and one that waits for it, a child, and an end that waits for all.
fn example() -> RunSkeleton {
    use StepStatus::{Complete, Pending, Running, Skipped};
    let mut each = step("each", "agent", Complete, &["open"]);
    each.counts = Some(ItemCountsView {
        succeeded: 26,
        failed: 1,
        skipped: 1,
    });
    each.metrics.cost_micro_usd = 3_100;
    each.items = vec![step("each.8", "item", StepStatus::Failed, &[])];
    each.items[0].error = Some("timeout".to_owned());
    each.folded = Some(FoldedItems {
        count: 27,
        complete: 26,
        from_ms: 0,
        until_ms: Some(40),
        cost_micro_usd: 0,
    });
    let mut alarm = step("alarm", "webhook", Skipped, &["open"]);
    alarm.skip_reason = Some("condition_false".to_owned());
    let mut call = step("call", "workflow", Running, &["each"]);
    call.children = vec![child(
        "call",
        vec![
            step("call/draft", "agent", Complete, &[]),
            step("call/page", "webhook", Running, &["draft"]),
        ],
    )];
    run(vec![
        step("open", "transform", Complete, &[]),
        each,
        alarm,
        call,
        step("end", "transform", Pending, &["call", "alarm", "open"]),
    ])
}

fn view(selected: Option<&str>, open: &[&str]) -> GraphView {
    GraphView {
        selected: selected.map(str::to_owned),
        open: open.iter().map(|path| (*path).to_owned()).collect(),
    }
}

/// A drawing as lines: the boxes in reading order with their places, and how many lines there are.
fn text(drawing: &GraphDrawing) -> Vec<String> {
    let mut shown = Vec::new();
    for mark in &drawing.marks {
        match mark {
            GraphMark::Label { x, y, text } => shown.push(format!("\"{text}\" {x},{y}")),
            GraphMark::Line(line) => {
                let (from, to) = line.points.first().zip(line.points.last()).unwrap();
                let past = if line.is_past { "" } else { " open" };
                shown.push(format!("line {from:?} {to:?}{past}"));
            }
            GraphMark::Node(node) => shown.push(format!(
                "{}{} {} {},{} {}x{} [{}]{}",
                "  ".repeat(node.depth),
                node.sign,
                node.class,
                node.x,
                node.y,
                node.width,
                node.height,
                node.lines.join(" | "),
                match node.open {
                    None => "",
                    Some(true) => " -",
                    Some(false) => " +",
                }
            )),
        }
    }
    shown
}

fn nodes(drawing: &GraphDrawing) -> Vec<&GraphNode> {
    let nodes = drawing.marks.iter().filter_map(|mark| match mark {
        GraphMark::Node(node) => Some(node),
        GraphMark::Label { .. } | GraphMark::Line(_) => None,
    });
    nodes.collect()
}

#[test]
fn steps_are_boxes_with_their_kind_status_time_and_cost_below_those_that_they_wait_for() {
    let drawing = draw(&example(), &GraphView::default());
    assert_eq!(
        text(&drawing),
        [
            "line (246, 67) (122, 115)",
            "line (262, 67) (346, 115)",
            "line (278, 67) (290, 330) open",
            "line (122, 199) (122, 233)",
            "line (346, 182) (274, 330) open",
            "line (122, 283) (258, 330) open",
            "✓ ok 188,0 148x67 [open | transform | 40 ms]",
            "✓ ok 0,115 244x84 [each | agent, 28 items | 40 ms · $0.003100 | 26 complete, 1 failed, 1 skipped] +",
            "– skip 272,115 148x67 [alarm | webhook, skipped | condition_false]",
            "▸ run 30,233 184x50 [call | workflow child, running] +",
            "○ none 199,330 150x50 [end | transform, pending]",
        ]
    );
}

#[test]
fn boxes_that_are_open_hold_the_steps_of_their_child_or_their_items() {
    let drawing = draw(&example(), &view(None, &["call", "each", "absent"]));
    assert_eq!(
        text(&drawing),
        [
            "line (339, 67) (181, 117)",
            "line (355, 67) (464, 117)",
            "line (371, 67) (383, 588) open",
            "line (181, 286) (181, 320)",
            "line (464, 184) (367, 588) open",
            "line (181, 539) (351, 588) open",
            "✓ ok 281,0 148x67 [open | transform | 40 ms]",
            "✓ ok 0,117 362x169 [each | agent, 28 items | 40 ms · $0.003100 | 26 complete, 1 failed, 1 skipped] -",
            "  ✕ bad 14,205 162x67 [each.8 | failed | timeout]",
            "  … rest 186,205 162x50 [27 more | 26 of them complete]",
            "– skip 390,117 148x67 [alarm | webhook, skipped | condition_false]",
            "▸ run 89,320 184x219 [call | workflow child, running] -",
            "line (181, 441) (181, 475)",
            "  ✓ ok 107,374 148x67 [draft | agent | 40 ms]",
            "  ▸ run 107,475 148x50 [page | webhook, running]",
            "○ none 292,588 150x50 [end | transform, pending]",
        ]
    );
    let all = nodes(&drawing);
    for inner in all.iter().filter(|node| node.depth > 0) {
        let path = inner.path.as_deref().unwrap_or("each.");
        let outer = if path.starts_with("call/") {
            "call"
        } else {
            "each"
        };
        let outer = all
            .iter()
            .find(|node| node.path.as_deref() == Some(outer))
            .unwrap();
        let fits = inner.x > outer.x
            && inner.y > outer.y
            && inner.x + inner.width < outer.x + outer.width
            && inner.y + inner.height < outer.y + outer.height;
        assert!(fits, "{inner:?} is not within {outer:?}");
    }
}

#[test]
fn what_is_selected_is_seen_though_nothing_was_opened() {
    let drawing = draw(&example(), &view(Some("call/page"), &[]));
    let selected = nodes(&drawing).into_iter().find(|node| node.is_selected);
    assert_eq!(selected.unwrap().path.as_deref(), Some("call/page"));
    let near = drawing.marks.iter().filter(|mark| match mark {
        GraphMark::Line(line) => line.is_near,
        GraphMark::Label { .. } | GraphMark::Node(_) => false,
    });
    assert_eq!(near.count(), 1);
    assert_eq!(
        around(&example().steps, "call/page"),
        Some(vec!["call".to_owned()])
    );
    assert_eq!(around(&example().steps, "absent"), None);
}

#[test]
fn of_a_wide_row_those_stay_that_did_not_just_complete_and_one_box_is_the_sum_of_the_others() {
    let mut steps = vec![step("open", "transform", StepStatus::Complete, &[])];
    for n in 0..300 {
        let status = match n % 50 {
            49 => StepStatus::Failed,
            _ => StepStatus::Complete,
        };
        steps.push(step(&format!("s{n}"), "agent", status, &["open"]));
    }
    let ids: Vec<String> = (0..300).map(|n| format!("s{n}")).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    steps.push(step("end", "transform", StepStatus::Pending, &ids));
    let drawing = draw(&run(steps), &view(Some("s299"), &[]));
    let all = nodes(&drawing);
    assert_eq!(all.len(), 1 + MAX_BOXES_IN_ROW + 1 + 1);
    let failed = all.iter().filter(|node| node.class == "bad");
    assert_eq!(failed.count(), 6);
    assert!(all.iter().any(|node| node.is_selected));
    let rest = all.iter().find(|node| node.path.is_none()).unwrap();
    assert_eq!(rest.lines, ["260 more", "all complete"]);
    // From the first step to each, and from each to the last.
    let lines = drawing.marks.len() - all.len();
    assert_eq!(lines, 2 * (MAX_BOXES_IN_ROW + 1));
}

#[test]
fn a_deep_plan_ends_in_a_box_that_says_how_many_steps_follow() {
    let steps = (0..10_000).map(|n| {
        let before = format!("s{}", n - 1);
        let needs = if n == 0 {
            vec![]
        } else {
            vec![before.as_str()]
        };
        step(&format!("s{n}"), "transform", StepStatus::Complete, &needs)
    });
    let run = run(steps.collect());
    let drawing = draw(&run, &GraphView::default());
    let all = nodes(&drawing);
    assert_eq!(all.len(), MAX_BOXES + 1);
    assert_eq!(all[MAX_BOXES].lines, ["9400 more", "all complete"]);
    assert_eq!(draw(&run, &GraphView::default()), drawing);
}

#[test]
fn children_within_children_have_a_bound_and_so_have_children_of_one_step() {
    let mut inner = step("deepest", "transform", StepStatus::Complete, &[]);
    let mut path = String::new();
    let mut paths = Vec::new();
    for level in (0..20).rev() {
        let prefix: Vec<&str> = (0..=level).map(|_| "c").collect();
        path = prefix.join("/");
        let mut outer = step(&path, "workflow", StepStatus::Complete, &[]);
        outer.children = vec![child(&path, vec![inner])];
        inner = outer;
        paths.push(path.clone());
    }
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    assert_eq!(path, "c");
    let drawing = draw(&run(vec![inner]), &view(None, &paths));
    let deepest = nodes(&drawing).into_iter().map(|node| node.depth).max();
    assert_eq!(deepest, Some(MAX_DEPTH));
    assert_eq!(nodes(&drawing).last().unwrap().open, None);
    let mut many = step("many", "agent", StepStatus::Complete, &[]);
    let one = |n: usize| {
        child(
            "many",
            vec![step(
                &format!("many@{n}/s"),
                "agent",
                StepStatus::Complete,
                &[],
            )],
        )
    };
    many.children = (0..1_000).map(one).collect();
    let drawing = draw(&run(vec![many]), &view(None, &["many"]));
    assert_eq!(nodes(&drawing).len(), MAX_BOXES);
    assert_eq!(drawing.children_left_out, 1_000 - (MAX_BOXES - 1));
}
