//! Runs whose agents call tools, and the people who decide. The sink is the provider of models and
//! two tool servers, `desk` and `book`; calls of `book` change what lasts.
//!
//! What a user's message says is what the model does: a list of turns, each a list of `[tool,
//! arguments]`. Then it answers with what the last turn's tools gave.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;

use ktsu::assemble::LedgerPlace;
use ktsu_ledger::StreamId;
use ktsu_ledger::store::SqliteReader;
use ktsu_orchestrator::MicrosClock;
use ktsu_projections::approvals::approval_id;
use serde_json::{Value, json};

use super::super::ledgers::Recorded;
use super::super::model::completion;
use super::super::sink::{Heard, Reply};
use super::super::{Client, KitDir, Lab, Sink};
use super::TOKEN;
use super::agents::{GATEWAY, asks_a_model};

/// Who says what: `approved`, `rejected`, `happened`.
pub(crate) type Word = (&'static str, &'static str);

/// A run with tools.
#[derive(Clone)]
pub(crate) struct Acting {
    pub(crate) name: String,
    /// What the agent may call at the desk, as YAML.
    desk: String,
    turns: Value,
    /// By tool, in the order in which people are asked.
    words: Vec<(&'static str, Vec<Word>)>,
    /// Whether the engine is started again while a call is on its way.
    again: bool,
    clock: Option<MicrosClock>,
}

const PEOPLE: [(&str, &str); 4] = [
    ("pia", "operator"),
    ("ann", "approver"),
    ("bob", "approver"),
    ("eva", "admin"),
];

const AGENT: &str = r#"
name: acts
version: 1.0.0
model: std
max_turns: 4
params: {schema: {type: object, required: [msg], properties: {msg: {type: string}}}}
prompt: {system: s, user: "{{ params.msg }}"}
output: {schema: {type: object, required: [answer], properties: {answer: {type: string}}}}
servers:
  - {name: desk, path: ../servers/desk.server.yaml, access: {allowlist: DESK}}
  - {name: book, path: ../servers/book.server.yaml, access: {allowlist: [write, slow-write]}}
"#;

const FLOW: &str = r#"
params: {schema: {type: object, required: [turns], properties: {turns: {type: string}}}}
pipeline:
  - {id: act, agent: ./agents/acts.agent.yaml, params: {msg: "{{ params.turns }}"}}
  - {id: after, transform: {inputs: [{from: step.act.answer}], ops: []}}
output: {map: {said: "{{ step.after.result }}"}}
"#;

fn server(name: &str, more: &str) -> String {
    format!(
        "name: {name}\nversion: 1.0.0\nurl: http://{name}.example/mcp\n{more}access: {{allowlist: [\"*\"]}}\n"
    )
}

/// An engine with a ledger file, and everybody's way to it.
pub(crate) struct Stage {
    pub(crate) lab: Lab,
    pub(crate) sink: Sink,
}

impl Stage {
    pub(crate) fn of(&self, who: &str) -> Client {
        Client::showing(&self.lab.engine.url, &token(who))
    }

    /// Follows a run to its end; whoever is asked says what stands here, or nothing.
    pub(crate) async fn attend(&self, run: &str, mut say: impl FnMut(&str) -> Vec<Word>) {
        let mut events = self.of("eva").events(run, None).await;
        let mut tools = BTreeMap::new();
        while let Some(event) = events.next().await {
            let frame: Value = serde_json::from_str(&event.data).unwrap();
            let data = &frame["data"];
            let tool = match frame["type"].as_str().unwrap() {
                "tool.called" => {
                    tools.insert(event.id, data["tool"].clone());
                    continue;
                }
                "approval.requested" => &data["tool"],
                "tool.in_doubt" => &tools[&data["called"].as_u64().unwrap()],
                _ => continue,
            };
            // What a branch shares was asked elsewhere.
            let stream: StreamId = frame["stream"].as_str().unwrap().parse().unwrap();
            if stream.name() != run {
                continue;
            }
            for (who, decision) in say(tool.as_str().unwrap()) {
                let mut body = json!({"decision": decision, "reason": format!("{who} says so"),
                    "approval_id": approval_id(&stream, event.id)});
                if decision == "happened" {
                    body["result"] = json!("it was done by hand");
                }
                let path = format!("/runs/{run}/steps/act/approval/decide");
                let answer = self.of(who).post(&path, body.to_string()).await;
                assert_eq!(answer.status, 200, "{who}: {}", answer.text());
            }
        }
    }
}

fn token(who: &str) -> String {
    format!("token-of-{who}")
}

impl Acting {
    fn new(name: &str, desk: &str, turns: Value) -> Self {
        Self {
            name: format!("tool-{name}"),
            desk: desk.to_owned(),
            turns,
            words: Vec::new(),
            again: false,
            clock: None,
        }
    }

    fn says(mut self, tool: &'static str, words: &[Word]) -> Self {
        self.words.push((tool, words.to_vec()));
        self
    }

    fn started_again(mut self) -> Self {
        self.again = true;
        self
    }

    /// By another clock.
    pub(crate) fn by(mut self, clock: MicrosClock) -> Self {
        self.clock = Some(clock);
        self
    }

    pub(crate) fn kit(&self) -> KitDir {
        KitDir::new(&[("root", FLOW)])
            .with("agents/acts.agent.yaml", &AGENT.replace("DESK", &self.desk))
            .with("servers/desk.server.yaml", &server("desk", ""))
            .with(
                "servers/book.server.yaml",
                &server("book", "stateful: true\n"),
            )
            .with("gateway.yaml", GATEWAY)
    }

    /// An engine on a ledger file.
    pub(crate) async fn stage(&self, ledger: &Path, sink: &Sink) -> Stage {
        let kit = self.kit();
        let url = &sink.url;
        let mut text = format!(
            "egress: {{allow: [127.0.0.1]}}\nservers: {{desk: {{url: \"{url}/desk\"}}, book: {{url: \"{url}/book\"}}}}\nvariables:\n"
        );
        for (who, _) in PEOPLE {
            text.push_str(&format!("  T_{who}: {}\n", token(who)));
        }
        text.push_str("principals:\n");
        for (who, role) in PEOPLE {
            text.push_str(&format!(
                "  - {{name: {who}, token: {{env: T_{who}}}, roles: [{role}]}}\n"
            ));
        }
        let place = LedgerPlace::File(ledger.to_owned());
        let pairs = [("SINK", url.as_str()), ("TOKEN", TOKEN)];
        let clock = self.clock.clone();
        let lab = Lab::in_environment_at(place, &kit, &text, &pairs, clock).await;
        Stage {
            lab,
            sink: sink.clone(),
        }
    }

    /// Plays it to its end; the engine is left open.
    pub(crate) async fn play(&self, ledger: &Path) -> (Stage, String) {
        let sink = Sink::scripted(world).await;
        let mut stage = self.stage(ledger, &sink).await;
        let body = json!({"turns": self.turns.to_string()});
        let run = stage.of("pia").invoke("root", body).await;
        if self.again {
            let slow = |heard: &Heard| tool_of(heard).is_some_and(|tool| tool.starts_with("slow"));
            sink.until(|heard| heard.iter().any(slow)).await;
            stage.lab.close().await;
            sink.open("slow");
            stage = self.stage(ledger, &sink).await;
        }
        let mut words: VecDeque<_> = self.words.clone().into();
        let say = |tool: &str| match words.front() {
            Some((wanted, _)) if *wanted == tool => words.pop_front().unwrap().1,
            _ => Vec::new(),
        };
        stage.attend(&run, say).await;
        (stage, run)
    }

    /// Plays it, and reads what was recorded.
    pub(crate) async fn record(&self) -> Recorded {
        let folder = tempfile::tempdir().unwrap();
        let ledger = folder.path().join("ledger.db");
        let (stage, run) = self.play(&ledger).await;
        stage.lab.close().await;
        Recorded::read(&SqliteReader::open(&ledger).unwrap(), &run)
    }
}

/// The tool that a request calls.
pub(crate) fn tool_of(heard: &Heard) -> Option<String> {
    let call: Value = serde_json::from_slice(&heard.body).ok()?;
    (call["method"] == "tools/call").then(|| call["params"]["name"].as_str().unwrap().to_owned())
}

/// The model and both servers.
pub(crate) fn world(heard: &Heard) -> Reply {
    match heard.path.as_str() {
        _ if asks_a_model(heard) => model(heard),
        _ if heard.method != "POST" => Reply::Now(405, String::new()),
        _ => serve(heard),
    }
}

fn model(heard: &Heard) -> Reply {
    let call = heard.json();
    let messages = call["messages"].as_array().unwrap();
    let turns: Value = serde_json::from_str(messages[1]["content"].as_str().unwrap()).unwrap();
    let of = |role: &str| messages.iter().filter(|one| one["role"] == role).count();
    let turn = of("assistant");
    let Some(wanted) = turns.get(turn) else {
        let told = messages.iter().filter(|one| one["role"] == "tool");
        let told: Vec<&str> = told.map(|one| one["content"].as_str().unwrap()).collect();
        let answer = json!({"answer": told.join("; ")}).to_string();
        return Reply::Now(200, completion(&call["model"], &answer));
    };
    let calls = wanted.as_array().unwrap().iter().enumerate();
    let calls = calls.map(|(at, one)| {
        let function = json!({"name": one[0], "arguments": one[1].to_string()});
        json!({"id": format!("call_{turn}_{at}"), "type": "function", "function": function})
    });
    let mut answer: Value = serde_json::from_str(&completion(&call["model"], "")).unwrap();
    answer["choices"][0]["finish_reason"] = json!("tool_calls");
    answer["choices"][0]["message"] =
        json!({"role": "assistant", "content": null, "tool_calls": calls.collect::<Value>()});
    Reply::Now(200, answer.to_string())
}

fn serve(heard: &Heard) -> Reply {
    let call = heard.json();
    let result = match call["method"].as_str().unwrap() {
        "initialize" => json!({"protocolVersion": call["params"]["protocolVersion"],
            "capabilities": {"tools": {}}, "serverInfo": {"name": "scripted", "version": "1"}}),
        "tools/list" => json!({"tools": tools(&heard.path)}),
        "tools/call" => {
            let name = call["params"]["name"].as_str().unwrap();
            let n = &call["params"]["arguments"]["n"];
            match name {
                "fail" => {
                    json!({"isError": true, "content": [{"type": "text", "text": format!("no {n} here")}]})
                }
                "blocks" => json!({"content": [{"type": "text", "text": format!("one {n}")},
                    {"type": "text", "text": "two"}], "structuredContent": {"n": n}}),
                _ => json!({"content": [{"type": "text", "text": format!("{name} {n} done")}]}),
            }
        }
        _ => return Reply::Now(202, String::new()),
    };
    let answer = json!({"jsonrpc": "2.0", "id": call["id"], "result": result}).to_string();
    match tool_of(heard) {
        Some(tool) if tool.starts_with("slow") => Reply::After("slow".to_owned(), 200, answer),
        _ => Reply::Now(200, answer),
    }
}

fn tools(path: &str) -> Value {
    let names: &[&str] = match path {
        "/book" => &["write", "slow-write"],
        _ => &[
            "read", "blocks", "fail", "slow", "drop", "ask", "late", "soft", "two",
        ],
    };
    let tool = |name: &&str| {
        let properties = json!({"n": {"type": "integer"}});
        json!({"name": name, "description": format!("Does {name}."),
            "inputSchema": {"type": "object", "properties": properties, "required": ["n"]}})
    };
    names.iter().map(tool).collect()
}

fn n(number: u64) -> Value {
    json!({ "n": number })
}

const GATED: &str = r#"[read, {name: drop, require_approval: {}}, {name: ask, require_approval: {on_reject: recover}}]"#;

/// All of them.
pub(crate) fn all() -> Vec<Acting> {
    let slow = json!([[["read", n(1)], ["slow", n(2)]]]);
    let doubt = json!([[["slow-write", n(1)], ["read", n(2)]]]);
    let soft = r#"[read, {name: soft, require_approval: {on_reject: recover, timeout: 1s, timeout_behavior: reject}}]"#;
    let late = r#"[{name: late, require_approval: {timeout: 1s, timeout_behavior: fail}}]"#;
    let two = r#"[{name: two, require_approval: {quorum: 2, not_by_proposer: true}}]"#;
    vec![
        Acting::new(
            "calls",
            "[read, blocks, fail, nowhere]",
            json!([
                [["read", n(1)], ["blocks", n(2)], ["fail", n(3)]],
                [["nowhere", n(4)], ["read", {"n": "five"}], ["write", n(6)]],
            ]),
        ),
        Acting::new("again", "[read, slow]", slow).started_again(),
        Acting::new("doubt-again", "[read]", doubt.clone())
            .started_again()
            .says("slow-write", &[("ann", "approved")]),
        Acting::new("doubt-happened", "[read]", doubt.clone())
            .started_again()
            .says("slow-write", &[("ann", "happened")]),
        Acting::new("doubt-ends", "[read]", doubt)
            .started_again()
            .says("slow-write", &[("ann", "rejected")]),
        Acting::new(
            "approved",
            GATED,
            json!([[["drop", n(1)], ["read", n(2)]], [["read", n(3)]]]),
        )
        .says("drop", &[("ann", "approved")]),
        Acting::new("rejected", GATED, json!([[["drop", n(1)]]]))
            .says("drop", &[("ann", "rejected")]),
        Acting::new(
            "recovers",
            GATED,
            json!([[["ask", n(1)]], [["read", n(2)]]]),
        )
        .says("ask", &[("bob", "rejected")]),
        Acting::new("late", late, json!([[["late", n(1)]]])),
        Acting::new("soft", soft, json!([[["soft", n(1)]], [["read", n(2)]]])),
        Acting::new("quorum", two, json!([[["two", n(1)]]]))
            .says("two", &[("ann", "approved"), ("bob", "approved")]),
        Acting::new(
            "two-gates",
            GATED,
            json!([
                [["drop", n(1)], ["ask", n(2)], ["read", n(3)]],
                [["drop", n(4)]]
            ]),
        )
        .says("drop", &[("ann", "approved")])
        .says("ask", &[("bob", "rejected")])
        .says("drop", &[("bob", "approved")]),
    ]
}
