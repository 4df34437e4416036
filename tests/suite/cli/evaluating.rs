//! `ktsu eval run`: runs what a spec names, once for each combination of its matrix, and judges them.

use serde_json::{Value, json};

use super::{Desk, kit};
use crate::support::Sink;

const FLOW: &str = "kind: workflow\nname: w\nversion: 1.0.0\n\
    params: {schema: {type: object, required: [a], additionalProperties: false, properties: \
    {a: {type: integer}, b: {type: string, default: none}}}}\npipeline:\n  \
    - {id: t, transform: {inputs: [{from: '{a: params.a, b: params.b}'}], ops: []}}\n\
    output: {map: {a: '{{ step.t.result.a }}', b: '{{ step.t.result.b }}'}}\n";

const CHECKS: &str = "invariants:\n  \
    small: {description: d, check: {type: output, expr: output.a, max: 2}}\n  \
    one: {description: d, weight: 0, check: {type: trace, where: {type: run.created}, count: {equals: 1}}}\n";

/// An agent that asks to call a tool that people have to approve.
pub(super) const GATED: [(&str, &str); 4] = [
    (
        "gated/workflows/gated.workflow.yaml",
        "kind: workflow\nname: gated\nversion: 1.0.0\npipeline: [{id: a, agent: ./agents/keeper.agent.yaml}]\n",
    ),
    (
        "gated/agents/keeper.agent.yaml",
        "name: keeper\nversion: 1.0.0\nmodel: std\n\
    prompt: {system: You keep things., user: Keep it.}\n\
    servers: [{name: ktsu/kv, access: {allowlist: [{name: kv-set, require_approval: {on_reject: recover}}]}}]\n\
    output: {schema: {type: object}}\n",
    ),
    (
        "gated/gateway.yaml",
        "providers: [{name: desk, type: scripted, config: {rules: rules.yaml}}]\n\
         model_groups: [{name: std, models: [desk/m]}]\n",
    ),
    (
        "gated/rules.yaml",
        "rules:\n  - when: {turn: 1}\n    tool_calls: [{name: kv-set, arguments: {key: k, value: 1}}]\n\
         default:\n  reply: {kept: true}\n",
    ),
];

/// A desk with a kit, and a spec in its `evals/`.
fn desk(spec: &str) -> Desk {
    let desk = Desk::new();
    let kit = desk.write_kit("w", FLOW);
    assert_eq!(kit, "w");
    desk.write_file("w/evals/w.eval.yaml", spec);
    desk
}

fn spec(subject: &str) -> String {
    format!("{subject}\n{CHECKS}")
}

#[test]
fn each_combination_of_the_matrix_is_a_run_of_its_own_with_its_params_in_the_record() {
    let desk = desk(&spec(
        "subject: {workflow: w, params: {a: 9}}\nmatrix: {params.a: [1, 3], params.b: [x, y]}",
    ));
    let said = desk.ktsu(&["eval", "run", "w", "--json", "--parallel", "3"]);
    let report = said.is(1).json();
    let scenarios = report["scenarios"].as_array().unwrap();
    let shown: Vec<(&Value, &Value, &Value)> = scenarios
        .iter()
        .map(|one| (&one["parameters"], &one["status"], &one["agent_output"]))
        .collect();
    let one = json!({"a": 1, "b": "x"});
    let two = json!({"a": 1, "b": "y"});
    let three = json!({"a": 3, "b": "x"});
    let four = json!({"a": 3, "b": "y"});
    let (passed, failed) = (json!("passed"), json!("failed"));
    let expected = [
        (&one, &passed, &one),
        (&two, &passed, &two),
        (&three, &failed, &three),
        (&four, &failed, &four),
    ];
    assert_eq!(shown, expected);
    let totals = ["total_scenarios", "passed", "failed", "errors"].map(|name| &report[name]);
    assert_eq!(totals, [&json!(4), &json!(2), &json!(2), &json!(0)]);
    assert_eq!(report["metrics"]["pass_rate"], 0.5);
    let id = report["eval_id"].as_str().unwrap();
    let record = desk.ktsu(&["evals", id, "--json"]).is(1).json();
    for (shown, recorded) in scenarios
        .iter()
        .zip(record["scenarios"].as_array().unwrap())
    {
        assert_eq!(shown["run_id"], recorded["run_id"]);
        let run = recorded["run_id"].as_str().unwrap();
        let envelope = desk.ktsu(&["runs", "get", run, "--json"]).is(0).json();
        assert_eq!(envelope["params"], shown["parameters"], "{envelope:#}");
    }
    desk.ktsu(&["verify"]).is(0);
    desk.ktsu(&["evidence", "export", id, "-o", "e.tar"]).is(0);
    let verified = desk.ktsu(&["evidence", "verify", "e.tar"]);
    verified
        .is(0)
        .says("1 verdict follows from 8 checks made again");
}

/// Sends a webhook, and asks a child to send another.
fn hooks(sink: &Sink) -> [(&'static str, String); 2] {
    let hook = format!("{{id: h, webhook: {{url: '{}/h'}}}}", sink.url);
    let main = format!(
        "kind: workflow\nname: w\nversion: 1.0.0\npipeline:\n  - {hook}\n  \
         - {{id: c, workflow: ./part.workflow.yaml, webhooks: execute}}\n"
    );
    let part = format!(
        "kind: workflow\nname: part\nversion: 1.0.0\nvisibility: sub-workflow\n\
         webhooks: execute\npipeline:\n  - {hook}\n"
    );
    [
        ("w/workflows/w.workflow.yaml", main),
        ("w/workflows/part.workflow.yaml", part),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn the_runs_of_an_eval_send_no_webhooks_unless_it_says_so() {
    let sink = Sink::new().await;
    let desk = Desk::new();
    desk.write_kit("w", FLOW);
    for (path, text) in hooks(&sink) {
        desk.write_file(path, &text);
    }
    let checks = |sent: usize| {
        format!(
            "subject: {{}}\ninvariants:\n  sent: {{description: d, check: {{type: trace, \
             where: {{type: webhook.sent}}, count: {{equals: {sent}}}}}}}\n"
        )
    };
    for (effects, sent) in [
        ("", 0),
        ("effects: suppress\n", 0),
        ("effects: execute\n", 2),
    ] {
        desk.write_file("w/evals/w.eval.yaml", &format!("{effects}{}", checks(sent)));
        let report = desk.ktsu(&["eval", "run", "w", "--json"]).is(0).json();
        assert_eq!(sink.heard().len(), sent, "{effects}");
        let run = report["scenarios"][0]["run_id"].as_str().unwrap();
        let envelope = desk.ktsu(&["runs", "get", run, "--json"]).is(0).json();
        let shown = (sent == 0).then_some("suppress");
        assert_eq!(envelope["effects"].as_str(), shown, "{envelope:#}");
        if sent == 0 {
            let why = desk.ktsu(&["trace", run, "--why-not", "h"]);
            why.is(0).says("it was created with effects=suppress");
        }
    }
    // As `ktsu run` does, which asks for it by an argument.
    let run = ["run", "w", "--effects", "suppress", "--json"];
    let envelope = desk.ktsu(&run).is(0).json();
    assert_eq!(envelope["effects"], "suppress");
    assert_eq!(sink.heard().len(), 2);
    desk.ktsu(&["run", "w", "--effects", "none"]).is(2);
    desk.ktsu(&["verify"]).is(0);
}

#[test]
fn verdicts_are_shown_as_they_come_with_the_checks_of_those_that_did_not_pass() {
    let desk = desk(&spec("subject: {workflow: w}\nmatrix: {params.a: [2, 3]}"));
    let said = desk.ktsu(&["eval", "run", "w/evals/w.eval.yaml"]);
    said.is(1)
        .says("passed  a=2  1 ")
        .says("failed  a=3  0 ")
        .says("output.a is 3, expected a number of at most 2")
        .says("2 scenarios: 1 passed, 1 failed, 0 errors");
    said.warns("recorded as eval_");
}

#[test]
fn a_run_that_waits_for_a_person_is_an_error_and_is_cancelled() {
    let desk = Desk::new();
    for (path, text) in GATED {
        desk.write_file(path, text);
    }
    desk.write_file("gated/evals/g.eval.yaml", &spec("subject: {}"));
    let report = desk.ktsu(&["eval", "run", "gated", "--json"]).is(2).json();
    let scenario = &report["scenarios"][0];
    assert_eq!(scenario["status"], "error");
    assert_eq!(scenario["error"], "waiting");
    assert_eq!(scenario["invariants"], json!([]));
    assert_eq!(report["errors"], 1);
    let run = scenario["run_id"].as_str().unwrap();
    let runs = desk.ktsu(&["runs", "--json"]).is(0).json();
    assert_eq!(runs["runs"][0]["run_id"], run);
    assert_eq!(runs["runs"][0]["status"], "cancelled");
    let id = report["eval_id"].as_str().unwrap();
    desk.ktsu(&["evals", id]).is(2).says("error: waiting");
    desk.ktsu(&["verify"]).is(0);
}

#[test]
fn the_report_has_what_was_forbidden_how_tools_answered_and_how_runs_ended() {
    let desk = Desk::new();
    for (path, text) in GATED {
        desk.write_file(path, text);
    }
    let spec = |people: &str| {
        format!(
            "subject: {{}}\npeople: {people}\nforbidden:\n  \
             - {{name: no_writes, where: {{type: tool.called}}}}\n  \
             - {{name: no_child, where: {{scope: 'x*'}}}}\n"
        )
    };
    let of = |people: &str, code| {
        desk.write_file("gated/evals/g.eval.yaml", &spec(people));
        let said = desk.ktsu(&["eval", "run", "gated", "--json"]);
        said.is(code).json()
    };
    let called = of("[{match: {tool: kv-set}, decision: approved}]", 1);
    let scenario = &called["scenarios"][0];
    let rules: Vec<(&Value, &Value)> = scenario["forbidden_checks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (&one["rule"], &one["violated"]))
        .collect();
    let (yes, no) = (json!(true), json!(false));
    assert_eq!(
        rules,
        [(&json!("no_writes"), &yes), (&json!("no_child"), &no)]
    );
    let details = scenario["forbidden_checks"][0]["details"].as_str().unwrap();
    assert!(details.contains("1 frame"), "{details}");
    assert_eq!(scenario["exit_code"], 0);
    assert_eq!(called["metrics"]["side_effect_violations"], 1);
    assert_eq!(called["metrics"]["tool_success_rate"], 1.0);
    assert_eq!(called.get("seed"), Some(&Value::Null));
    // A call that is not sent is neither.
    let rejected = of("[{match: {tool: kv-set}, decision: rejected}]", 0);
    assert_eq!(rejected["metrics"]["side_effect_violations"], 0);
    assert_eq!(rejected["metrics"]["tool_success_rate"], Value::Null);
    let waiting = of("[{match: {tool: other}, decision: approved}]", 2);
    assert_eq!(waiting["scenarios"][0]["exit_code"], 1);
    assert_eq!(waiting["scenarios"][0]["forbidden_checks"], json!([]));
}

#[test]
fn a_recorded_run_is_judged_as_it_is() {
    let desk = desk(&spec("subject: {workflow: w}"));
    let run = desk.ktsu(&["run", "w", "--input", r#"{"a": 2}"#, "--json"]);
    let run = run.is(0).json()["run_id"].as_str().unwrap().to_owned();
    desk.write_file(
        "w/evals/w.eval.yaml",
        &spec(&format!("subject: {{run: {run}}}")),
    );
    let report = desk.ktsu(&["eval", "run", "w", "--json"]).is(0).json();
    assert_eq!(report["scenarios"][0]["run_id"], run);
    let runs = desk.ktsu(&["runs", "--json"]).is(0).json();
    assert_eq!(runs["runs"].as_array().unwrap().len(), 1);
    desk.write_file("w/evals/w.eval.yaml", &spec("subject: {run: run_none}"));
    desk.ktsu(&["eval", "run", "w"])
        .is(2)
        .warns("there is no run run_none");
}

#[test]
fn what_cannot_be_run_is_refused_before_anything_is() {
    for (spec, words) in [
        (CHECKS.to_owned(), "no file in w/evals has a subject"),
        (spec("subject: {workflow: v}"), "has no workflow v"),
        (
            spec("subject: {}").replace(
                "{type: output, expr: output.a, max: 2}",
                "{type: file_exists, path: a}",
            ),
            "need a workspace",
        ),
        (
            spec("subject: {}").replace(
                "{type: output, expr: output.a, max: 2}",
                "{type: command_exit, command: 'true'}",
            ),
            "need a workspace",
        ),
        (spec("subject: {}\nmatrix: {params.a: 3}"), "w.eval.yaml:2"),
    ] {
        let desk = desk(&spec);
        desk.ktsu(&["eval", "run", "w"]).is(2).warns(words);
        let listed = desk.ktsu(&["evals"]);
        assert!(!listed.out.contains("eval_"), "{words}: {}", listed.out);
    }
    // Params that do not fit are named with their scenario.
    let desk = desk(&spec("subject: {}\nmatrix: {params.a: [1, one]}"));
    desk.ktsu(&["eval", "run", "w"])
        .is(2)
        .warns("a=one")
        .warns("/a");
}

#[test]
fn the_kit_that_is_shipped_judges_itself_without_a_key() {
    let desk = Desk::new();
    let said = desk.ktsu(&["eval", "run", &kit("triage")]);
    said.is(0)
        .says("plan=enterprise")
        .says("3 scenarios: 3 passed, 0 failed, 0 errors");
}
