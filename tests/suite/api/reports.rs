//! Every status of the routes that runtimes call, once.

use ktsu::assemble::{Agents, LedgerPlace, Setup, reading};
use serde_json::{Value, json};

use super::describe::{Case, Described};
use crate::support::model::{self, KEY, Model};
use crate::support::sink::Reply;
use crate::support::{Client, KitDir, Lab, Sink, process};

const ONE: &str = "pipeline: [{id: s1, agent: ./agents/echo.agent.yaml, params: {msg: hi}}]\n";

/// An engine whose runtime takes tasks and does nothing, asked for everything a runtime can say.
pub(super) async fn all(api: &Described) -> Vec<Case> {
    let model = Model::echo().await;
    let kit = model::kit(&model, &[("one", ONE)]);
    let runtime = Sink::scripted(|_| Reply::Now(202, String::new())).await;
    let lab = Lab::remote(&kit, &[KEY], &runtime.url).await;
    let api = api.at(&lab.client);
    let task = dispatched(&lab, &runtime, 1).await;
    for which in ["report_url", "callback_url"] {
        refusals(&api, &path(&task, which)).await;
    }
    let report = path(&task, "report_url");
    assert_eq!(api.post(&report, &asks(1, "turn")).await.status, 200);
    let again = api.post(&report, &asks(1, "turn")).await;
    assert_eq!(again.status, 200, "the same bytes");
    assert_eq!(api.post(&report, &asks(1, "repair")).await.status, 409);
    assert_eq!(api.post(&report, &asks(2, "turn")).await.status, 422);
    let complete = path(&task, "callback_url");
    let done = json!({"status": "ok", "output": {"answer": "x"}}).to_string();
    assert_eq!(api.post(&complete, &done).await.status, 200);
    assert_eq!(api.post(&complete, &done).await.status, 409);
    heartbeats(&api).await;
    let task = dispatched(&lab, &runtime, 2).await;
    lab.engine.orchestrator.stop();
    for (which, body) in [("report_url", asks(1, "turn")), ("callback_url", done)] {
        // Until the run's task has ended, it still takes reports, which then cannot be promised.
        let answer = api.post(&path(&task, which), &body).await;
        assert_eq!(answer.status, 503, "{which}: {}", answer.text());
    }
    lab.close().await;
    let mut seen: Vec<Case> = api.seen().into_iter().collect();
    seen.extend(at_a_reader(&kit, &api).await);
    seen
}

/// 503: an engine that only reads leaves what runtimes say to the owner of the ledger.
async fn at_a_reader(kit: &KitDir, api: &Described) -> Vec<Case> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ledger.db");
    let owner = Lab::on_file(&path, kit, &[KEY]).await;
    let setup = Setup {
        agents: Agents::Nowhere,
        resume_unfinished: false,
        read_again: None,
        ..Setup::embedded(kit.load(), None, process(&[KEY]), LedgerPlace::File(path))
    };
    let reading = reading::open(setup).await.unwrap();
    let api = api.at(&Client::of(&reading.url));
    let beat = r#"{"runtime_id":"rt-1","active":[]}"#;
    assert_eq!(api.post("/heartbeat", beat).await.status, 503);
    reading.close().await;
    owner.close().await;
    api.seen().into_iter().collect()
}

async fn refusals(api: &Described, path: &str) {
    let (bare, _) = path.split_once('?').unwrap();
    let absent = path.replacen("run_", "run_0", 1);
    let evil = [("origin", "https://evil.example")];
    assert_eq!(api.post(path, "{").await.status, 400);
    assert_eq!(api.post(bare, "{}").await.status, 401);
    assert_eq!(api.call("POST", path, &evil, "{}").await.status, 403);
    assert_eq!(api.post(&absent, "{}").await.status, 404);
    let large = " ".repeat(32 * 1024 * 1024 + 1);
    assert_eq!(api.post(path, &large).await.status, 413);
    for body in [
        "{}",
        "[]",
        r#"{"attempt":1,"n":1,"events":[],"status":"fine"}"#,
    ] {
        assert_eq!(api.post(path, body).await.status, 422, "{body}");
    }
}

async fn heartbeats(api: &Described) {
    let beat = r#"{"runtime_id":"rt-1","active":[{"run_id":"run_gone","step_id":"x"}]}"#;
    let heard = api.post("/heartbeat", beat).await;
    assert_eq!(heard.status, 200);
    assert_eq!(heard.json()["stop"][0]["step_id"], "x");
    let evil = [("origin", "https://evil.example")];
    let foreign = api.call("POST", "/heartbeat", &evil, beat).await;
    assert_eq!(foreign.status, 403);
    assert_eq!(api.post("/heartbeat", "{").await.status, 400);
    assert_eq!(api.post("/heartbeat", "{}").await.status, 422);
    let large = " ".repeat(32 * 1024 * 1024 + 1);
    assert_eq!(api.post("/heartbeat", &large).await.status, 413);
}

/// Starts a run; its only task, once the runtime has it.
async fn dispatched(lab: &Lab, runtime: &Sink, count: usize) -> Value {
    lab.client.invoke("one", json!({})).await;
    runtime.until(|heard| heard.len() >= count).await;
    runtime.heard()[count - 1].json()
}

fn path(task: &Value, which: &str) -> String {
    let url = task[which].as_str().unwrap();
    let rest = url.strip_prefix("http://").unwrap();
    rest[rest.find('/').unwrap()..].to_owned()
}

fn asks(n: u32, purpose: &str) -> String {
    json!({"attempt": 1, "n": n, "events": [{"type": "llm.request", "data": {
        "group": "std", "max_tokens": 16, "purpose": purpose,
        "messages": [{"role": "user", "content": "hi"}],
    }}]})
    .to_string()
}
