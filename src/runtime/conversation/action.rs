//! What a task does next: an answer of the conversation, done by the task.

use serde_json::Value;

use crate::contract::gateway::{Message, Tool};
use crate::contract::report::{Event, Finished, Offered, Purpose, Told};
use crate::runtime::tools::sessions::Sending;

/// What to do now.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::runtime) enum Action {
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
pub(in crate::runtime) struct Announced {
    /// What for.
    pub(in crate::runtime) purpose: Purpose,
    /// The request it goes on from.
    pub(in crate::runtime) base: Option<u64>,
    /// The messages that are new.
    pub(in crate::runtime) messages: Vec<Told>,
    /// The tools, if they are others than those of the base.
    pub(in crate::runtime) tools: Option<Vec<Offered>>,
}

/// A model call to make.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::runtime) struct Asking {
    /// The announcement's number.
    pub(in crate::runtime) seq: u64,
    /// What for.
    pub(in crate::runtime) purpose: Purpose,
    /// Its messages, as recorded.
    pub(in crate::runtime) messages: Vec<Message>,
    /// Its tools, as recorded.
    pub(in crate::runtime) tools: Vec<Tool>,
}

/// What a task is bound to.
#[derive(Debug, Clone)]
pub(in crate::runtime) struct Terms {
    /// Turns of the loop; 0 stands for ten.
    pub(in crate::runtime) max_turns: u32,
    /// Whether people can be asked.
    pub(in crate::runtime) people: bool,
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
