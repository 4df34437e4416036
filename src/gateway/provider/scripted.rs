//! A provider that follows a script: rules, the replies of a recorded run, or both.
//!
//! It sees what a real model would see, the messages, the model and the group, and nothing else: a
//! script cannot know which step calls or why. So the prompts of a kit that works with a script
//! contain everything that a real model would need.
//!
//! With both sources, recorded replies take precedence over rules.

mod calls;
mod read;
mod recorded;
mod rules;
pub(crate) mod shape;
mod template;

use std::path::PathBuf;
use std::time::Duration;

use super::{ProviderCall, ProviderReply};
use crate::error::{Code, GatewayError};
use ktsu_config::fault::Faults;
use recorded::RecordedReplies;
use rules::{Rules, ScriptedOutcome};

/// A script, with the counts of what it has answered.
#[derive(Debug)]
pub(crate) struct Scripted {
    rules: Option<Rules>,
    recorded: Option<RecordedReplies>,
}

impl Scripted {
    /// Reads its files, each given by where it lies and how it is shown.
    pub(crate) fn load(
        rules: Option<(PathBuf, PathBuf)>,
        recorded: Option<(PathBuf, PathBuf)>,
        faults: &mut Faults,
    ) -> Option<Self> {
        let rules = rules.map(|(real, shown)| read::load(&real, &shown, faults));
        let recorded = recorded.map(|(real, shown)| RecordedReplies::load(&real, &shown, faults));
        // What was named and cannot be read is a fault, and no script.
        Some(Self {
            rules: rules.map(|read| read.ok_or(())).transpose().ok()?,
            recorded: recorded.map(|read| read.ok_or(())).transpose().ok()?,
        })
    }

    /// Answers by the script, after the delay it asks for.
    pub(super) async fn answer(&self, call: &ProviderCall) -> Result<ProviderReply, GatewayError> {
        let outcome = self.outcome(call);
        if !outcome.delay.is_zero() {
            tokio::time::sleep(outcome.delay).await;
        }
        outcome.result
    }

    fn outcome(&self, call: &ProviderCall) -> ScriptedOutcome {
        if let Some(recorded) = &self.recorded {
            if let Some(result) = recorded.answer(call) {
                return at_once(result);
            }
            if self.rules.is_none() {
                return at_once(Err(unknown("the recorded run holds no reply", call)));
            }
        }
        let found = self.rules.as_ref().and_then(|rules| rules.answer(call));
        found.unwrap_or_else(|| at_once(Err(unknown("no rule of the script answers", call))))
    }
}

fn at_once(result: Result<ProviderReply, GatewayError>) -> ScriptedOutcome {
    ScriptedOutcome {
        delay: Duration::ZERO,
        result,
    }
}

/// The refusal of a request that the script does not know, with enough of it to find it again.
fn unknown(what: &str, call: &ProviderCall) -> GatewayError {
    let last = call.messages.last();
    let role = last.map_or("", |message| message.role.as_str());
    let content = last.map_or("", |message| message.content.as_str());
    let shown: String = content.chars().take(120).collect();
    let words = format!(
        "{what} to this request to group {:?} with {} messages, the last from {role}: {shown:?}",
        call.group,
        call.messages.len(),
    );
    GatewayError::new(Code::ProviderError, words)
}

/// The tokens of a text for who does not count them: four characters each.
fn estimated(characters: usize) -> u64 {
    u64::try_from(characters.div_ceil(4)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
