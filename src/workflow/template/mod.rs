//! `{{ }}` in a tree of values: one resolver for every place (decision T1, seed 000 invariant 33).
//!
//! A string that is one expression keeps the type of its value; in mixed text values are coerced
//! by [`text_of`]; everything else is literal. Results are never parsed again. Rendering also
//! says where each value came from, so that a frame can hold a reference instead of a copy, and
//! leaves values with secrets unbuilt: their template text is what a frame may hold.

mod render;
mod text;
mod tree;

pub use text::text_of;
pub use tree::{Leaf, LeafSource, TemplateError, located};

use std::collections::BTreeSet;

use ktsu_ledger::CanonicalJson;
use serde_json::Value;

use super::expression::provenance::Tracked;
use super::expression::{
    EvaluatedValue, EvaluationError, Evaluator, Expression, NameLookup, Root, Tracker, Vocabulary,
    into_value, to_value,
};
use super::rules::DecisionRules;
use render::Render;
use tree::{Part, TemplateNode, pointer_to};

/// A tree of values whose strings may hold expressions.
#[derive(Debug, Clone)]
pub struct Template {
    node: TemplateNode,
    /// Ascending.
    roots: Box<[Root]>,
}

/// A template with its expressions evaluated.
#[derive(Debug, Clone, PartialEq)]
pub struct RenderedTemplate {
    /// The value; where a leaf is [`LeafSource::Secret`] it holds the template text.
    pub value: Value,
    /// Every leaf that was not literal.
    pub leaves: Vec<Leaf>,
}

impl Template {
    /// Reads the templates of a tree. Keys are literal.
    pub fn parse(tree: &CanonicalJson) -> Result<Self, TemplateError> {
        Self::from_value(&tree.to_value())
    }

    /// As [`Template::parse`], from a value.
    pub fn from_value(tree: &Value) -> Result<Self, TemplateError> {
        Self::parse_with(tree, Vocabulary::Workflow)
    }

    /// As [`Template::from_value`], over the names of a workflow or of a responder.
    pub fn parse_with(tree: &Value, vocabulary: Vocabulary) -> Result<Self, TemplateError> {
        let mut roots = BTreeSet::new();
        let node = TemplateNode::parse(tree, vocabulary, &mut String::new(), &mut roots)?;
        Ok(Self {
            node,
            roots: roots.into_iter().collect(),
        })
    }

    /// A template of one string.
    pub fn text(source: &str) -> Result<Self, TemplateError> {
        Self::from_value(&Value::String(source.to_owned()))
    }

    /// The names its expressions mention, ascending.
    pub fn roots(&self) -> &[Root] {
        &self.roots
    }

    /// The expressions of a template of one string.
    pub fn expressions(&self) -> impl Iterator<Item = &Expression> {
        let parts = match &self.node {
            TemplateNode::Text(text) => text.parts.as_slice(),
            TemplateNode::Literal(_) | TemplateNode::List(_) | TemplateNode::Map(_) => &[],
        };
        parts.iter().filter_map(|part| match part {
            Part::Expression(expression) => Some(expression),
            Part::Literal(_) => None,
        })
    }

    /// Returns `true` if nothing in it is evaluated.
    pub fn is_literal(&self) -> bool {
        matches!(self.node, TemplateNode::Literal(_))
    }

    /// JSON pointers to its strings that hold expressions.
    pub fn expression_pointers(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut open = vec![(String::new(), &self.node)];
        while let Some((at, node)) = open.pop() {
            match node {
                TemplateNode::Literal(_) => {}
                TemplateNode::Text(_) => found.push(at),
                TemplateNode::List(items) => {
                    let items = items.iter().enumerate();
                    open.extend(items.map(|(index, item)| (format!("{at}/{index}"), item)));
                }
                TemplateNode::Map(members) => {
                    let members = members.iter();
                    open.extend(members.map(|(key, one)| (pointer_to(&at, key), one)));
                }
            }
        }
        found.sort_unstable();
        found
    }

    /// Evaluates every expression; a missing path is null, or empty text inside mixed text, which
    /// is made as the decision rules have it.
    pub fn render(
        &self,
        names: &dyn NameLookup,
        is_secret: &dyn Fn(&str) -> bool,
        rules: DecisionRules,
    ) -> Result<RenderedTemplate, EvaluationError> {
        let mut tracker = Tracker::default();
        self.render_within(names, is_secret, rules, &mut Evaluator::new(&mut tracker))
    }

    /// As [`Template::render`], on an evaluator shared with other evaluations.
    pub fn render_within(
        &self,
        names: &dyn NameLookup,
        is_secret: &dyn Fn(&str) -> bool,
        rules: DecisionRules,
        evaluator: &mut Evaluator<'_, jmespath::Rcvar>,
    ) -> Result<RenderedTemplate, EvaluationError> {
        let (value, leaves) = self.evaluate(names, is_secret, rules, evaluator)?;
        let value = into_value(value);
        Ok(RenderedTemplate { value, leaves })
    }

    /// As [`Template::render`], with the provenance of the result. A text that resolves through a
    /// secret stays its template, which is literal.
    pub fn track(
        &self,
        names: &dyn NameLookup<Tracked>,
        is_secret: &dyn Fn(&str) -> bool,
        rules: DecisionRules,
        tracker: &mut Tracker,
    ) -> Result<Tracked, EvaluationError> {
        let mut evaluator = Evaluator::new(tracker);
        let (value, _) = self.evaluate(names, is_secret, rules, &mut evaluator)?;
        Ok(value)
    }

    fn evaluate<V: EvaluatedValue>(
        &self,
        names: &dyn NameLookup<V>,
        is_secret: &dyn Fn(&str) -> bool,
        rules: DecisionRules,
        evaluator: &mut Evaluator<'_, V>,
    ) -> Result<(V, Vec<Leaf>), EvaluationError> {
        let mut render = Render {
            names,
            is_secret,
            rules,
            evaluator,
            leaves: Vec::new(),
        };
        let value = render.node(&self.node, &mut String::new(), 0)?;
        Ok((value, render.leaves))
    }

    /// The text of the template at a JSON pointer, or of the nearest one around it.
    pub fn source_at(&self, pointer: &str) -> Option<String> {
        let mut at = &self.node;
        for segment in pointer.split('/').skip(1) {
            let segment = segment.replace("~1", "/").replace("~0", "~");
            let below = match at {
                TemplateNode::Map(members) => members
                    .iter()
                    .find(|(name, _)| *name == segment)
                    .map(|(_, node)| node),
                TemplateNode::List(items) => {
                    segment.parse().ok().and_then(|at: usize| items.get(at))
                }
                TemplateNode::Literal(_) | TemplateNode::Text(_) => None,
            };
            match below {
                Some(below) => at = below,
                None => break,
            }
        }
        match at {
            TemplateNode::Text(text) => Some(text.source.clone()),
            TemplateNode::Literal(value) => Some(to_value(value).to_string()),
            TemplateNode::List(_) | TemplateNode::Map(_) => None,
        }
    }
}

#[cfg(test)]
mod tests;
