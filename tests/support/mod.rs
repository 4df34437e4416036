//! What tests share: kits written to a folder, engines in process, a receiver of webhooks that
//! follows a script, a client that speaks real HTTP.
//!
//! Nothing here sleeps to let something happen: whoever waits, waits for the thing itself, and
//! [`guarded`] only keeps a broken test from hanging for ever.

#![allow(dead_code, clippy::unwrap_used, clippy::print_stderr)]

pub(crate) mod certificates;
pub(crate) mod client;
pub(crate) mod fleet;
pub(crate) mod gate;
#[path = "../../ledger/tests/support/late.rs"]
pub(crate) mod late;
pub(crate) mod ledger_proxy;
pub(crate) mod ledgers;
pub(crate) mod load;
pub(crate) mod lookalikes;
pub(crate) mod model;
#[path = "../../ledger/tests/support/postgres.rs"]
pub(crate) mod postgres;
pub(crate) mod process;
pub(crate) mod random;
pub(crate) mod scenarios;
pub(crate) mod services;
pub(crate) mod sink;
pub(crate) mod terminal;
pub(crate) mod tools;
pub(crate) mod worlds;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ktsu::assemble::{self, Agents, Engine, LedgerPlace, Setup};
use ktsu_api::routes::{self, InProcessReports};
use ktsu_egress::{self as egress, EgressPolicy};
use ktsu_environment::{self as environment, Environment};
use ktsu_evidence::store_stream::StoreStream;
use ktsu_gateway::{self as gateway, Gateway};
use ktsu_kit::{self as kit, Kit};
use ktsu_ledger::appender::{Appender, AppenderThread, Options};
use ktsu_ledger::store::MemoryStore;
use ktsu_ledger::{Actor, Backend, Timestamp};
use ktsu_orchestrator::{
    MicrosClock, Orchestrator, OrchestratorParts, Peers, Recovered, RetentionParts, ServicePeer,
    TokenKey, clock,
};
use ktsu_peer::Peer;
use ktsu_readers::ReaderPool;
use ktsu_runtime::{self as runtime, Callbacks, GatewayLink, LocalOrchestrator, Runtime};
use ktsu_subscriptions::{EventFeed, SubscriptionParts, Subscriptions};
use ktsu_telemetry::{Metrics, Telemetry};
use ktsu_tools::McpClient;

pub(crate) use client::Client;
pub(crate) use late::Remote;
pub(crate) use sink::Sink;

/// Longer than anything takes, even on a machine that is busy with something else.
pub(crate) const GUARD: Duration = Duration::from_secs(180);

/// Whether tests that are content with a ledger in memory have it on another machine instead, which
/// loses answers: `KTSU_TEST_STORE=late`. What chance makes of it is in the number.
fn far_away() -> Option<u64> {
    let is_late = std::env::var("KTSU_TEST_STORE").is_ok_and(|store| store == "late");
    is_late.then(ktsu_campaign::seed)
}

/// Whether services of one process talk by bytes, as over a socket: `KTSU_TEST_PEERS=bytes`.
pub(crate) fn by_bytes() -> bool {
    std::env::var("KTSU_TEST_PEERS").is_ok_and(|peers| peers == "bytes")
}

/// Says that something could not be tested on this machine, once, even if the test passes: what is
/// written with `eprintln!` is not shown then.
pub(crate) fn not_tested(what: &str) {
    use std::io::Write as _;
    static SAID: std::sync::Mutex<std::collections::BTreeSet<String>> =
        std::sync::Mutex::new(std::collections::BTreeSet::new());
    if SAID.lock().unwrap().insert(what.to_owned()) {
        let _ = writeln!(std::io::stderr(), "\nNOT TESTED: {what}");
    }
}

/// The size of a campaign: small in every run of the tests, as large as it can be useful with
/// `KTSU_CAMPAIGN=full`.
pub(crate) fn campaign(small: usize, full: usize) -> usize {
    match ktsu_campaign::is_full() {
        true => full,
        false => small,
    }
}

/// Waits, but not for ever.
pub(crate) async fn guarded<T>(what: &str, waiting: impl Future<Output = T>) -> T {
    match tokio::time::timeout(GUARD, waiting).await {
        Ok(done) => done,
        Err(_) => panic!("{what}: nothing within {GUARD:?}"),
    }
}

/// Waits for what another process does, but not for ever. It is looked at often enough, and what it waits for gets
/// the processor in between.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = std::time::Instant::now();
    while !is_so() {
        assert!(began.elapsed() < GUARD, "{what}: nothing within {GUARD:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Why nothing can be mounted in a namespace of one's own here, if so.
pub(crate) fn cannot_mount() -> Option<String> {
    let dir = tempfile::tempdir().unwrap();
    let tried = std::process::Command::new("unshare")
        .args(["-m", "mount", "-t", "tmpfs", "-o", "size=64k", "none"])
        .arg(dir.path())
        .output();
    match tried {
        Ok(done) if done.status.success() => None,
        Ok(done) => Some(String::from_utf8_lossy(&done.stderr).into_owned()),
        Err(error) => Some(error.to_string()),
    }
}

/// A kit written to a folder that is removed with it.
pub(crate) struct KitDir {
    pub(crate) dir: tempfile::TempDir,
}

impl KitDir {
    /// A kit of workflows: name, and what follows `kind`, `name` and `version` in its file.
    pub(crate) fn new(workflows: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("workflows");
        std::fs::create_dir_all(&folder).unwrap();
        for (name, rest) in workflows {
            let text = format!("kind: workflow\nname: {name}\nversion: 1.0.0\n{rest}");
            std::fs::write(folder.join(format!("{name}.workflow.yaml")), text).unwrap();
        }
        let manifest = "name: tests\nversion: 1.0.0\n";
        std::fs::write(dir.path().join("kit.yaml"), manifest).unwrap();
        Self { dir }
    }

    /// With another file, for example of an agent.
    pub(crate) fn with(self, path: &str, text: &str) -> Self {
        let path = self.dir.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
        self
    }

    /// The kit, sound.
    pub(crate) fn load(&self) -> Arc<Kit> {
        load(self.dir.path())
    }
}

/// A kit from a folder.
pub(crate) fn load(dir: &Path) -> Arc<Kit> {
    match kit::load(dir) {
        Ok(kit) => Arc::new(kit),
        Err(faults) => panic!("{}", ktsu_config::render::text(&faults, false)),
    }
}

/// The process environment of an engine.
pub(crate) fn process(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    pairs.iter().map(owned).collect()
}

/// A clock that stands still.
pub(crate) fn stopped(at: Timestamp) -> MicrosClock {
    Arc::new(move || at)
}

/// An engine that listens, and a client of it.
pub(crate) struct Lab {
    pub(crate) engine: Engine,
    pub(crate) client: Client,
}

impl Lab {
    /// On a ledger in memory.
    pub(crate) async fn new(kit: &KitDir, pairs: &[(&str, &str)]) -> Self {
        Self::on(LedgerPlace::Memory, kit.load(), pairs, None).await
    }

    /// On a ledger file.
    pub(crate) async fn on_file(path: &Path, kit: &KitDir, pairs: &[(&str, &str)]) -> Self {
        Self::on(LedgerPlace::File(path.to_owned()), kit.load(), pairs, None).await
    }

    /// On any ledger, at any time.
    pub(crate) async fn on(
        ledger: LedgerPlace,
        kit: Arc<Kit>,
        pairs: &[(&str, &str)],
        clock: Option<MicrosClock>,
    ) -> Self {
        Self::with(ledger, kit, pairs, clock, Agents::here()).await
    }

    /// One that does not take up what was left unfinished.
    pub(crate) async fn idle(ledger: LedgerPlace, kit: &KitDir, pairs: &[(&str, &str)]) -> Self {
        let mut setup = Self::setup(ledger, kit.load(), pairs, None, Agents::here());
        setup.resume_unfinished = false;
        Self::open(setup).await
    }

    /// With a runtime elsewhere, on a ledger in memory.
    pub(crate) async fn remote(kit: &KitDir, pairs: &[(&str, &str)], runtime: &str) -> Self {
        let agents = Agents::Remote {
            runtimes: vec![runtime.to_owned()],
            gateways: Vec::new(),
        };
        Self::with(LedgerPlace::Memory, kit.load(), pairs, None, agents).await
    }

    /// The same on any ledger.
    pub(crate) async fn remote_on(ledger: LedgerPlace, kit: &KitDir, runtime: &str) -> Self {
        let agents = Agents::Remote {
            runtimes: vec![runtime.to_owned()],
            gateways: Vec::new(),
        };
        Self::with(ledger, kit.load(), &[], None, agents).await
    }

    /// In an environment, given as the text of its file.
    pub(crate) async fn in_environment(
        ledger: LedgerPlace,
        kit: &KitDir,
        text: &str,
        pairs: &[(&str, &str)],
    ) -> Self {
        Self::in_environment_at(ledger, kit, text, pairs, None).await
    }

    /// The same at any time.
    pub(crate) async fn in_environment_at(
        ledger: LedgerPlace,
        kit: &KitDir,
        text: &str,
        pairs: &[(&str, &str)],
        clock: Option<MicrosClock>,
    ) -> Self {
        let path = kit.dir.path().join("environments/test.env.yaml");
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        let environment = Environment::load(&path).unwrap_or_else(|faults| panic!("{faults}"));
        let mut setup = Self::setup(ledger, kit.load(), pairs, clock, Agents::here());
        setup.environment = Some(environment);
        Self::open(setup).await
    }

    /// A kit of this repository, in an environment.
    pub(crate) async fn shipped(kit: &str, text: &str, pairs: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("test.env.yaml");
        std::fs::write(&path, text).unwrap();
        let environment = Environment::load(&path).unwrap_or_else(|faults| panic!("{faults}"));
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("kits").join(kit);
        let place = LedgerPlace::Memory;
        let mut setup = Self::setup(place, load(&root), pairs, None, Agents::here());
        setup.environment = Some(environment);
        Self::open(setup).await
    }

    /// The same with a runtime elsewhere.
    pub(crate) async fn remote_in(
        ledger: LedgerPlace,
        kit: &KitDir,
        text: &str,
        pairs: &[(&str, &str)],
        runtime: &str,
    ) -> Self {
        let path = kit.dir.path().join("environments/test.env.yaml");
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        let environment = Environment::load(&path).unwrap_or_else(|faults| panic!("{faults}"));
        let agents = Agents::Remote {
            runtimes: vec![runtime.to_owned()],
            gateways: Vec::new(),
        };
        let mut setup = Self::setup(ledger, kit.load(), pairs, None, agents);
        setup.environment = Some(environment);
        Self::open(setup).await
    }

    async fn with(
        ledger: LedgerPlace,
        kit: Arc<Kit>,
        pairs: &[(&str, &str)],
        clock: Option<MicrosClock>,
        agents: Agents,
    ) -> Self {
        Self::open(Self::setup(ledger, kit, pairs, clock, agents)).await
    }

    fn setup(
        mut ledger: LedgerPlace,
        kit: Arc<Kit>,
        pairs: &[(&str, &str)],
        clock: Option<MicrosClock>,
        agents: Agents,
    ) -> Setup {
        if let (LedgerPlace::Memory, Some(seed)) = (&ledger, far_away()) {
            ledger = LedgerPlace::Backend(Arc::new(Remote::lossy(seed)));
        }
        Setup {
            kit,
            environment: None,
            read_again: None,
            process: process(pairs),
            ledger,
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            clock,
            agents,
            own_url: None,
            certificates: None,
            service_token: None,
            standby: None,
            kit_checks: Default::default(),
            gateway: None,
            resume_unfinished: true,
        }
    }

    async fn open(setup: Setup) -> Self {
        let engine = assemble::open(setup).await.unwrap();
        let client = Client::of(&engine.url);
        Self { engine, client }
    }

    /// Stops it in good order.
    pub(crate) async fn close(self) {
        self.engine.close().await.unwrap();
    }
}

/// Subscriptions of an engine that has none.
pub(crate) fn no_subscriptions(readers: &ReaderPool, appender: &Appender) -> Subscriptions {
    Subscriptions::new(SubscriptionParts {
        feed: EventFeed::polling(readers.clone()),
        appender: appender.clone(),
        readers: readers.clone(),
        clock: clock::system_clock(),
        egress: egress::Client::new(&EgressPolicy::default()).unwrap(),
        secret: Arc::new(|_| None),
        declared: Vec::new(),
    })
}

/// Retention of an engine that keeps everything. Nothing is recorded through it.
pub(crate) fn no_retention(appender: &Appender) -> RetentionParts {
    let clock = clock::system_clock();
    let store = StoreStream::new(appender.clone(), clock, Actor::Orchestrator, None);
    RetentionParts {
        limits: Default::default(),
        store: Arc::new(store),
    }
}

/// An engine without a socket, on a store the test keeps a hand on.
pub(crate) struct Within {
    pub(crate) orchestrator: Orchestrator,
    pub(crate) recovered: Recovered,
    pub(crate) client: Client,
    /// In this process, as is its gateway, where the kit has one.
    pub(crate) runtime: Runtime,
    _way_back: Arc<OnceLock<LocalOrchestrator>>,
    _thread: AppenderThread,
}

impl Within {
    pub(crate) async fn new(
        kit: Arc<Kit>,
        store: MemoryStore,
        options: Options,
        pairs: &[(&str, &str)],
        at: Option<MicrosClock>,
    ) -> Self {
        let backend: Arc<dyn Backend> = match far_away() {
            Some(seed) => Arc::new(Remote::lossy_over(store, seed)),
            None => Arc::new(store),
        };
        Self::over(kit, backend, options, pairs, at).await
    }

    /// On any store.
    pub(crate) async fn over(
        kit: Arc<Kit>,
        backend: Arc<dyn Backend>,
        options: Options,
        pairs: &[(&str, &str)],
        at: Option<MicrosClock>,
    ) -> Self {
        let store = backend.store().unwrap();
        let readers = ReaderPool::new(move || backend.reader());
        let (appender, thread) = Appender::start(store, options).unwrap();
        let process = process(pairs);
        let resolved = kit.workflows.iter().filter_map(|(name, workflow)| {
            let declared = &workflow.definition.root()?.plan.env;
            let resolved = environment::resolve(None, declared, &process).ok()?;
            Some((name.clone(), resolved))
        });
        let policy = EgressPolicy {
            loopback: true,
            ..EgressPolicy::default()
        };
        let egress = egress::Client::new(&policy).unwrap();
        let file = kit.root.join("gateway.yaml");
        let models = match file.is_file() {
            true => Gateway::load(&file, None, &process, &egress).unwrap(),
            false => Gateway::empty(),
        };
        let provider_keys = models.secrets().to_vec();
        let groups = file.is_file().then(|| assemble::routing_digests(&models));
        let prices = assemble::group_prices(&models);
        let way_back = Arc::new(OnceLock::new());
        let runtime = Runtime::new(runtime::RuntimeParts {
            gateway: match by_bytes() {
                true => GatewayLink::Peer(Peer::Local(gateway::router(models))),
                false => GatewayLink::InProcess(Arc::new(models)),
            },
            orchestrator: Callbacks::Local(Arc::downgrade(&way_back)),
            tools: Arc::new(McpClient::new(egress.clone())),
            places: None,
        });
        let parts = OrchestratorParts {
            telemetry: Telemetry::new(Metrics::default(), &appender, Vec::new()),
            subscriptions: no_subscriptions(&readers, &appender),
            retention: no_retention(&appender),
            appender,
            events: EventFeed::polling(readers.clone()),
            readers,
            environment: resolved.collect(),
            principals: Arc::default(),
            max_active: 50_000,
            kit,
            peers: Peers {
                egress,
                runtimes: vec![ServicePeer::local(Peer::Local(runtime.router()))],
                runtime_here: (!by_bytes()).then(|| Arc::new(runtime.clone()) as _),
                gateways: Vec::new(),
                groups,
                prices,
                tool_servers: Default::default(),
                tokens: TokenKey::new([7; 32]),
                own_url: "http://127.0.0.1:5050".to_owned(),
            },
            clock: at.unwrap_or_else(clock::system_clock),
            notary: std::sync::Arc::default(),
            resume_unfinished: true,
            health: Default::default(),
            secret: Arc::new(|_| None),
            provider_keys,
        };
        let (orchestrator, recovered) = Orchestrator::start(parts).await.unwrap();
        let router = routes::router(orchestrator.clone());
        let reports = InProcessReports(orchestrator.clone());
        let _ = way_back.set(LocalOrchestrator {
            router: router.clone(),
            reports: (!by_bytes()).then(|| Arc::new(reports) as _),
        });
        let beating = runtime.clone();
        tokio::spawn(async move { beating.beat(std::future::pending()).await });
        Self {
            client: Client::within(router),
            runtime,
            orchestrator,
            recovered,
            _way_back: way_back,
            _thread: thread,
        }
    }
}
