//! From the text to the syntax tree: limits, hyphens, and error messages of our own.

use jmespath::ast::Ast;

use super::error::{ExpressionError, MAX_NESTING, MAX_SOURCE};

/// The library's parser is recursive in these, and a stack is not endless.
const MAX_NODES: usize = 192;

/// Leads from offsets in the rewritten text back to the source.
#[derive(Debug, Clone)]
pub(super) struct Offsets {
    /// (position in the rewritten text, how many quotes were put in before it).
    added: Vec<(usize, usize)>,
}

impl Offsets {
    pub(super) fn source(&self, offset: usize) -> usize {
        let before = self.added.partition_point(|(at, _)| *at < offset);
        let shift = before.checked_sub(1).map_or(0, |last| self.added[last].1);
        offset.saturating_sub(shift)
    }

    pub(super) fn back(&self, mut error: ExpressionError) -> ExpressionError {
        error.offset = self.source(error.offset);
        error
    }
}

/// Parses, or says why not.
pub(super) fn parse(source: &str) -> Result<(Ast, Offsets), ExpressionError> {
    if source.trim().is_empty() {
        return Err(error(0, "the expression is empty", None));
    }
    if source.chars().count() > MAX_SOURCE {
        let message = format!("the expression is longer than {MAX_SOURCE} characters");
        return Err(error(0, &message, None));
    }
    let (text, offsets) = rewrite(source)?;
    match jmespath::parse(&text) {
        Ok(ast) => Ok((ast, offsets)),
        Err(refusal) => Err(explain(source, offsets.source(refusal.offset))),
    }
}

fn error(offset: usize, message: &str, hint: Option<&str>) -> ExpressionError {
    ExpressionError {
        message: message.to_owned(),
        offset,
        hint: hint.map(str::to_owned),
        negated_path: false,
    }
}

/// Quotes identifiers with hyphens; text inside quotes and backticks passes untouched.
fn rewrite(source: &str) -> Result<(String, Offsets), ExpressionError> {
    let mut out = String::with_capacity(source.len() + 8);
    let mut added = Vec::new();
    let mut total = 0;
    let mut depth = 0usize;
    let mut nodes = 0usize;
    let mut at = 0;
    while let Some(c) = source[at..].chars().next() {
        let end = match c {
            '"' | '\'' | '`' => quoted_end(source, at, c)?,
            'A'..='Z' | 'a'..='z' | '_' => identifier_end(source, at),
            _ => at + c.len_utf8(),
        };
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MAX_NESTING {
            let message = format!("brackets are nested deeper than {MAX_NESTING} levels");
            return Err(error(at, &message, None));
        }
        nodes += usize::from(matches!(c, '(' | '[' | '{' | '!' | '*' | '&'));
        if nodes > MAX_NODES {
            return Err(error(
                at,
                "the expression has too many brackets, stars and negations",
                None,
            ));
        }
        let piece = &source[at..end];
        if (c.is_ascii_alphabetic() || c == '_') && piece.contains('-') {
            added.push((out.len(), total + 1));
            out.push('"');
            out.push_str(piece);
            out.push('"');
            total += 2;
            added.push((out.len() - 1, total));
        } else {
            out.push_str(piece);
        }
        at = end;
    }
    Ok((out, Offsets { added }))
}

/// The first place of an identifier, outside text.
pub(super) fn identifier(source: &str, name: &str) -> Option<usize> {
    let mut at = 0;
    while let Some(c) = source.get(at..)?.chars().next() {
        let end = match c {
            '\'' | '`' => skip_quoted(source, at, c)?,
            '"' => {
                let end = skip_quoted(source, at, c)?;
                if source.get(at + 1..end - 1) == Some(name) {
                    return Some(at);
                }
                end
            }
            'A'..='Z' | 'a'..='z' | '_' => {
                let end = identifier_end(source, at);
                if source.get(at..end) == Some(name) {
                    return Some(at);
                }
                end
            }
            _ => at + c.len_utf8(),
        };
        at = end;
    }
    None
}

pub(super) fn identifier_end(source: &str, start: usize) -> usize {
    source[start..]
        .find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '-'))
        .map_or(source.len(), |length| start + length)
}

fn quoted_end(source: &str, start: usize, quote: char) -> Result<usize, ExpressionError> {
    skip_quoted(source, start, quote)
        .ok_or_else(|| error(start, &format!("the opening {quote} is never closed"), None))
}

/// The end of a quoted piece that begins at `start`, past its closing mark.
pub fn skip_quoted(source: &str, start: usize, quote: char) -> Option<usize> {
    let mut characters = source[start + 1..].char_indices();
    while let Some((at, c)) = characters.next() {
        if c == '\\' {
            characters.next();
        } else if c == quote {
            return Some(start + 1 + at + 1);
        }
    }
    None
}

const NUMBERS: &str = "a number is written in backticks: `1`";

/// The error for what the library refused, explained by the text at that place.
fn explain(source: &str, offset: usize) -> ExpressionError {
    let mut offset = offset.min(source.len());
    while !source.is_char_boundary(offset) {
        offset -= 1;
    }
    let rest = source[offset..].trim_start();
    let offset = source.len() - rest.len();
    let Some(c) = rest.chars().next() else {
        return error(source.len(), "the expression ends too early", None);
    };
    let hint = match c {
        '0'..='9' | '-' => Some(NUMBERS),
        '=' => Some("equality is written =="),
        '+' | '/' | '%' => Some("there is no arithmetic in expressions"),
        '&' => Some("and is written &&"),
        '|' => Some("or is written ||"),
        '`' => Some("backticks contain JSON: `\"text\"`, `1`, `true`"),
        '$' | '{' => Some("an expression is written without {{ }} or $"),
        _ => None,
    };
    // The library points behind a number it does not want.
    let before = source[..offset].trim_end();
    let number = before.ends_with(|c: char| c.is_ascii_digit()) && !before.ends_with(']');
    let hint = hint.or(number.then_some(NUMBERS));
    error(offset, &format!("unexpected {c:?}"), hint)
}
