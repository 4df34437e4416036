//! Commands: what a step or a responder asks for besides its output (seed 004). Data, not execution.
//!
//! ```text
//! agent.finished {outcome {output, events, commands}}
//!   └─▶ step.output_checked ─▶ note … ─▶ command.requested … ─▶ step.completed     one append
//! responder.fired ─▶ command.requested
//!
//! command.requested ─▶ run.started of STEP/NAME.0 … ─▶ run.completed ─▶ command.completed
//! ```
//!
//! A command of a step names its place in the outcome; one of a responder, which no
//! other frame contains, brings its payload. What becomes of it outside is not recorded in the run.

use serde::{Deserialize, Serialize};

use super::place::{Derivation, Reference};
use crate::canonical::CanonicalJson;

/// The persisted name of the type that steps and responders share.
pub(super) const COMMAND_REQUESTED: &str = "command.requested";
/// The persisted name of remarks about a world and of events of an outcome.
pub(super) const NOTE: &str = "note";

/// The kind of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CommandKind {
    /// A message is sent to other systems.
    Emit,
    /// A workflow runs inline for each of some inputs.
    Fanout,
    /// A workflow runs inline.
    Invoke,
    /// A person decides on the outcome first.
    Review,
    /// The step waits for data, and runs again with them.
    Suspend,
}

impl CommandKind {
    /// The persisted form.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Emit => "emit",
            Self::Fanout => "fanout",
            Self::Invoke => "invoke",
            Self::Review => "review",
            Self::Suspend => "suspend",
        }
    }

    /// Returns `true` if it runs workflows inline.
    pub fn invokes(self) -> bool {
        matches!(self, Self::Fanout | Self::Invoke)
    }
}

/// `command.requested` of a step: a command of an outcome that passed the air-lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepCommand {
    /// The task's attempt.
    pub attempt: u32,
    /// The place of the command in the outcome.
    pub command: Reference,
    /// Its position among the commands of the outcome.
    pub index: u32,
    /// The item of a fan-out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<u32>,
    /// The step.
    pub step: String,
    /// True if nothing comes of it. Nothing is sent in a run or a branch that suppresses effects,
    /// in a recompute, and where a webhook would not be sent either; nothing runs in a recompute.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suppressed: bool,
    /// Of what runs workflows: the name of one in the step's `may_invoke`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The topic of the message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topic: Option<String>,
    /// The kind of the command.
    #[serde(rename = "type")]
    pub kind: CommandKind,
}

/// `command.completed`: every child that a command runs has ended well.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandCompleted {
    /// The task's attempt.
    pub attempt: u32,
    /// The ends of its children, in the order of their inputs: each has an output, or the place of
    /// one.
    #[serde(
        default,
        deserialize_with = "super::null_is_empty",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub children: Vec<u64>,
    /// The command's position among those of the outcome.
    pub index: u32,
    /// The item of a fan-out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<u32>,
    /// The `command.requested`.
    pub request: u64,
    /// The step.
    pub step: String,
}

/// `command.requested` of a responder: its `publish`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorldCommand {
    /// Its origin. The entry of a `publish` is the one after those of `emit` or `then`.
    pub derived: Derivation,
    /// The message. Absent: null.
    #[serde(default, skip_serializing_if = "CanonicalJson::is_null")]
    pub payload: CanonicalJson,
    /// True if nothing is sent: in a run or a branch that suppresses effects.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suppressed: bool,
    /// The topic of the message.
    pub topic: String,
    /// The kind of the command.
    #[serde(rename = "type")]
    pub kind: CommandKind,
}

/// `note` of a step: an audit event of an outcome.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepNote {
    /// The task's attempt.
    pub attempt: u32,
    /// The place of the event: its type, its payload, and the trace of a model call.
    pub event: Reference,
    /// Its position among the events of the outcome.
    pub index: u32,
    /// The item of a fan-out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<u32>,
    /// The step.
    pub step: String,
    /// The type of the event.
    #[serde(rename = "type")]
    pub kind: String,
}
