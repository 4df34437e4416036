//! Metrics as text, in a format that the client accepts.

use std::fmt;

use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

/// The form of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricsFormat {
    /// Prometheus text, version 0.0.4.
    Prometheus,
    /// `OpenMetrics` text, version 1.0.0.
    OpenMetrics,
}

impl MetricsFormat {
    /// The format that an `Accept` header asks for.
    pub fn from_accept(accept: &str) -> Self {
        let mut kinds = accept.split(',').map(|kind| kind.split(';').map(str::trim));
        let asked = kinds.any(|mut parts| {
            let refused = |part: &str| matches!(part, "q=0" | "q=0.0" | "q=0.00" | "q=0.000");
            parts.next() == Some("application/openmetrics-text") && !parts.any(refused)
        });
        match asked {
            true => Self::OpenMetrics,
            false => Self::Prometheus,
        }
    }

    /// The content type.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// All metrics of a registry.
pub(super) fn encode_metrics(
    registry: &Registry,
    format: MetricsFormat,
) -> Result<String, fmt::Error> {
    let mut text = String::new();
    encode(&mut text, registry)?;
    Ok(match format {
        MetricsFormat::OpenMetrics => text,
        MetricsFormat::Prometheus => as_prometheus(&text),
    })
}

/// `OpenMetrics` names a counter without the `_total` that its samples have, and has lines for units
/// and for the end; the older form knows neither.
fn as_prometheus(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        match line
            .strip_prefix("# ")
            .and_then(|rest| rest.split_once(' '))
        {
            Some(("HELP", rest)) => {
                let (name, help) = rest.split_once(' ').unwrap_or((rest, ""));
                let typed = lines.peek().copied().unwrap_or_default();
                let (end, _) = sample(typed.rsplit(' ').next().unwrap_or_default());
                out.push_str(&format!("# HELP {name}{end} {help}\n"));
            }
            Some(("TYPE", rest)) => {
                let (name, kind) = rest.rsplit_once(' ').unwrap_or((rest, ""));
                let (end, kind) = sample(kind);
                out.push_str(&format!("# TYPE {name}{end} {kind}\n"));
            }
            Some(("UNIT", _)) => {}
            _ if line == "# EOF" => {}
            _ => {
                out.push_str(line);
                out.push('\n');
            }
        }
    }
    out
}

/// The suffix of the names of samples, and the older form's word for their type.
fn sample(kind: &str) -> (&'static str, &str) {
    match kind {
        "counter" => ("_total", kind),
        "info" => ("_info", "gauge"),
        _ => ("", kind),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::metrics::counter::Counter;
    use prometheus_client::metrics::gauge::Gauge;
    use prometheus_client::registry::Unit;

    fn registry() -> Registry {
        let mut registry = Registry::default();
        let runs: Counter = Counter::default();
        runs.inc();
        registry.register("runs", "Runs", runs);
        let size: Gauge = Gauge::default();
        registry.register_with_unit("size", "A size", Unit::Bytes, size);
        registry
    }

    #[test]
    fn a_counter_has_the_name_of_its_samples_in_the_older_form() {
        let text = encode_metrics(&registry(), MetricsFormat::Prometheus).unwrap();
        let runs = "# HELP runs_total Runs.\n# TYPE runs_total counter\nruns_total 1\n";
        let size = "# HELP size_bytes A size.\n# TYPE size_bytes gauge\nsize_bytes 0\n";
        assert_eq!(text, format!("{runs}{size}"));
    }

    #[test]
    fn the_newer_form_is_given_to_whoever_asks_for_it() {
        let accept = "application/openmetrics-text;version=1.0.0,text/plain;q=0.5";
        assert_eq!(
            MetricsFormat::from_accept(accept),
            MetricsFormat::OpenMetrics
        );
        assert_eq!(MetricsFormat::from_accept("*/*"), MetricsFormat::Prometheus);
        let refused = "application/openmetrics-text; q=0, text/plain";
        assert_eq!(
            MetricsFormat::from_accept(refused),
            MetricsFormat::Prometheus
        );
        let text = encode_metrics(&registry(), MetricsFormat::OpenMetrics).unwrap();
        assert!(
            text.contains("# TYPE runs counter\nruns_total 1\n"),
            "{text}"
        );
        assert!(text.ends_with("# EOF\n"), "{text}");
    }
}
