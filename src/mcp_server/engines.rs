//! The engine behind the tools: the process that owns the ledger, or an engine of this process.
//!
//! An engine of this process is opened when a call needs one, and closed once no call uses it and
//! none of its runs is in progress. Until then this process owns the ledger. Calls that only read
//! use an engine that takes no lock.
//!
//! ```text
//! call ─▶ lease ─┬─ our own engine, if it is open
//!                ├─ the owner of the ledger, over HTTP
//!                └─ otherwise an engine is opened: for reading, or as the owner
//! ```

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

use super::access::{CallerAccess, remote};
use super::answer::AnswerError;
use super::setup::ServerSetup;
use ktsu_assemble::reading::ReadOnlyEngine;
use ktsu_assemble::{Agents, Engine, Setup};
use ktsu_environment::Environment;
use ktsu_kit::Kit;
use ktsu_opening::Failure;
use ktsu_opening::engine::drain_and_close;
use ktsu_opening::engine::{open, open_reading, receiver};
use ktsu_opening::environment::process_environment;
use ktsu_opening::ledger::owner_url;
use ktsu_opening::peer::peer_within;
use ktsu_opening::quoting::quoted;
use ktsu_peer::Peer;
use ktsu_receiver::Receiver;

/// The time between two checks of whether an engine is still needed.
const IDLE_CHECK_INTERVAL: Duration = Duration::from_millis(200);
/// The time that an engine that only reads is kept for the next call.
const READER_IDLE_TIMEOUT: Duration = Duration::from_secs(5);
/// The time that a call waits for an engine of this process that another call uses for another kit.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
/// The time between two checks meanwhile.
const BUSY_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// The time by which calls that are being answered may delay the end.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// The purpose for which a call needs an engine.
#[derive(Clone)]
pub(super) enum EnginePurpose {
    /// To read.
    Read,
    /// To append something that starts no work.
    Append,
    /// To run workflows of this kit.
    Run(Arc<Kit>),
}

/// Opens engines, and closes them.
pub(super) struct EngineKeeper {
    /// The ledger, the environment, and the kit of runs that continue after a decision.
    pub(super) setup: ServerSetup,
    slots: Mutex<EngineSlots>,
}

#[derive(Default)]
struct EngineSlots {
    owner: Option<Arc<OwnedEngine>>,
    reader: Option<(Arc<ReadOnlyEngine>, Instant)>,
    is_watched: bool,
    is_closed: bool,
}

/// An engine of this process that owns the ledger.
struct OwnedEngine {
    engine: Engine,
    /// The folder of its kit; none if it runs nothing.
    kit: Option<PathBuf>,
    _receiver: Option<Receiver>,
}

/// An engine to call. It stays open as long as this exists.
pub(super) struct EngineLease {
    target: LeaseTarget,
}

enum LeaseTarget {
    Elsewhere(String),
    Owner(Arc<OwnedEngine>),
    Reader(Arc<ReadOnlyEngine>),
}

impl EngineLease {
    /// A connection for a caller. A client over HTTP never counts as this process, so where there
    /// are principals it needs a token.
    ///
    /// # Errors
    /// As [`remote`].
    pub(super) fn peer(&self, caller: &CallerAccess) -> Result<Peer, AnswerError> {
        let (url, router) = match &self.target {
            LeaseTarget::Elsewhere(url) => (url.as_str(), None),
            LeaseTarget::Owner(own) => (own.engine.url.as_str(), Some(&own.engine.router)),
            LeaseTarget::Reader(reading) => (reading.url.as_str(), Some(&reading.router)),
        };
        match (caller, router) {
            (CallerAccess::Process(token), Some(router)) => Ok(peer_within(router, token.clone())),
            (CallerAccess::Process(_) | CallerAccess::Client(_), _) => remote(url, caller),
        }
    }

    /// Returns `true` if another process owns the ledger: its kit counts, not ours.
    pub(super) fn is_elsewhere(&self) -> bool {
        matches!(self.target, LeaseTarget::Elsewhere(_))
    }
}

impl EngineKeeper {
    /// Without an engine.
    pub(super) fn new(setup: ServerSetup) -> Arc<Self> {
        Arc::new(Self {
            setup,
            slots: Mutex::default(),
        })
    }

    /// The folder of the kit that was named at the start.
    pub(super) fn kit(&self) -> Option<&PathBuf> {
        self.setup.kit.as_ref()
    }

    /// The environment of a kit, otherwise of the working directory.
    pub(super) fn environment(&self, kit: Option<&Kit>) -> Result<Option<Environment>, Failure> {
        match kit {
            Some(kit) => self.environment_of(&kit.root),
            None => self.setup.load_environment(),
        }
    }

    /// The URL at which another process that owns the ledger listens, if there is one.
    ///
    /// # Errors
    /// It does not listen yet.
    pub(super) async fn elsewhere(&self) -> Result<Option<String>, AnswerError> {
        let slots = self.slots.lock().await;
        match slots.owner {
            Some(_) => Ok(None),
            None => Ok(owner_url(&self.setup.ledger)?),
        }
    }

    /// The environment file of a folder, before anything of the folder is read.
    ///
    /// # Errors
    /// It is not valid.
    pub(super) fn environment_of(&self, folder: &Path) -> Result<Option<Environment>, Failure> {
        self.setup.environment_of(folder)
    }

    /// An engine for a call. Opening one is never broken off half way, even if the call is.
    ///
    /// # Errors
    /// Why there is none.
    pub(super) async fn lease(
        self: &Arc<Self>,
        purpose: EnginePurpose,
    ) -> Result<EngineLease, AnswerError> {
        let keeper = Arc::clone(self);
        let leased = tokio::spawn(async move { keeper.lease_when_free(purpose).await });
        let leased = leased.await;
        leased.unwrap_or_else(|_| Err(AnswerError::new("opening the engine failed unexpectedly")))
    }

    async fn lease_when_free(
        self: Arc<Self>,
        purpose: EnginePurpose,
    ) -> Result<EngineLease, AnswerError> {
        let until = Instant::now() + BUSY_TIMEOUT;
        loop {
            let mut slots = self.slots.lock().await;
            if slots.is_closed {
                return Err(AnswerError::new("the server is stopping"));
            }
            match slots.own_lease(&purpose, self.setup.console.note).await? {
                OwnLease::Some(lease) => return Ok(lease),
                OwnLease::Busy if Instant::now() < until => {}
                OwnLease::Busy => return Err(AnswerError::new("the engine is busy")),
                OwnLease::None => {
                    let lease = self.open_lease(&mut slots, purpose).await?;
                    if !lease.is_elsewhere() && !slots.is_watched {
                        slots.is_watched = true;
                        tokio::spawn(close_when_idle(Arc::clone(&self)));
                    }
                    return Ok(lease);
                }
            }
            drop(slots);
            tokio::time::sleep(BUSY_POLL_INTERVAL).await;
        }
    }

    async fn open_lease(
        &self,
        slots: &mut EngineSlots,
        purpose: EnginePurpose,
    ) -> Result<EngineLease, AnswerError> {
        let lease = |target| Ok(EngineLease { target });
        if let Some(url) = owner_url(&self.setup.ledger)? {
            return lease(LeaseTarget::Elsewhere(url));
        }
        let kit = match purpose {
            EnginePurpose::Read => {
                let reading = self.reader(slots).await?;
                return lease(LeaseTarget::Reader(reading));
            }
            EnginePurpose::Append => None,
            EnginePurpose::Run(kit) => Some(kit),
        };
        let opened = Arc::new(self.open_owner(kit).await?);
        slots.owner = Some(Arc::clone(&opened));
        lease(LeaseTarget::Owner(opened))
    }

    async fn open_owner(&self, kit: Option<Arc<Kit>>) -> Result<OwnedEngine, Failure> {
        let environment = self.environment(kit.as_deref())?;
        let mut process = process_environment();
        let receiver = match kit {
            Some(_) => {
                receiver(environment.as_ref(), &mut process, self.setup.ledger.file()).await?
            }
            None => None,
        };
        let folder = kit.as_ref().map(|kit| kit.root.clone());
        let agents = match kit {
            Some(_) => Agents::here(),
            None => Agents::Nowhere,
        };
        // As `ktsu run` does: what this kit left unfinished goes on.
        let resume_unfinished = kit.is_some();
        let kit = kit.unwrap_or_else(|| Arc::new(Kit::empty()));
        let ledger = self.setup.ledger.clone();
        let engine = open(Setup {
            agents,
            resume_unfinished,
            ..Setup::embedded(kit, environment, process, ledger)
        })
        .await?;
        Ok(OwnedEngine {
            engine,
            kit: folder,
            _receiver: receiver,
        })
    }

    async fn reader(&self, slots: &mut EngineSlots) -> Result<Arc<ReadOnlyEngine>, Failure> {
        if let Some((reading, used)) = &mut slots.reader {
            *used = Instant::now();
            return Ok(Arc::clone(reading));
        }
        let environment = self.environment(None)?;
        let ledger = self.setup.ledger.clone();
        let kit = Arc::new(Kit::empty());
        let setup = Setup {
            agents: Agents::Nowhere,
            resume_unfinished: false,
            ..Setup::embedded(kit, environment, process_environment(), ledger)
        };
        let reading = Arc::new(open_reading(setup).await?);
        slots.reader = Some((Arc::clone(&reading), Instant::now()));
        Ok(reading)
    }

    /// Closes everything; further calls are refused. Runs in progress go on at the next start.
    ///
    /// # Errors
    /// Why the ledger had stopped before.
    pub(super) async fn close(&self) -> Result<(), Failure> {
        let until = Instant::now() + CLOSE_TIMEOUT;
        loop {
            let mut slots = self.slots.lock().await;
            slots.is_closed = true;
            slots.reader = None;
            let Some(own) = slots.owner.take() else {
                return Ok(());
            };
            match Arc::try_unwrap(own) {
                Ok(own) => {
                    return drain_and_close(own.engine, self.setup.console.note)
                        .await
                        .map_err(Failure::could_not_run);
                }
                // What is durable by then is enough to continue from.
                Err(_) if Instant::now() >= until => return Ok(()),
                Err(own) => slots.owner = Some(own),
            }
            drop(slots);
            tokio::time::sleep(BUSY_POLL_INTERVAL).await;
        }
    }
}

/// The lease of the engine of this process, if it serves a call.
enum OwnLease {
    Some(EngineLease),
    /// It does not now, and may soon.
    Busy,
    None,
}

impl EngineSlots {
    async fn own_lease(
        &mut self,
        purpose: &EnginePurpose,
        note: fn(&str),
    ) -> Result<OwnLease, AnswerError> {
        let Some(own) = &self.owner else {
            return Ok(OwnLease::None);
        };
        let wanted = match purpose {
            EnginePurpose::Read | EnginePurpose::Append => None,
            EnginePurpose::Run(kit) => Some(&kit.root),
        };
        if wanted.is_none() || wanted == own.kit.as_ref() {
            let target = LeaseTarget::Owner(Arc::clone(own));
            return Ok(OwnLease::Some(EngineLease { target }));
        }
        if own.engine.orchestrator.active() > 0 {
            let folder = own.kit.as_deref().map(quoted).unwrap_or_default();
            let words = format!("runs of the kit {folder} are in progress on this ledger");
            return Err(AnswerError::private(words)
                .hint("wait until they have ended, or end them: ktsu cancel RUN"));
        }
        match self.close_owner(note).await? {
            true => Ok(OwnLease::None),
            false => Ok(OwnLease::Busy),
        }
    }

    /// Closes the engine that owns the ledger, unless a call uses it.
    async fn close_owner(&mut self, note: fn(&str)) -> Result<bool, Failure> {
        let Some(own) = self.owner.take() else {
            return Ok(true);
        };
        match Arc::try_unwrap(own) {
            Ok(own) => {
                let closed = drain_and_close(own.engine, note).await;
                closed.map_err(Failure::could_not_run)?;
                Ok(true)
            }
            Err(own) => {
                self.owner = Some(own);
                Ok(false)
            }
        }
    }

    /// Closes what nobody needs any more; whether anything is left.
    async fn close_idle(&mut self, note: fn(&str)) -> bool {
        let is_idle = |(reading, used): &(Arc<ReadOnlyEngine>, Instant)| {
            Arc::strong_count(reading) == 1 && used.elapsed() >= READER_IDLE_TIMEOUT
        };
        if self.reader.as_ref().is_some_and(is_idle) {
            self.reader = None;
        }
        let is_free = |own: &Arc<OwnedEngine>| {
            let orchestrator = &own.engine.orchestrator;
            orchestrator.active() == 0 || orchestrator.failed().is_some()
        };
        if self.owner.as_ref().is_some_and(is_free)
            && let Err(failure) = self.close_owner(note).await
        {
            tracing::error!("{}", failure.message());
        }
        self.owner.is_some() || self.reader.is_some()
    }
}

async fn close_when_idle(keeper: Arc<EngineKeeper>) {
    loop {
        tokio::time::sleep(IDLE_CHECK_INTERVAL).await;
        let mut slots = keeper.slots.lock().await;
        if slots.is_closed || !slots.close_idle(keeper.setup.console.note).await {
            slots.is_watched = false;
            return;
        }
    }
}
