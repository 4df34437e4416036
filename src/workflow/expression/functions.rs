//! The functions of standard JMESPath, no more (decision T2), exact for integers.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "a function takes the types it names and refuses the rest"
)]

use std::cmp::Ordering;
use std::collections::BTreeMap;

use jmespath::ast::Ast;
use jmespath::{Rcvar, Variable};
use serde_json::Number;

use super::interpret::{EvaluationResult, Interpreter, array, flag};
use super::value::{as_whole, compare_numbers, kind, measure, null, number, to_value, whole};
use super::{EvaluationError, MAX_RESULT};

/// How a function is called.
pub(super) struct Signature {
    least: usize,
    most: Option<usize>,
    /// The position of the argument that is an expression reference.
    pub(super) expression: Option<usize>,
}

const NAMES: [&str; 26] = [
    "abs",
    "avg",
    "ceil",
    "contains",
    "ends_with",
    "floor",
    "join",
    "keys",
    "length",
    "map",
    "max",
    "max_by",
    "merge",
    "min",
    "min_by",
    "not_null",
    "reverse",
    "sort",
    "sort_by",
    "starts_with",
    "sum",
    "to_array",
    "to_number",
    "to_string",
    "type",
    "values",
];

impl Signature {
    pub(super) fn of(name: &str) -> Option<Self> {
        let (least, most, expression) = match name {
            "contains" | "ends_with" | "starts_with" | "join" => (2, Some(2), None),
            "map" => (2, Some(2), Some(0)),
            "max_by" | "min_by" | "sort_by" => (2, Some(2), Some(1)),
            // An empty call has nothing to merge or to choose from.
            "merge" | "not_null" => (1, None, None),
            other if NAMES.contains(&other) => (1, Some(1), None),
            _ => return None,
        };
        Some(Self {
            least,
            most,
            expression,
        })
    }

    pub(super) fn takes(&self, count: usize) -> bool {
        count >= self.least && self.most.is_none_or(|most| count <= most)
    }

    pub(super) fn arguments(&self) -> String {
        match (self.least, self.most) {
            (1, Some(_)) => "1 argument".to_owned(),
            (least, Some(_)) => format!("{least} arguments"),
            (least, None) => format!("at least {least} argument"),
        }
    }
}

/// The function a misspelt name probably means.
pub(super) fn nearest(name: &str) -> Option<&'static str> {
    ktsu_codes::nearest(name, NAMES.iter().copied())
}

pub(super) fn call(
    run: &mut Interpreter,
    data: &Rcvar,
    name: &str,
    args: &[Ast],
) -> EvaluationResult {
    match (name, args) {
        ("map", [Ast::Expref { ast, .. }, list]) => {
            let list = run.run(data, list)?;
            let made = items(name, &list)?.iter().map(|item| run.run(item, ast));
            made.collect::<Result<_, _>>().map(array)
        }
        (_, [list, Ast::Expref { ast, .. }]) => {
            let list = run.run(data, list)?;
            by(run, name, items(name, &list)?, ast)
        }
        _ => {
            let args = args.iter().map(|arg| run.run(data, arg));
            let args: Vec<Rcvar> = args.collect::<Result<_, _>>()?;
            plain(run, name, &args)
        }
    }
}

/// `sort_by`, `max_by`, `min_by`.
fn by(run: &mut Interpreter, name: &str, items: &[Rcvar], ast: &Ast) -> EvaluationResult {
    let mut keyed = Vec::new();
    for item in items {
        keyed.push((run.run(item, ast)?, item.clone()));
    }
    ordered(name, keyed.iter().map(|(key, _)| key))?;
    run.spend(items.len())?;
    match name {
        "sort_by" => {
            keyed.sort_by(|a, b| order(&a.0, &b.0));
            Ok(array(keyed.into_iter().map(|(_, item)| item).collect()))
        }
        "max_by" => Ok(best(keyed, |a, b| order(&a.0, &b.0).is_gt()).map_or_else(null, |b| b.1)),
        _ => Ok(best(keyed, |a, b| order(&a.0, &b.0).is_lt()).map_or_else(null, |b| b.1)),
    }
}

pub(super) fn plain(run: &mut Interpreter, name: &str, args: &[Rcvar]) -> EvaluationResult {
    let [first, rest @ ..] = args else {
        return Ok(null());
    };
    match name {
        "abs" | "ceil" | "floor" => rounded(name, first),
        "avg" | "sum" => total(run, name, first),
        "contains" => contains(run, first, second(rest)),
        "starts_with" => Ok(flag(
            text(name, first)?.starts_with(text(name, second(rest))?),
        )),
        "ends_with" => Ok(flag(
            text(name, first)?.ends_with(text(name, second(rest))?),
        )),
        "join" => join(text(name, first)?, items(name, second(rest))?),
        "keys" => Ok(array(
            members(name, first)?.keys().cloned().map(string).collect(),
        )),
        "values" => Ok(array(members(name, first)?.values().cloned().collect())),
        "length" => length(first),
        "max" => extreme(run, name, first, Ordering::is_gt),
        "min" => extreme(run, name, first, Ordering::is_lt),
        "merge" => merge(run, args),
        "not_null" => Ok(args
            .iter()
            .find(|arg| !arg.is_null())
            .cloned()
            .unwrap_or_else(null)),
        "reverse" => reverse(first),
        "sort" => {
            let mut sorted = items(name, first)?.to_vec();
            run.spend(sorted.len())?;
            ordered(name, sorted.iter())?;
            sorted.sort_by(order);
            Ok(array(sorted))
        }
        "to_array" => Ok(match &**first {
            Variable::Array(_) => first.clone(),
            _ => array(vec![first.clone()]),
        }),
        "to_number" => Ok(match &**first {
            Variable::Number(_) => first.clone(),
            Variable::String(text) => parse_number(text),
            _ => null(),
        }),
        "to_string" => match &**first {
            Variable::String(_) => Ok(first.clone()),
            _ => {
                run.spend(measure(first)?)?;
                Ok(string(to_value(first).to_string()))
            }
        },
        _ => Ok(string(kind(first).to_owned())),
    }
}

fn second(rest: &[Rcvar]) -> &Rcvar {
    static NULL: std::sync::LazyLock<Rcvar> = std::sync::LazyLock::new(null);
    rest.first().unwrap_or(&NULL)
}

fn string(text: String) -> Rcvar {
    Rcvar::new(Variable::String(text))
}

fn mistaken<T>(name: &str, wanted: &str, got: &Rcvar) -> Result<T, EvaluationError> {
    Err(EvaluationError {
        code: "expression_type",
        message: format!("{name} needs {wanted}, got {}", kind(got)),
    })
}

pub(super) fn items<'a>(name: &str, value: &'a Rcvar) -> Result<&'a [Rcvar], EvaluationError> {
    match &**value {
        Variable::Array(items) => Ok(items),
        _ => mistaken(name, "an array", value),
    }
}

fn members<'a>(
    name: &str,
    value: &'a Rcvar,
) -> Result<&'a BTreeMap<String, Rcvar>, EvaluationError> {
    match &**value {
        Variable::Object(members) => Ok(members),
        _ => mistaken(name, "an object", value),
    }
}

fn text<'a>(name: &str, value: &'a Rcvar) -> Result<&'a str, EvaluationError> {
    match &**value {
        Variable::String(text) => Ok(text),
        _ => mistaken(name, "a string", value),
    }
}

fn numeric<'a>(name: &str, value: &'a Rcvar) -> Result<&'a Number, EvaluationError> {
    match &**value {
        Variable::Number(number) => Ok(number),
        _ => mistaken(name, "a number", value),
    }
}

fn made(number: Option<Number>) -> EvaluationResult {
    let number = number.ok_or_else(|| EvaluationError {
        code: "expression_number",
        message: "the number is out of range".to_owned(),
    })?;
    Ok(Rcvar::new(Variable::Number(number)))
}

fn rounded(name: &str, value: &Rcvar) -> EvaluationResult {
    let given = numeric(name, value)?;
    if let Some(integer) = as_whole(given) {
        return made(whole(if name == "abs" {
            integer.abs()
        } else {
            integer
        }));
    }
    let float = given.as_f64().unwrap_or_default();
    made(number(match name {
        "abs" => float.abs(),
        "ceil" => float.ceil(),
        _ => float.floor(),
    }))
}

/// `sum` and `avg`; an empty `avg` is null, an empty `sum` 0.
fn total(run: &mut Interpreter, name: &str, value: &Rcvar) -> EvaluationResult {
    let items = items(name, value)?;
    run.spend(items.len())?;
    let mut exact = Some(0i128);
    let mut float = 0.0;
    for item in items {
        let given = numeric(name, item)?;
        exact = exact.zip(as_whole(given)).map(|(sum, next)| sum + next);
        float += given.as_f64().unwrap_or_default();
    }
    if name == "sum" {
        return made(exact.and_then(whole).or_else(|| number(float)));
    }
    if items.is_empty() {
        return Ok(null());
    }
    #[expect(
        clippy::cast_precision_loss,
        reason = "an array has far fewer than 2^53 elements"
    )]
    made(number(float / items.len() as f64))
}

fn contains(run: &mut Interpreter, subject: &Rcvar, wanted: &Rcvar) -> EvaluationResult {
    match (&**subject, &**wanted) {
        (Variable::String(text), Variable::String(part)) => Ok(flag(text.contains(part))),
        (Variable::String(_), _) => Ok(flag(false)),
        (Variable::Array(items), _) => {
            for item in items {
                if run.equal(item, wanted)? {
                    return Ok(flag(true));
                }
            }
            Ok(flag(false))
        }
        _ => mistaken("contains", "an array or a string", subject),
    }
}

fn join(glue: &str, parts: &[Rcvar]) -> EvaluationResult {
    let mut joined = String::new();
    for (position, part) in parts.iter().enumerate() {
        if position > 0 {
            joined.push_str(glue);
        }
        joined.push_str(text("join", part)?);
        if joined.len() > MAX_RESULT {
            return Err(EvaluationError {
                code: "result_size",
                message: format!("join makes more than {MAX_RESULT} bytes"),
            });
        }
    }
    Ok(string(joined))
}

fn length(value: &Rcvar) -> EvaluationResult {
    let length = match &**value {
        Variable::String(text) => text.chars().count(),
        Variable::Array(items) => items.len(),
        Variable::Object(members) => members.len(),
        _ => return mistaken("length", "a string, an array or an object", value),
    };
    made(whole(length as i128))
}

fn reverse(value: &Rcvar) -> EvaluationResult {
    match &**value {
        Variable::String(text) => Ok(string(text.chars().rev().collect())),
        Variable::Array(items) => Ok(array(items.iter().rev().cloned().collect())),
        _ => mistaken("reverse", "an array or a string", value),
    }
}

fn merge(run: &mut Interpreter, args: &[Rcvar]) -> EvaluationResult {
    let mut merged = BTreeMap::new();
    for arg in args {
        let members = members("merge", arg)?;
        run.spend(members.len())?;
        merged.extend(
            members
                .iter()
                .map(|(key, value)| (key.clone(), value.clone())),
        );
    }
    Ok(Rcvar::new(Variable::Object(merged)))
}

fn extreme(
    run: &mut Interpreter,
    name: &str,
    value: &Rcvar,
    better: fn(Ordering) -> bool,
) -> EvaluationResult {
    let items = items(name, value)?;
    run.spend(items.len())?;
    ordered(name, items.iter())?;
    Ok(best(items.to_vec(), |a, b| better(order(a, b))).unwrap_or_else(null))
}

/// The first of the best.
pub(super) fn best<T>(items: Vec<T>, better: impl Fn(&T, &T) -> bool) -> Option<T> {
    items
        .into_iter()
        .reduce(|best, next| if better(&next, &best) { next } else { best })
}

/// All numbers or all strings, otherwise there is no order.
pub(super) fn ordered<'a>(
    name: &str,
    mut keys: impl Iterator<Item = &'a Rcvar>,
) -> Result<(), EvaluationError> {
    let Some(first) = keys.next() else {
        return Ok(());
    };
    if !matches!(&**first, Variable::Number(_) | Variable::String(_)) {
        return mistaken(name, "numbers or strings", first);
    }
    match keys.find(|key| kind(key) != kind(first)) {
        Some(other) => mistaken(name, "keys of one type", other),
        None => Ok(()),
    }
}

pub(super) fn order(a: &Rcvar, b: &Rcvar) -> Ordering {
    match (&**a, &**b) {
        (Variable::Number(a), Variable::Number(b)) => compare_numbers(a, b),
        (Variable::String(a), Variable::String(b)) => a.cmp(b),
        _ => Ordering::Equal,
    }
}

fn parse_number(text: &str) -> Rcvar {
    match serde_json::from_str::<Number>(text.trim()) {
        Ok(number) => Rcvar::new(Variable::Number(number)),
        Err(_) => null(),
    }
}
