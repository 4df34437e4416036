//! Checks of what an HTTP server of a suite received.

use ktsu_workflow::expression::{Expression, from_value, into_value};
use serde_json::{Value, json};

use crate::bench::{Bench, CheckError};
use crate::http_mock::check::MockCheck;
use crate::http_mock::record::{KnownRecord, MockRequest, ServiceRecords};
use crate::output::missed;
use crate::results::{CheckFinding, shown, value_looked_at};

/// The number of bytes of a record that count as much as one comparison of a frame.
const BYTES_PER_COMPARISON: u64 = 4;

/// Checks that a service received what it has to.
pub(crate) fn find(
    check: &MockCheck,
    services: Option<&ServiceRecords>,
    bench: &mut Bench<'_, '_>,
) -> Result<CheckFinding, CheckError> {
    let known = whole(&check.service, services).map_err(CheckError::new)?;
    let (record, cost) = (&known.record, 1 + known.bytes / BYTES_PER_COMPARISON);
    bench.spend(cost, "requests")?;
    let requests: Vec<Value> = record.requests.iter().map(MockRequest::to_value).collect();
    let mut filters = check.assertions.iter().map(|one| &one.filters);
    if filters.any(|filters| !filters.members.is_empty())
        && let Some(unread) = record.requests.iter().find(|request| request.is_no_json())
    {
        let (method, path) = (&unread.method, &unread.path);
        let words = format!("{method} {path} has a body that is not JSON");
        return Err(CheckError::new(format!(
            "a request cannot be filtered: {words}"
        )));
    }
    let mut values = Vec::new();
    let mut failed = None;
    for assertion in &check.assertions {
        bench.spend(cost, "requests")?;
        let both = record.requests.iter().zip(&requests);
        let counted =
            both.filter(|(request, value)| assertion.filters.covers(request, &value["json"]));
        let counted: Vec<&Value> = counted.map(|(_, value)| value).collect();
        let value = value_of(&assertion.value.expression, &counted, bench)?;
        let source = assertion.value.expression.source();
        if let Some(missed) = missed(&assertion.value, &value, bench)?
            && failed.is_none()
        {
            let matching = counted_words(counted.len());
            let found = format!("{source} is {}, expected {missed}", shown(&value));
            failed = Some(format!("{found} ({matching})"));
        }
        values.push(json!([source, value]));
    }
    let looked_at = value_looked_at(&json!({"service": check.service, "values": values}));
    let holds = || {
        let received = counted_words(requests.len());
        let all = match check.assertions.len() {
            1 => "the assertion holds".to_owned(),
            count => format!("all {count} assertions hold"),
        };
        format!("{all} ({} received {received})", check.service)
    };
    let reason = failed.clone().unwrap_or_else(holds);
    Ok(CheckFinding::of(failed.is_none(), reason, looked_at))
}

fn counted_words(count: usize) -> String {
    match count {
        0 => "no request".to_owned(),
        1 => "1 request".to_owned(),
        count => format!("{count} requests"),
    }
}

/// The record of what a service received, if all of that is known.
///
/// # Errors
/// Why it is not, in words.
pub(crate) fn whole<'r>(
    service: &str,
    services: Option<&'r ServiceRecords>,
) -> Result<&'r KnownRecord, String> {
    let services = services.ok_or("requests are received by services of a suite: ktsu eval run")?;
    let known = services.get(service);
    let known = known.ok_or_else(|| format!("what {service} received is not kept"))?;
    let record = &known.record;
    match (record.whole, known.is_redacted) {
        (true, false) => Ok(known),
        (true, true) => Err(format!("a secret was redacted in what {service} received")),
        (false, _) => Err(format!(
            "{service} received more than is kept: {} of {} requests are whole",
            record.requests.len(),
            record.received
        )),
    }
}

fn value_of(
    field: &Expression,
    requests: &[&Value],
    bench: &mut Bench<'_, '_>,
) -> Result<Value, CheckError> {
    let value = field.evaluate_on(&from_value(&view(requests)), &mut bench.evaluator);
    Ok(into_value(value?))
}

/// The value that has the fields of assertions.
pub(crate) fn view(requests: &[&Value]) -> Value {
    json!({
        "last_request": requests.last(),
        "request_count": requests.len(),
        "requests": requests,
    })
}
