//! The answer to "where did this value come from?", and the recorded values that it names.

use ktsu_ledger::event::{AgentEvent, EnvValue, PersonEvent};
use ktsu_ledger::{CanonicalJson, Event};
use ktsu_projections::lineage::item_name;
use ktsu_projections::step_name::path_in;
use serde::Serialize;
use serde_json::Value;

use super::story::TracedRun;
use super::story::memo::TraceMemo;
use super::story::path::dotted;
use ktsu_workflow::expression::provenance::{FramePointer, Provenance};

/// The answer to where a value came from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProvenanceAnswer {
    /// `run_…`.
    pub run_id: String,
    /// As it was asked.
    pub path: String,
    /// The inline child it is in; empty for the run itself.
    pub scope: String,
    /// JSON pointer into the envelope of that scope; of a field in a world `/objects/ID/data/…` or
    /// `/relations/ID/…`.
    pub pointer: String,
    /// The value.
    pub value: Value,
    /// The way back, from the value on.
    pub chain: Vec<Hop>,
    /// The places that it was made of.
    pub origins: Vec<ValueOrigin>,
    /// The places that only decided.
    pub deciders: Vec<Decider>,
}

/// A step on the way back.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Hop {
    /// The frame where it is recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frame: Option<u64>,
    /// The step, by path; empty for the run itself.
    pub step: String,
    /// `reference`, `template`, `transform`, `reply`, `answer`, `child`, `items`, `skipped`, `overlay`;
    /// in a world `goal`, `emit`, `then`, `reply`, `params`.
    pub how: &'static str,
    /// In the words of the definition.
    pub text: String,
    /// The responder that made it, in a world.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub responder: Option<String>,
    /// The object or the relation that it is about, in a world.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
}

/// A leaf: something recorded that a value was made of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ValueOrigin {
    /// The frame.
    pub frame: u64,
    /// JSON pointer into its data.
    pub at: String,
    /// The frame's type.
    #[serde(rename = "type")]
    pub kind: String,
    /// In words: `params.ticket`, `env.REGION`, `reply of triage: priority`.
    pub name: String,
    /// The value there.
    pub value: Value,
    /// For a reply: the last answer of a model before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reply: Option<u64>,
}

/// The role of a place that decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DeciderRole {
    /// It chose the value, or the steps on its way: a condition, a filter, a schema, a verdict.
    Chose,
    /// It could have ended the run, or kept it from ending, before.
    KeptGoing,
}

/// Something recorded that only decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Decider {
    /// The role in which it counts.
    pub why: DeciderRole,
    /// The place.
    #[serde(flatten)]
    pub place: ValueOrigin,
}

/// The most characters of a value that are repeated in an answer; the frame has all of it.
const MAX_VALUE: usize = 4096;

/// The recorded values at some places; as many as the bound on the work allows.
pub fn origins(story: &TracedRun<'_>, marks: &Provenance) -> Vec<ValueOrigin> {
    FrameCache::new(story).origins(marks.iter())
}

/// The last frame as a tree: places come in order, so that each frame is made one once, and none is
/// kept longer than its places need it.
pub(super) struct FrameCache<'s, 'f> {
    story: &'s TracedRun<'f>,
    last: Option<(u64, Value)>,
}

impl<'s, 'f> FrameCache<'s, 'f> {
    pub(super) fn new(story: &'s TracedRun<'f>) -> Self {
        Self { story, last: None }
    }

    /// The recorded values at some places, in their order; as many as the bound on the work allows.
    pub(super) fn origins<'p>(
        &mut self,
        places: impl IntoIterator<Item = &'p FramePointer>,
    ) -> Vec<ValueOrigin> {
        let memo = &self.story.memo;
        let places = places.into_iter().take_while(|_| !memo.is_over());
        places.map(|place| self.origin(place)).collect()
    }

    fn origin(&mut self, place: &FramePointer) -> ValueOrigin {
        let value = self.value(place);
        let value = short(&self.story.memo, value);
        let frame = usize::try_from(place.frame).ok();
        let frame = frame.and_then(|at| self.story.frames.get(at));
        let (name, reply) = frame.map_or((String::new(), None), |frame| {
            named(self.story, place, &frame.event, &frame.scope)
        });
        ValueOrigin {
            frame: place.frame,
            at: place.path.clone(),
            kind: frame.map_or("", |frame| frame.event.kind()).to_owned(),
            name,
            value,
            reply,
        }
    }

    fn value(&mut self, place: &FramePointer) -> Value {
        // The first frame carries the whole definition, which no value is made of.
        if let Some(value) = created(self.story, place) {
            return value;
        }
        let known = self.last.take().filter(|(frame, _)| *frame == place.frame);
        let (_, data) = self.last.insert(known.unwrap_or_else(|| {
            let data = self.story.data(place.frame).unwrap_or_default();
            (place.frame, data)
        }));
        data.pointer(&place.path).cloned().unwrap_or_default()
    }
}

fn created(story: &TracedRun<'_>, place: &FramePointer) -> Option<Value> {
    let frame = story.frames.get(usize::try_from(place.frame).ok()?)?;
    let created = frame.event.created()?;
    if let Some(path) = place.path.strip_prefix("/params") {
        return Some(CanonicalJson::pointer(&created.params, path).unwrap_or_default());
    }
    let name = place.path.strip_prefix("/env/")?.strip_suffix("/value")?;
    match created.env.get(name)? {
        EnvValue::Value(value) => Some(Value::from(value.as_str())),
        EnvValue::Secret => None,
    }
}

/// The name of a place, and for a reply the answer of the model that it was taken from.
fn named(
    story: &TracedRun<'_>,
    place: &FramePointer,
    event: &Event,
    scope: &str,
) -> (String, Option<u64>) {
    let about = |step: &str, item: Option<u32>| path_in(scope, &item_name(step, item));
    match event {
        _ if event.created().is_some() || event.branched().is_some() => {
            let is_env = place.path.starts_with("/env/");
            let path = place.path.strip_suffix("/value").filter(|_| is_env);
            (dotted(path.unwrap_or(&place.path)), None)
        }
        Event::World(event) => {
            let path = ["/data/", "/patch/"];
            let path = path
                .into_iter()
                .find_map(|base| place.path.strip_prefix(base));
            let field = dotted(path.unwrap_or(&place.path));
            let about = event
                .subject()
                .map_or_else(String::new, |id| format!("{id}: "));
            let by = event
                .by()
                .map_or_else(String::new, |by| format!(" by {}", by.id));
            (format!("{about}{field}{by}"), None)
        }
        Event::Foreign { kind, .. } => (format!("{kind}: {}", dotted(&place.path)), None),
        Event::Agent(AgentEvent::Finished(finished)) => {
            let facts = story.facts.get(scope, &finished.step, finished.item);
            let reply = facts.replies.iter().rev().find(|seq| **seq < place.frame);
            let field = place.path.strip_prefix("/outcome").unwrap_or(&place.path);
            let field = field.strip_prefix("/output").unwrap_or(field);
            let step = about(&finished.step, finished.item);
            let words = match dotted(field) {
                whole if whole.is_empty() => format!("reply of {step}"),
                field => format!("reply of {step}: {field}"),
            };
            (words, reply.copied())
        }
        Event::Agent(event) => {
            let step = about(event.step(), event.item());
            (format!("{step}: {}", dotted(&place.path)), None)
        }
        Event::Webhook(event) => {
            let step = about(event.step(), None);
            (format!("answer to {step}: {}", dotted(&place.path)), None)
        }
        Event::Person(PersonEvent::OverlaySet(set)) => {
            let step = path_in(&about(&set.step, None), &set.field);
            let below = place.path.strip_prefix("/value").unwrap_or_default();
            let field = match dotted(below) {
                below if below.is_empty() => String::new(),
                below if below.starts_with('[') => below,
                below => format!(".{below}"),
            };
            let step = step.replace('/', ".");
            (format!("{step}{field} by {}", set.by.id), None)
        }
        Event::Person(PersonEvent::ReviewDecided(decided)) => {
            let step = about(&decided.step, None).replace('/', ".");
            let below = place.path.strip_prefix("/overlay").unwrap_or_default();
            let field = dotted(below);
            (
                format!("{step}.{field} by {} in a review", decided.by.id),
                None,
            )
        }
        _ => (dotted(&place.path), None),
    }
}

/// A value, cut with a note of its length if it is too long for an answer.
fn short(memo: &TraceMemo, value: Value) -> Value {
    let text = value.to_string();
    memo.spend_value(text.len());
    if text.len() <= MAX_VALUE {
        return value;
    }
    let end = (0..=MAX_VALUE).rev().find(|at| text.is_char_boundary(*at));
    let start = text.get(..end.unwrap_or_default()).unwrap_or_default();
    Value::from(format!("{start}… ({} bytes)", text.len()))
}
