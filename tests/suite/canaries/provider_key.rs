//! A provider's key that comes in by another door than the gateway's file: as a param, as an
//! idempotency key, in what webhooks, tools and models answer, in what people say. Where the gateway
//! is in the same process it is redacted like every secret; where it is in another, only the gateway
//! knows it (`docs/gateway.md`).

use serde_json::{Value, json};

use crate::support::model::{self, KEY, Model, Said};
use crate::support::process::Process;
use crate::support::services::Services;
use crate::support::sink::Reply;
use crate::support::tools::{self, Given, ToolServer};
use crate::support::{Client, KitDir, Sink};

/// What a header carries, and pages escape.
const SECRET: &str = "sk-<q'uo\"te>&42/x";

/// The same in a page.
const ESCAPED: &str = "sk-&lt;q&#x27;uo&quot;te&gt;&amp;42/x";

const AGENT: &str = r#"
name: clerk
version: 1.0.0
model: std
prompt: {system: s, user: u}
output: {schema: {type: object, required: [answer], properties: {answer: {type: string}}}}
servers:
  - name: desk
    path: ../servers/desk.server.yaml
    access: {allowlist: [read, fails, {name: grant, require_approval: {on_reject: recover}}]}
"#;

/// What comes in by a door.
fn said(door: &str) -> String {
    format!("{door}:{SECRET},{ESCAPED}")
}

/// What is recorded of it.
fn redacted(door: &str) -> String {
    format!("{door}:[REDACTED],[REDACTED]")
}

/// The world behind the doors: it runs as long as this is kept.
struct World {
    kit: KitDir,
    model: Model,
}

impl World {
    async fn new() -> Self {
        let sink = Sink::scripted(|heard| match heard.path.as_str() {
            "/page" => Reply::Now(200, format!("<p>{}</p>", said("page"))),
            _ => Reply::Now(200, json!({ "echo": [said("webhook")] }).to_string()),
        })
        .await;
        let tools = tools::any(&["read", "fails", "grant"]);
        let server = ToolServer::scripted(tools, |asked| match asked.tool.as_str() {
            "read" => Given::Text(said("tool")),
            "fails" => Given::Failed(said("tool error")),
            _ => Given::text("granted"),
        })
        .await;
        let model = Model::scripted(|call| match call.turn() {
            0 => Said::calls(&[
                ("read", json!({})),
                ("fails", json!({})),
                ("grant", json!({})),
            ]),
            _ => Said::answer(&said("model")),
        })
        .await;
        let flow = format!(
            r#"
params:
  schema: {{type: object, required: [note], additionalProperties: false, properties: {{note: {{}}}}}}
pipeline:
  - {{id: tell, webhook: {{url: "{url}/tell", body: {{note: "{{{{ params.note }}}}"}}}}}}
  - {{id: page, webhook: {{url: "{url}/page"}}}}
  - {{id: act, agent: ./agents/clerk.agent.yaml}}
  - {{id: last, depends_on: [act], transform: {{inputs: [{{from: step.act.answer}}], ops: []}}}}
output: {{map: {{said: "{{{{ step.last.result }}}}"}}}}
"#,
            url = sink.url
        );
        let desk = format!("name: desk\nversion: 1.0.0\nurl: {}\n", server.url);
        let kit = model::kit(&model, &[("doors", &flow)])
            .with("agents/clerk.agent.yaml", AGENT)
            .with("servers/desk.server.yaml", &desk);
        Self { kit, model }
    }
}

/// The doors that lead past the gateway.
const DOORS: [&str; 13] = [
    "param",
    "member",
    "idempotency",
    "webhook",
    "page",
    "tool",
    "tool error",
    "decision",
    "overlay",
    "overlay reason",
    "set",
    "fork reason",
    "resume reason",
];

/// Goes through all of them; gives everything that the engine says of it.
async fn knock(client: &Client) -> Vec<(String, String)> {
    let mut told = Vec::new();
    let body = json!({"note": {"text": said("param"), &said("member"): true}});
    let key = [("idempotency-key", said("idempotency"))];
    let key = key.each_ref().map(|(name, key)| (*name, key.as_str()));
    let answer = client
        .send("POST", "/invoke/doors", &key, body.to_string())
        .await;
    assert_eq!(answer.status, 202, "{}", answer.text());
    let run = answer.json()["run_id"].as_str().unwrap().to_owned();
    told.push(("answer".to_owned(), answer.text()));
    let mut events = client.events(&run, None).await;
    while !events
        .next()
        .await
        .unwrap()
        .data
        .contains("approval.requested")
    {}
    let decision = json!({"decision": "approved", "reason": said("decision")});
    let mut say = async |path: String, body: Value| {
        let answer = client.post(&path, body.to_string()).await;
        told.push((path, answer.text()));
        answer
    };
    let decided = say(format!("/runs/{run}/steps/act/approval/decide"), decision).await;
    assert_eq!(decided.status, 200, "{}", decided.text());
    assert_eq!(client.ended(&run).await["status"], "complete");
    let overlay = json!({"step": "act", "field": "answer", "value": said("overlay"),
        "reason": said("overlay reason")});
    let set = json!({"step.act.output.answer": said("set")});
    let fork = json!({"before": "last", "set": set, "reason": said("fork reason"), "go": true});
    let resume = json!({"from": "last", "reason": said("resume reason")});
    let mut runs = vec![run.clone()];
    for (word, body) in [("overlay", overlay), ("fork", fork), ("resume", resume)] {
        let answer = say(format!("/runs/{run}/{word}"), body).await;
        assert!(answer.status < 300, "{word}: {}", answer.text());
        if let Some(branch) = answer.json()["branch_id"].as_str() {
            client.ended(branch).await;
            runs.push(branch.to_owned());
        }
    }
    client.ended(&run).await;
    // Requests that are refused, and say why.
    let refused = json!({"note": 1, SECRET: 1});
    assert_eq!(say("/invoke/doors".to_owned(), refused).await.status, 422);
    let refused = json!({"step": SECRET, "field": ESCAPED, "value": 1, "reason": SECRET});
    let refused = say(format!("/runs/{run}/overlay"), refused).await;
    assert!((400..500).contains(&refused.status), "{}", refused.text());
    for run in &runs {
        for below in ["", "/envelope", "/trace", "/frames?expand=true"] {
            let path = format!("/runs/{run}{below}");
            told.push((path.clone(), client.get(&path).await.text()));
        }
    }
    told
}

/// A text as it stands within JSON.
fn within_json(text: &str) -> String {
    let quoted = Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

/// The doors of which the recorded frames have this.
fn recorded(told: &[(String, String)], of: impl Fn(&str) -> String) -> Vec<&'static str> {
    let frames = told.iter().filter(|(path, _)| path.contains("/frames"));
    let frames: String = frames.map(|(_, text)| text.as_str()).collect();
    let mut doors = DOORS.to_vec();
    doors.retain(|door| frames.contains(&within_json(&of(door))));
    doors
}

/// The places where the key stands, in either form.
fn leaks<'a>(places: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Vec<&'a str> {
    let forms = [SECRET, ESCAPED].map(|form| [form.to_owned(), within_json(form)]);
    let holds = |bytes: &[u8]| {
        let mut forms = forms.as_flattened().iter();
        forms.any(|form| {
            bytes
                .windows(form.len())
                .any(|here| here == form.as_bytes())
        })
    };
    let places = places.into_iter().filter(|(_, bytes)| holds(bytes));
    places.map(|(place, _)| place).collect()
}

fn texts(told: &[(String, String)]) -> impl Iterator<Item = (&str, &[u8])> {
    told.iter()
        .map(|(path, text)| (path.as_str(), text.as_bytes()))
}

/// Everything that lies in a folder.
fn files(folder: &std::path::Path) -> Vec<(String, Vec<u8>)> {
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap());
    let read = files.map(|file| {
        let name = file.file_name().into_string().unwrap();
        (name, std::fs::read(file.path()).unwrap())
    });
    read.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_providers_key_is_redacted_at_every_door_where_the_gateway_is_in_the_same_process() {
    let world = World::new().await;
    let desk = tempfile::tempdir().unwrap();
    let key = [(KEY.0, SECRET)];
    let engine = Process::start(world.kit.dir.path(), &desk.path().join("ledger.db"), &key);
    let told = knock(&engine.client()).await;
    let used = format!("Bearer {SECRET}");
    let calls = world.model.calls();
    assert!(calls.iter().all(|call| call.authorization == used));
    let results = calls.last().unwrap().results();
    assert_eq!(results[0], redacted("tool"), "nor do models hear of it");
    assert_eq!(recorded(&told, redacted), DOORS);
    assert_eq!(leaks(texts(&told)), [] as [&str; 0]);
    engine.kill();
    let files = files(desk.path());
    let files = files
        .iter()
        .map(|(name, bytes)| (name.as_str(), &bytes[..]));
    assert_eq!(leaks(files), [] as [&str; 0]);
}

/// What `docs/gateway.md` says is not covered; and that the test above looks where it should.
#[tokio::test(flavor = "multi_thread")]
async fn the_key_of_a_gateway_in_another_process_is_known_to_the_gateway_alone() {
    let world = World::new().await;
    let services = Services::start(&world.kit, &[(KEY.0, SECRET)]);
    let told = knock(&services.client()).await;
    assert_eq!(recorded(&told, said), DOORS);
    let frames = told.iter().filter(|(path, _)| path.contains("/frames"));
    let frames: String = frames.map(|(_, text)| text.as_str()).collect();
    assert!(frames.contains(&redacted("model")), "the gateway knows it");
    let leaks = leaks(texts(&told));
    assert!(leaks.iter().any(|place| place.ends_with("/envelope")));
}
