//! The service, between a fake orchestrator and a fake gateway.

mod fakes;
mod service_tests;
mod tool_fakes;
mod tool_tests;

use std::sync::OnceLock;

use axum::body::Bytes;
use serde_json::{Value, json};
use tokio::sync::mpsc::UnboundedReceiver;

use self::fakes::{Fault, Gateway, Heard, News, Orchestrator, Say, serve, soon};
use self::tool_fakes::Servers;
use super::*;
use ktsu_peer::Peer;

struct World {
    runtime: Runtime,
    service: Peer,
    orchestrator: Orchestrator,
    heard: Heard,
    gateway: Gateway,
    news: UnboundedReceiver<News>,
    servers: Servers,
    sessions: UnboundedReceiver<tool_fakes::Heard>,
    /// Where reports go.
    url: String,
    /// The orchestrator's routes, where it is in the same process.
    _local: Arc<OnceLock<LocalOrchestrator>>,
}

/// All over sockets.
async fn world(says: impl IntoIterator<Item = Say>) -> World {
    let (orchestrator, heard) = Orchestrator::new();
    let (gateway, news) = Gateway::new(says);
    let (servers, sessions) = Servers::new();
    let url = serve(orchestrator.router()).await;
    let runtime = Runtime::new(RuntimeParts {
        gateway: GatewayLink::Peer(Peer::remote(serve(gateway.router()).await, None)),
        orchestrator: Callbacks::remote(&*url),
        tools: Arc::new(servers.clone()),
        places: None,
    });
    World {
        service: Peer::Local(runtime.router()),
        runtime,
        orchestrator,
        heard,
        gateway,
        news,
        servers,
        sessions,
        url,
        _local: Arc::default(),
    }
}

fn by_routes(router: Router) -> LocalOrchestrator {
    let reports = None;
    LocalOrchestrator { router, reports }
}

/// All in one process.
fn local(says: impl IntoIterator<Item = Say>) -> World {
    let (orchestrator, heard) = Orchestrator::new();
    let (gateway, news) = Gateway::new(says);
    let (servers, sessions) = Servers::new();
    let router = Arc::new(OnceLock::new());
    router.set(by_routes(orchestrator.router())).ok().unwrap();
    let runtime = Runtime::new(RuntimeParts {
        gateway: GatewayLink::Peer(Peer::Local(gateway.router())),
        orchestrator: Callbacks::Local(Arc::downgrade(&router)),
        tools: Arc::new(servers.clone()),
        places: None,
    });
    World {
        service: Peer::Local(runtime.router()),
        runtime,
        orchestrator,
        heard,
        gateway,
        news,
        servers,
        sessions,
        url: "http://127.0.0.1:1".to_owned(),
        _local: router,
    }
}

impl World {
    fn task(&self) -> Value {
        let steps = format!("{}/runs/run_1/steps/s", self.url);
        json!({
            "run_id": "run_1", "step_id": "s", "attempt": 1, "agent_name": "sorter",
            "system": "SYSTEM", "user_message": "USER s3cret",
            "model": {"group": "g", "max_tokens": 50},
            "callback_url": format!("{steps}/complete?token=t"),
            "report_url": format!("{steps}/report?token=t"),
        })
    }

    /// Works on a task to its end, without the list of tasks.
    async fn work(&self, task: Value) {
        let invoke: InvokeAgent = serde_json::from_value(task).unwrap();
        let in_flight = self.runtime.0.work.begin().unwrap();
        let work = self.runtime.work(invoke, in_flight);
        soon(task::run(work)).await;
    }

    async fn dispatch(&self, task: &Value) -> (u16, Value) {
        let body = Bytes::from(task.to_string());
        let (status, body) = self.service.post("/invoke", &[], body).await.unwrap();
        (status, serde_json::from_slice(&body).unwrap())
    }

    /// Waits for a report with an event of this type; gives its body.
    async fn heard(&mut self, kind: &str) -> Value {
        loop {
            let (_, said) = soon(self.heard.recv()).await.unwrap();
            let events = said["events"].as_array().cloned().unwrap_or_default();
            if events.iter().any(|event| event["type"] == kind) {
                return said;
            }
        }
    }

    async fn news(&mut self) -> News {
        soon(self.news.recv()).await.unwrap()
    }

    fn finished(&self) -> Value {
        self.orchestrator.last("agent.finished")
    }
}

fn reports(expected: &[&[&str]]) -> Vec<(u64, Vec<String>)> {
    let types = |types: &&[&str]| types.iter().map(|&kind| kind.to_owned()).collect();
    (1..).zip(expected.iter().map(types)).collect()
}

#[tokio::test]
async fn a_task_is_reported_from_its_request_to_its_output_here_and_over_sockets() {
    let says = || [Say::Text("```json\n{\"a\":\"s3cret\"}\n```")];
    for mut world in [local(says()), world(says()).await] {
        let (status, accepted) = world.dispatch(&world.task()).await;
        assert_eq!(status, 202);
        assert_eq!(
            accepted,
            json!({"run_id": "run_1", "step_id": "s", "status": "accepted",
                   "runtime_id": world.runtime.id()})
        );
        world.heard("agent.finished").await;
        let two: [&[&str]; 2] = [&["llm.request"], &["llm.response", "agent.finished"]];
        assert_eq!(world.orchestrator.reports(), reports(&two));
        let path = world
            .orchestrator
            .with(|recorded| recorded.came[1].0.clone());
        assert_eq!(path, "/runs/run_1/steps/s/report?token=t");
        assert_eq!(
            world.finished(),
            json!({"reason": "completed", "outcome": {"output": {"a": "[REDACTED]"}}})
        );
        let response = world.orchestrator.last("llm.response");
        for (name, value) in [
            ("request", json!(10)),
            ("provider", json!("scripted")),
            ("model", json!("one/two")),
            ("tokens_in", json!(3)),
            ("tokens_out", json!(4)),
            ("cost_micro_usd", json!(2)),
        ] {
            assert_eq!(response[name], value, "{name}");
        }
        // What was recorded is what is sent on: redacted, and named by its number.
        let asked = world.gateway.asked();
        assert_eq!(asked.len(), 1);
        assert_eq!(asked[0].0, task::name("run_1", "s", 10));
        assert_eq!(
            asked[0].1,
            json!({"run_id": "run_1", "step_id": "s", "group": "g", "max_tokens": 50,
                   "messages": [{"role": "system", "content": "SYSTEM"},
                                {"role": "user", "content": "USER [REDACTED]"}]})
        );
    }
}

#[tokio::test]
async fn a_reply_that_is_no_json_is_repaired_once() {
    let world = world([Say::Text("no"), Say::Text("{\"a\":1}")]).await;
    world.work(world.task()).await;
    let four: [&[&str]; 4] = [
        &["llm.request"],
        &["llm.response"],
        &["llm.request"],
        &["llm.response", "agent.finished"],
    ];
    assert_eq!(world.orchestrator.reports(), reports(&four));
    let request = world.orchestrator.last("llm.request");
    assert_eq!(request["purpose"], "repair");
    assert_eq!(request["messages"].as_array().unwrap().len(), 4);
    assert_eq!(world.finished()["outcome"]["output"], json!({"a": 1}));
    assert_eq!(world.gateway.asked()[1].0, task::name("run_1", "s", 14));
}

#[tokio::test]
async fn a_draft_is_reflected_on_if_the_orchestrator_says_so() {
    for reflect in [false, true] {
        let world = world([Say::Text("{\"a\":\"s3cret\"}"), Say::Text("{\"b\":1}")]).await;
        world
            .orchestrator
            .with(|recorded| recorded.reflect = reflect);
        let mut task = world.task();
        task["reflect"] = json!("REFLECT");
        world.work(task).await;
        let reported = world.orchestrator.reports();
        assert_eq!(reported[1].1, ["llm.response", "agent.decided"]);
        let output = world.finished()["outcome"]["output"].clone();
        if !reflect {
            assert_eq!(output, json!({"a": "[REDACTED]"}));
            assert_eq!(reported[2].1, ["agent.finished"]);
            continue;
        }
        assert_eq!(output, json!({"b": 1}));
        assert_eq!(reported[2].1, ["llm.request"]);
        assert_eq!(reported[3].1, ["llm.response", "agent.finished"]);
        assert_eq!(
            world.orchestrator.last("llm.request")["messages"],
            json!([{"role": "system", "content": "REFLECT"},
                   {"role": "user", "content": "USER [REDACTED]"},
                   {"role": "user", "content": "{\"a\":\"[REDACTED]\"}"}])
        );
    }
}

#[tokio::test]
async fn a_refused_call_is_not_made_and_ends_the_task() {
    for (code, reason) in [("budget_exceeded", "budget_exceeded"), ("odd", "error")] {
        let world = local([Say::Text("{}")]);
        let error = json!({"code": code, "message": "no", "retryable": false});
        world
            .orchestrator
            .with(|recorded| recorded.refused = Some(error.clone()));
        world.work(world.task()).await;
        assert_eq!(
            world.finished(),
            json!({"reason": reason, "outcome": {"error": error}})
        );
        assert_eq!(world.gateway.asked(), []);
    }
}

#[tokio::test]
async fn an_error_answer_of_the_gateway_is_final() {
    let error = json!({"error": "provider_error", "message": "down", "retryable": true});
    let world = world([Say::Error(502, error)]).await;
    world.work(world.task()).await;
    let error = json!({"code": "provider_error", "message": "down", "retryable": true});
    assert_eq!(world.orchestrator.last("llm.response")["error"], error);
    assert_eq!(
        world.finished(),
        json!({"reason": "error", "outcome": {"error": error}})
    );
    assert_eq!(world.gateway.asked().len(), 1);
}

#[tokio::test]
async fn a_gateway_that_does_not_answer_is_asked_again_under_the_same_name() {
    let world = world([Say::Break, Say::Break, Say::Text("{}")]).await;
    world.work(world.task()).await;
    let asked = world.gateway.asked();
    assert_eq!(asked.len(), 3);
    assert!(asked.iter().all(|one| *one == asked[0]));
    assert_eq!(world.finished()["reason"], "completed");
    assert_eq!(world.orchestrator.types().len(), 3);
}

#[test]
fn the_name_of_a_call_has_a_fixed_length_and_is_its_own() {
    let deep = format!("run_1/{}", "child/".repeat(100));
    let names = [
        task::name(&deep, "s", 1),
        task::name(&deep, "s", 2),
        task::name(&deep, "t", 1),
        task::name("run_1", "s", 1),
    ];
    for (at, name) in names.iter().enumerate() {
        assert_eq!(name.len(), 69);
        assert!(name.starts_with("ktsu-"), "{name}");
        assert!(!names[..at].contains(name), "{name}");
    }
    assert_eq!(names[0], task::name(&deep, "s", 1));
}

#[tokio::test]
async fn a_gateway_that_starts_late_is_waited_for() {
    let port = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = port.local_addr().unwrap();
    drop(port);
    let mut world = world([Say::Text("{}")]).await;
    world.runtime = Runtime::new(RuntimeParts {
        gateway: GatewayLink::Peer(Peer::remote(format!("http://{address}"), None)),
        orchestrator: Callbacks::remote(&*world.url),
        tools: Arc::new(Servers::new().0),
        places: None,
    });
    world.service = Peer::Local(world.runtime.router());
    world.dispatch(&world.task()).await;
    world.heard("llm.request").await;
    let listener = tokio::net::TcpListener::bind(address).await.unwrap();
    let router = world.gateway.router();
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    world.heard("agent.finished").await;
}

#[tokio::test]
async fn a_report_is_sent_until_it_is_answered_with_the_same_bytes() {
    let world = world([Say::Text("{}")]).await;
    world.orchestrator.with(|recorded| {
        let faults = [
            Fault::Break,
            Fault::Status(503),
            Fault::Status(429),
            Fault::Break,
        ];
        recorded.faults.extend(faults);
    });
    world.work(world.task()).await;
    let came = world.orchestrator.with(|recorded| recorded.came.clone());
    assert_eq!(came.len(), 6);
    assert!(came[..5].iter().all(|one| *one == came[0]));
    assert_eq!(
        world.orchestrator.types(),
        ["llm.request", "llm.response", "agent.finished"]
    );
    assert_eq!(world.gateway.asked().len(), 1);
}

#[tokio::test]
async fn a_task_whose_report_is_refused_stops_without_a_word() {
    for status in [409, 401, 404] {
        let world = world([Say::Text("{}")]).await;
        world
            .orchestrator
            .with(|recorded| recorded.faults.push_back(Fault::Status(status)));
        world.work(world.task()).await;
        assert_eq!(world.orchestrator.reports().len(), 1, "{status}");
        assert_eq!(world.gateway.asked(), []);
    }
}

#[tokio::test]
async fn a_task_whose_report_is_refused_for_good_ends_with_an_error() {
    for status in [400, 413, 422] {
        let world = world([Say::Text("{}")]).await;
        let faults = [Fault::Status(503), Fault::Status(status)];
        world
            .orchestrator
            .with(|recorded| recorded.faults.extend(faults));
        world.work(world.task()).await;
        let came = world.orchestrator.reports();
        assert_eq!(came[0], came[1], "{status}");
        assert_eq!(came[2], (2, vec!["agent.finished".to_owned()]), "{status}");
        assert_eq!(came.len(), 3, "{status}");
        let message = format!("the orchestrator refused a report of this task with {status}");
        let error = json!({"code": "report_refused", "message": message, "retryable": false});
        assert_eq!(
            world.finished(),
            json!({"reason": "error", "outcome": {"error": error}})
        );
    }
}

#[tokio::test]
async fn a_completion_that_is_refused_for_good_is_followed_by_an_error() {
    let world = world([Say::Text("{}")]).await;
    world
        .orchestrator
        .with(|recorded| recorded.faults.push_back(Fault::Status(413)));
    let mut task = world.task();
    task.as_object_mut().unwrap().remove("report_url");
    world.work(task).await;
    let came = world.orchestrator.with(|recorded| recorded.came.clone());
    assert_eq!(came.len(), 2);
    let complete: Value = serde_json::from_slice(&came[1].1).unwrap();
    assert_eq!(complete["status"], "failed");
    assert_eq!(complete["error"]["code"], "report_refused");
}

#[tokio::test]
async fn a_task_whose_end_is_refused_too_is_dropped() {
    let world = world([Say::Text("{}")]).await;
    world.orchestrator.with(|recorded| {
        recorded
            .faults
            .extend([Fault::Status(413), Fault::Status(422)])
    });
    world.work(world.task()).await;
    assert_eq!(world.orchestrator.reports().len(), 2);
    assert_eq!(world.gateway.asked(), []);
}

#[tokio::test]
async fn an_answer_that_records_nothing_ends_the_task() {
    let world = world([Say::Text("{}")]).await;
    world
        .orchestrator
        .with(|recorded| recorded.faults.push_back(Fault::Forget));
    world.work(world.task()).await;
    assert_eq!(
        world.finished()["outcome"]["error"]["code"],
        "internal_error"
    );
}

#[tokio::test]
async fn a_task_that_continues_asks_nothing_again_that_was_answered() {
    let first = world([Say::Text("no"), Say::Text("{\"a\":1}")]).await;
    first.work(first.task()).await;
    let frames = first.orchestrator.with(|recorded| recorded.frames.clone());
    for (cut, asks) in [(0, 2), (1, 2), (2, 1), (3, 1), (4, 0)] {
        let says = [Say::Text("no"), Say::Text("{\"a\":1}")];
        let second = world(says[2 - asks..].to_vec()).await;
        let mut task = second.task();
        task["attempt"] = json!(2);
        task["history"] = json!(frames[..cut]);
        second
            .orchestrator
            .with(|recorded| recorded.frames = frames[..cut].to_vec());
        second.work(task).await;
        assert_eq!(second.gateway.asked().len(), asks, "cut at {cut}");
        assert_eq!(second.finished(), first.finished(), "cut at {cut}");
        let types = second.orchestrator.types();
        assert_eq!(types, first.orchestrator.types(), "cut at {cut}");
    }
}

#[tokio::test]
async fn a_task_whose_time_is_over_says_so_and_stops_asking() {
    let mut world = world([Say::Hang]).await;
    let mut task = world.task();
    task["timeout_ms"] = json!(100);
    world.work(task).await;
    assert_eq!(world.finished()["reason"], "timeout");
    assert_eq!(world.finished()["outcome"]["error"]["code"], "timeout");
    assert_eq!(
        (world.news().await, world.news().await),
        (News::Asked, News::Dropped)
    );
}

#[tokio::test]
async fn a_task_that_breaks_off_is_reported() {
    let world = local([Say::Break]);
    world.work(world.task()).await;
    assert_eq!(world.finished()["reason"], "error");
    assert_eq!(
        world.finished()["outcome"]["error"]["code"],
        "internal_error"
    );
}

#[tokio::test]
async fn an_orchestrator_that_takes_no_reports_gets_one_completion() {
    let world = world([
        Say::Text("no"),
        Say::Text("{\"a\":1}"),
        Say::Text("{\"b\":1}"),
    ])
    .await;
    world
        .orchestrator
        .with(|recorded| recorded.faults.push_back(Fault::Status(500)));
    let mut task = world.task();
    task.as_object_mut().unwrap().remove("report_url");
    task["reflect"] = json!("REFLECT");
    world.work(task).await;
    let came = world.orchestrator.with(|recorded| recorded.came.clone());
    assert_eq!(came.len(), 2);
    assert_eq!(came[0], came[1]);
    assert_eq!(came[0].0, "/runs/run_1/steps/s/complete?token=t");
    let mut complete: Value = serde_json::from_slice(&came[0].1).unwrap();
    complete["metrics"]["duration_ms"] = json!(0);
    assert_eq!(
        complete,
        json!({"run_id": "run_1", "step_id": "s", "status": "ok", "output": {"b": 1},
               "metrics": {"model_resolved": "scripted/one/two", "tokens_in": 9, "tokens_out": 12,
                           "cost_usd": 0.000_006, "duration_ms": 0, "llm_calls": 3,
                           "tool_calls": 0, "reflect_calls": 1}})
    );
    let keys: Vec<String> = world.gateway.asked().into_iter().map(|one| one.0).collect();
    assert_eq!(keys, [1, 3, 6].map(|seq| task::name("run_1", "s", seq)));
}

#[tokio::test]
async fn a_completion_says_what_went_wrong_and_a_fatal_draft_is_not_reflected_on() {
    let failing = world([Say::Text("no")]).await;
    let mut task = failing.task();
    task.as_object_mut().unwrap().remove("report_url");
    failing.work(task.clone()).await;
    let body = failing
        .orchestrator
        .with(|recorded| recorded.came[0].1.clone());
    let complete: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(complete["status"], "failed");
    assert_eq!(complete["error"]["code"], "output_invalid");
    assert_eq!(complete["raw_output"], "no");

    let fatal = local([Say::Text("{\"ktsu_low_quality\":true}")]);
    task["reflect"] = json!("REFLECT");
    fatal.work(task).await;
    assert_eq!(fatal.gateway.asked().len(), 1);
}

#[tokio::test]
async fn a_report_waits_until_the_orchestrator_is_up() {
    let (orchestrator, mut heard) = Orchestrator::new();
    let (gateway, _) = Gateway::new([Say::Text("{}")]);
    let late = Arc::new(OnceLock::new());
    let runtime = Runtime::new(RuntimeParts {
        gateway: GatewayLink::Peer(Peer::Local(gateway.router())),
        orchestrator: Callbacks::Local(Arc::downgrade(&late)),
        tools: Arc::new(Servers::new().0),
        places: None,
    });
    heartbeat::once(&runtime.0).await;
    let task = json!({"run_id": "r", "step_id": "s", "system": "", "user_message": "",
                      "callback_url": "http://h/c", "report_url": "http://h/report",
                      "model": {"group": "g"}});
    runtime.start_task(serde_json::from_value(task).unwrap());
    tokio::task::yield_now().await;
    late.set(by_routes(orchestrator.router())).ok().unwrap();
    let (path, _) = soon(heard.recv()).await.unwrap();
    assert_eq!(path, "/report");
}
