//! Events of subscriptions: who is sent which frames, and how far that has come.
//!
//! ```text
//! subscription:NAME   subscription.added ─▶ delivery.dead ─▶ delivery.redriven ─▶ delivery.settled
//!                                       └─▶ subscription.removed
//! delivery:NAME       delivery.advanced ─▶ delivery.advanced ─▶ …      the last one counts
//! ```
//!
//! Positions are places in the order of appending. Nothing here is about a run: what becomes of a
//! delivery changes no run.

use serde::{Deserialize, Serialize};

use super::start::Principal;
use crate::id::StreamId;

/// A fact about a subscription.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeliveryEvent {
    /// `subscription.added` (input): frames go to this address, or to another one than before.
    Added(SubscriptionAdded),
    /// `subscription.removed` (input): nothing is sent any more.
    Removed(SubscriptionRemoved),
    /// `delivery.advanced` (input): every wanted frame up to a position was delivered, or is dead.
    Advanced(DeliveryAdvanced),
    /// `delivery.dead` (input): the last attempt to deliver a frame failed.
    Dead(DeliveryDead),
    /// `delivery.redriven` (input): a person had all dead frames sent again.
    Redriven(DeliveryRedriven),
    /// `delivery.settled` (input): frames that were redriven were delivered.
    Settled(DeliverySettled),
}

/// `subscription.added`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubscriptionAdded {
    /// Attempts at a frame before it is dead.
    pub attempts: u32,
    /// The pause after the first attempt, in milliseconds; it doubles with each one.
    pub backoff_ms: u64,
    /// The principal that added it; absent where the environment file declares it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Principal>,
    /// The position of the last frame that it does not get.
    pub from: u64,
    /// The types of frames that are sent.
    pub pattern: String,
    /// The template of the secret that deliveries are signed with.
    pub secret: String,
    /// The topics, if messages on these are sent instead of frames.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topics: Option<String>,
    /// The URL that frames are sent to.
    pub url: String,
}

/// `subscription.removed`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubscriptionRemoved {
    /// The principal that removed it.
    pub by: Principal,
}

/// `delivery.advanced`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeliveryAdvanced {
    /// The position up to which nothing is left to send.
    pub position: u64,
}

/// `delivery.dead`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeliveryDead {
    /// The number of attempts that were made.
    pub attempts: u32,
    /// The code of the last failure: `webhook_status`, `webhook_timeout`, `webhook_unreachable` or
    /// `webhook_refused`.
    pub code: String,
    /// The id that every attempt had.
    pub delivery_id: String,
    /// The position of the frame.
    pub position: u64,
    /// The number of the frame in its run.
    pub seq: u64,
    /// The status of the last answer, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The run of the frame.
    pub stream: StreamId,
}

/// `delivery.redriven`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeliveryRedriven {
    /// The principal that redrove them.
    pub by: Principal,
    /// The number of frames.
    pub count: u64,
}

/// `delivery.settled`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeliverySettled {
    /// The positions of the frames.
    pub positions: Vec<u64>,
}
