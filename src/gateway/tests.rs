//! The whole gateway: over its router, with a provider on loopback.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, Request};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::*;
use ktsu_egress::EgressPolicy;
use ktsu_peer::Peer;

pub(super) const KEY: &str = "sk-0123456789";

/// What the provider was asked: its path, headers and body.
pub(super) struct Asked {
    pub(super) path: String,
    pub(super) headers: HeaderMap,
    pub(super) body: Value,
}

/// What the provider answers.
#[derive(Clone, Default)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: String,
}

impl Reply {
    pub(super) fn new(status: u16, body: impl Into<String>) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body: body.into(),
        }
    }
}

/// A provider that answers with these in turn, and with the last one from then on.
pub(super) async fn provider(replies: Vec<Reply>) -> (String, mpsc::UnboundedReceiver<Asked>) {
    let (tell, asked) = mpsc::unbounded_channel();
    let replies = Arc::new(replies);
    let count = Arc::new(AtomicUsize::new(0));
    let answer = move |request: Request<Body>| {
        let (tell, replies, count) = (tell.clone(), Arc::clone(&replies), Arc::clone(&count));
        async move {
            let (head, sent) = request.into_parts();
            let sent: Bytes = ktsu_server::body::read(sent).await.unwrap();
            let at = count.fetch_add(1, Ordering::SeqCst).min(replies.len() - 1);
            let _ = tell.send(Asked {
                path: head.uri.path().to_owned(),
                headers: head.headers,
                body: serde_json::from_slice(&sent).unwrap(),
            });
            let reply = replies[at].clone();
            let mut response = axum::http::Response::builder().status(reply.status);
            for (name, value) in &reply.headers {
                response = response.header(name, value);
            }
            response.body(Body::from(reply.body)).unwrap()
        }
    };
    (served(Router::new().fallback(answer)).await, asked)
}

/// The URL of a router on loopback.
pub(super) async fn served(router: Router) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    format!("http://{address}")
}

/// One that answers everything alike, under `/v1/`.
async fn one(status: u16, body: String) -> (String, mpsc::UnboundedReceiver<Asked>) {
    let (url, asked) = provider(vec![Reply::new(status, body)]).await;
    (format!("{url}/v1/"), asked)
}

fn client() -> Client {
    let policy = EgressPolicy {
        allow: Vec::new(),
        loopback: true,
    };
    Client::new(&policy).unwrap()
}

fn real(base_url: &str, group: &str) -> Peer {
    let text = format!(
        "env: [{{name: KEY, secret: true}}]
providers:
  - {{name: p, type: openai, config: {{base_url: '{base_url}', api_key: '{{{{ env.KEY }}}}', timeout_s: 20}}}}
model_groups: [{{name: g, models: [p/gpt-4o-mini], {group}}}]
"
    );
    gateway(&text, "rules: []")
}

fn scripted(rules: &str) -> Peer {
    let text = "providers: [{name: s, type: scripted, config: {rules: r.yaml}}]
model_groups: [{name: g, models: [s/gpt-4o-mini, s/unpriced]}]";
    gateway(text, rules)
}

pub(super) fn gateway(text: &str, rules: &str) -> Peer {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("gateway.yaml");
    std::fs::write(&path, text).unwrap();
    std::fs::write(dir.path().join("r.yaml"), rules).unwrap();
    let process = BTreeMap::from([("KEY".to_owned(), KEY.to_owned())]);
    let gateway = Gateway::load(&path, None, &process, &client());
    Peer::Local(router(gateway.unwrap_or_else(|faults| panic!("{faults}"))))
}

pub(super) async fn post(peer: &Peer, key: Option<&str>, body: impl Into<Body>) -> (u16, Value) {
    let mut request = Request::post("/invoke");
    if let Some(key) = key {
        request = request.header("idempotency-key", key);
    }
    let (status, body) = peer
        .call_and_read(request.body(body.into()).unwrap())
        .await
        .unwrap();
    (status, serde_json::from_slice(&body).unwrap())
}

pub(super) fn ask(content: &str) -> String {
    json!({"group": "g", "max_tokens": 64, "messages": [{"role": "user", "content": content}]})
        .to_string()
}

pub(super) fn completion(content: &str) -> String {
    let usage = json!({"prompt_tokens": 1000, "completion_tokens": 200});
    json!({"choices": [{"message": {"content": content}}], "usage": usage}).to_string()
}

#[tokio::test]
async fn the_acceptance_cases_of_the_gateway_hold() {
    let cases: Vec<Value> =
        serde_json::from_str(include_str!("../../tests/cases/ktsu-cases.json")).unwrap();
    let cases: Vec<_> = cases
        .iter()
        .filter(|case| case["kind"] == "gateway")
        .collect();
    assert!(!cases.is_empty());
    for case in cases {
        let upstream = &case["input"]["upstream"];
        let status = upstream["status"].as_u64().unwrap().try_into().unwrap();
        let (url, mut asked) = one(status, upstream["body"].to_string()).await;
        let sent = case["input"]["invoke"].to_string();
        let (status, reply) = post(&real(&url, ""), None, sent).await;
        assert_eq!(status, 200, "{}: {reply}", case["name"]);
        let expect = &case["expect"];
        for (name, value) in expect["response_subset"].as_object().unwrap() {
            assert_eq!(&reply[name], value, "{}: {name}", case["name"]);
        }
        let asked = asked.recv().await.unwrap();
        assert!(
            asked
                .path
                .ends_with(expect["upstream_path"].as_str().unwrap()),
            "{}",
            asked.path
        );
        assert_eq!(asked.headers["authorization"], format!("Bearer {KEY}"));
    }
}

#[tokio::test]
async fn a_call_goes_to_the_provider_as_asked_and_its_cost_is_counted() {
    let (url, mut asked) = one(200, completion("hello")).await;
    let (status, reply) = post(&real(&url, ""), None, ask("U")).await;
    assert_eq!(status, 200);
    assert_eq!(
        reply,
        json!({"content": "hello", "model_resolved": "p/gpt-4o-mini", "tokens_in": 1000,
            "tokens_out": 200, "cost_usd": 0.00027, "cost_micro_usd": 270, "prices": "2026-11"})
    );
    let asked = asked.recv().await.unwrap();
    assert_eq!(asked.path, "/v1/chat/completions");
    assert_eq!(
        asked.body,
        json!({"model": "gpt-4o-mini", "max_tokens": 64,
            "messages": [{"role": "user", "content": "U"}]})
    );
}

#[tokio::test]
async fn the_groups_temperature_and_prices_count_where_a_request_says_nothing() {
    let (url, mut asked) = one(200, completion("x")).await;
    let own = "default_temperature: 0.3, pricing: [{model: gpt-4o-mini, input_per_million: 1, output_per_million: 2}]";
    let peer = real(&url, own);
    let (_, reply) = post(&peer, None, ask("U")).await;
    assert_eq!(
        (&reply["cost_micro_usd"], &reply["prices"]),
        (&json!(1400), &json!("2026-11+gateway.yaml"))
    );
    assert_eq!(asked.recv().await.unwrap().body["temperature"], 0.3);
    let mut warm: Value = serde_json::from_str(&ask("U")).unwrap();
    warm["temperature"] = json!(1.5);
    post(&peer, None, warm.to_string()).await;
    assert_eq!(asked.recv().await.unwrap().body["temperature"], 1.5);
}

#[tokio::test]
async fn errors_of_the_provider_have_a_status_and_say_whether_to_try_again() {
    let spent = json!({"error": {"message": "pay", "code": "insufficient_quota"}}).to_string();
    for (upstream, body, status, code, retryable) in [
        (500, "down".to_owned(), 502, "provider_error", true),
        (404, "{}".to_owned(), 502, "provider_error", false),
        (429, spent, 402, "budget_exceeded", false),
        (200, completion(""), 500, "internal_error", false),
    ] {
        let (url, _asked) = one(upstream, body).await;
        let (got, refused) = post(&real(&url, ""), None, ask("U")).await;
        assert_eq!(
            (got, refused["error"].as_str()),
            (status, Some(code)),
            "{refused}"
        );
        assert_eq!(refused["retryable"], retryable, "{refused}");
    }
    // Nobody listens on the discard port.
    let (got, refused) = post(&real("http://127.0.0.1:9", ""), None, ask("U")).await;
    assert_eq!(
        (got, &refused["retryable"]),
        (502, &json!(true)),
        "{refused}"
    );
}

#[tokio::test]
async fn a_key_never_comes_back() {
    let (url, _asked) = one(200, completion(&format!("your key is {KEY}!"))).await;
    let (_, reply) = post(&real(&url, ""), None, ask("U")).await;
    assert_eq!(reply["content"], "your key is [REDACTED]!");
    let hidden = r#"{"x":1,"t":"sk-01\u00323456789"}"#;
    let (url, _asked) = one(200, completion(hidden)).await;
    let (_, reply) = post(&real(&url, ""), None, ask("U")).await;
    assert_eq!(reply["content"], r#"{"t":"[REDACTED]","x":1}"#);
    let said = json!({"error": {"message": format!("bad key {KEY}")}}).to_string();
    let (url, _asked) = one(401, said).await;
    let (_, refused) = post(&real(&url, ""), None, ask("U")).await;
    let place = format!("provider p, openai {url}, key from KEY");
    assert_eq!(
        refused["message"],
        format!("upstream returned 401: bad key [REDACTED] ({place})")
    );
    let call =
        json!({"id": "c", "function": {"name": "f", "arguments": format!("{{\"k\":\"{KEY}\"}}")}});
    let body = json!({"choices": [{"message": {"tool_calls": [call]}}]}).to_string();
    let (url, _asked) = one(200, body).await;
    let (_, reply) = post(&real(&url, ""), None, ask("U")).await;
    assert_eq!(reply["tool_calls"][0]["arguments"]["k"], "[REDACTED]");
}

#[tokio::test]
async fn a_reply_longer_than_what_webhooks_keep_arrives_whole() {
    let long = "x".repeat(3 << 20);
    let (url, _asked) = one(200, completion(&long)).await;
    let (status, reply) = post(&real(&url, ""), None, ask("U")).await;
    assert_eq!(status, 200);
    assert_eq!(reply["content"].as_str().map(str::len), Some(long.len()));
}

#[tokio::test]
async fn an_unknown_group_is_named_with_those_that_exist() {
    let peer = scripted("rules: []");
    let body = ask("U").replace("\"g\"", "\"gg\"");
    let (status, refused) = post(&peer, None, body.clone()).await;
    assert_eq!(
        (status, refused["error"].as_str()),
        (400, Some("unknown_group"))
    );
    assert_eq!(
        refused["message"],
        "there is no model group \"gg\"; known groups: g"
    );
    let (status, refused) = post(&Peer::Local(router(Gateway::empty())), None, body).await;
    assert_eq!(
        (status, refused["error"].as_str()),
        (400, Some("unknown_group"))
    );
}

#[tokio::test]
async fn what_is_no_request_is_refused() {
    let peer = scripted("default: {text: x}\nrules: []");
    let role = ask("U").replace("user", "tool");
    let empty = json!({"group": "g", "max_tokens": 1, "messages": []}).to_string();
    let negative = ask("U").replace("64", "-1");
    let doubled = ask("U").replacen('{', "{\"group\":\"g\",", 1);
    for body in ["", "[]", "nope", "{}", &role, &empty, &negative, &doubled] {
        let (status, refused) = post(&peer, None, body.to_owned()).await;
        assert_eq!(
            (status, refused["error"].as_str()),
            (400, Some("invalid_request")),
            "{body}"
        );
    }
    let (status, refused) = post(&peer, Some(&"k".repeat(256)), ask("U")).await;
    assert_eq!(
        (status, refused["error"].as_str()),
        (400, Some("invalid_request"))
    );
    let large = ask(&"x".repeat(MAX_BODY));
    let (status, refused) = post(&peer, None, large).await;
    assert_eq!(
        (status, refused["error"].as_str()),
        (413, Some("invalid_request"))
    );
    let (status, _) = post(&peer, None, ask(&"x".repeat(MAX_BODY - 200))).await;
    assert_eq!(status, 200);
}

#[tokio::test]
async fn what_is_wrong_with_a_request_is_said_with_its_place_in_words_of_our_own() {
    let peer = scripted("default: {text: x}\nrules: []");
    for (body, words) in [
        ("{", "the text ends within an object at line 1 column 1"),
        ("{}", "missing required field: group"),
        (
            r#"{"group": 5, "max_tokens": 1, "messages": []}"#,
            "/group: expected string, got integer",
        ),
        (
            r#"{"group": "g", "max_tokens": 1.5, "messages": []}"#,
            "/max_tokens: expected a whole number, 0 to 4294967295",
        ),
        (
            r#"{"group": "g", "max_tokens": 1, "messages": [{"role": "user", "content": [1]}]}"#,
            "/messages/0/content: expected string, got array",
        ),
        (
            r#"{"group": "g", "max_tokens": 1, "messages": [], "temperature": "hot"}"#,
            "/temperature: expected number, got string",
        ),
    ] {
        let (status, refused) = post(&peer, None, body.to_owned()).await;
        assert_eq!(
            (status, refused["message"].as_str()),
            (400, Some(words)),
            "{body}"
        );
    }
}

#[tokio::test]
async fn models_of_a_group_take_turns_and_one_without_a_price_is_free() {
    let peer =
        scripted("rules: [{text: '{{ model }}', usage: {tokens_in: 1000, tokens_out: 200}}]");
    let mut told = Vec::new();
    for _ in 0..3 {
        let (_, reply) = post(&peer, None, ask("U")).await;
        assert_eq!(
            reply["model_resolved"],
            format!("s/{}", reply["content"].as_str().unwrap())
        );
        told.push((reply["content"].clone(), reply["cost_micro_usd"].clone()));
    }
    let priced = (json!("gpt-4o-mini"), json!(270));
    assert_eq!(
        told,
        [priced.clone(), (json!("unpriced"), json!(0)), priced]
    );
}

#[tokio::test]
async fn the_same_call_with_the_same_key_is_made_once() {
    let peer = scripted("rules: [{text: 'call {{ count }}'}]");
    let (_, first) = post(&peer, Some("k"), ask("U")).await;
    let (_, again) = post(&peer, Some("k"), ask("U")).await;
    assert_eq!(
        (&first["content"], first.get("cached")),
        (&json!("call 1"), None)
    );
    assert_eq!(
        (&again["content"], &again["cached"]),
        (&json!("call 1"), &json!(true))
    );
    assert_eq!(again["cost_micro_usd"], first["cost_micro_usd"]);
    // Ids for the log are not part of the call.
    let named = ask("U").replacen('{', "{\"run_id\":\"run_1\",\"step_id\":\"s\",", 1);
    assert_eq!(post(&peer, Some("k"), named).await.1["cached"], true);
    // Other words, another key, or none: other calls.
    for (key, content) in [(Some("k"), "V"), (Some("l"), "U"), (None, "U"), (None, "U")] {
        assert_eq!(post(&peer, key, ask(content)).await.1.get("cached"), None);
    }
    assert_eq!(post(&peer, None, ask("U")).await.1["content"], "call 6");
}

#[tokio::test]
async fn an_error_is_not_kept_under_a_key() {
    let peer = scripted("rules: [{error: {status: 503, times: 1}, text: fine}]");
    assert_eq!(post(&peer, Some("k"), ask("U")).await.0, 502);
    let (status, reply) = post(&peer, Some("k"), ask("U")).await;
    assert_eq!((status, &reply["content"]), (200, &json!("fine")));
}

#[tokio::test]
async fn a_call_whose_caller_goes_away_is_made_and_kept() {
    let peer = scripted("rules: [{text: 'call {{ count }}', delay_ms: 30}]");
    let mut asking = Box::pin(post(&peer, Some("k"), ask("U")));
    tokio::select! {
        _ = &mut asking => panic!("it takes 30 ms"),
        () = tokio::task::yield_now() => {}
    }
    drop(asking);
    let (_, reply) = post(&peer, Some("k"), ask("U")).await;
    assert_eq!(
        (&reply["content"], &reply["cached"]),
        (&json!("call 1"), &json!(true))
    );
}

#[tokio::test]
async fn health_and_the_description_are_served() {
    let peer = scripted("rules: []");
    let get = async |path: &str| {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let (status, body) = peer.call_and_read(request).await.unwrap();
        assert_eq!(status, 200, "{path}");
        serde_json::from_slice::<Value>(&body).unwrap()
    };
    assert_eq!(
        get("/health").await,
        json!({"status": "ok", "groups": ["g"], "prices": "2026-11"})
    );
    let document = get("/openapi.json").await;
    assert_eq!(document, serde_json::to_value(openapi()).unwrap());
    for (path, method) in [("/invoke", "post"), ("/health", "get")] {
        assert!(document["paths"][path][method].is_object(), "{path}");
    }
    for shape in [
        "InvokeModel",
        "ModelReply",
        "ModelCallFailure",
        "ChatMessage",
    ] {
        assert!(
            document["components"]["schemas"][shape].is_object(),
            "{shape}"
        );
    }
}

/// The YAML examples of a page, in order.
fn examples(page: &str) -> Vec<String> {
    let blocks = page.split("```yaml\n").skip(1);
    let text = |block: &str| block.split("```").next().unwrap_or_default().to_owned();
    blocks.map(text).collect()
}

#[tokio::test]
async fn the_examples_of_the_page_work() {
    let examples = examples(include_str!("../../docs/gateway.md"));
    let [config, environment, rules, tools] = examples.as_slice() else {
        panic!("{} examples", examples.len());
    };
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    };
    let mut faults = Faults::default();
    let path = write("tools.yaml", tools);
    provider::scripted::Scripted::load(Some((path.clone(), path)), None, &mut faults);
    assert!(!faults.has_errors(), "{faults}");
    let config = write("gateway.yaml", config);
    write("scripted/triage.yaml", rules);
    let environment = write("environments/local.env.yaml", environment);
    let environment = Environment::load(&environment).unwrap();
    let none = BTreeMap::new();
    let gateway = Gateway::load(&config, Some(&environment), &none, &client());
    let gateway = gateway.unwrap_or_else(|faults| panic!("{faults}"));
    let peer = Peer::Local(router(gateway));
    let body = ask("Ticket: refund order #12, please").replace("\"g\"", "\"triage\"");
    let (status, reply) = post(&peer, None, body).await;
    assert_eq!(
        (status, &reply["model_resolved"]),
        (200, &json!("real/gpt-4o-mini"))
    );
    let content: Value = serde_json::from_str(reply["content"].as_str().unwrap()).unwrap();
    assert_eq!(
        (&content["category"], &content["order"]),
        (&json!("billing"), &json!("12"))
    );
}

#[tokio::test]
async fn a_reply_that_names_a_tool_or_a_call_after_a_key_is_not_given() {
    let asked_for = |id: &str, name: &str| {
        let function = json!({"name": name, "arguments": "{}"});
        let call = json!({"id": id, "type": "function", "function": function});
        json!({"choices": [{"message": {"content": "x", "tool_calls": [call]}}]}).to_string()
    };
    let hexadecimal: String = KEY.bytes().map(|byte| format!("{byte:02x}")).collect();
    for (id, name) in [
        ("c", KEY.to_owned()),
        ("c", format!("f-{hexadecimal}")),
        (KEY, "f".to_owned()),
        (&format!("c-{KEY}-1"), "f".to_owned()),
    ] {
        let (url, _asked) = one(200, asked_for(id, &name)).await;
        let (status, refused) = post(&real(&url, ""), None, ask("U")).await;
        assert_eq!(
            (status, &refused["error"]),
            (500, &json!("internal_error")),
            "{refused}"
        );
        let said = refused.to_string();
        assert!(said.contains("a key of the gateway's"), "{said}");
        assert!(
            !said.contains(KEY) && !said.contains(&hexadecimal),
            "{said}"
        );
    }
    let (url, _asked) = one(200, asked_for("c", "f")).await;
    let (status, reply) = post(&real(&url, ""), None, ask("U")).await;
    assert_eq!(
        (status, &reply["tool_calls"][0]["name"]),
        (200, &json!("f"))
    );
}

#[tokio::test]
async fn a_reply_that_comes_too_slowly_is_a_timeout_and_asked_again_as_one() {
    let whole = completion("fine");
    let (half, _) = whole.split_at(20);
    for (on, asked) in [("timeout", 2), ("unreachable", 1)] {
        let (url, count) = slow(half.as_bytes().to_vec()).await;
        let text = format!(
            "providers: [{{name: p, type: openai, config: {{base_url: '{url}', api_key: {KEY}, timeout_s: 0.3}}}}]
model_groups: [{{name: g, models: [p/m], retry: {{attempts: 2, backoff: 1ms, on: [{on}]}}}}]"
        );
        let (status, refused) = post(&gateway(&text, "rules: []"), None, ask("U")).await;
        assert_eq!((status, &refused["retryable"]), (502, &json!(true)));
        assert_eq!(count.load(Ordering::SeqCst), asked, "{on}");
    }
}

/// A provider that begins its replies and never ends them, and how often it was asked.
async fn slow(beginning: Vec<u8>) -> (String, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let asked = Arc::clone(&count);
    let answer = move || {
        asked.fetch_add(1, Ordering::SeqCst);
        let begun = futures_util::stream::iter([Ok::<_, std::io::Error>(beginning.clone())]);
        let never = futures_util::stream::pending();
        async move { Body::from_stream(futures_util::StreamExt::chain(begun, never)) }
    };
    (served(Router::new().fallback(answer)).await, count)
}
