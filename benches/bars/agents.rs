//! What the engine adds to an agent: orchestrator, runtime and gateway in one process, and a
//! provider that answers at once, or after a fixed time.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::{Request, StatusCode};
use ktsu::assemble::Engine;
use ktsu_egress::{Client, EgressPolicy};
use ktsu_gateway::{self as gateway, Gateway};
use ktsu_kit::Kit;
use ktsu_peer::Peer;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::table::{Row, Table, median, ms, per_second, thousands};
use crate::{Effort, disk, engine};

/// How long the provider of the runs that overlap takes.
const DELAY: Duration = Duration::from_millis(200);

/// An agent of one turn.
pub(crate) const AGENT: &str = r#"
name: echo
version: "1.0.0"
model: std
params: {schema: {type: object, required: [msg], properties: {msg: {type: string}}}}
prompt: {system: "You repeat what you are told.", user: "{{ params.msg }}"}
output: {schema: {type: object, required: [answer], properties: {answer: {type: string}}}}
"#;

const ONE: &str = r#"
kind: workflow
name: one
version: "1.0.0"
params: {schema: {type: object, required: [msg], properties: {msg: {type: string}}}}
pipeline:
  - {id: ask, agent: agents/echo.agent.yaml, params: {msg: "{{ params.msg }}"}}
"#;

const MANY: &str = r#"
kind: workflow
name: many
version: "1.0.0"
params: {schema: {type: object, required: [items], properties: {items: {type: array}}}}
pipeline:
  - id: ask
    agent: agents/echo.agent.yaml
    for_each: {from: params.items, concurrency: 0}
    params: {msg: "{{ item }}"}
"#;

const GATEWAY: &str = "
providers: [{name: here, type: scripted, config: {rules: rules.yaml}}]
model_groups: [{name: std, models: [here/echo]}]
";

/// A kit in a folder, whose model answers after some milliseconds.
pub(crate) fn kit(folder: &Path, delay: Duration) -> Arc<Kit> {
    let rules = format!(
        "rules:\n  - delay_ms: {}\n    reply: {{answer: done}}\n",
        delay.as_millis()
    );
    for (name, text) in [
        ("agents/echo.agent.yaml", AGENT),
        ("workflows/one.workflow.yaml", ONE),
        ("workflows/many.workflow.yaml", MANY),
        ("gateway.yaml", GATEWAY),
        ("rules.yaml", &rules),
    ] {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let kit = ktsu_kit::load(folder).unwrap_or_else(|_| panic!("the kit of the bench is sound"));
    Arc::new(kit)
}

async fn open(folder: &Path, delay: Duration) -> Engine {
    engine::open(folder, kit(folder, delay)).await
}

/// A run, request to reply; its envelope.
pub(crate) async fn run(engine: &Engine, workflow: &str, params: &Value) -> Value {
    let request = Request::post(format!("/invoke/{workflow}?wait=600"))
        .body(Body::from(params.to_string()))
        .unwrap();
    let response = engine.router.clone().oneshot(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    let body = axum::body::to_bytes(response.into_body(), usize::MAX).await;
    let envelope: Value = serde_json::from_slice(&body.unwrap()).unwrap();
    assert_eq!(envelope["status"], "complete", "{envelope:#}");
    envelope
}

/// A run of one agent step, request to reply, less the time of its model call without an engine.
pub(crate) fn one_step(effort: Effort, table: &mut Table) {
    let rounds = effort.of(200, 40);
    let folder = disk::folder();
    let mut bare = disk::Bare::new();
    let alone = engine::runtime().block_on(async {
        let engine = open(folder.path(), Duration::ZERO).await;
        let alone = alone(&engine, folder.path(), rounds, || bare.sync(4096, 3)).await;
        engine.close().await.unwrap();
        alone
    });
    let (overhead, effect, sync) = (alone.overhead(), alone.effect, alone.bare);
    let bar = 4 * sync + Duration::from_millis(3);
    table.add(Row {
        what: format!(
            "agent step beyond its model call ({}), median of {rounds}",
            ms(effect)
        ),
        figure: ms(overhead),
        bare: format!("sync of 4 KiB: {}", ms(sync)),
        ratio: format!("{:.1} syncs", overhead.as_secs_f64() / sync.as_secs_f64()),
        bar: format!("≤ 4 syncs + 3 ms = {}", ms(bar)),
        met: Some(overhead <= bar),
    });
}

/// Runs of one agent step, one at a time; medians.
pub(crate) struct Alone {
    /// From the request to the reply.
    whole: Duration,
    /// The model call without an engine.
    pub(crate) effect: Duration,
    /// What was measured beside each run.
    pub(crate) bare: Duration,
}

impl Alone {
    /// What the engine adds to the model call.
    pub(crate) fn overhead(&self) -> Duration {
        self.whole.saturating_sub(self.effect)
    }
}

/// Measures runs of one agent step, each beside its model call and something else.
pub(crate) async fn alone(
    engine: &Engine,
    folder: &Path,
    rounds: usize,
    mut beside: impl FnMut() -> Duration,
) -> Alone {
    let provider = provider(folder);
    let (mut whole, mut effect, mut bare) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..rounds {
        let params = json!({"msg": format!("message {round}")});
        let started = Instant::now();
        run(engine, "one", &params).await;
        whole.push(started.elapsed());
        effect.push(call(&provider, &params).await);
        bare.push(beside());
    }
    Alone {
        whole: median(&mut whole),
        effect: median(&mut effect),
        bare: median(&mut bare),
    }
}

/// The gateway alone.
pub(crate) fn provider(folder: &Path) -> Peer {
    let policy = EgressPolicy {
        allow: Vec::new(),
        loopback: true,
    };
    let client = Client::new(&policy).unwrap();
    let file = folder.join("gateway.yaml");
    let gateway = Gateway::load(&file, None, &std::collections::BTreeMap::new(), &client);
    let gateway = gateway.unwrap_or_else(|_| panic!("the gateway of the bench is sound"));
    Peer::Local(gateway::router(gateway))
}

pub(crate) async fn call(provider: &Peer, params: &Value) -> Duration {
    let body = json!({"group": "std", "max_tokens": 1024, "messages": [
        {"role": "system", "content": "You repeat what you are told."},
        {"role": "user", "content": params["msg"]},
    ]});
    let started = Instant::now();
    let request = Request::post("/invoke").body(Body::from(body.to_string()));
    let (status, _) = provider.call_and_read(request.unwrap()).await.unwrap();
    assert_eq!(status, 200);
    started.elapsed()
}

/// One fan-out of a thousand items, all at once.
pub(crate) fn fan_out(effort: Effort, table: &mut Table) {
    let items: usize = effort.of(1000, 200);
    let folder = disk::folder();
    let mut bare = disk::Bare::new();
    let params =
        json!({"items": (0..items).map(|item| format!("item {item}")).collect::<Vec<_>>()});
    let (took, before, after) = engine::runtime().block_on(async {
        let engine = open(folder.path(), Duration::ZERO).await;
        run(&engine, "one", &json!({"msg": "first"})).await;
        let before = resident();
        let started = Instant::now();
        let envelope = run(&engine, "many", &params).await;
        let took = started.elapsed();
        let after = resident();
        let results = envelope["steps"][0]["output"]["results"].as_array();
        assert_eq!(results.map(Vec::len), Some(items));
        engine.close().await.unwrap();
        (took, before, after)
    });
    let sync = bare.sync(16 * 1024, 9);
    table.add(Row {
        what: format!("a fan-out of {items} items at once, request to reply"),
        figure: format!(
            "{} items/s; {:.0} MiB more",
            thousands(per_second(items, took)),
            after - before
        ),
        bare: format!("sync of 16 KiB: {}", ms(sync)),
        ratio: format!(
            "{:.2} syncs an item",
            took.as_secs_f64() / items as f64 / sync.as_secs_f64()
        ),
        bar: String::new(),
        met: None,
    });
}

/// A thousand runs of one agent step at once, with a provider that takes its time.
pub(crate) fn many_runs(effort: Effort, table: &mut Table) {
    let runs: usize = effort.of(1000, 200);
    let folder = disk::folder();
    let (took, before, after) = engine::runtime().block_on(async {
        let engine = Arc::new(open(folder.path(), DELAY).await);
        run(&engine, "one", &json!({"msg": "first"})).await;
        let before = resident();
        let started = Instant::now();
        let clients: Vec<_> = (0..runs)
            .map(|number| {
                let engine = Arc::clone(&engine);
                let params = json!({"msg": format!("message {number}")});
                tokio::spawn(async move { run(&engine, "one", &params).await })
            })
            .collect();
        for client in clients {
            client.await.unwrap();
        }
        let (took, after) = (started.elapsed(), resident());
        Arc::into_inner(engine).unwrap().close().await.unwrap();
        (took, before, after)
    });
    table.add(Row {
        what: format!("{runs} agent runs at once, the model taking {}", ms(DELAY)),
        figure: format!(
            "all ended after {}; {:.0} MiB more",
            ms(took),
            after - before
        ),
        bare: format!("the model alone: {}", ms(DELAY)),
        ratio: format!("{} runs/s", thousands(per_second(runs, took))),
        bar: String::new(),
        met: None,
    });
}

/// Resident memory of this process, in MiB.
pub(crate) fn resident() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1));
    kib.unwrap().parse::<f64>().unwrap() / 1024.0
}
