//! The schemas of events that are posted to a run that loads worlds.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// One event, or several that are one post: they are recorded together.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(untagged)]
pub enum EventPosts {
    /// One.
    One(EventPost),
    /// Several.
    Several(Vec<EventPost>),
}

/// An event.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(untagged)]
pub enum EventPost {
    /// An object is made, or replaced whole.
    Object(ObjectPost),
    /// Members of an object's data are replaced.
    Patch(ObjectPatchPost),
    /// A relation is made, or replaced whole.
    Relation(RelationPost),
    /// A relation is removed.
    Removal(RelationRemovalPost),
    /// A remark.
    Note(NotePost),
    /// An event of a kit.
    Kit(KitEventPost),
}

/// `object.created`.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ObjectPost {
    /// `object.created`.
    #[serde(rename = "type")]
    #[schema(pattern = r"^object\.created$")]
    pub event_type: String,
    /// The object.
    pub data: PostedObject,
}

/// An object.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PostedObject {
    /// Its id; without one it gets one.
    #[schema(min_length = 1, max_length = 256)]
    pub id: Option<String>,
    /// A type of objects that a world of the run declares.
    #[serde(rename = "type")]
    #[schema(min_length = 1, max_length = 256)]
    pub kind: String,
    /// Its data.
    #[schema(value_type = Option<Object>)]
    pub data: Option<Map<String, Value>>,
}

/// `object.patched`.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ObjectPatchPost {
    /// `object.patched`.
    #[serde(rename = "type")]
    #[schema(pattern = r"^object\.patched$")]
    pub event_type: String,
    /// The patch.
    pub data: PatchedObject,
}

/// A patch of an object.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PatchedObject {
    /// The object.
    #[schema(min_length = 1, max_length = 256)]
    pub id: String,
    /// Members that replace those of its data, whole.
    #[schema(value_type = Object)]
    pub patch: Map<String, Value>,
}

/// `relation.created`.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RelationPost {
    /// `relation.created`.
    #[serde(rename = "type")]
    #[schema(pattern = r"^relation\.created$")]
    pub event_type: String,
    /// The relation.
    pub data: PostedRelation,
}

/// A relation.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PostedRelation {
    /// Its id; without one there is one relation of its type between the two objects.
    #[schema(min_length = 1, max_length = 256)]
    pub id: Option<String>,
    /// A type of relations that a world of the run declares.
    #[serde(rename = "type")]
    #[schema(min_length = 1, max_length = 256)]
    pub kind: String,
    /// The object it begins at, which need not exist yet.
    #[schema(min_length = 1, max_length = 256)]
    pub source_id: String,
    /// The object it ends at, which need not exist yet.
    #[schema(min_length = 1, max_length = 256)]
    pub target_id: String,
    /// Its data.
    #[schema(value_type = Option<Object>)]
    pub data: Option<Map<String, Value>>,
}

/// `relation.removed`.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RelationRemovalPost {
    /// `relation.removed`.
    #[serde(rename = "type")]
    #[schema(pattern = r"^relation\.removed$")]
    pub event_type: String,
    /// The relation.
    pub data: RemovedRelation,
}

/// A relation that is removed.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RemovedRelation {
    /// The relation. Nothing changes if there is none.
    #[schema(min_length = 1, max_length = 256)]
    pub id: String,
}

/// `note`.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NotePost {
    /// `note`.
    #[serde(rename = "type")]
    #[schema(pattern = r"^note$")]
    pub event_type: String,
    /// What it says: `event.data` to responders.
    #[schema(value_type = Option<Object>)]
    pub data: Option<Map<String, Value>>,
}

/// An event that a kit has named.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct KitEventPost {
    /// `x.KIT.NAME`.
    #[serde(rename = "type")]
    #[schema(pattern = r"^x\.[A-Za-z0-9][A-Za-z0-9_-]{0,63}\.[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")]
    pub event_type: String,
    /// What it says: `event.data` to responders.
    #[schema(value_type = Option<Object>)]
    pub data: Option<Map<String, Value>>,
}

/// A post was recorded. A request that is repeated with its key gets the same answer.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PostRecorded {
    /// The run or branch.
    pub run_id: String,
    /// The number of the post in the run, from 1.
    pub post: u64,
    /// A frame for each event, in order.
    pub events: Vec<RecordedEvent>,
}

/// The frame of a posted event.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RecordedEvent {
    /// The frame.
    pub seq: u64,
    /// The type of the event.
    #[serde(rename = "type")]
    pub event_type: String,
    /// The object or the relation that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
}
