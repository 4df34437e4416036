//! `retry:`, wherever it stands: of webhooks and of model groups.

use super::read::Reader;
use super::shape::Shape;
use super::yaml::Node;

/// What a `retry:` says; what it leaves out is for whoever has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retry {
    /// How often it is tried in all.
    pub attempts: u32,
    /// The first pause, in milliseconds.
    pub backoff_ms: Option<u64>,
    /// The failures after which it is tried again.
    pub on: Option<Vec<On>>,
}

/// What is tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum On {
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
const WORDS: [(&str, On); 4] = [
    ("rate_limited", On::RateLimited),
    ("server_error", On::ServerError),
    ("timeout", On::Timeout),
    ("unreachable", On::Unreachable),
];

/// Reads a `retry:` of this shape.
pub fn read(reader: &mut Reader<'_>, node: &Node, shape: &Shape) -> Option<Retry> {
    let fields = reader.shaped(node, shape)?;
    let attempts = fields
        .get("attempts")
        .and_then(|node| reader.whole(node, "retry.attempts", 2, 10));
    let backoff_ms = fields
        .get("backoff")
        .and_then(|node| reader.duration(node, "retry.backoff"));
    let on = fields.get("on").map(|node| {
        let list = reader.list(node, "retry.on").unwrap_or_default().iter();
        let mut on: Vec<On> = list
            .filter_map(|entry| reader.word(entry, "retry.on", &WORDS))
            .collect();
        on.sort();
        on.dedup();
        on
    });
    Some(Retry {
        attempts: u32::try_from(attempts?).ok()?,
        backoff_ms,
        on,
    })
}
