//! Reads a spec, and reports every fault at its place.

use std::collections::BTreeSet;
use std::path::Path;

use ktsu_config::fault::{Fault, FaultCode, Faults, Severity};
use ktsu_config::read::{self, ConfigReader, Fields};
use ktsu_config::yaml::{SourceSpan, YamlNode, YamlValue};
use ktsu_ledger::CanonicalJson;
use ktsu_ledger::canonical::JsonError;
use ktsu_ledger::event::{PassEstimate, ReplicaAggregation, Score};
use ktsu_ledger::id::is_name;
use serde_json::{Value, json};

use crate::aggregate;
use crate::check_reader;
use crate::field_reader;
use crate::model_judge::check::{MAX_JUDGE_CALLS, MAX_SAMPLES};
use crate::pattern::MAX_PATTERNS;
use crate::shapes::{
    AGGREGATION, ESTIMATE, EVAL, FORBIDDEN, INVARIANT, MAX_WEIGHT, SCORING, UNUSED,
};
use crate::spec::{CheckKind, EvalSpec, Invariant, MAX_FILE, MAX_INVARIANTS};
use crate::suite::{MAX_CHECKS, MAX_REPLICAS, MAX_SCENARIOS, Suite};
use crate::suite_reader;
use crate::surroundings_reader;

/// The fault of values that no frame could hold.
const NESTED: &str = "the values of the checks are nested too deep";

impl EvalSpec {
    /// Reads a spec, and the warnings about it.
    ///
    /// # Errors
    /// Everything that is wrong with it, warnings included.
    pub fn parse(path: &Path, text: &str) -> Result<(Self, Vec<Fault>), Faults> {
        let mut faults = Faults::default();
        faults.sources.insert(path.to_owned(), text.to_owned());
        let read = parse(path, text, &mut faults);
        faults.sort();
        match read.filter(|_| !faults.has_errors()) {
            Some(spec) => Ok((spec, faults.faults)),
            None => Err(faults),
        }
    }
}

fn parse(path: &Path, text: &str, faults: &mut Faults) -> Option<EvalSpec> {
    if text.len() > MAX_FILE {
        let words = "the file is larger than 1 MiB";
        let fault = Fault::new(FaultCode::FileTooLarge, SourceSpan::default(), words);
        faults.add(fault.in_file(path));
        return None;
    }
    let node = read::tree(text, path, faults)?;
    let mut reader = ConfigReader::new(path, text);
    let spec = spec(&mut reader, &node);
    faults.faults.append(&mut reader.faults);
    spec
}

fn spec(reader: &mut ConfigReader<'_>, node: &YamlNode) -> Option<EvalSpec> {
    let fields = reader.filled(node, &EVAL, &UNUSED)?;
    warn_of_unused(reader, &fields);
    if let Some(place) = too_many_patterns(&fields) {
        let words = format!("the file has more than {MAX_PATTERNS} patterns");
        reader.fault(Fault::new(FaultCode::BadValue, place, words));
        return None;
    }
    let mut invariants = invariants(reader, &fields);
    forbidden(reader, &fields, &mut invariants);
    check_number(reader, &fields, &invariants);
    check_weights(reader, &fields, &invariants);
    let mut spec = EvalSpec {
        path: reader.file.to_owned(),
        invariants,
        pass_threshold: 1.0,
        suite: suite_reader::suite(reader, &fields),
        as_json: CanonicalJson::null(),
    };
    check_total(reader, &fields, &spec);
    check_calls(reader, &fields, &spec);
    surroundings_reader::check_uses(reader, &fields, &spec);
    if let Some(node) = fields.get("scoring") {
        scoring(reader, node, &mut spec);
    }
    match as_json(&spec) {
        Ok(written) => spec.as_json = written,
        Err(_) => reader.fault(Fault::new(FaultCode::BadValue, fields.place, NESTED)),
    }
    let is_good = |fault: &Fault| fault.severity == Severity::Warning;
    reader.faults.iter().all(is_good).then_some(spec)
}

/// The content of a spec, as an eval records it.
fn as_json(spec: &EvalSpec) -> Result<CanonicalJson, JsonError> {
    let checks = spec.invariants.iter().map(|one| {
        json!({"check": one.written, "gate": one.gate, "index": one.index, "name": one.name,
            "weight": Score::new(one.weight)})
    });
    let checks: Vec<Value> = checks.collect();
    let threshold = Score::new(spec.pass_threshold);
    CanonicalJson::from_value(&json!({"checks": checks, "pass_threshold": threshold}))
}

/// The pattern that is one too many, before any is compiled.
fn too_many_patterns(fields: &Fields<'_>) -> Option<SourceSpan> {
    let member = |node: &YamlNode, wanted: &str| match &node.data {
        YamlValue::Map(members) => {
            let mut members = members.iter();
            let found = members.find(|(key, _)| key.text == wanted);
            found.map(|(_, node)| node.clone())
        }
        _ => None,
    };
    let YamlValue::Map(invariants) = &fields.get("invariants")?.data else {
        return None;
    };
    let checks = invariants
        .iter()
        .filter_map(|(_, node)| member(node, "check"));
    let patterns = checks.filter_map(|check| member(&check, "pattern"));
    patterns.map(|node| node.place).nth(MAX_PATTERNS)
}

fn warn_of_unused(reader: &mut ConfigReader<'_>, fields: &Fields<'_>) {
    // What runs has services, and what only checks has none.
    let is_used = |name: &str| name == "services" && fields.get("subject").is_some();
    for name in UNUSED.into_iter().filter(|name| !is_used(name)) {
        if let Some(place) = fields.key(name) {
            let words = format!("{name} is not used by ktsu check");
            reader.fault(Fault::new(FaultCode::MisplacedKey, place, words).warning());
        }
    }
}

fn invariants(reader: &mut ConfigReader<'_>, fields: &Fields<'_>) -> Vec<Invariant> {
    let Some(node) = fields.get("invariants") else {
        return Vec::new();
    };
    let members = reader.members(node, "invariants");
    let members = members.iter().take(MAX_INVARIANTS + 1);
    let mut all = Vec::new();
    for (key, node) in members {
        if !is_name(&key.text) {
            let words = format!(
                "{:?} is not a name: letters, digits, '.', '_' and '-', at most 64",
                key.text
            );
            reader.fault(Fault::new(FaultCode::BadValue, key.place, words));
        }
        let before = reader.faults.len();
        match invariant(reader, &key.text, index(&all), node) {
            Some(invariant) => all.push(invariant),
            None if reader.faults.len() > before => {}
            None => {
                let words = "the invariant cannot be read";
                reader.bad_value::<()>(node, words);
            }
        }
    }
    all
}

fn invariant(
    reader: &mut ConfigReader<'_>,
    name: &str,
    index: u32,
    node: &YamlNode,
) -> Option<Invariant> {
    let fields = field_reader::shaped(reader, node, &INVARIANT)?;
    let description = fields.get("description");
    if description.is_none() {
        let words = format!("the invariant {name} has no description");
        let fault = Fault::new(FaultCode::MissingKey, node.place, words);
        reader.fault(fault.hint("description: what has to hold").warning());
    }
    let weight = fields.read("weight", |node| {
        reader.number(node, "weight", 0.0, MAX_WEIGHT)
    });
    let gate = fields.read("gate", |node| reader.flag(node, "gate"));
    let description = description.and_then(|node| match &node.data {
        YamlValue::Text(text) => Some(text.clone()),
        _ => None,
    });
    let check = check_reader::check(reader, fields.get("check")?)?;
    if gate == Some(true) && matches!(check, CheckKind::Judge(_)) {
        let place = fields.key("gate").unwrap_or(fields.place);
        let words = format!("the gate {name} is met only if the model gives a score of 1");
        reader.fault(Fault::new(FaultCode::BadValue, place, words).warning());
    }
    Some(Invariant {
        index,
        name: name.to_owned(),
        description,
        weight: weight.unwrap_or(1.0),
        gate: gate.unwrap_or(false),
        check,
        written: fields.get("check")?.to_value(),
    })
}

/// Adds what the file forbids.
fn forbidden(reader: &mut ConfigReader<'_>, fields: &Fields<'_>, all: &mut Vec<Invariant>) {
    let entries = fields.read("forbidden", |node| reader.list(node, "forbidden"));
    let mut taken: BTreeSet<String> = all.iter().map(|one| one.name.clone()).collect();
    let entries = entries.unwrap_or_default().iter().take(MAX_INVARIANTS + 1);
    for (at, node) in entries.enumerate() {
        let Some(fields) = field_reader::shaped(reader, node, &FORBIDDEN) else {
            continue;
        };
        let given = reader.name(&fields);
        let filter = fields.read("where", |node| check_reader::filter(reader, node));
        let name = match given {
            Some((name, place)) if taken.contains(&name) => {
                let words = format!("the name {name:?} is taken");
                reader.fault(Fault::new(FaultCode::DuplicateName, place, words));
                continue;
            }
            Some((name, _)) => name,
            None => format!("forbidden[{at}]"),
        };
        taken.insert(name.clone());
        if let Some(filter) = filter {
            all.push(Invariant {
                index: index(all),
                name,
                description: None,
                weight: 1.0,
                gate: true,
                check: CheckKind::Forbidden(filter),
                written: json!({"type": "forbidden", "where": fields.get("where").map(YamlNode::to_value)}),
            });
        }
    }
}

fn index(all: &[Invariant]) -> u32 {
    u32::try_from(all.len()).unwrap_or(u32::MAX)
}

/// Reports too many invariants, or none at all.
fn check_number(reader: &mut ConfigReader<'_>, fields: &Fields<'_>, all: &[Invariant]) {
    let place = fields.key("invariants").or(fields.key("forbidden"));
    let place = place.unwrap_or(fields.place);
    if all.len() > MAX_INVARIANTS {
        let words = format!("there are more than {MAX_INVARIANTS} invariants");
        reader.fault(Fault::new(FaultCode::BadValue, place, words));
    }
    let is_error = |fault: &Fault| fault.severity == Severity::Error;
    if all.is_empty() && !reader.faults.iter().any(is_error) {
        let words = "the file has no invariants and forbids nothing";
        let fault = Fault::new(FaultCode::MissingKey, place, words);
        reader.fault(fault.hint("invariants: {NAME: {description: …, check: {type: output}}}"));
    }
}

/// Reports weights that give no composite.
fn check_weights(reader: &mut ConfigReader<'_>, fields: &Fields<'_>, all: &[Invariant]) {
    let total = all.iter().fold(0.0, |sum, one| sum + one.weight);
    let is_error = |fault: &Fault| fault.severity == Severity::Error;
    if total > 0.0 || all.is_empty() || reader.faults.iter().any(is_error) {
        return;
    }
    let place = fields.key("invariants").unwrap_or(fields.place);
    let words = "the weights of all invariants are 0 in total";
    let fault = Fault::new(FaultCode::BadValue, place, words);
    reader.fault(fault.hint("weight: 1, for one of them"));
}

/// Reports a suite with more checks than are kept of one.
fn check_total(reader: &mut ConfigReader<'_>, fields: &Fields<'_>, spec: &EvalSpec) {
    let runs = spec.suite.as_ref().and_then(Suite::runs).unwrap_or(1);
    let total = runs.saturating_mul(spec.invariants.len());
    if total > MAX_CHECKS && runs <= MAX_SCENARIOS {
        let place = fields.key("matrix").or(fields.key("replicas"));
        let place = place.unwrap_or(fields.place);
        let words = format!("{runs} runs have more than {MAX_CHECKS} checks together");
        reader.fault(Fault::new(FaultCode::BadValue, place, words));
    }
}

/// Reports more questions to models than an eval asks.
fn check_calls(reader: &mut ConfigReader<'_>, fields: &Fields<'_>, spec: &EvalSpec) {
    let samples = spec.judges().map(|(_, check)| check.samples as usize);
    let of_run = samples.fold(0, usize::saturating_add);
    let runs = spec.suite.as_ref().and_then(Suite::runs).unwrap_or(1);
    let place = fields.key("invariants").unwrap_or(fields.place);
    let words = match runs.saturating_mul(of_run) {
        _ if of_run > MAX_SAMPLES => {
            format!("the checks ask models {of_run} times a run, and may {MAX_SAMPLES} times")
        }
        all if all > MAX_JUDGE_CALLS && runs <= MAX_SCENARIOS => {
            format!(
                "the checks of {runs} runs ask models {all} times, and may {MAX_JUDGE_CALLS} times"
            )
        }
        _ => return,
    };
    let fault = Fault::new(FaultCode::BadValue, place, words);
    reader.fault(fault.hint("samples: 1"));
}

fn scoring(reader: &mut ConfigReader<'_>, node: &YamlNode, spec: &mut EvalSpec) {
    let Some(fields) = field_reader::shaped(reader, node, &SCORING) else {
        return;
    };
    let threshold = fields.read("pass_threshold", |node| {
        reader.number(node, "pass_threshold", 0.0, 1.0)
    });
    spec.pass_threshold = threshold.unwrap_or(1.0);
    let aggregation = fields.read("replica_aggregation", |node| aggregation(reader, node));
    if let (Some(aggregation), Some(suite)) = (aggregation, &mut spec.suite) {
        suite.aggregation = aggregation;
        if !aggregate::is_possible(&suite.recorded(None)) {
            let place = fields.key("replica_aggregation").unwrap_or(fields.place);
            let words = format!(
                "there are fewer replicas than replica_aggregation needs: {}",
                suite.replicas
            );
            let fault = Fault::new(FaultCode::BadValue, place, words);
            reader.fault(fault.hint("replicas: 5"));
        }
    }
}

/// The aggregation of the verdicts of replicas.
fn aggregation(reader: &mut ConfigReader<'_>, node: &YamlNode) -> Option<ReplicaAggregation> {
    use ReplicaAggregation::{All, Any, AtLeast, Majority, Mean, PassAt, PassHat};
    if matches!(node.data, YamlValue::Text(_)) {
        let words = [
            ("all", All),
            ("any", Any),
            ("majority", Majority),
            ("mean", Mean),
        ];
        return reader.keyword(node, "replica_aggregation", &words);
    }
    let fields = field_reader::shaped(reader, node, &AGGREGATION)?;
    let keys = ["at_least", "pass_at", "pass_hat"];
    let key = field_reader::only_one(reader, &fields, &keys, "replica_aggregation")?;
    let node = reader.required(&fields, key, "replica_aggregation")?;
    match key {
        "at_least" => drawn(reader, node, key).map(AtLeast),
        "pass_at" => estimate(reader, node).map(PassAt),
        _ => estimate(reader, node).map(PassHat),
    }
}

fn estimate(reader: &mut ConfigReader<'_>, node: &YamlNode) -> Option<PassEstimate> {
    let fields = field_reader::shaped(reader, node, &ESTIMATE)?;
    let k = fields.read("k", |node| drawn(reader, node, "k"));
    let threshold = fields.read("threshold", |node| {
        reader.number(node, "threshold", 0.0, 1.0)
    });
    let threshold = Score::new(threshold?);
    Some(PassEstimate { k: k?, threshold })
}

fn drawn(reader: &mut ConfigReader<'_>, node: &YamlNode, name: &str) -> Option<u32> {
    let number = reader.integer(node, name, 1, MAX_REPLICAS.into())?;
    u32::try_from(number).ok()
}
