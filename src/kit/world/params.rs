//! The params of a world that runs by itself. Its run loads all worlds of the kit, so it takes the
//! params of all of them.

use std::collections::BTreeMap;
use std::path::Path;

use ktsu_config::fault::{Fault, FaultCode};
use ktsu_config::yaml::SourceSpan;
use ktsu_ledger::CanonicalJson;
use serde_json::{Map, Value, json};

use super::draft::{WorldDraft, Worlds};

/// The keywords of a schema that can be put together with another one.
const PLAIN: [&str; 6] = [
    "type",
    "properties",
    "required",
    "additionalProperties",
    "description",
    "title",
];

/// The params that one world declares.
struct DeclaredParams<'d> {
    path: &'d str,
    schema: Value,
    place: SourceSpan,
}

fn declared<'d>(
    worlds: impl Iterator<Item = (&'d str, &'d WorldDraft)>,
) -> Vec<DeclaredParams<'d>> {
    let declared = worlds.filter_map(|(path, draft)| {
        let (schema, place) = draft.declared_params.as_ref()?;
        Some(DeclaredParams {
            path,
            schema: schema.to_value(),
            place: *place,
        })
    });
    declared.collect()
}

/// Params of several worlds can be put together, and mean the same in all of them.
pub(super) fn check(worlds: &Worlds<'_>, found: &mut Vec<Fault>) {
    let all = declared(worlds.iter().copied());
    if all.len() < 2 {
        return;
    }
    let mut known: BTreeMap<String, (&str, &Value)> = BTreeMap::new();
    for one in &all {
        let mut fault = |code, words: String, hint: &str| {
            let fault = Fault::new(code, one.place, words);
            found.push(fault.hint(hint).in_file(Path::new(one.path)));
        };
        if let Some(keyword) = not_plain(&one.schema) {
            let words = format!(
                "params of several worlds are put together, which their {keyword} does not allow"
            );
            let hint = "use type, properties, required, and additionalProperties: true or false";
            fault(FaultCode::BadSchema, words, hint);
        }
        for (name, schema) in one.schema["properties"].as_object().into_iter().flatten() {
            let (other, first) = known.entry(name.clone()).or_insert((one.path, schema));
            if *first != schema {
                let words = format!("{other} declares the param {name:?} otherwise");
                let hint = "declare it alike: a run of one world takes the params of all worlds";
                fault(FaultCode::DuplicateName, words, hint);
            }
        }
    }
}

/// A keyword that cannot be put together with those of another schema.
fn not_plain(schema: &Value) -> Option<String> {
    let Some(members) = schema.as_object() else {
        return Some("true or false".to_owned());
    };
    let mut members = members.iter();
    let odd = members.find(|(key, value)| match key.as_str() {
        "type" => *value != "object",
        "additionalProperties" => !value.is_boolean(),
        key => !PLAIN.contains(&key),
    });
    odd.map(|(key, _)| key.clone())
}

/// The schema of the params of a run of any of these worlds by itself.
pub(super) fn of_kit<'d>(
    worlds: impl Iterator<Item = (&'d str, &'d WorldDraft)>,
) -> Option<CanonicalJson> {
    let mut all = declared(worlds).into_iter().map(|one| one.schema);
    let schema = match (all.next(), all.len()) {
        (first, 0) => first,
        (first, _) => Some(together(first.into_iter().chain(all))),
    };
    takes_goal(schema)
}

/// Plain schemas as one. Other params are refused only if all of them refuse them.
fn together(schemas: impl Iterator<Item = Value>) -> Value {
    let mut properties = Map::new();
    let mut required: Vec<Value> = Vec::new();
    let mut is_closed = true;
    for schema in schemas {
        is_closed &= schema["additionalProperties"] == false;
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            properties.insert(name.clone(), property.clone());
        }
        for name in schema["required"].as_array().into_iter().flatten() {
            if !required.contains(name) {
                required.push(name.clone());
            }
        }
    }
    json!({
        "additionalProperties": !is_closed,
        "properties": properties,
        "required": required,
        "type": "object",
    })
}

/// The goal of a run is its param `goal`, so that whatever starts runs can give one.
pub(super) fn takes_goal(declared: Option<Value>) -> Option<CanonicalJson> {
    let mut schema = declared.unwrap_or_else(|| json!({"type": "object"}));
    if let Some(members) = schema.as_object_mut() {
        let properties = members.entry("properties").or_insert_with(|| json!({}));
        if let Some(properties) = properties.as_object_mut() {
            let text = || json!({"type": "string"});
            properties.entry("goal").or_insert_with(text);
        }
    }
    // Of a schema that is a boolean anything goes already.
    CanonicalJson::from_value(&schema).ok()
}
