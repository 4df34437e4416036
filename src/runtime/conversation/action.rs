//! The next action of a task: decided by the conversation, executed by the task.

use serde_json::Value;

use crate::tools::sessions::OutgoingCall;
use ktsu_contract::gateway::{ChatMessage, ToolDefinition};
use ktsu_contract::report::{Finished, OfferedTool, Purpose, ReportEvent, RequestMessage};

/// The next thing to do.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Action {
    /// Announce a model call.
    Call(Box<ModelCallAnnouncement>),
    /// Make the call that is announced.
    Ask(Box<ModelCallRequest>),
    /// Report a draft: the agent may reflect on it.
    Decide(Value),
    /// Report this, and go on with what is recorded of it.
    Report(Vec<ReportEvent>),
    /// Send these calls, which are announced.
    Send(Vec<OutgoingCall>),
    /// Wait for an answer to a call that is under way.
    Wait,
    /// People are asked: end without a word.
    Suspend,
    /// Report the end.
    Finish(Finished),
}

/// A model call to announce.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ModelCallAnnouncement {
    /// The purpose of the call.
    pub(crate) purpose: Purpose,
    /// The request it goes on from.
    pub(crate) base: Option<u64>,
    /// The messages that are new.
    pub(crate) messages: Vec<RequestMessage>,
    /// The tools, if they are others than those of the base.
    pub(crate) tools: Option<Vec<OfferedTool>>,
}

/// A model call to make.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ModelCallRequest {
    /// The announcement's number.
    pub(crate) seq: u64,
    /// The purpose of the call.
    pub(crate) purpose: Purpose,
    /// Its messages, as recorded.
    pub(crate) messages: Vec<ChatMessage>,
    /// Its tools, as recorded.
    pub(crate) tools: Vec<ToolDefinition>,
}

/// The limits that a task is bound to.
#[derive(Debug, Clone)]
pub(crate) struct ConversationLimits {
    /// Turns of the loop; 0 stands for ten.
    pub(crate) max_turns: u32,
    /// True if the output is the text of the reply.
    pub(crate) text_reply: bool,
    /// True if people can be asked.
    pub(crate) people: bool,
}

impl Action {
    /// A call of its own, with no tools.
    pub(super) fn alone(purpose: Purpose, messages: Vec<RequestMessage>) -> Self {
        Self::Call(Box::new(ModelCallAnnouncement {
            purpose,
            base: None,
            messages,
            tools: None,
        }))
    }
}
