//! The `transform:` of a step.

use ktsu_ledger::event::plan::{Op, TransformPlan};

use super::read::{KitReader, NameUsage, is_reserved_step_id};
use super::shape::{MapShape, workflow as shape};
use ktsu_config::fault::{Fault, FaultCode};
use ktsu_config::yaml::{YamlNode, YamlValue};
use ktsu_workflow::transform::OPS;

pub(super) fn read(reader: &mut KitReader<'_>, node: &YamlNode) -> Option<TransformPlan> {
    let fields = reader.shaped(node, &shape::TRANSFORM)?;
    let mut inputs = Vec::new();
    let mut ops = Vec::new();
    if let Some(list) = fields.read("inputs", |node| reader.list(node, "inputs")) {
        for node in list {
            inputs.extend(input(reader, node));
        }
    }
    if let Some(list) = fields.read("ops", |node| reader.list(node, "ops")) {
        for node in list {
            ops.extend(op(reader, node));
        }
    }
    Some(TransformPlan { inputs, ops })
}

/// `{from: X}` or just `X`.
fn input(reader: &mut KitReader<'_>, node: &YamlNode) -> Option<String> {
    match &node.data {
        YamlValue::Text(_) => source(reader, node, "an input"),
        _ => {
            let fields = reader.shaped(node, &shape::INPUT)?;
            let from = fields.get("from")?;
            source(reader, from, "from")
        }
    }
}

/// A step's output or a part of it: `ID`, `step.ID`, `step.ID.path`, each also inside `{{ }}`.
fn source(reader: &mut KitReader<'_>, node: &YamlNode, what: &str) -> Option<String> {
    let source = reader.expression(node, what, NameUsage::Transform)?;
    let id = is_step(&source);
    Some(if id { format!("step.{source}") } else { source })
}

/// Returns `true` if an input is the id of a step alone.
pub(super) fn is_step(source: &str) -> bool {
    let plain = source
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    plain && !is_reserved_step_id(source) && source != "null"
}

fn op(reader: &mut KitReader<'_>, node: &YamlNode) -> Option<Op> {
    reader.open_map(node, "an op")?;
    let YamlValue::Map(members) = &node.data else {
        return None;
    };
    let [(key, body)] = members.as_slice() else {
        let names: Vec<&str> = members.iter().map(|(key, _)| key.text.as_str()).collect();
        let words = format!(
            "an op has one key, this has {}: {}",
            names.len(),
            names.join(", ")
        );
        let place = members.get(1).map_or(node.place, |(key, _)| key.place);
        let fault = Fault::new(FaultCode::TwoOps, place, words);
        return reader.reject(fault.hint("give each op an entry of its own"));
    };
    match key.text.as_str() {
        "deduplicate" => {
            let fields = reader.shaped(body, &shape::DEDUPLICATE)?;
            let field = fields.get("field")?;
            let field = reader.element(field, "deduplicate.field")?;
            Some(Op::Deduplicate { field })
        }
        "filter" => expr(reader, body, &shape::FILTER).map(|expr| Op::Filter { expr }),
        "flatten" => {
            if !matches!(body.data, YamlValue::Null) {
                reader.shaped(body, &shape::FLATTEN)?;
            }
            Some(Op::Flatten)
        }
        "map" => expr(reader, body, &shape::MAP).map(|expr| Op::Map { expr }),
        "merge" => {
            let list = reader.list(body, "merge")?;
            let from = list
                .iter()
                .filter_map(|node| source(reader, node, "an entry of merge"));
            Some(Op::Merge {
                from: from.collect(),
            })
        }
        "sort" => sort(reader, body),
        unknown => {
            let words = format!("unknown op {unknown:?}");
            let fault = Fault::new(FaultCode::UnknownOp, key.place, words);
            let hint = format!("the ops are {}", OPS.join(", "));
            reader.reject(fault.suggest_or(unknown, OPS, hint))
        }
    }
}

fn expr(reader: &mut KitReader<'_>, body: &YamlNode, of: &MapShape) -> Option<String> {
    let fields = reader.shaped(body, of)?;
    let expr = fields.get("expr")?;
    reader.element(expr, &format!("{}.expr", of.what))
}

fn sort(reader: &mut KitReader<'_>, body: &YamlNode) -> Option<Op> {
    let fields = reader.shaped(body, &shape::SORT)?;
    let order = fields.get("order");
    let orders = [("asc", false), ("desc", true)];
    let descending = order.and_then(|node| reader.keyword(node, "sort.order", &orders));
    let field = fields.get("field")?;
    let field = reader.element(field, "sort.field")?;
    Some(Op::Sort {
        descending: descending.unwrap_or(false),
        field,
    })
}
