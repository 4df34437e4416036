//! The budget of an evaluation, and what it has inspected.

use jmespath::Rcvar;

use super::error::{EvaluationError, MAX_RESULT};
use super::evaluated::EvaluatedValue;
use super::provenance::Tracked;
use super::value::{equal, measure};

/// The values that evaluations looked at and that could have made them fail.
#[derive(Debug)]
pub struct Tracker<V: EvaluatedValue = Tracked> {
    inspected: Vec<V::Provenance>,
}

impl<V: EvaluatedValue> Default for Tracker<V> {
    fn default() -> Self {
        Self {
            inspected: Vec::new(),
        }
    }
}

impl<V: EvaluatedValue> Tracker<V> {
    /// The places that could have made an evaluation fail by having another value.
    pub fn inspected(&self) -> V::Provenance {
        V::union(&self.inspected)
    }

    /// Records that another value at these places could be refused.
    pub fn inspect(&mut self, places: V::Provenance) {
        if !V::is_empty(&places) {
            self.inspected.push(places);
        }
    }
}

/// One evaluation, or several that share what they may cost.
pub struct Evaluator<'t, V: EvaluatedValue> {
    work: u64,
    bytes: usize,
    pub(super) tracker: &'t mut Tracker<V>,
}

/// The most bytes that one transform, or one rendered template, may make.
pub const MAX_BYTES: usize = 8 * MAX_RESULT;

impl<'t, V: EvaluatedValue> Evaluator<'t, V> {
    /// Nodes visited plus elements made; far above what honest data of 1 MiB needs.
    const MAX_WORK: u64 = 8_000_000;

    /// An evaluator with nothing spent.
    pub fn new(tracker: &'t mut Tracker<V>) -> Self {
        Self {
            work: Self::MAX_WORK,
            bytes: MAX_BYTES,
            tracker,
        }
    }

    /// Starts again with nothing spent.
    pub fn refill(&mut self) {
        self.work = Self::MAX_WORK;
        self.bytes = MAX_BYTES;
    }

    /// See [`Tracker::inspect`].
    pub fn inspect(&mut self, places: V::Provenance) {
        self.tracker.inspect(places);
    }

    pub(super) fn spend(&mut self, cost: usize) -> Result<(), EvaluationError> {
        let left = self.work.checked_sub(cost as u64);
        self.work = left.ok_or_else(|| EvaluationError {
            code: "expression_cost",
            message: "the expression needs too much work".to_owned(),
        })?;
        Ok(())
    }

    pub(super) fn equal(&mut self, a: &Rcvar, b: &Rcvar) -> Result<bool, EvaluationError> {
        equal(a, b, &mut || self.spend(1))
    }

    /// Measures a result, which counts against what all results may take.
    pub(super) fn finish(&mut self, result: V) -> Result<V, EvaluationError> {
        let left = self.bytes.checked_sub(measure(result.value())?);
        self.bytes = left.ok_or_else(|| EvaluationError {
            code: "result_size",
            message: format!("the results are larger than {MAX_BYTES} bytes"),
        })?;
        Ok(result)
    }
}
