use ktsu_history::family::RunFamily;
use ktsu_history::skeleton::{
    AttemptSpan, CallSpan, CallSpanKind, CallSpanStatus, ChildSpan, FoldedItems, RunSkeleton,
    StepSpan,
};
use ktsu_history::step_summaries::StepSummaries;
use ktsu_projections::attempts::AttemptStatus;
use ktsu_projections::envelope::{ShownStatus, UsageView};
use ktsu_projections::run::{RunStatus, StepStatus};

use super::*;
use crate::decide::Permissions;
use crate::frame::SignedIn;
use crate::run::{RunPage, run_page};

fn step(path: &str, from_ms: u64, until_ms: Option<u64>) -> StepSpan {
    let status = match until_ms {
        Some(_) => StepStatus::Complete,
        None => StepStatus::Running,
    };
    StepSpan {
        path: path.to_owned(),
        kind: "agent".to_owned(),
        status: ShownStatus::Own(status),
        attempt: 1,
        after: Vec::new(),
        needs: Vec::new(),
        frame: Some(1),
        from_ms: Some(from_ms),
        attempt_from_ms: None,
        until_ms,
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

fn call(kind: CallSpanKind, from_ms: u64, until_ms: Option<u64>) -> CallSpan {
    CallSpan {
        kind,
        name: "desk/m".to_owned(),
        frame: 2,
        result: None,
        from_ms,
        until_ms,
        status: match until_ms {
            Some(_) => CallSpanStatus::Complete,
            None => CallSpanStatus::Open,
        },
        sendings: None,
        cost_micro_usd: 0,
        tokens_in: 0,
        tokens_out: 0,
        expires_at: None,
    }
}

fn run(last_ms: u64, steps: Vec<StepSpan>) -> RunSkeleton {
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
        last_ms,
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

/// A drawing as lines: depth, name, bar and calls of each row.
fn lines(drawing: &TimelineDrawing) -> Vec<String> {
    let bar = |bar: &TimelineBar| format!(" {}+{} {}", bar.x, bar.width, bar.class);
    let line = |row: &TimelineRow| {
        let bars: String = row.bar.iter().chain(&row.calls).map(bar).collect();
        format!("{}{}{bars}", "  ".repeat(row.depth), row.name)
    };
    drawing.rows.iter().map(line).collect()
}

/// An agent that calls a model, waits two minutes for a person and calls a model again; a fan-out; a
/// child whose step is still at work.
fn example() -> RunSkeleton {
    let mut asks = step("asks", 0, Some(120_800));
    asks.calls = vec![
        call(CallSpanKind::Model, 100, Some(400)),
        call(CallSpanKind::Approval, 400, Some(120_400)),
        call(CallSpanKind::Model, 120_400, Some(120_800)),
    ];
    let mut each = step("each", 120_800, Some(121_000));
    each.items = vec![step("each.3", 120_800, Some(120_900))];
    each.folded = Some(FoldedItems {
        count: 9,
        complete: 8,
        from_ms: 120_800,
        until_ms: Some(121_000),
        cost_micro_usd: 5,
    });
    let mut calls = step("calls", 121_000, None);
    let mut inner = step("calls/inner", 121_100, None);
    inner.calls = vec![call(CallSpanKind::Tool, 121_100, None)];
    calls.children = vec![ChildSpan {
        run_id: "run_1/calls".to_owned(),
        workflow: "child".to_owned(),
        version: "1.0.0".to_owned(),
        status: RunStatus::Running,
        steps: vec![inner],
    }];
    run(122_000, vec![asks, each, calls])
}

#[test]
fn rows_are_steps_with_their_items_and_children_below_them() {
    let drawing = layout(&example(), &TimelineView::default());
    assert_eq!(
        lines(&drawing),
        [
            "asks 0+990 ok 1+2 call 3+984 asked 987+3 call",
            "each 990+2 ok",
            "  each.3 990+1 ok",
            "  9 more, 8 of them complete 990+2 folded",
            "calls 992+8 run",
            "  inner 993+7 run 993+7 run",
        ]
    );
    assert!(drawing.gaps.is_empty());
    assert!(drawing.idle_percent > 98.0, "{}", drawing.idle_percent);
    let ticks: Vec<&str> = drawing
        .ticks
        .iter()
        .map(|tick| tick.word.as_str())
        .collect();
    assert_eq!(ticks, ["0 ms", "30.0 s", "1 min 0 s", "1 min 30 s"]);
}

#[test]
fn compressed_idle_time_leaves_the_room_to_what_was_at_work() {
    let view = TimelineView {
        compress: true,
        ..TimelineView::default()
    };
    let drawing = layout(&example(), &view);
    let gaps = drawing
        .gaps
        .iter()
        .map(|(_, width, word)| (*width, word.as_str()));
    assert_eq!(gaps.collect::<Vec<_>>(), [(40, "2 min 0 s")]);
    assert_eq!(
        lines(&drawing),
        [
            "asks 0+424 ok 48+144 call 192+40 asked 232+192 call",
            "each 424+96 ok",
            "  each.3 424+48 ok",
            "  9 more, 8 of them complete 424+96 folded",
            "calls 520+480 run",
            "  inner 568+432 run 568+432 run",
        ]
    );
}

#[test]
fn a_drawing_has_a_bound_and_says_what_it_leaves_out() {
    let steps = (0..MAX_ROWS + 7).map(|n| step(&format!("s{n}"), 0, Some(1)));
    let drawing = layout(&run(1, steps.collect()), &TimelineView::default());
    assert_eq!((drawing.rows.len(), drawing.left_out), (MAX_ROWS, 7));
}

#[test]
fn every_bar_is_within_the_drawing_and_can_be_seen() {
    for last_ms in [0, 1, 3, 999, 1_000, u64::MAX] {
        let steps = vec![
            step("first", 0, Some(0)),
            step("last", last_ms, Some(last_ms)),
            step("whole", 0, None),
        ];
        for compress in [false, true] {
            let view = TimelineView {
                compress,
                ..TimelineView::default()
            };
            for row in layout(&run(last_ms, steps.clone()), &view).rows {
                let bar = row.bar.unwrap();
                assert!(
                    bar.width >= 1 && bar.x + bar.width <= 1000,
                    "{last_ms}: {bar:?}"
                );
            }
        }
    }
}

#[test]
fn a_part_of_the_time_has_the_rows_that_were_at_work_in_it_across_the_whole_width() {
    let steps = vec![
        step("before", 0, Some(100)),
        step("within", 400, Some(600)),
        step("around", 50, Some(900)),
        step("after", 950, Some(1_000)),
        step("waits", 300, None),
    ];
    let view = TimelineView {
        range: TimeRange::new(400, 800),
        selected: Some("before".to_owned()),
        ..TimelineView::default()
    };
    let drawing = layout(&run(1_000, steps), &view);
    // One that is selected stays, without a bar.
    let expected = [
        "before",
        "within 0+500 ok",
        "around 0+1000 ok",
        "waits 0+1000 run",
    ];
    assert_eq!(lines(&drawing), expected);
    assert_eq!(drawing.outside, 1);
    let ticks = drawing.ticks.iter();
    let ticks: Vec<_> = ticks
        .map(|tick| (tick.x, tick.word.as_str(), tick.range))
        .collect();
    let part = TimeRange::new;
    assert_eq!(
        ticks,
        [
            (0, "400 ms", part(400, 500)),
            (250, "500 ms", part(500, 600)),
            (500, "600 ms", part(600, 700)),
            (750, "700 ms", part(700, 800)),
        ]
    );
    assert_eq!(drawing.scale, [(400, 0), (800, 1000)]);
}

#[test]
fn marks_that_are_close_together_late_in_a_run_count_from_the_first() {
    let view = TimelineView {
        range: TimeRange::new(234_370, 234_390),
        ..TimelineView::default()
    };
    let drawing = layout(&run(300_000, vec![step("a", 0, Some(300_000))]), &view);
    let words: Vec<&str> = drawing
        .ticks
        .iter()
        .map(|tick| tick.word.as_str())
        .collect();
    assert_eq!(words, ["3 min 54 s", "+5 ms", "+10 ms", "+15 ms"]);
}

#[test]
fn a_mark_leads_to_no_time_that_is_already_shown() {
    let drawing = layout(
        &run(1, vec![step("a", 0, Some(1))]),
        &TimelineView::default(),
    );
    assert_eq!(drawing.ticks.len(), 1);
    assert_eq!(drawing.ticks[0].range, None);
}

/// A step that failed, was begun again much later, lost its worker, and is at work.
fn attempted() -> StepSpan {
    let attempt = |number, from_ms, until_ms, status| AttemptSpan {
        number,
        frame: u64::from(number) * 10,
        from_ms,
        until_ms,
        status,
        error: (status == AttemptStatus::Failed).then(|| "no_answer".to_owned()),
        calls: vec![call(CallSpanKind::Model, from_ms, Some(until_ms))],
        earlier_calls: 0,
    };
    let mut again = step("again", 800, None);
    again.attempt = 4;
    again.attempt_from_ms = Some(900);
    again.earlier_attempts = 1;
    again.attempts = vec![
        attempt(2, 100, 200, AttemptStatus::Failed),
        attempt(3, 800, 900, AttemptStatus::Replaced),
    ];
    again.items = vec![step("again.0", 900, None)];
    again
}

#[test]
fn earlier_attempts_are_lanes_below_their_step_and_lead_to_their_first_frames() {
    let drawing = layout(&run(1_000, vec![attempted()]), &TimelineView::default());
    assert_eq!(
        lines(&drawing),
        [
            "again 900+100 run",
            "  1 attempt before",
            "  attempt 2 100+100 bad 100+100 call",
            "  attempt 3 800+100 stop 800+100 call",
            "  again.0 900+100 run",
        ]
    );
    let lanes: Vec<&TimelineRow> = drawing
        .rows
        .iter()
        .filter(|row| row.attempt.is_some())
        .collect();
    let shown = |row: &&TimelineRow| (row.attempt, row.note.clone(), row.path.clone());
    let expected = [
        (Some(20), Some("no_answer".to_owned()), None),
        (Some(30), None, None),
    ];
    assert_eq!(lanes.iter().map(shown).collect::<Vec<_>>(), expected);
    assert_eq!(lanes.first().and_then(|row| row.took_ms), Some(100));
    // Nothing was at work before the first one, and between the two.
    assert_eq!(drawing.idle_percent.round(), 70.0);
}

#[test]
fn a_part_of_the_time_in_which_only_an_earlier_attempt_was_at_work_has_its_lane_below_the_step() {
    let view = |from_ms, until_ms| TimelineView {
        range: TimeRange::new(from_ms, until_ms),
        ..TimelineView::default()
    };
    let drawing = layout(&run(1_000, vec![attempted()]), &view(0, 400));
    let expected = [
        "again",
        "  1 attempt before",
        "  attempt 2 250+250 bad 250+250 call",
    ];
    assert_eq!(lines(&drawing), expected);
    let between = layout(&run(1_000, vec![attempted()]), &view(300, 700));
    assert_eq!((between.rows.len(), between.outside), (0, 1));
}

#[test]
fn the_row_of_folded_items_leads_to_more_of_them_and_then_to_their_frames() {
    let page = |all_items: bool| {
        run_page(&RunPage {
            by: SignedIn::unknown(),
            may: Permissions::default(),
            run: example(),
            view: TimelineView {
                all_items,
                ..TimelineView::default()
            },
            error: None,
            output: None,
            family: RunFamily::default(),
            is_parked: false,
            summaries: StepSummaries::default(),
            step: None,
            kit: None,
        })
    };
    let row = ">9 more, 8 of them complete</a>";
    let few = page(false);
    assert!(few.contains(&format!("?items=all\"{row}")), "{few}");
    let all = page(true);
    assert!(all.contains(&format!("/frames?step=each\"{row}")), "{all}");
}
