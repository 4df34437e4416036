//! The values that expressions of responders mention, with their provenance.
//!
//! What the world holds is a value recorded by the frame that set it. Where that frame came from is
//! asked next, so that an answer costs as much as the frames on its way, however large the world is.

use std::collections::BTreeMap;
use std::sync::Arc;

use ktsu_ledger::event::{Derivation, TaskKind};
use ktsu_projections::world::steps::STEP_ID_PREFIX;
use ktsu_projections::world::{
    Condition, TaskContext, Trigger, TriggerKey, TriggerSubject, World, WorldObject, WorldRelation,
};
use ktsu_workflow::definition::{
    CompiledAsk, CompiledEntry, CompiledFind, CompiledForEach, CompiledMake, CompiledQuery,
    CompiledResponder, CompiledResponse, CompiledWorlds,
};
use ktsu_workflow::expression::provenance::{FramePointer, Provenance, Tracked, union};
use ktsu_workflow::expression::{
    EvaluatedValue, EvaluationError, NameLookup, Root, Tracker, from_json, from_value, truthy,
};
use ktsu_workflow::respond::{
    FoundObjects, InspectedLookup, MAX_COUNTED, RespondContext, goal_of, inspect_lookups,
};
use ktsu_workflow::rules::DecisionRules;
use ktsu_workflow::template::Template;
use serde_json::Value;

use super::story::TracedRun;
use super::track;
use super::worlds::WorldFacts;

/// The view that one responder had of a trigger, or of a reply, with provenance.
pub(crate) struct ResponderView<'s> {
    story: &'s TracedRun<'s>,
    facts: &'s WorldFacts,
    worlds: &'s CompiledWorlds,
    /// The frame that decided.
    before: u64,
    locals: BTreeMap<String, Tracked>,
    item: Option<(Tracked, u32)>,
}

/// The verdict of a guard, and what it rests on.
pub(crate) struct TrackedGuard {
    /// The guard as it is written, if there is one.
    pub(crate) text: Option<String>,
    /// Its value, or why it has none.
    pub(crate) value: Result<Value, String>,
    /// True if it lets the responder react.
    pub(crate) holds: bool,
    /// The places that it rests on.
    pub(crate) rests_on: Provenance,
}

impl NameLookup<Tracked> for ResponderView<'_> {
    fn get(&self, root: &Root) -> Option<Tracked> {
        match root {
            Root::Params => Some(self.story.params_before(self.before)),
            Root::Env(name) => self.story.env_value(name),
            Root::Item => self.item.as_ref().map(|(item, _)| item.clone()),
            Root::ItemIndex => {
                let (_, index) = self.item.as_ref()?;
                Some(Tracked::literal(from_value(&Value::from(*index))))
            }
            Root::Name(name) | Root::Step(name) if name == "goal" => {
                let goal = self.story.params_before(self.before).find("/goal")?;
                goal.to_value().is_string().then_some(goal)
            }
            Root::Name(name) | Root::Step(name) => self.locals.get(name).cloned(),
            Root::Resume => None,
        }
    }
}

impl<'s> ResponderView<'s> {
    /// The view that the entries of `goal:` have.
    pub(crate) fn of_goal(
        story: &'s TracedRun<'s>,
        facts: &'s WorldFacts,
        before: u64,
    ) -> Option<Self> {
        Some(Self {
            story,
            facts,
            worlds: story.worlds_before(before)?,
            before,
            locals: BTreeMap::new(),
            item: None,
        })
    }

    /// The view that a responder has of a trigger in a world: the one as of the trigger, or for a
    /// reaction to a reply the one as of the reply. `before` is the frame that decided.
    ///
    /// # Errors
    /// In words, where a look-up cannot be evaluated.
    pub(crate) fn of_trigger(
        mut self,
        responder: &CompiledResponder,
        (trigger, world): (&Trigger, &World),
    ) -> Result<Self, EvaluationError> {
        self.locals = self.of_subject(trigger, world);
        let params = || self.story.params_before(self.before).value().clone();
        let goal = || goal_of(&params());
        let context = RespondContext {
            worlds: self.worlds,
            params: &params,
            goal: &goal,
            env: &self.story.state().created().env,
            rules: self.rules(),
            suppresses: false,
        };
        let found = inspect_lookups(context, responder, (trigger, world))?;
        for (lookup, found) in responder.lookups.iter().zip(found) {
            self.story.memo.spend(found.examined);
            let value = self.found(&lookup.find, found, world);
            self.locals.insert(lookup.name.clone(), value);
        }
        Ok(self)
    }

    /// The worlds that were in force.
    pub(crate) fn worlds(&self) -> &'s CompiledWorlds {
        self.worlds
    }

    /// With the reply to what a responder asked or ran: `reply` or `result`. `seq` ended it.
    pub(crate) fn with_reply(
        mut self,
        responder: &CompiledResponder,
        (task, outcome): (&TaskContext, &Value),
        seq: u64,
    ) -> Self {
        let (name, value) = match task.kind {
            TaskKind::Run => {
                let scope = self.story.state().scope_at(&task.address);
                let result = scope.and_then(|scope| self.story.output(scope)).cloned();
                let plain = || Tracked::literal(from_value(&outcome["output"]));
                ("result", result.unwrap_or_else(plain))
            }
            TaskKind::Ask => ("reply", reply(responder, &outcome["output"], seq)),
        };
        self.locals.insert(name.to_owned(), value);
        self
    }

    /// The guard of a responder, or of an entry; without one it holds.
    pub(crate) fn guard(
        &self,
        when: Option<&ktsu_workflow::expression::Expression>,
    ) -> TrackedGuard {
        let Some(when) = when else {
            return TrackedGuard {
                text: None,
                value: Ok(Value::Bool(true)),
                holds: true,
                rests_on: Provenance::default(),
            };
        };
        let mut tracker = Tracker::default();
        let value = when.track(self, &mut tracker);
        let inspected = tracker.inspected();
        let (value, holds, rests_on) = match value {
            Ok(value) => {
                let rests_on = union([&value.dependencies(), &inspected]);
                (Ok(value.to_value()), truthy(value.value()), rests_on)
            }
            Err(error) => (Err(error.message), false, inspected),
        };
        TrackedGuard {
            text: Some(when.source().to_owned()),
            value,
            holds,
            rests_on,
        }
    }

    /// With an item of `for_each`. Gives what decided how many items there are, too.
    pub(crate) fn with_item(
        mut self,
        responder: &CompiledResponder,
        item: Option<u32>,
    ) -> (Self, Provenance) {
        let mut tracker = Tracker::default();
        let list = match &responder.for_each {
            None => None,
            Some(CompiledForEach::From(from)) => from.track(&self, &mut tracker).ok(),
            Some(CompiledForEach::Items(items)) => self.render_within(items, &mut tracker),
        };
        let Some((list, at)) = list.zip(item) else {
            return (self, Provenance::default());
        };
        self.item = list.item(at as usize).map(|item| (item, at));
        let shape = union([&list.shape(), &tracker.inspected()]);
        (self, shape)
    }

    /// The results of its look-ups, in words: `; claim = null, open = 2 objects`.
    pub(crate) fn found_words(&self, responder: &CompiledResponder) -> String {
        let found = responder.lookups.iter().filter_map(|lookup| {
            let value = self.locals.get(&lookup.name)?.to_value();
            let words = match &value {
                Value::Array(items) => format!("{} objects", items.len()),
                Value::Object(object) => object.get("id")?.as_str()?.to_owned(),
                value => value.to_string(),
            };
            Some(format!("{} = {words}", lookup.name))
        });
        match found.collect::<Vec<_>>().join(", ") {
            none if none.is_empty() => none,
            found => format!("; {found}"),
        }
    }

    /// The item, if there is one.
    pub(crate) fn item(&self) -> Option<&Tracked> {
        self.item.as_ref().map(|(item, _)| item)
    }

    /// With an item that is known already.
    pub(crate) fn with_given_item(mut self, item: Option<Tracked>, at: Option<u32>) -> Self {
        self.item = item.zip(at);
        self
    }

    /// With the names of the entries before one, as they were made for `derived`.
    pub(crate) fn with_entries(
        mut self,
        entries: &[CompiledEntry],
        trigger: Option<u64>,
        derived: &Derivation,
    ) -> Self {
        for (at, entry) in (0..derived.entry).zip(entries) {
            let Some(name) = &entry.as_name else { continue };
            let of = Derivation {
                entry: at,
                ..derived.clone()
            };
            let value = match self.facts.output(trigger, &of) {
                Some(seq) => self.made(seq),
                None => self.kept(entry),
            };
            self.locals.extend(value.map(|value| (name.clone(), value)));
        }
        self
    }

    /// A template; nothing where it cannot be evaluated.
    pub(crate) fn render(&self, template: &Template) -> Option<Tracked> {
        self.render_within(template, &mut Tracker::default())
    }

    fn render_within(&self, template: &Template, tracker: &mut Tracker) -> Option<Tracked> {
        self.story.render(template, self, tracker)
    }

    fn rules(&self) -> DecisionRules {
        DecisionRules::of(self.story.state())
    }

    /// The names that a trigger brings.
    fn of_subject(&self, trigger: &Trigger, world: &World) -> BTreeMap<String, Tracked> {
        let mut names = BTreeMap::new();
        let mut event = vec![
            ("actor", literal(&trigger.actor)),
            ("type", literal(&trigger.kind)),
        ];
        match &trigger.subject {
            TriggerSubject::Object {
                object,
                before,
                patch,
            } => {
                names.insert("object".to_owned(), self.object(object));
                let before = before.as_ref().map(|before| self.object(before));
                names.extend(before.map(|before| ("before".to_owned(), before)));
                if let Some(patch) = patch {
                    let place = FramePointer::new(trigger.event_seq(), "/patch");
                    let patch = Tracked::recorded(place, from_json(patch));
                    names.insert("patch".to_owned(), patch);
                }
            }
            TriggerSubject::Relation(relation) => {
                let end = |id: &str| world.object(id).map(|object| self.object(object));
                let ends = [
                    ("source", end(&relation.source_id)),
                    ("target", end(&relation.target_id)),
                ];
                let ends = ends.into_iter();
                names.extend(ends.filter_map(|(name, end)| Some((name.to_owned(), end?))));
                names.insert("relation".to_owned(), relation_value(self.facts, relation));
            }
            TriggerSubject::Posted(data) => {
                let place = FramePointer::new(trigger.event_seq(), "/data");
                let data = Tracked::recorded(place, from_json(data));
                event.push(("data", data));
            }
            TriggerSubject::Reply { .. } => {}
        }
        names.insert("event".to_owned(), track::object(event));
        names
    }

    /// The result of a look-up: its objects, chosen by what its conditions rest on.
    fn found(&self, find: &CompiledFind, found: InspectedLookup, world: &World) -> Tracked {
        let named = match &found.objects {
            FoundObjects::Named(ids) => ids.as_slice(),
            FoundObjects::Indexed(..) => &[],
        };
        let objects = named.iter().filter_map(|id| world.object(id));
        let read = |object: &Arc<WorldObject>| {
            let memo = &self.story.memo;
            memo.object(object, || self.object(object))
        };
        let mut objects = objects;
        let nothing = || Tracked::literal(from_value(&Value::Null));
        match find {
            CompiledFind::Object(id) => {
                let id = self.render(id).map(|id| id.dependencies());
                let one = objects.next().map_or_else(nothing, read);
                one.chosen_by(&id.unwrap_or_default())
            }
            CompiledFind::First(query) => {
                let one = objects.next().map_or_else(nothing, read);
                one.chosen_by(&self.conditions(query))
            }
            CompiledFind::Objects(query) => {
                let items = objects.map(read).collect();
                Tracked::list(items, Provenance::default()).chosen_by(&self.conditions(query))
            }
            CompiledFind::Count(query) => {
                let places = match found.objects {
                    FoundObjects::Indexed(kind, conditions) => {
                        self.counted(kind, conditions, world)
                    }
                    FoundObjects::Named(_) => {
                        let places = objects.filter_map(|object| self.place_of(object));
                        places.collect()
                    }
                };
                Tracked::computed(found.value, places).chosen_by(&self.conditions(query))
            }
        }
    }

    /// The places where the first objects that an index counts began.
    fn counted(&self, kind: String, conditions: Vec<Condition>, world: &World) -> Provenance {
        let place = |id: &str| self.place_of(world.object(id)?);
        let fixed = |id: &str| self.facts.is_created_once(id);
        let ids = world.find_ids(&kind, &conditions).take(MAX_COUNTED);
        let query = (kind.clone(), conditions.clone());
        self.story.memo.counted(query, ids, fixed, place)
    }

    /// The places that the conditions of a query rest on.
    fn conditions(&self, query: &CompiledQuery) -> Provenance {
        let without = query.without.iter().flat_map(|(_, fields)| fields);
        let all = query.fields.iter().chain(without);
        let all = all.filter_map(|one| self.render(&one.value));
        union(&all.map(|value| value.dependencies()).collect::<Vec<_>>())
    }

    /// The place where an object began.
    fn place_of(&self, object: &WorldObject) -> Option<FramePointer> {
        let created = self.facts.created(&object.id, object.changed)?;
        Some(FramePointer::new(created, "/id"))
    }

    /// `{data, id, type}`.
    pub(crate) fn object(&self, object: &WorldObject) -> Tracked {
        let id = from_value(&Value::from(&*object.id));
        let id = match self.place_of(object) {
            Some(place) => Tracked::recorded(place, id),
            None => Tracked::literal(id),
        };
        track::object([
            ("data", object_data(self.story, self.facts, object)),
            ("id", id),
            ("type", literal(&object.kind)),
        ])
    }

    /// The result of an entry, as later entries see it.
    fn made(&self, seq: u64) -> Option<Tracked> {
        let data = self.story.data(seq)?;
        let members = data.as_object()?.iter();
        let members = members.filter(|(name, _)| {
            ["data", "id", "source_id", "target_id", "type"].contains(&name.as_str())
        });
        Some(track::object(members.map(|(name, value)| {
            let place = FramePointer::new(seq, "").below(name);
            (name.as_str(), Tracked::recorded(place, from_value(value)))
        })))
    }

    /// The object that an entry did not make, since the object with its key was there.
    fn kept(&self, entry: &CompiledEntry) -> Option<Tracked> {
        let CompiledMake::Object { kind, data } = &entry.make else {
            return None;
        };
        let key = self.render(entry.key.as_ref()?)?;
        let id = keyed_id(kind, &key.to_value(), self.rules())?;
        let id = Tracked::computed(from_value(&Value::from(id)), key.sources());
        let data = data.as_ref().and_then(|data| self.render(data));
        Some(track::object([
            ("data", data.unwrap_or_else(|| track::object([]))),
            ("id", id),
            ("type", literal(kind)),
        ]))
    }

    /// The id of the one object that an entry with a key makes, if the key can be evaluated.
    pub(crate) fn keyed_object(&self, entry: &CompiledEntry) -> Option<String> {
        let CompiledMake::Object { kind, .. } = &entry.make else {
            return None;
        };
        let key = self.render(entry.key.as_ref()?)?;
        keyed_id(kind, &key.to_value(), self.rules())
    }
}

/// The data of an object: each member as the frame that set it recorded it; of a completed step, its
/// output.
pub(crate) fn object_data(
    story: &TracedRun<'_>,
    facts: &WorldFacts,
    object: &WorldObject,
) -> Tracked {
    let whole = Tracked::literal(from_json(&object.data));
    if let Some(step) = object.id.strip_prefix(STEP_ID_PREFIX) {
        let value = story.state().step_at("", step);
        let value = value.and_then(|at| story.step(at));
        let value = value.and_then(|track| track.before(object.changed + 1));
        let value = value.map(|value| match value.members().is_some() {
            true => value,
            false => track::object([("output", value)]),
        });
        return value.map_or(whole.clone(), |value| value.aligned(whole.value()));
    }
    let members = whole.members().unwrap_or_default();
    track::object(members.iter().map(|(name, value)| {
        let place = facts.member(&object.id, name, object.changed);
        let value = match place {
            Some(place) => Tracked::recorded(place, value.value().clone()),
            None => value.clone(),
        };
        (name.as_str(), value)
    }))
}

/// `{data, id, source_id, target_id, type}` of a relation.
pub(crate) fn relation_value(facts: &WorldFacts, relation: &WorldRelation) -> Tracked {
    let made = facts.related(&relation.id, relation.changed);
    let at = |name: &'static str, value: Tracked| {
        let place = made.map(|seq| FramePointer::new(seq, "").below(name));
        let value = match place {
            Some(place) => Tracked::recorded(place, value.value().clone()),
            None => value,
        };
        (name, value)
    };
    track::object([
        at("data", Tracked::literal(from_json(&relation.data))),
        at("id", literal(&relation.id)),
        at("source_id", literal(&relation.source_id)),
        at("target_id", literal(&relation.target_id)),
        ("type", literal(&relation.kind)),
    ])
}

/// `reply {output, text}`.
fn reply(responder: &CompiledResponder, output: &Value, seq: u64) -> Tracked {
    let place = FramePointer::new(seq, "/outcome/output");
    let text = match output {
        Value::String(_) => Tracked::recorded(place.clone(), from_value(output)),
        other => Tracked::computed(
            from_value(&Value::from(other.to_string())),
            Provenance::at(place.clone()),
        ),
    };
    let has_schema = matches!(
        &responder.work,
        CompiledResponse::Ask(CompiledAsk {
            output: Some(_),
            ..
        })
    );
    let output = match has_schema {
        true => Tracked::recorded(place, from_value(output)),
        false => Tracked::literal(from_value(&Value::Null)),
    };
    track::object([("output", output), ("text", text)])
}

fn keyed_id(kind: &str, key: &Value, rules: DecisionRules) -> Option<String> {
    let scalar = !(key.is_null() || key.is_array() || key.is_object());
    let key = scalar.then(|| ktsu_workflow::template::text_of(key, rules))?;
    Some(TriggerKey::keyed(kind, &key).object_id(kind))
}

fn literal(text: &str) -> Tracked {
    Tracked::literal(from_value(&Value::from(text)))
}
