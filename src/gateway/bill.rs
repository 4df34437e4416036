//! The usage of one call: every model that was called for it, whatever became of its reply.
//!
//! A provider charges for a useless reply as for a useful one. So tokens are counted in whatever it
//! sends, and a call's tokens and cost are those of all of its attempts (decisions F4, S5).

use std::time::Duration;

use super::config::{Group, ProviderModel};
use super::error::GatewayError;
use super::price::Price;
use super::provider::ProviderReply;
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
    /// Whether a model without a price answered or used tokens.
    pub(super) unpriced: bool,
}

impl Bill {
    /// Takes down one attempt.
    pub(super) fn add(
        &mut self,
        group: &Group,
        model: &ProviderModel,
        asked: &Result<ProviderReply, GatewayError>,
        duration: Duration,
    ) {
        let (status, tokens) = match asked {
            Ok(answer) => (OK, answer.used),
            Err(failure) => (failure.status(), failure.used),
        };
        let price = group.prices.of(&model.id);
        let cost =
            |price: Price| price.cost(tokens.tokens_in, tokens.tokens_cached, tokens.tokens_out);
        let usage = AttemptUsage {
            cost_micro_usd: price.map_or(0, cost),
            ..tokens
        };
        let counts = asked.is_ok() || tokens != AttemptUsage::default();
        if counts {
            self.prices = Some(group.prices.version(&model.id));
            self.unpriced |= price.is_none();
        }
        add(&mut self.total, &usage);
        if self.attempts.len() < MAX_ATTEMPTS_LISTED {
            self.attempts.push(ModelAttempt {
                duration_ms: u64::try_from(duration.as_millis()).unwrap_or(u64::MAX),
                model: model.to_string(),
                status: status.to_owned(),
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
    use crate::config::Strategy;
    use crate::price::Prices;

    fn group() -> Group {
        let mut prices = Prices::default();
        let price = Price {
            input: 1_000_000,
            output: 2_000_000,
            cached: None,
        };
        prices.set("priced", price);
        Group {
            name: "g".to_owned(),
            models: Vec::new(),
            strategy: Strategy::Fallback,
            retry: None,
            deadline: None,
            temperature: None,
            prices,
        }
    }

    fn unusable(tokens_in: u64) -> Result<ProviderReply, GatewayError> {
        let tokens = AttemptUsage {
            tokens_in,
            ..AttemptUsage::default()
        };
        Err(GatewayError::upstream(500, "").having_used(tokens))
    }

    fn model(id: &str) -> ProviderModel {
        ProviderModel::parse(&format!("p/{id}")).unwrap()
    }

    #[test]
    fn a_call_costs_what_all_of_its_attempts_cost_also_those_beyond_the_list() {
        let (group, mut bill) = (group(), Bill::default());
        for _ in 0..MAX_ATTEMPTS_LISTED + 6 {
            bill.add(&group, &model("priced"), &unusable(3), Duration::ZERO);
        }
        assert_eq!(bill.total.cost_micro_usd, 3 * 70);
        assert_eq!(bill.total.tokens_in, 3 * 70);
        assert_eq!(bill.attempts().len(), MAX_ATTEMPTS_LISTED);
        assert!(!bill.unpriced);
    }

    #[test]
    fn one_model_that_answers_needs_no_list_and_one_that_fails_does() {
        let (group, mut bill) = (group(), Bill::default());
        let answer = ProviderReply {
            used: AttemptUsage {
                tokens_out: 5,
                ..AttemptUsage::default()
            },
            ..ProviderReply::default()
        };
        bill.add(
            &group,
            &model("priced"),
            &Ok(answer.clone()),
            Duration::ZERO,
        );
        assert_eq!((bill.attempts().len(), bill.total.cost_micro_usd), (0, 10));
        let mut bill = Bill::default();
        bill.add(&group, &model("free"), &unusable(0), Duration::ZERO);
        assert!(!bill.unpriced, "it used nothing");
        bill.add(&group, &model("free"), &Ok(answer), Duration::ZERO);
        let statuses = bill.attempts();
        let statuses: Vec<&str> = statuses.iter().map(|one| one.status.as_str()).collect();
        assert_eq!(statuses, ["server_error", "ok"]);
        assert!(bill.unpriced && bill.total.cost_micro_usd == 0);
    }
}
