//! The reply of a model.

use serde_json::Value;

/// The most bytes of a reply.
pub(crate) const MAX_REPLY: usize = 64 << 10;

/// A reply with a score.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Judged {
    /// From 0 to 1.
    pub(crate) score: f64,
    /// The score of the reply, if it is not from 0 to 1.
    pub(crate) outside: Option<f64>,
    /// The model's own statement of whether it passes, if it makes one.
    pub(crate) passed: Option<bool>,
    pub(crate) reason: String,
}

/// Reads a reply: a JSON object, with or without one Markdown fence around it.
///
/// # Errors
/// Why it cannot be used, in words for the model and for people.
pub(crate) fn read(text: &str) -> Result<Judged, &'static str> {
    let value: Value = serde_json::from_str(without_fence(text)).map_err(|_| "it is not JSON")?;
    let Value::Object(members) = value else {
        return Err("it is not a JSON object");
    };
    let score = match members.get("score") {
        None | Some(Value::Null) => return Err("it has no score"),
        Some(score) => score.as_f64().filter(|score| score.is_finite()),
    };
    let written = score.ok_or("its score is not a number")?;
    // Adding 0 makes -0 the 0 that it counts as.
    let score = written.clamp(0.0, 1.0) + 0.0;
    let reason = members.get("reason").and_then(Value::as_str);
    Ok(Judged {
        score,
        outside: (!(0.0..=1.0).contains(&written)).then_some(written),
        passed: members.get("passed").and_then(Value::as_bool),
        reason: reason.unwrap_or_default().to_owned(),
    })
}

/// A text without the one Markdown fence that may be around it.
fn without_fence(text: &str) -> &str {
    let text = text.trim();
    let Some(inner) = text.strip_prefix("```") else {
        return text;
    };
    let inner = inner.strip_suffix("```").unwrap_or(inner);
    inner
        .trim_start_matches(|c: char| c.is_ascii_alphanumeric())
        .trim()
}
