//! Templates of a script: `{{ name }}`, `{{ name.member.0 }}`, `{{ name | first 80 }}`.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// The values of names.
pub(super) type ScriptValues = BTreeMap<String, Value>;

/// A tree whose strings are templates.
#[derive(Debug, Clone)]
pub(super) enum ScriptTree {
    Plain(Value),
    Text(ScriptTemplate),
    List(Vec<Self>),
    Map(Vec<(String, Self)>),
}

/// A string with names in it.
#[derive(Debug, Clone)]
pub(super) struct ScriptTemplate(Vec<Piece>);

#[derive(Debug, Clone)]
enum Piece {
    Literal(String),
    Reference(Reference),
}

#[derive(Debug, Clone)]
struct Reference {
    path: Vec<String>,
    filters: Vec<Filter>,
}

#[derive(Debug, Clone, Copy)]
enum Filter {
    First(usize),
    Lower,
    Trim,
    Upper,
}

impl ScriptTree {
    /// The tree with values in it.
    pub(super) fn fill(&self, names: &ScriptValues) -> Value {
        match self {
            Self::Plain(value) => value.clone(),
            Self::Text(template) => template.value(names),
            Self::List(items) => items.iter().map(|item| item.fill(names)).collect(),
            Self::Map(members) => {
                let filled = |(name, member): &(String, Self)| (name.clone(), member.fill(names));
                Value::Object(members.iter().map(filled).collect::<Map<_, _>>())
            }
        }
    }
}

impl ScriptTemplate {
    /// Reads a text; says what is wrong with it in a few words.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("{{") {
            let Some((inside, after)) = after.split_once("}}") else {
                return Err("{{ without }}".to_owned());
            };
            if !before.is_empty() {
                pieces.push(Piece::Literal(before.to_owned()));
            }
            pieces.push(Piece::Reference(reference(inside)?));
            rest = after;
        }
        if !rest.is_empty() {
            pieces.push(Piece::Literal(rest.to_owned()));
        }
        Ok(Self(pieces))
    }

    /// The names it begins its paths with.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|piece| match piece {
            Piece::Reference(reference) => reference.path.first().map(String::as_str),
            Piece::Literal(_) => None,
        })
    }

    /// A text that is one reference and nothing else keeps the type of its value.
    pub(super) fn value(&self, names: &ScriptValues) -> Value {
        match self.0.as_slice() {
            [Piece::Reference(reference)] => reference.value(names),
            _ => Value::String(self.text(names)),
        }
    }

    /// The text: strings as they are, null and what is missing as nothing, the rest as JSON.
    pub(super) fn text(&self, names: &ScriptValues) -> String {
        let pieces = self.0.iter().map(|piece| match piece {
            Piece::Literal(text) => text.clone(),
            Piece::Reference(reference) => in_words(&reference.value(names)),
        });
        pieces.collect()
    }
}

impl Reference {
    fn value(&self, names: &ScriptValues) -> Value {
        let mut path = self.path.iter();
        let mut value = path.next().and_then(|name| names.get(name));
        for step in path {
            value = value.and_then(|value| match value {
                Value::Object(members) => members.get(step),
                Value::Array(items) => step.parse().ok().and_then(|at: usize| items.get(at)),
                _ => None,
            });
        }
        let value = value.cloned().unwrap_or_default();
        if self.filters.is_empty() || value.is_null() {
            return value;
        }
        let filtered = self
            .filters
            .iter()
            .fold(in_words(&value), |text, filter| match filter {
                Filter::First(count) => text.chars().take(*count).collect(),
                Filter::Lower => text.to_lowercase(),
                Filter::Trim => text.trim().to_owned(),
                Filter::Upper => text.to_uppercase(),
            });
        Value::String(filtered)
    }
}

fn in_words(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        _ => value.to_string(),
    }
}

fn reference(inside: &str) -> Result<Reference, String> {
    let mut parts = inside.split('|').map(str::trim);
    let path = parts.next().unwrap_or_default();
    let path: Vec<String> = path.split('.').map(str::to_owned).collect();
    let fits = |name: &String| !name.is_empty() && name.chars().all(is_of_a_name);
    if !path.iter().all(fits) {
        return Err(format!("{:?} is not a name", inside.trim()));
    }
    let filters = parts.map(|part| match *part.split_whitespace().collect::<Vec<_>>() {
        ["lower"] => Ok(Filter::Lower),
        ["upper"] => Ok(Filter::Upper),
        ["trim"] => Ok(Filter::Trim),
        ["first", count] => {
            let count = count.parse().map(Filter::First);
            count.map_err(|_| format!("first takes a number, got {count:?}", count = part))
        }
        _ => Err(format!(
            "{part:?} is not one of first N, lower, trim, upper"
        )),
    });
    let filters = filters.collect::<Result<_, _>>()?;
    Ok(Reference { path, filters })
}

pub(super) fn is_of_a_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn value(text: &str) -> Value {
        let names = json!({"t": " He said \"hi\" ", "n": 5, "o": {"a": [true, null]}});
        let Value::Object(names) = names else {
            panic!()
        };
        ScriptTemplate::parse(text)
            .unwrap()
            .value(&names.into_iter().collect())
    }

    #[test]
    fn one_reference_alone_keeps_its_type() {
        assert_eq!(value("{{ n }}"), json!(5));
        assert_eq!(value("{{o.a.0}}"), json!(true));
        assert_eq!(value("{{ o }}"), json!({"a": [true, null]}));
        assert_eq!(value("{{ o.a.7 }}"), Value::Null);
        assert_eq!(
            value("n={{ n }}, {{ o.a }}{{ nobody }}"),
            json!("n=5, [true,null]")
        );
        assert_eq!(value("plain }}"), json!("plain }}"));
        assert_eq!(value(""), json!(""));
    }

    #[test]
    fn filters_make_text() {
        assert_eq!(value("{{ t | trim | first 7 | upper }}"), json!("HE SAID"));
        assert_eq!(value("{{ n | lower }}"), json!("5"));
        assert_eq!(value("{{ nobody | lower }}"), Value::Null);
    }

    #[test]
    fn what_is_no_reference_is_said() {
        for text in [
            "{{ a",
            "{{ }}",
            "{{ a b }}",
            "{{ a | sort }}",
            "{{ a | first x }}",
            "{{ a..b }}",
        ] {
            assert!(ScriptTemplate::parse(text).is_err(), "{text}");
        }
    }
}
