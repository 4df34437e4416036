//! Detects `!a.b`, which JMESPath reads as `(!a).b`, and suggests what was meant.

use super::lexical::{identifier_end, skip_quoted};

/// A negated path, in words.
#[derive(Debug, PartialEq, Eq)]
pub struct NegatedPath {
    /// The explanation of how it is read.
    pub message: String,
    /// The text to type instead.
    pub hint: String,
}

/// Tells of a path whose first part is negated. `not` and `dot` are the places of the first `!` and
/// of the dot behind that part. Nothing where it is meant so: `(!a).b`, `!a | b`.
pub fn negated(source: &str, not: usize, dot: usize) -> Option<NegatedPath> {
    let head = source.get(not..dot)?.trim_end();
    let rest = source.get(dot..path_end(source, dot))?;
    let first = head.trim_start_matches(|c: char| c == '!' || c.is_whitespace());
    let marks = head.get(..head.len() - first.len())?;
    let is_whole = path_end(first, 0) == first.len();
    if !rest.starts_with('.') || !marks.starts_with('!') || !is_whole {
        return None;
    }
    let words = format!("{head}{rest} is read as ({head}){rest}, which is never there");
    Some(NegatedPath {
        message: words,
        hint: format!("write {}({first}{rest})", marks.trim_end()),
    })
}

/// The end of the path that begins at a place, or continues there.
fn path_end(source: &str, from: usize) -> usize {
    let mut at = from;
    // Behind a dot something has to come, with or without a space.
    let mut wants_more = true;
    let mut end = from;
    while let Some(c) = source.get(at..).and_then(|rest| rest.chars().next()) {
        let next = match c {
            ' ' | '\t' | '\r' | '\n' => {
                at += 1;
                continue;
            }
            '.' => Some(at + 1),
            '[' | '(' | '{' if wants_more || c != '{' => bracket_end(source, at),
            'A'..='Z' | 'a'..='z' | '_' if wants_more => Some(identifier_end(source, at)),
            '"' if wants_more => skip_quoted(source, at, c),
            '*' | '@' if wants_more => Some(at + 1),
            _ => None,
        };
        let Some(next) = next else { break };
        (at, end, wants_more) = (next, next, c == '.');
    }
    end
}

/// The end of a bracket, past the one that closes it.
fn bracket_end(source: &str, from: usize) -> Option<usize> {
    let mut depth = 0usize;
    let mut at = from;
    while let Some(c) = source.get(at..)?.chars().next() {
        at = match c {
            '"' | '\'' | '`' => skip_quoted(source, at, c)?,
            _ => at + c.len_utf8(),
        };
        match c {
            '[' | '(' | '{' => depth += 1,
            ']' | ')' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(source: &str, dot: usize) -> Option<(String, String)> {
        let found = negated(source, source.find('!').unwrap(), dot)?;
        Some((found.message, found.hint))
    }

    #[test]
    fn a_negated_path_is_reported_as_it_is_written_and_whole() {
        for (source, dot, read, meant) in [
            ("!params.a.b", 7, "(!params).a.b", "!(params.a.b)"),
            (
                "!params.l[*].x && y",
                7,
                "(!params).l[*].x",
                "!(params.l[*].x)",
            ),
            ("!!params.a", 8, "(!!params).a", "!!(params.a)"),
            ("! a . b == `1`", 4, "(! a). b", "!(a. b)"),
            (
                "x || !step.t-1.result",
                10,
                "(!step).t-1.result",
                "!(step.t-1.result)",
            ),
            (
                "!a[0].\"b c\"[?d == ']'].e, f",
                5,
                "(!a[0]).\"b c\"[?d == ']'].e",
                "!(a[0].\"b c\"[?d == ']'].e)",
            ),
            ("!length(a).b", 10, "(!length(a)).b", "!(length(a).b)"),
            ("!(a).b", 4, "(!(a)).b", "!((a).b)"),
        ] {
            let (message, hint) = told(source, dot).unwrap_or_default();
            assert!(
                message.ends_with(&format!("is read as {read}, which is never there")),
                "{message}"
            );
            assert_eq!(hint, format!("write {meant}"));
        }
    }

    #[test]
    fn brackets_around_the_negation_and_a_pipe_behind_it_are_meant() {
        assert_eq!(told("(!a).b", 4), None);
        assert_eq!(told("!t | result", 3), None);
    }
}
