//! One responder: its trigger, its guard, and exactly one of what it can do.

use ktsu_config::fault::{Fault, FaultCode};
use ktsu_config::yaml::{SourceSpan, YamlNode, YamlValue};
use ktsu_ledger::event::plan::world::{
    AskPlan, ForEachPlan, MessagePlan, MessageRole, OnError, PublishPlan, ResponderPlan,
    ResponderWork,
};
use ktsu_ledger::event::plan::{ChildPlan, Webhooks};
use ktsu_workflow::world::{EVENTS, MAX_AFTER_MS, MAX_MESSAGES, MAX_TRIGGERS, TriggerKind};

use super::draft::{ResponderDraft, TypeKind};
use super::entries::{self, EntryList};
use super::lookups;
use super::rule::RuleReader;
use crate::read::{Fields, member, members, rounded};
use crate::schemas;
use crate::shape::world::{self as shape, WORKS};
use crate::step::ChildDraft;
use crate::text::may_be_object;

/// The event of responders that are written under `edges:`.
const RELATION_CREATED: &str = "relation.created";

/// Reads a responder, or an edge, which has no `on`; nothing if it is too broken to go on with.
pub(super) fn read(
    rule: &mut RuleReader<'_, '_>,
    node: &YamlNode,
    edge: bool,
) -> Option<(ResponderPlan, ResponderDraft)> {
    let (shape, what) = match edge {
        true => (&shape::EDGE, "edge"),
        false => (&shape::RESPONDER, "responder"),
    };
    let fields = rule.reader.shaped(node, shape)?;
    let name_node = fields.get("name");
    let name = name_node.and_then(|node| rule.identifier(node, "the name of a responder"));
    let place = name_node.map_or(fields.place, |node| node.place);
    let on = match edge {
        true => vec![RELATION_CREATED.to_owned()],
        false => triggers(rule, &fields),
    };
    let kinds: Vec<TriggerKind> = on.iter().filter_map(|on| TriggerKind::of(on)).collect();
    rule.know(kinds.iter().flat_map(|kind| kind.names()).copied());
    rule.know(["event", "goal"]);
    let types = types(rule, &fields, &kinds);
    let changed = changed(rule, &fields, &kinds);
    let longest = ("8760h, a year", MAX_AFTER_MS);
    let after = fields.read("after", |node| {
        rule.reader.duration_up_to(node, "after", longest)
    });
    let (lookups, lookup_places) = fields
        .get("with")
        .map(|node| lookups::read(rule, node))
        .unwrap_or_default();
    let when = fields
        .get("when")
        .and_then(|node| rule.expression(node, "when"));
    let for_each = fields.get("for_each").and_then(|node| for_each(rule, node));
    if fields.get("for_each").is_some() {
        rule.know(["item", "item_index"]);
    }
    let (mut run, mut group) = (None, None);
    let work = work(rule, &fields, what, place, &mut run, &mut group);
    rule.misplaced(&fields, shape, what);
    let then = fields.get("then");
    let then = then.map(|node| entries::read(rule, node, EntryList::Then));
    let publish = fields.get("publish").and_then(|node| publish(rule, node));
    let draft = ResponderDraft {
        place,
        guard: fields.get("when").map(|node| node.place),
        on: fields.get("on").map_or(place, |node| node.place),
        lookups: lookup_places,
        run,
        group,
    };
    let plan = ResponderPlan {
        after_ms: after,
        changed,
        concurrency: concurrency(rule, &fields),
        for_each,
        name: name?,
        on,
        on_error: on_error(rule, &fields),
        publish,
        then: then.unwrap_or_default(),
        types,
        when,
        lookups,
        work: work?,
    };
    Some((plan, draft))
}

/// The items of a list, or the one value.
fn one_or_more(node: &YamlNode) -> &[YamlNode] {
    match &node.data {
        YamlValue::List(items) => items,
        _ => std::slice::from_ref(node),
    }
}

fn triggers(rule: &mut RuleReader<'_, '_>, fields: &Fields<'_>) -> Vec<String> {
    let Some(node) = fields.get("on") else {
        return Vec::new();
    };
    let nodes = one_or_more(node);
    rule.limit(nodes.len(), MAX_TRIGGERS, node.place, "events");
    if nodes.is_empty() {
        let words = "on names no event";
        let fault = Fault::new(FaultCode::BadValue, node.place, words);
        rule.reader.fault(fault);
    }
    let mut events: Vec<String> = Vec::new();
    for node in nodes {
        let Some(event) = rule.reader.string(node, "an event") else {
            continue;
        };
        if TriggerKind::of(event).is_none() {
            let words = format!("there is no event {event:?} to react to");
            let fault = Fault::new(FaultCode::UnknownEvent, node.place, words);
            let known = EVENTS.join(", ");
            let otherwise = format!("{known}, or x.KIT.NAME for one that is posted");
            rule.reader
                .fault(fault.suggest_or(event, EVENTS, otherwise));
        } else if events.iter().any(|other| other == event) {
            let words = format!("the event {event:?} appears twice");
            rule.reader
                .fault(Fault::new(FaultCode::DuplicateName, node.place, words));
        } else {
            events.push(event.to_owned());
        }
    }
    events
}

fn types(rule: &mut RuleReader<'_, '_>, fields: &Fields<'_>, kinds: &[TriggerKind]) -> Vec<String> {
    let Some(node) = fields.get("type") else {
        return Vec::new();
    };
    if !kinds.is_empty() && !kinds.iter().any(|kind| kind.has_type()) {
        let place = fields.key("type").unwrap_or(node.place);
        let words = "the events of this responder have no type";
        let fault = Fault::new(FaultCode::BadValue, place, words);
        let hint = "when: object.id == 'step/ID' distinguishes steps";
        rule.reader.fault(match kinds.contains(&TriggerKind::Step) {
            true => fault.hint(hint),
            false => fault,
        });
        return Vec::new();
    }
    let has = |wanted: &[TriggerKind]| kinds.iter().any(|kind| wanted.contains(kind));
    let objects = has(&[TriggerKind::Object, TriggerKind::Patch]);
    let relations = has(&[TriggerKind::Relation]);
    let kind = match (objects, relations, has(&[TriggerKind::Every])) {
        (true, false, false) => TypeKind::Object,
        (false, true, false) => TypeKind::Relation,
        _ => TypeKind::Either,
    };
    let nodes = one_or_more(node).iter();
    nodes
        .filter_map(|node| rule.mention_type(node, kind))
        .collect()
}

fn changed(
    rule: &mut RuleReader<'_, '_>,
    fields: &Fields<'_>,
    kinds: &[TriggerKind],
) -> Vec<String> {
    let Some(node) = fields.get("changed") else {
        return Vec::new();
    };
    if !kinds.is_empty() && !kinds.contains(&TriggerKind::Patch) {
        let place = fields.key("changed").unwrap_or(node.place);
        let words = "changed goes with object.patched alone";
        let fault = Fault::new(FaultCode::BadValue, place, words);
        rule.reader.fault(fault);
    }
    let nodes = rule.reader.list(node, "changed").unwrap_or_default();
    let mut names = Vec::new();
    for node in nodes {
        let name = rule.reader.string(node, "a field");
        names.extend(name.map(str::to_owned));
    }
    names
}

fn for_each(rule: &mut RuleReader<'_, '_>, node: &YamlNode) -> Option<ForEachPlan> {
    let fields = rule.reader.shaped(node, &shape::FOR_EACH)?;
    match rule.one_of(&fields, &["from", "items"], "for_each")? {
        "from" => {
            let from = fields.get("from")?;
            rule.expression(from, "for_each.from")
                .map(ForEachPlan::From)
        }
        _ => {
            let items = fields.get("items")?;
            rule.reader.list(items, "for_each.items")?;
            rule.tree(items).map(ForEachPlan::Items)
        }
    }
}

fn work(
    rule: &mut RuleReader<'_, '_>,
    fields: &Fields<'_>,
    what: &str,
    place: SourceSpan,
    run: &mut Option<ChildDraft>,
    group: &mut Option<(String, SourceSpan)>,
) -> Option<ResponderWork> {
    let there = WORKS.iter().any(|key| fields.get(key).is_some());
    if let (false, Some(_)) = (there, fields.get("publish")) {
        let words = format!("the {what} has none of {}", WORKS.join(", "));
        let fault = Fault::new(FaultCode::NoPrimitive, place, words);
        return rule
            .reader
            .reject(fault.hint("beside publish alone: emit: []"));
    }
    let one = rule.one_of(fields, &WORKS, &format!("the {what}"))?;
    let body = fields.get(one)?;
    match one {
        "emit" => {
            let entries = entries::read(rule, body, EntryList::Emit);
            Some(ResponderWork::Emit(entries))
        }
        "ask" => {
            let asked = ask(rule, body, group);
            rule.know(["reply"]);
            asked.map(ResponderWork::Ask)
        }
        _ => {
            let child = read_run(rule, body, run);
            rule.know(["result"]);
            child.map(ResponderWork::Run)
        }
    }
}

fn ask(
    rule: &mut RuleReader<'_, '_>,
    body: &YamlNode,
    group: &mut Option<(String, SourceSpan)>,
) -> Option<AskPlan> {
    let fields = rule.reader.shaped(body, &shape::ASK)?;
    if let Some(node) = fields.get("model") {
        let name = rule.reader.string(node, "model");
        match name.map(str::trim) {
            Some("") => drop(rule.reader.bad_value::<()>(node, "model names no group")),
            name => *group = name.map(|name| (name.to_owned(), node.place)),
        }
    }
    let max_tokens = fields.read("max_tokens", |node| {
        rule.reader.integer(node, "max_tokens", 1, 10_000_000)
    });
    let temperature = fields.read("temperature", |node| {
        rule.reader.number(node, "temperature", 0.0, 2.0)
    });
    let messages = fields.get("messages").map(|node| messages(rule, node));
    let output = fields.get("output").and_then(|node| {
        let fields = rule.reader.shaped(node, &shape::ASK_OUTPUT)?;
        let schema = fields.get("schema")?;
        schemas::reserved_fields(rule.reader, schema);
        let kind = member(Some(schema), "type");
        if let Some(kind) = kind.filter(|kind| !may_be_object(kind)) {
            let words = "reply.output is an object, and the schema must let it be one";
            rule.reader
                .fault(Fault::new(FaultCode::BadSchema, kind.place, words));
        }
        rule.reader.schema(schema)
    });
    let small = |whole: i64| u32::try_from(whole).ok();
    let millionths = |given: f64| u32::try_from(rounded(given * 1_000_000.0)).ok();
    Some(AskPlan {
        group: group.as_ref()?.0.clone(),
        max_tokens: max_tokens.and_then(small).unwrap_or(1024),
        messages: messages?,
        output,
        temperature_millionths: temperature.and_then(millionths),
    })
}

fn messages(rule: &mut RuleReader<'_, '_>, node: &YamlNode) -> Vec<MessagePlan> {
    let nodes = rule.reader.list(node, "messages").unwrap_or_default();
    rule.limit(nodes.len(), MAX_MESSAGES, node.place, "messages");
    if nodes.is_empty() && matches!(node.data, YamlValue::List(_)) {
        rule.reader
            .bad_value::<()>(node, "a question to a model needs at least one message");
    }
    let roles = [
        ("system", MessageRole::System),
        ("user", MessageRole::User),
        ("assistant", MessageRole::Assistant),
    ];
    let mut messages = Vec::new();
    for node in nodes {
        let Some(fields) = rule.reader.shaped(node, &shape::MESSAGE) else {
            continue;
        };
        let role = fields.read("role", |node| rule.reader.keyword(node, "role", &roles));
        let content = fields.get("content");
        let content = content.and_then(|node| rule.text(node, "content"));
        messages.extend(
            role.zip(content)
                .map(|(role, content)| MessagePlan { content, role }),
        );
    }
    messages
}

fn read_run(
    rule: &mut RuleReader<'_, '_>,
    body: &YamlNode,
    run: &mut Option<ChildDraft>,
) -> Option<ChildPlan> {
    let fields = rule.reader.shaped(body, &shape::RUN)?;
    let given = fields.get("params");
    let params = given.and_then(|node| rule.map(node, "params"));
    let known = [
        ("execute", Webhooks::Execute),
        ("suppress", Webhooks::Suppress),
    ];
    let said = fields.get("webhooks");
    let webhooks = said.and_then(|node| rule.reader.keyword(node, "webhooks", &known));
    let node = fields.get("workflow")?;
    let path = rule.reader.string(node, "workflow")?.to_owned();
    *run = Some(ChildDraft {
        path: path.clone(),
        place: node.place,
        params_place: given.map_or(node.place, |node| node.place),
        params: members(given)
            .iter()
            .map(|(key, _)| (key.text.clone(), key.place))
            .collect(),
        webhooks: said.map_or(node.place, |node| node.place),
    });
    Some(ChildPlan {
        params,
        webhooks: webhooks.unwrap_or(Webhooks::Suppress),
        workflow: path,
    })
}

fn publish(rule: &mut RuleReader<'_, '_>, node: &YamlNode) -> Option<PublishPlan> {
    let fields = rule.reader.shaped(node, &shape::PUBLISH)?;
    let topic = fields
        .get("topic")
        .and_then(|node| rule.text(node, "topic"));
    let payload = fields.get("payload").and_then(|node| rule.tree(node));
    Some(PublishPlan {
        payload,
        topic: topic?,
    })
}

fn concurrency(rule: &mut RuleReader<'_, '_>, fields: &Fields<'_>) -> Option<u32> {
    let node = fields.get("concurrency")?;
    let most = rule.reader.integer(node, "concurrency", 1, 1_000_000)?;
    u32::try_from(most).ok()
}

/// A step of the workflow would fail without failing its run (seed 000, invariant 11).
fn on_error(rule: &mut RuleReader<'_, '_>, fields: &Fields<'_>) -> OnError {
    let Some(node) = fields.get("on_error") else {
        return OnError::Fail;
    };
    let words = [("fail", OnError::Fail), ("continue", OnError::Continue)];
    let said = rule.reader.keyword(node, "on_error", &words);
    if said == Some(OnError::Continue) && fields.key("run").is_some() {
        let words = "on_error: continue does not go with run";
        let fault = Fault::new(FaultCode::BadValue, node.place, words);
        let hint = "a step of that workflow would fail without failing its run";
        rule.reader.fault(fault.hint(hint));
    }
    said.unwrap_or_default()
}
