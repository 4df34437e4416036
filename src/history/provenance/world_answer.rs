//! The origins of a field of an object or a relation: back through what responders made, one frame
//! after another, to what a person, a model or a workflow gave.

use std::collections::BTreeSet;

use ktsu_ledger::Frame;
use ktsu_ledger::event::{TaskKind, WorldEvent};
use ktsu_projections::world::activity::is_address;
use ktsu_projections::world::steps::STEP_ID_PREFIX;
use ktsu_projections::world::{TaskContext, TriggerSubject};
use ktsu_workflow::definition::{CompiledEntry, CompiledMake, CompiledResponder, CompiledResponse};
use ktsu_workflow::expression::EvaluatedValue;
use ktsu_workflow::expression::provenance::{
    FramePointer, GatheredPlaces, Provenance, Tracked, union,
};
use ktsu_workflow::template::Template;

use super::answer::{DeciderRole, Hop, ProvenanceAnswer};
use super::derived::{Derivations, Derived, DerivedValue, walk};
use super::envelope_answer;
use super::hops;
use super::story::TracedRun;
use super::story::path::{
    FieldNotFoundError, FieldPath, dotted, name_in_pointer, pointer_of, segments,
};
use super::world_names::{ResponderView, object_data, relation_value};
use super::world_path::{self, Found};
use super::worlds::{WorldFacts, cause};

/// The cost of finding out what a place was made of, beside what look-ups find.
const EXPANSION_WORK: usize = 8;

/// The derivation of what is at a place.
#[derive(Default)]
struct Expansion {
    hops: Vec<Hop>,
    sources: Provenance,
    choosers: Provenance,
    /// True if it is an origin, although something is known of what led to it.
    is_origin: bool,
}

/// The origins of a field of an object or a relation; `path` as a person types it.
///
/// # Errors
/// [`FieldNotFoundError`].
pub(super) fn answer(
    story: &TracedRun<'_>,
    path: &str,
) -> Result<ProvenanceAnswer, FieldNotFoundError> {
    let gone = |message: String, there: Vec<String>| FieldNotFoundError {
        unnamed: "the world has no such object or field".to_owned(),
        message,
        there,
    };
    let none = || gone(format!("the run has no {path}"), Vec::new());
    let facts = story.worlds().ok_or_else(none)?;
    let world = story.state().responding().ok_or_else(none)?.head();
    let segments = segments(path.strip_prefix("relation ").unwrap_or(path))?;
    let (found, rest) = world_path::find(world, &segments)?;
    if let Found::Object(object) = &found
        && let Some(step) = object.id.strip_prefix(STEP_ID_PREFIX)
    {
        // What a step gave is explained as a field of the envelope.
        let below: String = rest.iter().map(|one| format!("[\"{one}\"]")).collect();
        let inner = format!("step.{step}.output{below}");
        return envelope_answer::answer(story, "", &inner);
    }
    let id = found.id();
    let (whole, base) = match &found {
        Found::Object(object) => {
            let data = object_data(story, facts, object);
            (data, format!("/objects/{id}/data"))
        }
        Found::Relation(relation) => {
            let value = relation_value(facts, relation);
            (value, format!("/relations/{id}"))
        }
    };
    let below: String = rest.iter().map(|one| pointer_of(one)).collect();
    let below = match (whole.find(&below), below.strip_prefix("/data")) {
        (None, Some(inside)) if matches!(found, Found::Object(_)) => inside.to_owned(),
        _ => below,
    };
    let field = whole.find(&below).ok_or_else(|| {
        let there = whole.members().unwrap_or_default();
        gone(
            format!("{id} has no field {}", rest.join(".")),
            there.keys().cloned().collect(),
        )
    })?;
    let mut made = Worlds::new(story, facts);
    made.choosers.add(&field.choosers());
    let first = made.seen.add(&field.sources());
    let chain = walk(story, &mut made, first);
    let found = DerivedValue {
        asked: FieldPath {
            scope: String::new(),
            pointer: format!("{base}{below}"),
        },
        value: field.to_value(),
        chain,
        origins: &made.origins,
        deciders: made.deciders(),
    };
    Ok(found.answer(story, path))
}

/// The derivations of the values of a run's worlds.
struct Worlds<'s> {
    story: &'s TracedRun<'s>,
    facts: &'s WorldFacts,
    seen: GatheredPlaces,
    origins: BTreeSet<FramePointer>,
    choosers: GatheredPlaces,
    /// The output that led to the frame that was looked at last: its places come one after the
    /// other.
    last: Option<(u64, Option<Output<'s>>)>,
}

/// The entry that made a frame, and what it saw.
struct Output<'s> {
    view: ResponderView<'s>,
    entry: &'s CompiledEntry,
    /// `goal`, `emit` or `then`.
    how: &'static str,
    /// The places because of which its responder reacted.
    why: Provenance,
    /// The workflow whose result it is made of.
    task: Option<&'s TaskContext>,
}

impl Derivations for Worlds<'_> {
    type Value = FramePointer;
    const DEPTH_FIRST: bool = false;
    const WALKS_WHEN_FULL: bool = true;

    fn derive(&mut self, place: FramePointer) -> Derived<FramePointer> {
        self.story.memo.spend(EXPANSION_WORK);
        let made = self.expand(&place);
        if made.as_ref().is_none_or(|made| made.is_origin) {
            self.origins.insert(place);
        }
        let made = made.unwrap_or_default();
        self.choosers.add(&made.choosers);
        Derived {
            rule: made.hops,
            inputs: self.seen.add(&made.sources),
        }
    }
}

impl<'s> Worlds<'s> {
    fn new(story: &'s TracedRun<'s>, facts: &'s WorldFacts) -> Self {
        Self {
            story,
            facts,
            seen: GatheredPlaces::default(),
            origins: BTreeSet::new(),
            choosers: GatheredPlaces::default(),
            last: None,
        }
    }

    /// The places that only chose among values, and are no origins themselves.
    fn deciders(&self) -> Vec<(DeciderRole, &FramePointer)> {
        let all = self.choosers.iter();
        let all = all.filter(|place| !self.origins.contains(place));
        all.map(|place| (DeciderRole::Chose, place)).collect()
    }

    /// The derivation of what is at a place; nothing for one where a value began.
    fn expand(&mut self, place: &FramePointer) -> Option<Expansion> {
        let frame = self.story.frame(place.frame)?;
        if let Some(event) = frame.event.world() {
            return self.part(frame, event, &place.path);
        }
        match frame.event.finished() {
            Some(end) if is_address(&end.step) => self.replied(frame, &end.step),
            // Where a workflow began that a responder runs.
            None if frame.event.task().is_none() => self.given(frame, &place.path),
            Some(_) | None => None,
        }
    }

    /// A part of what a responder, or the goal of the run, made.
    fn part(&mut self, frame: &Frame, event: &WorldEvent, path: &str) -> Option<Expansion> {
        let known = self.last.take().filter(|(seq, _)| *seq == frame.seq);
        let (seq, output) = known.unwrap_or_else(|| (frame.seq, self.output(frame, event)));
        let (_, output) = self.last.insert((seq, output));
        let output = output.as_ref()?;
        let made = part(&output.view, output.entry, path)?;
        let expansion = made.expansion(frame, event, output.how);
        let mut expansion = expansion.chosen_by(&output.why);
        if let Some(task) = output.task {
            expansion.hops.extend(self.child(task, &expansion.sources));
        }
        Some(expansion)
    }

    /// The entry that made a frame, and what it saw.
    fn output(&self, frame: &Frame, event: &WorldEvent) -> Option<Output<'s>> {
        let derived = event.derived()?;
        let trigger = cause(frame);
        let view = ResponderView::of_goal(self.story, self.facts, frame.seq)?;
        let Some(name) = &derived.responder else {
            let entries = view.worlds().goal();
            return Some(Output {
                view: view.with_entries(entries, trigger, derived),
                entry: entries.get(derived.entry as usize)?,
                how: "goal",
                why: Provenance::default(),
                task: None,
            });
        };
        let (_, responder) = view.worlds().responder(name)?;
        let (found, world) = self.facts.trigger(trigger?)?;
        let TriggerSubject::Reply { task, outcome } = &found.subject else {
            let CompiledResponse::Emit(entries) = &responder.work else {
                return None;
            };
            let view = view.of_trigger(responder, (found, world)).ok()?;
            let reaction = Reaction::of(view, responder, derived.item);
            return Some(Output {
                view: reaction.view.with_entries(entries, trigger, derived),
                entry: entries.get(derived.entry as usize)?,
                how: "emit",
                why: reaction.why,
                task: None,
            });
        };
        let view = view.of_trigger(responder, (&task.trigger, world)).ok()?;
        let asked = self.asked(task, frame.seq);
        let (item, why) = asked.map_or_else(Default::default, |asked| {
            (asked.view.item().cloned(), asked.why)
        });
        let view = view.with_given_item(item, task.item);
        let outcome = outcome.to_value();
        let view = view.with_reply(responder, (task, &outcome), found.seq);
        let of_run = task.kind == TaskKind::Run;
        Some(Output {
            view: view.with_entries(&responder.then, trigger, derived),
            entry: responder.then.get(derived.entry as usize)?,
            how: "then",
            // Why a model was asked is known where its reply is; why a workflow was run, where its
            // params are, or here.
            why: if of_run { why } else { Provenance::default() },
            task: of_run.then_some(task),
        })
    }

    /// The way through a workflow that a responder ran.
    fn child(&self, task: &TaskContext, sources: &Provenance) -> Vec<Hop> {
        let scope = self.story.state().scope_at(&task.address);
        let output = scope.and_then(|scope| self.story.output(scope));
        let sources = sources.flat();
        let counts = output.is_some_and(|output| {
            let own = output.sources();
            own.iter().any(|place| sources.covers(place))
        });
        if !counts {
            return Vec::new();
        }
        let asked = FieldPath {
            scope: task.address.to_string(),
            pointer: "/output".to_owned(),
        };
        hops::chain(self.story, &asked, &sources)
    }

    /// The reaction in which the responder of a task asked or ran it: `before` decided.
    fn asked(&self, task: &TaskContext, before: u64) -> Option<Reaction<'s>> {
        let view = ResponderView::of_goal(self.story, self.facts, before)?;
        let (_, responder) = view.worlds().responder(&task.responder)?;
        let view = view.of_trigger(responder, (&task.trigger, &task.world));
        Some(Reaction::of(view.ok()?, responder, task.item))
    }

    /// A param of a workflow that a responder runs.
    fn given(&self, frame: &Frame, path: &str) -> Option<Expansion> {
        let task = self.facts.task(&frame.scope)?;
        let inside = path.strip_prefix("/input/~1params~1")?;
        let (name, inside) = inside.split_once('/').unwrap_or((inside, ""));
        let inside = inside.strip_prefix("value/value").unwrap_or_default();
        let below = format!("/{}{inside}", name_in_pointer(name));
        let asked = self.asked(task, frame.seq)?;
        let CompiledResponse::Run { params, .. } = &asked.responder.work else {
            return None;
        };
        let template = params.as_ref()?;
        let made = asked.view.render(template)?;
        // A default of the workflow is in its definition.
        let part = Part::of(made.find(&below), Some(template), &below);
        Some(Expansion {
            hops: vec![task_hop(task, frame, "params", part.text)],
            sources: part.sources,
            choosers: part.choosers.and(&asked.why),
            is_origin: false,
        })
    }

    /// The reply to what a responder asked: prompts are not searched, but why it was asked is known.
    fn replied(&self, frame: &Frame, address: &str) -> Option<Expansion> {
        let task = self.facts.task(address)?;
        let asked = self.asked(task, frame.seq)?;
        let facts = self.story.facts.get("", address, None);
        let text = facts.replies.last().map_or_else(
            || "what the model gave".to_owned(),
            |seq| {
                format!(
                    "the model's reply in frame {seq}, asked because of frame {}",
                    task.trigger.seq
                )
            },
        );
        Some(Expansion {
            hops: vec![task_hop(task, frame, "reply", text)],
            choosers: asked.why,
            is_origin: true,
            ..Expansion::default()
        })
    }
}

/// A hop through what a responder asks or runs.
fn task_hop(task: &TaskContext, frame: &Frame, how: &'static str, text: String) -> Hop {
    Hop {
        frame: Some(frame.seq),
        how,
        text,
        responder: Some(task.responder.to_string()),
        ..Hop::default()
    }
}

/// The view of a responder when it reacted, for one of its items perhaps.
struct Reaction<'s> {
    view: ResponderView<'s>,
    responder: &'s CompiledResponder,
    /// The places because of which it reacted.
    why: Provenance,
}

impl<'s> Reaction<'s> {
    fn of(view: ResponderView<'s>, responder: &'s CompiledResponder, item: Option<u32>) -> Self {
        let guard = view.guard(responder.when.as_ref());
        let (view, shape) = view.with_item(responder, item);
        Self {
            view,
            responder,
            why: guard.rests_on.and(&shape),
        }
    }
}

/// A part of what a template made.
struct Part {
    text: String,
    sources: Provenance,
    choosers: Provenance,
}

impl Part {
    fn of(value: Option<Tracked>, template: Option<&Template>, below: &str) -> Self {
        let text = template.and_then(|template| template.source_at(below));
        Self {
            text: text.unwrap_or_else(|| dotted(below)),
            sources: value.as_ref().map(|one| one.sources()).unwrap_or_default(),
            choosers: value.map(|one| one.choosers()).unwrap_or_default(),
        }
    }

    fn expansion(self, frame: &Frame, event: &WorldEvent, how: &'static str) -> Expansion {
        let hop = Hop {
            frame: Some(frame.seq),
            how,
            text: self.text,
            responder: event.derived().and_then(|one| one.responder.clone()),
            object: event.subject().map(str::to_owned),
            ..Hop::default()
        };
        Expansion {
            hops: vec![hop],
            sources: self.sources,
            choosers: self.choosers,
            is_origin: false,
        }
    }
}

impl Expansion {
    fn chosen_by(mut self, why: &Provenance) -> Self {
        self.choosers = self.choosers.and(why);
        self
    }
}

/// The part of an entry that made a place of its frame; nothing for an id that follows from what
/// triggered the entry.
fn part(view: &ResponderView<'_>, entry: &CompiledEntry, path: &str) -> Option<Part> {
    let rendered = |template: Option<&Template>, below: &str| {
        let value = template.and_then(|template| view.render(template));
        Part::of(value.and_then(|value| value.find(below)), template, below)
    };
    let data = |data: Option<&Template>| {
        let below = path
            .strip_prefix("/data")
            .or_else(|| path.strip_prefix("/patch"))?;
        Some(rendered(data, below))
    };
    let why = view.guard(entry.when.as_ref()).rests_on;
    let mut made = match &entry.make {
        CompiledMake::Object { data: template, .. } => match path {
            "/id" => rendered(Some(entry.key.as_ref()?), ""),
            _ => data(template.as_ref())?,
        },
        CompiledMake::Patch { id, data: template } => {
            let mut made = data(Some(template))?;
            let id = view.render(id).map(|id| id.dependencies());
            made.choosers = made.choosers.and(&id.unwrap_or_default());
            made
        }
        CompiledMake::Relation {
            from,
            to,
            id,
            data: template,
            ..
        } => match path {
            "/source_id" => rendered(Some(from), ""),
            "/target_id" => rendered(Some(to), ""),
            "/id" => match id {
                Some(id) => rendered(Some(id), ""),
                None => {
                    let (from, to) = (rendered(Some(from), ""), rendered(Some(to), ""));
                    Part {
                        text: "its type and both of its ends".to_owned(),
                        sources: union([&from.sources, &to.sources]),
                        choosers: union([&from.choosers, &to.choosers]),
                    }
                }
            },
            _ => data(template.as_ref())?,
        },
        CompiledMake::Publish { topic, payload } => match path.strip_prefix("/payload") {
            Some(below) => rendered(payload.as_ref(), below),
            None if path == "/topic" => rendered(Some(topic), ""),
            None => return None,
        },
        CompiledMake::Remove { .. } => return None,
    };
    made.choosers = made.choosers.and(&why);
    Some(made)
}
