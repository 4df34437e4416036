//! The recorded tool results in a baseline: they answer the calls that a test does not send, so
//! that no ledger is needed.

use ktsu_ledger::canonical::JsonError;
use ktsu_ledger::event::{RecordedAt, RecordedResult, UnsentReason};
use ktsu_ledger::{CanonicalJson, jcs};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The result of a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ToolResult {
    /// BLAKE3 of the arguments, as frames have it.
    pub arguments_hash: String,
    /// The blocks of the result.
    pub content: Value,
    /// True if the tool says that it failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_error: bool,
    /// The reason why the call was not sent, if it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_sent: Option<UnsentReason>,
    /// The frame that records the result, and the server and tool that it is from.
    pub recorded: RecordedAt,
    /// Its structured content.
    #[serde(
        default,
        deserialize_with = "super::present",
        skip_serializing_if = "Option::is_none"
    )]
    pub structured: Option<Value>,
}

impl ToolResult {
    pub(super) fn of(result: &RecordedResult) -> Self {
        Self {
            arguments_hash: result.digest.clone(),
            content: result.content.to_value(),
            is_error: result.is_error,
            not_sent: result.not_sent,
            recorded: result.recorded.clone(),
            structured: result.structured.as_ref().map(CanonicalJson::to_value),
        }
    }

    /// As a recompute takes it; the task is the recompute's to say.
    pub(super) fn to_recorded(&self) -> Result<RecordedResult, JsonError> {
        let structured = self.structured.as_ref().map(CanonicalJson::from_value);
        Ok(RecordedResult {
            content: CanonicalJson::from_value(&self.content)?,
            digest: self.arguments_hash.clone(),
            is_error: self.is_error,
            item: 0,
            not_sent: self.not_sent,
            recorded: self.recorded.clone(),
            step: String::new(),
            structured: structured.transpose()?,
        })
    }
}

/// The hash of some results; of none there is none.
pub(super) fn hash_of(results: &[ToolResult]) -> Option<String> {
    let value = serde_json::to_value(results).unwrap_or_default();
    (!results.is_empty()).then(|| jcs::digest(&value))
}
