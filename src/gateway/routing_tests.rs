//! Which models are called, how often and when: over sockets where the provider counts, in virtual
//! time where waiting matters.

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;
use std::time::Duration;

use axum::Router;
use serde_json::{Value, json};

use super::tests::{Asked, KEY, Reply, ask, completion, gateway, post, provider, served};
use ktsu_peer::Peer;

type Seen = tokio::sync::mpsc::UnboundedReceiver<Asked>;

/// A gateway with a provider for each list of replies, `a`, `b`, …, and a group of all of them.
async fn desk(group: &str, limit: &str, replies: Vec<Vec<Reply>>) -> (Peer, Vec<Seen>) {
    let (mut providers, mut models, mut seen) = (String::new(), Vec::new(), Vec::new());
    for (name, replies) in ('a'..).zip(replies) {
        let (url, asked) = provider(replies).await;
        providers.push_str(&remote(name, &url, limit));
        models.push(format!("{name}/m-{name}"));
        seen.push(asked);
    }
    let models = models.join(", ");
    let text = format!(
        "providers:\n{providers}model_groups:\n  - {{name: g, models: [{models}], {group}}}\n"
    );
    (gateway(&text, "rules: []"), seen)
}

fn remote(name: char, url: &str, limit: &str) -> String {
    format!(
        "  - {{name: {name}, type: openai, {limit} config: {{base_url: '{url}', api_key: {KEY}}}}}\n"
    )
}

fn fine() -> Reply {
    Reply::new(200, completion("fine"))
}

fn error(status: u16, code: &str) -> Reply {
    let error = json!({"error": {"message": "no", "code": code}});
    Reply::new(status, error.to_string())
}

fn busy(after: &str) -> Reply {
    Reply {
        headers: vec![("Retry-After".to_owned(), after.to_owned())],
        ..error(429, "rate_limit_exceeded")
    }
}

/// How often each provider was asked.
fn counts(seen: &mut [Seen]) -> Vec<usize> {
    let count = |seen: &mut Seen| std::iter::from_fn(|| seen.try_recv().ok()).count();
    seen.iter_mut().map(count).collect()
}

#[tokio::test]
async fn where_one_fails_the_next_of_a_fallback_answers() {
    for first in [
        error(500, ""),
        error(529, ""),
        error(429, "rate_limit_exceeded"),
        error(429, "insufficient_quota"),
        error(401, "invalid_api_key"),
        error(404, "model_not_found"),
        Reply::new(200, "no json"),
        fine_but_empty(),
    ] {
        let told = (first.status, first.body.clone());
        let (peer, mut seen) =
            desk("strategy: fallback", "", vec![vec![first], vec![fine()]]).await;
        let (status, reply) = post(&peer, None, ask("U")).await;
        assert_eq!(
            (status, &reply["model_resolved"]),
            (200, &json!("b/m-b")),
            "{told:?}: {reply}"
        );
        assert_eq!(counts(&mut seen), [1, 1], "{told:?}");
    }
}

fn fine_but_empty() -> Reply {
    Reply::new(200, completion(""))
}

#[tokio::test]
async fn a_provider_that_is_not_there_is_a_reason_to_ask_the_next() {
    let (url, mut seen) = provider(vec![fine()]).await;
    // Nobody listens on the discard port.
    let providers = remote('a', "http://127.0.0.1:9", "") + &remote('b', &url, "");
    let text = format!(
        "providers:\n{providers}model_groups: [{{name: g, models: [a/m, b/m], strategy: fallback}}]"
    );
    let (status, reply) = post(&gateway(&text, "rules: []"), None, ask("U")).await;
    assert_eq!((status, &reply["model_resolved"]), (200, &json!("b/m")));
    assert!(seen.try_recv().is_ok());
}

#[tokio::test]
async fn a_request_that_is_at_fault_is_put_to_no_one_else() {
    for status in [400, 413, 422] {
        let replies = vec![vec![error(status, "invalid")], vec![fine()]];
        let (peer, mut seen) = desk(
            "strategy: fallback, retry: {attempts: 3, backoff: 1ms}",
            "",
            replies,
        )
        .await;
        let (got, refused) = post(&peer, None, ask("U")).await;
        assert_eq!((got, &refused["error"]), (502, &json!("provider_error")));
        assert_eq!(refused["retryable"], false);
        assert_eq!(counts(&mut seen), [1, 0]);
    }
}

#[tokio::test]
async fn where_no_one_answers_each_is_named() {
    let both = |first, second| vec![vec![first], vec![second]];
    let replies = both(error(404, "x"), error(503, "x"));
    let (peer, _seen) = desk("strategy: fallback", "", replies).await;
    let (status, mut refused) = post(&peer, None, ask("U")).await;
    assert_eq!(status, 503);
    let attempts = refused.as_object_mut().unwrap().remove("attempts").unwrap();
    let attempts = attempts.as_array().unwrap().iter();
    let asked = attempts.map(|one| {
        (
            one["model"].as_str().unwrap(),
            one["status"].as_str().unwrap(),
        )
    });
    let expected = [("a/m-a", "provider_error"), ("b/m-b", "server_error")];
    assert_eq!(asked.collect::<Vec<_>>(), expected);
    assert_eq!(
        refused,
        json!({"error": "no_models_available", "retryable": true, "message":
            "no model of the group answered: a/m-a: upstream returned 404: no; b/m-b: upstream returned 503: no"})
    );
    let spent = || error(429, "insufficient_quota");
    let (peer, _seen) = desk("strategy: fallback", "", both(spent(), spent())).await;
    let (status, refused) = post(&peer, None, ask("U")).await;
    assert_eq!(
        (status, &refused["error"]),
        (402, &json!("budget_exceeded"))
    );
    assert_eq!(refused["retryable"], false);
}

#[tokio::test]
async fn the_cheapest_is_asked_first() {
    let group = "strategy: cost_optimized, pricing: [\
        {model: m-a, input_per_million: 2, output_per_million: 2}, \
        {model: m-c, input_per_million: 1, output_per_million: 2}]";
    let replies = vec![vec![fine()], vec![fine()], vec![error(500, ""), fine()]];
    let (peer, mut seen) = desk(group, "", replies).await;
    let (_, reply) = post(&peer, None, ask("U")).await;
    assert_eq!(reply["model_resolved"], "a/m-a");
    assert_eq!(counts(&mut seen), [1, 0, 1]);
    let (_, reply) = post(&peer, None, ask("U")).await;
    assert_eq!(reply["model_resolved"], "c/m-c");
    assert_eq!(reply["cost_micro_usd"], 1000 + 200 * 2);
}

#[tokio::test]
async fn cached_tokens_cost_what_the_group_says() {
    let usage = json!({"prompt_tokens": 1000, "completion_tokens": 10,
        "prompt_tokens_details": {"cached_tokens": 900}});
    let body = json!({"choices": [{"message": {"content": "x"}}], "usage": usage});
    let group = "pricing: [{model: m-a, input_per_million: 3, output_per_million: 15, \
        cached_input_per_million: 0.3}]";
    let (peer, _seen) = desk(group, "", vec![vec![Reply::new(200, body.to_string())]]).await;
    let (_, reply) = post(&peer, None, ask("U")).await;
    assert_eq!(reply["tokens_cached"], 900);
    assert_eq!(reply["cost_micro_usd"], 300 + 270 + 150);
}

#[tokio::test]
async fn nothing_is_tried_again_unless_the_file_says_so() {
    for (group, asked) in [
        ("", 1),
        ("retry: {attempts: 3, backoff: 1ms, on: [timeout]}", 1),
        ("retry: {attempts: 3, backoff: 1ms, on: [server_error]}", 3),
    ] {
        let (peer, mut seen) = desk(group, "", vec![vec![error(503, "")]]).await;
        let (status, refused) = post(&peer, None, ask("U")).await;
        assert_eq!((status, &refused["error"]), (502, &json!("provider_error")));
        assert_eq!(counts(&mut seen), [asked], "{group}");
    }
    let group = "retry: {attempts: 3, backoff: 1ms}";
    let (peer, mut seen) = desk(group, "", vec![vec![error(503, ""), fine()]]).await;
    assert_eq!(post(&peer, None, ask("U")).await.0, 200);
    assert_eq!(counts(&mut seen), [2]);
}

#[tokio::test]
async fn who_is_asked_to_wait_waits_and_never_beyond_the_deadline() {
    let group = "retry: {attempts: 2, backoff: 1ms}, deadline: 30s";
    let (peer, mut seen) = desk(group, "", vec![vec![busy("1"), fine()]]).await;
    let started = std::time::Instant::now();
    assert_eq!(post(&peer, None, ask("U")).await.0, 200);
    assert!(
        started.elapsed() >= Duration::from_secs(1),
        "asked before its time"
    );
    assert_eq!(counts(&mut seen), [2]);

    for after in ["3600", "Fri, 31 Dec 9999 23:59:59 GMT"] {
        let (peer, mut seen) = desk(group, "", vec![vec![busy(after), fine()]]).await;
        let (status, refused) = post(&peer, None, ask("U")).await;
        assert_eq!((status, &refused["retryable"]), (502, &json!(true)));
        assert_eq!(counts(&mut seen), [1], "no time is left for another try");
    }
}

#[tokio::test]
async fn a_provider_that_never_answers_meets_the_deadline() {
    let never = Router::new().fallback(std::future::pending::<()>);
    let (url, mut seen) = provider(vec![fine()]).await;
    let providers = remote('a', &served(never).await, "") + &remote('b', &url, "");
    let text = format!(
        "providers:\n{providers}model_groups: [{{name: g, models: [a/m, b/m], strategy: fallback, deadline: 50ms, retry: {{attempts: 9}}}}]"
    );
    let (status, refused) = post(&gateway(&text, "rules: []"), None, ask("U")).await;
    assert_eq!(status, 502, "{refused}");
    assert_eq!(refused["retryable"], true);
    assert!(
        refused["message"].as_str().unwrap().contains("within"),
        "{refused}"
    );
    assert!(seen.try_recv().is_err(), "no time is left for the next");
}

#[tokio::test]
async fn a_call_whose_turn_comes_too_late_is_refused_at_once() {
    let limit = "rate_limit: {requests_per_minute: 2},";
    let (peer, mut seen) = desk("deadline: 20s", limit, vec![vec![fine()]]).await;
    for _ in 0..2 {
        assert_eq!(post(&peer, None, ask("U")).await.0, 200);
    }
    let (status, refused) = post(&peer, None, ask("U")).await;
    assert_eq!(
        (status, refused),
        (
            503,
            json!({"error": "no_models_available", "retryable": true,
                "message": "the rate_limit of a leaves no turn within 20000 ms"})
        )
    );
    assert_eq!(counts(&mut seen), [2]);
    // In a fallback the next one answers.
    let replies = vec![vec![fine()], vec![fine()]];
    let limit = "rate_limit: {requests_per_minute: 1},";
    let (peer, _seen) = desk("strategy: fallback, deadline: 20s", limit, replies).await;
    post(&peer, None, ask("U")).await;
    assert_eq!(
        post(&peer, None, ask("U")).await.1["model_resolved"],
        "b/m-b"
    );
}

/// In virtual time: a script needs no socket.
fn scripted(group: &str, limit: &str, rules: &str) -> Peer {
    let text = format!(
        "providers: [{{name: s, type: scripted, {limit} config: {{rules: r.yaml}}}}]\n\
         model_groups: [{{name: g, models: [s/m], {group}}}]"
    );
    gateway(&text, rules)
}

#[tokio::test(start_paused = true)]
async fn no_more_calls_are_under_way_than_the_limit_and_all_are_answered() {
    let rules = "rules: [{text: fine, delay_ms: 1000}]";
    let peer = scripted("", "rate_limit: {concurrent: 2},", rules);
    let start = tokio::time::Instant::now();
    let calls = (0..20).map(|_| post(&peer, None, ask("U")));
    let replies = futures_util::future::join_all(calls).await;
    assert!(replies.iter().all(|(status, _)| *status == 200));
    // A second each: one at a time would take 20, three at a time 7.
    assert_eq!(start.elapsed().as_secs(), 10);
}

#[tokio::test(start_paused = true)]
async fn pauses_double_and_the_deadline_ends_them() {
    let rules = "rules: [{error: {status: 503}}]";
    let start = tokio::time::Instant::now();
    let peer = scripted("retry: {attempts: 5, backoff: 2s}", "", rules);
    let (_, refused) = post(&peer, None, ask("U")).await;
    assert_eq!(refused["message"], "upstream returned 503");
    assert_eq!(start.elapsed().as_secs(), 2 + 4 + 8 + 16);

    let start = tokio::time::Instant::now();
    let peer = scripted(
        "retry: {attempts: 5, backoff: 2s}, deadline: 10s",
        "",
        rules,
    );
    post(&peer, None, ask("U")).await;
    assert_eq!(
        start.elapsed().as_secs(),
        2 + 4,
        "the next pause would pass the deadline"
    );
}

#[tokio::test(start_paused = true)]
async fn a_slow_reply_meets_the_deadline_and_a_minute_its_limit() {
    let start = tokio::time::Instant::now();
    let peer = scripted("deadline: 5s", "", "rules: [{text: x, delay_ms: 6000}]");
    let (status, refused) = post(&peer, None, ask("U")).await;
    assert_eq!(
        (status, &refused["message"]),
        (502, &json!("no reply within the deadline of 5000 ms"))
    );
    assert_eq!(start.elapsed().as_secs(), 5);

    let start = tokio::time::Instant::now();
    let limit = "rate_limit: {requests_per_minute: 1},";
    let peer = scripted("deadline: 3m", limit, "rules: [{text: x}]");
    for _ in 0..3 {
        assert_eq!(post(&peer, None, ask("U")).await.0, 200);
    }
    assert_eq!(start.elapsed().as_secs(), 120);
}

#[tokio::test]
async fn tools_count_in_what_is_asked_again_under_a_key() {
    let peer = scripted("", "", "rules: [{text: 'call {{ count }}'}]");
    let plain: Value = serde_json::from_str(&ask("U")).unwrap();
    let mut with_tool = plain.clone();
    with_tool["tools"] = json!([{"name": "f"}]);
    let mut with_result = plain.clone();
    let messages = with_result["messages"].as_array_mut().unwrap();
    messages.push(json!({"role": "assistant", "tool_calls": [{"id": "a", "name": "f"}]}));
    messages.push(json!({"role": "tool", "tool_call_id": "a", "content": "x"}));
    let mut with_error = with_result.clone();
    with_error["messages"][2]["is_error"] = json!(true);
    let mut told = Vec::new();
    for body in [&plain, &with_tool, &with_result, &with_error, &with_result] {
        let (_, reply) = post(&peer, Some("k"), body.to_string()).await;
        told.push(reply["content"].as_str().unwrap().to_owned());
    }
    assert_eq!(told, ["call 1", "call 2", "call 3", "call 4", "call 3"]);
}

/// What is logged by the thread that made it.
#[derive(Clone)]
struct Log {
    text: Arc<Mutex<Vec<u8>>>,
    thread: ThreadId,
}

impl Log {
    /// For the whole process: whether a line is logged at all is decided where it is first met, by
    /// whatever thread, and must not be decided without us.
    fn start() -> Self {
        let log = Self {
            text: Arc::default(),
            thread: std::thread::current().id(),
        };
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::DEBUG)
            .with_writer(move || writer.clone())
            .finish();
        tracing::subscriber::set_global_default(subscriber).unwrap();
        log
    }

    fn text(&self) -> String {
        String::from_utf8(self.text.lock().unwrap().clone()).unwrap()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if std::thread::current().id() == self.thread {
            self.text.lock().unwrap().extend_from_slice(bytes);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn no_key_is_in_an_error_or_in_the_log_however_a_provider_repeats_it() {
    let log = Log::start();
    let said = |status| {
        let words = format!("key {KEY} is wrong");
        let body = json!({"error": {"message": words, "code": KEY}, "message": words});
        Reply {
            headers: vec![("x-key".to_owned(), KEY.to_owned())],
            ..Reply::new(status, body.to_string())
        }
    };
    for status in [200, 302, 400, 401, 429, 500] {
        let group = "strategy: fallback, retry: {attempts: 2, backoff: 1ms}";
        let replies = vec![
            vec![said(status)],
            vec![Reply::new(status, format!("plain {KEY}"))],
        ];
        let (peer, _seen) = desk(group, "", replies).await;
        let (got, refused) = post(&peer, None, ask("U")).await;
        assert_ne!(got, 200);
        assert!(!refused.to_string().contains(KEY), "{refused}");
    }
    let log = log.text();
    assert!(log.contains("a model call failed"), "{log}");
    assert!(!log.contains(KEY), "{log}");
}
