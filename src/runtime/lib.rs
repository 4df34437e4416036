//! The agent runtime: a worker that calls models and tools on behalf of agent steps, over HTTP or
//! in process.
//!
//! A dispatch contains everything a task needs. The runtime has no credentials of its own and
//! stores nothing: its only record is what it reported, and a task that is dispatched again comes
//! with its history. It knows nothing of workflows, ledgers or providers.
//!
//! ```text
//! routes ─▶ tasks ─▶ task ──asks──▶ conversation (pure: what comes next)
//!                     │ ├─record──▶ callbacks ──▶ orchestrator   (reports, or one complete)
//!                     │ ├─model───▶ peer ───────▶ gateway
//!                     │ └─tools───▶ sessions ───▶ tool servers
//!           tasks ◀── heartbeat ──▶ callbacks ──▶ orchestrator   (what it works on; what to stop)
//! ```

mod alternatives;
mod callbacks;
mod conversation;
mod deadline;
mod gateways;
mod heartbeat;
mod in_process;
mod model;
mod orchestrators;
mod prompt;
mod record;
mod reflect;
mod reply;
mod routes;
mod task;
mod tasks;
#[cfg(test)]
mod tests;
mod tools;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use axum::Router;
use parking_lot::Mutex;
use tokio::sync::Notify;

use self::callbacks::UnreachableWarning;
use self::deadline::PausableDeadline;
use self::record::TaskRecorder;
use self::task::AgentTaskContext;
use self::tasks::{EndingFlag, StartOutcome, TaskHandle, TaskRegistry};
use ktsu_contract::runtime::InvokeAgent;
use ktsu_server::origin::AllowedHosts;
use ktsu_server::{InFlight, InFlightGuard};

pub use callbacks::{Callbacks, LocalOrchestrator};
pub use model::{GatewayLink, ModelClient};
pub use routes::openapi;
pub use tools::{
    BoxFuture, McpServer, ServerTool, ToolCallResult, ToolClient, ToolError, ToolErrorCode,
    ToolList, ToolSession,
};

/// The parts that a runtime is made of.
pub struct RuntimeParts {
    /// Whom to ask for models.
    pub gateway: GatewayLink,
    /// Whom to report to.
    pub orchestrator: Callbacks,
    /// The client that calls tools.
    pub tools: Arc<dyn ToolClient>,
    /// Number of tasks at once, at most; absent for a runtime within the process of its
    /// orchestrator, which takes all.
    pub places: Option<u32>,
}

/// A runtime at work. Cloning is cheap and gives a handle on the same one.
#[derive(Clone)]
pub struct Runtime(Arc<Inner>);

struct Inner {
    id: String,
    orchestrator: Callbacks,
    models: ModelClient,
    tools: Arc<dyn ToolClient>,
    tasks: Arc<TaskRegistry>,
    places: Option<u32>,
    /// The tasks that have calls in flight, or are about to.
    work: InFlight,
    /// Told when a heartbeat is wanted at once.
    beat_now: Notify,
    /// True while no orchestrator takes heartbeats.
    is_unheard: AtomicBool,
}

impl Runtime {
    /// A new instance, with an id of its own.
    pub fn new(parts: RuntimeParts) -> Self {
        Self(Arc::new(Inner {
            id: uuid::Uuid::now_v7().to_string(),
            orchestrator: parts.orchestrator,
            models: ModelClient::new(parts.gateway),
            tools: parts.tools,
            tasks: Arc::new(TaskRegistry::with_places(parts.places)),
            places: parts.places,
            work: InFlight::default(),
            beat_now: Notify::new(),
            is_unheard: AtomicBool::new(false),
        }))
    }

    /// The instance, as in its heartbeats: another one after every start.
    pub fn id(&self) -> &str {
        &self.0.id
    }

    /// Its routes: `POST /invoke`, `POST /beat`, `GET /health`, `GET /openapi.json`.
    pub fn router(&self) -> Router {
        self.router_as(AllowedHosts::Loopback)
    }

    /// As [`Runtime::router`], for requests that may name other hosts.
    pub fn router_as(&self, hosts: AllowedHosts) -> Router {
        routes::router(self.clone(), hosts)
    }

    /// Says that it is alive and what it works on, at once and then every
    /// [`ktsu_contract::report::HEARTBEAT_INTERVAL_SECONDS`], until `shutdown` resolves. Tasks nobody waits for
    /// any more are dropped.
    pub async fn beat(&self, shutdown: impl Future<Output = ()>) {
        heartbeat::run(&self.0, shutdown).await;
    }

    /// Takes no new task and lets none begin a new call. Returns once what became of every call in
    /// flight is recorded.
    pub async fn drain(&self) {
        self.0.work.drain();
        self.0.work.drained().await;
    }

    /// Drops every task and takes no new one. Nothing is lost by it: what was reported is recorded,
    /// and the orchestrator finds the tasks missing.
    pub fn stop(&self) {
        self.0.tasks.close();
    }

    /// Takes a task, unless this attempt or a later one is already worked on.
    fn start_task(&self, invoke: InvokeAgent) -> StartOutcome {
        let key = (invoke.run_id.clone(), invoke.step_id.clone());
        let attempt = invoke.attempt;
        let Some(in_flight) = self.0.work.begin() else {
            return StartOutcome::Closed;
        };
        let work = self.work(invoke, in_flight);
        let handle = TaskHandle {
            time: work.time.clone(),
            ending: work.ending.clone(),
        };
        self.0.tasks.start(key, attempt, handle, task::run(work))
    }

    fn work(&self, invoke: InvokeAgent, in_flight: InFlightGuard) -> AgentTaskContext {
        let orchestrator = self.0.orchestrator.clone();
        AgentTaskContext {
            record: TaskRecorder::of(&invoke, orchestrator.clone()),
            time: PausableDeadline::of(task::time_limit(&invoke)),
            ending: EndingFlag::default(),
            invoke,
            models: self.0.models.clone(),
            tools: Arc::clone(&self.0.tools),
            orchestrator,
            silence: UnreachableWarning::default(),
            final_events: Mutex::default(),
            draining: self.0.work.clone(),
            in_flight: Mutex::new(Some(in_flight)),
        }
    }
}
