//! Replies of HTTP servers of suites.

use std::time::Duration;

use ktsu_workflow::expression::{Evaluator, Expression, Tracker, from_value, into_value};
use serde_json::{Map, Value, json};

use crate::filter;
use crate::http_mock::record::{MockRecord, MockRequest};
use crate::http_mock::{HttpMock, MockFault, MockRoute};

/// The most bytes of the body of a reply.
pub(crate) const MAX_REPLY: usize = 1 << 20;

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
    /// How many bytes of JSON may still be kept.
    left: usize,
}

/// How a request is replied to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedReply {
    /// The HTTP status.
    pub status: u16,
    /// Its headers.
    pub headers: Vec<(String, String)>,
    /// Its body.
    pub body: Vec<u8>,
    /// How long it takes until it is sent.
    pub delay: Duration,
    /// What happens in its place.
    pub fault: Option<MockFault>,
}

/// A value whose texts may have `{{ EXPRESSION }}` in them: JMESPath over `{count, request}`.
#[derive(Debug, Clone)]
pub(crate) struct ReplyTemplate {
    written: Value,
    node: ReplyNode,
}

#[derive(Debug, Clone)]
enum ReplyNode {
    Literal(Value),
    Text(Vec<ReplyPart>),
    List(Vec<ReplyNode>),
    Map(Vec<(String, ReplyNode)>),
}

#[derive(Debug, Clone)]
enum ReplyPart {
    Literal(String),
    Expression(Expression),
}

impl PartialEq for ReplyTemplate {
    fn eq(&self, other: &Self) -> bool {
        self.written == other.written
    }
}

impl ReplyTemplate {
    /// Reads the expressions of a value, whose depth is bounded because it comes from YAML.
    ///
    /// # Errors
    /// What is wrong with one, in words.
    pub(crate) fn parse(written: Value) -> Result<Self, String> {
        let node = ReplyNode::parse(&written)?;
        Ok(Self { written, node })
    }

    /// The value for a request; none if an expression has none.
    fn render(&self, request: &Value) -> Result<Value, String> {
        let mut tracker = Tracker::default();
        let mut evaluator = Evaluator::new(&mut tracker);
        let request = from_value(request);
        let mut value_of = |expression: &Expression| {
            let value = expression.evaluate_on(&request, &mut evaluator);
            value.map(into_value).map_err(|error| error.message)
        };
        self.node.render(&mut value_of)
    }

    /// Whether it is sent as JSON.
    fn is_json(&self) -> bool {
        !self.written.is_string()
    }
}

impl ReplyNode {
    fn parse(written: &Value) -> Result<Self, String> {
        Ok(match written {
            Value::String(text) if text.contains("{{") => Self::Text(parts(text)?),
            Value::Array(items) => {
                Self::List(items.iter().map(Self::parse).collect::<Result<_, _>>()?)
            }
            Value::Object(members) => {
                let members = members.iter();
                let nodes = members.map(|(name, value)| Ok((name.clone(), Self::parse(value)?)));
                Self::Map(nodes.collect::<Result<_, String>>()?)
            }
            other => Self::Literal(other.clone()),
        })
    }

    fn render(
        &self,
        value_of: &mut dyn FnMut(&Expression) -> Result<Value, String>,
    ) -> Result<Value, String> {
        Ok(match self {
            Self::Literal(value) => value.clone(),
            // One expression alone keeps its type.
            Self::Text(parts) => match parts.as_slice() {
                [ReplyPart::Expression(expression)] => value_of(expression)?,
                parts => Value::String(text(parts, value_of)?),
            },
            Self::List(items) => {
                let items = items.iter().map(|item| item.render(value_of));
                Value::Array(items.collect::<Result<_, _>>()?)
            }
            Self::Map(members) => {
                let mut rendered = Map::new();
                for (name, node) in members {
                    rendered.insert(name.clone(), node.render(value_of)?);
                }
                Value::Object(rendered)
            }
        })
    }
}

fn text(
    parts: &[ReplyPart],
    value_of: &mut dyn FnMut(&Expression) -> Result<Value, String>,
) -> Result<String, String> {
    let mut text = String::new();
    for part in parts {
        match part {
            ReplyPart::Literal(literal) => text.push_str(literal),
            ReplyPart::Expression(expression) => match value_of(expression)? {
                Value::String(value) => text.push_str(&value),
                Value::Null => {}
                other => text.push_str(&other.to_string()),
            },
        }
        if text.len() > MAX_REPLY {
            return Err(too_long());
        }
    }
    Ok(text)
}

fn too_long() -> String {
    format!("it has more than {} MiB", MAX_REPLY >> 20)
}

fn parts(text: &str) -> Result<Vec<ReplyPart>, String> {
    let (mut parts, mut rest) = (Vec::new(), text);
    while let Some((before, begun)) = rest.split_once("{{") {
        let (source, after) = begun
            .split_once("}}")
            .ok_or_else(|| "{{ has no }}".to_owned())?;
        if !before.is_empty() {
            parts.push(ReplyPart::Literal(before.to_owned()));
        }
        let expression = filter::expression(source.trim()).map_err(|error| error.message)?;
        parts.push(ReplyPart::Expression(expression));
        rest = after;
    }
    if !rest.is_empty() {
        parts.push(ReplyPart::Literal(rest.to_owned()));
    }
    Ok(parts)
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

    /// What was received so far.
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
