//! `ktsu mcp`: the arguments of a tool server, its log, its signals, and where it listens.

use std::net::SocketAddr;
use std::process::ExitCode;

use serde_json::json;

use super::location::LedgerLocation;
use super::logging::{self, LogFormat, warn_of};
use super::output::{is_quiet, line, note};
use super::owner::{EngineArguments, EngineHandle};
use super::reading::open_at;
use super::signals::Signals;
use super::{Common, Failure};
use ktsu_assemble::tool_server;
use ktsu_mcp_server::{Console, EngineMcpServer, PATH, ServerSetup};
use ktsu_opening::engine::start_failure;
use ktsu_opening::peer::token_header;

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
    let setup = setup(ledger, arguments.engine);
    let server = EngineMcpServer::new(setup?, environment.as_ref(), arguments.http.is_some())?;
    match arguments.http {
        Some(listen) => {
            let opened = tool_server::open(listen, server.router(), environment.as_ref()).await;
            let service = opened.map_err(start_failure)?;
            ready(common, &format!("{}{PATH}", service.url));
            signals.next().await;
            server.stop();
            signals.unless_again(service.close()).await;
        }
        None => {
            tokio::select! {
                served = server.serve_stdio(token) => served?,
                () = signals.next() => {}
            }
            server.stop();
        }
    }
    signals.unless_again(server.close()).await?;
    Ok(ExitCode::SUCCESS)
}

fn setup(ledger: LedgerLocation, engine: EngineArguments) -> Result<ServerSetup, Failure> {
    Ok(ServerSetup {
        ledger: ledger.ledger,
        kit: engine.kit,
        environment: engine.env,
        root: std::env::current_dir()?,
        console: Console {
            note,
            open_ledger: open_at,
        },
    })
}

/// Prints where the server listens, unless only errors are wanted.
fn ready(common: &Common, url: &str) {
    if common.json {
        line(&json!({"url": url, "pid": std::process::id()}).to_string());
    } else if !is_quiet() {
        line(&format!("the ktsu MCP server listens on {url}"));
    }
}
