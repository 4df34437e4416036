//! The world: what frames make of objects and relations.

use std::collections::BTreeMap;
use std::sync::Arc;

use ktsu_ledger::event::{
    ObjectCreated, ObjectPatched, RelationCreated, RelationRemoved, WorldEvent,
};
use ktsu_ledger::{CanonicalJson, Event, Frame};
use rpds::HashTrieMapSync;

use super::hashed_text::HashedText;
use super::index::{IndexValue, IndexedFields, Listing};
use super::object::{self, WorldObject, WorldRelation};

/// Objects and relations as some frame left them (seed 002). A clone shares its structure and never
/// changes with the original.
#[derive(Debug, Clone, Default)]
pub struct World {
    fields: Arc<IndexedFields>,
    objects: HashTrieMapSync<Arc<str>, Arc<WorldObject>>,
    relations: HashTrieMapSync<Arc<str>, Arc<WorldRelation>>,
    by_type: HashTrieMapSync<Arc<str>, Listing>,
    by_field: HashTrieMapSync<FieldKey, Listing>,
    /// Relations by either end.
    touching: HashTrieMapSync<Arc<str>, Listing>,
    /// Number of objects and relations that were ever made.
    made: u64,
    /// Number of changes that were ever made.
    changes: u64,
    ignored_patches: u64,
    is_exhausted: bool,
}

/// The place of objects in an index: their type, the position of the field, and its value.
type FieldKey = (Arc<str>, u32, IndexValue);

/// The change that a frame made, so that another world can follow without reading it again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorldChange {
    /// Nothing.
    Nothing,
    /// An object is now this one.
    Object(Arc<WorldObject>),
    /// A relation is now this one.
    Relation(Arc<WorldRelation>),
    /// A relation is gone.
    Removed(Arc<WorldRelation>),
    /// The budget is used up.
    Exhausted,
    /// It was raised.
    Raised,
}

impl World {
    /// An empty world that keeps indexes on these fields.
    pub fn new(fields: Arc<IndexedFields>) -> Self {
        Self {
            fields,
            ..Self::default()
        }
    }

    /// Folds recorded frames, whoever recorded them: what patches a missing object is counted and
    /// changes nothing (decision F8).
    pub fn fold<'f>(
        fields: Arc<IndexedFields>,
        frames: impl IntoIterator<Item = &'f Frame>,
    ) -> Self {
        let mut world = Self::new(fields);
        for frame in frames {
            world.apply(frame);
        }
        world
    }

    /// Takes a frame. Types that are not about objects and relations change nothing.
    pub fn apply(&mut self, frame: &Frame) -> WorldChange {
        let Event::World(event) = &frame.event else {
            return WorldChange::Nothing;
        };
        self.apply_event(frame.seq, event)
    }

    /// Takes the event of a frame.
    pub fn apply_event(&mut self, seq: u64, event: &WorldEvent) -> WorldChange {
        let change = match event {
            WorldEvent::ObjectCreated(event) => self.created(seq, event),
            WorldEvent::ObjectPatched(event) => self.patched(seq, event),
            WorldEvent::RelationCreated(event) => self.related(seq, event),
            WorldEvent::RelationRemoved(RelationRemoved { id, .. }) => {
                self.relation(id).map_or(WorldChange::Nothing, |gone| {
                    WorldChange::Removed(Arc::clone(gone))
                })
            }
            WorldEvent::BudgetExhausted(_) => WorldChange::Exhausted,
            WorldEvent::BudgetRaised(_) => WorldChange::Raised,
            WorldEvent::Noted(_)
            | WorldEvent::Commanded(_)
            | WorldEvent::Fired(_)
            | WorldEvent::Completed(_)
            | WorldEvent::Failed(_)
            | WorldEvent::Rejected(_)
            | WorldEvent::Loaded(_) => WorldChange::Nothing,
        };
        self.follow(&change);
        change
    }

    /// Makes a change that another world made in the same place of the same frames.
    pub fn follow(&mut self, change: &WorldChange) {
        self.changes += u64::from(!matches!(change, WorldChange::Nothing));
        match change {
            WorldChange::Nothing => {}
            WorldChange::Object(object) => self.put_object(Arc::clone(object)),
            WorldChange::Relation(relation) => self.put_relation(Arc::clone(relation)),
            WorldChange::Removed(relation) => self.remove_relation(&relation.id),
            WorldChange::Exhausted => self.is_exhausted = true,
            WorldChange::Raised => self.is_exhausted = false,
        }
    }

    /// The same world with indexes on other fields.
    #[must_use]
    pub fn reindexed(&self, fields: &Arc<IndexedFields>) -> Self {
        let mut world = Self::new(Arc::clone(fields));
        for object in self.objects() {
            world.follow(&WorldChange::Object(Arc::clone(object)).reindexed(fields));
        }
        for relation in self.relations() {
            world.put_relation(Arc::clone(relation));
        }
        world.made = self.made;
        world.changes = self.changes;
        world.ignored_patches = self.ignored_patches;
        world.is_exhausted = self.is_exhausted;
        world
    }

    fn created(&self, seq: u64, event: &ObjectCreated) -> WorldChange {
        let before = self.object(&event.id);
        let data = object::object_or_empty(&event.data);
        let posted = event.by.is_some();
        WorldChange::Object(Arc::new(WorldObject {
            id: before.map_or_else(|| event.id.as_str().into(), |before| Arc::clone(&before.id)),
            kind: self.type_name(&event.kind),
            indexed: self.fields.values(&event.kind, &data),
            data,
            order: before.map_or(self.made, |before| before.order),
            created: before.map_or(seq, |before| before.created),
            changed: seq,
            text: HashedText::default(),
            by_people: posted.then(|| Arc::new(BTreeMap::from([(String::new(), seq)]))),
        }))
    }

    fn patched(&mut self, seq: u64, event: &ObjectPatched) -> WorldChange {
        let Some(before) = self.object(&event.id) else {
            self.ignored_patches += 1;
            return WorldChange::Nothing;
        };
        let data = object::merge(&before.data, &event.patch);
        let mut by_people = before.by_people.clone();
        if event.by.is_some() {
            let frames = Arc::make_mut(by_people.get_or_insert_default());
            let members = object::members(&event.patch).into_keys();
            frames.extend(members.map(|member| (member, seq)));
        }
        WorldChange::Object(Arc::new(WorldObject {
            id: Arc::clone(&before.id),
            kind: Arc::clone(&before.kind),
            indexed: self.fields.values(&before.kind, &data),
            data,
            order: before.order,
            created: before.created,
            changed: seq,
            text: HashedText::default(),
            by_people,
        }))
    }

    fn related(&self, seq: u64, event: &RelationCreated) -> WorldChange {
        let before = self.relation(&event.id);
        let end = |id: &str| match self.object(id) {
            Some(object) => Arc::clone(&object.id),
            None => id.into(),
        };
        WorldChange::Relation(Arc::new(WorldRelation {
            id: before.map_or_else(|| event.id.as_str().into(), |before| Arc::clone(&before.id)),
            kind: event.kind.as_str().into(),
            source_id: end(&event.source_id),
            target_id: end(&event.target_id),
            data: object::object_or_empty(&event.data),
            order: before.map_or(self.made, |before| before.order),
            created: before.map_or(seq, |before| before.created),
            changed: seq,
            text: HashedText::default(),
        }))
    }

    /// One text for all objects of a type.
    fn type_name(&self, kind: &str) -> Arc<str> {
        let known = self.by_type.get_key_value(kind);
        known.map_or_else(|| kind.into(), |(known, _)| Arc::clone(known))
    }

    fn put_object(&mut self, object: Arc<WorldObject>) {
        let before = self.objects.get(&object.id).cloned();
        let same_type = before
            .as_ref()
            .is_some_and(|before| before.kind == object.kind);
        if let Some(before) = &before {
            if !same_type {
                unlist(&mut self.by_type, &before.kind, before.order);
            }
            for (at, value) in indexed(before) {
                let kept = same_type && value_at(&object, at) == Some(&value);
                if !kept {
                    unlist(
                        &mut self.by_field,
                        &(Arc::clone(&before.kind), at, value),
                        before.order,
                    );
                }
            }
        } else {
            self.made = self.made.max(object.order + 1);
        }
        if !same_type {
            list(
                &mut self.by_type,
                Arc::clone(&object.kind),
                object.order,
                &object.id,
            );
        }
        for (at, value) in indexed(&object) {
            let listed =
                same_type && before.as_ref().and_then(|it| value_at(it, at)) == Some(&value);
            if !listed {
                let key = (Arc::clone(&object.kind), at, value);
                list(&mut self.by_field, key, object.order, &object.id);
            }
        }
        self.objects.insert_mut(Arc::clone(&object.id), object);
    }

    fn put_relation(&mut self, relation: Arc<WorldRelation>) {
        self.remove_relation(&relation.id);
        self.made = self.made.max(relation.order + 1);
        for end in [&relation.source_id, &relation.target_id] {
            list(
                &mut self.touching,
                Arc::clone(end),
                relation.order,
                &relation.id,
            );
        }
        self.relations
            .insert_mut(Arc::clone(&relation.id), relation);
    }

    fn remove_relation(&mut self, id: &str) {
        let Some(gone) = self.relations.get(id).cloned() else {
            return;
        };
        for end in [&gone.source_id, &gone.target_id] {
            unlist(&mut self.touching, end, gone.order);
        }
        self.relations.remove_mut(id);
    }
}

impl WorldChange {
    /// The same change of a world with indexes on other fields.
    #[must_use]
    pub(super) fn reindexed(&self, fields: &IndexedFields) -> Self {
        match self {
            Self::Object(object) => Self::Object(Arc::new(WorldObject {
                indexed: fields.values(&object.kind, &object.data),
                ..WorldObject::clone(object)
            })),
            Self::Nothing
            | Self::Relation(_)
            | Self::Removed(_)
            | Self::Exhausted
            | Self::Raised => self.clone(),
        }
    }
}

impl World {
    /// An object by its id.
    pub fn object(&self, id: &str) -> Option<&Arc<WorldObject>> {
        self.objects.get(id)
    }

    /// A relation by its id.
    pub fn relation(&self, id: &str) -> Option<&Arc<WorldRelation>> {
        self.relations.get(id)
    }

    /// Number of objects.
    pub fn object_count(&self) -> usize {
        self.objects.size()
    }

    /// Number of changes so far: it grows with each frame that changes anything.
    pub fn change_count(&self) -> u64 {
        self.changes
    }

    /// Number of relations.
    pub fn relation_count(&self) -> usize {
        self.relations.size()
    }

    /// Number of objects of each type. Costs as much as there are types.
    pub fn objects_by_type(&self) -> BTreeMap<&str, usize> {
        let types = self.by_type.iter();
        types
            .map(|(kind, listing)| (&**kind, listing.size()))
            .collect()
    }

    /// Number of relations of each type.
    pub fn relations_by_type(&self) -> BTreeMap<&str, usize> {
        let mut counts = BTreeMap::new();
        for relation in self.relations.values() {
            *counts.entry(&*relation.kind).or_default() += 1;
        }
        counts
    }

    /// All objects, in any order.
    pub(super) fn object_values(&self) -> impl Iterator<Item = &Arc<WorldObject>> {
        self.objects.values()
    }

    /// All relations, in any order.
    pub(super) fn relation_values(&self) -> impl Iterator<Item = &Arc<WorldRelation>> {
        self.relations.values()
    }

    /// All objects, in order of creation.
    pub fn objects(&self) -> Vec<&Arc<WorldObject>> {
        let mut all: Vec<_> = self.objects.values().collect();
        all.sort_unstable_by_key(|object| object.order);
        all
    }

    /// All relations, in order of creation.
    pub fn relations(&self) -> Vec<&Arc<WorldRelation>> {
        let mut all: Vec<_> = self.relations.values().collect();
        all.sort_unstable_by_key(|relation| relation.order);
        all
    }

    /// The objects of a type, in order of creation.
    pub fn of_type(&self, kind: &str) -> impl Iterator<Item = &Arc<WorldObject>> {
        let listing = self.by_type.get(kind).into_iter();
        listing.flat_map(|listing| listing.values().filter_map(|id| self.object(id)))
    }

    /// The relations that begin or end at an object, in order of creation; of one type, if any is
    /// given.
    pub fn relations_of<'w>(
        &'w self,
        id: &str,
        kind: Option<&'w str>,
    ) -> impl Iterator<Item = &'w Arc<WorldRelation>> {
        let listing = self.touching.get(id).into_iter();
        let relations = listing.flat_map(|listing| listing.values());
        relations
            .filter_map(|id| self.relation(id))
            .filter(move |relation| kind.is_none_or(|kind| *relation.kind == *kind))
    }

    /// The fields that can be looked up.
    pub fn indexed_fields(&self) -> &Arc<IndexedFields> {
        &self.fields
    }

    /// Returns `true` if the budget is used up: `budget_exhausted` of the world's `context`.
    pub fn is_exhausted(&self) -> bool {
        self.is_exhausted
    }

    /// Number of frames that patched an object that did not exist, and changed nothing (decision
    /// F8). No run of ours has any.
    pub fn ignored_patches(&self) -> u64 {
        self.ignored_patches
    }

    /// `context` as it is shown: what the run shares beside objects and relations.
    pub fn context(&self) -> CanonicalJson {
        let context = serde_json::json!({ "budget_exhausted": self.is_exhausted });
        CanonicalJson::from_value(&context).unwrap_or_default()
    }

    /// All objects of a type, and those with a value in a field.
    pub(super) fn listing(
        &self,
        kind: &str,
        field: Option<(&str, &IndexValue)>,
    ) -> Option<&Listing> {
        let Some((field, value)) = field else {
            return self.by_type.get(kind);
        };
        let fields = self.fields.of_type(kind);
        let at = fields.iter().position(|name| name == field)?;
        let at = u32::try_from(at).ok()?;
        let (kind, _) = self.by_type.get_key_value(kind)?;
        self.by_field.get(&(Arc::clone(kind), at, value.clone()))
    }
}

/// The values that indexes hold of an object, with the positions of their fields.
fn indexed(object: &WorldObject) -> impl Iterator<Item = (u32, IndexValue)> {
    let values = (0u32..).zip(&object.indexed);
    values.filter_map(|(at, value)| Some((at, value.clone()?)))
}

fn value_at(object: &WorldObject, at: u32) -> Option<&IndexValue> {
    object.indexed.get(at as usize)?.as_ref()
}

fn list<K: Clone + Eq + std::hash::Hash>(
    listings: &mut HashTrieMapSync<K, Listing>,
    key: K,
    order: u64,
    id: &Arc<str>,
) {
    match listings.get_mut(&key) {
        Some(listing) => listing.insert_mut(order, Arc::clone(id)),
        None => {
            let mut listing = Listing::new_sync();
            listing.insert_mut(order, Arc::clone(id));
            listings.insert_mut(key, listing);
        }
    }
}

fn unlist<K: Clone + Eq + std::hash::Hash>(
    listings: &mut HashTrieMapSync<K, Listing>,
    key: &K,
    order: u64,
) {
    let Some(listing) = listings.get_mut(key) else {
        return;
    };
    listing.remove_mut(&order);
    if listing.is_empty() {
        listings.remove_mut(key);
    }
}
