//! Every status of recomputing, once.

use std::collections::BTreeSet;

use ktsu_ledger::appender::Options;
use ktsu_ledger::disk_space::DiskSpace;
use ktsu_ledger::store::{MemoryStore, SqliteReader, Store as _};
use serde_json::json;

use super::describe::{Case, Described};
use crate::support::ledgers::Recorded;
use crate::support::model::{self, KEY, Model};
use crate::support::{Lab, Within};

const ONE: &str =
    "pipeline: [{id: s1, agent: ./agents/echo.agent.yaml, params: {msg: '{\"answer\":\"a\"}'}}]\n";

pub(super) async fn all(api: &Described) -> BTreeSet<Case> {
    let model = Model::echo().await;
    let kit = model::kit(&model, &[("one", ONE)]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let lab = Lab::on_file(&path, &kit, &[KEY]).await;
    let client = lab.client.clone();
    let api = api.at(&client);
    let run = client.run("one", json!({})).await["run_id"]
        .as_str()
        .unwrap()
        .to_owned();
    let at = |id: &str| format!("/runs/{id}/recompute");
    let accepted = api.post(&at(&run), "").await;
    assert_eq!(accepted.status, 202);
    let whole = api
        .post(&format!("{}?wait=60", at(&run)), r#"{"step": "s1"}"#)
        .await;
    assert_eq!(whole.status, 200);
    assert_eq!(whole.json()["status"], "clean");
    let id = whole.json()["recompute_id"].as_str().unwrap().to_owned();
    assert_eq!(api.get(&at(&id)).await.status, 200);
    assert_eq!(api.get(&at(&run)).await.status, 404);
    for below in ["", "/envelope", "/frames", "/trace"] {
        assert_eq!(
            api.get(&format!("/runs/{id}{below}")).await.status,
            200,
            "{below}"
        );
    }
    let prefix = run.get(..8).unwrap();
    let second = client.run("one", json!({})).await;
    assert_eq!(second["status"], "complete");
    for (path, body, status) in [
        (at(&run), "nope", 400),
        (format!("{}?weight=1", at(&run)), "{}", 400),
        (at("absent"), "{}", 404),
        (at(prefix), "{}", 409),
        (at(&run), r#"{"step": 3}"#, 422),
        (at(&id), "{}", 422),
        (at(&run), &" ".repeat(1024 * 1024 + 1), 413),
    ] {
        assert_eq!(api.post(&path, body).await.status, status, "{path}");
    }
    assert_eq!(api.get(&format!("{}?wait=1", at(&id))).await.status, 400);
    assert_eq!(api.get(&at(prefix)).await.status, 409);
    for method in ["GET", "POST"] {
        let foreign = [("origin", "https://evil.example")];
        let answer = api.call(method, &at(&run), &foreign, "{}").await;
        assert_eq!(answer.status, 403);
    }
    let mut seen = api.seen();
    lab.close().await;
    let recorded = Recorded::read(&SqliteReader::open(&path).unwrap(), &run);
    let room = || Options {
        disk_space: DiskSpace::by(1000, || Some(999)),
        ..Options::default()
    };
    for (options, status) in [(room(), 507), (Options::default(), 503)] {
        let mut store = MemoryStore::new();
        recorded.put(&mut store);
        let other = store.clone();
        let within = Within::new(kit.load(), store, options, &[KEY], None).await;
        if status == 503 {
            // Another owner took the ledger, so this one has stopped.
            other.clone().acquire().unwrap();
        }
        let api = api.at(&within.client);
        assert_eq!(api.post(&at(&run), "{}").await.status, status);
        seen.extend(api.seen());
    }
    seen
}
