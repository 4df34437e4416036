//! One value of a record: its text as it is recorded, and windows of its items or characters.
//!
//! The text is never written again: what is looked at, copied and downloaded are the bytes of the ledger.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

/// The most items of a window.
pub const MAX_ITEMS: usize = 1_000;
/// The most characters of a window.
pub const MAX_CHARACTERS: usize = 65_536;
/// An item of a window has its value if it has at most so many bytes.
const MAX_ITEM_BYTES: usize = 2_048;

/// The type of a [`Payload`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PayloadType {
    /// `null`.
    Null,
    /// `true` or `false`.
    Boolean,
    /// A number.
    Number,
    /// A text.
    String,
    /// A list.
    Array,
    /// An object.
    Object,
}

/// A value, as JSON text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Payload<'t>(&'t str);

/// A window of a value.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PayloadWindow {
    /// The type of the value.
    #[serde(rename = "type")]
    pub kind: PayloadType,
    /// The length of its JSON text.
    pub bytes: usize,
    /// The number of its items, of its members, or of its characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<usize>,
    /// Where the window begins, counted from 0.
    pub from: usize,
    /// Of an array or an object: the items or members of the window.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub items: Option<Vec<PayloadItem>>,
    /// Of a text: the characters of the window.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Of any other value: the value.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    pub value: Option<Box<RawValue>>,
    /// The beginning of the next window, if there is more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<usize>,
    /// The address that gives the whole value, relative to that of this answer.
    pub download: String,
}

/// An item of an array, or a member of an object.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PayloadItem {
    /// Of a member: its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its type.
    #[serde(rename = "type")]
    pub kind: PayloadType,
    /// The length of its JSON text.
    pub bytes: usize,
    /// Itself, if it has at most 2,048 bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    pub value: Option<Box<RawValue>>,
}

impl<'t> Payload<'t> {
    /// The value of a JSON text.
    pub fn of(text: &'t str) -> Self {
        Self(text)
    }

    /// The value at a JSON pointer, if there is one.
    pub fn at(self, pointer: &str) -> Option<Self> {
        let mut segments = pointer.split('/');
        // A pointer is empty, or begins with a slash.
        if segments.next() != Some("") {
            return None;
        }
        segments.try_fold(self, |value, segment| {
            let name = segment.replace("~1", "/").replace("~0", "~");
            value.below(&name)
        })
    }

    fn below(self, name: &str) -> Option<Self> {
        let found = match self.kind() {
            PayloadType::Object => self.members()?.remove(name)?,
            PayloadType::Array => {
                let is_index = name == "0" || !name.starts_with(['0', '+']);
                let at = name.parse::<usize>().ok().filter(|_| is_index)?;
                self.list()?.get(at).copied()?
            }
            _ => return None,
        };
        Some(Self(found.get()))
    }

    /// Its JSON text, as it is recorded.
    pub fn json(self) -> &'t str {
        self.0
    }

    /// Its characters, if it is a text.
    pub fn characters(self) -> Option<String> {
        serde_json::from_str(self.0).ok()
    }

    /// Its type.
    pub fn kind(self) -> PayloadType {
        match self.0.bytes().next() {
            Some(b'{') => PayloadType::Object,
            Some(b'[') => PayloadType::Array,
            Some(b'"') => PayloadType::String,
            Some(b't' | b'f') => PayloadType::Boolean,
            Some(b'n') => PayloadType::Null,
            _ => PayloadType::Number,
        }
    }

    /// Its items, by their places, or its members, by their names.
    pub fn entries(self) -> Vec<(String, Self)> {
        let members = self.members().unwrap_or_default().into_iter();
        match self.kind() {
            PayloadType::Array => {
                let list = self.list().unwrap_or_default().into_iter().enumerate();
                list.map(|(at, value)| (at.to_string(), Self(value.get())))
                    .collect()
            }
            _ => members
                .map(|(name, value)| (name, Self(value.get())))
                .collect(),
        }
    }

    fn members(self) -> Option<BTreeMap<String, &'t RawValue>> {
        serde_json::from_str(self.0).ok()
    }

    fn list(self) -> Option<Vec<&'t RawValue>> {
        serde_json::from_str(self.0).ok()
    }

    /// At most `most` of its items or characters, from one on; `download` is the address of the whole value.
    pub fn window(self, from: usize, most: usize, download: String) -> PayloadWindow {
        let kind = self.kind();
        let mut window = PayloadWindow {
            kind,
            bytes: self.0.len(),
            count: None,
            from,
            items: None,
            text: None,
            value: None,
            next: None,
            download,
        };
        let count = match kind {
            PayloadType::Array => {
                let all = self.list().unwrap_or_default();
                let shown = all.iter().skip(from).take(most.min(MAX_ITEMS));
                window.items = Some(shown.map(|value| item(None, value)).collect());
                all.len()
            }
            PayloadType::Object => {
                let all = self.members().unwrap_or_default();
                let shown = all.iter().skip(from).take(most.min(MAX_ITEMS));
                let shown = shown.map(|(name, value)| item(Some(name.clone()), value));
                window.items = Some(shown.collect());
                all.len()
            }
            PayloadType::String => {
                let all = self.characters().unwrap_or_default();
                let shown = all.chars().skip(from).take(most.min(MAX_CHARACTERS));
                window.text = Some(shown.collect());
                all.chars().count()
            }
            PayloadType::Null | PayloadType::Boolean | PayloadType::Number => {
                window.value = RawValue::from_string(self.0.to_owned()).ok();
                return window;
            }
        };
        let most = match kind {
            PayloadType::String => most.min(MAX_CHARACTERS),
            _ => most.min(MAX_ITEMS),
        };
        let next = from.saturating_add(most);
        window.count = Some(count);
        window.next = (next < count).then_some(next);
        window
    }
}

fn item(name: Option<String>, value: &RawValue) -> PayloadItem {
    let text = value.get();
    PayloadItem {
        name,
        kind: Payload(text).kind(),
        bytes: text.len(),
        value: (text.len() <= MAX_ITEM_BYTES).then(|| value.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"{"a/b":[1,2.50,"é\u0000x",null],"m":{"~":{"deep":true}},"z":"<b>"}"#;

    #[test]
    fn a_value_is_found_by_its_pointer_with_the_bytes_of_the_record() {
        for (pointer, json) in [
            ("", TEXT),
            ("/a~1b/1", "2.50"),
            ("/a~1b/2", r#""é\u0000x""#),
            ("/m/~0/deep", "true"),
            ("/z", r#""<b>""#),
        ] {
            assert_eq!(
                Payload::of(TEXT).at(pointer).map(Payload::json),
                Some(json),
                "{pointer}"
            );
        }
        for pointer in [
            "z", "/a", "/a~1b/4", "/a~1b/01", "/a~1b/+1", "/z/0", "/a~1b/",
        ] {
            assert_eq!(Payload::of(TEXT).at(pointer), None, "{pointer}");
        }
    }

    #[test]
    fn a_window_has_some_items_and_says_how_many_there_are() {
        let window = |pointer: &str, from, most| {
            let found = Payload::of(TEXT).at(pointer).unwrap();
            serde_json::to_string(&found.window(from, most, "d".to_owned())).unwrap()
        };
        assert_eq!(
            window("/a~1b", 1, 2),
            r#"{"type":"array","bytes":25,"count":4,"from":1,"items":[{"type":"number","bytes":4,"value":2.50},{"type":"string","bytes":11,"value":"é\u0000x"}],"next":3,"download":"d"}"#
        );
        assert_eq!(
            window("/a~1b/2", 1, 9),
            r#"{"type":"string","bytes":11,"count":3,"from":1,"text":"\u0000x","download":"d"}"#
        );
        assert_eq!(
            window("/a~1b/3", 0, 9),
            r#"{"type":"null","bytes":4,"from":0,"value":null,"download":"d"}"#
        );
        assert!(window("/m", 7, 9).contains(r#""items":[],"#));
    }

    #[test]
    fn a_large_item_has_its_size_in_place_of_its_value_and_windows_are_bounded() {
        let large = format!("[\"{}\",1]", "x".repeat(MAX_ITEM_BYTES));
        let window = Payload::of(&large).window(0, usize::MAX, String::new());
        let items = window.items.unwrap();
        assert!(items[0].value.is_none() && items[1].value.is_some());
        assert_eq!(items[0].bytes, MAX_ITEM_BYTES + 2);
        let many = format!("[{}0]", "0,".repeat(MAX_ITEMS));
        let window = Payload::of(&many).window(0, usize::MAX, String::new());
        assert_eq!(
            (window.items.unwrap().len(), window.next),
            (MAX_ITEMS, Some(MAX_ITEMS))
        );
        let long = format!("\"{}\"", "x".repeat(MAX_CHARACTERS + 1));
        let window = Payload::of(&long).window(0, usize::MAX, String::new());
        assert_eq!(
            (window.text.unwrap().len(), window.next),
            (MAX_CHARACTERS, Some(MAX_CHARACTERS))
        );
        let deep = format!("{}{}", "[".repeat(5_000), "]".repeat(5_000));
        assert_eq!(Payload::of(&deep).kind(), PayloadType::Array);
        assert!(Payload::of(&deep).at(&"/0".repeat(100)).is_some());
    }
}
