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
mod verification;
mod worlds;

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;

use rmcp::service::serve_server;
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::io::stdio_pipes;
use serde_json::json;
use tokio::sync::watch;

use self::access::ToolPrincipals;
use self::context::ToolContext;
use self::engines::EngineKeeper;
use self::server::AgentToolServer;
use super::engine::{process_environment, start_failure, token_header, warn_of};
use super::logging::{self, LogFormat};
use super::output::{is_quiet, line};
use super::owner::{EngineArguments, EngineHandle};
use super::signals::Signals;
use super::{Common, Failure};
use ktsu_assemble::{OpenEngineError, tool_server};
use ktsu_environment::{Environment, Principals};

/// What `mcp` takes.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Serves Streamable HTTP at http://ADDRESS:PORT/mcp, instead of standard input and output; port 0
    /// for any free one. Beyond this machine only with principals
    #[arg(long, value_name = "ADDRESS:PORT")]
    http: Option<SocketAddr>,
    #[command(flatten)]
    engine: EngineArguments,
}

/// Serves until the client is gone, or a signal arrives.
pub(super) async fn run(common: &Common, arguments: Arguments) -> Result<ExitCode, Failure> {
    logging::start(LogFormat::Text, logging::default_level("warn"))?;
    let mut signals = Signals::new()?;
    let token = token_header()?;
    let environment = arguments.engine.environment()?;
    environment.iter().for_each(|file| warn_of(&file.warnings));
    let ledger = EngineHandle::ledger_location(common, &arguments.engine)?;
    let principals = principals(environment.as_ref(), arguments.http.is_some())?;
    let context = Arc::new(ToolContext {
        engines: EngineKeeper::new(ledger, arguments.engine),
        root: std::env::current_dir()?,
        may_decide: environment.as_ref().is_some_and(|file| file.mcp.decide),
        principals,
    });
    let stop = watch::Sender::new(false);
    match arguments.http {
        Some(listen) => {
            let server = AgentToolServer::for_clients(Arc::clone(&context), stop.subscribe());
            let router = http::router(&context, server);
            let opened = tool_server::open(listen, router, environment.as_ref()).await;
            let service = opened.map_err(start_failure)?;
            ready(common, &format!("{}{}", service.url, http::PATH));
            signals.next().await;
            stop.send_replace(true);
            signals.unless_again(service.close()).await;
        }
        None => {
            let context = Arc::clone(&context);
            let server = AgentToolServer::for_process(context, token, stop.subscribe());
            tokio::select! {
                served = serve_stdio(server) => served?,
                () = signals.next() => {}
            }
            stop.send_replace(true);
        }
    }
    signals.unless_again(context.engines.close()).await?;
    Ok(ExitCode::SUCCESS)
}

/// The principals of the environment. Whoever connects over HTTP is asked for a token of theirs, so
/// there the tokens need values; a process that started this one may know its engine by a token
/// alone.
fn principals(environment: Option<&Environment>, is_http: bool) -> Result<ToolPrincipals, Failure> {
    match Principals::resolve(environment, &process_environment()) {
        Ok(principals) => Ok(ToolPrincipals::Known(Arc::new(principals))),
        Err(faults) if is_http => Err(start_failure(OpenEngineError::Principals(faults))),
        Err(_) => Ok(ToolPrincipals::Unusable),
    }
}

/// Prints where the server listens, unless only errors are wanted.
fn ready(common: &Common, url: &str) {
    if common.json {
        line(&json!({"url": url, "pid": std::process::id()}).to_string());
    } else if !is_quiet() {
        line(&format!("the ktsu MCP server listens on {url}"));
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
