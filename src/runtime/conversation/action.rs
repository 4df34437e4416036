//! What a task does next: an answer of the conversation, done by the task.

use serde_json::Value;

use crate::tools::sessions::Sending;
use ktsu_contract::gateway::{Message, Tool};
use ktsu_contract::report::{Event, Finished, Offered, Purpose, Told};

/// What to do now.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Action {
    /// Announce a model call.
    Call(Box<Announced>),
    /// Make the call that is announced.
    Ask(Box<Asking>),
    /// Report a draft: the agent may reflect on it.
    Decide(Value),
    /// Report this, and go on with what is recorded of it.
    Report(Vec<Event>),
    /// Send these calls, which are announced.
    Send(Vec<Sending>),
    /// Wait for an answer to a call that is under way.
    Wait,
    /// People are asked: end without a word.
    Suspend,
    /// Report the end.
    Finish(Finished),
}

/// A model call to announce.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Announced {
    /// What for.
    pub(crate) purpose: Purpose,
    /// The request it goes on from.
    pub(crate) base: Option<u64>,
    /// The messages that are new.
    pub(crate) messages: Vec<Told>,
    /// The tools, if they are others than those of the base.
    pub(crate) tools: Option<Vec<Offered>>,
}

/// A model call to make.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Asking {
    /// The announcement's number.
    pub(crate) seq: u64,
    /// What for.
    pub(crate) purpose: Purpose,
    /// Its messages, as recorded.
    pub(crate) messages: Vec<Message>,
    /// Its tools, as recorded.
    pub(crate) tools: Vec<Tool>,
}

/// What a task is bound to.
#[derive(Debug, Clone)]
pub(crate) struct Terms {
    /// Turns of the loop; 0 stands for ten.
    pub(crate) max_turns: u32,
    /// Whether people can be asked.
    pub(crate) people: bool,
}

impl Action {
    /// A call of its own, with no tools.
    pub(super) fn alone(purpose: Purpose, messages: Vec<Told>) -> Self {
        Self::Call(Box::new(Announced {
            purpose,
            base: None,
            messages,
            tools: None,
        }))
    }
}
