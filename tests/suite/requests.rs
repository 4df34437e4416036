//! What was sent to endpoints, as `trace` shows it: rendered again, and held against the recorded hash.

use std::collections::BTreeSet;

use ktsu::assemble::LedgerPlace;
use ktsu_history::webhooks::requests;
use ktsu_ledger::event::{RunEvent, WebhookEvent};
use ktsu_ledger::{CanonicalJson, Event, Frame};
use serde_json::{Value, json};

use super::golden::goldens;
use crate::support::scenarios::TOKEN;
use crate::support::sink::Reply;
use crate::support::{Client, KitDir, Lab, Sink};

const SECRET: &str = "a-key-that-signs-things";
/// What a webhook's body may have of params: half of what a body of a request may.
const LARGE: usize = 500 * 1024;

fn kit() -> KitDir {
    KitDir::new(&[(
        "tell",
        r#"
env: [{name: SINK}, {name: KEY, secret: true}]
params: {schema: {type: object, properties: {note: {type: string, default: none}}}}
pipeline:
  - id: first
    webhook:
      url: "{{ env.SINK }}/first/{{ params.note }}"
      method: PUT
      body: {note: "{{ params.note }}", whole: 12345678901234567, list: [1, null]}
      secret: "{{ env.KEY }}"
      retry: {attempts: 2, backoff: 1ms, on: [server_error]}
  - id: second
    depends_on: [first]
    webhook:
      url: "{{ env.SINK }}/second?key={{ env.KEY }}"
      body: {key: "Bearer {{ env.KEY }}", first: "{{ step.first.status_code }}"}
  - id: third
    depends_on: [second]
    webhook: {url: "{{ env.SINK }}/third"}
"#,
    )])
}

/// The request of every `webhook.sent` of a trace.
fn of_the_tree(trace: &Value) -> Vec<Value> {
    let tree = trace["tree"].as_array().unwrap().iter();
    let sent = tree.filter(|placed| placed["type"] == "webhook.sent");
    sent.map(|placed| placed["request"].clone()).collect()
}

#[tokio::test]
async fn every_sending_is_shown_as_its_endpoint_heard_it_with_secrets_as_their_templates() {
    let sink = Sink::new().await;
    let tried = std::sync::atomic::AtomicBool::new(false);
    sink.follow(
        move |_| match tried.swap(true, std::sync::atomic::Ordering::SeqCst) {
            false => Reply::Now(503, String::new()),
            true => Reply::Now(201, String::new()),
        },
    );
    let pairs = [("SINK", sink.url.as_str()), ("KEY", SECRET)];
    let lab = Lab::new(&kit(), &pairs).await;
    let envelope = lab.client.run("tell", json!({"note": "now"})).await;
    assert_eq!(envelope["status"], "complete", "{envelope:#}");
    let run = envelope["run_id"].as_str().unwrap();
    let trace = lab.client.get(&format!("/runs/{run}/trace")).await;
    assert!(!trace.text().contains(SECRET), "{}", trace.text());
    let trace = trace.json();
    let (shown, heard) = (of_the_tree(&trace), sink.heard());
    assert_eq!(shown.len(), 4, "{trace:#}");
    assert_eq!(heard.len(), 4);
    for (shown, heard) in shown.iter().zip(&heard) {
        assert_eq!(shown["method"], heard.method.as_str());
        let url = format!("{}{}", sink.url, heard.path);
        let url = url.replace(SECRET, "{{ env.KEY }}");
        let told = shown["url"].as_str().unwrap();
        // Text that a secret is part of is its template as a whole.
        assert_eq!(told.replace("{{ env.SINK }}", &sink.url), url);
        let headers = shown["headers"].as_array().unwrap().iter();
        let headers = headers.map(|name| name.as_str().unwrap().to_owned());
        assert_eq!(headers.collect::<BTreeSet<_>>(), heard.headers);
        let body = String::from_utf8(heard.body.clone()).unwrap();
        let body = body.replace(SECRET, "{{ env.KEY }}");
        assert_eq!(shown["body"].to_string(), body);
        assert_eq!(shown["body_bytes"], body.len());
        assert_eq!(shown["problem"], Value::Null);
    }
    // One frame says the same.
    let sent = trace["tree"].as_array().unwrap().iter();
    let mut sent = sent.filter(|placed| placed["type"] == "webhook.sent");
    let seq = &sent.next().unwrap()["seq"];
    for (seq, request) in [(seq, &shown[0]), (&json!(0), &Value::Null)] {
        let path = format!("/runs/{run}/trace?frame={seq}");
        assert_eq!(&lab.client.get(&path).await.json()["request"], request);
    }
    lab.close().await;
}

const KEEPER: &str = r"
name: keeper
version: 1.0.0
model: std
params: {schema: {type: object}}
prompt: {system: You keep things., user: keep}
servers:
  - name: ktsu/kv
    access: {allowlist: [{name: kv-set, require_approval: {on_reject: recover}}]}
output: {schema: {type: object}}
";
const GATEWAY: &str = "providers: [{name: desk, type: scripted, config: {rules: rules.yaml}}]\n\
                       model_groups: [{name: std, models: [desk/m]}]\n";
const RULES: &str = r#"
rules:
  - when: {turn: 1, user: keep}
    tool_calls: [{name: kv-set, arguments: {key: k, value: 1}}]
default: {reply: {kept: true}}
"#;

#[tokio::test]
async fn a_notice_of_a_call_that_waits_is_shown_as_it_was_heard() {
    let sink = Sink::new().await;
    let flow = r#"
env: [{name: SINK}]
pipeline:
  - {id: act, agent: ./agents/keeper.agent.yaml}
  - {id: page, on: approval, webhook: {url: "{{ env.SINK }}/page"}}
"#;
    let kit = KitDir::new(&[("flow", flow)])
        .with("agents/keeper.agent.yaml", KEEPER)
        .with("gateway.yaml", GATEWAY)
        .with("rules.yaml", RULES);
    let lab = Lab::new(&kit, &[("SINK", &sink.url)]).await;
    let run = lab.client.invoke("flow", json!({})).await;
    sink.until(|heard| heard.len() == 1).await;
    let trace = lab.client.get(&format!("/runs/{run}/trace")).await.json();
    let (shown, heard) = (of_the_tree(&trace), sink.heard());
    assert_eq!(shown.len(), 1, "{trace:#}");
    assert_eq!(shown[0]["url"], format!("{}/page", sink.url));
    assert_eq!(shown[0]["body"], heard[0].json());
    assert_eq!(shown[0]["body"]["tool_name"], "kv-set");
    assert_eq!(shown[0]["problem"], Value::Null, "{shown:#?}");
    lab.close().await;
}

/// Every webhook of every recorded run that is kept.
#[test]
fn what_is_rendered_of_a_recorded_request_has_the_recorded_hash() {
    let streams = super::exports::streams();
    let mut sendings = 0;
    for (name, golden) in goldens().into_iter().chain(streams) {
        let frames = golden.frames();
        let shown = requests(&frames, |_| true, usize::MAX);
        for frame in &frames {
            let Event::Webhook(WebhookEvent::Sent(sent)) = &frame.event else {
                continue;
            };
            let request = &shown[&frame.seq];
            let at = format!("{name}#{}: {request:?}", frame.seq);
            assert_eq!(request.problem, None, "{at}");
            let url = request.url.as_ref().unwrap();
            let hidden = sent.target == "[REDACTED]" || url.contains("{{ env.");
            assert!(hidden || url.contains(&sent.target), "{at}");
            assert!(!format!("{request:?}").contains(TOKEN), "{at}");
            sendings += 1;
        }
    }
    assert!(sendings > 40, "{sendings}");
}

/// The frames of a golden run whose one webhook has a note of its params in its body.
fn noted(note: &str) -> Vec<Frame> {
    let goldens = goldens();
    let golden = goldens.iter().find(|(name, _)| name == "v2-secrets");
    let mut frames = golden.unwrap().1.frames();
    let Event::Run(RunEvent::Created(created)) = &mut frames[0].event else {
        panic!("{:?}", frames[0]);
    };
    created.params = CanonicalJson::from_value(&json!({ "note": note })).unwrap();
    frames
}

#[test]
fn a_body_that_was_not_sent_is_shown_with_the_words_that_its_hash_differs() {
    for (note, same) in [("not [REDACTED]", true), ("not [REDACTED]!", false)] {
        let shown = requests(&noted(note), |_| true, usize::MAX);
        let (_, request) = shown.first_key_value().unwrap();
        assert_eq!(request.problem.is_none(), same, "{request:?}");
        assert!(request.body.as_ref().unwrap().as_str().contains(note));
        let problem = request.problem.clone().unwrap_or_default();
        assert_eq!(problem.contains("its hash differs"), !same, "{problem}");
    }
}

#[test]
fn what_cannot_be_rendered_says_so_and_the_rest_is_shown() {
    let mut frames = noted("none");
    let Event::Run(RunEvent::Created(created)) = &mut frames[0].event else {
        panic!("{:?}", frames[0]);
    };
    created.definition = CanonicalJson::from_value(&json!({"format": 1})).unwrap();
    let shown = requests(&frames, |_| true, usize::MAX);
    let (_, request) = shown.first_key_value().unwrap();
    assert_eq!(request.method, "POST");
    assert_eq!((&request.url, &request.body), (&None, &None));
    let problem = request.problem.as_ref().unwrap();
    assert!(
        problem.starts_with("it cannot be rendered again"),
        "{problem}"
    );
}

#[test]
fn bodies_beyond_the_room_there_is_are_left_out_and_their_length_is_reported() {
    let frames = noted(&"n".repeat(LARGE));
    let whole = requests(&frames, |_| true, usize::MAX);
    let (seq, request) = whole.first_key_value().unwrap();
    let bytes = request.body_bytes.unwrap();
    assert_eq!(request.body.as_ref().unwrap().as_str().len(), bytes);
    for (room, kept) in [(bytes, true), (bytes - 1, false)] {
        let request = &requests(&frames, |_| true, room)[seq];
        assert_eq!(request.body.is_some(), kept);
        assert_eq!(request.body_bytes, Some(bytes));
    }
}

#[tokio::test]
async fn whoever_may_not_read_frames_does_not_learn_what_was_sent() {
    let environment = "
egress: {allow: [127.0.0.1]}
variables: {T_OLGA: token-of-olga, T_VERA: token-of-vera}
principals:
  - {name: olga, token: {env: T_OLGA}, roles: [operator]}
  - {name: vera, token: {env: T_VERA}, roles: [viewer]}
";
    let sink = Sink::new().await;
    let url = format!("{}/hooks/T0K3N", sink.url);
    let flow = format!("pipeline: [{{id: tell, webhook: {{url: '{url}'}}}}]\n");
    let kit = KitDir::new(&[("flow", &flow)]);
    let lab = Lab::in_environment(LedgerPlace::Memory, &kit, environment, &[]).await;
    let olga = Client::showing(&lab.engine.url, "token-of-olga");
    let vera = Client::showing(&lab.engine.url, "token-of-vera");
    let envelope = olga.run("flow", json!({})).await;
    assert_eq!(envelope["status"], "complete", "{envelope:#}");
    let run = envelope["run_id"].as_str().unwrap();
    for frame in ["", "?frame=3"] {
        let path = format!("/runs/{run}/trace{frame}");
        assert!(olga.get(&path).await.text().contains("T0K3N"), "{frame}");
        let told = vera.get(&path).await;
        assert_eq!(told.status, 200);
        assert!(!told.text().contains("T0K3N"), "{}", told.text());
    }
    lab.close().await;
}

#[tokio::test]
async fn the_name_and_the_password_of_a_url_are_not_shown() {
    let flow = "env: [{name: SINK}]\npipeline: [{id: tell, webhook: {url: '{{ env.SINK }}/x'}}]\n";
    let kit = KitDir::new(&[("flow", flow)]);
    let lab = Lab::new(&kit, &[("SINK", "http://olga:open-sesame@127.0.0.1:9")]).await;
    let envelope = lab.client.run("flow", json!({})).await;
    let run = envelope["run_id"].as_str().unwrap();
    let trace = lab.client.get(&format!("/runs/{run}/trace")).await;
    assert!(!trace.text().contains("sesame"), "{}", trace.text());
    let shown = of_the_tree(&trace.json());
    assert_eq!(shown[0]["url"], "http://REDACTED@127.0.0.1:9/x");
    lab.close().await;
}

#[tokio::test]
async fn rendering_requests_counts_towards_the_work_of_a_trace() {
    let sink = Sink::new().await;
    let step = |at| format!("  - {{id: s{at}, webhook: {{url: '{{{{ env.SINK }}}}/{at}'}}}}\n");
    let steps: String = (0..14).map(step).collect();
    let flow = format!("env: [{{name: SINK}}]\npipeline:\n{steps}");
    let kit = KitDir::new(&[("sends", &flow)]);
    let bound = "limits: {trace_work: 1000}\n";
    let pairs = [("SINK", sink.url.as_str())];
    let lab = Lab::in_environment(LedgerPlace::Memory, &kit, bound, &pairs).await;
    let envelope = lab.client.run("sends", json!({})).await;
    assert_eq!(envelope["status"], "complete", "{envelope:#}");
    let run = envelope["run_id"].as_str().unwrap();
    let trace = |query: &str| {
        let path = format!("/runs/{run}/trace{query}");
        let client = &lab.client;
        async move { client.get(&path).await }
    };
    // The frames alone are few.
    let few = trace("?type=step.").await;
    assert_eq!(few.status, 200, "{}", few.text());
    let all = trace("").await;
    assert_eq!(all.status, 422, "{}", all.text());
    assert_eq!(all.json()["code"], "trace_too_large");
}
