//! Reads the subschemas of a document into nodes.

use std::collections::HashMap;

use jsonschema::{Draft, Uri, Validator};
use referencing::{Registry, Resolver};
use serde_json::{Map, Value};

use super::graph::{ListedValues, NamePattern, NodeId, SchemaNode};
use super::text::PatternCost;
use super::walk;
use crate::{NoExternalReferences, applies_reference_siblings};

/// The URI of a document that has no identifier of its own.
const BASE: &str = "json-schema:///";

/// The nodes of a document, and which value each is of; the first is the document itself. `single`
/// compiles a schema of its own, for the patterns of names.
pub(super) fn read(
    document: &Value,
    single: &dyn Fn(&Value) -> Option<Validator>,
) -> (Vec<SchemaNode>, HashMap<*const Value, NodeId>) {
    let draft = Draft::default().detect(document);
    let registry = refers(document).then(|| {
        let registry = Registry::new().retriever(NoExternalReferences).draft(draft);
        registry.add(BASE, document)?.prepare()
    });
    // One that cannot be read is refused by the validator.
    let registry = registry.and_then(Result::ok);
    let resolver = registry.as_ref().and_then(|registry| {
        let base: Uri<String> = Uri::parse(BASE.to_owned()).ok()?;
        Some(registry.resolver(base))
    });
    let mut builder = Builder {
        document,
        draft,
        siblings: applies_reference_siblings(document),
        single,
        ids: HashMap::new(),
        open: Vec::new(),
        nodes: Vec::new(),
    };
    builder.id(document, resolver.as_ref());
    while let Some((id, schema, resolver)) = builder.open.pop() {
        let node = builder.node(schema, resolver.as_ref());
        if let Some(place) = builder.nodes.get_mut(id as usize) {
            *place = node;
        }
    }
    (builder.nodes, builder.ids)
}

/// Returns `true` if a document has any reference.
pub(super) fn refers(document: &Value) -> bool {
    const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];
    let mut open = vec![document];
    while let Some(value) = open.pop() {
        match value {
            Value::Object(members) => {
                if REFERENCES.iter().any(|name| members.contains_key(*name)) {
                    return true;
                }
                open.extend(members.values());
            }
            Value::Array(items) => open.extend(items),
            _ => {}
        }
    }
    false
}

/// The number of names that a map of dependencies lists.
fn names_in(members: &Map<String, Value>) -> u64 {
    let others = |of: &Value| of.as_array().map_or(0, Vec::len);
    members.values().map(|of| 1 + others(of) as u64).sum()
}

type Open<'a> = (NodeId, &'a Value, Option<Resolver<'a>>);

struct Builder<'a, 's> {
    document: &'a Value,
    draft: Draft,
    /// True if keywords beside a `$ref` count.
    siblings: bool,
    single: &'s dyn Fn(&Value) -> Option<Validator>,
    /// The nodes there are, by their place in memory.
    ids: HashMap<*const Value, NodeId>,
    /// Nodes that are not read yet.
    open: Vec<Open<'a>>,
    nodes: Vec<SchemaNode>,
}

impl<'a> Builder<'a, '_> {
    /// The node of a subschema, which is read later if it is new.
    fn id(&mut self, schema: &'a Value, around: Option<&Resolver<'a>>) -> NodeId {
        if let Some(id) = self.ids.get(&std::ptr::from_ref(schema)) {
            return *id;
        }
        let id = NodeId::try_from(self.nodes.len()).unwrap_or(NodeId::MAX);
        self.ids.insert(std::ptr::from_ref(schema), id);
        self.nodes.push(SchemaNode::default());
        let within = around.map(|around| {
            let resource = self.draft.create_resource_ref(schema);
            around
                .in_subresource(resource)
                .unwrap_or_else(|_| around.clone())
        });
        self.open.push((id, schema, within));
        id
    }

    fn node(&mut self, schema: &'a Value, at: Option<&Resolver<'a>>) -> SchemaNode {
        let mut node = SchemaNode::default();
        let Value::Object(keywords) = schema else {
            return node;
        };
        node.in_place = self.references(keywords, at);
        if !self.siblings && !node.in_place.is_empty() {
            return node;
        }
        for (keyword, of) in keywords {
            match (keyword.as_str(), of) {
                ("allOf" | "anyOf" | "oneOf", Value::Array(parts)) => {
                    let parts = parts.iter().map(|part| self.id(part, at));
                    node.in_place.extend(parts);
                }
                ("not" | "if" | "then" | "else", of) => node.in_place.push(self.id(of, at)),
                ("required", Value::Array(names)) => node.require(names.len() as u64),
                ("dependentRequired", Value::Object(members)) => node.require(names_in(members)),
                ("enum", Value::Array(values)) => {
                    node.listed = ListedValues {
                        count: values.len() as u64,
                        all: values.iter().map(|value| walk::size(value).0).sum(),
                    };
                }
                ("dependentSchemas" | "dependencies", Value::Object(members)) => {
                    node.require(names_in(members));
                    let schemas = members.iter().filter(|(_, of)| !of.is_array());
                    let schemas = schemas.map(|(name, of)| (name.clone(), self.id(of, at)));
                    node.dependent.extend(schemas);
                }
                ("properties", Value::Object(members)) => {
                    node.listed_names += members.len() as u64;
                    let members = members.iter();
                    let members = members.map(|(name, of)| (name.clone(), self.id(of, at)));
                    node.properties = members.collect();
                }
                ("patternProperties", Value::Object(members)) => {
                    let members = members.iter();
                    let members = members.map(|(pattern, of)| self.pattern(pattern, of, at));
                    node.patterns = members.collect();
                }
                ("additionalProperties" | "unevaluatedProperties", of) => {
                    node.additional.push(self.id(of, at));
                }
                ("propertyNames", of) => node.names = Some(self.id(of, at)),
                ("prefixItems" | "items", Value::Array(items)) => {
                    node.prefix = items.iter().map(|item| self.id(item, at)).collect();
                }
                ("items", of) => node.items = Some(self.id(of, at)),
                ("additionalItems", of) if keywords.get("items").is_some_and(Value::is_array) => {
                    node.items = Some(self.id(of, at));
                }
                ("contains" | "unevaluatedItems", of) => node.every_item.push(self.id(of, at)),
                ("uniqueItems", Value::Bool(unique)) => node.unique = *unique,
                ("pattern", Value::String(pattern)) => node.text.push(PatternCost::of(pattern)),
                ("minLength" | "maxLength" | "format", _) => node.text.push(PatternCost::SCAN),
                _ => {}
            }
        }
        node
    }

    fn pattern(&mut self, pattern: &str, of: &'a Value, at: Option<&Resolver<'a>>) -> NamePattern {
        let alone = Value::Object(Map::from_iter([(
            "pattern".to_owned(),
            Value::String(pattern.to_owned()),
        )]));
        NamePattern {
            source: pattern.to_owned(),
            cost: PatternCost::of(pattern),
            target: self.id(of, at),
            matcher: (self.single)(&alone),
        }
    }

    /// The subschemas that the references of a subschema name.
    fn references(
        &mut self,
        keywords: &'a Map<String, Value>,
        at: Option<&Resolver<'a>>,
    ) -> Vec<NodeId> {
        let Some(at) = at else {
            return Vec::new();
        };
        let mut found = Vec::new();
        let text = |name: &str| keywords.get(name).and_then(Value::as_str);
        if let Some(target) = text("$ref").and_then(|to| at.lookup(to).ok()) {
            let (schema, within, _) = target.into_inner();
            found.push(self.id(schema, Some(&within)));
        }
        if let Some(to) = text("$dynamicRef") {
            let anchor = to.rsplit('#').next().unwrap_or_default();
            let named = |schema: &Value| {
                schema.get("$dynamicAnchor").and_then(Value::as_str) == Some(anchor)
            };
            let target = at.lookup(to).ok();
            found.extend(self.dynamic(target.map(referencing::Resolved::into_inner), &named, at));
        }
        if text("$recursiveRef").is_some() {
            let named = |schema: &Value| schema.get("$recursiveAnchor") == Some(&Value::Bool(true));
            let target = at.lookup_recursive_ref().ok();
            found.extend(self.dynamic(target.map(referencing::Resolved::into_inner), &named, at));
        }
        found
    }

    /// The subschemas that a reference names that depends on how one came to it: the document
    /// itself, where it can be named so, since it is outermost; else everything that can.
    fn dynamic(
        &mut self,
        target: Option<(&'a Value, Resolver<'a>, Draft)>,
        named: &dyn Fn(&Value) -> bool,
        at: &Resolver<'a>,
    ) -> Vec<NodeId> {
        let Some((first, within, _)) = target else {
            return Vec::new();
        };
        if !named(first) {
            return vec![self.id(first, Some(&within))];
        }
        if named(self.document) {
            return vec![self.id(self.document, Some(at))];
        }
        let mut found = vec![self.id(first, Some(&within))];
        let mut open = vec![self.document];
        while let Some(value) = open.pop() {
            if named(value) && !std::ptr::eq(value, first) {
                found.push(self.id(value, Some(at)));
            }
            match value {
                Value::Object(members) => open.extend(members.values()),
                Value::Array(items) => open.extend(items),
                _ => {}
            }
        }
        found
    }
}
