//! The facts about a step while its outputs are checked: replies, outcomes, and which of the events
//! and commands of an outcome have frames.

use std::collections::{BTreeMap, BTreeSet};

use ktsu_ledger::event::{Reference, StepCommand};
use ktsu_projections::life::command_order::{CommandOrder, CommandPhase};
use ktsu_projections::life::review::{Review, ReviewDue, ReviewState};
use ktsu_projections::life::suspension::{Suspension, SuspensionDue};
use serde_json::Value;

use super::called::CalledCommands;
use super::invoked::CommandedRuns;

/// The facts that are known of a step since it began.
#[derive(Default)]
pub(super) struct StepOutputs {
    /// The replies to each of its tasks.
    pub(super) replies: BTreeMap<Option<u32>, Vec<String>>,
    /// The outputs that their agents gave, each with the number of its frame.
    pub(super) given: BTreeMap<Option<u32>, (u64, Value)>,
    /// The other things that their outcomes ask for.
    pub(super) asked: BTreeMap<Option<u32>, AskedBeside>,
    /// The commands that the calls of their models gave.
    pub(super) called: BTreeMap<Option<u32>, CalledCommands>,
    /// Of which it is recorded that the budget was used up.
    pub(super) spent: BTreeSet<Option<u32>>,
    /// The status code of the answer to its webhook.
    pub(super) answer: Option<u16>,
    /// The code with which it failed.
    pub(super) failed: Option<String>,
    /// True if it failed or was skipped.
    pub(super) ended: bool,
    /// By which frame it begins again, if it has not begun since.
    pub(super) reset: Option<u64>,
}

impl StepOutputs {
    /// Returns `true` if its outcome asks for a review or for data.
    pub(super) fn is_asked(&self) -> bool {
        self.review().is_some() || self.is_suspended()
    }

    /// Returns `true` if people, or the end of their time, refused its outcome.
    pub(super) fn is_refused(&self) -> bool {
        let refused = |review: &Review| matches!(review.state, ReviewState::Refused(_));
        self.review().is_some_and(refused)
    }

    /// Returns `true` if its outcome asks for data.
    pub(super) fn is_suspended(&self) -> bool {
        let asked = self.asked.get(&None);
        asked.is_some_and(|asked| asked.suspension.is_some())
    }

    fn review(&self) -> Option<&Review> {
        self.asked.get(&None)?.review.as_ref()
    }
}

/// The events and commands of an outcome, and how many of them have frames.
#[derive(Default)]
pub(super) struct AskedBeside {
    pub(super) finished: u64,
    pub(super) attempt: u32,
    pub(super) outcome: Value,
    pub(super) notes: u32,
    /// The order in which its commands get their frames, and how many have one.
    order: CommandOrder,
    requested: u32,
    /// The review that people are asked for, if it asks for one.
    pub(super) review: Option<Review>,
    /// The suspension in which it waits for data, if it asks for any.
    pub(super) suspension: Option<Suspension>,
    pub(super) runs: CommandedRuns,
}

impl AskedBeside {
    pub(super) fn of((finished, attempt): (u64, u32), outcome: Value, order: CommandOrder) -> Self {
        Self {
            finished,
            attempt,
            outcome,
            order,
            ..Self::default()
        }
    }

    pub(super) fn list(&self, member: &str) -> &[Value] {
        let list = self.outcome.get(member).and_then(Value::as_array);
        list.map_or(&[], Vec::as_slice)
    }

    /// Returns `true` if a place is that of one of them, whose members say the same.
    pub(super) fn is_at(
        &self,
        place: &Reference,
        (member, index): (&str, u32),
        said: &[(&str, &str)],
    ) -> bool {
        let path = format!("/outcome/{member}/{index}");
        let one = self.list(member).get(index as usize);
        let says = |(name, text): &(&str, &str)| one.is_some_and(|one| one[name] == **text);
        place.frame == self.finished && place.path == path && said.iter().all(says)
    }

    /// Takes a command that has a frame. Returns whether it is its turn, as runs are folded: those of
    /// the first phases before any child begins, and the others after all children.
    pub(super) fn takes_turn(&mut self, command: &StepCommand) -> bool {
        let turn = (CommandPhase::of_kind(command.kind), command.index);
        let next = self.order.get(self.requested) == Some(turn);
        let phase = match self.requested < self.order.first() {
            true => !self.runs.has_begun(),
            false => self.runs.is_done(),
        };
        self.requested = self.requested.saturating_add(1);
        next && phase && self.has_passed_review() && self.suspension.is_none()
    }

    /// People are to decide on it, as the command at this frame says.
    pub(super) fn ask_for_review(&mut self, command: u64) {
        self.review = Some(Review::new(command, self.order.siblings()));
    }

    /// Its step is to wait for data, as the command at this frame says.
    pub(super) fn suspend(&mut self, command: u64, index: u32) {
        let siblings = self.order.siblings();
        self.suspension = Some(Suspension::new(command, index, siblings));
    }

    /// Returns `true` if it counts, as far as people are asked.
    fn has_passed_review(&self) -> bool {
        let review = self.review.as_ref();
        review.is_none_or(|review| review.due() == ReviewDue::CarryOut)
    }

    /// Returns `true` if it is the turn of an event: before every command or, where commands have
    /// phases, after all children and before what is emitted, or before its step waits for data.
    pub(super) fn may_note(&self) -> bool {
        if let Some(suspension) = &self.suspension {
            return suspension.due() == SuspensionDue::Ask;
        }
        match self.order.is_phased() {
            true => {
                let all = self.requested == self.order.first() && self.runs.is_done();
                all && self.has_passed_review()
            }
            false => self.requested == 0,
        }
    }

    pub(super) fn has_all_notes(&self) -> bool {
        self.notes as usize == self.list("events").len()
    }

    pub(super) fn has_all_frames(&self) -> bool {
        self.has_all_notes() && self.requested as usize == self.list("commands").len()
    }
}
