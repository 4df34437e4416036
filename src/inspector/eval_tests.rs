//! The page of an eval: its table and its findings.

use ktsu_history::eval_sheet::{CheckCell, CheckColumn, EvalSheet};
use ktsu_history::evals::EvalReport;
use ktsu_ledger::event::{EvalStatus, Score};
use serde_json::{Value, json};

use crate::eval::eval_page;
use crate::eval_matrix::matrix;
use crate::eval_panel::frames_to_say;
use crate::eval_view::{EvalPage, EvalView};
use crate::frame::SignedIn;

const HASH: &str = "0000000000000000000000000000000000000000000000000000000000000000";

fn result(name: &str, check: &str, status: &str, frames: &[u64]) -> Value {
    let score = u8::from(status == "passed");
    json!({
        "check": check, "duration_ms": 3, "gate": false, "index": 0,
        "looked_at": {"count": frames.len() + 5, "digest": HASH, "frames": frames},
        "name": name, "passed": status == "passed", "reason": format!("why {name}"),
        "scenario": 0, "score": score, "status": status, "weight": 1,
    })
}

fn run(name: &str, results: &[Value]) -> Value {
    let passed = results.iter().all(|result| result["passed"] == true);
    json!({
        "composite": u8::from(passed), "frames": 9, "head": HASH, "pass_threshold": 1, "passed": passed,
        "results": results, "run_id": name, "status": if passed { "passed" } else { "failed" },
    })
}

fn sheet(names: &[&str], checks: &[&str], scenarios: &[Value]) -> EvalSheet {
    let report = json!({
        "at": "2026-11-24T09:12:44.500000Z", "by": "ada", "engine": "ktsu 1", "errors": 0, "eval_id": "eval_1",
        "failed": 1, "passed": 1, "scenarios": scenarios, "spec": {"digest": HASH, "file": "a.eval.yaml"},
        "status": "failed",
    });
    let column = |name: &&str| CheckColumn {
        name: (*name).to_owned(),
        description: None,
        gate: false,
        weight: Score::new(1.0),
    };
    EvalSheet {
        report: serde_json::from_value::<EvalReport>(report).unwrap(),
        names: names.iter().map(|name| (*name).to_owned()).collect(),
        checks: checks.iter().map(column).collect(),
    }
}

fn shown(sheet: EvalSheet, view: EvalView) -> EvalPage {
    EvalPage {
        by: SignedIn::unknown(),
        view,
        sheet,
        of_spec: Vec::new(),
        since: None,
        frames: Vec::new(),
    }
}

fn two() -> EvalSheet {
    let first = run("run_1", &[result("a", "trace", "passed", &[2])]);
    let replicas = json!({
        "composite": 0.5, "flaky": true, "passed": false, "status": "failed", "replicas": [
            run("run_2", &[result("a", "trace", "failed", &[3])]),
            run("run_3", &[result("a", "trace", "passed", &[4])]),
        ],
    });
    sheet(&["plan=team", "plan=starter"], &["a"], &[first, replicas])
}

#[test]
fn a_check_of_several_replicas_counts_those_that_passed() {
    let sheet = two();
    let cells = sheet.report.scenarios.iter();
    let cells: Vec<_> = cells
        .filter_map(|scenario| EvalSheet::cell(scenario, 0))
        .collect();
    let cell = |passed, failed, score| CheckCell {
        passed,
        failed,
        errors: 0,
        score: Score::new(score),
    };
    assert_eq!(cells, [cell(1, 0, 1.0), cell(1, 1, 0.5)]);
    assert_eq!(cells[1].status(), EvalStatus::Failed);
    let table = matrix(&shown(sheet, EvalView::default())).into_string();
    assert!(table.contains("aria-label=\"1 of 2 passed\""), "{table}");
    assert!(table.contains("?scenario=1"), "{table}");
}

#[test]
fn only_scenarios_that_did_not_pass_are_shown_on_request() {
    let view = EvalView {
        failed_only: true,
        ..EvalView::default()
    };
    let table = matrix(&shown(two(), view)).into_string();
    assert!(
        table.contains("plan=starter") && !table.contains("plan=team"),
        "{table}"
    );
}

#[test]
fn the_findings_of_the_replica_that_is_selected_link_to_the_frames_of_its_run() {
    let view = EvalView {
        scenario: Some(1),
        replica: 1,
        ..EvalView::default()
    };
    let page = eval_page(&shown(two(), view));
    assert!(page.contains("../runs/run_3/frames?frame=4#f4"), "{page}");
    assert!(!page.contains("run_2/frames"), "{page}");
    assert!(page.contains("and 5 frames"), "{page}");
    let none = EvalView {
        scenario: Some(7),
        ..EvalView::default()
    };
    assert!(eval_page(&shown(two(), none)).contains("The eval has no scenario 7."));
}

#[test]
fn the_frames_of_a_model_that_judges_are_not_taken_for_those_of_the_run() {
    let results = [
        result("asked", "llm_as_judge", "failed", &[50]),
        result("later", "trace", "passed", &[7]),
        result("first", "trace", "failed", &[3, 1]),
    ];
    let sheet = sheet(&[], &["asked", "later", "first"], &[run("run_1", &results)]);
    let frames = frames_to_say(&sheet.report.scenarios[0].runs()[0]);
    assert_eq!(frames, [1, 3, 7]);
    let page = eval_page(&shown(sheet, EvalView::default()));
    assert!(!page.contains("frame=50"), "{page}");
    assert!(page.contains("ktsu frames eval_1"), "{page}");
}

#[test]
fn checks_that_have_another_result_than_before_are_found_by_their_names() {
    let results = |status| {
        [
            result("new", "trace", "passed", &[]),
            result("a", "trace", status, &[]),
        ]
    };
    let before = two();
    let after = sheet(
        &["plan=starter", "plan=team", "plan=other"],
        &["new", "a"],
        &[
            run("r1", &results("failed")),
            run("r2", &results("failed")),
            run("r3", &results("failed")),
        ],
    );
    let changes = after.changes_since(&before);
    let changes: Vec<_> = changes
        .iter()
        .map(|one| (one.scenario, one.check.as_str(), one.after.status()))
        .collect();
    // Of `plan=starter`, one of two replicas had failed before.
    assert_eq!(changes, [(1, "a", EvalStatus::Failed)]);
}

#[test]
fn a_large_eval_is_shown_a_part_at_a_time() {
    let names: Vec<String> = (0..30).map(|check| format!("c{check}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let results: Vec<Value> = names
        .iter()
        .map(|name| result(name, "trace", "passed", &[]))
        .collect();
    let scenarios: Vec<Value> = (0..250)
        .map(|at| run(&format!("run_{at}."), &results))
        .collect();
    let sheet = sheet(&[], &names, &scenarios);
    let at = |from| {
        let view = EvalView {
            from,
            ..EvalView::default()
        };
        matrix(&shown(sheet.clone(), view)).into_string()
    };
    let first = at(0);
    assert_eq!(first.matches("<tr").count(), 101);
    assert_eq!(
        first.matches("<th scope=\"col\" class=\"check\"").count(),
        24
    );
    assert!(first.contains("and 6 checks"), "{first}");
    let last = at(200);
    assert_eq!(last.matches("<tr").count(), 51);
    assert!(
        last.contains("run_249.") && !last.contains("Later"),
        "{last}"
    );
}

#[test]
fn names_and_reasons_are_text() {
    let hostile = "<img src=x onerror=alert(1)>\u{202e}";
    let sheet = sheet(
        &[hostile],
        &[hostile],
        &[run("run_1", &[result(hostile, "trace", "failed", &[1])])],
    );
    let page = eval_page(&shown(sheet, EvalView::default()));
    assert!(
        !page.contains("<img") && !page.contains('\u{202e}'),
        "{page}"
    );
}
