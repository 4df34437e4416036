//! What runtimes say, held against the description: every status of `report`, `complete` and
//! `heartbeat`.

use std::time::Duration;

use ktsu::http::routes;
use ktsu::http::server::{self, Limits};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::describe::{Case, Described};
use crate::support::client::Answer;
use crate::support::sink::Reply;
use crate::support::{KitDir, Lab, Sink, guarded};

/// A run whose tasks wait for what is said here.
struct World {
    lab: Lab,
    runtime: Sink,
}

impl World {
    async fn new(kit: &KitDir) -> Self {
        let runtime = Sink::scripted(|_| Reply::Now(202, String::new())).await;
        let pairs = [("SINK", runtime.url.as_str()), ("HOOK", super::HOOK)];
        let lab = Lab::remote(kit, &pairs, &runtime.url).await;
        Self { lab, runtime }
    }

    /// The path and query of both URLs of the task of a new run: report, complete.
    async fn task(&self) -> (String, String) {
        let run = self.lab.client.invoke("thinking", json!({})).await;
        let own = |body: &Value| body["run_id"] == run.as_str();
        let dispatched = |heard: &[crate::support::sink::Heard]| {
            let invokes = heard.iter().filter(|one| one.path == "/invoke");
            invokes.map(|one| one.json()).find(own)
        };
        self.runtime
            .until(|heard| dispatched(heard).is_some())
            .await;
        let invoke = dispatched(&self.runtime.heard()).unwrap();
        let path = |which: &str| {
            let url = invoke[which].as_str().unwrap();
            url[url.find("/runs/").unwrap()..].to_owned()
        };
        (path("report_url"), path("callback_url"))
    }
}

/// Every status, on a real socket; gives what was seen.
pub(super) async fn walk(kit: &KitDir, api: &Described) -> Vec<Case> {
    let world = World::new(kit).await;
    let api = api.at(&world.lab.client);
    let (report, complete) = world.task().await;
    for path in [&report, &complete] {
        refusals(&api, path).await;
    }
    assert_eq!(api.post(&report, &request(1)).await.status, 200);
    assert_eq!(api.post(&report, &request(1)).await.status, 200);
    let other = request(1).replace("\"max_tokens\":1", "\"max_tokens\":2");
    assert_eq!(api.post(&report, &other).await.status, 409);
    assert_eq!(api.post(&report, &request(2)).await.status, 422);
    let ok = json!({"status": "ok", "output": {}}).to_string();
    assert_eq!(api.post(&complete, &ok).await.status, 200);
    // Once an attempt has ended, whatever is said.
    assert_eq!(api.post(&complete, &ok).await.status, 409);
    let other = json!({"status": "ok", "output": {"n": 1}}).to_string();
    assert_eq!(api.post(&complete, &other).await.status, 409);
    heartbeats(&api).await;
    slow(
        &world,
        &api,
        &[&report, &complete, "/heartbeat", "/invoke/hello"],
    )
    .await;
    unavailable(&world, &api).await;
    api.seen().into_iter().collect()
}

fn request(n: u32) -> String {
    let data = json!({"group": "m", "max_tokens": 1, "messages": [], "purpose": "turn"});
    let events = [json!({"type": "llm.request", "data": data})];
    json!({"attempt": 1, "n": n, "events": events}).to_string()
}

async fn refusals(api: &Described, path: &str) {
    let (route, token) = path.split_once('?').unwrap();
    let large = " ".repeat(8 * 1024 * 1024 + 1);
    let deep = format!("{{\"a\":{}{}}}", "[".repeat(80), "]".repeat(80));
    for (path, headers, body, expected) in [
        (path, vec![], "nope", 400),
        (path, vec![], &deep, 400),
        (&format!("{path}&more=1"), vec![], "{}", 400),
        (&format!("{path}&{token}"), vec![], "{}", 400),
        (route, vec![], "{}", 401),
        (&format!("{path}0"), vec![], "{}", 401),
        (&path.replace("think/", "absent/"), vec![], "{}", 401),
        (path, vec![("origin", "https://evil.example")], "{}", 403),
        (&path.replace("run_", "run_0"), vec![], "{}", 404),
        (&path.replace("think/", "../"), vec![], "{}", 404),
        (path, vec![], &large, 413),
        (path, vec![], "[]", 422),
        (path, vec![], "{\"status\":7}", 422),
    ] {
        let answer = api.call("POST", path, &headers, body).await;
        let told = body.get(..40).unwrap_or(body);
        assert_eq!(answer.status, expected, "{path} {told}: {}", answer.text());
    }
}

async fn heartbeats(api: &Described) {
    let large = " ".repeat(8 * 1024 * 1024 + 1);
    let beat = json!({"runtime_id": "r", "active": [{"run_id": "run_x", "step_id": "s"}]});
    let foreign = vec![("origin", "https://evil.example")];
    for (path, headers, body, expected) in [
        ("/heartbeat", vec![], beat.to_string().as_str(), 200),
        ("/heartbeat", vec![], "nope", 400),
        ("/heartbeat?x=1", vec![], "{}", 400),
        ("/heartbeat", foreign, "{}", 403),
        ("/heartbeat", vec![], &large, 413),
        ("/heartbeat", vec![], "{}", 422),
    ] {
        let answer = api.call("POST", path, &headers, body).await;
        assert_eq!(answer.status, expected, "{path}: {}", answer.text());
    }
}

/// 408: a body that does not arrive. The same routes, behind a server that waits less long.
async fn slow(world: &World, api: &Described, paths: &[&str]) {
    let listener = server::bind_loopback(([127, 0, 0, 1], 0).into())
        .await
        .unwrap();
    let address = listener.local_addr().unwrap();
    let limits = Limits {
        body_time: Duration::from_millis(20),
        ..Limits::default()
    };
    let router = routes::router(world.lab.engine.orchestrator.clone());
    let serving = tokio::spawn(server::serve(
        listener,
        router,
        limits,
        std::future::pending(),
    ));
    for path in paths {
        let mut socket = tokio::net::TcpStream::connect(address).await.unwrap();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\nconnection: close\r\n\r\n{{"
        );
        socket.write_all(head.as_bytes()).await.unwrap();
        let mut text = String::new();
        guarded("408", socket.read_to_string(&mut text))
            .await
            .unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let mut headers = axum::http::HeaderMap::new();
        assert!(head.contains("application/problem+json"), "{head}");
        headers.insert("content-type", "application/problem+json".parse().unwrap());
        let answer = Answer {
            status: head.split(' ').nth(1).unwrap().parse().unwrap(),
            headers,
            body: body.as_bytes().to_vec(),
        };
        assert_eq!(answer.status, 408, "{path}");
        api.check("POST", path, &answer);
    }
    serving.abort();
}

/// 503: the run is not under way, and has not ended.
async fn unavailable(world: &World, api: &Described) {
    let (report, complete) = world.task().await;
    world.lab.engine.orchestrator.stop();
    let ok = json!({"status": "ok", "output": {}}).to_string();
    let asked = async {
        // The run's owner may still be about to hear that it is to stop.
        while api.post(&report, &request(1)).await.status != 503 {
            tokio::task::yield_now().await;
        }
    };
    guarded("503", asked).await;
    assert_eq!(api.post(&complete, &ok).await.status, 503);
}
