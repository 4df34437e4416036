//! The `servers:` of an agent file: the tool servers it uses, their params, and the tools it may
//! call.

use std::collections::BTreeSet;

use ktsu_ledger::id::is_name;

use super::allowlist::{self, Allowlist};
use super::builtin;
use super::read::{KitReader, NameUsage, member};
use super::reference::{FileReference, SERVER_FILES, split};
use super::schemas::Params;
use super::shape::agent as shape;
use ktsu_config::fault::{Fault, FaultCode};
use ktsu_config::yaml::{SourceSpan, YamlNode, YamlValue};
use ktsu_workflow::expression::Root;
use ktsu_workflow::template::Template;

/// The part of an agent that is about a server it uses.
pub(super) struct ServerCall {
    pub(super) name: String,
    pub(super) place: SourceSpan,
    /// The file, version suffix included; without one the server stands in the central list.
    pub(super) path: Option<(String, SourceSpan)>,
    /// The place of the given params, or of the name if none are given.
    pub(super) params_place: SourceSpan,
    pub(super) params: Vec<ServerArgument>,
    pub(super) allowlist: Allowlist,
}

impl ServerCall {
    /// The reference to its file, if it has one.
    pub(super) fn reference(&self) -> Option<FileReference<'_>> {
        self.path.as_ref().map(|(name, place)| FileReference {
            name,
            place: *place,
            kind: &SERVER_FILES,
        })
    }
}

/// A param that an agent gives to a server.
pub(super) struct ServerArgument {
    pub(super) name: String,
    /// Of the name.
    pub(super) place: SourceSpan,
    pub(super) text: String,
    /// Of the text.
    pub(super) text_place: SourceSpan,
    /// The params of the agent that it mentions.
    pub(super) mentions: BTreeSet<String>,
}

impl ServerCall {
    /// The server for the commands of an agent, with the tools that it may use of it.
    pub(super) fn of_commands(place: SourceSpan, tools: &[&str]) -> Self {
        Self {
            name: builtin::COMMANDS.to_owned(),
            place,
            path: Some((builtin::COMMANDS.to_owned(), place)),
            params_place: place,
            params: Vec::new(),
            allowlist: Allowlist::of(tools),
        }
    }
}

/// The servers that stand there.
pub(super) fn read(
    reader: &mut KitReader<'_>,
    node: &YamlNode,
    params: Option<&Params>,
) -> Option<Vec<ServerCall>> {
    let servers = reader.list(node, "servers")?;
    let mut calls: Vec<ServerCall> = Vec::new();
    for node in servers {
        let Some(call) = server(reader, node, params) else {
            continue;
        };
        if call.name == builtin::COMMANDS {
            let words = format!("{} is there for every agent that may command", call.name);
            let fault = Fault::new(FaultCode::BadValue, call.place, words);
            reader.fault(fault.hint("leave it out, and say what the agent may command: commands: {emit: [claim.verified]}"));
            continue;
        }
        if calls.iter().any(|other| other.name == call.name) {
            let words = format!("the server {:?} appears twice", call.name);
            reader.bad_value::<()>(member(Some(node), "name").unwrap_or(node), words);
            continue;
        }
        calls.push(call);
    }
    Some(calls)
}

fn server(
    reader: &mut KitReader<'_>,
    node: &YamlNode,
    agent_params: Option<&Params>,
) -> Option<ServerCall> {
    let fields = reader.shaped(node, &shape::SERVER)?;
    let path = fields.get("path").map(|node| {
        let path = reader.string(node, "path")?;
        Some((path.to_owned(), node.place))
    });
    let given = fields.get("params");
    let params = given.map(|node| given_params(reader, node, agent_params));
    let allowlist = allowlist::of(reader, &fields);
    let node = fields.get("name")?;
    let name = reader.string(node, "name")?;
    let path = match path {
        Some(path) => Some(path?),
        None => None,
    };
    let (own, path) = match path {
        // One that comes with ktsu is where its name says.
        None if builtin::is_builtin(name) => (split(name).0, Some((name.to_owned(), node.place))),
        Some(_) | None => (name, path),
    };
    if !is_name(own) && !builtin::is_builtin(own) {
        return reader.bad_value(node, format!("{name:?} is not the name of a server"));
    }
    Some(ServerCall {
        name: own.to_owned(),
        place: node.place,
        path,
        params_place: given.map_or(node.place, |node| node.place),
        params: params.unwrap_or_default(),
        allowlist: allowlist.unwrap_or_default(),
    })
}

/// Texts that may mention the agent's params.
fn given_params(
    reader: &mut KitReader<'_>,
    node: &YamlNode,
    params: Option<&Params>,
) -> Vec<ServerArgument> {
    let mut given = Vec::new();
    for (key, node) in reader.members(node, "the server's params") {
        let Some(text) = reader.string(node, &key.text) else {
            continue;
        };
        reader.template(node, NameUsage::Value);
        for mention in std::mem::take(&mut reader.mentions) {
            if !matches!(mention.root, Root::Params | Root::Env(_)) {
                let words = "the params of a server see the agent's params alone";
                let fault = Fault::new(FaultCode::PromptBeyondParams, mention.place, words);
                reader.fault(fault.hint("write {{ params.NAME }}"));
            }
        }
        undeclared(reader, node, params);
        given.push(ServerArgument {
            name: key.text.clone(),
            place: key.place,
            text: text.to_owned(),
            text_place: node.place,
            mentions: mentions(text, params),
        });
    }
    given
}

/// The agent's params that a text takes values from.
fn mentions(text: &str, params: Option<&Params>) -> BTreeSet<String> {
    let Ok(template) = Template::text(text) else {
        return BTreeSet::new();
    };
    let mut names = BTreeSet::new();
    for expression in template.expressions() {
        let taken = expression.params();
        names.extend(taken.names.iter().cloned());
        if taken.whole {
            let declared = params.into_iter().flat_map(|one| one.schema.properties());
            names.extend(declared.map(str::to_owned));
        }
    }
    names
}

fn undeclared(reader: &mut KitReader<'_>, node: &YamlNode, params: Option<&Params>) {
    let YamlValue::Text(text) = &node.data else {
        return;
    };
    let Ok(template) = Template::text(text) else {
        return;
    };
    let known: Vec<&str> = params
        .into_iter()
        .flat_map(|one| one.schema.properties())
        .collect();
    for expression in template.expressions() {
        for name in &expression.params().names {
            if known.contains(&name.as_str()) {
                continue;
            }
            let words = format!("the params of this agent do not declare {name:?}");
            let fault = Fault::new(FaultCode::UnknownParam, node.place, words);
            reader.fault(fault.suggest_or(
                name,
                known.iter().copied(),
                "declare it in params.schema.properties",
            ));
        }
    }
}
