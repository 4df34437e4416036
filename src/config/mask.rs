//! Removes literal secrets from the excerpts of files in reports, since reports get into logs,
//! tickets and onto other people's screens.
//!
//! Three things are hidden: the locations that a fault marks as secret; every value after a key that names
//! a secret, such as `secret` or `api_key`, even if the file is not YAML; and who is named in a URL before
//! an `@`. Templates stay, since they are not secret.

use std::ops::Range;

use super::fault::Fault;
use super::yaml::SourceSpan;

/// The keys whose values are secrets, whatever file they are in.
const KEYS: [&str; 8] = [
    "api-key",
    "api_key",
    "apikey",
    "passwd",
    "password",
    "secret",
    "secret_key",
    "token",
];

/// The hidden ranges of one file, in bytes.
#[derive(Debug, Default)]
pub(super) struct Mask {
    ranges: Vec<Range<usize>>,
}

impl Mask {
    /// Of a text, and the faults in it.
    pub(super) fn of<'a>(text: &str, faults: impl IntoIterator<Item = &'a Fault>) -> Self {
        let places = faults
            .into_iter()
            .flat_map(|fault| fault.hidden.iter().copied());
        Self {
            ranges: places.filter_map(|place| range(text, place)).collect(),
        }
    }

    /// A line of the text as it may be shown. `number` is counted from 1.
    pub(super) fn line(&self, text: &str, number: usize) -> Option<String> {
        let line = text.lines().nth(number.checked_sub(1)?)?;
        let start = line.as_ptr() as usize - text.as_ptr() as usize;
        let mut hidden: Vec<Range<usize>> = values(line);
        hidden.extend(credentials(line));
        let within = |range: &Range<usize>| {
            let from = range.start.max(start) - start;
            let to = range.end.min(start + line.len()).saturating_sub(start);
            (from < to).then_some(from..to)
        };
        hidden.extend(self.ranges.iter().filter_map(within));
        Some(starred(line, hidden))
    }
}

/// The bytes of a place.
fn range(text: &str, place: SourceSpan) -> Option<Range<usize>> {
    let rest = text.get(place.offset..)?;
    let end = rest.char_indices().nth(place.length);
    Some(place.offset..place.offset + end.map_or(rest.len(), |(at, _)| at))
}

/// The parts of a line between `//` and `@`: a name and a password, in a URL.
fn credentials(line: &str) -> Vec<Range<usize>> {
    let begins = line.match_indices("://").map(|(at, mark)| at + mark.len());
    let found = begins.filter_map(|start| {
        let rest = line.get(start..)?;
        let ends = |c: char| c.is_whitespace() || ['/', '"', '\'', '?', '#'].contains(&c);
        let host = rest.get(..rest.find(ends).unwrap_or(rest.len()))?;
        Some(start..start + host.rfind('@')?)
    });
    found.collect()
}

/// The ranges after each key of a line that names a secret: to the closing quote, or else to the
/// end. A flag is no secret, and neither is a map, which may be the schema of a param of that name.
fn values(line: &str) -> Vec<Range<usize>> {
    let mut found: Vec<Range<usize>> = Vec::new();
    let mut keys: Vec<(usize, &str)> = KEYS
        .iter()
        .flat_map(|key| line.match_indices(key))
        .collect();
    keys.sort_unstable();
    for (at, word) in keys {
        let before = line.get(..at).unwrap_or_default();
        let name = |c: char| c.is_alphanumeric() || "_-.$".contains(c);
        if before.ends_with(name) || found.last().is_some_and(|one| one.contains(&at)) {
            continue;
        }
        let after = line.get(at + word.len()..).unwrap_or_default();
        let unquoted = after.strip_prefix(['"', '\'']).unwrap_or(after);
        let Some(value) = unquoted.trim_start().strip_prefix(':') else {
            continue;
        };
        let value = value.trim_start();
        let start = line.len() - value.len();
        let length = match value.chars().next() {
            None | Some('{' | '|' | '>') => continue,
            Some(quote @ ('"' | '\'')) => quoted(value, quote),
            Some(_) if is_flag(value) => continue,
            Some(_) => plain(before, value),
        };
        found.push(start..start + length);
    }
    found
}

/// The bytes of a value without quotes: to the end of the line, but where a bracket is open before it,
/// to the next member or to the brackets that end the line. A comma in a password is no end.
fn plain(before: &str, value: &str) -> usize {
    let before = before.replace("{{", "").replace("}}", "");
    let count = |brackets: [char; 2]| before.chars().filter(|c| brackets.contains(c)).count();
    let open = count(['{', '[']).saturating_sub(count(['}', ']']));
    if open == 0 {
        return value.len();
    }
    let members = value.match_indices(", ");
    let mut members = members.filter(|(at, _)| begins_member(value.get(at + 2..)));
    if let Some((at, _)) = members.next() {
        return at;
    }
    let mut end = value.trim_end();
    for _ in 0..open {
        match end.strip_suffix(['}', ']']) {
            Some(rest) => end = rest.trim_end(),
            None => break,
        }
    }
    end.len()
}

/// Returns `true` if a key and its colon come next.
fn begins_member(rest: Option<&str>) -> bool {
    let rest = rest.unwrap_or_default().trim_start();
    let name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let length = rest.find(|c: char| !name(c)).unwrap_or(rest.len());
    let after = rest.get(length..).unwrap_or_default();
    length > 0 && (after.starts_with(": ") || after.trim_end() == ":")
}

fn is_flag(value: &str) -> bool {
    let rest = value.strip_prefix("true").or(value.strip_prefix("false"));
    rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
}

/// The bytes of a quoted text, its marks included; all there is where it is never closed.
fn quoted(value: &str, quote: char) -> usize {
    let mut characters = value.char_indices().skip(1).peekable();
    while let Some((at, c)) = characters.next() {
        if c == '\\' && quote == '"' {
            characters.next();
        } else if c == quote {
            // Two single quotes are one within single quotes.
            let doubled = quote == '\'' && characters.peek().is_some_and(|(_, c)| *c == quote);
            if !doubled {
                return at + 1;
            }
            characters.next();
        }
    }
    value.len()
}

/// A star for every character of the ranges that is neither white space nor part of a template. Lines
/// and columns stay what they are.
fn starred(line: &str, mut hidden: Vec<Range<usize>>) -> String {
    hidden.sort_by_key(|range| range.start);
    let shown = templates(line);
    let (mut hidden, mut shown) = (Sweep::new(&hidden), Sweep::new(&shown));
    let star = |(at, c): (usize, char)| {
        let (is_hidden, is_template) = (hidden.has(at), shown.has(at));
        match is_hidden && !is_template && !c.is_whitespace() {
            true => '*',
            false => c,
        }
    };
    line.char_indices().map(star).collect()
}

/// Ranges, asked for places that only grow.
struct Sweep<'a> {
    waiting: std::slice::Iter<'a, Range<usize>>,
    end: usize,
    next: Option<&'a Range<usize>>,
}

impl<'a> Sweep<'a> {
    /// `ranges` are in the order of their beginnings.
    fn new(ranges: &'a [Range<usize>]) -> Self {
        let mut waiting = ranges.iter();
        let next = waiting.next();
        Self {
            waiting,
            end: 0,
            next,
        }
    }

    fn has(&mut self, at: usize) -> bool {
        while let Some(range) = self.next.filter(|range| range.start <= at) {
            self.end = self.end.max(range.end);
            self.next = self.waiting.next();
        }
        at < self.end
    }
}

/// The templates of a line, but for those that write a text out.
fn templates(line: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut done = 0;
    while let Some(open) = line.get(done..).and_then(|rest| rest.find("{{")) {
        let open = done + open;
        let inner = line.get(open + 2..).unwrap_or_default();
        let Some(close) = inner.find("}}") else { break };
        done = open + 2 + close + 2;
        let expression = inner.get(..close).unwrap_or_default();
        if !expression.contains(['\'', '`']) {
            found.push(open..done);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_a_key_secret_is_hidden_and_templates_are_not() {
        for (line, shown) in [
            ("  secret: hunter2", "  secret: *******"),
            (
                "auth: {secret: hunter2, header: X}",
                "auth: {secret: *******, header: X}",
            ),
            (
                "auth: {header: X, secret: hunter2, too}",
                "auth: {header: X, secret: ******** ***}",
            ),
            ("a: {b: {secret: hun}ter2}}", "a: {b: {secret: ********}}"),
            ("secret: hunter2, x: y}", "secret: ******** ** **"),
            (
                "auth: {secret: \"hunter2, x\", header: X}",
                "auth: {secret: ********* **, header: X}",
            ),
            (
                "auth: {secret: 'a''b', header: X}",
                "auth: {secret: ******, header: X}",
            ),
            ("secret: \"never closed", "secret: ****** ******"),
            ("\"secret\": hunter2", "\"secret\": *******"),
            ("secret: \"{{ params.key }}\"", "secret: *{{ params.key }}*"),
            (
                "secret: \"Bearer {{ params.key }}\"",
                "secret: ******* {{ params.key }}*",
            ),
            ("secret: \"{{ 'hunter2' }}\"", "secret: *** ********* ***"),
            ("- {name: K, secret: true}", "- {name: K, secret: true}"),
            (
                "config: {base_url: \"http://u:pw@x/y@z\", api_key: sk-1234}",
                "config: {base_url: \"http://****@x/y@z\", api_key: *******}",
            ),
            ("  apikey: sk-third", "  apikey: ********"),
            ("  password: \"a b\"", "  password: ** **"),
            ("api_key: \"{{ env.KEY }}\"", "api_key: *{{ env.KEY }}*"),
            ("max_tokens: 1024", "max_tokens: 1024"),
            (
                "model: {group: fast, max_tokens: 9}",
                "model: {group: fast, max_tokens: 9}",
            ),
            ("token: {env: ADA_TOKEN}", "token: {env: ADA_TOKEN}"),
            ("url: https://example.com/a", "url: https://example.com/a"),
            ("secret: {type: string}", "secret: {type: string}"),
            ("secret: [hunter2, x]", "secret: ********* **"),
            ("secret: trueish", "secret: *******"),
            ("my_secret: x", "my_secret: x"),
            ("a secret is kept", "a secret is kept"),
        ] {
            assert_eq!(
                Mask::default().line(line, 1).as_deref(),
                Some(shown),
                "{line}"
            );
        }
    }

    #[test]
    fn a_place_is_hidden_over_all_of_its_lines() {
        let text = "é: 1\nkey: |\n  first\n  second\nend: 1\n";
        let mask = Mask {
            ranges: range(
                text,
                SourceSpan {
                    line: 3,
                    column: 3,
                    length: 14,
                    offset: 15,
                },
            )
            .into_iter()
            .collect(),
        };
        let shown: Vec<_> = (1..=5).filter_map(|line| mask.line(text, line)).collect();
        assert_eq!(shown, ["é: 1", "key: |", "  *****", "  ******", "end: 1"]);
        assert_eq!(mask.line(text, 9), None);
    }
}
