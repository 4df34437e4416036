//! Commands: what a step or a responder asks for besides its output (seed 004). Data, not execution.
//!
//! ```text
//! agent.finished {outcome {output, events, commands}}
//!   └─▶ step.output_checked ─▶ note … ─▶ command.requested … ─▶ step.completed     one append
//! responder.fired ─▶ command.requested
//! ```
//!
//! A command of a step names the place in the outcome where it stands; one of a responder, which no
//! other frame contains, brings its payload. What becomes of it outside is not recorded in the run.

use serde::{Deserialize, Serialize};

use super::place::{Derivation, Reference};
use crate::canonical::CanonicalJson;

/// The persisted name of the type that steps and responders share.
pub(super) const COMMAND_REQUESTED: &str = "command.requested";
/// The persisted name of remarks about a world and of events of an outcome.
pub(super) const NOTE: &str = "note";

/// Which command it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CommandKind {
    /// Something is told to other systems.
    Emit,
}

/// `command.requested` of a step: a command of an outcome that passed the air-lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepCommand {
    /// The task's attempt.
    pub attempt: u32,
    /// Where the command stands.
    pub command: Reference,
    /// Its position among the commands of the outcome.
    pub index: u32,
    /// The item of a fan-out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<u32>,
    /// The step.
    pub step: String,
    /// Whether nothing is sent: in a branch that suppresses effects, in a recompute, and where a
    /// webhook would not be sent either.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suppressed: bool,
    /// What it is about.
    pub topic: String,
    /// Which command.
    #[serde(rename = "type")]
    pub kind: CommandKind,
}

/// `command.requested` of a responder: its `publish`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorldCommand {
    /// Where it comes from. The entry of a `publish` is the one behind those of `emit` or `then`.
    pub derived: Derivation,
    /// What is told. Absent: null.
    #[serde(default, skip_serializing_if = "CanonicalJson::is_null")]
    pub payload: CanonicalJson,
    /// Whether nothing is sent: in a branch that suppresses effects.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suppressed: bool,
    /// What it is about.
    pub topic: String,
    /// Which command.
    #[serde(rename = "type")]
    pub kind: CommandKind,
}

/// `note` of a step: an audit event of an outcome.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepNote {
    /// The task's attempt.
    pub attempt: u32,
    /// Where the event stands: its type, its payload, and the trace of a model call.
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
