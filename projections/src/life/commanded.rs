//! The commands that a model gives by tools, before there is an outcome.

use std::collections::BTreeSet;

use ktsu_ledger::event::ToolReturned;

use super::call::{CallState, RequestedCall, RequestedCalls};

/// The server whose tools are commands.
pub const COMMANDS_SERVER: &str = "ktsu/commands";

/// The tools for commands that make the step wait, of which an outcome has one.
const BLOCKING: [&str; 2] = ["review", "suspend"];

/// The commands of a task that were accepted, each once: its tool, and the digest of its arguments.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModelCommands(BTreeSet<(String, String)>);

impl ModelCommands {
    /// Takes the result of a call.
    pub(crate) fn returned(&mut self, calls: &RequestedCalls, result: &ToolReturned) {
        let call = calls.get(result.response, result.call);
        if let Some(command) = call.and_then(command).filter(|_| !result.is_error) {
            self.0.insert(command);
        }
    }

    /// Returns `true` if a call makes its step wait otherwise than one that was accepted, or than
    /// an earlier call which is under way and passes `judged`: an outcome has one such command.
    pub fn blocks(
        &self,
        calls: &RequestedCalls,
        call: &RequestedCall,
        judged: impl Fn(&RequestedCall) -> bool,
    ) -> bool {
        let Some(own) = command(call).filter(is_blocking) else {
            return false;
        };
        let earlier = calls.list.iter().take_while(|one| *one != call);
        let earlier = earlier.filter(|one| judged(one)).filter_map(command);
        let mut all = earlier.chain(self.0.iter().cloned());
        all.any(|other| is_blocking(&other) && other != own)
    }

    /// Number of other commands that come before a call of the last reply: those that were
    /// accepted, and those of earlier calls that are under way and pass `judged`. Nothing if the
    /// call is one of them again.
    pub fn before(
        &self,
        calls: &RequestedCalls,
        call: &RequestedCall,
        judged: impl Fn(&RequestedCall) -> bool,
    ) -> Option<usize> {
        let own = command(call)?;
        let earlier = calls.list.iter().take_while(|one| *one != call);
        let earlier = earlier.filter(|one| judged(one)).filter_map(command);
        let earlier: BTreeSet<(String, String)> = earlier.collect();
        let again = self.0.contains(&own) || earlier.contains(&own);
        (!again).then(|| self.0.union(&earlier).count())
    }
}

/// Returns `true` if a command makes its step wait.
fn is_blocking((tool, _): &(String, String)) -> bool {
    BLOCKING.contains(&tool.as_str())
}

/// The command that a call on its way gives.
fn command(call: &RequestedCall) -> Option<(String, String)> {
    let CallState::Sent(sending) = &call.state else {
        return None;
    };
    let commands = sending.server == COMMANDS_SERVER;
    commands.then(|| (sending.tool.clone(), call.digest.clone()))
}
