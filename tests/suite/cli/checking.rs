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

    /// The ids of evals that are listed.
    fn evals(&self, options: &[&str]) -> Vec<String> {
        let listed = self.desk.ktsu(&[&["evals", "--json"], options].concat());
        let listed = listed.is(0).json()["evals"].as_array().unwrap().clone();
        let ids = listed.iter().map(|one| one["eval_id"].as_str().unwrap());
        ids.map(str::to_owned).collect()
    }

    /// The results in the frames of an eval, but for how long they took.
    fn result_frames(&self, eval: &str) -> Vec<Value> {
        let said = self
            .desk
            .ktsu(&["frames", eval, "--json", "--type", "check.result"]);
        let frames = said.is(0).out.lines().map(|line| {
            let mut frame: Value = serde_json::from_str(line).unwrap();
            frame["data"].as_object_mut().unwrap().remove("duration_ms");
            frame["data"].clone()
        });
        frames.collect()
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
    assert!(
        failed.err.starts_with("recorded as eval_"),
        "{}",
        failed.err
    );
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
    assert_eq!(passed["composite"], json!(1));
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
    let unrecorded = bench.check(&spec, &["--json", "--no-record"]).is(0).json();
    assert_eq!(unrecorded["recorded"], false);
    assert_eq!(unrecorded["results"][1]["looked_at"]["count"], 2);
    assert_eq!(bench.evals(&[]).len(), 0);
    let recorded = |said: Said| {
        let verdict = said.is(0).json();
        assert_eq!(verdict["recorded"], true);
        assert_eq!(
            without_times(&verdict["results"]),
            without_times(&unrecorded["results"])
        );
        verdict["eval_id"].as_str().unwrap().to_owned()
    };
    let first = recorded(bench.check(&spec, &["--json"]));
    let again = recorded(bench.check(&spec, &["--json"]));
    assert_ne!(first, again);
    assert_eq!(bench.result_frames(&first), bench.result_frames(&again));
    assert_eq!(bench.evals(&[]), [again.clone(), first.clone()]);
    assert_eq!(bench.evals(&["--run", &bench.run]), [again, first]);
    assert_eq!(bench.desk.ktsu(&["export", "--all"]).is(0).out, before);
}

/// Values without how long they took.
fn without_times(value: &Value) -> Value {
    let mut value = value.clone();
    for result in value.as_array_mut().unwrap() {
        result.as_object_mut().unwrap().remove("duration_ms");
    }
    value
}

#[test]
fn a_verdict_is_a_record_of_its_own_that_is_shown_traced_verified_and_moved() {
    let bench = Bench::new();
    let said = bench.check(&spec(&[("a", RIGHT), ("b", WRONG)], "1"), &["--json"]);
    let id = said.is(1).json()["eval_id"].as_str().unwrap().to_owned();
    let desk = &bench.desk;
    let shown = desk.ktsu(&["evals", &id]);
    shown
        .is(1)
        .says("output.a is 1, expected 2")
        .says("spec.eval.yaml, by local");
    let json = desk
        .ktsu(&["evals", id.get(9..).unwrap(), "--json"])
        .is(1)
        .json();
    assert_eq!(json["scenarios"][0]["run_id"], bench.run);
    assert_eq!(json["scenarios"][0]["composite"], 0.5);
    assert_eq!(
        (&json["failed"], &json["status"]),
        (&json!(1), &json!("failed"))
    );
    let listed = desk.ktsu(&["evals"]);
    listed.is(0).says(&id).says("failed").says(&bench.run);
    let frames = desk.ktsu(&["frames", &id]);
    frames
        .is(0)
        .says("eval.started")
        .says("check.result")
        .says("b failed: ");
    desk.ktsu(&[
        "frames",
        &id,
        "--type",
        "check.result",
        "--where",
        "status=failed",
    ])
    .is(0)
    .says("b failed: ");
    let trace = desk.ktsu(&["trace", &id, "3"]);
    trace.is(0).says(&format!("run:{}#", bench.run));
    desk.ktsu(&["trace", &id]).is(0).says("scenario.finished");
    desk.ktsu(&["trace", &id, "--of", "status"])
        .is(2)
        .warns("which has no steps");
    desk.ktsu(&["verify", &id]).is(0).says("is sound");
    for command in ["pause", "cancel"] {
        desk.ktsu(&[command, &id])
            .is(2)
            .warns("is an eval, and no run");
    }
    desk.ktsu(&["runs", "get", &id])
        .is(2)
        .warns(&format!("ktsu evals {id}"));
    desk.ktsu(&["evals", "eval_none"])
        .is(2)
        .warns("there is no eval");
    desk.ktsu(&["export", &bench.run, "--evals", "-o", "all.jsonl"])
        .is(0);
    desk.ktsu(&["import", "all.jsonl", "--ledger", "other.db"])
        .is(0);
    let moved = desk.ktsu(&["evals", &id, "--json", "--ledger", "other.db"]);
    assert_eq!(moved.is(1).json(), json);
    desk.ktsu(&["verify", "--ledger", "other.db"]).is(0);
    let text = std::fs::read_to_string(desk.path().join("all.jsonl")).unwrap();
    assert!(text.contains(r#""errors":0"#));
    desk.ktsu(&["evidence", "export", &id, "-o", "eval.tar"])
        .is(0);
    let verified = desk.ktsu(&["evidence", "verify", "eval.tar"]);
    verified
        .is(0)
        .says("1 verdict follows from 2 checks made again");
}

#[test]
fn the_owner_of_the_ledger_checks_and_not_what_needs_files_of_this_machine() {
    let bench = Bench::new();
    let desk = &bench.desk;
    let engine = desk.start(&["--kit", "w"]);
    let said = bench.check(&spec(&[("a", RIGHT)], "1"), &["--json"]);
    let verdict = said.is(0).json();
    assert_eq!(verdict["recorded"], true);
    let file = spec(&[("f", "check: {type: file_absent, path: a.txt}")], "1");
    let refused = bench.check(&file, &["--workspace", "."]);
    refused
        .is(2)
        .warns("another process owns")
        .warns("--no-record");
    bench
        .check(&file, &["--workspace", ".", "--no-record"])
        .is(0);
    assert_eq!(bench.evals(&[]).len(), 1);
    drop(engine);
}

#[test]
fn only_finished_runs_and_checks_that_are_supported_are_taken() {
    let bench = Bench::new();
    let later = "check: {type: sql, service: db, query: select 1, equals: 1}";
    let said = bench.check(&spec(&[("a", RIGHT), ("good", later)], "1"), &[]);
    said.is(2)
        .warns("\"good\"")
        .warns("only the runs of a suite have");
    let later = "check: {type: http_mock_assertions, service: a, assertions: [{field: request_count, equals: 1}]}";
    let said = bench.check(&spec(&[("a", RIGHT), ("good", later)], "1"), &[]);
    said.is(2)
        .warns("\"good\"")
        .warns("only the runs of a suite have");
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

#[test]
fn a_kit_that_is_named_says_what_its_secrets_are() {
    let bench = Bench::new();
    let flow = FLOW.replace("name: w", "name: s") + "env: [{name: TOK, secret: true}]\n";
    bench.desk.write_kit("s", &flow);
    let spec = "invariants: {a: {description: d, check: {type: output, expr: status, not_equals: sup3rs3cretvalue}}}\n";
    bench.desk.write_file("a.eval.yaml", spec);
    let arguments = ["check", &bench.run, "--spec", "a.eval.yaml", "--kit", "s"];
    let mut command = bench.desk.command(&arguments);
    let refused = command.env("TOK", "sup3rs3cretvalue").output().unwrap();
    let words = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(2), "{words}");
    assert!(words.contains("secret"), "{words}");
    assert!(bench.evals(&[]).is_empty());
    // Another value is no secret.
    let mut command = bench.desk.command(&arguments);
    let recorded = command.env("TOK", "an0therv4lue").output().unwrap();
    assert_eq!(recorded.status.code(), Some(0));
    assert_eq!(bench.evals(&[]).len(), 1);
    // So does the kit that has the spec in its evals/, and no other folder of that name.
    for (file, code, evals) in [("s/evals/a.eval.yaml", 2, 1), ("evals/a.eval.yaml", 0, 2)] {
        bench.desk.write_file(file, spec);
        let mut command = bench.desk.command(&["check", &bench.run, "--spec", file]);
        let checked = command.env("TOK", "sup3rs3cretvalue").output().unwrap();
        assert_eq!(checked.status.code(), Some(code), "{checked:?}");
        assert_eq!(bench.evals(&[]).len(), evals, "{file}");
    }
}
