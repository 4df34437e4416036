//! Reads HTTP servers of suites, and what checks and models ask of what they received.

use ktsu_config::fault::{Fault, FaultCode};
use ktsu_config::read::{ConfigReader, Fields};
use ktsu_config::yaml::{YamlNode, YamlValue};
use ktsu_workflow::expression::Expression;

use crate::field_reader::{self, conditions, shaped, text};
use crate::filter;
use crate::glob::{Glob, MAX_GLOB_BYTES};
use crate::http_mock::check::{MockAssertion, MockCheck, RequestFilter};
use crate::http_mock::routes::{HttpMock, MockFault, MockRoute};
use crate::http_mock::template::{MAX_REPLY, ReplyTemplate};
use crate::shapes::{ASSERTION, HTTP_MOCK_SERVICE, MOCK_ROUTE};

/// The most routes of a server.
const MAX_ROUTES: usize = 100;

/// The most assertions of a check.
const MAX_ASSERTIONS: usize = 100;

/// The most headers of a reply, and conditions of a filter.
const MAX_ENTRIES: usize = 32;

/// The most milliseconds that a reply takes.
const MAX_DELAY_MS: u64 = 600_000;

/// Headers that servers set themselves.
const OF_SENDING: [&str; 7] = [
    "connection",
    "content-length",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// The names that fields of assertions begin with.
const FIELDS: [&str; 3] = ["last_request", "request_count", "requests"];

/// A server.
pub(crate) fn service(reader: &mut ConfigReader<'_>, node: &YamlNode) -> Option<HttpMock> {
    let fields = shaped(reader, node, &HTTP_MOCK_SERVICE)?;
    let before = reader.faults.len();
    let routes = fields.read("routes", |node| {
        let items = bounded_list(reader, node, "routes", MAX_ROUTES)?;
        let routes: Vec<_> = items.iter().map(|item| route(reader, item)).collect();
        routes.into_iter().collect::<Option<Vec<MockRoute>>>()
    });
    let variables = fields.read("variables", |node| {
        let items = bounded_list(reader, node, "variables", MAX_ENTRIES)?;
        let names = items.iter().map(|item| {
            let name = reader.string(item, "variables")?;
            Some(name.to_owned())
        });
        names.collect::<Option<Vec<String>>>()
    });
    let record = fields.read("record", |node| reader.flag(node, "record"));
    (reader.faults.len() == before).then(|| HttpMock {
        routes: routes.unwrap_or_default(),
        record: record.unwrap_or(false),
        variables: variables.unwrap_or_default(),
    })
}

fn bounded_list<'n>(
    reader: &mut ConfigReader<'_>,
    node: &'n YamlNode,
    name: &str,
    most: usize,
) -> Option<&'n [YamlNode]> {
    match &node.data {
        YamlValue::List(items) if (1..=most).contains(&items.len()) => Some(items),
        _ => {
            let words = format!("{name} has 1 to {most} entries");
            reader.bad_value(node, words)
        }
    }
}

fn route(reader: &mut ConfigReader<'_>, node: &YamlNode) -> Option<MockRoute> {
    let fields = shaped(reader, node, &MOCK_ROUTE)?;
    let before = reader.faults.len();
    let integer = |reader: &mut ConfigReader<'_>, name: &str, least, most| {
        let number = fields.read(name, |node| reader.integer(node, name, least, most))?;
        u64::try_from(number).ok()
    };
    let status = integer(reader, "status", 200, 599).unwrap_or(200);
    let times = integer(reader, "times", 1, 1_000_000);
    let body = fields.read("body", |node| body(reader, node));
    let delay = fields.read("delay", |node| {
        let delay = reader.duration(node, "delay")?;
        match delay <= MAX_DELAY_MS {
            true => Some(delay),
            false => reader.bad_value(node, "delay is at most 10m"),
        }
    });
    let words = [("close", MockFault::Close), ("hang", MockFault::Hang)];
    let fault = fields.read("fault", |node| reader.keyword(node, "fault", &words));
    if let (Some(_), Some(place)) = (fault, fields.key("body").or(fields.key("status"))) {
        let words = "a route with a fault has no reply";
        reader.fault(Fault::new(FaultCode::MisplacedKey, place, words));
    }
    let route = MockRoute {
        method: fields.read("method", |node| method(reader, node)),
        path: fields.read("path", |node| path(reader, node)),
        times,
        status: u16::try_from(status).ok()?,
        headers: fields
            .read("headers", |node| reply_headers(reader, node))
            .unwrap_or_default(),
        body,
        delay_ms: delay.unwrap_or_default(),
        fault,
    };
    (reader.faults.len() == before).then_some(route)
}

fn body(reader: &mut ConfigReader<'_>, node: &YamlNode) -> Option<ReplyTemplate> {
    reader.report_nested_duplicates(node);
    let value = node.to_value();
    if value.to_string().len() > MAX_REPLY {
        return reader.bad_value(node, "body has more than 1 MiB");
    }
    match ReplyTemplate::parse(value) {
        Ok(template) => Some(template),
        Err(words) => {
            let words = format!("body: {words}");
            reader.reject(Fault::new(FaultCode::BadExpression, node.place, words))
        }
    }
}

fn method(reader: &mut ConfigReader<'_>, node: &YamlNode) -> Option<String> {
    let text = reader.string(node, "method")?;
    let is_method =
        (1..=20).contains(&text.len()) && text.bytes().all(|it| it.is_ascii_alphabetic());
    match is_method {
        true => Some(text.to_ascii_uppercase()),
        false => reader.bad_value(node, "method is a method of HTTP, such as POST"),
    }
}

fn path(reader: &mut ConfigReader<'_>, node: &YamlNode) -> Option<Glob> {
    let text = reader.string(node, "path")?;
    if !text.starts_with(['/', '*']) || text.len() > MAX_GLOB_BYTES || text.contains(['?', '#']) {
        let words = "path begins with a slash, and has no query";
        let fault = Fault::new(FaultCode::BadValue, node.place, words);
        return reader.reject(fault.hint("path: /orders/*, for instance"));
    }
    Some(Glob::new(text))
}

/// Headers of a reply, without those that say how it is sent.
fn reply_headers(reader: &mut ConfigReader<'_>, node: &YamlNode) -> Option<Vec<(String, String)>> {
    let headers = headers(reader, node)?;
    let mut names = headers.iter().map(|(name, _)| name.to_ascii_lowercase());
    match names.find(|name| OF_SENDING.contains(&name.as_str())) {
        Some(name) => reader.bad_value(node, format!("{name} follows from the body and the route")),
        None => Some(headers),
    }
}

fn headers(reader: &mut ConfigReader<'_>, node: &YamlNode) -> Option<Vec<(String, String)>> {
    let members = reader.members(node, "headers");
    if members.len() > MAX_ENTRIES {
        return reader.bad_value(node, format!("headers has at most {MAX_ENTRIES} entries"));
    }
    let mut headers = Vec::new();
    for (key, node) in members {
        let value = reader.string(node, &key.text)?;
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        if key.text.is_empty() || !key.text.bytes().all(is_name) {
            let words = format!("{:?} is not a name of a header", key.text);
            return reader.reject(Fault::new(FaultCode::BadValue, key.place, words));
        }
        if value.len() > MAX_GLOB_BYTES || !value.bytes().all(|it| (b' '..=b'~').contains(&it)) {
            return reader.bad_value(node, "a value of a header is one line of ASCII");
        }
        headers.push((key.text.clone(), value.to_owned()));
    }
    Some(headers)
}

/// A check of the type `http_mock_assertions`.
pub(crate) fn check(reader: &mut ConfigReader<'_>, fields: &Fields<'_>) -> Option<MockCheck> {
    let service = text(reader, fields, "service");
    let assertions = fields.read("assertions", |node| {
        let items = bounded_list(reader, node, "assertions", MAX_ASSERTIONS)?;
        let all: Vec<_> = items.iter().map(|item| assertion(reader, item)).collect();
        all.into_iter().collect::<Option<Vec<MockAssertion>>>()
    });
    Some(MockCheck {
        service: service?,
        assertions: assertions?,
    })
}

fn assertion(reader: &mut ConfigReader<'_>, node: &YamlNode) -> Option<MockAssertion> {
    let fields = shaped(reader, node, &ASSERTION)?;
    if !ASSERTION.any_of.iter().any(|key| fields.key(key).is_some()) {
        return field_reader::missing_one(reader, &fields, ASSERTION.any_of, "the assertion");
    }
    let expression = fields.read("field", |node| {
        let text = reader.string(node, "field")?;
        field(reader, node, text)
    });
    let filters = match fields.get("filters") {
        Some(node) => filters(reader, node)?,
        None => RequestFilter::default(),
    };
    Some(MockAssertion {
        filters,
        value: conditions(reader, &fields, expression)?,
    })
}

/// A field of what a server received: `request_count`, `last_request.body`, `requests[0].headers`.
pub(crate) fn field(
    reader: &mut ConfigReader<'_>,
    node: &YamlNode,
    text: &str,
) -> Option<Expression> {
    let begins = |name: &str| {
        let rest = text.strip_prefix(name);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    };
    if !FIELDS.into_iter().any(begins) {
        let words = format!("{text:?} is not a field of what a server received");
        let fault = Fault::new(FaultCode::BadValue, node.place, words);
        let hint = "request_count, last_request.body, last_request.headers, last_request.json.NAME, requests[0].body";
        return reader.reject(fault.hint(hint));
    }
    match filter::expression(text) {
        Ok(expression) => Some(expression),
        Err(error) => {
            field_reader::refuse(reader, node, true, error);
            None
        }
    }
}

fn filters(reader: &mut ConfigReader<'_>, node: &YamlNode) -> Option<RequestFilter> {
    let members = reader.members(node, "filters");
    if members.len() > MAX_ENTRIES {
        return reader.bad_value(node, format!("filters has at most {MAX_ENTRIES} entries"));
    }
    let mut filters = RequestFilter::default();
    for (key, node) in members {
        match key.text.as_str() {
            "method" => filters.method = Some(method(reader, node)?),
            "path" => filters.path = Some(path(reader, node)?),
            "headers" => {
                for (name, value) in headers(reader, node)? {
                    let glob = Glob::new(&value);
                    filters.headers.push((name.to_ascii_lowercase(), glob));
                }
            }
            member => {
                reader.report_nested_duplicates(node);
                filters.members.push((member.to_owned(), node.to_value()));
            }
        }
    }
    Some(filters)
}
