//! One step of a pipeline: exactly one of the four primitives, and the keys that belong to it.

use std::collections::{BTreeMap, BTreeSet};

use ktsu_ledger::CanonicalJson;
use ktsu_ledger::event::plan::{
    AgentPlan, ChildPlan, FanOut, InvokePlan, StepPlan, StepWork, Webhooks,
};
use serde_json::Value;

use super::narrowing::{self, StepCommands};
use super::read::{
    Fields, KitReader, Mention, NameUsage, is_reserved_step_id, member, members, rounded,
};
use super::reference::{AGENT_FILES, FileReference, WORKFLOW_FILES};
use super::shape::workflow::{self as shape, PRIMITIVES};
use super::{resume_step, schemas, suspend, text, transform, webhook};
use ktsu_config::fault::{Fault, FaultCode};
use ktsu_config::yaml::{SourceSpan, YamlNode, YamlValue};
use ktsu_workflow::expression::Root;
use ktsu_workflow::template::Template;

/// A step as read: its edges, and the plans of its children, are not resolved yet.
pub(super) struct StepDraft {
    pub(super) plan: StepPlan,
    /// Of the id.
    pub(super) place: SourceSpan,
    pub(super) depends_on: Vec<(String, SourceSpan)>,
    pub(super) mentions: Vec<Mention>,
    /// The names in its summary, which are no dependencies.
    pub(super) in_summary: Vec<Mention>,
    pub(super) child: Option<ChildDraft>,
    /// The workflows that its agent may invoke, by the names it has for them.
    pub(super) invoked: BTreeMap<String, ChildDraft>,
    pub(super) agent: Option<Box<AgentCall>>,
}

/// The part of an agent step that is about its agent.
pub(super) struct AgentCall {
    /// The file, version suffix included.
    pub(super) name: String,
    pub(super) place: SourceSpan,
    /// The place of the given params, or of the name if none are given.
    pub(super) params_place: SourceSpan,
    pub(super) params: Vec<AgentArgument>,
    pub(super) group: Option<(String, SourceSpan)>,
    pub(super) threshold: Option<SourceSpan>,
    /// The place where it says what data it may wait for.
    pub(super) resume: Option<SourceSpan>,
    /// The limits that it sets to the commands of the agent.
    pub(super) commands: Option<StepCommands>,
}

/// A param that a step gives to its agent.
pub(super) struct AgentArgument {
    pub(super) name: String,
    pub(super) place: SourceSpan,
    /// Of the value.
    pub(super) value: SourceSpan,
    /// The environment variables its value mentions.
    pub(super) variables: BTreeSet<String>,
    /// True if it mentions anything else.
    pub(super) mixed: bool,
    /// The one variable that its value is, if it is nothing else.
    pub(super) alone: Option<String>,
    /// The value, if nothing in it is evaluated, and where it stands.
    pub(super) literal: Option<(Value, SourceSpan)>,
}

/// The part of a workflow step that is about its child.
pub(super) struct ChildDraft {
    pub(super) path: String,
    pub(super) place: SourceSpan,
    /// The place of the given params, or of the path if none are given.
    pub(super) params_place: SourceSpan,
    pub(super) params: Vec<(String, SourceSpan)>,
    pub(super) webhooks: SourceSpan,
}

impl AgentCall {
    pub(super) fn reference(&self) -> FileReference<'_> {
        FileReference {
            name: &self.name,
            place: self.place,
            kind: &AGENT_FILES,
        }
    }
}

impl ChildDraft {
    pub(super) fn reference(&self) -> FileReference<'_> {
        FileReference {
            name: &self.path,
            place: self.place,
            kind: &WORKFLOW_FILES,
        }
    }
}

/// Reads a step; nothing if it is too broken to go on with.
pub(super) fn read(reader: &mut KitReader<'_>, node: &YamlNode) -> Option<StepDraft> {
    let fields = reader.shaped(node, &shape::STEP)?;
    let id_node = fields.get("id");
    let id = id_node.and_then(|node| id(reader, node));
    let name = id.clone().unwrap_or_else(|| "(no id)".to_owned());
    let place = id_node.map_or(fields.place, |node| node.place);
    let depends_on = depends_on(reader, &fields);
    let condition = fields.read("condition", |node| {
        reader.expression(node, "condition", NameUsage::Condition)
    });
    let schema = fields.read("output", |node| {
        let output = reader.shaped(node, &shape::STEP_OUTPUT)?;
        let schema = output.get("schema")?;
        if fields.key("agent").is_some() {
            schemas::reserved_fields(reader, schema);
            let kind = member(Some(schema), "type");
            if let Some(kind) = kind.filter(|kind| !text::may_be_object(kind)) {
                let words =
                    "the output of an agent is an object, and the schema must let it be one";
                reader.fault(Fault::new(FaultCode::BadSchema, kind.place, words));
            }
        }
        reader.schema(schema)
    });
    let primitive = primitive(reader, &fields, &name, place)?;
    misplaced(reader, &fields, primitive);
    let mut child = None;
    let mut call = None;
    let mut invoked = BTreeMap::new();
    let body = fields.get(primitive)?;
    let work = match primitive {
        "agent" => {
            read_agent(reader, &fields, body, (&mut call, &mut invoked)).map(StepWork::Agent)
        }
        "transform" => transform::read(reader, body).map(StepWork::Transform),
        "webhook" => webhook::read(reader, &fields, body).map(StepWork::Webhook),
        _ => read_child(reader, &fields, body, &mut child).map(StepWork::Workflow),
    };
    let mentions = std::mem::take(&mut reader.mentions);
    let summary = fields.read("summary", |node| {
        reader.template(node, NameUsage::Summary)?;
        reader.string(node, "summary").map(str::to_owned)
    });
    let in_summary = std::mem::take(&mut reader.mentions);
    Some(StepDraft {
        plan: StepPlan {
            condition,
            id: id?,
            needs: Vec::new(),
            schema,
            summary,
            work: work?,
        },
        place,
        depends_on,
        mentions,
        in_summary,
        child,
        invoked,
        agent: call.map(Box::new),
    })
}

fn id(reader: &mut KitReader<'_>, node: &YamlNode) -> Option<String> {
    let id = reader.string(node, "id")?;
    let first = id.chars().next();
    let fits = first.is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && id.len() <= 64
        && id
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    if !fits {
        let words = format!("{id:?} is not a step id");
        let hint = "a letter or _, then up to 63 letters, digits, _ and -";
        return reader.reject(Fault::new(FaultCode::BadId, node.place, words).hint(hint));
    }
    if is_reserved_step_id(id) || SUB_RESOURCES.contains(&id) {
        let words = format!("{id:?} is a reserved name");
        let hint = format!("call it {id}_step, for instance");
        return reader.reject(Fault::new(FaultCode::ReservedId, node.place, words).hint(hint));
    }
    Some(id.to_owned())
}

/// Names of resources below a run that came later than the others: recorded definitions may have steps
/// of these names.
const SUB_RESOURCES: [&str; 4] = ["review", "state", "suspend", "world"];

fn depends_on(reader: &mut KitReader<'_>, fields: &Fields<'_>) -> Vec<(String, SourceSpan)> {
    let mut ids = Vec::new();
    let list = fields.read("depends_on", |node| reader.list(node, "depends_on"));
    for node in list.unwrap_or_default() {
        let id = reader.string(node, "an entry of depends_on");
        ids.extend(id.map(|id| (id.to_owned(), node.place)));
    }
    ids
}

/// The one primitive of a step.
fn primitive(
    reader: &mut KitReader<'_>,
    fields: &Fields<'_>,
    name: &str,
    place: SourceSpan,
) -> Option<&'static str> {
    let found: Vec<&str> = PRIMITIVES
        .iter()
        .copied()
        .filter(|key| fields.key(key).is_some())
        .collect();
    // A key without a value counts as absent, beside one that has one.
    let full = found
        .iter()
        .copied()
        .filter(|key| fields.get(key).is_some());
    let full: Vec<&str> = full.collect();
    let found = if full.is_empty() { found } else { full };
    match found.as_slice() {
        [] => {
            let words = format!("step {name:?} does nothing");
            let hint = "give it exactly one of agent, transform, webhook, workflow";
            reader.reject(Fault::new(FaultCode::NoPrimitive, place, words).hint(hint))
        }
        [one] => {
            reader.required(fields, one, &format!("step {name:?}"))?;
            PRIMITIVES.iter().copied().find(|key| key == one)
        }
        [first, second, ..] => {
            let words = format!("step {name:?} has both {first} and {second}");
            let at = fields.key(second).unwrap_or(place);
            let hint = "make two steps of it";
            reader.reject(Fault::new(FaultCode::TwoPrimitives, at, words).hint(hint))
        }
    }
}

fn misplaced(reader: &mut KitReader<'_>, fields: &Fields<'_>, primitive: &str) {
    for key in shape::STEP.keys {
        if let Some(place) = fields.key(key.name)
            && !key.with.is_empty()
            && !key.with.contains(&primitive)
        {
            let words = format!("{} does not go with {primitive}", key.name);
            let hint = format!("it belongs to {} steps", key.with.join(" and "));
            reader.fault(Fault::new(FaultCode::MisplacedKey, place, words).hint(hint));
        }
    }
}

fn read_agent(
    reader: &mut KitReader<'_>,
    fields: &Fields<'_>,
    body: &YamlNode,
    (call, invoked): (&mut Option<AgentCall>, &mut BTreeMap<String, ChildDraft>),
) -> Option<AgentPlan> {
    let name = reader.string(body, "agent")?;
    let model = fields.read("model", |node| reader.shaped(node, &shape::MODEL));
    let (mut group, mut max_tokens) = (None, 1024);
    let mut group_place = body.place;
    if let Some(model) = model {
        let node = model.get("group");
        group_place = node.map_or(group_place, |node| node.place);
        group = node
            .and_then(|node| reader.string(node, "model.group"))
            .map(str::to_owned);
        let node = model.get("max_tokens");
        let given = node.and_then(|node| reader.integer(node, "model.max_tokens", 1, 10_000_000));
        max_tokens = given
            .and_then(|given| u32::try_from(given).ok())
            .unwrap_or(max_tokens);
    }
    let threshold = fields
        .read("confidence_threshold", |node| {
            reader.number(node, "confidence_threshold", 0.0, 1.0)
        })
        .and_then(|given| u32::try_from(rounded(given * 1_000_000.0)).ok())
        .filter(|given| *given > 0);
    let for_each = fields.read("for_each", |node| read_fan_out(reader, node));
    let may_invoke = fields.get("may_invoke");
    let may_invoke = may_invoke.and_then(|node| {
        reader.open_map(node, "may_invoke")?;
        Some(read_may_invoke(reader, node, invoked))
    });
    let resume = fields.read("resume", |node| suspend::read_resume(reader, node));
    let on_resume = resume_step::read(reader, fields);
    if let (Some(place), true) = (fields.key("resume"), for_each.is_some()) {
        let words = "resume does not go with for_each: items wait for no data";
        let hint = "suspend in a step of its own";
        reader.fault(Fault::new(FaultCode::MisplacedKey, place, words).hint(hint));
    }
    let given = fields.get("params");
    let tree = given.and_then(|node| params(reader, node, "params", NameUsage::Value));
    *call = Some(AgentCall {
        name: name.to_owned(),
        place: body.place,
        params_place: given.map_or(body.place, |node| node.place),
        params: given.map(given_params).unwrap_or_default(),
        group: group.clone().map(|group| (group, group_place)),
        resume: fields.key("resume"),
        commands: fields.read("commands", |node| narrowing::read(reader, node)),
        threshold: threshold
            .and(fields.get("confidence_threshold"))
            .map(|node| node.place),
    });
    Some(AgentPlan {
        agent: name.to_owned(),
        cache: false,
        file: String::new(),
        confidence_threshold_millionths: threshold,
        for_each,
        group,
        max_tokens,
        on_resume,
        may_invoke: may_invoke.unwrap_or_default(),
        params: tree,
        resume,
    })
}

/// `may_invoke:`: a path, or a map around one, for each name.
fn read_may_invoke(
    reader: &mut KitReader<'_>,
    node: &YamlNode,
    drafts: &mut BTreeMap<String, ChildDraft>,
) -> BTreeMap<String, InvokePlan> {
    let mut plans = BTreeMap::new();
    for (key, node) in members(Some(node)) {
        let name = &key.text;
        let first = name.chars().next();
        let fits = first.is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
            && name.len() <= 64
            && name
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
        if !fits {
            let words = format!("{name:?} is not listed in may_invoke");
            let hint = "a letter or _, then up to 63 letters, digits, _ and -";
            reader.fault(Fault::new(FaultCode::BadId, key.place, words).hint(hint));
            continue;
        }
        let (mut concurrency, mut max_items) = (4, 100);
        let (mut webhooks, mut webhooks_place) = (Webhooks::Suppress, node.place);
        let mut path = node;
        if matches!(node.data, YamlValue::Map(_)) {
            let Some(fields) = reader.shaped(node, &shape::MAY_INVOKE) else {
                continue;
            };
            let mut whole = |key: &str, most: i64, otherwise: u32| {
                let given = fields.get(key);
                let given = given.and_then(|node| reader.integer(node, key, 1, most));
                given
                    .and_then(|given| u32::try_from(given).ok())
                    .unwrap_or(otherwise)
            };
            concurrency = whole("concurrency", 1_000, concurrency);
            max_items = whole("max_items", 10_000, max_items);
            if let Some(node) = fields.get("webhooks") {
                let known = [
                    ("execute", Webhooks::Execute),
                    ("suppress", Webhooks::Suppress),
                ];
                webhooks_place = node.place;
                webhooks = reader.keyword(node, "webhooks", &known).unwrap_or(webhooks);
            }
            let Some(workflow) = reader.required(&fields, "workflow", "the entry of may_invoke")
            else {
                continue;
            };
            path = workflow;
        }
        let Some(file) = reader.string(path, "workflow").map(str::to_owned) else {
            continue;
        };
        let draft = ChildDraft {
            path: file.clone(),
            place: path.place,
            params_place: path.place,
            params: Vec::new(),
            webhooks: webhooks_place,
        };
        drafts.insert(name.clone(), draft);
        let child = ChildPlan {
            params: None,
            webhooks,
            workflow: file,
        };
        plans.insert(
            name.clone(),
            InvokePlan {
                child,
                concurrency,
                max_items,
            },
        );
    }
    plans
}

fn given_params(node: &YamlNode) -> Vec<AgentArgument> {
    let given = members(Some(node)).iter();
    let given = given.map(|(key, node)| {
        let value = node.to_value();
        let template = Template::from_value(&value).ok();
        let roots = || template.iter().flat_map(|one| one.roots());
        let variables = roots().filter_map(|root| match root {
            Root::Env(name) => Some(name.clone()),
            Root::Params
            | Root::Step(_)
            | Root::Item
            | Root::ItemIndex
            | Root::Resume
            | Root::Name(_) => None,
        });
        AgentArgument {
            name: key.text.clone(),
            place: key.place,
            value: node.place,
            variables: variables.collect(),
            mixed: roots().any(|root| !matches!(root, Root::Env(_))),
            alone: template.as_ref().and_then(only_variable),
            literal: template
                .as_ref()
                .filter(|template| template.is_literal())
                .map(|_| (value, node.place)),
        }
    });
    given.collect()
}

/// The variable of a template that is one and nothing else.
fn only_variable(template: &Template) -> Option<String> {
    let mut expressions = template.expressions();
    let (one, None) = (expressions.next()?, expressions.next()) else {
        return None;
    };
    match one.as_path()? {
        (Root::Env(name), pointer) if pointer.is_empty() => Some(name),
        (
            Root::Env(_)
            | Root::Params
            | Root::Step(_)
            | Root::Item
            | Root::ItemIndex
            | Root::Resume
            | Root::Name(_),
            _,
        ) => None,
    }
}

fn read_fan_out(reader: &mut KitReader<'_>, node: &YamlNode) -> Option<FanOut> {
    let fields = reader.shaped(node, &shape::FOR_EACH)?;
    let from = fields.read("from", |node| {
        reader.expression(node, "for_each.from", NameUsage::ForEach)
    });
    let mut whole = |key: &str, least: i64| {
        let node = fields.get(key)?;
        reader.integer(node, &format!("for_each.{key}"), least, 1_000_000)
    };
    let concurrency = whole("concurrency", 0).unwrap_or(0);
    let max_items = whole("max_items", 0);
    let max_failures = whole("max_failures", -1).unwrap_or(0);
    Some(FanOut {
        concurrency: u32::try_from(concurrency).unwrap_or(0),
        from: from?,
        max_failures,
        max_items: max_items.and_then(|most| u32::try_from(most).ok()),
    })
}

/// A map of templates.
fn params(
    reader: &mut KitReader<'_>,
    node: &YamlNode,
    what: &str,
    usage: NameUsage,
) -> Option<CanonicalJson> {
    reader.open_map(node, what)?;
    reader.template(node, usage)
}

fn read_child(
    reader: &mut KitReader<'_>,
    fields: &Fields<'_>,
    body: &YamlNode,
    child: &mut Option<ChildDraft>,
) -> Option<ChildPlan> {
    let path = reader.string(body, "workflow")?;
    if let (Some(_), Some(place)) = (fields.key("params"), fields.key("input")) {
        let fault = Fault::new(
            FaultCode::MisplacedKey,
            place,
            "both params and input are given",
        );
        reader.fault(fault.hint("input is another name of params: keep one"));
    }
    let given = fields.get("params").or_else(|| fields.get("input"));
    let tree = given.and_then(|node| params(reader, node, "params", NameUsage::Child));
    let known = [
        ("execute", Webhooks::Execute),
        ("suppress", Webhooks::Suppress),
    ];
    let node = fields.get("webhooks");
    let webhooks = node.and_then(|node| reader.keyword(node, "webhooks", &known));
    *child = Some(ChildDraft {
        path: path.to_owned(),
        place: body.place,
        params_place: given.map_or(body.place, |node| node.place),
        params: given.map(names).unwrap_or_default(),
        webhooks: node.map_or(body.place, |node| node.place),
    });
    Some(ChildPlan {
        params: tree,
        webhooks: webhooks.unwrap_or(Webhooks::Suppress),
        workflow: path.to_owned(),
    })
}

fn names(node: &YamlNode) -> Vec<(String, SourceSpan)> {
    let names = members(Some(node)).iter();
    names
        .map(|(key, _)| (key.text.clone(), key.place))
        .collect()
}
