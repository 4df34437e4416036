//! Errors as clients see them.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use ktsu_codes::ErrorCode;
use ktsu_ledger::StoreError;
use ktsu_ledger::event::Violation;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One place in a value that breaks a rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FieldViolation {
    /// A JSON pointer into the value; empty for the value itself.
    pub path: String,
    /// What is wrong, in our words.
    pub message: String,
    /// The rule, as the schema names it: `required`, `type`.
    pub rule: String,
}

impl From<Violation> for FieldViolation {
    fn from(violation: Violation) -> Self {
        Self {
            path: violation.path,
            message: violation.message,
            rule: violation.rule,
        }
    }
}

/// A problem document (RFC 9457, decision H3).
///
/// `detail` must not repeat a name from the request's path: a 404 is the same whether a name is
/// unknown or hidden.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {detail}")]
pub struct ProblemDetails {
    /// The kind of error.
    pub code: ErrorCode,
    /// The description of this occurrence, in one line; the title where there is nothing to add.
    pub detail: String,
    /// The violations, if the request has invalid fields.
    pub errors: Vec<FieldViolation>,
    /// Something to do or to type.
    pub hint: Option<String>,
    /// One additional member of the document.
    pub member: Option<Box<(&'static str, serde_json::Value)>>,
}

impl ProblemDetails {
    /// A problem with details of this occurrence.
    pub fn new(code: ErrorCode, detail: impl Into<String>) -> Self {
        Self {
            code,
            detail: detail.into(),
            errors: Vec::new(),
            hint: None,
            member: None,
        }
    }

    /// With the places that break a rule.
    #[must_use]
    pub fn with_errors(mut self, errors: Vec<impl Into<FieldViolation>>) -> Self {
        self.errors = errors.into_iter().map(Into::into).collect();
        self
    }

    /// With something to do or to type.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// With one more member of the document.
    #[must_use]
    pub fn with_member(mut self, name: &'static str, value: serde_json::Value) -> Self {
        self.member = Some(Box::new((name, value)));
        self
    }

    /// The document, as it goes over the wire.
    pub fn to_json(&self) -> serde_json::Value {
        let mut document = serde_json::json!({
            "type": format!("urn:ktsu:error:{}", self.code),
            "title": self.code.title(),
            "status": self.code.status(),
            "detail": self.detail,
            "code": self.code,
            "error": self.code,
            "message": self.detail,
        });
        if !self.errors.is_empty() {
            document["errors"] = serde_json::json!(self.errors);
        }
        if let Some(hint) = &self.hint {
            document["hint"] = serde_json::json!(hint);
        }
        if let Some(member) = &self.member {
            document[member.0] = member.1.clone();
        }
        document
    }
}

impl From<ErrorCode> for ProblemDetails {
    fn from(code: ErrorCode) -> Self {
        Self::new(code, code.title())
    }
}

/// A failed read of the store.
impl From<StoreError> for ProblemDetails {
    fn from(error: StoreError) -> Self {
        let words = error.to_string();
        match error {
            StoreError::Damaged(_) | StoreError::WrongRow(_) => {
                Self::new(ErrorCode::Unreadable, words).with_hint("ktsu verify")
            }
            StoreError::Unreachable { .. } => {
                Self::new(ErrorCode::LedgerStopped, words).with_hint("ask again in a moment")
            }
            _ => Self::new(ErrorCode::Internal, words).with_hint("ktsu verify"),
        }
    }
}

impl IntoResponse for ProblemDetails {
    fn into_response(self) -> Response {
        let status =
            StatusCode::from_u16(self.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, self.to_json().to_string()).into_response();
        let headers = response.headers_mut();
        let json = HeaderValue::from_static("application/problem+json");
        headers.insert(header::CONTENT_TYPE, json);
        if self.code == ErrorCode::Unauthorized {
            let bearer = HeaderValue::from_static("Bearer");
            headers.insert(header::WWW_AUTHENTICATE, bearer);
        }
        let seconds = match self.code {
            ErrorCode::Overloaded | ErrorCode::TooManyStreams => Some("1"),
            ErrorCode::Draining => Some("5"),
            _ => None,
        };
        if let Some(seconds) = seconds {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static(seconds));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_carries_both_forms_of_the_error() {
        let problem = ProblemDetails::new(ErrorCode::InvalidParams, "tickets is missing")
            .with_errors(vec![FieldViolation {
                path: "/tickets".to_owned(),
                message: "is required".to_owned(),
                rule: "required".to_owned(),
            }])
            .with_hint("ktsu validate kits/intake");
        assert_eq!(
            problem.to_json(),
            serde_json::json!({
                "type": "urn:ktsu:error:invalid_params",
                "title": "The params do not fit the workflow's schema",
                "status": 422,
                "detail": "tickets is missing",
                "code": "invalid_params",
                "error": "invalid_params",
                "message": "tickets is missing",
                "errors": [{"path": "/tickets", "message": "is required", "rule": "required"}],
                "hint": "ktsu validate kits/intake",
            })
        );
        let response = problem.into_response();
        assert_eq!(response.status(), 422);
        assert_eq!(
            response.headers()["content-type"],
            "application/problem+json"
        );
    }

    #[test]
    fn a_ledger_that_cannot_be_reached_for_now_is_no_error_of_the_engine() {
        let (doing, why) = ("read the ledger", "nothing listens".to_owned());
        let away = ProblemDetails::from(StoreError::Unreachable { doing, why });
        assert_eq!(away.code.status(), 503);
        let failed = ProblemDetails::from(StoreError::failed("read the ledger", "no"));
        assert_eq!(failed.code.status(), 500);
    }
}
