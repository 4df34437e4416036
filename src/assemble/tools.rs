//! The runtime's way to tool servers: MCP through the guarded client, or, to servers of ours, as
//! services of ours reach each other.

use std::sync::Arc;

use crate::egress;
use crate::runtime::{Call, Doing, Reach, Returned, Server, Session, Tool, ToolClient, ToolError};
use crate::tools::{self, ToolErrorCode, Tools};

/// The client that real runtimes use.
pub(super) fn client(egress: &egress::Client) -> Arc<dyn ToolClient> {
    Arc::new(Mcp(Tools::new(egress.clone())))
}

struct Mcp(Tools);

/// A session, and its list as the runtime knows it.
struct Open {
    session: tools::Session,
    listed: Vec<Tool>,
}

impl ToolClient for Mcp {
    fn open(&self, server: Server) -> Doing<'_, Result<Arc<dyn Session>, ToolError>> {
        Box::pin(async move {
            let (peer, url) = match server.reach {
                Reach::World(url) => (None, url),
                Reach::Own(peer, path) => (Some(peer), path),
            };
            let asked = tools::Server {
                name: server.name,
                url,
                auth: server.auth,
                params: server.params,
            };
            let opened = match &peer {
                None => self.0.open(&asked).await,
                Some(peer) => self.0.open_own(peer, &asked).await,
            };
            let session = opened.map_err(told)?;
            let listed = session.tools().iter().map(listed).collect();
            Ok(Arc::new(Open { session, listed }) as Arc<dyn Session>)
        })
    }
}

impl Session for Open {
    fn tools(&self) -> &[Tool] {
        &self.listed
    }

    fn call(&self, call: Call) -> Doing<'_, Result<Returned, ToolError>> {
        Box::pin(async move {
            let called = self
                .session
                .call(&call.tool, &call.arguments, &call.key, call.limit);
            let returned = called.await.map_err(told)?;
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
            // Whoever still calls holds it, and its end closes the connection.
            if let Some(open) = Arc::into_inner(self) {
                open.session.close().await;
            }
        })
    }
}

fn listed(tool: &tools::Tool) -> Tool {
    Tool {
        name: tool.name.clone(),
        description: tool.description.clone(),
        input_schema: tool.input_schema.clone(),
        digest: tool.digest.clone(),
    }
}

fn told(error: tools::ToolError) -> ToolError {
    ToolError {
        drifted: error.code == ToolErrorCode::ToolsChanged,
        message: error.message,
        sent: error.sent,
    }
}
