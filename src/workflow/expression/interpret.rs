//! Evaluation: a metered walk over the syntax tree, on values with or without provenance.
//!
//! The library's own evaluation has no limit, compares integers as floats, and does not end in
//! reasonable time on expressions that double their results. This one pays from a budget for every
//! node it visits and every element it creates.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "`run` has every node; the helper has the nodes that make collections"
)]

use jmespath::Variable;
use jmespath::ast::{Ast, Comparator};
use std::cmp::Ordering;

use super::error::EvaluationError;
use super::evaluated::EvaluatedValue;
use super::evaluator::Evaluator;
use super::functions::{self, computed};
use super::value::{compare_numbers, flag, null};

impl<V: EvaluatedValue> Evaluator<'_, V> {
    pub(super) fn run(&mut self, data: &V, ast: &Ast) -> Result<V, EvaluationError> {
        self.spend(1)?;
        match ast {
            Ast::Field { name, .. } => Ok(data
                .member(name)
                .unwrap_or_else(|| V::missing(data.shape()))),
            Ast::Identity { .. } => Ok(data.clone()),
            Ast::Literal { value, .. } => Ok(V::literal(value.clone())),
            Ast::Index { idx, .. } => Ok(index(data, *idx)),
            Ast::Subexpr { lhs, rhs, .. } => {
                let left = self.run(data, lhs)?;
                self.run(&left, rhs)
            }
            Ast::Or { lhs, rhs, .. } => self.either(data, lhs, rhs, true),
            Ast::And { lhs, rhs, .. } => self.either(data, lhs, rhs, false),
            Ast::Not { node, .. } => {
                let value = self.run(data, node)?;
                let negated = flag(!value.value().is_truthy());
                Ok(V::computed(negated, value.source()).chosen_by(value.chosen()))
            }
            Ast::Condition {
                predicate, then, ..
            } => {
                let holds = self.run(data, predicate)?;
                if holds.value().is_truthy() {
                    return Ok(self.run(data, then)?.chosen_by(&holds.shape()));
                }
                Ok(V::missing(holds.shape()))
            }
            Ast::Comparison {
                comparator,
                lhs,
                rhs,
                ..
            } => self.comparison(data, comparator, lhs, rhs),
            Ast::Function { name, args, .. } => self.call(data, name, args),
            // Only an argument of a function, where it is taken apart (see `analysis`).
            Ast::Expref { .. } => Ok(V::literal(null())),
            Ast::ObjectValues { .. }
            | Ast::Projection { .. }
            | Ast::Flatten { .. }
            | Ast::MultiList { .. }
            | Ast::MultiHash { .. }
            | Ast::Slice { .. } => self.collection(data, ast),
        }
    }

    /// `a || b` and `a && b`: `a` where its truth is the wanted one, else `b` because of `a`.
    fn either(
        &mut self,
        data: &V,
        lhs: &Ast,
        rhs: &Ast,
        wanted: bool,
    ) -> Result<V, EvaluationError> {
        let left = self.run(data, lhs)?;
        // A part of the left is there only because the whole is what it is.
        let shape = left.shape();
        let taken = match left.value().is_truthy() == wanted {
            true => left,
            false => self.run(data, rhs)?,
        };
        Ok(taken.chosen_by(&shape))
    }

    fn comparison(
        &mut self,
        data: &V,
        comparator: &Comparator,
        lhs: &Ast,
        rhs: &Ast,
    ) -> Result<V, EvaluationError> {
        let sides = [self.run(data, lhs)?, self.run(data, rhs)?];
        let [left, right] = sides.each_ref().map(V::value);
        let holds: fn(Ordering) -> bool = match comparator {
            Comparator::Equal | Comparator::NotEqual => {
                let same = self.equal(left, right)?;
                let holds = flag(same == matches!(comparator, Comparator::Equal));
                return Ok(computed(holds, &sides));
            }
            Comparator::LessThan => Ordering::is_lt,
            Comparator::LessThanEqual => Ordering::is_le,
            Comparator::GreaterThan => Ordering::is_gt,
            Comparator::GreaterThanEqual => Ordering::is_ge,
        };
        // Only numbers have an order; anything else compares to null.
        let value = match (&**left, &**right) {
            (Variable::Number(a), Variable::Number(b)) => flag(holds(compare_numbers(a, b))),
            _ => null(),
        };
        Ok(computed(value, &sides))
    }

    /// The nodes that make arrays and objects.
    fn collection(&mut self, data: &V, ast: &Ast) -> Result<V, EvaluationError> {
        match ast {
            Ast::ObjectValues { node, .. } => {
                let subject = self.run(data, node)?;
                let Some(members) = subject.members() else {
                    return Ok(V::missing(subject.shape()));
                };
                self.spend(members.len())?;
                Ok(subject.with_items(members.values().cloned().collect()))
            }
            Ast::Projection { lhs, rhs, .. } => self.projection(data, lhs, rhs),
            Ast::Flatten { node, .. } => {
                let subject = self.run(data, node)?;
                let Some(items) = subject.items() else {
                    return Ok(V::missing(subject.shape()));
                };
                let inner = items.iter().filter_map(|item| item.value().as_array());
                self.spend(inner.map(Vec::len).sum())?;
                Ok(flatten(&subject, &items))
            }
            Ast::Slice {
                start, stop, step, ..
            } => {
                let Some(items) = data.items() else {
                    return Ok(V::missing(data.shape()));
                };
                self.spend(items.len())?;
                Ok(data.with_items(slice(&items, *start, *stop, *step)))
            }
            Ast::MultiList { elements, .. } if !data.value().is_null() => {
                let made = elements.iter().map(|element| self.run(data, element));
                let made = made.collect::<Result<_, _>>()?;
                Ok(V::list(made, V::Provenance::default()).chosen_by(data.chosen()))
            }
            Ast::MultiHash { elements, .. } if !data.value().is_null() => {
                let made = elements
                    .iter()
                    .map(|pair| Ok((pair.key.clone(), self.run(data, &pair.value)?)));
                let members = made.collect::<Result<_, EvaluationError>>()?;
                Ok(V::map(members, V::Provenance::default()).chosen_by(data.chosen()))
            }
            _ => Ok(V::missing(data.shape())),
        }
    }

    /// Evaluates a projection. Null values are left out, so every element decides the positions of
    /// the others.
    fn projection(&mut self, data: &V, lhs: &Ast, rhs: &Ast) -> Result<V, EvaluationError> {
        let subject = self.run(data, lhs)?;
        let Some(items) = subject.items() else {
            return Ok(V::missing(subject.shape()));
        };
        let mut kept = Vec::new();
        let mut chosen = vec![subject.chosen().clone()];
        for item in items.iter() {
            let value = self.run(item, rhs)?;
            chosen.push(value.shape());
            if !value.value().is_null() {
                kept.push(value);
            }
        }
        Ok(V::list(kept, subject.source()).chosen_by(&V::union(&chosen)))
    }

    fn call(&mut self, data: &V, name: &str, args: &[Ast]) -> Result<V, EvaluationError> {
        match (name, args) {
            ("map", [Ast::Expref { ast, .. }, list]) => {
                let list = self.run(data, list)?;
                self.inspect(list.shape());
                let items = functions::items(name, &list)?;
                let made = items.iter().map(|item| self.run(item, ast));
                Ok(list.with_items(made.collect::<Result<_, _>>()?))
            }
            (_, [list, Ast::Expref { ast, .. }]) => {
                let list = self.run(data, list)?;
                self.inspect(list.shape());
                let items = functions::items(name, &list)?;
                let keyed = items
                    .iter()
                    .map(|item| Ok((self.run(item, ast)?, item.clone())));
                let keyed = keyed.collect::<Result<_, EvaluationError>>()?;
                functions::by_key(self, name, &list, keyed)
            }
            _ => {
                let args = args.iter().map(|arg| self.run(data, arg));
                let args: Vec<V> = args.collect::<Result<_, _>>()?;
                functions::call(self, name, &args)
            }
        }
    }
}

/// The elements of the elements that are arrays, and the others as they are.
pub(crate) fn flatten<V: EvaluatedValue>(subject: &V, items: &[V]) -> V {
    let mut flat = Vec::new();
    let (mut sources, mut chosen) = (vec![subject.source()], vec![subject.chosen().clone()]);
    for item in items {
        match item.items() {
            Some(inner) => {
                sources.push(item.source());
                chosen.push(item.chosen().clone());
                flat.extend(inner.iter().cloned());
            }
            None => flat.push(item.clone()),
        }
    }
    V::list(flat, V::union(&sources)).chosen_by(&V::union(&chosen))
}

fn index<V: EvaluatedValue>(data: &V, index: i32) -> V {
    let length = data.value().as_array().map_or(0, Vec::len);
    let from_end = usize::try_from(index.unsigned_abs()).unwrap_or(usize::MAX);
    let place = match index {
        0.. => Some(from_end),
        _ => length.checked_sub(from_end),
    };
    let found = place.and_then(|place| data.item(place));
    found.unwrap_or_else(|| V::missing(data.shape()))
}

fn slice<T: Clone>(items: &[T], start: Option<i32>, stop: Option<i32>, step: i32) -> Vec<T> {
    let length = i64::try_from(items.len()).unwrap_or(i64::MAX);
    let step = i64::from(step);
    let (low, high) = if step > 0 {
        (0, length)
    } else {
        (-1, length - 1)
    };
    let place = |given: Option<i32>, absent: i64| {
        given.map_or(absent, |given| {
            let given = i64::from(given);
            let from_start = if given < 0 { given + length } else { given };
            from_start.clamp(low, high)
        })
    };
    let forward = step > 0;
    let mut at = place(start, if forward { 0 } else { length - 1 });
    let end = place(stop, if forward { length } else { -1 });
    let mut taken = Vec::new();
    while (forward && at < end) || (!forward && at > end && step < 0) {
        if let Some(item) = usize::try_from(at).ok().and_then(|at| items.get(at)) {
            taken.push(item.clone());
        }
        at += step;
    }
    taken
}
