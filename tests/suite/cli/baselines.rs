//! `ktsu recompute`, `capture` and `test`: the real binary, a scripted model, exit codes.

use serde_json::{Value, json};

use super::Desk;

const WORKFLOW: &str = r#"
kind: workflow
name: one
version: 1.0.0
params: {schema: {type: object, properties: {list: {type: array, default: [red, green]}}}}
pipeline:
  - {id: sort, agent: ./agents/sorter.agent.yaml, params: {msg: "all of {{ params.list }}", at: {deep: "{{ params.list[1] }}"}}}
  - {id: each, agent: ./agents/sorter.agent.yaml, for_each: {from: params.list}, params: {msg: "{{ item }}"}}
"#;
const AGENT: &str = r#"
name: sorter
version: 1.0.0
model: std
params: {schema: {type: object, required: [msg], properties: {msg: {type: string}, at: {type: object}}}}
prompt: {system: s, user: "{{ params.msg }}"}
output: {schema: {type: object, required: [kind], properties: {kind: {type: string}, note: {type: string}}}}
"#;
const GATEWAY: &str = r#"
providers: [{name: fake, type: scripted, config: {rules: replies.yaml}}]
model_groups: [{name: std, models: [fake/one]}]
"#;

/// A kit whose model says this of `green`.
fn kit(desk: &Desk, green: &str) {
    desk.write_file("kit/workflows/one.workflow.yaml", WORKFLOW);
    desk.write_file("kit/agents/sorter.agent.yaml", AGENT);
    desk.write_file("kit/gateway.yaml", GATEWAY);
    let rules = format!(
        "rules:\n  - {{when: {{user: '\\Agreen'}}, reply: {green}}}\ndefault: {{reply: {{kind: warm}}}}\n"
    );
    desk.write_file("kit/replies.yaml", &rules);
}

fn run(desk: &Desk) -> String {
    let said = desk.ktsu(&["run", "kit", "--json"]);
    let envelope = said.is(0).json();
    envelope["run_id"].as_str().unwrap().to_owned()
}

#[test]
fn a_recompute_ends_with_the_verdict_as_its_exit_code() {
    let desk = Desk::new();
    kit(&desk, "{kind: cold}");
    let run = run(&desk);
    let before = desk.ktsu(&["frames", &run, "--json"]).is(0).out.clone();
    desk.ktsu(&["recompute", &run])
        .is(2)
        .warns("no engine owns");
    desk.ktsu(&["recompute", &run, "--kit", "kit"])
        .is(0)
        .says("sort  clean")
        .says("each.1  clean")
        .says("verdict clean");
    kit(&desk, "{kind: cool, note: new}");
    desk.ktsu(&["recompute", &run, "--kit", "kit"])
        .is(1)
        .says("each.1  value_changed")
        .says("    /kind: \"cold\" → \"cool\"")
        .says("  + /note: \"new\"")
        .says("each.0  clean");
    kit(&desk, "{sort: cold}");
    let said = desk.ktsu(&[
        "recompute",
        &run,
        "--kit",
        "kit",
        "--step",
        "each",
        "--json",
    ]);
    let verdict = said.is(1).json();
    assert_eq!(verdict["status"], "schema_violation");
    assert_eq!(verdict["tasks"].as_array().unwrap().len(), 2);
    desk.ktsu(&["recompute", &run, "--kit", "kit", "--markdown"])
        .is(1)
        .says("### `each.1`: schema_violation")
        .says("```diff\n! missing required field: kind (required)")
        .says("- /kind: \"cold\"");
    desk.ktsu(&["recompute", &run, "--kit", "kit", "--step", "absent"])
        .is(2)
        .warns("no agent worked on that step; there are: ");
    assert_eq!(desk.ktsu(&["frames", &run, "--json"]).is(0).out, before);
    desk.ktsu(&["verify"]).is(0);
}

#[test]
fn baselines_are_held_against_a_kit_and_distinguished_by_exit_codes() {
    let desk = Desk::new();
    kit(&desk, "{kind: cold}");
    let run = run(&desk);
    let capture = |more: &[&str]| desk.ktsu(&[&["capture", &run, "-o", "base"], more].concat());
    capture(&["--label", "first", "--meta", "team=desk"]).is(0);
    let read = |name: &str| std::fs::read_to_string(desk.path().join(name)).unwrap();
    let text = read("base/each.1.baseline.json");
    let one: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(one["format"], "ktsu-baseline@1");
    assert_eq!(one["metadata"]["meta"], json!({"team": "desk"}));
    assert_eq!(one["snapshot"]["input"], json!({"msg": "green"}));
    assert_eq!(one["snapshot"]["output"], json!({"kind": "cold"}));
    let sort: Value = serde_json::from_str(&read("base/sort.baseline.json")).unwrap();
    let input = json!({"msg": "all of [\"red\",\"green\"]", "at": {"deep": "green"}});
    assert_eq!(sort["snapshot"]["input"], input);
    // The same run, the same bytes.
    capture(&["--force", "--label", "first", "--meta", "team=desk"]).is(0);
    assert_eq!(read("base/each.1.baseline.json"), text);
    let test = |more: &[&str]| desk.ktsu(&[&["test", "base", "--kit", "kit"], more].concat());
    test(&[]).is(0).says("pass  3 of 3 clean");
    // As a kit is held against them in CI: the prompt, the model or the schema may have changed.
    kit(&desk, "{kind: cool}");
    let report = test(&["--format", "json"]).is(1).json();
    assert_eq!(report["version"], 1);
    assert_eq!(report["status"], "fail");
    assert_eq!(
        report["counts"],
        json!({"total": 3, "passed": 2, "changed": 1, "schemaViolations": 0, "failed": 0,
            "commandsChanged": 0, "diffUnavailable": 0})
    );
    let files = report["baselines"].as_array().unwrap().iter();
    let files: Vec<&Value> = files.map(|one| &one["file"]).collect();
    assert_eq!(
        files,
        [
            "base/each.0.baseline.json",
            "base/each.1.baseline.json",
            "base/sort.baseline.json"
        ]
    );
    assert_eq!(
        report["baselines"][1]["diff"],
        json!([{"path": "/kind", "before": "cold", "after": "cool"}])
    );
    test(&["--no-fail-on-diff"]).is(0);
    test(&["--format", "markdown"])
        .is(1)
        .says("## Baselines: fail");
    kit(&desk, "{sort: cool}");
    test(&["--no-fail-on-diff"])
        .is(1)
        .says("each.1.baseline.json  schema_violation");
    // Hashes alone: the same is the same, anything else cannot be told.
    kit(&desk, "{kind: cold}");
    capture(&["--force", "--hash-only"]).is(0);
    assert!(!read("base/each.1.baseline.json").contains("cold"));
    test(&[]).is(0);
    kit(&desk, "{kind: cool}");
    test(&[]).is(1).says("each.1.baseline.json  not_comparable");
    test(&["--allow-not-comparable"]).is(0);
    // Nothing of it is on the ledger.
    let listed = desk.ktsu(&["runs", "--kind", "recompute", "--json"]);
    assert_eq!(listed.is(0).json(), json!({"runs": []}));
    test(&["--record"]).is(1);
    let listed = desk
        .ktsu(&["runs", "--kind", "recompute", "--json"])
        .is(0)
        .json();
    assert_eq!(listed["runs"].as_array().unwrap().len(), 3);
    desk.ktsu(&["verify"]).is(0);
}

#[test]
fn a_broken_baseline_is_described_in_one_line_before_any_model_is_asked() {
    let desk = Desk::new();
    kit(&desk, "{kind: cold}");
    let run = run(&desk);
    desk.ktsu(&["capture", &run, "--step", "sort", "-o", "one.json"])
        .is(0);
    let text = std::fs::read_to_string(desk.path().join("one.json")).unwrap();
    // What was captured is what counts, until somebody says otherwise.
    let again = ["capture", &run, "--step", "sort", "-o", "one.json"];
    desk.ktsu(&again).is(2).warns("already exists");
    desk.ktsu(&[&again[..], &["--force"]].concat()).is(0);
    for (broken, words) in [
        (text.replace("all of", "some of"), "input_hash_mismatch"),
        (text.replace("warm", "cold"), "output_corrupted"),
        (text.replace("baseline@1", "baseline@9"), "ktsu-baseline@9"),
        (
            text.replace("\"step\": \"sort\"", "\"step\": \"absent\""),
            "no agent step absent",
        ),
        ("{".to_owned(), "malformed"),
        ("[".repeat(200_000), "malformed"),
        (" ".repeat(5 << 20), "larger than"),
    ] {
        desk.write_file("one.json", &broken);
        let said = desk.ktsu(&["test", "one.json", "--kit", "kit"]);
        said.is(2).warns(words);
        let errors = said
            .err
            .lines()
            .filter(|line| line.contains("error:"))
            .count();
        assert!(errors == 1 && said.err.lines().count() <= 2, "{said:#?}");
        assert_eq!(said.out, "");
    }
    desk.ktsu(&["test", "absent.json", "--kit", "kit"]).is(2);
    desk.ktsu(&["capture", &run, "-o", "many.json"])
        .is(2)
        .warns("do not fit into one file");
    assert!(!desk.path().join("many.json").exists());
}

/// A kit whose agent has a default for `note`, and whose model says this of `green`.
fn with_default(desk: &Desk, green: &str) {
    kit(desk, green);
    let agent = AGENT.replace(
        "note: {type: string}",
        "note: {type: string, default: none}",
    );
    desk.write_file("kit/agents/sorter.agent.yaml", &agent);
}

#[test]
fn outputs_are_compared_after_their_defaults_are_filled_in() {
    for (before, after) in [
        ("{kind: cold}", "{kind: cold, note: none}"),
        ("{kind: cold, note: none}", "{kind: cold}"),
    ] {
        let desk = Desk::new();
        with_default(&desk, before);
        let run = run(&desk);
        desk.ktsu(&["capture", &run, "-o", "base"]).is(0);
        with_default(&desk, after);
        let test = || desk.ktsu(&["test", "base", "--kit", "kit"]);
        test().is(0).says("pass  3 of 3 clean");
        let recompute = || desk.ktsu(&["recompute", &run, "--kit", "kit"]);
        recompute().is(0).says("verdict clean");
        // Another value is another value, and the default is none of what differs.
        with_default(&desk, "{kind: cool}");
        let changed = "/kind: \"cold\" → \"cool\"";
        let told = test().is(1).says(changed).out.clone();
        assert!(!told.contains("/note"), "{told}");
        let told = recompute().is(1).says(changed).out.clone();
        assert!(!told.contains("/note"), "{told}");
    }
}

#[test]
fn a_hash_alone_is_that_of_an_output_whose_defaults_were_written_out() {
    let desk = Desk::new();
    with_default(&desk, "{kind: cold, note: none}");
    let run = run(&desk);
    let capture = ["capture", &run, "--step", "each.1", "--hash-only"];
    desk.ktsu(&[&capture[..], &["-o", "one.json"]].concat())
        .is(0);
    let test = || desk.ktsu(&["test", "one.json", "--kit", "kit"]);
    with_default(&desk, "{kind: cold}");
    test().is(0).says("pass  1 of 1 clean");
    with_default(&desk, "{kind: cool}");
    test().is(1).says("not_comparable");
}

#[test]
fn a_baseline_without_the_hash_of_its_output_is_not_comparable() {
    let desk = Desk::new();
    kit(&desk, "{kind: cold}");
    let run = run(&desk);
    desk.ktsu(&["capture", &run, "--step", "sort", "-o", "one.json"])
        .is(0);
    let text = std::fs::read_to_string(desk.path().join("one.json")).unwrap();
    let mut one: Value = serde_json::from_str(&text).unwrap();
    let snapshot = one["snapshot"].as_object_mut().unwrap();
    snapshot.remove("outputHash").unwrap();
    let test = |one: &Value| {
        desk.write_file("one.json", &one.to_string());
        desk.ktsu(&["test", "one.json", "--kit", "kit", "--format", "json"])
    };
    let words = "the baseline has no outputHash; capture it again";
    let report = test(&one).is(1).json();
    assert_eq!(report["baselines"][0]["status"], "not_comparable");
    assert_eq!(report["baselines"][0]["reason"], words, "{report:#}");
    assert_eq!(report["counts"]["diffUnavailable"], 1);
    // Whatever it says its output was, and with none at all.
    one["snapshot"]["output"] = json!({"kind": "cold"});
    let report = test(&one).is(1).json();
    assert_eq!(report["baselines"][0]["status"], "not_comparable");
    one["snapshot"].as_object_mut().unwrap().remove("output");
    let report = test(&one).is(1).json();
    assert_eq!(report["baselines"][0]["status"], "not_comparable");
}

#[test]
fn an_input_that_no_longer_fits_its_agent_is_to_be_captured_again() {
    let desk = Desk::new();
    kit(&desk, "{kind: cold}");
    let run = run(&desk);
    desk.ktsu(&["capture", &run, "--step", "sort", "-o", "one.json"])
        .is(0);
    let agent = AGENT.replace("required: [msg]", "required: [msg, who]");
    desk.write_file("kit/agents/sorter.agent.yaml", &agent);
    let workflow = WORKFLOW.replace("params: {msg:", "params: {who: me, msg:");
    desk.write_file("kit/workflows/one.workflow.yaml", &workflow);
    let test = || desk.ktsu(&["test", "one.json", "--kit", "kit", "--format", "json"]);
    let report = test().is(2).json();
    let held = &report["baselines"][0];
    assert_eq!(held["status"], "failed", "{report:#}");
    let reason = held["reason"].as_str().unwrap();
    assert!(reason.starts_with("invalid_params: "), "{reason}");
    assert!(reason.ends_with("; capture it again"), "{reason}");
    assert_eq!(held["retryable"], false);
}

#[test]
fn the_verdict_on_a_baseline_says_whether_a_failure_is_retryable() {
    let desk = Desk::new();
    kit(&desk, "{kind: cold}");
    let run = run(&desk);
    desk.ktsu(&["capture", &run, "--step", "sort", "-o", "one.json"])
        .is(0);
    for (status, retryable) in [(503, true), (400, false)] {
        let rules = format!("rules: [{{error: {{status: {status}}}}}]\n");
        desk.write_file("kit/replies.yaml", &rules);
        let test =
            |format: &str| desk.ktsu(&["test", "one.json", "--kit", "kit", "--format", format]);
        let report = test("json").is(2).json();
        assert_eq!(report["baselines"][0]["retryable"], retryable, "{report:#}");
        let words = "retryable: another attempt may succeed";
        assert_eq!(test("text").is(2).out.contains(words), retryable);
    }
}

const KEEPER: &str = r#"
name: keeper
version: 1.0.0
model: std
prompt: {system: You keep things., user: Keep it.}
servers: [{name: ktsu/kv, access: {allowlist: [kv-get, kv-set]}}]
output: {schema: {type: object, required: [kept]}}
"#;

/// A kit whose agent keeps this value and reads it back; the server it does so with is stateful.
fn keeping(desk: &Desk, value: u32) {
    let flow = "kind: workflow\nname: keep\nversion: 1.0.0\n\
                pipeline: [{id: keep, agent: ./agents/keeper.agent.yaml}]\n";
    desk.write_file("kit/workflows/keep.workflow.yaml", flow);
    desk.write_file("kit/agents/keeper.agent.yaml", KEEPER);
    desk.write_file("kit/gateway.yaml", GATEWAY);
    let rules = format!(
        "rules:\n  - {{when: {{turn: 1}}, tool_calls: [{{name: kv-set, arguments: {{key: k, value: {value}}}}}]}}\n  \
         - {{when: {{turn: 2}}, tool_calls: [{{name: kv-get, arguments: {{key: k}}}}]}}\n\
         default: {{reply: {{kept: \"{{{{ results.kv-get }}}}\"}}}}\n"
    );
    desk.write_file("kit/replies.yaml", &rules);
}

#[test]
fn a_stateful_server_is_called_once_however_often_its_run_is_recomputed_and_tested() {
    let desk = Desk::new();
    keeping(&desk, 1);
    let run = run(&desk);
    let calls = |id: &str| {
        let frames = desk.ktsu(&["frames", id, "--json"]).is(0).out.clone();
        frames.matches(r#""type":"tool.called""#).count()
    };
    assert_eq!(calls(&run), 2);
    desk.ktsu(&["recompute", &run, "--kit", "kit"])
        .is(0)
        .says("verdict clean");
    desk.ktsu(&["capture", &run, "-o", "base"]).is(0);
    let text = std::fs::read_to_string(desk.path().join("base/keep.baseline.json")).unwrap();
    let one: Value = serde_json::from_str(&text).unwrap();
    let results = one["snapshot"]["toolResults"].as_array().unwrap();
    assert_eq!(results[0]["recorded"]["tool"], "kv-set", "{text}");
    assert_eq!(results[1]["recorded"]["tool"], "kv-get", "{text}");
    let test = || desk.ktsu(&["test", "base", "--kit", "kit"]);
    test().is(0).says("pass  1 of 1 clean");
    // The agent wants to keep something else now. It reads back what it read then.
    keeping(&desk, 2);
    let words = "1 call was not sent, and no recorded result answers it: kv-set";
    test().is(1).says("not_comparable").says(words);
    let said = desk.ktsu(&["recompute", &run, "--kit", "kit", "--json"]);
    let verdict = said.is(1).json();
    assert_eq!(verdict["status"], "not_comparable", "{verdict:#}");
    assert_eq!(verdict["tasks"][0]["reason"], words);
    let id = verdict["recompute_id"].as_str().unwrap();
    assert_eq!(calls(id), 0);
    desk.ktsu(&["trace", id])
        .is(0)
        .says("a result as recorded: kv-get of ktsu/kv");
    desk.ktsu(&["replay", id, "--strict"]).is(0);
    // A baseline of before there were results in them: nothing is sent, and nothing is clean.
    keeping(&desk, 1);
    let mut old = one.clone();
    for member in ["toolResults", "toolResultsHash"] {
        old["snapshot"].as_object_mut().unwrap().remove(member);
    }
    desk.write_file("base/keep.baseline.json", &old.to_string());
    test()
        .is(1)
        .says("value_changed")
        .says("2 calls were not sent");
    desk.ktsu(&["verify"]).is(0);
}
