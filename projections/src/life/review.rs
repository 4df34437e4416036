//! Reviews of outcomes: from the command to the decision, and what it means for the step (seed 004).
//!
//! ```text
//! command.requested {review} ─▶ [command.deferred] ─▶ review.requested ─┬▶ review.decided {approved}
//!                                                                       ├▶ review.decided {rejected} ─▶ [command.discarded]
//!                                                                       └▶ timer.fired {review} ─▶ [command.discarded]
//! ```
//!
//! What is in brackets is there where the outcome has other commands; after a timer, where the policy
//! rejects. In a branch that begins before the decision, people are asked again, by another frame. A
//! recompute asks no one, so an outcome has no review there.

use std::collections::BTreeMap;

use ktsu_ledger::event::plan::{ReviewPolicy, TimeoutBehavior};
use ktsu_ledger::event::{
    CommandsDeferred, CommandsDiscarded, ReviewDecided, ReviewDecision, ReviewRequested,
};
use ktsu_ledger::{CanonicalJson, Timestamp};

/// A field of an output that a person replaced when they approved it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplacedField {
    /// The first decision that has it.
    pub seq: u64,
    /// The person who decided.
    pub by: String,
    /// Its value.
    pub value: CanonicalJson,
}

/// The review of one outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Review {
    /// The `command.requested`.
    pub command: u64,
    /// The places of the other commands of the outcome, ascending.
    pub siblings: Vec<u32>,
    /// The state of the review.
    pub state: ReviewState,
    is_deferred: bool,
    is_discarded: bool,
}

/// The state of a review.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReviewState {
    /// People are to be asked.
    Due,
    /// They are asked.
    Pending(PendingReview),
    /// The outcome counts.
    Approved {
        /// The decision that was the last needed.
        seq: u64,
        /// The fields of the output that people replaced.
        overlay: BTreeMap<String, ReplacedField>,
    },
    /// It does not.
    Refused(ReviewRefusal),
}

/// A review that waits for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingReview {
    /// The `review.requested`.
    pub request: u64,
    /// The policy: who decides, and until when.
    pub policy: ReviewPolicy,
    /// The time from which its deadline counts. Moves where the clock jumps, or the run is paused.
    pub since: Timestamp,
    /// The people who have approved it so far.
    pub approved_by: Vec<String>,
    overlay: BTreeMap<String, ReplacedField>,
}

/// The reason why an outcome does not count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReviewRefusal {
    /// A person rejected it.
    Rejected {
        /// The `review.decided`.
        seq: u64,
        /// The person who rejected it.
        by: String,
        /// The reason, in their words, where one was given.
        reason: Option<String>,
    },
    /// Time is over.
    TimedOut {
        /// The `timer.fired`.
        seq: u64,
        /// The time that people had, in milliseconds.
        after_ms: u64,
        /// The policy's rule for that case.
        behavior: TimeoutBehavior,
    },
}

impl ReviewRefusal {
    /// The frame that refuses it.
    pub fn seq(&self) -> u64 {
        match self {
            Self::Rejected { seq, .. } | Self::TimedOut { seq, .. } => *seq,
        }
    }

    /// Returns `true` if it counts as rejected, so that the other commands are discarded in a
    /// frame.
    pub fn rejects(&self) -> bool {
        match self {
            Self::Rejected { .. } => true,
            Self::TimedOut { behavior, .. } => *behavior == TimeoutBehavior::Reject,
        }
    }
}

/// The action that is due for a review.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReviewDue {
    /// The other commands are to be deferred.
    Defer,
    /// People are to be asked.
    Ask,
    /// They have to decide first.
    Wait,
    /// The outcome counts: its commands are carried out.
    CarryOut,
    /// The other commands are to be discarded.
    Discard,
    /// The step fails.
    Refuse,
}

impl Review {
    /// A review that is commanded, beside other commands of the outcome.
    pub fn new(command: u64, siblings: Vec<u32>) -> Self {
        Self {
            command,
            siblings,
            state: ReviewState::Due,
            is_deferred: false,
            is_discarded: false,
        }
    }

    /// The action that is due.
    pub fn due(&self) -> ReviewDue {
        match &self.state {
            ReviewState::Due if !self.is_deferred && !self.siblings.is_empty() => ReviewDue::Defer,
            ReviewState::Due => ReviewDue::Ask,
            ReviewState::Pending(_) => ReviewDue::Wait,
            ReviewState::Approved { .. } => ReviewDue::CarryOut,
            ReviewState::Refused(refusal) => {
                let open = !self.is_discarded && !self.siblings.is_empty();
                match refusal.rejects() && open {
                    true => ReviewDue::Discard,
                    false => ReviewDue::Refuse,
                }
            }
        }
    }

    /// The review as long as people are asked.
    pub fn pending(&self) -> Option<&PendingReview> {
        match &self.state {
            ReviewState::Pending(pending) => Some(pending),
            ReviewState::Due | ReviewState::Approved { .. } | ReviewState::Refused(_) => None,
        }
    }

    /// The fields of the output that people replaced, if it counts.
    pub fn overlay(&self) -> impl Iterator<Item = (&String, &ReplacedField)> {
        let overlay = match &self.state {
            ReviewState::Approved { overlay, .. } => Some(overlay),
            ReviewState::Due | ReviewState::Pending(_) | ReviewState::Refused(_) => None,
        };
        overlay.into_iter().flatten()
    }

    /// Returns `true` if the other commands are deferred next, by this frame.
    pub fn may_defer(&self, event: &CommandsDeferred) -> bool {
        self.due() == ReviewDue::Defer
            && event.request == self.command
            && event.indexes == self.siblings
    }

    /// Returns `true` if people are asked next, by this frame and under this policy.
    pub fn may_ask(&self, event: &ReviewRequested, policy: Option<&ReviewPolicy>) -> bool {
        self.due() == ReviewDue::Ask
            && event.command == self.command
            && policy == Some(&event.policy)
    }

    /// Returns `true` if a decision may follow: each person approves once, and the proposer where
    /// the policy lets them. Only an approval replaces anything, and nothing that another one
    /// replaced otherwise.
    pub(crate) fn may_decide(&self, event: &ReviewDecided, proposer: &str) -> bool {
        let Some(pending) = self.pending().filter(|one| one.request == event.request) else {
            return false;
        };
        match event.decision {
            ReviewDecision::Approved => {
                let own = pending.policy.not_by_proposer && event.by.id == proposer;
                let twice = pending.approved_by.contains(&event.by.id);
                !own && !twice && pending.conflict(&event.overlay).is_none()
            }
            ReviewDecision::Rejected => event.overlay.is_empty(),
        }
    }

    /// Returns `true` if the other commands are discarded next, by this frame.
    pub fn may_discard(&self, event: &CommandsDiscarded) -> bool {
        let ReviewState::Refused(refusal) = &self.state else {
            return false;
        };
        self.due() == ReviewDue::Discard
            && event.decision == refusal.seq()
            && event.indexes == self.siblings
    }

    /// The other commands are deferred.
    pub fn defer(&mut self) {
        self.is_deferred = true;
    }

    /// They are discarded.
    pub fn discard(&mut self) {
        self.is_discarded = true;
    }

    /// People are asked.
    pub fn ask(&mut self, seq: u64, at: Timestamp, event: &ReviewRequested) {
        self.state = ReviewState::Pending(PendingReview {
            request: seq,
            policy: event.policy.clone(),
            since: at,
            approved_by: Vec::new(),
            overlay: BTreeMap::new(),
        });
    }

    /// Takes a decision: a rejection is enough, an approval once as many people have approved as the
    /// policy asks for. Together they replace whatever one of them does.
    pub fn decide(&mut self, seq: u64, event: &ReviewDecided) {
        let ReviewState::Pending(pending) = &mut self.state else {
            return;
        };
        if event.decision == ReviewDecision::Rejected {
            self.state = ReviewState::Refused(ReviewRefusal::Rejected {
                seq,
                by: event.by.id.clone(),
                reason: event.reason.clone(),
            });
            return;
        }
        pending.approved_by.push(event.by.id.clone());
        for (field, value) in &event.overlay {
            let replaced = || ReplacedField {
                seq,
                by: event.by.id.clone(),
                value: value.clone(),
            };
            let field = pending.overlay.entry(field.clone());
            field.or_insert_with(replaced);
        }
        if pending.approved_by.len() >= pending.policy.quorum.max(1) as usize {
            let overlay = std::mem::take(&mut pending.overlay);
            self.state = ReviewState::Approved { seq, overlay };
        }
    }

    /// The time to decide is over.
    pub fn time_out(&mut self, seq: u64) {
        if let ReviewState::Pending(pending) = &self.state {
            self.state = ReviewState::Refused(ReviewRefusal::TimedOut {
                seq,
                after_ms: pending.policy.timeout.ms,
                behavior: pending.policy.timeout.behavior,
            });
        }
    }

    /// People have this much more time.
    pub fn postpone(&mut self, by_ms: u64) {
        if let ReviewState::Pending(pending) = &mut self.state {
            pending.since = pending.since.plus_millis(by_ms);
        }
    }

    /// A branch begins before the decision: people are asked again (decision F1).
    pub fn ask_again(&mut self) {
        if self.pending().is_some() {
            self.state = ReviewState::Due;
        }
    }
}

impl PendingReview {
    /// The fields of the output that people have replaced so far.
    pub fn replaced(&self) -> impl Iterator<Item = (&String, &CanonicalJson)> {
        let replaced = self.overlay.iter();
        replaced.map(|(field, replaced)| (field, &replaced.value))
    }

    /// The first field that an earlier approval replaced, and these values replace otherwise.
    pub fn conflict(
        &self,
        overlay: &BTreeMap<String, CanonicalJson>,
    ) -> Option<(&String, &ReplacedField)> {
        let other = |(field, replaced): &(&String, &ReplacedField)| {
            let value = overlay.get(*field);
            value.is_some_and(|value| *value != replaced.value)
        };
        self.overlay.iter().find(other)
    }

    /// Until when people may decide.
    pub fn deadline(&self) -> Timestamp {
        self.since.plus_millis(self.policy.timeout.ms)
    }
}
