//! A fake orchestrator and a fake gateway, on loopback or in process.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::{Json as Body, OriginalUri, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

/// What goes wrong with the next request.
#[derive(Debug, Clone, Copy)]
pub(super) enum Fault {
    /// It is answered with this status.
    Status(u16),
    /// It is recorded, and the connection breaks before the answer.
    Break,
    /// It is answered, with nothing recorded.
    Forget,
}

/// Records what is reported, with `s3cret` redacted.
#[derive(Clone)]
pub(super) struct Orchestrator(Arc<Mutex<Recorded>>);

#[derive(Default)]
pub(super) struct Recorded {
    pub(super) reflect: bool,
    pub(super) refused: Option<Value>,
    pub(super) faults: VecDeque<Fault>,
    pub(super) stop: Vec<Value>,
    /// Reports with an event of this type are refused for good.
    pub(super) refuse: Option<&'static str>,
    /// Events of this type are answered with `suspended`, too.
    pub(super) suspend: Option<&'static str>,
    /// Path with query, and body, of everything that came.
    pub(super) came: Vec<(String, Vec<u8>)>,
    /// `{seq, type, data}`.
    pub(super) frames: Vec<Value>,
    answered: HashMap<(u64, u64), Value>,
    heard: Option<mpsc::UnboundedSender<(String, Value)>>,
}

/// What came, as it comes.
pub(super) type Heard = mpsc::UnboundedReceiver<(String, Value)>;

impl Orchestrator {
    pub(super) fn new() -> (Self, Heard) {
        let (heard, hears) = mpsc::unbounded_channel();
        let recorded = Recorded {
            heard: Some(heard),
            ..Recorded::default()
        };
        (Self(Arc::new(Mutex::new(recorded))), hears)
    }

    pub(super) fn with<T>(&self, look: impl FnOnce(&mut Recorded) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(|broken| broken.into_inner()))
    }

    pub(super) fn router(&self) -> Router {
        Router::new()
            .fallback(post(Self::take))
            .with_state(self.clone())
    }

    async fn take(
        State(this): State<Self>,
        OriginalUri(uri): OriginalUri,
        body: axum::body::Bytes,
    ) -> (StatusCode, Json<Value>) {
        let (answer, fault) = this.with(|recorded| recorded.take(uri.to_string(), &body));
        match fault {
            Some(Fault::Status(status)) => {
                (StatusCode::from_u16(status).unwrap(), Json(Value::Null))
            }
            Some(Fault::Break) => panic!("the connection breaks (on purpose)"),
            Some(Fault::Forget) => (StatusCode::OK, Json(json!({"n": 0, "events": []}))),
            None => (StatusCode::OK, Json(answer)),
        }
    }

    /// Types of the frames, in order.
    pub(super) fn types(&self) -> Vec<String> {
        let kind = |frame: &Value| frame["type"].as_str().unwrap().to_owned();
        self.with(|recorded| recorded.frames.iter().map(kind).collect())
    }

    /// The numbers of the reports, with the types of each.
    pub(super) fn reports(&self) -> Vec<(u64, Vec<String>)> {
        let report = |(_, body): &(String, Vec<u8>)| {
            let report: Value = serde_json::from_slice(body).unwrap();
            let events = report["events"].as_array().unwrap().iter();
            let types = events.map(|event| event["type"].as_str().unwrap().to_owned());
            (report["n"].as_u64().unwrap(), types.collect())
        };
        self.with(|recorded| recorded.came.iter().map(report).collect())
    }

    /// The data of the last frame of a type.
    pub(super) fn last(&self, kind: &str) -> Value {
        self.with(|recorded| {
            let found = recorded.frames.iter().rfind(|frame| frame["type"] == kind);
            found.unwrap_or_else(|| panic!("no {kind}"))["data"].clone()
        })
    }
}

impl Recorded {
    /// Fills in what the orchestrator knows better, and says that people are asked.
    fn tool(&self, kind: &Value, data: &mut Value, answer: &mut Value) {
        match kind.as_str().unwrap() {
            "tool.called" => {
                let again = self.frames.iter().find(|frame| {
                    let same = |name: &str| frame["data"][name] == data[name];
                    frame["type"] == "tool.called" && same("response") && same("call")
                });
                let key = format!("key {}/{}", data["response"], data["call"]);
                data["idempotency_key"] = json!(key);
                if let Some(again) = again {
                    data["again"] = again["seq"].clone();
                }
            }
            "approval.requested" | "tool.in_doubt" => answer["suspended"] = json!(true),
            "agent.finished" => answer["suspended"] = json!(false),
            kind if self.suspend == Some(kind) => answer["suspended"] = json!(true),
            _ => {}
        }
    }

    fn take(&mut self, path: String, body: &[u8]) -> (Value, Option<Fault>) {
        let said: Value = serde_json::from_slice(body).unwrap();
        if let Some(heard) = &self.heard {
            let _ = heard.send((path.clone(), said.clone()));
        }
        if path == "/heartbeat" {
            return (json!({"stop": self.stop}), None);
        }
        self.came.push((path.clone(), body.to_vec()));
        let mut fault = self.faults.pop_front();
        let refused = |event: &Value| self.refuse.is_some_and(|kind| event["type"] == kind);
        if said["events"]
            .as_array()
            .is_some_and(|events| events.iter().any(refused))
        {
            fault = Some(Fault::Status(422));
        }
        if matches!(fault, Some(Fault::Status(_) | Fault::Forget)) || !path.contains("/report") {
            return (Value::Null, fault);
        }
        (self.report(&said), fault)
    }

    fn report(&mut self, report: &Value) -> Value {
        let name = (
            report["attempt"].as_u64().unwrap(),
            report["n"].as_u64().unwrap(),
        );
        if let Some(answer) = self.answered.get(&name) {
            return answer.clone();
        }
        let mut events = Vec::new();
        let mut answer = json!({"n": name.1});
        for event in report["events"].as_array().unwrap() {
            if event["type"] == "llm.request" && self.refused.is_some() {
                answer["refused"] = self.refused.clone().unwrap();
                continue;
            }
            if event["type"] == "agent.decided" {
                answer["reflect"] = json!(self.reflect);
            }
            let held = |call: &Value| call["arguments"].to_string().contains("s3cret");
            let calls = event["data"]["tool_calls"].as_array();
            let held: Vec<bool> = calls.into_iter().flatten().map(held).collect();
            let text = event["data"].to_string().replace("s3cret", "[REDACTED]");
            let mut data: Value = serde_json::from_str(&text).unwrap();
            for (at, held) in held.into_iter().enumerate() {
                if held {
                    data["tool_calls"][at]["secret"] = json!(true);
                }
            }
            self.tool(&event["type"], &mut data, &mut answer);
            let seq = 10 + 2 * self.frames.len();
            let frame = json!({"seq": seq, "type": event["type"], "data": data});
            self.frames.push(frame.clone());
            events.push(frame);
        }
        answer["events"] = json!(events);
        self.answered.insert(name, answer.clone());
        answer
    }
}

/// What a gateway does with the next call; once there is nothing left, the last again.
#[derive(Debug, Clone)]
pub(super) enum Say {
    /// Replies with this text.
    Text(&'static str),
    /// Asks for tools: names and arguments.
    Calls(&'static [(&'static str, &'static str)]),
    /// Answers with this status and body.
    Error(u16, Value),
    /// Breaks the connection.
    Break,
    /// Does not answer.
    Hang,
}

/// Says what it is told to.
#[derive(Clone)]
pub(super) struct Gateway(Arc<Mutex<Told>>);

struct Told {
    says: VecDeque<Say>,
    /// The idempotency key and the body of every call.
    asked: Vec<(String, Value)>,
    news: mpsc::UnboundedSender<News>,
}

/// What happens to calls.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum News {
    /// One came.
    Asked,
    /// Whoever waited for an answer went away.
    Dropped,
}

struct Hanging(mpsc::UnboundedSender<News>);

impl Drop for Hanging {
    fn drop(&mut self) {
        let _ = self.0.send(News::Dropped);
    }
}

impl Gateway {
    pub(super) fn new(
        says: impl IntoIterator<Item = Say>,
    ) -> (Self, mpsc::UnboundedReceiver<News>) {
        let (news, learns) = mpsc::unbounded_channel();
        let told = Told {
            says: says.into_iter().collect(),
            asked: Vec::new(),
            news,
        };
        (Self(Arc::new(Mutex::new(told))), learns)
    }

    pub(super) fn router(&self) -> Router {
        Router::new()
            .route("/invoke", post(Self::answer))
            .with_state(self.clone())
    }

    pub(super) fn asked(&self) -> Vec<(String, Value)> {
        self.0.lock().unwrap().asked.clone()
    }

    async fn answer(
        State(this): State<Self>,
        headers: HeaderMap,
        Body(call): Body<Value>,
    ) -> (StatusCode, Json<Value>) {
        let key = headers["idempotency-key"].to_str().unwrap().to_owned();
        let (say, news) = {
            let mut told = this.0.lock().unwrap();
            told.asked.push((key, call));
            let last = told.says.len() == 1;
            let say = if last {
                told.says[0].clone()
            } else {
                told.says.pop_front().unwrap()
            };
            (say, told.news.clone())
        };
        let _ = news.send(News::Asked);
        match say {
            Say::Text(text) => {
                let reply = json!({"content": text, "model_resolved": "scripted/one/two",
                                   "tokens_in": 3, "tokens_out": 4, "cost_usd": 0.000_001_5});
                (StatusCode::OK, Json(reply))
            }
            Say::Calls(calls) => {
                let call = |(at, (name, arguments)): (usize, &(&str, &str))| {
                    let arguments: Value = serde_json::from_str(arguments).unwrap();
                    json!({"id": format!("c{at}"), "name": name, "arguments": arguments})
                };
                let calls: Vec<Value> = calls.iter().enumerate().map(call).collect();
                let reply = json!({"content": "", "model_resolved": "scripted/one",
                                   "tool_calls": calls});
                (StatusCode::OK, Json(reply))
            }
            Say::Error(status, body) => (StatusCode::from_u16(status).unwrap(), Json(body)),
            Say::Break => panic!("the connection breaks (on purpose)"),
            Say::Hang => {
                let _hanging = Hanging(news);
                std::future::pending().await
            }
        }
    }
}

/// Serves a router at a port of the system's choice; gives the URL.
pub(super) async fn serve(router: Router) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    url
}

/// A test that hangs says so.
pub(super) async fn soon<T>(what: impl Future<Output = T>) -> T {
    let limit = Duration::from_secs(30);
    tokio::time::timeout(limit, what).await.expect("in time")
}
