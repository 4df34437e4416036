//! The messages of steps and responders to other systems, as subscribers to topics get them.

use std::borrow::Cow;

use ktsu_ledger::branch::{Ancestry, Blobs};
use ktsu_ledger::event::{Reference, StepEvent, WorldEvent};
use ktsu_ledger::store::{Reader, StoreError};
use ktsu_ledger::{Event, Frame, StreamId};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::event_page::AppendedFrame;

/// The part of a `command.requested` that says whether anybody is told.
#[derive(Deserialize)]
struct CommandHead<'a> {
    #[serde(borrow)]
    data: CommandTopic<'a>,
}

#[derive(Deserialize)]
struct CommandTopic<'a> {
    #[serde(default)]
    suppressed: bool,
    #[serde(borrow)]
    topic: Cow<'a, str>,
}

/// The topic that a frame tells something about, unless it is suppressed; nothing for a frame of
/// another type.
pub fn topic_of(frame: &AppendedFrame) -> Option<String> {
    if frame.kind != "command.requested" {
        return None;
    }
    let head: CommandHead<'_> = serde_json::from_str(frame.body()).ok()?;
    (!head.data.suppressed).then(|| head.data.topic.into_owned())
}

/// The message of a frame: `{at, frame, payload, run_id, topic}`, and its sender: `step`, with
/// `scope` and `item` where there are any, or `responder`. JSON.
///
/// # Errors
/// [`StoreError`]; [`StoreError::Damaged`] if its payload is not where the frame says.
pub fn told(reader: &dyn Reader, frame: &AppendedFrame) -> Result<String, StoreError> {
    let mut blobs = Blobs::new(reader);
    let decoded = blobs.decode(&frame.run, frame.record())?;
    let mut members = Map::new();
    let mut add = |name: &str, value: Value| members.insert(name.to_owned(), value);
    match &decoded.event {
        Event::Step(StepEvent::Commanded(command)) => {
            add("topic", json!(command.topic.as_deref().unwrap_or_default()));
            let place = &command.command;
            add("payload", payload(reader, &mut blobs, (&frame.run, place))?);
            add("step", json!(command.step));
            if let Some(item) = command.item {
                add("item", json!(item));
            }
        }
        Event::World(WorldEvent::Commanded(command)) => {
            add("topic", json!(command.topic));
            add("payload", command.payload.to_value());
            add("responder", json!(command.derived.responder));
        }
        _ => {
            let why = format!("{}: it publishes nothing", frame.id());
            return Err(StoreError::Damaged(why));
        }
    }
    if !decoded.scope.is_empty() {
        add("scope", json!(decoded.scope));
    }
    add("at", json!(decoded.at));
    add("frame", json!(frame.id()));
    add("run_id", json!(frame.run.name()));
    Ok(Value::Object(members).to_string())
}

/// The payload of a command that stands in an earlier frame of the run, which a branch may share.
fn payload(
    reader: &dyn Reader,
    blobs: &mut Blobs<'_>,
    (run, place): (&StreamId, &Reference),
) -> Result<Value, StoreError> {
    let path = Ancestry::of(reader, run)?;
    let missing = || StoreError::Damaged(format!("{run}#{}: no command is there", place.frame));
    let record = path.read(reader, place.frame, 1)?;
    let record = record.first().ok_or_else(missing)?;
    let owner = path.owner(place.frame).unwrap_or(run);
    let named: Frame = blobs.decode(owner, record)?;
    let command = named.event.data();
    let command = command.pointer(&place.path).ok_or_else(missing)?;
    Ok(command.get("payload").cloned().unwrap_or_default())
}
