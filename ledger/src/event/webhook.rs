//! Facts about calls to HTTP endpoints.
//!
//! `webhook.sent` is durable before anything leaves the process. One `webhook.delivered` or
//! `webhook.failed` follows; a failure that a declared retry covers is followed by `timer.fired`
//! and another `webhook.sent` with the same delivery id, until `webhook.dead`.

use serde::{Deserialize, Serialize};

use super::Role;
use crate::canonical::CanonicalJson;

/// A fact about a webhook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WebhookEvent {
    /// `webhook.sent` (decision): about to be sent.
    Sent(WebhookSent),
    /// `webhook.delivered` (input): answered with 200 to 299.
    Delivered(WebhookAnswer),
    /// `webhook.failed` (input): answered otherwise, or not at all.
    Failed(WebhookAnswer),
    /// `webhook.dead` (decision): every declared attempt failed.
    Dead(WebhookDead),
}

impl WebhookEvent {
    /// See [`super::Event::role`].
    pub(super) fn role(&self) -> Role {
        match self {
            Self::Sent(_) | Self::Dead(_) => Role::Decision,
            Self::Delivered(_) | Self::Failed(_) => Role::Input,
        }
    }

    /// For a notice: the frame that requests the approval.
    pub fn approval(&self) -> Option<u64> {
        match self {
            Self::Sent(event) => event.approval,
            Self::Delivered(event) | Self::Failed(event) => event.approval,
            Self::Dead(event) => event.approval,
        }
    }

    /// The step this is about, in the frame's scope.
    pub fn step(&self) -> &str {
        match self {
            Self::Sent(event) => &event.step,
            Self::Delivered(event) | Self::Failed(event) => &event.step,
            Self::Dead(event) => &event.step,
        }
    }
}

/// `webhook.sent`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookSent {
    /// For a notice of an approval: the frame that requests it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<u64>,
    /// The step's attempt.
    pub attempt: u32,
    /// BLAKE3 of the body, with templates in place of secrets.
    pub body_hash: String,
    /// Sent as the header `webhook-id`; the same for every sending of the attempt (decision S6).
    pub delivery_id: String,
    /// HTTP method.
    pub method: String,
    /// Counted from 1; a declared retry raises it.
    pub sending: u32,
    /// The step.
    pub step: String,
    /// Host and port.
    pub target: String,
}

/// `webhook.delivered` and `webhook.failed`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookAnswer {
    /// For a notice of an approval: the frame that requests it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<u64>,
    /// The step's attempt.
    pub attempt: u32,
    /// The code of the failure: `webhook_status`, `webhook_timeout`, `webhook_unreachable`,
    /// `webhook_refused`, `webhook_unsigned`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// From sending to answer, in milliseconds.
    pub duration_ms: u64,
    /// The redacted response body: JSON where it is JSON, else text.
    #[serde(default)]
    pub response: CanonicalJson,
    /// The number of the sending that this answers.
    pub sending: u32,
    /// HTTP status, if there was an answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The step.
    pub step: String,
    /// True if the response was longer than the recorded part.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
}

/// `webhook.dead`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookDead {
    /// For a notice of an approval: the frame that requests it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<u64>,
    /// The step's attempt.
    pub attempt: u32,
    /// The number of times it was sent.
    pub sendings: u32,
    /// The step.
    pub step: String,
}
