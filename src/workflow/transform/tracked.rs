//! The six operations on values that know where they came from.

use std::collections::{BTreeMap, HashSet};

use super::sort::{SortKey, order};
use super::{CompiledOp, CompiledTransform, TransformError, canonical};
use crate::expression::provenance::{Provenance, Tracked, union};
use crate::expression::tracked::{TrackedNameLookup, Tracker, flatten};
use crate::expression::{EvaluationError, Expression, null, truthy};

type Outcome = Result<Tracked, EvaluationError>;

impl CompiledTransform {
    /// As reading the inputs and [`CompiledTransform::run`], with the places of the result.
    ///
    /// # Errors
    /// What they refuse.
    pub fn track(
        &self,
        names: &dyn TrackedNameLookup,
        tracker: &mut Tracker,
    ) -> Result<Tracked, TransformError> {
        let refused = |op: Option<usize>| {
            move |error: EvaluationError| TransformError {
                code: error.code,
                message: error.message,
                op,
            }
        };
        let inputs = self.inputs.iter().map(|one| one.track(names, tracker));
        let inputs: Vec<Tracked> = inputs.collect::<Result<_, _>>().map_err(refused(None))?;
        let mut value = start(inputs);
        for (position, op) in self.ops.iter().enumerate() {
            let done = op.track(value, names, tracker);
            value = done.map_err(refused(Some(position)))?;
        }
        let members = BTreeMap::from([("result".to_owned(), value)]);
        Ok(Tracked::map(members, Provenance::default()))
    }

    /// What it does, in the words of its declaration: the inputs, then the operations.
    pub fn in_words(&self) -> String {
        let inputs = self.inputs.iter().map(|one| one.source().to_owned());
        let words = self.ops.iter().map(CompiledOp::in_words);
        let all: Vec<String> = inputs.chain(words).collect();
        all.join(" | ")
    }
}

impl CompiledOp {
    fn in_words(&self) -> String {
        let argument = match self {
            Self::Deduplicate(one) | Self::Filter(one) | Self::Map(one) => one.source().to_owned(),
            Self::Flatten => return self.name().to_owned(),
            Self::Merge(from) => {
                let sources: Vec<&str> = from.iter().map(Expression::source).collect();
                sources.join(", ")
            }
            Self::Sort { field, descending } => {
                let order = if *descending { " descending" } else { "" };
                format!("{}{order}", field.source())
            }
        };
        format!("{} {argument}", self.name())
    }

    fn track(
        &self,
        value: Tracked,
        names: &dyn TrackedNameLookup,
        tracker: &mut Tracker,
    ) -> Outcome {
        match self {
            Self::Deduplicate(field) => deduplicate(field, value, tracker),
            Self::Filter(expr) => filter(expr, &value, tracker),
            Self::Flatten => Ok(match value.items() {
                Some(items) => flatten(&value, items),
                None => value,
            }),
            Self::Map(expr) => {
                let items = elements(&value);
                let made = items.iter().map(|item| expr.track_on(item, tracker));
                let made = made.collect::<Result<_, _>>()?;
                Ok(Tracked::list(made, value.source()).chosen_by(value.chosen()))
            }
            Self::Merge(from) => {
                let mut merged = value;
                for expression in from {
                    let next = expression.track(names, tracker)?;
                    merged = match next.value().is_null() {
                        true => merged.chosen_by(&next.shape()),
                        false => deep(&merged, &next),
                    };
                }
                Ok(merged)
            }
            Self::Sort { field, descending } => sort(field, *descending, &value, tracker),
        }
    }
}

fn start(inputs: Vec<Tracked>) -> Tracked {
    let mut inputs = inputs.into_iter();
    let first = inputs.next().unwrap_or_else(|| Tracked::literal(null()));
    inputs.fold(first, |before, next| {
        match (before.members(), next.members()) {
            (Some(mut merged), Some(members)) => {
                merged.extend(members);
                both(&before, &next, merged)
            }
            _ => next,
        }
    })
}

fn both(before: &Tracked, next: &Tracked, members: BTreeMap<String, Tracked>) -> Tracked {
    let chosen = before.chosen().and(next.chosen());
    Tracked::map(members, before.source().and(&next.source())).chosen_by(&chosen)
}

fn deep(before: &Tracked, next: &Tracked) -> Tracked {
    if let (Some(mut merged), Some(members)) = (before.members(), next.members()) {
        for (key, value) in members {
            let value = match merged.get(&key) {
                Some(old) => deep(old, &value),
                None => value,
            };
            merged.insert(key, value);
        }
        return both(before, next, merged);
    }
    if let (Some(mut items), Some(more)) = (before.items(), next.items()) {
        items.extend(more);
        let chosen = before.chosen().and(next.chosen());
        return Tracked::list(items, before.source().and(&next.source())).chosen_by(&chosen);
    }
    next.clone()
}

fn elements(value: &Tracked) -> Vec<Tracked> {
    match value.items() {
        Some(items) => items,
        None if value.value().is_null() => Vec::new(),
        None => vec![value.clone()],
    }
}

/// The elements that were taken, and what took them.
fn taken(value: &Tracked, items: Vec<Tracked>, why: &[Provenance]) -> Tracked {
    let list = Tracked::list(items, value.source());
    list.chosen_by(value.chosen()).chosen_by(&union(why))
}

fn deduplicate(field: &Expression, value: Tracked, tracker: &mut Tracker) -> Outcome {
    let Some(items) = value.items() else {
        return Ok(value);
    };
    let (mut seen, mut kept, mut why) = (HashSet::new(), Vec::new(), Vec::new());
    for item in items {
        let key = field.track_on(&item, tracker)?;
        why.push(key.dependencies());
        if seen.insert(canonical(key.value())) {
            kept.push(item);
        }
    }
    Ok(taken(&value, kept, &why))
}

fn filter(expr: &Expression, value: &Tracked, tracker: &mut Tracker) -> Outcome {
    let (mut kept, mut why) = (Vec::new(), Vec::new());
    if value.items().is_none() {
        why.push(value.shape());
    }
    for item in elements(value) {
        if item.value().is_null() {
            why.push(item.shape());
            continue;
        }
        let holds = expr.track_on(&item, tracker)?;
        why.push(holds.shape());
        if item.members().is_none() && item.items().is_none() {
            why.push(item.shape());
        }
        if truthy(holds.value()) {
            kept.push(item);
        }
    }
    Ok(taken(value, kept, &why))
}

fn sort(field: &Expression, descending: bool, value: &Tracked, tracker: &mut Tracker) -> Outcome {
    tracker.inspect(value.shape());
    let Some(items) = value.items() else {
        return Err(super::type_error("an array", value.value()));
    };
    let (mut keyed, mut why) = (Vec::with_capacity(items.len()), Vec::new());
    for item in items {
        let key = field.track_on(&item, tracker)?;
        why.push(key.dependencies());
        keyed.push((SortKey::of(key.value()), item));
    }
    keyed.sort_by(|(a, _), (b, _)| order(a, b, descending));
    let sorted = keyed.into_iter().map(|(_, item)| item).collect();
    Ok(taken(value, sorted, &why))
}
