//! The expressions and templates of a world file, held against the types that worlds declare.

use std::collections::BTreeMap;
use std::path::Path;

use ktsu_config::fault::{Fault, FaultCode};
use ktsu_config::yaml::{SourceSpan, YamlNode, YamlValue};
use ktsu_ledger::CanonicalJson;
use ktsu_ledger::event::plan::Visibility;
use ktsu_workflow::expression::Vocabulary;
use ktsu_workflow::params::ParamsSchema;
use ktsu_workflow::template::located;
use ktsu_workflow::types::infer::NameTypes;
use ktsu_workflow::types::schema::{of_output, of_params};
use ktsu_workflow::types::spelling::likely_typo;
use ktsu_workflow::types::{KindSet, Member, Members, ValueType, find_mismatch};
use ktsu_workflow::world::TriggerKind;

use super::expressions::Expressions;
use super::known::{KitTypes, mismatch};
use super::world_types::{KnownName, WorldTypes};
use crate::read::{KitReader, items, member, members};
use crate::text::bare;
use crate::world::WorldDraft;

/// Checks one file.
pub(super) fn check(
    kit: &KitTypes<'_>,
    types: &WorldTypes,
    (path, text): (&str, &str),
    draft: &WorldDraft,
    root: &YamlNode,
) -> Vec<Fault> {
    let params = params_of(kit, draft);
    let mut file = WorldCheck {
        kit,
        types,
        path,
        draft,
        names: BTreeMap::new(),
        expressions: Expressions {
            reader: KitReader::new(Path::new(path), text),
            names: NameTypes {
                params,
                params_judged: true,
                item: ValueType::any(),
                resume_data: ValueType::any(),
                steps: BTreeMap::new(),
            },
            effort: &kit.effort,
            vocabulary: Vocabulary::Responder,
        },
    };
    file.start();
    for entry in items(member(Some(root), "goal")) {
        file.entry(entry);
    }
    for edge in items(member(Some(root), "edges")) {
        file.responder(edge, true);
    }
    for responder in items(member(Some(root), "responders")) {
        file.responder(responder, false);
    }
    file.expressions.reader.into_faults()
}

/// The params of a run that loads the world. A world says them for runs of its own; a workflow that
/// is run says them for its runs, where params of the same name can be what it declares.
fn params_of(kit: &KitTypes<'_>, draft: &WorldDraft) -> ValueType {
    let own = draft.params.as_ref().map(CanonicalJson::to_value);
    let own = of_params(own.as_ref());
    let mut runs = Vec::new();
    for (path, draft) in &kit.loader.drafts {
        let Some(draft) = draft else {
            return ValueType::any();
        };
        if draft.plan.visibility == Visibility::Root {
            runs.extend(kit.params.get(path.as_str()));
        }
    }
    if runs.is_empty() {
        return own;
    }
    let Some(members) = own.members() else {
        return ValueType::any();
    };
    let named = members.named.iter().map(|(name, member)| {
        let declared = runs.iter().filter_map(|params| params.known_field(name));
        let value = ValueType::union(declared.cloned().chain([member.value.clone()]));
        let value = value.or_null();
        let always = false;
        (name.clone(), Member { value, always })
    });
    ValueType::object(Members {
        named: named.collect(),
        rest: Some(ValueType::any()),
    })
}

struct WorldCheck<'a> {
    kit: &'a KitTypes<'a>,
    types: &'a WorldTypes,
    path: &'a str,
    draft: &'a WorldDraft,
    /// The known types of the names of the responder that is looked at.
    names: BTreeMap<String, KnownName>,
    expressions: Expressions<'a>,
}

impl WorldCheck<'_> {
    /// Forgets the names of the responder before.
    fn start(&mut self) {
        self.names.clear();
        self.expressions.names.steps.clear();
        self.expressions.names.item = ValueType::any();
        self.know("goal", KnownName::of(ValueType::string().or_null()));
    }

    fn know(&mut self, name: &str, known: KnownName) {
        let value = known.value.clone();
        match name {
            "item" => self.expressions.names.item = value,
            name => drop(self.expressions.names.steps.insert(name.to_owned(), value)),
        }
        self.names.insert(name.to_owned(), known);
    }

    fn responder(&mut self, node: &YamlNode, edge: bool) {
        self.start();
        let part = |key: &str| member(Some(node), key);
        self.triggers(node, edge);
        for (key, node) in members(part("with")) {
            let known = self.lookup(node);
            self.know(&key.text, known);
        }
        if let Some(when) = part("when") {
            self.expressions.expression(when);
        }
        if let Some(each) = part("for_each") {
            let item = self.for_each(each);
            self.know("item", item);
        }
        for entry in items(part("emit")) {
            self.entry(entry);
        }
        if let Some(ask) = part("ask") {
            for message in items(member(Some(ask), "messages")) {
                if let Some(content) = member(Some(message), "content") {
                    self.expressions.template(content);
                }
            }
            let schema = member(member(Some(ask), "output"), "schema");
            let mut reply = vec![("text", ValueType::string())];
            let output = schema.map(|schema| of_output(&schema.to_value()).stripped());
            reply.extend(output.map(|output| ("output", output)));
            self.know("reply", KnownName::of(ValueType::record(reply)));
        }
        if let Some(run) = part("run") {
            if let Some(params) = member(Some(run), "params") {
                self.expressions.template(params);
            }
            let result = self.result(node);
            self.know("result", KnownName::of(result));
        }
        for entry in items(part("then")) {
            if let Some(when) = member(Some(entry), "when") {
                self.expressions.expression(when);
            }
            self.entry(entry);
        }
        for key in ["topic", "payload"] {
            if let Some(node) = member(part("publish"), key) {
                self.expressions.template(node);
            }
        }
    }

    /// The output of the workflow of a responder.
    fn result(&self, node: &YamlNode) -> ValueType {
        let place = member(Some(node), "name").map(|name| name.place);
        let mut responders = self.draft.responders.iter();
        let position = responders.position(|one| Some(one.place) == place);
        let key = position.map(|position| (self.path.to_owned(), position));
        let run = key.and_then(|key| self.kit.loader.runs.get(&key));
        run.map_or_else(ValueType::any, |run| self.kit.output(run).or_null())
    }

    fn triggers(&mut self, node: &YamlNode, edge: bool) {
        let events = match edge {
            true => vec!["relation.created".to_owned()],
            false => texts(member(Some(node), "on")),
        };
        let kinds: Vec<TriggerKind> = events.iter().filter_map(|on| TriggerKind::of(on)).collect();
        let types = texts(member(Some(node), "type"));
        let open = kinds.iter().any(|kind| {
            matches!(
                kind,
                TriggerKind::Every | TriggerKind::Step | TriggerKind::Posted
            )
        });
        for name in kinds.iter().flat_map(|kind| kind.names()) {
            // What some of them lack can be anything, absent included.
            let of_all = kinds.iter().all(|kind| kind.names().contains(name));
            let known = match (open || !of_all, *name) {
                (true, _) => KnownName::any(),
                (false, "object") => self.types.object_of(&types),
                (false, "patch") => KnownName::of(self.types.patch_of(&types)),
                (false, "relation") => KnownName::of(self.types.relation_of(&types)),
                (false, "source") => self.types.end_of(&types, true),
                (false, "target") => self.types.end_of(&types, false),
                (false, _) => KnownName::any(),
            };
            self.know(name, known);
        }
        for field in items(member(Some(node), "changed")) {
            if let YamlValue::Text(name) = &field.data {
                self.field(&types, name, field.place);
            }
        }
    }

    /// A field that is named of objects of some types.
    fn field(&mut self, types: &[String], name: &str, place: SourceSpan) {
        let data = self.types.data_of(types);
        let Some(members) = data.members() else {
            return;
        };
        if members.named.contains_key(name) {
            return;
        }
        let known: Vec<&str> = members.named.keys().map(String::as_str).collect();
        let of = types.join(" or ");
        let fault = match (&members.rest, likely_typo(name, known.iter().copied())) {
            (None, _) => {
                let words = format!("{of} cannot have a field {name:?}");
                Fault::new(FaultCode::UnknownField, place, words).suggest(name, known)
            }
            (Some(_), Some(near)) => {
                let words = format!("{of} declares no {name:?}");
                let fault = Fault::new(FaultCode::UndeclaredField, place, words).warning();
                fault.hint(format!("did you mean {near}?"))
            }
            (Some(_), None) => return,
        };
        self.expressions.reader.fault(fault);
    }

    fn lookup(&mut self, node: &YamlNode) -> KnownName {
        let part = |key: &str| member(Some(node), key);
        if let Some(id) = part("object") {
            self.expressions.template(id);
            let found = self.types.object_of(&[]);
            return KnownName::of(found.value.or_null());
        }
        let named = ["objects", "first", "count"].into_iter();
        let Some((key, kind)) = named.filter_map(|key| Some((key, part(key)?))).next() else {
            return KnownName::any();
        };
        let types = texts(Some(kind));
        let found = self.types.object_of(&types);
        self.conditions(part("where"), &types);
        if let Some(without) = part("without") {
            let before = std::mem::replace(&mut self.expressions.names.item, found.value.clone());
            let types = texts(member(Some(without), "objects"));
            self.conditions(member(Some(without), "where"), &types);
            self.expressions.names.item = before;
        }
        match key {
            "count" => KnownName::of(ValueType::number()),
            "first" => KnownName {
                value: found.value.or_null(),
                ..found
            },
            _ => KnownName {
                value: ValueType::array(found.value),
                ..found
            },
        }
    }

    fn conditions(&mut self, node: Option<&YamlNode>, types: &[String]) {
        for (key, node) in members(node) {
            self.field(types, &key.text, key.place);
            let values = member(Some(node), "in");
            let given = self.expressions.template(values.unwrap_or(node));
            let given = match values.is_some() {
                true if !given.is_informative() || given.kinds().meets(KindSet::ARRAY) => {
                    given.items()
                }
                true => {
                    let words = format!("in needs an array, and gets {}", given.words());
                    self.mismatch(node, words);
                    continue;
                }
                false => given,
            };
            let data = self.types.data_of(types);
            let wanted = data.known_field(&key.text).cloned();
            let found = wanted.and_then(|wanted| find_mismatch(&given, &wanted));
            if let Some(found) = found {
                let words = format!("{} never equals this: {}", key.text, found.message);
                self.mismatch(node, words);
            }
        }
    }

    fn mismatch(&mut self, node: &YamlNode, words: String) {
        let fault = Fault::new(FaultCode::TypeMismatch, node.place, words);
        self.expressions.reader.fault(fault);
    }

    fn for_each(&mut self, node: &YamlNode) -> KnownName {
        if let Some(list) = member(Some(node), "items") {
            let types: Vec<ValueType> = items(Some(list))
                .iter()
                .map(|item| self.expressions.template(item))
                .collect();
            return KnownName::of(ValueType::union(types));
        }
        let Some(from) = member(Some(node), "from") else {
            return KnownName::any();
        };
        let list = self.expressions.expression(from);
        if list.is_informative() && !list.kinds().meets(KindSet::ARRAY) {
            let words = format!("for_each goes over an array, and gets {}", list.words());
            self.mismatch(from, words);
            return KnownName::any();
        }
        let kinds = match &from.data {
            YamlValue::Text(text) => self.names.get(bare(text).0),
            _ => None,
        };
        KnownName {
            value: list.items(),
            kinds: kinds.and_then(|known| known.kinds.clone()),
        }
    }

    fn entry(&mut self, node: &YamlNode) {
        let part = |key: &str| member(Some(node), key);
        if let Some(key) = part("key") {
            self.expressions.template(key);
        }
        let mut made = None;
        if let Some(object) = part("object") {
            made = Some(self.object(object));
        } else if let Some(patch) = part("patch") {
            self.patch(patch);
        } else if let Some(relation) = part("relation") {
            made = Some(self.relation(relation));
        } else if let Some(id) = member(part("remove"), "relation") {
            self.expressions.template(id);
        }
        if let (Some(YamlValue::Text(name)), Some(mut made)) =
            (part("as").map(|one| &one.data), made)
        {
            if part("when").is_some() {
                made.value = made.value.or_null();
            }
            self.know(&name.clone(), made);
        }
    }

    fn object(&mut self, node: &YamlNode) -> KnownName {
        let types = texts(member(Some(node), "type"));
        let data = member(Some(node), "data");
        let given = match data {
            Some(data) => self.expressions.template(data),
            None => ValueType::record::<String>([]),
        };
        let what = format!("the data of this {}", types.join(" "));
        let place = data.map_or(node.place, |data| data.place);
        if self.literals(&types, data)
            && let Some(found) = find_mismatch(&given, &self.types.data_of(&types))
        {
            let words = ktsu_schema::message_at(&found.message, &found.pointer);
            self.expressions
                .reader
                .fault(mismatch(place, &what, &words));
        }
        self.types.object_of(&types)
    }

    fn patch(&mut self, node: &YamlNode) {
        let data = member(Some(node), "data");
        let given = data.map(|data| self.expressions.template(data));
        let Some(id) = member(Some(node), "id") else {
            return;
        };
        self.expressions.template(id);
        let (Some(types), Some(given), Some(data)) = (self.kinds_of_id(id), given, data) else {
            return;
        };
        let wanted = self.types.patch_of(&types);
        if self.literals(&types, Some(data))
            && let Some(found) = find_mismatch(&given, &wanted)
        {
            let what = format!("this patch of a {}", types.join(" or "));
            let words = ktsu_schema::message_at(&found.message, &found.pointer);
            self.expressions
                .reader
                .fault(mismatch(data.place, &what, &words));
        }
        for (key, _) in members(Some(data)) {
            self.field(&types, &key.text, key.place);
        }
    }

    /// Checks what is written out against the schema of the one type, and returns `true` if it
    /// fits.
    fn literals(&mut self, types: &[String], data: Option<&YamlNode>) -> bool {
        let [kind] = types else { return true };
        let schema = self.types.schema_of(kind);
        let Some(schema) = schema.and_then(|schema| ParamsSchema::compile(schema).ok()) else {
            return true;
        };
        let mut fits = true;
        for (key, node) in members(data) {
            let scalar = match &node.data {
                YamlValue::Text(text) => !text.contains("{{"),
                YamlValue::Bool(_) | YamlValue::Number(_) => true,
                YamlValue::Null | YamlValue::List(_) | YamlValue::Map(_) => false,
            };
            if !scalar {
                continue;
            }
            for violation in schema.check_one(&key.text, node.to_value()) {
                let words = format!("{} does not fit: {}", key.text, violation.message);
                let fault = Fault::new(FaultCode::BadValue, node.place, words);
                self.expressions.reader.fault(fault);
                fits = false;
            }
        }
        fits
    }

    fn relation(&mut self, node: &YamlNode) -> KnownName {
        let types = texts(member(Some(node), "type"));
        for (key, beginning) in [("from", true), ("to", false)] {
            let Some(id) = member(Some(node), key) else {
                continue;
            };
            self.expressions.template(id);
            let wanted = self.types.ends(&types, beginning);
            let (Some(wanted), Some(given)) = (wanted, self.kinds_of_id(id)) else {
                continue;
            };
            if !given.iter().any(|kind| wanted.contains(kind)) {
                let verb = if beginning { "begins" } else { "ends" };
                let words = format!(
                    "{} {verb} at {}, and this is the id of a {}",
                    types.join(" "),
                    wanted.join(" or "),
                    given.join(" or "),
                );
                self.mismatch(id, words);
            }
        }
        for key in ["id", "data"] {
            if let Some(node) = member(Some(node), key) {
                self.expressions.template(node);
            }
        }
        KnownName::of(self.types.relation_of(&types))
    }

    /// The types of the object whose id a template gives, where it is `NAME.id` or `NAME[0].id`.
    fn kinds_of_id(&self, node: &YamlNode) -> Option<Vec<String>> {
        let YamlValue::Text(text) = &node.data else {
            return None;
        };
        let (expressions, true) = located(text) else {
            return None;
        };
        let (_, source) = expressions.first()?;
        let of = source.strip_suffix(".id")?;
        let name = of.split('[').next()?.trim();
        let plain = of == name || of.ends_with(']') && of.matches('[').count() == 1;
        let known = self.names.get(name).filter(|_| plain)?;
        known.kinds.clone()
    }
}

/// The texts of a list, or the one text.
fn texts(node: Option<&YamlNode>) -> Vec<String> {
    let one = node.into_iter();
    let nodes: Vec<&YamlNode> = match node.map(|node| &node.data) {
        Some(YamlValue::List(list)) => list.iter().collect(),
        Some(_) | None => one.collect(),
    };
    let texts = nodes.into_iter().filter_map(|node| match &node.data {
        YamlValue::Text(text) => Some(text.clone()),
        _ => None,
    });
    texts.collect()
}
