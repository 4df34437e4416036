//! The tree of a template: literal values, and texts with expressions.

use std::collections::BTreeSet;

use jmespath::Rcvar;
use serde_json::Value;

use crate::expression::{Expression, Root, Vocabulary, from_value, skip_quoted};

/// A place in a rendered value that an expression filled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leaf {
    /// JSON pointer into the value.
    pub at: String,
    /// The source of the value.
    pub source: LeafSource,
}

/// The source of the value of a leaf.
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

/// The reason why a tree is not a template: a boot error.
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
    /// [`ExpressionError`](crate::expression::ExpressionError).
    pub negated_path: bool,
}

#[derive(Debug, Clone)]
pub(super) enum TemplateNode {
    Literal(Rcvar),
    Text(Text),
    List(Vec<TemplateNode>),
    Map(Vec<(String, TemplateNode)>),
}

/// A string with at least one expression.
#[derive(Debug, Clone)]
pub(super) struct Text {
    pub(super) source: String,
    pub(super) parts: Vec<Part>,
}

#[derive(Debug, Clone)]
pub(super) enum Part {
    Literal(String),
    Expression(Expression),
}

impl TemplateNode {
    pub(super) fn parse(
        tree: &Value,
        vocabulary: Vocabulary,
        at: &mut String,
        roots: &mut BTreeSet<Root>,
    ) -> Result<Self, TemplateError> {
        let node = match tree {
            Value::String(source) => {
                return match parse_text(source, vocabulary, at, roots)? {
                    Some(text) => Ok(Self::Text(text)),
                    None => Ok(Self::Literal(from_value(tree))),
                };
            }
            Value::Array(items) => {
                let items = items.iter().enumerate().map(|(index, item)| {
                    below(at, &index.to_string(), |at| {
                        Self::parse(item, vocabulary, at, roots)
                    })
                });
                Self::List(items.collect::<Result<_, _>>()?)
            }
            Value::Object(members) => {
                let members = members.iter().map(|(key, member)| {
                    let node = below(at, key, |at| Self::parse(member, vocabulary, at, roots))?;
                    Ok((key.clone(), node))
                });
                Self::Map(members.collect::<Result<_, _>>()?)
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => Self::Literal(from_value(tree)),
        };
        Ok(if node.is_literal() {
            Self::Literal(from_value(tree))
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
pub(super) fn pointer_to(at: &str, segment: &str) -> String {
    format!("{at}/{}", segment.replace('~', "~0").replace('/', "~1"))
}

/// Runs `then` with one more segment on the pointer.
pub(super) fn below<T>(at: &mut String, segment: &str, then: impl FnOnce(&mut String) -> T) -> T {
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
    vocabulary: Vocabulary,
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
        let expression = Expression::parse_with(inner.trim(), vocabulary);
        let expression = expression.map_err(|error| TemplateError {
            negated_path: error.negated_path,
            ..fail(open + 2 + lead + error.offset, &error.message, error.hint)
        })?;
        roots.extend(expression.roots().iter().cloned());
        if open > done {
            parts.push(Part::Literal(source[done..open].to_owned()));
        }
        parts.push(Part::Expression(expression));
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

/// The place of the `}}` that closes an expression: not one in quotes or inside its own braces.
fn closing(source: &str, start: usize) -> Option<usize> {
    let mut open = 0usize;
    let mut at = start;
    while let Some(c) = source[at..].chars().next() {
        match c {
            '"' | '\'' | '`' => {
                at = skip_quoted(source, at, c)?;
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
    pub(super) fn roots(&self) -> Vec<Root> {
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
