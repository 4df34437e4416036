//! Evaluation of a template, with the source of every leaf.

use serde_json::Value;

use super::{Leaf, LeafSource, Part, TemplateNode, Text, below, text_of};
use crate::expression::{
    EvaluationError, Expression, MAX_NESTING, MAX_RESULT, Meter, NameLookup, Root, from_value,
    measure_within, to_value,
};
use crate::rules::DecisionRules;

/// One rendering under way.
pub(super) struct Render<'a> {
    pub(super) names: &'a dyn NameLookup,
    pub(super) is_secret: &'a dyn Fn(&str) -> bool,
    pub(super) rules: DecisionRules,
    pub(super) meter: Meter,
    pub(super) leaves: Vec<Leaf>,
}

impl Render<'_> {
    pub(super) fn node(
        &mut self,
        node: &TemplateNode,
        at: &mut String,
        depth: usize,
    ) -> Result<Value, EvaluationError> {
        match node {
            TemplateNode::Literal(value) => Ok(value.clone()),
            TemplateNode::Text(text) => self.text(text, at, depth),
            TemplateNode::List(items) => {
                let items = items.iter().enumerate().map(|(index, item)| {
                    below(at, &index.to_string(), |at| self.node(item, at, depth + 1))
                });
                items.collect::<Result<_, _>>().map(Value::Array)
            }
            TemplateNode::Map(members) => {
                let members = members.iter().map(|(key, member)| {
                    let value = below(at, key, |at| self.node(member, at, depth + 1))?;
                    Ok((key.clone(), value))
                });
                members.collect::<Result<_, _>>().map(Value::Object)
            }
        }
    }

    fn text(&mut self, text: &Text, at: &str, depth: usize) -> Result<Value, EvaluationError> {
        let roots = text.roots();
        let secret = roots
            .iter()
            .any(|root| matches!(root, Root::Env(name) if (self.is_secret)(name)));
        let (value, source) = if secret {
            (Value::String(text.source.clone()), LeafSource::Secret)
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
    ) -> Result<(Value, LeafSource), EvaluationError> {
        let value = expression.evaluate_within(self.names, &mut self.meter)?;
        if depth > 0 {
            measure_within(&value, depth.min(MAX_NESTING), Meter::MAX_BYTES)?;
        }
        let source = match expression.as_path() {
            Some((root, pointer)) if self.exists(expression) => LeafSource::Path { root, pointer },
            Some(_) | None => LeafSource::Computed {
                roots: expression.roots().iter().cloned().collect(),
            },
        };
        Ok((to_value(&value), source))
    }

    fn exists(&self, expression: &Expression) -> bool {
        expression.find(self.names).is_some()
    }

    fn mixed(&mut self, text: &Text) -> Result<Value, EvaluationError> {
        let mut out = String::new();
        for part in &text.parts {
            match part {
                Part::Literal(literal) => out.push_str(literal),
                Part::Expression(expression) => {
                    let value = expression.evaluate_within(self.names, &mut self.meter)?;
                    out.push_str(&text_of(&to_value(&value), self.rules));
                }
            }
        }
        let text = Value::String(out);
        measure_within(&from_value(&text), 0, MAX_RESULT)?;
        Ok(text)
    }
}
