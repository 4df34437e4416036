//! What people see of a step that waits for data, and who may give them.

use ktsu_ledger::store::MemoryStore;
use serde_json::{Value, json};

use super::{RESUME, give, kinds, kit, lab, resume, suspended, suspension};
use crate::reviews::{holds, is};
use crate::support::{Client, Lab};

#[tokio::test]
async fn what_a_step_waits_for_is_listed_and_the_data_let_it_run_again() {
    let store = MemoryStore::new();
    let lab = lab(&store, RESUME).await;
    let client = &lab.client;
    let run = suspended(client, "reads").await;
    let record = suspension(client, &run).await;
    for (member, value) in [
        ("kind", json!("suspend")),
        ("run_id", json!(run)),
        ("step_id", json!("a")),
        ("status", json!("pending")),
        ("reason", json!("the contract is missing")),
        ("checkpoint", json!({"paper": "contract"})),
        ("timeout_ms", json!(7_200_000)),
        ("roles", json!(["operator"])),
        ("attempt", json!(1)),
    ] {
        assert_eq!(record[member], value, "{member}: {record:#}");
    }
    assert_eq!(record["schema"]["required"], json!(["text"]));
    assert_eq!(client.get("/approvals").await.json(), json!([record]));
    let envelope = client.get(&format!("/runs/{run}/envelope")).await.json();
    assert_eq!(envelope["status"], "waiting");
    assert_eq!(envelope["steps"][0]["status"], "pending_approval");
    let body = json!({"data": {"text": "clause 7"}, "reason": "found", "suspend_id": record["suspend_id"]});
    let given = resume(client, &run, body).await;
    assert_eq!(given.status, 200, "{}", given.text());
    let given = given.json();
    assert_eq!(given["status"], "resumed", "{given:#}");
    assert_eq!(given["data"], json!({"text": "clause 7"}));
    assert_eq!(given["votes"][0]["decision"], "resumed");
    assert_eq!(given["votes"][0]["reason"], "found");
    let envelope = client.ended(&run).await;
    assert_eq!(
        envelope["output"],
        json!({"verdict": "read clause 7", "seen": "read clause 7"})
    );
    let kinds = kinds(client, &run).await;
    assert_eq!(
        kinds[..5],
        [
            "suspend.requested",
            "suspend.resumed",
            "step.reset",
            "step.started",
            "worker.dispatched"
        ]
    );
    let emits = client.frames(&run).await;
    let emits = emits.iter().filter(|one| one["data"]["topic"].is_string());
    let topics: Vec<Value> = emits.map(|one| one["data"]["topic"].clone()).collect();
    assert_eq!(
        topics,
        ["claim.read"],
        "what the suspended attempt emits is discarded"
    );
    assert_eq!(client.get("/approvals").await.json(), json!([]));
    let late = give(client, &run, "other").await;
    is(&late, 409, "suspension_over");
    assert_eq!(
        late.json()["suspension"]["data"],
        json!({"text": "clause 7"})
    );
    assert!(late.text().contains("resumed by local"), "{}", late.text());
    holds(&store, &run);
    lab.close().await;
}

#[tokio::test]
async fn data_that_do_not_fit_are_refused_with_the_place_and_nothing_is_recorded() {
    let store = MemoryStore::new();
    let lab = lab(&store, RESUME).await;
    let client = &lab.client;
    let run = suspended(client, "reads").await;
    let before = client.frames(&run).await.len();
    for (body, status, code, words) in [
        (
            json!({"data": {"text": 5}}),
            422,
            "resume_data_invalid",
            "expected string, got integer at /text",
        ),
        (
            json!({"data": {}}),
            422,
            "resume_data_invalid",
            "missing required field: text",
        ),
        (
            json!({"data": "x"}),
            422,
            "resume_data_invalid",
            "expected object, got string",
        ),
        (
            json!({"data": {"text": "x"}, "suspend_id": "sus_0"}),
            409,
            "suspension_stale",
            "sus_",
        ),
        (json!({}), 422, "invalid_request", "data"),
        (
            json!({"data": {"text": "x"}, "more": 1}),
            422,
            "invalid_request",
            "more",
        ),
    ] {
        let refused = resume(client, &run, body).await;
        is(&refused, status, code);
        assert!(refused.text().contains(words), "{}", refused.text());
    }
    let none = client
        .post(&format!("/runs/{run}/steps/b/resume"), r#"{"data": 1}"#)
        .await;
    is(&none, 404, "suspension_not_found");
    let none = client.get(&format!("/runs/{run}/steps/b/suspend")).await;
    is(&none, 404, "suspension_not_found");
    assert_eq!(client.frames(&run).await.len(), before);
    assert_eq!(suspension(client, &run).await["status"], "pending");
    lab.close().await;
}

const PEOPLE: [(&str, &str); 4] = [
    ("pia", "operator"),
    ("ann", "approver"),
    ("eva", "admin"),
    ("vic", "viewer"),
];

async fn with_people() -> Lab {
    let mut text = "egress: {allow: [127.0.0.1]}\nvariables:\n".to_owned();
    for (who, _) in PEOPLE {
        text.push_str(&format!("  T_{who}: token-of-{who}\n"));
    }
    text.push_str("principals:\n");
    for (who, role) in PEOPLE {
        text.push_str(&format!(
            "  - {{name: {who}, token: {{env: T_{who}}}, roles: [{role}]}}\n"
        ));
    }
    let place = ktsu::assemble::LedgerPlace::Memory;
    Lab::in_environment(place, &kit(RESUME), &text, &[]).await
}

fn of(lab: &Lab, who: &str) -> Client {
    Client::showing(&lab.engine.url, &format!("token-of-{who}"))
}

#[tokio::test]
async fn only_the_roles_of_the_policy_give_data_and_make_links_and_a_link_needs_no_token() {
    let lab = with_people().await;
    let pia = of(&lab, "pia");
    let run = suspended(&pia, "reads").await;
    for who in ["ann", "vic"] {
        is(&give(&of(&lab, who), &run, "x").await, 403, "forbidden");
        let link = of(&lab, who)
            .post(&format!("/runs/{run}/steps/a/suspend/link"), "")
            .await;
        is(&link, 403, "forbidden");
    }
    let nobody = Client::of(&lab.engine.url);
    is(&give(&nobody, &run, "x").await, 401, "unauthorized");
    let made = of(&lab, "eva")
        .post(&format!("/runs/{run}/steps/a/suspend/link"), "")
        .await;
    assert_eq!(made.status, 200, "{}", made.text());
    let url = made.json()["url"].as_str().unwrap().to_owned();
    let path = url
        .strip_prefix(&lab.engine.url)
        .expect("it leads to the engine")
        .to_owned();
    let wrong = path.replace("token=1.", "token=2.");
    is(
        &nobody.post(&wrong, r#"{"data": {"text": "x"}}"#).await,
        401,
        "unauthorized",
    );
    is(
        &nobody.get(&format!("/runs/{run}/steps/a/suspend")).await,
        401,
        "unauthorized",
    );
    let refused = nobody.post(&path, r#"{"data": {"text": 7}}"#).await;
    is(&refused, 422, "resume_data_invalid");
    let given = nobody
        .post(&path, r#"{"data": {"text": "clause 7"}}"#)
        .await;
    assert_eq!(
        given.json(),
        json!({"status": "resumed"}),
        "and no more is said"
    );
    let again = nobody
        .post(&path, r#"{"data": {"text": "clause 8"}}"#)
        .await;
    is(&again, 409, "suspension_over");
    assert_eq!(again.json().get("suspension"), None, "{}", again.text());
    let envelope = pia.ended(&run).await;
    assert_eq!(envelope["output"]["verdict"], "read clause 7");
    let frames = pia.frames(&run).await;
    let resumed = frames
        .iter()
        .find(|one| one["type"] == "suspend.resumed")
        .unwrap();
    assert_eq!(
        resumed["data"]["by"],
        json!({"auth": "capability", "id": "capability"})
    );
    let over = of(&lab, "eva")
        .post(&format!("/runs/{run}/steps/a/suspend/link"), "")
        .await;
    is(&over, 409, "suspension_over");
    let token = url.split_once("token=").unwrap().1;
    let all: String = frames.iter().map(Value::to_string).collect();
    assert!(!all.contains(token), "no frame has the link");
    lab.close().await;
}
