//! `ktsu start`: an engine that stays.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::ValueEnum;
use serde_json::json;

use super::engine::{load_environment, load_kit, open, place, process_environment, receiver};
use super::logging::{self, LogFormat};
use super::output::{line, note};
use super::signals::Signals;
use super::{Common, Failure};
use crate::assemble::{Engine, LedgerPlace, Setup};
use crate::kit::fault::Severity;

/// How often the ledger is asked whether it still works.
const LOOK: Duration = Duration::from_millis(250);

/// What `start` takes.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The service; without one, all of them
    service: Option<Service>,
    /// Starts every service this version has: the orchestrator
    #[arg(long, conflicts_with = "service")]
    all: bool,
    /// The kit's folder
    #[arg(
        long,
        value_name = "DIR",
        alias = "project-dir",
        env = "KTSU_PROJECT_DIR",
        hide_env_values = true,
        default_value = "."
    )]
    kit: PathBuf,
    /// The environment file [default: the nearest environments/local.env.yaml, from the kit upward]
    #[arg(long, env = "KTSU_ENV", hide_env_values = true, value_name = "FILE")]
    env: Option<PathBuf>,
    /// Where to listen: an address of this machine alone
    #[arg(
        long,
        alias = "orchestrator-host",
        env = "KTSU_ORCHESTRATOR_HOST",
        hide_env_values = true,
        default_value = "127.0.0.1",
        value_name = "ADDRESS"
    )]
    host: String,
    /// The port; 0 for any free one
    #[arg(
        long,
        alias = "orchestrator-port",
        env = "KTSU_ORCHESTRATOR_PORT",
        hide_env_values = true,
        default_value_t = 5050
    )]
    port: u16,
    /// The form of log lines, which go to standard error; KTSU_LOG filters them (info, ktsu=debug)
    #[arg(long, value_enum, default_value_t = LogFormat::Text, value_name = "FORM")]
    log_format: LogFormat,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Service {
    Orchestrator,
    #[value(hide = true)]
    Runtime,
    #[value(hide = true)]
    Gateway,
}

/// Starts, and stays until it is told to stop.
pub(super) async fn run(common: &Common, arguments: Arguments) -> Result<ExitCode, Failure> {
    let missing = |name: &str| {
        let words = format!(
            "there is no {name} in this version: it runs transforms, webhooks and sub-workflows"
        );
        Err(Failure::could_not_run(words).hint("ktsu start orchestrator"))
    };
    match arguments.service {
        Some(Service::Runtime) => return missing("agent runtime"),
        Some(Service::Gateway) => return missing("LLM gateway"),
        Some(Service::Orchestrator) | None => {}
    }
    let listen = SocketAddr::new(address(&arguments.host)?, arguments.port);
    logging::start(arguments.log_format, "info")?;
    let mut signals = Signals::new()?;
    let kit = load_kit(&arguments.kit)?;
    for fault in &kit.warnings.faults {
        if fault.severity == Severity::Warning {
            tracing::warn!(
                file = %fault.file.display(),
                line = fault.line,
                code = fault.code.text(),
                "{}",
                fault.message
            );
        }
    }
    let name = kit.name.clone();
    let environment = load_environment(arguments.env.as_deref(), &kit.root)?;
    let ledger = place(common, environment.as_ref());
    let mut process = process_environment();
    let receiver = receiver(environment.as_ref(), &mut process).await?;
    let engine = open(Setup {
        kit,
        environment,
        process,
        ledger: LedgerPlace::File(ledger.path.clone()),
        listen,
        clock: None,
    })
    .await?;
    if let Some(receiver) = &receiver {
        tracing::info!(url = receiver.url(), "a local receiver takes webhooks");
    }
    let recovered = engine.recovered;
    tracing::info!(
        kit = name,
        ledger = %ledger.path.display(),
        url = engine.url,
        unfinished = recovered.unfinished,
        resent = recovered.resent,
        "ready"
    );
    line(&match common.json {
        true => json!({"url": engine.url, "pid": std::process::id()}).to_string(),
        false => format!("ktsu listens on {}", engine.url),
    });
    serve(engine, &mut signals).await
}

async fn serve(engine: Engine, signals: &mut Signals) -> Result<ExitCode, Failure> {
    let mut looks = tokio::time::interval(LOOK);
    let failed = loop {
        tokio::select! {
            () = signals.next() => break None,
            _ = looks.tick() => if let Some(why) = engine.orchestrator.failed() {
                break Some(why);
            },
        }
    };
    let active = engine.orchestrator.active();
    tracing::info!(active, "stopping; a second signal ends it at once");
    let closed = signals.unless_again(engine.close()).await;
    if let Some(why) = failed.or_else(|| closed.err()) {
        return Err(
            Failure::could_not_run(format!("the ledger has stopped: {why}"))
                .hint("ktsu verify, then start again"),
        );
    }
    if active > 0 {
        note(&format!("{active} runs go on at the next start"));
    }
    Ok(ExitCode::SUCCESS)
}

fn address(host: &str) -> Result<IpAddr, Failure> {
    if host == "localhost" {
        return Ok(IpAddr::V4(Ipv4Addr::LOCALHOST));
    }
    let address: Option<IpAddr> = host.parse().ok();
    let words = |why: &str| Failure::could_not_run(format!("cannot listen on {host}: {why}"));
    let address =
        address.ok_or_else(|| words("it is not an IP address").hint("--host 127.0.0.1"))?;
    if address.is_loopback() {
        return Ok(address);
    }
    Err(
        words("other machines could reach it, and nobody would ask them who they are")
            .hint("--host 127.0.0.1"),
    )
}
