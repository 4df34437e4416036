//! Results of checks, as they are recorded. Persisted, keep stable.

use ktsu_ledger::{CanonicalJson, Hash};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::frames::FrameView;

/// The most frames that a result names.
pub const MAX_FRAMES_NAMED: usize = 100;

/// The most characters of a reason.
const MAX_REASON_CHARS: usize = 1_000;

/// The most characters of a value in a reason.
const MAX_VALUE_CHARS: usize = 200;

/// What one check gave.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CheckResult {
    /// Its place in the spec's file, from 0; sums go by it.
    pub index: u32,
    /// The name of the invariant.
    pub name: String,
    /// The type of the check: `output`, `trace`, …
    pub check: String,
    /// Whether it holds.
    pub status: CheckStatus,
    /// From 0 to 1; 0 where the check could not be made.
    pub score: f64,
    /// Its weight in the composite.
    pub weight: f64,
    /// Whether a score below 1 makes the composite 0.
    pub gate: bool,
    /// What was found, and what was expected.
    pub reason: String,
    /// What the result rests on.
    pub looked_at: LookedAt,
}

/// How a check ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckStatus {
    /// It holds.
    Passed,
    /// It does not hold.
    Failed,
    /// It could not be made: neither passed nor failed (decision V2).
    Error,
}

/// What a check looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LookedAt {
    /// BLAKE3 of it, as canonical JSON: a value; `[[seq, hash], …]` of frames; `{path, content}` of
    /// a file, with the BLAKE3 of its bytes, or null where there is none.
    pub digest: Hash,
    /// The numbers of the frames, ascending; the first [`MAX_FRAMES_NAMED`].
    pub frames: Vec<u64>,
    /// How many frames there are.
    pub count: u64,
}

impl LookedAt {
    /// A value, and no frames.
    pub(crate) fn value(value: &Value) -> Self {
        Self {
            digest: digest(value),
            frames: Vec::new(),
            count: 0,
        }
    }

    /// Frames, in order.
    pub(crate) fn frames(frames: &[&FrameView]) -> Self {
        let named = frames.iter().map(|frame| json!([frame.seq, frame.hash]));
        let first = frames.iter().take(MAX_FRAMES_NAMED);
        Self {
            digest: digest(&named.collect()),
            frames: first.map(|frame| frame.seq).collect(),
            count: frames.len() as u64,
        }
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
    pub(crate) status: CheckStatus,
    pub(crate) reason: String,
    pub(crate) looked_at: LookedAt,
}

impl Finding {
    /// Passed or failed.
    pub(crate) fn of(holds: bool, reason: String, looked_at: LookedAt) -> Self {
        let status = match holds {
            true => CheckStatus::Passed,
            false => CheckStatus::Failed,
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
            status: CheckStatus::Error,
            reason: shortened(reason, MAX_REASON_CHARS),
            looked_at: LookedAt::value(&Value::Null),
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
