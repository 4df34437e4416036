//! The questions of a run's steps to people: about outcomes, and for data.

use std::collections::HashMap;

use ktsu_ledger::{CanonicalJson, Frame};

use crate::asked_records::{ApprovalStatus, AskedRecord, Basis};
use crate::life::{Change, Expiry, Given, PersonAnswer, PersonQuestion, QuestionKind, changes};
use crate::reviews::ReviewRecord;
use crate::run::StepStatus;
use crate::step_name::split_scope;
use crate::suspensions::SuspensionRecord;

/// The questions that the steps of a run asked people, and the basis of the next one.
#[derive(Debug, Default)]
pub(crate) struct StepQuestions {
    /// About outcomes, in the order they were asked.
    pub(crate) reviews: Vec<ReviewRecord>,
    /// For data, in the order they were asked.
    pub(crate) suspensions: Vec<SuspensionRecord>,
    /// The person who started the run, or the branch.
    proposer: String,
    /// The last outcome of each step, by scope and id.
    outcomes: HashMap<(String, String), CanonicalJson>,
    /// The commands that ask, by the frame that records them: their place in the outcome.
    commands: HashMap<u64, u32>,
}

impl StepQuestions {
    /// The questions that the steps of these frames ask.
    pub(crate) fn fold<'f>(frames: impl IntoIterator<Item = &'f Frame>) -> Self {
        let mut questions = Self::default();
        for frame in frames {
            changes(frame).for_each(|change| questions.take(frame, &change));
        }
        questions
    }

    /// The basis of a question of a step that a command asks, by the frame that records the
    /// command.
    fn basis(&self, frame: &Frame, step: &str, command: u64) -> Basis<'_> {
        let key = (frame.scope.clone(), step.to_owned());
        Basis {
            outcome: self.outcomes.get(&key).cloned().unwrap_or_default(),
            index: self.commands.get(&command).copied(),
            proposer: &self.proposer,
        }
    }

    /// Takes what a frame changes.
    fn take(&mut self, frame: &Frame, change: &Change<'_>) {
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
        } else if let Change::Asked(_, PersonQuestion::Outcome(asked)) = change {
            let basis = self.basis(frame, &asked.step, asked.command);
            let record = ReviewRecord::of(basis, frame, asked);
            self.reviews.push(record);
        } else if let Change::Asked(_, PersonQuestion::Data(asked)) = change {
            let basis = self.basis(frame, &asked.step, asked.command);
            let record = SuspensionRecord::of(basis, frame, asked);
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

    fn answer(&mut self, frame: &Frame, answer: &PersonAnswer<'_>) {
        let (mut reviews, mut waits) = (self.reviews.iter_mut(), self.suspensions.iter_mut());
        if let Given::Review(..) = answer.given
            && let Some(review) = reviews.find(|one| one.request == answer.request)
        {
            review.take_answer(frame, answer);
        } else if let Given::Data(_) = answer.given
            && let Some(wait) = waits.find(|one| one.request == answer.request)
        {
            wait.take_answer(frame, answer);
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
