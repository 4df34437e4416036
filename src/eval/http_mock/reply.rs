//! Replies of HTTP servers of suites.

use std::time::Duration;

use serde_json::{Value, json};

use crate::http_mock::record::{MockRecord, MockRequest};
use crate::http_mock::routes::{HttpMock, MockFault, MockRoute};
use crate::http_mock::template::{MAX_REPLY, ReplyTemplate, too_long};

/// The most bytes of a body in the record.
const MAX_KEPT_REPLY: usize = 4 << 10;

/// The reply to what no route fits.
const NO_ROUTE: u16 = 404;

/// The reply of a template that has no value for a request.
const NO_VALUE: u16 = 500;

/// A server as it runs: how often its routes have replied, and what it has received.
#[derive(Debug)]
pub struct MockState {
    /// By the number of the route.
    used: Vec<u64>,
    record: MockRecord,
    /// The number of bytes of JSON that may still be kept.
    left: usize,
}

/// The planned reply to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedReply {
    /// The HTTP status.
    pub status: u16,
    /// Its headers.
    pub headers: Vec<(String, String)>,
    /// Its body.
    pub body: Vec<u8>,
    /// The time until it is sent.
    pub delay: Duration,
    /// The fault in its place, if there is one.
    pub fault: Option<MockFault>,
}

impl MockRoute {
    fn fits(&self, request: &MockRequest, used: u64) -> bool {
        let method = self.method.as_ref();
        let path = self.path.as_ref();
        self.times.is_none_or(|times| used < times)
            && method.is_none_or(|method| *method == request.method)
            && path.is_none_or(|path| path.covers(&request.path))
    }

    fn reply(&self, request: &MockRequest, count: u64) -> PlannedReply {
        let mut headers = self.headers.clone();
        let body = match &self.body {
            None => Vec::new(),
            Some(template) => {
                let names = json!({"count": count, "request": request.to_value()});
                let rendered = template.render(&names).map(|value| match value {
                    Value::String(text) if !template.is_json() => text.into_bytes(),
                    other => other.to_string().into_bytes(),
                });
                let rendered = rendered.and_then(|body| match body.len() > MAX_REPLY {
                    true => Err(too_long()),
                    false => Ok(body),
                });
                match rendered {
                    Ok(body) => body,
                    Err(why) => return no_value(&why),
                }
            }
        };
        let is_type = |(name, _): &(String, String)| name.eq_ignore_ascii_case("content-type");
        if self.body.is_some() && !headers.iter().any(is_type) {
            let is_json = self.body.as_ref().is_some_and(ReplyTemplate::is_json);
            let kind = match is_json {
                true => "application/json",
                false => "text/plain; charset=utf-8",
            };
            headers.push(("content-type".to_owned(), kind.to_owned()));
        }
        PlannedReply {
            status: self.status,
            headers,
            body,
            delay: Duration::from_millis(self.delay_ms),
            fault: self.fault,
        }
    }
}

/// A reply of the server itself.
fn own(status: u16, body: &Value) -> PlannedReply {
    let kind = ("content-type".to_owned(), "application/json".to_owned());
    PlannedReply {
        status,
        headers: vec![kind],
        body: body.to_string().into_bytes(),
        delay: Duration::ZERO,
        fault: None,
    }
}

fn no_value(why: &str) -> PlannedReply {
    own(
        NO_VALUE,
        &json!({"error": format!("the body of the route has no value: {why}")}),
    )
}

impl MockState {
    /// A server that has received nothing. `most`: bytes of JSON that are kept of what it receives.
    pub fn new(mock: &HttpMock, most: usize) -> Self {
        Self {
            used: vec![0; mock.routes.len()],
            record: MockRecord::default(),
            left: most,
        }
    }

    /// The reply to a request, which is kept if the server keeps what it receives.
    pub fn reply(&mut self, mock: &HttpMock, request: MockRequest) -> PlannedReply {
        let reply = self.planned(mock, &request);
        if mock.record {
            let (status, body) = match reply.fault {
                Some(_) => (None, None),
                None => (Some(reply.status), kept(&reply.body)),
            };
            self.record.add(request, (status, body), &mut self.left);
        }
        reply
    }

    /// The same for a request whose body is not read.
    pub fn reply_to_more(&mut self, mock: &HttpMock) -> PlannedReply {
        if mock.record {
            self.record.leave_out();
        }
        let words = "the body is larger than this server reads";
        own(413, &json!({ "error": words }))
    }

    /// The record of what was received so far.
    pub fn record(&self) -> &MockRecord {
        &self.record
    }

    fn planned(&mut self, mock: &HttpMock, request: &MockRequest) -> PlannedReply {
        if mock.routes.is_empty() {
            return own(200, &json!({"received": true}));
        }
        let routes = mock.routes.iter().zip(&mut self.used);
        for (route, used) in routes {
            if route.fits(request, *used) {
                *used += 1;
                return route.reply(request, *used);
            }
        }
        let words = format!("no route fits {} {}", request.method, request.path);
        own(NO_ROUTE, &json!({ "error": words }))
    }
}

/// The body of a reply, as the record has it.
fn kept(body: &[u8]) -> Option<String> {
    let is_short = (1..=MAX_KEPT_REPLY).contains(&body.len());
    let text = is_short.then(|| std::str::from_utf8(body).ok())?;
    text.map(str::to_owned)
}
