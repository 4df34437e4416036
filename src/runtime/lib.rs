//! The agent runtime: a worker that asks models and calls tools on behalf of agent steps, over HTTP
//! or in process.
//!
//! It is given everything a task needs in its dispatch, holds no credentials and keeps nothing: what
//! it did is what it reported, and a task that is dispatched again comes with its history. It knows
//! nothing of workflows, ledgers or providers.
//!
//! ```text
//! routes ─▶ tasks ─▶ task ──asks──▶ conversation (pure: what comes next)
//!                     │ ├─record──▶ callbacks ──▶ orchestrator   (reports, or one complete)
//!                     │ ├─model───▶ peer ───────▶ gateway
//!                     │ └─tools───▶ sessions ───▶ tool servers
//!           tasks ◀── heartbeat ──▶ callbacks ──▶ orchestrator   (what it works on; what to stop)
//! ```

mod callbacks;
mod conversation;
mod heartbeat;
mod model;
mod prompt;
mod record;
mod reflect;
mod reply;
mod routes;
mod task;
mod tasks;
#[cfg(test)]
mod tests;
mod time;
mod tools;

use std::sync::{Arc, Mutex};

use axum::Router;
use tokio::sync::Notify;

use self::callbacks::Silence;
use self::model::Models;
use self::record::Record;
use self::task::Work;
use self::tasks::{Started, Tasks};
use self::time::Time;
use ktsu_contract::runtime::Invoke;
use ktsu_peer::Peer;

pub use callbacks::Callbacks;
pub use routes::openapi;
pub use tools::{
    Call, Doing, Offer, Reach, Returned, Server, Session, Tool, ToolClient, ToolError,
    ToolErrorCode,
};

/// What a runtime is made of.
pub struct Parts {
    /// Whom to ask for models.
    pub gateway: Peer,
    /// Whom to report to.
    pub orchestrator: Callbacks,
    /// How tools are called.
    pub tools: Arc<dyn ToolClient>,
}

/// A runtime at work. Cloning is cheap and gives a handle on the same one.
#[derive(Clone)]
pub struct Runtime(Arc<Inner>);

struct Inner {
    id: String,
    orchestrator: Callbacks,
    models: Models,
    tools: Arc<dyn ToolClient>,
    tasks: Arc<Tasks>,
    /// Told when a heartbeat is wanted at once.
    beat_now: Notify,
}

impl Runtime {
    /// A new instance, with an id of its own.
    pub fn new(parts: Parts) -> Self {
        Self(Arc::new(Inner {
            id: uuid::Uuid::now_v7().to_string(),
            orchestrator: parts.orchestrator,
            models: Models::new(parts.gateway),
            tools: parts.tools,
            tasks: Arc::default(),
            beat_now: Notify::new(),
        }))
    }

    /// The instance, as in its heartbeats: another one after every start.
    pub fn id(&self) -> &str {
        &self.0.id
    }

    /// Its routes: `POST /invoke`, `POST /beat`, `GET /health`, `GET /openapi.json`.
    pub fn router(&self) -> Router {
        routes::router(self.clone())
    }

    /// Says that it is alive and what it works on, at once and then every
    /// [`ktsu_contract::report::BEAT_SECONDS`], until `shutdown` resolves. Tasks nobody waits for
    /// any more are dropped.
    pub async fn beat(&self, shutdown: impl Future<Output = ()>) {
        heartbeat::run(&self.0, shutdown).await;
    }

    /// Drops every task and takes no new one. Nothing is lost by it: what was reported is recorded,
    /// and the orchestrator finds the tasks missing.
    pub fn stop(&self) {
        self.0.tasks.close();
    }

    /// Takes a task, unless this attempt or a later one is already worked on.
    fn start(&self, invoke: Invoke) -> Started {
        let key = (invoke.run_id.clone(), invoke.step_id.clone());
        let attempt = invoke.attempt;
        let work = self.work(invoke);
        let (time, running) = (work.time.clone(), task::run(Arc::new(work)));
        self.0.tasks.start(key, attempt, time, running)
    }

    fn work(&self, invoke: Invoke) -> Work {
        let orchestrator = self.0.orchestrator.clone();
        Work {
            record: Record::of(&invoke, orchestrator.clone()),
            time: Time::of(task::given(&invoke)),
            invoke,
            models: self.0.models.clone(),
            tools: Arc::clone(&self.0.tools),
            orchestrator,
            silence: Silence::default(),
            last_words: Mutex::default(),
        }
    }
}
