//! `ktsu mcp`: ktsu as a tool server for other agents, over standard input and output or over
//! Streamable HTTP.
//!
//! Tools go the way commands go: to the owner of the ledger, or to an engine of this process,
//! through the same routes, so that the same access rules apply.
//!
//! ```text
//! stdio ─┐
//!        ├─▶ server ─▶ inputs ─▶ a tool ─▶ engines ─▶ routes of an engine
//! HTTP  ─┘                          answer ◀─────────────┘
//! ```

mod access;
mod answer;
mod ask;
mod catalog;
mod context;
mod decisions;
mod engines;
mod http;
mod inputs;
mod kits;
mod runs;
mod server;
mod setup;
mod verification;
mod worlds;

use std::sync::Arc;

use axum::Router;
use axum::http::HeaderValue;
use rmcp::service::serve_server;
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::io::stdio_pipes;
use tokio::sync::watch;

pub use http::PATH;
pub use setup::{Console, LedgerReader, ServerSetup};

use self::access::ToolPrincipals;
use self::context::ToolContext;
use self::engines::EngineKeeper;
use self::server::AgentToolServer;
use ktsu_assemble::OpenEngineError;
use ktsu_environment::{Environment, Principals};
use ktsu_opening::Failure;
use ktsu_opening::engine::start_failure;
use ktsu_opening::environment::process_environment;

/// A tool server, and the engines behind it.
pub struct EngineMcpServer {
    context: Arc<ToolContext>,
    stop: watch::Sender<bool>,
}

impl EngineMcpServer {
    /// Without an engine, until a call needs one. `is_http`: callers are asked for a token, so the
    /// tokens of the environment's principals need values; a process that started this one may know
    /// its engine by a token alone.
    ///
    /// # Errors
    /// The principals are not valid.
    pub fn new(
        setup: ServerSetup,
        environment: Option<&Environment>,
        is_http: bool,
    ) -> Result<Self, Failure> {
        let principals = principals(environment, is_http)?;
        let context = Arc::new(ToolContext {
            engines: EngineKeeper::new(setup),
            may_decide: environment.is_some_and(|file| file.mcp.decide),
            principals,
        });
        let stop = watch::Sender::new(false);
        Ok(Self { context, stop })
    }

    /// The routes of the server, for clients over HTTP.
    pub fn router(&self) -> Router {
        let context = Arc::clone(&self.context);
        let server = AgentToolServer::for_clients(context, self.stop.subscribe());
        http::router(&self.context, server)
    }

    /// Serves the process that started this one over standard input and output, until it closes its
    /// end. `token`: the one that it was given.
    ///
    /// # Errors
    /// The connection broke.
    pub async fn serve_stdio(&self, token: Option<HeaderValue>) -> Result<(), Failure> {
        let context = Arc::clone(&self.context);
        let server = AgentToolServer::for_process(context, token, self.stop.subscribe());
        serve_stdio(server).await
    }

    /// Ends the calls that wait for something.
    pub fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Closes the engines.
    ///
    /// # Errors
    /// Why the ledger had stopped before.
    pub async fn close(&self) -> Result<(), Failure> {
        self.context.engines.close().await
    }
}

fn principals(environment: Option<&Environment>, is_http: bool) -> Result<ToolPrincipals, Failure> {
    match Principals::resolve(environment, &process_environment()) {
        Ok(principals) => Ok(ToolPrincipals::Known(Arc::new(principals))),
        Err(faults) if is_http => Err(start_failure(OpenEngineError::Principals(faults))),
        Err(_) => Ok(ToolPrincipals::Unusable),
    }
}

/// Serves one client, until it closes its end.
async fn serve_stdio(server: AgentToolServer) -> Result<(), Failure> {
    let (input, output) = stdio_pipes();
    let transport =
        AsyncRwTransport::new_server(input, output).with_max_line_length(http::MAX_MESSAGE_BYTES);
    let running = match serve_server(server, transport).await {
        Ok(running) => running,
        // A client that leaves before it has said anything is none.
        Err(rmcp::service::ServerInitializeError::ConnectionClosed(_)) => return Ok(()),
        Err(error) => return Err(Failure::of(error)),
    };
    running.waiting().await.map(drop).map_err(Failure::of)
}
