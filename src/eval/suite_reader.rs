//! Reads what a spec runs.

use ktsu_config::fault::{Fault, FaultCode};
use ktsu_config::read::{ConfigReader, Fields};
use ktsu_config::yaml::{YamlNode, YamlValue};
use serde_json::{Map, Value};

use crate::check_reader;
use crate::shapes::SUBJECT;
use crate::suite::{EvalSubject, MAX_SCENARIOS, Suite};

/// What names of the matrix begin with that are params.
const OF_PARAMS: &str = "params.";

/// What is run; none if the file only checks.
pub(crate) fn suite(reader: &mut ConfigReader<'_>, fields: &Fields<'_>) -> Option<Suite> {
    let matrix = fields.read("matrix", |node| matrix(reader, node));
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
        executes_effects: effects.unwrap_or(false),
        not_supported: not_supported(reader, fields),
    };
    if matches!(suite.subject, EvalSubject::Run(_)) && !suite.matrix.is_empty() {
        let place = fields.key("matrix").unwrap_or(fields.place);
        let words = "a recorded run has no matrix: its params are what they were";
        reader.fault(Fault::new(FaultCode::MisplacedKey, place, words));
    }
    if suite.count().is_none_or(|count| count > MAX_SCENARIOS) {
        let place = fields.key("matrix").unwrap_or(fields.place);
        let words = format!("the matrix has more than {MAX_SCENARIOS} combinations");
        reader.fault(Fault::new(FaultCode::BadValue, place, words));
    }
    Some(suite)
}

/// The first key that is not supported yet.
fn not_supported(reader: &mut ConfigReader<'_>, fields: &Fields<'_>) -> Option<&'static str> {
    let replicas = fields.read("replicas", |node| {
        reader.integer(node, "replicas", 1, 1_000)
    });
    let is_given = |name: &&str| match *name {
        "replicas" => replicas.is_some_and(|replicas| replicas > 1),
        name => fields.key(name).is_some(),
    };
    ["replicas", "people", "limits"].into_iter().find(is_given)
}

fn subject(reader: &mut ConfigReader<'_>, node: &YamlNode) -> Option<EvalSubject> {
    let fields = check_reader::shaped(reader, node, &SUBJECT)?;
    let text = |reader: &mut ConfigReader<'_>, name: &str| {
        fields.read(name, |node| reader.string(node, name).map(str::to_owned))
    };
    let (run, goal) = (text(reader, "run"), text(reader, "goal"));
    let name = text(reader, "workflow");
    let mut params = match fields.read("params", |node| {
        check_reader::map_of(reader, node, "params")
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

fn matrix(reader: &mut ConfigReader<'_>, node: &YamlNode) -> Option<Vec<(String, Vec<Value>)>> {
    let members = reader.members(node, "matrix");
    let mut matrix = Vec::new();
    for (key, node) in members {
        let Some(name) = key
            .text
            .strip_prefix(OF_PARAMS)
            .filter(|name| !name.is_empty())
        else {
            let words = format!(
                "{:?} is not a param: this version varies params only",
                key.text
            );
            let fault = Fault::new(FaultCode::BadValue, key.place, words);
            reader.fault(fault.hint("params.NAME: [one, two]"));
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
        let values = values.iter().map(YamlNode::to_value).collect();
        matrix.push((name.to_owned(), values));
    }
    Some(matrix)
}
