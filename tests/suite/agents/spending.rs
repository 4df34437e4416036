//! What model calls cost, whatever became of them, and what a budget says before there is a price
//! (decisions F4 and S5).

use serde_json::{Value, json};

use super::{lab, of_type, step};
use crate::support::Lab;
use crate::support::model::{self, COST, KEY, Model, Said};
use crate::support::services::{Service, Services};

const ONE: &str = r#"
pipeline:
  - {id: a, agent: ./agents/echo.agent.yaml, params: {msg: "{\"answer\":\"a\"}"}}
"#;

/// A fan-out whose items may fail as they like, under a budget in dollars.
fn wide(budget: &str) -> String {
    format!(
        r#"
model_policy: {{cost_budget_usd: {budget}}}
params: {{schema: {{type: object, required: [list], properties: {{list: {{type: array}}}}}}}}
pipeline:
  - id: each
    agent: ./agents/echo.agent.yaml
    for_each: {{from: params.list, concurrency: 200, max_items: 200, max_failures: -1}}
    params: {{msg: "{{\"answer\":\"{{{{ item }}}}\"}}"}}
"#
    )
}

fn items(count: u32) -> Value {
    json!({ "list": (0..count).collect::<Vec<_>>() })
}

fn used(frame: &Value) -> (u64, u64, u64) {
    let number = |name: &str| frame["data"][name].as_u64().unwrap();
    (
        number("tokens_in"),
        number("tokens_out"),
        number("cost_micro_usd"),
    )
}

#[tokio::test]
async fn a_fan_out_of_200_items_under_the_price_of_one_call_asks_at_most_twice() {
    let model = Model::echo().await;
    let workflow = wide("0.00027");
    let (_kit, lab) = lab(&model, &[("wide", &workflow)]).await;
    let envelope = lab.client.run("wide", items(200)).await;
    assert!(model.calls().len() <= 2, "{} calls", model.calls().len());
    assert_eq!(envelope["totals"]["cost_micro_usd"], COST);
    let run = envelope["run_id"].as_str().unwrap();
    let frames = lab.client.frames(run).await;
    assert_eq!(of_type(&frames, "llm.request").len(), model.calls().len());
    assert_eq!(of_type(&frames, "budget.exhausted").len(), 199);
}

/// A 200 whose reply is of no use was charged like any other.
#[tokio::test]
async fn a_reply_that_is_of_no_use_counts_with_its_tokens_and_its_cost() {
    let model = Model::scripted(|_| Said::Nothing).await;
    let (_kit, lab) = lab(&model, &[("one", ONE)]).await;
    let envelope = lab.client.run("one", json!({})).await;
    assert_eq!(envelope["error"]["code"], "internal_error", "{envelope:#}");
    let totals = &envelope["totals"];
    assert_eq!(
        (&totals["tokens_in"], &totals["tokens_out"]),
        (&json!(1000), &json!(200))
    );
    assert_eq!(totals["cost_micro_usd"], COST);
    assert_eq!(step(&envelope, "a")["metrics"]["cost_micro_usd"], COST);
    let run = envelope["run_id"].as_str().unwrap();
    let response = &of_type(&lab.client.frames(run).await, "llm.response")[0];
    assert_eq!(used(response), (1000, 200, COST));
    let attempts = response["data"]["attempts"].as_array().unwrap();
    assert_eq!(attempts.len(), 1, "{response:#}");
    assert_eq!(attempts[0]["model"], "fake/gpt-4o-mini");
    assert_eq!(attempts[0]["status"], "internal_error");
    assert_eq!(
        attempts[0]["usage"],
        json!({"cost_micro_usd": COST, "tokens_in": 1000, "tokens_out": 200})
    );
    assert!(attempts[0]["duration_ms"].is_u64());
}

/// What a model says with a usage.
type Says = fn(Value) -> Said;

/// A provider says what it used in a refusal, too, beside what nobody can read, and in a reply that is
/// thrown away.
#[tokio::test]
async fn what_a_provider_says_that_it_used_counts_whatever_else_it_says() {
    let usage = json!({"prompt_tokens": 1000, "completion_tokens": 200});
    let refusal = json!({"error": {"message": "told to"}, "usage": usage});
    let unreadable = json!({"choices": "none", "usage": usage});
    let cases: [(&str, Says, Value); 3] = [
        ("refused", |body| Said::Body(500, body), refusal),
        ("unreadable", |body| Said::Body(200, body), unreadable),
        // A tool that is called like the key of the provider.
        ("key", |_| Said::calls(&[(KEY.1, json!({}))]), Value::Null),
    ];
    for (what, said, body) in cases {
        let model = Model::scripted(move |_| said(body.clone())).await;
        let (_kit, lab) = lab(&model, &[("one", ONE)]).await;
        let envelope = lab.client.run("one", json!({})).await;
        assert_eq!(envelope["status"], "failed", "{what}: {envelope:#}");
        let run = envelope["run_id"].as_str().unwrap();
        let response = &of_type(&lab.client.frames(run).await, "llm.response")[0];
        assert!(
            response["data"]["error"].is_object(),
            "{what}: {response:#}"
        );
        assert_eq!(used(response), (1000, 200, COST), "{what}: {response:#}");
        assert_eq!(envelope["totals"]["cost_micro_usd"], COST, "{what}");
    }
}

#[tokio::test]
async fn a_budget_sees_replies_that_are_of_no_use() {
    let model = Model::scripted(|_| Said::Nothing).await;
    let workflow = wide("0.0006");
    let (_kit, lab) = lab(&model, &[("wide", &workflow)]).await;
    let envelope = lab.client.run("wide", items(20)).await;
    assert_eq!(model.calls().len(), 3, "{envelope:#}");
    assert_eq!(envelope["totals"]["cost_micro_usd"], 3 * COST);
    assert_eq!(step(&envelope, "each")["counts"]["failed"], 20);
}

/// A fallback from a model with an empty reply to another, and one whose provider fails twice.
fn gateway(url: &str) -> String {
    format!(
        r#"
env: [{{name: LLM_KEY, secret: true}}]
providers: [{{name: fake, type: openai, config: {{base_url: "{url}/v1", api_key: "{{{{ env.LLM_KEY }}}}"}}}}]
model_groups:
  - {{name: std, models: [fake/gpt-4o, fake/gpt-4o-mini], strategy: fallback}}
"#
    )
}

#[tokio::test]
async fn failed_models_of_a_fallback_count_and_are_recorded_as_attempts() {
    let model = Model::scripted(|call| match call.body["model"] == "gpt-4o" {
        true => Said::Nothing,
        false => Said::answer("second"),
    })
    .await;
    let kit = model::kit(&model, &[("one", ONE)]).with("gateway.yaml", &gateway(&model.url));
    let lab = Lab::new(&kit, &[KEY]).await;
    let envelope = lab.client.run("one", json!({})).await;
    assert_eq!(envelope["status"], "complete", "{envelope:#}");
    // 1000 tokens in and 200 out of gpt-4o, at 2.50 and 10 dollars a million.
    let whole = 4_500 + COST;
    assert_eq!(envelope["totals"]["cost_micro_usd"], whole);
    assert_eq!(envelope["totals"]["llm_calls"], 1);
    let run = envelope["run_id"].as_str().unwrap();
    let response = &of_type(&lab.client.frames(run).await, "llm.response")[0];
    assert_eq!(response["data"]["model"], "gpt-4o-mini");
    assert_eq!(used(response), (2000, 400, whole));
    let attempts = response["data"]["attempts"].as_array().unwrap().iter();
    let attempts = attempts.map(|one| {
        (
            &one["model"],
            &one["status"],
            &one["usage"]["cost_micro_usd"],
        )
    });
    let expected = [
        (json!("fake/gpt-4o"), json!("internal_error"), json!(4_500)),
        (json!("fake/gpt-4o-mini"), json!("ok"), json!(COST)),
    ];
    let expected = expected
        .iter()
        .map(|(model, status, cost)| (model, status, cost));
    assert_eq!(attempts.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
}

#[tokio::test]
async fn all_models_of_a_fallback_that_failed_count_in_the_error_of_the_call() {
    let model = Model::scripted(|call| match call.body["model"] == "gpt-4o" {
        true => Said::Nothing,
        false => Said::Error(503),
    })
    .await;
    let kit = model::kit(&model, &[("one", ONE)]).with("gateway.yaml", &gateway(&model.url));
    let lab = Lab::new(&kit, &[KEY]).await;
    let envelope = lab.client.run("one", json!({})).await;
    assert_eq!(
        envelope["error"]["code"], "no_models_available",
        "{envelope:#}"
    );
    assert_eq!(envelope["totals"]["cost_micro_usd"], 4_500);
    let run = envelope["run_id"].as_str().unwrap();
    let response = &of_type(&lab.client.frames(run).await, "llm.response")[0];
    let attempts = response["data"]["attempts"].as_array().unwrap();
    let statuses: Vec<&str> = attempts
        .iter()
        .map(|one| one["status"].as_str().unwrap())
        .collect();
    assert_eq!(statuses, ["internal_error", "server_error"]);
    // The trace says the same.
    let trace = lab.client.get(&format!("/runs/{run}/trace")).await.json();
    let tree = trace["tree"].as_array().unwrap();
    assert_eq!(
        of_type(tree, "llm.response")[0]["attempts"],
        json!(attempts)
    );
    assert_eq!(of_type(tree, "llm.request")[0]["attempts"], Value::Null);
}

#[tokio::test]
async fn a_model_without_a_price_ends_a_call_under_a_budget_unless_the_workflow_allows_it() {
    let model = Model::echo().await;
    let refused = format!("model_policy: {{cost_budget_usd: 1}}\n{ONE}");
    let allowed = format!("model_policy: {{cost_budget_usd: 1, unpriced: allow}}\n{ONE}");
    let workflows = [
        ("refused", &*refused),
        ("allowed", &*allowed),
        ("unbound", ONE),
    ];
    let named = model::gateway(&model.url).replace("gpt-4o-mini", "nobody-knows");
    let kit = model::kit(&model, &workflows).with("gateway.yaml", &named);
    let lab = Lab::new(&kit, &[KEY]).await;
    let envelope = lab.client.run("refused", json!({})).await;
    assert_eq!(envelope["error"]["code"], "budget_unpriced", "{envelope:#}");
    let words = envelope["error"]["message"].as_str().unwrap();
    assert!(
        words.contains("pricing:") && words.contains("unpriced: allow"),
        "{words}"
    );
    assert_eq!(model.calls().len(), 0, "nothing was spent");
    for name in ["allowed", "unbound"] {
        let envelope = lab.client.run(name, json!({})).await;
        assert_eq!(envelope["status"], "complete", "{envelope:#}");
        assert_eq!(envelope["totals"]["cost_micro_usd"], 0);
        let run = envelope["run_id"].as_str().unwrap();
        let response = &of_type(&lab.client.frames(run).await, "llm.response")[0];
        assert_eq!(response["data"]["unpriced"], true);
    }
}

#[tokio::test]
async fn a_fallback_under_a_budget_asks_the_next_model_that_has_a_price() {
    let model = Model::echo().await;
    let bound = format!("model_policy: {{cost_budget_usd: 1}}\n{ONE}");
    let named = gateway(&model.url).replace("fake/gpt-4o,", "fake/nobody-knows,");
    let kit = model::kit(&model, &[("bound", &bound)]).with("gateway.yaml", &named);
    let lab = Lab::new(&kit, &[KEY]).await;
    let envelope = lab.client.run("bound", json!({})).await;
    assert_eq!(envelope["status"], "complete", "{envelope:#}");
    assert_eq!(step(&envelope, "a")["model"], "fake/gpt-4o-mini");
    assert_eq!(model.calls().len(), 1);
}

/// A request stands in the ledger or is held; after a crash the one is asked again and the others
/// are held again.
#[tokio::test]
async fn after_a_crash_the_recorded_call_is_asked_again_and_the_held_ones_are_held() {
    for service in [Service::Runtime, Service::Orchestrator] {
        let model = Model::scripted(|call| Said::Text(call.user()).when("go")).await;
        let workflow = wide("0.00027");
        let kit = model::kit(&model, &[("wide", &workflow)]);
        let mut services = Services::start(&kit, &[KEY]);
        let run = services.client().invoke("wide", items(6)).await;
        model.until(|calls| !calls.is_empty()).await;
        services.kill(service);
        services.restart(service);
        model.open("go");
        let envelope = services.client().ended(&run).await;
        assert_eq!(envelope["status"], "complete", "{envelope:#}");
        assert_eq!(envelope["totals"]["cost_micro_usd"], COST);
        assert_eq!(model.calls().len(), 1);
        let frames = services.client().frames(&run).await;
        assert_eq!(of_type(&frames, "llm.request").len(), 1);
        assert_eq!(of_type(&frames, "budget.exhausted").len(), 5);
    }
}
