//! Reads the YAML that most files consist of, straight from the events of the parser.
//!
//! Maps, lists, quoted and block texts, and plain texts whose meaning is beyond doubt. Everything
//! else (anchors, aliases, tags, directives, unusual keys and numbers, great depth or length), and
//! every file with an error in it, is left to the general reader, which knows all of YAML, and all
//! limits, and words what is wrong. Where this reader gives a tree, the general one gives the same:
//! a test holds the two against each other.

use granit_parser::{Event, Parser, ScalarStyle, Span, StrInput};
use serde_json::Number;

use super::limits;
use super::node::{SourceSpan, YamlKey, YamlNode, YamlValue};

/// Fewer levels than this are read here. They fit on any stack.
const MAX_DEPTH: usize = limits::MAX_DEPTH / 2;
/// Fewer values than this are read here, keys included.
const MAX_NODES: usize = limits::MAX_NODES / 2;

/// The tree of a file, unless the general reader has to look at it.
pub(super) fn read(text: &str) -> Option<YamlNode> {
    let mut events = Events {
        parser: Parser::new_from_str(text),
        nodes: 0,
    };
    matches!(events.next()?.0, Event::StreamStart).then_some(())?;
    matches!(events.next()?.0, Event::DocumentStart(false, None)).then_some(())?;
    let first = events.next()?;
    let root = events.node(first, 0)?;
    matches!(events.next()?.0, Event::DocumentEnd).then_some(())?;
    matches!(events.next()?.0, Event::StreamEnd).then_some(root)
}

struct Events<'t> {
    parser: Parser<'t, StrInput<'t>>,
    nodes: usize,
}

impl<'t> Events<'t> {
    fn next(&mut self) -> Option<(Event<'t>, Span)> {
        self.parser.next()?.ok()
    }

    fn node(&mut self, (event, span): (Event<'t>, Span), depth: usize) -> Option<YamlNode> {
        self.count(depth)?;
        let data = match event {
            Event::Scalar(text, ScalarStyle::Plain, 0, None) => plain(&text)?,
            Event::Scalar(text, _, 0, None) => YamlValue::Text(text.into_owned()),
            Event::SequenceStart(_, 0, None) => YamlValue::List(self.items(depth)?),
            Event::MappingStart(_, 0, None) => YamlValue::Map(self.members(depth)?),
            _ => return None,
        };
        Some(YamlNode {
            place: place(&span),
            data,
        })
    }

    fn items(&mut self, depth: usize) -> Option<Vec<YamlNode>> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => break,
                item => items.push(self.node(item, depth + 1)?),
            }
        }
        items.shrink_to_fit();
        Some(items)
    }

    fn members(&mut self, depth: usize) -> Option<Vec<(YamlKey, YamlNode)>> {
        let mut members = Vec::new();
        loop {
            let (event, span) = self.next()?;
            let text = match event {
                Event::MappingEnd => break,
                Event::Scalar(text, style, 0, None) => key(&text, style)?.to_owned(),
                _ => return None,
            };
            self.count(depth + 1)?;
            let place = place(&span);
            let value = self.next()?;
            members.push((YamlKey { place, text }, self.node(value, depth + 1)?));
        }
        members.shrink_to_fit();
        Some(members)
    }

    fn count(&mut self, depth: usize) -> Option<()> {
        self.nodes += 1;
        (self.nodes < MAX_NODES && depth < MAX_DEPTH).then_some(())
    }
}

fn place(span: &Span) -> SourceSpan {
    SourceSpan {
        line: span.start.line().max(1),
        column: (span.start.col() + 1).max(1),
        length: span.len().max(1),
        offset: span.start.byte_offset().unwrap_or_default(),
    }
}

/// A key that is nothing but text.
fn key(text: &str, style: ScalarStyle) -> Option<&str> {
    match style {
        ScalarStyle::SingleQuoted | ScalarStyle::DoubleQuoted => Some(text),
        ScalarStyle::Plain => is_word(text).then_some(text),
        _ => None,
    }
}

/// A plain scalar that can be read in one way only.
fn plain(text: &str) -> Option<YamlValue> {
    match text {
        "" | "~" | "null" => return Some(YamlValue::Null),
        "true" => return Some(YamlValue::Bool(true)),
        "false" => return Some(YamlValue::Bool(false)),
        _ => {}
    }
    if is_word(text) || is_no_number(text) {
        return Some(YamlValue::Text(text.to_owned()));
    }
    number(text).map(YamlValue::Number)
}

/// A number in its usual form: `3`, `-3`, `0.5`.
fn number(text: &str) -> Option<Number> {
    let digits = |part: &str| {
        let all = part.bytes().all(|byte| byte.is_ascii_digit());
        all && !part.is_empty() && part.len() <= 15
    };
    let whole = |part: &str| digits(part) && (part == "0" || !part.starts_with('0'));
    match (text.split_once('.'), text.strip_prefix('-')) {
        (Some((before, after)), None) if whole(before) && digits(after) => {
            Number::from_f64(text.parse().ok()?)
        }
        (None, Some(positive)) if whole(positive) => Some(Number::from(text.parse::<i64>().ok()?)),
        (None, None) if whole(text) => Some(Number::from(text.parse::<u64>().ok()?)),
        _ => None,
    }
}

/// Returns `true` if a text begins as no number does, and is none of the words that YAML knows.
fn is_word(text: &str) -> bool {
    const KNOWN: [&str; 6] = ["null", "true", "false", "inf", "infinity", "nan"];
    let letter = |first: char| first.is_ascii_alphabetic() || "_$/(".contains(first);
    let begins = text.starts_with(letter) || text.starts_with("./") || text.starts_with("../");
    begins && !KNOWN.iter().any(|known| text.eq_ignore_ascii_case(known))
}

/// Returns `true` if a text begins with a digit and is no number in any notation: `1.0.0`, `30s`.
fn is_no_number(text: &str) -> bool {
    let in_numbers = |byte: u8| byte.is_ascii_hexdigit() || b"xXoO_+-.".contains(&byte);
    let dots = text.bytes().filter(|byte| *byte == b'.').count();
    text.starts_with(|first: char| first.is_ascii_digit())
        && (dots > 1 || !text.bytes().all(in_numbers))
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::*;

    /// Checks that the general reader gives the same tree as this one. Returns `false` if this one
    /// gives none.
    fn agrees(text: &str) -> bool {
        let Some(tree) = read(text) else {
            return false;
        };
        let general = super::super::read(text);
        assert_eq!(Ok(tree), general.map_err(|fault| fault.message), "{text}");
        true
    }

    #[test]
    fn what_files_of_kits_look_like_is_read_here_and_with_the_same_places() {
        for text in [
            "a: x\nlist:\n  - {id: aé1, n: 12}\n  - \"q\"\n",
            "kind: workflow\nname: pure\nversion: 1.0.0\npipeline:\n  # the first\n  - id: s0\n    \
             transform: {inputs: [{from: params}], ops: [{map: {expr: '{msg: msg}'}}]}\n",
            "a: |\n  one\n  two\nb: >-\n  folded\n  text\nc:\nd: ~\ne: null\n",
            "a: {b: true, c: false, d: no, e: 30s, 'f': 0, g: -1, h: 0.50, i: ./x}\n\"g\": \"two\\nlines\"\n",
            "- a\n- - b\n  - c\n- {}\n- []\n",
            "a: plain text\n  over two lines\nb: 'it''s'\n",
        ] {
            assert!(agrees(text), "{text}");
        }
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_left_to_the_general_reader() {
        for text in [
            "",
            "--- {a: 1}\n",
            "a: &a x\nb: *a\n",
            "a: !!str 1\n",
            "a: 1.5e3\n",
            "a: 012\n",
            "a: 1_000\n",
            "a: -0x1\n",
            "a: +1\n",
            "a: 01.5\n",
            "a: .inf\n",
            "a: NaN\n",
            "True: x\n",
            "1: x\n",
            "? [a]\n: b\n",
            "a: [b\n",
            "a: 1\n---\nb: 1\n",
        ] {
            assert!(read(text).is_none(), "{text}");
        }
    }

    #[test]
    fn depth_and_length_are_left_to_the_general_reader() {
        let deep = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        assert!(agrees(&deep(MAX_DEPTH)));
        assert!(read(&deep(MAX_DEPTH + 1)).is_none());
        assert!(agrees(&"- 1\n".repeat(MAX_NODES - 2)));
        assert!(read(&"- 1\n".repeat(MAX_NODES)).is_none());
    }

    fn files(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            match path.is_dir() {
                true => files(&path, found),
                false if path.extension().is_some_and(|one| one == "yaml") => found.push(path),
                false => {}
            }
        }
    }

    /// The number of files of some folders that are read here, and of all of them.
    fn read_here(folders: &[&str]) -> (usize, usize) {
        let mut found = Vec::new();
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for folder in folders {
            files(&root.join(folder), &mut found);
        }
        let texts = found.iter().map(std::fs::read_to_string);
        let here = texts.filter(|text| text.as_ref().is_ok_and(|text| agrees(text)));
        (here.count(), found.len())
    }

    #[test]
    fn every_file_of_the_kits_of_this_repository_is_read_here_and_both_readers_agree() {
        let (here, all) = read_here(&["kits", "environments"]);
        assert_eq!(here, all);
        assert!(all > 20);
        assert!(read_here(&["tests"]).1 > 100);
    }

    proptest::proptest! {
        #![proptest_config(ktsu_campaign::config(256))]

        #[test]
        fn both_readers_agree_on_any_text(text in "[a-c0-2é:{}\\[\\]&*!|>'\"#,.~\n -]{0,60}") {
            agrees(&text);
        }

        #[test]
        fn both_readers_agree_on_any_plain_scalar(
            text in "[a-fnoxs0-9TNI_+.:/ -]{0,6}|-?[0-9]{1,16}(\\.[0-9]{1,16})?|[+-]?\\.?(inf|nan|Inf|NaN|true|Null|yes|on)|[0-9]{1,22}"
        ) {
            agrees(&format!("a: {text}\n"));
            agrees(&format!("{text}: a\n"));
            agrees(&format!("[{text}]\n"));
        }

        #[test]
        fn both_readers_agree_on_lines_with_indents(
            lines in proptest::collection::vec("( ){0,6}(- ){0,2}([a-c]{1,2}|'a b'|\"é\")?:?( |\n)([a-c0-1]{1,3}|\\{a: b\\}|\\[c, 1\\]|\\||>-|# c)?", 0..8)
        ) {
            agrees(&lines.join("\n"));
        }
    }
}
