//! Any one service replaced by some thirty lines that keep to `docs/http.md` (seed 000, invariant
//! 8).

use std::process::Command;

use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::step;
use crate::support::model::{self, KEY, Model};
use crate::support::process::Process;
use crate::support::services::Services;
use crate::support::sink::{Heard, Reply};
use crate::support::{Client, Lab, Sink};

const ONE: &str = "pipeline: [{id: s1, agent: ./agents/echo.agent.yaml, params: {msg: hi}}]\n";

async fn serve(router: Router) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let router = router.route("/health", get(async || Json(json!({"status": "ok"}))));
    tokio::spawn(async move { axum::serve(listener, router).await });
    url
}

/// A whole runtime: takes the task, and posts what came of it.
async fn runtime(Json(task): Json<Value>) -> (axum::http::StatusCode, Json<Value>) {
    let accepted =
        json!({"run_id": task["run_id"], "step_id": task["step_id"], "status": "accepted"});
    tokio::spawn(async move {
        let url = task["callback_url"].as_str().unwrap().to_owned();
        let at = url.find("/runs/").unwrap();
        let body = json!({
            "run_id": task["run_id"],
            "step_id": task["step_id"],
            "status": "ok",
            "output": {"answer": format!("{}, says the other runtime", task["user_message"].as_str().unwrap())},
            "metrics": {"model_resolved": "other/model", "tokens_in": 3, "tokens_out": 4, "cost_usd": 0.001, "llm_calls": 1, "tool_calls": 0},
        });
        let answer = Client::of(&url[..at])
            .post(&url[at..], body.to_string())
            .await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    });
    (axum::http::StatusCode::ACCEPTED, Json(accepted))
}

#[tokio::test]
async fn a_runtime_of_thirty_lines_completes_a_run() {
    let kit = model::kit(&Model::echo().await, &[("one", ONE)]);
    let other = serve(Router::new().route("/invoke", post(runtime))).await;
    let lab = Lab::remote(&kit, &[KEY], &other).await;
    let envelope = lab.client.run("one", json!({})).await;
    assert_eq!(envelope["status"], "complete", "{envelope:#}");
    let output = json!({"answer": "hi, says the other runtime"});
    assert_eq!(step(&envelope, "s1")["output"], output);
    assert_eq!(envelope["totals"]["tokens_in"], 3);
    assert_eq!(envelope["totals"]["cost_micro_usd"], 1000);
    assert_eq!(envelope["totals"]["llm_calls"], 1);
}

/// A whole gateway: any group, one reply, no errors.
async fn gateway(Json(call): Json<Value>) -> Json<Value> {
    let user = call["messages"].as_array().unwrap().last().unwrap();
    let said = json!({"answer": format!("{} {}", user["content"].as_str().unwrap(), call["group"].as_str().unwrap())});
    Json(json!({
        "content": said.to_string(),
        "model_resolved": "other/model",
        "tokens_in": 5,
        "tokens_out": 6,
        "cost_usd": 0.000_002,
    }))
}

#[tokio::test]
async fn a_gateway_of_thirty_lines_answers_our_runtime() {
    let kit = model::kit(&Model::echo().await, &[("one", ONE)]);
    let other = serve(Router::new().route("/invoke", post(gateway))).await;
    let services = Services::with_gateway(&kit, &other);
    let envelope = services.client().run("one", json!({})).await;
    assert_eq!(envelope["status"], "complete", "{envelope:#}");
    let s1 = step(&envelope, "s1");
    assert_eq!(s1["output"], json!({"answer": "hi std"}));
    assert_eq!(s1["model"], "other/model");
    assert_eq!(envelope["totals"]["tokens_out"], 6);
    assert_eq!(envelope["totals"]["cost_micro_usd"], 2);
}

/// A whole orchestrator for one task: answers each report with what it was told.
fn orchestrator(heard: &Heard) -> Reply {
    let answer = |value: Value| Reply::Now(200, value.to_string());
    if heard.path == "/invoke" {
        // It is the gateway, too: what is asked for is a draft first, then its reflection.
        let reflecting = heard.json()["messages"][0]["content"] == "again";
        let said = json!({"answer": if reflecting { "reflected" } else { "draft" }}).to_string();
        return answer(
            json!({"content": said, "model_resolved": "a/b", "tokens_in": 1, "tokens_out": 2, "cost_usd": 0}),
        );
    }
    if !heard.path.contains("/report") {
        return answer(json!({"stop": []}));
    }
    let report = heard.json();
    let events = report["events"].as_array().unwrap();
    let seq = |at: usize| 100 * report["n"].as_u64().unwrap() + at as u64;
    let events: Vec<Value> = events
        .iter()
        .enumerate()
        .map(|(at, event)| json!({"seq": seq(at), "type": event["type"], "data": event["data"]}))
        .collect();
    let reflect = events.iter().any(|event| event["type"] == "agent.decided");
    answer(json!({"n": report["n"], "events": events, "reflect": reflect}))
}

#[tokio::test]
async fn our_runtime_works_for_an_orchestrator_of_thirty_lines() {
    let other = Sink::scripted(orchestrator).await;
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_ktsu"));
    command.args(["start", "runtime", "--json", "--port", "0"]);
    command.args(["--orchestrator", &other.url, "--gateway", &other.url]);
    command.env_clear().current_dir(folder.path());
    let runtime = Process::spawn(command);
    other
        .until(|heard| heard.iter().any(|one| one.path == "/heartbeat"))
        .await;
    let url = |what: &str| format!("{}/runs/r/steps/s/{what}?token=t", other.url);
    let task = json!({
        "run_id": "r", "step_id": "s", "attempt": 1, "agent_name": "a", "system": "s", "user_message": "u",
        "reflect": "again", "model": {"group": "std", "max_tokens": 9}, "callback_url": url("complete"),
        "report_url": url("report"), "a member nobody knows": 1,
    });
    let accepted = runtime.client().post("/invoke", task.to_string()).await;
    assert_eq!(accepted.status, 202, "{}", accepted.text());
    assert_eq!(accepted.json()["status"], "accepted");
    let beat = other
        .heard()
        .into_iter()
        .find(|one| one.path == "/heartbeat");
    assert_eq!(
        beat.unwrap().json()["runtime_id"],
        accepted.json()["runtime_id"]
    );
    let is_end = |one: &Heard| String::from_utf8_lossy(&one.body).contains("agent.finished");
    other.until(|heard| heard.iter().any(is_end)).await;
    let heard = other.heard();
    let reports: Vec<Value> = heard
        .iter()
        .filter(|one| one.path == "/runs/r/steps/s/report?token=t")
        .map(Heard::json)
        .collect();
    let told: Vec<Vec<&str>> = reports
        .iter()
        .map(|report| {
            let events = report["events"].as_array().unwrap();
            events
                .iter()
                .map(|event| event["type"].as_str().unwrap())
                .collect()
        })
        .collect();
    assert_eq!(
        told,
        [
            vec!["llm.request"],
            vec!["llm.response", "agent.decided"],
            vec!["llm.request"],
            vec!["llm.response", "agent.finished"],
        ]
    );
    let numbers: Vec<u64> = reports
        .iter()
        .map(|report| report["n"].as_u64().unwrap())
        .collect();
    assert_eq!(numbers, [1, 2, 3, 4]);
    assert_eq!(reports[1]["events"][0]["data"]["request"], 100);
    let outcome = &reports[3]["events"][1]["data"]["outcome"];
    assert_eq!(*outcome, json!({"output": {"answer": "reflected"}}));
    let calls = heard.iter().filter(|one| one.path == "/invoke").count();
    assert_eq!(calls, 2);
    for (body, words) in [
        ("{}", "run_id"),
        ("nope", "JSON"),
        (
            r#"{"run_id":"r","step_id":"s","callback_url":"ftp://x"}"#,
            "",
        ),
    ] {
        let answer = runtime.client().post("/invoke", body).await;
        assert_eq!(answer.status, 400, "{body}");
        assert_eq!(answer.json()["error"], "invalid_request");
        assert!(answer.text().contains(words), "{}", answer.text());
    }
    runtime.stop();
}
