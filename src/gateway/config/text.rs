//! Strings of a provider's config: text with `{{ env.NAME }}` in it.

use ktsu_config::fault::{Fault, FaultCode};
use ktsu_config::read::ConfigReader;
use ktsu_config::yaml::{SourceSpan, YamlNode};
use ktsu_environment::VariableValues;

/// A string whose variables have no values yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConfigText {
    pieces: Vec<ConfigTextPiece>,
    /// Its position in the file.
    pub(crate) place: SourceSpan,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum ConfigTextPiece {
    Literal(String),
    Variable(String),
}

impl ConfigText {
    /// Reads a string, with a fault if what stands in braces is no variable.
    pub(crate) fn read(reader: &mut ConfigReader<'_>, node: &YamlNode, what: &str) -> Option<Self> {
        let text = reader.string(node, what)?;
        let Some(pieces) = pieces(text) else {
            let words = format!("{what} may hold {{{{ env.NAME }}}} and no other expression");
            return reader.reject(Fault::new(FaultCode::BadTemplate, node.place, words));
        };
        let place = node.place;
        Some(Self { pieces, place })
    }

    /// The variables it mentions.
    pub(crate) fn variables(&self) -> impl Iterator<Item = &str> {
        self.pieces.iter().filter_map(|piece| match piece {
            ConfigTextPiece::Variable(name) => Some(name.as_str()),
            ConfigTextPiece::Literal(_) => None,
        })
    }

    /// The text with values in it; a variable without one leaves nothing.
    pub(crate) fn fill(&self, values: &VariableValues) -> String {
        let value = |name: &String| {
            let secret = values.secrets.get(name).map(|secret| secret.expose());
            let plain = values.values.get(name).map(String::as_str);
            secret.or(plain).unwrap_or_default().to_owned()
        };
        let pieces = self.pieces.iter().map(|piece| match piece {
            ConfigTextPiece::Literal(text) => text.clone(),
            ConfigTextPiece::Variable(name) => value(name),
        });
        pieces.collect()
    }
}

/// The variables that any strings of a tree mention, whatever else is wrong with it.
pub(crate) fn mentioned(tree: &serde_json::Value, into: &mut Vec<String>) {
    match tree {
        serde_json::Value::String(text) => {
            into.extend(
                pieces(text)
                    .into_iter()
                    .flatten()
                    .filter_map(|piece| match piece {
                        ConfigTextPiece::Variable(name) => Some(name),
                        ConfigTextPiece::Literal(_) => None,
                    }),
            );
        }
        serde_json::Value::Array(items) => items.iter().for_each(|item| mentioned(item, into)),
        serde_json::Value::Object(members) => {
            members.values().for_each(|member| mentioned(member, into));
        }
        serde_json::Value::Null | serde_json::Value::Bool(_) | serde_json::Value::Number(_) => {}
    }
}

fn pieces(text: &str) -> Option<Vec<ConfigTextPiece>> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("{{") {
        let (inside, after) = after.split_once("}}")?;
        let name = inside.trim().strip_prefix("env.")?;
        let fits = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if name.is_empty() || !name.chars().all(fits) {
            return None;
        }
        pieces.push(ConfigTextPiece::Literal(before.to_owned()));
        pieces.push(ConfigTextPiece::Variable(name.to_owned()));
        rest = after;
    }
    pieces.push(ConfigTextPiece::Literal(rest.to_owned()));
    Some(pieces)
}
