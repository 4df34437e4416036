//! The subscriptions of an engine: declared in its environment file, or added by an admin.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ktsu_delivery::{DeadLetter, DeliveryFilter, DeliveryRetry, SubscriptionState};
use ktsu_egress::{self as egress, SlotKind};
use ktsu_environment::subscription_secrets::ResolvedSubscription;
use ktsu_environment::subscriptions::{GIVEN_PREFIX, MAX_SUBSCRIPTIONS};
use ktsu_ledger::Actor;
use ktsu_ledger::appender::Appender;
use ktsu_ledger::event::{
    DeliveryEvent, DeliveryRedriven, Principal, SubscriptionAdded, SubscriptionRemoved,
};
use ktsu_ledger::store::StoreError;
use ktsu_readers::ReaderPool;
use ktsu_secret::{Secret, WebhookKey};
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::feed::EventFeed;
use super::journal::{LedgerClock, RecordedSubscription, SubscriptionJournal};
use super::worker::{DeliveryStatus, DeliveryWorker, WorkerCommand, WorkerParts};

/// The time between two records of cursors: what was delivered since is delivered again after a
/// crash.
const FLUSH_INTERVAL: Duration = Duration::from_secs(1);

/// Looks the value of a variable up, for the secret of a subscription; nothing if it has none, or
/// one that is too short for a secret.
pub type VariableLookup = Arc<dyn Fn(&str) -> Option<Secret> + Send + Sync>;

/// The parts that subscriptions work with.
pub struct SubscriptionParts {
    /// The frames to send.
    pub feed: EventFeed,
    /// The appender that records subscriptions.
    pub appender: Appender,
    /// The readers of those records.
    pub readers: ReaderPool,
    /// The time.
    pub clock: LedgerClock,
    /// The client that sends. Not the client of runs: receivers that hang must not take the places
    /// of their webhooks.
    pub egress: egress::Client,
    /// The values of secrets.
    pub secret: VariableLookup,
    /// Those of the environment file.
    pub declared: Vec<ResolvedSubscription>,
}

/// The subscriptions of an engine. Cheap to clone.
#[derive(Clone)]
pub struct Subscriptions(Arc<Service>);

struct Service {
    feed: EventFeed,
    journal: Arc<SubscriptionJournal>,
    egress: egress::Client,
    secret: VariableLookup,
    declared: BTreeMap<String, ResolvedSubscription>,
    /// Those whose frames are sent here.
    running: Mutex<BTreeMap<String, Running>>,
    /// Held while subscriptions are added or removed.
    changing: tokio::sync::Mutex<()>,
    flushing: Mutex<Option<JoinHandle<()>>>,
}

struct Running {
    commands: mpsc::Sender<WorkerCommand>,
    status: Arc<Mutex<DeliveryStatus>>,
    task: JoinHandle<()>,
}

/// A subscription, as it may be shown to an admin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubscriptionView {
    /// Its id: the name in the file, or `sub_…`.
    pub id: String,
    /// Its state, as the ledger has it.
    pub state: SubscriptionState,
    /// True if the environment file declares it.
    pub is_declared: bool,
    /// The position up to which nothing is left to send.
    pub cursor: u64,
    /// The status of its deliveries; nothing if none are made here.
    pub status: Option<DeliveryStatus>,
}

/// A subscription to add.
#[derive(Debug, Clone)]
pub struct NewSubscription {
    /// The frames, or the topics, that are sent.
    pub filter: DeliveryFilter,
    /// The URL that they are sent to.
    pub url: String,
    /// The template of the secret, as it is recorded.
    pub secret: String,
    /// The variable it names.
    pub variable: String,
    /// The number of attempts at a frame, and the pauses between them.
    pub retry: DeliveryRetry,
    /// The principal who adds it.
    pub by: Principal,
}

/// The reason why a request about subscriptions was refused. Nothing was recorded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SubscriptionError {
    /// No subscription has this id.
    #[error("there is no such subscription")]
    NotFound,
    /// It stands in the environment file.
    #[error("the environment file declares this subscription")]
    Declared,
    /// [`MAX_SUBSCRIPTIONS`] are active.
    #[error("there are {MAX_SUBSCRIPTIONS} subscriptions, which is as many as an engine serves")]
    TooMany,
    /// The policy does not let requests go there.
    #[error("{0}")]
    Refused(String),
    /// The variable of the secret has no value, or one that is too short.
    #[error("the variable {0:?} has no value here, or one that is too short for a secret")]
    NoSecret(String),
    /// Plain variables contain the key, and runs record those as they are.
    #[error("the value of the secret also appears in variables that are not secret: {0}")]
    ShownBy(String),
    /// The disk is nearly full.
    #[error("the disk is nearly full, so nothing is recorded")]
    DiskFull,
    /// The ledger takes nothing.
    #[error("{0}")]
    LedgerStopped(String),
    /// The ledger cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Subscriptions {
    /// Subscriptions that send nothing until [`Subscriptions::begin`].
    pub fn new(parts: SubscriptionParts) -> Self {
        let declared = parts.declared.into_iter();
        let journal = SubscriptionJournal::new(parts.readers, parts.appender, parts.clock);
        Self(Arc::new(Service {
            feed: parts.feed,
            journal: Arc::new(journal),
            egress: parts.egress,
            secret: parts.secret,
            declared: declared
                .map(|one| (one.declared.name.clone(), one))
                .collect(),
            running: Mutex::default(),
            changing: tokio::sync::Mutex::new(()),
            flushing: Mutex::default(),
        }))
    }

    /// Begins to send: records declarations that are new or have changed, and continues every
    /// subscription behind its cursor.
    ///
    /// # Errors
    /// [`SubscriptionError::Store`] and [`SubscriptionError::LedgerStopped`].
    pub async fn begin(&self) -> Result<(), SubscriptionError> {
        let _turn = self.0.changing.lock().await;
        let mut recorded = self.0.journal.read_all().await?;
        for one in self.0.declared.values() {
            let id = &one.declared.name;
            let known = recorded.remove(id).unwrap_or_default();
            let known = self.0.declare(one, known).await?;
            self.0.run(id, known, &one.secret);
        }
        let added = recorded.into_iter();
        for (id, known) in added.filter(|(_, known)| is_given(&known.state)) {
            match self.0.secret_of(&known.state) {
                Some(secret) => self.0.run(&id, known, &secret),
                None => tracing::warn!(
                    subscription = id,
                    "nothing is delivered: its secret has no value"
                ),
            }
        }
        let service = Arc::downgrade(&self.0);
        let flushing = tokio::spawn(async move {
            loop {
                tokio::time::sleep(FLUSH_INTERVAL).await;
                let Some(service) = service.upgrade() else {
                    return;
                };
                if let Err(why) = service.journal.flush().await {
                    tracing::warn!("cursors of subscriptions are not recorded: {why}");
                }
            }
        });
        *self.0.flushing.lock() = Some(flushing);
        Ok(())
    }

    /// Stops sending, and records how far it came.
    pub async fn stop(&self) {
        let flushing = self.0.flushing.lock().take();
        let running = std::mem::take(&mut *self.0.running.lock());
        for one in running.into_values() {
            drop(one.commands);
            let _ = one.task.await;
        }
        if let Some(flushing) = flushing {
            flushing.abort();
            let _ = flushing.await;
            if let Err(why) = self.0.journal.flush().await {
                tracing::warn!("cursors of subscriptions are not recorded: {why}");
            }
        }
    }

    /// All subscriptions that were not removed.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn list(&self) -> Result<Vec<SubscriptionView>, StoreError> {
        let recorded = self.0.journal.read_all().await?;
        let active = recorded
            .into_iter()
            .filter(|(_, one)| one.state.is_active());
        Ok(active.map(|(id, one)| self.0.view(id, one)).collect())
    }

    /// The key that a subscription would be signed with. Whoever adds it keeps that key secret first.
    ///
    /// # Errors
    /// [`SubscriptionError::NoSecret`], or that nothing can be added.
    pub fn key_of(&self, new: &NewSubscription) -> Result<Secret, SubscriptionError> {
        self.0.must_write()?;
        let secret = (self.0.secret)(&new.variable);
        secret.ok_or_else(|| SubscriptionError::NoSecret(new.variable.clone()))
    }

    /// Adds a subscription to what is appended from now on.
    ///
    /// # Errors
    /// [`SubscriptionError`].
    pub async fn add(&self, new: NewSubscription) -> Result<SubscriptionView, SubscriptionError> {
        let service = &self.0;
        service.must_write()?;
        let may_reach = service.egress.check_name(&new.url);
        may_reach.map_err(|error| SubscriptionError::Refused(error.message))?;
        let slot = service.egress.acquire_slot(&new.url, SlotKind::Part).await;
        slot.map_err(|error| SubscriptionError::Refused(error.message))?;
        let secret = self.key_of(&new)?;
        let _turn = service.changing.lock().await;
        let recorded = service.journal.read_all().await?;
        let active = recorded.values().filter(|one| one.state.is_active());
        if active.count() >= MAX_SUBSCRIPTIONS {
            return Err(SubscriptionError::TooMany);
        }
        let id = format!("{GIVEN_PREFIX}{}", uuid::Uuid::now_v7().simple());
        let actor = Actor::Principal(new.by.id.clone());
        let (pattern, topics) = new.filter.to_recorded();
        let added = DeliveryEvent::Added(SubscriptionAdded {
            attempts: new.retry.attempts,
            backoff_ms: new.retry.backoff_ms,
            by: Some(new.by),
            from: service.feed.last_position().await?,
            pattern,
            secret: new.secret,
            topics,
            url: new.url,
        });
        service.record(&id, actor, added).await?;
        let known = service.journal.read(&id).await?;
        let known = known.unwrap_or_default();
        if service.flushing.lock().is_some() {
            service.run(&id, known.clone(), &secret);
        }
        Ok(service.view(id, known))
    }

    /// Removes a subscription: nothing more is sent.
    ///
    /// # Errors
    /// [`SubscriptionError`].
    pub async fn remove(&self, id: &str, by: Principal) -> Result<(), SubscriptionError> {
        let service = &self.0;
        let _turn = service.changing.lock().await;
        service.active(id).await?;
        if service.declared.contains_key(id) {
            return Err(SubscriptionError::Declared);
        }
        service.must_write()?;
        let actor = Actor::Principal(by.id.clone());
        let removed = DeliveryEvent::Removed(SubscriptionRemoved { by });
        service.record(id, actor, removed).await?;
        let running = service.running.lock().remove(id);
        if let Some(running) = running {
            let _ = running.commands.send(WorkerCommand::End).await;
            let _ = running.task.await;
        }
        Ok(())
    }

    /// The frames that could not be delivered, by position, from one on.
    ///
    /// # Errors
    /// [`SubscriptionError`].
    pub async fn dead(
        &self,
        id: &str,
        from: u64,
        limit: usize,
    ) -> Result<(Vec<DeadLetter>, Option<u64>), SubscriptionError> {
        let recorded = self.0.active(id).await?;
        let mut dead = recorded.state.dead.into_iter();
        let found: Vec<_> = dead
            .by_ref()
            .filter(|(position, _)| *position >= from)
            .take(limit)
            .map(|(_, letter)| letter)
            .collect();
        let next = dead.next().map(|(position, _)| position);
        Ok((found, next))
    }

    /// Sends all dead frames again; gives how many there are.
    ///
    /// # Errors
    /// [`SubscriptionError`].
    pub async fn redrive(&self, id: &str, by: Principal) -> Result<u64, SubscriptionError> {
        let service = &self.0;
        let _turn = service.changing.lock().await;
        let recorded = service.active(id).await?;
        service.must_write()?;
        let count = recorded.state.resting().count() as u64;
        if count == 0 {
            return Ok(0);
        }
        let actor = Actor::Principal(by.id.clone());
        let redriven = DeliveryEvent::Redriven(DeliveryRedriven { by, count });
        service.record(id, actor, redriven).await?;
        let running = service
            .running
            .lock()
            .get(id)
            .map(|one| one.commands.clone());
        if let Some(commands) = running {
            let _ = commands.send(WorkerCommand::Redrive).await;
        }
        Ok(count)
    }

    /// The secrets that frames are signed with, as far as they are known now: nothing that is
    /// recorded may contain them.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn secrets(&self) -> Result<Vec<Secret>, StoreError> {
        let recorded = self.0.journal.read_all().await?;
        let given = recorded.values().filter(|one| is_given(&one.state));
        let given = given.filter_map(|one| self.0.secret_of(&one.state));
        let declared = self.0.declared.values().map(|one| one.secret.clone());
        Ok(declared.chain(given).collect())
    }
}

/// Returns `true` if a subscription was added by a person and not removed.
fn is_given(state: &SubscriptionState) -> bool {
    state.is_active() && state.added_by().is_some()
}

impl Service {
    fn must_write(&self) -> Result<(), SubscriptionError> {
        match self.journal.stopped() {
            Some(why) => Err(SubscriptionError::LedgerStopped(why)),
            None if self.journal.is_low_on_disk() => Err(SubscriptionError::DiskFull),
            None => Ok(()),
        }
    }

    async fn record(
        &self,
        id: &str,
        actor: Actor,
        event: DeliveryEvent,
    ) -> Result<(), SubscriptionError> {
        let recorded = self.journal.append(id, actor, event).await;
        recorded.map_err(SubscriptionError::LedgerStopped)
    }

    /// A subscription that was not removed.
    async fn active(&self, id: &str) -> Result<RecordedSubscription, SubscriptionError> {
        let found = self.journal.read(id).await?;
        let found = found.filter(|one| one.state.is_active());
        found.ok_or(SubscriptionError::NotFound)
    }

    /// Records what the file says of a subscription, unless the ledger knows.
    async fn declare(
        &self,
        one: &ResolvedSubscription,
        known: RecordedSubscription,
    ) -> Result<RecordedSubscription, SubscriptionError> {
        let declared = &one.declared;
        let recorded = known.state.added.as_ref();
        let from = match recorded {
            Some(recorded) => recorded.from,
            None => self.feed.last_position().await?,
        };
        let (pattern, topics) = declared.filter.to_recorded();
        let added = SubscriptionAdded {
            attempts: declared.retry.attempts,
            backoff_ms: declared.retry.backoff_ms,
            by: None,
            from,
            pattern,
            secret: format!("{{{{ env.{} }}}}", declared.secret.variable),
            topics,
            url: declared.url.clone(),
        };
        if known.state.is_active() && recorded == Some(&added) {
            return Ok(known);
        }
        let added = DeliveryEvent::Added(added);
        self.record(&declared.name, Actor::Orchestrator, added)
            .await?;
        let known = self.journal.read(&declared.name).await?;
        Ok(known.unwrap_or_default())
    }

    /// The secret that a recorded template names, if it has a value.
    fn secret_of(&self, state: &SubscriptionState) -> Option<Secret> {
        let template = &state.added.as_ref()?.secret;
        (self.secret)(named_variable(template)?)
    }

    /// Starts the task of a subscription.
    fn run(&self, id: &str, recorded: RecordedSubscription, secret: &Secret) {
        let status = Arc::new(Mutex::new(DeliveryStatus {
            cursor: recorded.cursor,
            ..DeliveryStatus::default()
        }));
        let Some((filter, url, key)) = target(&recorded.state, secret) else {
            tracing::warn!(subscription = id, "nothing is delivered: it cannot be read");
            return;
        };
        let worker = DeliveryWorker::new(WorkerParts {
            id: id.to_owned(),
            filter,
            url,
            key,
            recorded,
            feed: self.feed.clone(),
            journal: Arc::clone(&self.journal),
            egress: self.egress.clone(),
            status: Arc::clone(&status),
        });
        let Ok(worker) = worker else {
            return;
        };
        let (commands, taken) = mpsc::channel(1);
        let running = Running {
            commands,
            status,
            task: tokio::spawn(worker.run(taken)),
        };
        self.running.lock().insert(id.to_owned(), running);
    }

    fn view(&self, id: String, recorded: RecordedSubscription) -> SubscriptionView {
        let running = self.running.lock();
        let status = running.get(&id).map(|one| one.status.lock().clone());
        drop(running);
        let cursor = status
            .as_ref()
            .map_or(recorded.cursor, |status| status.cursor);
        SubscriptionView {
            is_declared: self.declared.contains_key(&id),
            cursor,
            status,
            state: recorded.state,
            id,
        }
    }
}

/// The filter and the URL of a subscription, and the key that signs its deliveries.
fn target(
    state: &SubscriptionState,
    secret: &Secret,
) -> Option<(DeliveryFilter, String, WebhookKey)> {
    let added = state.added.as_ref()?;
    let filter = DeliveryFilter::recorded(&added.pattern, added.topics.as_deref())?;
    Some((filter, added.url.clone(), WebhookKey::of(secret)?))
}

/// The variable that a template names, and nothing else.
pub fn named_variable(template: &str) -> Option<&str> {
    let inner = template.trim().strip_prefix("{{")?.strip_suffix("}}")?;
    inner.trim().strip_prefix("env.")
}
