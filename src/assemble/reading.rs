//! `ktsu start --read-only`: serves a ledger without owning it. Takes no lock and writes nothing; a
//! damaged ledger is served as far as it can be read.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use futures_util::future::join_all;
use ktsu_ledger::appender::Appender;
use ktsu_ledger::store::{Reader, StoreError};
use ktsu_ledger::verify::VerifyOptions;
use ktsu_ledger::{Ledger, LedgerPlace};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::counted::{ConnectionCounts, ORCHESTRATOR};
use super::network::{keep_current, listen, policy, serve, server_limits, url_of};
use super::reload::PrincipalReload;
use super::{OpenEngineError, Setup, delivery, values};
use ktsu_api::access::{Access, PrincipalsInForce};
use ktsu_api::judges::JudgeModels;
use ktsu_api::kit_checks::KitChecks;
use ktsu_api::routes;
use ktsu_api::sessions::BrowserSessions;
use ktsu_api::streams::StreamLimits;
use ktsu_damage::{self as damage, Damage, DamageReportingReader};
use ktsu_egress as egress;
use ktsu_evidence::store_stream::StoreStream;
use ktsu_history::indexed_reader::IndexedReader;
use ktsu_history::verify;
use ktsu_orchestrator::{
    LedgerHealth, MAX_ACTIVE, Orchestrator, OrchestratorParts, Peers, TokenKey, clock,
};
use ktsu_readers::ReaderPool;
use ktsu_server::ServerLimits;
use ktsu_subscriptions::EventFeed;
use ktsu_telemetry::{Telemetry, ViewAge};

/// The time that answers under way may take at the end. A standby that takes over waits for them.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(100);

/// The reason why nothing is written, as writers report it.
const NO_TOKENS_REASON: &str =
    "this engine only reads: it is a standby, or was started with --read-only";

/// An engine that answers questions.
pub struct ReadOnlyEngine {
    /// The URL at which it listens.
    pub url: String,
    /// Its routes, for calls within the process.
    pub router: Router,
    /// Reads its principals again.
    pub principals: PrincipalReload,
    /// Damage known at the start, if any.
    pub damaged: Option<String>,
    damage: Damage,
    serving: [JoinHandle<()>; 2],
    stop: watch::Sender<bool>,
}

/// Serves a ledger read-only.
///
/// # Errors
/// [`OpenEngineError`]; [`StoreError`] if so much is damaged that the ledger cannot be opened at all.
pub async fn open(setup: Setup) -> Result<ReadOnlyEngine, OpenEngineError> {
    let (principals, environment) = values::of(&setup)?;
    let process = setup.process.clone();
    let file = setup.environment.as_ref();
    let limits = file.map(|file| file.limits.clone()).unwrap_or_default();
    let damage = search(&setup.ledger)?;
    let sessions = BrowserSessions::new(setup.certificates.is_some());
    let certificates = setup.certificates.clone();
    let asks_tokens = !principals.is_empty();
    let listener = listen(setup.listen, asks_tokens, certificates.as_ref()).await?;
    let url = url_of(&listener)?;
    let appender = Appender::stopped(NO_TOKENS_REASON);
    let counted = ConnectionCounts::of(std::iter::empty());
    let readers = readers(&setup.ledger, &damage);
    let clock = setup.clock.clone().unwrap_or_else(clock::system_clock);
    let events = EventFeed::polling(readers.clone());
    // Nothing is sent from here, so a secret may be missing.
    let declared = delivery::declared(&setup).unwrap_or_default();
    let subscriptions =
        delivery::subscriptions(&setup, declared, &events, &appender, &readers, &clock)?;
    let actor = ktsu_ledger::Actor::Orchestrator;
    let facts = StoreStream::new(appender.clone(), Arc::clone(&clock), actor, None);
    let seen = setup.standby.clone();
    let age = seen.map(|owner| -> ViewAge { Arc::new(move || Some(owner.latest()?.age)) });
    let parts = OrchestratorParts {
        retention: values::retention(None, &Arc::new(facts)),
        telemetry: Telemetry::of_reader(&appender, counted.all(), age),
        appender,
        events,
        subscriptions,
        readers,
        kit: setup.kit,
        environment,
        principals: Arc::clone(&principals),
        max_active: MAX_ACTIVE,
        peers: Peers {
            egress: egress::Client::new(&policy(file))?,
            runtimes: Vec::new(),
            runtime_here: None,
            gateways: Vec::new(),
            groups: None,
            prices: Default::default(),
            tool_servers: Default::default(),
            tokens: no_tokens()?,
            own_url: url.clone(),
        },
        clock,
        notary: Arc::default(),
        resume_unfinished: false,
        health: match setup.standby {
            Some(owner) => LedgerHealth::standby(damage.clone(), owner),
            None => LedgerHealth::reader(damage.clone()),
        },
        secret: Arc::new(|_| None),
        provider_keys: Vec::new(),
    };
    let (orchestrator, _) = Orchestrator::start(parts)
        .await
        .map_err(OpenEngineError::Other)?;
    let most = server_limits(limits.connections);
    let in_force = PrincipalsInForce::from(principals);
    let access = |within, streams| Access {
        sessions: sessions.clone(),
        models: JudgeModels::default(),
        kit_checks: KitChecks::default(),
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
    let stop = watch::Sender::new(false);
    // Followers of a run that another engine continues do not delay the shutdown.
    let most = ServerLimits {
        grace: SHUTDOWN_TIMEOUT,
        ..counted.limits(ORCHESTRATOR, &most)
    };
    Ok(ReadOnlyEngine {
        url,
        principals: PrincipalReload {
            in_force,
            orchestrator,
            process,
        },
        damaged: damage.reason().map(str::to_owned),
        damage,
        router,
        serving: [
            serve(listener, open, most, &stop),
            keep_current(certificates, &stop),
        ],
        stop,
    })
}

impl ReadOnlyEngine {
    /// The ledger turned out to be damaged.
    pub fn report_damage(&self, why: &str) {
        self.damage.report(why);
    }

    /// Stops.
    pub async fn close(self) {
        self.stop.send_replace(true);
        join_all(self.serving).await;
    }
}

/// Searches for damage. A ledger in use grows meanwhile, which the verification allows for.
fn search(ledger: &LedgerPlace) -> Result<Damage, StoreError> {
    let damage = Damage::default();
    drop(Ledger::open(ledger).reader()?);
    if ledger.file().is_some_and(damage::is_searched) {
        let report = verify::ledger(ledger, &VerifyOptions::default(), &mut |_| {})?;
        if let Some(why) = damage::first_damage(&report)? {
            damage.report(&why);
        }
    }
    Ok(damage)
}

fn readers(ledger: &LedgerPlace, damage: &Damage) -> ReaderPool {
    let (ledger, damage) = (Ledger::open(ledger), damage.clone());
    ReaderPool::new(move || {
        let watched = DamageReportingReader::new(ledger.reader()?, damage.clone());
        let reader: Box<dyn Reader> = Box::new(IndexedReader::with_damage(watched, damage.clone()));
        Ok(reader)
    })
}

/// A random key: no attempt reports to a read-only engine.
fn no_tokens() -> Result<TokenKey, OpenEngineError> {
    let mut key = [0; 32];
    getrandom::fill(&mut key).map_err(|error| OpenEngineError::Other(error.to_string()))?;
    Ok(TokenKey::new(key))
}
