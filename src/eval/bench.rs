//! The frames that the checks of a run share, and a budget of work, so that no spec can take long.

use ktsu_workflow::expression::{
    EvaluationError, Evaluator, Expression, Rcvar, from_value, truthy,
};
use serde_json::Value;

use crate::filter::FrameFilter;
use crate::frames::FrameView;
use crate::pattern::{MAX_MATCHING, TextPattern};

/// The most comparisons of frames with globs.
const MAX_COMPARISONS: u64 = 200_000_000;

/// The reason why a check could not be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CheckError {
    /// A lower-case fragment.
    pub(crate) message: String,
    /// True if the budget of expressions ran out.
    pub(crate) is_spent: bool,
}

/// The frames, and what may still be spent on them.
pub(crate) struct Bench<'r, 't> {
    pub(crate) frames: &'r [FrameView],
    pub(crate) evaluator: Evaluator<'t, Rcvar>,
    comparisons: u64,
    /// Of patterns: see [`MAX_MATCHING`].
    matching: u64,
    /// Converted once it is needed.
    envelope: Option<Rcvar>,
}

impl CheckError {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            is_spent: false,
        }
    }
}

impl From<EvaluationError> for CheckError {
    fn from(error: EvaluationError) -> Self {
        Self {
            is_spent: matches!(error.code, "expression_cost" | "result_size"),
            message: error.message,
        }
    }
}

impl<'r, 't> Bench<'r, 't> {
    pub(crate) fn new(frames: &'r [FrameView], evaluator: Evaluator<'t, Rcvar>) -> Self {
        Self {
            frames,
            evaluator,
            comparisons: MAX_COMPARISONS,
            matching: MAX_MATCHING,
            envelope: None,
        }
    }

    /// Counts comparisons of frames, or of something else, against the budget.
    pub(crate) fn spend(&mut self, cost: u64, what: &str) -> Result<(), CheckError> {
        let left = self.comparisons.checked_sub(cost);
        let words = format!("the checks look at too many {what}");
        self.comparisons = left.ok_or_else(|| CheckError::new(words))?;
        Ok(())
    }

    /// Returns `true` if a pattern matches anywhere in a text.
    pub(crate) fn is_match(
        &mut self,
        pattern: &TextPattern,
        text: &str,
    ) -> Result<bool, CheckError> {
        let left = self.matching.checked_sub(pattern.cost(text));
        let words = "the text is too long for its pattern, or for all patterns together";
        self.matching = left.ok_or_else(|| CheckError::new(words))?;
        Ok(pattern.is_match(text))
    }

    /// The frames that match a filter.
    pub(crate) fn matches(
        &mut self,
        filter: &FrameFilter,
    ) -> Result<Vec<&'r FrameView>, CheckError> {
        let frames = self.frames;
        self.spend(filter.cost().saturating_mul(frames.len() as u64), "frames")?;
        let mut found = Vec::new();
        for frame in frames {
            let matches = filter.matches_within(frame, &mut self.evaluator);
            if matches.map_err(|error| at(frame, &error))? {
                found.push(frame);
            }
        }
        Ok(found)
    }

    /// The value of an expression over the envelope, which is the same for all checks.
    pub(crate) fn value_of(
        &mut self,
        expression: &Expression,
        envelope: &Value,
    ) -> Result<Rcvar, CheckError> {
        let envelope = self.envelope.get_or_insert_with(|| from_value(envelope));
        Ok(expression.evaluate_on(envelope, &mut self.evaluator)?)
    }

    /// Returns `true` if an expression is true of a frame.
    pub(crate) fn holds(
        &mut self,
        expression: &Expression,
        frame: &FrameView,
    ) -> Result<bool, CheckError> {
        let value = expression.evaluate_on(&frame.value, &mut self.evaluator);
        Ok(truthy(&value.map_err(|error| at(frame, &error))?))
    }
}

/// An error of an expression, with the frame it was evaluated on.
fn at(frame: &FrameView, error: &EvaluationError) -> CheckError {
    let mut failed = CheckError::from(error.clone());
    failed.message = format!("{} (frame {}, {})", failed.message, frame.seq, frame.kind);
    failed
}
