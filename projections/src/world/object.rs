//! Objects and relations of a world.

use std::collections::BTreeMap;
use std::sync::Arc;

use ktsu_ledger::CanonicalJson;
use serde_json::value::RawValue;

use super::hashed_text::HashedText;
use super::index::IndexValue;

/// An object, as some frame left it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorldObject {
    /// Unique among the objects of a run.
    pub id: Arc<str>,
    /// The type.
    pub kind: Arc<str>,
    /// The data: an object.
    pub data: CanonicalJson,
    /// Its place among all objects and relations, in order of creation. One that replaces another
    /// keeps its place.
    pub order: u64,
    /// The frame that created it; of one that replaces another, the frame that created that.
    pub created: u64,
    /// The last frame about it.
    pub changed: u64,
    /// The frames by which people replaced members of its data, by member; the empty name is all of
    /// them.
    pub by_people: Option<Arc<BTreeMap<String, u64>>>,
    /// The values that indexes hold of it, in the order of the indexed fields of its type.
    pub(super) indexed: Box<[Option<IndexValue>]>,
    pub(super) text: HashedText,
}

/// A relation between two objects, which need not exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorldRelation {
    /// Unique among the relations of a run.
    pub id: Arc<str>,
    /// The type.
    pub kind: Arc<str>,
    /// The object it begins at.
    pub source_id: Arc<str>,
    /// The object it ends at.
    pub target_id: Arc<str>,
    /// The data: an object.
    pub data: CanonicalJson,
    /// Its place among all objects and relations, in order of creation.
    pub order: u64,
    /// The frame that created it; of one that replaces another, the frame that created that.
    pub created: u64,
    /// The last frame about it.
    pub changed: u64,
    pub(super) text: HashedText,
}

impl WorldObject {
    /// Returns `true` if a person replaced a member of its data after a frame.
    pub fn changed_by_person(&self, member: &str, since: u64) -> bool {
        let behind = |name: &str| {
            let frames = self.by_people.as_deref();
            frames.and_then(|frames| frames.get(name)) > Some(&since)
        };
        behind(member) || behind("")
    }
}

/// An object's text for what may have been left out or is no object.
pub(super) fn object_or_empty(data: &CanonicalJson) -> CanonicalJson {
    match data.as_str().starts_with('{') {
        true => data.clone(),
        false => empty(),
    }
}

fn empty() -> CanonicalJson {
    CanonicalJson::parse(b"{}").unwrap_or_default()
}

/// The members of an object's text, each as it is written.
pub fn members(data: &CanonicalJson) -> BTreeMap<String, &RawValue> {
    serde_json::from_str(data.as_str()).unwrap_or_default()
}

/// The data with the members of a patch in place of its own: a shallow merge.
pub fn merge(data: &CanonicalJson, patch: &CanonicalJson) -> CanonicalJson {
    let patch = members(patch);
    if patch.is_empty() {
        return data.clone();
    }
    let mut merged = members(data);
    merged.extend(patch);
    // Members are sorted by their bytes and written as they were: canonical text remains so.
    let text = serde_json::value::to_raw_value(&merged);
    text.map_or_else(|_| data.clone(), CanonicalJson::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> CanonicalJson {
        CanonicalJson::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn a_patch_replaces_members_whole_and_leaves_the_others() {
        let merged = merge(
            &json(r#"{"cfg":{"a":0,"b":2},"é":1,"z":1.0}"#),
            &json(r#"{"cfg":{"a":1},"n":null}"#),
        );
        assert_eq!(merged, json(r#"{"cfg":{"a":1},"é":1,"n":null,"z":1.0}"#));
        assert_eq!(merge(&merged, &CanonicalJson::null()), merged);
        assert_eq!(merge(&merged, &json("[1]")), merged);
        assert_eq!(object_or_empty(&CanonicalJson::null()), json("{}"));
    }
}
