//! Frames without their content, for those who look for a few among many.

use std::borrow::Cow;

use serde::Deserialize;

use crate::event::Event;
use crate::frame::{Frame, FrameError, Record, unread};
use crate::frame_body::{FrameContent, ParsedBody, parse_body};
use crate::hash::Hash;
use crate::id::{Actor, Cause, StreamId};

/// A frame without its content: what it is about, and its place among the others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrameHead {
    /// The stream it belongs to.
    pub stream: StreamId,
    /// Its number there.
    pub seq: u64,
    /// Its type.
    pub kind: String,
    /// The inline child it belongs to; empty for the run itself.
    pub scope: String,
    /// Its author.
    pub actor: Actor,
    /// The frames it follows from.
    pub cause: Vec<Cause>,
    /// The step it is about, or the item of a step ([`Event::task`]).
    pub task: Option<(String, Option<u32>)>,
    /// The hash of the frame before it.
    pub prev: Hash,
}

impl From<&Frame> for FrameHead {
    fn from(frame: &Frame) -> Self {
        Self {
            stream: frame.stream.clone(),
            seq: frame.seq,
            kind: frame.event.kind().to_owned(),
            scope: frame.scope.clone(),
            actor: frame.actor.clone(),
            cause: frame.cause.clone(),
            task: task_of(&frame.event),
            prev: frame.prev,
        }
    }
}

impl Record {
    /// Reads what the stored bytes say beside their content. Of the content of frequent types, no more is read
    /// than the step, so that a few frames in many are found soon.
    ///
    /// # Errors
    /// [`FrameError`], also for some content that cannot be read.
    pub fn decode_head(&self) -> Result<FrameHead, FrameError> {
        let body: ParsedBody<'_, HeadContent> = parse_body(&self.body).map_err(unread)?;
        Ok(FrameHead {
            stream: body.stream,
            seq: body.seq,
            kind: body.kind.into_owned(),
            scope: body.scope,
            actor: body.actor,
            cause: body.cause,
            task: body.content.0,
            prev: body.prev,
        })
    }
}

fn task_of(event: &Event) -> Option<(String, Option<u32>)> {
    let task = event.task();
    task.map(|(step, item)| (step.to_owned(), item))
}

/// The task that an event is about.
struct HeadContent(Option<(String, Option<u32>)>);

/// Those members of `data` that name a task.
#[derive(Deserialize)]
struct NamedTask<'a> {
    #[serde(borrow, alias = "responder")]
    step: Cow<'a, str>,
    #[serde(default)]
    item: Option<u32>,
}

impl FrameContent for HeadContent {
    fn read_data<'de, D: serde::Deserializer<'de>>(kind: &str, data: D) -> Result<Self, D::Error> {
        match kind {
            "item.started"
            | "item.completed"
            | "item.failed"
            | "llm.request"
            | "llm.response"
            | "agent.decided"
            | "agent.finished"
            | "tool.called"
            | "tool.returned"
            | "worker.dispatched"
            | "reserved.evaluated"
            | "step.output_checked" => {
                let task = NamedTask::deserialize(data)?;
                Ok(Self(Some((task.step.into_owned(), task.item))))
            }
            _ => Event::deserialize_data(kind, data).map(|event| Self(task_of(&event))),
        }
    }
}
