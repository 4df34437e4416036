//! What agents keep: a ledger with runs whose agents call the servers that come with ktsu, and the
//! stream of what they kept. The runtime is played by hand, so that a call can come twice.

use std::path::Path;

use ktsu::assemble::LedgerPlace;
use ktsu_ledger::store::{Reader as _, SqliteReader};
use ktsu_ledger::{CanonicalJson, Hash, StreamId, branch};
use serde_json::{Value, json};

use super::{GATEWAY, TOKEN, imported};
use crate::support::sink::Reply;
use crate::support::{Client, KitDir, Lab, Sink};

/// The name of the export.
pub(super) const NAME: &str = "v2-kept";

const FLOW: &str = r#"
params: {schema: {type: object, required: [note], properties: {note: {type: string}}}}
pipeline:
  - {id: before, transform: {inputs: [params.note], ops: []}}
  - {id: keep, depends_on: [before], agent: ./agents/keeper.agent.yaml, params: {note: "{{ params.note }}"}}
output: {map: {answer: "{{ step.keep.answer }}"}}
"#;

const KEEPER: &str = r#"
name: keeper
version: 1.0.0
model: std
max_turns: 6
params: {schema: {type: object, required: [note], properties: {note: {type: string}}}}
prompt: {system: You keep notes., user: "{{ params.note }}"}
output: {schema: {type: object, required: [answer], properties: {answer: {type: string}}}}
servers:
  - {name: notes, path: ktsu/kv@1.0.0, access: {allowlist: [kv-*]}}
  - {name: ktsu/envelope, access: {allowlist: [envelope-get]}}
"#;

const KV: (&str, &str) = ("kv", "notes");
const ENVELOPE: (&str, &str) = ("envelope", "ktsu/envelope");

/// One attempt of the step, in the hands of the test.
struct Hand {
    client: Client,
    task: Value,
    reports: u32,
    /// The last request.
    request: Option<u64>,
}

/// A call of a reply: the server's path and name, the tool, the arguments.
type Call = ((&'static str, &'static str), &'static str, Value);

impl Hand {
    fn of(client: &Client, task: Value) -> Self {
        Self {
            client: client.clone(),
            task,
            reports: 0,
            request: None,
        }
    }

    /// Reports, and gives the numbers of the frames with what they say.
    async fn report(&mut self, events: Value) -> Vec<(u64, Value)> {
        self.reports += 1;
        let body = json!({"attempt": self.task["attempt"], "n": self.reports, "events": events});
        let url = self.task["report_url"].as_str().unwrap();
        let rest = url.strip_prefix("http://").unwrap();
        let path = &rest[rest.find('/').unwrap()..];
        let answer = self.client.post(path, body.to_string()).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let answer = answer.json();
        let recorded = answer["events"].as_array().unwrap().iter();
        recorded
            .map(|one| (one["seq"].as_u64().unwrap(), one["data"].clone()))
            .collect()
    }

    /// Asks the model, which replies so; the frame of the reply.
    async fn asks(&mut self, told: Value, reply: Value) -> u64 {
        let mut data = json!({"group": "std", "max_tokens": 1024, "purpose": "turn"});
        match self.request {
            Some(base) => {
                data["base"] = json!(base);
                data["messages"] = told;
            }
            None => {
                let mut messages = vec![
                    json!({"role": "system", "content": self.task["system"]}),
                    json!({"role": "user", "content": self.task["user_message"]}),
                ];
                messages.extend(told.as_array().unwrap().clone());
                data["messages"] = json!(messages);
                data["tools"] = self.offered().await;
            }
        }
        let asked = self
            .report(json!([{"type": "llm.request", "data": data}]))
            .await;
        self.request = Some(asked[0].0);
        let mut said = json!({"request": asked[0].0, "content": "", "provider": "sink", "model": "m", "tokens_in": 1000, "tokens_out": 200, "cost_micro_usd": 270, "prices": "p", "duration_ms": 1, "cached": false});
        let reply = reply.as_object().unwrap().clone();
        said.as_object_mut().unwrap().extend(reply);
        let said = self
            .report(json!([{"type": "llm.response", "data": said}]))
            .await;
        said[0].0
    }

    /// The tools of both servers, as the model is told of them.
    async fn offered(&self) -> Value {
        let mut offered = Vec::new();
        for (server, wanted) in [(KV, "kv-"), (ENVELOPE, "envelope-get")] {
            let listed = self.says(server.0, "tools/list", json!({})).await;
            for tool in listed["tools"].as_array().unwrap() {
                if !tool["name"].as_str().unwrap().starts_with(wanted) {
                    continue;
                }
                let own = json!({"name": tool["name"], "description": tool["description"], "input_schema": tool["inputSchema"]});
                let text = CanonicalJson::from_value(&own).unwrap();
                let digest = Hash::of(text.as_str().as_bytes()).to_string();
                let mut one = own;
                one["digest"] = json!(digest);
                one["server"] = json!(server.1);
                one["tool"] = tool["name"].clone();
                offered.push(one);
            }
        }
        json!(offered)
    }

    /// A message to a server of the orchestrator.
    async fn says(&self, server: &str, method: &str, params: Value) -> Value {
        let task = &self.task;
        let text = |name: &str| task[name].as_str().unwrap().to_owned();
        let (url, run, step) = (text("callback_url"), text("run_id"), text("step_id"));
        let token = url.split_once("token=").unwrap().1;
        let attempt = &task["attempt"];
        let path =
            format!("/tools/ktsu/{server}?run={run}&step={step}&attempt={attempt}&token={token}");
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let answer = self.client.post(&path, body.to_string()).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()["result"].clone()
    }

    /// Sends a call that is recorded.
    async fn sends(&self, call: &Call, called: &Value) -> Value {
        let ((server, _), tool, arguments) = call;
        let meta = json!({"ktsu/idempotency-key": called["idempotency_key"]});
        let params = json!({"name": tool, "arguments": arguments, "_meta": meta});
        let given = self.says(server, "tools/call", params).await;
        assert_eq!(given["isError"], false, "{given}");
        given
    }

    /// The model asks for calls; they are recorded, the first words of the report included.
    async fn wants(&mut self, told: Value, calls: &[Call]) -> (u64, Vec<(u64, Value)>) {
        let asked = calls.iter().enumerate().map(|(n, (_, tool, arguments))| {
            json!({"id": format!("call_{n}"), "name": tool, "arguments": arguments})
        });
        let asked: Vec<Value> = asked.collect();
        let response = self.asks(told, json!({"tool_calls": asked})).await;
        let mut events = vec![json!({"type": "agent.decided", "data": {"response": response}})];
        events.extend(
            (0u32..)
                .zip(calls)
                .map(|(n, call)| called(response, n, call)),
        );
        let mut recorded = self.report(json!(events)).await;
        recorded.remove(0);
        (response, recorded)
    }

    /// What a call gave, for the model.
    async fn returns(&mut self, response: u64, call: u32, given: &Value) -> u64 {
        let data = json!({"response": response, "call": call, "content": given["content"], "structured": given["structuredContent"], "is_error": false, "duration_ms": 1});
        let recorded = self
            .report(json!([{"type": "tool.returned", "data": data}]))
            .await;
        recorded[0].0
    }

    /// A whole turn: the calls, what they give, and the messages that tell the model of it.
    async fn turn(&mut self, told: Value, calls: &[Call]) -> Value {
        let (response, recorded) = self.wants(told, calls).await;
        let mut messages = vec![json!({"role": "assistant", "frame": response})];
        for ((n, call), (_, called)) in (0u32..).zip(calls).zip(&recorded) {
            let given = self.sends(call, called).await;
            let frame = self.returns(response, n, &given).await;
            messages.push(json!({"role": "tool", "frame": frame}));
        }
        json!(messages)
    }

    async fn ends(&mut self, told: Value, answer: &str) {
        let output = json!({"answer": answer});
        let content = output.to_string();
        self.asks(told, json!({"content": content})).await;
        let outcome = json!({"reason": "completed", "outcome": {"output": output}});
        self.report(json!([{"type": "agent.finished", "data": outcome}]))
            .await;
    }
}

fn called(response: u64, n: u32, call: &Call) -> Value {
    let ((_, server), tool, _) = call;
    json!({"type": "tool.called", "data": {"response": response, "call": n, "server": server, "tool": tool}})
}

/// Records the ledger.
pub(super) async fn record(path: &Path) {
    let kit = KitDir::new(&[("keeps", FLOW)])
        .with("agents/keeper.agent.yaml", KEEPER)
        .with("gateway.yaml", GATEWAY);
    let runtime = Sink::scripted(|_| Reply::Now(202, String::new())).await;
    let place = LedgerPlace::File(path.to_owned());
    let pairs = [("SINK", runtime.url.as_str()), ("TOKEN", TOKEN)];
    let lab = Lab::remote_in(place, &kit, "name: test\n", &pairs, &runtime.url).await;
    first(&lab.client, &runtime).await;
    second(&lab.client, &runtime).await;
    lab.close().await;
}

/// The next task that was dispatched.
async fn hand(client: &Client, runtime: &Sink, number: usize) -> Hand {
    let invoked = |heard: &[crate::support::sink::Heard]| -> Vec<Value> {
        let invoked = heard.iter().filter(|one| one.path == "/invoke");
        invoked.map(|one| one.json()).collect()
    };
    runtime.until(|heard| invoked(heard).len() > number).await;
    Hand::of(client, invoked(&runtime.heard()).remove(number))
}

/// A run that sets, deletes, lists and looks at the step before it.
async fn first(client: &Client, runtime: &Sink) {
    let run = client.invoke("keeps", json!({"note": "keep this"})).await;
    let mut hand = hand(client, runtime, 0).await;
    let told = hand
        .turn(
            json!([]),
            &[
                (
                    KV,
                    "kv-set",
                    json!({"key": "k", "value": {"said": "first"}}),
                ),
                (KV, "kv-set", json!({"key": "l", "value": 2})),
                (ENVELOPE, "envelope-get", json!({"step": "before"})),
            ],
        )
        .await;
    let told = hand
        .turn(
            told,
            &[
                (KV, "kv-delete", json!({"key": "l"})),
                (KV, "kv-list", json!({})),
            ],
        )
        .await;
    hand.ends(told, "kept").await;
    let envelope = client.ended(&run).await;
    assert_eq!(envelope["status"], "complete", "{envelope:#}");
}

/// A later run of the workflow, which finds what was kept, and whose call is sent twice: its answer
/// was lost, and a person had it sent again.
async fn second(client: &Client, runtime: &Sink) {
    let run = client.invoke("keeps", json!({"note": "and this"})).await;
    let mut before = hand(client, runtime, 1).await;
    let told = before
        .turn(json!([]), &[(KV, "kv-get", json!({"key": "k"}))])
        .await;
    let sets: [Call; 1] = [(KV, "kv-set", json!({"key": "k", "value": "second"}))];
    let (response, recorded) = before.wants(told.clone(), &sets).await;
    let (seq, first) = &recorded[0];
    before.sends(&sets[0], first).await;
    before
        .report(json!([{"type": "tool.in_doubt", "data": {"called": seq}}]))
        .await;
    let path = format!("/runs/{run}/steps/keep/approval/decide");
    let word = json!({"decision": "approved", "reason": "it can be sent twice"});
    let decided = client.post(&path, word.to_string()).await;
    assert_eq!(decided.status, 200, "{}", decided.text());

    let mut after = hand(client, runtime, 2).await;
    let recorded = after.report(json!([called(response, 0, &sets[0])])).await;
    let again = &recorded[0].1;
    assert_eq!(again["idempotency_key"], first["idempotency_key"]);
    let given = after.sends(&sets[0], again).await;
    let frame = after.returns(response, 0, &given).await;
    let mut messages = told.as_array().unwrap().clone();
    messages.push(json!({"role": "assistant", "frame": response}));
    messages.push(json!({"role": "tool", "frame": frame}));
    after.ends(json!(messages), "kept twice").await;
    let envelope = client.ended(&run).await;
    assert_eq!(envelope["status"], "complete", "{envelope:#}");
}

#[test]
fn a_call_that_came_twice_is_one_fact_among_what_was_kept() {
    for name in ["v1-kept", NAME] {
        one_fact_among_what_was_kept(name);
    }
}

fn one_fact_among_what_was_kept(name: &str) {
    let (_folder, path) = imported(name);
    let reader = SqliteReader::open(&path).unwrap();
    let streams = reader.streams(None, 100).unwrap();
    let kept: Vec<&StreamId> = streams.iter().filter(|one| one.kind() == "kv").collect();
    assert_eq!(kept.len(), 1, "later runs share a namespace");
    let frames = branch::frames(&reader, kept[0]).unwrap();
    let told: Vec<String> = frames
        .iter()
        .map(|frame| format!("{} {}", frame.event.kind(), frame.event.data()["key"]))
        .collect();
    let expected = [
        "kv.set \"k\"",
        "kv.set \"l\"",
        "kv.deleted \"l\"",
        "kv.set \"k\"",
    ];
    assert_eq!(told, expected);
    let runs = streams.iter().filter(|one| one.kind() == "run");
    let sent = |run: &StreamId| -> Vec<Value> {
        let frames = branch::frames(&reader, run).unwrap().into_iter();
        let called = frames.filter(|frame| frame.event.kind() == "tool.called");
        called.map(|frame| frame.event.data()).collect()
    };
    let calls: Vec<Value> = runs.flat_map(sent).collect();
    let sets = calls.iter().filter(|one| one["tool"] == "kv-set");
    let again: Vec<&Value> = sets.filter(|one| one.get("again").is_some()).collect();
    assert_eq!((calls.len(), again.len()), (8, 1));
    let last = frames.last().unwrap().event.data();
    assert_eq!(again[0]["idempotency_key"], last["idempotency_key"]);
}
