//! `with:`: what a responder looks up by id, type and field.

use std::collections::BTreeMap;

use ktsu_config::fault::{Fault, FaultCode};
use ktsu_config::yaml::{SourceSpan, YamlNode, YamlValue};
use ktsu_ledger::event::plan::world::{FindPlan, LookupPlan, MatchPlan, QueryPlan, WithoutPlan};
use ktsu_workflow::world::{MAX_CONDITIONS, MAX_LOOKUPS};

use super::draft::TypeKind;
use super::rule::RuleReader;
use crate::shape::world::{self as shape, FINDS};

/// The look-ups in file order, and where their names stand. Each name is known from the next on.
pub(super) fn read(
    rule: &mut RuleReader<'_, '_>,
    node: &YamlNode,
) -> (Vec<LookupPlan>, BTreeMap<String, SourceSpan>) {
    let members = rule.reader.members(node, "with");
    rule.limit(members.len(), MAX_LOOKUPS, node.place, "look-ups");
    let mut lookups = Vec::new();
    let mut places = BTreeMap::new();
    for (key, node) in members {
        let find = lookup(rule, node);
        rule.define(&key.text, key.place, "a look-up");
        places.insert(key.text.clone(), key.place);
        lookups.extend(find.map(|find| LookupPlan {
            find,
            name: key.text.clone(),
        }));
    }
    (lookups, places)
}

fn lookup(rule: &mut RuleReader<'_, '_>, node: &YamlNode) -> Option<FindPlan> {
    let fields = rule.reader.shaped(node, &shape::LOOKUP)?;
    let found = rule.one_of(&fields, &FINDS, "the look-up")?;
    rule.misplaced(&fields, &shape::LOOKUP, "look-up");
    let body = fields.get(found)?;
    if found == "object" {
        return rule.text(body, "the id of an object").map(FindPlan::Object);
    }
    let kind = rule.mention_type(body, TypeKind::Object);
    let conditions = fields.get("where").map(|node| conditions(rule, node));
    let without = fields.get("without").and_then(|node| without(rule, node));
    let query = QueryPlan {
        kind: kind?,
        fields: conditions.unwrap_or_default(),
        without,
    };
    Some(match found {
        "count" => FindPlan::Count(query),
        "first" => FindPlan::First(query),
        _ => FindPlan::Objects(query),
    })
}

fn without(rule: &mut RuleReader<'_, '_>, node: &YamlNode) -> Option<WithoutPlan> {
    let fields = rule.reader.shaped(node, &shape::WITHOUT)?;
    let kind = fields
        .get("objects")
        .and_then(|node| rule.mention_type(node, TypeKind::Object));
    // Here `item` is the object that is looked at.
    rule.know(["item"]);
    let conditions = fields.get("where").map(|node| conditions(rule, node));
    rule.forget("item");
    Some(WithoutPlan {
        kind: kind?,
        fields: conditions.unwrap_or_default(),
    })
}

fn conditions(rule: &mut RuleReader<'_, '_>, node: &YamlNode) -> BTreeMap<String, MatchPlan> {
    let members = rule.reader.members(node, "where");
    rule.limit(members.len(), MAX_CONDITIONS, node.place, "conditions");
    let mut conditions = BTreeMap::new();
    for (key, node) in members {
        let condition = condition(rule, node);
        conditions.extend(condition.map(|condition| (key.text.clone(), condition)));
    }
    conditions
}

fn condition(rule: &mut RuleReader<'_, '_>, node: &YamlNode) -> Option<MatchPlan> {
    match &node.data {
        YamlValue::Map(_) => {
            let fields = rule.reader.shaped(node, &shape::CONDITION)?;
            let values = fields.get("in")?;
            if !matches!(values.data, YamlValue::Text(_) | YamlValue::List(_)) {
                let words = format!("in must be a list or a template, got {}", values.kind());
                let fault = Fault::new(FaultCode::WrongType, values.place, words);
                rule.reader.fault(fault);
            }
            rule.tree(values).map(MatchPlan::In)
        }
        YamlValue::Null => rule.reader.bad_value(node, "null matches nothing"),
        YamlValue::Number(_) => {
            let most = shape::MAX_COMPARED;
            rule.reader.number(node, "the condition", -most, most)?;
            rule.tree(node).map(MatchPlan::Equals)
        }
        YamlValue::List(_) => {
            let words = "a field equals one value";
            let fault = Fault::new(FaultCode::WrongType, node.place, words);
            rule.reader
                .reject(fault.hint("{in: […]} for one of several"))
        }
        YamlValue::Bool(_) | YamlValue::Text(_) => rule.tree(node).map(MatchPlan::Equals),
    }
}
