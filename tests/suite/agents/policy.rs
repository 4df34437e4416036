//! What a workflow's `model_policy` does to model calls (seed 000, invariants 17 and 28; decision
//! F4).

use serde_json::{Value, json};

use super::{lab, step};
use crate::support::model::{COST, Model, Said};

const THREE: &str = r#"
pipeline:
  - {id: a, agent: ./agents/echo.agent.yaml, params: {msg: "{\"answer\":\"a\"}"}}
  - {id: b, depends_on: [a], agent: ./agents/echo.agent.yaml, params: {msg: "{\"answer\":\"b\"}"}}
  - {id: c, depends_on: [b], agent: ./agents/echo.agent.yaml, params: {msg: "{\"answer\":\"c\"}"}}
  - {id: d, depends_on: [c], transform: {inputs: [], ops: []}}
"#;

#[tokio::test]
async fn a_call_is_refused_once_the_budget_is_reached_and_not_before() {
    let model = Model::echo().await;
    let workflow = format!("model_policy: {{cost_budget_usd: 0.0003}}\n{THREE}");
    let (_kit, lab) = lab(&model, &[("three", &workflow)]).await;
    let envelope = lab.client.run("three", json!({})).await;
    assert_eq!(envelope["status"], "failed", "{envelope:#}");
    assert_eq!(envelope["error"]["code"], "budget_exceeded");
    assert_eq!(envelope["error"]["step"], "c");
    let statuses: Vec<&str> = envelope["steps"]
        .as_array()
        .unwrap()
        .iter()
        .map(|step| step["status"].as_str().unwrap())
        .collect();
    assert_eq!(statuses, ["complete", "complete", "failed", "skipped"]);
    assert_eq!(model.calls().len(), 2);
    assert_eq!(envelope["totals"]["cost_micro_usd"], 2 * COST);
    assert_eq!(step(&envelope, "c")["metrics"]["llm_calls"], 0);
}

/// The items wait for each other where they might use the budget up together: what is spent is less
/// than the budget and one call, once it is known what a call costs.
#[tokio::test]
async fn calls_at_once_do_not_overrun_the_budget_together() {
    let model = Model::echo().await;
    let fan = r#"
model_policy: {cost_budget_usd: 0.001}
params: {schema: {type: object, required: [list], properties: {list: {}}}}
pipeline:
  - {id: first, agent: ./agents/echo.agent.yaml, params: {msg: "{\"answer\":\"first\"}"}}
  - {id: each, depends_on: [first], agent: ./agents/echo.agent.yaml, for_each: {from: params.list, max_failures: -1}, params: {msg: "{\"answer\":\"{{ item }}\"}"}}
"#;
    let (_kit, lab) = lab(&model, &[("fan", fan)]).await;
    let list: Vec<u32> = (0..20).collect();
    let envelope = lab.client.run("fan", json!({ "list": list })).await;
    assert_eq!(model.calls().len(), 4, "{envelope:#}");
    // An item whose call was refused has failed, and here any number may.
    assert_eq!(envelope["status"], "complete");
    assert_eq!(step(&envelope, "each")["counts"]["failed"], 17);
    assert_eq!(envelope["totals"]["cost_micro_usd"], 4 * COST);
}

#[tokio::test]
async fn the_group_is_the_steps_or_the_agents_and_the_policy_changes_it() {
    let model = Model::echo().await;
    let body = |policy: &str, group: &str| {
        format!(
            "{policy}\npipeline: [{{id: s, agent: ./agents/echo.agent.yaml, {group} params: {{msg: \"{{\\\"answer\\\":\\\"x\\\"}}\"}}}}]\n"
        )
    };
    let workflows = [
        ("plain", body("", ""), "gpt-4o-mini"),
        (
            "step",
            body("", "model: {group: large, max_tokens: 77},"),
            "gpt-4o",
        ),
        (
            "force",
            body("model_policy: {force_group: large}", ""),
            "gpt-4o",
        ),
        (
            "both",
            body(
                "model_policy: {force_group: std, group_map: {large: large}}",
                "model: {group: large},",
            ),
            "gpt-4o-mini",
        ),
        (
            "map",
            body("model_policy: {group_map: {std: large}}", ""),
            "gpt-4o",
        ),
        (
            "elsewhere",
            body(
                "model_policy: {group_map: {large: std}}",
                "model: {group: large},",
            ),
            "gpt-4o-mini",
        ),
    ];
    let texts: Vec<(&str, &str)> = workflows
        .iter()
        .map(|(name, text, _)| (*name, text.as_str()))
        .collect();
    let (_kit, lab) = lab(&model, &texts).await;
    for (name, _, expected) in &workflows {
        model.forget();
        let envelope = lab.client.run(name, json!({})).await;
        assert_eq!(envelope["status"], "complete", "{name}: {envelope:#}");
        let body = &model.calls()[0].body;
        assert_eq!(body["model"], *expected, "{name}");
        assert_eq!(step(&envelope, "s")["model"], format!("fake/{expected}"));
        if *name == "step" {
            assert_eq!(body.to_string().matches("77").count(), 1, "{body}");
        }
    }
}

#[tokio::test]
async fn a_run_whose_time_is_over_fails_though_the_model_says_nothing() {
    let model = Model::scripted(|_| Said::Never).await;
    let workflow = format!("model_policy: {{timeout_s: 0.2}}\n{THREE}");
    let (_kit, lab) = lab(&model, &[("three", &workflow)]).await;
    let envelope = lab.client.run("three", json!({})).await;
    assert_eq!(envelope["status"], "failed", "{envelope:#}");
    assert_eq!(envelope["error"]["code"], "run_timeout");
    assert_eq!(step(&envelope, "a")["status"], "failed");
    assert_eq!(step(&envelope, "d")["status"], "skipped");
}

/// Seed 000, invariant 28: a run that is started by a webhook is a run of its own.
#[tokio::test]
async fn a_webhook_to_our_own_invoke_starts_a_run_with_its_own_budget_and_envelope() {
    let model = Model::echo().await;
    let parent = r#"
model_policy: {cost_budget_usd: 0.0002}
params: {schema: {type: object, required: [own], properties: {own: {type: string}}}}
pipeline:
  - {id: a, agent: ./agents/echo.agent.yaml, params: {msg: "{\"answer\":\"a\"}"}}
  - {id: other, depends_on: [a], webhook: {url: "{{ params.own }}/invoke/three?wait=60", body: {}}}
"#;
    let (_kit, lab) = lab(&model, &[("parent", parent), ("three", THREE)]).await;
    let envelope = lab
        .client
        .run("parent", json!({"own": lab.engine.url}))
        .await;
    assert_eq!(envelope["status"], "complete", "{envelope:#}");
    assert_eq!(envelope["totals"]["cost_micro_usd"], COST);
    assert_eq!(envelope["totals"]["llm_calls"], 1);
    let runs = lab.client.get("/runs").await.json();
    let runs: Vec<&Value> = runs["runs"].as_array().unwrap().iter().collect();
    assert_eq!(runs.len(), 2);
    let other = runs.iter().find(|run| run["workflow"] == "three").unwrap();
    let id = other["run_id"].as_str().unwrap();
    assert_ne!(id, envelope["run_id"].as_str().unwrap());
    let own = lab.client.ended(id).await;
    assert_eq!(own["status"], "complete");
    assert_eq!(own["totals"]["cost_micro_usd"], 3 * COST);
    assert_eq!(own["run_id"], id);
}

/// Seed 000, invariants 28 and 29: an inline child draws on the budget of its root, and is counted
/// once.
#[tokio::test]
async fn an_inline_child_draws_on_the_budget_of_its_root() {
    let model = Model::echo().await;
    let child = format!("visibility: sub-workflow\nmodel_policy: {{cost_budget_usd: 9}}\n{THREE}");
    let middle =
        "visibility: sub-workflow\npipeline: [{id: inner, workflow: ./child.workflow.yaml}]\n";
    let parent = |budget: &str| {
        format!(
            "model_policy: {{cost_budget_usd: {budget}}}\npipeline: [{{id: call, workflow: ./middle.workflow.yaml}}]\n"
        )
    };
    let (rich, poor) = (parent("1"), parent("0.0003"));
    let workflows = [
        ("rich", rich.as_str()),
        ("poor", &poor),
        ("middle", middle),
        ("child", &child),
    ];
    let (_kit, lab) = lab(&model, &workflows).await;
    let envelope = lab.client.run("rich", json!({})).await;
    assert_eq!(envelope["status"], "complete", "{envelope:#}");
    assert_eq!(envelope["totals"]["tokens_in"], 3000);
    assert_eq!(step(&envelope, "call")["metrics"]["tokens_in"], 3000);
    let run = envelope["run_id"].as_str().unwrap();
    for path in ["%2Fcall%2Finner", "/call/inner"] {
        let inner = lab.client.get(&format!("/runs/{run}{path}/envelope")).await;
        assert_eq!(inner.status, 200);
        let inner = inner.json();
        assert_eq!(inner["run_id"], format!("{run}/call/inner"));
        assert_eq!(inner["totals"]["cost_micro_usd"], 3 * COST);
        assert_eq!(step(&inner, "b")["output"], json!({"answer": "b"}));
    }
    let envelope = lab.client.run("poor", json!({})).await;
    assert_eq!(envelope["status"], "failed", "{envelope:#}");
    assert_eq!(envelope["error"]["code"], "budget_exceeded");
    assert_eq!(envelope["totals"]["cost_micro_usd"], 2 * COST);
}
