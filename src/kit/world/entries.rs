//! The entries of `emit:`, `then:` and `goal:`: what they make, in order.

use ktsu_config::fault::{Fault, FaultCode};
use ktsu_config::yaml::YamlNode;
use ktsu_ledger::event::plan::world::{EntryPlan, IfExists, MakePlan};
use ktsu_workflow::world::{MAX_ENTRIES, MAX_ID_CHARS, STEP_ID_PREFIX, STEP_OBJECT};

use super::draft::TypeKind;
use super::rule::RuleReader;
use crate::read::Fields;
use crate::shape::world::{self as shape, MAKES};

/// The list that the entries are in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EntryList {
    /// `emit`
    Emit,
    /// `goal`
    Goal,
    /// `then`
    Then,
}

impl EntryList {
    fn word(self) -> &'static str {
        match self {
            Self::Emit => "emit",
            Self::Goal => "goal",
            Self::Then => "then",
        }
    }
}

/// The entries of a list; one that is broken is left out.
pub(super) fn read(
    rule: &mut RuleReader<'_, '_>,
    node: &YamlNode,
    list: EntryList,
) -> Vec<EntryPlan> {
    let nodes = rule.reader.list(node, list.word()).unwrap_or_default();
    rule.limit(nodes.len(), MAX_ENTRIES, node.place, "entries");
    let mut entries = Vec::new();
    for node in nodes {
        entries.extend(entry(rule, node, list));
    }
    entries
}

fn entry(rule: &mut RuleReader<'_, '_>, node: &YamlNode, list: EntryList) -> Option<EntryPlan> {
    let shape = match list {
        EntryList::Then => &shape::THEN_ENTRY,
        EntryList::Emit | EntryList::Goal => &shape::ENTRY,
    };
    let fields = rule.reader.shaped(node, shape)?;
    // Only an entry of `then` has one; elsewhere the key is unknown.
    let when = fields.get("when").filter(|_| list == EntryList::Then);
    let when = when.and_then(|node| rule.expression(node, "when"));
    let made = rule.one_of(&fields, &MAKES, "the entry");
    rule.misplaced(&fields, shape, "entry");
    let key = fields.get("key").and_then(|node| rule.text(node, "key"));
    let words = [("keep", IfExists::Keep), ("patch", IfExists::Patch)];
    let if_exists = fields.read("if_exists", |node| {
        rule.reader.keyword(node, "if_exists", &words)
    });
    let make = made.and_then(|made| make(rule, &fields, made));
    let as_name = fields.get("as").and_then(|node| {
        let name = rule.reader.string(node, "as")?.to_owned();
        rule.define(&name, node.place, "what an entry makes");
        Some(name)
    });
    Some(EntryPlan {
        as_name,
        if_exists: if_exists.unwrap_or_default(),
        key,
        make: make?,
        when,
    })
}

fn make(rule: &mut RuleReader<'_, '_>, fields: &Fields<'_>, made: &str) -> Option<MakePlan> {
    let body = fields.get(made)?;
    match made {
        "object" => object(rule, body),
        "patch" => patch(rule, body),
        "relation" => relation(rule, body),
        _ => {
            let fields = rule.reader.shaped(body, &shape::REMOVE)?;
            let node = fields.get("relation")?;
            let relation = id(rule, node, "the id of a relation")?;
            Some(MakePlan::Remove { relation })
        }
    }
}

/// An id: neither empty nor, without a template, longer than any id may be.
fn id(rule: &mut RuleReader<'_, '_>, node: &YamlNode, what: &str) -> Option<String> {
    let text = rule.text(node, what)?;
    let length = text.chars().count();
    let is_fixed = !text.contains("{{");
    if length > 0 && (length <= MAX_ID_CHARS || !is_fixed) {
        return Some(text);
    }
    let words = format!("{what} has {length} characters: expected 1 to {MAX_ID_CHARS}");
    let fault = Fault::new(FaultCode::BadValue, node.place, words);
    rule.reader.reject(fault)
}

fn object(rule: &mut RuleReader<'_, '_>, body: &YamlNode) -> Option<MakePlan> {
    let fields = rule.reader.shaped(body, &shape::OBJECT)?;
    let kind = fields.get("type").and_then(|node| {
        let kind = rule.mention_type(node, TypeKind::Object)?;
        if kind == STEP_OBJECT {
            let words = format!("{kind:?} is the type of objects that represent steps");
            let fault = Fault::new(FaultCode::ReservedName, node.place, words);
            return rule
                .reader
                .reject(fault.hint("steps alone make such objects: declare a type of your own"));
        }
        Some(kind)
    });
    let data = fields.get("data").map(|node| rule.map(node, "data"));
    Some(MakePlan::Object {
        data: data.unwrap_or_default(),
        kind: kind?,
    })
}

fn patch(rule: &mut RuleReader<'_, '_>, body: &YamlNode) -> Option<MakePlan> {
    let fields = rule.reader.shaped(body, &shape::PATCH)?;
    let id = fields.get("id").and_then(|node| {
        let id = id(rule, node, "the id of an object")?;
        if id.starts_with(STEP_ID_PREFIX) {
            let words = format!("{id:?} represents a step, and only the step creates it");
            let fault = Fault::new(FaultCode::ReservedId, node.place, words);
            return rule.reader.reject(fault);
        }
        Some(id)
    });
    let data = fields.get("data").and_then(|node| rule.map(node, "data"));
    Some(MakePlan::Patch {
        data: data?,
        id: id?,
    })
}

fn relation(rule: &mut RuleReader<'_, '_>, body: &YamlNode) -> Option<MakePlan> {
    let fields = rule.reader.shaped(body, &shape::RELATION)?;
    let kind = fields
        .get("type")
        .and_then(|node| rule.mention_type(node, TypeKind::Relation));
    let mut text = |key: &str, what: &str| {
        let node = fields.get(key)?;
        id(rule, node, what)
    };
    let from = text("from", "the id of an object");
    let to = text("to", "the id of an object");
    let id = text("id", "the id of a relation");
    let data = fields.get("data").map(|node| rule.map(node, "data"));
    Some(MakePlan::Relation {
        data: data.unwrap_or_default(),
        from: from?,
        id,
        kind: kind?,
        to: to?,
    })
}
