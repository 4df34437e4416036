//! `retry:` of webhooks and of model groups.

use super::read::ConfigReader;
use super::shape::MapShape;
use super::yaml::YamlNode;

/// What a `retry:` says; what it leaves out is for whoever has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetrySettings {
    /// How often it is tried in all.
    pub attempts: u32,
    /// The first pause, in milliseconds.
    pub backoff_ms: Option<u64>,
    /// The failures after which it is tried again.
    pub on: Option<Vec<RetryTrigger>>,
}

/// What is tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RetryTrigger {
    /// The server asked to be called less often.
    RateLimited,
    /// The server failed.
    ServerError,
    /// There was no answer in time.
    Timeout,
    /// There was no connection.
    Unreachable,
}

/// As they are written.
const WORDS: [(&str, RetryTrigger); 4] = [
    ("rate_limited", RetryTrigger::RateLimited),
    ("server_error", RetryTrigger::ServerError),
    ("timeout", RetryTrigger::Timeout),
    ("unreachable", RetryTrigger::Unreachable),
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
        let mut on: Vec<RetryTrigger> = list
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
