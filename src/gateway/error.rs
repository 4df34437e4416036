//! Why a model call has no reply: codes, statuses, and what is worth another try.

use crate::contract::runtime::Refused;

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
    /// The provider refused, failed or did not answer.
    ProviderError = "provider_error", 502,
    /// The provider answered with nothing usable, or the gateway itself failed.
    InternalError = "internal_error", 500,
}

/// A model call that has no reply.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// What kind of failure it is.
    pub code: Code,
    /// For people.
    pub message: String,
    /// Whether another try might do.
    pub retryable: bool,
}

impl Failure {
    /// A failure that another try would meet again.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            retryable: false,
        }
    }

    /// An error status of a provider.
    pub(super) fn upstream(status: u16, message: &str) -> Self {
        let message = match message.trim() {
            "" => format!("upstream returned {status}"),
            said => format!("upstream returned {status}: {said}"),
        };
        Self {
            code: Code::ProviderError,
            message,
            retryable: status == 429 || status >= 500,
        }
    }

    /// The body of the answer.
    pub(super) fn body(&self) -> Refused {
        Refused {
            error: self.code.text().to_owned(),
            message: self.message.clone(),
            retryable: self.retryable,
        }
    }
}
