//! Every status of the routes about reviews of outcomes, once.

use std::collections::BTreeSet;

use ktsu_ledger::appender::Options;
use ktsu_ledger::disk_space::DiskSpace;
use ktsu_ledger::store::{MemoryStore, Store as _};
use serde_json::json;

use super::describe::{Case, Described};
use crate::support::ledgers::Recorded;
use crate::support::{KitDir, Within};

const FLOW: &str = "pipeline: [{id: a, agent: ./agents/judge.agent.yaml}]\n";
const JUDGE: &str = "name: judge\nversion: 1.0.0\nmodel: std\n\
     prompt: {system: You judge., user: Judge it.}\ncommands: {review: true}\n\
     output: {schema: {type: object, properties: {verdict: {enum: [good, bad]}}}}\n";
const GATEWAY: &str = "providers: [{name: desk, type: scripted, config: {rules: rules.yaml}}]\n\
                       model_groups: [{name: std, models: [desk/m]}]\n";
const RULES: &str = "rules:
  - {when: {turn: 1}, tool_calls: [{name: review, arguments: {reason: it matters}}]}
default: {reply: {verdict: good}}
";

async fn within(store: &MemoryStore, options: Options) -> Within {
    let kit = KitDir::new(&[("judged", FLOW)])
        .with("agents/judge.agent.yaml", JUDGE)
        .with("gateway.yaml", GATEWAY)
        .with("rules.yaml", RULES);
    Within::new(kit.load(), store.clone(), options, &[], None).await
}

/// A run that waits for a review.
async fn asked(api: &Described) -> String {
    let accepted = api.post("/invoke/judged", "{}").await;
    let run = accepted.json()["run_id"].as_str().unwrap().to_owned();
    let mut events = api.client.events(&run, None).await;
    while !events
        .next()
        .await
        .unwrap()
        .data
        .contains("\"review.requested\"")
    {}
    run
}

pub(super) async fn all(described: &Described) -> BTreeSet<Case> {
    let store = MemoryStore::new();
    let lab = within(&store, Options::default()).await;
    let api = described.at(&lab.client);
    let run = asked(&api).await;
    let recorded = Recorded::read(&store, &run);
    let path = format!("/runs/{run}/steps/a/review");
    refused(&api, &run, &path).await;
    let frames = Recorded::read(&store, &run).records.len();
    assert_eq!(frames, recorded.records.len(), "a refusal writes nothing");
    let shown = api.get(&path).await;
    assert_eq!(shown.status, 200, "{}", shown.text());
    let listed = api.get("/approvals").await;
    assert_eq!(listed.json()[0], shown.json());
    let id = shown.json()["review_id"].clone();
    super::pages::are_in_inbox(&api, &[id.as_str().unwrap()], true).await;
    let body = json!({"decision": "approved", "review_id": id, "overlay": {"verdict": "bad"},
        "reason": "seen"});
    let decide = format!("{path}/decide");
    let decided = api.post(&decide, &body.to_string()).await;
    assert_eq!(decided.status, 200, "{}", decided.text());
    super::pages::are_in_inbox(&api, &[body["review_id"].as_str().unwrap()], false).await;
    let again = api.post(&decide, &body.to_string()).await;
    assert_eq!(
        (again.status, &again.json()["code"]),
        (409, &json!("review_already_decided"))
    );
    assert_eq!(lab.client.ended(&run).await["output"]["verdict"], "bad");
    let mut seen = api.seen();
    seen.extend(unable(described).await);
    seen
}

async fn refused(api: &Described, run: &str, path: &str) {
    let evil = [("origin", "https://evil.example")];
    assert_eq!(api.get(&format!("{path}?x=1")).await.status, 400);
    assert_eq!(api.call("GET", path, &evil, "").await.status, 403);
    let absent = api.get(&format!("{path}?review_id=rev_0")).await;
    assert_eq!(
        (absent.status, &absent.json()["code"]),
        (404, &json!("review_not_found"))
    );
    let prefix = &run[..8];
    api.post("/invoke/judged", "{}").await;
    let approved = r#"{"decision": "approved"}"#;
    for (below, method, body) in [("review", "GET", ""), ("review/decide", "POST", approved)] {
        for (path, status) in [
            (format!("/runs/absent/steps/a/{below}"), 404),
            (format!("/runs/{run}/steps/nobody/{below}"), 404),
            (format!("/runs/{run}/steps/a.0/{below}"), 404),
            (format!("/runs/{prefix}/steps/a/{below}"), 409),
        ] {
            let answer = api.call(method, &path, &[], body).await;
            assert_eq!(answer.status, status, "{path}: {}", answer.text());
        }
    }
    let decide = format!("{path}/decide");
    let large = " ".repeat(1024 * 1024 + 1);
    for (body, status, code) in [
        ("nope", 400, "invalid_json"),
        (r#"{"decision": "perhaps"}"#, 400, "unknown_decision"),
        (large.as_str(), 413, "body_too_large"),
        ("{}", 422, "invalid_request"),
        (
            r#"{"decision": "approved", "colour": "red"}"#,
            422,
            "invalid_request",
        ),
        (
            r#"{"decision": "approved", "overlay": {"verdict": 7}}"#,
            422,
            "overlay_refused",
        ),
        (
            r#"{"decision": "approved", "review_id": "rev_0"}"#,
            409,
            "review_refused",
        ),
    ] {
        let answer = api.post(&decide, body).await;
        assert_eq!(
            (answer.status, &answer.json()["code"]),
            (status, &json!(code)),
            "{body:.60}"
        );
    }
    let foreign = api.call("POST", &decide, &evil, approved).await;
    assert_eq!(foreign.status, 403);
}

/// 507 from a disk that is nearly full, 503 where another owner took the ledger.
async fn unable(described: &Described) -> BTreeSet<Case> {
    let mut seen = BTreeSet::new();
    let store = MemoryStore::new();
    let lab = within(&store, Options::default()).await;
    let api = described.at(&lab.client);
    let run = asked(&api).await;
    let path = format!("/runs/{run}/steps/a/review/decide");
    let body = r#"{"decision": "approved"}"#;
    let recorded = Recorded::read(&store, &run);
    store.clone().acquire().unwrap();
    let lost = api.post(&path, body).await;
    assert_eq!(lost.status, 503, "{}", lost.text());
    seen.extend(api.seen());
    let mut full = MemoryStore::new();
    recorded.put(&mut full);
    let options = Options {
        disk_space: DiskSpace::by(1000, || Some(999)),
        ..Options::default()
    };
    let lab = within(&full, options).await;
    let api = described.at(&lab.client);
    assert_eq!(api.post(&path, body).await.status, 507);
    seen.extend(api.seen());
    seen
}
