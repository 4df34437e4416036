//! YAML as a tree in which every key and value has a location.
//!
//! A file is first read into a tree and then converted, so that all faults of a file can be
//! reported at once. Strict: YAML 1.2 booleans only, no numbers with leading zeros or underscores,
//! no merge keys, no foreign tags, bounded aliases, depth and size.

mod fast_path;
mod limits;
mod node;

use std::fmt;
use std::thread::ScopedJoinHandle;

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Number;
use serde_yaml::{Location, Spanned};

use super::fault::{Fault, FaultCode};
pub use node::{SourceSpan, YamlKey, YamlNode, YamlValue};

/// The most bytes of a file.
pub const MAX_FILE: u64 = 1 << 20;

/// Reading goes down with the text, and a level takes up to 50 KiB of stack: what could be deep is
/// read where there is room for all levels that are allowed, whoever asks.
const PARSER_STACK_BYTES: usize = 8 << 20;
/// Fewer levels than these fit on any stack.
const MAX_SHALLOW_LEVELS: usize = 24;

/// Reads a file's text; the one fault that ends the reading is without a file name.
pub fn parse(text: &str) -> Result<YamlNode, Box<Fault>> {
    if let Some(tree) = fast_path::read(text) {
        return Ok(tree);
    }
    if !could_be_deep(text) {
        return read(text);
    }
    std::thread::scope(|scope| {
        let reading = std::thread::Builder::new().stack_size(PARSER_STACK_BYTES);
        match reading
            .spawn_scoped(scope, || read(text))
            .map(ScopedJoinHandle::join)
        {
            Ok(Ok(read)) => read,
            Ok(Err(panic)) => std::panic::resume_unwind(panic),
            Err(_) => Err(Box::new(Fault::new(
                FaultCode::YamlLimit,
                SourceSpan::default(),
                "there is no room to read a file that is nested so deeply",
            ))),
        }
    })
}

/// Returns `true` if a text may have more than [`MAX_SHALLOW_LEVELS`] levels twice over: every
/// level takes a bracket, or a step of the indent.
fn could_be_deep(text: &str) -> bool {
    let brackets = text.bytes().filter(|byte| matches!(byte, b'[' | b'{'));
    let indent = |line: &str| {
        let steps = line
            .bytes()
            .take_while(|byte| matches!(byte, b' ' | b'\t' | b'-' | b'?' | b':'));
        steps.count()
    };
    brackets.take(MAX_SHALLOW_LEVELS + 1).count() > MAX_SHALLOW_LEVELS
        || text
            .split(['\n', '\r'])
            .any(|line| indent(line) > MAX_SHALLOW_LEVELS)
}

fn read(text: &str) -> Result<YamlNode, Box<Fault>> {
    let options = serde_yaml::options! {
        strict_booleans: true,
        leading_zero_numbers_as_strings: true,
        underscored_numbers_as_strings: true,
        reject_unsupported_tags: true,
        with_snippet: false,
        duplicate_keys: serde_yaml::options::DuplicateKeyPolicy::PassThrough,
        merge_keys: serde_yaml::options::MergeKeyPolicy::AsOrdinary,
        alias_limits: serde_yaml::alias_limits! {
            max_total_replayed_events: limits::MAX_REPEATED,
            max_replay_stack_depth: limits::MAX_ALIAS_DEPTH,
        },
        budget: serde_yaml::budget! {
            max_depth: limits::MAX_DEPTH,
            max_documents: 1,
            max_nodes: limits::MAX_NODES,
            max_aliases: limits::MAX_ALIASES,
        },
    };
    let read: Result<Spanned<YamlValue>, _> = serde_yaml::from_str_with_options(text, options);
    match read {
        Ok(read) => Ok(node(read)),
        Err(error) => Err(Box::new(refusal(text, &error))),
    }
}

fn refusal(text: &str, error: &serde_yaml::Error) -> Fault {
    let known = error.location().map(|location| place(&location));
    if let Some(words) = limits::words(error) {
        let alias = || {
            let (line, column) = limits::last_alias(text)?;
            Some(SourceSpan {
                line,
                column,
                ..SourceSpan::default()
            })
        };
        // What is found only once all is read stands behind the last line.
        let within = known.filter(|place| place.line <= text.lines().count());
        let place = within.or_else(alias).or(known).unwrap_or_default();
        return Fault::new(FaultCode::YamlLimit, place, words);
    }
    let said = error.without_snippet().to_string();
    let said = said.split(" at line ").next().unwrap_or_default();
    let said = said.lines().next().unwrap_or_default();
    let mut words = match said {
        _ if said.starts_with("non-finite float") => "a number must be finite".to_owned(),
        "invalid indentation in multiline quoted scalar" => {
            "a quoted text continues without indentation, or is never closed".to_owned()
        }
        _ if said.starts_with("cannot deserialize null into string") => {
            "a key must be text, got nothing; put it in quotes".to_owned()
        }
        said => said.to_owned(),
    };
    // Messages are lower-case fragments.
    if let Some(first) = words.get_mut(0..1) {
        first.make_ascii_lowercase();
    }
    // What is missing at the end of a file is reported where the text ends.
    let lines = text.lines().count();
    let within = known.filter(|place| (1..=lines).contains(&place.line));
    let place = within.unwrap_or_else(|| last_line(text));
    Fault::new(FaultCode::YamlSyntax, place, words)
}

/// The last line on which something is written.
fn last_line(text: &str) -> SourceSpan {
    let lines = text.lines().enumerate();
    let last = lines.filter(|(_, line)| !line.trim().is_empty()).last();
    let Some((at, line)) = last else {
        return SourceSpan::default();
    };
    let indent = line.chars().count() - line.trim_start().chars().count();
    SourceSpan {
        line: at + 1,
        column: indent + 1,
        length: line.trim().chars().count(),
        offset: line.as_ptr() as usize - text.as_ptr() as usize + line.len()
            - line.trim_start().len(),
    }
}

fn place(location: &Location) -> SourceSpan {
    let number = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    let span = location.span();
    SourceSpan {
        line: number(location.line()).max(1),
        column: number(location.column()).max(1),
        length: number(span.len()).max(1),
        offset: number(span.byte_offset().unwrap_or_default()),
    }
}

fn node(read: Spanned<YamlValue>) -> YamlNode {
    YamlNode {
        place: place(&read.referenced),
        data: read.value,
    }
}

impl<'de> Deserialize<'de> for YamlValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(YamlVisitor)
    }
}

struct YamlVisitor;

impl<'de> Visitor<'de> for YamlVisitor {
    type Value = YamlValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<YamlValue, E> {
        Ok(YamlValue::Null)
    }

    fn visit_none<E>(self) -> Result<YamlValue, E> {
        Ok(YamlValue::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<YamlValue, D::Error> {
        YamlValue::deserialize(deserializer)
    }

    fn visit_bool<E>(self, flag: bool) -> Result<YamlValue, E> {
        Ok(YamlValue::Bool(flag))
    }

    fn visit_i64<E>(self, number: i64) -> Result<YamlValue, E> {
        Ok(YamlValue::Number(number.into()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<YamlValue, E> {
        Ok(YamlValue::Number(number.into()))
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<YamlValue, E> {
        Number::from_f64(number)
            .map(YamlValue::Number)
            .ok_or_else(|| E::custom("this number cannot be kept"))
    }

    fn visit_str<E>(self, text: &str) -> Result<YamlValue, E> {
        Ok(YamlValue::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<YamlValue, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(node(item));
        }
        Ok(YamlValue::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<YamlValue, A::Error> {
        let mut map = Vec::new();
        while let Some(key) = members.next_key::<Spanned<String>>()? {
            let value = members.next_value()?;
            let key = YamlKey {
                place: place(&key.referenced),
                text: key.value,
            };
            map.push((key, node(value)));
        }
        Ok(YamlValue::Map(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_values_know_their_places() {
        let root = parse("a: x\nlist:\n  - {id: é1, n: 012}\n  - \"q\"\n").unwrap();
        let id = root.at("/list/0/id");
        assert_eq!(
            (id.place.line, id.place.column, id.place.length),
            (3, 10, 2)
        );
        let n = root.at("/list/0/n");
        assert!(matches!(&n.data, YamlValue::Text(text) if text == "012"));
        let quoted = root.at("/list/1");
        assert_eq!(
            (quoted.place.line, quoted.place.column, quoted.place.length),
            (4, 5, 3)
        );
        let YamlValue::Map(members) = &root.data else {
            panic!()
        };
        assert_eq!((members[1].0.place.line, members[1].0.place.column), (2, 1));
    }

    #[test]
    fn words_that_look_like_booleans_stay_words() {
        let root = parse("a: no\nb: on\nc: true\non: 1_000\n").unwrap();
        let value = root.to_value();
        assert_eq!(
            value,
            serde_json::json!({"a": "no", "b": "on", "c": true, "on": "1_000"})
        );
    }

    #[test]
    fn what_cannot_be_read_is_described_in_words_of_ours_and_at_its_place() {
        for (text, line, column, words) in [
            ("a: 1\nb: .inf\n", 2, 4, "a number must be finite"),
            ("a: -.inf\n", 1, 4, "a number must be finite"),
            ("a: .nan\n", 1, 4, "a number must be finite"),
            ("a: 1\n~: x\n", 2, 1, "a key must be text, got nothing"),
            ("a: 1\nb: \"x\n", 2, 1, "is never closed"),
            ("a: 1\n  \n", 9, 9, ""),
        ] {
            match parse(text) {
                Err(fault) => {
                    assert!(fault.message.contains(words), "{text}: {}", fault.message);
                    assert_eq!((fault.line, fault.column), (line, column), "{text}");
                }
                Ok(_) => assert_eq!(words, "", "{text}"),
            }
        }
    }

    #[test]
    fn bombs_and_depth_are_refused_at_their_place() {
        let bomb = "a: &a [x,x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\n\
            c: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c]\n\
            e: [*d,*d,*d,*d,*d,*d,*d,*d,*d,*d]\n";
        assert_eq!(parse(bomb).unwrap_err().code, FaultCode::YamlLimit);
        assert_eq!(
            parse(&"[".repeat(5_000)).unwrap_err().code,
            FaultCode::YamlLimit
        );
        let tab = parse("a:\n\tb: 1\n").unwrap_err();
        assert_eq!((tab.code, tab.line), (FaultCode::YamlSyntax, 2));
    }

    proptest::proptest! {
        #![proptest_config(ktsu_campaign::config(256))]

        #[test]
        fn no_text_makes_it_panic(text in "[a-c:{}\\[\\]&*!|>'\"#,\n\t -]{0,60}") {
            let _ = parse(&text);
        }
    }
}
