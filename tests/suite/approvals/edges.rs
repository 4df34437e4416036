//! Where people ask for the wrong thing, or say too much.

use serde_json::{Value, json};

use crate::support::{KitDir, Lab};

const KEEPER: &str = r"
name: keeper
version: 1.0.0
model: std
params: {schema: {type: object, properties: {what: {type: string, default: x}}}}
prompt: {system: You keep things., user: '{{ params.what }}'}
servers:
  - name: ktsu/kv
    access: {allowlist: [{name: kv-set, require_approval: {on_reject: recover}}]}
output: {schema: {type: object}}
";
const FLOW: &str = r"
params: {schema: {type: object, properties: {list: {type: array}}}}
pipeline:
  - id: a
    agent: ./agents/keeper.agent.yaml
    for_each: {from: params.list, concurrency: 4}
    params: {what: '{{ item }}'}
";
const GATEWAY: &str = "providers: [{name: desk, type: scripted, config: {rules: rules.yaml}}]\n\
                       model_groups: [{name: std, models: [desk/m]}]\n";
const RULES: &str = r#"
rules:
  - when: {turn: 1, user: '^keep'}
    tool_calls: [{name: kv-set, arguments: {key: k, value: 1}}]
default: {reply: {kept: true}}
"#;

pub(super) fn kit() -> KitDir {
    KitDir::new(&[("flow", FLOW)])
        .with("agents/keeper.agent.yaml", KEEPER)
        .with("gateway.yaml", GATEWAY)
        .with("rules.yaml", RULES)
}

/// A run whose items ask, and the records that wait, once there are so many.
async fn asked(lab: &Lab, list: Value, count: usize) -> (String, Vec<Value>) {
    let run = lab.client.invoke("flow", json!({"list": list})).await;
    let mut events = lab.client.events(&run, None).await;
    let mut asked = 0;
    while asked < count {
        let event = events.next().await.unwrap();
        asked += usize::from(event.data.contains("\"approval.requested\""));
    }
    let records = lab.client.get("/approvals").await.json();
    (run, records.as_array().unwrap().clone())
}

#[tokio::test]
async fn who_asks_for_a_step_learns_which_of_its_items_wait() {
    let kit = kit();
    let lab = Lab::new(&kit, &[]).await;
    let (run, _) = asked(&lab, json!(["keep", "let", "keep"]), 2).await;
    let whole = format!("/runs/{run}/steps/a/approval");
    let approve = json!({"decision": "approved"}).to_string();
    let refused = [
        lab.client.get(&whole).await,
        lab.client
            .post(&format!("{whole}/decide"), approve.clone())
            .await,
    ];
    for refused in refused {
        assert_eq!(refused.status, 404);
        let problem = refused.json();
        assert_eq!(problem["code"], "approval_not_found");
        let words = problem["message"].as_str().unwrap();
        assert!(words.contains("a.0") && words.contains("a.2"), "{words}");
        assert!(!words.contains("a.1"), "{words}");
        let hint = problem["hint"].as_str().unwrap();
        assert!(hint.contains("steps/a."), "{hint}");
    }
    // One that is decided leaves the other to be named.
    let first = format!("/runs/{run}/steps/a.0/approval/decide");
    assert_eq!(lab.client.post(&first, approve).await.status, 200);
    let words = lab.client.get(&whole).await.json()["message"].clone();
    assert!(words.as_str().unwrap().ends_with(": a.2"), "{words}");
    // A step that nobody is asked about, items included, stays as it was.
    let none = lab
        .client
        .get(&format!("/runs/{run}/steps/b/approval"))
        .await;
    assert_eq!(none.status, 404);
    assert_eq!(none.json()["hint"], Value::Null);
}

#[tokio::test]
async fn a_reason_is_a_page_and_not_a_file() {
    let kit = kit();
    let lab = Lab::new(&kit, &[]).await;
    let (run, records) = asked(&lab, json!(["keep"]), 1).await;
    let decide = format!("/runs/{run}/steps/a.0/approval/decide");
    let say = |length: usize| {
        let reason = "é".repeat(length);
        json!({"decision": "rejected", "reason": reason}).to_string()
    };
    let before = lab.client.frames(&run).await;
    let refused = lab.client.post(&decide, say(4097)).await;
    assert_eq!(refused.status, 422, "{}", refused.text());
    let words = refused.json()["message"].as_str().unwrap().to_owned();
    assert_eq!(words, "reason has 4097 characters; the limit is 4096");
    for (path, body) in [
        ("fork", json!({"before": "a", "reason": "r".repeat(5000)})),
        (
            "overlay",
            json!({"step": "a", "field": "f", "value": 1, "reason": "r".repeat(5000)}),
        ),
        ("resume", json!({"reason": "r".repeat(5000)})),
    ] {
        let refused = lab
            .client
            .post(&format!("/runs/{run}/{path}"), body.to_string())
            .await;
        assert_eq!(
            refused.json()["message"],
            "reason has 5000 characters; the limit is 4096"
        );
    }
    assert_eq!(
        lab.client.frames(&run).await,
        before,
        "a refusal writes nothing"
    );
    let taken = lab.client.post(&decide, say(4096)).await;
    assert_eq!(taken.status, 200, "{}", taken.text());
    assert_eq!(taken.json()["approval_id"], records[0]["approval_id"]);
    assert_eq!(lab.client.ended(&run).await["status"], "complete");
}
