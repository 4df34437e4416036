//! Sessions over MCP.

use std::sync::Arc;

use super::{
    BoxFuture, DispatchedServer, ServerLocation, SessionCall, ToolCallResult, ToolClient,
    ToolError, ToolList, ToolSession,
};
use ktsu_tools::{self as tools, McpClient};

impl ToolClient for McpClient {
    fn open(
        &self,
        server: DispatchedServer,
    ) -> BoxFuture<'_, Result<Arc<dyn ToolSession>, ToolError>> {
        Box::pin(async move {
            let (url, peer) = match server.reach {
                ServerLocation::External(url) => (url, None),
                ServerLocation::Builtin(peer, path) => (path, Some(peer)),
            };
            let server = tools::McpServer {
                name: server.name,
                url,
                auth: server.auth,
                params: server.params,
            };
            let opened = match peer {
                None => McpClient::open(self, &server).await,
                Some(peer) => self.open_builtin(&peer, &server).await,
            };
            let session: Arc<dyn ToolSession> = Arc::new(opened?);
            Ok(session)
        })
    }
}

impl ToolSession for tools::McpSession {
    fn tools(&self) -> ToolList {
        tools::McpSession::tools(self)
    }

    fn renew(&self) -> BoxFuture<'_, Result<ToolList, ToolError>> {
        Box::pin(tools::McpSession::renew(self))
    }

    fn call(&self, call: SessionCall) -> BoxFuture<'_, Result<ToolCallResult, ToolError>> {
        Box::pin(async move {
            let SessionCall {
                tool,
                arguments,
                key,
                limit,
            } = call;
            tools::McpSession::call(self, &tool, &arguments, &key, limit).await
        })
    }

    fn close(self: Arc<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            // A call that is still under way keeps it: it ends when that is dropped.
            if let Ok(session) = Arc::try_unwrap(self) {
                tools::McpSession::close(session).await;
            }
        })
    }
}
