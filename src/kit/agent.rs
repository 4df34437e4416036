//! Reads and checks one agent file.

use ktsu_ledger::CanonicalJson;
use ktsu_ledger::event::plan::{AgentCommands, AgentFile, Prompt, ReviewPolicy, SuspendPolicy};
use ktsu_ledger::topic::TopicPattern;

use super::read::{Fields, KitReader, member, members};
use super::review;
use super::schemas::{Params, optional_params, reserved_fields};
use super::shape::PARAMS;
use super::shape::agent::{AGENT, COMMANDS, OUTPUT};
use super::suspend;
use super::tools::ServerCall;
use super::{env_isolation, prompt, secret_flow, tools};
use ktsu_config::fault::{Fault, FaultCode};
use ktsu_config::yaml::{SourceSpan, YamlNode, YamlValue};
use ktsu_schema as schema;
use ktsu_workflow::params::ParamsSchema;

/// An agent file as read.
pub(super) struct AgentDraft {
    pub(super) plan: AgentFile,
    /// Its params, if it declares any.
    pub(super) params: Option<Params>,
    /// Of the model group.
    pub(super) group: SourceSpan,
    /// True if the file itself says which version it is.
    pub(super) has_version: bool,
    /// The tool servers it names.
    pub(super) servers: Vec<ServerCall>,
    /// Of what its file says of reviews.
    review: Option<SourceSpan>,
    /// Of what its file says of suspensions.
    suspend: Option<SourceSpan>,
}

impl AgentDraft {
    /// The policy of the reviews of its outputs, and its place in the file.
    pub(super) fn review(&self) -> Option<(SourceSpan, &ReviewPolicy)> {
        let commands = self.plan.commands.as_ref();
        self.review.zip(commands?.review.as_ref())
    }

    /// The policy for the data that its steps wait for, and its place in the file.
    pub(super) fn suspension(&self) -> Option<(SourceSpan, &SuspendPolicy)> {
        let commands = self.plan.commands.as_ref();
        self.suspend.zip(commands?.suspend.as_ref())
    }

    /// Returns `true` if the model is asked how sure it is.
    pub(super) fn declares_confidence(&self) -> bool {
        schema::declares(&self.plan.output.to_value(), "ktsu_confidence")
    }
}

const DEFAULT_TURNS: u32 = 10;

/// Reads a file; nothing when it is too broken to be used by a step.
pub(super) fn read(reader: &mut KitReader<'_>, root: &YamlNode) -> Option<AgentDraft> {
    env_isolation::check(reader, root, env_isolation::AGENT);
    let fields = reader.shaped(root, &AGENT)?;
    let name = reader.name(&fields);
    let version = reader.own_version(&fields, "the agent");
    let group = group(reader, &fields);
    let max_turns = max_turns(reader, &fields);
    let (params, schema) = match params(reader, &fields) {
        Some((params, schema)) => (Some(params), Some(schema)),
        None => (None, None),
    };
    let prompt = fields.read("prompt", |node| prompt::read(reader, node, params.as_ref()));
    if max_turns == 1
        && let Some(place) = prompt.as_ref().and_then(|prompt| prompt.reflect)
    {
        let words = "the one turn of this agent leaves no room for tools before it reflects";
        let fault = Fault::new(FaultCode::ReflectOneTurn, place, words).warning();
        reader.fault(fault.hint("raise max_turns, unless the first draft is meant to be final"));
    }
    let servers = fields.read("servers", |node| tools::read(reader, node, params.as_ref()));
    let output = output(reader, &fields);
    let commands = fields.read("commands", |node| commands(reader, node));
    let mut servers = servers.unwrap_or_default();
    let tools = commands.as_ref().map(command_tools).unwrap_or_default();
    if let Some(node) = fields.get("commands").filter(|_| !tools.is_empty()) {
        servers.push(ServerCall::of_commands(node.place, &tools));
    }
    let declared = |name: &str| member(fields.get("commands"), name).map(|node| node.place);
    let (review, suspend) = (declared("review"), declared("suspend"));
    let has_version = fields.key("version").is_some();
    let (group, group_place) = group?;
    let prompt = prompt?;
    Some(AgentDraft {
        plan: AgentFile {
            commands,
            group,
            max_turns,
            name: name?.0,
            output: output?,
            params: schema,
            prompt: Prompt {
                reflect: prompt.reflect_text,
                system: prompt.system,
                user: prompt.user,
            },
            servers: Vec::new(),
            version: version?,
        },
        params,
        group: group_place,
        has_version,
        servers,
        review,
        suspend,
    })
}

fn group(reader: &mut KitReader<'_>, fields: &Fields<'_>) -> Option<(String, SourceSpan)> {
    let node = fields.get("model")?;
    let group = reader.string(node, "model")?;
    if group.trim().is_empty() {
        return reader.bad_value(node, "model must be the name of a model group");
    }
    Some((group.to_owned(), node.place))
}

/// `commands:`. What is declared with a fault is declared all the same, so that steps that rely on it are
/// not at fault, too.
fn commands(reader: &mut KitReader<'_>, node: &YamlNode) -> Option<AgentCommands> {
    if let YamlValue::List(_) | YamlValue::Text(_) = &node.data {
        let words = format!("commands must be a map, got {}", node.kind());
        let fault = Fault::new(FaultCode::WrongType, node.place, words);
        let hint = "commands: {review: true}, or {emit: [claim.verified], invoke: [verify]}";
        return reader.reject(fault.hint(hint));
    }
    let fields = reader.shaped(node, &COMMANDS)?;
    let mut names = |key: &str| {
        let node = fields.get(key)?;
        let what = format!("an entry of {key}");
        let list = reader.list(node, key)?.iter();
        let list = list.map(|one| match reader.string(one, &what)? {
            text if text.trim().is_empty() => reader.bad_value(one, format!("{what} is empty")),
            text => Some(text.to_owned()),
        });
        list.collect::<Option<Vec<String>>>()
    };
    let invoke = names("invoke").unwrap_or_default();
    let topics = fields.get("emit");
    let emit = match topics {
        Some(_) => names("emit")?,
        None => Vec::new(),
    };
    let review = match (fields.get("review"), fields.key("review")) {
        (Some(node), _) => review::read(reader, node).unwrap_or_else(|| Some(review::by_default())),
        (None, Some(place)) => return review::left_empty(reader, place, "review"),
        (None, None) => None,
    };
    let suspend = match (fields.get("suspend"), fields.key("suspend")) {
        (Some(node), _) => {
            suspend::read(reader, node).unwrap_or_else(|| Some(suspend::by_default()))
        }
        (None, Some(place)) => return review::left_empty(reader, place, "suspend"),
        (None, None) => None,
    };
    let commands = AgentCommands {
        emit,
        invoke,
        review,
        suspend,
    };
    let Some(topics) = topics else {
        return Some(commands);
    };
    match TopicPattern::of_list(commands.emit.iter().map(String::as_str)) {
        Ok(_) => Some(commands),
        Err(error) => {
            let fault = Fault::new(FaultCode::BadValue, topics.place, error.to_string());
            reader.reject(fault.hint("emit: [claim.verified, claim.*]"))
        }
    }
}

/// The tools for what an agent declares that it commands.
pub(super) fn command_tools(declared: &AgentCommands) -> Vec<&'static str> {
    let emit = (!declared.emit.is_empty()).then_some("emit");
    let runs = (!declared.invoke.is_empty()).then_some(["invoke", "fanout"]);
    let review = declared.review.as_ref().map(|_| "review");
    let suspend = declared.suspend.as_ref().map(|_| "suspend");
    let runs = runs.into_iter().flatten();
    let first = emit.into_iter().chain(runs);
    first.chain(review).chain(suspend).collect()
}

/// None and 0 are the default.
fn max_turns(reader: &mut KitReader<'_>, fields: &Fields<'_>) -> u32 {
    let given = fields.read("max_turns", |node| {
        reader.integer(node, "max_turns", 0, 1_000)
    });
    let given = given.and_then(|given| u32::try_from(given).ok());
    given.filter(|turns| *turns > 0).unwrap_or(DEFAULT_TURNS)
}

fn params(reader: &mut KitReader<'_>, fields: &Fields<'_>) -> Option<(Params, CanonicalJson)> {
    let node = fields.get("params")?;
    let fields = reader.shaped(node, &PARAMS)?;
    let node = fields.get("schema")?;
    let secrets = secrets(reader, node);
    secret_flow::check_whole(reader, node);
    optional_params(reader, node);
    let json = reader.params_schema(node)?;
    let schema = ParamsSchema::compile(&json).ok()?;
    let places = members(member(Some(node), "properties")).iter();
    let params = Params {
        schema,
        secrets,
        places: places
            .map(|(key, _)| (key.text.clone(), key.place))
            .collect(),
    };
    Some((params, json))
}

/// The params marked as secrets. Their values come from variables alone, so none has a default.
fn secrets(reader: &mut KitReader<'_>, schema: &YamlNode) -> Vec<String> {
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
            let fault =
                Fault::new(FaultCode::LiteralSecret, default.place, words).hiding(default.place);
            reader.fault(fault.hint("a secret comes from a variable of the workflow"));
        }
        unjudged(reader, property);
        secrets.push(key.text.clone());
    }
    secrets
}

/// The value of a secret is nowhere when params are checked, so a schema can say nothing of it.
fn unjudged(reader: &mut KitReader<'_>, property: &YamlNode) {
    const SAID: [&str; 6] = [
        "$comment",
        "default",
        "description",
        "secret",
        "title",
        "type",
    ];
    for (key, node) in members(Some(property)) {
        let text = matches!(&node.data, YamlValue::Text(kind) if kind == "string");
        if SAID.contains(&key.text.as_str()) && (key.text != "type" || text) {
            continue;
        }
        let words = format!("{} marks a secret that does not exist", key.text);
        let fault = Fault::new(FaultCode::MisplacedKey, key.place, words);
        reader.fault(fault.hint("a secret param is {type: string, secret: true}"));
    }
}

fn output(reader: &mut KitReader<'_>, fields: &Fields<'_>) -> Option<CanonicalJson> {
    let node = fields.get("output")?;
    let fields = reader.shaped(node, &OUTPUT)?;
    let node = fields.get("schema")?;
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
        return reader.reject(fault.hint("schema: {type: object, properties: {…}}"));
    }
    Some(schema)
}
