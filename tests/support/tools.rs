//! A tool server over real HTTP that follows a script: what it offers, what a call gives, and what it
//! remembers. It answers each request with one JSON message, as the smallest servers do.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{Request, Response};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::guarded;

/// A call that came.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Asked {
    pub(crate) tool: String,
    pub(crate) arguments: Value,
    /// `_meta["ktsu/idempotency-key"]`.
    pub(crate) key: String,
    /// The header `x-key`.
    pub(crate) secret: String,
    /// Whether it was carried out; otherwise it was answered from memory.
    pub(crate) executed: bool,
}

/// What a call gives.
#[derive(Debug, Clone)]
pub(crate) enum Given {
    /// This text.
    Text(String),
    /// This text, as an error.
    Failed(String),
    /// Once somebody opens the gate of this name.
    When(String, Box<Given>),
    /// No answer; the connection ends.
    Broken,
}

impl Given {
    pub(crate) fn text(text: &str) -> Self {
        Self::Text(text.to_owned())
    }

    pub(crate) fn when(self, gate: &str) -> Self {
        Self::When(gate.to_owned(), Box::new(self))
    }
}

type Script = dyn Fn(&Asked) -> Given + Send + Sync;

/// See the module documentation. It stops with its runtime.
#[derive(Clone)]
pub(crate) struct ToolServer {
    pub(crate) url: String,
    shared: Arc<Shared>,
}

struct Shared {
    tools: Mutex<Value>,
    script: Mutex<Arc<Script>>,
    /// What was given under each key.
    memory: Mutex<BTreeMap<String, Given>>,
    sessions: Mutex<Sessions>,
    /// The numbers of the calls that came, and of those that were cancelled.
    numbers: Mutex<Vec<Value>>,
    cancelled: watch::Sender<Vec<Value>>,
    asked: watch::Sender<Vec<Asked>>,
    open: watch::Sender<BTreeSet<String>>,
}

/// The sessions of a server that keeps some.
#[derive(Default)]
struct Sessions {
    keeps: bool,
    /// The number of the last one.
    last: usize,
    /// Those up to this one are forgotten, and refused with this status.
    forgotten: Option<(usize, u16)>,
    /// The keys of the calls that were refused.
    refused: Vec<String>,
}

/// Tools of these names that take any object.
pub(crate) fn any(names: &[&str]) -> Value {
    let tool = |name: &&str| json!({"name": name, "inputSchema": {"type": "object"}});
    names.iter().map(tool).collect()
}

impl ToolServer {
    /// Offers these tools, and gives what it is told to. A key that came before is answered with
    /// what it was answered with then.
    pub(crate) async fn scripted(
        tools: Value,
        script: impl Fn(&Asked) -> Given + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let shared = Arc::new(Shared {
            tools: Mutex::new(tools),
            script: Mutex::new(Arc::new(script)),
            memory: Mutex::default(),
            sessions: Mutex::default(),
            numbers: Mutex::default(),
            cancelled: watch::Sender::default(),
            asked: watch::Sender::default(),
            open: watch::Sender::default(),
        });
        let router = Router::new().fallback(serve).with_state(shared.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { url, shared }
    }

    /// The tools of `kits/access-request`, over a folder.
    pub(crate) async fn files(root: PathBuf) -> Self {
        let path = json!({"type": "object", "required": ["path"], "properties": {"path": {"type": "string"}}});
        let write = json!({"type": "object", "required": ["path", "content"],
            "properties": {"path": {"type": "string"}, "content": {"type": "string"}}});
        let tools = json!([
            {"name": "read_text_file", "description": "Reads a file.", "inputSchema": path},
            {"name": "list_directory", "description": "Lists a folder.", "inputSchema": path},
            {"name": "write_file", "description": "Writes a file.", "inputSchema": write},
            {"name": "move_file", "description": "Moves a file.", "inputSchema": {"type": "object"}},
        ]);
        Self::scripted(tools, move |asked| on_disk(&root, asked)).await
    }

    /// Answers otherwise from now on.
    pub(crate) fn follow(&self, script: impl Fn(&Asked) -> Given + Send + Sync + 'static) {
        *self.shared.script.lock().unwrap() = Arc::new(script);
    }

    /// Gives each client a session from now on, and insists on it.
    pub(crate) fn keep_sessions(&self) {
        self.shared.sessions.lock().unwrap().keeps = true;
    }

    /// Forgets every session there is: whoever comes with one is refused with this status.
    pub(crate) fn forget_sessions(&self, status: u16) {
        let mut sessions = self.shared.sessions.lock().unwrap();
        sessions.forgotten = Some((sessions.last, status));
    }

    /// The keys of the calls that were refused for their session.
    pub(crate) fn refused(&self) -> Vec<String> {
        self.shared.sessions.lock().unwrap().refused.clone()
    }

    /// The numbers of the requests that were calls.
    pub(crate) fn numbers(&self) -> Vec<Value> {
        self.shared.numbers.lock().unwrap().clone()
    }

    /// The numbers of the requests that were cancelled.
    pub(crate) fn cancelled(&self) -> Vec<Value> {
        self.shared.cancelled.borrow().clone()
    }

    /// Waits until so many were.
    pub(crate) async fn until_cancelled(&self, count: usize) {
        let mut cancelled = self.shared.cancelled.subscribe();
        let waiting = cancelled.wait_for(|cancelled| cancelled.len() >= count);
        drop(guarded("a cancellation", waiting).await.unwrap());
    }

    /// Offers other tools from now on.
    pub(crate) fn offer(&self, tools: &Value) {
        *self.shared.tools.lock().unwrap() = tools.clone();
    }

    /// Lets whoever waits at a gate go on.
    pub(crate) fn open(&self, gate: &str) {
        self.shared.open.send_modify(|open| {
            open.insert(gate.to_owned());
        });
    }

    /// The calls that came so far.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.shared.asked.borrow().clone()
    }

    /// Those that were carried out.
    pub(crate) fn executed(&self) -> Vec<Asked> {
        let mut asked = self.asked();
        asked.retain(|asked| asked.executed);
        asked
    }

    /// Waits until the calls that came are as wanted.
    pub(crate) async fn until(&self, wanted: impl Fn(&[Asked]) -> bool) {
        let mut asked = self.shared.asked.subscribe();
        let waiting = asked.wait_for(|asked| wanted(asked));
        drop(guarded("a call of a tool", waiting).await.unwrap());
    }
}

fn on_disk(root: &std::path::Path, asked: &Asked) -> Given {
    let path = root.join(asked.arguments["path"].as_str().unwrap_or_default());
    let done = match asked.tool.as_str() {
        "read_text_file" => std::fs::read_to_string(&path),
        "list_directory" => std::fs::read_dir(&path).map(|files| {
            let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
            names.collect::<Vec<_>>().join("\n")
        }),
        "write_file" => {
            let content = asked.arguments["content"].as_str().unwrap_or_default();
            std::fs::write(&path, content).map(|()| "written".to_owned())
        }
        other => panic!("{other} was called"),
    };
    match done {
        Ok(text) => Given::Text(text),
        Err(error) => Given::Failed(error.to_string()),
    }
}

async fn serve(State(shared): State<Arc<Shared>>, request: Request<Body>) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.unwrap_or_default().to_bytes();
    let Ok(message) = serde_json::from_slice::<Value>(&body) else {
        // A stream of its own, or the end of a session: neither is offered.
        return plain(405);
    };
    let (id, params) = (&message["id"], &message["params"]);
    let session = parts.headers.get("mcp-session-id");
    let session = session.map(|name| name.to_str().unwrap());
    if let Some(status) = forgotten(&shared, session, &message) {
        return plain(status);
    }
    match message["method"].as_str().unwrap_or_default() {
        "initialize" => {
            let result = json!({"protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {}}, "serverInfo": {"name": "scripted", "version": "1"}});
            let mut opened = said(id, &result);
            let mut sessions = shared.sessions.lock().unwrap();
            if sessions.keeps {
                sessions.last += 1;
                let name = sessions.last.to_string().parse().unwrap();
                opened.headers_mut().insert("mcp-session-id", name);
            }
            opened
        }
        "tools/list" => {
            let tools = shared.tools.lock().unwrap().clone();
            said(id, &json!({"tools": tools}))
        }
        "tools/call" => {
            let secret = parts.headers.get("x-key");
            let secret = secret.map_or("", |text| text.to_str().unwrap());
            shared.numbers.lock().unwrap().push(id.clone());
            called(&shared, id, params, secret).await
        }
        "notifications/cancelled" => {
            let number = params["requestId"].clone();
            shared.cancelled.send_modify(|all| all.push(number));
            plain(202)
        }
        "ping" => said(id, &json!({})),
        _ => plain(202),
    }
}

/// The status that refuses a request for its session.
fn forgotten(shared: &Shared, session: Option<&str>, message: &Value) -> Option<u16> {
    let mut sessions = shared.sessions.lock().unwrap();
    let (last, status) = sessions.forgotten?;
    let number: usize = session?.parse().unwrap();
    if number > last {
        return None;
    }
    if let Some(key) = message["params"]["_meta"]["ktsu/idempotency-key"].as_str() {
        sessions.refused.push(key.to_owned());
    }
    Some(status)
}

async fn called(shared: &Shared, id: &Value, params: &Value, secret: &str) -> Response<Body> {
    let key = params["_meta"]["ktsu/idempotency-key"].as_str();
    let mut asked = Asked {
        tool: params["name"].as_str().unwrap().to_owned(),
        arguments: params["arguments"].clone(),
        key: key.unwrap().to_owned(),
        secret: secret.to_owned(),
        executed: true,
    };
    let script = shared.script.lock().unwrap().clone();
    let mut given = {
        let mut memory = shared.memory.lock().unwrap();
        asked.executed = !memory.contains_key(&asked.key);
        let given = memory.entry(asked.key.clone());
        given.or_insert_with(|| script(&asked)).clone()
    };
    shared.asked.send_modify(|all| all.push(asked));
    loop {
        let (text, is_error) = match given {
            Given::Text(text) => (text, false),
            Given::Failed(text) => (text, true),
            Given::When(gate, then) => {
                let mut open = shared.open.subscribe();
                drop(open.wait_for(|open| open.contains(&gate)).await.unwrap());
                given = *then;
                continue;
            }
            // A body that ends before it is whole.
            Given::Broken => {
                let broken = futures_util::stream::iter([Err::<Vec<u8>, _>("broken")]);
                return Response::new(Body::from_stream(broken));
            }
        };
        let block = json!({"type": "text", "text": text});
        return said(id, &json!({"content": [block], "isError": is_error}));
    }
}

fn said(id: &Value, result: &Value) -> Response<Body> {
    let text = json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string();
    let response = Response::builder().header("content-type", "application/json");
    response.body(Body::from(text)).unwrap()
}

fn plain(status: u16) -> Response<Body> {
    let response = Response::builder().status(status);
    response.body(Body::empty()).unwrap()
}
