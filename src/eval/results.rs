//! The findings of checks, in the form in which they are recorded.

use ktsu_ledger::event::{EvalStatus, LookedAt};
use ktsu_ledger::{CanonicalJson, Hash};
use serde_json::{Value, json};

use crate::frames::FrameView;

/// The most frames that a result names.
pub const MAX_FRAMES_NAMED: usize = 100;

/// The most characters of a reason.
pub(crate) const MAX_REASON_CHARS: usize = 1_000;

/// The most characters of a value in a reason.
const MAX_VALUE_CHARS: usize = 200;

/// A value that was looked at, and no frames.
pub(crate) fn value_looked_at(value: &Value) -> LookedAt {
    LookedAt {
        count: 0,
        digest: digest(value),
        frames: Vec::new(),
    }
}

/// Frames that were looked at, in order.
pub(crate) fn frames_looked_at(frames: &[&FrameView]) -> LookedAt {
    let named = frames.iter().map(|frame| json!([frame.seq, frame.hash]));
    let first = frames.iter().take(MAX_FRAMES_NAMED);
    LookedAt {
        count: frames.len() as u64,
        digest: digest(&named.collect()),
        frames: first.map(|frame| frame.seq).collect(),
    }
}

/// BLAKE3 of the canonical text of a value.
fn digest(value: &Value) -> Hash {
    let text = CanonicalJson::from_value(value).unwrap_or_default();
    Hash::of(text.as_str().as_bytes())
}

/// The finding of a check, before its place in the spec is added.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CheckFinding {
    pub(crate) status: EvalStatus,
    /// From 0 to 1; without one, it follows from the status.
    pub(crate) score: Option<f64>,
    pub(crate) reason: String,
    pub(crate) looked_at: LookedAt,
}

impl CheckFinding {
    /// Passed or failed.
    pub(crate) fn of(holds: bool, reason: String, looked_at: LookedAt) -> Self {
        let status = match holds {
            true => EvalStatus::Passed,
            false => EvalStatus::Failed,
        };
        let reason = shortened(&reason, MAX_REASON_CHARS);
        Self {
            status,
            score: None,
            reason,
            looked_at,
        }
    }

    /// The check could not be made.
    pub(crate) fn error(reason: &str) -> Self {
        Self {
            status: EvalStatus::Error,
            score: None,
            reason: shortened(reason, MAX_REASON_CHARS),
            looked_at: value_looked_at(&Value::Null),
        }
    }
}

/// A value as reasons show it.
pub(crate) fn shown(value: &Value) -> String {
    shortened(&value.to_string(), MAX_VALUE_CHARS)
}

/// The output of a program, as reasons show it: its lines, with everything in them visible.
pub(crate) fn printed(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut shown = String::with_capacity(text.len());
    for c in text.trim().chars() {
        match c {
            '\n' | '\t' => shown.push(c),
            c if c.is_control() => shown.extend(c.escape_default()),
            c => shown.push(c),
        }
    }
    shown
}

/// The end of a text, with `…` where something is left out.
pub(crate) fn end_of(text: &str, most: usize) -> String {
    let mut ends = text.char_indices().rev();
    match ends.nth(most.saturating_sub(1)) {
        Some((at, _)) if at > 0 => format!("…{}", text.get(at..).unwrap_or_default()),
        Some(_) | None => text.to_owned(),
    }
}

/// The beginning of a text, with `…` where something is left out.
pub(crate) fn shortened(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or_default()),
        None => text.to_owned(),
    }
}
