//! A tool server that does what a test says, byte by byte, over real sockets.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::broadcast;

use super::limits::SessionLimits;
use super::{McpClient, McpServer, McpSession};
use ktsu_egress::{Client, EgressPolicy};

/// Far more than any call of these tests takes.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// A request, as it came.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    pub(super) method: String,
    pub(super) path: String,
    pub(super) headers: BTreeMap<String, String>,
    pub(super) body: Value,
}

impl Seen {
    /// The method of JSON-RPC, or that of HTTP where there is none.
    pub(super) fn rpc(&self) -> &str {
        self.body["method"].as_str().unwrap_or(&self.method)
    }

    pub(super) fn id(&self) -> &Value {
        &self.body["id"]
    }
}

/// What a server does with a connection.
#[derive(Debug, Clone)]
pub(super) enum Reply {
    /// Writes this, and waits for the next request.
    Whole(Vec<u8>),
    /// Writes this, and closes.
    Close(Vec<u8>),
    /// Writes this, and resets the connection.
    Reset(Vec<u8>),
    /// Writes this, then the same piece again and again until nobody takes it any more.
    Endless(Vec<u8>, Vec<u8>, Duration),
    /// Writes this, and says nothing more.
    Hang(Vec<u8>),
    /// Writes this, and then whatever is pushed, until there is nothing more to come.
    Listen(Vec<u8>),
    /// Writes the first to all that listen, and the second as the answer.
    Push(Vec<u8>, Vec<u8>),
    /// Ends the streams of all that listen, and answers.
    Hangup(Vec<u8>),
}

type Script = dyn Fn(&Seen) -> Reply + Send + Sync;

/// A server; gone when dropped.
pub(super) struct Scripted {
    pub(super) url: String,
    seen: Arc<Mutex<Vec<Seen>>>,
    held: Arc<AtomicUsize>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Scripted {
    pub(super) async fn start(script: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Self {
        let script: Arc<Script> = Arc::new(script);
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
        let held = Arc::new(AtomicUsize::new(0));
        let stage = Stage {
            script,
            seen: Arc::clone(&seen),
            held: Arc::clone(&held),
            pushed: broadcast::channel(64).0,
        };
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve(stream, stage.clone()));
            }
        });
        Self {
            url: format!("http://{address}/mcp"),
            seen,
            held,
            task,
        }
    }

    /// What it saw so far.
    pub(super) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().expect("a list").clone()
    }

    /// The methods it saw so far.
    pub(super) fn methods(&self) -> Vec<String> {
        self.seen()
            .iter()
            .map(|seen| seen.rpc().to_owned())
            .collect()
    }

    /// How many connections hang or listen.
    pub(super) fn held(&self) -> usize {
        self.held.load(Ordering::SeqCst)
    }

    /// Waits until so many do.
    pub(super) async fn until_held(&self, wanted: usize) {
        let reached = async {
            while self.held() != wanted {
                tokio::task::yield_now().await;
            }
        };
        let reached = tokio::time::timeout(PATIENCE, reached).await;
        assert!(reached.is_ok(), "{} are held, not {wanted}", self.held());
    }

    pub(super) fn server(&self) -> McpServer {
        server(&self.url)
    }
}

pub(super) fn server(url: &str) -> McpServer {
    McpServer {
        name: "crm".to_owned(),
        url: url.to_owned(),
        builtin: None,
        auth: None,
        params: BTreeMap::new(),
    }
}

/// What all connections of a server have in common.
#[derive(Clone)]
struct Stage {
    script: Arc<Script>,
    seen: Arc<Mutex<Vec<Seen>>>,
    held: Arc<AtomicUsize>,
    pushed: broadcast::Sender<Option<Vec<u8>>>,
}

/// One of the connections that are waited on.
struct Held(Arc<AtomicUsize>);

impl Held {
    fn one(held: &Arc<AtomicUsize>) -> Self {
        held.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(held))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn serve(mut stream: TcpStream, stage: Stage) {
    let mut left = Vec::new();
    while let Some(seen) = request(&mut stream, &mut left).await {
        stage.seen.lock().expect("a list").push(seen.clone());
        match (stage.script)(&seen) {
            Reply::Whole(bytes) => {
                if stream.write_all(&bytes).await.is_err() {
                    return;
                }
            }
            Reply::Close(bytes) => {
                let _ = stream.write_all(&bytes).await;
                return;
            }
            Reply::Reset(bytes) => {
                let _ = stream.write_all(&bytes).await;
                let _ = stream.set_zero_linger();
                return;
            }
            Reply::Listen(head) => {
                let _held = Held::one(&stage.held);
                let mut coming = stage.pushed.subscribe();
                let mut next = stream.write_all(&head).await;
                let mut nothing = [0];
                while next.is_ok() {
                    let bytes = tokio::select! {
                        bytes = coming.recv() => bytes,
                        _ = stream.read(&mut nothing) => return,
                    };
                    let Ok(Some(bytes)) = bytes else { return };
                    next = stream.write_all(&bytes).await;
                }
                return;
            }
            Reply::Push(bytes, answer) => {
                let _ = stage.pushed.send(Some(bytes));
                let _ = stream.write_all(&answer).await;
            }
            Reply::Hangup(answer) => {
                let _ = stage.pushed.send(None);
                let _ = stream.write_all(&answer).await;
            }
            Reply::Endless(head, piece, every) => {
                let mut next = stream.write_all(&head).await;
                while next.is_ok() {
                    tokio::time::sleep(every).await;
                    next = stream.write_all(&piece).await;
                }
                return;
            }
            Reply::Hang(bytes) => {
                let _held = Held::one(&stage.held);
                let _ = stream.write_all(&bytes).await;
                // Until the other side goes.
                let _ = stream.read_to_end(&mut Vec::new()).await;
                return;
            }
        }
    }
}

async fn request(stream: &mut TcpStream, left: &mut Vec<u8>) -> Option<Seen> {
    loop {
        let said = String::from_utf8_lossy(left).into_owned();
        if let Some((head, body)) = said.split_once("\r\n\r\n") {
            let mut lines = head.lines();
            let mut first = lines.next()?.split(' ');
            let (method, path) = (first.next()?.to_owned(), first.next()?.to_owned());
            let headers: BTreeMap<String, String> = lines
                .filter_map(|line| line.split_once(": "))
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect();
            let length = headers.get("content-length");
            let length: usize = length.and_then(|length| length.parse().ok()).unwrap_or(0);
            if body.len() >= length {
                let body = serde_json::from_str(body.get(..length)?).unwrap_or(Value::Null);
                left.drain(..head.len() + 4 + length);
                return Some(Seen {
                    method,
                    path,
                    headers,
                    body,
                });
            }
        }
        if stream.read_buf(left).await.ok()? == 0 {
            return None;
        }
    }
}

/// A whole HTTP answer.
pub(super) fn http(status: &str, headers: &str, body: &[u8]) -> Reply {
    let length = body.len();
    let head = format!("HTTP/1.1 {status}\r\n{headers}content-length: {length}\r\n\r\n");
    Reply::Whole([head.as_bytes(), body].concat())
}

/// A message as the whole answer.
pub(super) fn message(message: &Value) -> Reply {
    raw(message.to_string().as_bytes())
}

/// Bytes that say they are a message.
pub(super) fn raw(bytes: &[u8]) -> Reply {
    http("200 OK", "content-type: application/json\r\n", bytes)
}

pub(super) const STREAM: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";

/// A stream of these events, closed at its end.
pub(super) fn events(messages: &[Value]) -> Reply {
    let events: String = messages.iter().map(event).collect();
    Reply::Close(format!("{STREAM}{events}").into_bytes())
}

pub(super) fn event(message: &Value) -> String {
    format!("event: message\ndata: {message}\n\n")
}

pub(super) fn result(id: &Value, result: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "result": result})
}

pub(super) fn text(text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text}]})
}

pub(super) fn tool(name: &str) -> Value {
    json!({"name": name, "description": "Does it.", "inputSchema": {"type": "object"}})
}

/// What a server that means well answers; a session, two tools, an echo.
pub(super) fn good(seen: &Seen) -> Reply {
    let session = "content-type: application/json\r\nmcp-session-id: s-1\r\n";
    match seen.rpc() {
        "initialize" => {
            let version = seen.body["params"]["protocolVersion"].clone();
            let said = json!({"protocolVersion": version, "capabilities": {"tools": {}},
                "serverInfo": {"name": "scripted", "version": "1"}});
            let said = result(seen.id(), said).to_string();
            http("200 OK", session, said.as_bytes())
        }
        "tools/list" => {
            let tools = json!({"tools": [tool("read-a"), tool("delete-a")]});
            message(&result(seen.id(), tools))
        }
        "tools/call" => message(&result(
            seen.id(),
            text(&seen.body["params"]["arguments"].to_string()),
        )),
        "GET" => http("405 Method Not Allowed", "", b""),
        "DELETE" => http("200 OK", "", b""),
        _ => http("202 Accepted", "", b""),
    }
}

/// Tools over a client that may reach this machine, with limits that a test can wait for.
pub(super) fn tools() -> McpClient {
    within(small())
}

pub(super) fn within(limits: SessionLimits) -> McpClient {
    let policy = EgressPolicy {
        allow: Vec::new(),
        loopback: true,
    };
    let mut tools = McpClient::new(Client::new(&policy).expect("a policy"));
    tools.limits = Arc::new(limits);
    tools
}

pub(super) fn small() -> SessionLimits {
    SessionLimits {
        head: Duration::from_millis(300),
        idle: Duration::from_millis(300),
        open: Duration::from_secs(2),
        control: Duration::from_millis(300),
        message_bytes: 64 << 10,
        stream_bytes: 128 << 10,
        session_bytes: 256 << 10,
        result_bytes: 16 << 10,
        resume_after: Duration::from_millis(1),
        ..SessionLimits::default()
    }
}

pub(super) fn arguments(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(fields) => fields,
        other => panic!("{other} are no arguments"),
    }
}

/// Calls `read-a` with little patience.
pub(super) async fn call(session: &McpSession) -> Result<super::ToolCallResult, super::ToolError> {
    let arguments = arguments(json!({"n": 1}));
    session
        .call("read-a", &arguments, "key", Duration::from_secs(1))
        .await
}
