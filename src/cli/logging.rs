//! Log lines, on standard error.
//!
//! A command writes its few lines directly. A service uses a thread of its own, so that a slow
//! reader of standard error loses lines instead of delaying runs.

use std::fmt::{Debug, Write as _};

use clap::ValueEnum;
use tracing::Level;
use tracing::field::Field;
use tracing_appender::non_blocking::{ErrorCounter, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::field::MakeExt as _;
use tracing_subscriber::filter::{FilterExt as _, filter_fn};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::{self, Writer};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _, Registry, reload};

use super::Failure;
use super::output::is_quiet;
use ktsu_config::fault::{Faults, Severity};

/// The default log level of a service.
const INFO: &str = "info";
/// The most lines that wait to be written; further ones are dropped, and counted.
const MAX_LINES: usize = 8192;

/// How log lines look.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum LogFormat {
    Text,
    Json,
}

/// The filter of a service's log if `KTSU_LOG` is not set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DefaultFilter {
    /// Errors only.
    Errors,
    /// The filter in `RUST_LOG`, else this level of the environment file, else `info`.
    Level(Option<String>),
}

/// The log of a service; what waits is written before it is dropped.
pub(super) struct ServiceLog {
    filter: reload::Handle<EnvFilter, Registry>,
    _guard: WorkerGuard,
    dropped: ErrorCounter,
    reported: usize,
}

/// The default level: errors only if standard error is reserved for errors.
pub(super) fn default_level(level: &'static str) -> &'static str {
    match is_quiet() {
        true => "error",
        false => level,
    }
}

/// Logs of a command from now on: what `KTSU_LOG` lets through, else what `usual` does.
pub(super) fn start(format: LogFormat, usual: &str) -> Result<(), Failure> {
    let filter = match variable("KTSU_LOG") {
        Some(named) => named_filter(&named)?,
        None => EnvFilter::new(usual),
    };
    init(format, filter, std::io::stderr).map(drop)
}

/// Starts logging for a service: filtered by `KTSU_LOG`, otherwise as given.
pub(super) fn serve(format: LogFormat, otherwise: DefaultFilter) -> Result<ServiceLog, Failure> {
    let (filter, ignored) = service_filter(otherwise)?;
    let builder = NonBlockingBuilder::default().lossy(true);
    let builder = builder.buffered_lines_limit(MAX_LINES);
    let (writer, guard) = builder.finish(std::io::stderr());
    let dropped = writer.error_counter();
    let filter = init(format, filter, writer)?;
    if let Some(ignored) = ignored {
        tracing::warn!("{ignored}");
    }
    Ok(ServiceLog {
        filter,
        _guard: guard,
        dropped,
        reported: 0,
    })
}

impl ServiceLog {
    /// Filters by this from now on, unless `KTSU_LOG` says otherwise.
    ///
    /// # Errors
    /// A variable holds no valid filter.
    pub(super) fn filter_by(&self, otherwise: DefaultFilter) -> Result<(), Failure> {
        let (filter, ignored) = service_filter(otherwise)?;
        self.filter.reload(filter).map_err(Failure::of)?;
        if let Some(ignored) = ignored {
            tracing::warn!("{ignored}");
        }
        Ok(())
    }

    /// Logs how many lines were dropped since the last report.
    pub(super) fn report_dropped(&mut self) {
        let dropped = self.dropped.dropped_lines();
        let lines = dropped.saturating_sub(self.reported);
        if lines > 0 {
            tracing::warn!(
                lines,
                "log lines were dropped: standard error is read too slowly"
            );
            // If the report itself was dropped, it is repeated later.
            if self.dropped.dropped_lines() == dropped {
                self.reported = dropped;
            }
        }
    }
}

/// Logs the warnings of a file.
pub(super) fn warn_of(warnings: &Faults) {
    let warnings = warnings.faults.iter();
    for fault in warnings.filter(|fault| fault.severity == Severity::Warning) {
        tracing::warn!(
            file = %fault.file.display(),
            line = fault.line,
            code = fault.code.text(),
            "{}",
            fault.message
        );
    }
}

fn init<W>(
    format: LogFormat,
    filter: EnvFilter,
    writer: W,
) -> Result<reload::Handle<EnvFilter, Registry>, Failure>
where
    W: for<'writer> MakeWriter<'writer> + Send + Sync + 'static,
{
    let (filter, handle) = reload::Layer::new(filter);
    let filter = filter.and(filter_fn(is_ours_or_serious));
    let layer = tracing_subscriber::fmt::layer().with_writer(writer);
    let layer = match format {
        LogFormat::Text => layer
            .with_ansi(is_coloured())
            .fmt_fields(format::debug_fn(text_field).delimited(" "))
            .boxed(),
        LogFormat::Json => layer
            .json()
            .flatten_event(true)
            .with_current_span(false)
            .with_span_list(false)
            .boxed(),
    };
    let done = tracing_subscriber::registry()
        .with(layer.with_filter(filter))
        .try_init();
    done.map_err(Failure::of)?;
    Ok(handle)
}

/// A field in a line of text, as usual but for costs, which are written without an exponent.
fn text_field(writer: &mut Writer<'_>, field: &Field, value: &dyn Debug) -> std::fmt::Result {
    let name = field.name();
    if name != "message" {
        match writer.has_ansi_escapes() {
            true => write!(writer, "\u{1b}[3m{name}\u{1b}[0m\u{1b}[2m=\u{1b}[0m")?,
            false => write!(writer, "{name}=")?,
        }
    }
    match name {
        "cost_usd" => writer.write_str(&without_exponent(format!("{value:?}"))),
        _ => write!(EscapedText(writer), "{value:?}"),
    }
}

/// Text whose control characters must not reach a terminal.
struct EscapedText<'a, 'w>(&'a mut Writer<'w>);

impl std::fmt::Write for EscapedText<'_, '_> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let is_unsafe = |c: char| c.is_control() && !matches!(c, '\n' | '\r' | '\t');
        if !text.contains(is_unsafe) {
            return self.0.write_str(text);
        }
        text.chars().try_for_each(|c| match is_unsafe(c) {
            true if c.is_ascii() => write!(self.0, "\\x{:02x}", u32::from(c)),
            true => write!(self.0, "\\u{{{:x}}}", u32::from(c)),
            false => self.0.write_char(c),
        })
    }
}

/// `0.000054` for `5.4e-5`.
fn without_exponent(text: String) -> String {
    let is_number = text.contains('e') && text.starts_with(|c: char| c.is_ascii_digit());
    match text.parse::<f64>().ok().filter(|_| is_number) {
        Some(number) => number.to_string(),
        None => text,
    }
}

fn is_coloured() -> bool {
    anstream::AutoStream::choice(&std::io::stderr()) != anstream::ColorChoice::Never
}

/// Libraries log what they send and receive before redaction, so only their warnings pass, whatever
/// the filter says.
fn is_ours_or_serious(metadata: &tracing::Metadata<'_>) -> bool {
    let target = metadata.target();
    let is_ours = target.split("::").next() == Some("ktsu") || target.starts_with("ktsu_");
    is_ours || *metadata.level() <= Level::WARN
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|text| !text.is_empty())
}

fn named_filter(named: &str) -> Result<EnvFilter, Failure> {
    EnvFilter::try_new(named).map_err(|error| {
        Failure::could_not_run(format!("KTSU_LOG is not a valid filter: {error}"))
            .hint("KTSU_LOG=info")
    })
}

/// The filter of a service, and a warning about an ignored source.
fn service_filter(otherwise: DefaultFilter) -> Result<(EnvFilter, Option<String>), Failure> {
    if let Some(named) = variable("KTSU_LOG") {
        return Ok((named_filter(&named)?, None));
    }
    let log_level = match otherwise {
        DefaultFilter::Errors => return Ok((EnvFilter::new("error"), None)),
        DefaultFilter::Level(level) => level,
    };
    // It may be meant for another program.
    if let Some(rust_log) = variable("RUST_LOG") {
        return Ok(match EnvFilter::try_new(&rust_log) {
            Ok(filter) => (filter, None),
            Err(error) => {
                let ignored = format!("ignoring RUST_LOG, which is not a valid filter: {error}");
                (EnvFilter::new(INFO), Some(ignored))
            }
        });
    }
    Ok(match log_level.as_deref().map(level_of) {
        None => (EnvFilter::new(INFO), None),
        Some(Some(level)) => (EnvFilter::new(level), None),
        Some(None) => {
            let words = "ignoring LOG_LEVEL of the environment file, which is none of \
                         error, warn, info, debug, trace and off";
            (EnvFilter::new(INFO), Some(words.to_owned()))
        }
    })
}

/// A level, as environment files of all kinds of programs name it.
fn level_of(text: &str) -> Option<&'static str> {
    match text.trim().to_ascii_lowercase().as_str() {
        "off" | "none" => Some("off"),
        "error" | "critical" | "fatal" => Some("error"),
        "warn" | "warning" => Some("warn"),
        "info" => Some("info"),
        "debug" => Some("debug"),
        "trace" => Some("trace"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_cost_has_no_exponent() {
        for (debug, text) in [
            ("5.4e-5", "0.000054"),
            ("0.011714", "0.011714"),
            ("860", "860"),
            ("\"5.4e-5\"", "\"5.4e-5\""),
            ("1e", "1e"),
        ] {
            assert_eq!(without_exponent(debug.to_owned()), text);
        }
    }

    #[test]
    fn nothing_in_a_line_controls_a_terminal() {
        let mut text = String::new();
        let mut writer = Writer::new(&mut text);
        writeln!(EscapedText(&mut writer), "a\u{1b}[31m\u{9b}b\u{7}é").unwrap();
        assert_eq!(text, "a\\x1b[31m\\u{9b}b\\x07é\n");
    }

    #[test]
    fn a_level_is_known_by_the_names_that_programs_give_it() {
        let levels = ["WARNING", " info ", "Debug", "loud", ""].map(level_of);
        let known = [Some("warn"), Some("info"), Some("debug"), None, None];
        assert_eq!(levels, known);
    }
}
