//! What is known of a step while its outputs are checked: replies, outcomes, and which of the events and
//! commands of an outcome have frames.

use std::collections::{BTreeMap, BTreeSet};

use ktsu_ledger::event::{Reference, StepCommand};
use serde_json::Value;

use super::called::CalledCommands;
use super::invoked::CommandedRuns;

/// What is known of a step since it began.
#[derive(Default)]
pub(super) struct StepOutputs {
    /// The replies to each of its tasks.
    pub(super) replies: BTreeMap<Option<u32>, Vec<String>>,
    /// What their agents gave, and in which frame.
    pub(super) given: BTreeMap<Option<u32>, (u64, Value)>,
    /// What else their outcomes ask for.
    pub(super) asked: BTreeMap<Option<u32>, AskedBeside>,
    /// Which commands the calls of their models gave.
    pub(super) called: BTreeMap<Option<u32>, CalledCommands>,
    /// Of which it is recorded that the budget was used up.
    pub(super) spent: BTreeSet<Option<u32>>,
    /// How its webhook was answered.
    pub(super) answer: Option<u16>,
}

/// The events and commands of an outcome, and how many of them have frames.
#[derive(Default)]
pub(super) struct AskedBeside {
    pub(super) finished: u64,
    pub(super) outcome: Value,
    pub(super) notes: u32,
    /// The commands that have frames: those that run workflows, and the others.
    invokes: Vec<u32>,
    emits: Vec<u32>,
    pub(super) runs: CommandedRuns,
}

impl AskedBeside {
    pub(super) fn of(finished: u64, outcome: Value) -> Self {
        Self {
            finished,
            outcome,
            ..Self::default()
        }
    }

    pub(super) fn list(&self, member: &str) -> &[Value] {
        let list = self.outcome.get(member).and_then(Value::as_array);
        list.map_or(&[], Vec::as_slice)
    }

    /// Whether a place is that of one of them, which says the same by a member.
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

    /// Takes the place of a command that has a frame. Tells whether it is its turn: the next of all,
    /// or, where commands come in phases, after those of its phase.
    pub(super) fn takes_turn(&mut self, command: &StepCommand, by_phase: bool) -> bool {
        let count = self.invokes.len() + self.emits.len();
        let phase = match command.kind.invokes() {
            true => &mut self.invokes,
            false => &mut self.emits,
        };
        let right = match by_phase {
            true => phase.last().is_none_or(|last| *last < command.index),
            false => command.index as usize == count,
        };
        phase.push(command.index);
        right
    }

    pub(super) fn is_told(&self) -> bool {
        self.notes as usize == self.list("events").len()
            && self.invokes.len() + self.emits.len() == self.list("commands").len()
    }
}
