//! Delivery of frames to subscribers: the part that only calculates.
//!
//! ```text
//! pattern       which types of frames a subscriber wants
//! filter        frames by type, or what is told about topics
//! window        what is being sent: bounded, in order within each run
//! retry         when it is tried again, and when no more
//! subscription  what the ledger knows of a subscription: the fold over its stream
//! ```
//!
//! Nothing here sends, waits or reads a clock: `subscriptions` does that.

mod filter;
mod pattern;
pub mod retry;
mod subscription;
mod window;

pub use filter::{COMMAND_REQUESTED, DeliveryFilter, TOPIC_PATTERN_SYNTAX};
pub use pattern::{FramePattern, PATTERN_SYNTAX, PatternError};
pub use retry::DeliveryRetry;
pub use subscription::{DeadLetter, MAX_DEAD, SubscriptionState, delivery_id};
pub use window::{
    AttemptFailure, DeliveryWindow, MAX_IN_FLIGHT, MAX_WINDOW_BYTES, MAX_WINDOW_FRAMES,
};
