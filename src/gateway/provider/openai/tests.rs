use super::*;
use crate::error::ErrorCause;
use crate::provider::wire::{MAX_MESSAGE_LENGTH, MAX_RESPONSE_BYTES};
use ktsu_egress::EgressResponse;
use ktsu_secret::Secret;

fn call() -> ProviderCall {
    ProviderCall {
        group: "g".to_owned(),
        model: "gpt-4o-mini".to_owned(),
        messages: vec![ChatMessage {
            role: "user".to_owned(),
            content: "U".to_owned(),
            ..ChatMessage::default()
        }],
        max_tokens: 64,
        temperature: None,
        tools: Vec::new(),
    }
}

fn read(response: &EgressResponse, redactor: &Redactor) -> Result<ProviderReply, GatewayError> {
    answer(wire::read(response, redactor, spent)?, &call(), redactor)
}

fn told(status: u16, body: &str) -> Result<ProviderReply, GatewayError> {
    let response = EgressResponse {
        status,
        headers: axum::http::HeaderMap::new(),
        body: body.as_bytes().to_vec(),
        truncated: false,
        timed_out: false,
        duration_ms: 1,
    };
    read(&response, &Redactor::new([&Secret::new("sk-secret-key")]))
}

#[test]
fn a_temperature_is_sent_only_if_there_is_one() {
    let mut call = call();
    assert_eq!(
        body(&call, "max_tokens"),
        json!({"model": "gpt-4o-mini", "max_tokens": 64,
            "messages": [{"role": "user", "content": "U"}]})
    );
    call.temperature = Some(0.0);
    assert_eq!(body(&call, "max_tokens")["temperature"], 0.0);
}

#[test]
fn tools_are_functions_to_this_provider() {
    let mut call = call();
    let schema = json!({"type": "object", "properties": {"k": {"type": "string"}}});
    call.tools = vec![ToolDefinition {
        name: "kv".to_owned(),
        description: "d".to_owned(),
        input_schema: schema.clone(),
    }];
    let function = json!({"name": "kv", "description": "d", "parameters": schema});
    assert_eq!(
        body(&call, "max_tokens")["tools"],
        json!([{"type": "function", "function": function}])
    );
}

#[test]
fn the_error_of_a_tool_reaches_the_model_with_one_mark() {
    for (text, told) in [
        ("out of stock", "Error: out of stock"),
        ("-32602: no such id", "Error: -32602: no such id"),
        ("Error: no server offers it.", "Error: no server offers it."),
        ("error: no such file", "error: no such file"),
        (" ERROR: it broke", " ERROR: it broke"),
        ("Errors are many", "Error: Errors are many"),
        ("Fehle\u{308}r", "Error: Fehle\u{308}r"),
        ("", "Error: "),
    ] {
        let mut call = call();
        call.messages.push(ChatMessage {
            role: "tool".to_owned(),
            content: text.to_owned(),
            tool_call_id: Some("c0".to_owned()),
            is_error: true,
            ..ChatMessage::default()
        });
        let sent = |call: &ProviderCall| body(call, "max_tokens")["messages"][1]["content"].clone();
        assert_eq!(sent(&call), told);
        call.messages[1].is_error = false;
        assert_eq!(sent(&call), text, "what is no error is told as it is");
    }
}

#[test]
fn an_object_always_says_its_properties_to_this_provider() {
    let sent = |input_schema: Value| {
        let tool = ToolDefinition {
            input_schema,
            ..ToolDefinition::default()
        };
        parameters(&tool)
    };
    let none = json!({"type": "object", "properties": {}});
    assert_eq!(sent(Value::Null), none);
    assert_eq!(sent(json!({"type": "object"})), none);
    let closed = json!({"type": "object", "additionalProperties": false});
    assert_eq!(sent(closed)["properties"], json!({}));
    for other in [json!({"type": "string"}), json!({}), json!(true)] {
        assert_eq!(sent(other.clone()), other, "nothing else is changed");
    }
}

#[test]
fn arguments_that_are_no_object_are_passed_on_raw() {
    let call = |arguments: &Value| {
        let function = json!({"name": "f", "arguments": arguments});
        let calls = json!([{"id": "c", "type": "function", "function": function}]);
        let message = json!({"content": null, "tool_calls": calls});
        let answer = told(200, &json!({"choices": [{"message": message}]}).to_string());
        answer.unwrap().tool_calls[0].arguments.clone()
    };
    let text = |arguments: &str| call(&json!(arguments));
    assert_eq!(text(r#"{"k":1}"#), json!({"k": 1}));
    assert_eq!(text("{broken"), json!({"_raw": "{broken"}));
    assert_eq!(text("[1]"), json!({"_raw": "[1]"}));
    assert_eq!(text("null"), json!({"_raw": "null"}));
    assert_eq!(text(" "), json!({}));
    let deep = format!(r#"{{"k":{}1{}}}"#, "[".repeat(64), "]".repeat(64));
    assert_eq!(text(&deep), json!({"_raw": deep}));
    // Of servers that send no text of JSON.
    assert_eq!(call(&json!({"k": 1})), json!({"k": 1}));
    assert_eq!(call(&Value::Null), json!({}));
    assert_eq!(call(&json!([1])), json!({"_raw": "[1]"}));
}

#[test]
fn errors_keep_their_status_and_say_whether_to_try_again() {
    for (status, retryable) in [
        (400, false),
        (401, false),
        (429, true),
        (500, true),
        (302, false),
    ] {
        let failure = told(status, r#"{"error":{"message":"no luck"}}"#).unwrap_err();
        assert_eq!(
            failure.message,
            format!("upstream returned {status}: no luck")
        );
        assert_eq!(
            (failure.code, failure.retryable),
            (Code::ProviderError, retryable)
        );
    }
    let plain = told(503, "gateway down").unwrap_err();
    assert_eq!(plain.message, "upstream returned 503: gateway down");
    assert_eq!(told(500, "").unwrap_err().message, "upstream returned 500");
}

#[test]
fn an_account_with_nothing_left_is_no_reason_to_try_again() {
    for code in QUOTA_CODES {
        let body = json!({"error": {"message": "pay", "code": code}}).to_string();
        let failure = told(429, &body).unwrap_err();
        assert_eq!(
            (failure.code, failure.retryable),
            (Code::BudgetExceeded, false)
        );
    }
    let body = json!({"error": {"message": "pay", "type": "insufficient_quota"}}).to_string();
    assert_eq!(told(429, &body).unwrap_err().code, Code::BudgetExceeded);
}

#[test]
fn a_reply_with_nothing_in_it_is_an_internal_error() {
    for body in [
        "not json",
        "{}",
        r#"{"choices":[]}"#,
        r#"{"choices":[{"message":{"content":null}}]}"#,
        r#"{"choices":[{"message":{"content":""}}]}"#,
    ] {
        let failure = told(200, body).unwrap_err();
        assert_eq!(
            (failure.code, failure.retryable),
            (Code::InternalError, false),
            "{body}"
        );
    }
}

#[test]
fn a_reply_that_broke_off_is_never_used() {
    let body = br#"{"choices":[{"message":{"content":"whole"}}]}"#.to_vec();
    let mut response = EgressResponse {
        status: 200,
        headers: axum::http::HeaderMap::new(),
        body,
        truncated: true,
        timed_out: false,
        duration_ms: 1,
    };
    let failure = read(&response, &Redactor::default()).unwrap_err();
    assert_eq!(
        (failure.code, failure.retryable, failure.cause),
        (Code::ProviderError, true, ErrorCause::Unreachable)
    );
    response.timed_out = true;
    let failure = read(&response, &Redactor::default()).unwrap_err();
    assert_eq!(
        (failure.retryable, failure.cause),
        (true, ErrorCause::Timeout)
    );
    response.timed_out = false;
    response.body = vec![b' '; MAX_RESPONSE_BYTES];
    assert!(!read(&response, &Redactor::default()).unwrap_err().retryable);
}

#[test]
fn a_long_error_is_cut_without_cutting_a_key_in_two() {
    let long = format!("{}sk-secret-key", "x".repeat(MAX_MESSAGE_LENGTH - 4));
    let failure = told(400, &json!({"error": {"message": long}}).to_string()).unwrap_err();
    assert!(!failure.message.contains("sk-"), "{}", failure.message);
}
