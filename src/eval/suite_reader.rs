//! Reads what a spec runs.

use std::collections::BTreeSet;

use ktsu_config::fault::{Fault, FaultCode};
use ktsu_config::read::{ConfigReader, Fields};
use ktsu_config::yaml::{YamlNode, YamlValue};
use ktsu_ledger::event::ReplicaAggregation;
use serde_json::{Map, Value};

use crate::answers::Answers;
use crate::check_reader::micro_usd;
use crate::field_reader;
use crate::results::shown;
use crate::shapes::{LIMITS, MAX_WEIGHT, SUBJECT};
use crate::suite::{
    Axis, EvalSubject, MAX_PARAMS, MAX_REPLICAS, MAX_SCENARIOS, Suite, SuiteLimits, label,
};
use crate::surroundings::SuiteServices;
use crate::surroundings_reader;

/// The prefix of the names of the matrix that are params.
const OF_PARAMS: &str = "params.";

/// The prefix of the names of the matrix that are model groups.
const OF_GROUPS: &str = "model.";

/// The suite that is run; none if the file only checks.
pub(crate) fn suite(reader: &mut ConfigReader<'_>, fields: &Fields<'_>) -> Option<Suite> {
    let matrix = fields.read("matrix", |node| matrix(reader, node));
    let replicas = fields.read("replicas", |node| {
        let replicas = reader.integer(node, "replicas", 1, MAX_REPLICAS.into())?;
        u32::try_from(replicas).ok()
    });
    let words = [("execute", true), ("suppress", false)];
    let effects = fields.read("effects", |node| reader.keyword(node, "effects", &words));
    let Some(node) = fields.get("subject") else {
        if let Some(place) = fields.key("matrix") {
            let words = "a matrix needs a subject";
            let fault = Fault::new(FaultCode::MissingKey, place, words);
            reader.fault(fault.hint("subject: {workflow: NAME, params: {…}}"));
        }
        return None;
    };
    let suite = Suite {
        subject: subject(reader, node)?,
        matrix: matrix.unwrap_or_default(),
        replicas: replicas.unwrap_or(1),
        aggregation: ReplicaAggregation::All,
        people: fields.read("people", |node| Answers::of_suite(reader, node)),
        executes_effects: effects.unwrap_or(false),
        limits: fields
            .read("limits", |node| limits(reader, node))
            .unwrap_or_default(),
        workspace: fields.read("workspace", |node| {
            surroundings_reader::workspace(reader, node)
        }),
        services: match fields.get("services") {
            Some(node) => surroundings_reader::services(reader, node),
            None => SuiteServices::default(),
        },
    };
    surroundings_reader::check(reader, fields, &suite);
    let is_run = matches!(suite.subject, EvalSubject::Run(_));
    if is_run && !suite.matrix.is_empty() {
        let place = fields.key("matrix").unwrap_or(fields.place);
        let words = "a recorded run has no matrix: its params are what they were";
        reader.fault(Fault::new(FaultCode::MisplacedKey, place, words));
    }
    if is_run && suite.replicas > 1 {
        let place = fields.key("replicas").unwrap_or(fields.place);
        let words = "a recorded run has no replicas: it ran once";
        reader.fault(Fault::new(FaultCode::MisplacedKey, place, words));
    }
    if suite.runs().is_none_or(|runs| runs > MAX_SCENARIOS) {
        let place = fields.key("matrix").or(fields.key("replicas"));
        let words = format!(
            "the combinations of the matrix and their replicas are more than {MAX_SCENARIOS} runs"
        );
        reader.fault(Fault::new(
            FaultCode::BadValue,
            place.unwrap_or(fields.place),
            words,
        ));
    }
    if suite.params_size() > MAX_PARAMS {
        let place = fields.key("matrix").unwrap_or(fields.place);
        let words = "the params of all scenarios have more than 64 MiB together";
        let fault = Fault::new(FaultCode::BadValue, place, words);
        reader.fault(fault.hint("fewer combinations, or smaller params"));
    }
    Some(suite)
}

fn limits(reader: &mut ConfigReader<'_>, node: &YamlNode) -> Option<SuiteLimits> {
    let fields = field_reader::shaped(reader, node, &LIMITS)?;
    if !LIMITS.any_of.iter().any(|key| fields.get(key).is_some()) {
        return field_reader::missing_one(reader, &fields, LIMITS.any_of, "limits");
    }
    let cost = fields.read("cost_usd", |node| {
        reader.number(node, "cost_usd", 0.0, MAX_WEIGHT)
    });
    Some(SuiteLimits {
        timeout_ms: fields.read("timeout", |node| reader.duration(node, "timeout")),
        cost_micro_usd: cost.map(micro_usd),
    })
}

fn subject(reader: &mut ConfigReader<'_>, node: &YamlNode) -> Option<EvalSubject> {
    let fields = field_reader::shaped(reader, node, &SUBJECT)?;
    let text = |reader: &mut ConfigReader<'_>, name: &str| {
        fields.read(name, |node| reader.string(node, name).map(str::to_owned))
    };
    let (run, goal) = (text(reader, "run"), text(reader, "goal"));
    let name = text(reader, "workflow");
    let mut params = match fields.read("params", |node| {
        field_reader::map_of(reader, node, "params")
    }) {
        Some(Value::Object(params)) => params,
        Some(_) | None => Map::new(),
    };
    if let Some(run) = run {
        let others = ["goal", "params", "workflow"];
        if let Some(place) = others.iter().find_map(|name| fields.key(name)) {
            let words = "the subject is a recorded run, or a workflow, and not both";
            reader.fault(Fault::new(FaultCode::MisplacedKey, place, words));
        }
        return Some(EvalSubject::Run(run));
    }
    if let Some(goal) = goal {
        params.insert("goal".to_owned(), Value::String(goal));
    }
    Some(EvalSubject::Workflow { name, params })
}

fn matrix(reader: &mut ConfigReader<'_>, node: &YamlNode) -> Option<Vec<(Axis, Vec<Value>)>> {
    let members = reader.members(node, "matrix");
    let mut matrix = Vec::new();
    for (key, node) in members {
        let Some(axis) = axis(&key.text) else {
            let words = format!("{:?} is neither a param nor a model group", key.text);
            let fault = Fault::new(FaultCode::BadValue, key.place, words);
            reader.fault(fault.hint("params.NAME: [one, two], or model.GROUP: [one, two]"));
            continue;
        };
        let values = match &node.data {
            YamlValue::List(items) if !items.is_empty() => items,
            _ => {
                let words = format!("{} needs a list of values", key.text);
                reader.fault(Fault::new(FaultCode::BadValue, node.place, words));
                continue;
            }
        };
        reader.report_nested_duplicates(node);
        let is_text = |node: &&YamlNode| matches!(node.data, YamlValue::Text(_));
        if matches!(axis, Axis::Group(_))
            && let Some(other) = values.iter().find(|node| !is_text(node))
        {
            let words = format!("{} needs names of model groups", key.text);
            reader.fault(Fault::new(FaultCode::WrongType, other.place, words));
            continue;
        }
        let values: Vec<Value> = values.iter().map(YamlNode::to_value).collect();
        let mut names = BTreeSet::new();
        if let Some(twice) = values.iter().find(|value| !names.insert(label(value))) {
            let words = format!("{} has the value {} twice", key.text, shown(twice));
            reader.fault(Fault::new(FaultCode::BadValue, node.place, words));
        }
        matrix.push((axis, values));
    }
    Some(matrix)
}

/// The axis that a key of the matrix names.
fn axis(key: &str) -> Option<Axis> {
    let of = |begin: &str| {
        let name = key.strip_prefix(begin)?;
        (!name.is_empty()).then(|| name.to_owned())
    };
    let param = of(OF_PARAMS).map(Axis::Param);
    param.or_else(|| of(OF_GROUPS).map(Axis::Group))
}
