//! OpenAI's chat completions, and whatever speaks their dialect.
//!
//! Two pure conversions, a call to a body and an answer to a reply, with one sending between them.

use std::fmt;
use std::time::Duration;

use axum::body::Bytes;
use axum::http::{HeaderMap, HeaderValue, Method, header};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Answer, Call};
use crate::contract::gateway::ToolCall;
use crate::egress::{self, Client, FailureCode, Request, Response};
use crate::gateway::error::{Code, Failure};
use crate::secret::{Redactor, Secret};

/// The most bytes of an answer that are read: far beyond any reply, far below what hurts.
const MOST_BYTES: usize = 8 << 20;
/// The most bytes of an error's text that are told.
const MOST_WORDS: usize = 500;

/// Codes of an account that has nothing left.
const SPENT: [&str; 2] = ["billing_hard_limit_reached", "insufficient_quota"];

/// A provider of this kind.
pub(in crate::gateway) struct OpenAi {
    pub(in crate::gateway) base_url: String,
    pub(in crate::gateway) api_key: Secret,
    pub(in crate::gateway) timeout: Duration,
    pub(in crate::gateway) client: Client,
}

impl fmt::Debug for OpenAi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OpenAi({})", self.base_url)
    }
}

impl OpenAi {
    /// Asks once.
    pub(super) async fn answer(&self, call: &Call) -> Result<Answer, Failure> {
        let bearer = format!("Bearer {}", self.api_key.expose());
        let Ok(mut bearer) = HeaderValue::from_str(&bearer) else {
            let words = "the api_key holds characters that no header can carry";
            return Err(Failure::new(Code::ProviderError, words));
        };
        bearer.set_sensitive(true);
        let json = HeaderValue::from_static("application/json");
        let headers = [
            (header::AUTHORIZATION, bearer),
            (header::CONTENT_TYPE, json),
        ];
        let request = Request {
            method: Method::POST,
            url: format!("{}/chat/completions", self.base_url.trim_end_matches('/')),
            headers: HeaderMap::from_iter(headers),
            body: Bytes::from(body(call).to_string()),
            timeout: self.timeout,
            keep: MOST_BYTES,
        };
        match self.client.send(request).await {
            Ok(response) => answer(&response, &Redactor::new([&self.api_key])),
            Err(failure) => Err(unanswered(&failure)),
        }
    }
}

fn unanswered(failure: &egress::Failure) -> Failure {
    let retryable = match failure.code {
        FailureCode::Refused => false,
        FailureCode::Timeout | FailureCode::Unreachable => true,
    };
    Failure {
        code: Code::ProviderError,
        message: failure.message.clone(),
        retryable,
    }
}

/// A call as the provider takes it.
fn body(call: &Call) -> Value {
    let messages = call.messages.iter();
    let messages: Vec<Value> = messages
        .map(|message| json!({"role": message.role, "content": message.content}))
        .collect();
    let mut body = json!({
        "model": call.model,
        "messages": messages,
        "max_tokens": call.max_tokens,
    });
    if let Some(temperature) = call.temperature {
        body["temperature"] = json!(temperature);
    }
    if !call.tools.is_empty() {
        let tools = call.tools.iter().map(|tool| {
            let function = json!({
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.input_schema,
            });
            json!({"type": "function", "function": function})
        });
        body["tools"] = tools.collect();
    }
    body
}

#[derive(Deserialize)]
struct Completion {
    #[serde(default)]
    choices: Vec<Choice>,
    usage: Option<Usage>,
}

#[derive(Deserialize)]
struct Choice {
    message: Said,
}

#[derive(Deserialize)]
struct Said {
    content: Option<String>,
    tool_calls: Option<Vec<Asked>>,
}

#[derive(Deserialize)]
struct Asked {
    #[serde(default)]
    id: String,
    function: Function,
}

#[derive(Deserialize)]
struct Function {
    name: String,
    #[serde(default)]
    arguments: String,
}

#[derive(Default, Deserialize)]
struct Usage {
    #[serde(default)]
    prompt_tokens: u64,
    #[serde(default)]
    completion_tokens: u64,
}

/// What the provider's response means.
fn answer(response: &Response, redactor: &Redactor) -> Result<Answer, Failure> {
    if !(200..300).contains(&response.status) {
        return Err(refusal(response, redactor));
    }
    if response.truncated {
        let too_long = response.body.len() >= MOST_BYTES;
        return Err(Failure {
            code: Code::ProviderError,
            message: if too_long {
                format!("upstream sent more than {MOST_BYTES} bytes")
            } else {
                "upstream broke off its reply".to_owned()
            },
            retryable: !too_long,
        });
    }
    let unusable = |words: &str| Failure::new(Code::InternalError, words);
    let completion: Completion = serde_json::from_slice(&response.body)
        .map_err(|_| unusable("upstream sent what is no chat completion"))?;
    let usage = completion.usage.unwrap_or_default();
    let said = completion.choices.into_iter().next().map(|one| one.message);
    let said = said.ok_or_else(|| unusable("upstream sent no choices"))?;
    let content = said.content.unwrap_or_default();
    let calls = said.tool_calls.unwrap_or_default();
    let tool_calls: Vec<ToolCall> = calls.into_iter().map(tool_call).collect();
    if content.is_empty() && tool_calls.is_empty() {
        return Err(unusable("upstream sent an empty reply"));
    }
    Ok(Answer {
        content,
        tokens_in: usage.prompt_tokens,
        tokens_out: usage.completion_tokens,
        tool_calls,
        ..Answer::default()
    })
}

/// Arguments travel as JSON text; what cannot be read is passed on as it came.
fn tool_call(call: Asked) -> ToolCall {
    let text = call.function.arguments;
    let arguments = match serde_json::from_str(&text) {
        Ok(Value::Object(members)) => Value::Object(members),
        Ok(_) | Err(_) if text.trim().is_empty() => json!({}),
        Ok(_) | Err(_) => json!({"_raw": text}),
    };
    ToolCall {
        id: call.id,
        name: call.function.name,
        arguments,
    }
}

fn refusal(response: &Response, redactor: &Redactor) -> Failure {
    let body: Value = serde_json::from_slice(&response.body).unwrap_or_default();
    let error = &body["error"];
    let said = error["message"].as_str().or(error.as_str());
    let said = said.or(body["message"].as_str());
    let plain = String::from_utf8_lossy(&response.body);
    // Cut where no secret can be cut in two.
    let said = said.unwrap_or(&plain).trim();
    let message = redactor.redact_beginning(said, MOST_WORDS);
    let mut failure = Failure::upstream(response.status, &message);
    let spent = |word: &Value| word.as_str().is_some_and(|word| SPENT.contains(&word));
    if spent(&error["code"]) || spent(&error["type"]) {
        failure.code = Code::BudgetExceeded;
        failure.retryable = false;
    }
    failure
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::gateway::{Message, Tool};

    fn call() -> Call {
        Call {
            group: "g".to_owned(),
            model: "gpt-4o-mini".to_owned(),
            messages: vec![Message {
                role: "user".to_owned(),
                content: "U".to_owned(),
                ..Message::default()
            }],
            max_tokens: 64,
            temperature: None,
            tools: Vec::new(),
        }
    }

    fn told(status: u16, body: &str) -> Result<Answer, Failure> {
        let response = Response {
            status,
            body: body.as_bytes().to_vec(),
            truncated: false,
            duration_ms: 1,
        };
        answer(&response, &Redactor::new([&Secret::new("sk-secret-key")]))
    }

    #[test]
    fn a_temperature_is_sent_only_if_there_is_one() {
        let mut call = call();
        assert_eq!(
            body(&call),
            json!({"model": "gpt-4o-mini", "max_tokens": 64,
                "messages": [{"role": "user", "content": "U"}]})
        );
        call.temperature = Some(0.0);
        assert_eq!(body(&call)["temperature"], 0.0);
    }

    #[test]
    fn tools_are_functions_to_this_provider() {
        let mut call = call();
        let schema = json!({"type": "object"});
        call.tools = vec![Tool {
            name: "kv".to_owned(),
            description: "d".to_owned(),
            input_schema: schema.clone(),
        }];
        let function = json!({"name": "kv", "description": "d", "parameters": schema});
        assert_eq!(
            body(&call)["tools"],
            json!([{"type": "function", "function": function}])
        );
    }

    #[test]
    fn arguments_that_are_no_object_are_passed_on_raw() {
        let call = |arguments: &str| {
            let function = json!({"name": "f", "arguments": arguments});
            let calls = json!([{"id": "c", "type": "function", "function": function}]);
            let message = json!({"content": null, "tool_calls": calls});
            let answer = told(200, &json!({"choices": [{"message": message}]}).to_string());
            answer.unwrap().tool_calls[0].arguments.clone()
        };
        assert_eq!(call(r#"{"k":1}"#), json!({"k": 1}));
        assert_eq!(call("{broken"), json!({"_raw": "{broken"}));
        assert_eq!(call("[1]"), json!({"_raw": "[1]"}));
        assert_eq!(call(""), json!({}));
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
        for code in SPENT {
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
        let mut response = Response {
            status: 200,
            body,
            truncated: true,
            duration_ms: 1,
        };
        let failure = answer(&response, &Redactor::default()).unwrap_err();
        assert_eq!(
            (failure.code, failure.retryable),
            (Code::ProviderError, true)
        );
        response.body = vec![b' '; MOST_BYTES];
        assert!(
            !answer(&response, &Redactor::default())
                .unwrap_err()
                .retryable
        );
    }

    #[test]
    fn a_long_error_is_cut_without_cutting_a_key_in_two() {
        let long = format!("{}sk-secret-key", "x".repeat(MOST_WORDS - 4));
        let failure = told(400, &json!({"error": {"message": long}}).to_string()).unwrap_err();
        assert!(!failure.message.contains("sk-"), "{}", failure.message);
    }
}
