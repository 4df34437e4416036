//! Evaluation that also says where every part of the value came from.
//!
//! The same walk over the same syntax tree as `interpret`, on values with their places. It agrees
//! with it in every value and every refusal; a property test holds the two together.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "`run` has every node; the helper has the nodes that make collections"
)]

use std::cmp::Ordering;
use std::collections::BTreeMap;

use jmespath::ast::{Ast, Comparator};
use jmespath::{Rcvar, Variable};

use super::interpret::{self, BUDGET, Interpreter};
use super::provenance::{Provenance, Tracked, union};
use super::value::{compare_numbers, null};
use super::{EvaluationError, Expression, Root, functions, value};

/// Where names and the places of their values come from.
pub trait TrackedNameLookup {
    /// The value of a name, or nothing: then it is null.
    fn get(&self, root: &Root) -> Option<Tracked>;
}

type Outcome = Result<Tracked, EvaluationError>;

/// One evaluation, or several, with everything they looked at that could have made them fail.
#[derive(Default)]
pub struct Tracker {
    inspected: Vec<Provenance>,
}

impl Tracker {
    /// What could have made an evaluation fail by being something else.
    pub fn inspected(&self) -> Provenance {
        union(&self.inspected)
    }

    /// Notes that something else at these places could be refused.
    pub fn inspect(&mut self, marks: Provenance) {
        if !marks.is_empty() {
            self.inspected.push(marks);
        }
    }
}

impl Expression {
    /// As [`Expression::evaluate`], with the places of the result.
    ///
    /// # Errors
    /// What [`Expression::evaluate`] refuses.
    pub fn track(&self, names: &dyn TrackedNameLookup, tracker: &mut Tracker) -> Outcome {
        let root = self.tracked_root(names);
        self.track_on(&root, tracker)
    }

    /// As [`Expression::evaluate_on`], with the places of the result.
    ///
    /// # Errors
    /// What [`Expression::evaluate_on`] refuses.
    pub fn track_on(&self, element: &Tracked, tracker: &mut Tracker) -> Outcome {
        let mut walk = Walk {
            run: Interpreter::new(BUDGET),
            tracker,
        };
        let made = walk.run(element, &self.ast)?;
        value::measure(made.value())?;
        Ok(made)
    }

    /// See `root_object`.
    fn tracked_root(&self, names: &dyn TrackedNameLookup) -> Tracked {
        let mut object = BTreeMap::new();
        let mut env = BTreeMap::new();
        let mut steps = BTreeMap::new();
        for root in &self.roots {
            let Some(value) = names.get(root) else {
                continue;
            };
            match root {
                Root::Params => drop(object.insert("params".to_owned(), value)),
                Root::Item => drop(object.insert("item".to_owned(), value)),
                Root::ItemIndex => drop(object.insert("item_index".to_owned(), value)),
                Root::Env(name) => drop(env.insert(name.clone(), value)),
                Root::Step(id) => {
                    if id != "null" {
                        object.insert(id.clone(), value.clone());
                    }
                    steps.insert(id.clone(), value);
                }
            }
        }
        object.insert("env".to_owned(), Tracked::map(env, Provenance::default()));
        object.insert(
            "step".to_owned(),
            Tracked::map(steps, Provenance::default()),
        );
        Tracked::map(object, Provenance::default())
    }
}

struct Walk<'t> {
    run: Interpreter,
    tracker: &'t mut Tracker,
}

impl Walk<'_> {
    fn run(&mut self, data: &Tracked, ast: &Ast) -> Outcome {
        self.run.spend(1)?;
        match ast {
            Ast::Field { name, .. } => Ok(field(data, name)),
            Ast::Identity { .. } => Ok(data.clone()),
            Ast::Literal { value, .. } => Ok(Tracked::literal(value.clone())),
            Ast::Index { idx, .. } => Ok(index(data, *idx)),
            Ast::Subexpr { lhs, rhs, .. } => {
                let left = self.run(data, lhs)?;
                self.run(&left, rhs)
            }
            Ast::Or { lhs, rhs, .. } => self.either(data, lhs, rhs, true),
            Ast::And { lhs, rhs, .. } => self.either(data, lhs, rhs, false),
            Ast::Not { node, .. } => {
                let value = self.run(data, node)?;
                let made = interpret::flag(!value.value().is_truthy());
                Ok(Tracked::computed(made, value.source()).chosen_by(value.chosen()))
            }
            Ast::Condition {
                predicate, then, ..
            } => {
                let holds = self.run(data, predicate)?;
                if holds.value().is_truthy() {
                    return Ok(self.run(data, then)?.chosen_by(&holds.shape()));
                }
                Ok(Tracked::missing(holds.shape()))
            }
            Ast::Comparison {
                comparator,
                lhs,
                rhs,
                ..
            } => self.comparison(data, comparator, lhs, rhs),
            Ast::Function { name, args, .. } => self.call(data, name, args),
            Ast::Expref { .. } => Ok(Tracked::literal(null())),
            Ast::ObjectValues { .. }
            | Ast::Projection { .. }
            | Ast::Flatten { .. }
            | Ast::MultiList { .. }
            | Ast::MultiHash { .. }
            | Ast::Slice { .. } => self.collection(data, ast),
        }
    }

    /// `a || b` and `a && b`: `a` where its truth is what is asked for, else `b` because of `a`.
    fn either(&mut self, data: &Tracked, lhs: &Ast, rhs: &Ast, wanted: bool) -> Outcome {
        let left = self.run(data, lhs)?;
        if left.value().is_truthy() == wanted {
            // A part of it is there only because the whole is what it is.
            let shape = left.shape();
            return Ok(left.chosen_by(&shape));
        }
        Ok(self.run(data, rhs)?.chosen_by(&left.shape()))
    }

    fn comparison(
        &mut self,
        data: &Tracked,
        comparator: &Comparator,
        lhs: &Ast,
        rhs: &Ast,
    ) -> Outcome {
        let left = self.run(data, lhs)?;
        let right = self.run(data, rhs)?;
        let holds: fn(Ordering) -> bool = match comparator {
            Comparator::Equal | Comparator::NotEqual => {
                let same = self.run.equal(left.value(), right.value())?;
                let made = interpret::flag(same == matches!(comparator, Comparator::Equal));
                return Ok(computed(made, [&left, &right]));
            }
            Comparator::LessThan => Ordering::is_lt,
            Comparator::LessThanEqual => Ordering::is_le,
            Comparator::GreaterThan => Ordering::is_gt,
            Comparator::GreaterThanEqual => Ordering::is_ge,
        };
        let made = match (&**left.value(), &**right.value()) {
            (Variable::Number(a), Variable::Number(b)) => {
                interpret::flag(holds(compare_numbers(a, b)))
            }
            _ => null(),
        };
        Ok(computed(made, [&left, &right]))
    }

    /// The nodes that make arrays and objects.
    fn collection(&mut self, data: &Tracked, ast: &Ast) -> Outcome {
        match ast {
            Ast::ObjectValues { node, .. } => {
                let subject = self.run(data, node)?;
                let Some(members) = subject.members() else {
                    return Ok(Tracked::missing(subject.shape()));
                };
                self.run.spend(members.len())?;
                Ok(like(&subject, members.into_values().collect()))
            }
            Ast::Projection { lhs, rhs, .. } => self.projection(data, lhs, rhs),
            Ast::Flatten { node, .. } => {
                let subject = self.run(data, node)?;
                let Some(items) = subject.items() else {
                    return Ok(Tracked::missing(subject.shape()));
                };
                self.run.spend(items.len())?;
                Ok(flatten(&subject, items))
            }
            Ast::Slice {
                start, stop, step, ..
            } => {
                let Some(items) = data.items() else {
                    return Ok(Tracked::missing(data.shape()));
                };
                self.run.spend(items.len())?;
                Ok(like(data, interpret::slice(&items, *start, *stop, *step)))
            }
            Ast::MultiList { elements, .. } if !data.value().is_null() => {
                let made = elements.iter().map(|element| self.run(data, element));
                let made = made.collect::<Result<_, _>>()?;
                Ok(Tracked::list(made, Provenance::default()).chosen_by(data.chosen()))
            }
            Ast::MultiHash { elements, .. } if !data.value().is_null() => {
                let made = elements
                    .iter()
                    .map(|pair| Ok((pair.key.clone(), self.run(data, &pair.value)?)));
                let members = made.collect::<Result<_, EvaluationError>>()?;
                Ok(Tracked::map(members, Provenance::default()).chosen_by(data.chosen()))
            }
            _ => Ok(Tracked::missing(data.shape())),
        }
    }

    /// What is null is left out, so every element decides where the others stand.
    fn projection(&mut self, data: &Tracked, lhs: &Ast, rhs: &Ast) -> Outcome {
        let subject = self.run(data, lhs)?;
        let Some(items) = subject.items() else {
            return Ok(Tracked::missing(subject.shape()));
        };
        let mut kept = Vec::new();
        let mut chosen = vec![subject.chosen().clone()];
        for item in items {
            let value = self.run(&item, rhs)?;
            chosen.push(value.shape());
            if !value.value().is_null() {
                kept.push(value);
            }
        }
        Ok(Tracked::list(kept, subject.source()).chosen_by(&union(&chosen)))
    }

    fn call(&mut self, data: &Tracked, name: &str, args: &[Ast]) -> Outcome {
        match (name, args) {
            ("map", [Ast::Expref { ast, .. }, list]) => {
                let list = self.run(data, list)?;
                self.tracker.inspect(list.shape());
                functions::items(name, list.value())?;
                let items = list.items().unwrap_or_default();
                let made = items.iter().map(|item| self.run(item, ast));
                let made = made.collect::<Result<_, _>>()?;
                Ok(like(&list, made))
            }
            (_, [list, Ast::Expref { ast, .. }]) => {
                let list = self.run(data, list)?;
                self.by(name, &list, ast)
            }
            _ => {
                let args = args.iter().map(|arg| self.run(data, arg));
                let args: Vec<Tracked> = args.collect::<Result<_, _>>()?;
                self.plain(name, &args)
            }
        }
    }

    /// `sort_by`, `max_by`, `min_by`.
    fn by(&mut self, name: &str, list: &Tracked, ast: &Ast) -> Outcome {
        self.tracker.inspect(list.shape());
        functions::items(name, list.value())?;
        let mut keyed = Vec::new();
        for item in list.items().unwrap_or_default() {
            keyed.push((self.run(&item, ast)?, item));
        }
        let keys: Vec<Provenance> = keyed.iter().map(|(key, _)| key.dependencies()).collect();
        let keys = union(&keys);
        self.tracker.inspect(keys.clone());
        functions::ordered(name, keyed.iter().map(|(key, _)| key.value()))?;
        self.run.spend(keyed.len())?;
        let order = |a: &Tracked, b: &Tracked| functions::order(a.value(), b.value());
        let best = match name {
            "sort_by" => {
                keyed.sort_by(|a, b| order(&a.0, &b.0));
                let sorted = keyed.into_iter().map(|(_, item)| item).collect();
                return Ok(like(list, sorted).chosen_by(&keys));
            }
            "max_by" => functions::best(keyed, |a, b| order(&a.0, &b.0).is_gt()),
            _ => functions::best(keyed, |a, b| order(&a.0, &b.0).is_lt()),
        };
        let why = keys.and(list.chosen());
        Ok(match best {
            Some((_, item)) => item.chosen_by(&why),
            None => Tracked::missing(list.shape()),
        })
    }

    fn plain(&mut self, name: &str, args: &[Tracked]) -> Outcome {
        for arg in args {
            let looked_at = match name {
                "not_null" | "to_array" | "to_number" | "to_string" | "type" => continue,
                "keys" | "length" | "merge" | "reverse" | "values" => arg.shape(),
                _ => arg.dependencies(),
            };
            self.tracker.inspect(looked_at);
        }
        let values: Vec<Rcvar> = args.iter().map(|arg| arg.value().clone()).collect();
        let value = functions::plain(&mut self.run, name, &values)?;
        let [first, rest @ ..] = args else {
            return Ok(Tracked::literal(value));
        };
        Ok(match (name, first.items()) {
            ("to_array", Some(_)) => first.clone(),
            ("to_array", None) => {
                Tracked::list(vec![first.clone()], Provenance::default()).chosen_by(first.chosen())
            }
            ("to_number", _) if matches!(&**first.value(), Variable::Number(_)) => first.clone(),
            ("to_string", _) if matches!(&**first.value(), Variable::String(_)) => first.clone(),
            ("keys" | "length" | "type", _) => {
                Tracked::computed(value, first.source()).chosen_by(first.chosen())
            }
            ("values", _) => {
                let members = first.members().unwrap_or_default();
                like(first, members.into_values().collect())
            }
            ("reverse", Some(mut items)) => {
                items.reverse();
                like(first, items)
            }
            ("sort", Some(mut items)) => {
                items.sort_by(|a, b| functions::order(a.value(), b.value()));
                like(first, items).chosen_by(&first.dependencies())
            }
            ("max" | "min", Some(items)) => extreme(name, first, items),
            ("contains", Some(items)) => contains(value, first, items, rest),
            ("merge", _) => merge(args),
            ("not_null", _) => not_null(args),
            _ => computed(value, args),
        })
    }
}

/// A list made from another's elements: chosen by what chose that one.
fn like(subject: &Tracked, items: Vec<Tracked>) -> Tracked {
    Tracked::list(items, subject.source()).chosen_by(subject.chosen())
}

/// One value made of all of others.
fn computed<'a>(value: Rcvar, from: impl IntoIterator<Item = &'a Tracked>) -> Tracked {
    let (mut sources, mut chosen) = (Vec::new(), Vec::new());
    for one in from {
        sources.push(one.sources());
        chosen.push(one.choosers());
    }
    Tracked::computed(value, union(&sources)).chosen_by(&union(&chosen))
}

fn field(data: &Tracked, name: &str) -> Tracked {
    data.member(name)
        .unwrap_or_else(|| Tracked::missing(data.shape()))
}

fn index(data: &Tracked, index: i32) -> Tracked {
    let length = data.value().as_array().map_or(0, Vec::len);
    let from_end = usize::try_from(index.unsigned_abs()).unwrap_or(usize::MAX);
    let place = match index {
        0.. => Some(from_end),
        _ => length.checked_sub(from_end),
    };
    let found = place.and_then(|place| data.item(place));
    found.unwrap_or_else(|| Tracked::missing(data.shape()))
}

/// The elements of the elements that are arrays, and the others as they are.
pub fn flatten(subject: &Tracked, items: Vec<Tracked>) -> Tracked {
    let mut flat = Vec::new();
    let (mut marks, mut chosen) = (vec![subject.source()], vec![subject.chosen().clone()]);
    for item in items {
        match item.items() {
            Some(inner) => {
                marks.push(item.source());
                chosen.push(item.chosen().clone());
                flat.extend(inner);
            }
            None => flat.push(item),
        }
    }
    Tracked::list(flat, union(&marks)).chosen_by(&union(&chosen))
}

/// The best element, chosen by all the others.
fn extreme(name: &str, list: &Tracked, items: Vec<Tracked>) -> Tracked {
    let better = |a: &Tracked, b: &Tracked| {
        let order = functions::order(a.value(), b.value());
        if name == "max" {
            order.is_gt()
        } else {
            order.is_lt()
        }
    };
    let why = list.dependencies();
    match functions::best(items, better) {
        Some(item) => item.chosen_by(&why),
        None => Tracked::missing(why),
    }
}

/// Whether an array holds a value: the one element that does, or all that do not, made the answer.
fn contains(value: Rcvar, list: &Tracked, items: Vec<Tracked>, wanted: &[Tracked]) -> Tracked {
    let why = list.dependencies();
    let Some(wanted) = wanted.first() else {
        return Tracked::literal(value).chosen_by(&why);
    };
    let same = |item: &&Tracked| item.to_value() == wanted.to_value();
    let hits: Vec<&Tracked> = items.iter().filter(same).collect();
    let sources = match hits.as_slice() {
        [] if items.is_empty() => list.source(),
        [] => union(&[list.sources(), wanted.sources()]),
        [one] => union(&[one.sources(), wanted.sources()]),
        _ => wanted.sources(),
    };
    let why = why.and(&wanted.dependencies());
    Tracked::computed(value, sources).chosen_by(&why)
}

fn merge(args: &[Tracked]) -> Tracked {
    let mut merged = BTreeMap::new();
    let (mut sources, mut chosen) = (Vec::new(), Vec::new());
    for arg in args {
        merged.extend(arg.members().unwrap_or_default());
        sources.push(arg.source());
        chosen.push(arg.chosen().clone());
    }
    Tracked::map(merged, union(&sources)).chosen_by(&union(&chosen))
}

fn not_null(args: &[Tracked]) -> Tracked {
    let mut why = Vec::new();
    for arg in args {
        if !arg.value().is_null() {
            return arg.clone().chosen_by(&union(&why));
        }
        why.push(arg.shape());
    }
    Tracked::missing(union(&why))
}
