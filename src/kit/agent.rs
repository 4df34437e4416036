//! One agent file, read and judged by itself.

use ktsu_ledger::Json;
use ktsu_ledger::event::plan::{AgentFile, Prompt};

use super::fault::{Fault, FaultCode};
use super::read::{Fields, Reader};
use super::workflow::{is_name, optional_params};
use super::yaml::{Data, Node, Place};
use super::{prompt, tools};
use crate::workflow::params::ParamsSchema;

/// An agent file as read.
pub(super) struct AgentDraft {
    pub(super) plan: AgentFile,
    /// Its params, if it declares any.
    pub(super) params: Option<Params>,
    /// Of the model group.
    pub(super) group: Place,
    /// Whether the file itself says which version it is.
    pub(super) has_version: bool,
    /// Whether it names tool servers.
    pub(super) needs_tools: bool,
}

/// What an agent says about its params.
pub(super) struct Params {
    pub(super) schema: ParamsSchema,
    /// Marked `secret: true`.
    pub(super) secrets: Vec<String>,
}

impl AgentDraft {
    /// Whether the model is asked how sure it is.
    pub(super) fn declares_confidence(&self) -> bool {
        let schema = self.plan.output.to_value();
        schema.pointer("/properties/ktsu_confidence").is_some()
    }
}

/// How the names of agent files end.
pub(super) const SUFFIX: &str = ".agent.yaml";

/// The version of a file that has none (decision K2).
pub(super) const NO_VERSION: &str = "0.0.0";

/// Reserved output fields, in the order in which they are evaluated (decision R1).
const RESERVED: [&str; 8] = [
    "ktsu_injection_attempt",
    "ktsu_untrusted_content",
    "ktsu_low_quality",
    "ktsu_needs_human",
    "ktsu_confidence",
    "ktsu_skip_reason",
    "ktsu_flags",
    "ktsu_rationale",
];

const KEYS: [&str; 9] = [
    "description",
    "max_turns",
    "model",
    "name",
    "output",
    "params",
    "prompt",
    "servers",
    "version",
];

const DEFAULT_TURNS: u32 = 10;

/// Reads a file; nothing when it is too broken to be used by a step.
pub(super) fn read(reader: &mut Reader<'_>, root: &Node) -> Option<AgentDraft> {
    no_environment(reader, root);
    let fields = reader.map(root, "the agent", &KEYS)?;
    let name = name(reader, &fields);
    let version = version(reader, &fields);
    if let Some(node) = fields.get("description") {
        reader.string(node, "description");
    }
    let group = group(reader, &fields);
    let max_turns = max_turns(reader, &fields);
    let (params, schema) = match params(reader, &fields) {
        Some((params, schema)) => (Some(params), Some(schema)),
        None => (None, None),
    };
    let prompt = reader
        .required(&fields, "prompt", "an agent")
        .and_then(|node| prompt::read(reader, node, params.as_ref()));
    if max_turns == 1
        && let Some(place) = prompt.as_ref().and_then(|prompt| prompt.reflect)
    {
        let words = "the one turn of this agent leaves no room for tools before it reflects";
        let fault = Fault::new(FaultCode::ReflectOneTurn, place, words).warning();
        reader.fault(fault.hint("raise max_turns, unless the first draft is meant to be final"));
    }
    let servers = fields
        .get("servers")
        .and_then(|node| tools::read(reader, node, params.as_ref()));
    let output = output(reader, &fields);
    let has_version = fields.key("version").is_some();
    let (group, group_place) = group?;
    let prompt = prompt?;
    Some(AgentDraft {
        plan: AgentFile {
            group,
            max_turns,
            name: name?,
            output: output?,
            params: schema,
            prompt: Prompt {
                reflect: prompt.reflect_text,
                system: prompt.system,
                user: prompt.user,
            },
            version: version?,
        },
        params,
        group: group_place,
        has_version,
        needs_tools: servers.is_some_and(|count| count > 0),
    })
}

fn name(reader: &mut Reader<'_>, fields: &Fields<'_>) -> Option<String> {
    let node = reader.required(fields, "name", "an agent")?;
    let name = reader.string(node, "name")?;
    if !is_name(name) {
        return reader.bad_value(
            node,
            format!("{name:?} is not a name: letters, digits, '.', '_' and '-', at most 64"),
        );
    }
    Some(name.to_owned())
}

fn version(reader: &mut Reader<'_>, fields: &Fields<'_>) -> Option<String> {
    let Some(node) = fields.get("version") else {
        let place = fields.key("version").unwrap_or(fields.place);
        let words = format!("the agent has no version and counts as {NO_VERSION}");
        let fault = Fault::new(FaultCode::VersionMissing, place, words).warning();
        reader.fault(fault.hint("version: \"1.0.0\""));
        return Some(NO_VERSION.to_owned());
    };
    let version = reader.string(node, "version")?;
    if semver::Version::parse(version).is_err() {
        let words = format!("{version:?} is not a semantic version");
        reader
            .fault(Fault::new(FaultCode::BadVersion, node.place, words).hint("version: \"1.0.0\""));
        return None;
    }
    Some(version.to_owned())
}

fn group(reader: &mut Reader<'_>, fields: &Fields<'_>) -> Option<(String, Place)> {
    let node = reader.required(fields, "model", "an agent")?;
    let group = reader.string(node, "model")?;
    if group.trim().is_empty() {
        return reader.bad_value(node, "model must be the name of a model group");
    }
    Some((group.to_owned(), node.place))
}

/// None and 0 are the default.
fn max_turns(reader: &mut Reader<'_>, fields: &Fields<'_>) -> u32 {
    let given = fields
        .get("max_turns")
        .and_then(|node| reader.whole(node, "max_turns", 0, 1_000));
    let given = given.and_then(|given| u32::try_from(given).ok());
    given.filter(|turns| *turns > 0).unwrap_or(DEFAULT_TURNS)
}

fn params(reader: &mut Reader<'_>, fields: &Fields<'_>) -> Option<(Params, Json)> {
    let node = fields.get("params")?;
    let fields = reader.map(node, "params", &["schema"])?;
    let node = reader.required(&fields, "schema", "params")?;
    let secrets = secrets(reader, node);
    optional_params(reader, node);
    let json = reader.params_schema(node)?;
    let schema = ParamsSchema::compile(&json).ok()?;
    Some((Params { schema, secrets }, json))
}

/// The params marked as secrets. Their values come from variables alone, so none has a default.
pub(super) fn secrets(reader: &mut Reader<'_>, schema: &Node) -> Vec<String> {
    let mut secrets = Vec::new();
    for (key, property) in members(member(Some(schema), "properties")) {
        let Some(mark) = member(Some(property), "secret") else {
            continue;
        };
        if reader.flag(mark, "secret") != Some(true) {
            continue;
        }
        if let Some(default) = member(Some(property), "default") {
            let words = format!("the secret param {:?} has a default", key.text);
            let fault = Fault::new(FaultCode::LiteralSecret, default.place, words);
            reader.fault(fault.hint("a secret comes from a variable of the workflow"));
        }
        secrets.push(key.text.clone());
    }
    secrets
}

fn output(reader: &mut Reader<'_>, fields: &Fields<'_>) -> Option<Json> {
    let node = reader.required(fields, "output", "an agent")?;
    let fields = reader.map(node, "the agent's output", &["schema"])?;
    let node = reader.required(&fields, "schema", "the agent's output")?;
    let schema = reader.schema(node)?;
    reserved_fields(reader, node);
    let kind = member(Some(node), "type");
    let is_object = match kind.map(|kind| kind.to_value()) {
        Some(kind) => kind == "object",
        None => member(Some(node), "properties").is_some(),
    };
    if !is_object {
        let place = kind.map_or(node.place, |kind| kind.place);
        let words = "the output of an agent is an object, and its schema must say so";
        let fault = Fault::new(FaultCode::BadSchema, place, words);
        reader.fault(fault.hint("schema: {type: object, properties: {…}}"));
        return None;
    }
    Some(schema)
}

/// Names that begin with `ktsu_` and mean nothing: what a model says there is dropped.
pub(super) fn reserved_fields(reader: &mut Reader<'_>, schema: &Node) {
    let properties = members(member(Some(schema), "properties"));
    let mut named: Vec<(&str, Place)> = properties
        .iter()
        .map(|(key, _)| (key.text.as_str(), key.place))
        .collect();
    if let Some(Data::List(items)) = member(Some(schema), "required").map(|node| &node.data) {
        for item in items {
            if let Data::Text(name) = &item.data {
                named.push((name, item.place));
            }
        }
    }
    for (name, place) in named {
        if !name.starts_with("ktsu_") || RESERVED.contains(&name) {
            continue;
        }
        let words = format!("{name:?} is no reserved field and is dropped from every output");
        let fault = Fault::new(FaultCode::UnknownReserved, place, words).warning();
        let near = crate::workflow::nearest(name, RESERVED);
        reader.fault(match near {
            Some(near) => fault.hint(format!("did you mean {near}?")),
            None => fault.hint("names of your own do not begin with ktsu_"),
        });
    }
}

/// Agents see params alone: `env:NAME` and `{{ env.NAME }}` stand nowhere in their files
/// (decision T5).
fn no_environment(reader: &mut Reader<'_>, node: &Node) {
    match &node.data {
        Data::Text(text) => {
            if let Some(at) = mentions_environment(text) {
                let place = reader.spot(node, at, "env".len());
                let words = "an agent file cannot reach the environment";
                let fault = Fault::new(FaultCode::EnvInAgent, place, words);
                reader.fault(fault.hint(
                    "declare a param here, and give it \"{{ env.NAME }}\" in the workflow's step",
                ));
            }
        }
        Data::List(items) => items.iter().for_each(|item| no_environment(reader, item)),
        Data::Map(members) => members
            .iter()
            .for_each(|(_, member)| no_environment(reader, member)),
        Data::Null | Data::Bool(_) | Data::Number(_) => {}
    }
}

/// Where a text names a variable: `env:NAME` as a word of its own, a text that begins with `env:`,
/// or `env` inside braces.
fn mentions_environment(text: &str) -> Option<usize> {
    let lead = text.len() - text.trim_start().len();
    if text
        .get(lead..)
        .is_some_and(|rest| rest.starts_with("env:"))
    {
        return Some(lead);
    }
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.match_indices("env").find_map(|(at, _)| {
        let (before, after) = (text.get(..at)?, text.get(at + 3..)?);
        let begins = !before.ends_with(|c: char| word(c) || c == '.');
        let inside = before.rfind("{{").is_some_and(|open| {
            before
                .get(open..)
                .is_some_and(|inner| !inner.contains("}}"))
        });
        let named = after
            .strip_prefix(':')
            .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_'));
        let dotted = inside && after.trim_start().starts_with(['.', ':']);
        (begins && (named || dotted)).then_some(at)
    })
}

/// A member of a map, by name.
pub(super) fn member<'n>(node: Option<&'n Node>, name: &str) -> Option<&'n Node> {
    let members = members(node);
    let found = members.iter().find(|(key, _)| key.text == name);
    found.map(|(_, node)| node)
}

/// The members of a map; none of anything else.
pub(super) fn members(node: Option<&Node>) -> &[(super::yaml::Key, Node)] {
    match node.map(|node| &node.data) {
        Some(Data::Map(members)) => members,
        Some(Data::Null | Data::Bool(_) | Data::Number(_) | Data::Text(_) | Data::List(_))
        | None => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::mentions_environment;

    #[test]
    fn variables_are_found_in_every_form_and_prose_is_left_alone() {
        for (text, at) in [
            ("env:KEY", Some(0)),
            ("  env: KEY", Some(2)),
            ("Bearer env:KEY", Some(7)),
            ("{{ env.KEY }}", Some(3)),
            ("a {{ params.x }} {{join('', [env.KEY])}}", Some(29)),
            ("set env: production first", None),
            ("the env.KEY outside braces", None),
            ("{{ params.env.x }}", None),
            ("{{ params.x }} env.x", None),
            ("my_env:X, environment", None),
        ] {
            assert_eq!(mentions_environment(text), at, "{text}");
        }
    }
}
