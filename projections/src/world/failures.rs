//! Failures of responders that did not stop their run (`on_error: continue`).

use std::collections::BTreeMap;

use ktsu_ledger::event::ResponderFailed;

/// The most characters that are kept of a message.
const MAX_MESSAGE_CHARS: usize = 500;

/// The number of a responder's failures, and the first of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResponderFailures {
    /// Number of failures.
    pub count: u64,
    /// The error code of the first failure.
    pub code: String,
    /// The beginning of its message.
    pub message: String,
}

/// By responder.
#[derive(Debug, Clone, Default)]
pub(super) struct Failures(BTreeMap<String, ResponderFailures>);

impl Failures {
    pub(super) fn take(&mut self, failed: &ResponderFailed) {
        if let Some(known) = self.0.get_mut(&failed.responder) {
            known.count += 1;
            return;
        }
        let first = ResponderFailures {
            count: 1,
            code: failed.code.clone(),
            message: failed.message.chars().take(MAX_MESSAGE_CHARS).collect(),
        };
        self.0.insert(failed.responder.clone(), first);
    }

    pub(super) fn all(&self) -> &BTreeMap<String, ResponderFailures> {
        &self.0
    }
}
