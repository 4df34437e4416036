//! Two runs, side by side.

use ktsu_projections::diff::{Diff, Side, diff};
use serde_json::{Value, json};

use super::Desk;
use super::replay::{golden_desk, run_of};
use crate::golden::goldens;
use crate::support::campaign;

const KIT: &str = "
kind: workflow
name: sort
version: \"1.0.0\"
params:
  schema:
    type: object
    properties: {n: {type: integer}, list: {type: array}}
pipeline:
  - id: sorted
    transform: {inputs: [{from: params.list}], ops: [{sort: {field: '@'}}]}
  - id: big
    condition: \"params.n > `5`\"
    transform: {inputs: [{from: step.sorted.result}], ops: [{filter: {expr: '@ > `1`'}}]}
";

fn between(a: &[ktsu_ledger::Frame], b: &[ktsu_ledger::Frame]) -> Diff {
    let side = |frames| Side { frames, scope: "" };
    diff(side(a), side(b)).unwrap()
}

/// Every golden run against every other.
#[test]
fn a_diff_is_the_inverse_of_the_one_from_the_other_side_and_empty_with_itself() {
    let goldens: Vec<_> = goldens()
        .into_iter()
        .map(|(name, golden)| (name, golden.frames()))
        .collect();
    for (at, (name, a)) in goldens.iter().enumerate() {
        assert!(between(a, a).is_empty(), "{name}");
        assert_eq!(between(a, a).shared, a.len() as u64);
        for (other, b) in goldens.iter().skip(at + 1).take(campaign(6, goldens.len())) {
            let there = between(a, b);
            assert_eq!(there.clone().inverse(), between(b, a), "{name} {other}");
            let first = there.first.as_ref().map(|first| first.seq);
            assert_eq!(first.is_none(), there.is_empty(), "{name} {other}");
        }
    }
}

/// The same workflow and the same replies, in every order: nothing but the order differs.
#[test]
fn runs_that_came_to_the_same_in_another_order_do_not_differ() {
    let desk = golden_desk();
    let (one, two) = (run_of("v1-concurrent-abc"), run_of("v1-concurrent-cba"));
    let told = desk.ktsu(&["diff", &one, &two, "--json"]).is(1).json();
    // Their receiver had another port.
    assert_eq!(told["envelope"][0]["path"], "/env/SINK");
    assert_eq!(told["envelope"].as_array().unwrap().len(), 1);
    for none in ["steps", "only_a", "only_b"] {
        assert_eq!(told[none], json!([]), "{none}");
    }
    desk.ktsu(&["diff", &one, &one]).is(0).says("no difference");
}

fn two_runs(desk: &Desk) -> (String, String) {
    desk.write_kit("sort", KIT);
    let run = |input: Value| {
        let said = desk.ktsu(&["run", "sort", "--json", "--input", &input.to_string()]);
        said.is(0).json()["run_id"].as_str().unwrap().to_owned()
    };
    let a = run(json!({"n": 3, "list": [3, 1, 2]}));
    (a, run(json!({"n": 9, "list": [3, 1, 4]})))
}

#[test]
fn what_differs_is_reported_by_field_step_and_frame() {
    let desk = Desk::new();
    let (a, b) = two_runs(&desk);
    let told = desk.ktsu(&["diff", &a, &b, "--json"]).is(1).json();
    assert_eq!(told["same"], false);
    assert_eq!(told["shared"], 0);
    let changes = told["envelope"].as_array().unwrap();
    let paths: Vec<&str> = changes
        .iter()
        .map(|change| change["path"].as_str().unwrap())
        .collect();
    assert_eq!(
        paths,
        [
            "/output/result/0",
            "/output/result/1",
            "/output/result/2",
            "/params/list/2",
            "/params/n",
            "/steps/big/attempt",
            "/steps/big/output/reason",
            "/steps/big/output/result",
            "/steps/big/output/skipped",
            "/steps/big/skip_reason",
            "/steps/big/status",
            "/steps/sorted/output/result/1",
            "/steps/sorted/output/result/2",
        ]
    );
    assert_eq!(
        told["steps"],
        json!([{"step": "big", "a": "skipped", "b": "complete"}])
    );
    assert_eq!(told["first"]["seq"], 0);
    assert_eq!(told["only_a"][0]["type"], "step.skipped");
    assert_eq!(told["only_b"][0]["type"], "step.started");
    desk.ktsu(&["diff", &a, "run_none"])
        .is(2)
        .warns("there is no run run_none");
}

#[test]
fn a_wide_page_has_both_sides_next_to_each_other() {
    let desk = Desk::new();
    let (a, b) = two_runs(&desk);
    let page = |columns: &str| {
        let mut command = desk.command(&["diff", &a, &b]);
        let output = command.env("COLUMNS", columns).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stdout).unwrap()
    };
    let beside = |page: &str| {
        let both =
            |line: &str| line.contains("/params/n") && line.contains('3') && line.contains('9');
        page.lines().any(both)
    };
    let (wide, narrow) = (page("120"), page("80"));
    assert!(beside(&wide), "{wide}");
    assert!(
        wide.lines().all(|line| line.chars().count() <= 120),
        "{wide}"
    );
    assert!(!beside(&narrow), "{narrow}");
    assert!(narrow.contains("A 3") && narrow.contains("B 9"), "{narrow}");
    assert_eq!(page("120"), wide, "told twice, told the same");
}

/// Two runs of the kit of a ticket, the second with another reply and another output.
#[test]
fn a_diff_opens_with_what_a_person_looks_for_and_has_the_frames_only_with_all() {
    let desk = golden_desk();
    let (one, two) = (run_of("v1-concurrent-abc"), run_of("v1-concurrent-cba"));
    let port = desk.ktsu(&["diff", &one, &two]).is(1).out.clone();
    assert!(!port.contains("/env/SINK"), "{port}");
    assert!(port.contains("--all"), "{port}");
    desk.ktsu(&["diff", &one, &two, "--all"])
        .is(1)
        .says("/env/SINK");

    let desk = Desk::new();
    let (a, b) = two_runs(&desk);
    let short = desk.ktsu(&["diff", &a, &b]).is(1).out.clone();
    let whole = desk.ktsu(&["diff", &a, &b, "--all"]).is(1).out.clone();
    let headings = |page: &str| -> Vec<String> {
        let all = page
            .lines()
            .filter(|line| !line.starts_with(' ') && !line.is_empty());
        all.skip(1).map(str::to_owned).collect()
    };
    let opening = ["Output", "Steps", "Params"];
    assert_eq!(headings(&short), opening, "{short}");
    assert!(short.contains("the same command with --all"), "{short}");
    assert!(!short.contains("step.skipped"), "{short}");
    let rest = [
        "Rest of the envelope",
        "First divergence, frame 0",
        "Frames only in the first",
        "Frames only in the second",
        "Frames that differ",
    ];
    assert_eq!(
        headings(&whole),
        [&opening[..], &rest[..]].concat(),
        "{whole}"
    );
    assert!(whole.contains("/steps/big/status"), "{whole}");
    let json = |more: &[&str]| {
        desk.ktsu(&[&["diff", &a, &b, "--json"], more].concat())
            .is(1)
            .json()
    };
    assert_eq!(json(&[]), json(&["--all"]));
}
