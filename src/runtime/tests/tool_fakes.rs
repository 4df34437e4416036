//! Fake tool servers. The name of a tool says what it does.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::sync::mpsc;

use crate::tools::{
    BoxFuture, McpServer, ServerTool, ToolCallResult, ToolClient, ToolError, ToolErrorCode,
    ToolList, ToolSession,
};

/// What every server offers. `hang` never answers, `silent` loses the answer, `refused` never gets
/// the call, `drift` says that it has changed, `broken` panics, and the others answer.
const OFFERED: [&str; 8] = [
    "echo", "fail", "silent", "refused", "hang", "drift", "broken", "write",
];

/// A call as it came.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SessionCall {
    pub(super) tool: String,
    pub(super) arguments: Map<String, Value>,
    pub(super) key: String,
    pub(super) limit: Duration,
}

/// What happens to sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Heard {
    /// One is opened: with whom, where, and what is shown.
    Opened(String, String, Option<String>),
    /// A call came.
    Called(String),
    /// Whoever waited for an answer went away.
    Dropped,
    /// It is closed.
    Closed(String),
}

/// The servers. One whose name is `gone` is out of reach; before a call `moves` says that its tools
/// are others now, `grows` that there is one more, and `away` cannot say. `forgets` has forgotten
/// the session by the first call, `forgets always` by every call, and `forgets and moves` has other
/// tools in the next one.
#[derive(Clone)]
pub(super) struct Servers {
    calls: Arc<Mutex<Vec<(String, SessionCall)>>>,
    news: mpsc::UnboundedSender<Heard>,
}

struct Open {
    servers: Servers,
    name: String,
    tools: ToolList,
    /// How many calls met a forgotten session.
    forgotten: AtomicUsize,
}

struct Waiting(mpsc::UnboundedSender<Heard>);

impl Drop for Waiting {
    fn drop(&mut self) {
        let _ = self.0.send(Heard::Dropped);
    }
}

impl Servers {
    pub(super) fn new() -> (Self, mpsc::UnboundedReceiver<Heard>) {
        let (news, learns) = mpsc::unbounded_channel();
        let calls = Arc::default();
        (Self { calls, news }, learns)
    }

    /// Every call that came, with its server.
    pub(super) fn calls(&self) -> Vec<(String, SessionCall)> {
        self.calls.lock().unwrap().clone()
    }

    /// Servers and tools of the calls, sorted: calls of one reply come in any order.
    pub(super) fn called(&self) -> Vec<String> {
        let calls = self.calls();
        let name = |(server, call): &(String, SessionCall)| format!("{server}/{}", call.tool);
        let mut names: Vec<String> = calls.iter().map(name).collect();
        names.sort();
        names
    }
}

impl ToolClient for Servers {
    fn open(&self, server: McpServer) -> BoxFuture<'_, Result<Arc<dyn ToolSession>, ToolError>> {
        let place = server.url.clone();
        let shown = server
            .auth
            .map(|(name, secret)| format!("{name}: {}", secret.expose()));
        let name = server.name.clone();
        let _ = self.news.send(Heard::Opened(name.clone(), place, shown));
        let opened = if name == "gone" {
            // As the client says it: by the server's name.
            Err(error(
                ToolErrorCode::Unauthorized,
                "tool server gone: nobody is let in",
                false,
            ))
        } else {
            let session: Arc<dyn ToolSession> = Arc::new(Open {
                servers: self.clone(),
                name,
                tools: OFFERED.map(|name| tool(name, "digest")).into(),
                forgotten: AtomicUsize::new(0),
            });
            Ok(session)
        };
        Box::pin(std::future::ready(opened))
    }
}

impl ToolSession for Open {
    fn tools(&self) -> ToolList {
        Arc::clone(&self.tools)
    }

    fn renew(&self) -> BoxFuture<'_, Result<ToolList, ToolError>> {
        let known = OFFERED.into_iter();
        let offer = match self.name.as_str() {
            "forgets and moves" if self.forgotten.load(Ordering::SeqCst) > 0 => {
                Ok(known.map(|name| tool(name, "another digest")).collect())
            }
            "moves" => Ok(known.map(|name| tool(name, "another digest")).collect()),
            "grows" => {
                let more = known.chain(["more"]);
                Ok(more.map(|name| tool(name, "digest")).collect())
            }
            "away" => Err(error(ToolErrorCode::SessionExpired, "who are you?", false)),
            _ => Ok(self.tools()),
        };
        Box::pin(std::future::ready(offer))
    }

    fn call<'a>(
        &'a self,
        tool: &'a str,
        arguments: &'a Map<String, Value>,
        key: &'a str,
        limit: Duration,
    ) -> BoxFuture<'a, Result<ToolCallResult, ToolError>> {
        let call = SessionCall {
            tool: tool.to_owned(),
            arguments: arguments.clone(),
            key: key.to_owned(),
            limit,
        };
        let Servers { calls, news } = &self.servers;
        calls
            .lock()
            .unwrap()
            .push((self.name.clone(), call.clone()));
        let _ = news.send(Heard::Called(call.tool.clone()));
        let forgets = match self.name.as_str() {
            "forgets" | "forgets and moves" => self.forgotten.fetch_add(1, Ordering::SeqCst) == 0,
            "forgets always" => true,
            _ => false,
        };
        if forgets {
            let forgotten = error(ToolErrorCode::SessionExpired, "who are you?", false);
            return Box::pin(std::future::ready(Err(forgotten)));
        }
        Box::pin(async move {
            let said = json!({"type": "text", "text": json!(call.arguments).to_string()});
            let returned = |is_error| ToolCallResult {
                content: vec![said.clone()],
                is_error,
                ..ToolCallResult::default()
            };
            match call.tool.as_str() {
                "fail" => Ok(returned(true)),
                "silent" => Err(ToolError {
                    duration_ms: 4711,
                    ..error(ToolErrorCode::Unreachable, "it broke", true)
                }),
                "refused" => Err(error(ToolErrorCode::Unreachable, "nobody answers", false)),
                "drift" => Err(error(ToolErrorCode::ToolsChanged, "others now", false)),
                "broken" => panic!("the call breaks (on purpose)"),
                "hang" => {
                    let _waiting = Waiting(news.clone());
                    std::future::pending().await
                }
                _ => Ok(returned(false)),
            }
        })
    }

    fn close(self: Arc<Self>) -> BoxFuture<'static, ()> {
        let _ = self.servers.news.send(Heard::Closed(self.name.clone()));
        Box::pin(std::future::ready(()))
    }
}

fn error(code: ToolErrorCode, message: &str, sent: bool) -> ToolError {
    ToolError {
        code,
        message: message.to_owned(),
        sent,
        duration_ms: 0,
    }
}

fn tool(name: &str, digest: &str) -> Arc<ServerTool> {
    Arc::new(ServerTool {
        name: name.to_owned(),
        description: format!("What {name} does"),
        input_schema: json!({"type": "object", "properties": {"n": {"type": "integer"}}}),
        digest: format!("{digest} of {name}"),
    })
}
