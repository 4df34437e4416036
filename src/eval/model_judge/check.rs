//! The content of a check that a model makes, as a file has it.

use ktsu_workflow::expression::Expression;

use crate::model_judge::template::{PromptTemplate, Rubric};

/// The most model calls of an eval, without those that repair a reply.
pub(crate) const MAX_JUDGE_CALLS: usize = 10_000;

/// The most model calls of the checks of one run, without those that repair a reply.
pub(crate) const MAX_SAMPLES: usize = 1_000;

/// The score that passes where the file has none.
pub(crate) const PASS_THRESHOLD: f64 = 0.5;

/// A check that a model makes.
#[derive(Debug, Clone)]
pub struct JudgeCheck {
    /// The criteria by which the work is judged.
    pub criteria: String,
    /// The descriptions of what passes, and of what fails.
    pub rubric: Rubric,
    /// The model group.
    pub group: String,
    /// The part of the run that is judged.
    pub input: JudgeInput,
    /// The temperature, in millionths.
    pub temperature_millionths: u32,
    /// The score that passes.
    pub pass_threshold: f64,
    /// The number of times that the model is asked; the median counts.
    pub samples: u32,
    /// The prompt.
    pub template: PromptTemplate,
}

/// The part of a run that is judged.
#[derive(Debug, Clone)]
pub enum JudgeInput {
    /// The output of the run: text as it is, everything else as JSON.
    Output,
    /// The files that it left.
    Workspace,
    /// The requests that an HTTP server of the suite received.
    Service {
        /// Its name.
        service: String,
        /// A field of that, such as `last_request.body`.
        field: Expression,
    },
}
