//! The six operations on data (seed 000, invariants 22 and 23; decision S8).
//!
//! A transform starts with its inputs, applies its operations in order and ends as an object with
//! one member, `result`. Nothing in it can reach outside its values.

mod deduplicate;
mod filter;
mod merge;
mod sort;
mod values;

use std::collections::{BTreeMap, BTreeSet};

use jmespath::Rcvar;
use ktsu_ledger::event::plan::{Op, TransformPlan};
use serde_json::{Value, json};

use super::expression::provenance::Tracked;
use super::expression::{
    EvaluatedValue, EvaluationError, Evaluator, Expression, ExpressionError, MAX_BYTES, NameLookup,
    Root, Tracker, flatten, measure_within, null, to_value,
};

/// The operations by name, as they stand in a file.
pub const OPS: [&str; 6] = ["deduplicate", "filter", "flatten", "map", "merge", "sort"];

/// A transform step with its expressions parsed.
#[derive(Debug, Clone)]
pub struct CompiledTransform {
    inputs: Box<[Expression]>,
    ops: Box<[CompiledOp]>,
}

#[derive(Debug, Clone)]
enum CompiledOp {
    Deduplicate(Expression),
    Filter(Expression),
    Flatten,
    Map(Expression),
    Merge(Box<[Expression]>),
    Sort { field: Expression, descending: bool },
}

/// The reason why a transform has no result. The words are ours and may enter a frame.
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
            Ok(Self {
                inputs: inputs.into(),
                ops: ops.into(),
            })
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
                CompiledOp::Merge(from) => from.as_ref(),
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
        self.evaluate_inputs(names, &mut Tracker::default())
    }

    /// Applies the operations to the inputs; the output is `{"result": value}`.
    pub fn run(&self, inputs: &[Rcvar], names: &dyn NameLookup) -> Result<Value, TransformError> {
        let value = self.apply(inputs, names, &mut Tracker::default())?;
        Ok(json!({ "result": to_value(&value) }))
    }

    /// As [`CompiledTransform::inputs`] and [`CompiledTransform::run`], with the provenance of the
    /// result.
    pub fn track(
        &self,
        names: &dyn NameLookup<Tracked>,
        tracker: &mut Tracker,
    ) -> Result<Tracked, TransformError> {
        let inputs = self.evaluate_inputs(names, tracker)?;
        let value = self.apply(&inputs, names, tracker)?;
        let members = BTreeMap::from([("result".to_owned(), value)]);
        Ok(Tracked::map(members, Default::default()))
    }

    fn evaluate_inputs<V: EvaluatedValue>(
        &self,
        names: &dyn NameLookup<V>,
        tracker: &mut Tracker<V>,
    ) -> Result<Vec<V>, TransformError> {
        let values = self
            .inputs
            .iter()
            .map(|input| input.evaluate_within(names, &mut Evaluator::new(tracker)));
        values
            .collect::<Result<_, _>>()
            .map_err(|error| TransformError {
                code: error.code,
                message: format!("inputs: {}", error.message),
                op: None,
            })
    }

    fn apply<V: EvaluatedValue>(
        &self,
        inputs: &[V],
        names: &dyn NameLookup<V>,
        tracker: &mut Tracker<V>,
    ) -> Result<V, TransformError> {
        let mut value = start(inputs);
        let mut evaluator = Evaluator::new(tracker);
        for (position, op) in self.ops.iter().enumerate() {
            value = op
                .apply(&value, names, &mut evaluator)
                .map_err(|error| TransformError {
                    code: error.code,
                    message: format!("{}: {}", op.name(), error.message),
                    op: Some(position),
                })?;
        }
        // The wrapper is a level of its own.
        measure_within(value.value(), 1, MAX_BYTES).map_err(|error| TransformError {
            code: error.code,
            message: error.message,
            op: None,
        })?;
        Ok(value)
    }

    /// The inputs, then the operations, in the words of its declaration.
    pub fn in_words(&self) -> String {
        let inputs = self.inputs.iter().map(|one| one.source().to_owned());
        let words = self.ops.iter().map(CompiledOp::in_words);
        let all: Vec<String> = inputs.chain(words).collect();
        all.join(" | ")
    }
}

/// No input is null, one is itself; of several, objects are merged one level deep, the later wins,
/// and a value that is no object replaces what was before it.
fn start<V: EvaluatedValue>(inputs: &[V]) -> V {
    let mut inputs = inputs.iter();
    let first = inputs.next().cloned();
    let first = first.unwrap_or_else(|| V::literal(null()));
    inputs.fold(first, |before, next| {
        let Some((merged, members)) = before.members().zip(next.members()) else {
            return next.clone();
        };
        let mut merged = merged.into_owned();
        let members = members.iter();
        merged.extend(members.map(|(key, value)| (key.clone(), value.clone())));
        merge::of_both(&before, next, merged)
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

    fn in_words(&self) -> String {
        let argument = match self {
            Self::Deduplicate(one) | Self::Filter(one) | Self::Map(one) => one.source().to_owned(),
            Self::Flatten => return self.name().to_owned(),
            Self::Merge(from) => {
                let sources: Vec<&str> = from.iter().map(Expression::source).collect();
                sources.join(", ")
            }
            Self::Sort { field, descending } => {
                let order = if *descending { " descending" } else { "" };
                format!("{}{order}", field.source())
            }
        };
        format!("{} {argument}", self.name())
    }

    fn apply<V: EvaluatedValue>(
        &self,
        value: &V,
        names: &dyn NameLookup<V>,
        evaluator: &mut Evaluator<'_, V>,
    ) -> Result<V, EvaluationError> {
        match self {
            Self::Deduplicate(field) => deduplicate::apply(field, value, evaluator),
            Self::Filter(expr) => filter::apply(expr, value, evaluator),
            // Elements that are no arrays stay, null too; what is no array passes unchanged.
            Self::Flatten => Ok(match value.items() {
                Some(items) => flatten(value, &items),
                None => value.clone(),
            }),
            // One result an element; where the expression finds nothing, null.
            Self::Map(expr) => {
                let items = values::elements(value);
                let mapped = items.iter().map(|item| expr.evaluate_on(item, evaluator));
                Ok(value.with_items(mapped.collect::<Result<_, _>>()?))
            }
            Self::Merge(from) => merge::apply(from, value, names, evaluator),
            Self::Sort { field, descending } => sort::apply(field, *descending, value, evaluator),
        }
    }
}

#[cfg(test)]
mod tests;
