//! Every status of legal holds, once.

use std::collections::BTreeSet;

use ktsu_ledger::appender::Options;
use ktsu_ledger::store::MemoryStore;

use super::describe::{Case, Described};
use super::unable;
use crate::support::ledgers::Recorded;
use crate::support::{KitDir, Within};

const REASON: &str = r#"{"reason": "case 7"}"#;
const RELEASE: &str = r#"{"reason": "case 7 is closed", "release": true}"#;

pub(super) async fn all(described: &Described) -> BTreeSet<Case> {
    let hello = "pipeline: [{id: greet, transform: {inputs: [{from: \"{a: `1`}\"}], ops: []}}]\n";
    let kit = KitDir::new(&[
        ("hello", hello),
        (
            "outer",
            "pipeline: [{id: in, workflow: ./hello.workflow.yaml}]\n",
        ),
    ]);
    let store = MemoryStore::new();
    let within = Within::new(kit.load(), store.clone(), Options::default(), &[], None).await;
    let api = described.at(&within.client);
    let run = within.client.run("outer", serde_json::json!({})).await;
    let run = run["run_id"].as_str().unwrap().to_owned();
    let recorded = Recorded::read(&store, &run);
    let _another = within.client.run("outer", serde_json::json!({})).await;
    let path = format!("/runs/{run}/hold");
    let (prefix, large) = (run.get(..8).unwrap(), " ".repeat(1024 * 1024 + 1));
    for (path, body, status) in [
        (path.clone(), "nope", 400),
        (format!("{path}?x=1"), REASON, 400),
        ("/runs/absent/hold".to_owned(), REASON, 404),
        (format!("/runs/{prefix}/hold"), REASON, 409),
        (format!("/runs/{run}%2Fin/hold"), REASON, 409),
        (path.clone(), RELEASE, 409),
        (path.clone(), large.as_str(), 413),
        (path.clone(), "", 422),
        (path.clone(), "[]", 422),
        (path.clone(), r#"{"reason": "a", "colour": "red"}"#, 422),
        (path.clone(), r#"{"reason": ""}"#, 422),
        (path.clone(), REASON, 200),
        (path.clone(), REASON, 409),
        (path.clone(), RELEASE, 200),
    ] {
        let answer = api.post(&path, body).await;
        assert_eq!(answer.status, status, "{path} {body}: {}", answer.text());
    }
    let evil = [("origin", "https://evil.example")];
    let answer = api.call("POST", &path, &evil, REASON).await;
    assert_eq!(answer.json()["code"], "foreign_origin");
    let mut seen = api.seen();
    let bodies = [("hold", REASON.to_owned())];
    seen.extend(unable::posts(described, &kit, &recorded, &bodies).await.0);
    seen
}
