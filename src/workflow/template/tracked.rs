//! Rendering that also says where every part of the value came from.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Node, Part, Template, Text, text_of};
use crate::expression::marks::{Marks, Tracked, all};
use crate::expression::tracked::{TrackedNames, Tracker};
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
        names: &dyn TrackedNames,
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
                Node::Map(members) => members
                    .iter()
                    .find(|(name, _)| *name == segment)
                    .map(|(_, node)| node),
                Node::List(items) => segment.parse().ok().and_then(|at: usize| items.get(at)),
                Node::Literal(_) | Node::Text(_) => None,
            };
            match below {
                Some(below) => at = below,
                None => break,
            }
        }
        match at {
            Node::Text(text) => Some(text.source.clone()),
            Node::Literal(value) => Some(value.to_string()),
            Node::List(_) | Node::Map(_) => None,
        }
    }
}

fn node(
    tree: &Node,
    names: &dyn TrackedNames,
    is_secret: &dyn Fn(&str) -> bool,
    rules: DecisionRules,
    tracker: &mut Tracker,
) -> Result<Tracked, EvaluationError> {
    match tree {
        Node::Literal(value) => Ok(Tracked::literal(from_value(value))),
        Node::Text(one) => text(one, names, is_secret, rules, tracker),
        Node::List(items) => {
            let items = items
                .iter()
                .map(|item| node(item, names, is_secret, rules, tracker));
            let items = items.collect::<Result<_, _>>()?;
            Ok(Tracked::list(items, Marks::default()))
        }
        Node::Map(members) => {
            let members = members.iter().map(|(key, member)| {
                let made = node(member, names, is_secret, rules, tracker)?;
                Ok((key.clone(), made))
            });
            let members = members.collect::<Result<BTreeMap<_, _>, EvaluationError>>()?;
            Ok(Tracked::map(members, Marks::default()))
        }
    }
}

fn text(
    text: &Text,
    names: &dyn TrackedNames,
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
    let made = Tracked::of(from_value(&Value::String(out)), all(&sources));
    Ok(made.chosen_by(&all(&chosen)))
}
