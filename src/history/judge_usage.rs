//! The usage of models by the checks of an eval.

use ktsu_projections::usage::Usage;
use serde::{Deserialize, Serialize};

/// The usage of models by checks. The runs that they judge have none of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JudgeUsage {
    /// Millionths of a US dollar.
    pub cost_micro_usd: u64,
    /// Model calls.
    pub llm_calls: u64,
    /// Tokens sent.
    pub tokens_in: u64,
    /// Tokens received.
    pub tokens_out: u64,
}

impl JudgeUsage {
    /// None if no model was asked.
    pub(crate) fn of(usage: Usage) -> Option<Self> {
        (usage.llm_calls > 0).then_some(Self {
            cost_micro_usd: usage.cost_micro_usd,
            llm_calls: usage.llm_calls,
            tokens_in: usage.tokens_in,
            tokens_out: usage.tokens_out,
        })
    }
}
