//! The commands that the calls of a model gave: those of `ktsu/commands` that were accepted, whose
//! arguments its replies hold.

use std::collections::BTreeMap;

use ktsu_contract::report::COMMANDS_SERVER;
use ktsu_ledger::event::{ToolCalled, ToolReturned};
use ktsu_secret::REDACTED;
use ktsu_workflow::rules::DecisionRules;
use serde_json::Value;

/// The commands that a task gave by calls of tools since it began.
#[derive(Default)]
pub(super) struct CalledCommands {
    /// The last reply, and what it asks for.
    reply: u64,
    calls: Vec<Value>,
    /// The tools of `ktsu/commands` that were called, by the frames that say so.
    sent: BTreeMap<u64, String>,
    /// True if any of them was called.
    asks: bool,
    accepted: Vec<AcceptedCommand>,
}

/// A command, where its result is and where its call.
struct AcceptedCommand {
    returned: u64,
    call: (u64, u32),
    command: Value,
}

impl CalledCommands {
    pub(super) fn reply(&mut self, seq: u64, calls: Vec<Value>) {
        (self.reply, self.calls) = (seq, calls);
    }

    pub(super) fn send(&mut self, seq: u64, called: &ToolCalled) {
        if called.server == COMMANDS_SERVER {
            self.sent.insert(seq, called.tool.clone());
            self.asks = true;
        }
    }

    /// Removes a call in doubt: what a person says of it gives no command.
    pub(super) fn doubt(&mut self, called: u64) {
        self.sent.remove(&called);
    }

    pub(super) fn answer(&mut self, seq: u64, returned: &ToolReturned) {
        let tool = returned.called.and_then(|called| self.sent.get(&called));
        let call = self.calls.get(returned.call as usize);
        let arguments = call.and_then(|call| call.get("arguments")?.as_object());
        let counts = !returned.is_error && returned.response == self.reply;
        if let (Some(tool), Some(arguments), true) = (tool, arguments, counts) {
            let mut command = arguments.clone();
            command.insert("type".to_owned(), Value::from(tool.as_str()));
            self.accepted.push(AcceptedCommand {
                returned: seq,
                call: (returned.response, returned.call),
                command: Value::Object(command),
            });
        }
    }

    /// Returns `Some(true)` if these are the commands that the calls gave, in the order of the
    /// calls in the replies or, where the rules allow it, of the results. `None` if the model
    /// called for none.
    pub(super) fn give(&self, commands: &[Value], rules: Option<DecisionRules>) -> Option<bool> {
        let in_order = |key: &dyn Fn(&AcceptedCommand) -> (u64, u32)| {
            let mut accepted: Vec<&AcceptedCommand> = self.accepted.iter().collect();
            accepted.sort_by_key(|one| key(one));
            let mut once: Vec<&Value> = Vec::new();
            for one in accepted {
                // A command that is asked for twice counts once.
                if !once.contains(&&one.command) {
                    once.push(&one.command);
                }
            }
            once.into_iter().eq(commands)
        };
        let by_call = rules.is_some_and(DecisionRules::commands_have_the_order_of_calls);
        self.asks
            .then(|| in_order(&|one| one.call) || (!by_call && in_order(&|one| (one.returned, 0))))
    }

    /// Returns `true` if there was a secret in one of them.
    pub(super) fn is_hidden(&self) -> bool {
        let mut accepted = self.accepted.iter();
        accepted.any(|one| one.command.to_string().contains(REDACTED))
    }
}
