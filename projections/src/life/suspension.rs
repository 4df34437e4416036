//! Suspensions: from the command to the data, and what it means for the step (seed 004).
//!
//! ```text
//! command.requested {suspend} ─▶ [command.discarded] ─▶ note … ─▶ suspend.requested ─┬▶ suspend.resumed ─▶ step.reset
//!                                                                                    └▶ timer.fired {suspend}
//! ```
//!
//! What is in brackets is there where the outcome has other commands. In a branch that begins before the
//! data, the step asks again, by another frame. A recompute asks no one, so nothing is suspended there.

use ktsu_ledger::event::plan::SuspendPolicy;
use ktsu_ledger::event::{CommandsDiscarded, Reference, SuspendRequested, SuspendResumed};
use ktsu_ledger::{CanonicalJson, Timestamp};

/// The suspension that one outcome asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suspension {
    /// The `command.requested`.
    pub command: u64,
    /// The place of the command in the outcome.
    pub index: u32,
    /// The places of the other commands of the outcome, ascending.
    pub siblings: Vec<u32>,
    /// The state of the suspension.
    pub state: SuspensionState,
    is_discarded: bool,
}

/// The state of a suspension.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SuspensionState {
    /// The data are to be asked for.
    Due,
    /// They are asked for.
    Pending(PendingSuspension),
    /// They are there.
    Resumed {
        /// The `suspend.resumed`.
        seq: u64,
        /// The person who gave them.
        by: String,
        /// The data.
        data: CanonicalJson,
    },
    /// Time is over.
    TimedOut {
        /// The `timer.fired`.
        seq: u64,
        /// The time that the step waited, in milliseconds.
        after_ms: u64,
    },
}

/// A suspension that waits for its data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingSuspension {
    /// The `suspend.requested`.
    pub request: u64,
    /// The policy: who may give them, and until when.
    pub policy: SuspendPolicy,
    /// The time from which its deadline counts. Moves where the clock jumps, or the run is paused.
    pub since: Timestamp,
}

/// The action that is due for a suspension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SuspensionDue {
    /// The other commands are to be discarded.
    Discard,
    /// The data are to be asked for, after the notes of the outcome.
    Ask,
    /// They have to come first.
    Wait,
    /// The step begins again.
    BeginAgain,
    /// The step fails.
    Fail,
}

/// The values that a step is given that runs again: the checkpoint that it left behind when it was
/// suspended, and the data that it asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resumption {
    /// The `agent.finished` whose outcome has the checkpoint.
    pub finished: u64,
    /// The place of the command in that outcome.
    pub index: u32,
    /// The checkpoint that the attempt before left behind.
    pub checkpoint: CanonicalJson,
    /// The `suspend.resumed`.
    pub resumed: u64,
    /// The data.
    pub data: CanonicalJson,
    /// The step by whose definition it runs, if the outcome names one.
    pub resume_step: Option<String>,
}

impl Suspension {
    /// A suspension that is commanded, beside other commands of the outcome.
    pub fn new(command: u64, index: u32, siblings: Vec<u32>) -> Self {
        Self {
            command,
            index,
            siblings,
            state: SuspensionState::Due,
            is_discarded: false,
        }
    }

    /// The action that is due.
    pub fn due(&self) -> SuspensionDue {
        match &self.state {
            SuspensionState::Due if !self.is_discarded && !self.siblings.is_empty() => {
                SuspensionDue::Discard
            }
            SuspensionState::Due => SuspensionDue::Ask,
            SuspensionState::Pending(_) => SuspensionDue::Wait,
            SuspensionState::Resumed { .. } => SuspensionDue::BeginAgain,
            SuspensionState::TimedOut { .. } => SuspensionDue::Fail,
        }
    }

    /// The suspension as long as it waits.
    pub fn pending(&self) -> Option<&PendingSuspension> {
        match &self.state {
            SuspensionState::Pending(pending) => Some(pending),
            SuspensionState::Due
            | SuspensionState::Resumed { .. }
            | SuspensionState::TimedOut { .. } => None,
        }
    }

    /// Returns `true` if the other commands are discarded next, by this frame.
    pub fn may_discard(&self, event: &CommandsDiscarded) -> bool {
        self.due() == SuspensionDue::Discard
            && event.decision == self.command
            && event.indexes == self.siblings
    }

    /// Returns `true` if the data are asked for next, by this frame and under this policy.
    pub fn may_ask(&self, event: &SuspendRequested, policy: Option<&SuspendPolicy>) -> bool {
        self.due() == SuspensionDue::Ask
            && event.command == self.command
            && policy == Some(&event.policy)
    }

    /// Returns `true` if the data may follow.
    pub fn may_resume(&self, event: &SuspendResumed) -> bool {
        let pending = self.pending();
        pending.is_some_and(|pending| pending.request == event.request)
    }

    /// The other commands are discarded.
    pub fn discard(&mut self) {
        self.is_discarded = true;
    }

    /// The data are asked for.
    pub fn ask(&mut self, seq: u64, at: Timestamp, event: &SuspendRequested) {
        self.state = SuspensionState::Pending(PendingSuspension {
            request: seq,
            policy: event.policy.clone(),
            since: at,
        });
    }

    /// The data are there.
    pub fn resume(&mut self, seq: u64, event: &SuspendResumed) {
        self.state = SuspensionState::Resumed {
            seq,
            by: event.by.id.clone(),
            data: event.data.clone(),
        };
    }

    /// The time to give them is over.
    pub fn time_out(&mut self, seq: u64) {
        if let SuspensionState::Pending(pending) = &self.state {
            self.state = SuspensionState::TimedOut {
                seq,
                after_ms: pending.policy.timeout_ms,
            };
        }
    }

    /// There is this much more time.
    pub fn postpone(&mut self, by_ms: u64) {
        if let SuspensionState::Pending(pending) = &mut self.state {
            pending.since = pending.since.plus_millis(by_ms);
        }
    }

    /// A branch begins before the data: they are asked for again (decision F1).
    pub fn ask_again(&mut self) {
        if self.pending().is_some() {
            self.state = SuspensionState::Due;
        }
    }

    /// The values that the next attempt is given, once the data are there. `finished` is the frame
    /// with the outcome.
    pub fn resumption(&self, finished: u64, outcome: &CanonicalJson) -> Option<Resumption> {
        let SuspensionState::Resumed { seq, data, .. } = &self.state else {
            return None;
        };
        let checkpoint = outcome.pointer(&format!("/commands/{}/checkpoint", self.index));
        let checkpoint = CanonicalJson::from_value(&checkpoint.unwrap_or_default());
        Some(Resumption {
            finished,
            index: self.index,
            checkpoint: checkpoint.unwrap_or_default(),
            resumed: *seq,
            data: data.clone(),
            resume_step: self.resume_step(outcome),
        })
    }

    /// The step that an outcome names as the one that its own is to be resumed to.
    pub fn resume_step(&self, outcome: &CanonicalJson) -> Option<String> {
        let step = outcome.pointer(&format!("/commands/{}/resumeStep", self.index))?;
        Some(step.as_str()?.to_owned())
    }
}

impl Resumption {
    /// The place where a part of it is recorded, by pointer: `/checkpoint/…` or `/data/…`.
    pub fn locate(&self, pointer: &str) -> Option<Reference> {
        if let Some(rest) = pointer.strip_prefix("/checkpoint") {
            let path = format!("/outcome/commands/{}/checkpoint{rest}", self.index);
            return Some(Reference {
                frame: self.finished,
                path,
            });
        }
        let rest = pointer.strip_prefix("/data")?;
        Some(Reference {
            frame: self.resumed,
            path: format!("/data{rest}"),
        })
    }
}

impl PendingSuspension {
    /// Until when the data may be given.
    pub fn deadline(&self) -> Timestamp {
        self.since.plus_millis(self.policy.timeout_ms)
    }
}

#[cfg(test)]
mod tests {
    use ktsu_ledger::event::Principal;

    use super::*;

    fn asked(siblings: Vec<u32>) -> Suspension {
        let mut one = Suspension::new(4, 1, siblings);
        one.discard();
        let event = SuspendRequested {
            attempt: 1,
            command: 4,
            policy: SuspendPolicy {
                roles: Vec::new(),
                schema: None,
                timeout_ms: 1000,
            },
            step: "s".to_owned(),
        };
        assert!(one.may_ask(&event, Some(&event.policy)));
        assert!(!one.may_ask(&event, None), "the definition knows no policy");
        one.ask(7, Timestamp::default(), &event);
        one
    }

    fn data(request: u64) -> SuspendResumed {
        SuspendResumed {
            attempt: 1,
            by: Principal {
                auth: "local".to_owned(),
                id: "p".to_owned(),
            },
            data: CanonicalJson::from_value(&serde_json::json!({"found": true})).unwrap(),
            reason: None,
            request,
            step: "s".to_owned(),
        }
    }

    #[test]
    fn other_commands_are_discarded_before_the_data_are_asked_for() {
        let mut one = Suspension::new(4, 1, vec![0, 2]);
        assert_eq!(one.due(), SuspensionDue::Discard);
        let event = |decision, indexes| CommandsDiscarded {
            attempt: 1,
            decision,
            indexes,
            step: "s".to_owned(),
        };
        assert!(one.may_discard(&event(4, vec![0, 2])));
        assert!(!one.may_discard(&event(4, vec![0])));
        assert!(!one.may_discard(&event(5, vec![0, 2])));
        one.discard();
        assert_eq!(one.due(), SuspensionDue::Ask);
        assert_eq!(
            Suspension::new(4, 1, Vec::new()).due(),
            SuspensionDue::Ask,
            "there is nothing to discard"
        );
    }

    #[test]
    fn the_data_come_once_and_for_the_request_that_is_pending() {
        let mut one = asked(vec![0]);
        assert_eq!(one.due(), SuspensionDue::Wait);
        assert!(!one.may_resume(&data(6)));
        assert!(one.may_resume(&data(7)));
        one.resume(8, &data(7));
        assert_eq!(one.due(), SuspensionDue::BeginAgain);
        assert!(!one.may_resume(&data(7)));
        one.time_out(9);
        one.ask_again();
        assert_eq!(one.due(), SuspensionDue::BeginAgain, "the data hold");
    }

    #[test]
    fn a_branch_before_the_data_asks_again_and_time_that_is_over_fails_the_step() {
        let mut one = asked(Vec::new());
        one.ask_again();
        assert_eq!(one.due(), SuspensionDue::Ask);
        let mut other = asked(Vec::new());
        other.postpone(500);
        let pending = other.pending().unwrap();
        assert_eq!(pending.deadline(), Timestamp::default().plus_millis(1500));
        other.time_out(8);
        assert_eq!(other.due(), SuspensionDue::Fail);
        assert!(!other.may_resume(&data(7)));
    }

    #[test]
    fn the_next_attempt_gets_the_checkpoint_and_the_data() {
        let mut one = asked(vec![0]);
        let outcome = serde_json::json!({"commands": [
            {"type": "emit", "topic": "t", "payload": 1},
            {"type": "suspend", "reason": "r", "checkpoint": {"page": 3}}]});
        let outcome = CanonicalJson::from_value(&outcome).unwrap();
        assert_eq!(one.resumption(3, &outcome), None);
        one.resume(8, &data(7));
        let given = one.resumption(3, &outcome).unwrap();
        assert_eq!(given.checkpoint.to_value(), serde_json::json!({"page": 3}));
        assert_eq!(given.data.to_value(), serde_json::json!({"found": true}));
        assert_eq!((given.finished, given.index, given.resumed), (3, 1, 8));
    }
}
