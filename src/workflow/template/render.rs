//! Evaluation of a template, with the source of every leaf.

use std::collections::BTreeMap;

use jmespath::{Rcvar, Variable};
use serde_json::Value;

use super::text::text_of;
use super::tree::{Leaf, LeafSource, Part, TemplateNode, Text, below};
use crate::expression::{
    EvaluatedValue, EvaluationError, Evaluator, Expression, MAX_BYTES, MAX_NESTING, MAX_RESULT,
    NameLookup, Root, from_value, measure_within, to_value,
};
use crate::rules::DecisionRules;

/// One rendering under way.
pub(super) struct Render<'a, 't, V: EvaluatedValue> {
    pub(super) names: &'a dyn NameLookup<V>,
    pub(super) is_secret: &'a dyn Fn(&str) -> bool,
    pub(super) rules: DecisionRules,
    pub(super) evaluator: &'a mut Evaluator<'t, V>,
    pub(super) leaves: Vec<Leaf>,
}

impl<V: EvaluatedValue> Render<'_, '_, V> {
    pub(super) fn node(
        &mut self,
        node: &TemplateNode,
        at: &mut String,
        depth: usize,
    ) -> Result<V, EvaluationError> {
        match node {
            TemplateNode::Literal(value) => Ok(V::literal(value.clone())),
            TemplateNode::Text(text) => self.text(text, at, depth),
            TemplateNode::List(items) => {
                let items = items.iter().enumerate().map(|(index, item)| {
                    below(at, &index.to_string(), |at| self.node(item, at, depth + 1))
                });
                let items = items.collect::<Result<_, _>>()?;
                Ok(V::list(items, V::Provenance::default()))
            }
            TemplateNode::Map(members) => {
                let members = members.iter().map(|(key, member)| {
                    let value = below(at, key, |at| self.node(member, at, depth + 1))?;
                    Ok((key.clone(), value))
                });
                let members = members.collect::<Result<BTreeMap<_, _>, EvaluationError>>()?;
                Ok(V::map(members, V::Provenance::default()))
            }
        }
    }

    fn text(&mut self, text: &Text, at: &str, depth: usize) -> Result<V, EvaluationError> {
        let roots = text.roots();
        let secret = roots
            .iter()
            .any(|root| matches!(root, Root::Env(name) if (self.is_secret)(name)));
        let (value, source) = if secret {
            let source = from_value(&Value::from(text.source.as_str()));
            (V::literal(source), LeafSource::Secret)
        } else if let [Part::Expression(expression)] = text.parts.as_slice() {
            self.whole(expression, depth)?
        } else {
            (self.mixed(text)?, LeafSource::Computed { roots })
        };
        self.leaves.push(Leaf {
            at: at.to_owned(),
            source,
        });
        Ok(value)
    }

    fn whole(
        &mut self,
        expression: &Expression,
        depth: usize,
    ) -> Result<(V, LeafSource), EvaluationError> {
        let value = expression.evaluate_within(self.names, self.evaluator)?;
        if depth > 0 {
            measure_within(value.value(), depth.min(MAX_NESTING), MAX_BYTES)?;
        }
        let source = match expression.as_path() {
            Some((root, pointer)) if expression.exists(self.names) => {
                LeafSource::Path { root, pointer }
            }
            Some(_) | None => LeafSource::Computed {
                roots: expression.roots().to_vec(),
            },
        };
        Ok((value, source))
    }

    fn mixed(&mut self, text: &Text) -> Result<V, EvaluationError> {
        let mut out = String::new();
        let (mut sources, mut chosen) = (Vec::new(), Vec::new());
        for part in &text.parts {
            match part {
                Part::Literal(literal) => out.push_str(literal),
                Part::Expression(expression) => {
                    let value = expression.evaluate_within(self.names, self.evaluator)?;
                    out.push_str(&text_of(&to_value(value.value()), self.rules));
                    sources.push(value.sources());
                    chosen.push(value.choosers());
                }
            }
        }
        let text = Rcvar::new(Variable::String(out));
        measure_within(&text, 0, MAX_RESULT)?;
        Ok(V::computed(text, V::union(&sources)).chosen_by(&V::union(&chosen)))
    }
}
