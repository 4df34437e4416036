//! The functions of standard JMESPath, no more (decision T2), exact for integers.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "a function takes the types it names and refuses the rest"
)]

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::BTreeMap;

use jmespath::{Rcvar, Variable};
use serde_json::Number;

use super::error::{EvaluationError, MAX_RESULT};
use super::evaluated::EvaluatedValue;
use super::evaluator::Evaluator;
use super::value::{as_whole, compare_numbers, flag, kind, measure, null, number, to_value, whole};

type EvaluationResult = Result<Rcvar, EvaluationError>;

/// The arguments that a function takes.
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

/// A function on the values of its arguments, of which none is an expression reference.
pub(super) fn call<V: EvaluatedValue>(
    run: &mut Evaluator<'_, V>,
    name: &str,
    args: &[V],
) -> Result<V, EvaluationError> {
    for arg in args {
        run.inspect(match name {
            "not_null" | "to_array" | "to_number" | "to_string" | "type" => continue,
            "keys" | "length" | "merge" | "reverse" | "values" => arg.shape(),
            _ => arg.dependencies(),
        });
    }
    let [first, rest @ ..] = args else {
        return Ok(V::literal(null()));
    };
    match (name, &**first.value()) {
        ("contains", Variable::Array(_)) => match rest {
            [wanted, ..] => contains(run, first, wanted),
            [] => Ok(V::literal(flag(false))),
        },
        ("keys" | "length" | "type", _) => {
            let value = scalar(run, name, first.value(), second(rest))?;
            Ok(V::computed(value, first.source()).chosen_by(first.chosen()))
        }
        ("max", _) => extreme(run, name, first, Ordering::is_gt),
        ("min", _) => extreme(run, name, first, Ordering::is_lt),
        ("merge", _) => merge(run, args),
        ("not_null", _) => Ok(not_null(args)),
        ("reverse", Variable::Array(_)) => {
            Ok(first.with_items(items(name, first)?.iter().rev().cloned().collect()))
        }
        ("sort", _) => {
            let mut sorted = items(name, first)?.into_owned();
            run.spend(sorted.len())?;
            ordered(name, sorted.iter())?;
            sorted.sort_by(order);
            Ok(first.with_items(sorted).chosen_by(&first.dependencies()))
        }
        ("to_array", Variable::Array(_))
        | ("to_number", Variable::Number(_))
        | ("to_string", Variable::String(_)) => Ok(first.clone()),
        ("to_array", _) => {
            let list = V::list(vec![first.clone()], V::Provenance::default());
            Ok(list.chosen_by(first.chosen()))
        }
        ("values", _) => {
            let members = members(name, first)?;
            Ok(first.with_items(members.values().cloned().collect()))
        }
        _ => {
            let value = scalar(run, name, first.value(), second(rest))?;
            Ok(computed(value, args))
        }
    }
}

/// `sort_by`, `max_by`, `min_by` of elements with their keys.
pub(super) fn by_key<V: EvaluatedValue>(
    run: &mut Evaluator<'_, V>,
    name: &str,
    list: &V,
    mut keyed: Vec<(V, V)>,
) -> Result<V, EvaluationError> {
    let keys: Vec<_> = keyed.iter().map(|(key, _)| key.dependencies()).collect();
    let keys = V::union(&keys);
    run.inspect(keys.clone());
    ordered(name, keyed.iter().map(|(key, _)| key))?;
    run.spend(keyed.len())?;
    let better: fn(Ordering) -> bool = match name {
        "sort_by" => {
            keyed.sort_by(|(a, _), (b, _)| order(a, b));
            let sorted = keyed.into_iter().map(|(_, item)| item).collect();
            return Ok(list.with_items(sorted).chosen_by(&keys));
        }
        "max_by" => Ordering::is_gt,
        _ => Ordering::is_lt,
    };
    let best = best(keyed, |(a, _), (b, _)| better(order(a, b)));
    Ok(match best {
        Some((_, item)) => item.chosen_by(&keys).chosen_by(list.chosen()),
        None => V::missing(list.shape()),
    })
}

/// One value made of all of others.
pub(super) fn computed<'a, V: EvaluatedValue + 'a>(
    value: Rcvar,
    from: impl IntoIterator<Item = &'a V>,
) -> V {
    let (mut sources, mut chosen) = (Vec::new(), Vec::new());
    for one in from {
        sources.push(one.sources());
        chosen.push(one.choosers());
    }
    V::computed(value, V::union(&sources)).chosen_by(&V::union(&chosen))
}

/// The functions whose result has no parts of its own.
fn scalar<V: EvaluatedValue>(
    run: &mut Evaluator<'_, V>,
    name: &str,
    first: &Rcvar,
    second: &Rcvar,
) -> EvaluationResult {
    match name {
        "abs" | "ceil" | "floor" => rounded(name, first),
        "avg" | "sum" => total(run, name, first),
        // That of an array has a provenance of its own.
        "contains" => match (&**first, &**second) {
            (Variable::String(text), Variable::String(part)) => Ok(flag(text.contains(part))),
            (Variable::String(_), _) => Ok(flag(false)),
            _ => mistaken(name, "an array or a string", first),
        },
        "starts_with" => Ok(flag(text(name, first)?.starts_with(text(name, second)?))),
        "ends_with" => Ok(flag(text(name, first)?.ends_with(text(name, second)?))),
        "join" => join(text(name, first)?, &items(name, second)?),
        "keys" => {
            let names = members(name, first)?.keys().cloned().map(string).collect();
            Ok(Rcvar::new(Variable::Array(names)))
        }
        "length" => length(first),
        "reverse" => match &**first {
            Variable::String(text) => Ok(string(text.chars().rev().collect())),
            _ => mistaken(name, "an array or a string", first),
        },
        "to_number" => Ok(match &**first {
            Variable::String(text) => parse_number(text),
            _ => null(),
        }),
        "to_string" => {
            run.spend(measure(first)?)?;
            Ok(string(to_value(first).to_string()))
        }
        _ => Ok(string(kind(first).to_owned())),
    }
}

fn second<V: EvaluatedValue>(rest: &[V]) -> &Rcvar {
    static NULL: std::sync::LazyLock<Rcvar> = std::sync::LazyLock::new(null);
    rest.first().map_or(&NULL, V::value)
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

pub(super) fn items<'a, V: EvaluatedValue>(
    name: &str,
    value: &'a V,
) -> Result<Cow<'a, [V]>, EvaluationError> {
    value
        .items()
        .map_or_else(|| mistaken(name, "an array", value.value()), Ok)
}

fn members<'a, V: EvaluatedValue>(
    name: &str,
    value: &'a V,
) -> Result<Cow<'a, BTreeMap<String, V>>, EvaluationError> {
    value
        .members()
        .map_or_else(|| mistaken(name, "an object", value.value()), Ok)
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
fn total<V: EvaluatedValue>(
    run: &mut Evaluator<'_, V>,
    name: &str,
    value: &Rcvar,
) -> EvaluationResult {
    let items = items(name, value)?;
    run.spend(items.len())?;
    let mut exact = Some(0i128);
    let mut float = 0.0;
    for item in items.iter() {
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

/// Evaluates whether an array holds a value: the one element that does, or all that do not, made
/// the answer.
fn contains<V: EvaluatedValue>(
    run: &mut Evaluator<'_, V>,
    list: &V,
    wanted: &V,
) -> Result<V, EvaluationError> {
    let items = items("contains", list)?;
    let mut found = false;
    for item in items.iter() {
        found = run.equal(item.value(), wanted.value())?;
        if found {
            break;
        }
    }
    let sources = V::trace(|| {
        let value = to_value(wanted.value());
        let hits = items.iter().filter(|item| to_value(item.value()) == value);
        match hits.collect::<Vec<_>>().as_slice() {
            [] if items.is_empty() => list.source(),
            [] => V::union([&list.sources(), &wanted.sources()]),
            [one] => V::union([&one.sources(), &wanted.sources()]),
            _ => wanted.sources(),
        }
    });
    let chosen = V::union([&list.dependencies(), &wanted.dependencies()]);
    Ok(V::computed(flag(found), sources).chosen_by(&chosen))
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

fn merge<V: EvaluatedValue>(run: &mut Evaluator<'_, V>, args: &[V]) -> Result<V, EvaluationError> {
    let mut merged = BTreeMap::new();
    let (mut sources, mut chosen) = (Vec::new(), Vec::new());
    for arg in args {
        let members = members("merge", arg)?;
        run.spend(members.len())?;
        merged.extend(
            members
                .iter()
                .map(|(key, value)| (key.clone(), value.clone())),
        );
        sources.push(arg.source());
        chosen.push(arg.chosen().clone());
    }
    Ok(V::map(merged, V::union(&sources)).chosen_by(&V::union(&chosen)))
}

fn not_null<V: EvaluatedValue>(args: &[V]) -> V {
    let mut why = Vec::new();
    for arg in args {
        if !arg.value().is_null() {
            return arg.clone().chosen_by(&V::union(&why));
        }
        why.push(arg.shape());
    }
    V::missing(V::union(&why))
}

/// The best element, chosen by all the others.
fn extreme<V: EvaluatedValue>(
    run: &mut Evaluator<'_, V>,
    name: &str,
    list: &V,
    better: fn(Ordering) -> bool,
) -> Result<V, EvaluationError> {
    let items = items(name, list)?;
    run.spend(items.len())?;
    ordered(name, items.iter())?;
    let best = best(items.iter(), |a, b| better(order(*a, *b)));
    let why = list.dependencies();
    Ok(match best {
        Some(item) => item.clone().chosen_by(&why),
        None => V::missing(why),
    })
}

/// The first of the best.
fn best<T>(items: impl IntoIterator<Item = T>, better: impl Fn(&T, &T) -> bool) -> Option<T> {
    items
        .into_iter()
        .reduce(|best, next| if better(&next, &best) { next } else { best })
}

/// All numbers or all strings, otherwise there is no order.
fn ordered<'a, V: EvaluatedValue + 'a>(
    name: &str,
    keys: impl Iterator<Item = &'a V>,
) -> Result<(), EvaluationError> {
    let mut keys = keys.map(V::value);
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

fn order<V: EvaluatedValue>(a: &V, b: &V) -> Ordering {
    match (&**a.value(), &**b.value()) {
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
