//! Reads what several parts of a spec have: fields, conditions on a value, limits.

use std::cmp::Ordering;

use ktsu_config::fault::{Fault, FaultCode};
use ktsu_config::read::{ConfigReader, Fields};
use ktsu_config::shape::MapShape;
use ktsu_config::yaml::{YamlNode, YamlValue};
use ktsu_schema::Schema;
use ktsu_workflow::expression::Expression;
use serde_json::{Number, Value};

use crate::conditions::OutputCheck;
use crate::filter::FilterError;
use crate::numbers;
use crate::pattern::TextPattern;
use crate::program_reader;
use crate::programs::ProgramLimits;
use crate::shapes;

/// A map of a shape in which every key has a value: one without would leave out a condition.
pub(crate) fn shaped<'n>(
    reader: &mut ConfigReader<'_>,
    node: &'n YamlNode,
    shape: &MapShape,
) -> Option<Fields<'n>> {
    reader.filled(node, shape, &["contains", "equals", "not_equals"])
}

/// A map with any keys, as JSON.
pub(crate) fn map_of(reader: &mut ConfigReader<'_>, node: &YamlNode, what: &str) -> Option<Value> {
    reader.open_map(node, what)?;
    Some(node.to_value())
}

/// The limits of a program, where a map has them.
pub(crate) fn limits(reader: &mut ConfigReader<'_>, fields: &Fields<'_>) -> Option<ProgramLimits> {
    let Some(node) = fields.get("limits") else {
        return Some(ProgramLimits::default());
    };
    let fields = shaped(reader, node, &shapes::PROGRAM_LIMITS)?;
    program_reader::limits(reader, &fields)
}

pub(crate) fn text(
    reader: &mut ConfigReader<'_>,
    fields: &Fields<'_>,
    name: &str,
) -> Option<String> {
    fields.read(name, |node| reader.string(node, name).map(str::to_owned))
}

/// The one key of some that is there; reports none or several.
pub(crate) fn only_one<'k>(
    reader: &mut ConfigReader<'_>,
    fields: &Fields<'_>,
    keys: &[&'k str],
    what: &str,
) -> Option<&'k str> {
    let mut given = keys.iter().filter(|key| fields.key(key).is_some());
    match (given.next(), given.next()) {
        (Some(key), None) => Some(key),
        (Some(_), Some(second)) => {
            let place = fields.key(second).unwrap_or(fields.place);
            let words = format!("{what} has more than one of {}", keys.join(", "));
            reader.reject(Fault::new(FaultCode::BadValue, place, words))
        }
        (None, _) => missing_one(reader, fields, keys, what),
    }
}

pub(crate) fn missing_one<T>(
    reader: &mut ConfigReader<'_>,
    fields: &Fields<'_>,
    keys: &[&str],
    what: &str,
) -> Option<T> {
    let words = format!("{what} needs one of {}", keys.join(", "));
    reader.reject(Fault::new(FaultCode::MissingKey, fields.place, words))
}

pub(crate) fn refuse(
    reader: &mut ConfigReader<'_>,
    node: &YamlNode,
    is_expression: bool,
    error: FilterError,
) {
    let code = match is_expression {
        true => FaultCode::BadExpression,
        false => FaultCode::BadValue,
    };
    let fault = Fault::new(code, node.place, error.message);
    reader.fault(match error.hint {
        Some(hint) => fault.hint(hint),
        None => fault,
    });
}

pub(crate) fn pattern(reader: &mut ConfigReader<'_>, fields: &Fields<'_>) -> Option<TextPattern> {
    let node = fields.get("pattern")?;
    let text = reader.string(node, "pattern")?;
    match TextPattern::compile(text) {
        Some(pattern) => Some(pattern),
        None => {
            let words = "pattern is not a regular expression, or takes too much room";
            reader.bad_value(node, words)
        }
    }
}

/// The conditions on the value of an expression.
pub(crate) fn conditions(
    reader: &mut ConfigReader<'_>,
    fields: &Fields<'_>,
    expression: Option<Expression>,
) -> Option<OutputCheck> {
    let before = reader.faults.len();
    let check = OutputCheck {
        expression: expression?,
        schema: fields.read("schema", |node| schema(reader, node)),
        equals: value(reader, fields, "equals"),
        not_equals: value(reader, fields, "not_equals"),
        min: number(reader, fields, "min"),
        max: number(reader, fields, "max"),
        contains: value(reader, fields, "contains"),
        pattern: pattern(reader, fields),
    };
    if let (Some(min), Some(max)) = (&check.min, &check.max)
        && numbers::compare(min, max) == Ordering::Greater
    {
        let place = fields.key("min").unwrap_or(fields.place);
        let words = "the check has a min above its max";
        reader.fault(Fault::new(FaultCode::BadValue, place, words));
    }
    (reader.faults.len() == before).then_some(check)
}

/// A value that may be null.
pub(crate) fn value(
    reader: &mut ConfigReader<'_>,
    fields: &Fields<'_>,
    name: &str,
) -> Option<Value> {
    fields.key(name)?;
    let node = fields.get(name);
    if let Some(node) = node {
        reader.report_nested_duplicates(node);
    }
    Some(node.map_or(Value::Null, YamlNode::to_value))
}

fn number(reader: &mut ConfigReader<'_>, fields: &Fields<'_>, name: &str) -> Option<Number> {
    let node = fields.get(name)?;
    reader.number(node, name, f64::MIN, f64::MAX)?;
    match &node.data {
        YamlValue::Number(number) => Some(number.clone()),
        _ => None,
    }
}

fn schema(reader: &mut ConfigReader<'_>, node: &YamlNode) -> Option<Schema> {
    reader.report_nested_duplicates(node);
    match Schema::of_value(&node.to_value()) {
        Ok(schema) => Some(schema),
        Err(error) => {
            let place = node.at(&error.pointer).place;
            reader.reject(Fault::new(FaultCode::BadSchema, place, error.message))
        }
    }
}
