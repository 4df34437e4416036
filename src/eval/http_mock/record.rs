//! The requests that HTTP servers of suites received, as evals record them.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ktsu_ledger::{CanonicalJson, Hash};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// The most requests of a server that are kept.
pub(crate) const MAX_REQUESTS: usize = 1_000;

/// The most bytes of a body that is kept.
pub(crate) const MAX_BODY: usize = 256 << 10;

/// The requests that a server received.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MockRecord {
    /// BLAKE3 of the requests as they were: another one if a secret was redacted in them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Hash>,
    /// The number of requests.
    pub received: u64,
    /// The first of them.
    pub requests: Vec<MockRequest>,
    /// True if those are all, with their bodies.
    pub whole: bool,
}

/// A request that a server received.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MockRequest {
    /// Its body, if that is not text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base64: Option<String>,
    /// Its body, if that is text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// By name, in small letters, but for those that say how it was sent.
    pub headers: BTreeMap<String, String>,
    /// In capitals.
    pub method: String,
    /// As it was sent, without the query.
    pub path: String,
    /// The text after the path and a question mark.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query: Option<String>,
    /// The reply, if that is a short text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<String>,
    /// The status that was replied, if any was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
}

/// The records of the services of a run, by their names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServiceRecords(BTreeMap<String, KnownRecord>);

/// The requests that a server received, as they are known from a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KnownRecord {
    pub(crate) record: MockRecord,
    /// Bytes of its requests, as JSON.
    pub(crate) bytes: u64,
    /// True if a secret was redacted in them.
    pub(crate) is_redacted: bool,
}

/// The headers in which clients say how they send, which differs from run to run.
const OF_THE_CONNECTION: [&str; 3] = ["connection", "content-length", "host"];

impl Default for MockRecord {
    fn default() -> Self {
        Self {
            digest: None,
            received: 0,
            requests: Vec::new(),
            whole: true,
        }
    }
}

impl MockRecord {
    /// Adds a request with its reply, unless there is no room for it.
    pub(crate) fn add(
        &mut self,
        mut request: MockRequest,
        (status, response): (Option<u16>, Option<String>),
        left: &mut usize,
    ) {
        request.status = status;
        request.response = response;
        let size = serde_json::to_string(&request).map_or(usize::MAX, |text| text.len());
        let body = request.body.as_ref().or(request.base64.as_ref());
        let is_large = body.is_some_and(|body| body.len() > MAX_BODY);
        let is_full = self.requests.len() >= MAX_REQUESTS || !self.whole || is_large;
        match left.checked_sub(size).filter(|_| !is_full) {
            Some(rest) => {
                *left = rest;
                self.received = self.received.saturating_add(1);
                self.requests.push(request);
            }
            None => self.leave_out(),
        }
    }

    /// The same as it is recorded: with texts replaced, and with the digest of what it is then.
    #[must_use]
    pub fn sealed(mut self, replaced: &dyn Fn(&str) -> String) -> Self {
        for request in &mut self.requests {
            let texts = [&mut request.body, &mut request.query, &mut request.response];
            for text in texts.into_iter().flatten() {
                *text = replaced(text);
            }
            request.path = replaced(&request.path);
            for value in request.headers.values_mut() {
                *value = replaced(value);
            }
        }
        self.digest = Some(Hash::of(self.requests_as_json().as_str().as_bytes()));
        self
    }

    fn requests_as_json(&self) -> CanonicalJson {
        CanonicalJson::from_value(&json!(self.requests)).unwrap_or_default()
    }

    /// Counts a request that is not kept.
    pub(crate) fn leave_out(&mut self) {
        self.received = self.received.saturating_add(1);
        self.whole = false;
    }
}

impl MockRequest {
    /// A request.
    pub fn new(
        method: &str,
        (path, query): (&str, Option<&str>),
        headers: impl IntoIterator<Item = (String, String)>,
        body: Vec<u8>,
    ) -> Self {
        let mut named: BTreeMap<String, String> = BTreeMap::new();
        for (name, value) in headers {
            let name = name.to_ascii_lowercase();
            if OF_THE_CONNECTION.contains(&name.as_str()) {
                continue;
            }
            let values = named.entry(name).or_default();
            if !values.is_empty() {
                values.push_str(", ");
            }
            values.push_str(&value);
        }
        let (body, base64) = match String::from_utf8(body) {
            Ok(text) => (Some(text), None),
            Err(other) => (None, Some(STANDARD.encode(other.as_bytes()))),
        };
        Self {
            base64,
            body: body.filter(|text| !text.is_empty()),
            headers: named,
            method: method.to_ascii_uppercase(),
            path: path.to_owned(),
            query: query.map(str::to_owned),
            response: None,
            status: None,
        }
    }

    /// The request as checks, models and replies see it: with `json`, its body if that is JSON.
    pub(crate) fn to_value(&self) -> Value {
        json!({
            "base64": self.base64,
            "body": self.body,
            "headers": self.headers,
            "json": self.json(),
            "method": self.method,
            "path": self.path,
            "query": self.query,
            "status": self.status,
        })
    }

    /// Returns `true` if its body is meant to be JSON, and cannot be read as that.
    pub(crate) fn is_no_json(&self) -> bool {
        let is_named = |value: &String| value.to_ascii_lowercase().contains("json");
        let is_meant = self.headers.get("content-type").is_some_and(is_named)
            || self
                .body
                .as_ref()
                .is_some_and(|it| it.trim_start().starts_with(['{', '[']));
        let has_body = self.body.is_some() || self.base64.is_some();
        let read = self.body.as_deref().map(serde_json::from_str::<Value>);
        has_body && is_meant && read.is_none_or(|read| read.is_err())
    }

    /// Its body, if that is JSON.
    pub(crate) fn json(&self) -> Value {
        let body = self.body.as_deref();
        let read = body.and_then(|body| serde_json::from_str(body).ok());
        read.unwrap_or_default()
    }
}

impl KnownRecord {
    fn of(record: MockRecord) -> Self {
        let requests = record.requests_as_json();
        let found = Hash::of(requests.as_str().as_bytes());
        Self {
            bytes: requests.as_str().len() as u64,
            is_redacted: record.digest.is_some_and(|digest| digest != found),
            record,
        }
    }
}

impl ServiceRecords {
    /// Those of some services.
    pub fn new(records: impl IntoIterator<Item = (String, MockRecord)>) -> Self {
        let records = records.into_iter();
        Self(
            records
                .map(|(name, record)| (name, KnownRecord::of(record)))
                .collect(),
        )
    }

    /// The records that an eval has of a run: see `services` of `scenario.started`.
    pub fn of(services: &CanonicalJson) -> Self {
        let Value::Object(all) = services.to_value() else {
            return Self::default();
        };
        let records = all.into_iter().filter_map(|(name, kept)| {
            let record = serde_json::from_value(kept).ok()?;
            Some((name, record))
        });
        Self::new(records)
    }

    /// The record of what a service received.
    pub(crate) fn get(&self, service: &str) -> Option<&KnownRecord> {
        self.0.get(service)
    }

    /// Returns `true` if it is known what a service received, and no secret was redacted in that.
    pub fn has_as_it_was(&self, service: &str) -> bool {
        self.get(service).is_some_and(|known| !known.is_redacted)
    }

    /// Returns `true` if there is nothing.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The services that received something, in the order of their names.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &MockRecord)> {
        let known = self.0.iter();
        known.map(|(name, known)| (name.as_str(), &known.record))
    }

    /// As evals record them, by name.
    pub fn to_map(&self) -> Map<String, Value> {
        let records = self.0.iter();
        records
            .map(|(name, known)| (name.clone(), json!(known.record)))
            .collect()
    }
}
