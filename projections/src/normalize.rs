//! Frames and envelopes without what differs between any two runs: ids, times, durations, digests
//! of bytes, and frame numbers.
//!
//! Only members that ktsu itself wrote are removed. Values from people and models are kept whole,
//! whatever their members are called.

use std::collections::HashMap;
use std::fmt;

use ktsu_ledger::event::{ContinueReason, RunEvent, WorldEvent, is_address};
use ktsu_ledger::{Cause, Event, Frame};
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::envelope::Envelope;
use crate::step_name::path_in;

/// What a frame is about, whatever its number.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FrameKey {
    /// The inline child, relative to the run that is looked at.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schema(value_type = Option<String>)]
    pub scope: String,
    /// The step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// The item of a fan-out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub item: Option<u64>,
    /// The attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u64>,
    /// In a world: the object, the relation or the trigger that it is about, or what a responder asked
    /// or ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub about: Option<String>,
    /// The type of the frame.
    #[serde(rename = "type")]
    pub kind: String,
    /// How many frames before it are about the same.
    #[serde(skip_serializing_if = "crate::is_default")]
    #[schema(value_type = Option<u32>)]
    pub nth: u32,
}

impl FrameKey {
    /// The place that it belongs to: `step`, `child/step.2`; empty for what concerns the run.
    pub fn location(&self) -> String {
        let step = self.step.as_deref().unwrap_or_default();
        let path = path_in(&self.scope, step);
        match self.item {
            Some(item) => format!("{path}.{item}"),
            None => path,
        }
    }
}

impl fmt::Display for FrameKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.kind)?;
        match self.location() {
            none if none.is_empty() => {}
            place => write!(f, " {place}")?,
        }
        if let Some(about) = &self.about {
            write!(f, " {about}")?;
        }
        if let Some(attempt) = self.attempt.filter(|attempt| *attempt > 1) {
            write!(f, " attempt {attempt}")?;
        }
        match self.nth {
            0 => Ok(()),
            nth => write!(f, " ({})", nth + 1),
        }
    }
}

/// A frame, and what of it can be compared.
#[derive(Debug, Clone)]
pub struct NormalizedFrame<'a> {
    /// The frame.
    pub frame: &'a Frame,
    /// The key of the frame: what it is about.
    pub key: FrameKey,
    /// Its `data`, without what no two runs share. Numbers of frames are their keys, in words.
    pub data: Value,
}

/// The frames of a run, or of an inline child of it, as they can be compared.
pub fn frames<'a>(recorded: &'a [Frame], scope: &str) -> Vec<NormalizedFrame<'a>> {
    let mut seen: HashMap<FrameKey, u32> = HashMap::new();
    let mut names: HashMap<u64, String> = HashMap::with_capacity(recorded.len());
    let mut kept = Vec::with_capacity(recorded.len());
    for frame in recorded {
        let mut data = comparable_data(frame);
        let relative = relative(&frame.scope, scope);
        let mut key = key(frame, &data, relative.unwrap_or(&frame.scope));
        key.about = about(frame, &data, &names);
        let nth = seen.entry(key.clone()).or_default();
        key.nth = *nth;
        *nth += 1;
        names.insert(frame.seq, key.to_string());
        if relative.is_none() || is_idle(frame) {
            continue;
        }
        name_frames(frame, &mut data, &names);
        kept.push(NormalizedFrame { frame, key, data });
    }
    kept
}

/// An envelope as it can be compared: steps by id, so that one more of them moves no other.
pub fn envelope(envelope: &Envelope) -> Value {
    let Ok(Value::Object(mut members)) = serde_json::to_value(envelope) else {
        return Value::Null;
    };
    for name in ["run_id", "created_at", "ended_at"] {
        members.remove(name);
    }
    without_durations(members.get_mut("totals"));
    let steps = members.remove("steps");
    let steps = match steps {
        Some(Value::Array(steps)) => steps,
        _ => Vec::new(),
    };
    let by_id = steps.into_iter().filter_map(|mut step| {
        normalize_view(&mut step);
        let Value::Object(view) = &mut step else {
            return None;
        };
        let items = view.get_mut("items").and_then(Value::as_array_mut);
        items.into_iter().flatten().for_each(normalize_view);
        named(step)
    });
    let by_id: Map<String, Value> = by_id.collect();
    members.insert("steps".to_owned(), Value::Object(by_id));
    Value::Object(members)
}

fn named(mut step: Value) -> Option<(String, Value)> {
    let id = step.as_object_mut()?.remove("id")?;
    Some((id.as_str()?.to_owned(), step))
}

/// A step or an item of a fan-out.
fn normalize_view(view: &mut Value) {
    let Value::Object(members) = view else {
        return;
    };
    members.remove("started_at");
    members.remove("ended_at");
    without_durations(members.get_mut("metrics"));
}

fn without_durations(metrics: Option<&mut Value>) {
    if let Some(Value::Object(metrics)) = metrics {
        metrics.remove("duration_ms");
        metrics.remove("waited_ms");
    }
}

/// The scope below another one; none if it lies elsewhere.
pub(crate) fn relative<'a>(scope: &'a str, outer: &str) -> Option<&'a str> {
    if outer.is_empty() {
        return Some(scope);
    }
    let rest = scope.strip_prefix(outer)?;
    match rest {
        "" => Some(rest),
        _ => rest.strip_prefix('/'),
    }
}

fn key(frame: &Frame, data: &Value, scope: &str) -> FrameKey {
    let number = |name: &str| data.get(name).and_then(Value::as_u64);
    let foreign = matches!(frame.event, Event::Foreign { .. });
    let step = data.get("step").and_then(Value::as_str);
    // The step of a failed run is what it says, not what it is about.
    let about = frame.event.kind() != "run.failed" && !foreign;
    FrameKey {
        scope: scope.to_owned(),
        step: step.filter(|_| about).map(str::to_owned),
        item: number("item").filter(|_| about),
        attempt: number("attempt").filter(|_| about),
        about: None,
        kind: frame.event.kind().to_owned(),
        nth: 0,
    }
}

/// The subject of a frame of a world, whatever its number: replies come in any order.
fn about(frame: &Frame, data: &Value, names: &HashMap<u64, String>) -> Option<String> {
    let text = |name: &str| data.get(name).and_then(Value::as_str);
    match &frame.event {
        Event::World(WorldEvent::Fired(_)) => match frame.cause.first()? {
            Cause::Here(seq) => names.get(seq).cloned(),
            Cause::There(..) => None,
        },
        Event::World(event) => event
            .subject()
            .or_else(|| text("address"))
            .map(str::to_owned),
        Event::Agent(_) | Event::Worker(_) | Event::Step(_) => {
            let address = text("responder").filter(|address| is_address(address));
            address.map(str::to_owned)
        }
        Event::Run(RunEvent::TimerFired(fired)) => {
            let Cause::Here(event) = frame.cause.first()? else {
                return None;
            };
            let responder = fired.responder.as_ref()?;
            Some(format!("{responder} after {}", names.get(event)?))
        }
        Event::Run(_)
        | Event::Recompute(_)
        | Event::Item(_)
        | Event::Webhook(_)
        | Event::Person(_)
        | Event::Kv(_)
        | Event::Delivery(_)
        | Event::Eval(_)
        | Event::Store(_)
        | Event::Foreign { .. } => None,
    }
}

/// Returns `true` if a frame only says that nothing was due: how often that happens depends on when
/// inputs came.
fn is_idle(frame: &Frame) -> bool {
    let Event::Run(RunEvent::Continued(continued)) = &frame.event else {
        return false;
    };
    continued.why == ContinueReason::Idle
}

/// The members of `data` that no two runs share, by type.
fn volatile(kind: &str) -> &'static [&'static str] {
    match kind {
        // The digest names the definition, and a lock says nothing else of it.
        "run.created" => &[
            "definition",
            "idempotency_digest",
            "idempotency_key",
            "lock",
        ],
        // The name of a branch is its own, whatever it was forked from.
        "branch.created" => &["branch_id", "definition"],
        "clock.jumped" => &["clock", "forward_ms", "last"],
        "llm.request" => &["base", "digest", "report"],
        "llm.response" => &[
            "duration_ms",
            "input_hash",
            "output_hash",
            "report",
            "request",
        ],
        "agent.decided" | "agent.finished" | "budget.exhausted" => &["report"],
        "webhook.sent" => &["delivery_id"],
        "webhook.delivered" | "webhook.failed" => &["duration_ms"],
        _ => &[],
    }
}

fn comparable_data(frame: &Frame) -> Value {
    let mut data = frame.event.data();
    if let Value::Object(members) = &mut data {
        for name in volatile(frame.event.kind()) {
            members.remove(*name);
        }
        let attempts = members.get_mut("attempts").and_then(Value::as_array_mut);
        for attempt in attempts.into_iter().flatten() {
            if let Value::Object(attempt) = attempt {
                attempt.remove("duration_ms");
            }
        }
    }
    data
}

/// Puts keys in place of the numbers of frames that ktsu wrote: in `input`, `output_from` and
/// their like, all of them members of `data` or one level below.
fn name_frames(frame: &Frame, data: &mut Value, names: &HashMap<u64, String>) {
    if matches!(frame.event, Event::Foreign { .. }) {
        return;
    }
    let Value::Object(members) = data else {
        return;
    };
    for (name, member) in members {
        match (name.as_str(), member) {
            ("input", Value::Object(given)) => {
                for one in given.values_mut() {
                    name_given(one, names);
                }
            }
            (name, reference) if name.ends_with("_from") || name == "from" => {
                name_reference(reference, names);
            }
            _ => {}
        }
    }
}

/// `{ref: {frame, path}}` or `{value: {from: […], value}}`.
fn name_given(given: &mut Value, names: &HashMap<u64, String>) {
    if let Some(reference) = given.get_mut("ref") {
        return name_reference(reference, names);
    }
    let from = given.get_mut("value").and_then(|one| one.get_mut("from"));
    for number in from.and_then(Value::as_array_mut).into_iter().flatten() {
        name_number(number, names);
    }
}

fn name_reference(reference: &mut Value, names: &HashMap<u64, String>) {
    if let Some(number) = reference.get_mut("frame") {
        name_number(number, names);
    }
}

fn name_number(number: &mut Value, names: &HashMap<u64, String>) {
    if let Some(name) = number.as_u64().and_then(|seq| names.get(&seq)) {
        *number = Value::from(name.as_str());
    }
}
