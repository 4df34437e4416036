//! The effects and calls that a run or a branch holds back.

use ktsu_ledger::event::Effects;

use super::RunState;

/// The effects and calls that are held back, as the record says of a run or a branch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::run) struct Suppression {
    /// Webhooks and messages.
    effects: bool,
    /// Calls of stateful tools.
    tools: bool,
    /// True if the run was created without effects, and no fork has given it any.
    created: bool,
}

impl Suppression {
    pub(in crate::run) fn of_run(effects: Effects) -> Self {
        let held = effects == Effects::Suppress;
        Self {
            effects: held,
            tools: false,
            created: held,
        }
    }

    /// The same from a fork on.
    pub(super) fn forked(self, effects: Effects) -> Self {
        let held = effects == Effects::Suppress;
        Self {
            effects: held,
            tools: held,
            created: held && self.created,
        }
    }
}

impl RunState {
    /// Returns `true` if webhooks and messages are held back: this is a branch that was forked
    /// without effects (decision F1), or a run that was created without.
    pub fn suppresses_effects(&self) -> bool {
        self.suppression.effects
    }

    /// Returns `true` if calls that change something lasting are held back: in a branch that was
    /// forked without effects (decision F1). A run that was created without makes them.
    pub fn suppresses_tools(&self) -> bool {
        self.suppression.tools
    }

    /// True if the run was created without effects, and no fork has given it any.
    pub fn is_created_suppressed(&self) -> bool {
        self.suppression.created
    }
}
