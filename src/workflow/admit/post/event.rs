//! An event as people and peers post it, before it has a place in a run.

use ktsu_projections::world::TriggerKey;
use ktsu_projections::world::derivation::relation_id;
use serde_json::{Map, Value};

/// Members of an object.
pub type EventMembers = Map<String, Value>;

/// An event, as it is posted.
#[derive(Debug, Clone, PartialEq)]
pub enum PostedEvent {
    /// `object.created`.
    Object {
        /// Its id; absent: one is made from the number of the post.
        id: Option<String>,
        /// The type of the object.
        kind: String,
        /// Its data.
        data: EventMembers,
    },
    /// `object.patched`.
    Patch {
        /// The object.
        id: String,
        /// Members that replace those of its data, whole.
        patch: EventMembers,
    },
    /// `relation.created`.
    Relation {
        /// Its id; absent: it follows from the type and the ends.
        id: Option<String>,
        /// The type of the relation.
        kind: String,
        /// The object it begins at.
        source_id: String,
        /// The object it ends at.
        target_id: String,
        /// Its data.
        data: EventMembers,
    },
    /// `relation.removed`.
    Removal {
        /// The relation.
        id: String,
    },
    /// `note`.
    Note {
        /// The members of the event.
        data: EventMembers,
    },
    /// An event of a kit.
    Kit {
        /// `x.KIT.NAME`.
        kind: String,
        /// The members of the event.
        data: EventMembers,
    },
}

impl PostedEvent {
    /// The type of the event.
    pub fn event_type(&self) -> &str {
        match self {
            Self::Object { .. } => "object.created",
            Self::Patch { .. } => "object.patched",
            Self::Relation { .. } => "relation.created",
            Self::Removal { .. } => "relation.removed",
            Self::Note { .. } => "note",
            Self::Kit { kind, .. } => kind,
        }
    }

    /// The object or the relation that it is about, as event `place` of post `n`.
    pub fn subject(&self, n: u64, place: u32) -> Option<String> {
        let named = self.named();
        match self {
            Self::Object { kind, .. } => {
                let made = || TriggerKey::post(n, place).object_id(kind);
                Some(named.unwrap_or_else(made))
            }
            Self::Relation { .. }
            | Self::Patch { .. }
            | Self::Removal { .. }
            | Self::Note { .. }
            | Self::Kit { .. } => named,
        }
    }

    /// Every name in it: ids and types. They are recorded as they are.
    pub fn names(&self) -> Vec<&str> {
        match self {
            Self::Object { id, kind, .. } => id.iter().chain([kind]).map(String::as_str).collect(),
            Self::Relation {
                id,
                kind,
                source_id,
                target_id,
                ..
            } => {
                let names = id.iter().chain([kind, source_id, target_id]);
                names.map(String::as_str).collect()
            }
            Self::Patch { id, .. } | Self::Removal { id } => vec![id],
            Self::Note { .. } => Vec::new(),
            Self::Kit { kind, .. } => vec![kind],
        }
    }

    /// The content of the event, beside names.
    pub fn data_mut(&mut self) -> Option<&mut EventMembers> {
        match self {
            Self::Object { data, .. }
            | Self::Relation { data, .. }
            | Self::Patch { patch: data, .. }
            | Self::Note { data }
            | Self::Kit { data, .. } => Some(data),
            Self::Removal { .. } => None,
        }
    }

    pub(super) fn data(&self) -> Option<&EventMembers> {
        match self {
            Self::Object { data, .. }
            | Self::Relation { data, .. }
            | Self::Patch { patch: data, .. }
            | Self::Note { data }
            | Self::Kit { data, .. } => Some(data),
            Self::Removal { .. } => None,
        }
    }

    /// The object or the relation that it names.
    pub(super) fn named(&self) -> Option<String> {
        match self {
            Self::Object { id, .. } => id.clone(),
            Self::Relation {
                id,
                kind,
                source_id,
                target_id,
                ..
            } => {
                let derived = || relation_id(kind, source_id, target_id);
                Some(id.clone().unwrap_or_else(derived))
            }
            Self::Patch { id, .. } | Self::Removal { id } => Some(id.clone()),
            Self::Note { .. } | Self::Kit { .. } => None,
        }
    }

    /// Returns `true` if it is about a relation.
    pub(super) fn is_about_relation(&self) -> bool {
        matches!(self, Self::Relation { .. } | Self::Removal { .. })
    }
}
