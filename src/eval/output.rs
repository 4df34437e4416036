//! Checks of a value of the envelope.

use std::cmp::Ordering;

use ktsu_schema::{TOO_EXPENSIVE, message_at};
use ktsu_workflow::expression::{from_value, into_value, truthy};
use serde_json::{Number, Value};

use crate::bench::{Bench, CheckError};
use crate::conditions::OutputCheck;
use crate::numbers::{compare, equal};
use crate::results::{CheckFinding, shown, value_looked_at};

/// Checks that the value is as required.
pub(crate) fn find(
    check: &OutputCheck,
    envelope: &Value,
    bench: &mut Bench<'_, '_>,
) -> Result<CheckFinding, CheckError> {
    let value = into_value(bench.value_of(&check.expression, envelope)?);
    let missed = missed(check, &value, bench)?;
    let found = format!("{} is {}", check.expression.source(), shown(&value));
    let reason = match &missed {
        Some(missed) => format!("{found}, expected {missed}"),
        None => found,
    };
    let looked_at = value_looked_at(&value);
    Ok(CheckFinding::of(missed.is_none(), reason, looked_at))
}

/// The expectation of the first condition that the value does not meet.
pub(crate) fn missed(
    check: &OutputCheck,
    value: &Value,
    bench: &mut Bench<'_, '_>,
) -> Result<Option<String>, CheckError> {
    if check.is_bare() {
        let holds = truthy(&from_value(value));
        return Ok((!holds).then(|| "a value that is true".to_owned()));
    }
    if let Some(missed) = missed_equality(check, value) {
        return Ok(Some(missed));
    }
    if let Some(missed) = missed_bound(check, value).or_else(|| missed_part(check, value)) {
        return Ok(Some(missed));
    }
    if let Some(missed) = missed_pattern(check, value, bench)? {
        return Ok(Some(missed));
    }
    missed_schema(check, value)
}

fn missed_equality(check: &OutputCheck, value: &Value) -> Option<String> {
    if let Some(wanted) = check.equals.as_ref().filter(|wanted| !equal(wanted, value)) {
        return Some(shown(wanted));
    }
    let unwanted = check.not_equals.as_ref();
    let unwanted = unwanted.filter(|unwanted| equal(unwanted, value))?;
    Some(format!("anything but {}", shown(unwanted)))
}

fn missed_bound(check: &OutputCheck, value: &Value) -> Option<String> {
    let is = |bound: &Number, wrong: Ordering| match value {
        Value::Number(number) => compare(number, bound) != wrong,
        _ => false,
    };
    if let Some(min) = check.min.as_ref().filter(|min| !is(min, Ordering::Less)) {
        return Some(format!("a number of at least {min}"));
    }
    let max = check.max.as_ref();
    let max = max.filter(|max| !is(max, Ordering::Greater))?;
    Some(format!("a number of at most {max}"))
}

fn missed_part(check: &OutputCheck, value: &Value) -> Option<String> {
    let has = |part: &Value| match (value, part) {
        (Value::String(text), Value::String(part)) => text.contains(part.as_str()),
        (Value::Array(items), part) => items.iter().any(|item| equal(item, part)),
        _ => false,
    };
    let part = check.contains.as_ref().filter(|part| !has(part))?;
    Some(format!("something that contains {}", shown(part)))
}

fn missed_pattern(
    check: &OutputCheck,
    value: &Value,
    bench: &mut Bench<'_, '_>,
) -> Result<Option<String>, CheckError> {
    let Some(pattern) = &check.pattern else {
        return Ok(None);
    };
    let matches = match value.as_str() {
        Some(text) => bench.is_match(pattern, text)?,
        None => false,
    };
    Ok((!matches).then(|| format!("text that matches /{pattern}/")))
}

fn missed_schema(check: &OutputCheck, value: &Value) -> Result<Option<String>, CheckError> {
    let Some(schema) = &check.schema else {
        return Ok(None);
    };
    let violations = schema.check(value);
    let Some(first) = violations.first() else {
        return Ok(None);
    };
    if first.rule == TOO_EXPENSIVE {
        return Err(CheckError::new(first.message.clone()));
    }
    let words = message_at(&first.message, &first.pointer);
    Ok(Some(format!("a value that fits the schema: {words}")))
}
