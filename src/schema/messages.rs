//! Error messages for the findings of the validator: no library's wording enters a frame (decision
//! E3).

use jsonschema::error::{TypeKind, ValidationErrorKind as Kind};
use jsonschema::{JsonType, ValidationError};
use serde_json::Value;

use super::SchemaViolation;

pub(super) fn of_value(error: &ValidationError<'_>, whole: &Value) -> SchemaViolation {
    // `additionalProperties: false` alone arrives as a `false` schema without a name.
    let place = error.instance_path().as_str();
    if matches!(error.kind(), Kind::FalseSchema)
        && error
            .schema_path()
            .as_str()
            .ends_with("/additionalProperties")
        && let Some(Value::Object(members)) = whole.pointer(place)
        && let Some(field) = members.keys().next()
    {
        return SchemaViolation {
            pointer: place.to_owned(),
            rule: "additionalProperties".to_owned(),
            message: short(&format!("unexpected field: {field}")),
        };
    }
    SchemaViolation {
        pointer: error.instance_path().as_str().to_owned(),
        rule: error.kind().keyword().to_owned(),
        message: short(&message(error)),
    }
}

/// The required field that the whole value lacks, if that is what is wrong.
pub(super) fn missing<'e>(error: &'e ValidationError<'_>) -> Option<&'e str> {
    match error.kind() {
        Kind::Required { property } if error.instance_path().as_str().is_empty() => {
            property.as_str()
        }
        _ => None,
    }
}

/// The reason why a schema was not accepted.
pub(super) fn of_schema(error: &ValidationError<'_>) -> String {
    match error.kind() {
        Kind::Referencing(_) => "a reference leads outside the schema or nowhere".to_owned(),
        Kind::Format { format } => format!("not a valid {}", short(format)),
        _ if error.instance_path().as_str().ends_with("/type") => "not a type".to_owned(),
        _ => short(&format!("{}: {}", error.kind().keyword(), message(error))),
    }
}

fn message(error: &ValidationError<'_>) -> String {
    match error.kind() {
        Kind::Required { property } => {
            format!(
                "missing required field: {}",
                property.as_str().unwrap_or_default()
            )
        }
        Kind::Type { kind } => format!(
            "expected {}, got {}",
            types(kind),
            kind_of(error.instance())
        ),
        Kind::Enum { options } => format!("expected one of {}", listed(options)),
        Kind::Constant { expected_value } => format!("expected {expected_value}"),
        Kind::AdditionalProperties { unexpected } | Kind::UnevaluatedProperties { unexpected } => {
            format!("unexpected field: {}", unexpected.join(", "))
        }
        Kind::AdditionalItems { limit } => format!("expected at most {limit} items"),
        Kind::UnevaluatedItems { .. } => "unexpected items".to_owned(),
        Kind::Minimum { limit } => format!("expected at least {limit}"),
        Kind::Maximum { limit } => format!("expected at most {limit}"),
        Kind::ExclusiveMinimum { limit } => format!("expected more than {limit}"),
        Kind::ExclusiveMaximum { limit } => format!("expected less than {limit}"),
        Kind::MultipleOf { multiple_of } => format!("expected a multiple of {multiple_of}"),
        Kind::MinLength { limit } => format!("expected at least {limit} characters"),
        Kind::MaxLength { limit } => format!("expected at most {limit} characters"),
        Kind::MinItems { limit } => format!("expected at least {limit} items"),
        Kind::MaxItems { limit } => format!("expected at most {limit} items"),
        Kind::MinProperties { limit } => format!("expected at least {limit} fields"),
        Kind::MaxProperties { limit } => format!("expected at most {limit} fields"),
        Kind::UniqueItems => "expected unique items".to_owned(),
        Kind::Pattern { pattern } => format!("does not match {pattern}"),
        Kind::Format { format } => format!("is not a valid {format}"),
        Kind::AnyOf { .. } => "matches none of the allowed forms".to_owned(),
        Kind::OneOfNotValid { .. } => "matches none of the allowed forms".to_owned(),
        Kind::OneOfMultipleValid { .. } => "matches more than one of the allowed forms".to_owned(),
        Kind::Contains => "no item is as expected".to_owned(),
        Kind::FalseSchema => "no value is allowed here".to_owned(),
        Kind::Not { .. } => "matches a form that is not allowed".to_owned(),
        Kind::PropertyNames { .. } => "has a field whose name is not allowed".to_owned(),
        _ => "breaks the rule".to_owned(),
    }
}

fn types(kind: &TypeKind) -> String {
    match kind {
        TypeKind::Single(one) => name(*one).to_owned(),
        TypeKind::Multiple(several) => {
            let mut names: Vec<_> = several.iter().map(name).collect();
            names.sort_unstable();
            names.join(" or ")
        }
    }
}

fn name(kind: JsonType) -> &'static str {
    match kind {
        JsonType::Array => "array",
        JsonType::Boolean => "boolean",
        JsonType::Integer => "integer",
        JsonType::Null => "null",
        JsonType::Number => "number",
        JsonType::Object => "object",
        JsonType::String => "string",
    }
}

/// The JSON Schema word for a value's type.
pub fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn listed(options: &Value) -> String {
    match options {
        Value::Array(options) => {
            let words: Vec<String> = options.iter().map(Value::to_string).collect();
            words.join(", ")
        }
        other => other.to_string(),
    }
}

/// A message stays short whatever a schema or a value contains.
fn short(message: &str) -> String {
    const MAX_MESSAGE_CHARACTERS: usize = 300;
    match message.char_indices().nth(MAX_MESSAGE_CHARACTERS) {
        Some((at, _)) => format!("{}…", &message[..at]),
        None => message.to_owned(),
    }
}
