//! The tool servers that come with ktsu, for clients that others wrote: over both transports of MCP,
//! for an attempt that has recorded its call, and for nobody else (seed 000, invariants 4 and 34).
//!
//! A runtime played by hand reports; the client is one of ours that speaks what is written here, or
//! the official SDK for Python, where `KTSU_MCP_PYTHON` names a python that has it.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};

use axum::http::Request;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::support::client::Events;
use crate::support::sink::Reply;
use crate::support::{Client, KitDir, Lab, Sink, guarded};

const FLOW: &str = r#"
pipeline:
  - id: before
    transform: {inputs: [], ops: [{map: {expr: "@"}}]}
  - {id: act, depends_on: [before], agent: ./agents/keeper.agent.yaml}
"#;

const KEEPER: &str = r"
name: keeper
version: 1.0.0
model: m
prompt: {system: s, user: u}
servers:
  - {name: notes, path: ktsu/kv}
  - {name: ktsu/envelope}
output: {schema: {type: object}}
";

/// An engine whose runtime takes every task and says what it is told to say.
struct Office {
    _kit: KitDir,
    runtime: Sink,
    lab: Lab,
    /// A runtime that is alive says so.
    beating: tokio::task::JoinHandle<()>,
}

impl Drop for Office {
    fn drop(&mut self) {
        self.beating.abort();
    }
}

impl Office {
    async fn open() -> Self {
        let kit = KitDir::new(&[("flow", FLOW)]).with("agents/keeper.agent.yaml", KEEPER);
        let runtime = Sink::scripted(|heard| match heard.path.as_str() {
            "/health" => Reply::Now(
                200,
                r#"{"status": "ok", "runtime_id": "another"}"#.to_owned(),
            ),
            _ => Reply::Now(202, String::new()),
        })
        .await;
        let lab = Lab::remote(&kit, &[], &runtime.url).await;
        let beating = tokio::spawn(beat(lab.client.clone(), runtime.clone()));
        Self {
            _kit: kit,
            runtime,
            lab,
            beating,
        }
    }

    /// A task that was sent out, with some calls that its model asked for.
    async fn task(&self, calls: &[(&str, Value)]) -> Task {
        let run = self.lab.client.invoke("flow", json!({})).await;
        let sent = |heard: &crate::support::sink::Heard| {
            heard.path == "/invoke" && heard.json()["run_id"] == run.as_str()
        };
        self.runtime.until(|heard| heard.iter().any(sent)).await;
        let heard = self.runtime.heard();
        let invoke = heard.iter().find(|one| sent(one)).unwrap().json();
        let mut task = Task {
            client: self.lab.client.clone(),
            invoke,
            n: 0,
            response: Value::Null,
            last: Value::Null,
        };
        if !calls.is_empty() {
            task.asks(calls).await;
        }
        task
    }
}

/// Names everything that was sent out, every other second.
async fn beat(client: Client, runtime: Sink) {
    let mut every = tokio::time::interval(std::time::Duration::from_secs(2));
    loop {
        every.tick().await;
        let heard = runtime.heard();
        let sent = heard.iter().filter(|one| one.path == "/invoke");
        let active: Vec<Value> = sent
            .map(|one| {
                let task = one.json();
                json!({"run_id": task["run_id"], "step_id": task["step_id"], "attempt": task["attempt"]})
            })
            .collect();
        let body = json!({"runtime_id": "by-hand", "active": active}).to_string();
        client.try_send("POST", "/heartbeat", &[], body).await;
    }
}

/// A task, as its runtime has it.
struct Task {
    client: Client,
    invoke: Value,
    n: u32,
    /// The `llm.response` whose calls are made.
    response: Value,
    /// The last `tool.called`.
    last: Value,
}

impl Task {
    async fn report(&mut self, events: Value) -> Value {
        self.n += 1;
        let body = json!({"attempt": 1, "n": self.n, "events": events});
        let url = self.invoke["report_url"].as_str().unwrap();
        let path = url.strip_prefix(&self.origin()).unwrap();
        let answer = self.client.post(path, body.to_string()).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()["events"].clone()
    }

    /// The model asks for these calls: server and tool, and arguments.
    async fn asks(&mut self, calls: &[(&str, Value)]) {
        let messages =
            json!([{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]);
        let request = json!({"group": "m", "max_tokens": 512, "messages": messages,
            "purpose": "turn"});
        let asked = self
            .report(json!([{"type": "llm.request", "data": request}]))
            .await;
        let wanted: Vec<Value> = calls
            .iter()
            .enumerate()
            .map(|(at, (tool, arguments))| {
                let (_, tool) = tool.split_once(' ').unwrap();
                json!({"id": format!("c{at}"), "name": tool, "arguments": arguments})
            })
            .collect();
        let response = json!({"request": asked[0]["seq"], "content": "", "provider": "p",
            "model": "m", "tokens_in": 1, "tokens_out": 1, "cost_micro_usd": 1, "prices": "p",
            "duration_ms": 1, "cached": false, "tool_calls": wanted});
        let told = self
            .report(json!([{"type": "llm.response", "data": response}]))
            .await;
        self.response = told[0]["seq"].clone();
        let decided = json!({"response": self.response});
        self.report(json!([{"type": "agent.decided", "data": decided}]))
            .await;
    }

    /// Records a call; gives its idempotency key.
    async fn calls(&mut self, at: u32, tool: &str) -> String {
        self.called(at, tool).await["data"]["idempotency_key"]
            .as_str()
            .unwrap()
            .to_owned()
    }

    async fn called(&mut self, at: u32, tool: &str) -> Value {
        let (server, tool) = tool.split_once(' ').unwrap();
        let called = json!({"response": self.response, "call": at, "server": server, "tool": tool});
        let told = self
            .report(json!([{"type": "tool.called", "data": called}]))
            .await;
        self.last = told[0]["seq"].clone();
        told[0].clone()
    }

    /// Records what a call gave.
    async fn returned(&mut self, at: u32, result: &Value) {
        let returned = json!({"response": self.response, "call": at, "content": result["content"],
            "is_error": false, "duration_ms": 1});
        self.report(json!([{"type": "tool.returned", "data": returned}]))
            .await;
    }

    async fn ends(&mut self) {
        let outcome = json!({"reason": "completed", "outcome": {"output": {"done": true}}});
        self.report(json!([{"type": "agent.finished", "data": outcome}]))
            .await;
    }

    /// Ends while its last call is under way.
    async fn gives_up(&mut self) {
        let error = json!({"code": "timeout", "message": "m", "retryable": false});
        let outcome = json!({"reason": "timeout", "outcome": {"error": error}});
        self.report(json!([
            {"type": "tool.in_doubt", "data": {"called": self.last}},
            {"type": "agent.finished", "data": outcome},
        ]))
        .await;
    }

    fn origin(&self) -> String {
        let url = self.invoke["callback_url"].as_str().unwrap();
        url[..url.find("/runs/").unwrap()].to_owned()
    }

    fn token(&self) -> &str {
        let url = self.invoke["callback_url"].as_str().unwrap();
        url.split_once("token=").unwrap().1
    }

    /// The path of a server, as a token of this task opens it.
    fn path(&self, server: &str, token: &str) -> String {
        let run = self.invoke["run_id"].as_str().unwrap();
        format!("/tools/ktsu/{server}?run={run}&step=act&attempt=1&token={token}")
    }
}

/// How a client speaks.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Way {
    Http,
    Events,
    PythonHttp,
    PythonEvents,
}

impl Way {
    /// Those there are here.
    fn all() -> Vec<Self> {
        match std::env::var("KTSU_MCP_PYTHON") {
            Ok(_) => vec![
                Self::Http,
                Self::Events,
                Self::PythonHttp,
                Self::PythonEvents,
            ],
            Err(_) => {
                crate::support::not_tested(
                    "the SDK's client with built-in tools; KTSU_MCP_PYTHON is not set",
                );
                vec![Self::Http, Self::Events]
            }
        }
    }

    /// Opens a session with one of the servers.
    async fn open(self, task: &Task, server: &str, token: &str) -> Result<Peer, String> {
        let path = task.path(server, token);
        let events = path.replacen('?', "/sse?", 1);
        match self {
            Self::Http => Peer::http(task.client.clone(), path).await,
            Self::Events => Peer::events(task.client.clone(), &events).await,
            Self::PythonHttp => Peer::python("http", &(task.origin() + &path)).await,
            Self::PythonEvents => Peer::python("events", &(task.origin() + &events)).await,
        }
    }
}

/// A client with a session.
enum Peer {
    Http(Client, String),
    Events(Client, String, Box<Events>),
    Python(Python),
}

/// The SDK, in a process of its own; it ends when its standard input does.
struct Python {
    child: Child,
    input: Option<ChildStdin>,
    lines: mpsc::UnboundedReceiver<String>,
}

impl Drop for Python {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Python {
    fn start(transport: &str, url: &str) -> Self {
        let mut child = Command::new(std::env::var("KTSU_MCP_PYTHON").unwrap())
            .args(["-I", "tests/interop/mcp/client.py", transport, url])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (told, lines) = mpsc::unbounded_channel();
        std::thread::spawn(move || {
            for line in output.lines() {
                let Ok(line) = line else { return };
                if told.send(line).is_err() {
                    return;
                }
            }
        });
        Self {
            input: child.stdin.take(),
            child,
            lines,
        }
    }

    async fn says(&mut self) -> Result<Value, String> {
        let line = guarded("the SDK", self.lines.recv()).await;
        let line = line.ok_or("it has ended")?;
        let value: Value = serde_json::from_str(&line).unwrap();
        match value["error"].as_str() {
            Some(error) => Err(error.to_owned()),
            None => Ok(value),
        }
    }

    async fn ask(&mut self, line: &Value) -> Result<Value, String> {
        let input = self.input.as_mut().unwrap();
        writeln!(input, "{line}").map_err(|error| error.to_string())?;
        self.says().await
    }
}

impl Peer {
    async fn http(client: Client, path: String) -> Result<Self, String> {
        Self::Http(client, path).greeted().await
    }

    async fn events(client: Client, path: &str) -> Result<Self, String> {
        let events = client.listen(Request::get(path)).await.unwrap();
        let mut events = events.map_err(|status| status.to_string())?;
        let (name, endpoint) = events.named().await.unwrap();
        assert_eq!(name, "endpoint");
        assert!(endpoint.starts_with('/'), "{endpoint}");
        Self::Events(client, endpoint, Box::new(events))
            .greeted()
            .await
    }

    async fn python(transport: &str, url: &str) -> Result<Self, String> {
        let mut python = Python::start(transport, url);
        let hello = python.says().await?;
        assert_eq!(hello["version"], "2025-11-25");
        Ok(Self::Python(python))
    }

    async fn greeted(mut self) -> Result<Self, String> {
        let hello = self
            .asks("initialize", json!({"protocolVersion": "2024-11-05"}))
            .await?;
        assert_eq!(hello["protocolVersion"], "2024-11-05");
        Ok(self)
    }

    /// Sends a request by hand; gives its result.
    async fn asks(&mut self, method: &str, params: Value) -> Result<Value, String> {
        let message = json!({"jsonrpc": "2.0", "id": method, "method": method, "params": params});
        let answer: Value = match self {
            Self::Http(client, path) => {
                let answer = client.post(path, message.to_string()).await;
                if answer.status != 200 {
                    return Err(answer.status.to_string());
                }
                answer.json()
            }
            Self::Events(client, path, events) => {
                let answer = client.post(path, message.to_string()).await;
                if answer.status != 202 {
                    return Err(answer.status.to_string());
                }
                assert_eq!(answer.text(), "");
                let (name, data) = events.named().await.ok_or("the stream has ended")?;
                assert_eq!(name, "message");
                serde_json::from_str(&data).unwrap()
            }
            Self::Python(_) => panic!("it speaks for itself"),
        };
        assert_eq!(answer["id"], method);
        match answer.get("result") {
            Some(result) => Ok(result.clone()),
            None => Err(answer["error"].to_string()),
        }
    }

    async fn tools(&mut self) -> Vec<Value> {
        let listed = match self {
            Self::Python(python) => {
                python.ask(&json!({"list": true})).await.unwrap()["tools"].clone()
            }
            Self::Http(..) | Self::Events(..) => {
                let listed = self.asks("tools/list", json!({})).await.unwrap();
                let tools = listed["tools"].as_array().unwrap().iter();
                tools.map(|tool| tool["name"].clone()).collect()
            }
        };
        listed.as_array().unwrap().clone()
    }

    /// What a call gives; nothing if it is refused, in whatever way.
    async fn call(&mut self, tool: &str, arguments: &Value, key: &str) -> Option<Value> {
        let given = match self {
            Self::Python(python) => {
                let line = json!({"call": tool, "arguments": arguments, "key": key});
                python.ask(&line).await
            }
            Self::Http(..) | Self::Events(..) => {
                let meta = json!({"ktsu/idempotency-key": key});
                let params = json!({"name": tool, "arguments": arguments, "_meta": meta});
                self.asks("tools/call", params).await
            }
        };
        given.ok().filter(|given| given["isError"] != true)
    }
}

#[tokio::test]
async fn whoever_has_the_token_of_an_attempt_makes_the_calls_it_has_recorded() {
    let office = Office::open().await;
    for way in Way::all() {
        let set = json!({"key": "colour", "value": {"is": way as u8}});
        let get = json!({"step": "before"});
        let wanted = [
            ("notes kv-set", set.clone()),
            ("ktsu/envelope envelope-get", get.clone()),
        ];
        let mut task = office.task(&wanted).await;
        let token = task.token().to_owned();
        let mut notes = way.open(&task, "kv", &token).await.unwrap();
        let mut envelope = way.open(&task, "envelope", &token).await.unwrap();
        assert_eq!(
            notes.tools().await,
            ["kv-get", "kv-set", "kv-delete", "kv-list"]
        );
        assert_eq!(envelope.tools().await, ["envelope-get", "envelope-list"]);

        let key = task.calls(0, "notes kv-set").await;
        let kept = notes.call("kv-set", &set, &key).await;
        let kept = kept.unwrap_or_else(|| panic!("{way:?}"));
        assert_eq!(
            kept["structuredContent"],
            json!({"key": "colour", "set": true}),
            "{way:?}"
        );
        task.returned(0, &kept).await;
        let key = task.calls(1, "ktsu/envelope envelope-get").await;
        let seen = envelope.call("envelope-get", &get, &key).await.unwrap();
        let output = &seen["structuredContent"]["output"];
        assert_eq!(*output, json!({"result": []}), "{way:?}");
        task.returned(1, &seen).await;
        task.ends().await;

        // It is kept beyond the run.
        let get = json!({"key": "colour"});
        let mut later = office.task(&[("notes kv-get", get.clone())]).await;
        let key = later.calls(0, "notes kv-get").await;
        let token = later.token().to_owned();
        let mut notes = way.open(&later, "kv", &token).await.unwrap();
        let found = notes.call("kv-get", &get, &key).await.unwrap();
        assert_eq!(
            found["structuredContent"]["value"],
            json!({"is": way as u8}),
            "{way:?}"
        );
        later.returned(0, &found).await;
        later.ends().await;
    }
}

#[tokio::test]
async fn a_call_that_is_not_recorded_like_this_is_refused_in_every_way() {
    let office = Office::open().await;
    for way in Way::all() {
        let set = json!({"key": "k", "value": 1});
        let wanted = [("notes kv-set", set.clone()), ("notes kv-set", set.clone())];
        let mut task = office.task(&wanted).await;
        let other = office.task(&[("notes kv-get", json!({"key": "k"}))]).await;
        let token = task.token().to_owned();
        let mut notes = way.open(&task, "kv", &token).await.unwrap();
        let mut envelope = way.open(&task, "envelope", &token).await.unwrap();
        // Nothing is recorded yet, under whatever key.
        for key in ["", "0123", &"a".repeat(64)] {
            assert_eq!(notes.call("kv-set", &set, key).await, None, "{way:?}");
        }
        let key = task.calls(0, "notes kv-set").await;
        for (tool, arguments) in [
            ("kv-set", json!({"key": "k", "value": 2})),
            ("kv-set", json!({"key": "k"})),
            ("kv-set", json!({"key": "k", "value": 1, "more": true})),
            ("kv-delete", set.clone()),
            ("kv-get", json!({"key": "k"})),
            ("kv-nothing", set.clone()),
        ] {
            let given = notes.call(tool, &arguments, &key).await;
            assert_eq!(given, None, "{way:?} {tool} {arguments}");
        }
        // Another server, and another attempt.
        assert_eq!(envelope.call("kv-set", &set, &key).await, None, "{way:?}");
        let forged = way.open(&task, "kv", other.token()).await;
        assert!(forged.is_err(), "{way:?}");
        let token_of_other = other.token().to_owned();
        let mut elsewhere = way.open(&other, "kv", &token_of_other).await.unwrap();
        assert_eq!(elsewhere.call("kv-set", &set, &key).await, None, "{way:?}");

        // As it is recorded, once and again: a key is one call.
        let kept = notes.call("kv-set", &set, &key).await.unwrap();
        assert_eq!(
            notes.call("kv-set", &set, &key).await,
            Some(kept.clone()),
            "{way:?}"
        );
        task.returned(0, &kept).await;
        assert_eq!(
            notes.call("kv-set", &set, &key).await,
            None,
            "{way:?}: it is returned"
        );
        let key = task.calls(1, "notes kv-set").await;
        task.gives_up().await;
        assert_eq!(
            notes.call("kv-set", &set, &key).await,
            None,
            "{way:?}: it has ended"
        );
        if matches!(way, Way::Events | Way::PythonEvents) {
            assert!(way.open(&task, "kv", &token).await.is_err(), "{way:?}");
        }
    }
}

#[tokio::test]
async fn an_attempt_whose_place_another_has_taken_calls_nothing() {
    let office = Office::open().await;
    let get = json!({"step": "before"});
    let mut task = office
        .task(&[("ktsu/envelope envelope-get", get.clone())])
        .await;
    let key = task.calls(0, "ktsu/envelope envelope-get").await;
    let token = task.token().to_owned();
    let mut first = Way::Http.open(&task, "envelope", &token).await.unwrap();
    assert!(first.call("envelope-get", &get, &key).await.is_some());
    // Its runtime is another instance now, which knows nothing of the task.
    office.beating.abort();
    let run = task.invoke["run_id"].clone();
    let named = json!({"run_id": run, "step_id": "act", "attempt": 1});
    for (instance, active) in [("by-hand", json!([named])), ("another", json!([]))] {
        let beat = json!({"runtime_id": instance, "active": active}).to_string();
        let heard = office.lab.client.post("/heartbeat", beat).await;
        assert_eq!(heard.status, 200, "{}", heard.text());
    }
    let again = |heard: &crate::support::sink::Heard| {
        heard.path == "/invoke" && heard.json()["attempt"] == 2
    };
    office.runtime.until(|heard| heard.iter().any(again)).await;
    assert_eq!(first.call("envelope-get", &get, &key).await, None);
}

#[tokio::test]
async fn clients_learn_what_is_not_there_and_which_versions_are() {
    let office = Office::open().await;
    let task = office.task(&[]).await;
    let client = &office.lab.client;
    let path = task.path("kv", task.token());
    for method in ["GET", "HEAD", "DELETE", "PUT"] {
        let answer = client
            .send(method, &path, &[("accept", "text/event-stream")], "")
            .await;
        assert_eq!(answer.status, 405, "{method}");
        assert_eq!(answer.headers["allow"], "POST", "{method}");
    }
    let sse = path.replacen('?', "/sse?", 1);
    for _ in 0..20 {
        // Who asks for the head alone does not listen.
        let head = client.send("HEAD", &sse, &[], "").await;
        assert_eq!((head.status, head.kind()), (200, "text/event-stream"));
    }
    let say = |id: Value, method: &str| json!({"jsonrpc": "2.0", "id": id, "method": method});
    let version = |version: &'static str| ("mcp-protocol-version", version);
    // The SDK asks for the newest version first, and falls back where it is told of others.
    let discover = say(json!("d"), "server/discover").to_string();
    let refused = client
        .send("POST", &path, &[version("2026-07-28")], discover.clone())
        .await;
    assert_eq!((refused.status, refused.kind()), (400, "application/json"));
    let error = &refused.json()["error"];
    assert_eq!(
        (&error["code"], &refused.json()["id"]),
        (&json!(-32022), &json!("d"))
    );
    assert_eq!(error["data"]["supported"][0], "2025-11-25");
    let unknown = client
        .send("POST", &path, &[version("2025-11-25")], discover)
        .await;
    assert_eq!(
        (unknown.status, &unknown.json()["error"]["code"]),
        (200, &json!(-32601))
    );

    let notice = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    let several = json!([say(json!(1), "ping"), notice, {"id": 2}, say(json!("3"), "ping")]);
    let told = client
        .send("POST", &path, &[version("2025-03-26")], several.to_string())
        .await;
    let ids: Vec<Value> = told
        .json()
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["id"].clone())
        .collect();
    assert_eq!(ids, [json!(1), json!(2), json!("3")]);
    assert_eq!(told.json()[1]["error"]["code"], -32600);
    let only_notices = json!([notice, notice]).to_string();
    assert_eq!(client.post(&path, only_notices).await.status, 202);
    let refused = client
        .send("POST", &path, &[version("2025-06-18")], several.to_string())
        .await;
    assert_eq!((refused.status, &refused.json()["id"]), (400, &Value::Null));

    let event = [("accept", "text/event-stream")];
    let told = client
        .send("POST", &path, &event, say(json!(7), "ping").to_string())
        .await;
    assert_eq!((told.status, told.kind()), (200, "text/event-stream"));
    assert_eq!(
        told.text(),
        "event: message\ndata: {\"id\":7,\"jsonrpc\":\"2.0\",\"result\":{}}\n\n"
    );
}

#[tokio::test]
async fn a_stream_answers_its_own_attempt_and_ends_with_the_engine() {
    let office = Office::open().await;
    let (task, other) = (office.task(&[]).await, office.task(&[]).await);
    let listen = async |task: &Task, server: &str| {
        let path = task.path(server, task.token()).replacen('?', "/sse?", 1);
        let events = task.client.listen(Request::get(path)).await.unwrap();
        let mut events = events.unwrap();
        let (_, endpoint) = events.named().await.unwrap();
        (events, endpoint)
    };
    let (mut events, endpoint) = listen(&task, "kv").await;
    let (_theirs, of_other) = listen(&other, "kv").await;
    let stream = |endpoint: &str| endpoint.split_once("session_id=").unwrap().1.to_owned();
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}).to_string();
    // With the token of one, onto the stream of another; onto that of the other server.
    let crossed = of_other.replace(&stream(&of_other), &stream(&endpoint));
    assert_eq!(task.client.post(&crossed, ping.clone()).await.status, 404);
    let crossed = endpoint.replace("/kv/", "/envelope/");
    assert_eq!(task.client.post(&crossed, ping.clone()).await.status, 404);
    assert_eq!(task.client.post(&endpoint, ping).await.status, 202);
    assert!(events.named().await.unwrap().1.contains("\"id\":1"));

    office.lab.engine.orchestrator.stop();
    assert_eq!(events.named().await, None);
    assert!(!events.broken);
}
