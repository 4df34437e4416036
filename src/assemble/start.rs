//! The start of an engine, in steps. Each step takes the one before by value, so no other order can
//! be written:
//!
//! ```text
//! Values ─▶ OwnedLedger ─▶ Appending ─▶ Writing ─▶ Started ─▶ Engine
//! ```
//!
//! What [`Values`] refuses is refused before the ledger is touched. The fields of a step are given
//! back from the first to the last, so the lock of the ledger is behind everything that writes.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use axum::Router;
use ktsu_ledger::appender::{Appender, AppenderThread, OnCommit, Options};
use ktsu_ledger::event::{StoreEvent, StoreOpened};
use ktsu_ledger::lock::OwnerLock;
use ktsu_ledger::reserve::Reserve;
use ktsu_ledger::store::StoreError;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::agents::{self, Workers, group_prices, routing_digests};
use super::counted::{ConnectionCounts, ORCHESTRATOR};
use super::engine::Engine;
use super::error::{OpenEngineError, other};
use super::network::{keep_current, listen, policy, serve, server_limits, stopped, url_of};
use super::notary::note_parts;
use super::reload::PrincipalReload;
use super::setup::{Agents, Setup};
use super::{delivery, disk_full, key, ledger, ledger_status, notary, values};
use ktsu_api::access::{Access, PrincipalsInForce};
use ktsu_api::routes;
use ktsu_api::sessions::BrowserSessions;
use ktsu_api::streams::StreamLimits;
use ktsu_damage::Damage;
use ktsu_egress as egress;
use ktsu_environment::settings::LimitSettings;
use ktsu_environment::subscription_secrets::ResolvedSubscription;
use ktsu_environment::{self as environment, Environment, Principals, VariableValues};
use ktsu_evidence::notary::{Feed, Notary, NotaryParts};
use ktsu_evidence::store_stream::StoreStream;
use ktsu_evidence::witness::WitnessTarget;
use ktsu_gateway::Gateway;
use ktsu_orchestrator::{
    LedgerHealth, MAX_ACTIVE, MicrosClock, Orchestrator, OrchestratorParts, Peers, Recovered,
    SecretLookup, TokenKey, clock, rebuild_index,
};
use ktsu_readers::ReaderPool;
use ktsu_runtime::LocalOrchestrator;
use ktsu_secret::Secret;
use ktsu_server::{Listener, ServerLimits};
use ktsu_subscriptions::{EventFeed, Subscriptions};
use ktsu_telemetry::{Metrics, Telemetry};
use ktsu_workflow::admit::ENGINE;

/// Opens the ledger as its owner, resumes unfinished runs, and listens.
///
/// # Errors
/// [`OpenEngineError`].
pub async fn open(setup: Setup) -> Result<Engine, OpenEngineError> {
    let values = Values::of(setup)?;
    let owned = OwnedLedger::of(values).await?;
    let appending = Appending::of(owned)?;
    let writing = Writing::of(appending).await?;
    let started = Started::of(writing).await?;
    serving(started).await
}

/// A setup of which every value is known. Nothing is touched yet.
struct Values {
    setup: Setup,
    principals: Arc<Principals>,
    /// Of every workflow.
    variables: BTreeMap<String, VariableValues>,
    egress: egress::Client,
    gateway: Gateway,
    provider_keys: Vec<Secret>,
    declared: Vec<ResolvedSubscription>,
}

impl Values {
    fn of(mut setup: Setup) -> Result<Self, OpenEngineError> {
        let (principals, variables) = values::of(&setup)?;
        values::put_signing_key(setup.environment.as_ref(), &mut setup.process)?;
        let egress = egress::Client::new(&policy(setup.environment.as_ref()))?;
        let gateway = setup.gateway(&egress)?;
        let provider_keys = gateway.secrets().to_vec();
        let declared = delivery::declared(&setup)?;
        let mut keys = provider_keys.clone();
        keys.extend(values::given_signing_key(&setup.process));
        values::shows_none_of(&setup.kit, &variables, &keys)?;
        Ok(Self {
            setup,
            principals,
            variables,
            egress,
            gateway,
            provider_keys,
            declared,
        })
    }

    fn file(&self) -> Option<&Environment> {
        self.setup.environment.as_ref()
    }

    /// The values of variables, and the keys of providers: the orchestrator alone keeps them.
    fn take_secrets(&mut self) -> (BTreeMap<String, VariableValues>, Vec<Secret>) {
        let variables = std::mem::take(&mut self.variables);
        (variables, std::mem::take(&mut self.provider_keys))
    }

    fn limits(&self) -> LimitSettings {
        self.file()
            .map(|file| file.limits.clone())
            .unwrap_or_default()
    }

    /// Finds the secrets of variables that were not declared as such, while runs are in progress.
    fn secret_lookup(&self) -> SecretLookup {
        let (file, process) = (self.setup.environment.clone(), self.setup.process.clone());
        Arc::new(move |variable| {
            let declared = std::slice::from_ref(variable);
            let resolved = environment::resolve(file.as_ref(), declared, &process).ok();
            resolved?.secrets.remove(&variable.name)
        })
    }
}

/// A ledger that this process owns, and where the owner listens.
struct OwnedLedger {
    place: ListeningPlace,
    tokens: TokenKey,
    ledger: ledger::OpenedLedger,
    values: Values,
}

/// An address that requests wait at.
struct ListeningPlace {
    listener: Listener,
    url: String,
}

impl OwnedLedger {
    async fn of(values: Values) -> Result<Self, OpenEngineError> {
        let mut ledger = ledger::open(&values.setup.ledger)?;
        let tokens = key::of(&values.setup.ledger, &values.setup.process)?;
        if let Err(error) = rebuild_index(ledger.store.as_mut()) {
            ledger.store.abandon();
            return Err(error.into());
        }
        let setup = &values.setup;
        let asks_tokens = !values.principals.is_empty();
        let listener = listen(setup.listen, asks_tokens, setup.certificates.as_ref()).await?;
        let url = url_of(&listener)?;
        // The configured URL has the name of the certificate, and is one that other machines reach.
        let named = setup.own_url.as_ref().unwrap_or(&url);
        if let Some(lock) = &mut ledger.lock {
            let shown = listener.certificates.as_ref().map_or(&url, |_| named);
            lock.set_url(shown).map_err(other)?;
        }
        if let Some(lease) = ledger.store.lease() {
            lease.set_url(named);
        }
        Ok(Self {
            place: ListeningPlace { listener, url },
            tokens,
            ledger,
            values,
        })
    }
}

/// A ledger whose appender runs. From here on no other process can write, not even an owner that
/// lost its lock.
struct Appending {
    feed: Feed,
    witness: Option<WitnessTarget>,
    tokens: TokenKey,
    ledger: WritableLedger,
    values: Values,
}

/// The ledger of a running appender.
struct WritableLedger {
    thread: AppenderThread,
    appender: Appender,
    events: EventFeed,
    metrics: Metrics,
    clock: MicrosClock,
    place: ListeningPlace,
    reserve: Option<Reserve>,
    damage: Damage,
    readers: ReaderPool,
    /// True if it was opened on a full disk.
    full: bool,
    /// Given back last.
    lock: Option<OwnerLock>,
}

impl Appending {
    fn of(owned: OwnedLedger) -> Result<Self, OpenEngineError> {
        let OwnedLedger {
            values,
            ledger: mut opened,
            tokens,
            place,
        } = owned;
        let full = opened.lock.as_ref();
        let full = full.is_some_and(OwnerLock::opened_on_full_disk);
        let clock = values.setup.clock.clone();
        let witness = notary::place(values.file(), &values.setup.process)?;
        let (feed, metrics) = (Feed::default(), Metrics::default());
        let events = EventFeed::new(opened.readers.clone());
        let options = Options {
            disk_space: opened.disk_space,
            on_commit: Some(noting(feed.on_commit(), events.clone())),
            on_written: Some(metrics.on_written()),
            on_fatal: Some(ledger::on_fatal(&opened.damage)),
            ..Options::default()
        };
        let (appender, thread) = Appender::start(opened.store, options)?;
        if let Some(lock) = &mut opened.lock {
            let epoch = lock.set_log_epoch(appender.epoch().0);
            epoch.map_err(OpenEngineError::Lock)?;
        }
        let owner = appender.clone();
        values.egress.set_gate(Arc::new(move || owner.is_owner()));
        ledger::stop_when_damaged(&opened.damage, &appender, &values.setup.ledger);
        let ledger = WritableLedger {
            thread,
            appender,
            events,
            metrics,
            clock: clock.unwrap_or_else(clock::system_clock),
            place,
            reserve: opened.reserve,
            damage: opened.damage,
            readers: opened.readers,
            full,
            lock: opened.lock,
        };
        Ok(Self {
            feed,
            witness,
            tokens,
            ledger,
            values,
        })
    }
}

/// A ledger that says that it was opened, and whose subscriptions wait.
struct Writing {
    subscriptions: Subscriptions,
    signing_keys: Vec<Secret>,
    tokens: TokenKey,
    noted: NotedLedger,
}

/// A ledger with its notary.
struct NotedLedger {
    notary: Arc<Notary>,
    /// The facts about the ledger as a whole.
    facts: Arc<StoreStream>,
    ledger: WritableLedger,
    values: Values,
}

impl Writing {
    async fn of(appending: Appending) -> Result<Self, OpenEngineError> {
        let Appending {
            values,
            ledger,
            tokens,
            witness,
            feed,
        } = appending;
        let found = ledger
            .readers
            .with_blocking(|reader| notary::look(&values.setup, reader))?;
        let facts = found.stream(&ledger.appender, &ledger.clock);
        note_parts(&facts, opened(&ledger.appender)).await?;
        let parts = NotaryParts {
            readers: ledger.readers.clone(),
            store: Arc::clone(&facts),
            key: found.key,
            witness: witness.map(|place| notary::witness(place, &values.egress)),
        };
        let notary = Arc::new(Notary::start(feed, parts, found.size).map_err(other)?);
        let subscriptions = delivery::subscriptions(
            &values.setup,
            values.declared.clone(),
            &ledger.events,
            &ledger.appender,
            &ledger.readers,
            &ledger.clock,
        )?;
        let signing_keys = subscriptions.secrets().await?;
        values::shows_none_of(&values.setup.kit, &values.variables, &signing_keys)?;
        let noted = NotedLedger {
            notary,
            facts,
            ledger,
            values,
        };
        Ok(Self {
            subscriptions,
            signing_keys,
            tokens,
            noted,
        })
    }
}

/// The fact that a process has opened the ledger.
fn opened(appender: &Appender) -> StoreEvent {
    StoreEvent::Opened(StoreOpened {
        engine: ENGINE.to_owned(),
        epoch: appender.epoch().0,
        pid: std::process::id(),
    })
}

/// Calls followers at every commit, before the notary has it.
fn noting(mut notary: OnCommit, events: EventFeed) -> OnCommit {
    Box::new(move |commit| {
        events.note_commit();
        notary(commit);
    })
}

/// An orchestrator that continues what was unfinished; it can be called within this process only.
struct Started {
    orchestrator: Orchestrator,
    recovered: Recovered,
    agents: Workers,
    counted: ConnectionCounts,
    /// The orchestrator that the runtime of this process reports to.
    callbacks: Arc<OnceLock<LocalOrchestrator>>,
    noted: NotedLedger,
}

impl Started {
    async fn of(writing: Writing) -> Result<Self, OpenEngineError> {
        let Values {
            setup,
            principals,
            gateway,
            egress,
            ..
        } = &writing.noted.values;
        let callbacks = Arc::new(OnceLock::new());
        let agents = agents::agents((setup, principals), gateway.clone(), &callbacks, egress);
        let counted = ConnectionCounts::of(agents.listening.iter().map(|(name, _, _)| *name));
        let (noted, parts) = orchestrator_parts(writing, &agents, &counted);
        let started = Orchestrator::start(parts).await;
        if let Some(why) = noted.ledger.damage.reason() {
            return Err(StoreError::Damaged(why.to_owned()).into());
        }
        let (orchestrator, recovered) = started.map_err(OpenEngineError::Other)?;
        disk_full::note_recovered(&noted.facts, recovered).await?;
        Ok(Self {
            orchestrator,
            recovered,
            agents,
            counted,
            callbacks,
            noted,
        })
    }

    /// The part of the start that waits for disk space, if there is none.
    fn deferred(&self) -> disk_full::DeferredStart {
        disk_full::DeferredStart {
            orchestrator: self.orchestrator.clone(),
            appender: self.noted.ledger.appender.clone(),
            notary: Arc::clone(&self.noted.notary),
            facts: Arc::clone(&self.noted.facts),
            reserve: self.noted.ledger.reserve.clone(),
            resume_unfinished: self.noted.values.setup.resume_unfinished,
        }
    }
}

/// The parts that the orchestrator of a ledger is made of.
fn orchestrator_parts(
    writing: Writing,
    agents: &Workers,
    counted: &ConnectionCounts,
) -> (NotedLedger, OrchestratorParts) {
    let mut noted = writing.noted;
    let (variables, provider_keys) = noted.values.take_secrets();
    let NotedLedger { values, ledger, .. } = &noted;
    let parts = OrchestratorParts {
        telemetry: Telemetry::new(ledger.metrics.clone(), &ledger.appender, counted.all()),
        appender: ledger.appender.clone(),
        readers: ledger.readers.clone(),
        events: ledger.events.clone(),
        subscriptions: writing.subscriptions,
        kit: Arc::clone(&values.setup.kit),
        environment: variables,
        principals: Arc::clone(&values.principals),
        retention: values::retention(values.file(), &noted.facts),
        peers: peers(values, agents, writing.tokens, &ledger.place.url),
        max_active: values.limits().active_runs.unwrap_or(MAX_ACTIVE),
        clock: Arc::clone(&ledger.clock),
        notary: noted.notary.status(),
        resume_unfinished: values.setup.resume_unfinished && !ledger.full,
        health: LedgerHealth::owner(ledger.damage.clone(), ledger.full),
        secret: values.secret_lookup(),
        provider_keys: [provider_keys, writing.signing_keys].concat(),
    };
    (noted, parts)
}

/// Whom the orchestrator calls.
fn peers(values: &Values, agents: &Workers, tokens: TokenKey, url: &str) -> Peers {
    let setup = &values.setup;
    let here = matches!(setup.agents, Agents::Here { .. });
    let tool_servers = values.file().map(|file| file.servers.clone());
    Peers {
        egress: values.egress.clone(),
        runtimes: agents.runtimes.clone(),
        runtime_here: agents.here.clone().map(|here| Arc::new(here) as _),
        gateways: agents.gateways.clone(),
        groups: here.then(|| routing_digests(&values.gateway)),
        prices: match here {
            true => group_prices(&values.gateway),
            false => BTreeMap::default(),
        },
        tool_servers: tool_servers.unwrap_or_default(),
        tokens,
        own_url: setup.own_url.clone().unwrap_or_else(|| url.to_owned()),
    }
}

/// The last step: an engine that serves.
async fn serving(started: Started) -> Result<Engine, OpenEngineError> {
    let later = started.deferred();
    let NotedLedger {
        values,
        ledger,
        notary,
        ..
    } = started.noted;
    // Bound after the ledger, so that the lock is given back behind it.
    let later = later;
    let (orchestrator, agents) = (started.orchestrator, started.agents);
    let in_force = PrincipalsInForce::from(values.principals.clone());
    let routers = routers(&values, &orchestrator, &agents, &in_force);
    // Set once, here; earlier callbacks are retried.
    let _ = started.callbacks.set(LocalOrchestrator {
        router: routers.within.clone(),
        reports: Some(Arc::new(routes::InProcessReports(orchestrator.clone()))),
    });
    let stop = watch::Sender::new(false);
    let most = server_limits(values.limits().connections);
    let limits = (&started.counted, &most);
    let own_limits = started.counted.limits(ORCHESTRATOR, &most);
    let own = serve(ledger.place.listener, routers.open, own_limits, &stop);
    let (mut serving, services) = serve_agents(own, &agents, limits, &stop).await?;
    serving.push(keep_current(values.setup.certificates.clone(), &stop));
    let place = values.setup.ledger.clone();
    serving.push(ledger_status::keep_current(
        orchestrator.clone(),
        place,
        &stop,
    ));
    let waiting = later.begin(ledger.full, stopped(&stop)).await;
    Ok(Engine {
        principals: PrincipalReload {
            in_force,
            orchestrator: orchestrator.clone(),
            process: values.setup.process,
        },
        orchestrator,
        router: routers.within,
        url: ledger.place.url,
        recovered: started.recovered,
        appender: ledger.appender,
        thread: ledger.thread,
        notary,
        waiting,
        serving,
        services,
        runtime: agents.here,
        gateway: agents.gateway_here,
        models: agents.models,
        _callbacks: started.callbacks,
        stop,
        lock: ledger.lock,
    })
}

/// The routes of an engine.
struct Routers {
    /// For calls within this process.
    within: Router,
    /// For requests over HTTP.
    open: Router,
}

fn routers(
    values: &Values,
    orchestrator: &Orchestrator,
    agents: &Workers,
    in_force: &PrincipalsInForce,
) -> Routers {
    let (limits, setup) = (values.limits(), &values.setup);
    let sessions = BrowserSessions::new(setup.certificates.is_some());
    let access = |within, streams| Access {
        sessions: sessions.clone(),
        models: agents.models.clone(),
        kit_checks: setup.kit_checks.clone(),
        principals: in_force.clone(),
        within,
        body_bytes: limits.body_bytes,
        trace_work: limits.trace_work,
        streams,
    };
    let most = server_limits(limits.connections);
    let streams = StreamLimits::of_connections(most.connections);
    Routers {
        // Streams within the process take no connections.
        within: routes::router_for(orchestrator.clone(), access(true, StreamLimits::default())),
        open: routes::router_for(orchestrator.clone(), access(false, streams)),
    }
}

/// The tasks that serve, and the names and URLs of the services beside the orchestrator.
type Serving = (Vec<JoinHandle<()>>, Vec<(&'static str, String)>);

/// Serves runtime and gateway beside the orchestrator, where they listen.
async fn serve_agents(
    own: JoinHandle<()>,
    agents: &Workers,
    (counted, most): (&ConnectionCounts, &ServerLimits),
    stop: &watch::Sender<bool>,
) -> Result<Serving, OpenEngineError> {
    let mut serving = vec![own];
    let mut services = Vec::new();
    for (name, address, router) in &agents.listening {
        let listener = listen(*address, false, None).await?;
        services.push((*name, url_of(&listener)?));
        let limits = counted.limits(name, most);
        serving.push(serve(listener, router.clone(), limits, stop));
    }
    if let Some(runtime) = agents.here.clone() {
        let stopped = stopped(stop);
        serving.push(tokio::spawn(async move { runtime.beat(stopped).await }));
    }
    Ok((serving, services))
}
