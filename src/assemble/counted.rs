//! Whose connections are counted: each service that listens has its own number.

use crate::http::server::Limits;
use crate::telemetry::Connections;

/// The service that always listens.
pub(super) const ORCHESTRATOR: &str = "orchestrator";

/// The connections of each service that listens.
pub(super) struct Counted(Vec<(&'static str, Connections)>);

impl Counted {
    /// The orchestrator's, and those of others.
    pub(super) fn of(others: impl Iterator<Item = &'static str>) -> Self {
        let names = std::iter::once(ORCHESTRATOR).chain(others);
        Self(names.map(|name| (name, Connections::default())).collect())
    }

    /// All of them, by service.
    pub(super) fn all(&self) -> Vec<(&'static str, Connections)> {
        self.0.clone()
    }

    /// The limits of a service, with its own count.
    pub(super) fn limits(&self, service: &str, limits: &Limits) -> Limits {
        let own = self.0.iter().find(|(name, _)| *name == service);
        Limits {
            open: own.map(|(_, open)| open.clone()).unwrap_or_default(),
            ..limits.clone()
        }
    }
}
