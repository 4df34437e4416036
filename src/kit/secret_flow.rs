//! `secret: true` in the params of workflows and agents: where the mark has an effect, and where it
//! would be ignored.

use ktsu_ledger::event::plan::Visibility;

use super::read::{KitReader, items, member, members};
use ktsu_config::fault::{Fault, FaultCode};
use ktsu_config::yaml::{SourceSpan, YamlNode, YamlValue};

/// Keywords whose value is a schema of the same value, or of its elements.
const SCHEMA: [&str; 4] = ["items", "if", "then", "else"];
/// Keywords whose members are schemas, by names of one's own.
const NAMED: [&str; 3] = ["properties", "$defs", "definitions"];
/// The same, where requests are not looked at.
const BEYOND: [&str; 2] = ["patternProperties", "dependentSchemas"];
/// Keywords whose elements are schemas.
const LISTED: [&str; 3] = ["allOf", "anyOf", "oneOf"];
/// Keywords that hold data, in which a mark means nothing.
const DATA: [&str; 5] = ["default", "const", "enum", "example", "examples"];
/// Keywords that lead to schemas by other ways than a pointer.
const NAMES: [&str; 5] = [
    "$anchor",
    "$dynamicAnchor",
    "$dynamicRef",
    "$id",
    "$recursiveRef",
];

/// Refuses marks within the params of an agent: they count for whole ones.
pub(super) fn check_whole(reader: &mut KitReader<'_>, schema: &YamlNode) {
    let mut found = SecretMarkers::default();
    found.walk(schema, true);
    let properties = members(member(Some(schema), "properties")).iter();
    let whole = properties.flat_map(|(_, property)| members(Some(property)));
    let whole: Vec<SourceSpan> = whole.map(|(key, _)| key.place).collect();
    let within = found.seen.iter().chain(&found.unseen);
    let within = within.filter(|place| !whole.contains(place));
    let words = "secret: true counts for whole params only";
    let hint = "make it a param of its own, or mark the whole param";
    misplaced(reader, within, words, hint);
}

fn misplaced<'p>(
    reader: &mut KitReader<'_>,
    places: impl IntoIterator<Item = &'p SourceSpan>,
    words: &str,
    hint: &str,
) {
    for place in places {
        reader.fault(Fault::new(FaultCode::MisplacedKey, *place, words).hint(hint));
    }
}

/// Refuses marks in the params of a workflow that stand where nobody looks, and what can never be
/// given.
pub(super) fn check(reader: &mut KitReader<'_>, schema: &YamlNode, visibility: Visibility) {
    let mut found = SecretMarkers::default();
    found.walk(schema, true);
    if visibility == Visibility::SubWorkflow {
        let words = "no secret reaches a sub-workflow, so nothing here is kept secret";
        let hint = "use the secret in the root workflow";
        return misplaced(reader, &found.seen, words, hint);
    }
    for place in &found.wrong {
        let words = "secret must be true or false";
        reader.fault(Fault::new(FaultCode::WrongType, *place, words));
    }
    for place in &found.defaults {
        let words = "a secret has a default, which is a secret written out";
        let fault = Fault::new(FaultCode::LiteralSecret, *place, words).hiding(*place);
        reader.fault(fault.hint("a secret comes from a variable of the workflow"));
    }
    required(reader, schema);
    let words = "a secret is not looked for here";
    let hint = "mark a property: properties: {NAME: {secret: true}}";
    misplaced(reader, &found.unseen, words, hint);
    if found.any {
        let words = "a schema with secrets is referred to by plain pointers alone";
        let hint = "$ref: '#/$defs/NAME', without % and anchors";
        misplaced(reader, &found.odd, words, hint);
    }
}

/// A root param that must be given and takes no value.
fn required(reader: &mut KitReader<'_>, schema: &YamlNode) {
    let properties = member(Some(schema), "properties");
    for name in items(member(Some(schema), "required")) {
        let YamlValue::Text(text) = &name.data else {
            continue;
        };
        let mark = member(member(properties, text), "secret").map(|node| &node.data);
        if let Some(YamlValue::Bool(true)) = mark {
            let words = format!("{text:?} must be given, and a secret is not taken from a request");
            let fault = Fault::new(FaultCode::SecretNotAllowed, name.place, words);
            reader.fault(fault.hint("declare a secret variable: env: [{name: …, secret: true}]"));
        }
    }
}

#[derive(Default)]
struct SecretMarkers {
    any: bool,
    /// Marks where they count.
    seen: Vec<SourceSpan>,
    /// Defaults beside marks.
    defaults: Vec<SourceSpan>,
    unseen: Vec<SourceSpan>,
    /// Marks that are neither true nor false.
    wrong: Vec<SourceSpan>,
    /// References that are not followed.
    odd: Vec<SourceSpan>,
}

impl SecretMarkers {
    /// Looks through a schema; `seen`: whether requests are looked at on this way.
    fn walk(&mut self, schema: &YamlNode, seen: bool) {
        for (key, node) in members(Some(schema)) {
            let name = key.text.as_str();
            match name {
                "secret" if matches!(node.data, YamlValue::Bool(true)) => {
                    self.any = true;
                    let default = member(Some(schema), "default").map(|node| node.place);
                    match seen {
                        true => self.seen.push(key.place),
                        false => self.unseen.push(key.place),
                    }
                    self.defaults.extend(default);
                }
                "secret" if !matches!(node.data, YamlValue::Bool(_)) => self.wrong.push(node.place),
                "$ref" if !is_plain(node) => self.odd.push(node.place),
                _ if NAMES.contains(&name) => self.odd.push(key.place),
                _ if DATA.contains(&name) => {}
                _ if SCHEMA.contains(&name) => self.walk(node, seen),
                _ if NAMED.contains(&name) || BEYOND.contains(&name) => {
                    let seen = seen && NAMED.contains(&name);
                    for (_, member) in members(Some(node)) {
                        self.walk(member, seen);
                    }
                }
                _ if LISTED.contains(&name) => self.each(node, seen),
                _ => self.beyond(node),
            }
        }
    }

    fn each(&mut self, node: &YamlNode, seen: bool) {
        let schemas = items(Some(node)).iter();
        schemas.for_each(|schema| self.walk(schema, seen));
    }

    /// Under any other keyword: one schema, several by name, or a list of them.
    fn beyond(&mut self, node: &YamlNode) {
        self.walk(node, false);
        self.each(node, false);
    }
}

/// A pointer into the same schema, as it is written.
fn is_plain(node: &YamlNode) -> bool {
    let YamlValue::Text(target) = &node.data else {
        return true;
    };
    let pointer = target.strip_prefix('#');
    pointer.is_some_and(|at| (at.is_empty() || at.starts_with('/')) && !at.contains('%'))
}
