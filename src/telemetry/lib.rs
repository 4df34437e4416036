//! Logs and metrics of an engine for its operators: a log line for every milestone of a run, and
//! counters.
//!
//! Both follow from frames, and only from durable ones: whatever is logged or counted is in the
//! ledger. Neither contains payloads, only names, numbers and codes.
//!
//! ```text
//! turn ─▶ milestones ─▶ durable? ─┬▶ log lines   (standard error)
//!                                 └▶ metrics     (GET /metrics)
//! ```

mod collect;
mod labels;
mod ledger;
mod log;
mod metrics;
mod milestone;
mod observer;
mod person_waits;
mod text;

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use ktsu_ledger::appender::Appender;
use ktsu_ledger::event::Principal;
use ktsu_projections::run::RunStatus;
use prometheus_client::registry::Registry;

use self::collect::LedgerPart;

pub use collect::ViewAge;
pub use metrics::Metrics;
pub use observer::RunObserver;
pub use text::MetricsFormat;

/// The metrics of one process, and where those are read that are not counted.
#[derive(Debug)]
pub struct Telemetry {
    metrics: Metrics,
    registry: Registry,
}

impl Telemetry {
    /// Everything that `GET /metrics` shows. `connections`: those of each service that listens.
    pub fn new(
        metrics: Metrics,
        appender: &Appender,
        connections: Vec<(&'static str, Arc<AtomicUsize>)>,
    ) -> Arc<Self> {
        Self::of_part(metrics, appender, connections, LedgerPart::Owner)
    }

    /// The same of an engine that only reads; of a standby, if there is an age of what it sees.
    pub fn of_reader(
        appender: &Appender,
        connections: Vec<(&'static str, Arc<AtomicUsize>)>,
        age: Option<ViewAge>,
    ) -> Arc<Self> {
        let part = LedgerPart::Reader(age);
        Self::of_part(Metrics::default(), appender, connections, part)
    }

    fn of_part(
        metrics: Metrics,
        appender: &Appender,
        connections: Vec<(&'static str, Arc<AtomicUsize>)>,
        part: LedgerPart,
    ) -> Arc<Self> {
        let mut registry = Registry::with_prefix("ktsu");
        metrics.register(&mut registry);
        collect::register(&mut registry, appender, connections, part);
        Arc::new(Self { metrics, registry })
    }

    /// A branch was accepted that has no task of its own yet.
    pub fn branched(&self, id: &str, workflow: &str, by: &Principal, status: RunStatus) {
        self.metrics.add_branch(workflow, status);
        let accepted = milestone::human_action("branch accepted", by);
        if log::is_on(accepted.level) {
            log::write(id, &milestone::name(workflow), &accepted);
        }
    }

    /// The metrics.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// The metrics as text.
    ///
    /// # Errors
    /// [`std::fmt::Error`], which formatting into memory does not give.
    pub fn text(&self, format: MetricsFormat) -> Result<String, std::fmt::Error> {
        text::encode_metrics(&self.registry, format)
    }
}
