//! A receiver of webhooks that follows a script.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{Request, Response};
use http_body_util::BodyExt as _;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::guarded;

/// What came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Heard {
    pub(crate) method: String,
    pub(crate) path: String,
    /// The header `webhook-id`.
    pub(crate) id: String,
    /// The header `webhook-timestamp`.
    pub(crate) timestamp: String,
    /// The header `webhook-signature`.
    pub(crate) signature: String,
    /// The names of all headers.
    pub(crate) headers: BTreeSet<String>,
    pub(crate) body: Vec<u8>,
}

impl Heard {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

/// How to answer.
#[derive(Debug, Clone)]
pub(crate) enum Reply {
    /// At once.
    Now(u16, String),
    /// Once somebody opens the gate of this name.
    When(String, u16),
    /// The same, with a body.
    After(String, u16, String),
    /// Never.
    Never,
}

type Script = dyn Fn(&Heard) -> Reply + Send + Sync;

/// See the module documentation. It stops with its runtime.
#[derive(Clone)]
pub(crate) struct Sink {
    pub(crate) url: String,
    shared: Arc<Shared>,
}

struct Shared {
    script: Mutex<Arc<Script>>,
    heard: watch::Sender<Vec<Heard>>,
    open: watch::Sender<BTreeSet<String>>,
}

impl Sink {
    /// Answers 200 to everything.
    pub(crate) async fn new() -> Self {
        Self::scripted(|_| Reply::Now(200, String::new())).await
    }

    /// Answers as told.
    pub(crate) async fn scripted(script: impl Fn(&Heard) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let shared = Arc::new(Shared {
            script: Mutex::new(Arc::new(script)),
            heard: watch::Sender::default(),
            open: watch::Sender::default(),
        });
        let router = Router::new().fallback(receive).with_state(shared.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { url, shared }
    }

    /// Answers differently from now on.
    pub(crate) fn follow(&self, script: impl Fn(&Heard) -> Reply + Send + Sync + 'static) {
        *self.shared.script.lock().unwrap() = Arc::new(script);
    }

    /// Lets whoever waits at a gate go on.
    pub(crate) fn open(&self, gate: &str) {
        self.shared.open.send_modify(|open| {
            open.insert(gate.to_owned());
        });
    }

    /// What came so far.
    pub(crate) fn heard(&self) -> Vec<Heard> {
        self.shared.heard.borrow().clone()
    }

    /// Forgets what came, and shuts all gates.
    pub(crate) fn forget(&self) {
        self.shared.heard.send_replace(Vec::new());
        self.shared.open.send_replace(BTreeSet::new());
    }

    /// Waits until what came is as wanted.
    pub(crate) async fn until(&self, wanted: impl Fn(&[Heard]) -> bool) {
        let mut heard = self.shared.heard.subscribe();
        let waiting = heard.wait_for(|heard| wanted(heard));
        drop(guarded("a webhook", waiting).await.unwrap());
    }
}

async fn receive(State(shared): State<Arc<Shared>>, request: Request<Body>) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let body: Bytes = body.collect().await.unwrap_or_default().to_bytes();
    let value = |name: &str| {
        let value = parts.headers.get(name);
        value.map_or("", |value| value.to_str().unwrap()).to_owned()
    };
    let heard = Heard {
        method: parts.method.to_string(),
        path: parts.uri.to_string(),
        id: value("webhook-id"),
        timestamp: value("webhook-timestamp"),
        signature: value("webhook-signature"),
        headers: parts.headers.keys().map(ToString::to_string).collect(),
        body: body.to_vec(),
    };
    let script = shared.script.lock().unwrap().clone();
    let reply = script(&heard);
    shared.heard.send_modify(|all| all.push(heard));
    let (status, text) = match reply {
        Reply::Now(status, text) => (status, text),
        Reply::When(gate, status) => {
            let mut open = shared.open.subscribe();
            drop(open.wait_for(|open| open.contains(&gate)).await.unwrap());
            (status, String::new())
        }
        Reply::After(gate, status, text) => {
            let mut open = shared.open.subscribe();
            drop(open.wait_for(|open| open.contains(&gate)).await.unwrap());
            (status, text)
        }
        Reply::Never => std::future::pending().await,
    };
    let mut response = Response::builder().status(status);
    if text.starts_with("{\"id\":") || text.starts_with("{\"jsonrpc\":") {
        // Whoever speaks JSON-RPC asks what the body is.
        response = response.header("content-type", "application/json");
    }
    response.body(Body::from(text)).unwrap()
}
