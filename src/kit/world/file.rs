//! Reads and checks one world file.

use std::collections::BTreeMap;

use ktsu_config::fault::{Fault, FaultCode};
use ktsu_config::variables::declared;
use ktsu_config::yaml::{YamlNode, YamlValue};
use ktsu_ledger::CanonicalJson;
use ktsu_ledger::event::plan::world::{
    EntryPlan, ObjectType, RelationType, ResponderPlan, WorldBudget, WorldPlan,
};
use ktsu_ledger::event::plan::{Variable, Visibility};
use ktsu_workflow::world::{MAX_RESPONDERS, MAX_WORLD_TYPES, STEP_OBJECT};

use super::draft::{ResponderDraft, TypeKind, TypeMention, WorldDraft};
use super::entries::{self, EntryList};
use super::params::takes_goal;
use super::responder;
use super::rule::{RuleReader, identifier};
use crate::dependencies;
use crate::files::WORLD_SUFFIX;
use crate::read::{Fields, KitReader, Mention, rounded};
use crate::schemas::optional_params;
use crate::secret_flow;
use crate::shape::{PARAMS, world as shape};

/// The parts of a file that are gathered.
#[derive(Default)]
struct Gathered {
    mentions: Vec<Mention>,
    types: Vec<TypeMention>,
    drafts: Vec<ResponderDraft>,
}

/// Reads a file; nothing when it is too broken to be used by others.
pub(crate) fn read(reader: &mut KitReader<'_>, root: &YamlNode) -> Option<WorldDraft> {
    let fields = reader.shaped(root, &shape::WORLD)?;
    kind(reader, &fields);
    let name = name(reader, &fields);
    let version = fields.read("version", |node| reader.version(node));
    let budget = fields.read("budget", |node| budget(reader, node));
    let env = fields.get("env").map(|node| declared(reader, node));
    let env = env.unwrap_or_default();
    let params = fields.read("params", |node| {
        let params = reader.shaped(node, &PARAMS)?;
        let schema = params.get("schema")?;
        optional_params(reader, schema);
        secret_flow::check(reader, schema, Visibility::Root);
        reader.params_schema(schema)
    });
    let place = fields.get("params").map(|node| node.place);
    let declared_params = params.zip(place);
    let schema = declared_params.as_ref();
    let params = takes_goal(schema.map(|(schema, _)| schema.to_value()));
    let mut gathered = Gathered::default();
    let mut places = BTreeMap::new();
    let objects = fields
        .get("objects")
        .map(|node| objects(reader, node, &mut places));
    let relations = fields
        .get("relations")
        .map(|node| relations(reader, node, &mut places, &mut gathered));
    let goal = fields
        .get("goal")
        .map(|node| goal(reader, node, &mut gathered));
    let edges = responders(reader, &fields, "edges", &mut gathered);
    let responders = responders(reader, &fields, "responders", &mut gathered);
    let variables: Vec<Variable> = env.iter().map(|(one, _)| one.clone()).collect();
    dependencies::check_variables(reader, &gathered.mentions, &variables, Visibility::Root);
    dependencies::check_params(reader, &gathered.mentions, params.as_ref(), "this world");
    let plan = WorldPlan {
        budget: budget.unwrap_or_default(),
        edges,
        goal,
        name: name?,
        objects: objects.unwrap_or_default(),
        relations: relations.unwrap_or_default(),
        responders,
        version: version?,
    };
    Some(WorldDraft {
        plan,
        env,
        params,
        declared_params,
        responders: gathered.drafts,
        types: gathered.types,
        declared: places,
    })
}

fn kind(reader: &mut KitReader<'_>, fields: &Fields<'_>) {
    let Some(node) = fields.get("kind") else {
        return;
    };
    if !matches!(&node.data, YamlValue::Text(kind) if kind == "world") {
        reader.fault(Fault::new(
            FaultCode::WrongKind,
            node.place,
            "kind must be world",
        ));
    }
}

fn name(reader: &mut KitReader<'_>, fields: &Fields<'_>) -> Option<String> {
    let (name, place) = reader.name(fields)?;
    let file = reader.file.file_name();
    let file = file.map(|file| file.to_string_lossy().into_owned());
    let stem = file
        .as_deref()
        .and_then(|file| file.strip_suffix(WORLD_SUFFIX));
    if stem.is_some_and(|stem| stem != name) {
        let words = format!("the name {name:?} is not the name of the file");
        let hint = format!("name: {}", stem.unwrap_or_default());
        reader.fault(Fault::new(FaultCode::NameMismatch, place, words).hint(hint));
    }
    Some(name)
}

fn budget(reader: &mut KitReader<'_>, node: &YamlNode) -> Option<WorldBudget> {
    let fields = reader.shaped(node, &shape::BUDGET)?;
    let usual = WorldBudget::default();
    let mut whole = |key: &str, least: i64, most: i64| {
        let node = fields.get(key)?;
        u64::try_from(reader.integer(node, key, least, most)?).ok()
    };
    let max_events = whole("max_events", 1, 1_000_000_000);
    let depth = whole("max_recursion_depth", 0, 1_000_000);
    let cost = fields.read("max_llm_cost_usd", |node| {
        reader.number(node, "max_llm_cost_usd", 0.0, 1_000_000.0)
    });
    let wall = fields.read("max_wall_seconds", |node| {
        reader.seconds(node, "max_wall_seconds")
    });
    // What is declared and not zero allows at least the least amount that is counted.
    let cost = cost.map(|usd| rounded(usd * 1_000_000.0).max(u64::from(usd > 0.0)));
    Some(WorldBudget {
        max_events: max_events.unwrap_or(usual.max_events),
        limits_cost: cost.is_some(),
        max_llm_cost_micro_usd: cost.unwrap_or(usual.max_llm_cost_micro_usd),
        max_recursion_depth: depth
            .and_then(|depth| u32::try_from(depth).ok())
            .unwrap_or(usual.max_recursion_depth),
        max_wall_ms: wall.unwrap_or(usual.max_wall_ms),
    })
}

type Declared = BTreeMap<(TypeKind, String), ktsu_config::yaml::SourceSpan>;

/// The types of a map, with their nodes. None has the name of what the engine makes.
fn types<'n>(
    reader: &mut KitReader<'_>,
    node: &'n YamlNode,
    kind: TypeKind,
    places: &mut Declared,
) -> Vec<(String, &'n YamlNode)> {
    let members = reader.members(node, kind.words());
    if members.len() > MAX_WORLD_TYPES {
        let words = format!("{} types are more than {MAX_WORLD_TYPES}", members.len());
        reader.bad_value::<()>(node, words);
    }
    let mut types = Vec::new();
    for (key, node) in members {
        let text = YamlNode {
            place: key.place,
            data: YamlValue::Text(key.text.clone()),
        };
        let Some(name) = identifier(reader, &text, "the name of a type") else {
            continue;
        };
        if name == STEP_OBJECT {
            let words = format!("{name:?} is the type of objects that represent steps");
            reader.fault(Fault::new(FaultCode::ReservedName, key.place, words));
            continue;
        }
        places.insert((kind, name.clone()), key.place);
        types.push((name, node));
    }
    types
}

fn objects(
    reader: &mut KitReader<'_>,
    node: &YamlNode,
    places: &mut Declared,
) -> BTreeMap<String, ObjectType> {
    let types = types(reader, node, TypeKind::Object, places).into_iter();
    let read = types.map(|(name, node)| {
        let Some(fields) = reader.shaped(node, &shape::OBJECT_TYPE) else {
            return (name, ObjectType::default());
        };
        let label = fields.get("label");
        let label = label.and_then(|node| reader.string(node, "label"));
        let label = label.map(str::to_owned);
        let schema = schema(reader, &fields);
        (name, ObjectType { label, schema })
    });
    read.collect()
}

fn schema(reader: &mut KitReader<'_>, fields: &Fields<'_>) -> Option<CanonicalJson> {
    let node = fields.get("schema")?;
    let schema = reader.plain_schema(node)?;
    let kind = crate::read::member(Some(node), "type");
    if let Some(kind) = kind.filter(|kind| !crate::text::may_be_object(kind)) {
        let words = "data is an object, and its schema must let it be one";
        reader.fault(Fault::new(FaultCode::BadSchema, kind.place, words));
    }
    Some(schema)
}

fn relations(
    reader: &mut KitReader<'_>,
    node: &YamlNode,
    places: &mut Declared,
    gathered: &mut Gathered,
) -> BTreeMap<String, RelationType> {
    let types = types(reader, node, TypeKind::Relation, places);
    let mut relations = BTreeMap::new();
    for (name, node) in types {
        let mut relation = RelationType::default();
        if let Some(fields) = reader.shaped(node, &shape::RELATION_TYPE) {
            relation.from = ends(reader, &fields, "from", gathered);
            relation.to = ends(reader, &fields, "to", gathered);
            relation.schema = schema(reader, &fields);
        }
        relations.insert(name, relation);
    }
    relations
}

fn ends(
    reader: &mut KitReader<'_>,
    fields: &Fields<'_>,
    key: &str,
    gathered: &mut Gathered,
) -> Vec<String> {
    let Some(node) = fields.get(key) else {
        return Vec::new();
    };
    let nodes = match &node.data {
        YamlValue::List(items) => items.as_slice(),
        _ => std::slice::from_ref(node),
    };
    let mut rule = RuleReader::new(reader);
    let names = nodes
        .iter()
        .filter_map(|node| rule.mention_type(node, TypeKind::Object))
        .collect();
    gathered.types.append(&mut rule.types);
    names
}

fn goal(reader: &mut KitReader<'_>, node: &YamlNode, gathered: &mut Gathered) -> Vec<EntryPlan> {
    let mut rule = RuleReader::new(reader);
    rule.know(["goal"]);
    let entries = entries::read(&mut rule, node, EntryList::Goal);
    gathered.mentions.append(&mut rule.mentions);
    gathered.types.append(&mut rule.types);
    entries
}

fn responders(
    reader: &mut KitReader<'_>,
    fields: &Fields<'_>,
    key: &str,
    gathered: &mut Gathered,
) -> Vec<ResponderPlan> {
    let Some(node) = fields.get(key) else {
        return Vec::new();
    };
    let nodes = reader.list(node, key).unwrap_or_default();
    if nodes.len() > MAX_RESPONDERS {
        let words = format!("{} responders are more than {MAX_RESPONDERS}", nodes.len());
        reader.bad_value::<()>(node, words);
    }
    let mut plans = Vec::new();
    for node in nodes {
        let mut rule = RuleReader::new(reader);
        let read = responder::read(&mut rule, node, key == "edges");
        gathered.mentions.append(&mut rule.mentions);
        gathered.types.append(&mut rule.types);
        if let Some((plan, draft)) = read {
            plans.push(plan);
            gathered.drafts.push(draft);
        }
    }
    plans
}
