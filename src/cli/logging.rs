//! Log lines, on standard error.

use clap::ValueEnum;
use tracing_subscriber::EnvFilter;

use super::Failure;
use super::output::is_quiet;

/// How log lines look.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum LogFormat {
    Text,
    Json,
}

/// What is logged where nothing else is said: errors alone where standard error is for nothing else.
pub(super) fn usual(level: &'static str) -> &'static str {
    match is_quiet() {
        true => "error",
        false => level,
    }
}

/// Logs from now on: what `KTSU_LOG` lets through, else what `usual` does.
pub(super) fn start(format: LogFormat, usual: &str) -> Result<(), Failure> {
    let named = std::env::var("KTSU_LOG")
        .ok()
        .filter(|text| !text.is_empty());
    let filter = EnvFilter::try_new(named.as_deref().unwrap_or(usual));
    let filter = filter.map_err(|error| {
        Failure::could_not_run(format!("KTSU_LOG is not a filter: {error}")).hint("KTSU_LOG=info")
    })?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(without_messages(filter))
        .with_ansi(false)
        .with_writer(std::io::stderr);
    let done = match format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    done.map_err(|error| Failure::could_not_run(error.to_string()))
}

/// The library that speaks to tool servers writes down what they say before anything is redacted
/// in it. Only its warnings are let through, whatever `KTSU_LOG` asks for.
fn without_messages(filter: EnvFilter) -> EnvFilter {
    match "rmcp=warn".parse() {
        Ok(directive) => filter.add_directive(directive),
        Err(_) => filter,
    }
}
