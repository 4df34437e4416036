//! Names in paths, checked before they meet a file, a query or a stream.
//!
//! axum decodes `%2f` and `%00` before a handler sees a path, so a handler that joined such a text
//! to a folder would leave it. Every name from outside passes one of these functions first
//! (decision S1); what does not pass is answered exactly as a name that does not exist.

use std::fmt;

use ktsu_ledger::id::{MAX_NAME, is_name};

/// The most segments below a run that a path may name: levels of child workflows, two for each that a
/// command runs (`STEP/NAME.N`), and the address of what a responder has one of them do.
pub const MAX_SCOPE: usize = 2 * ktsu_workflow::graph::MAX_LEVELS + 1;

/// The most digits of the index of an item: there are never so many items.
const MAX_INDEX_DIGITS: usize = 9;

/// The hexadecimal digits of the key in an address `@NAME.KEY`.
const KEY_DIGITS: usize = 16;

/// A run, or a child workflow inside it: `R`, `R/call`, `R/call/inner`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RunPath {
    /// The id of the run whose stream holds the frames.
    pub run: String,
    /// The steps that lead to the child, and the names of what their commands run, joined by `/`;
    /// empty for the run itself.
    pub scope: String,
}

impl RunPath {
    /// The regular expression of exactly the texts that [`RunPath::parse`] reads, as `/openapi.json` has
    /// it.
    pub fn pattern() -> String {
        let (rest, digits) = (MAX_NAME - 1, MAX_INDEX_DIGITS - 1);
        let id = format!("[A-Za-z_][A-Za-z0-9_-]{{0,{rest}}}");
        let index = format!("[.](0|[1-9][0-9]{{0,{digits}}})");
        let segment = format!("{id}({index})?|@{id}[.][0-9a-f]{{{KEY_DIGITS}}}");
        format!("^[A-Za-z0-9][A-Za-z0-9._-]{{0,{rest}}}(/({segment})){{0,{MAX_SCOPE}}}$")
    }

    /// Reads the decoded text of a path segment (`R%2Fcall`) or of several (`R/call`).
    pub fn parse(text: &str) -> Option<Self> {
        let (run, scope) = match text.split_once('/') {
            Some((run, scope)) => (run, Some(scope)),
            None => (text, None),
        };
        let scope_fits = scope.is_none_or(|scope| {
            scope.split('/').count() <= MAX_SCOPE
                && scope.split('/').all(|part| step(part).is_some())
        });
        (is_name(run) && scope_fits).then(|| Self {
            run: run.to_owned(),
            scope: scope.unwrap_or_default().to_owned(),
        })
    }

    /// Returns `true` if this names a child workflow.
    pub fn is_scoped(&self) -> bool {
        !self.scope.is_empty()
    }
}

impl fmt::Display for RunPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.run)?;
        if self.is_scoped() {
            write!(f, "/{}", self.scope)?;
        }
        Ok(())
    }
}

/// A name of a workflow, a run, a principal.
pub fn name(text: &str) -> Option<&str> {
    is_name(text).then_some(text)
}

/// A step id, or one item of a fan-out, `ID.INDEX` (decision H1); or the address of what a responder
/// asks, `@NAME.KEY`.
pub fn step(text: &str) -> Option<(&str, Option<u32>)> {
    if text.starts_with('@') {
        return is_address(text).then_some((text, None));
    }
    match text.split_once('.') {
        None => is_step(text).then_some((text, None)),
        Some((id, index)) => {
            let plain = index == "0" || !index.starts_with(['0', '+']);
            let plain = plain && index.len() <= MAX_INDEX_DIGITS;
            let index: u32 = index.parse().ok()?;
            (plain && is_step(id)).then_some((id, Some(index)))
        }
    }
}

/// `@NAME.KEY`: a responder, and the hexadecimal digits of a key.
fn is_address(text: &str) -> bool {
    let parts = text.strip_prefix('@').and_then(|text| text.split_once('.'));
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    parts.is_some_and(|(name, key)| {
        is_step(name) && key.len() == KEY_DIGITS && key.bytes().all(is_digit)
    })
}

/// Step ids may start with an underscore, other names may not (decision S1).
fn is_step(text: &str) -> bool {
    text.len() <= MAX_NAME
        && text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_and_the_children_inside_it_are_addressed_by_segments() {
        for (text, run, scope) in [
            ("run_0192", "run_0192", ""),
            ("R/call", "R", "call"),
            ("R/call/inner", "R", "call/inner"),
            ("R/_private", "R", "_private"),
            ("R/f.3/verify.12", "R", "f.3/verify.12"),
            (
                "R/@digs.0123456789abcdef/look",
                "R",
                "@digs.0123456789abcdef/look",
            ),
        ] {
            let path = RunPath::parse(text);
            assert_eq!(path.as_ref().map(|path| path.run.as_str()), Some(run));
            assert_eq!(path.as_ref().map(|path| path.scope.as_str()), Some(scope));
            assert_eq!(path.map(|path| path.to_string()), Some(text.to_owned()));
        }
    }

    #[test]
    fn texts_that_could_leave_a_folder_or_a_line_are_not_names() {
        let long = "a".repeat(65);
        for text in [
            "",
            ".",
            "..",
            "../x",
            "..%2f",
            "a/../b",
            "a//b",
            "/a",
            "a/",
            "a\\b",
            "a\0",
            "a\r\nb",
            "-a",
            ".a",
            "_a",
            "a b",
            "ä",
            "a%",
            "C:",
            "a\u{202e}b",
            &long,
        ] {
            assert_eq!(name(text), None, "{text:?}");
            assert_eq!(RunPath::parse(text), None, "{text:?}");
        }
        let deep = format!("R{}", "/a".repeat(MAX_SCOPE + 1));
        assert_eq!(RunPath::parse(&deep), None);
    }

    #[test]
    fn what_a_responder_asks_is_addressed_as_a_whole() {
        let address = "@write-claim.0000000000000012";
        assert_eq!(step(address), Some((address, None)));
        for text in [
            "@",
            "@a",
            "@a.12",
            "@.0123456789abcdef",
            "@a.0123456789ABCDEF",
            "@a/b.0123456789abcdef",
        ] {
            assert_eq!(step(text), None, "{text:?}");
        }
    }

    #[test]
    fn an_item_of_a_fan_out_has_a_canonical_index() {
        assert_eq!(step("triage"), Some(("triage", None)));
        assert_eq!(step("triage.0"), Some(("triage", Some(0))));
        assert_eq!(step("triage.12"), Some(("triage", Some(12))));
        for text in [
            "triage.",
            "triage.01",
            "triage.+1",
            "triage.1.2",
            "triage.x",
            ".1",
            "9a",
        ] {
            assert_eq!(step(text), None, "{text}");
        }
    }
}
