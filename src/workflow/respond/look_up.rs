//! The names of `with`: look-ups in the world, by id or by indexed fields.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jmespath::{Rcvar, Variable};
use ktsu_projections::world::{Condition, IndexValue, World, WorldObject};
use serde_json::Value;

use super::names::{ResponderNames, shown_object};
use crate::definition::{CompiledFind, CompiledMatch, CompiledQuery, CompiledResponder};
use crate::expression::{EvaluationError, from_value, null, to_value};
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

/// What one look-up found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InspectedLookup {
    /// Its value.
    pub value: Value,
    /// The objects that it found or counted, in order of creation; of a count, the first
    /// [`MAX_COUNTED`].
    pub objects: Vec<Arc<str>>,
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
            value: to_value(value),
            objects: finder.objects(find)?,
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

    /// The ids of what a look-up is about.
    fn objects(&self, find: &CompiledFind) -> Result<Vec<Arc<str>>, EvaluationError> {
        let (query, most) = match find {
            CompiledFind::Object(id) => {
                let id = self.render(id, &self.names)?;
                let object = id.as_str().and_then(|id| self.world.object(id));
                return Ok(object.into_iter().map(|one| Arc::clone(&one.id)).collect());
            }
            CompiledFind::Objects(query) => (query, MAX_FOUND),
            CompiledFind::First(query) => (query, 1),
            CompiledFind::Count(query) => (query, MAX_COUNTED),
        };
        let objects = self.matching(query)?.take(most);
        objects.map(|object| Ok(Arc::clone(&object?.id))).collect()
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
