//! Redaction, rounding and parsing of reports.

use super::*;

#[test]
fn a_secret_that_is_escaped_in_part_is_taken_out_of_a_reply() {
    let redactor = Redactor::new(&[ktsu_secret::Secret::new("sk-verysecretkey-1")]);
    let about = ReportContext {
        attempt: 1,
        item: None,
        step: "s",
        report: ReportReference {
            digest: String::new(),
            n: 1,
        },
        redactor: Arc::new(redactor),
        routing: None,
    };
    let hidden = r#"{"x":1,"t":"sk-very\u0073ecretkey-1"}"#;
    let response = about.response(wire::LlmResponse {
        content: Some(hidden.to_owned()),
        ..wire::LlmResponse::default()
    });
    let Ok(response) = response else {
        panic!("it is a reply");
    };
    let redacted = json!(r#"{"t":"[REDACTED]","x":1}"#);
    assert_eq!(
        response.content.map(|text| text.to_value()),
        Some(redacted.clone())
    );
    let outcome = TaskOutcome {
        error: Some(failure(None)),
        raw_output: Some(hidden.to_owned()),
        ..TaskOutcome::default()
    };
    let Ok(AgentEvent::Finished(finished)) = about.finished(FinishReason::Error, outcome, None)
    else {
        panic!("it is an end");
    };
    assert_eq!(finished.outcome.pointer("/raw_output"), Some(redacted));
}

#[test]
fn dollars_become_millionths_rounded_half_up() {
    for (usd, micro) in [
        (0.00027, 270),
        (0.000_000_5, 1),
        (0.000_000_4, 0),
        (-1.0, 0),
        (f64::NAN, 0),
        (f64::INFINITY, 0),
    ] {
        assert_eq!(micro_usd(usd), micro, "{usd}");
    }
}

#[test]
fn the_error_of_a_complete_is_text_or_has_a_code() {
    let text = json!("boom");
    assert_eq!(failure(Some(&text)).message, "boom");
    assert_eq!(failure(None).code, "agent_failed");
    let structured = json!({"code": "mine", "message": "m", "retryable": true});
    assert_eq!(failure(Some(&structured)).code, "mine");
}
