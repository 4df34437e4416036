//! Acceptance cases as data, grouped by the seeds and decisions they come from.
//!
//! These are the cases that the pure core can decide: templates, conditions, transforms, graphs,
//! params, and, as whole runs with a simulated runtime, reserved fields, the air-lock and fan-outs.
//! Cases about HTTP, providers, approvals and files are tested in their modules.

use std::collections::BTreeMap;

use jmespath::Rcvar;
use ktsu_ledger::CanonicalJson;
use ktsu_ledger::event::ClaimedMetrics;
use ktsu_ledger::event::plan::{Op, TransformPlan};
use serde_json::{Value, json};

use super::airlock::Schema;
use super::driven_tests::Driven;
use super::expression::{Expression, Root, from_value, truthy};
use super::graph;
use super::params::{ParamsSchema, resolve};
use super::plans_tests::{self, agent, run_of};
use super::rules::DecisionRules;
use super::template::Template;
use super::transform::CompiledTransform;

#[test]
fn the_cases_of_the_specification_hold() {
    let ran = run_file(include_str!("../../tests/cases/ktsu-cases.json"));
    assert_eq!(ran, 15);
}

#[test]
fn our_own_cases_hold() {
    let ran = run_file(include_str!("../../tests/cases/own.json"));
    assert!(ran >= 40, "{ran}");
}

fn run_file(text: &str) -> usize {
    let cases: Vec<Value> = serde_json::from_str(text).unwrap();
    let mut ran = 0;
    for case in &cases {
        let (input, expect) = (&case["input"], &case["expect"]);
        let got = match case["kind"].as_str().unwrap() {
            "template" => template(input),
            "condition" => condition(input),
            "transform" => transform(input),
            "dag" => dag(input),
            "airlock" => airlock(input),
            "params" => params(input),
            "reserved" => reserved(input),
            "fanout" => fan_out(input),
            _ => continue,
        };
        ran += 1;
        let name = &case["name"];
        if let Some(part) = expect["error_contains"].as_str() {
            let error = got.get("error").and_then(Value::as_str);
            let error = error.unwrap_or_else(|| panic!("{name}: no error but {got}"));
            assert!(error.contains(part), "{name}: {error}");
        }
        for key in [
            "value",
            "run",
            "result",
            "layers",
            "valid",
            "step",
            "skip_reason",
            "output",
            "metrics",
        ] {
            if let Some(wanted) = expect.get(key) {
                let found = got.get(key).unwrap_or(&Value::Null);
                assert!(is_like(wanted, found), "{name}: {key} of {got}");
            }
        }
    }
    ran
}

/// Returns `true` if a value is the wanted one: members that are not wanted do not matter, and a
/// text between stars is part of another.
fn is_like(wanted: &Value, found: &Value) -> bool {
    match (wanted, found) {
        (Value::Object(wanted), Value::Object(found)) => wanted
            .iter()
            .all(|(name, wanted)| found.get(name).is_some_and(|found| is_like(wanted, found))),
        (Value::Array(wanted), Value::Array(found)) => {
            let alike = wanted
                .iter()
                .zip(found)
                .all(|(one, other)| is_like(one, other));
            wanted.len() == found.len() && alike
        }
        (Value::String(wanted), Value::String(found)) => {
            let part = wanted
                .strip_prefix('*')
                .and_then(|rest| rest.strip_suffix('*'));
            part.map_or(wanted == found, |part| found.contains(part))
        }
        _ => wanted == found,
    }
}

fn names(context: &Value) -> BTreeMap<Root, Rcvar> {
    let mut names = BTreeMap::new();
    for (space, value) in context.as_object().into_iter().flatten() {
        match space.as_str() {
            "params" => drop(names.insert(Root::Params, from_value(value))),
            "item" => drop(names.insert(Root::Item, from_value(value))),
            "item_index" => drop(names.insert(Root::ItemIndex, from_value(value))),
            _ => {
                for (name, value) in value.as_object().unwrap() {
                    let root = match space.as_str() {
                        "env" => Root::Env(name.clone()),
                        _ => Root::Step(name.clone()),
                    };
                    names.insert(root, from_value(value));
                }
            }
        }
    }
    names
}

fn failed(error: impl std::fmt::Display) -> Value {
    json!({"error": error.to_string()})
}

/// T1, T2, T5.
fn template(input: &Value) -> Value {
    let template = match Template::from_value(&input["template"]) {
        Ok(template) => template,
        Err(error) => return failed(error),
    };
    match template.render(&names(&input["context"]), &|_| false, DecisionRules::NEWEST) {
        Ok(rendered) => json!({"value": rendered.value}),
        Err(error) => failed(error),
    }
}

/// T3: what fails at run time is a skip.
fn condition(input: &Value) -> Value {
    match Expression::parse(input["expr"].as_str().unwrap()) {
        Ok(expression) => {
            let value = expression.evaluate(&names(&input["context"]));
            json!({"run": value.is_ok_and(|value| truthy(&value))})
        }
        Err(error) => failed(error),
    }
}

/// S8.
fn transform(input: &Value) -> Value {
    let steps = json!({"step": input["steps"]});
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let ops = input["ops"].as_array().unwrap().iter().map(|op| {
        let (name, arg) = op.as_object().unwrap().iter().next().unwrap();
        match name.as_str() {
            "map" => Op::Map {
                expr: text(&arg["expr"]),
            },
            "filter" => Op::Filter {
                expr: text(&arg["expr"]),
            },
            "sort" => Op::Sort {
                field: text(&arg["field"]),
                descending: arg["order"] == "desc",
            },
            "deduplicate" => Op::Deduplicate {
                field: text(&arg["field"]),
            },
            "merge" => Op::Merge {
                from: arg.as_array().unwrap().iter().map(text).collect(),
            },
            "flatten" => Op::Flatten,
            other => panic!("unknown op {other}"),
        }
    });
    let inputs = input["inputs"].as_array().unwrap().iter().map(text);
    let plan = TransformPlan {
        inputs: inputs.collect(),
        ops: ops.collect(),
    };
    let transform = match CompiledTransform::compile(&plan) {
        Ok(transform) => transform,
        Err(errors) => return failed(&errors[0].1),
    };
    let names = names(&steps);
    let run = transform
        .inputs(&names)
        .and_then(|inputs| transform.run(&inputs, &names));
    run.unwrap_or_else(failed)
}

/// T4.
fn dag(input: &Value) -> Value {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let steps: Vec<_> = input["steps"]
        .as_array()
        .unwrap()
        .iter()
        .map(|step| {
            let needs = step["depends_on"].as_array();
            (
                text(&step["id"]),
                needs.into_iter().flatten().map(text).collect(),
            )
        })
        .collect();
    match graph::layers(&steps) {
        Ok(layers) => json!({"layers": layers}),
        Err(error) => failed(error),
    }
}

fn told(violations: &[super::airlock::SchemaViolation]) -> Value {
    let words: Vec<_> = violations
        .iter()
        .map(|one| format!("{} {}", one.pointer, one.message))
        .collect();
    json!({"valid": violations.is_empty(), "error": words.join("; ")})
}

/// E5, R5: by the schema alone, and at the end of an agent step.
fn airlock(input: &Value) -> Value {
    let schema = match Schema::compile_output(&CanonicalJson::from_value(&input["schema"]).unwrap())
    {
        Ok(schema) => schema,
        Err(error) => return failed(error),
    };
    let told = told(&crate::airlock::check_output(
        &schema,
        &input["output"],
        DecisionRules::NEWEST,
    ));
    let mut step = agent("a", json!([]), "plain", json!({}));
    step["schema"] = input["schema"].clone();
    let mut run = run_of(json!([step]), json!({}));
    run.finishes("a", input["output"].clone());
    let valid = run.step("a")["status"] == "complete";
    assert_eq!(told["valid"], valid, "{input}");
    run.holds_together();
    told
}

fn ended(run: &Driven, step: &str) -> Value {
    run.holds_together();
    let step = run.step(step);
    json!({"step": step["status"], "run": run.envelope()["status"], "output": step["output"],
        "skip_reason": step["skip_reason"], "error": step["error"]["message"],
        "metrics": step["metrics"]})
}

/// R1.
fn reserved(input: &Value) -> Value {
    let mut more = json!({});
    if let Some(threshold) = input["confidence_threshold"].as_f64() {
        more["confidence_threshold_millionths"] = json!((threshold * 1e6).round() as u32);
    }
    let mut run = run_of(json!([agent("a", json!([]), "plain", more)]), json!({}));
    run.finishes("a", input["agent_output"].clone());
    ended(&run, "a")
}

/// R4.
fn fan_out(input: &Value) -> Value {
    let step = plans_tests::fan_out("f", json!([]), input["for_each"].clone());
    let mut run = run_of(json!([step]), json!({"items": input["items"]}));
    for (item, outcome) in input["outcomes"].as_array().unwrap().iter().enumerate() {
        let metrics = &input["metrics_per_item"];
        let count = |name: &str| metrics[name].as_u64().unwrap_or_default();
        let used = ClaimedMetrics {
            llm_calls: count("llm_calls"),
            tokens_in: count("tokens_in"),
            tokens_out: count("tokens_out"),
            ..ClaimedMetrics::default()
        };
        let outcome = match outcome["error"].as_str() {
            Some(words) => json!({"error": {"code": "agent_failed", "message": words}}),
            None => outcome.clone(),
        };
        run.completes_with(&format!("f.{item}"), outcome, used);
    }
    ended(&run, "f")
}

/// K4.
fn params(input: &Value) -> Value {
    let schema =
        ParamsSchema::compile(&CanonicalJson::from_value(&input["schema"]).unwrap()).unwrap();
    match resolve(Some(&schema), input["body"].clone(), DecisionRules::NEWEST) {
        Ok(value) => json!({"value": value}),
        Err(violations) => told(&violations),
    }
}
