//! The comparison of what responders made on the way: frames whose traces later frames covered are
//! compared, too.
//!
//! A frame is matched by what led to it: its trigger, its responder, its item and its entry.

use std::collections::BTreeMap;

use ktsu_ledger::event::{Derivation, WorldEvent};
use ktsu_ledger::{Cause, Event, Frame};
use ktsu_projections::{normalize, value_diff};
use serde_json::Value;

use super::super::DivergenceKind::{Firing, Object, Publish, Relation};
use super::super::{Divergence, DivergenceKind};

/// The origin of a frame: the trigger in words, the responder, the item, the entry.
type OutputKey = (String, Option<String>, Option<u32>, u32);

/// A frame that a responder, or the goal of the run, made.
struct Made {
    seq: u64,
    what: DivergenceKind,
    /// `/objects/ID`, `/relations/ID`, `/responders/NAME/TRIGGER`.
    place: String,
    is_patch: bool,
    data: Value,
}

/// Adds what differs in frames on the way to what differs in the end. Where a place is named already,
/// it gets the first recorded frame in which it differs.
pub(super) fn compare(
    recorded: &[Frame],
    as_recorded: &[Frame],
    decided: &[Frame],
    found: &mut Vec<Divergence>,
) {
    let (was, is) = (made(as_recorded), made(decided));
    let numbers: BTreeMap<OutputKey, u64> = made(recorded)
        .into_iter()
        .map(|(key, made)| (key, made.seq))
        .collect();
    for (key, old) in &was {
        let frame = numbers.get(key).copied().or(Some(old.seq));
        match is.get(key) {
            None => {
                for (place, value) in old.parts() {
                    add(
                        found,
                        of_world(old.what, &place, frame, (Some(value), None)),
                    );
                }
            }
            Some(new) if new.place != old.place => {
                let sides = (Some(old.data.clone()), Some(new.data.clone()));
                add(found, of_world(old.what, &old.place, frame, sides));
            }
            Some(new) => {
                for change in value_diff::diff(&old.data, &new.data) {
                    let field = format!("{}{}", old.place, change.path);
                    let sides = (change.before, change.after);
                    add(found, of_world(old.what, &field, frame, sides));
                }
            }
        }
    }
    for (_, new) in is.iter().filter(|(key, _)| !was.contains_key(*key)) {
        for (place, value) in new.parts() {
            add(found, of_world(new.what, &place, None, (None, Some(value))));
        }
    }
}

impl Made {
    /// The parts that are named where the other side has no such frame: of a patch each field, as
    /// where a field differs; of anything else all of it.
    fn parts(&self) -> Vec<(String, Value)> {
        match (self.is_patch, self.data["data"].as_object()) {
            (true, Some(fields)) => {
                let fields = fields.iter();
                let part = |name: &str| format!("{}/data/{}", self.place, escaped(name));
                fields
                    .map(|(name, value)| (part(name), value.clone()))
                    .collect()
            }
            _ => vec![(self.place.clone(), self.data.clone())],
        }
    }
}

fn add(found: &mut Vec<Divergence>, one: Divergence) {
    // What is on one side only is named as a whole.
    let covers = |known: &Divergence| {
        let rest = one.field.strip_prefix(known.field.as_str());
        let below = rest.is_some_and(|rest| rest.starts_with('/'));
        let whole = known.history.is_none() || known.decided.is_none();
        known.what == one.what && (known.field == one.field || (below && whole))
    };
    match found.iter_mut().find(|known| covers(known)) {
        Some(known) => {
            let first = [known.frame, one.frame].into_iter().flatten().min();
            known.frame = first;
        }
        None => found.push(one),
    }
}

fn made(frames: &[Frame]) -> BTreeMap<OutputKey, Made> {
    let normalized = normalize::frames(frames, "");
    let names: BTreeMap<u64, String> = normalized
        .iter()
        .map(|kept| (kept.frame.seq, kept.key.to_string()))
        .collect();
    let mut all = BTreeMap::new();
    for frame in frames {
        let Event::World(event) = &frame.event else {
            continue;
        };
        let trigger = match frame.cause.first() {
            Some(Cause::Here(seq)) => names.get(seq).cloned().unwrap_or_default(),
            Some(Cause::There(..)) | None => String::new(),
        };
        let Some((derived, what, place)) = output(event, &trigger) else {
            continue;
        };
        let trigger = derived
            .responder
            .as_ref()
            .map_or(String::new(), |_| trigger);
        let key = (trigger, derived.responder, derived.item, derived.entry);
        let data = shown(event, frame.event.data());
        let seq = frame.seq;
        all.entry(key).or_insert(Made {
            seq,
            what,
            place,
            is_patch: matches!(event, WorldEvent::ObjectPatched(_)),
            data,
        });
    }
    all
}

/// The derivation of a frame, and its subject; `None` for one that no entry made.
fn output(event: &WorldEvent, trigger: &str) -> Option<(Derivation, DivergenceKind, String)> {
    let reaction = |responder: Option<&str>| {
        let responder = place("responders", responder.unwrap_or_default());
        format!("{responder}/{}", escaped(trigger))
    };
    let (what, place) = match event {
        WorldEvent::ObjectCreated(_) | WorldEvent::ObjectPatched(_) => {
            (Object, place("objects", event.subject()?))
        }
        WorldEvent::RelationCreated(_) | WorldEvent::RelationRemoved(_) => {
            (Relation, place("relations", event.subject()?))
        }
        WorldEvent::Commanded(command) => (Publish, reaction(command.derived.responder.as_deref())),
        WorldEvent::Rejected(rejected) => (Firing, reaction(rejected.derived.responder.as_deref())),
        WorldEvent::Failed(failed) => {
            let derived = Derivation {
                entry: failed.entry.unwrap_or(u32::MAX),
                item: failed.item,
                responder: Some(failed.responder.clone()),
            };
            // What was rejected stands before it.
            return failed
                .entry
                .is_none()
                .then(|| (derived, Firing, reaction(Some(&failed.responder))));
        }
        WorldEvent::Noted(_)
        | WorldEvent::Fired(_)
        | WorldEvent::Completed(_)
        | WorldEvent::Loaded(_)
        | WorldEvent::BudgetExhausted(_)
        | WorldEvent::BudgetRaised(_) => return None,
    };
    Some((event.derived()?.clone(), what, place))
}

/// The data of a frame without what follows from its place; a patch as the data that it replaces.
fn shown(event: &WorldEvent, mut data: Value) -> Value {
    if let Value::Object(members) = &mut data {
        for name in ["address", "derived", "id", "key", "withheld"] {
            members.remove(name);
        }
        if matches!(event, WorldEvent::ObjectPatched(_))
            && let Some(patch) = members.remove("patch")
        {
            members.insert("data".to_owned(), patch);
        }
    }
    data
}

pub(super) fn of_world(
    what: DivergenceKind,
    field: &str,
    frame: Option<u64>,
    (history, decided): (Option<Value>, Option<Value>),
) -> Divergence {
    Divergence {
        what,
        step: String::new(),
        item: None,
        server: None,
        tool: None,
        field: field.to_owned(),
        frame,
        history,
        decided,
    }
}

/// `/objects/ID`.
pub(super) fn place(of: &str, id: &str) -> String {
    format!("/{of}/{}", escaped(id))
}

pub(super) fn escaped(segment: &str) -> String {
    segment.replace('~', "~0").replace('/', "~1")
}
