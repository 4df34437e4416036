//! Suites that vary what is used in place of a model group.

use serde_json::json;

use super::Desk;

/// An agent of the group `std`, and a gateway with three groups; the strong model is right.
const FILES: [(&str, &str); 5] = [
    (
        "sums/workflows/sums.workflow.yaml",
        "kind: workflow\nname: sums\nversion: 1.0.0\npipeline: [{id: a, agent: ./agents/adder.agent.yaml}]\n",
    ),
    (
        "sums/agents/adder.agent.yaml",
        "name: adder\nversion: 1.0.0\nmodel: std\nprompt: {system: You add., user: 2 + 2}\n\
         output: {schema: {type: object, required: [sum], properties: {sum: {type: integer}}}}\n",
    ),
    (
        "sums/gateway.yaml",
        "providers: [{name: desk, type: scripted, config: {rules: rules.yaml}}]\n\
         model_groups: [{name: std, models: [desk/m]}, {name: small, models: [desk/s]}, {name: large, models: [desk/l]}]\n",
    ),
    (
        "sums/rules.yaml",
        "rules:\n  - when: {model: s}\n    reply: {sum: 5}\ndefault:\n  reply: {sum: 4}\n",
    ),
    (
        "sums/evals/sums.eval.yaml",
        "subject: {}\nmatrix: {model.std: [small, large]}\ninvariants:\n  \
         right: {description: d, check: {type: output, expr: output.sum, equals: 4}}\n",
    ),
];

fn desk() -> Desk {
    let desk = Desk::new();
    for (path, text) in FILES {
        desk.write_file(path, text);
    }
    desk
}

#[test]
fn each_group_of_the_matrix_is_used_in_place_of_the_one_that_the_agent_names() {
    let desk = desk();
    let report = desk.ktsu(&["eval", "run", "sums", "--json"]).is(1).json();
    let scenarios = report["scenarios"].as_array().unwrap();
    for (scenario, (group, model, status)) in scenarios
        .iter()
        .zip([("small", "s", "failed"), ("large", "l", "passed")])
    {
        assert_eq!(scenario["scenario_id"], format!("model.std={group}"));
        assert_eq!(scenario["models"], json!({"std": group}));
        assert_eq!(scenario["status"], status);
        let run = scenario["run_id"].as_str().unwrap();
        // The record says which model was asked, and its inputs lead to it again.
        let filter = format!("model={model}");
        let frames = [
            "frames",
            run,
            "--where",
            "type=llm.response",
            "--where",
            &filter,
            "--json",
        ];
        assert_eq!(desk.ktsu(&frames).is(0).out.lines().count(), 1, "{group}");
        desk.ktsu(&["replay", run, "--strict"]).is(0);
    }
    assert_eq!(scenarios.len(), 2);
    let command = &scenarios[1]["reproducer"]["command"];
    assert_eq!(
        command,
        "ktsu eval run sums/evals/sums.eval.yaml --scenario=model.std=large"
    );
    desk.ktsu(&["verify"]).is(0);
}

#[test]
fn groups_that_the_workflow_does_not_use_or_the_gateway_does_not_have_are_refused() {
    let (path, text) = FILES[4];
    for (matrix, words, hint) in [
        (
            "model.fast: [small]",
            "model.fast: sums does not use the model group fast",
            "it uses std",
        ),
        (
            "model.std: [small, huge]",
            "model.std: there is no model group huge",
            "std, small, large",
        ),
        (
            "model.std: [1]",
            "model.std needs names of model groups",
            "sums.eval.yaml:2",
        ),
        (
            "models.std: [small]",
            "is neither a param nor a model group",
            "model.GROUP",
        ),
    ] {
        let desk = desk();
        desk.write_file(path, &text.replace("model.std: [small, large]", matrix));
        desk.ktsu(&["eval", "run", "sums"])
            .is(2)
            .warns(words)
            .warns(hint);
        desk.ktsu(&["evals"]).is(2);
    }
}

#[test]
fn offline_only_scripts_answer() {
    let desk = desk();
    let run = ["eval", "run", "sums", "--offline"];
    desk.ktsu(&run).is(1).says("1 passed, 1 failed");
    let (path, text) = FILES[2];
    let text = text.replace("models: [desk/l]", "models: [cloud/l]");
    let cloud = "providers: [{name: cloud, type: openai, config: {base_url: 'http://127.0.0.1:9/v1', api_key: none-at-all}}, ";
    desk.write_file(path, &text.replace("providers: [", cloud));
    desk.ktsu(&run)
        .is(2)
        .warns("the model group large is not answered by scripts alone");
    let one = ["eval", "run", "sums/evals/sums.eval.yaml", "--offline"];
    let (path, text) = FILES[4];
    desk.write_file(path, &text.replace("[small, large]", "[small]"));
    desk.ktsu(&one).is(1).says("0 passed, 1 failed");
}
