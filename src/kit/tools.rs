//! The `servers:` of an agent file: read strictly, though no tool is called yet.

use super::agent::{Params, member, members};
use super::fault::{Fault, FaultCode};
use super::read::{Reader, Usage};
use super::workflow::is_name;
use super::yaml::{Data, Node};
use crate::workflow::expression::Root;

/// How many servers stand there.
pub(super) fn read(reader: &mut Reader<'_>, node: &Node, params: Option<&Params>) -> Option<usize> {
    let servers = reader.list(node, "servers")?;
    let mut names: Vec<String> = Vec::new();
    for node in servers {
        let Some(name) = server(reader, node, params) else {
            continue;
        };
        if names.contains(&name) {
            let words = format!("the server {name:?} stands twice");
            reader.bad_value::<()>(member(Some(node), "name").unwrap_or(node), words);
        }
        names.push(name);
    }
    if let Some(first) = servers.first() {
        let words = "tools are not built yet: a workflow with this agent does not start";
        let fault = Fault::new(FaultCode::ToolsNotBuilt, first.place, words).warning();
        reader.fault(fault.hint("remove servers, or wait for a version that calls tools"));
    }
    Some(servers.len())
}

fn server(reader: &mut Reader<'_>, node: &Node, params: Option<&Params>) -> Option<String> {
    let fields = reader.map(node, "the server", &["access", "name", "params", "path"])?;
    if let Some(node) = fields.get("path") {
        reader.string(node, "path");
    }
    if let Some(node) = fields.get("params") {
        server_params(reader, node, params);
    }
    if let Some(node) = fields.get("access") {
        access(reader, node);
    }
    let node = reader.required(&fields, "name", "a server")?;
    let name = reader.string(node, "name")?;
    if !is_name(name) {
        return reader.bad_value(node, format!("{name:?} is not the name of a server"));
    }
    Some(name.to_owned())
}

/// Texts that may mention the agent's params.
fn server_params(reader: &mut Reader<'_>, node: &Node, params: Option<&Params>) {
    if reader.open_map(node, "the server's params").is_none() {
        return;
    }
    for (key, node) in members(Some(node)) {
        if reader.string(node, &key.text).is_none() {
            continue;
        }
        reader.template(node, Usage::Value);
        for mention in std::mem::take(&mut reader.mentions) {
            if !matches!(mention.root, Root::Params | Root::Env(_)) {
                let words = "the params of a server see the agent's params alone";
                let fault = Fault::new(FaultCode::PromptBeyondParams, mention.place, words);
                reader.fault(fault.hint("write {{ params.NAME }}"));
            }
        }
        undeclared(reader, node, params);
    }
}

fn undeclared(reader: &mut Reader<'_>, node: &Node, params: Option<&Params>) {
    let (Data::Text(text), Some(params)) = (&node.data, params) else {
        return;
    };
    let Ok(template) = crate::workflow::template::Template::text(text) else {
        return;
    };
    for expression in template.expressions() {
        for name in &expression.params().names {
            if !params.schema.properties().any(|known| known == name) {
                let words = format!("the params of this agent do not declare {name:?}");
                reader.fault(Fault::new(FaultCode::UnknownParam, node.place, words));
            }
        }
    }
}

fn access(reader: &mut Reader<'_>, node: &Node) {
    let Some(fields) = reader.map(node, "access", &["allowlist"]) else {
        return;
    };
    let list = reader
        .required(&fields, "allowlist", "access")
        .and_then(|node| reader.list(node, "access.allowlist"));
    for entry in list.unwrap_or_default() {
        match &entry.data {
            Data::Map(_) => gated(reader, entry),
            Data::Null | Data::Bool(_) | Data::Number(_) | Data::Text(_) | Data::List(_) => {
                pattern(reader, entry);
            }
        }
    }
}

/// An entry that asks a person first.
fn gated(reader: &mut Reader<'_>, node: &Node) {
    let Some(fields) = reader.map(node, "the entry", &["name", "require_approval"]) else {
        return;
    };
    if let Some(node) = reader.required(&fields, "name", "an entry of the allowlist") {
        pattern(reader, node);
    }
    let Some(node) = fields.get("require_approval") else {
        return;
    };
    let keys = ["on_reject", "timeout", "timeout_behavior"];
    let Some(fields) = reader.map(node, "require_approval", &keys) else {
        return;
    };
    if let Some(node) = reader.required(&fields, "on_reject", "require_approval") {
        reader.word(node, "on_reject", &[("fail", ()), ("recover", ())]);
    }
    if let Some(node) = fields.get("timeout_behavior") {
        reader.word(node, "timeout_behavior", &[("fail", ()), ("reject", ())]);
    }
    let timeout = fields.get("timeout").filter(|node| !is_none(node));
    if timeout.is_some_and(|node| reader.duration(node, "timeout").is_some()) {
        reader.required(&fields, "timeout_behavior", "an approval with a timeout");
    }
}

/// `0` and `0s` mean that there is no timeout.
fn is_none(node: &Node) -> bool {
    match &node.data {
        Data::Number(number) => number.as_u64() == Some(0),
        Data::Text(text) => matches!(text.as_str(), "0" | "0s" | "0m" | "0h" | "0ms"),
        Data::Null | Data::Bool(_) | Data::List(_) | Data::Map(_) => false,
    }
}

/// A whole name, the beginning of one with a star behind it, or a star for all (decision K5).
fn pattern(reader: &mut Reader<'_>, node: &Node) {
    let Some(text) = reader.string(node, "an entry of the allowlist") else {
        return;
    };
    let name = text.strip_suffix('*').unwrap_or(text);
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/' | ':');
    if !text.is_empty() && text.len() <= 128 && name.chars().all(plain) {
        return;
    }
    let at = name.find('*').unwrap_or_default();
    let place = reader.spot(node, at, 1);
    let words = if name.contains('*') {
        format!("{text:?} has a star inside: it may stand at the end only")
    } else {
        format!("{text:?} is not the name of a tool")
    };
    let fault = Fault::new(FaultCode::BadAllowlist, place, words);
    reader.fault(fault.hint("write a whole name, a beginning with a star (crm-*), or *"));
}
