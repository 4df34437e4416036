//! The orchestrator: decides on commands and answers, and is the only one to append frames of runs.
//!
//! One task owns each run (`run`); everything else uses this handle. The pure core decides on a
//! command, its frames are linked and sent to the appender's thread, and the reply follows once
//! they are durable.
//!
//! ```text
//! invoke ─admit▶ first turn ─▶ appender ─durable▶ 202
//!                    │
//!                    └▶ run task ─turn▶ appender ─durable▶ effects/ ─answer▶ run task …
//! ```
//!
//! After a crash, `startup` folds the recorded frames and the same core decides what comes next.

mod blocking;
pub mod clock;
mod drain;
mod effects;
mod evals;
mod fork;
mod human_commands;
mod idempotency;
mod instances;
mod invocation;
mod ledger_health;
mod owner_view;
mod peers;
mod principal_secrets;
mod recent;
pub mod recompute;
mod recorded;
mod references;
mod refused_posts;
mod registry;
pub mod reports;
mod retention;
mod run;
mod runtimes;
mod secrets;
mod startup;
mod supervise;
mod token;
mod tools;

pub use clock::MicrosClock;
pub use drain::AwaitedEffects;
pub use evals::{EvalAppendError, EvalStream};
pub use fork::{CheckedFork, ForkReceipt};
pub use human_commands::{CommandError, CommandReceipt, HumanCommand};
pub use idempotency::ClaimOutcome;
pub use invocation::{InvokeError, InvokeRequest, RunAccepted};
pub use ledger_health::{LedgerHealth, LedgerRole, LedgerState};
pub use owner_view::{OwnerView, SeenOwner, ShorterLedger};
pub use peers::{Peers, ServicePeer};
pub use references::{ReferencedServer, References};
pub use reports::{ReportError, TaskAddress};
pub use retention::{HoldError, HoldReceipt, RetentionParts};
pub use run::{AwaitedEnvelope, Progress, ReportOrigin};
pub use startup::{Recovered, rebuild_index};
pub use token::{TaskName, TokenKey};
pub use tools::{BuiltinServer, PostOutcome, ProtocolAnswer, ToolStream};

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use ktsu_ledger::appender::Appender;
use ktsu_ledger::event::plan::Variable;
use ktsu_ledger::{CanonicalJson, Draft, StreamId};
use ktsu_projections::index;
use tokio::sync::watch;

use clock::ClockReading;
use ktsu_environment::settings::MAX_ACTIVE_RUNS;
use ktsu_environment::{Principals, VariableValues};
use ktsu_kit::Kit;
pub use ktsu_readers::ReadKind;
use ktsu_readers::ReaderPool;
use ktsu_secret::Secret;
use ktsu_subscriptions::{
    EventFeed, NewSubscription, SubscriptionError, SubscriptionView, Subscriptions,
};
use ktsu_telemetry::Telemetry;
use ktsu_workflow::admit::{self, Invocation, InvocationError};
use ktsu_workflow::definition::Definition;
use ktsu_workflow::next::Memo;
use ktsu_workflow::turn;
pub use recent::{RecentRun, RecentRuns};
use references::RunReferences;
use refused_posts::RefusedPosts;
use registry::{NewRun, RunRegistry};
use retention::Retention;
use runtimes::Fleet;
use secrets::RunSecrets;
use supervise::Supervisor;
use tools::BuiltinServers;

/// The default limit of active runs; further requests are refused and may be repeated.
pub const MAX_ACTIVE: usize = MAX_ACTIVE_RUNS;
/// The time between two looks at a run without a task here.
const ELSEWHERE_POLL_INTERVAL: Duration = Duration::from_millis(250);

/// The parts that the engine works with; see `assemble`.
pub struct OrchestratorParts {
    /// The appender that takes frames.
    pub appender: Appender,
    /// The readers of the ledger.
    pub readers: ReaderPool,
    /// The frames of all runs, for those who follow them.
    pub events: EventFeed,
    /// The subscriptions: their receivers are sent the frames.
    pub subscriptions: Subscriptions,
    /// The workflows that may be invoked.
    pub kit: Arc<Kit>,
    /// Values of the environment, per root workflow.
    pub environment: BTreeMap<String, VariableValues>,
    /// The principals that may make requests, and their own keys.
    pub principals: Arc<Principals>,
    /// The most runs under way at once.
    pub max_active: usize,
    /// The services that runs talk to.
    pub peers: Peers,
    /// The time.
    pub clock: MicrosClock,
    /// The status of the notary; shown by `/health`.
    pub notary: ktsu_evidence::notary::SharedStatus,
    /// True if runs that were left unfinished continue, and runs that are due are removed.
    pub resume_unfinished: bool,
    /// The health of the ledger.
    pub health: LedgerHealth,
    /// The log and the counters of milestones of runs.
    pub telemetry: Arc<Telemetry>,
    /// The value of a secret variable that a recorded run declares, if it is known here.
    pub secret: SecretLookup,
    /// The retention of ended runs.
    pub retention: RetentionParts,
    /// The secrets of the gateway, where it is in this process: redacted like all others.
    pub provider_keys: Vec<Secret>,
}

/// Looks a secret up.
pub type SecretLookup = Arc<dyn Fn(&Variable) -> Option<Secret> + Send + Sync>;

/// A cheap handle on the engine.
#[derive(Clone)]
pub struct Orchestrator {
    shared: Arc<Shared>,
}

/// The parts that all runs share.
pub(crate) struct Shared {
    appender: Appender,
    readers: ReaderPool,
    events: EventFeed,
    subscriptions: Subscriptions,
    clock: MicrosClock,
    health: LedgerHealth,
    notary: ktsu_evidence::notary::SharedStatus,
    telemetry: Arc<Telemetry>,
    kit: Arc<Kit>,
    secrets: RunSecrets,
    peers: Peers,
    runs: RunRegistry,
    supervisor: Supervisor,
    /// Held while runtimes are asked which instances they are.
    asking_runtimes: tokio::sync::Mutex<()>,
    own_tools: BuiltinServers,
    recent: RecentRuns,
    references: RunReferences,
    refused_posts: RefusedPosts,
    retention: Retention,
}

impl Orchestrator {
    /// Starts the engine on a ledger, and resumes unfinished runs if configured to.
    ///
    /// # Errors
    /// A message, if the ledger cannot be read.
    pub async fn start(parts: OrchestratorParts) -> Result<(Self, Recovered), String> {
        let workflows = parts.kit.workflows.values();
        let definitions = workflows.map(|one| Arc::clone(&one.definition));
        let local = parts.peers.runtimes.iter().map(ServicePeer::is_local);
        let supervisor = Supervisor::new(Fleet::of(local));
        let shared = Arc::new(Shared {
            runs: RunRegistry::new(parts.max_active, definitions),
            secrets: RunSecrets::new(
                parts.environment,
                parts.principals,
                parts.provider_keys,
                parts.secret,
            ),
            peers: parts.peers,
            appender: parts.appender,
            readers: parts.readers,
            events: parts.events,
            subscriptions: parts.subscriptions,
            clock: parts.clock,
            health: parts.health,
            notary: parts.notary,
            telemetry: parts.telemetry,
            kit: parts.kit,
            supervisor,
            asking_runtimes: tokio::sync::Mutex::default(),
            own_tools: BuiltinServers::default(),
            recent: RecentRuns::default(),
            references: RunReferences::default(),
            refused_posts: RefusedPosts::default(),
            retention: Retention::new(parts.retention),
        });
        tokio::spawn(spawn_supervisor_ticks(Arc::downgrade(&shared)));
        // What only reads has nothing to go on from.
        if shared.appender.failed().is_none() {
            startup::count_unfinished(&shared).await?;
        }
        let recovered = match parts.resume_unfinished {
            true => startup::resume_all(&shared).await?,
            false => Recovered::default(),
        };
        // An engine that was opened for one command, such as a hold, removes nothing meanwhile.
        if parts.resume_unfinished && shared.appender.failed().is_none() {
            retention::check_clock(&shared).await?;
            tokio::spawn(retention::sweep_regularly(Arc::downgrade(&shared)));
        }
        Ok((Self { shared }, recovered))
    }

    /// Starts a run, and returns once its first turn is durable.
    ///
    /// # Errors
    /// [`InvokeError`].
    pub async fn invoke(&self, request: InvokeRequest) -> Result<RunAccepted, InvokeError> {
        let begun = self.invoke_for(request, ReplyAt::Start).await;
        begun.map(|(accepted, _)| accepted)
    }

    /// As [`Orchestrator::invoke`], for a caller who waits for the end: of a run that this starts,
    /// the task will show it.
    ///
    /// # Errors
    /// [`InvokeError`].
    pub async fn invoke_awaited(
        &self,
        request: InvokeRequest,
    ) -> Result<(RunAccepted, Option<AwaitedEnvelope>), InvokeError> {
        self.invoke_for(request, ReplyAt::End).await
    }

    async fn invoke_for(
        &self,
        mut request: InvokeRequest,
        reply: ReplyAt,
    ) -> Result<(RunAccepted, Option<AwaitedEnvelope>), InvokeError> {
        let shared = &self.shared;
        let workflow = shared.kit.workflows.get(&request.workflow);
        let definition = workflow.ok_or(InvokeError::UnknownWorkflow)?;
        let mut definition = definition.definition.clone();
        if !request.groups.is_empty() {
            let other = blocking::block_if(true, || definition.with_groups(&request.groups));
            let other = other.map_err(|faults| {
                InvokeError::Internal(format!("with other model groups: {faults:?}"))
            });
            definition = Arc::new(other?);
        }
        shared.secrets.redactor().redact_value(&mut request.body);
        let Some(key) = &request.idempotency_key else {
            return self.create(&definition, request, None, reply).await;
        };
        let key = shared.secrets.redactor().redact_text(key);
        let digest = idempotency::digest_of(&request);
        let scoped = index::scoped_key(&request.principal.id, &request.workflow, &key);
        let claim = shared.runs.keys.claim(&shared.readers, &scoped, &digest);
        match claim.await? {
            ClaimOutcome::Existing(run_id) => {
                self.wait_until_recorded(&run_id).await?;
                let created = false;
                Ok((RunAccepted { run_id, created }, None))
            }
            ClaimOutcome::New(claim) => {
                // On a task of its own: a client that goes away must not leave a key free whose
                // run is on its way to the ledger.
                let own = self.clone();
                let created = tokio::spawn(async move {
                    let key = Some((key, digest));
                    let begun = own.create(&definition, request, key, reply).await;
                    claim.settle(begun.as_ref().ok().map(|(new, _)| new.run_id.clone()));
                    begun
                });
                let done = created.await;
                done.map_err(|error| InvokeError::Internal(error.to_string()))?
            }
        }
    }

    async fn create(
        &self,
        definition: &Arc<Definition>,
        request: InvokeRequest,
        idempotency: Option<(String, String)>,
        reply: ReplyAt,
    ) -> Result<(RunAccepted, Option<AwaitedEnvelope>), InvokeError> {
        let shared = &self.shared;
        shared.has_room()?;
        if let Some(step) = shared.peers.lacks_runtime_for(definition) {
            return Err(InvokeError::NoRuntime(step));
        }
        let (workflow, principal) = (&request.workflow, &request.principal);
        if let Some(variable) = shared.secrets.lacks_value(workflow, principal) {
            return Err(InvokeError::NoKey {
                variable,
                principal: request.principal.id,
            });
        }
        let in_kit = shared.kit.workflows.get(workflow);
        // With other model groups it is no longer what the lock is about.
        let in_kit = in_kit.filter(|_| request.groups.is_empty());
        let mut env = shared.secrets.recorded_env(workflow);
        if let Some(references) = &request.references {
            references.replace_in(&mut env);
        }
        let invocation = Invocation {
            env,
            lock: in_kit.and_then(|workflow| workflow.lock.clone()),
            body: request.body,
            idempotency,
            effects: request.effects,
            no_cache: request.no_cache,
            principal: request.principal,
            references: match &request.references {
                Some(references) => references.names(),
                None => Vec::new(),
            },
        };
        let params = definition.root().and_then(|root| root.params.as_ref());
        let takes_long = params.is_some_and(|params| {
            let schema = params.schema();
            schema.exceeds(&invocation.body, blocking::MAX_SHARED_VISITS)
        });
        let created = blocking::block_if(takes_long, || admit::invocation(definition, invocation));
        let created = created.map_err(InvokeError::from)?;
        let id = new_id("run_");
        if let Some(references) = &request.references {
            shared.references.insert(&id, references);
        }
        begin_run(shared, id, definition, created, reply).await
    }

    /// Returns `true` if a run was created here, and its references still mean something.
    pub fn knows_references(&self, run_id: &str) -> bool {
        self.shared.references.get(run_id).is_some()
    }

    /// The progress of an active run; `None` if it has no task here.
    pub fn watch(&self, run_id: &str) -> Option<watch::Receiver<Progress>> {
        self.shared.runs.get(run_id).map(|run| run.progress)
    }

    /// Waits until a run has ended, durably. Returns at once if it is not under way.
    ///
    /// # Errors
    /// Why the run's task stopped before its end, or the ledger cannot be read.
    pub async fn wait_until_ended(&self, run_id: &str) -> Result<(), String> {
        loop {
            if let Some(mut progress) = self.watch(run_id) {
                return wait_for(&mut progress, |progress| progress.ended).await;
            }
            if !self.is_observer() || !self.is_open(run_id).await? {
                return Ok(());
            }
            tokio::time::sleep(ELSEWHERE_POLL_INTERVAL).await;
        }
    }

    /// Returns `true` if the ledger has a run without an end.
    async fn is_open(&self, run_id: &str) -> Result<bool, String> {
        let stream = StreamId::run(run_id).map_err(|error| error.to_string())?;
        let row = self.readers().with(move |reader| reader.row(&stream)).await;
        let row = row.map_err(|error| error.to_string())?;
        Ok(row.is_some_and(|row| row.open))
    }

    async fn wait_until_recorded(&self, run_id: &str) -> Result<(), InvokeError> {
        match self.watch(run_id) {
            Some(mut progress) => wait_for(&mut progress, |progress| progress.durable.is_some())
                .await
                .map_err(InvokeError::LedgerStopped),
            None => Ok(()),
        }
    }

    /// The workflows that may be invoked.
    pub fn kit(&self) -> &Arc<Kit> {
        &self.shared.kit
    }

    /// The readers of the ledger.
    pub fn readers(&self) -> &ReaderPool {
        &self.shared.readers
    }

    /// Runs that were read lately.
    pub fn recent_runs(&self) -> RecentRuns {
        self.shared.recent.clone()
    }

    /// The frames of all runs as they become durable.
    pub fn events(&self) -> &EventFeed {
        &self.shared.events
    }

    /// The subscriptions to frames.
    pub fn subscriptions(&self) -> &Subscriptions {
        &self.shared.subscriptions
    }

    /// Adds a subscription. Its key is kept out of all that is recorded from now on.
    ///
    /// # Errors
    /// [`SubscriptionError`].
    pub async fn subscribe(
        &self,
        new: NewSubscription,
    ) -> Result<SubscriptionView, SubscriptionError> {
        let subscriptions = &self.shared.subscriptions;
        let key = subscriptions.key_of(&new)?;
        let shown = self.shared.secrets.protect([&key]);
        shown.map_err(|shown| SubscriptionError::ShownBy(shown.join(", ")))?;
        subscriptions.add(new).await
    }

    /// The values the environment gives a workflow.
    pub fn environment(&self, workflow: &str) -> Option<&VariableValues> {
        self.shared.secrets.environment.get(workflow)
    }

    /// A text without the secrets of the kit.
    pub fn redacted(&self, text: &str) -> String {
        self.shared.secrets.redactor().redact_text(text)
    }

    /// A value without secrets of the kit.
    pub fn redacted_json(&self, value: &CanonicalJson) -> CanonicalJson {
        let mut without = value.to_value();
        self.shared.secrets.redactor().redact_value(&mut without);
        CanonicalJson::from_value(&without).unwrap_or_default()
    }

    /// The secret callers of a workflow must show, if its template resolves.
    pub fn invoke_secret(&self, workflow: &str, template: &str) -> Option<Secret> {
        self.shared.secrets.invoke_secret(workflow, template)
    }

    /// The runtimes of agents.
    pub fn runtimes(&self) -> &[ServicePeer] {
        &self.shared.peers.runtimes
    }

    /// The status of the notary.
    pub fn notary(&self) -> ktsu_evidence::notary::NotaryStatus {
        self.shared.notary.lock().clone()
    }

    /// The gateways, for health checks.
    pub fn gateways(&self) -> &[ServicePeer] {
        &self.shared.peers.gateways
    }

    /// Metrics.
    pub fn telemetry(&self) -> &Telemetry {
        &self.shared.telemetry
    }

    /// Number of active runs.
    pub fn active(&self) -> usize {
        self.shared.runs.len()
    }

    /// The reason why the ledger stopped, if it did.
    pub fn failed(&self) -> Option<String> {
        let failed = self.shared.appender.failed();
        failed.map(|reason| reason.to_string())
    }

    /// Returns `true` while no other engine can have become the owner of the ledger: asked before an
    /// answer leaves.
    pub fn is_owner(&self) -> bool {
        self.shared.appender.is_owner()
    }

    /// Stops: no run continues, and everything sent to the appender is durable. Unfinished work
    /// resumes at the next start.
    pub fn stop(&self) {
        self.shared.runs.stop();
        self.shared.events.close();
    }
}

/// The point at which the caller who starts a run gets its reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReplyAt {
    /// Once the first turn is durable.
    Start,
    /// Once the run has ended, if that comes in time.
    End,
}

/// A new id of a run.
fn new_id(prefix: &str) -> String {
    format!("{prefix}{}", uuid::Uuid::now_v7().simple())
}

/// Starts a run under a new id, and returns once its first turn is durable.
async fn begin_run(
    shared: &Arc<Shared>,
    run_id: String,
    definition: &Arc<Definition>,
    created: Draft,
    reply: ReplyAt,
) -> Result<(RunAccepted, Option<AwaitedEnvelope>), InvokeError> {
    let stream = StreamId::run(&run_id);
    let stream = stream.map_err(|error| InvokeError::Internal(error.to_string()))?;
    let memo = Memo::default();
    let observed = ClockReading::now(&shared.clock);
    let begun = blocking::block_if(definition.checks_may_grow(), || {
        turn::accept(definition, stream, created, observed.clock, &memo)
    });
    let begun = begun.map_err(|broken| InvokeError::Internal(broken.to_string()));
    let (state, details, turn) = begun?;
    let details = (reply == ReplyAt::End).then_some(details);
    let new = NewRun {
        definition: Arc::clone(definition),
        state,
        turn,
        memo,
        observed,
    };
    let awaited = RunRegistry::begin_awaited(shared, new, details).await?;
    let created = true;
    Ok((RunAccepted { run_id, created }, awaited))
}

/// Counts the time of the supervisor, as long as there is an engine.
async fn spawn_supervisor_ticks(shared: Weak<Shared>) {
    let mut ticks = tokio::time::interval(supervise::TICK_INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        match shared.upgrade() {
            Some(shared) => shared.supervisor.tick(),
            None => return,
        }
    }
}

impl Shared {
    fn has_room(&self) -> Result<(), InvokeError> {
        if self.runs.is_draining() {
            return Err(InvokeError::Draining);
        }
        if let Some(reason) = self.appender.failed() {
            return Err(InvokeError::LedgerStopped(reason.to_string()));
        }
        if self.health.waits_for_disk_space() || self.appender.low_on_disk() {
            return Err(InvokeError::DiskFull);
        }
        match self.runs.has_room() {
            true => Ok(()),
            false => Err(InvokeError::Overloaded),
        }
    }
}

/// Waits until a run's progress is as wanted.
async fn wait_for(
    progress: &mut watch::Receiver<Progress>,
    wanted: impl Fn(&Progress) -> bool,
) -> Result<(), String> {
    let seen = progress
        .wait_for(|now| wanted(now) || now.failed.is_some())
        .await;
    let seen = seen.map(|now| now.clone());
    match seen {
        Ok(now) if wanted(&now) => Ok(()),
        Ok(now) => Err(now.failed.unwrap_or_default()),
        // The task ended; what it recorded last is what there is.
        Err(_) if wanted(&progress.borrow()) => Ok(()),
        Err(_) => Err("the engine is stopping".to_owned()),
    }
}

impl From<InvocationError> for InvokeError {
    fn from(refused: InvocationError) -> Self {
        match refused {
            InvocationError::Params(found) => Self::Params(found),
            InvocationError::NotARoot => Self::UnknownWorkflow,
        }
    }
}
