//! Sessions over MCP.

use std::sync::Arc;

use super::{Call, Doing, Offer, Reach, Returned, Server, Session, ToolClient, ToolError};
use ktsu_tools::{self as tools, Tools};

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
            let session: Arc<dyn Session> = Arc::new(opened?);
            Ok(session)
        })
    }
}

impl Session for tools::Session {
    fn tools(&self) -> Offer {
        tools::Session::tools(self)
    }

    fn renew(&self) -> Doing<'_, Result<Offer, ToolError>> {
        Box::pin(tools::Session::renew(self))
    }

    fn call(&self, call: Call) -> Doing<'_, Result<Returned, ToolError>> {
        Box::pin(async move {
            let Call {
                tool,
                arguments,
                key,
                limit,
            } = call;
            tools::Session::call(self, &tool, &arguments, &key, limit).await
        })
    }

    fn close(self: Arc<Self>) -> Doing<'static, ()> {
        Box::pin(async move {
            // A call that is still under way keeps it: it ends when that is dropped.
            if let Ok(session) = Arc::try_unwrap(self) {
                tools::Session::close(session).await;
            }
        })
    }
}
