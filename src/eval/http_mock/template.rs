//! Bodies of replies, with values of the request in them.

use ktsu_workflow::expression::{Evaluator, Expression, Tracker, from_value, into_value};
use serde_json::{Map, Value};

use crate::filter;

/// The most bytes of the body of a reply.
pub(crate) const MAX_REPLY: usize = 1 << 20;

/// A value whose texts may have `{{ EXPRESSION }}` in them: JMESPath over `{count, request}`.
#[derive(Debug, Clone)]
pub(crate) struct ReplyTemplate {
    written: Value,
    node: ReplyNode,
}

#[derive(Debug, Clone)]
enum ReplyNode {
    Literal(Value),
    Text(Vec<ReplyPart>),
    List(Vec<ReplyNode>),
    Map(Vec<(String, ReplyNode)>),
}

#[derive(Debug, Clone)]
enum ReplyPart {
    Literal(String),
    Expression(Expression),
}

impl PartialEq for ReplyTemplate {
    fn eq(&self, other: &Self) -> bool {
        self.written == other.written
    }
}

impl ReplyTemplate {
    /// Reads the expressions of a value, whose depth is bounded because it comes from YAML.
    ///
    /// # Errors
    /// What is wrong with one, in words.
    pub(crate) fn parse(written: Value) -> Result<Self, String> {
        let node = ReplyNode::parse(&written)?;
        Ok(Self { written, node })
    }

    /// The value for a request; none if an expression has none.
    pub(crate) fn render(&self, request: &Value) -> Result<Value, String> {
        let mut tracker = Tracker::default();
        let mut evaluator = Evaluator::new(&mut tracker);
        let request = from_value(request);
        let mut value_of = |expression: &Expression| {
            let value = expression.evaluate_on(&request, &mut evaluator);
            value.map(into_value).map_err(|error| error.message)
        };
        self.node.render(&mut value_of)
    }

    /// Returns `true` if it is sent as JSON.
    pub(crate) fn is_json(&self) -> bool {
        !self.written.is_string()
    }
}

impl ReplyNode {
    fn parse(written: &Value) -> Result<Self, String> {
        Ok(match written {
            Value::String(text) if text.contains("{{") => Self::Text(parts(text)?),
            Value::Array(items) => {
                Self::List(items.iter().map(Self::parse).collect::<Result<_, _>>()?)
            }
            Value::Object(members) => {
                let members = members.iter();
                let nodes = members.map(|(name, value)| Ok((name.clone(), Self::parse(value)?)));
                Self::Map(nodes.collect::<Result<_, String>>()?)
            }
            other => Self::Literal(other.clone()),
        })
    }

    fn render(
        &self,
        value_of: &mut dyn FnMut(&Expression) -> Result<Value, String>,
    ) -> Result<Value, String> {
        Ok(match self {
            Self::Literal(value) => value.clone(),
            // One expression alone keeps its type.
            Self::Text(parts) => match parts.as_slice() {
                [ReplyPart::Expression(expression)] => value_of(expression)?,
                parts => Value::String(text(parts, value_of)?),
            },
            Self::List(items) => {
                let items = items.iter().map(|item| item.render(value_of));
                Value::Array(items.collect::<Result<_, _>>()?)
            }
            Self::Map(members) => {
                let mut rendered = Map::new();
                for (name, node) in members {
                    rendered.insert(name.clone(), node.render(value_of)?);
                }
                Value::Object(rendered)
            }
        })
    }
}

fn text(
    parts: &[ReplyPart],
    value_of: &mut dyn FnMut(&Expression) -> Result<Value, String>,
) -> Result<String, String> {
    let mut text = String::new();
    for part in parts {
        match part {
            ReplyPart::Literal(literal) => text.push_str(literal),
            ReplyPart::Expression(expression) => match value_of(expression)? {
                Value::String(value) => text.push_str(&value),
                Value::Null => {}
                other => text.push_str(&other.to_string()),
            },
        }
        if text.len() > MAX_REPLY {
            return Err(too_long());
        }
    }
    Ok(text)
}

pub(crate) fn too_long() -> String {
    format!("it has more than {} MiB", MAX_REPLY >> 20)
}

fn parts(text: &str) -> Result<Vec<ReplyPart>, String> {
    let (mut parts, mut rest) = (Vec::new(), text);
    while let Some((before, begun)) = rest.split_once("{{") {
        let (source, after) = begun
            .split_once("}}")
            .ok_or_else(|| "{{ has no }}".to_owned())?;
        if !before.is_empty() {
            parts.push(ReplyPart::Literal(before.to_owned()));
        }
        let expression = filter::expression(source.trim()).map_err(|error| error.message)?;
        parts.push(ReplyPart::Expression(expression));
        rest = after;
    }
    if !rest.is_empty() {
        parts.push(ReplyPart::Literal(rest.to_owned()));
    }
    Ok(parts)
}
