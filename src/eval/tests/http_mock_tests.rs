//! HTTP servers of suites: how they reply, what they keep, and checks of that.

use ktsu_ledger::CanonicalJson;
use ktsu_ledger::event::EvalStatus::{Error, Failed, Passed};
use ktsu_ledger::event::{CheckResult, ScenarioStarted};
use serde_json::{Value, json};

use super::record_tests::{ENGINE, checked, frames as eval_frames, started};
use super::support::{faults, paid, spec};
use crate::{
    EvalRecord, EvalSpec, EvalWriter, HttpMock, MockFault, MockRecord, MockRequest, MockState,
    PlannedReply, ServiceRecords, Subject, judge, judge_again,
};

/// A suite with a service of this definition, and a check of these assertions on it.
fn suite(service: &str, assertions: &str) -> String {
    format!(
        "subject: {{}}\nservices: {{smtp: {{type: http_mock, record: true{service}}}}}\n\
         invariants: {{a: {{description: d, check: {{type: http_mock_assertions, service: smtp, assertions: [{assertions}]}}}}}}\n"
    )
}

fn mock(service: &str) -> HttpMock {
    let read = spec(&suite(service, "{field: request_count, equals: 0}"));
    read.suite.unwrap().services.mocks["smtp"].clone()
}

fn post(path: &str, body: &str) -> MockRequest {
    let headers = [
        ("Content-Type", "application/json"),
        ("X-A", "1"),
        ("x-a", "2"),
        ("Host", "h"),
    ];
    let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let (path, query) = match path.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (path, None),
    };
    MockRequest::new("post", (path, query), headers, body.as_bytes().to_vec())
}

fn text(reply: &PlannedReply) -> &str {
    std::str::from_utf8(&reply.body).unwrap()
}

#[test]
fn the_first_route_that_fits_replies_and_fits_no_more_often_than_it_says() {
    let mock = mock(
        ", routes: [{method: get, status: 204}, {path: /a/*, times: 2, status: 503, headers: {retry-after: '1'}}, \
         {path: /a/*, body: {n: '{{ count }}', to: '{{ request.json.to }}', say: 'to {{ request.json.to[0] }}!'}}, \
         {path: /t, body: '{{ request.query }}'}, {path: /c, fault: close, delay: 5ms}]",
    );
    let mut state = MockState::new(&mock, 1 << 20);
    let mut ask = |path: &str| state.reply(&mock, post(path, r#"{"to": ["x"]}"#));
    assert_eq!((ask("/a/1").status, ask("/a/2").status), (503, 503));
    let third = ask("/a/3");
    assert_eq!(
        (third.status, text(&third)),
        (200, r#"{"n":1,"say":"to x!","to":["x"]}"#)
    );
    let kind = |reply: &PlannedReply| reply.headers.last().unwrap().1.clone();
    assert_eq!(kind(&third), "application/json");
    let query = ask("/t?q=1");
    assert_eq!(
        (text(&query), &*kind(&query)),
        ("q=1", "text/plain; charset=utf-8")
    );
    let closed = ask("/c");
    assert_eq!(
        (closed.fault, closed.delay.as_millis()),
        (Some(MockFault::Close), 5)
    );
    let none = ask("/b");
    assert_eq!(
        (none.status, text(&none)),
        (404, r#"{"error":"no route fits POST /b"}"#)
    );
    let record = state.record();
    assert_eq!((record.received, record.whole), (6, true));
    let statuses: Vec<Option<u16>> = record.requests.iter().map(|one| one.status).collect();
    assert_eq!(
        statuses,
        [Some(503), Some(503), Some(200), Some(200), None, Some(404)]
    );
    let kept = json!(record.requests[0]);
    assert_eq!(
        kept,
        json!({"body": r#"{"to": ["x"]}"#, "headers": {"content-type": "application/json", "x-a": "1, 2"},
            "method": "POST", "path": "/a/1", "status": 503})
    );
}

#[test]
fn a_server_without_routes_accepts_everything_and_one_that_keeps_nothing_has_no_record() {
    let with = mock("");
    let mut state = MockState::new(&with, 1 << 20);
    assert_eq!(
        text(&state.reply(&with, post("/", ""))),
        r#"{"received":true}"#
    );
    assert_eq!(state.record().requests.len(), 1);
    let without = HttpMock {
        record: false,
        ..with
    };
    let mut state = MockState::new(&without, 1 << 20);
    state.reply(&without, post("/", ""));
    assert_eq!(state.record(), &MockRecord::default());
}

#[test]
fn a_record_has_bounds_of_requests_of_bytes_and_of_a_body() {
    let mock = mock("");
    let mut state = MockState::new(&mock, usize::MAX);
    for _ in 0..1_001 {
        state.reply(&mock, post("/", ""));
    }
    let record = state.record();
    assert_eq!(
        (record.received, record.requests.len(), record.whole),
        (1_001, 1_000, false)
    );
    let mut state = MockState::new(&mock, 1_000);
    state.reply(&mock, post("/", &"x".repeat(500)));
    state.reply(&mock, post("/", &"x".repeat(500)));
    // After one that does not fit, none is kept: the record is a beginning.
    state.reply(&mock, post("/", ""));
    assert_eq!(
        (state.record().received, state.record().requests.len()),
        (3, 1)
    );
    let mut state = MockState::new(&mock, usize::MAX);
    let large = post("/", &"x".repeat((256 << 10) + 1));
    assert_eq!(state.reply(&mock, large).status, 200, "it is replied to");
    assert_eq!(
        (state.record().received, state.record().requests.len()),
        (1, 0)
    );
    let mut state = MockState::new(&mock, 1_000);
    assert_eq!(state.reply_to_more(&mock).status, 413);
    assert!(!state.record().whole);
}

#[test]
fn a_template_without_a_value_is_a_reply_with_the_reason() {
    let mock = mock(", routes: [{body: '{{ abs(request.path) }}'}]");
    let mut state = MockState::new(&mock, 1_000);
    let reply = state.reply(&mock, post("/", ""));
    assert_eq!(reply.status, 500);
    assert!(
        text(&reply).contains("the body of the route has no value: "),
        "{}",
        text(&reply)
    );
}

/// What a check finds of what a server received.
fn found(assertions: &str, record: Option<MockRecord>) -> CheckResult {
    let records = record.map(|record| {
        // As an eval has it.
        let map = ServiceRecords::new([("smtp".to_owned(), record)]).to_map();
        ServiceRecords::of(&CanonicalJson::from_value(&Value::Object(map)).unwrap())
    });
    judged(&spec(&suite("", assertions)), records.as_ref())
}

fn judged(spec: &EvalSpec, services: Option<&ServiceRecords>) -> CheckResult {
    let subject = Subject {
        envelope: &Value::Null,
        frames: &[],
        workspace: None,
        services,
        replies: None,
    };
    judge(spec, &subject).remove(0)
}

fn received(requests: &[MockRequest]) -> MockRecord {
    let mock = mock("");
    let mut state = MockState::new(&mock, 1 << 20);
    for request in requests {
        state.reply(&mock, request.clone());
    }
    state.record().clone()
}

#[test]
fn assertions_are_about_the_requests_that_their_filters_leave() {
    let record = received(&[
        post("/api/messages?x=1", r#"{"to": "finance@co", "n": 1}"#),
        post("/api/messages", r#"{"to": ["a@co", "b@co"], "n": 2}"#),
        MockRequest {
            headers: [("x-a".to_owned(), "1, 2".to_owned())].into(),
            ..post("/other", "no JSON")
        },
    ]);
    for (assertion, holds) in [
        ("{field: request_count, equals: 3}", true),
        (
            "{field: request_count, filters: {method: POST, path: /api/messages}, equals: 2}",
            true,
        ),
        (
            "{field: request_count, filters: {method: GET}, equals: 0}",
            true,
        ),
        (
            "{field: request_count, filters: {path: '/api/*', to: finance@co}, equals: 1}",
            true,
        ),
        (
            "{field: request_count, filters: {to: b@co}, min: 1, max: 1}",
            true,
        ),
        ("{field: request_count, filters: {n: 2.0}, equals: 1}", true),
        (
            "{field: request_count, filters: {headers: {X-A: '1*', content-type: application/json}}, equals: 2}",
            true,
        ),
        (
            "{field: request_count, filters: {headers: {x-b: '*'}}, equals: 0}",
            true,
        ),
        ("{field: last_request.body, equals: no JSON}", true),
        (
            "{field: last_request.body, filters: {path: /api/messages}, contains: a@co}",
            true,
        ),
        ("{field: last_request.headers.\"x-a\", contains: '2'}", true),
        ("{field: 'requests[0].query', equals: x=1}", true),
        ("{field: 'requests[0].json.n', equals: 1}", true),
        ("{field: 'requests[1].headers', not_equals: {}}", true),
        ("{field: 'requests[3]', equals: null}", true),
        ("{field: 'requests[*].path', contains: /other}", true),
        ("{field: last_request.json, equals: null}", true),
        (
            "{field: request_count, filters: {nosuch: null}, equals: 0}",
            true,
        ),
        ("{field: request_count, equals: 2}", false),
        ("{field: 'requests[0].body', contains: b@co}", false),
        ("{field: last_request.method, not_equals: POST}", false),
        (
            "{field: request_count, equals: 3}, {field: request_count, equals: 4}",
            false,
        ),
    ] {
        let result = found(assertion, Some(record.clone()));
        let status = if holds { Passed } else { Failed };
        assert_eq!(result.status, status, "{assertion}: {}", result.reason);
    }
    let result = found(
        "{field: request_count, filters: {path: /other}, equals: 2}",
        Some(record.clone()),
    );
    assert_eq!(result.reason, "request_count is 1, expected 2 (1 request)");
    let two = "{field: request_count, equals: 3}, {field: last_request.path, equals: /other}";
    let result = found(two, Some(record));
    assert_eq!(
        result.reason,
        "all 2 assertions hold (smtp received 3 requests)"
    );
}

#[test]
fn what_is_not_whole_or_not_kept_is_an_error_and_no_traffic_is_a_reason() {
    let assertion = "{field: last_request.body, contains: renewal}";
    let none = found(assertion, Some(MockRecord::default()));
    assert_eq!(
        (none.status, &*none.reason),
        (
            Failed,
            "last_request.body is null, expected something that contains \"renewal\" (no request)"
        )
    );
    let cut = MockRecord {
        received: 7,
        whole: false,
        ..received(&[post("/", "renewal")])
    };
    let cut = found(assertion, Some(cut));
    assert_eq!(
        (cut.status, &*cut.reason),
        (
            Error,
            "smtp received more than is kept: 1 of 7 requests are whole"
        )
    );
    let without = found(assertion, None);
    assert_eq!(without.status, Error);
    assert!(
        without.reason.contains("ktsu eval run"),
        "{}",
        without.reason
    );
    let empty = judged(
        &spec(&suite("", assertion)),
        Some(&ServiceRecords::default()),
    );
    assert_eq!(empty.reason, "what smtp received is not kept");
}

#[test]
fn a_redacted_record_and_a_body_that_cannot_be_filtered_are_errors() {
    let count = "{field: request_count, equals: 1}";
    let sealed = received(&[post("/", r#"{"to": "a"}"#)]).sealed(&|text| text.replace('a', "b"));
    assert_eq!(sealed.requests[0].body.as_deref(), Some(r#"{"to": "b"}"#));
    assert_eq!(found(count, Some(sealed.clone())).status, Passed);
    let mut redacted = sealed;
    redacted.requests[0].body = Some("[REDACTED]".to_owned());
    let result = found(count, Some(redacted));
    assert_eq!(
        (result.status, &*result.reason),
        (Error, "a secret was redacted in what smtp received")
    );
    for body in [r#"{"to": "a", "n": NaN}"#, "{"] {
        let record = received(&[post("/m", body)]);
        assert_eq!(found(count, Some(record.clone())).status, Passed);
        let result = found(
            "{field: request_count, filters: {to: a}, equals: 0}",
            Some(record),
        );
        assert_eq!(
            (result.status, &*result.reason),
            (
                Error,
                "a request cannot be filtered: POST /m has a body that is not JSON"
            )
        );
    }
}

#[test]
fn many_assertions_on_a_large_record_end_by_their_budget() {
    let large = received(
        &(0..15)
            .map(|_| post("/", &"x".repeat(60 << 10)))
            .collect::<Vec<_>>(),
    );
    let one = "{field: request_count, equals: 15}, ".repeat(100);
    let check = format!(
        "{{description: d, check: {{type: http_mock_assertions, service: smtp, assertions: [{one}]}}}}"
    );
    let checks: Vec<String> = (0..50).map(|at| format!("a{at}: {check}")).collect();
    let text = format!(
        "subject: {{}}\nservices: {{smtp: {{type: http_mock, record: true}}}}\ninvariants: {{{}}}\n",
        checks.join(", ")
    );
    let records = ServiceRecords::new([("smtp".to_owned(), large)]);
    let subject = Subject {
        envelope: &Value::Null,
        frames: &[],
        workspace: None,
        services: Some(&records),
        replies: None,
    };
    let results = judge(&spec(&text), &subject);
    assert_eq!(results[0].status, Passed);
    let last = results.last().unwrap();
    assert_eq!(
        (last.status, &*last.reason),
        (Error, "the checks look at too many requests")
    );
}

#[test]
fn slips_in_servers_and_assertions_are_reported_at_their_places() {
    let good = "{field: request_count, equals: 1}";
    for (service, assertions, line, words) in [
        (", routes: []", good, 2, "routes has 1 to 100 entries"),
        (", routes: [{path: a}]", good, 2, "path begins with a slash"),
        (", routes: [{path: '/a?b'}]", good, 2, "has no query"),
        (", routes: [{status: 99}]", good, 2, "status"),
        (", routes: [{delay: 11m}]", good, 2, "delay is at most 10m"),
        (
            ", routes: [{fault: close, body: a}]",
            good,
            2,
            "a route with a fault has no reply",
        ),
        (", routes: [{fault: burn}]", good, 2, "fault"),
        (
            ", routes: [{method: 'P T'}]",
            good,
            2,
            "method is a method of HTTP",
        ),
        (
            ", routes: [{headers: {'a b': c}}]",
            good,
            2,
            "is not a name of a header",
        ),
        (
            ", routes: [{headers: {a: \"b\\nc\"}}]",
            good,
            2,
            "is one line of ASCII",
        ),
        (", routes: [{body: '{{ a'}]", good, 2, "{{ has no }}"),
        (", routes: [{body: [{a: '{{ . }}'}]}]", good, 2, "body: "),
        (", variables: []", good, 2, "variables"),
        (", ports: [1]", good, 2, "unknown key \"ports\""),
        (
            "",
            "{field: request_count}",
            3,
            "the assertion needs one of contains, equals",
        ),
        ("", "{field: body, equals: 1}", 3, "\"body\" is not a field"),
        ("", "{field: 'requests[', equals: 1}", 3, "requests["),
        (
            "",
            "{field: request_count, filters: {path: a}, equals: 1}",
            3,
            "path begins",
        ),
        (
            "",
            "{field: request_count, filters: {headers: {a: 1}}, equals: 1}",
            3,
            "must be text",
        ),
        (
            "",
            "{field: request_count, min: 2, max: 1}",
            3,
            "a min above its max",
        ),
        ("", "", 3, "assertions has 1 to 100 entries"),
    ] {
        let found = faults(&suite(service, assertions));
        assert!(
            found
                .iter()
                .any(|(at, _, it)| *at == line && it.contains(words)),
            "{service} {assertions}: {found:?}"
        );
    }
    let without = suite("", good).replace("record: true", "record: false");
    assert!(faults(&without)[0].2.contains(
        "does not keep what it receives | services: {smtp: {type: http_mock, record: true}}"
    ));
    let other = suite("", good).replace("service: smtp", "service: mail");
    assert!(
        faults(&other)[0]
            .2
            .contains("the suite has no service \"mail\" of the type http_mock")
    );
    let judge = "subject: {}\nservices: {smtp: {type: http_mock}}\ninvariants: {a: {description: d, check: \
        {type: llm_as_judge, model: m, criteria: c, input_from: smtp.last_request.body}}}\n";
    assert!(
        faults(judge)[0]
            .2
            .contains("does not keep what it receives")
    );
    let twice = "subject: {}\nservices: {a: {type: http_mock, variables: [U]}, b: {type: http_mock, variables: [U]}}\n\
        invariants: {a: {description: d, check: {type: output}}}\n";
    assert!(
        faults(twice)[0]
            .2
            .contains("two services have their URL in the variable U")
    );
}

#[test]
fn a_verdict_on_what_a_server_received_is_judged_again_from_its_record() {
    let text = suite("", "{field: request_count, equals: 1}");
    let spec = spec(&text);
    let frames = paid();
    let map = |requests: &[MockRequest]| {
        let records = ServiceRecords::new([("smtp".to_owned(), received(requests))]);
        CanonicalJson::from_value(&Value::Object(records.to_map())).unwrap()
    };
    let recorded = map(&[post("/", "")]);
    let subject = Subject {
        envelope: &Value::Null,
        frames: &frames,
        workspace: None,
        services: None,
        replies: None,
    };
    let services = ServiceRecords::of(&recorded);
    let with_services = Subject {
        services: Some(&services),
        ..subject
    };
    let results = judge(&spec, &with_services);
    for (kept, expected) in [
        (Some(recorded.clone()), Ok((1, 0))),
        (
            Some(map(&[])),
            Err("the run gives another result of this check"),
        ),
        (None, Ok((0, 1))),
    ] {
        let started_run = ScenarioStarted {
            services: kept,
            ..checked("run_a", &frames)
        };
        let (mut writer, mut events) = EvalWriter::begin(started(&text), spec.pass_threshold);
        events.extend(writer.judged(started_run, Ok(results.clone())));
        events.extend(writer.finish());
        let record = EvalRecord::of(&eval_frames(events)).unwrap();
        let run = &record.runs[0];
        let services = run.started.services.as_ref().map(ServiceRecords::of);
        let subject = Subject {
            services: services.as_ref(),
            ..subject
        };
        let again = judge_again(&record, run, &spec, &subject, ENGINE);
        let again = again.map(|again| (again.judged, again.not_covered.len()));
        assert_eq!(again.map_err(|fault| fault.reason), expected);
    }
}
