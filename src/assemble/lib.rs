//! The only file that names concrete parts: which store, which clock, which client.

mod agents;
mod counted;
mod delivery;
mod disk_full;
pub mod import;
mod key;
pub mod keys;
mod ledger;
mod notary;
pub mod reading;
pub mod reload;
pub mod servers;
mod service;
pub mod tool_server;
pub mod values;

pub use agents::group_prices;
pub use ktsu_ledger::LedgerPlace;
pub use ledger::readers;
pub use service::{Service, open_gateway, open_runtime};

use counted::{ConnectionCounts, ORCHESTRATOR};

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::Router;
use futures_util::future::join_all;
use ktsu_ledger::appender::{Appender, AppenderThread, OnCommit, Options};
use ktsu_ledger::event::{StoreEvent, StoreOpened};
use ktsu_ledger::lock::{LockError, LockHolder, OwnerLock};
use ktsu_ledger::store::StoreError;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use self::reload::PrincipalReload;
use ktsu_api::access::{Access, PrincipalsInForce};
use ktsu_api::judges::JudgeModels;
use ktsu_api::routes;
use ktsu_api::streams::StreamLimits;
use ktsu_config::fault::Faults;
use ktsu_egress::{self as egress, EgressPolicy};
use ktsu_environment::{self as environment, Environment, ResolveError};
use ktsu_evidence::notary::{Feed, Notary, NotaryParts as Notarial};
use ktsu_evidence::store_stream::StoreStream;
use ktsu_gateway::Gateway;
use ktsu_kit::Kit;
use ktsu_ledger::CanonicalJson;
use ktsu_orchestrator::{
    AwaitedEffects, LedgerHealth, MAX_ACTIVE, MicrosClock, Orchestrator, OrchestratorParts, Peers,
    Recovered, clock, rebuild_index,
};
use ktsu_runtime::{LocalOrchestrator, Runtime};
use ktsu_server::{self as server, BindError, ServerLimits};
use ktsu_subscriptions::EventFeed;
use ktsu_telemetry::{Metrics, Telemetry};
use ktsu_workflow::admit::{ENGINE, report::sha256};

/// What an engine is made of.
pub struct Setup {
    /// What may be invoked.
    pub kit: Arc<Kit>,
    /// The environment file, if there is one.
    pub environment: Option<Environment>,
    /// The process environment.
    pub process: BTreeMap<String, String>,
    /// Where the ledger is.
    pub ledger: LedgerPlace,
    /// Where to listen; loopback only where no principals are configured (decision H5).
    pub listen: SocketAddr,
    /// The time; the machine's, unless a test stops it.
    pub clock: Option<MicrosClock>,
    /// Where agents run.
    pub agents: Agents,
    /// Where runtimes reach this engine, if not where it listens.
    pub own_url: Option<String>,
    /// The gateway's file, if not `gateway.yaml` in the kit's folder.
    pub gateway: Option<PathBuf>,
    /// Whether runs that were left unfinished go on.
    pub resume_unfinished: bool,
}

/// Where agents run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Agents {
    /// In this process, runtime and gateway both; they listen, too, where an address is given.
    Here {
        /// For the runtime.
        runtime: Option<SocketAddr>,
        /// For the gateway.
        gateway: Option<SocketAddr>,
    },
    /// Elsewhere.
    Remote {
        /// `http://127.0.0.1:5051`.
        runtime: String,
        /// `http://127.0.0.1:5052`; only for health checks.
        gateway: Option<String>,
    },
    /// Nowhere: workflows with agent steps are refused.
    Nowhere,
}

impl Agents {
    /// In this process, without sockets.
    pub fn here() -> Self {
        Self::Here {
            runtime: None,
            gateway: None,
        }
    }
}

fn other(error: impl std::fmt::Display) -> OpenEngineError {
    OpenEngineError::Other(error.to_string())
}

/// What a start with this environment would refuse of its `evidence`, in words.
pub fn mismatch(environment: &Environment, process: &BTreeMap<String, String>) -> Vec<String> {
    let witness = notary::place(Some(environment), process).map(|_| ());
    let key = values::put_signing_key(Some(environment), &mut process.clone());
    let refused = [witness, key].into_iter().filter_map(Result::err);
    refused.map(|refused| refused.to_string()).collect()
}

/// An engine at work.
pub struct Engine {
    /// The handle on it.
    pub orchestrator: Orchestrator,
    /// Its routes, for calls within the process.
    pub router: Router,
    /// Where it listens.
    pub url: String,
    /// What the start found.
    pub recovered: Recovered,
    /// Reads its principals again.
    pub principals: PrincipalReload,
    appender: Appender,
    thread: AppenderThread,
    notary: Arc<Notary>,
    /// Whether it started on a full disk and still waits for space.
    waiting: watch::Receiver<bool>,
    serving: Vec<JoinHandle<()>>,
    /// The URLs of runtime and gateway, where they listen.
    pub services: Vec<(&'static str, String)>,
    runtime: Option<Runtime>,
    gateway: Option<Gateway>,
    /// The models that checks ask.
    pub models: JudgeModels,
    /// Where the runtime of this process reports to.
    _way_back: Arc<OnceLock<LocalOrchestrator>>,
    stop: watch::Sender<bool>,
    /// Held until the last frame is durable.
    lock: Option<OwnerLock>,
}

/// Why an engine does not start.
#[derive(Debug, thiserror::Error)]
pub enum OpenEngineError {
    /// Another process owns the ledger.
    #[error("another process owns the ledger")]
    Owned(Option<LockHolder>),
    /// The lock file cannot be used.
    #[error(transparent)]
    Lock(LockError),
    /// The ledger cannot be opened or read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Variables of a workflow have no value.
    #[error("workflow {workflow}: {error}")]
    Environment {
        /// The workflow that declares them.
        workflow: String,
        /// Which.
        error: ResolveError,
    },
    /// Tokens or keys of principals have no usable values.
    #[error("the principals of the environment are not valid")]
    Principals(Faults),
    /// An entry of `egress.allow` is not valid.
    #[error(transparent)]
    Egress(#[from] egress::AllowlistEntryError),
    /// The address cannot be listened on.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// Subscriptions of the environment have secrets without usable values.
    #[error("the subscriptions of the environment are not valid")]
    Subscriptions(Faults),
    /// The gateway's file, or the environment's providers, have faults.
    #[error("the gateway configuration is not valid")]
    Gateway(Faults),
    /// Something else.
    #[error("{0}")]
    Other(String),
}

/// Opens the ledger as its owner, resumes unfinished runs, and listens.
///
/// # Errors
/// [`OpenEngineError`].
pub async fn open(mut setup: Setup) -> Result<Engine, OpenEngineError> {
    let (principals, environment) = values::of(&setup)?;
    values::put_signing_key(setup.environment.as_ref(), &mut setup.process)?;
    let known = (setup.environment.clone(), setup.process.clone());
    let process = setup.process.clone();
    let file = setup.environment.as_ref();
    let egress = egress::Client::new(&policy(file))?;
    let limits = file.map(|file| file.limits.clone()).unwrap_or_default();
    let gateway = setup.gateway(&egress)?;
    let provider_keys = gateway.secrets().to_vec();
    let declared = delivery::declared(&setup)?;
    values::shows_none_of(&environment, &provider_keys)?;
    let here = matches!(setup.agents, Agents::Here { .. });
    let groups = here.then(|| routing_digests(&gateway));
    let prices = match here {
        true => group_prices(&gateway),
        false => BTreeMap::default(),
    };
    let ledger::OpenedLedger {
        mut lock,
        mut store,
        readers,
        disk_space,
        damage,
        reserve,
    } = ledger::open(&setup.ledger)?;
    let full = lock.as_ref().is_some_and(OwnerLock::opened_on_full_disk);
    let tokens = key::of(&setup.ledger)?;
    if let Err(error) = rebuild_index(store.as_mut()) {
        store.abandon();
        return Err(error.into());
    }
    let listener = match principals.is_empty() {
        true => server::bind_loopback(setup.listen).await?,
        false => server::bind(setup.listen).await?,
    };
    let url = url_of(&listener)?;
    if let Some(lock) = &mut lock {
        lock.set_url(&url).map_err(other)?;
    }
    let clock = setup.clock.clone().unwrap_or_else(clock::system_clock);
    let place = notary::place(setup.environment.as_ref(), &setup.process)?;
    let feed = Feed::default();
    let metrics = Metrics::default();
    let events = EventFeed::new(readers.clone());
    let options = Options {
        disk_space,
        on_commit: Some(noting(feed.on_commit(), events.clone())),
        on_written: Some(metrics.on_written()),
        on_fatal: Some(ledger::on_fatal(&damage)),
        ..Options::default()
    };
    let (appender, thread) = Appender::start(store, options)?;
    if let Some(lock) = &mut lock {
        lock.set_log_epoch(appender.epoch().0)
            .map_err(OpenEngineError::Lock)?;
    }
    ledger::stop_when_damaged(&damage, &appender, &setup.ledger);
    // From here on no other process can write, not even an owner that lost its lock.
    let found = readers.with_blocking(|reader| notary::look(&setup, reader))?;
    let facts = found.stream(&appender, &clock);
    let opened = StoreEvent::Opened(StoreOpened {
        engine: ENGINE.to_owned(),
        epoch: appender.epoch().0,
        pid: std::process::id(),
    });
    note_parts(&facts, opened).await?;
    let parts = Notarial {
        readers: readers.clone(),
        store: Arc::clone(&facts),
        key: found.key,
        witness: place.map(|place| notary::witness(place, &egress)),
    };
    let notary = Arc::new(Notary::start(feed, parts, found.size).map_err(other)?);
    let subscriptions =
        delivery::subscriptions(&setup, declared, &events, &appender, &readers, &clock)?;
    let signing_keys = subscriptions.secrets().await?;
    values::shows_none_of(&environment, &signing_keys)?;
    let stop = watch::Sender::new(false);
    let way_back = Arc::new(OnceLock::new());
    let agents = agents::agents(&setup.agents, gateway, &way_back, &egress);
    let counted = ConnectionCounts::of(agents.listening.iter().map(|(name, _, _)| *name));
    let tool_servers = known.0.as_ref().map(|file| file.servers.clone());
    let parts = OrchestratorParts {
        telemetry: Telemetry::new(metrics, &appender, counted.all()),
        appender: appender.clone(),
        readers: readers.clone(),
        events,
        subscriptions,
        kit: setup.kit,
        environment,
        principals: Arc::clone(&principals),
        retention: values::retention(known.0.as_ref(), &facts),
        peers: Peers {
            egress,
            runtime: agents.runtime,
            runtime_here: agents.here.clone().map(|here| Arc::new(here) as _),
            gateway: agents.gateway,
            groups,
            prices,
            tool_servers: tool_servers.unwrap_or_default(),
            tokens,
            own_url: setup.own_url.unwrap_or_else(|| url.clone()),
        },
        max_active: limits.active_runs.unwrap_or(MAX_ACTIVE),
        clock: Arc::clone(&clock),
        notary: notary.status(),
        resume_unfinished: setup.resume_unfinished && !full,
        standing: LedgerHealth::owner(damage.clone(), full),
        secret: Arc::new(move |variable| {
            let declared = std::slice::from_ref(variable);
            let resolved = environment::resolve(known.0.as_ref(), declared, &known.1).ok();
            resolved?.secrets.remove(&variable.name)
        }),
        provider_keys: [provider_keys, signing_keys].concat(),
    };
    let started = Orchestrator::start(parts).await;
    if let Some(why) = damage.reason() {
        return Err(StoreError::Damaged(why.to_owned()).into());
    }
    let (orchestrator, recovered) = started.map_err(OpenEngineError::Other)?;
    disk_full::note_recovered(&facts, recovered).await?;
    let most = server_limits(limits.connections);
    let in_force = PrincipalsInForce::from(principals);
    let models = agents.models;
    let access = |within, streams| Access {
        models: models.clone(),
        principals: in_force.clone(),
        within,
        body_bytes: limits.body_bytes,
        trace_work: limits.trace_work,
        streams,
    };
    // Streams within the process take no connections.
    let router = routes::router_for(orchestrator.clone(), access(true, StreamLimits::default()));
    let streams = StreamLimits::of_connections(most.connections);
    let open = routes::router_for(orchestrator.clone(), access(false, streams));
    // Set once, here; earlier callbacks are retried.
    let _ = way_back.set(LocalOrchestrator {
        router: router.clone(),
        reports: Some(Arc::new(routes::InProcessReports(orchestrator.clone()))),
    });
    let own_limits = counted.limits(ORCHESTRATOR, &most);
    let mut serving = vec![serve(listener, open, own_limits, &stop)];
    let mut services = Vec::new();
    for (name, address, router) in agents.listening {
        let listener = server::bind_loopback(address).await?;
        services.push((name, url_of(&listener)?));
        serving.push(serve(listener, router, counted.limits(name, &most), &stop));
    }
    if let Some(runtime) = agents.here.clone() {
        let stopped = stopped(&stop);
        serving.push(tokio::spawn(async move { runtime.beat(stopped).await }));
    }
    let later = disk_full::DeferredStart {
        orchestrator: orchestrator.clone(),
        appender: appender.clone(),
        notary: Arc::clone(&notary),
        facts,
        reserve,
        resume_unfinished: setup.resume_unfinished,
    };
    let waiting = later.begin(full, stopped(&stop)).await;
    let principals = PrincipalReload {
        in_force,
        orchestrator: orchestrator.clone(),
        process,
    };
    Ok(Engine {
        orchestrator,
        principals,
        router,
        url,
        recovered,
        appender,
        thread,
        notary,
        waiting,
        serving,
        services,
        runtime: agents.here,
        gateway: agents.gateway_here,
        models,
        _way_back: way_back,
        stop,
        lock,
    })
}

/// Tells followers of every commit, before the notary has it.
fn noting(mut notary: OnCommit, events: EventFeed) -> OnCommit {
    Box::new(move |commit| {
        events.note_commit();
        notary(commit);
    })
}

/// Where a listener is reached from this machine.
fn url_of(listener: &TcpListener) -> Result<String, OpenEngineError> {
    let mut address = listener.local_addr().map_err(other)?;
    // An unspecified address cannot be connected to.
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    Ok(format!("http://{address}"))
}

fn serve(
    listener: TcpListener,
    router: Router,
    limits: ServerLimits,
    stop: &watch::Sender<bool>,
) -> JoinHandle<()> {
    let stopped = stopped(stop);
    tokio::spawn(async move {
        server::serve(listener, router, limits, stopped).await;
    })
}

fn server_limits(connections: Option<usize>) -> ServerLimits {
    let usual = ServerLimits::default();
    ServerLimits {
        connections: server::possible_connections(connections.unwrap_or(usual.connections)),
        ..usual
    }
}

/// What may be called. Without principals everything is local, and so is what it may call
/// (decision K6).
fn policy(environment: Option<&Environment>) -> EgressPolicy {
    EgressPolicy {
        allow: environment
            .map(|one| one.egress_allow.clone())
            .unwrap_or_default(),
        loopback: environment.is_none_or(|one| one.principals.is_empty()),
    }
}

/// Resolves once everything is to stop.
fn stopped(stop: &watch::Sender<bool>) -> impl Future<Output = ()> + Send + use<> {
    let mut stop = stop.subscribe();
    async move {
        let _ = stop.wait_for(|stop| *stop).await;
    }
}

impl Engine {
    /// The model groups that only scripts answer.
    pub fn scripted_groups(&self) -> BTreeSet<String> {
        let gateway = self.gateway.as_ref();
        gateway.map(Gateway::scripted_groups).unwrap_or_default()
    }

    /// The first model of each group of which no price is known.
    pub fn unpriced_models(&self) -> BTreeMap<String, String> {
        let gateway = self.gateway.as_ref();
        gateway.map(Gateway::unpriced_models).unwrap_or_default()
    }

    /// Stops in two phases: first, no new requests are accepted and no run continues; then
    /// everything sent to the ledger is made durable.
    ///
    /// # Errors
    /// Why the ledger had stopped before.
    pub async fn close(self) -> Result<(), String> {
        if let Some(runtime) = &self.runtime {
            runtime.stop();
        }
        self.orchestrator.stop();
        self.orchestrator.subscriptions().stop().await;
        self.stop.send_replace(true);
        join_all(self.serving).await;
        drop(self.appender);
        let (thread, notary, mut lock) = (self.thread, self.notary, self.lock);
        let waits = *self.waiting.borrow();
        let finished = tokio::task::spawn_blocking(move || {
            match waits {
                true => notary.abandon(),
                false => notary.finish(),
            }
            if let Some(lock) = &mut lock {
                lock.clear_log_epoch();
            }
            let outcome = thread.shutdown();
            // Given back last: closing it drops the locks that SQLite has on the same file.
            drop(lock);
            outcome
        });
        let outcome = finished.await.map_err(|error| error.to_string())?;
        outcome.map_err(|error| error.to_string())
    }

    /// Starts nothing new from now on, and returns once no effect is in flight, or after this time.
    /// Returns the number of runs that still have effects in flight.
    pub async fn drain(&self, awaited: AwaitedEffects, limit: Duration) -> usize {
        // Other engines may call the gateway of this one.
        let calls = async {
            if let Some(gateway) = &self.gateway {
                let _ = tokio::time::timeout(limit, gateway.drain()).await;
            }
        };
        tokio::join!(self.orchestrator.drain(awaited, limit), calls).0
    }

    /// What the ledger's writer has done so far.
    pub fn appender(&self) -> &Appender {
        &self.appender
    }
}

impl Setup {
    /// An engine that runs everything in this process, on any port of this machine.
    pub fn embedded(
        kit: Arc<Kit>,
        environment: Option<Environment>,
        process: BTreeMap<String, String>,
        ledger: LedgerPlace,
    ) -> Self {
        Self {
            kit,
            environment,
            process,
            ledger,
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            clock: None,
            agents: Agents::here(),
            own_url: None,
            gateway: None,
            resume_unfinished: true,
        }
    }

    /// The gateway of this process, if agents run here.
    fn gateway(&self, egress: &egress::Client) -> Result<Gateway, OpenEngineError> {
        let file = self.gateway.clone();
        let file = file.unwrap_or_else(|| self.kit.root.join("gateway.yaml"));
        let wanted = matches!(self.agents, Agents::Here { .. });
        match wanted && (self.gateway.is_some() || file.is_file()) {
            true => Gateway::load(&file, self.environment.as_ref(), &self.process, egress)
                .map_err(OpenEngineError::Gateway),
            false => Ok(Gateway::empty()),
        }
    }
}

/// Appends a fact about the ledger as a whole.
async fn note_parts(facts: &Arc<StoreStream>, event: StoreEvent) -> Result<(), OpenEngineError> {
    let facts = Arc::clone(facts);
    let noted = tokio::task::spawn_blocking(move || facts.append(vec![(Vec::new(), event)]));
    let noted = noted.await.map_err(other)?;
    noted.map(drop).map_err(OpenEngineError::Other)
}

/// The digest of how a gateway routes the calls of each group: SHA-256 over RFC 8785 text (decision
/// F7).
pub fn routing_digests(gateway: &Gateway) -> BTreeMap<String, String> {
    let routes = gateway.routes().into_iter();
    let digests = routes.filter_map(|(group, route)| {
        let route = CanonicalJson::from_value(&route).ok()?;
        Some((group, sha256(&route)))
    });
    digests.collect()
}
