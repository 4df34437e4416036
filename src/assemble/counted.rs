//! Counts connections separately for each service that listens.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use ktsu_server::ServerLimits;

/// The service that always listens.
pub(super) const ORCHESTRATOR: &str = "orchestrator";

/// The connections of each service that listens.
pub(super) struct ConnectionCounts(Vec<(&'static str, Arc<AtomicUsize>)>);

impl ConnectionCounts {
    /// The orchestrator's, and those of others.
    pub(super) fn of(others: impl Iterator<Item = &'static str>) -> Self {
        let names = std::iter::once(ORCHESTRATOR).chain(others);
        Self(names.map(|name| (name, Arc::default())).collect())
    }

    /// All of them, by service.
    pub(super) fn all(&self) -> Vec<(&'static str, Arc<AtomicUsize>)> {
        self.0.clone()
    }

    /// The limits of a service, with its own count.
    pub(super) fn limits(&self, service: &str, limits: &ServerLimits) -> ServerLimits {
        let own = self.0.iter().find(|(name, _)| *name == service);
        ServerLimits {
            open: own.map(|(_, open)| open.clone()).unwrap_or_default(),
            ..limits.clone()
        }
    }
}
