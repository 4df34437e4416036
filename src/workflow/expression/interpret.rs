//! Evaluation: a metered walk over the syntax tree.
//!
//! The library's own walk has no meter, compares integers as floats and works itself to death on
//! doubling expressions; this one spends from a budget for every node it visits and every element
//! it makes.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "`run` has every node; the helper has the nodes that make collections"
)]

use jmespath::ast::{Ast, Comparator};
use jmespath::{Rcvar, Variable};
use std::cmp::Ordering;

use super::value::{compare_numbers, equal, null};
use super::{EvaluationError, functions};

/// Nodes visited plus elements made; far above what honest data of 1 MiB needs.
pub(super) const BUDGET: u64 = 8_000_000;

pub(super) type EvaluationResult = Result<Rcvar, EvaluationError>;

pub(super) struct Interpreter {
    pub(super) remaining: u64,
}

impl Interpreter {
    pub(super) fn new(budget: u64) -> Self {
        Self { remaining: budget }
    }

    pub(super) fn spend(&mut self, cost: usize) -> Result<(), EvaluationError> {
        let left = self.remaining.checked_sub(cost as u64);
        self.remaining = left.ok_or_else(|| EvaluationError {
            code: "expression_cost",
            message: "the expression needs too much work".to_owned(),
        })?;
        Ok(())
    }

    pub(super) fn equal(&mut self, a: &Rcvar, b: &Rcvar) -> Result<bool, EvaluationError> {
        equal(a, b, &mut || self.spend(1))
    }

    pub(super) fn run(&mut self, data: &Rcvar, ast: &Ast) -> EvaluationResult {
        self.spend(1)?;
        match ast {
            Ast::Field { name, .. } => Ok(data.get_field(name)),
            Ast::Identity { .. } => Ok(data.clone()),
            Ast::Literal { value, .. } => Ok(value.clone()),
            Ast::Index { idx, .. } => Ok(index(data, *idx)),
            Ast::Subexpr { lhs, rhs, .. } => {
                let left = self.run(data, lhs)?;
                self.run(&left, rhs)
            }
            Ast::Or { lhs, rhs, .. } => {
                let left = self.run(data, lhs)?;
                if left.is_truthy() {
                    return Ok(left);
                }
                self.run(data, rhs)
            }
            Ast::And { lhs, rhs, .. } => {
                let left = self.run(data, lhs)?;
                if !left.is_truthy() {
                    return Ok(left);
                }
                self.run(data, rhs)
            }
            Ast::Not { node, .. } => {
                let value = self.run(data, node)?;
                Ok(flag(!value.is_truthy()))
            }
            Ast::Condition {
                predicate, then, ..
            } => {
                if self.run(data, predicate)?.is_truthy() {
                    return self.run(data, then);
                }
                Ok(null())
            }
            Ast::Comparison {
                comparator,
                lhs,
                rhs,
                ..
            } => self.comparison(data, comparator, lhs, rhs),
            Ast::Function { name, args, .. } => functions::call(self, data, name, args),
            // Only an argument of a function, where it is taken apart (see `judge`).
            Ast::Expref { .. } => Ok(null()),
            Ast::ObjectValues { .. }
            | Ast::Projection { .. }
            | Ast::Flatten { .. }
            | Ast::MultiList { .. }
            | Ast::MultiHash { .. }
            | Ast::Slice { .. } => self.collection(data, ast),
        }
    }

    fn comparison(
        &mut self,
        data: &Rcvar,
        comparator: &Comparator,
        lhs: &Ast,
        rhs: &Ast,
    ) -> EvaluationResult {
        let left = self.run(data, lhs)?;
        let right = self.run(data, rhs)?;
        let holds: fn(Ordering) -> bool = match comparator {
            Comparator::Equal => return self.equal(&left, &right).map(flag),
            Comparator::NotEqual => return self.equal(&left, &right).map(|same| flag(!same)),
            Comparator::LessThan => Ordering::is_lt,
            Comparator::LessThanEqual => Ordering::is_le,
            Comparator::GreaterThan => Ordering::is_gt,
            Comparator::GreaterThanEqual => Ordering::is_ge,
        };
        // Only numbers have an order; anything else compares to null.
        Ok(match (&*left, &*right) {
            (Variable::Number(a), Variable::Number(b)) => flag(holds(compare_numbers(a, b))),
            _ => null(),
        })
    }

    /// The nodes that make arrays and objects.
    fn collection(&mut self, data: &Rcvar, ast: &Ast) -> EvaluationResult {
        match ast {
            Ast::ObjectValues { node, .. } => {
                let subject = self.run(data, node)?;
                let Variable::Object(members) = &*subject else {
                    return Ok(null());
                };
                self.spend(members.len())?;
                Ok(array(members.values().cloned().collect()))
            }
            Ast::Projection { lhs, rhs, .. } => self.projection(data, lhs, rhs),
            Ast::Flatten { node, .. } => {
                let subject = self.run(data, node)?;
                let Some(items) = subject.as_array() else {
                    return Ok(null());
                };
                self.flatten(items).map(array)
            }
            Ast::Slice {
                start, stop, step, ..
            } => {
                let Some(items) = data.as_array() else {
                    return Ok(null());
                };
                self.spend(items.len())?;
                Ok(array(slice(items, *start, *stop, *step)))
            }
            Ast::MultiList { elements, .. } if !data.is_null() => {
                let made = elements.iter().map(|element| self.run(data, element));
                made.collect::<Result<_, _>>().map(array)
            }
            Ast::MultiHash { elements, .. } if !data.is_null() => {
                let made = elements
                    .iter()
                    .map(|pair| Ok((pair.key.clone(), self.run(data, &pair.value)?)));
                let members = made.collect::<Result<_, EvaluationError>>()?;
                Ok(Rcvar::new(Variable::Object(members)))
            }
            _ => Ok(null()),
        }
    }

    fn projection(&mut self, data: &Rcvar, lhs: &Ast, rhs: &Ast) -> EvaluationResult {
        let subject = self.run(data, lhs)?;
        let Some(items) = subject.as_array() else {
            return Ok(null());
        };
        let mut kept = Vec::new();
        for item in items {
            let value = self.run(item, rhs)?;
            if !value.is_null() {
                kept.push(value);
            }
        }
        Ok(array(kept))
    }

    fn flatten(&mut self, items: &[Rcvar]) -> Result<Vec<Rcvar>, EvaluationError> {
        let mut flat = Vec::new();
        for item in items {
            match item.as_array() {
                Some(inner) => {
                    self.spend(inner.len())?;
                    flat.extend(inner.iter().cloned());
                }
                None => flat.push(item.clone()),
            }
        }
        Ok(flat)
    }
}

pub(super) fn array(items: Vec<Rcvar>) -> Rcvar {
    Rcvar::new(Variable::Array(items))
}

pub(super) fn flag(value: bool) -> Rcvar {
    Rcvar::new(Variable::Bool(value))
}

fn index(data: &Rcvar, index: i32) -> Rcvar {
    let Some(items) = data.as_array() else {
        return null();
    };
    let from_end = usize::try_from(index.unsigned_abs()).unwrap_or(usize::MAX);
    let place = match index {
        0.. => Some(from_end),
        _ => items.len().checked_sub(from_end),
    };
    place
        .and_then(|place| items.get(place))
        .cloned()
        .unwrap_or_else(null)
}

pub(super) fn slice<T: Clone>(
    items: &[T],
    start: Option<i32>,
    stop: Option<i32>,
    step: i32,
) -> Vec<T> {
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
