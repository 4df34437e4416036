//! The six operations on data (seed 000, invariants 22 and 23; decision S8).
//!
//! A transform starts with its inputs, applies its operations in order and ends as an object with
//! one member, `result`. Nothing in it can reach outside its values. One file an operation.

mod deduplicate;
mod filter;
mod flatten;
mod map;
mod merge;
mod sort;
mod tracked;

use std::collections::{BTreeMap, BTreeSet};

use jmespath::{Rcvar, Variable};
use ktsu_ledger::event::plan::{Op, TransformPlan};
use serde_json::{Value, json};

use super::expression::{
    EvaluationError, Expression, ExpressionError, Meter, NameLookup, Root, kind, measure_within,
    null, to_value,
};

/// The operations by name, as they stand in a file.
pub const OPS: [&str; 6] = ["deduplicate", "filter", "flatten", "map", "merge", "sort"];

/// A transform step with its expressions parsed.
#[derive(Debug, Clone)]
pub struct CompiledTransform {
    inputs: Vec<Expression>,
    ops: Vec<CompiledOp>,
}

#[derive(Debug, Clone)]
enum CompiledOp {
    Deduplicate(Expression),
    Filter(Expression),
    Flatten,
    Map(Expression),
    Merge(Vec<Expression>),
    Sort { field: Expression, descending: bool },
}

/// Why a transform has no result. The words are ours and may enter a frame.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct TransformError {
    /// `transform_type`, or the code of an [`EvaluationError`].
    pub code: &'static str,
    /// A lower-case fragment that names the operation.
    pub message: String,
    /// The position of the operation; none while the inputs were read.
    pub op: Option<usize>,
}

impl CompiledTransform {
    /// Parses every expression; the errors say where (`inputs/0`, `ops/2/filter/expr`).
    pub fn compile(plan: &TransformPlan) -> Result<Self, Vec<(String, ExpressionError)>> {
        let mut faults = Vec::new();
        let mut parse = |place: String, parsed: Result<Expression, ExpressionError>| match parsed {
            Ok(expression) => Some(expression),
            Err(error) => {
                faults.push((place, error));
                None
            }
        };
        let inputs = plan.inputs.iter().enumerate();
        let inputs: Vec<_> = inputs
            .filter_map(|(n, source)| parse(format!("inputs/{n}"), Expression::parse(source)))
            .collect();
        let mut ops = Vec::new();
        for (n, op) in plan.ops.iter().enumerate() {
            ops.extend(CompiledOp::compile(n, op, &mut parse));
        }
        if faults.is_empty() {
            Ok(Self { inputs, ops })
        } else {
            Err(faults)
        }
    }

    /// The names it mentions: its inputs and the arguments of `merge`. Other expressions look at
    /// elements only.
    pub fn roots(&self) -> BTreeSet<Root> {
        self.mentions()
            .flat_map(|(_, one)| one.roots().iter().cloned())
            .collect()
    }

    /// The expressions that reach outside the value, each with its place in the declaration:
    /// the inputs first, then the arguments of `merge`.
    pub fn mentions(&self) -> impl Iterator<Item = (String, &Expression)> {
        let inputs = self.inputs.iter().enumerate();
        let inputs = inputs.map(|(n, input)| (format!("/inputs/{n}"), input));
        let merged = self.ops.iter().enumerate().flat_map(|(n, op)| {
            let from = match op {
                CompiledOp::Merge(from) => from.as_slice(),
                CompiledOp::Deduplicate(_)
                | CompiledOp::Filter(_)
                | CompiledOp::Flatten
                | CompiledOp::Map(_)
                | CompiledOp::Sort { .. } => &[],
            };
            let place = move |(m, one)| (format!("/ops/{n}/merge/{m}"), one);
            from.iter().enumerate().map(place)
        });
        inputs.chain(merged)
    }

    /// The values of the inputs, in order.
    pub fn inputs(&self, names: &dyn NameLookup) -> Result<Vec<Rcvar>, TransformError> {
        let values = self.inputs.iter().map(|input| input.evaluate(names));
        values
            .collect::<Result<_, _>>()
            .map_err(|error| TransformError {
                code: error.code,
                message: format!("inputs: {}", error.message),
                op: None,
            })
    }

    /// Applies the operations to the inputs; the output is `{"result": value}`.
    pub fn run(&self, inputs: &[Rcvar], names: &dyn NameLookup) -> Result<Value, TransformError> {
        let mut value = start(inputs);
        let mut meter = Meter::new();
        for (position, op) in self.ops.iter().enumerate() {
            value = op
                .apply(&value, names, &mut meter)
                .map_err(|error| TransformError {
                    code: error.code,
                    message: format!("{}: {}", op.name(), error.message),
                    op: Some(position),
                })?;
        }
        // The wrapper is a level of its own.
        measure_within(&value, 1, Meter::MAX_BYTES).map_err(|error| TransformError {
            code: error.code,
            message: error.message,
            op: None,
        })?;
        Ok(json!({ "result": to_value(&value) }))
    }
}

/// No input is null, one is itself; of several, objects are merged one level deep, the later wins,
/// and a value that is no object replaces what was before it.
fn start(inputs: &[Rcvar]) -> Rcvar {
    let mut inputs = inputs.iter();
    let first = inputs.next().cloned().unwrap_or_else(null);
    inputs.fold(first, |before, next| match (&*before, &**next) {
        (Variable::Object(before), Variable::Object(next)) => {
            let mut merged: BTreeMap<_, _> = before.clone();
            merged.extend(next.iter().map(|(key, value)| (key.clone(), value.clone())));
            Rcvar::new(Variable::Object(merged))
        }
        _ => next.clone(),
    })
}

type Parse<'a> = dyn FnMut(String, Result<Expression, ExpressionError>) -> Option<Expression> + 'a;

impl CompiledOp {
    fn compile(position: usize, op: &Op, parse: &mut Parse<'_>) -> Option<Self> {
        let mut element = |name: &str, key: &str, source: &str| {
            let place = format!("ops/{position}/{name}/{key}");
            parse(place, Expression::parse_element(source))
        };
        Some(match op {
            Op::Deduplicate { field } => Self::Deduplicate(element("deduplicate", "field", field)?),
            Op::Filter { expr } => Self::Filter(element("filter", "expr", expr)?),
            Op::Flatten => Self::Flatten,
            Op::Map { expr } => Self::Map(element("map", "expr", expr)?),
            Op::Merge { from } => {
                let from = from.iter().enumerate().filter_map(|(n, source)| {
                    parse(
                        format!("ops/{position}/merge/{n}"),
                        Expression::parse(source),
                    )
                });
                Self::Merge(from.collect())
            }
            Op::Sort { descending, field } => Self::Sort {
                field: element("sort", "field", field)?,
                descending: *descending,
            },
        })
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Deduplicate(_) => "deduplicate",
            Self::Filter(_) => "filter",
            Self::Flatten => "flatten",
            Self::Map(_) => "map",
            Self::Merge(_) => "merge",
            Self::Sort { .. } => "sort",
        }
    }

    fn apply(
        &self,
        value: &Rcvar,
        names: &dyn NameLookup,
        meter: &mut Meter,
    ) -> Result<Rcvar, EvaluationError> {
        match self {
            Self::Deduplicate(field) => deduplicate::apply(field, value, meter),
            Self::Filter(expr) => filter::apply(expr, value, meter),
            Self::Flatten => flatten::apply(value),
            Self::Map(expr) => map::apply(expr, value, meter),
            Self::Merge(from) => merge::apply(from, value, names, meter),
            Self::Sort { field, descending } => sort::apply(field, *descending, value, meter),
        }
    }
}

/// What `map` and `filter` go over: an array's items, nothing for null, otherwise the one value.
fn elements(value: &Rcvar) -> Vec<Rcvar> {
    match &**value {
        Variable::Array(items) => items.clone(),
        Variable::Null => Vec::new(),
        Variable::Object(_)
        | Variable::String(_)
        | Variable::Bool(_)
        | Variable::Number(_)
        | Variable::Expref(_) => vec![value.clone()],
    }
}

fn array(items: Vec<Rcvar>) -> Rcvar {
    Rcvar::new(Variable::Array(items))
}

fn type_error(wanted: &str, got: &Rcvar) -> EvaluationError {
    EvaluationError {
        code: "transform_type",
        message: format!("needs {wanted}, got {}", kind(got)),
    }
}

/// The canonical text of a value, by which values are told apart.
fn canonical(value: &Rcvar) -> String {
    to_value(value).to_string()
}

#[cfg(test)]
mod tests;
