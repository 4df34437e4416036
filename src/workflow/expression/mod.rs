//! JMESPath expressions: parsed and judged once, evaluated often (decisions T2, T3, T4).
//!
//! The grammar is standard JMESPath without added functions, with one lexical extension: outside
//! quotes an identifier may contain hyphens. Parsing is the library's, everything after it is
//! ours: names at the root are known before a run starts, functions and their arguments are
//! checked at parse time, and evaluation is metered, so that no expression can eat the machine.
//!
//! ```text
//! source --lexical--> text --library--> AST --judge--> roots, path --interpret(names)--> value
//! ```

mod analysis;
mod functions;
mod interpret;
mod lexical;
mod negated;
pub mod provenance;
pub mod tracked;
mod value;

use std::collections::{BTreeMap, BTreeSet};

use jmespath::ast::Ast;
use jmespath::{Rcvar, Variable};

use analysis::NodeScope;
pub use analysis::Segment;
use interpret::Interpreter;
use lexical::Offsets;
pub use lexical::skip_quoted;
pub use negated::{NegatedPath, negated};
#[cfg(test)]
pub(crate) use value::count::converted;
pub use value::{compare_numbers, measure_within};
pub use value::{from_json, from_value, kind, null, to_value, truthy};

/// The most characters of an expression (decision T2).
pub const MAX_SOURCE: usize = 1_000;
/// The most levels of brackets in an expression, and of arrays and objects in its result.
pub const MAX_NESTING: usize = 64;
/// The most bytes of a result, as compact JSON.
pub const MAX_RESULT: usize = 1 << 20;

/// A name an expression mentions at its root.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Root {
    /// `params`.
    Params,
    /// `env.NAME`.
    Env(String),
    /// `step.ID` or just `ID`.
    Step(String),
    /// `item`, inside a fan-out.
    Item,
    /// `item_index`, inside a fan-out.
    ItemIndex,
}

/// What an expression takes of `params`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ParamNames {
    /// Single params, by name.
    pub names: BTreeSet<String>,
    /// It looks at all of them.
    pub whole: bool,
}

/// Why a text is not an expression: a boot error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ExpressionError {
    /// A lower-case fragment.
    pub message: String,
    /// Byte offset in the source.
    pub offset: usize,
    /// Something to type instead.
    pub hint: Option<String>,
    /// It is `!step.a`, which is read as `(!step).a`.
    pub negated_path: bool,
}

/// Why an expression has no value. The words are ours and may enter a frame (decision E3).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct EvaluationError {
    /// `expression_type`, `expression_number`, `expression_cost`, `result_size` or `result_depth`.
    pub code: &'static str,
    /// A lower-case fragment.
    pub message: String,
}

/// Where the values of names come from.
pub trait NameLookup {
    /// The value of a name, or nothing: then it is null.
    fn get(&self, root: &Root) -> Option<Rcvar>;
}

/// What several evaluations may cost together.
#[derive(Debug)]
pub struct Meter {
    work: u64,
    bytes: usize,
}

impl Meter {
    /// The most bytes that one transform, or one rendered template, may make.
    pub const MAX_BYTES: usize = 8 * MAX_RESULT;

    /// A full meter.
    pub fn new() -> Self {
        Self {
            work: interpret::BUDGET,
            bytes: Self::MAX_BYTES,
        }
    }

    fn take_bytes(&mut self, bytes: usize) -> Result<(), EvaluationError> {
        let left = self.bytes.checked_sub(bytes);
        self.bytes = left.ok_or_else(|| EvaluationError {
            code: "result_size",
            message: format!("the results are larger than {} bytes", Self::MAX_BYTES),
        })?;
        Ok(())
    }
}

impl Default for Meter {
    fn default() -> Self {
        Self::new()
    }
}

/// No names at all.
impl NameLookup for () {
    fn get(&self, _: &Root) -> Option<Rcvar> {
        None
    }
}

impl NameLookup for BTreeMap<Root, Rcvar> {
    fn get(&self, root: &Root) -> Option<Rcvar> {
        self.get(root).cloned()
    }
}

/// A parsed expression.
#[derive(Debug, Clone)]
pub struct Expression {
    source: String,
    ast: Ast,
    roots: BTreeSet<Root>,
    params: ParamNames,
    path: Option<(Root, Vec<Segment>)>,
    offsets: Offsets,
}

impl Expression {
    /// Parses an expression over the names of a workflow.
    ///
    /// Refuses what is not JMESPath, is too long or too deep, calls a function that does not exist
    /// or with the wrong arguments, and what looks at the root as a whole (`@`, `*`, bare `step`).
    pub fn parse(source: &str) -> Result<Self, ExpressionError> {
        let (ast, offsets) = lexical::parse(source)?;
        let told = |not, dot| negated(source, offsets.source(not), offsets.source(dot));
        let judged = analysis::analyze(&ast, NodeScope::Root, &told);
        let mut judged = judged.map_err(|error| offsets.back(error))?;
        Ok(Self {
            path: analysis::path(&ast),
            roots: std::mem::take(&mut judged.roots),
            params: std::mem::take(&mut judged.params),
            source: source.to_owned(),
            ast,
            offsets,
        })
    }

    /// Parses an expression that is evaluated on an element (`map`, `filter`, `sort`,
    /// `deduplicate`): `@` is the element, and there are no root names.
    pub fn parse_element(source: &str) -> Result<Self, ExpressionError> {
        let (ast, offsets) = lexical::parse(source)?;
        analysis::analyze(&ast, NodeScope::Element, &|_, _| None)
            .map_err(|error| offsets.back(error))?;
        Ok(Self {
            source: source.to_owned(),
            ast,
            roots: BTreeSet::new(),
            params: ParamNames::default(),
            path: None,
            offsets,
        })
    }

    /// The text as written.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The syntax tree.
    pub fn ast(&self) -> &Ast {
        &self.ast
    }

    /// What is said of a path whose first part is negated: see [`negated()`].
    pub fn negated(&self, not: usize, dot: usize) -> Option<NegatedPath> {
        let place = |offset| self.offsets.source(offset);
        negated(&self.source, place(not), place(dot))
    }

    /// Where an offset of the syntax tree stands in the text as written.
    pub fn source_offset(&self, offset: usize) -> usize {
        self.offsets.source(offset)
    }

    /// Where a name stands for the first time in the text as written.
    pub fn offset_of(&self, name: &str) -> Option<usize> {
        lexical::identifier(&self.source, name)
    }

    /// The names at the root.
    pub fn roots(&self) -> &BTreeSet<Root> {
        &self.roots
    }

    /// The params it looks at.
    pub fn params(&self) -> &ParamNames {
        &self.params
    }

    /// The name and the JSON pointer below it, when the expression is only fields and
    /// non-negative indexes.
    pub fn as_path(&self) -> Option<(Root, String)> {
        let (root, segments) = self.path.as_ref()?;
        let pointer = segments.iter().map(Segment::to_pointer).collect();
        Some((root.clone(), pointer))
    }

    /// The value among these names. Missing paths are null; a result over [`MAX_RESULT`] or
    /// [`MAX_NESTING`] is an error.
    pub fn evaluate(&self, names: &dyn NameLookup) -> Result<Rcvar, EvaluationError> {
        self.evaluate_within(names, &mut Meter::new())
    }

    /// As [`Expression::evaluate`], on a meter shared with other evaluations.
    pub fn evaluate_within(
        &self,
        names: &dyn NameLookup,
        meter: &mut Meter,
    ) -> Result<Rcvar, EvaluationError> {
        if self.path.is_some() {
            let value = self.find(names).unwrap_or_else(null);
            meter.take_bytes(value::measure(&value)?)?;
            return Ok(value);
        }
        self.evaluate_on_within(&self.root_object(names), meter)
    }

    /// The value at the path, or nothing when it is not there. Nothing too when this is no path.
    pub fn find(&self, names: &dyn NameLookup) -> Option<Rcvar> {
        let (root, segments) = self.path.as_ref()?;
        walk(names.get(root)?, segments)
    }

    /// The value on an element.
    pub fn evaluate_on(&self, element: &Rcvar) -> Result<Rcvar, EvaluationError> {
        self.evaluate_on_within(element, &mut Meter::new())
    }

    /// As [`Expression::evaluate_on`], on a meter shared with other evaluations.
    pub fn evaluate_on_within(
        &self,
        element: &Rcvar,
        meter: &mut Meter,
    ) -> Result<Rcvar, EvaluationError> {
        let mut interpreter = Interpreter::new(meter.work);
        let value = interpreter.run(element, &self.ast)?;
        meter.work = interpreter.remaining;
        meter.take_bytes(value::measure(&value)?)?;
        Ok(value)
    }

    /// An object of the mentioned names alone; a step stands under both of its names.
    fn root_object(&self, names: &dyn NameLookup) -> Rcvar {
        let mut object = BTreeMap::new();
        let mut env = BTreeMap::new();
        let mut steps = BTreeMap::new();
        for root in &self.roots {
            let Some(value) = names.get(root) else {
                continue;
            };
            match root {
                Root::Params => drop(object.insert("params".to_owned(), value)),
                Root::Item => drop(object.insert("item".to_owned(), value)),
                Root::ItemIndex => drop(object.insert("item_index".to_owned(), value)),
                Root::Env(name) => drop(env.insert(name.clone(), value)),
                Root::Step(id) => {
                    // A bare `null` stays null even if a step has that name (decision T4).
                    if id != "null" {
                        object.insert(id.clone(), value.clone());
                    }
                    steps.insert(id.clone(), value);
                }
            }
        }
        object.insert("env".to_owned(), Rcvar::new(Variable::Object(env)));
        object.insert("step".to_owned(), Rcvar::new(Variable::Object(steps)));
        Rcvar::new(Variable::Object(object))
    }
}

fn walk(base: Rcvar, segments: &[Segment]) -> Option<Rcvar> {
    let mut at = base;
    for segment in segments {
        let next = match (segment, &*at) {
            (Segment::Field(name), Variable::Object(members)) => members.get(name),
            (Segment::Index(index), Variable::Array(items)) => items.get(*index),
            (Segment::Field(_) | Segment::Index(_), _) => None,
        }?
        .clone();
        at = next;
    }
    Some(at)
}

#[cfg(test)]
mod tests;
