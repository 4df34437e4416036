//! What all records of questions to people have in common: how long they wait, what is answered, and
//! when the wait ends.

use std::collections::{BTreeMap, HashMap};

use ktsu_ledger::event::{Decision, Principal, ReviewDecision};
use ktsu_ledger::{CanonicalJson, Frame, Timestamp};

use crate::approvals::{ApprovalStatus, ApprovalVote};
use crate::life::{Answer, Change, Expiry, Given, Question, QuestionKind};
use crate::reviews::ReviewRecord;
use crate::run::StepStatus;
use crate::step_name::split_scope;
use crate::suspensions::SuspensionRecord;

/// A record of something that people are asked.
pub(crate) trait AskedRecord {
    /// What changes while it waits, and with its end.
    fn wait(&mut self) -> Wait<'_>;

    /// Takes what a person says. Returns whether it still waited.
    fn answer(&mut self, frame: &Frame, answer: &Answer<'_>) -> bool {
        let wait = self.wait();
        let waits = *wait.status == ApprovalStatus::Pending;
        if waits {
            wait.votes.push(vote(frame, answer, wait.proposer));
            if let Some(status) = status(answer.given, wait.votes.len(), wait.quorum) {
                wait.close(status, frame.at);
            }
        }
        waits
    }

    /// Follows what a frame changes for everything that waits for people.
    fn follow(&mut self, change: &Change<'_>, at: Timestamp) {
        let wait = self.wait();
        if *wait.status != ApprovalStatus::Pending {
            return;
        }
        if let Change::Forked(_) = change {
            wait.close(ApprovalStatus::Void, at);
        } else if let Change::DeadlinesMoved(by_ms, _) = change {
            if let Some(until) = wait.expires_at {
                *until = until.plus_millis(*by_ms);
            }
        } else if let Change::Paused(_) = change {
            *wait.paused_at = Some(at);
        } else if let Change::Resumed(_) = change {
            *wait.paused_at = None;
        }
    }
}

/// The parts of a record that change.
pub(crate) struct Wait<'r> {
    pub(crate) status: &'r mut ApprovalStatus,
    pub(crate) votes: &'r mut Vec<ApprovalVote>,
    pub(crate) expires_at: Option<&'r mut Timestamp>,
    pub(crate) paused_at: &'r mut Option<Timestamp>,
    pub(crate) ended_at: &'r mut Option<Timestamp>,
    pub(crate) proposer: &'r str,
    pub(crate) quorum: u32,
}

impl Wait<'_> {
    /// Ends the wait, if it is still on.
    pub(crate) fn close(self, status: ApprovalStatus, at: Timestamp) {
        if *self.status == ApprovalStatus::Pending {
            *self.status = status;
            *self.paused_at = None;
            *self.ended_at = Some(at);
        }
    }
}

/// The status that the last of so many answers leads to, if it ends the wait.
fn status(given: Given<'_>, answers: usize, quorum: u32) -> Option<ApprovalStatus> {
    let approves = |enough: bool| enough.then_some(ApprovalStatus::Approved);
    let enough = answers >= quorum.max(1) as usize;
    match given {
        Given::Decision(Decision::Approved, _) => approves(enough),
        Given::Review(ReviewDecision::Approved, _) => approves(enough),
        Given::Decision(Decision::Rejected, _) | Given::Review(ReviewDecision::Rejected, _) => {
            Some(ApprovalStatus::Rejected)
        }
        Given::Decision(Decision::Happened, _) => Some(ApprovalStatus::Happened),
        Given::Data(_) => Some(ApprovalStatus::Resumed),
    }
}

fn vote(frame: &Frame, answer: &Answer<'_>, proposer: &str) -> ApprovalVote {
    let (decision, result, overlay) = match answer.given {
        Given::Decision(decision, result) => (decision.as_str(), result, BTreeMap::new()),
        Given::Review(decision, overlay) => {
            let overlay = overlay.iter();
            let overlay = overlay.map(|(field, value)| (field.clone(), value.to_value()));
            (decision.as_str(), None, overlay.collect())
        }
        Given::Data(_) => (ApprovalStatus::Resumed.as_str(), None, BTreeMap::new()),
    };
    ApprovalVote {
        by: answer.by.id.clone(),
        auth: answer.by.auth.clone(),
        decision: decision.to_owned(),
        at: frame.at,
        reason: answer.reason.cloned(),
        result: result.cloned(),
        overlay,
        independent: is_independent(answer.by, proposer),
        frame: frame.seq,
    }
}

/// Whether another person decided than the one who started the run, and was authenticated.
fn is_independent(by: &Principal, proposer: &str) -> bool {
    by.id != proposer && by.auth != "none"
}

/// What the steps of a run asked people, and what the next question rests on.
#[derive(Debug, Default)]
pub(crate) struct StepQuestions {
    /// About outcomes, in the order they were asked.
    pub(crate) reviews: Vec<ReviewRecord>,
    /// For data, in the order they were asked.
    pub(crate) suspensions: Vec<SuspensionRecord>,
    /// Who started the run.
    pub(crate) proposer: String,
    /// The last outcome of each step, by scope and id.
    outcomes: HashMap<(String, String), CanonicalJson>,
    /// The commands that ask, by the frame that records them: their place in the outcome.
    commands: HashMap<u64, u32>,
}

impl StepQuestions {
    /// The outcome that a step of a frame's scope asks about.
    pub(crate) fn outcome(&self, frame: &Frame, step: &str) -> CanonicalJson {
        let key = (frame.scope.clone(), step.to_owned());
        self.outcomes.get(&key).cloned().unwrap_or_default()
    }

    /// The place of a command in its outcome, by the frame that records it.
    pub(crate) fn index(&self, command: u64) -> Option<u32> {
        self.commands.get(&command).copied()
    }

    /// Takes what a frame changes.
    pub(crate) fn take(&mut self, frame: &Frame, change: &Change<'_>) {
        if change.is_about_run() {
            let reviews = self.reviews.iter_mut();
            reviews.for_each(|one| one.follow(change, frame.at));
            let suspensions = self.suspensions.iter_mut();
            suspensions.for_each(|one| one.follow(change, frame.at));
        }
        if let Some(by) = change.proposer() {
            self.proposer.clone_from(&by.id);
        } else if let Change::Finished(task, end) = change {
            if task.item.is_none() {
                let key = (frame.scope.clone(), task.step.to_owned());
                self.outcomes.insert(key, end.outcome.clone());
            }
        } else if let Change::Commanded(command) = change {
            self.commands.insert(frame.seq, command.index);
        } else if let Change::Asked(_, Question::Outcome(asked)) = change {
            let record = ReviewRecord::of(self, frame, asked);
            self.reviews.push(record);
        } else if let Change::Asked(_, Question::Data(asked)) = change {
            let record = SuspensionRecord::of(self, frame, asked);
            self.suspensions.push(record);
        } else if let Change::Answered(_, answer) = change {
            self.answer(frame, answer);
        } else if let Change::StepMoved(step, status) = change {
            if *status != StepStatus::Running {
                self.close(frame, step, None, ApprovalStatus::Void);
            }
        } else if let Change::Expired(task, Expiry::Question(kind)) = change {
            self.close(frame, task.step, Some(*kind), ApprovalStatus::Timeout);
        }
    }

    fn answer(&mut self, frame: &Frame, answer: &Answer<'_>) {
        let mut reviews = self.reviews.iter_mut();
        if let Some(review) = reviews.find(|one| one.request == answer.request) {
            review.take_answer(frame, answer);
        }
        let mut suspensions = self.suspensions.iter_mut();
        if let Some(suspension) = suspensions.find(|one| one.request == answer.request) {
            suspension.take_answer(frame, answer);
        }
    }

    /// Ends what a step of the frame's scope asks: everything, or what is of a kind.
    fn close(
        &mut self,
        frame: &Frame,
        step: &str,
        kind: Option<QuestionKind>,
        status: ApprovalStatus,
    ) {
        let of = |run: &str, id: &str| id == step && split_scope(run).1 == frame.scope;
        let is = |one: QuestionKind| kind.is_none_or(|kind| kind == one);
        let reviews = self.reviews.iter_mut();
        for review in
            reviews.filter(|one| is(QuestionKind::Review) && of(&one.run_id, &one.step_id))
        {
            review.wait().close(status, frame.at);
        }
        let waits = self.suspensions.iter_mut();
        for one in waits.filter(|one| is(QuestionKind::Suspension) && of(&one.run_id, &one.step_id))
        {
            one.wait().close(status, frame.at);
        }
    }
}
