//! The types that the worlds of a kit declare, as sets of values.

use std::collections::BTreeMap;

use ktsu_ledger::CanonicalJson;
use ktsu_ledger::event::plan::world::{ObjectType, RelationType};
use ktsu_workflow::types::schema::of_schema;
use ktsu_workflow::types::{KindSet, Members, ValueType};

use crate::loader::Loader;

/// The known type of a name: its values, and the types of the objects that they are or hold.
#[derive(Debug, Clone)]
pub(super) struct KnownName {
    pub(super) value: ValueType,
    pub(super) kinds: Option<Vec<String>>,
}

impl KnownName {
    pub(super) fn of(value: ValueType) -> Self {
        Self { value, kinds: None }
    }

    pub(super) fn any() -> Self {
        Self::of(ValueType::any())
    }
}

/// The types that all worlds of a kit declare.
#[derive(Default)]
pub(super) struct WorldTypes {
    objects: BTreeMap<String, (ObjectType, ValueType)>,
    relations: BTreeMap<String, RelationType>,
}

impl WorldTypes {
    pub(super) fn of(loader: &Loader) -> Self {
        let mut types = Self::default();
        for draft in loader.worlds.values().flatten() {
            for (name, object) in &draft.plan.objects {
                let schema = object.schema.as_ref().map(CanonicalJson::to_value);
                let data = schema.map(|schema| of_schema(&schema).only(KindSet::OBJECT));
                let data = data.unwrap_or_else(ValueType::open_object);
                let declared = (object.clone(), data);
                types.objects.insert(name.clone(), declared);
            }
            let relations = draft.plan.relations.iter();
            let relations = relations.map(|(name, one)| (name.clone(), one.clone()));
            types.relations.extend(relations);
        }
        types
    }

    pub(super) fn schema_of(&self, kind: &str) -> Option<&CanonicalJson> {
        self.objects.get(kind)?.0.schema.as_ref()
    }

    /// The data of objects of some types; of any where none is named, or one is unknown.
    pub(super) fn data_of(&self, types: &[String]) -> ValueType {
        let known: Option<Vec<ValueType>> = types
            .iter()
            .map(|kind| Some(self.objects.get(kind)?.1.clone()))
            .collect();
        match known {
            Some(known) if !known.is_empty() => ValueType::union(known),
            Some(_) | None => ValueType::open_object(),
        }
    }

    /// Objects of some types.
    pub(super) fn object_of(&self, types: &[String]) -> KnownName {
        let value = ValueType::record([
            ("data", self.data_of(types)),
            ("id", ValueType::string()),
            ("type", ValueType::string()),
        ]);
        let known = !types.is_empty() && types.iter().all(|kind| self.objects.contains_key(kind));
        KnownName {
            value,
            kinds: known.then(|| types.to_vec()),
        }
    }

    /// Some fields of the data of objects of some types.
    pub(super) fn patch_of(&self, types: &[String]) -> ValueType {
        let data = self.data_of(types);
        let Some(members) = data.members() else {
            return data;
        };
        let mut members: Members = members.clone();
        for member in members.named.values_mut() {
            member.always = false;
        }
        ValueType::object(members)
    }

    /// Relations, of which only some members are known.
    pub(super) fn relation_of(&self, _: &[String]) -> ValueType {
        ValueType::open_object()
    }

    /// The types of objects at one end of relations of some types; nothing where any may be.
    pub(super) fn ends(&self, types: &[String], beginning: bool) -> Option<Vec<String>> {
        let mut ends = Vec::new();
        for kind in types {
            let relation = self.relations.get(kind)?;
            let end = if beginning {
                &relation.from
            } else {
                &relation.to
            };
            if end.is_empty() {
                return None;
            }
            ends.extend(end.iter().cloned());
        }
        ends.sort_unstable();
        ends.dedup();
        (!ends.is_empty()).then_some(ends)
    }

    /// The object at one end of relations of some types, if it exists.
    pub(super) fn end_of(&self, types: &[String], beginning: bool) -> KnownName {
        let ends = self.ends(types, beginning).unwrap_or_default();
        let known = self.object_of(&ends);
        KnownName {
            value: known.value.or_null(),
            ..known
        }
    }
}
