//! Every status of what people say about recorded runs, once.

use std::collections::BTreeSet;

use ktsu_ledger::appender::Options;
use ktsu_ledger::store::MemoryStore;
use serde_json::{Value, json};

use super::describe::{Case, Described};
use super::unable;
use crate::support::ledgers::Recorded;
use crate::support::{KitDir, Within};

const TWO: &str = r#"
pipeline:
  - id: first
    transform: {inputs: [{from: "{a: `1`}"}], ops: []}
  - id: second
    transform: {inputs: [{from: step.first.result.a}], ops: []}
"#;

/// What can be said, and a body with which it is taken.
fn words() -> [(&'static str, u16, Value); 4] {
    let overlay = json!({"step": "first", "field": "result", "value": {"a": 2}, "reason": "seen"});
    [
        ("fork", 201, json!({"before": "second", "reason": "seen"})),
        ("overlay", 200, overlay),
        ("resume", 202, json!({"from": "second", "reason": "seen"})),
        ("retry", 202, json!({"from": "second", "reason": "seen"})),
    ]
}

pub(super) async fn all(api: &Described) -> BTreeSet<Case> {
    let kit = KitDir::new(&[("two", TWO)]);
    let store = MemoryStore::new();
    let options = Options::default();
    let within = Within::new(kit.load(), store.clone(), options, &[], None).await;
    let described = api;
    let api = api.at(&within.client);
    let run = within.client.run("two", json!({})).await["run_id"]
        .as_str()
        .unwrap()
        .to_owned();
    within.client.run("two", json!({})).await;
    let recorded = Recorded::read(&store, &run);
    refused(&api, &run).await;
    let frames = Recorded::read(&store, &run).records.len();
    assert_eq!(frames, recorded.records.len(), "a refusal writes nothing");
    for (word, status, body) in words() {
        let path = format!("/runs/{run}/{word}");
        for method in unable::methods(word) {
            let answer = api.call(method, &path, &[], &body.to_string()).await;
            assert_eq!(answer.status, status, "{word}: {}", answer.text());
        }
        if ["resume", "retry"].contains(&word) {
            within.client.ended(&run).await;
        }
    }
    let mut seen = api.seen();
    let bodies = words().map(|(word, _, body)| (word, body.to_string()));
    let (unable, left) = unable::posts(described, &kit, &recorded, &bodies).await;
    assert_eq!(left, [frames; 2]);
    seen.extend(unable);
    seen
}

async fn refused(api: &Described, run: &str) {
    let prefix = run.get(..8).unwrap();
    let large = " ".repeat(1024 * 1024 + 1);
    for (word, _, body) in words() {
        let body = body.to_string();
        let path = format!("/runs/{run}/{word}");
        for (path, body, status) in [
            (path.clone(), "nope", 400),
            (format!("{path}?x=1"), body.as_str(), 400),
            (format!("/runs/absent/{word}"), body.as_str(), 404),
            (format!("/runs/{prefix}/{word}"), body.as_str(), 409),
            (path.clone(), large.as_str(), 413),
            (path.clone(), "[]", 422),
            (path.clone(), r#"{"colour": "red"}"#, 422),
        ] {
            for method in unable::methods(word) {
                let answer = api.call(method, &path, &[], body).await;
                assert_eq!(answer.status, status, "{path}: {}", answer.text());
            }
        }
        let evil = [("origin", "https://evil.example")];
        for method in unable::methods(word) {
            let answer = api.call(method, &path, &evil, &body).await;
            assert_eq!(answer.status, 403);
            assert_eq!(answer.json()["code"], "foreign_origin");
        }
    }
    let path = format!("/runs/{run}/retry");
    let answer = api.post(&path, r#"{"reason": "seen"}"#);
    let answer = answer.await;
    assert_eq!(answer.status, 422, "a step is needed: {}", answer.text());
    for word in ["overlay", "resume", "retry"] {
        let (_, _, body) = words().into_iter().find(|one| one.0 == word).unwrap();
        let path = format!("/runs/{run}/{word}");
        for (known, status, code) in [("0", 409, "stale_revision"), ("x", 422, "invalid_request")] {
            let header = [("if-match", known)];
            let answer = api.call("POST", &path, &header, &body.to_string()).await;
            assert_eq!(answer.status, status, "{word}: {}", answer.text());
            assert_eq!(answer.json()["code"], code);
        }
    }
    let overlay = json!({"step": "nobody", "field": "x", "value": 1, "reason": "a try"});
    for (word, body) in [
        ("resume", json!({"from": "nobody"})),
        ("retry", json!({"from": "nobody"})),
        ("fork", json!({"before": "nobody"})),
        ("overlay", overlay),
    ] {
        let path = format!("/runs/{run}/{word}");
        let answer = api.post(&path, &body.to_string()).await;
        assert_eq!(answer.status, 404, "{word}: {}", answer.text());
        assert_eq!(answer.json()["code"], "step_not_found", "{word}");
        assert!(!answer.text().contains("nobody"), "{}", answer.text());
    }
}
