//! The world a project talks to: it hears webhooks and model calls, and says canaries back in the
//! coding it is asked for.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{Request, Response};
use futures_util::stream;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::needles::{CANARIES, Coding, KEYS, VARIABLES};
use crate::support::guarded;
use crate::support::model::completion;

static COUNT: AtomicUsize = AtomicUsize::new(0);
/// What is kept of the answer to a webhook: a canary is put across this bound.
const KEPT: usize = 64 * 1024;

/// What came: where to, with which authorization, and the body.
#[derive(Debug, Clone)]
pub(super) struct Heard {
    pub(super) path: String,
    pub(super) authorization: String,
    pub(super) body: String,
}

/// See the module documentation.
#[derive(Clone)]
pub(super) struct World {
    pub(super) url: String,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    heard: watch::Sender<Vec<Heard>>,
    /// Whether `/held` answers.
    open: watch::Sender<bool>,
    lock: Mutex<()>,
}

impl World {
    pub(super) async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let shared = Arc::new(Shared::default());
        let router = Router::new().fallback(answer).with_state(shared.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { url, shared }
    }

    pub(super) fn heard(&self) -> Vec<Heard> {
        self.shared.heard.borrow().clone()
    }

    /// Waits until something came to a path.
    pub(super) async fn until(&self, path: &str) {
        let mut heard = self.shared.heard.subscribe();
        let came = |all: &Vec<Heard>| all.iter().any(|one| one.path.starts_with(path));
        drop(guarded(path, heard.wait_for(came)).await.unwrap());
    }

    pub(super) fn open(&self) {
        self.shared.open.send_replace(true);
    }
}

async fn answer(State(shared): State<Arc<Shared>>, request: Request<Body>) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.unwrap_or_default().to_bytes();
    let authorization = parts.headers.get("authorization");
    let heard = Heard {
        path: parts.uri.to_string(),
        authorization: authorization
            .map_or("", |one| one.to_str().unwrap())
            .to_owned(),
        body: String::from_utf8_lossy(&body).into_owned(),
    };
    {
        let _one = shared.lock.lock().unwrap();
        shared.heard.send_modify(|all| all.push(heard.clone()));
    }
    if heard.path.starts_with("/held") {
        let mut open = shared.open.subscribe();
        drop(open.wait_for(|open| *open).await.unwrap());
        return said(200, Coding::Raw.say(0..VARIABLES), 4096);
    }
    match heard.path.ends_with("/chat/completions") {
        true => model(&heard),
        false => hook(&heard),
    }
}

/// A webhook at `/hear/CODING/…`.
fn hook(heard: &Heard) -> Response<Body> {
    let coding = heard
        .path
        .split('/')
        .nth(2)
        .and_then(Coding::named)
        .unwrap();
    let all = coding.say(0..VARIABLES);
    match coding {
        Coding::Error => said(500, all, 4096),
        // In pieces of seven bytes, and with one canary across the bound of what is kept.
        Coding::Split => said(200, format!("{}{all}", "a".repeat(KEPT - 9)), 7),
        Coding::Raw => said(
            200,
            json!({"echo": {"as a value": all, "list": [&all]}}).to_string(),
            4096,
        ),
        Coding::Base64 | Coding::Base64Url | Coding::Hex | Coding::Url | Coding::Json => {
            said(200, format!("<{all}>"), 4096)
        }
    }
}

/// A model that says everything it could have heard of, and its own provider's key.
fn model(heard: &Heard) -> Response<Body> {
    let asked: Value = serde_json::from_str(&heard.body).unwrap();
    let text = asked["messages"].to_string();
    let coding = Coding::ALL
        .into_iter()
        .find(|one| text.contains(&format!("<{}>", one.name())))
        .unwrap();
    // Never the same twice, so that a model asked again says something else.
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let all = format!("{count} {}", coding.say((0..VARIABLES).chain(KEYS)));
    // Escaped as it stands: in the JSON of the reply, and in that of its content.
    let content = match coding {
        Coding::Json => format!(r#"{{"answer":"{all}"}}"#),
        _ => json!({"answer": all}).to_string(),
    };
    let pieces = match coding {
        Coding::Split => 7,
        _ => 4096,
    };
    if coding == Coding::Error {
        let words = json!({"error": {"message": all, "type": "invalid_request_error"}});
        return said(400, words.to_string(), pieces);
    }
    if text.contains("refused") {
        let content = json!({"wrong": all}).to_string();
        return said(200, completion(&json!("m"), &content), pieces);
    }
    let model = json!(format!("m-{}", coding.write(CANARIES - 1)));
    said(200, completion(&model, &content), pieces)
}

/// An answer in pieces.
fn said(status: u16, text: String, piece: usize) -> Response<Body> {
    let bytes = Bytes::from(text);
    let pieces: Vec<_> = (0..bytes.len())
        .step_by(piece)
        .map(|at| Ok::<_, Infallible>(bytes.slice(at..bytes.len().min(at + piece))))
        .collect();
    let body = Body::from_stream(stream::iter(pieces));
    Response::builder().status(status).body(body).unwrap()
}
