//! An owner is stopped at a named point, for longer than its lease lasts, and wakes once another one has
//! taken over.
//!
//! ```text
//! owner ──▶ proxy ──▶ server ◀── standby
//!             holds an append: before it is sent, halved, or stored and not answered
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::http::Request;
use ktsu_ledger::store::{Filter, Reader};
use ktsu_ledger::{Hash, Ledger, StreamId, verify};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::{Place, beside};
use crate::support::client::{Answer, Events};
use crate::support::ledger_proxy::{AppendPoint, LedgerProxy};
use crate::support::load::{PACE, in_order};
use crate::support::model::{self, Call, Model, Said};
use crate::support::postgres::Server;
use crate::support::process::Process;
use crate::support::sink::Reply;
use crate::support::tools::{self, Given, ToolServer};
use crate::support::{Sink, guarded};

const HELLO: &str = r#"
params: {schema: {type: object, required: [msg], properties: {msg: {type: string}}}}
pipeline:
  - {id: t, transform: {inputs: [{from: params.msg}], ops: []}}
output: {map: {kind: hello}}
"#;
const HOOK: &str = r#"
env: [{name: SINK}]
params: {schema: {type: object, required: [msg], properties: {msg: {type: string}}}}
pipeline:
  - {id: call, webhook: {url: "{{ env.SINK }}/call", body: {msg: "{{ params.msg }}"}}}
output: {map: {kind: hook}}
"#;
const ASK: &str = r#"
params: {schema: {type: object, required: [msg], properties: {msg: {type: string}}}}
pipeline:
  - {id: ask, agent: ./agents/echo.agent.yaml, params: {msg: "{{ params.msg }}"}}
output: {map: {kind: ask}}
"#;
const ACT: &str = r#"
params: {schema: {type: object, required: [msg], properties: {msg: {type: string}}}}
pipeline:
  - {id: act, agent: ./agents/actor.agent.yaml, params: {msg: "{{ params.msg }}"}}
output: {map: {kind: act}}
"#;
const ACTOR: &str = r#"
name: actor
version: 1.0.0
model: std
params: {schema: {type: object, required: [msg], properties: {msg: {type: string}}}}
prompt: {system: Act., user: "{{ params.msg }}"}
output: {schema: {type: object, required: [answer], properties: {answer: {type: string}}}}
servers: [{name: free, path: ../servers/free.server.yaml, access: {allowlist: [store]}}]
"#;
/// What makes an append of params large: more than a server reads at once, in a request
/// that may have 1 MiB.
const LARGE: usize = 768 * 1024;

/// What an owner appends when it is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Appended {
    /// A run that a client starts.
    Run,
    /// The same; the client waits for its end.
    AwaitedRun,
    /// That a webhook is about to be sent.
    Webhook,
    /// That a model is about to be asked.
    ModelCall,
    /// That a tool is about to be called.
    ToolCall,
}

/// Where it is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StoppedAt {
    Append(AppendPoint),
    /// The append was answered and the effect has left; its answer has not come.
    Effect,
}

const UNSENT: StoppedAt = StoppedAt::Append(AppendPoint::Unsent);
const HALVED: StoppedAt = StoppedAt::Append(AppendPoint::Halved);
const STORED: StoppedAt = StoppedAt::Append(AppendPoint::Stored);
const EFFECT: StoppedAt = StoppedAt::Effect;

impl Appended {
    /// The frame that is waited for, and the workflow that has it.
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Run | Self::AwaitedRun => ("run.created", "hello"),
            Self::Webhook => ("webhook.sent", "hook"),
            Self::ModelCall => ("llm.request", "ask"),
            Self::ToolCall => ("tool.called", "act"),
        }
    }

    fn is_effect(self) -> bool {
        !matches!(self, Self::Run | Self::AwaitedRun)
    }

    /// How often each of its effects leaves, whatever wakes.
    fn times(self, stopped: StoppedAt) -> Vec<usize> {
        match (self.is_effect(), stopped) {
            (true, StoppedAt::Effect) => vec![2],
            (true, StoppedAt::Append(_)) => vec![1],
            (false, _) => vec![],
        }
    }

    /// The query of the client that begins, which is still without an answer when the owner is stopped.
    fn query(self) -> &'static str {
        match self {
            Self::Run => "",
            Self::AwaitedRun | Self::Webhook | Self::ModelCall | Self::ToolCall => "?wait=60",
        }
    }
}

/// A ledger, its engines' world, and what reaches that.
struct Scene {
    place: Place,
    model: Model,
    tools: ToolServer,
    proxy: LedgerProxy,
    /// The address of the ledger through the proxy.
    behind: String,
}

impl Scene {
    async fn new(server: &Server) -> Self {
        let (_, schema) = beside(|| server.ledger());
        let model = Model::scripted(|_| Said::answer("done")).await;
        let tools = ToolServer::scripted(tools::any(&["store"]), |_| Given::text("done")).await;
        let file = format!("name: free\nversion: 1.0.0\nurl: {}\n", tools.url);
        let flows = [("hello", HELLO), ("hook", HOOK), ("ask", ASK), ("act", ACT)];
        let kit = model::kit(&model, &flows)
            .with("agents/actor.agent.yaml", ACTOR)
            .with("servers/free.server.yaml", &file);
        let proxy = LedgerProxy::new(server.file(".s.PGSQL.5432")).await;
        let behind = format!(
            "postgres://ktsu@127.0.0.1:{}/postgres?sslmode=disable&options=-csearch_path%3D{schema}",
            proxy.port
        );
        let (sink, address) = (Sink::new().await, server.address(&schema));
        Self {
            place: Place { kit, sink, address },
            model,
            tools,
            proxy,
            behind,
        }
    }

    /// From now on, effects of one kind are answered only once `go` is open, and others at once.
    fn script(&self, held: Option<Appended>) {
        let waits = move |kind: Appended| held == Some(kind);
        self.place
            .sink
            .follow(move |_| match waits(Appended::Webhook) {
                true => Reply::When("go".to_owned(), 200),
                false => Reply::Now(200, String::new()),
            });
        self.model.say(move |call| {
            let acts = call.messages()[0].1.starts_with("Act");
            let said = match acts && call.turn() == 0 {
                true => Said::calls(&[("store", json!({"msg": call.user()}))]),
                false => Said::answer("done"),
            };
            match waits(Appended::ModelCall) {
                true => said.when("go"),
                false => said,
            }
        });
        self.tools.follow(move |_| match waits(Appended::ToolCall) {
            true => Given::text("done").when("go"),
            false => Given::text("done"),
        });
    }

    fn open(&self) {
        self.place.sink.open("go");
        self.model.open("go");
        self.tools.open("go");
    }

    /// How often each effect has left, by the frame before it and its id.
    fn effects(&self) -> BTreeMap<String, usize> {
        let heard = self.place.sink.heard();
        let webhooks = heard.iter().map(|one| format!("webhook.sent {}", one.id));
        let asked = self.tools.asked();
        let calls = asked.iter().map(|one| format!("tool.called {}", one.key));
        let models = self.model.calls();
        let digest = |one: &Call| Hash::of(one.content().as_bytes());
        let models = models
            .iter()
            .map(|one| format!("llm.request {}", digest(one)));
        let mut counts = BTreeMap::new();
        for id in webhooks.chain(calls).chain(models) {
            *counts.entry(id).or_default() += 1;
        }
        counts
    }

    /// Waits until an effect after a frame of this type has left so often.
    async fn until(&self, kind: &str, wanted: usize) {
        let has_left = |(id, count): (&String, &usize)| id.starts_with(kind) && *count == wanted;
        let left = async {
            while !self.effects().iter().any(has_left) {
                tokio::time::sleep(PACE).await;
            }
        };
        guarded("an effect", left).await;
    }

    /// Stops an owner at a point; the clients that wait for an answer then.
    async fn stop(&self, owner: &Process, appended: Appended, stopped: StoppedAt) -> Vec<Asked> {
        let (kind, workflow) = appended.names();
        match stopped {
            StoppedAt::Append(point) => {
                self.script(None);
                self.proxy.hold(kind, point);
            }
            StoppedAt::Effect => self.script(Some(appended)),
        }
        let path = format!("/invoke/{workflow}");
        let mut clients = vec![ask(owner, &(path + appended.query()), "held")];
        match stopped {
            StoppedAt::Append(_) => {
                let bytes = self.proxy.until_held().await;
                // What an effect needs may be stored already.
                assert!(
                    bytes > LARGE || appended.is_effect(),
                    "{bytes} bytes are held"
                );
            }
            StoppedAt::Effect => self.until(kind, 1).await,
        }
        owner.freeze();
        clients.push(ask(owner, "/invoke/hello", "behind"));
        let lists = owner.client();
        clients.push(tokio::spawn(async move {
            lists.try_send("GET", "/runs", &[], "").await
        }));
        clients
    }

    /// Wakes it. What comes late at the server comes before that, and the second half of something after.
    fn wake(&self, owner: &Process, stopped: StoppedAt) {
        if stopped != HALVED {
            self.proxy.release();
        }
        owner.signal("CONT");
        self.proxy.release();
    }

    /// What a client heard is what the ledger has.
    fn are_recorded(&self, heard: &[(String, u64, String)], case: &str) {
        assert!(!heard.is_empty(), "{case}");
        let reader = self.reader();
        for (run, seq, hash) in heard {
            let stream = StreamId::run(run).unwrap();
            let kept = beside(|| reader.read(&stream, *seq, 1)).unwrap();
            let kept = kept.first().map(|kept| kept.hash.to_string());
            assert_eq!(kept.as_ref(), Some(hash), "{case}: {run}#{seq} was sent");
        }
    }

    fn reader(&self) -> Box<dyn Reader> {
        beside(|| Ledger::open(self.place.ledger()).reader()).unwrap()
    }

    fn frames(&self) -> Vec<(u64, Value)> {
        let reader = self.reader();
        beside(|| in_order(reader.as_ref()))
    }

    /// The number of frames of a type.
    fn count(&self, kind: &str) -> usize {
        let frames = self.frames();
        let of_type = frames.iter().filter(|(_, frame)| frame["type"] == kind);
        of_type.count()
    }

    /// The number of runs.
    fn runs(&self) -> usize {
        let reader = self.reader();
        beside(|| reader.list(&Filter::default(), None, 100))
            .unwrap()
            .rows
            .len()
    }
}

/// A request under way. It has an answer unless the engine ends before.
type Asked = JoinHandle<Option<Answer>>;

/// Starts a run under a key.
fn ask(engine: &Process, path: &str, key: &str) -> Asked {
    let (client, path, key) = (engine.client(), path.to_owned(), key.to_owned());
    let body = json!({"msg": "m".repeat(LARGE)}).to_string();
    tokio::spawn(async move {
        let headers = [("Idempotency-Key", key.as_str())];
        client.try_send("POST", &path, &headers, body).await
    })
}

/// The run of a key, once it has ended at an engine that may not be the owner yet.
async fn completes(engine: &Process, workflow: &str, key: &str) -> String {
    let ended = async {
        loop {
            let answer = ask(engine, &format!("/invoke/{workflow}?wait=60"), key);
            let answer = answer.await.unwrap().filter(|answer| answer.status == 200);
            match answer {
                Some(answer) => return answer.json(),
                None => tokio::time::sleep(PACE).await,
            }
        }
    };
    let envelope = guarded("the end of a run", ended).await;
    assert_eq!(envelope["status"], "complete", "{envelope:#}");
    envelope["run_id"].as_str().unwrap().to_owned()
}

/// Everything that a client hears which follows all runs: run, number, hash.
async fn hear(mut events: Events) -> Vec<(String, u64, String)> {
    let mut heard = Vec::new();
    while let Some(event) = events.next_unless_broken().await {
        let frame: Value = serde_json::from_str(&event.data).unwrap();
        let text = |name: &str| frame[name].as_str().unwrap().to_owned();
        let seq = frame["seq"].as_u64().unwrap();
        heard.push((text("run_id"), seq, text("hash")));
    }
    heard
}

/// Stops an owner at a point, lets another one work, and wakes it.
async fn wakes(server: Arc<Server>, appended: Appended, stopped: StoppedAt) {
    let case = format!("{appended:?} {stopped:?}");
    let scene = Scene::new(&server).await;
    let owner = scene.place.engine_at(&scene.behind);
    completes(&owner, "hello", "first").await;
    let standby = scene.place.engine();
    let events = owner.client().listen(Request::get("/events")).await;
    let follower = tokio::spawn(hear(events.unwrap().unwrap()));
    let clients = scene.stop(&owner, appended, stopped).await;

    let (kind, workflow) = appended.names();
    let is_recorded = matches!(stopped, STORED | EFFECT);
    let before = usize::from(!appended.is_effect());
    let recorded = before + usize::from(is_recorded);
    assert_eq!(scene.count(kind), recorded, "{case}: {kind}");
    // The other one works, also on what a client of the first one asks again.
    completes(&standby, "hello", "new").await;
    if stopped == EFFECT {
        scene.until(kind, 2).await;
        scene.open();
    }
    completes(&standby, workflow, "held").await;
    assert_eq!(scene.runs(), 3, "{case}");
    let (frames, effects) = (scene.frames(), scene.effects());
    let own = effects.iter().filter(|(id, _)| id.starts_with(kind));
    let own: Vec<usize> = own.map(|(_, count)| *count).collect();
    assert_eq!(own, appended.times(stopped), "{case}: {effects:#?}");
    // A model was asked for a tool: its answer may be recorded with the call, and so not at all.
    let is_bounded = effects.values().all(|count| *count <= 2);
    assert!(is_bounded, "{case}: {effects:#?}");

    scene.wake(&owner, stopped);
    for client in clients {
        let answer = guarded("an answer, or none", client).await.unwrap();
        let status = answer.map_or(503, |answer| answer.status);
        assert!(status >= 500, "{case}: a client got {status}");
    }
    let ended = tokio::task::spawn_blocking(move || owner.ended());
    let code = guarded("its end", ended).await.unwrap();
    assert_eq!(code, Some(2), "{case}");
    assert_eq!(scene.effects(), effects, "{case}: an effect has left");
    let mut all = scene.frames();
    let later = all.split_off(frames.len());
    assert!(all == frames, "{case}: frames are others than before");
    // The new owner signs what it has recorded, and nothing else happens.
    let signs = |(_, frame): &(u64, Value)| frame["stream"] == "store";
    assert!(later.iter().all(signs), "{case}: {later:#?}");
    let heard = guarded("the end of the stream", follower).await.unwrap();
    scene.are_recorded(&heard, &case);

    completes(&standby, "hello", "last").await;
    beside(|| standby.kill());
    let (place, options) = (scene.place.ledger(), verify::VerifyOptions::default());
    let verified = || ktsu_history::verify::ledger(&place, &options, &mut |_| {});
    assert_eq!(beside(verified).unwrap().problems, [], "{case}");
}

/// Runs the cases of a table at once, each with engines and a ledger of its own.
async fn all_wake(cases: &[(Appended, StoppedAt)]) {
    let Some(server) = beside(Server::alone) else {
        return;
    };
    let server = Arc::new(server);
    let cases = cases
        .iter()
        .map(|(appended, stopped)| tokio::spawn(wakes(Arc::clone(&server), *appended, *stopped)));
    let cases: Vec<_> = cases.collect();
    for case in cases {
        case.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_owner_that_wakes_as_it_records_a_run_acknowledges_nothing_and_ends() {
    all_wake(&[
        (Appended::Run, UNSENT),
        (Appended::Run, HALVED),
        (Appended::Run, STORED),
        (Appended::AwaitedRun, UNSENT),
        (Appended::AwaitedRun, STORED),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_owner_that_wakes_as_it_records_an_effect_starts_none_and_ends() {
    all_wake(&[
        (Appended::Webhook, UNSENT),
        (Appended::Webhook, HALVED),
        (Appended::Webhook, STORED),
        (Appended::ModelCall, UNSENT),
        (Appended::ModelCall, STORED),
        (Appended::ToolCall, HALVED),
        (Appended::ToolCall, STORED),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_owner_that_wakes_to_the_answer_of_an_effect_that_was_made_again_records_nothing() {
    all_wake(&[
        (Appended::Webhook, EFFECT),
        (Appended::ModelCall, EFFECT),
        (Appended::ToolCall, EFFECT),
    ])
    .await;
}
