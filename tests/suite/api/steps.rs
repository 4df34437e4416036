//! Every step, and every item of a fan-out, has an address (decision H1).

use serde_json::{Value, json};

use super::describe::Described;
use crate::support::model::{self, KEY, Model, Said};
use crate::support::{KitDir, Lab};

const FAN: &str = r#"
visibility: sub-workflow
params: {schema: {type: object, required: [list], properties: {list: {}}}}
pipeline:
  - {id: each, agent: ./agents/echo.agent.yaml, for_each: {from: params.list, concurrency: 1, max_failures: 0}, params: {msg: "{{ item }}"}}
  - {id: after, transform: {inputs: [{from: step.each.results}], ops: []}}
"#;
const PARENT: &str = r#"
params: {schema: {type: object, required: [list], properties: {list: {}}}}
pipeline:
  - {id: call, workflow: ./fan.workflow.yaml, params: {list: "{{ params.list }}"}}
  - {id: last, transform: {inputs: [{from: "{a: `1`}"}], ops: []}}
"#;

async fn lab() -> (KitDir, Lab, Described) {
    let model = Model::scripted(|call| match call.user().as_str() {
        "bad" => Said::json(&json!({"noanswer": 1})),
        user => Said::answer(user),
    })
    .await;
    let kit = model::kit(&model, &[("fan", FAN), ("parent", PARENT)]);
    let lab = Lab::new(&kit, &[KEY]).await;
    let api = Described::new(&lab.client).await;
    (kit, lab, api)
}

#[tokio::test]
async fn every_step_and_every_item_has_an_address_in_children_too() {
    let (_kit, lab, api) = lab().await;
    let run = lab
        .client
        .run("parent", json!({"list": ["a", "b", "c"]}))
        .await;
    let run = run["run_id"].as_str().unwrap().to_owned();
    let mut seen = 0;
    for named in [run.clone(), format!("{run}%2Fcall"), format!("{run}/call")] {
        let envelope = api.get(&format!("/runs/{named}/envelope")).await.json();
        for step in envelope["steps"].as_array().unwrap() {
            let path = format!("/runs/{named}/steps/{}", step["id"].as_str().unwrap());
            let shown = api.get(&path).await;
            assert_eq!(shown.status, 200, "{path}: {}", shown.text());
            assert_eq!(shown.json(), *step, "{path}");
            seen += 1;
            for item in step["items"].as_array().into_iter().flatten() {
                let path = format!("{path}.{}", item["item"]);
                assert_eq!(api.get(&path).await.json(), *item, "{path}");
                seen += 1;
            }
        }
        for absent in ["none", "each.3", "last.0", "each.01", "Each", "a%2fb"] {
            let answer = api.get(&format!("/runs/{named}/steps/{absent}")).await;
            assert_eq!(answer.status, 404, "{named} {absent}: {}", answer.text());
        }
    }
    assert_eq!(seen, 2 + 2 * (2 + 3));
    let absent = api.get(&format!("/runs/{run}/steps/none")).await.json();
    assert_eq!(absent["code"], "step_not_found");
    let elsewhere = api.get(&format!("/runs/{run}/other/steps/each")).await;
    assert_eq!(elsewhere.status, 404);
}

#[tokio::test]
async fn an_item_that_was_never_started_has_an_address_as_well() {
    let (_kit, lab, api) = lab().await;
    let run = lab
        .client
        .run("parent", json!({"list": ["bad", "b", "c"]}))
        .await;
    assert_eq!(run["status"], "failed");
    let run = run["run_id"].as_str().unwrap();
    let each = format!("/runs/{run}%2Fcall/steps/each");
    assert_eq!(
        api.get(&each).await.json()["counts"],
        json!({"succeeded": 0, "failed": 1, "skipped": 2})
    );
    let status = async |item: u32| -> Value {
        let shown = api.get(&format!("{each}.{item}")).await.json();
        json!([
            shown["item"],
            shown["id"],
            shown["status"],
            shown["skip_reason"]
        ])
    };
    assert_eq!(status(0).await, json!([0, "each.0", "failed", null]));
    for item in 1..3 {
        let expected = json!([item, format!("each.{item}"), "skipped", "never_started"]);
        assert_eq!(status(item).await, expected);
    }
    assert_eq!(api.get(&format!("{each}.3")).await.status, 404);
}

/// Every status of the route, for the tour of all answers.
pub(super) async fn all(api: &Described, run: &str) {
    assert_eq!(
        api.get(&format!("/runs/{run}/steps/greet")).await.status,
        200
    );
    assert_eq!(
        api.get(&format!("/runs/{run}/steps/none")).await.status,
        404
    );
    assert_eq!(
        api.get(&format!("/runs/{run}/steps/greet?x=1"))
            .await
            .status,
        400
    );
    let prefix = run.get(..8).unwrap();
    assert_eq!(
        api.get(&format!("/runs/{prefix}/steps/greet")).await.status,
        409
    );
    let evil = [("origin", "https://evil.example")];
    let path = format!("/runs/{run}/steps/greet");
    assert_eq!(api.call("GET", &path, &evil, "").await.status, 403);
}
