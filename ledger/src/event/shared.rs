//! Types of frames that steps and worlds share: which of the two a frame is about.

use serde::Deserialize;

use super::Event;
use super::command::{CommandKind, StepCommand, StepNote, WorldCommand};
use super::place::{Derivation, Reference};
use super::start::Principal;
use super::step::StepEvent;
use super::world::{Note, Post, WorldEvent};
use crate::canonical::CanonicalJson;

/// The members of both shapes of `command.requested`.
#[derive(Deserialize)]
pub(super) struct AnyCommand {
    attempt: Option<u32>,
    command: Option<Reference>,
    derived: Option<Derivation>,
    index: Option<u32>,
    item: Option<u32>,
    #[serde(default)]
    payload: CanonicalJson,
    step: Option<String>,
    #[serde(default)]
    suppressed: bool,
    target: Option<String>,
    topic: Option<String>,
    #[serde(rename = "type")]
    kind: CommandKind,
}

impl AnyCommand {
    /// The event of the subject that it is about.
    pub(super) fn into_event(self) -> Result<Event, &'static str> {
        let Self {
            item,
            suppressed,
            target,
            topic,
            kind,
            ..
        } = self;
        match kind {
            CommandKind::Fanout | CommandKind::Invoke if target.is_none() => {
                return Err("a command runs nothing");
            }
            CommandKind::Emit if topic.is_none() => return Err("a command has no topic"),
            CommandKind::Review if target.is_some() || topic.is_some() => {
                return Err("a review has a target or a topic");
            }
            CommandKind::Suspend if target.is_some() || topic.is_some() => {
                return Err("a suspension has a target or a topic");
            }
            CommandKind::Emit
            | CommandKind::Fanout
            | CommandKind::Invoke
            | CommandKind::Review
            | CommandKind::Suspend => {}
        }
        if let Some(derived) = self.derived {
            return Ok(Event::World(WorldEvent::Commanded(WorldCommand {
                derived,
                payload: self.payload,
                suppressed,
                topic: topic.ok_or("a responder's command has no topic")?,
                kind,
            })));
        }
        Ok(Event::Step(StepEvent::Commanded(StepCommand {
            attempt: self.attempt.ok_or("a command has no attempt")?,
            command: self.command.ok_or("a command is nowhere")?,
            index: self.index.ok_or("a command has no index")?,
            item,
            step: self.step.ok_or("a command has no step")?,
            suppressed,
            target,
            topic,
            kind,
        })))
    }
}

/// The members of both shapes of `note`.
#[derive(Deserialize)]
pub(super) struct AnyNote {
    attempt: Option<u32>,
    by: Option<Principal>,
    #[serde(default)]
    data: CanonicalJson,
    derived: Option<Derivation>,
    event: Option<Reference>,
    index: Option<u32>,
    item: Option<u32>,
    post: Option<Post>,
    step: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
}

impl AnyNote {
    /// The event of the subject that it is about.
    pub(super) fn into_event(self) -> Result<Event, &'static str> {
        let Some(step) = self.step else {
            return Ok(Event::World(WorldEvent::Noted(Note {
                by: self.by,
                data: self.data,
                derived: self.derived,
                post: self.post,
            })));
        };
        Ok(Event::Step(StepEvent::Noted(StepNote {
            attempt: self.attempt.ok_or("a note has no attempt")?,
            event: self.event.ok_or("a note is nowhere")?,
            index: self.index.ok_or("a note has no index")?,
            item: self.item,
            step,
            kind: self.kind.ok_or("a note has no type")?,
        })))
    }
}
