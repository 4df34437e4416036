//! A notice, and its status.

use crate::life::StepKey;

/// A notice, by what it is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Notice {
    /// The frame that asks people.
    pub request: u64,
    /// The webhook.
    pub webhook: StepKey,
}

/// The status of a notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoticeStatus {
    /// It is announced, and not answered.
    Sent {
        /// The `webhook.sent`.
        seq: u64,
    },
    /// It was answered, or cannot be sent.
    Ended,
}
