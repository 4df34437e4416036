//! One call of an agent for each element of an array (seed 000, invariants 26 and 27; decision R4).

use serde_json::{Value, json};

use super::{lab, step};
use crate::support::model::{COST, Call, Model, Said};

fn workflow(keys: &str, msg: &str) -> String {
    format!(
        r#"
params: {{schema: {{type: object, required: [list], properties: {{list: {{}}}}}}}}
pipeline:
  - {{id: each, agent: ./agents/echo.agent.yaml, for_each: {{from: params.list, {keys}}}, params: {{msg: "{msg}"}}}}
  - {{id: after, transform: {{inputs: [{{from: step.each.results}}], ops: []}}}}
"#
    )
}

/// An element that begins with one of these words fails so; any other is said back.
fn by_word(call: &Call) -> Said {
    let user = call.user();
    match user.split(' ').next().unwrap() {
        "bad" => Said::json(&json!({"noanswer": user})),
        "skip" => Said::json(&json!({"ktsu_skip_reason": "told to"})),
        "unsure" => Said::json(&json!({"answer": user, "ktsu_low_quality": true})),
        "inject" => Said::json(&json!({"answer": user, "ktsu_injection_attempt": true})),
        "human" => Said::json(&json!({"answer": user, "ktsu_needs_human": true})),
        _ => Said::answer(&user),
    }
}

#[tokio::test]
async fn results_keep_the_order_of_the_elements_though_the_first_is_answered_last() {
    let model = Model::scripted(|call| match call.user().as_str() {
        "3" => Said::answer("3").when("the rest is recorded"),
        user => Said::answer(user),
    })
    .await;
    let (_kit, lab) = lab(&model, &[("fan", &workflow("", "{{ item }}"))]).await;
    let run = lab.client.invoke("fan", json!({"list": [3, 1, 2]})).await;
    let mut events = lab.client.events(&run, None).await;
    let mut done = 0;
    while done < 2 {
        let event = events.next().await.unwrap();
        done += usize::from(event.data.contains(r#""type":"item.completed""#));
    }
    model.open("the rest is recorded");
    let envelope = lab.client.ended(&run).await;
    assert_eq!(
        step(&envelope, "each")["output"],
        json!({"results": [{"answer": "3"}, {"answer": "1"}, {"answer": "2"}]}),
        "{envelope:#}"
    );
    let mut users = model.users();
    users.sort();
    assert_eq!(users, ["1", "2", "3"]);
}

#[tokio::test]
async fn elements_reach_the_model_as_they_are_written_in_the_params() {
    let model = Model::echo().await;
    let text = r#"{\"answer\":\"{{ item_index }}: {{ item.name }} {{ params.list[0].n }}\"}"#;
    let (_kit, lab) = lab(&model, &[("fan", &workflow("concurrency: 1", text))]).await;
    let list = json!([{"name": "a", "n": 7}, {"name": "b"}]);
    let envelope = lab.client.run("fan", json!({ "list": list })).await;
    assert_eq!(
        step(&envelope, "each")["output"]["results"],
        json!([{"answer": "0: a 7"}, {"answer": "1: b 7"}]),
        "{envelope:#}"
    );
    assert_eq!(model.users()[1], r#"{"answer":"1: b 7"}"#);
}

#[tokio::test]
async fn more_failures_than_are_allowed_fail_the_step_and_fewer_do_not() {
    let model = Model::scripted(by_word).await;
    let (none, one, any) = (
        workflow("max_failures: 0", "{{ item }}"),
        workflow("max_failures: 1", "{{ item }}"),
        workflow("max_failures: -1", "{{ item }}"),
    );
    let (_kit, lab) = lab(&model, &[("none", &none), ("one", &one), ("any", &any)]).await;
    let list = json!({"list": ["a", "bad 1", "c"]});
    let failed = lab.client.run("none", list.clone()).await;
    assert_eq!(failed["status"], "failed");
    assert_eq!(failed["error"]["step"], "each");
    assert_eq!(step(&failed, "after")["status"], "skipped");
    for name in ["one", "any"] {
        let envelope = lab.client.run(name, list.clone()).await;
        assert_eq!(envelope["status"], "complete", "{name}: {envelope:#}");
        let results = &step(&envelope, "each")["output"]["results"];
        assert_eq!(results[0], json!({"answer": "a"}));
        assert_eq!(results[1]["item_index"], 1);
        assert!(
            results[1]["ktsu_error"]
                .as_str()
                .unwrap()
                .contains("answer"),
            "{results}"
        );
        assert_eq!(results[2], json!({"answer": "c"}));
    }
    let worse = json!({"list": ["a", "bad 1", "unsure 2", "d"]});
    assert_eq!(
        lab.client.run("one", worse.clone()).await["status"],
        "failed"
    );
    let envelope = lab.client.run("any", worse).await;
    assert_eq!(envelope["status"], "complete", "{envelope:#}");
    let counts = json!({"succeeded": 2, "failed": 2, "skipped": 0});
    assert_eq!(step(&envelope, "each")["counts"], counts);
}

#[tokio::test]
async fn with_too_many_failures_no_item_starts_any_more() {
    let model = Model::scripted(by_word).await;
    let one = workflow("concurrency: 1, max_failures: 1", "{{ item }}");
    let (_kit, lab) = lab(&model, &[("fan", &one)]).await;
    let list = json!({"list": ["a", "bad 1", "c", "bad 3", "e", "f"]});
    let envelope = lab.client.run("fan", list).await;
    assert_eq!(envelope["status"], "failed");
    assert_eq!(
        envelope["error"]["code"], "max_failures_exceeded",
        "{envelope:#}"
    );
    assert_eq!(model.users(), ["a", "bad 1", "c", "bad 3"]);
    let each = step(&envelope, "each");
    assert_eq!(
        each["counts"],
        json!({"succeeded": 2, "failed": 2, "skipped": 2})
    );
    assert_eq!(each["metrics"]["cost_micro_usd"], 4 * COST);
    assert_eq!(envelope["totals"]["cost_micro_usd"], 4 * COST);
}

#[tokio::test]
async fn what_is_no_array_fails_the_step_and_an_empty_one_asks_no_one() {
    let model = Model::scripted(by_word).await;
    let (_kit, lab) = lab(&model, &[("fan", &workflow("", "{{ item }}"))]).await;
    for list in [json!({}), json!("abc"), Value::Null, json!(3)] {
        let envelope = lab.client.run("fan", json!({ "list": list })).await;
        assert_eq!(envelope["status"], "failed", "{list}");
        let message = envelope["error"]["message"].as_str().unwrap();
        assert!(message.contains("array"), "{message}");
    }
    let envelope = lab.client.run("fan", json!({"list": []})).await;
    assert_eq!(envelope["status"], "complete", "{envelope:#}");
    assert_eq!(step(&envelope, "each")["output"], json!({"results": []}));
    assert_eq!(model.calls().len(), 0);
}

#[tokio::test]
async fn max_items_takes_the_first_elements() {
    let model = Model::scripted(by_word).await;
    let (_kit, lab) = lab(
        &model,
        &[(
            "fan",
            &workflow("max_items: 2, concurrency: 1", "{{ item }}"),
        )],
    )
    .await;
    let envelope = lab
        .client
        .run("fan", json!({"list": ["a", "b", "c"]}))
        .await;
    assert_eq!(model.users(), ["a", "b"]);
    let results = step(&envelope, "each")["output"]["results"]
        .as_array()
        .unwrap()
        .len();
    assert_eq!(results, 2);
}

#[tokio::test]
async fn metrics_of_items_add_up_those_that_failed_and_those_that_were_skipped_too() {
    let model = Model::scripted(by_word).await;
    let (_kit, lab) = lab(
        &model,
        &[("fan", &workflow("max_failures: -1", "{{ item }}"))],
    )
    .await;
    let list = json!({"list": ["a", "bad 1", "skip 2"]});
    let envelope = lab.client.run("fan", list).await;
    let each = step(&envelope, "each");
    for metrics in [&each["metrics"], &envelope["totals"]] {
        assert_eq!(metrics["tokens_in"], 3000, "{envelope:#}");
        assert_eq!(metrics["tokens_out"], 600);
        assert_eq!(metrics["llm_calls"], 3);
        assert_eq!(metrics["cost_micro_usd"], 3 * COST);
    }
    assert_eq!(
        each["counts"],
        json!({"succeeded": 1, "failed": 1, "skipped": 1})
    );
    assert_eq!(
        each["output"]["results"][2],
        json!({"skipped": true, "reason": "told to", "item_index": 2})
    );
    let items = each["items"].as_array().unwrap();
    let ids: Vec<&str> = items
        .iter()
        .map(|item| item["id"].as_str().unwrap())
        .collect();
    assert_eq!(ids, ["each.0", "each.1", "each.2"]);
    assert_eq!(items[1]["raw_output"], json!({"noanswer": "bad 1"}));
    assert_eq!(items[1]["error"]["code"], "schema_violation");
}

#[tokio::test]
async fn an_injection_or_a_call_for_a_person_in_an_item_ends_the_run_whatever_may_fail() {
    let model = Model::scripted(by_word).await;
    let (_kit, lab) = lab(
        &model,
        &[("fan", &workflow("max_failures: -1", "{{ item }}"))],
    )
    .await;
    for (word, code) in [
        ("inject 1", "injection_attempt"),
        ("human 1", "needs_human_review"),
    ] {
        let list = json!({"list": ["a", word, "c"]});
        let envelope = lab.client.run("fan", list).await;
        assert_eq!(envelope["status"], "failed", "{word}");
        assert_eq!(envelope["error"]["code"], code, "{envelope:#}");
        let each = step(&envelope, "each");
        assert_eq!(each["status"], "failed");
        assert_eq!(each["items"][1]["error"]["code"], code);
        assert_eq!(step(&envelope, "after")["status"], "skipped");
    }
}
