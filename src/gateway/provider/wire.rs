//! The common parts of HTTP providers: sending, checking that a reply is complete, and errors
//! without keys.

use std::fmt;
use std::time::{Duration, SystemTime};

use axum::body::Bytes;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::{Code, ErrorCause, GatewayError};
use crate::retry;
use ktsu_contract::gateway::AttemptUsage;
use ktsu_egress::{self as egress, Client, EgressErrorCode, EgressRequest, EgressResponse};
use ktsu_secret::{Redactor, Secret};

/// The most bytes of an answer that are read: far beyond any reply, far below what hurts.
pub(super) const MAX_RESPONSE_BYTES: usize = 8 << 20;
/// The most bytes of an error's text that are told.
pub(super) const MAX_MESSAGE_LENGTH: usize = 500;

/// The URL of a provider, and the key to it.
pub(crate) struct ProviderEndpoint {
    pub(crate) base_url: String,
    pub(crate) api_key: Secret,
    /// Of one call.
    pub(crate) timeout: Duration,
    pub(crate) client: Client,
    /// Takes the key out of what the provider says.
    pub(crate) redactor: Redactor,
}

/// A check that returns `true` if an error's body says that the account has nothing left.
pub(super) type QuotaCheck = fn(&Value) -> bool;

/// A reply of a provider, which counts the tokens that it took.
pub(super) trait UsageSource: DeserializeOwned {
    /// The usage that the member `usage` of a body gives, in whatever body it is; nothing if it
    /// cannot be read.
    fn tokens(usage: &Value) -> AttemptUsage;
}

impl fmt::Debug for ProviderEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Endpoint({})", self.base_url)
    }
}

impl ProviderEndpoint {
    /// Posts once and reads what came back.
    pub(super) async fn post<T: UsageSource>(
        &self,
        path: &str,
        key: (HeaderName, &str),
        more: &[(HeaderName, HeaderValue)],
        body: &Value,
        within: Duration,
        spent: QuotaCheck,
    ) -> Result<T, GatewayError> {
        let (name, prefix) = key;
        let value = format!("{prefix}{}", self.api_key.expose());
        let Ok(mut value) = HeaderValue::from_str(&value) else {
            let words = "the api_key holds characters that no header can carry";
            return Err(GatewayError::new(Code::ProviderError, words));
        };
        value.set_sensitive(true);
        let json = HeaderValue::from_static("application/json");
        let mut headers = HeaderMap::from_iter([(name, value), (header::CONTENT_TYPE, json)]);
        headers.extend(more.iter().cloned());
        let request = EgressRequest {
            method: Method::POST,
            url: format!("{}{path}", self.base_url.trim_end_matches('/')),
            headers,
            body: Bytes::from(body.to_string()),
            timeout: self.timeout.min(within),
            keep: MAX_RESPONSE_BYTES,
            is_to_itself: false,
        };
        match self.client.send(request).await {
            Ok(response) => read(&response, &self.redactor, spent),
            Err(failure) => Err(unanswered(&failure)),
        }
    }
}

fn unanswered(failure: &egress::EgressError) -> GatewayError {
    let code = Code::ProviderError;
    let words = failure.message.as_str();
    match failure.code {
        EgressErrorCode::Refused => GatewayError::new(code, words),
        EgressErrorCode::Timeout => GatewayError::passing(code, ErrorCause::Timeout, words),
        EgressErrorCode::Unreachable => GatewayError::passing(code, ErrorCause::Unreachable, words),
    }
}

/// The content of a response, if it is a whole success.
pub(super) fn read<T: UsageSource>(
    response: &EgressResponse,
    redactor: &Redactor,
    spent: QuotaCheck,
) -> Result<T, GatewayError> {
    if !(200..300).contains(&response.status) {
        return Err(refusal(response, redactor, spent).having_used(used::<T>(&response.body)));
    }
    let code = Code::ProviderError;
    if response.timed_out {
        let words = "upstream did not end its reply in time";
        return Err(GatewayError::passing(code, ErrorCause::Timeout, words));
    }
    if response.truncated && response.body.len() >= MAX_RESPONSE_BYTES {
        let words = format!("upstream sent more than {MAX_RESPONSE_BYTES} bytes");
        return Err(GatewayError::new(code, words));
    }
    if response.truncated {
        let words = "upstream broke off its reply";
        return Err(GatewayError::passing(code, ErrorCause::Unreachable, words));
    }
    serde_json::from_slice(&response.body).map_err(|_| {
        unusable("the provider's response is not a valid model reply")
            .having_used(used::<T>(&response.body))
    })
}

/// The usage that a body gives which is of no further use.
fn used<T: UsageSource>(body: &[u8]) -> AttemptUsage {
    /// Nothing else of it is looked at.
    #[derive(Deserialize)]
    struct Body {
        #[serde(default)]
        usage: Value,
    }
    let body: Option<Body> = serde_json::from_slice(body).ok();
    body.map(|body| T::tokens(&body.usage)).unwrap_or_default()
}

/// A reply that came, and is of no use.
pub(super) fn unusable(words: impl Into<String>) -> GatewayError {
    GatewayError::new(Code::InternalError, words)
}

fn refusal(response: &EgressResponse, redactor: &Redactor, spent: QuotaCheck) -> GatewayError {
    let body: Value = serde_json::from_slice(&response.body).unwrap_or_default();
    let plain = String::from_utf8_lossy(&response.body);
    let mut failure = error_message(&body, &plain, response.status, redactor, spent);
    failure.retry_after = retry::after(&response.headers, SystemTime::now());
    failure
}

/// The failure that an error's body describes, with its status; the plain text where it says
/// nothing we know.
pub(super) fn error_message(
    body: &Value,
    plain: &str,
    status: u16,
    redactor: &Redactor,
    spent: QuotaCheck,
) -> GatewayError {
    let error = &body["error"];
    let said = error["message"].as_str().or(error.as_str());
    let said = said.or(body["message"].as_str()).unwrap_or(plain);
    // Cut where no secret can be cut in two.
    let message = redactor.redact_beginning(said.trim(), MAX_MESSAGE_LENGTH);
    let mut failure = GatewayError::upstream(status, &message);
    if status == 402 || spent(error) {
        failure = GatewayError::new(Code::BudgetExceeded, failure.message);
    }
    failure
}
