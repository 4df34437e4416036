//! The tree of a file: what stands where.

use serde_json::{Map, Number, Value};

/// The place of something in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SourceSpan {
    /// Counted from 1.
    pub line: usize,
    /// Counted from 1, in characters.
    pub column: usize,
    /// In characters, at least 1.
    pub length: usize,
    /// In bytes from the start of the file.
    pub offset: usize,
}

/// A value and its place.
#[derive(Debug, Clone, PartialEq)]
pub struct YamlNode {
    /// Its place.
    pub place: SourceSpan,
    /// Its content.
    pub data: YamlValue,
}

/// A key and its place.
#[derive(Debug, Clone, PartialEq)]
pub struct YamlKey {
    /// Its place.
    pub place: SourceSpan,
    /// The text.
    pub text: String,
}

/// The content of a node.
#[derive(Debug, Clone, PartialEq)]
pub enum YamlValue {
    /// Nothing, `null` or `~`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// Any number.
    Number(Number),
    /// Text.
    Text(String),
    /// A sequence.
    List(Vec<YamlNode>),
    /// A mapping, in file order, keys possibly twice.
    Map(Vec<(YamlKey, YamlNode)>),
}

impl YamlNode {
    /// The places of all that is written out within: texts, numbers, and keys of maps.
    pub fn scalars(&self) -> Vec<SourceSpan> {
        match &self.data {
            YamlValue::Null => Vec::new(),
            YamlValue::Bool(_) | YamlValue::Number(_) | YamlValue::Text(_) => vec![self.place],
            YamlValue::List(items) => items.iter().flat_map(Self::scalars).collect(),
            YamlValue::Map(members) => {
                let members = members.iter();
                let members = members
                    .flat_map(|(key, node)| std::iter::once(key.place).chain(node.scalars()));
                members.collect()
            }
        }
    }

    /// The word for what it is.
    pub fn kind(&self) -> &'static str {
        match self.data {
            YamlValue::Null => "nothing",
            YamlValue::Bool(_) => "a boolean",
            YamlValue::Number(_) => "a number",
            YamlValue::Text(_) => "text",
            YamlValue::List(_) => "a list",
            YamlValue::Map(_) => "a map",
        }
    }

    /// As plain JSON; of a key that appears twice the first counts.
    pub fn to_value(&self) -> Value {
        match &self.data {
            YamlValue::Null => Value::Null,
            YamlValue::Bool(flag) => Value::Bool(*flag),
            YamlValue::Number(number) => Value::Number(number.clone()),
            YamlValue::Text(text) => Value::String(text.clone()),
            YamlValue::List(items) => Value::Array(items.iter().map(Self::to_value).collect()),
            YamlValue::Map(members) => {
                let mut map = Map::new();
                for (key, member) in members {
                    map.entry(key.text.clone())
                        .or_insert_with(|| member.to_value());
                }
                Value::Object(map)
            }
        }
    }

    /// The node at a JSON pointer, or the deepest one on the way.
    pub fn at(&self, pointer: &str) -> &Self {
        let mut node = self;
        for segment in pointer.split('/').skip(1) {
            let name = segment.replace("~1", "/").replace("~0", "~");
            let next = match &node.data {
                YamlValue::List(items) => name.parse::<usize>().ok().and_then(|n| items.get(n)),
                YamlValue::Map(members) => members
                    .iter()
                    .find(|(key, _)| key.text == name)
                    .map(|(_, node)| node),
                _ => None,
            };
            match next {
                Some(next) => node = next,
                None => break,
            }
        }
        node
    }
}
