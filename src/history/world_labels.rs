//! The names by which people know the objects of a world.

use std::collections::BTreeMap;

use ktsu_ledger::CanonicalJson;
use ktsu_projections::run::RunState;
use ktsu_projections::world::World;
use ktsu_projections::world::object::members;
use serde_json::Value;

/// The most characters of a name.
const MAX_NAME: usize = 200;

/// What the names of the objects of a world are made of.
#[derive(Debug, Clone, Default)]
pub struct WorldLabels {
    /// By type: the member of the data that its world declares as the label.
    declared: BTreeMap<String, String>,
    world: World,
}

impl WorldLabels {
    /// Of the world of a run in its state.
    pub fn of(state: &RunState, world: World) -> Self {
        let worlds = state.outline().worlds().values();
        let types = worlds.flat_map(|world| &world.objects);
        let declared = types.filter_map(|(name, one)| Some((name.clone(), one.label.clone()?)));
        Self {
            declared: declared.collect(),
            world,
        }
    }

    /// The world.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// The name of an object: the member that is the label of its type, else the shortest text of its data
    /// that is no id of an object or a relation.
    pub fn of_object(&self, kind: &str, data: &CanonicalJson) -> Option<String> {
        let members = members(data);
        let read = |json: &str| match serde_json::from_str(json) {
            Ok(Value::String(text)) => one_line(&text),
            Ok(Value::Number(number)) => Some(number.to_string()),
            _ => None,
        };
        let declared = self.declared.get(kind);
        let declared = declared.and_then(|label| read(members.get(label.as_str())?.get()));
        declared.or_else(|| {
            let texts = members.values().map(|json| json.get());
            let texts = texts.filter(|json| json.starts_with('"')).filter_map(read);
            texts
                .filter(|text| !self.is_id(text))
                .min_by_key(|text| text.chars().count())
        })
    }

    /// The type and the name of an object, if it exists.
    pub fn find(&self, id: &str) -> Option<(&str, Option<String>)> {
        let object = self.world.object(id)?;
        Some((&object.kind, self.of_object(&object.kind, &object.data)))
    }

    fn is_id(&self, text: &str) -> bool {
        self.world.object(text).is_some() || self.world.relation(text).is_some()
    }
}

/// A text on one line, cut where it is very long; none of an empty one.
fn one_line(text: &str) -> Option<String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let text = words.join(" ");
    let text: String = text.chars().take(MAX_NAME).collect();
    Some(text).filter(|text| !text.is_empty())
}
