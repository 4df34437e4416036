//! Where values come from, held against what happens when something else had been recorded.
//!
//! Every leaf of what a golden run was given (params, variables, what models and endpoints
//! answered) is changed in several ways, and the run decided again. What changes in the envelope
//! must be what names that leaf; and what names a leaf as its origin must change with it.

use std::collections::{BTreeMap, BTreeSet};

use super::again::again;
use ktsu_history::provenance::{FieldPath, TracedRun};
use ktsu_ledger::event::{
    AgentEvent, EnvValue, LlmResponse, PersonEvent, ReviewDecided, RunEvent, WebhookAnswer,
    WebhookEvent,
};
use ktsu_ledger::{CanonicalJson, Event, Frame};
use ktsu_projections::envelope::EnvelopeFold;
use ktsu_workflow::definition::Definition;
use ktsu_workflow::expression::EvaluatedValue;
use ktsu_workflow::expression::provenance::{FramePointer, Provenance};
use serde_json::{Value, json};

use super::golden::goldens;
use crate::support::ledgers::{Recorded, timeless};

/// Fields by scope and JSON pointer.
type Fields = BTreeMap<(String, String), Value>;

fn leaves(value: &Value, at: &str, found: &mut BTreeMap<String, Value>) {
    match value {
        Value::Object(members) if !members.is_empty() => {
            for (name, member) in members {
                let name = name.replace('~', "~0").replace('/', "~1");
                leaves(member, &format!("{at}/{name}"), found);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for (number, item) in items.iter().enumerate() {
                leaves(item, &format!("{at}/{number}"), found);
            }
        }
        leaf => drop(found.insert(at.to_owned(), leaf.clone())),
    }
}

fn fields(frames: &[Frame]) -> Fields {
    let fold = ktsu_history::fold(frames).unwrap();
    let mut found = Fields::new();
    for scope in fold.state().scopes() {
        let envelope = serde_json::to_value(fold.envelope(&scope.path)).unwrap();
        let mut of = BTreeMap::new();
        leaves(&envelope, "", &mut of);
        let of = of.into_iter();
        found.extend(of.map(|(at, value)| ((scope.path.clone(), at), value)));
    }
    found
}

/// Everything that was recorded from outside, leaf by leaf.
fn given(frames: &[Frame]) -> BTreeMap<FramePointer, Value> {
    let mut found = BTreeMap::new();
    for frame in frames {
        let roots: &[&str] = match &frame.event {
            Event::Run(RunEvent::Created(_)) => &["/params", "/env"],
            Event::Agent(AgentEvent::Finished(finished)) if finished.report.is_some() => {
                &["/outcome"]
            }
            Event::Agent(AgentEvent::Decided(decided)) => {
                let end = outcome_after(frames, frame);
                let draft = decided.draft.as_ref().map(CanonicalJson::to_value);
                match end.and_then(|end| end.pointer("/output")) {
                    Some(output) if Some(&output) == draft.as_ref() => &[],
                    _ if draft.is_none() => &[],
                    _ => &["/draft"],
                }
            }
            Event::Webhook(WebhookEvent::Delivered(_) | WebhookEvent::Failed(_)) => {
                &["/status", "/code", "/response"]
            }
            _ => &[],
        };
        if roots.is_empty() {
            continue;
        }
        let data = frame.event.data();
        for root in roots {
            let mut below = BTreeMap::new();
            if let Some(value) = data.pointer(root) {
                leaves(value, root, &mut below);
            }
            below.retain(|at, value| !at.starts_with("/env") || value != &json!("secret"));
            let below = below.into_iter();
            found.extend(below.map(|(at, value)| (FramePointer::new(frame.seq, at), value)));
        }
    }
    found
}

fn same_task(a: &Frame, b: &Frame) -> bool {
    match (&a.event, &b.event) {
        (Event::Agent(x), Event::Agent(y)) => {
            (&a.scope, x.step(), x.item(), x.attempt())
                == (&b.scope, y.step(), y.item(), y.attempt())
        }
        _ => false,
    }
}

fn outcome_after(frames: &[Frame], draft: &Frame) -> Option<CanonicalJson> {
    frames.iter().find_map(|frame| match &frame.event {
        Event::Agent(AgentEvent::Finished(finished)) if same_task(frame, draft) => {
            Some(finished.outcome.clone())
        }
        _ => None,
    })
}

/// The fact with another value at a place; none if that is no fact any more.
fn with(event: &Event, at: &str, value: &Value) -> Option<Event> {
    let set = |json: &CanonicalJson, at: &str| {
        let mut tree = json.to_value();
        *tree.pointer_mut(at)? = value.clone();
        CanonicalJson::from_value(&tree).ok()
    };
    let mut event = event.clone();
    match &mut event {
        Event::Run(RunEvent::Created(created)) => {
            if let Some(name) = at
                .strip_prefix("/env/")
                .and_then(|at| at.strip_suffix("/value"))
            {
                let value = EnvValue::Value(value.as_str()?.to_owned());
                created.env.insert(name.to_owned(), value);
            } else {
                created.params = set(&created.params, at.strip_prefix("/params")?)?;
            }
        }
        Event::Agent(AgentEvent::Finished(finished)) => {
            finished.outcome = set(&finished.outcome, at.strip_prefix("/outcome")?)?;
        }
        Event::Agent(AgentEvent::Decided(decided)) => {
            decided.draft = Some(set(decided.draft.as_ref()?, at.strip_prefix("/draft")?)?);
        }
        Event::Agent(AgentEvent::Response(answer)) => {
            let mut data = serde_json::to_value(&**answer).unwrap();
            *data.pointer_mut(at)? = value.clone();
            **answer = serde_json::from_value::<LlmResponse>(data).ok()?;
        }
        Event::Webhook(WebhookEvent::Delivered(answer) | WebhookEvent::Failed(answer)) => {
            let mut data = serde_json::to_value(&*answer).unwrap();
            *data.pointer_mut(at)? = value.clone();
            *answer = serde_json::from_value::<WebhookAnswer>(data).ok()?;
        }
        Event::Person(PersonEvent::ReviewDecided(decided)) => {
            let mut data = serde_json::to_value(&**decided).unwrap();
            *data.pointer_mut(at)? = value.clone();
            **decided = serde_json::from_value::<ReviewDecided>(data).ok()?;
        }
        _ => return None,
    }
    Some(event)
}

/// The envelopes of the run as it would have gone; none where that is no run.
fn otherwise(
    definition: &Definition,
    frames: &[Frame],
    place: &FramePointer,
    value: &Value,
) -> Option<Fields> {
    let target = &frames[usize::try_from(place.frame).unwrap()];
    let changed = with(&target.event, &place.path, value)?;
    // A draft that was not looked at again is the output: both say the same.
    let output = place.path.strip_prefix("/outcome/output");
    let change = |frame: &Frame| {
        if frame.seq == place.frame {
            return Some(changed.clone());
        }
        let Event::Agent(AgentEvent::Decided(decided)) = &frame.event else {
            return None;
        };
        let end = outcome_after(frames, frame).filter(|_| same_task(frame, target))?;
        let same = end.pointer("/output") == decided.draft.as_ref().map(CanonicalJson::to_value);
        with(
            &frame.event,
            &format!("/draft{}", output.filter(|_| same)?),
            value,
        )
    };
    let again = again(definition, frames, &change).ok()?;
    Some(fields(&again.frames))
}

/// Other values a leaf could have had.
fn others(value: &Value) -> Vec<Value> {
    let mut others = vec![
        json!(null),
        json!("another"),
        json!(""),
        json!(true),
        json!(12345),
        json!([]),
        json!({}),
    ];
    match value {
        Value::String(text) => {
            others.push(json!(format!("{text}0")));
            others.push(json!(format!("a{text}")));
        }
        Value::Number(number) => {
            let number = number.as_f64().unwrap_or_default();
            others.extend([
                json!(number as i64 + 1),
                json!(number as i64 - 1),
                json!(0),
                json!(201),
            ]);
            others.push(json!(number / 2.0));
        }
        Value::Bool(flag) => others.push(json!(!flag)),
        Value::Array(_) => others.extend([json!(["x"]), json!([1])]),
        Value::Null | Value::Object(_) => {}
    }
    others.retain(|other| other != value);
    others
}

/// What an array or object could have been instead.
fn other_shapes(value: &Value) -> Vec<Value> {
    let mut others = others(value);
    if let Value::Array(items) = value {
        others.push(json!(items.iter().skip(1).collect::<Vec<_>>()));
        others.push(json!(items.iter().chain(items.first()).collect::<Vec<_>>()));
    }
    others
}

struct Named {
    origins: Provenance,
    apart: Vec<Provenance>,
}

fn named(frames: &[Frame], fields: &Fields, name: &str) -> BTreeMap<(String, String), Named> {
    let story = TracedRun::of(frames).unwrap();
    let mut all = BTreeMap::new();
    let mut envelopes = BTreeMap::new();
    for (field, value) in fields {
        let (scope, pointer) = field;
        let envelope = envelopes
            .entry(scope.clone())
            .or_insert_with(|| story.envelope(scope).unwrap());
        let found = envelope.find(pointer);
        let found = found.unwrap_or_else(|| panic!("{name}: {scope} has no {pointer}"));
        assert_eq!(found.to_value(), *value, "{name}: {scope}{pointer}");
        let asked = FieldPath {
            scope: scope.clone(),
            pointer: pointer.clone(),
        };
        let named = Named {
            origins: found.sources(),
            apart: vec![found.choosers(), story.kept_going(&asked)],
        };
        all.insert(field.clone(), named);
    }
    all
}

/// Of a run with more leaves or more fields than this only some are changed, or looked at.
const SOME: usize = 40;
const MANY: usize = 300;
/// Deciding a run with this many fields again takes long: few of them are changed.
const LONG: usize = 2000;

fn some<K: Ord + Clone, V: Clone>(all: &BTreeMap<K, V>, most: usize) -> BTreeMap<K, V> {
    let step = all.len().div_ceil(most).max(1);
    let some = all.iter().step_by(step);
    some.map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

fn judge(name: &str, frames: &[Frame]) -> (usize, usize) {
    let definition = definition(frames);
    let all = fields(frames);
    let (leaves, looked_at) = match all.len() > LONG {
        true => (2, 60),
        false => (SOME, MANY),
    };
    let recorded = some(&all, looked_at);
    let named = named(frames, &recorded, name);
    let given = some(&given(frames), leaves);
    let mut moved: BTreeMap<(String, String), BTreeSet<FramePointer>> = BTreeMap::new();
    let mut tried = 0;
    let mut faults = Vec::new();
    for (place, value) in &given {
        for other in others(value) {
            let Some(changed) = otherwise(&definition, frames, place, &other) else {
                continue;
            };
            tried += 1;
            for (field, before) in &recorded {
                if changed.get(field) == Some(before) {
                    continue;
                }
                moved
                    .entry(field.clone())
                    .or_default()
                    .insert(place.clone());
                let told = &named[field];
                let holds =
                    told.origins.covers(place) || told.apart.iter().any(|one| one.covers(place));
                if !holds {
                    faults.push(format!(
                        "{name}: {field:?} changes with {place:?} = {other}, which nothing names"
                    ));
                }
            }
        }
    }
    let pool: BTreeSet<String> = given.values().map(Value::to_string).collect();
    let pool: Vec<Value> = pool
        .iter()
        .map(|text| serde_json::from_str(text).unwrap())
        .collect();
    let words = literals(frames);
    let mut checked = 0;
    let mut tries: BTreeMap<FramePointer, (std::vec::IntoIter<Value>, Vec<Fields>)> =
        BTreeMap::new();
    for (field, told) in &named {
        for origin in told.origins.iter() {
            checked += 1;
            let moves = moved.get(field);
            if moves.is_some_and(|moves| moves.iter().any(|place| origin.contains(place))) {
                continue;
            }
            let (values, outcomes) = tries.entry(origin.clone()).or_insert_with(|| {
                let data = frames[usize::try_from(origin.frame).unwrap()].event.data();
                let value = data.pointer(&origin.path);
                let mut values = value.map(other_shapes).unwrap_or_default();
                values.extend(words.iter().cloned());
                values.extend(pool.iter().take(40).cloned());
                (values.into_iter(), Vec::new())
            });
            let before = recorded.get(field);
            let differs = |after: &Fields| after.get(field) != before;
            // Only as many other values as are needed: each decides the run again.
            let mut moves = outcomes.iter().any(differs);
            while !moves && let Some(other) = values.next() {
                if let Some(after) = otherwise(&definition, frames, origin, &other) {
                    moves = differs(&after);
                    outcomes.push(after);
                }
            }
            if !moves {
                faults.push(format!(
                    "{name}: {field:?} names {origin:?}, which changes nothing"
                ));
            }
        }
    }
    let count = faults.len();
    faults.truncate(12);
    assert!(faults.is_empty(), "{count} faults\n{}", faults.join("\n"));
    (tried, checked)
}

/// The definition that a run began with.
fn definition(frames: &[Frame]) -> Definition {
    let brought = frames.first().and_then(|first| first.event.definition());
    let plan = serde_json::from_str(brought.unwrap().0.as_str()).unwrap();
    Definition::compile(plan).unwrap()
}

/// The words in quotes of a definition: what its expressions compare with.
fn literals(frames: &[Frame]) -> Vec<Value> {
    let Event::Run(RunEvent::Created(created)) = &frames[0].event else {
        return Vec::new();
    };
    let text = created.definition.as_str();
    let quoted = text.split('\'').skip(1).step_by(2).map(|word| json!(word));
    let ticked = text.split('`').skip(1).step_by(2);
    let ticked = ticked.filter_map(|word| serde_json::from_str(word).ok());
    quoted.chain(ticked).collect()
}

/// The recorded runs whose values this page explains. What responders make is explained elsewhere.
fn explained() -> Vec<(String, Recorded)> {
    let mut explained = goldens();
    explained.retain(|(name, _)| !name.contains("worlds"));
    explained
}

// Issue 4, "It must show" 4.
#[test]
fn every_origin_moves_its_field_and_nothing_else_does() {
    let goldens = explained();
    let (mut tried, mut checked) = (0, 0);
    std::thread::scope(|scope| {
        let parts: Vec<_> = (0..4)
            .map(|part| {
                let goldens = &goldens;
                scope.spawn(move || {
                    let mine = goldens.iter().skip(part).step_by(4);
                    mine.map(|(name, golden)| judge(name, &golden.frames()))
                        .fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
                })
            })
            .collect();
        for part in parts {
            let counts = part
                .join()
                .unwrap_or_else(|fault| std::panic::resume_unwind(fault));
            tried += counts.0;
            checked += counts.1;
        }
    });
    assert!(
        tried > 1000 && checked > 300,
        "{tried} changes, {checked} origins"
    );
}

#[test]
fn a_run_decided_again_from_the_same_inputs_is_the_same_run() {
    for (name, golden) in goldens() {
        let frames = golden.frames();
        let again = again(&definition(&frames), &frames, &|_| None).unwrap();
        let envelope = |frames: &[Frame]| {
            let fold = EnvelopeFold::of(frames).unwrap();
            timeless(serde_json::to_value(fold.envelope("")).unwrap())
        };
        assert_eq!(envelope(&again.frames), envelope(&frames), "{name}");
        assert_eq!(again.unused, Vec::<u64>::new(), "{name}");
    }
}

/// Every field is told with the value it has, whatever people said about the run.
#[test]
fn every_field_of_a_run_that_people_had_a_say_in_is_reported_with_its_value() {
    let mut told = 0;
    for (name, one) in super::exports::streams() {
        let frames = one.frames();
        let named = named(&frames, &fields(&frames), &name);
        for (field, named) in &named {
            for origin in named.origins.iter() {
                let data = frames[usize::try_from(origin.frame).unwrap()].event.data();
                let there = data.pointer(&origin.path).is_some();
                assert!(
                    there,
                    "{name}: {field:?} names {origin:?}, which is not there"
                );
                told += 1;
            }
        }
    }
    assert!(told > 1000, "{told} origins");
}
