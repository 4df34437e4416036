//! Conditions on the requests to an HTTP server of a suite.

use serde_json::Value;

use crate::conditions::OutputCheck;
use crate::glob::Glob;
use crate::http_mock::record::MockRequest;
use crate::numbers::equal;

/// Conditions on the requests to a service.
#[derive(Debug, Clone)]
pub struct MockCheck {
    /// The name of the service.
    pub service: String,
    /// All of them have to hold.
    pub(crate) assertions: Vec<MockAssertion>,
}

/// A condition on some requests.
#[derive(Debug, Clone)]
pub(crate) struct MockAssertion {
    pub(crate) filters: RequestFilter,
    /// Its expression is over `{last_request, request_count, requests}`.
    pub(crate) value: OutputCheck,
}

/// A selection of requests: those for which everything that is given holds.
#[derive(Debug, Clone, Default)]
pub(crate) struct RequestFilter {
    pub(crate) method: Option<String>,
    pub(crate) path: Option<Glob>,
    /// By name, in small letters.
    pub(crate) headers: Vec<(String, Glob)>,
    /// Members of a body that is JSON.
    pub(crate) members: Vec<(String, Value)>,
}

impl RequestFilter {
    pub(crate) fn covers(&self, request: &MockRequest, json: &Value) -> bool {
        let has_header = |(name, glob): &(String, Glob)| {
            let value = request.headers.get(name);
            value.is_some_and(|value| glob.covers(value))
        };
        let has_member = |(name, wanted): &(String, Value)| match json.get(name) {
            Some(Value::Array(items)) if !wanted.is_array() => {
                items.iter().any(|item| equal(wanted, item))
            }
            Some(found) => equal(wanted, found),
            None => false,
        };
        let (method, path) = (self.method.as_ref(), self.path.as_ref());
        method.is_none_or(|method| *method == request.method)
            && path.is_none_or(|path| path.covers(&request.path))
            && self.headers.iter().all(has_header)
            && self.members.iter().all(has_member)
    }
}
