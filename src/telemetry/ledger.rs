//! The metrics of a ledger on a server: what follows that server, and how far behind it is.

use std::fmt;
use std::sync::Arc;

use ktsu_ledger::store::LedgerStatus;
use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};

/// The most followers that are named.
const MAX_REPLICAS: usize = 64;

/// See the module documentation. Nothing is shown until the server was looked at. Clones share it.
#[derive(Debug, Clone, Default)]
pub(super) struct LedgerMetrics(Arc<Mutex<Option<LedgerStatus>>>);

impl LedgerMetrics {
    pub(super) fn note(&self, status: &LedgerStatus) {
        *self.0.lock() = Some(status.clone());
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register_collector(Box::new(self.clone()));
    }
}

impl Collector for LedgerMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        let Some(status) = self.0.lock().clone() else {
            return Ok(());
        };
        let mut put = |name: &str, help: &str, unit: Option<&Unit>, value: u64| {
            gauge(value).encode(encoder.encode_descriptor(name, help, unit, MetricType::Gauge)?)
        };
        let epoch = status.epoch.unwrap_or_default();
        put(
            "ledger_epoch",
            "How often the owner of the ledger has changed",
            None,
            epoch,
        )?;
        let help = "What the ledger takes on its server";
        put("ledger_size", help, Some(&Unit::Bytes), status.bytes)?;
        let help = "Servers that follow the server of the ledger";
        put("ledger_replicas", help, None, status.replicas.len() as u64)?;
        let waits = status.replicas.iter();
        let waits = waits.filter(|replica| replica.is_synchronous == Some(true));
        let help = "Those of them that appends wait for";
        put(
            "ledger_synchronous_replicas",
            help,
            None,
            waits.count() as u64,
        )?;
        let help = "What a server that follows does not have yet, by its name";
        let mut behind = encoder.encode_descriptor(
            "ledger_replica_behind",
            help,
            Some(&Unit::Bytes),
            MetricType::Gauge,
        )?;
        for replica in status.replicas.iter().take(MAX_REPLICAS) {
            if let Some(bytes) = replica.behind {
                let labels = [("replica", replica.name.as_str())];
                gauge(bytes).encode(behind.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

fn gauge(value: u64) -> ConstGauge<i64> {
    ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX))
}
