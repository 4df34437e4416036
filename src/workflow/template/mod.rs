//! `{{ }}` in a tree of values: one resolver for every place (decision T1, seed 000 invariant 33).
//!
//! A string that is one expression keeps the type of its value; in mixed text values are coerced
//! by [`text_of`]; everything else is literal. Results are never parsed again. Rendering also
//! says where each value came from, so that a frame can hold a reference instead of a copy, and
//! leaves values with secrets unbuilt: their template text is what a frame may hold.

mod render;
mod text;
mod tracked;

pub use text::text_of;

use std::collections::BTreeSet;

use ktsu_ledger::CanonicalJson;
use serde_json::Value;

use super::expression::{EvaluationError, Expression, Meter, NameLookup, Root};
use super::rules::DecisionRules;
use render::Render;

/// A tree of values whose strings may hold expressions.
#[derive(Debug, Clone)]
pub struct Template {
    node: TemplateNode,
    roots: BTreeSet<Root>,
}

/// Why a tree is not a template: a boot error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct TemplateError {
    /// JSON pointer to the string.
    pub pointer: String,
    /// A lower-case fragment.
    pub message: String,
    /// Byte offset in the string.
    pub offset: usize,
    /// Something to type instead.
    pub hint: Option<String>,
    /// An expression in it is a negated path, see
    /// [`ExpressionError`](super::expression::ExpressionError).
    pub negated_path: bool,
}

/// A template with its expressions evaluated.
#[derive(Debug, Clone, PartialEq)]
pub struct RenderedTemplate {
    /// The value; where a leaf is [`LeafSource::Secret`] it holds the template text.
    pub value: Value,
    /// Every leaf that was not literal.
    pub leaves: Vec<Leaf>,
}

/// A place in a rendered value that an expression filled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leaf {
    /// JSON pointer into the value.
    pub at: String,
    /// Where the value came from.
    pub source: LeafSource,
}

/// Where the value of a leaf came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeafSource {
    /// It is exactly the value at this pointer below the name, and that value exists.
    Path {
        /// The name.
        root: Root,
        /// JSON pointer below the name.
        pointer: String,
    },
    /// It was computed from these names.
    Computed {
        /// Ascending.
        roots: Vec<Root>,
    },
    /// It mentions a secret variable and was not built: its place holds the template's text.
    Secret,
}

#[derive(Debug, Clone)]
enum TemplateNode {
    Literal(Value),
    Text(Text),
    List(Vec<TemplateNode>),
    Map(Vec<(String, TemplateNode)>),
}

/// A string with at least one expression.
#[derive(Debug, Clone)]
struct Text {
    source: String,
    parts: Vec<Part>,
}

#[derive(Debug, Clone)]
enum Part {
    Literal(String),
    Expression(Box<Expression>),
}

impl Template {
    /// Reads the templates of a tree. Keys are literal.
    pub fn parse(tree: &CanonicalJson) -> Result<Self, TemplateError> {
        Self::from_value(&tree.to_value())
    }

    /// As [`Template::parse`], from a value.
    pub fn from_value(tree: &Value) -> Result<Self, TemplateError> {
        let mut roots = BTreeSet::new();
        let node = TemplateNode::parse(tree, &mut String::new(), &mut roots)?;
        Ok(Self { node, roots })
    }

    /// A template of one string.
    pub fn text(source: &str) -> Result<Self, TemplateError> {
        Self::from_value(&Value::String(source.to_owned()))
    }

    /// The names its expressions mention.
    pub fn roots(&self) -> &BTreeSet<Root> {
        &self.roots
    }

    /// The expressions of a template of one string.
    pub fn expressions(&self) -> impl Iterator<Item = &Expression> {
        let parts = match &self.node {
            TemplateNode::Text(text) => text.parts.as_slice(),
            TemplateNode::Literal(_) | TemplateNode::List(_) | TemplateNode::Map(_) => &[],
        };
        parts.iter().filter_map(|part| match part {
            Part::Expression(expression) => Some(expression.as_ref()),
            Part::Literal(_) => None,
        })
    }

    /// Whether nothing in it is evaluated.
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
        let mut render = Render {
            names,
            is_secret,
            rules,
            meter: Meter::new(),
            leaves: Vec::new(),
        };
        let value = render.node(&self.node, &mut String::new(), 0)?;
        Ok(RenderedTemplate {
            value,
            leaves: render.leaves,
        })
    }
}

impl TemplateNode {
    fn parse(
        tree: &Value,
        at: &mut String,
        roots: &mut BTreeSet<Root>,
    ) -> Result<Self, TemplateError> {
        let node = match tree {
            Value::String(source) => {
                return match parse_text(source, at, roots)? {
                    Some(text) => Ok(Self::Text(text)),
                    None => Ok(Self::Literal(tree.clone())),
                };
            }
            Value::Array(items) => {
                let items = items.iter().enumerate().map(|(index, item)| {
                    below(at, &index.to_string(), |at| Self::parse(item, at, roots))
                });
                Self::List(items.collect::<Result<_, _>>()?)
            }
            Value::Object(members) => {
                let members = members.iter().map(|(key, member)| {
                    let node = below(at, key, |at| Self::parse(member, at, roots))?;
                    Ok((key.clone(), node))
                });
                Self::Map(members.collect::<Result<_, _>>()?)
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => Self::Literal(tree.clone()),
        };
        Ok(if node.is_literal() {
            Self::Literal(tree.clone())
        } else {
            node
        })
    }

    fn is_literal(&self) -> bool {
        match self {
            Self::Literal(_) => true,
            Self::Text(_) => false,
            Self::List(items) => items.iter().all(Self::is_literal),
            Self::Map(members) => members.iter().all(|(_, node)| node.is_literal()),
        }
    }
}

/// A pointer with one more segment.
fn pointer_to(at: &str, segment: &str) -> String {
    format!("{at}/{}", segment.replace('~', "~0").replace('/', "~1"))
}

/// Runs `then` with one more segment on the pointer.
fn below<T>(at: &mut String, segment: &str, then: impl FnOnce(&mut String) -> T) -> T {
    let length = at.len();
    at.push('/');
    at.push_str(&segment.replace('~', "~0").replace('/', "~1"));
    let outcome = then(at);
    at.truncate(length);
    outcome
}

/// The parts of a string, or nothing when it is literal.
fn parse_text(
    source: &str,
    at: &str,
    roots: &mut BTreeSet<Root>,
) -> Result<Option<Text>, TemplateError> {
    let fail = |offset: usize, message: &str, hint: Option<String>| TemplateError {
        pointer: at.to_owned(),
        message: message.to_owned(),
        offset,
        hint,
        negated_path: false,
    };
    let mut parts = Vec::new();
    let mut done = 0;
    while let Some(open) = source[done..].find("{{").map(|found| done + found) {
        let Some(close) = closing(source, open + 2) else {
            return Err(fail(open, "the opening {{ is never closed", None));
        };
        let inner = &source[open + 2..close];
        if inner.trim().is_empty() {
            let hint = "text with braces is written {{ '{{' }}".to_owned();
            return Err(fail(
                open,
                "there is no expression between {{ and }}",
                Some(hint),
            ));
        }
        let lead = inner.len() - inner.trim_start().len();
        let expression = Expression::parse(inner.trim()).map_err(|error| TemplateError {
            negated_path: error.negated_path,
            ..fail(open + 2 + lead + error.offset, &error.message, error.hint)
        })?;
        roots.extend(expression.roots().iter().cloned());
        if open > done {
            parts.push(Part::Literal(source[done..open].to_owned()));
        }
        parts.push(Part::Expression(Box::new(expression)));
        done = close + 2;
    }
    if parts.is_empty() {
        return Ok(None);
    }
    if done < source.len() {
        parts.push(Part::Literal(source[done..].to_owned()));
    }
    Ok(Some(Text {
        source: source.to_owned(),
        parts,
    }))
}

/// The expressions of a text, each with the byte at which it begins; and whether the text is one
/// expression and nothing else.
pub fn located(source: &str) -> (Vec<(usize, &str)>, bool) {
    let mut found = Vec::new();
    let mut whole = true;
    let mut done = 0;
    while let Some(open) = source[done..].find("{{").map(|found| done + found) {
        let Some(close) = closing(source, open + 2) else {
            break;
        };
        let inner = &source[open + 2..close];
        let lead = inner.len() - inner.trim_start().len();
        found.push((open + 2 + lead, inner.trim()));
        whole &= open == done;
        done = close + 2;
    }
    let whole = whole && found.len() == 1 && done == source.len();
    (found, whole)
}

/// Where the `}}` stands that closes an expression: not one in quotes or inside its own braces.
fn closing(source: &str, start: usize) -> Option<usize> {
    let mut open = 0usize;
    let mut at = start;
    while let Some(c) = source[at..].chars().next() {
        match c {
            '"' | '\'' | '`' => {
                at = super::expression::skip_quoted(source, at, c)?;
                continue;
            }
            '{' => open += 1,
            '}' if open > 0 => open -= 1,
            '}' if source[at..].starts_with("}}") => return Some(at),
            _ => {}
        }
        at += c.len_utf8();
    }
    None
}

impl Text {
    fn roots(&self) -> Vec<Root> {
        let mut roots = BTreeSet::new();
        for part in &self.parts {
            match part {
                Part::Literal(_) => {}
                Part::Expression(expression) => roots.extend(expression.roots().iter().cloned()),
            }
        }
        roots.into_iter().collect()
    }
}

#[cfg(test)]
mod tests;
