//! JMESPath expressions: parsed and checked once, evaluated often (decisions T2, T3, T4).
//!
//! The grammar is standard JMESPath without added functions, with one lexical extension: outside
//! quotes an identifier may contain hyphens. The library parses; everything else is done here:
//! names at the root are known before a run starts, functions and their arguments are checked at
//! parse time, and evaluation is metered, so that no expression can exhaust the machine. One
//! evaluator works on plain values and on values with provenance.
//!
//! ```text
//! source --lexical--> text --library--> AST --analyze--> roots, path --evaluate(names)--> value
//! ```

mod analysis;
mod error;
mod evaluated;
mod evaluator;
mod functions;
mod interpret;
mod lexical;
mod names;
mod negated;
pub mod provenance;
mod value;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use jmespath::Rcvar;
use jmespath::ast::Ast;

use analysis::NodeScope;
pub use analysis::Segment;
pub use error::{EvaluationError, ExpressionError, MAX_NESTING, MAX_RESULT, MAX_SOURCE};
pub use evaluated::EvaluatedValue;
pub use evaluator::{Evaluator, MAX_BYTES, Tracker};
pub(crate) use interpret::flatten;
use lexical::Offsets;
pub use lexical::skip_quoted;
pub use names::{INVOKED, InvokedMention, NameLookup, ParamNames, Root, Vocabulary};
pub use negated::{NegatedPath, negated};
use provenance::Tracked;
#[cfg(test)]
pub(crate) use value::count::converted;
pub use value::{compare_numbers, measure_within};
pub use value::{from_json, from_value, into_value, kind, null, to_value, truthy};

/// A parsed expression, shared: cheap to clone.
#[derive(Debug, Clone)]
pub struct Expression(Arc<Parsed>);

#[derive(Debug)]
struct Parsed {
    source: Box<str>,
    ast: Ast,
    /// Ascending.
    roots: Box<[Root]>,
    params: ParamNames,
    /// The steps of which it mentions what their commands ran.
    invoked: BTreeMap<String, InvokedMention>,
    path: Option<(Root, Box<[Segment]>)>,
    offsets: Offsets,
}

impl Expression {
    /// Parses an expression over the names of a workflow.
    ///
    /// Refuses what is not JMESPath, is too long or too deep, calls a function that does not exist
    /// or with the wrong arguments, and what looks at the root as a whole (`@`, `*`, bare `step`).
    pub fn parse(source: &str) -> Result<Self, ExpressionError> {
        Self::parse_with(source, Vocabulary::Workflow)
    }

    /// As [`Expression::parse`], over the names of a workflow or of a responder.
    pub fn parse_with(source: &str, vocabulary: Vocabulary) -> Result<Self, ExpressionError> {
        let (ast, offsets) = lexical::parse(source)?;
        let negation = |not, dot| negated(source, offsets.source(not), offsets.source(dot));
        let analyzed = analysis::analyze(&ast, NodeScope::Root, vocabulary, &negation);
        let mut analyzed = analyzed.map_err(|error| offsets.back(error))?;
        Ok(Self(Arc::new(Parsed {
            path: analysis::path(&ast, vocabulary),
            roots: std::mem::take(&mut analyzed.roots).into_iter().collect(),
            params: std::mem::take(&mut analyzed.params),
            invoked: std::mem::take(&mut analyzed.invoked),
            source: source.into(),
            ast,
            offsets,
        })))
    }

    /// Parses an expression that is evaluated on an element (`map`, `filter`, `sort`,
    /// `deduplicate`): `@` is the element, and there are no root names.
    pub fn parse_element(source: &str) -> Result<Self, ExpressionError> {
        let (ast, offsets) = lexical::parse(source)?;
        let vocabulary = Vocabulary::Workflow;
        analysis::analyze(&ast, NodeScope::Element, vocabulary, &|_, _| None)
            .map_err(|error| offsets.back(error))?;
        Ok(Self(Arc::new(Parsed {
            source: source.into(),
            ast,
            roots: Box::default(),
            params: ParamNames::default(),
            invoked: BTreeMap::new(),
            path: None,
            offsets,
        })))
    }

    /// The text as written.
    pub fn source(&self) -> &str {
        &self.0.source
    }

    /// The syntax tree.
    pub fn ast(&self) -> &Ast {
        &self.0.ast
    }

    /// The explanation of a path whose first part is negated: see [`negated()`].
    pub fn negated(&self, not: usize, dot: usize) -> Option<NegatedPath> {
        let place = |offset| self.0.offsets.source(offset);
        negated(&self.0.source, place(not), place(dot))
    }

    /// The place in the text as written for an offset of the syntax tree.
    pub fn source_offset(&self, offset: usize) -> usize {
        self.0.offsets.source(offset)
    }

    /// The first place of a name in the text as written.
    pub fn offset_of(&self, name: &str) -> Option<usize> {
        lexical::identifier(&self.0.source, name)
    }

    /// The names at the root, ascending.
    pub fn roots(&self) -> &[Root] {
        &self.0.roots
    }

    /// The params it looks at.
    pub fn params(&self) -> &ParamNames {
        &self.0.params
    }

    /// The name and the JSON pointer below it, when the expression is only fields and
    /// non-negative indexes.
    pub fn as_path(&self) -> Option<(Root, String)> {
        let (root, segments) = self.0.path.as_ref()?;
        let pointer = segments.iter().map(Segment::to_pointer).collect();
        Some((root.clone(), pointer))
    }

    /// The value among these names. Missing paths are null; a result over [`MAX_RESULT`] or
    /// [`MAX_NESTING`] is an error.
    pub fn evaluate(&self, names: &dyn NameLookup) -> Result<Rcvar, EvaluationError> {
        self.evaluate_within(names, &mut Evaluator::new(&mut Tracker::default()))
    }

    /// As [`Expression::evaluate`], with the provenance of the result.
    pub fn track(
        &self,
        names: &dyn NameLookup<Tracked>,
        tracker: &mut Tracker,
    ) -> Result<Tracked, EvaluationError> {
        self.evaluate_within(names, &mut Evaluator::new(tracker))
    }

    /// As [`Expression::evaluate`], on an evaluator shared with other evaluations.
    pub fn evaluate_within<V: EvaluatedValue>(
        &self,
        names: &dyn NameLookup<V>,
        evaluator: &mut Evaluator<'_, V>,
    ) -> Result<V, EvaluationError> {
        match self.walk(names) {
            Some(value) => evaluator.finish(value.unwrap_or_else(V::missing)),
            None => self.evaluate_on(&self.root_object(names), evaluator),
        }
    }

    /// Returns `true` if this is a path and there is a value at it.
    pub fn exists<V: EvaluatedValue>(&self, names: &dyn NameLookup<V>) -> bool {
        matches!(self.walk(names), Some(Ok(_)))
    }

    /// The value on an element.
    pub fn evaluate_on<V: EvaluatedValue>(
        &self,
        element: &V,
        evaluator: &mut Evaluator<'_, V>,
    ) -> Result<V, EvaluationError> {
        let value = evaluator.run(element, &self.0.ast)?;
        evaluator.finish(value)
    }

    /// The value at the path, or what its absence rests on; nothing when this is no path.
    fn walk<V: EvaluatedValue>(
        &self,
        names: &dyn NameLookup<V>,
    ) -> Option<Result<V, V::Provenance>> {
        let (root, segments) = self.0.path.as_ref()?;
        let (value, segments) = match (root, &**segments) {
            (Root::Step(id), [Segment::Field(name), rest @ ..]) if name == INVOKED => {
                (names.invoked(id, InvokedMention::Path), rest)
            }
            (_, all) => (names.get(root), all),
        };
        let Some(mut at) = value else {
            return Some(Err(V::Provenance::default()));
        };
        for segment in segments {
            let next = match segment {
                Segment::Field(name) => at.member(name),
                Segment::Index(index) => at.item(*index),
            };
            match next {
                Some(next) => at = next,
                None => return Some(Err(at.shape())),
            }
        }
        Some(Ok(at))
    }

    /// The value of a step, with what its commands ran where that is mentioned.
    fn with_invoked<V: EvaluatedValue>(&self, id: &str, value: V, names: &dyn NameLookup<V>) -> V {
        let mention = self.0.invoked.get(id);
        let invoked = mention.and_then(|mention| names.invoked(id, *mention));
        let (Some(invoked), Some(members)) = (invoked, value.members()) else {
            return value;
        };
        let mut members = members.into_owned();
        members.insert(INVOKED.to_owned(), invoked);
        V::map(members, value.source()).chosen_by(value.chosen())
    }

    /// An object of the mentioned names alone; a step has both of its names.
    fn root_object<V: EvaluatedValue>(&self, names: &dyn NameLookup<V>) -> V {
        let mut object = BTreeMap::new();
        let mut env = BTreeMap::new();
        let mut steps = BTreeMap::new();
        for root in self.roots() {
            let Some(value) = names.get(root) else {
                continue;
            };
            match root {
                Root::Params => drop(object.insert("params".to_owned(), value)),
                Root::Item => drop(object.insert("item".to_owned(), value)),
                Root::ItemIndex => drop(object.insert("item_index".to_owned(), value)),
                Root::Resume => drop(object.insert("resume".to_owned(), value)),
                Root::Env(name) => drop(env.insert(name.clone(), value)),
                Root::Name(name) => drop(object.insert(name.clone(), value)),
                Root::Step(id) => {
                    let value = self.with_invoked(id, value, names);
                    // A bare `null` stays null even if a step has that name (decision T4).
                    if id != "null" {
                        object.insert(id.clone(), value.clone());
                    }
                    steps.insert(id.clone(), value);
                }
            }
        }
        let map = |members| V::map(members, V::Provenance::default());
        object.insert("env".to_owned(), map(env));
        object
            .entry("step".to_owned())
            .or_insert_with(|| map(steps));
        map(object)
    }
}

#[cfg(test)]
mod tests;
