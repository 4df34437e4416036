//! Sessions over MCP.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};

use super::{BoxFuture, McpServer, ToolCallResult, ToolClient, ToolError, ToolList, ToolSession};
use ktsu_tools::{McpClient, McpSession};

impl ToolClient for McpClient {
    fn open(&self, server: McpServer) -> BoxFuture<'_, Result<Arc<dyn ToolSession>, ToolError>> {
        Box::pin(async move {
            let session: Arc<dyn ToolSession> = Arc::new(McpClient::open(self, &server).await?);
            Ok(session)
        })
    }
}

impl ToolSession for McpSession {
    fn tools(&self) -> ToolList {
        McpSession::tools(self)
    }

    fn renew(&self) -> BoxFuture<'_, Result<ToolList, ToolError>> {
        Box::pin(McpSession::renew(self))
    }

    fn call<'a>(
        &'a self,
        tool: &'a str,
        arguments: &'a Map<String, Value>,
        key: &'a str,
        limit: Duration,
    ) -> BoxFuture<'a, Result<ToolCallResult, ToolError>> {
        Box::pin(McpSession::call(self, tool, arguments, key, limit))
    }

    fn close(self: Arc<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            // A call that is still under way keeps it: it ends when that is dropped.
            if let Ok(session) = Arc::try_unwrap(self) {
                McpSession::close(session).await;
            }
        })
    }
}
