//! `ktsu check`: the verdict on a finished run, from its record and the files it left.

use serde_json::{Value, json};

use super::{Desk, Said, kit, repository};

const FLOW: &str = "kind: workflow\nname: w\nversion: 1.0.0\npipeline:\n  \
    - {id: t, transform: {inputs: [{from: '{a: `1`, b: [`1`, `2`]}'}], ops: []}}\n\
    output: {map: {a: '{{ step.t.result.a }}'}}\n";

/// A desk with one finished run.
struct Bench {
    desk: Desk,
    run: String,
}

impl Bench {
    fn new() -> Self {
        let desk = Desk::new();
        let kit = desk.write_kit("w", FLOW);
        let ran = desk.ktsu(&["run", &kit, "--json"]);
        let run = ran.is(0).json()["run_id"].as_str().unwrap().to_owned();
        Self { desk, run }
    }

    /// Checks the run by these lines.
    fn check(&self, spec: &str, options: &[&str]) -> Said {
        self.desk.write_file("spec.eval.yaml", spec);
        let arguments = ["check", &self.run, "--spec", "spec.eval.yaml"];
        self.desk.ktsu(&[&arguments, options].concat())
    }
}

/// An invariant with a description.
fn invariant(name: &str, rest: &str) -> String {
    format!("  {name}: {{description: d, {rest}}}\n")
}

fn spec(invariants: &[(&str, &str)], threshold: &str) -> String {
    let all: String = invariants
        .iter()
        .map(|(name, rest)| invariant(name, rest))
        .collect();
    format!("invariants:\n{all}scoring: {{pass_threshold: {threshold}}}\n")
}

const RIGHT: &str = "check: {type: output, expr: output.a, equals: 1}";
const WRONG: &str = "check: {type: output, expr: output.a, equals: 2}";

#[test]
fn a_ticket_that_was_triaged_wrongly_fails_and_its_mended_branch_passes() {
    let desk = Desk::new();
    let file = |path: &str| repository().join(path).display().to_string();
    let input = format!("@{}", file("kits/triage/examples/ticket.json"));
    let spec = file("kits/triage/evals/ticket.eval.yaml");
    let triage = kit("triage");
    let run = desk.ktsu(&["run", &triage, "ticket", "--input", &input, "--json"]);
    let run = run.is(0).json()["run_id"].as_str().unwrap().to_owned();
    let failed = desk.ktsu(&["check", &run, "--spec", &spec]);
    failed
        .is(1)
        .says("output.urgency is 2, expected 1")
        .says("failed: ");
    assert_eq!(failed.err, "");
    let branch = desk.ktsu(&[
        "fork",
        &run,
        "--before",
        "page",
        "--set",
        "step.sort.output.urgency=1",
        "--effects",
        "execute",
        "--go",
        "--kit",
        &triage,
        "--json",
    ]);
    let branch = branch.is(0).json()["run_id"].as_str().unwrap().to_owned();
    let passed = desk
        .ktsu(&["check", &branch, "--spec", &spec, "--json"])
        .is(0)
        .json();
    assert_eq!(passed["status"], "passed");
    assert_eq!(passed["composite"], json!(1.0));
}

#[test]
fn the_composite_weighs_scores_and_a_gate_that_is_not_met_makes_it_0() {
    let bench = Bench::new();
    let composite = |invariants: &[(&str, &str)], threshold: &str, code: i32| {
        let said = bench.check(&spec(invariants, threshold), &["--json"]);
        let verdict = said.is(code).json();
        verdict["composite"].as_f64().unwrap()
    };
    let weighed = |weight: &str, check: &str| format!("weight: {weight}, {check}");
    let (small, smaller) = (weighed("0.3", WRONG), weighed("0.2", RIGHT));
    let all = [("a", RIGHT), ("b", &small), ("c", &smaller)];
    assert_eq!(composite(&all[..2], "0.85", 1), 0.769_230_769_231);
    assert_eq!(composite(&all, "0.85", 1), 0.8);
    // Equality passes.
    assert_eq!(composite(&all, "0.8", 0), 0.8);
    let (small, smaller) = (weighed("0.3", RIGHT), weighed("0.2", WRONG));
    let all = [("a", RIGHT), ("b", &small), ("c", &smaller)];
    assert_eq!(composite(&all, "0.85", 0), 0.866_666_666_667);
    let gate = format!("gate: true, weight: 0, {WRONG}");
    assert_eq!(composite(&[("a", RIGHT), ("g", &gate)], "0.1", 1), 0.0);
}

#[test]
fn a_check_that_cannot_be_made_is_an_error_and_neither_passed_nor_failed() {
    let bench = Bench::new();
    let no_folder = "check: {type: file_exists, path: a.txt}";
    let said = bench.check(&spec(&[("a", RIGHT), ("f", no_folder)], "0"), &[]);
    said.is(2).says("--workspace DIR").says("error: ");
    let no_value = "check: {type: output, expr: 'abs(output)'}";
    let said = bench.check(&spec(&[("a", RIGHT), ("f", no_value)], "0"), &["--json"]);
    let verdict = said.is(2).json();
    assert_eq!(verdict["status"], "error");
    assert_eq!(verdict["results"][1]["status"], "error");
    assert_eq!(verdict["results"][0]["status"], "passed");
}

#[test]
fn what_would_leave_out_a_condition_is_refused_at_its_place() {
    let bench = Bench::new();
    for (check, words) in [
        ("{type: output, expr: output.a, max: }", "max has no value"),
        ("{type: output, pattern: ~}", "pattern has no value"),
        (
            "{type: trace, where: {type: step.started, tool: ~}, none: true}",
            "tool has no value",
        ),
        (
            "{type: trace, where: {type: step.started}, count: {min: 1, max: ~}}",
            "max has no value",
        ),
        ("{type: trace, where: {item: -1}, none: true}", "no item is"),
        (
            "{type: trace, where: {item: 1.0}, none: true}",
            "no item is",
        ),
        (
            "{type: trace, where: {item: '01'}, none: true}",
            "no item is",
        ),
        ("{type: output, equals: {a: 1, a: 2}}", "spec.eval.yaml:2:"),
        ("{type: output, min: 5, max: 1}", "a min above its max"),
    ] {
        let said = bench.check(&spec(&[("a", &format!("check: {check}"))], "1"), &[]);
        said.is(2).warns(words);
    }
    let none = "check: {type: output, expr: output.none, equals: }";
    bench.check(&spec(&[("a", none)], "1"), &[]).is(0);
    let items = "check: {type: trace, where: {item: [0, 3, '1*']}, none: true}";
    bench.check(&spec(&[("a", items)], "1"), &[]).is(0);
}

#[test]
fn an_unmet_gate_fails_a_run_whatever_the_threshold() {
    let bench = Bench::new();
    let gate = format!("gate: true, {WRONG}");
    bench
        .check(&spec(&[("g", &gate)], "0"), &[])
        .is(1)
        .says("failed: ");
    let forbidden = "forbidden: [{name: no_end, where: {type: run.completed}}]\n\
        scoring: {pass_threshold: 0}\n";
    bench.check(forbidden, &[]).is(1).says("no_end");
}

#[test]
fn files_of_the_workspace_are_looked_at_and_nothing_outside_of_it() {
    let bench = Bench::new();
    bench
        .desk
        .write_file("left/out/draft.txt", "Subject: Renewal\nDear reader\n");
    bench.desk.write_file("secret.txt", "Subject: Renewal");
    let root = bench.desk.path();
    std::os::unix::fs::symlink(root.join("secret.txt"), root.join("left/link.txt")).unwrap();
    let file = |kind: &str, path: &str, more: &str| {
        let check = format!("check: {{type: {kind}, path: {path}{more}}}");
        let said = bench.check(
            &spec(&[("f", &check)], "1"),
            &["--workspace", "left", "--json"],
        );
        let json: Value = serde_json::from_str(&said.out).unwrap();
        json["status"].as_str().unwrap().to_owned()
    };
    let pattern = ", contains: Dear, not_contains: TODO, pattern: '^Subject: Renewal\\b'";
    assert_eq!(file("file_content", "out/draft.txt", pattern), "passed");
    assert_eq!(
        file("file_content", "out/draft.txt", ", contains: Sir"),
        "failed"
    );
    assert_eq!(file("file_exists", "out/draft.txt", ""), "passed");
    assert_eq!(file("file_exists", "out/gone.txt", ""), "failed");
    assert_eq!(file("file_absent", ".tmp/cache", ""), "passed");
    assert_eq!(file("file_absent", "out/draft.txt", ""), "failed");
    assert_eq!(file("file_exists", "out", ""), "passed");
    assert_eq!(file("file_absent", "link.txt", ""), "failed");
    let holds = ", contains: Renewal";
    assert_eq!(file("file_content", "link.txt", holds), "error");
    assert_eq!(file("file_content", "out", holds), "error");
    let large = std::fs::File::create(root.join("left/large.bin")).unwrap();
    large.set_len((16 << 20) + 1).unwrap();
    assert_eq!(file("file_exists", "large.bin", ""), "passed");
    assert_eq!(file("file_content", "large.bin", holds), "error");
    std::fs::write(root.join("left/bytes.bin"), [0xff, 0xfe]).unwrap();
    assert_eq!(file("file_content", "bytes.bin", holds), "error");
    let outside = bench.check(
        &spec(
            &[("f", "check: {type: file_exists, path: ../secret.txt}")],
            "1",
        ),
        &["--workspace", "left"],
    );
    outside.is(2).warns("spec.eval.yaml:2");
    let none = bench.check(&spec(&[("a", RIGHT)], "1"), &["--workspace", "nowhere"]);
    none.is(2).warns("the workspace nowhere is not a folder");
}

#[test]
fn checking_twice_gives_the_same_and_changes_nothing() {
    let bench = Bench::new();
    let spec = spec(
        &[
            ("a", RIGHT),
            (
                "t",
                "check: {type: trace, where: {type: 'step.*'}, count: {equals: 2}}",
            ),
        ],
        "1",
    );
    let before = bench.desk.ktsu(&["export", "--all"]).is(0).out.clone();
    let first = bench.check(&spec, &["--json"]);
    let again = bench.check(&spec, &["--json"]);
    assert_eq!(first.is(0).out, again.is(0).out);
    let verdict = first.json();
    assert_eq!(verdict["recorded"], false);
    assert_eq!(verdict["results"][1]["looked_at"]["count"], 2);
    assert_eq!(bench.desk.ktsu(&["export", "--all"]).is(0).out, before);
}

#[test]
fn only_finished_runs_and_checks_that_are_supported_are_taken() {
    let bench = Bench::new();
    let judge = "check: {type: llm_as_judge, model: fast, criteria: Is it good?}";
    let said = bench.check(&spec(&[("a", RIGHT), ("good", judge)], "1"), &[]);
    said.is(2).warns("\"good\"").warns("llm_as_judge");
    let unknown = bench.check(&spec(&[("a", "check: {type: ouput}")], "1"), &[]);
    unknown
        .is(2)
        .warns("did you mean output?")
        .warns("spec.eval.yaml:2:");
    let gone = bench
        .desk
        .ktsu(&["check", &bench.run, "--spec", "gone.yaml"]);
    gone.is(2).warns("gone.yaml");
    let branch = bench
        .desk
        .ktsu(&["fork", &bench.run, "--at", "1", "--json"])
        .is(0)
        .json();
    let branch = branch["branch_id"]
        .as_str()
        .or(branch["run_id"].as_str())
        .unwrap()
        .to_owned();
    bench
        .desk
        .write_file("spec.eval.yaml", &spec(&[("a", RIGHT)], "1"));
    let said = bench
        .desk
        .ktsu(&["check", &branch, "--spec", "spec.eval.yaml"]);
    said.is(2).warns("only a finished run can be checked");
}

#[test]
fn frames_are_selected_by_what_they_are_about() {
    let bench = Bench::new();
    let frames = |filters: &[&str]| {
        let filters: Vec<&str> = filters.iter().flat_map(|one| ["--where", one]).collect();
        bench
            .desk
            .ktsu(&[&["frames", bench.run.as_str(), "--json"], &filters[..]].concat())
    };
    let kinds = |said: Said| -> Vec<String> {
        let lines = said
            .is(0)
            .out
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines
            .map(|frame| frame["type"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(
        kinds(frames(&["type=step.c*", "step=t"])),
        ["step.completed"]
    );
    assert_eq!(
        kinds(frames(&["type=run.created", "actor=principal:*"])),
        ["run.created"]
    );
    assert_eq!(kinds(frames(&["expr=seq == `0`"])), ["run.created"]);
    assert_eq!(kinds(frames(&["step=other"])), [""; 0]);
    frames(&["stp=t"]).is(2).warns("did you mean step?");
    frames(&["step"]).is(2).warns("--where");
}

#[test]
fn a_kit_is_validated_with_its_evals() {
    let desk = Desk::new();
    let kit = desk.write_kit("w", FLOW);
    let file = format!("{kit}/evals/w.eval.yaml");
    desk.write_file(&file, &spec(&[("a", RIGHT)], "1"));
    desk.ktsu(&["validate", &kit]).is(0);
    desk.write_file(
        &file,
        &spec(&[("a", "weight: -1, check: {type: output}")], "1"),
    );
    desk.ktsu(&["validate", &kit])
        .is(1)
        .says("evals/w.eval.yaml:2:");
    desk.write_file("secret.yaml", "invariants: hunter2\n");
    let link = desk.path().join(&kit).join("evals/link.eval.yaml");
    std::os::unix::fs::symlink(desk.path().join("secret.yaml"), link).unwrap();
    let said = desk.ktsu(&["validate", &kit]);
    said.is(1).says("leads out of the kit");
    assert!(!said.out.contains("hunter2"), "{}", said.out);
    for shipped in ["triage", "access-request"] {
        let said = desk.ktsu(&["validate", &super::kit(shipped), "--no-env"]);
        assert!(!said.is(0).out.contains("warning"), "{}", said.out);
    }
}
