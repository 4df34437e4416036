//! The schemas of subscriptions, and of what could not be delivered to them.

use ktsu_ledger::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The syntax of the URL of a subscription, as a regular expression.
pub const URL_SYNTAX: &str = "^https?://[!-~]{1,2000}$";
/// The syntax of the template of its secret, as a regular expression.
pub const SECRET_SYNTAX: &str = r"^\{\{ ?env\.[A-Za-z_][A-Za-z0-9_]{0,63} ?\}\}$";

/// Whom to send which frames.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SubscriptionRequest {
    /// Types of frames: `run.completed`, `object.*`, `*`, or several with commas. Frames of these are
    /// sent as they are. Either this or `topics` is given.
    pub pattern: Option<String>,
    /// Topics: `claim.verified`, `claim.*`, `*`, or several with commas. What steps and responders
    /// tell about them is sent.
    pub topics: Option<String>,
    /// Where frames go.
    pub url: String,
    /// The template of the secret that signs them: `{{ env.NAME }}`.
    pub secret: String,
    /// Attempts at a frame before it is dead; 30 if absent.
    #[schema(minimum = 1, maximum = 100)]
    pub attempts: Option<u64>,
    /// The pause after the first attempt in milliseconds, which doubles; 1000 if absent.
    #[schema(minimum = 1, maximum = 600000)]
    pub backoff_ms: Option<u64>,
}

/// A subscription, and how deliveries to it go.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SubscriptionShown {
    /// Its name in the environment file, or `sub_…`.
    pub id: String,
    /// Which frames.
    pub pattern: String,
    /// What is told about which topics, where not the frames themselves are sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topics: Option<String>,
    /// Where they go.
    pub url: String,
    /// The template of the secret.
    pub secret: String,
    /// Attempts at a frame before it is dead.
    pub attempts: u64,
    /// The pause after the first attempt, in milliseconds.
    pub backoff_ms: u64,
    /// Whether the environment file declares it.
    pub declared: bool,
    /// Who added it, where a person did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// `active`; `failing`: the last attempt failed; `stalled`: too many frames are dead; `idle`:
    /// this engine sends it nothing.
    pub status: String,
    /// The position in the ledger up to which nothing is left to send.
    pub position: u64,
    /// How many frames could not be delivered and wait to be redriven.
    pub dead: u64,
    /// The last failure, if nothing was delivered since.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<DeliveryErrorShown>,
}

/// Why an attempt failed.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DeliveryErrorShown {
    /// `webhook_status`, `webhook_timeout`, `webhook_unreachable` or `webhook_refused`.
    pub code: String,
    /// The status of the answer, if there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// When.
    #[schema(value_type = String)]
    pub at: Timestamp,
}

/// All subscriptions.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SubscriptionList {
    /// By their ids.
    pub subscriptions: Vec<SubscriptionShown>,
}

/// A frame that could not be delivered.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DeadLetterShown {
    /// The position of the frame in the ledger.
    pub position: u64,
    /// Its run.
    pub run_id: String,
    /// Its number in the run.
    pub seq: u64,
    /// The id that every attempt had.
    pub delivery_id: String,
    /// How many attempts were made.
    pub attempts: u64,
    /// What the last one failed with.
    pub code: String,
    /// The status of the last answer, if there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// When it was given up.
    #[schema(value_type = String)]
    pub at: Timestamp,
}

/// Frames that could not be delivered.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DeadLetters {
    /// By position.
    pub dead: Vec<DeadLetterShown>,
    /// The `from` of the next page, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
}

/// Dead frames are being sent again.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RedriveAccepted {
    /// How many.
    pub redriven: u64,
}
