//! The world of a recorded run, as any of its frames left it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ktsu_ledger::store::StoreError;
use ktsu_ledger::{CanonicalJson, Frame};
use ktsu_projections::run::{FoldError, RunState};
use ktsu_projections::world::{World, WorldDiff, WorldObject, WorldRelation};
use serde::Serialize;
use utoipa::ToSchema;

use super::RunReadError;
use super::frame_page::PageLimit;
use super::world_labels::WorldLabels;

/// The most objects and relations on a page.
pub const MAX_ENTRIES: usize = 10_000;
/// The most relations of each object that a drawing looks at, on average.
const RELATIONS_OF_EACH: usize = 20;

/// The reason why a recorded run has no world to show.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WorldReadError {
    /// The run cannot be read.
    #[error(transparent)]
    Run(#[from] RunReadError),
    /// Its definition loads no worlds, or did not yet at that frame.
    #[error("the run loads no worlds")]
    NoWorld,
    /// It has fewer frames.
    #[error("the run has no frame {at}: its last is frame {last}")]
    NoFrame {
        /// The wanted frame.
        at: u64,
        /// The last one.
        last: u64,
    },
}

impl From<StoreError> for WorldReadError {
    fn from(error: StoreError) -> Self {
        Self::Run(error.into())
    }
}

impl From<FoldError> for WorldReadError {
    fn from(error: FoldError) -> Self {
        Self::Run(error.into())
    }
}

/// A world, and where it was read.
#[derive(Debug, Clone)]
pub struct RecordedWorld<'f> {
    frames: &'f [Frame],
    pages: WorldPages,
}

/// A world as it is shown, whole or in parts.
#[derive(Debug, Clone)]
pub struct WorldPages {
    labels: WorldLabels,
    /// The frame after which it was like this.
    at: u64,
    /// The number of world frames by then.
    events: u64,
    hash: String,
}

/// A world, or a part of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WorldView {
    /// `run_…` or `branch_…`.
    pub run_id: String,
    /// The frame after which the world was like this.
    pub at: u64,
    /// `sha256:` and a digest of all objects and relations, whatever part of them is here.
    pub world_hash: String,
    /// How many world frames the run had by then: those that a budget of events counts.
    pub events: u64,
    /// Objects, in order of creation.
    pub objects: Vec<ObjectView>,
    /// Relations, in order of creation.
    pub relations: Vec<RelationView>,
    /// What the run shares beside objects and relations: `budget_exhausted`.
    #[schema(value_type = Value)]
    pub context: CanonicalJson,
    /// Where the next page begins, if there is more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
}

/// An object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ObjectView {
    /// Unique among the objects of the run.
    pub id: String,
    /// The type.
    #[serde(rename = "type")]
    pub kind: String,
    /// The data: a JSON object.
    #[schema(value_type = Value)]
    pub data: CanonicalJson,
    /// The frame that created it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created: Option<u64>,
    /// The last frame that changed it.
    pub changed: u64,
}

/// A relation between two objects, which need not exist.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RelationView {
    /// Unique among the relations of the run.
    pub id: String,
    /// The type.
    #[serde(rename = "type")]
    pub kind: String,
    /// The object it begins at.
    pub source_id: String,
    /// The object it ends at.
    pub target_id: String,
    /// The data: a JSON object.
    #[schema(value_type = Value)]
    pub data: CanonicalJson,
    /// The frame that created it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created: Option<u64>,
    /// The last frame about it.
    pub changed: u64,
}

/// The objects and relations that are wanted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorldFilter {
    /// Of this type; of any if it is empty.
    pub kind: String,
    /// With this text in an id, an end, the type or the data, upper and lower case alike.
    pub text: String,
}

/// An entry of a page: objects and relations share one order.
enum Entry<'w> {
    Object(&'w WorldObject),
    Relation(&'w WorldRelation),
}

/// The differences between the worlds at two frames of a run.
///
/// # Errors
/// [`WorldReadError`], of either.
pub fn diff(frames: &[Frame], a: u64, b: u64) -> Result<WorldDiff, WorldReadError> {
    let world = |at| {
        let (_, state) = state_at(frames, Some(at))?;
        let responding = state.responding().ok_or(WorldReadError::NoWorld)?;
        Ok::<_, WorldReadError>(responding.head().clone())
    };
    Ok(WorldDiff::between(&world(a)?, &world(b)?))
}

impl<'f> RecordedWorld<'f> {
    /// The world of a run as one of its frames left it; without `at`, as the last one did.
    ///
    /// # Errors
    /// [`WorldReadError`].
    pub fn of(frames: &'f [Frame], at: Option<u64>) -> Result<Self, WorldReadError> {
        let (read, state) = state_at(frames, at)?;
        let pages = WorldPages::of(&state, None)?;
        Ok(Self {
            frames: read,
            pages,
        })
    }

    /// The world.
    pub fn world(&self) -> &World {
        self.pages.labels.world()
    }

    /// The frame after which it was like this.
    pub fn at(&self) -> u64 {
        self.pages.at
    }

    /// A frame up to there.
    pub fn frame(&self, seq: u64) -> Option<&'f Frame> {
        self.frames.get(usize::try_from(seq).ok()?)
    }

    /// As it is shown.
    pub fn pages(&self) -> &WorldPages {
        &self.pages
    }
}

impl WorldPages {
    /// The world of a run in its state. `hash` is that of the world, if it is known already.
    ///
    /// # Errors
    /// [`WorldReadError::NoWorld`].
    pub fn of(state: &RunState, hash: Option<String>) -> Result<Self, WorldReadError> {
        let responding = state.responding().ok_or(WorldReadError::NoWorld)?;
        let world = responding.head().clone();
        Ok(Self {
            at: state.next_seq().saturating_sub(1),
            events: responding.activity().events(),
            hash: hash.unwrap_or_else(|| world.hash()),
            labels: WorldLabels::of(state, world),
        })
    }

    /// The world.
    pub fn world(&self) -> &World {
        self.labels.world()
    }

    /// What its objects are called.
    pub fn labels(&self) -> &WorldLabels {
        &self.labels
    }

    /// The frame after which it was like this.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Everything.
    pub fn view(&self, run_id: &str) -> WorldView {
        let unbounded = PageLimit {
            frames: usize::MAX,
            bytes: usize::MAX,
        };
        self.page(run_id, 0, unbounded)
    }

    /// The objects or the relations of a type.
    pub fn of_type(&self, run_id: &str, kind: &str) -> WorldView {
        let objects = self.world().of_type(kind).map(|one| self.object(one));
        let relations = self.world().relations().into_iter();
        let relations = relations.filter(|one| *one.kind == *kind);
        WorldView {
            objects: objects.collect(),
            relations: relations.map(|one| self.relation(one)).collect(),
            ..self.empty(run_id)
        }
    }

    /// An object, and the relations that begin or end at it.
    pub fn one(&self, run_id: &str, object: &WorldObject) -> WorldView {
        let relations = self.world().relations_of(&object.id, None);
        WorldView {
            objects: vec![self.object(object)],
            relations: relations.map(|one| self.relation(one)).collect(),
            ..self.empty(run_id)
        }
    }

    /// The objects and relations from a place in the order of creation on, as many as the limit
    /// takes; its `frames` are entries here. At least one is on the page.
    pub fn page(&self, run_id: &str, from: u64, limit: PageLimit) -> WorldView {
        self.found(run_id, &WorldFilter::default(), from, limit)
    }

    /// As [`WorldPages::page`], of those that are wanted.
    pub fn found(
        &self,
        run_id: &str,
        wanted: &WorldFilter,
        from: u64,
        limit: PageLimit,
    ) -> WorldView {
        let mut view = self.empty(run_id);
        let mut bytes = 0usize;
        let words = wanted.text.to_lowercase();
        let entries = self.entries(from).into_iter();
        let entries = entries.filter(|entry| entry.is_like(&wanted.kind, &words));
        for (taken, entry) in entries.enumerate() {
            bytes = bytes.saturating_add(entry.size());
            if taken > 0 && (taken == limit.frames || bytes > limit.bytes) {
                view.next = Some(entry.order());
                return view;
            }
            match entry {
                Entry::Object(object) => view.objects.push(self.object(object)),
                Entry::Relation(relation) => view.relations.push(self.relation(relation)),
            }
        }
        view
    }

    /// In order of creation.
    fn entries(&self, from: u64) -> Vec<Entry<'_>> {
        let objects = self.world().objects().into_iter();
        let objects = objects.map(|one| Entry::Object(one));
        let relations = self.world().relations().into_iter();
        let relations = relations.map(|one| Entry::Relation(one));
        let mut entries: Vec<Entry<'_>> = objects.chain(relations).collect();
        entries.retain(|entry| entry.order() >= from);
        entries.sort_unstable_by_key(Entry::order);
        entries
    }

    /// The part that a drawing of so many objects has room for, with the relations of these: those of a type,
    /// if one is given; of a large world, an object and what is nearest to it; else what was created first.
    pub fn sketch(
        &self,
        run_id: &str,
        kind: &str,
        near: Option<&WorldObject>,
        most: usize,
    ) -> WorldView {
        let world = self.world();
        let is_large = world.object_count() > most;
        let objects: Vec<&Arc<WorldObject>> = match near.filter(|_| is_large) {
            _ if !kind.is_empty() => world.of_type(kind).take(most).collect(),
            Some(object) => self.around(object, most),
            None => world.objects().into_iter().take(most).collect(),
        };
        let of_objects = objects
            .iter()
            .flat_map(|object| world.relations_of(&object.id, None));
        let of_type = world.relations().into_iter();
        let of_type = of_type.filter(|one| !kind.is_empty() && *one.kind == *kind);
        let relations: BTreeMap<u64, &Arc<WorldRelation>> = of_objects
            .chain(of_type)
            .map(|one| (one.order, one))
            .take(most * RELATIONS_OF_EACH)
            .collect();
        WorldView {
            objects: objects.into_iter().map(|one| self.object(one)).collect(),
            relations: relations
                .into_values()
                .map(|one| self.relation(one))
                .collect(),
            ..self.empty(run_id)
        }
    }

    /// An object, and those that are the fewest relations away from it.
    fn around<'w>(&'w self, object: &WorldObject, most: usize) -> Vec<&'w Arc<WorldObject>> {
        let world = self.world();
        let mut found: Vec<&Arc<WorldObject>> = world.object(&object.id).into_iter().collect();
        let mut seen: BTreeSet<&str> = found.iter().map(|one| &*one.id).collect();
        let mut next = 0;
        while let Some(one) = found.get(next).copied() {
            next += 1;
            for relation in world.relations_of(&one.id, None) {
                for end in [&relation.source_id, &relation.target_id] {
                    if found.len() == most {
                        return found;
                    }
                    if let Some(object) = world.object(end)
                        && seen.insert(&object.id)
                    {
                        found.push(object);
                    }
                }
            }
        }
        found
    }

    fn empty(&self, run_id: &str) -> WorldView {
        WorldView {
            run_id: run_id.to_owned(),
            at: self.at,
            world_hash: self.hash.clone(),
            events: self.events,
            objects: Vec::new(),
            relations: Vec::new(),
            context: self.world().context(),
            next: None,
        }
    }

    fn object(&self, object: &WorldObject) -> ObjectView {
        ObjectView {
            id: object.id.to_string(),
            kind: object.kind.to_string(),
            data: object.data.clone(),
            created: Some(object.created),
            changed: object.changed,
        }
    }

    fn relation(&self, relation: &WorldRelation) -> RelationView {
        RelationView {
            id: relation.id.to_string(),
            kind: relation.kind.to_string(),
            source_id: relation.source_id.to_string(),
            target_id: relation.target_id.to_string(),
            data: relation.data.clone(),
            created: Some(relation.created),
            changed: relation.changed,
        }
    }
}

impl Entry<'_> {
    fn order(&self) -> u64 {
        match self {
            Self::Object(object) => object.order,
            Self::Relation(relation) => relation.order,
        }
    }

    /// `words` are in lower case.
    fn is_like(&self, wanted: &str, words: &str) -> bool {
        let (kind, texts) = match self {
            Self::Object(object) => (&object.kind, vec![&*object.id]),
            Self::Relation(relation) => {
                let ends = [&relation.id, &relation.source_id, &relation.target_id];
                (&relation.kind, ends.map(|text| &**text).to_vec())
            }
        };
        let data = match self {
            Self::Object(object) => object.data.as_str(),
            Self::Relation(relation) => relation.data.as_str(),
        };
        let mut texts = texts.into_iter().chain([&**kind, data]);
        (wanted.is_empty() || **kind == *wanted)
            && (words.is_empty() || texts.any(|text| text.to_lowercase().contains(words)))
    }

    /// About how many bytes it takes.
    fn size(&self) -> usize {
        match self {
            Self::Object(object) => {
                object.id.len() + object.kind.len() + object.data.as_str().len()
            }
            Self::Relation(relation) => {
                let ends = relation.source_id.len() + relation.target_id.len();
                relation.id.len() + relation.kind.len() + ends + relation.data.as_str().len()
            }
        }
    }
}

/// The frames up to a frame, and the state that they make.
fn state_at(frames: &[Frame], at: Option<u64>) -> Result<(&[Frame], RunState), WorldReadError> {
    let last = frames.last().ok_or(FoldError::Empty)?.seq;
    let at = at.unwrap_or(last);
    let until = usize::try_from(at).ok().and_then(|at| at.checked_add(1));
    let read = until.and_then(|until| frames.get(..until));
    let read = read.ok_or(WorldReadError::NoFrame { at, last })?;
    Ok((read, RunState::fold(read)?))
}
