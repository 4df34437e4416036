//! In which order the commands of an outcome get their frames (decision W5).
//!
//! | Phase | Commands | Their frames |
//! |---|---|---|
//! | blocking | `review`, `suspend` | with the verdict of the air-lock, before anything runs |
//! | running | `invoke`, `fanout` | with the verdict, too; then their children begin |
//! | telling | `emit` | with the notes and the end of the step, in one append, after the last child |
//!
//! Within a phase they ascend. Under decision rules 5 and before, notes come first and every command
//! gets its frame with the verdict, in the order of the outcome.

use ktsu_ledger::CanonicalJson;
use ktsu_ledger::event::CommandKind;
use serde_json::Value;

/// The first decision rules under which commands have phases.
pub const PHASED_RULES: u32 = 6;

/// In which phase of an outcome a command is carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CommandPhase {
    /// The step waits for it.
    Blocking,
    /// It runs workflows.
    Running,
    /// Other systems are sent it.
    Telling,
}

impl CommandPhase {
    /// Of a command with this `type`.
    pub fn of(kind: &str) -> Self {
        match kind {
            "review" | "suspend" => Self::Blocking,
            "invoke" | "fanout" => Self::Running,
            _ => Self::Telling,
        }
    }

    /// Of a command that is carried out.
    pub fn of_kind(kind: CommandKind) -> Self {
        Self::of(kind.as_str())
    }
}

/// The commands of an outcome in the order of their frames.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CommandOrder {
    /// Each with its place in the outcome.
    list: Vec<(CommandPhase, u32)>,
    /// Number of commands that have frames before anything runs.
    first: usize,
    phased: bool,
}

impl CommandOrder {
    /// Of commands in these phases, under these decision rules.
    pub fn new(phases: impl IntoIterator<Item = CommandPhase>, rules: u32) -> Self {
        let phased = rules >= PHASED_RULES;
        let mut list: Vec<(CommandPhase, u32)> = phases.into_iter().zip(0..).collect();
        let mut first = list.len();
        if phased {
            list.sort_unstable();
            first = list.partition_point(|(phase, _)| *phase < CommandPhase::Telling);
        }
        Self {
            list,
            first,
            phased,
        }
    }

    /// Of the commands that an outcome has.
    pub fn of_outcome(outcome: &CanonicalJson, rules: u32) -> Self {
        // Most have none, and reading one takes time.
        let commands = match outcome.as_str().contains("\"commands\"") {
            true => outcome.pointer("/commands").unwrap_or_default(),
            false => Value::Null,
        };
        let kind = |one: &Value| CommandPhase::of(one["type"].as_str().unwrap_or_default());
        let list = commands.as_array().map_or(&[][..], Vec::as_slice);
        Self::new(list.iter().map(kind), rules)
    }

    /// The next command, after so many: its phase, and its place in the outcome.
    pub fn get(&self, after: u32) -> Option<(CommandPhase, u32)> {
        self.list.get(after as usize).copied()
    }

    /// Number of commands that have frames before anything else happens: all that have any before
    /// the children, or, where a person decides first, the one that asks for it.
    pub fn before_review(&self) -> u32 {
        match self.blocks() {
            true => 1,
            false => self.first(),
        }
    }

    /// Returns `true` if the step waits for a person or for data first.
    pub fn blocks(&self) -> bool {
        let first = self.list.first();
        self.phased && first.is_some_and(|(phase, _)| *phase == CommandPhase::Blocking)
    }

    /// The places of the commands other than the one that blocks the step, ascending.
    pub fn siblings(&self) -> Vec<u32> {
        let others = self.list.iter().skip(usize::from(self.blocks()));
        let mut places: Vec<u32> = others.map(|(_, place)| *place).collect();
        places.sort_unstable();
        places
    }

    /// Number of commands that have frames before anything runs.
    pub fn first(&self) -> u32 {
        u32::try_from(self.first).unwrap_or(u32::MAX)
    }

    /// Returns `true` if notes and emitted messages come with the end of the step.
    pub fn is_phased(&self) -> bool {
        self.phased
    }

    /// The places from one position on, up to another.
    pub fn places(&self, from: u32, to: u32) -> impl Iterator<Item = u32> + '_ {
        let list = self.list.iter().take(to as usize).skip(from as usize);
        list.map(|(_, place)| *place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS: [&str; 6] = ["emit", "fanout", "review", "emit", "invoke", "suspend"];

    fn places(rules: u32) -> (Vec<u32>, u32) {
        let order = CommandOrder::new(KINDS.map(CommandPhase::of), rules);
        (order.places(0, u32::MAX).collect(), order.first())
    }

    #[test]
    fn commands_have_frames_phase_by_phase_and_ascend_within_a_phase() {
        assert_eq!(places(6), (vec![2, 5, 1, 4, 0, 3], 4));
        assert_eq!(places(5), (vec![0, 1, 2, 3, 4, 5], 6));
    }
}
