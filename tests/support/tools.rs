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
    asked: watch::Sender<Vec<Asked>>,
    open: watch::Sender<BTreeSet<String>>,
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
    match message["method"].as_str().unwrap_or_default() {
        "initialize" => {
            let result = json!({"protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {}}, "serverInfo": {"name": "scripted", "version": "1"}});
            said(id, &result)
        }
        "tools/list" => {
            let tools = shared.tools.lock().unwrap().clone();
            said(id, &json!({"tools": tools}))
        }
        "tools/call" => {
            let secret = parts.headers.get("x-key");
            let secret = secret.map_or("", |text| text.to_str().unwrap());
            called(&shared, id, params, secret).await
        }
        "ping" => said(id, &json!({})),
        _ => plain(202),
    }
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
