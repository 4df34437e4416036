//! Values that are not counted but read when the metrics are requested: the ledger's writer, the
//! disk, the connections.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ktsu_ledger::appender::Appender;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

pub(super) fn register(
    registry: &mut Registry,
    appender: &Appender,
    connections: Vec<(&'static str, Arc<AtomicUsize>)>,
    part: LedgerPart,
) {
    let version = [("version", env!("CARGO_PKG_VERSION"))];
    registry.register("build", "The version of ktsu", Info::new(version));
    let began = SystemTime::now().duration_since(UNIX_EPOCH);
    let looked = EngineCollector {
        appender: appender.clone(),
        connections,
        part,
        began: began.unwrap_or_default(),
    };
    registry.register_collector(Box::new(looked));
}

/// How long ago the ledger of a standby answered; nothing before it has.
pub type ViewAge = Arc<dyn Fn() -> Option<Duration> + Send + Sync>;

/// The part that an engine has in its ledger.
pub(super) enum LedgerPart {
    /// It appends.
    Owner,
    /// It reads, as a standby if there is an age.
    Reader(Option<ViewAge>),
}

struct EngineCollector {
    appender: Appender,
    connections: Vec<(&'static str, Arc<AtomicUsize>)>,
    part: LedgerPart,
    began: Duration,
}

impl fmt::Debug for EngineCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Looked").finish_non_exhaustive()
    }
}

impl Collector for EngineCollector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        let counters = self.appender.counters();
        let (entries, bytes) = self.appender.queued();
        let mut put = |name: &str, help: &str, unit: Option<&Unit>, metric: &dyn EncodeMetric| {
            metric.encode(encoder.encode_descriptor(name, help, unit, metric.metric_type())?)
        };
        let counts = [
            (
                "ledger_commits",
                "Transactions of the ledger since the start",
                counters.commits,
            ),
            (
                "ledger_entries",
                "Turns appended since the start",
                counters.entries,
            ),
            (
                "ledger_frames",
                "Frames appended since the start",
                counters.frames,
            ),
            (
                "ledger_refused",
                "Turns that the ledger refused since the start",
                counters.refused,
            ),
            (
                "ledger_checkpoints",
                "Number of WAL checkpoints",
                counters.checkpoints,
            ),
        ];
        for (name, help, count) in counts {
            put(name, help, None, &ConstCounter::new(count))?;
        }
        let appended = ConstCounter::new(counters.bytes);
        put(
            "ledger_appended",
            "Bytes appended since the start, roughly",
            Some(&Unit::Bytes),
            &appended,
        )?;
        let paused = Duration::from_micros(counters.checkpoint_us).as_secs_f64();
        put(
            "ledger_checkpoint",
            "Time that appends were blocked by checkpoints",
            Some(&Unit::Seconds),
            &ConstCounter::new(paused),
        )?;
        put(
            "ledger_queued_entries",
            "Turns that wait to be appended",
            None,
            &gauge(entries),
        )?;
        put(
            "ledger_queued",
            "Bytes that wait to be appended",
            Some(&Unit::Bytes),
            &gauge(bytes),
        )?;
        put(
            "ledger_log",
            "What the write-ahead log takes on the disk, as of the last checkpoint",
            Some(&Unit::Bytes),
            &ConstGauge::new(i64::try_from(counters.log_bytes).unwrap_or(i64::MAX)),
        )?;
        if let Some(free) = self.appender.free_disk() {
            let free = i64::try_from(free).unwrap_or(i64::MAX);
            put(
                "disk_free",
                "What the ledger's disk has left",
                Some(&Unit::Bytes),
                &ConstGauge::new(free),
            )?;
        }
        let (role, age) = match &self.part {
            LedgerPart::Owner => {
                let up = self.appender.failed().is_none();
                put(
                    "ledger_up",
                    "1 while the ledger takes frames, 0 once it has stopped; of its owner",
                    None,
                    &ConstGauge::new(i64::from(up)),
                )?;
                ("owner", None)
            }
            LedgerPart::Reader(None) => ("reader", None),
            LedgerPart::Reader(Some(age)) => ("standby", age()),
        };
        if let Some(age) = age {
            put(
                "ledger_view_age",
                "The time since the ledger answered; of a standby",
                Some(&Unit::Seconds),
                &ConstGauge::new(age.as_secs_f64()),
            )?;
        }
        let began = ConstGauge::new(self.began.as_secs_f64());
        put(
            "start_time",
            "When the engine started, in seconds since 1970",
            Some(&Unit::Seconds),
            &began,
        )?;
        let help = "1 for the part that the engine has in the ledger: owner, standby or reader";
        let mut roles =
            encoder.encode_descriptor("ledger_role", help, None, gauge(0).metric_type())?;
        gauge(1).encode(roles.encode_family(&[("role", role)])?)?;
        let help = "Open connections, by service";
        let mut encoder =
            encoder.encode_descriptor("http_connections", help, None, gauge(0).metric_type())?;
        for (service, open) in &self.connections {
            let labels = [("service", *service)];
            gauge(open.load(Ordering::Relaxed)).encode(encoder.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

fn gauge(count: usize) -> ConstGauge<i64> {
    ConstGauge::new(i64::try_from(count).unwrap_or(i64::MAX))
}
