//! The usage of one call: every model that was called for it, whatever became of its reply.
//!
//! A provider charges for a useless reply as for a useful one. So tokens are counted in whatever it
//! sends, and a call's tokens and cost are those of all of its attempts (decisions F4, S5).

use std::time::Duration;

use super::price::{Price, Prices};
use ktsu_contract::gateway::{AttemptUsage, MAX_ATTEMPTS_LISTED, ModelAttempt};

/// The status of an attempt that gave the reply.
const OK: &str = "ok";

/// The attempts of one call, and what they used in all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Bill {
    /// The first [`MAX_ATTEMPTS_LISTED`] of them.
    attempts: Vec<ModelAttempt>,
    /// Of all of them.
    pub(super) total: AttemptUsage,
    /// The price table of the last model that used anything.
    pub(super) prices: Option<String>,
    /// True if a model without a price answered or used tokens.
    pub(super) unpriced: bool,
}

/// An attempt that has ended.
pub(super) struct BilledAttempt<'a> {
    /// The prices of its group.
    pub(super) prices: &'a Prices,
    /// The provider's name of the model.
    pub(super) id: &'a str,
    /// `PROVIDER/MODEL`.
    pub(super) model: String,
    /// The word for its failure; none if it gave the reply.
    pub(super) failure: Option<&'static str>,
    /// The tokens that it used, without their cost.
    pub(super) tokens: AttemptUsage,
    /// The time that it took.
    pub(super) duration: Duration,
}

impl Bill {
    /// Takes down one attempt.
    pub(super) fn add(&mut self, attempt: BilledAttempt<'_>) {
        let BilledAttempt { prices, tokens, .. } = attempt;
        let price = prices.of(attempt.id);
        let cost =
            |price: Price| price.cost(tokens.tokens_in, tokens.tokens_cached, tokens.tokens_out);
        let usage = AttemptUsage {
            cost_micro_usd: price.map_or(0, cost),
            ..tokens
        };
        let counts = attempt.failure.is_none() || tokens != AttemptUsage::default();
        if counts {
            self.prices = Some(prices.version(attempt.id));
            self.unpriced |= price.is_none();
        }
        add(&mut self.total, &usage);
        if self.attempts.len() < MAX_ATTEMPTS_LISTED {
            self.attempts.push(ModelAttempt {
                duration_ms: u64::try_from(attempt.duration.as_millis()).unwrap_or(u64::MAX),
                model: attempt.model,
                status: attempt.failure.unwrap_or(OK).to_owned(),
                usage,
            });
        }
    }

    /// About how much memory it takes.
    pub(super) fn size(&self) -> usize {
        let attempts = self.attempts.iter();
        attempts.map(|one| 128 + one.model.len()).sum()
    }

    /// The attempts, where they say more than the reply itself: not where the model that answered
    /// was the only one asked.
    pub(super) fn attempts(&self) -> Vec<ModelAttempt> {
        match self.attempts.as_slice() {
            [only] if only.status == OK => Vec::new(),
            all => all.to_vec(),
        }
    }
}

fn add(total: &mut AttemptUsage, usage: &AttemptUsage) {
    let sum = |total: &mut u64, more: u64| *total = total.saturating_add(more);
    sum(&mut total.cost_micro_usd, usage.cost_micro_usd);
    sum(&mut total.tokens_cached, usage.tokens_cached);
    sum(&mut total.tokens_in, usage.tokens_in);
    sum(&mut total.tokens_out, usage.tokens_out);
    sum(&mut total.tokens_reasoning, usage.tokens_reasoning);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::GatewayError;
    use crate::provider::ProviderReply;

    fn attempt<'a>(
        prices: &'a Prices,
        id: &'a str,
        asked: &Result<ProviderReply, GatewayError>,
    ) -> BilledAttempt<'a> {
        BilledAttempt {
            prices,
            id,
            model: format!("p/{id}"),
            failure: asked.as_ref().err().map(GatewayError::status),
            tokens: asked
                .as_ref()
                .map_or_else(|failed| failed.used, |answer| answer.used),
            duration: Duration::ZERO,
        }
    }

    fn prices() -> Prices {
        let mut prices = Prices::default();
        let price = Price {
            input: 1_000_000,
            output: 2_000_000,
            cached: None,
        };
        prices.set("priced", price);
        prices
    }

    fn unusable(tokens_in: u64) -> Result<ProviderReply, GatewayError> {
        let tokens = AttemptUsage {
            tokens_in,
            ..AttemptUsage::default()
        };
        Err(GatewayError::upstream(500, "").having_used(tokens))
    }

    #[test]
    fn a_call_costs_what_all_of_its_attempts_cost_also_those_beyond_the_list() {
        let (prices, mut bill) = (prices(), Bill::default());
        for _ in 0..MAX_ATTEMPTS_LISTED + 6 {
            bill.add(attempt(&prices, "priced", &unusable(3)));
        }
        assert_eq!(bill.total.cost_micro_usd, 3 * 70);
        assert_eq!(bill.total.tokens_in, 3 * 70);
        assert_eq!(bill.attempts().len(), MAX_ATTEMPTS_LISTED);
        assert!(!bill.unpriced);
    }

    #[test]
    fn one_model_that_answers_needs_no_list_and_one_that_fails_does() {
        let (prices, mut bill) = (prices(), Bill::default());
        let answer = ProviderReply {
            used: AttemptUsage {
                tokens_out: 5,
                ..AttemptUsage::default()
            },
            ..ProviderReply::default()
        };
        bill.add(attempt(&prices, "priced", &Ok(answer.clone())));
        assert_eq!((bill.attempts().len(), bill.total.cost_micro_usd), (0, 10));
        let mut bill = Bill::default();
        bill.add(attempt(&prices, "free", &unusable(0)));
        assert!(!bill.unpriced, "it used nothing");
        bill.add(attempt(&prices, "free", &Ok(answer)));
        let statuses = bill.attempts();
        let statuses: Vec<&str> = statuses.iter().map(|one| one.status.as_str()).collect();
        assert_eq!(statuses, ["server_error", "ok"]);
        assert!(bill.unpriced && bill.total.cost_micro_usd == 0);
    }
}
