//! `ktsu start`: a long-running engine.

mod ready;
mod reload;
mod standby;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::ValueEnum;

use self::ready::ready;
use self::reload::{ReloadSettings, StartLog};
use super::location::ledger_location;
use super::logging::LogFormat;
use super::logging::warn_of;
use super::output::note;
use super::reading::warn_of_second_name;
use super::signals::{ServiceSignal, Signals};
use super::{Common, Failure, text};
use ktsu_assemble::{self as assemble, Agents, Engine, RuntimeSetup, ServiceSetup, Setup};
use ktsu_config::fault::Faults;
use ktsu_config::read::duration_ms;
use ktsu_environment::Environment;
use ktsu_environment::settings::ListenSettings;
use ktsu_kit::Kit;
use ktsu_ledger::Ledger;
use ktsu_opening::engine::{open, open_if_free, open_reading, receiver, start_failure};
use ktsu_opening::environment::{load_environment, process_environment};
use ktsu_opening::kit::load_kit_as;
use ktsu_opening::ledger::DAMAGED_HINT;
use ktsu_opening::peer::client_token;
use ktsu_orchestrator::{AwaitedEffects, LedgerState, OwnerView};
use ktsu_peer as peer;

/// The time between two checks of the state of the ledger.
const SIGNAL_POLL_INTERVAL: Duration = Duration::from_millis(250);

/// The time for which a standby that did not become the owner serves what can be read, before it tries again.
const STANDBY_PAUSE: Duration = Duration::from_secs(5);

/// The longest time to drain.
const MAX_DRAIN: Duration = Duration::from_secs(3600);

/// What `start` takes.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The service [default: all of them in one process]
    service: Option<ServiceArguments>,
    /// Starts orchestrator, runtime and gateway in one process
    #[arg(long, conflicts_with = "service")]
    all: bool,
    /// The kit's folder (orchestrator)
    #[arg(
        long,
        value_name = "DIR",
        alias = "project-dir",
        env = "KTSU_PROJECT_DIR",
        default_value = "."
    )]
    kit: PathBuf,
    /// The environment file [default: the nearest environments/local.env.yaml, from the kit upward]
    #[arg(long, env = "KTSU_ENV", value_name = "FILE")]
    env: Option<PathBuf>,
    /// The witness that receives every signed checkpoint: file:PATH, command:COMMAND, or a URL
    #[arg(long, value_name = "PLACE")]
    witness: Option<String>,
    /// The address to listen on; beyond this machine only with principals [default: `listen` of the
    /// environment file, otherwise 127.0.0.1]
    #[arg(
        long,
        alias = "orchestrator-host",
        env = "KTSU_ORCHESTRATOR_HOST",
        value_name = "ADDRESS"
    )]
    host: Option<String>,
    /// The port; 0 for any free one [default: that of the environment file, otherwise 5050, 5051 for
    /// the runtime, 5052 for the gateway]
    #[arg(long)]
    port: Option<u16>,
    /// The orchestrator's port, unless `--port` is given
    #[arg(long, env = "KTSU_ORCHESTRATOR_PORT", hide = true, value_name = "PORT")]
    orchestrator_port: Option<u16>,
    /// The runtime's port, if all services start [default: 5051, or any free one with --port 0]
    #[arg(long, env = "KTSU_RUNTIME_PORT", value_name = "PORT")]
    runtime_port: Option<u16>,
    /// The gateway's port, if all services start [default: 5052, or any free one with --port 0]
    #[arg(long, env = "KTSU_GATEWAY_PORT", value_name = "PORT")]
    gateway_port: Option<u16>,
    /// The URL of a runtime (orchestrator); several share the tasks: give it again, or URL,URL
    #[arg(
        long,
        env = "KTSU_RUNTIME_URL",
        value_name = "URL",
        value_delimiter = ','
    )]
    runtime_url: Vec<String>,
    /// The URL of a gateway (runtime; the orchestrator checks its health and asks it for judges);
    /// several share the calls: give it again, or URL,URL
    #[arg(
        long,
        alias = "gateway",
        env = "KTSU_GATEWAY_URL",
        value_name = "URL",
        value_delimiter = ','
    )]
    gateway_url: Vec<String>,
    /// The URL of the orchestrator (runtime), and those of its standbys: give it again, or URL,URL
    #[arg(
        long = "orchestrator",
        env = "KTSU_ORCHESTRATOR_URL",
        value_name = "URL",
        value_delimiter = ','
    )]
    orchestrator_url: Vec<String>,
    /// How many tasks to work on at once, 1 to 100000; further ones wait (runtime)
    #[arg(
        long,
        env = "KTSU_PLACES",
        value_name = "N",
        default_value_t = 1_024,
        value_parser = clap::value_parser!(u32).range(1..=100_000)
    )]
    places: u32,
    /// The URL under which runtimes reach this orchestrator, if not the address it listens on
    #[arg(long, env = "KTSU_OWN_URL", value_name = "URL")]
    own_url: Option<String>,
    /// The gateway's configuration file [default: gateway.yaml in the kit's folder]
    #[arg(long, alias = "gateway-config", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Refuses a kit that differs from its ktsu.lock.yaml (orchestrator)
    #[arg(long)]
    locked: bool,
    /// Serves the ledger read-only: does not own it and writes nothing, even if it is damaged
    #[arg(long)]
    read_only: bool,
    /// Serves what can be read while another engine owns the ledger, which is on a server, and takes over once
    /// that is gone
    #[arg(long, conflicts_with = "read_only")]
    standby: bool,
    /// How long calls in flight may take to be recorded after SIGTERM or Ctrl-C; a second signal ends
    /// the process at once
    #[arg(long, env = "KTSU_DRAIN", value_name = "TIME", default_value = "30s", value_parser = drain_time)]
    drain: Duration,
    /// The format of log lines, which go to standard error. KTSU_LOG filters them (info, ktsu=debug),
    /// otherwise RUST_LOG, otherwise LOG_LEVEL of the environment file
    /// [default: text; with --json errors only]
    #[arg(long, value_enum, value_name = "FORM")]
    log_format: Option<LogFormat>,
    /// Does not print the address, and logs only errors unless KTSU_LOG says otherwise
    #[arg(long, short)]
    pub(super) quiet: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ServiceArguments {
    Orchestrator,
    Runtime,
    Gateway,
}

impl Arguments {
    /// With `--json`, a log format requests normal logs. A runtime knows an environment only by name.
    fn reload_settings(&self, common: &Common) -> ReloadSettings {
        let is_runtime = self.service == Some(ServiceArguments::Runtime);
        ReloadSettings {
            errors_only: self.quiet || (common.json && self.log_format.is_none()),
            is_read: !is_runtime || self.env.is_some(),
            env: self.env.clone(),
            kit: self.kit.clone(),
        }
    }

    /// The address of a single service; the ports of the others do not apply. Options take
    /// precedence over the environment file.
    fn listen(
        &self,
        own: Option<u16>,
        file: Option<SocketAddr>,
        usual: u16,
    ) -> Result<SocketAddr, Failure> {
        let file = file.unwrap_or(SocketAddr::from((Ipv4Addr::LOCALHOST, usual)));
        let host = self.host.as_deref().map(address).transpose()?;
        let port = self.port.or(own).unwrap_or(file.port());
        Ok(SocketAddr::new(host.unwrap_or(file.ip()), port))
    }

    /// The place where agents run.
    fn agents(&self, listen: &ListenSettings) -> Result<Agents, Failure> {
        if self.service == Some(ServiceArguments::Orchestrator) {
            let runtimes = urls(&self.runtime_url)?;
            let gateways = urls(&self.gateway_url)?;
            return Ok(match runtimes.is_empty() {
                true => Agents::Nowhere,
                false => Agents::Remote { runtimes, gateways },
            });
        }
        let host = self.host.as_deref().map(address).transpose()?;
        // Runtime and gateway have no authentication, so they stay on this machine.
        let host = host.filter(IpAddr::is_loopback);
        let at = |port: Option<u16>, file: Option<SocketAddr>, usual| {
            let usual = if self.port == Some(0) { 0 } else { usual };
            let file = file.unwrap_or(SocketAddr::from((Ipv4Addr::LOCALHOST, usual)));
            let port = port.unwrap_or(file.port());
            Some(SocketAddr::new(host.unwrap_or(file.ip()), port))
        };
        Ok(Agents::Here {
            runtime: at(self.runtime_port, listen.runtime, 5051),
            gateway: at(self.gateway_port, listen.gateway, 5052),
        })
    }
}

/// Runs a service until it is stopped.
pub(super) async fn run(common: &Common, arguments: Arguments) -> Result<ExitCode, Failure> {
    let format = arguments.log_format.unwrap_or(LogFormat::Text);
    let logs = StartLog::open(format, arguments.reload_settings(common))?;
    // Options are checked before files are read.
    arguments.host.as_deref().map(address).transpose()?;
    urls(arguments.own_url.as_slice())?;
    let signals = Signals::new()?;
    let keeps_ledger = matches!(
        arguments.service,
        None | Some(ServiceArguments::Orchestrator)
    );
    if arguments.standby && !keeps_ledger {
        let words = "--standby is only for the orchestrator, which has the ledger";
        return Err(Failure::could_not_run(words).hint("ktsu start --standby"));
    }
    if arguments.read_only && !keeps_ledger {
        let words = "--read-only is only for the orchestrator, which has the ledger";
        return Err(Failure::could_not_run(words).hint("ktsu start --read-only"));
    }
    match arguments.service {
        _ if arguments.read_only => start_read_only(common, arguments, signals, logs).await,
        Some(ServiceArguments::Runtime) => runtime(common, arguments, signals, logs).await,
        Some(ServiceArguments::Gateway) => gateway(common, arguments, signals, logs).await,
        Some(ServiceArguments::Orchestrator) | None => {
            orchestrator(common, arguments, signals, logs).await
        }
    }
}

async fn runtime(
    common: &Common,
    arguments: Arguments,
    signals: Signals,
    logs: StartLog,
) -> Result<ExitCode, Failure> {
    let needed = |given: &[String], flag: &str, example: &str| match urls(given)? {
        urls if urls.is_empty() => {
            let words = format!("the runtime needs {flag}");
            Err(Failure::could_not_run(words).hint(format!("{flag} {example}")))
        }
        urls => Ok(urls),
    };
    // A runtime knows nothing of an environment but where it listens, so it looks for none.
    let environment = match &arguments.env {
        Some(path) => load_environment(Some(path), &arguments.kit)?,
        None => None,
    };
    let file = environment.as_ref().and_then(|file| file.listen.runtime);
    let listen = arguments.listen(arguments.runtime_port, file, 5051)?;
    let orchestrators = needed(
        &arguments.orchestrator_url,
        "--orchestrator",
        "http://127.0.0.1:5050",
    )?;
    let gateways = needed(&arguments.gateway_url, "--gateway", "http://127.0.0.1:5052")?;
    let setup = ServiceSetup {
        listen,
        environment: environment.as_ref(),
        process: &process_environment(),
    };
    let own = RuntimeSetup {
        orchestrators,
        gateways,
        places: arguments.places,
        token: client_token()?,
    };
    let service = assemble::open_runtime(setup, own).await;
    let service = service.map_err(start_failure)?;
    serve_until_stopped(
        common,
        ("runtime", service),
        (signals, logs),
        arguments.drain,
    )
    .await
}

async fn gateway(
    common: &Common,
    arguments: Arguments,
    signals: Signals,
    logs: StartLog,
) -> Result<ExitCode, Failure> {
    let config = arguments.config.clone();
    let config = config.unwrap_or_else(|| arguments.kit.join("gateway.yaml"));
    let environment = load_environment(arguments.env.as_deref(), &arguments.kit)?;
    let file = environment.as_ref().and_then(|file| file.listen.gateway);
    let listen = arguments.listen(arguments.gateway_port, file, 5052)?;
    let setup = ServiceSetup {
        listen,
        environment: environment.as_ref(),
        process: &process_environment(),
    };
    let service = assemble::open_gateway(setup, &config).await;
    let service = service.map_err(start_failure)?;
    serve_until_stopped(
        common,
        ("gateway", service),
        (signals, logs),
        arguments.drain,
    )
    .await
}

/// Prints where a service listens, and waits for a signal.
async fn serve_until_stopped(
    common: &Common,
    (name, service): (&str, assemble::Service),
    (mut signals, logs): (Signals, StartLog),
    drain: Duration,
) -> Result<ExitCode, Failure> {
    tracing::info!(url = service.url, "ready");
    ready(common, &format!("the ktsu {name}"), &service.url);
    logs.until_stop(&mut signals, None).await;
    tracing::info!("draining; a second signal exits at once");
    let stopped = async {
        service.drain(drain).await;
        service.close().await;
    };
    signals.unless_again(stopped).await;
    Ok(ExitCode::SUCCESS)
}

async fn orchestrator(
    common: &Common,
    arguments: Arguments,
    mut signals: Signals,
    mut logs: StartLog,
) -> Result<ExitCode, Failure> {
    let kit = load_kit_as(&arguments.kit, arguments.locked)?;
    warn_of(&kit.warnings);
    let name = kit.name.clone();
    let environment = load_environment(arguments.env.as_deref(), &kit.root)?;
    environment.iter().for_each(|file| warn_of(&file.warnings));
    warn_of(&Faults {
        faults: ktsu_project::unmeetable(&kit, environment.as_ref()),
        ..Faults::default()
    });
    let listening = environment.as_ref().map(|file| file.listen.clone());
    let listening = listening.unwrap_or_default();
    let own_port = arguments.orchestrator_port;
    let listen = arguments.listen(own_port, listening.orchestrator, 5050)?;
    let agents = arguments.agents(&listening)?;
    let ledger = ledger_location(common, environment.as_ref())?;
    let mut process = process_environment();
    if let Some(witness) = arguments.witness {
        process.insert("KTSU_WITNESS".to_owned(), witness);
    }
    let receiver = receiver(environment.as_ref(), &mut process, ledger.ledger.file()).await?;
    let urls = arguments.runtime_url.iter().chain(&arguments.gateway_url);
    let urls = urls.map(String::as_str);
    let certificates = assemble::certificates(environment.as_ref(), &process, urls);
    let certificates = certificates.map_err(|error| start_failure(error.into()))?;
    let service_token = client_token()?;
    let setup = |read_again: Option<&Environment>| Setup {
        read_again: read_again.cloned(),
        listen,
        certificates: certificates.clone(),
        service_token: service_token.clone(),
        agents: agents.clone(),
        own_url: arguments.own_url.clone(),
        gateway: arguments.config.clone(),
        ..Setup::embedded(
            Arc::clone(&kit),
            environment.clone(),
            process.clone(),
            ledger.ledger.clone(),
        )
    };
    let engine = match arguments.standby {
        false => open(setup(None)).await?,
        true => {
            standby::check(&ledger.ledger, &agents)?;
            // Referred to the owner are only the clients of engines that name a URL for themselves.
            let owner = OwnerView::new(arguments.own_url.is_some());
            let (mut read_again, mut not_before) = (None, None);
            loop {
                let waiting = (setup(read_again.as_ref()), &owner, not_before);
                let listened = (&mut signals, &mut logs);
                if !standby::until_free(common, waiting, &mut read_again, listened).await? {
                    return Ok(ExitCode::SUCCESS);
                }
                standby::check_ports(&agents)?;
                match open_if_free(setup(read_again.as_ref())).await? {
                    Ok(engine) => break engine,
                    Err(why) => tracing::warn!(why, "did not take over; a standby again"),
                }
                not_before = Some(Instant::now() + STANDBY_PAUSE);
            }
        }
    };
    let is_shared = ledger.ledger.is_shared();
    if is_shared && let Ok(status) = Ledger::open(&ledger.ledger).status() {
        for warning in status.warnings {
            tracing::warn!("{warning}");
        }
    }
    if is_shared && arguments.own_url.is_none() && listen.ip().is_unspecified() {
        tracing::warn!(
            url = engine.url,
            "the ledger names this URL as its owner's, which no other machine can call: give --own-url"
        );
    }
    if let Some(receiver) = &receiver {
        tracing::info!(url = receiver.url(), "local webhook receiver ready");
    }
    let recovered = engine.recovered;
    tracing::info!(
        kit = name,
        ledger = %ledger.ledger,
        url = engine.url,
        unfinished = recovered.unfinished,
        resent = recovered.resent,
        left = recovered.left,
        other_rules = recovered.other_rules,
        "ready"
    );
    for (service, url) in &engine.services {
        tracing::info!(url, "{service} ready");
    }
    ready(common, "ktsu", &engine.url);
    serve((engine, is_shared), &mut signals, logs, arguments.drain).await
}

/// Serves a ledger read-only. Needs no kit; the environment defines who may read.
async fn start_read_only(
    common: &Common,
    arguments: Arguments,
    mut signals: Signals,
    logs: StartLog,
) -> Result<ExitCode, Failure> {
    let environment = load_environment(arguments.env.as_deref(), &arguments.kit)?;
    let file = environment
        .as_ref()
        .and_then(|file| file.listen.orchestrator);
    let listen = arguments.listen(arguments.orchestrator_port, file, 5050)?;
    let ledger = ledger_location(common, environment.as_ref())?;
    let file = ledger.ledger.clone();
    let kit = Arc::new(Kit::empty());
    let process = process_environment();
    let certificates = assemble::certificates(environment.as_ref(), &process, []);
    let certificates = certificates.map_err(|error| start_failure(error.into()))?;
    let setup = standby::reading(Setup {
        listen,
        certificates,
        ..Setup::embedded(kit, environment, process, file)
    });
    warn_of_second_name(&ledger.ledger);
    let reading = open_reading(setup).await?;
    if let Some(why) = &reading.damaged {
        tracing::warn!(why, "the ledger is damaged; serving what can be read");
    }
    tracing::info!(ledger = %ledger.ledger, url = reading.url, "ready to read");
    ready(common, "ktsu", &reading.url);
    let principals = Some(&reading.principals);
    logs.until_stop(&mut signals, principals).await;
    signals.unless_again(reading.close()).await;
    Ok(ExitCode::SUCCESS)
}

/// Serves until it is stopped; `is_shared` if other machines may own the ledger.
async fn serve(
    (engine, is_shared): (Engine, bool),
    signals: &mut Signals,
    mut logs: StartLog,
    drain: Duration,
) -> Result<ExitCode, Failure> {
    let mut looks = tokio::time::interval(SIGNAL_POLL_INTERVAL);
    let failed = loop {
        tokio::select! {
            signal = signals.next_of_service() => match signal {
                ServiceSignal::Stop => break None,
                ServiceSignal::Reload => drop(logs.reload(Some(&engine.principals))),
            },
            _ = looks.tick() => {
                logs.report_dropped();
                if let Some(why) = engine.orchestrator.failed() {
                    break Some(why);
                }
            }
        }
    };
    let damaged = engine.orchestrator.ledger_state().0 == LedgerState::Damaged;
    let active = engine.orchestrator.active();
    tracing::info!(active, "draining; a second signal exits at once");
    let stopped = async {
        // Nothing can be recorded on a ledger that has stopped.
        if failed.is_none() {
            let left = engine.drain(AwaitedEffects::CallsAndWebhooks, drain).await;
            if left > 0 {
                tracing::warn!(
                    runs = left,
                    "calls are still in flight and will be repeated"
                );
            }
        }
        engine.close().await
    };
    let closed = signals.unless_again(stopped).await;
    if let Some(why) = failed.or_else(|| closed.err()) {
        let failure = Failure::could_not_run(format!("the ledger has stopped: {why}"));
        return Err(match damaged {
            true => failure.hint(DAMAGED_HINT),
            false if is_shared => {
                failure.hint("see who owns it now: ktsu ledger status; then start again")
            }
            false => failure.hint("check the ledger with ktsu verify, then start again"),
        });
    }
    if active > 0 {
        let runs = text::count(active, "unfinished run");
        note(&format!("{runs} will resume at the next start"));
    }
    Ok(ExitCode::SUCCESS)
}

/// A time such as `30s`; `0` drains nothing.
fn drain_time(text: &str) -> Result<Duration, String> {
    let ms = match text.trim() {
        "0" => Some(0),
        text => duration_ms(text),
    };
    let ms = ms.filter(|ms| *ms <= MAX_DRAIN.as_millis() as u64);
    let ms = ms.ok_or("write it as 30s, 500ms or 2m; at most 1h, and 0 drains nothing")?;
    Ok(Duration::from_millis(ms))
}

/// URLs of services as they are configured, each once.
fn urls(given: &[String]) -> Result<Vec<String>, Failure> {
    let mut urls: Vec<String> = Vec::new();
    for url in given {
        let url = url.trim().trim_end_matches('/');
        if url.is_empty() || urls.iter().any(|known| known == url) {
            continue;
        }
        peer::split(url).map_err(Failure::of)?;
        urls.push(url.to_owned());
    }
    Ok(urls)
}

fn address(host: &str) -> Result<IpAddr, Failure> {
    if host == "localhost" {
        return Ok(IpAddr::V4(Ipv4Addr::LOCALHOST));
    }
    let address: Option<IpAddr> = host.parse().ok();
    let words = |why: &str| Failure::could_not_run(format!("cannot listen on {host}: {why}"));
    address.ok_or_else(|| words("it is not an IP address").hint("--host 127.0.0.1"))
}
