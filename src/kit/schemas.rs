//! The properties that schemas of params and outputs declare.

use std::collections::BTreeMap;

use ktsu_config::fault::{Fault, FaultCode};
use ktsu_config::yaml::{SourceSpan, YamlNode, YamlValue};
use ktsu_workflow::params::ParamsSchema;

use super::read::{KitReader, items, member, members};

/// The params that an agent declares.
pub(super) struct Params {
    pub(super) schema: ParamsSchema,
    /// Marked `secret: true`.
    pub(super) secrets: Vec<String>,
    /// The place at which each property is declared.
    pub(super) places: BTreeMap<String, SourceSpan>,
}

/// Reserved output fields, in the order in which they are evaluated (decision R1).
const RESERVED: [&str; 8] = [
    "ktsu_injection_attempt",
    "ktsu_untrusted_content",
    "ktsu_low_quality",
    "ktsu_needs_human",
    "ktsu_confidence",
    "ktsu_skip_reason",
    "ktsu_flags",
    "ktsu_rationale",
];

/// Reports params that are required and not given; `what` requires them.
pub(super) fn missing_params<'n>(
    what: &str,
    required: impl IntoIterator<Item = &'n str>,
    is_given: impl Fn(&str) -> bool,
    place: SourceSpan,
    faults: &mut Vec<Fault>,
) {
    for name in required.into_iter().filter(|name| !is_given(name)) {
        let words = format!("{what} requires the param {name:?}");
        let fault = Fault::new(FaultCode::MissingParam, place, words);
        faults.push(fault.hint(format!("add to params: {name}: …")));
    }
}

/// The fault of a param that a schema does not declare, if it is one to the schema.
pub(super) fn undeclared_param(
    what: &str,
    schema: &ParamsSchema,
    name: &str,
    place: SourceSpan,
) -> Option<Fault> {
    let known: Vec<&str> = schema.properties().collect();
    if known.contains(&name) || !(schema.is_closed() || schema.is_left_open()) {
        return None;
    }
    let fault = match schema.is_closed() {
        true => {
            let words = format!("{what} takes no param {name:?}");
            Fault::new(FaultCode::UnknownParam, place, words)
        }
        false => {
            let words = format!("{what} does not declare the param {name:?}");
            Fault::new(FaultCode::UndeclaredParam, place, words).warning()
        }
    };
    Some(fault.suggest(name, known))
}

/// Names that begin with `ktsu_` and mean nothing: what a model says there is dropped.
pub(super) fn reserved_fields(reader: &mut KitReader<'_>, schema: &YamlNode) {
    let properties = members(member(Some(schema), "properties"));
    let mut named: Vec<(&str, SourceSpan)> = properties
        .iter()
        .map(|(key, _)| (key.text.as_str(), key.place))
        .collect();
    for item in items(member(Some(schema), "required")) {
        if let YamlValue::Text(name) = &item.data {
            named.push((name, item.place));
        }
    }
    for (name, place) in named {
        if !name.starts_with("ktsu_") || RESERVED.contains(&name) {
            continue;
        }
        let words = format!("{name:?} is not a reserved field; it is dropped from every output");
        let fault = Fault::new(FaultCode::UnknownReserved, place, words).warning();
        reader.fault(fault.suggest_or(name, RESERVED, "names of your own do not begin with ktsu_"));
    }
}

/// An optional param without a default is absent when it is not given (decision K4).
pub(super) fn optional_params(reader: &mut KitReader<'_>, schema: &YamlNode) {
    let value = schema.to_value();
    let required = value.get("required").and_then(|list| list.as_array());
    for (key, property) in members(member(Some(schema), "properties")) {
        let is_required =
            required.is_some_and(|list| list.iter().any(|one| one == key.text.as_str()));
        let has_default = member(Some(property), "default").is_some();
        if !is_required && !has_default {
            let words = format!("the param {:?} is optional and has no default", key.text);
            let fault = Fault::new(FaultCode::OptionalWithoutDefault, key.place, words).warning();
            reader.fault(fault.hint("where it is not given it is absent, and null in expressions"));
        }
    }
}
