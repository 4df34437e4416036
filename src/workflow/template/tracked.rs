//! Rendering that also says where every part of the value came from.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Part, Template, TemplateNode, Text, text_of};
use crate::expression::provenance::{Provenance, Tracked, union};
use crate::expression::tracked::{TrackedNameLookup, Tracker};
use crate::expression::{EvaluationError, Root, from_value};
use crate::rules::DecisionRules;

impl Template {
    /// As [`Template::render`], with the places of the result. A text that resolves through a
    /// secret stays its template, which is literal.
    ///
    /// # Errors
    /// What [`Template::render`] refuses.
    pub fn track(
        &self,
        names: &dyn TrackedNameLookup,
        is_secret: &dyn Fn(&str) -> bool,
        rules: DecisionRules,
        tracker: &mut Tracker,
    ) -> Result<Tracked, EvaluationError> {
        node(&self.node, names, is_secret, rules, tracker)
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
            TemplateNode::Literal(value) => Some(value.to_string()),
            TemplateNode::List(_) | TemplateNode::Map(_) => None,
        }
    }
}

fn node(
    tree: &TemplateNode,
    names: &dyn TrackedNameLookup,
    is_secret: &dyn Fn(&str) -> bool,
    rules: DecisionRules,
    tracker: &mut Tracker,
) -> Result<Tracked, EvaluationError> {
    match tree {
        TemplateNode::Literal(value) => Ok(Tracked::literal(from_value(value))),
        TemplateNode::Text(one) => text(one, names, is_secret, rules, tracker),
        TemplateNode::List(items) => {
            let items = items
                .iter()
                .map(|item| node(item, names, is_secret, rules, tracker));
            let items = items.collect::<Result<_, _>>()?;
            Ok(Tracked::list(items, Provenance::default()))
        }
        TemplateNode::Map(members) => {
            let members = members.iter().map(|(key, member)| {
                let made = node(member, names, is_secret, rules, tracker)?;
                Ok((key.clone(), made))
            });
            let members = members.collect::<Result<BTreeMap<_, _>, EvaluationError>>()?;
            Ok(Tracked::map(members, Provenance::default()))
        }
    }
}

fn text(
    text: &Text,
    names: &dyn TrackedNameLookup,
    is_secret: &dyn Fn(&str) -> bool,
    rules: DecisionRules,
    tracker: &mut Tracker,
) -> Result<Tracked, EvaluationError> {
    let roots = text.roots();
    let mut roots = roots.iter();
    if roots.any(|root| matches!(root, Root::Env(name) if is_secret(name))) {
        let source = Value::String(text.source.clone());
        return Ok(Tracked::literal(from_value(&source)));
    }
    if let [Part::Expression(expression)] = text.parts.as_slice() {
        return expression.track(names, tracker);
    }
    let mut out = String::new();
    let (mut sources, mut chosen) = (Vec::new(), Vec::new());
    for part in &text.parts {
        match part {
            Part::Literal(literal) => out.push_str(literal),
            Part::Expression(expression) => {
                let value = expression.track(names, tracker)?;
                out.push_str(&text_of(&value.to_value(), rules));
                sources.push(value.sources());
                chosen.push(value.choosers());
            }
        }
    }
    let made = Tracked::computed(from_value(&Value::String(out)), union(&sources));
    Ok(made.chosen_by(&union(&chosen)))
}
