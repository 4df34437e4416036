//! Recorded results of tools, and where they were recorded.

use serde::{Deserialize, Serialize};

use crate::canonical::CanonicalJson;

/// The subject of a recompute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecomputeOf {
    /// The hash of the last frame that was looked at: names that history and no other.
    pub head: String,
    /// The path of the requested step: `call/inner`; absent for all steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// The stream of the run.
    pub stream: String,
}

/// The recorded result of a call that a recompute does not send: it answers the same call there,
/// once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedResult {
    /// As in the recorded `tool.returned`.
    #[serde(default)]
    pub content: CanonicalJson,
    /// BLAKE3 of the arguments, as canonical JSON.
    pub digest: String,
    /// As in the recorded `tool.returned`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_error: bool,
    /// The item of the recompute whose calls it answers.
    pub item: u32,
    /// As in the recorded `tool.returned`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_sent: Option<UnsentReason>,
    /// Its location.
    pub recorded: RecordedAt,
    /// The step of the recompute.
    pub step: String,
    /// As in the recorded `tool.returned`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub structured: Option<CanonicalJson>,
}

/// The location of a result that answers a call of a recompute: the `tool.returned` of the run it
/// is of, or of the one that a baseline was captured from, which another ledger may hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedAt {
    /// Its number.
    pub seq: u64,
    /// The server that gave it, by the name the agent had for it.
    pub server: String,
    /// Its stream.
    pub stream: String,
    /// The tool, by the name the server had for it.
    pub tool: String,
}

/// The reason why a requested call was not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnsentReason {
    /// No server offers such a tool (decision A2).
    UnknownTool,
    /// The arguments do not fit the tool's schema.
    InvalidArguments,
    /// The arguments hold a secret.
    SecretInArguments,
    /// A person rejected it, or there was no decision in time, and the agent may recover.
    Rejected,
    /// It is unknown whether an earlier attempt happened, and a person decided not to repeat it.
    InDoubt,
    /// A branch does not change the world (decision F1), nor does a recompute: no result of such a
    /// call is recorded that could answer it.
    SuppressedInBranch,
}

impl UnsentReason {
    /// The persisted form.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::UnknownTool => "unknown_tool",
            Self::InvalidArguments => "invalid_arguments",
            Self::SecretInArguments => "secret_in_arguments",
            Self::Rejected => "rejected",
            Self::InDoubt => "in_doubt",
            Self::SuppressedInBranch => "suppressed_in_branch",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::UnsentReason;

    #[test]
    fn a_reason_why_a_call_was_not_sent_has_one_form_in_frames_and_in_words() {
        for reason in [
            UnsentReason::UnknownTool,
            UnsentReason::InvalidArguments,
            UnsentReason::SecretInArguments,
            UnsentReason::Rejected,
            UnsentReason::InDoubt,
            UnsentReason::SuppressedInBranch,
        ] {
            let persisted = serde_json::to_value(reason).unwrap();
            assert_eq!(persisted, reason.as_str());
        }
    }
}
