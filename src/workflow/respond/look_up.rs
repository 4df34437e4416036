//! The names of `with`: look-ups in the world, by id or by indexed fields.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jmespath::{Rcvar, Variable};
use ktsu_projections::world::{Condition, IndexValue, World, WorldObject};
use serde_json::Value;

use super::names::{ResponderNames, shown_object};
use crate::definition::{CompiledFind, CompiledMatch, CompiledQuery, CompiledResponder};
use crate::expression::{EvaluationError, from_value, null};
use crate::rules::DecisionRules;
use crate::template::Template;

/// The most objects that one look-up gives.
const MAX_FOUND: usize = 10_000;

/// Evaluates the look-ups of a responder in order; each sees those before it. Gives what they found,
/// and what the responder mentions of its trigger.
pub(super) fn look_up(
    responder: &CompiledResponder,
    names: &ResponderNames<'_>,
    world: &World,
    rules: DecisionRules,
) -> Result<BTreeMap<String, Rcvar>, EvaluationError> {
    each(responder, names, world, rules, |_, _, _| Ok(()))
}

/// The result of one look-up.
#[derive(Debug, Clone)]
pub struct InspectedLookup {
    /// Its value.
    pub value: Rcvar,
    /// The objects behind it.
    pub objects: FoundObjects,
    /// The number of objects that were looked at one by one.
    pub examined: usize,
}

/// The objects behind the value of a look-up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FoundObjects {
    /// These, in order of creation; of a count, the first [`MAX_COUNTED`].
    Named(Vec<Arc<str>>),
    /// A count that was read from an index: those of a type for which all conditions hold.
    Indexed(String, Vec<Condition>),
}

/// The most objects that are named of those that a look-up counts.
pub const MAX_COUNTED: usize = 1000;

/// As [`look_up`], with the objects behind each value, in the order of the look-ups.
pub(super) fn inspect(
    responder: &CompiledResponder,
    names: &ResponderNames<'_>,
    world: &World,
    rules: DecisionRules,
) -> Result<Vec<InspectedLookup>, EvaluationError> {
    let mut inspected = Vec::with_capacity(responder.lookups.len());
    each(responder, names, world, rules, |finder, find, value| {
        inspected.push(InspectedLookup {
            value: value.clone(),
            objects: finder.objects(find)?,
            examined: finder.examined(find, value)?,
        });
        Ok(())
    })?;
    Ok(inspected)
}

/// Evaluates look-ups in order, and shows each with its value.
fn each(
    responder: &CompiledResponder,
    names: &ResponderNames<'_>,
    world: &World,
    rules: DecisionRules,
    mut see: impl FnMut(&Finder<'_>, &CompiledFind, &Rcvar) -> Result<(), EvaluationError>,
) -> Result<BTreeMap<String, Rcvar>, EvaluationError> {
    let mut found = names.of_trigger_once(responder.roots());
    for lookup in &responder.lookups {
        let finder = Finder {
            names: names.with_locals(&found),
            world,
            rules,
        };
        let value = finder.find(&lookup.find)?;
        see(&finder, &lookup.find, &value)?;
        found.insert(lookup.name.clone(), value);
    }
    Ok(found)
}

struct Finder<'a> {
    names: ResponderNames<'a>,
    world: &'a World,
    rules: DecisionRules,
}

impl Finder<'_> {
    fn find(&self, find: &CompiledFind) -> Result<Rcvar, EvaluationError> {
        Ok(match find {
            CompiledFind::Object(id) => {
                let id = self.render(id, &self.names)?;
                let object = id.as_str().and_then(|id| self.world.object(id));
                object.map_or_else(null, |object| shown_object(object))
            }
            CompiledFind::Objects(query) => {
                let objects = self.matching(query)?.take(MAX_FOUND + 1);
                let mut shown = Vec::new();
                for object in objects {
                    shown.push(shown_object(object?));
                }
                if shown.len() > MAX_FOUND {
                    return Err(EvaluationError {
                        code: "expression_cost",
                        message: format!("the look-up finds more than {MAX_FOUND} objects"),
                    });
                }
                Rcvar::new(Variable::Array(shown))
            }
            CompiledFind::First(query) => match self.matching(query)?.next() {
                Some(object) => shown_object(object?),
                None => null(),
            },
            CompiledFind::Count(query) => {
                let count = match &query.without {
                    None => {
                        let conditions = self.conditions(&query.fields, &self.names)?;
                        self.world.count(&query.kind, &conditions)
                    }
                    Some(_) => {
                        let mut count = 0;
                        for object in self.matching(query)? {
                            object?;
                            count += 1;
                        }
                        count
                    }
                };
                from_value(&Value::from(count))
            }
        })
    }

    /// The objects that a look-up is about.
    fn objects(&self, find: &CompiledFind) -> Result<FoundObjects, EvaluationError> {
        let (query, most) = match find {
            CompiledFind::Object(id) => {
                let id = self.render(id, &self.names)?;
                let object = id.as_str().and_then(|id| self.world.object(id));
                let object = object.into_iter().map(|one| Arc::clone(&one.id));
                return Ok(FoundObjects::Named(object.collect()));
            }
            CompiledFind::Count(query) if query.without.is_none() => {
                let conditions = self.conditions(&query.fields, &self.names)?;
                return Ok(FoundObjects::Indexed(query.kind.clone(), conditions));
            }
            CompiledFind::Objects(query) => (query, MAX_FOUND),
            CompiledFind::First(query) => (query, 1),
            CompiledFind::Count(query) => (query, MAX_COUNTED),
        };
        let objects = self.matching(query)?.take(most);
        let ids = objects.map(|object| Ok(Arc::clone(&object?.id)));
        Ok(FoundObjects::Named(ids.collect::<Result<_, _>>()?))
    }

    /// The number of objects that a look-up looked at one by one: those it gives, and with
    /// `without` all for which that was asked.
    fn examined(&self, find: &CompiledFind, value: &Rcvar) -> Result<usize, EvaluationError> {
        let (CompiledFind::Objects(query)
        | CompiledFind::First(query)
        | CompiledFind::Count(query)) = find
        else {
            return Ok(1);
        };
        if query.without.is_some() {
            let conditions = self.conditions(&query.fields, &self.names)?;
            return Ok(self.world.count(&query.kind, &conditions));
        }
        Ok(value.as_array().map_or(1, Vec::len))
    }

    /// The objects of a query, in order of creation; an object for which `without` cannot be
    /// evaluated is an error in its place.
    fn matching<'q>(
        &'q self,
        query: &'q CompiledQuery,
    ) -> Result<impl Iterator<Item = Result<&'q WorldObject, EvaluationError>> + 'q, EvaluationError>
    {
        let conditions = self.conditions(&query.fields, &self.names)?;
        let found = self.world.find(&query.kind, &conditions);
        Ok(found.filter_map(move |object| {
            let Some((kind, fields)) = &query.without else {
                return Some(Ok(&**object));
            };
            let item = Some(shown_object(object));
            let names = self.names.clone().with_item(item, 0);
            match self.conditions(fields, &names) {
                Err(error) => Some(Err(error)),
                Ok(conditions) => {
                    let exists = self.world.find(kind, &conditions).next().is_some();
                    (!exists).then_some(Ok(&**object))
                }
            }
        }))
    }

    fn conditions(
        &self,
        fields: &[CompiledMatch],
        names: &ResponderNames<'_>,
    ) -> Result<Vec<Condition>, EvaluationError> {
        let conditions = fields.iter().map(|one| {
            let value = self.render(&one.value, names)?;
            let values: BTreeSet<IndexValue> = match (&value, one.any) {
                (Value::Array(values), true) => values.iter().filter_map(IndexValue::of).collect(),
                (_, true) => BTreeSet::new(),
                (value, false) => IndexValue::of(value).into_iter().collect(),
            };
            Ok(Condition {
                field: one.field.clone(),
                values,
            })
        });
        conditions.collect()
    }

    fn render(
        &self,
        template: &Template,
        names: &ResponderNames<'_>,
    ) -> Result<Value, EvaluationError> {
        let rendered = template.render(names, &|name| names.is_secret(name), self.rules)?;
        Ok(rendered.value)
    }
}
