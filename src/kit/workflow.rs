//! Reads and checks one workflow file.

use std::collections::BTreeMap;

use ktsu_ledger::event::plan::{
    AuthScheme, InvokeAuth, OutputPlan, Policy, StepWork, Unpriced, Variable, Visibility, Webhooks,
    WorkflowPlan,
};
use ktsu_projections::life::reserved::is_reserved;

use super::dependencies;
use super::files::WORKFLOW_SUFFIX;
use super::read::{Fields, KitReader, NameUsage, rounded, secret};
use super::schemas::optional_params;
use super::secret_flow;
use super::shape::{PARAMS, workflow as shape};
use super::step::{self, StepDraft};
use ktsu_config::fault::{Fault, FaultCode};
use ktsu_config::variables::declared;
use ktsu_config::yaml::{SourceSpan, YamlNode, YamlValue};

/// A workflow file as read; its children are not resolved yet.
pub(super) struct WorkflowDraft {
    /// Without its steps: their plans are in `steps`.
    pub(super) plan: WorkflowPlan,
    pub(super) steps: Vec<StepDraft>,
    /// Model groups that the policy names.
    pub(super) groups: Vec<(String, SourceSpan)>,
    /// The place at which each variable is declared.
    pub(super) variables: BTreeMap<String, SourceSpan>,
}

/// Reads a file; nothing when it is too broken to be used by others.
pub(super) fn read(reader: &mut KitReader<'_>, root: &YamlNode) -> Option<WorkflowDraft> {
    let fields = reader.shaped(root, &shape::WORKFLOW)?;
    kind(reader, &fields);
    let name = name(reader, &fields);
    let version = fields.read("version", |node| reader.version(node));
    let visibilities = [
        ("root", Visibility::Root),
        ("sub-workflow", Visibility::SubWorkflow),
    ];
    let visibility = fields.get("visibility");
    let visibility = visibility
        .and_then(|node| reader.keyword(node, "visibility", &visibilities))
        .unwrap_or(Visibility::Root);
    let known = [
        ("execute", Webhooks::Execute),
        ("suppress", Webhooks::Suppress),
    ];
    let webhooks = fields.read("webhooks", |node| reader.keyword(node, "webhooks", &known));
    let declared = variables(reader, &fields, visibility);
    let places = declared
        .iter()
        .map(|(one, place)| (one.name.clone(), *place));
    let places = places.collect();
    let env: Vec<Variable> = declared.into_iter().map(|(one, _)| one).collect();
    let invoke = fields.read("invoke", |node| invoke(reader, node));
    let mut mentions = std::mem::take(&mut reader.mentions);
    let params = fields.read("params", |node| {
        let params = reader.shaped(node, &PARAMS)?;
        let schema = params.get("schema")?;
        optional_params(reader, schema);
        secret_flow::check(reader, schema, visibility);
        reader.params_schema(schema)
    });
    let mut groups = Vec::new();
    let policy = fields.read("model_policy", |node| policy(reader, node, &mut groups));
    let (policy, cache) = policy.unwrap_or_default();
    let output = fields.read("output", |node| output(reader, node));
    let output_mentions = std::mem::take(&mut reader.mentions);
    let mut steps = pipeline(reader, &fields);
    let works = steps.iter_mut().map(|step| &mut step.plan.work);
    for work in works {
        if let StepWork::Agent(agent) = work {
            agent.cache = cache;
        }
    }
    for step in &steps {
        mentions.extend(step.mentions.iter().cloned());
        mentions.extend(step.in_summary.iter().cloned());
    }
    mentions.extend(output_mentions.iter().cloned());
    dependencies::check_variables(reader, &mentions, &env, visibility);
    dependencies::check_params(reader, &mentions, params.as_ref(), "this workflow");
    dependencies::check_ids(reader, &steps);
    let ids = dependencies::ids(&fields);
    dependencies::check_summaries(reader, &steps, &ids);
    dependencies::resolve_edges(reader, &mut steps, &ids);
    // They have become edges, and a kit may have many steps.
    for step in &mut steps {
        (step.mentions, step.depends_on) = (Vec::new(), Vec::new());
        step.in_summary = Vec::new();
    }
    dependencies::check_output(reader, &output_mentions, &steps, &ids);
    let plan = WorkflowPlan {
        env,
        invoke,
        name: name?,
        output,
        params,
        policy,
        steps: Vec::new(),
        version: version?,
        visibility,
        webhooks: webhooks.unwrap_or(Webhooks::Suppress),
    };
    Some(WorkflowDraft {
        plan,
        steps,
        groups,
        variables: places,
    })
}

fn kind(reader: &mut KitReader<'_>, fields: &Fields<'_>) {
    let Some(node) = fields.get("kind") else {
        return;
    };
    if !matches!(&node.data, YamlValue::Text(kind) if kind == "workflow") {
        let fault = Fault::new(FaultCode::WrongKind, node.place, "kind must be workflow");
        reader.fault(fault);
    }
}

fn name(reader: &mut KitReader<'_>, fields: &Fields<'_>) -> Option<String> {
    let (name, place) = reader.name(fields)?;
    let file = reader
        .file
        .file_name()
        .map(|file| file.to_string_lossy().into_owned());
    let stem = file
        .as_deref()
        .and_then(|file| file.strip_suffix(WORKFLOW_SUFFIX));
    if stem.is_some_and(|stem| stem != name) {
        let words = format!("the name {name:?} is not the name of the file");
        let hint = format!("name: {}", stem.unwrap_or_default());
        reader.fault(Fault::new(FaultCode::NameMismatch, place, words).hint(hint));
    }
    Some(name)
}

fn variables(
    reader: &mut KitReader<'_>,
    fields: &Fields<'_>,
    visibility: Visibility,
) -> Vec<(Variable, SourceSpan)> {
    let Some(node) = fields.get("env") else {
        return Vec::new();
    };
    if visibility == Visibility::SubWorkflow {
        let place = fields.key("env").unwrap_or(node.place);
        let fault = Fault::new(
            FaultCode::EnvInSubWorkflow,
            place,
            "a sub-workflow has no variables",
        );
        reader.fault(fault.hint("hand the value down as a param"));
    }
    declared(reader, node)
}

fn invoke(reader: &mut KitReader<'_>, node: &YamlNode) -> Option<InvokeAuth> {
    let fields = reader.shaped(node, &shape::INVOKE)?;
    let auth = fields.get("auth")?;
    let fields = reader.secret_map(auth, &shape::AUTH)?;
    let header = fields.read("header", |node| reader.header(node));
    let schemes = [("bearer", AuthScheme::Bearer), ("raw", AuthScheme::Raw)];
    let scheme = fields.read("scheme", |node| reader.keyword(node, "scheme", &schemes));
    let node = fields.get("secret")?;
    let secret = secret(reader, node, NameUsage::Secret)?;
    Some(InvokeAuth {
        header: header.unwrap_or_else(|| "Authorization".to_owned()),
        scheme: scheme.unwrap_or(AuthScheme::Bearer),
        secret,
    })
}

/// The policy, and whether agent steps repeat replies: that is recorded with each of them.
fn policy(
    reader: &mut KitReader<'_>,
    node: &YamlNode,
    groups: &mut Vec<(String, SourceSpan)>,
) -> Option<(Policy, bool)> {
    let fields = reader.shaped(node, &shape::POLICY)?;
    let cache = fields.read("cache", |node| reader.flag(node, "cache"));
    let cost = fields.read("cost_budget_usd", |node| {
        reader.number(node, "cost_budget_usd", 0.0, 1_000_000.0)
    });
    let force = fields.read("force_group", |node| {
        let group = reader.string(node, "force_group")?;
        groups.push((group.to_owned(), node.place));
        Some(group)
    });
    let timeout = fields.read("timeout_s", |node| reader.seconds(node, "timeout_s"));
    let unpriced = fields.read("unpriced", |node| {
        let words = [("allow", Unpriced::Allow), ("refuse", Unpriced::Refuse)];
        reader.keyword(node, "unpriced", &words)
    });
    let mut group_map = BTreeMap::new();
    if let Some(node) = fields.get("group_map") {
        for (key, node) in reader.members(node, "group_map") {
            let group = reader.string(node, "a group");
            groups.extend(group.map(|group| (group.to_owned(), node.place)));
            group_map.extend(group.map(|group| (key.text.clone(), group.to_owned())));
        }
    }
    let policy = Policy {
        cost_budget_micro_usd: cost.map(|usd| rounded(usd * 1_000_000.0)),
        force_group: force.map(str::to_owned),
        group_map,
        timeout_ms: timeout,
        unpriced: unpriced.unwrap_or_default(),
    };
    Some((policy, cache.unwrap_or_default()))
}

fn output(reader: &mut KitReader<'_>, node: &YamlNode) -> Option<OutputPlan> {
    let fields = reader.shaped(node, &shape::OUTPUT)?;
    if let Some(place) = fields.key("from") {
        let words = match fields.key("map") {
            Some(_) => "output has both map and from",
            None => "output.from does not exist",
        };
        let hint = "use map: {name: \"{{ step.ID.path }}\"}";
        reader.fault(Fault::new(FaultCode::OutputFrom, place, words).hint(hint));
    }
    let map = fields.read("map", |node| {
        reader.open_map(node, "output.map")?;
        unreserved(reader, node);
        reader.template(node, NameUsage::Output)
    });
    let schema = fields.read("schema", |node| reader.schema(node));
    Some(OutputPlan { map, schema })
}

/// Reserved fields are what agents say to the orchestrator: a workflow's own output has none, and
/// nobody would check one (seed 000, invariant 21).
fn unreserved(reader: &mut KitReader<'_>, map: &YamlNode) {
    let YamlValue::Map(members) = &map.data else {
        return;
    };
    for (key, _) in members.iter().filter(|(key, _)| is_reserved(&key.text)) {
        let words = format!("{:?} cannot be a field of the output", key.text);
        let fault = Fault::new(FaultCode::ReservedName, key.place, words);
        reader.fault(fault.hint("names of your own do not begin with ktsu_"));
    }
}

fn pipeline(reader: &mut KitReader<'_>, fields: &Fields<'_>) -> Vec<StepDraft> {
    let mut steps = Vec::new();
    let list = fields.get("pipeline");
    for node in list
        .and_then(|node| reader.list(node, "pipeline"))
        .unwrap_or_default()
    {
        steps.extend(step::read(reader, node));
        reader.mentions.clear();
    }
    steps
}
