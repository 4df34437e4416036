//! Sessions over MCP.

use std::sync::Arc;

use super::{Call, Doing, Reach, Returned, Server, Session, Tool, ToolClient, ToolError};
use crate::tools::{self, ToolErrorCode, Tools};

/// An open session, with its list in the form of this port.
struct Held {
    session: tools::Session,
    tools: Vec<Tool>,
}

impl ToolClient for Tools {
    fn open(&self, server: Server) -> Doing<'_, Result<Arc<dyn Session>, ToolError>> {
        Box::pin(async move {
            let (url, peer) = match server.reach {
                Reach::World(url) => (url, None),
                Reach::Own(peer, path) => (path, Some(peer)),
            };
            let server = tools::Server {
                name: server.name,
                url,
                auth: server.auth,
                params: server.params,
            };
            let opened = match peer {
                None => Tools::open(self, &server).await,
                Some(peer) => self.open_own(&peer, &server).await,
            };
            let session = opened.map_err(failed)?;
            let listed = session.tools().iter().map(|tool| Tool {
                name: tool.name.clone(),
                description: tool.description.clone(),
                input_schema: tool.input_schema.clone(),
                digest: tool.digest.clone(),
            });
            let tools = listed.collect();
            let held: Arc<dyn Session> = Arc::new(Held { session, tools });
            Ok(held)
        })
    }
}

impl Session for Held {
    fn tools(&self) -> &[Tool] {
        &self.tools
    }

    fn call(&self, call: Call) -> Doing<'_, Result<Returned, ToolError>> {
        Box::pin(async move {
            let Call {
                tool,
                arguments,
                key,
                limit,
            } = call;
            let called = self.session.call(&tool, &arguments, &key, limit).await;
            let returned = called.map_err(failed)?;
            Ok(Returned {
                content: returned.content,
                structured: returned.structured,
                is_error: returned.is_error,
                duration_ms: returned.duration_ms,
            })
        })
    }

    fn close(self: Arc<Self>) -> Doing<'static, ()> {
        Box::pin(async move {
            // A call that is still under way keeps it: it ends when that is dropped.
            if let Ok(held) = Arc::try_unwrap(self) {
                held.session.close().await;
            }
        })
    }
}

fn failed(error: tools::ToolError) -> ToolError {
    ToolError {
        drifted: matches!(error.code, ToolErrorCode::ToolsChanged),
        message: error.message,
        sent: error.sent,
    }
}
