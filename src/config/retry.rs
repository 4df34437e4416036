//! `retry:` of webhooks and of model groups.

pub use ktsu_ledger::event::plan::RetryOn;

use super::read::ConfigReader;
use super::shape::MapShape;
use super::yaml::YamlNode;

/// The values of a `retry:`; defaults differ between its users.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetrySettings {
    /// The number of attempts in all.
    pub attempts: u32,
    /// The first pause, in milliseconds.
    pub backoff_ms: Option<u64>,
    /// The failures after which it is tried again.
    pub on: Option<Vec<RetryOn>>,
}

/// As they are written.
const WORDS: [(&str, RetryOn); 4] = [
    ("rate_limited", RetryOn::RateLimited),
    ("server_error", RetryOn::ServerError),
    ("timeout", RetryOn::Timeout),
    ("unreachable", RetryOn::Unreachable),
];

/// Reads a `retry:` of this shape.
pub fn read(
    reader: &mut ConfigReader<'_>,
    node: &YamlNode,
    shape: &MapShape,
) -> Option<RetrySettings> {
    let fields = reader.shaped(node, shape)?;
    let attempts = fields.read("attempts", |node| {
        reader.integer(node, "retry.attempts", 2, 10)
    });
    let backoff_ms = fields.read("backoff", |node| reader.duration(node, "retry.backoff"));
    let on = fields.get("on").map(|node| {
        let list = reader.list(node, "retry.on").unwrap_or_default().iter();
        let mut on: Vec<RetryOn> = list
            .filter_map(|entry| reader.keyword(entry, "retry.on", &WORDS))
            .collect();
        on.sort();
        on.dedup();
        on
    });
    Some(RetrySettings {
        attempts: u32::try_from(attempts?).ok()?,
        backoff_ms,
        on,
    })
}
