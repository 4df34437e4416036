//! Runtime, gateway and orchestrator killed at ten points of a run that calls tools and waits for a
//! person, and started again: it completes, and no call is carried out twice.
//!
//! The server answers a key that came before from memory, as its maker would have it; what is counted
//! is what it carried out. `KTSU_KILLS` says how often (6 without it; 30 are every point for every
//! service), `KTSU_TEST_SEED` where the points begin.

use ktsu_ledger::store::SqliteReader;
use ktsu_ledger::{verify, verify_file};
use ktsu_workflow::replay::{Definitions, replay};
use serde_json::{Value, json};

use crate::evidence;
use crate::support::KitDir;
use crate::support::client::{Client, Events};
use crate::support::ledgers::frames;
use crate::support::model::{self, KEY, Model, Said};
use crate::support::process::Process;
use crate::support::services::{Service, Services};
use crate::support::tools::{self, Given, ToolServer};

const FLOW: &str = r#"
params: {schema: {type: object, required: [msg], properties: {msg: {type: string}}}}
pipeline:
  - {id: act, agent: ./agents/actor.agent.yaml, params: {msg: "{{ params.msg }}"}}
  - {id: echo, agent: ./agents/echo.agent.yaml, params: {msg: "{{ step.act.answer }}"}}
"#;

const ACTOR: &str = r#"
name: actor
version: 1.0.0
model: std
params: {schema: {type: object, required: [msg], properties: {msg: {type: string}}}}
prompt: {system: s, user: "{{ params.msg }}"}
output: {schema: {type: object, required: [answer], properties: {answer: {type: string}}}}
servers:
  - name: free
    path: ../servers/free.server.yaml
    access: {allowlist: [look, slow, {name: store, require_approval: {on_reject: recover}}]}
  - {name: vault, path: ../servers/vault.server.yaml, access: {allowlist: [change]}}
"#;

/// What happens just before the kill.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Point {
    /// The first frame of this type is recorded.
    Before(&'static str),
    /// The same, of the frames after a person has approved.
    After(&'static str),
    /// A call of this tool is under way.
    Within(&'static str),
}

const POINTS: [Point; 10] = [
    Point::Before("llm.request"),
    Point::Before("llm.response"),
    Point::Before("tool.called"),
    Point::Within("slow"),
    Point::Before("tool.returned"),
    // Waiting for a person.
    Point::Before("approval.requested"),
    // Between the decision and the call it allows.
    Point::After("approval.decided"),
    Point::Within("store"),
    Point::After("tool.returned"),
    Point::After("agent.finished"),
];

impl Point {
    /// Whether it comes after the decision.
    fn is_late(self) -> bool {
        matches!(self, Self::After(_) | Self::Within("store"))
    }
}

fn kills() -> usize {
    let wanted = std::env::var("KTSU_KILLS").ok();
    wanted.map_or(6, |wanted| wanted.parse().unwrap())
}

/// Every service meets every point once in thirty kills, beginning anywhere.
fn points(count: usize) -> Vec<Point> {
    let seed = ktsu_campaign::seed();
    eprintln!("KTSU_TEST_SEED={seed}");
    let first = usize::try_from(seed % POINTS.len() as u64).unwrap();
    (0..count)
        .map(|at| POINTS[(first + at) % POINTS.len()])
        .collect()
}

/// Looks twice at once, stores once a person approved, looks again and answers; or, told to, changes.
async fn model() -> Model {
    Model::scripted(|call| {
        let user = call.user();
        let own = |more: &str| json!({"of": user, "more": more});
        match (
            call.messages()[0].1.starts_with('s'),
            user.starts_with("doubt"),
            call.turn(),
        ) {
            (true, false, 0) if !user.ends_with("done") => {
                Said::calls(&[("look", own("1")), ("slow", own("2"))])
            }
            (true, false, 1) => Said::calls(&[("store", own("3"))]),
            (true, false, 2) => Said::calls(&[("look", own("4"))]),
            (true, true, 0) if !user.ends_with("done") => Said::calls(&[("change", own("1"))]),
            _ => Said::answer("done"),
        }
    })
    .await
}

/// Calls whose tool stands in their token wait at the gate of the token.
async fn server() -> ToolServer {
    ToolServer::scripted(
        tools::any(&["look", "slow", "store", "change", "other"]),
        |asked| {
            let token = asked.arguments["of"].as_str().unwrap();
            let given = Given::Text(format!("{} of {token}", asked.tool));
            match token.ends_with(&asked.tool) {
                true => given.when(token),
                false => given,
            }
        },
    )
    .await
}

fn kit(model: &Model, server: &ToolServer) -> KitDir {
    let file = |name: &str, more: &str| {
        format!("name: {name}\nversion: 1.0.0\nurl: {}\n{more}", server.url)
    };
    model::kit(model, &[("flow", FLOW)])
        .with("agents/actor.agent.yaml", ACTOR)
        .with("servers/free.server.yaml", &file("free", ""))
        .with(
            "servers/vault.server.yaml",
            &file("vault", "stateful: true\n"),
        )
}

/// Waits for a frame of a type, from a frame on; gives its number.
async fn seen(client: &Client, run: &str, kind: &str, from: Option<u64>) -> u64 {
    let mut events: Events = client.events(run, from).await;
    while let Some(event) = events.next().await {
        let frame: Value = serde_json::from_str(&event.data).unwrap();
        if frame["type"] == kind {
            return event.id;
        }
    }
    panic!("{run} ended without {kind}");
}

async fn decide(client: &Client, run: &str, body: Value) {
    let path = format!("/runs/{run}/steps/act/approval/decide");
    let answer = client.post(&path, body.to_string()).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
}

/// A run up to its point; whether the decision is made.
async fn up_to(client: &Client, server: &ToolServer, number: usize, point: Point) -> String {
    let tool = match point {
        Point::Within(tool) => tool,
        Point::Before(_) | Point::After(_) => "none",
    };
    let token = format!("t{number}-{tool}");
    let run = client.invoke("flow", json!({"msg": token})).await;
    let mut from = None;
    if point.is_late() {
        let asked = seen(client, &run, "approval.requested", None).await;
        decide(client, &run, json!({"decision": "approved"})).await;
        from = Some(asked);
    }
    match point {
        Point::Before(kind) | Point::After(kind) => drop(seen(client, &run, kind, from).await),
        Point::Within(tool) => {
            let own = |asked: &tools::Asked| asked.tool == tool && asked.arguments["of"] == *token;
            server.until(|asked| asked.iter().any(own)).await;
        }
    }
    run
}

/// It ends as if nothing had happened.
async fn ends_well(client: &Client, server: &ToolServer, run: &str, point: Point, told: &str) {
    let frames = client.frames(run).await;
    let token = frames[0]["data"]["params"]["msg"]
        .as_str()
        .unwrap()
        .to_owned();
    server.open(&token);
    if !point.is_late() {
        seen(client, run, "approval.requested", None).await;
        decide(client, run, json!({"decision": "approved"})).await;
    }
    let envelope = client.ended(run).await;
    let told = format!("{told} at {point:?}, {run}");
    assert_eq!(envelope["status"], "complete", "{told}: {envelope:#}");
    let executed = server.executed().into_iter();
    let mut own: Vec<String> = executed
        .filter(|one| one.arguments["of"] == token)
        .map(|one| format!("{} {}", one.tool, one.arguments["more"].as_str().unwrap()))
        .collect();
    own.sort();
    assert_eq!(own, ["look 1", "look 4", "slow 2", "store 3"], "{told}");
    assert_eq!(envelope["totals"]["tool_calls"], 4, "{told}");
    // What came at the server is what the ledger says was sent, and at most once more each.
    let keys = |frames: &[Value]| -> Vec<Value> {
        let called = frames.iter().filter(|frame| frame["type"] == "tool.called");
        called
            .map(|frame| frame["data"]["idempotency_key"].clone())
            .collect()
    };
    let announced = keys(&client.frames(run).await);
    for one in server.asked() {
        if one.arguments["of"] == token {
            assert!(announced.contains(&json!(one.key)), "{told}: {one:?}");
        }
    }
}

/// Every frame of a ledger follows from those before it.
fn is_sound(ledger: &std::path::Path, runs: &[String]) {
    let report = verify_file(ledger, &verify::VerifyOptions::default(), &mut |_| {}).unwrap();
    assert_eq!(report.problems, []);
    let reader = SqliteReader::open(ledger).unwrap();
    for run in runs {
        let frames = frames(&reader, run);
        if let Err(diverged) = replay(&frames, &mut Definitions::default()) {
            panic!("{run}: {diverged}");
        }
    }
    evidence::holds(&reader, "killed and started again");
}

#[tokio::test]
async fn a_run_with_tools_outlives_the_death_of_every_service_and_calls_nothing_twice() {
    let (model, server) = (model().await, server().await);
    let kit = kit(&model, &server);
    let mut services = Services::start(&kit, &[KEY]);
    let mut runs = Vec::new();
    for (number, point) in points(kills()).into_iter().enumerate() {
        // Each point meets another service in the next ten.
        let victim = Service::ALL[(number + number / 10) % 3];
        let run = up_to(&services.client(), &server, number, point).await;
        services.kill(victim);
        services.restart(victim);
        let told = format!("{number}: {victim:?} killed");
        ends_well(&services.client(), &server, &run, point, &told).await;
        runs.push(run);
    }
    is_sound(&services.ledger(), &runs);
}

#[tokio::test]
async fn a_run_with_tools_outlives_the_death_of_the_one_process_that_does_everything() {
    let (model, server) = (model().await, server().await);
    let kit = kit(&model, &server);
    let folder = tempfile::tempdir().unwrap();
    let ledger = folder.path().join("ledger.db");
    let mut runs = Vec::new();
    let mut process = Process::start(kit.dir.path(), &ledger, &[KEY]);
    for (number, point) in points(kills().div_ceil(2)).into_iter().enumerate() {
        let run = up_to(&process.client(), &server, number, point).await;
        process.kill();
        process = Process::start(kit.dir.path(), &ledger, &[KEY]);
        let told = format!("{number}: killed");
        ends_well(&process.client(), &server, &run, point, &told).await;
        runs.push(run);
    }
    process.stop();
    is_sound(&ledger, &runs);
}

/// Whose call to the stateful server is under way when everything dies.
async fn in_doubt(decision: Value) -> (Vec<tools::Asked>, Value) {
    let (model, server) = (model().await, server().await);
    let kit = kit(&model, &server);
    let mut services = Services::start(&kit, &[KEY]);
    let client = services.client();
    let run = client.invoke("flow", json!({"msg": "doubt-change"})).await;
    server.until(|asked| asked.len() == 1).await;
    services.kill(Service::Runtime);
    services.restart(Service::Runtime);
    seen(&client, &run, "tool.in_doubt", None).await;
    // The doubt outlives whoever holds it.
    for victim in [Service::Orchestrator, Service::Runtime] {
        services.kill(victim);
        services.restart(victim);
    }
    let client = services.client();
    let record = client
        .get(&format!("/runs/{run}/steps/act/approval"))
        .await
        .json();
    assert_eq!(record["kind"], "in_doubt", "{record:#}");
    assert_eq!(record["status"], "pending");
    assert_eq!(record["tool_name"], "change");
    assert_eq!(server.asked().len(), 1, "nobody has sent it again");
    server.open("doubt-change");
    decide(&client, &run, decision).await;
    let envelope = client.ended(&run).await;
    is_sound(&services.ledger(), &[run]);
    (server.asked(), envelope)
}

#[tokio::test]
async fn a_call_in_doubt_waits_for_a_person_who_says_that_it_happened() {
    let said = json!({"decision": "happened", "result": "changed, as the log says"});
    let (asked, envelope) = in_doubt(said).await;
    assert_eq!(envelope["status"], "complete", "{envelope:#}");
    assert_eq!(asked.len(), 1);
}

#[tokio::test]
async fn a_call_in_doubt_is_sent_again_only_because_a_person_says_so_and_under_the_same_key() {
    let (asked, envelope) = in_doubt(json!({"decision": "approved"})).await;
    assert_eq!(envelope["status"], "complete", "{envelope:#}");
    assert_eq!(asked.len(), 2);
    assert_eq!(asked[0].key, asked[1].key);
    assert!(!asked[1].executed);
}

#[tokio::test]
async fn a_call_in_doubt_that_a_person_gives_up_fails_the_step() {
    let (asked, envelope) = in_doubt(json!({"decision": "rejected"})).await;
    assert_eq!(envelope["error"]["code"], "tool_in_doubt", "{envelope:#}");
    assert_eq!(asked.len(), 1);
}
