//! Kits that work, of every kind there is here: nothing is found in their values.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use ktsu_config::fault::{Fault, FaultCode};
use ktsu_kit as kit;
use ktsu_ledger::event::plan::{AgentFile, Op, Plan, StepPlan, StepWork, WorkflowPlan};
use ktsu_ledger::{CanonicalJson, Frame};
use serde_json::{Value, json};

use super::kits;
use crate::golden::goldens;
use crate::support::scenarios;

/// What is said of values alone.
const OF_VALUES: [FaultCode; 5] = [
    FaultCode::NegatedPath,
    FaultCode::OutputMismatch,
    FaultCode::TypeMismatch,
    FaultCode::UndeclaredField,
    FaultCode::UnknownField,
];

/// What is found of values in a folder.
fn found(dir: &Path) -> Vec<Fault> {
    let faults = match kit::load(dir) {
        Ok(kit) => kit.warnings.faults,
        Err(faults) => faults.faults,
    };
    let of_values = faults.into_iter();
    of_values
        .filter(|fault| OF_VALUES.contains(&fault.code))
        .collect()
}

#[test]
fn nothing_is_found_in_the_values_of_kits_that_work() {
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("kits");
    let mut folders = 0;
    for entry in std::fs::read_dir(shipped).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(found(&path), [], "{}", path.display());
        folders += 1;
    }
    for original in kits::all() {
        let dir = written(&original.files);
        assert_eq!(found(dir.path()), [], "{}", original.name);
        folders += 1;
    }
    for scenario in scenarios::all() {
        let kit = scenario.kit();
        assert_eq!(found(kit.dir.path()), [], "{}", scenario.name);
        folders += 1;
    }
    for acting in scenarios::tools::all() {
        assert_eq!(found(acting.kit().dir.path()), []);
        folders += 1;
    }
    let dir = tempfile::tempdir().unwrap();
    let made = ktsu().args(["init", "."]).current_dir(dir.path()).output();
    assert!(made.unwrap().status.success());
    assert_eq!(found(dir.path()), []);
    assert!(folders > 40, "{folders}");
}

#[test]
fn nothing_is_found_in_the_values_of_recorded_definitions() {
    let mut definitions = BTreeMap::new();
    for (name, golden) in goldens() {
        let frames = golden.frames();
        for (definition, digest) in frames
            .iter()
            .filter_map(|frame: &Frame| frame.event.definition())
        {
            let plan: Plan = serde_json::from_value(definition.to_value()).unwrap();
            definitions.insert(digest.to_owned(), (name.clone(), plan));
        }
    }
    assert!(definitions.len() > 15, "{}", definitions.len());
    for (name, plan) in definitions.values() {
        let dir = written(&files(plan));
        let mut found = found(dir.path());
        if name.ends_with("-conditions") {
            // Its condition is there to fail: what is found is the truth.
            found.retain(|fault| !fault.message.starts_with("length needs"));
        }
        assert_eq!(found, [], "{name}");
        // Otherwise nothing would be found because nothing is read.
        let faults = match kit::load(dir.path()) {
            Ok(_) => continue,
            Err(faults) => faults,
        };
        let syntax = [
            FaultCode::YamlSyntax,
            FaultCode::UnknownKey,
            FaultCode::WrongType,
        ];
        let broken = faults
            .faults
            .iter()
            .find(|fault| syntax.contains(&fault.code));
        assert!(broken.is_none(), "{name}: {faults}");
    }
}

/// The program, as people call it.
pub(super) fn ktsu() -> Command {
    Command::new(env!("CARGO_BIN_EXE_ktsu"))
}

pub(super) fn written(files: &BTreeMap<String, String>) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = dir.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    dir
}

/// A definition as the files it could have been read from. JSON is YAML.
fn files(plan: &Plan) -> BTreeMap<String, String> {
    let workflows = plan.workflows.iter();
    let workflows = workflows.map(|(path, one)| (path.clone(), workflow(one).to_string()));
    let agents = plan
        .agents
        .iter()
        .filter(|(path, _)| !path.starts_with("ktsu/"));
    let agents = agents.map(|(path, one)| (path.clone(), agent(one).to_string()));
    workflows.chain(agents).collect()
}

fn tree(json: Option<&CanonicalJson>) -> Value {
    json.map_or(Value::Null, CanonicalJson::to_value)
}

fn workflow(plan: &WorkflowPlan) -> Value {
    let output = plan.output.as_ref();
    let output = output
        .map(|one| json!({"map": tree(one.map.as_ref()), "schema": tree(one.schema.as_ref())}));
    let params = plan
        .params
        .as_ref()
        .map(|one| json!({"schema": one.to_value()}));
    json!({
        "kind": "workflow",
        "name": plan.name,
        "version": plan.version,
        "visibility": plan.visibility,
        "webhooks": plan.webhooks,
        "env": plan.env.iter().map(|one| json!({"name": one.name, "secret": one.secret, "default": one.default})).collect::<Vec<_>>(),
        "params": params,
        "pipeline": plan.steps.iter().map(|one| step(plan, one)).collect::<Vec<_>>(),
        "output": output,
    })
}

fn step(workflow: &WorkflowPlan, plan: &StepPlan) -> Value {
    let needs = plan
        .needs
        .iter()
        .map(|need| &workflow.steps[*need as usize].id);
    let mut step = json!({
        "id": plan.id,
        "depends_on": needs.collect::<Vec<_>>(),
        "condition": plan.condition,
        "output": plan.schema.as_ref().map(|schema| json!({"schema": schema.to_value()})),
    });
    let work = match &plan.work {
        StepWork::Agent(one) => json!({
            "agent": one.file,
            "params": tree(one.params.as_ref()),
            "for_each": one.for_each.as_ref().map(|each| json!({"from": each.from})),
        }),
        StepWork::Transform(one) => json!({"transform": {
            "inputs": one.inputs,
            "ops": one.ops.iter().map(op).collect::<Vec<_>>(),
        }}),
        StepWork::Webhook(one) => json!({
            "on": one.on_approval.then_some("approval"),
            "webhook": {"url": one.url, "method": one.method, "body": tree(one.body.as_ref()), "secret": one.secret},
        }),
        StepWork::Workflow(one) => json!({
            "workflow": one.workflow,
            "webhooks": one.webhooks,
            "params": tree(one.params.as_ref()),
        }),
    };
    let members = step.as_object_mut().unwrap();
    members.extend(work.as_object().unwrap().clone());
    step
}

fn op(op: &Op) -> Value {
    match op {
        Op::Deduplicate { field } => json!({"deduplicate": {"field": field}}),
        Op::Filter { expr } => json!({"filter": {"expr": expr}}),
        Op::Flatten => json!({"flatten": {}}),
        Op::Map { expr } => json!({"map": {"expr": expr}}),
        Op::Merge { from } => json!({"merge": from}),
        Op::Sort { descending, field } => {
            json!({"sort": {"field": field, "order": if *descending { "desc" } else { "asc" }}})
        }
    }
}

fn agent(file: &AgentFile) -> Value {
    json!({
        "name": file.name,
        "version": file.version,
        "model": file.group,
        "params": file.params.as_ref().map(|one| json!({"schema": one.to_value()})),
        "prompt": {"system": file.prompt.system, "user": file.prompt.user, "reflect": file.prompt.reflect},
        "output": {"schema": file.output.to_value()},
    })
}
