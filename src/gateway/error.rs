//! The reasons why a model call failed: codes, statuses, whether a retry is worthwhile, and whether
//! another model might succeed.

use std::time::Duration;

use super::bill::Bill;
use ktsu_contract::gateway::{AttemptUsage, ModelCallFailure};

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $status:literal,)*) => {
        /// A kind of failure. Names and statuses are part of the contract.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Code {
            $($(#[$doc])* $name,)*
        }

        impl Code {
            /// The stable text and the code it stands for.
            pub(super) const WORDS: &'static [(&'static str, Self)] = &[$(($text, Self::$name),)*];

            /// The stable text.
            pub fn text(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }

            /// The HTTP status it is answered with.
            pub fn status(self) -> u16 {
                match self {
                    $(Self::$name => $status,)*
                }
            }
        }
    };
}

codes! {
    /// The request makes no sense.
    InvalidRequest = "invalid_request", 400,
    /// No group has this name.
    UnknownGroup = "unknown_group", 400,
    /// The provider's account has nothing left.
    BudgetExceeded = "budget_exceeded", 402,
    /// The model has no price, and only models that have one may be asked (decision F4).
    BudgetUnpriced = "budget_unpriced", 402,
    /// The gateway is about to stop and asks no more models.
    Draining = "draining", 503,
    /// No model of the group could be asked, or none of them answered.
    NoModelsAvailable = "no_models_available", 503,
    /// A group without a model: loading refuses it.
    InvalidModelConfig = "invalid_model_config", 500,
    /// A model whose provider is not there: loading refuses it.
    ProviderNotRegistered = "provider_not_registered", 500,
    /// The provider refused, failed or did not answer.
    ProviderError = "provider_error", 502,
    /// The provider answered with nothing usable, or the gateway itself failed.
    InternalError = "internal_error", 500,
}

/// The cause of a failure, which decides whether to ask again and whether to ask another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ErrorCause {
    /// The request: every model would refuse it.
    Request,
    /// The provider, its account or the model: another might do.
    Provider,
    /// The provider does not accept the key.
    Key,
    /// Too many requests lately.
    RateLimited,
    /// The provider failed.
    ServerError,
    /// No reply in time.
    Timeout,
    /// No connection, or one that broke.
    Unreachable,
}

/// A model call that has no reply.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct GatewayError {
    /// The kind of failure.
    pub code: Code,
    /// For people.
    pub message: String,
    /// True if another try might succeed.
    pub retryable: bool,
    pub(super) cause: ErrorCause,
    /// The time that the provider asks to wait.
    pub(super) retry_after: Option<Duration>,
    /// The tokens of the attempt that failed like this, without their cost.
    pub(super) used: AttemptUsage,
    /// The usage of the whole call; of a call that has ended.
    pub(super) bill: Box<Bill>,
}

impl GatewayError {
    /// A failure that another try would meet again.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        let cause = match code {
            Code::InvalidRequest | Code::UnknownGroup => ErrorCause::Request,
            _ => ErrorCause::Provider,
        };
        Self {
            code,
            message: message.into(),
            retryable: false,
            cause,
            retry_after: None,
            used: AttemptUsage::default(),
            bill: Box::default(),
        }
    }

    /// The same, of an attempt that used tokens.
    pub(super) fn having_used(self, used: AttemptUsage) -> Self {
        Self { used, ..self }
    }

    /// The status of an attempt that failed like this: the word by which `retry.on` names it, or
    /// the code.
    pub(super) fn status(&self) -> &'static str {
        match self.cause {
            ErrorCause::Request | ErrorCause::Provider | ErrorCause::Key => self.code.text(),
            ErrorCause::RateLimited => "rate_limited",
            ErrorCause::ServerError => "server_error",
            ErrorCause::Timeout => "timeout",
            ErrorCause::Unreachable => "unreachable",
        }
    }

    /// A failure that another try might not meet.
    pub(super) fn passing(code: Code, cause: ErrorCause, message: impl Into<String>) -> Self {
        Self {
            retryable: true,
            cause,
            ..Self::new(code, message)
        }
    }

    /// An error status of a provider.
    pub(super) fn upstream(status: u16, message: &str) -> Self {
        let message = match message.trim() {
            "" => format!("upstream returned {status}"),
            said => format!("upstream returned {status}: {said}"),
        };
        let cause = match status {
            400 | 413 | 422 => ErrorCause::Request,
            401 | 403 => ErrorCause::Key,
            429 => ErrorCause::RateLimited,
            500.. => ErrorCause::ServerError,
            _ => ErrorCause::Provider,
        };
        Self {
            retryable: matches!(cause, ErrorCause::RateLimited | ErrorCause::ServerError),
            cause,
            ..Self::new(Code::ProviderError, message)
        }
    }

    /// The body of the answer.
    pub(super) fn body(&self) -> ModelCallFailure {
        let used = self.bill.total;
        ModelCallFailure {
            error: self.code.text().to_owned(),
            message: self.message.clone(),
            retryable: self.retryable,
            tokens_in: used.tokens_in,
            tokens_out: used.tokens_out,
            tokens_cached: used.tokens_cached,
            tokens_reasoning: used.tokens_reasoning,
            cost_micro_usd: used.cost_micro_usd,
            prices: self.bill.prices.clone(),
            attempts: self.bill.attempts(),
        }
    }
}
