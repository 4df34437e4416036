//! The request of a turn.

use super::Conversation;
use super::action::ModelCallAnnouncement;
use super::requests::{assistant, text, tool};
use crate::prompt::AgentPrompt;
use crate::tools::catalogue::Catalogue;
use ktsu_contract::report::Purpose;

impl Conversation {
    /// The request of the turn that is due. Whole at the beginning of an attempt, then what is new.
    pub(super) fn turn(&self, catalogue: &Catalogue) -> ModelCallAnnouncement {
        let offered = catalogue.offered();
        let calls = !offered.is_empty() || !self.rounds.is_empty();
        let last = calls && self.turns + 1 >= self.terms.max_turns;
        let offered = if last { Vec::new() } else { offered };
        let (base, over) = self.base.unzip();
        let mut messages = match base {
            None => self.prompt.first().into_iter().map(text).collect(),
            Some(_) => Vec::new(),
        };
        for (response, results) in self.rounds.iter().skip(over.unwrap_or(0)) {
            messages.push(assistant(*response));
            messages.extend(results.iter().copied().map(tool));
        }
        if last {
            messages.push(text(AgentPrompt::last_turn()));
        }
        let told = base
            .map(|base| self.requests.tools(base))
            .unwrap_or_default();
        let tools = (told != offered).then_some(offered);
        ModelCallAnnouncement {
            purpose: Purpose::Turn,
            base,
            messages,
            tools,
        }
    }
}
