//! What a step was given, and from where.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};

use ktsu_ledger::event::{ItemEvent, Reference, StepEvent, StepInput};
use ktsu_ledger::{CanonicalJson, Event, Frame};
use ktsu_projections::envelope::EnvelopeFold;
use ktsu_projections::lineage::item_name;
use ktsu_projections::step_name::path_in;
use serde_json::Value;

use super::placed::{PlacedValue, frame_at};
use crate::provenance::{dotted, pointer_of};

/// A value that a step was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepInputView {
    /// Its path in the declaration: `params.who`, `inputs.0`.
    pub name: String,
    /// Where it comes from.
    pub source: InputSource,
    /// The value, if it is recorded.
    pub value: Option<PlacedValue>,
}

/// Where a value that a step was given comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InputSource {
    /// From a place in an earlier frame.
    Place {
        /// The frame.
        frame: u64,
        /// In words: `params.ticket`, `step.classify.label`.
        words: String,
        /// Its path in the envelope, if it has one.
        of: Option<String>,
    },
    /// It was computed from values of these frames.
    Computed(Vec<u64>),
    /// It resolves through a secret; this is its template.
    Template(String),
}

impl StepInputView {
    pub(super) fn close(&mut self) {
        if let Some(value) = &mut self.value {
            value.json = None;
        }
    }
}

/// Whole values that were read last: the items of a fan-out have their inputs in the same one.
#[derive(Default)]
pub(super) struct ReadValues(RefCell<HashMap<(u64, String), Option<Value>>>);

/// The most of them that are kept, with the places at which there is none.
const MAX_KEPT: usize = 32;

impl ReadValues {
    /// The value at a place, from the whole value around it where there is one.
    fn value_at(&self, fold: &EnvelopeFold, place: &Reference) -> Option<Value> {
        let mut kept = self.0.borrow_mut();
        let ends = place.path.match_indices('/').map(|(at, _)| at).skip(1);
        // The parts of a path that lead to a whole value are few, however deep the place is in it.
        for (around, rest) in ends.take(4).map(|at| place.path.split_at(at)) {
            let key = (place.frame, around.to_owned());
            if kept.len() >= MAX_KEPT && !kept.contains_key(&key) {
                kept.clear();
            }
            let whole = kept.entry(key).or_insert_with_key(|(frame, path)| {
                fold.state().value_at(&Reference {
                    frame: *frame,
                    path: path.clone(),
                })
            });
            if let Some(found) = whole.as_ref().and_then(|whole| whole.pointer(rest)) {
                return Some(found.clone());
            }
        }
        fold.state().value_at(place)
    }
}

/// The inputs with which a step or an item began last.
pub(super) fn of(
    fold: &EnvelopeFold,
    frames: &[Frame],
    own: &[&Frame],
    values: &ReadValues,
) -> Vec<StepInputView> {
    let begun = own
        .iter()
        .rev()
        .find_map(|frame| Some((frame.seq, input(frame)?)));
    let Some((seq, input)) = begun else {
        return Vec::new();
    };
    let views = input.iter().map(|(pointer, one)| StepInputView {
        name: dotted(pointer),
        source: match one {
            StepInput::Ref(place) => source(frames, place),
            StepInput::Value { from, .. } => InputSource::Computed(from.clone()),
            StepInput::Template(template) => InputSource::Template(template.clone()),
        },
        value: match one {
            StepInput::Ref(place) => values
                .value_at(fold, place)
                .and_then(|value| CanonicalJson::from_value(&value).ok())
                .map(|value| PlacedValue::new(place.frame, format!("/data{}", place.path), &value)),
            StepInput::Value { value, .. } => {
                let at = format!("/data/input{}/value/value", pointer_of(pointer));
                Some(PlacedValue::new(seq, at, value))
            }
            StepInput::Template(_) => None,
        },
    });
    views.collect()
}

fn input(frame: &Frame) -> Option<&BTreeMap<String, StepInput>> {
    match &frame.event {
        Event::Step(StepEvent::Started(started)) => Some(&started.input),
        Event::Item(ItemEvent::Started(started)) => Some(&started.input),
        _ => None,
    }
}

/// The place of a value in words, and in the envelope.
fn source(frames: &[Frame], place: &Reference) -> InputSource {
    let found = frame_at(frames, place.frame);
    let is_first = found.is_some_and(|frame| frame.event.created().is_some());
    let below = |base: &str| {
        place
            .path
            .strip_prefix(base)
            .filter(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let of =
        match found.and_then(|frame| Some((frame, frame.event.task()?))) {
            _ if is_first => below("/params").map(|_| dotted(&place.path)),
            Some((frame, (step, item))) => below("/outcome/output")
                .or_else(|| below("/output"))
                .map(|rest| {
                    let step = path_in(&frame.scope, &item_name(step, item));
                    let field = dotted(rest);
                    match field.as_str() {
                        "" => format!("step.{step}"),
                        field if field.starts_with('[') => format!("step.{step}{field}"),
                        field => format!("step.{step}.{field}"),
                    }
                }),
            None => None,
        };
    let kind = found.map_or("", |frame| frame.event.kind());
    InputSource::Place {
        frame: place.frame,
        words: of
            .clone()
            .unwrap_or_else(|| format!("{kind}: {}", dotted(&place.path))),
        of,
    }
}
