//! The only file that names concrete parts: which store, which clock, which client.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::Router;
use ktsu_ledger::appender::{Appender, AppenderThread, LOW_WATER, Options};
use ktsu_ledger::event::{StoreEvent, StoreOpened, StoreRecovered};
use ktsu_ledger::frame::Link;
use ktsu_ledger::lock::{self, Holder, NotOwned, OwnerLock};
use ktsu_ledger::room::Room;
use ktsu_ledger::store::{
    Entry, MemoryStore, Reader, SqliteReader, SqliteStore, Store, StoreError,
};
use ktsu_ledger::{Actor, Draft, Event, Hash, StreamId};
use tokio::sync::watch;

use crate::egress::{self, Policy};
use crate::environment::{self, Environment, ResolveError, Resolved};
use crate::http::routes;
use crate::http::server::{self, BindError, Limits};
use crate::kit::Kit;
use crate::orchestrator::{Clock, Orchestrator, Parts, Recovered, TokenKey, clock, rebuild_index};
use crate::readers::Readers;
use crate::workflow::admit::ENGINE;

/// Frames are made on one thread and freed on another, some hundred small pieces a step. The
/// system's allocator spends a quarter of a step's time on that.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Where the ledger is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LedgerPlace {
    /// A file, made if there is none.
    File(PathBuf),
    /// Memory: gone with the process.
    Memory,
}

/// What an engine is made of.
pub struct Setup {
    /// What may be invoked.
    pub kit: Arc<Kit>,
    /// The environment file, if there is one.
    pub environment: Option<Environment>,
    /// The process environment, or what stands for it.
    pub process: BTreeMap<String, String>,
    /// Where the ledger is.
    pub ledger: LedgerPlace,
    /// Where to listen; loopback only (decision H5).
    pub listen: SocketAddr,
    /// The time; the machine's, unless a test stops it.
    pub clock: Option<Clock>,
}

/// An engine at work.
pub struct Engine {
    /// The handle on it.
    pub orchestrator: Orchestrator,
    /// Its routes, for calls within the process.
    pub router: Router,
    /// Where it listens.
    pub url: String,
    /// What was found at the start.
    pub recovered: Recovered,
    appender: Appender,
    thread: AppenderThread,
    serving: tokio::task::JoinHandle<()>,
    stop: watch::Sender<bool>,
    /// Held until the last frame is durable.
    _lock: Option<OwnerLock>,
}

/// Why an engine does not start.
#[derive(Debug, thiserror::Error)]
pub enum NotOpened {
    /// Another process owns the ledger.
    #[error("another process owns the ledger")]
    Owned(Option<Holder>),
    /// The lock file cannot be used.
    #[error(transparent)]
    Lock(NotOwned),
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
    /// The environment configures principals, and nothing here judges by them.
    #[error("principals are configured, and this version does not judge who asks")]
    Principals,
    /// `egress.allow` has an entry that is none.
    #[error(transparent)]
    Egress(#[from] egress::BadEntry),
    /// The address cannot be listened on.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// Something else.
    #[error("{0}")]
    Other(String),
}

/// Opens the ledger as its owner, takes up what was unfinished, and listens.
///
/// # Errors
/// [`NotOpened`].
pub async fn open(setup: Setup) -> Result<Engine, NotOpened> {
    let environment = resolve(&setup)?;
    let file = setup.environment.as_ref();
    let local = file.is_none_or(|file| file.principals.is_null());
    if !local {
        return Err(NotOpened::Principals);
    }
    let policy = Policy {
        allow: file.map(|one| one.egress_allow.clone()).unwrap_or_default(),
        // Without principals everything is local, and so is what it may call (decision K6).
        loopback: local,
    };
    let egress = egress::Client::new(&policy)?;
    let (mut lock, mut store, readers, room) = open_store(&setup.ledger)?;
    rebuild_index(store.as_mut())?;
    let listener = server::bind_loopback(setup.listen).await?;
    let address = listener
        .local_addr()
        .map_err(|error| NotOpened::Other(error.to_string()))?;
    let url = format!("http://{address}");
    if let Some(lock) = &mut lock {
        lock.set_url(&url)
            .map_err(|error| NotOpened::Other(error.to_string()))?;
    }
    let options = Options {
        room,
        ..Options::default()
    };
    let clock = setup.clock.unwrap_or_else(clock::system);
    let (appender, thread) = Appender::start(store, options)?;
    let opened = StoreEvent::Opened(StoreOpened {
        engine: ENGINE.to_owned(),
        epoch: appender.epoch().0,
        pid: std::process::id(),
    });
    note(&appender, &readers, &clock, opened).await?;
    let parts = Parts {
        appender: appender.clone(),
        readers: readers.clone(),
        kit: setup.kit,
        environment,
        egress,
        clock: Arc::clone(&clock),
        runtime: None,
        gateway: None,
        tokens: TokenKey::new([0; 32]),
        own_url: url.clone(),
    };
    let (orchestrator, recovered) = Orchestrator::start(parts).await.map_err(NotOpened::Other)?;
    if recovered.unfinished > 0 {
        let found = StoreEvent::Recovered(StoreRecovered {
            resent: recovered.resent,
            unfinished: recovered.unfinished,
        });
        note(&appender, &readers, &clock, found).await?;
    }
    let router = routes::router(orchestrator.clone());
    let stop = watch::Sender::new(false);
    let mut stopped = stop.subscribe();
    let served = router.clone();
    let serving = tokio::spawn(async move {
        let stopped = async move {
            let _ = stopped.wait_for(|stop| *stop).await;
        };
        server::serve(listener, served, Limits::default(), stopped).await;
    });
    Ok(Engine {
        orchestrator,
        router,
        url,
        recovered,
        appender,
        thread,
        serving,
        stop,
        _lock: lock,
    })
}

impl Engine {
    /// Stops in two phases: nothing new is taken and no run goes on; then everything handed to the
    /// ledger is made durable.
    ///
    /// # Errors
    /// Why the ledger had stopped before.
    pub async fn close(self) -> Result<(), String> {
        self.orchestrator.stop();
        self.stop.send_replace(true);
        let _ = self.serving.await;
        drop(self.appender);
        let thread = self.thread;
        let finished = tokio::task::spawn_blocking(move || thread.shutdown()).await;
        match finished {
            Ok(outcome) => outcome.map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// What the ledger's writer has done so far.
    pub fn appender(&self) -> &Appender {
        &self.appender
    }
}

/// Readers of a ledger file, for commands that only look. They never lock.
///
/// # Errors
/// [`StoreError`] if there is no ledger at the path.
pub fn readers(path: &Path) -> Result<Readers, StoreError> {
    let first = SqliteReader::open(path)?;
    drop(first);
    let path = path.to_owned();
    Ok(Readers::new(move || {
        let reader: Box<dyn Reader> = Box::new(SqliteReader::open(&path)?);
        Ok(reader)
    }))
}

/// The values every root workflow of the kit declares. A variable without one is found here, so
/// no run can meet it (decision K3).
fn resolve(setup: &Setup) -> Result<BTreeMap<String, Resolved>, NotOpened> {
    let mut all = BTreeMap::new();
    for (name, workflow) in &setup.kit.workflows {
        let Some(root) = workflow.definition.root() else {
            continue;
        };
        let environment = setup.environment.as_ref();
        let resolved = environment::resolve(environment, &root.plan.env, &setup.process);
        let resolved = resolved.map_err(|error| NotOpened::Environment {
            workflow: name.clone(),
            error,
        })?;
        all.insert(name.clone(), resolved);
    }
    Ok(all)
}

type Opened = (Option<OwnerLock>, Box<dyn Store>, Readers, Room);

fn open_store(place: &LedgerPlace) -> Result<Opened, NotOpened> {
    match place {
        LedgerPlace::Memory => {
            let store = MemoryStore::new();
            let shared = store.clone();
            let readers = Readers::new(move || shared.reader());
            Ok((None, Box::new(store), readers, Room::endless()))
        }
        LedgerPlace::File(path) => {
            let lock = lock::try_own(path).map_err(|refused| match refused {
                NotOwned::Held(_) => NotOpened::Owned(lock::holder(path)),
                other => NotOpened::Lock(other),
            })?;
            let store = SqliteStore::open(path)?;
            Ok((
                Some(lock),
                Box::new(store),
                readers(path)?,
                Room::beside(path, LOW_WATER),
            ))
        }
    }
}

/// Appends a fact about the ledger as a whole.
async fn note(
    appender: &Appender,
    readers: &Readers,
    clock: &Clock,
    event: StoreEvent,
) -> Result<(), NotOpened> {
    let stream = StreamId::store();
    let name = stream.clone();
    let tail = readers.with(move |reader| reader.tail(&name)).await?;
    let (seq, prev) = tail.map_or((0, Hash::ZERO), |tail| (tail.seq + 1, tail.hash));
    let draft = Draft {
        scope: String::new(),
        actor: Actor::Orchestrator,
        cause: Vec::new(),
        event: Event::Store(event),
    };
    let link = Link { stream, seq, prev };
    let failed = |error: &dyn std::fmt::Display| NotOpened::Other(error.to_string());
    let sealed = draft.seal(link, clock()).map_err(|error| failed(&error))?;
    let (entry, _) = Entry::from_sealed(vec![sealed]).map_err(|error| failed(&error))?;
    let appender = appender.clone();
    let appended = tokio::task::spawn_blocking(move || appender.append(entry)).await;
    match appended {
        Ok(outcome) => outcome.map(|_| ()).map_err(|error| failed(&error)),
        Err(error) => Err(failed(&error)),
    }
}
