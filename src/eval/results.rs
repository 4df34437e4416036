//! What checks found, in the form in which it is recorded.

use ktsu_ledger::event::{EvalStatus, LookedAt};
use ktsu_ledger::{CanonicalJson, Hash};
use serde_json::{Value, json};

use crate::frames::FrameView;

/// The most frames that a result names.
pub const MAX_FRAMES_NAMED: usize = 100;

/// The most characters of a reason.
const MAX_REASON_CHARS: usize = 1_000;

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

/// What a check found, before its place in the spec is added.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Finding {
    pub(crate) status: EvalStatus,
    pub(crate) reason: String,
    pub(crate) looked_at: LookedAt,
}

impl Finding {
    /// Passed or failed.
    pub(crate) fn of(holds: bool, reason: String, looked_at: LookedAt) -> Self {
        let status = match holds {
            true => EvalStatus::Passed,
            false => EvalStatus::Failed,
        };
        let reason = shortened(&reason, MAX_REASON_CHARS);
        Self {
            status,
            reason,
            looked_at,
        }
    }

    /// The check could not be made.
    pub(crate) fn error(reason: &str) -> Self {
        Self {
            status: EvalStatus::Error,
            reason: shortened(reason, MAX_REASON_CHARS),
            looked_at: value_looked_at(&Value::Null),
        }
    }
}

/// A value as reasons show it.
pub(crate) fn shown(value: &Value) -> String {
    shortened(&value.to_string(), MAX_VALUE_CHARS)
}

/// The beginning of a text, with `…` where something is left out.
fn shortened(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or_default()),
        None => text.to_owned(),
    }
}
