//! The answer of a rule: templates, and the names they may mention.

use super::super::calls::ScriptedToolCall;
use super::super::rules::{Matcher, ReplyBody, TEMPLATE_NAMES};
use super::super::shape;
use super::super::template::{ScriptTemplate, ScriptTree};
use super::ValueNames;
use ktsu_config::fault::{Fault, FaultCode};
use ktsu_config::read::{ConfigReader, Fields};
use ktsu_config::yaml::{YamlNode, YamlValue};

/// The names that the templates of a rule may mention: captures too.
pub(super) fn mentionable(names: &ValueNames, when: &[Matcher]) -> Vec<String> {
    let captures = when
        .iter()
        .flat_map(|matcher| matcher.pattern.capture_names().flatten());
    let counts = TEMPLATE_NAMES.iter().copied();
    let sources = names.sources.iter().map(String::as_str);
    sources
        .chain(counts)
        .chain(captures)
        .map(str::to_owned)
        .collect()
}

pub(super) fn body(
    reader: &mut ConfigReader<'_>,
    fields: &Fields<'_>,
    names: &[String],
) -> Option<ReplyBody> {
    match (fields.get("reply"), fields.get("text")) {
        (Some(node), None) => tree(reader, node, names).map(ReplyBody::Json),
        (None, Some(node)) => {
            let text = reader.string(node, "text")?;
            template(reader, node, text, names).map(ReplyBody::Text)
        }
        (Some(_), Some(node)) => reader.bad_value(node, "a rule has either \"reply\" or \"text\""),
        (None, None) => None,
    }
}

pub(super) fn tool_calls(
    reader: &mut ConfigReader<'_>,
    fields: &Fields<'_>,
    names: &[String],
) -> Vec<ScriptedToolCall> {
    let node = fields.get("tool_calls");
    let list = node.and_then(|node| reader.list(node, "tool_calls"));
    if let (Some(node), Some([])) = (node, list) {
        reader.bad_value::<()>(node, "tool_calls names at least one tool");
    }
    let list = list.unwrap_or_default().iter();
    list.filter_map(|node| asks(reader, node, names)).collect()
}

fn asks(
    reader: &mut ConfigReader<'_>,
    node: &YamlNode,
    names: &[String],
) -> Option<ScriptedToolCall> {
    let fields = reader.shaped(node, &shape::TOOL_CALL)?;
    let mut text = |key: &str| {
        let node = fields.get(key)?;
        let text = reader.string(node, key)?;
        template(reader, node, text, names)
    };
    let (name, id) = (text("name"), text("id"));
    let arguments = match fields.get("arguments") {
        Some(node) => tree(reader, node, names)?,
        None => ScriptTree::Map(Vec::new()),
    };
    Some(ScriptedToolCall {
        name: name?,
        id,
        arguments,
    })
}

fn tree(reader: &mut ConfigReader<'_>, node: &YamlNode, names: &[String]) -> Option<ScriptTree> {
    match &node.data {
        YamlValue::Text(text) => template(reader, node, text, names).map(ScriptTree::Text),
        YamlValue::List(items) => {
            let items = items.iter().map(|item| tree(reader, item, names));
            items.collect::<Option<_>>().map(ScriptTree::List)
        }
        YamlValue::Map(members) => {
            reader.open_map(node, "the reply")?;
            let members = members
                .iter()
                .map(|(key, member)| Some((key.text.clone(), tree(reader, member, names)?)));
            members.collect::<Option<_>>().map(ScriptTree::Map)
        }
        _ => Some(ScriptTree::Plain(node.to_value())),
    }
}

fn template(
    reader: &mut ConfigReader<'_>,
    node: &YamlNode,
    text: &str,
    names: &[String],
) -> Option<ScriptTemplate> {
    let wrong = |words: String| Fault::new(FaultCode::BadTemplate, node.place, words);
    let template = match ScriptTemplate::parse(text) {
        Ok(template) => template,
        Err(words) => {
            return reader.reject(wrong(words));
        }
    };
    let known = |name: &&str| names.iter().any(|known| known == name);
    if let Some(unknown) = template.names().find(|name| !known(name)) {
        let fault = wrong(format!("there is nothing called {unknown:?} here"));
        return reader.reject(fault.suggest_or(
            unknown,
            names.iter().map(String::as_str),
            format!("known: {}", names.join(", ")),
        ));
    }
    Some(template)
}
