//! Frames for those outside who follow what happens, across all runs.
//!
//! ```text
//! appender ──a commit──▶ feed: who waits is woken ──▶ page: the newest frames, read once for all
//!                                                       │
//!            service: who gets what ──▶ worker: one task each ──signed──▶ egress
//!                          └──────── journal: cursors, dead frames ◀──┘
//! ```
//!
//! What is calculated is in `delivery`. Nobody here is waited for: the appender tells that there is
//! more, and everything else is read from the ledger.

pub mod feed;
mod journal;
mod service;
mod worker;

pub use feed::{EventFeed, FeedPage};
pub use journal::LedgerClock;
pub use service::{
    NewSubscription, SubscriptionError, SubscriptionParts, SubscriptionView, Subscriptions,
    VariableLookup, named_variable,
};
pub use worker::{DeliveryFailure, DeliveryStatus};
