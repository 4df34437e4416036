//! Every status of what people say about whole runs, once.

use std::collections::BTreeSet;

use ktsu_ledger::appender::Options;
use ktsu_ledger::store::MemoryStore;
use serde_json::json;

use super::describe::{Case, Described};
use super::unable;
use crate::support::ledgers::Recorded;
use crate::support::sink::Reply;
use crate::support::{KitDir, Sink, Within};

const SENDS: &str = r#"
params: {schema: {type: object, required: [url], properties: {url: {type: string}}}}
pipeline: [{id: send, webhook: {url: "{{ params.url }}"}}]
"#;
const WORDS: [&str; 3] = ["pause", "cancel", "terminate"];
const REASON: &str = r#"{"reason": "seen"}"#;

pub(super) async fn all(described: &Described) -> BTreeSet<Case> {
    let sink = Sink::scripted(|_| Reply::Never).await;
    let kit = KitDir::new(&[("sends", SENDS)]);
    let store = MemoryStore::new();
    let options = Options::default();
    let within = Within::new(kit.load(), store.clone(), options, &[], None).await;
    let api = described.at(&within.client);
    let body = json!({"url": sink.url});
    let mut runs = Vec::new();
    for count in 1..=WORDS.len() {
        runs.push(within.client.invoke("sends", body.clone()).await);
        sink.until(|heard| heard.len() == count).await;
    }
    let recorded = Recorded::read(&store, &runs[0]);
    for (word, run) in WORDS.iter().zip(&runs) {
        refused(&api, run, word).await;
        let path = format!("/runs/{run}/{word}");
        let answer = api.post(&path, REASON).await;
        assert_eq!(answer.status, 200, "{word}: {}", answer.text());
        let again = api.post(&path, "").await;
        assert_eq!(again.status, 409, "{word}: {}", again.text());
        assert_eq!(again.json()["code"], "invalid_run_state");
    }
    let mut seen = api.seen();
    let bodies = WORDS.map(|word| (word, REASON.to_owned()));
    seen.extend(unable::posts(described, &kit, &recorded, &bodies).await.0);
    seen
}

async fn refused(api: &Described, run: &str, word: &str) {
    let prefix = run.get(..8).unwrap();
    let large = " ".repeat(1024 * 1024 + 1);
    let path = format!("/runs/{run}/{word}");
    for (path, body, status) in [
        (path.clone(), "nope", 400),
        (format!("{path}?x=1"), REASON, 400),
        (format!("/runs/absent/{word}"), REASON, 404),
        (format!("/runs/{prefix}/{word}"), REASON, 409),
        (path.clone(), large.as_str(), 413),
        (path.clone(), "[]", 422),
        (path.clone(), r#"{"colour": "red"}"#, 422),
        (path.clone(), r#"{"reason": ""}"#, 422),
    ] {
        let answer = api.post(&path, body).await;
        assert_eq!(answer.status, status, "{path}: {}", answer.text());
    }
    let evil = [("origin", "https://evil.example")];
    let answer = api.call("POST", &path, &evil, REASON).await;
    assert_eq!(answer.json()["code"], "foreign_origin");
    for (known, code) in [("0", "stale_revision"), ("x", "invalid_request")] {
        let header = [("if-match", known)];
        let answer = api.call("POST", &path, &header, REASON).await;
        assert_eq!(answer.json()["code"], code, "{word}");
    }
}
