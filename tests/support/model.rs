//! A provider of models over loopback that follows a script, and kits whose agents ask it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{Request, Response};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::{KitDir, guarded};

/// The provider's key, and where gateways find it.
pub(crate) const KEY: (&str, &str) = ("LLM_KEY", "sk-of-the-provider");
/// What a call costs in millionths of a dollar: 1000 tokens in and 200 out of `gpt-4o-mini`.
pub(crate) const COST: u64 = 270;

/// A request that came.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Call {
    pub(crate) path: String,
    pub(crate) authorization: String,
    pub(crate) body: Value,
}

impl Call {
    /// `(role, content)` of every message.
    pub(crate) fn messages(&self) -> Vec<(String, String)> {
        let messages = self.body["messages"].as_array().unwrap();
        // A reply that asks for tools may say nothing beside.
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let pair = |one: &Value| (text(&one["role"]), text(&one["content"]));
        messages.iter().map(pair).collect()
    }

    /// The first message of the user: what an agent makes of its params.
    pub(crate) fn user(&self) -> String {
        let messages = self.messages();
        let user = messages.into_iter().find(|(role, _)| role == "user");
        user.unwrap().1
    }

    /// How many replies of the model it goes on from: 0 in the first turn.
    pub(crate) fn turn(&self) -> usize {
        let messages = self.messages();
        messages
            .iter()
            .filter(|(role, _)| role == "assistant")
            .count()
    }

    /// The results of tools since the last reply, in order.
    pub(crate) fn results(&self) -> Vec<String> {
        let messages = self.messages().into_iter().rev();
        let mut results: Vec<String> = messages
            .take_while(|(role, _)| role == "tool")
            .map(|(_, content)| content)
            .collect();
        results.reverse();
        results
    }

    /// Every message in one text; calls with the same one are the same call made twice.
    pub(crate) fn content(&self) -> String {
        self.body["messages"].to_string()
    }
}

/// How to answer.
#[derive(Debug, Clone)]
pub(crate) enum Said {
    /// This text, at once.
    Text(String),
    /// Asks for these tools, with these arguments.
    Calls(Vec<(String, Value)>),
    /// An HTTP error.
    Error(u16),
    /// A reply that was cut off before it had any text, with the usage of every call here.
    Nothing,
    /// This status and body, as they are.
    Body(u16, Value),
    /// Once somebody opens the gate of this name.
    When(String, Box<Said>),
    /// Never.
    Never,
}

impl Said {
    pub(crate) fn json(value: &Value) -> Self {
        Self::Text(value.to_string())
    }

    pub(crate) fn answer(text: &str) -> Self {
        Self::json(&json!({ "answer": text }))
    }

    pub(crate) fn calls(calls: &[(&str, Value)]) -> Self {
        let owned = calls
            .iter()
            .map(|(name, arguments)| ((*name).to_owned(), arguments.clone()));
        Self::Calls(owned.collect())
    }

    pub(crate) fn when(self, gate: &str) -> Self {
        Self::When(gate.to_owned(), Box::new(self))
    }
}

type Script = dyn Fn(&Call) -> Said + Send + Sync;

/// See the module documentation. It stops with its runtime.
#[derive(Clone)]
pub(crate) struct Model {
    pub(crate) url: String,
    shared: Arc<Shared>,
}

struct Shared {
    script: Mutex<Arc<Script>>,
    calls: watch::Sender<Vec<Call>>,
    open: watch::Sender<BTreeSet<String>>,
}

impl Model {
    /// Says back what the user says.
    pub(crate) async fn echo() -> Self {
        Self::scripted(|call| Said::Text(call.user())).await
    }

    /// Answers as told.
    pub(crate) async fn scripted(script: impl Fn(&Call) -> Said + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let shared = Arc::new(Shared {
            script: Mutex::new(Arc::new(script)),
            calls: watch::Sender::default(),
            open: watch::Sender::default(),
        });
        let router = Router::new().fallback(answer).with_state(shared.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { url, shared }
    }

    /// Answers otherwise from now on.
    pub(crate) fn say(&self, script: impl Fn(&Call) -> Said + Send + Sync + 'static) {
        *self.shared.script.lock().unwrap() = Arc::new(script);
    }

    /// Lets whoever waits at a gate go on.
    pub(crate) fn open(&self, gate: &str) {
        self.shared.open.send_modify(|open| {
            open.insert(gate.to_owned());
        });
    }

    /// What came so far.
    pub(crate) fn calls(&self) -> Vec<Call> {
        self.shared.calls.borrow().clone()
    }

    /// How often every request came.
    pub(crate) fn counts(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for call in self.calls() {
            *counts.entry(call.content()).or_default() += 1;
        }
        counts
    }

    /// The first messages of users, in the order in which they came.
    pub(crate) fn users(&self) -> Vec<String> {
        self.calls().iter().map(Call::user).collect()
    }

    /// Forgets what came, and shuts all gates.
    pub(crate) fn forget(&self) {
        self.shared.calls.send_replace(Vec::new());
        self.shared.open.send_replace(BTreeSet::new());
    }

    /// Waits until what came is as wanted.
    pub(crate) async fn until(&self, wanted: impl Fn(&[Call]) -> bool) {
        let mut calls = self.shared.calls.subscribe();
        let waiting = calls.wait_for(|calls| wanted(calls));
        drop(guarded("a model call", waiting).await.unwrap());
    }
}

async fn answer(State(shared): State<Arc<Shared>>, request: Request<Body>) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.unwrap_or_default().to_bytes();
    let authorization = parts.headers.get("authorization");
    let call = Call {
        path: parts.uri.to_string(),
        authorization: authorization
            .map_or("", |text| text.to_str().unwrap())
            .to_owned(),
        body: serde_json::from_slice(&body).unwrap(),
    };
    let script = shared.script.lock().unwrap().clone();
    let mut said = script(&call);
    let model = call.body["model"].clone();
    let turn = call.turn();
    shared.calls.send_modify(|all| all.push(call));
    loop {
        let (status, text) = match said {
            Said::Text(text) => (200, completion(&model, &text)),
            Said::Calls(calls) => (200, asking(&model, turn, &calls)),
            Said::Nothing => (
                200,
                completion(&model, "").replace("\"stop\"", "\"length\""),
            ),
            Said::Body(status, body) => (status, body.to_string()),
            Said::Error(status) => (status, json!({"error": {"message": "told to"}}).to_string()),
            Said::When(gate, then) => {
                let mut open = shared.open.subscribe();
                drop(open.wait_for(|open| open.contains(&gate)).await.unwrap());
                said = *then;
                continue;
            }
            Said::Never => std::future::pending().await,
        };
        let response = Response::builder().status(status);
        return response.body(Body::from(text)).unwrap();
    }
}

/// A chat completion with the usage of every call here.
pub(crate) fn completion(model: &Value, text: &str) -> String {
    let message = json!({"role": "assistant", "content": text});
    json!({
        "id": "chatcmpl-1", "object": "chat.completion", "model": model,
        "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
        "usage": {"prompt_tokens": 1000, "completion_tokens": 200, "total_tokens": 1200},
    })
    .to_string()
}

/// One that asks for tools.
fn asking(model: &Value, turn: usize, calls: &[(String, Value)]) -> String {
    let call = |(at, (name, arguments)): (usize, &(String, Value))| {
        let function = json!({"name": name, "arguments": arguments.to_string()});
        json!({"id": format!("call_{turn}_{at}"), "type": "function", "function": function})
    };
    let calls: Vec<Value> = calls.iter().enumerate().map(call).collect();
    let message = json!({"role": "assistant", "content": null, "tool_calls": calls});
    json!({
        "id": "chatcmpl-1", "object": "chat.completion", "model": model,
        "choices": [{"index": 0, "finish_reason": "tool_calls", "message": message}],
        "usage": {"prompt_tokens": 1000, "completion_tokens": 200, "total_tokens": 1200},
    })
    .to_string()
}

/// Says back its param `msg`, and must have an `answer`.
pub(crate) const ECHO: &str = r#"
name: echo
version: 1.0.0
model: std
params: {schema: {type: object, required: [msg], properties: {msg: {type: string}}}}
prompt: {system: s, user: "{{ params.msg }}"}
output: {schema: {type: object, required: [answer], properties: {answer: {type: string}, ktsu_confidence: {type: number}}}}
"#;

/// The same, and looks at its draft once more.
pub(crate) const REFLECTS: &str = r#"
name: reflects
version: 1.0.0
model: std
params: {schema: {type: object, required: [msg], properties: {msg: {type: string}}}}
prompt: {system: s, user: "{{ params.msg }}", reflect: "Look at it once more."}
output: {schema: {type: object, required: [answer], properties: {answer: {type: string}, ktsu_confidence: {type: number}}}}
"#;

/// Groups of a provider at this URL.
pub(crate) fn gateway(url: &str) -> String {
    format!(
        r#"
env: [{{name: LLM_KEY, secret: true}}]
providers: [{{name: fake, type: openai, config: {{base_url: "{url}/v1", api_key: "{{{{ env.LLM_KEY }}}}"}}}}]
model_groups:
  - {{name: std, models: [fake/gpt-4o-mini]}}
  - {{name: large, models: [fake/gpt-4o]}}
"#
    )
}

/// A kit with the agents above, and a gateway that asks this model.
pub(crate) fn kit(model: &Model, workflows: &[(&str, &str)]) -> KitDir {
    KitDir::new(workflows)
        .with("agents/echo.agent.yaml", ECHO)
        .with("agents/reflects.agent.yaml", REFLECTS)
        .with("gateway.yaml", &gateway(&model.url))
}
