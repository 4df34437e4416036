//! The reader of one rule: expressions and templates over the names that are known where they stand.

use std::collections::BTreeSet;

use ktsu_config::fault::{Fault, FaultCode};
use ktsu_config::yaml::{SourceSpan, YamlNode};
use ktsu_ledger::CanonicalJson;
use ktsu_workflow::expression::Root;
use ktsu_workflow::world::{is_identifier, is_reserved_name};

use super::draft::{TypeKind, TypeMention};
use crate::read::{Fields, KitReader, Mention, NameUsage};
use crate::shape::MapShape;

/// Reads a responder, or the entries of a goal.
pub(super) struct RuleReader<'r, 'a> {
    pub(super) reader: &'r mut KitReader<'a>,
    /// The names that are known by now.
    names: BTreeSet<String>,
    /// Names that would be known if a part that defines them were not broken.
    forgiven: BTreeSet<String>,
    /// The variables and params that it mentions.
    pub(super) mentions: Vec<Mention>,
    pub(super) types: Vec<TypeMention>,
}

const IDENTIFIER_HINT: &str = "a letter or _, then up to 63 letters, digits, _ and -";

impl<'r, 'a> RuleReader<'r, 'a> {
    pub(super) fn new(reader: &'r mut KitReader<'a>) -> Self {
        reader.mentions.clear();
        Self {
            reader,
            names: BTreeSet::new(),
            forgiven: BTreeSet::new(),
            mentions: Vec::new(),
            types: Vec::new(),
        }
    }

    /// Makes names known.
    pub(super) fn know<'n>(&mut self, names: impl IntoIterator<Item = &'n str>) {
        self.names.extend(names.into_iter().map(str::to_owned));
    }

    /// Makes a name unknown.
    pub(super) fn forget(&mut self, name: &str) {
        self.names.remove(name);
    }

    /// A name of `with` or `as`, which is known from here on.
    pub(super) fn define(&mut self, name: &str, place: SourceSpan, what: &str) {
        if !is_identifier(name) {
            let words = format!("{name:?} cannot be a name of {what}");
            let fault = Fault::new(FaultCode::BadId, place, words);
            self.reader.fault(fault.hint(IDENTIFIER_HINT));
            self.forgiven.insert(name.to_owned());
        } else if is_reserved_name(name) {
            let words = format!("{name:?} means something else in expressions");
            let fault = Fault::new(FaultCode::ReservedName, place, words);
            let hint = format!("call it {name}_found, for instance");
            self.reader.fault(fault.hint(hint));
        } else if !self.names.insert(name.to_owned()) {
            let words = format!("the name {name:?} appears twice");
            self.reader
                .fault(Fault::new(FaultCode::DuplicateName, place, words));
        }
    }

    /// The name of a responder or a type: an identifier.
    pub(super) fn identifier(&mut self, node: &YamlNode, what: &str) -> Option<String> {
        identifier(self.reader, node, what)
    }

    /// A type that is named.
    pub(super) fn mention_type(&mut self, node: &YamlNode, kind: TypeKind) -> Option<String> {
        let name = self.reader.string(node, "a type")?;
        self.types.push(TypeMention {
            kind,
            name: name.to_owned(),
            place: node.place,
        });
        Some(name.to_owned())
    }

    /// An expression; a surrounding `{{ }}` is tolerated.
    pub(super) fn expression(&mut self, node: &YamlNode, what: &str) -> Option<String> {
        let found = self.reader.expression(node, what, NameUsage::Responder);
        self.check();
        found
    }

    /// A tree of templates.
    pub(super) fn tree(&mut self, node: &YamlNode) -> Option<CanonicalJson> {
        let found = self.reader.template(node, NameUsage::Responder);
        self.check();
        found
    }

    /// A map of templates.
    pub(super) fn map(&mut self, node: &YamlNode, what: &str) -> Option<CanonicalJson> {
        self.reader.open_map(node, what)?;
        self.tree(node)
    }

    /// A text with templates.
    pub(super) fn text(&mut self, node: &YamlNode, what: &str) -> Option<String> {
        let text = self.reader.string(node, what)?.to_owned();
        self.tree(node)?;
        Some(text)
    }

    /// The one key that is there of some.
    pub(super) fn one_of(
        &mut self,
        fields: &Fields<'_>,
        keys: &'static [&'static str],
        what: &str,
    ) -> Option<&'static str> {
        let there = keys.iter().copied();
        let there: Vec<&str> = there.filter(|key| fields.get(key).is_some()).collect();
        match there.as_slice() {
            [one] => Some(one),
            [] => {
                let words = format!("{what} has none of {}", keys.join(", "));
                let fault = Fault::new(FaultCode::NoPrimitive, fields.place, words);
                self.reader
                    .reject(fault.hint("give it exactly one of them"))
            }
            [first, second, ..] => {
                let words = format!("{what} has both {first} and {second}");
                let place = fields.key(second).unwrap_or(fields.place);
                let fault = Fault::new(FaultCode::TwoPrimitives, place, words);
                self.reader.reject(fault.hint("make two of it"))
            }
        }
    }

    /// Keys that go with none of those that are there.
    pub(super) fn misplaced(&mut self, fields: &Fields<'_>, shape: &MapShape, what: &str) {
        for key in shape.keys.iter().filter(|key| !key.with.is_empty()) {
            let alone = key.with.iter().all(|other| fields.get(other).is_none());
            if let (true, Some(place)) = (alone, fields.key(key.name)) {
                let words = format!("{} does not go with this {what}", key.name);
                let hint = format!("it belongs beside {}", key.with.join(" or "));
                let fault = Fault::new(FaultCode::MisplacedKey, place, words);
                self.reader.fault(fault.hint(hint));
            }
        }
    }

    /// Reports a list that is too long.
    pub(super) fn limit(&mut self, count: usize, most: usize, place: SourceSpan, what: &str) {
        if count > most {
            let words = format!("{count} {what} are more than {most}");
            self.reader
                .fault(Fault::new(FaultCode::BadValue, place, words));
        }
    }

    /// Reports every name that was mentioned since and is not known.
    fn check(&mut self) {
        for mention in std::mem::take(&mut self.reader.mentions) {
            let name = match &mention.root {
                Root::Params | Root::Env(_) => {
                    self.mentions.push(mention);
                    continue;
                }
                Root::Item => "item",
                Root::ItemIndex => "item_index",
                Root::Resume => "resume",
                Root::Name(name) | Root::Step(name) => name,
            };
            if !self.names.contains(name) && !self.forgiven.contains(name) {
                let fault = self.unknown(name, mention.place);
                self.reader.fault(fault);
            }
        }
    }

    fn unknown(&self, name: &str, place: SourceSpan) -> Fault {
        if matches!(name, "item" | "item_index") {
            let words = format!("there is no {name} without for_each");
            return Fault::new(FaultCode::ItemOutsideFanOut, place, words);
        }
        let words = format!("there is no name {name:?} here");
        let fault = Fault::new(FaultCode::UnknownName, place, words);
        let known = self.names.iter().map(String::as_str);
        let all: Vec<&str> = known.clone().chain(["env", "params"]).collect();
        match name {
            "true" | "false" => fault.hint(format!(
                "in an expression it is written `{name}`, with backticks"
            )),
            "step" => fault.hint("with: {s: {object: step/ID}} finds the object of a step"),
            "reply" | "result" => {
                fault.hint("only `then` and `publish` see what came of `ask` and `run`")
            }
            _ => fault.suggest_or(
                name,
                all.iter().copied(),
                format!("known: {}", all.join(", ")),
            ),
        }
    }
}

/// The name of a responder or a type.
pub(super) fn identifier(
    reader: &mut KitReader<'_>,
    node: &YamlNode,
    what: &str,
) -> Option<String> {
    let name = reader.string(node, what)?;
    if !is_identifier(name) {
        let words = format!("{name:?} is not {what}");
        let fault = Fault::new(FaultCode::BadId, node.place, words);
        return reader.reject(fault.hint(IDENTIFIER_HINT));
    }
    Some(name.to_owned())
}
