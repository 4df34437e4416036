//! The page of a step, the values of a run an item at a time, and the search in them.

use ktsu::assemble::LedgerPlace;
use serde_json::{Value, json};

use super::access::{environment, token};
use super::describe::Described;
use super::pages::{HOSTILE, is_harmless};
use crate::support::client::{Answer, Client};
use crate::support::model::{self, KEY, Model, Said};
use crate::support::{KitDir, Lab};

const KEEPER: &str = r#"
name: keeper
version: 1.0.0
model: std
params: {schema: {type: object, required: [msg], properties: {msg: {type: string}, n: {type: integer}}}}
prompt: {system: "You keep <b>things</b>.", user: "{{ params.msg }}"}
servers:
  - name: ktsu/kv
    access: {allowlist: [{name: kv-set, require_approval: {on_reject: recover}}]}
output:
  schema:
    type: object
    required: [answer]
    properties: {answer: {type: string}, list: {type: array}, a.b: {type: string}, ktsu_confidence: {type: number}}
"#;
const FLOW: &str = r#"
params: {schema: {type: object, required: [msg], properties: {msg: {type: string}}}}
pipeline:
  - {id: keep, agent: ./agents/keeper.agent.yaml, params: {msg: "{{ params.msg }}", n: 4}, confidence_threshold: 0.75}
  - {id: last, depends_on: [keep], transform: {inputs: [{from: step.keep}], ops: []}}
output: {map: {answer: "{{ step.keep.answer }}"}}
"#;

/// What the model keeps, and what it answers.
fn kept() -> Value {
    json!({"key": "k", "value": {"note": "two\nlines", "odd": HOSTILE[1], "marks": HOSTILE[6]}})
}

fn answer() -> String {
    format!("{}{}{}", "word ".repeat(4_000), HOSTILE[0], HOSTILE[7])
}

struct Desk {
    _kit: KitDir,
    lab: Lab,
    api: Described,
    run: String,
}

impl Desk {
    /// A run with a call of a tool that an approver allows, a long reply, and reserved fields.
    async fn new() -> Self {
        let model = Model::scripted(|call| match call.turn() {
            0 => Said::calls(&[("kv-set", kept())]),
            _ => Said::json(&json!({
                "answer": answer(), "list": (0..2_000).collect::<Vec<_>>(), "a.b": HOSTILE[2],
                "ktsu_confidence": 0.9, "ktsu_flags": ["odd"],
            })),
        })
        .await;
        let kit = KitDir::new(&[("flow", FLOW)])
            .with("agents/keeper.agent.yaml", KEEPER)
            .with("gateway.yaml", &model::gateway(&model.url));
        let lab = Lab::in_environment(LedgerPlace::Memory, &kit, &environment(), &[KEY]).await;
        let api = Described::new(&lab.client).await;
        let mut desk = Self {
            _kit: kit,
            lab,
            api,
            run: String::new(),
        };
        let operator = desk.showing("operator");
        desk.run = operator
            .invoke("flow", json!({"msg": format!("<i>{}</i>", HOSTILE[3])}))
            .await;
        let path = format!("/runs/{}/steps/keep/approval", desk.run);
        let mut events = operator.events(&desk.run, None).await;
        while let Some(event) = events.next().await {
            if event.data.contains("\"approval.requested\"") {
                break;
            }
        }
        let decided = json!({"decision": "approved", "reason": "it is <ok>"}).to_string();
        let decided = desk
            .showing("approver")
            .post(&format!("{path}/decide"), decided)
            .await;
        assert_eq!(decided.status, 200, "{}", decided.text());
        assert_eq!(operator.ended(&desk.run).await["status"], "complete");
        desk
    }

    fn showing(&self, role: &str) -> Client {
        Client::showing(&self.lab.engine.url, &token(role))
    }

    /// An answer to a role, which is as described.
    async fn get(&self, role: &str, path: &str) -> Answer {
        let bearer = format!("Bearer {}", token(role));
        let headers = [("authorization", bearer.as_str())];
        self.api.call("GET", path, &headers, "").await
    }

    async fn page(&self, role: &str, query: &str) -> String {
        let path = format!("/inspector/runs/{}/steps/{query}", self.run);
        let page = self.get(role, &path).await;
        assert_eq!(page.status, 200, "{path}: {}", page.text());
        is_harmless(&page);
        page.text()
    }

    async fn frames(&self) -> Vec<Value> {
        let path = format!("/runs/{}/frames?expand=true", self.run);
        let frames = self.get("auditor", &path).await.json();
        frames["frames"].as_array().unwrap().clone()
    }

    async fn download(&self, query: &str) -> Answer {
        let path = format!("/runs/{}/payload?{query}", self.run);
        let answer = self.get("auditor", &path).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        for (name, value) in [
            ("content-type", "application/octet-stream"),
            ("x-content-type-options", "nosniff"),
            ("content-security-policy", "sandbox"),
        ] {
            assert_eq!(answer.headers[name], value, "{path}");
        }
        let kept = answer.headers["content-disposition"].to_str().unwrap();
        assert!(kept.starts_with("attachment;"), "{kept}");
        answer
    }
}

fn encoded(text: &str) -> String {
    url::form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

#[tokio::test]
async fn a_step_shows_its_conversation_its_checks_and_who_decided_to_those_who_may_read_frames() {
    let desk = Desk::new().await;
    let page = desk.page("auditor", "keep").await;
    for shown in [
        // Roles, in order; what is said is text.
        "<article class=\"turn system\"",
        "You keep &lt;b&gt;things&lt;/b&gt;.",
        "<article class=\"turn user\"",
        "&lt;i&gt;&lt;/title&gt;",
        "<article class=\"turn assistant\"",
        "fake/gpt-4o-mini",
        "1000 + 200 tokens",
        "<article class=\"turn tool\"",
        "ktsu/kv.kv-set",
        // Arguments as a tree, marks as escapes.
        "<dt>note</dt><dd><pre tabindex=\"0\">two\nlines</pre></dd>",
        "abc\\u{202e}fed",
        // People.
        "approved by <span class=\"by\">approver</span> after ",
        ": “it is &lt;ok&gt;”",
        // Checks.
        "The output matches its schema",
        "<code>0.9</code> ≥ 0.75 <span class=\"dim\">passes</span>",
        "Not part of the output: ktsu_confidence",
        // Inputs and outputs with their origins.
        "why?of=params.msg\">params.msg</a>",
        "why?of=step.keep.output.answer\">why</a>",
        "why?of=step.keep.output%5B%22a.b%22%5D\">why</a>",
        // What is long says so.
        "Cut: the first 16384 characters of ",
    ] {
        assert!(page.contains(shown), "{shown}: {page}");
    }
    let order = [
        "turn system",
        "turn user",
        "turn assistant",
        "turn tool",
        "turn assistant",
    ];
    let mut rest = page.as_str();
    for role in order {
        rest = rest
            .split_once(role)
            .unwrap_or_else(|| panic!("{role}: {rest}"))
            .1;
    }
    let whole = desk
        .page("auditor", "keep?all=step.keep.output.answer")
        .await;
    assert!(whole.matches("word word").count() > page.matches("word word").count());
    assert!(whole.contains("All of it, 19."), "{whole}");
    // Every link of the page leads somewhere.
    for link in super::frames_page::links_of(&page) {
        let at = format!("/inspector/runs/{}/steps/keep", desk.run);
        let to = super::frames_page::resolved(&at, &link);
        let answer = desk.showing("auditor").get(&to).await;
        assert_eq!(answer.status, 200, "{link}: {}", answer.text());
    }
    let panel = desk
        .get(
            "auditor",
            &format!("/inspector/runs/{}?step=keep", desk.run),
        )
        .await;
    is_harmless(&panel);
    assert!(
        panel
            .text()
            .contains(&format!("href=\"../runs/{}/steps/keep\"", desk.run))
    );
    assert!(panel.text().contains("turn assistant"), "{}", panel.text());
    let last = desk.page("auditor", "last").await;
    assert!(last.contains("why?of=step.keep"), "{last}");
}

#[tokio::test]
async fn a_viewer_sees_what_the_routes_of_the_step_show_and_no_prompt_reply_or_argument() {
    let desk = Desk::new().await;
    for query in ["keep", "keep?all=conversation"] {
        let page = desk.page("viewer", query).await;
        for shown in [
            "turn assistant",
            "1000 + 200 tokens",
            "approved by",
            "passes",
            "word word",
            "not shown to you",
        ] {
            assert!(page.contains(shown), "{shown}: {page}");
        }
        for hidden in ["You keep", "two\nlines", "&lt;/title&gt;"] {
            assert!(!page.contains(hidden), "{hidden}: {page}");
        }
    }
    let run = &desk.run;
    let panel = desk
        .get("viewer", &format!("/inspector/runs/{run}?step=keep"))
        .await
        .text();
    assert!(
        !panel.contains("You keep") && !panel.contains("two\nlines"),
        "{panel}"
    );
    for (path, status) in [
        ("payload?path=step.keep.output.answer", 200),
        ("payload?frame=0&at=/data/params", 403),
        ("search?text=word", 403),
    ] {
        let answer = desk.get("viewer", &format!("/runs/{run}/{path}")).await;
        assert_eq!(answer.status, status, "{path}: {}", answer.text());
    }
    let frames = format!("/inspector/runs/{run}/frames?search=word");
    let frames = desk.get("viewer", &frames).await;
    is_harmless(&frames);
    assert!(!frames.text().contains("word word"), "{}", frames.text());
}

#[tokio::test]
async fn what_is_downloaded_has_the_bytes_of_the_ledger() {
    let desk = Desk::new().await;
    let mut values = 0;
    for frame in desk.frames().await {
        let seq = &frame["seq"];
        let whole = desk
            .download(&format!("frame={seq}&at=/data&download=json"))
            .await;
        let recorded = frame["data"].to_string();
        assert_eq!(whole.text(), recorded, "frame {seq}");
        for (name, member) in frame["data"].as_object().unwrap() {
            let at = encoded(&format!(
                "/data/{}",
                name.replace('~', "~0").replace('/', "~1")
            ));
            let part = desk
                .download(&format!("frame={seq}&at={at}&download=json"))
                .await;
            assert_eq!(part.text(), member.to_string(), "frame {seq} {name}");
            if let Some(text) = member.as_str() {
                let part = desk
                    .download(&format!("frame={seq}&at={at}&download=text"))
                    .await;
                assert_eq!(part.text(), text, "frame {seq} {name}");
            }
            values += 1;
        }
    }
    assert!(values > 60, "{values}");
    let said = desk
        .download("path=step.keep.output.answer&download=text")
        .await;
    assert_eq!(said.text(), answer());
    let said = desk.download("path=output&download=json").await;
    assert_eq!(said.text(), json!({"answer": answer()}).to_string());
}

#[tokio::test]
async fn a_long_value_is_read_an_item_or_some_characters_at_a_time() {
    let desk = Desk::new().await;
    let run = desk.run.clone();
    let mut list = Vec::new();
    let mut from = json!(0);
    while !from.is_null() {
        let path = format!("/runs/{run}/payload?path=step.keep.output.list&limit=900&from={from}");
        let window = desk.get("viewer", &path).await.json();
        assert_eq!(
            (&window["type"], &window["count"]),
            (&json!("array"), &json!(2_000))
        );
        let items = window["items"].as_array().unwrap();
        list.extend(items.iter().map(|item| item["value"].clone()));
        from = window["next"].clone();
    }
    assert_eq!(list, (0..2_000).map(Value::from).collect::<Vec<_>>());
    let mut text = String::new();
    let mut from = json!(0);
    while !from.is_null() {
        let path = format!("/runs/{run}/payload?path=output.answer&from={from}");
        let window = desk.get("viewer", &path).await.json();
        assert_eq!(window["type"], "string");
        let to = window["download"].as_str().unwrap();
        let all = desk.get("viewer", &format!("/runs/{run}/{to}")).await;
        assert_eq!(all.body.len(), window["bytes"].as_u64().unwrap() as usize);
        text.push_str(window["text"].as_str().unwrap());
        from = window["next"].clone();
    }
    assert_eq!(text, answer());
    let members = desk
        .get(
            "viewer",
            &format!("/runs/{run}/payload?path=step.keep.output"),
        )
        .await
        .json();
    let names: Vec<&str> = members["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["a.b", "answer", "list"]);
    assert!(members["items"][1]["value"].is_null(), "{members}");
    assert_eq!(
        members["items"][1]["bytes"],
        json!(answer()).to_string().len()
    );
}

#[tokio::test]
async fn a_search_finds_every_place_of_its_words_and_continues_where_it_ended() {
    let desk = Desk::new().await;
    let run = desk.run.clone();
    for (words, least) in [
        ("TWO\nlines", 1),
        (HOSTILE[1], 1),
        ("WORD word", 2),
        ("fake", 1),
        ("no such words", 0),
    ] {
        let mut found = Vec::new();
        let mut from = json!(0);
        while !from.is_null() {
            let path = format!(
                "/runs/{run}/search?text={}&limit=1&from={from}",
                encoded(words)
            );
            let page = desk.get("auditor", &path).await.json();
            found.extend(page["hits"].as_array().unwrap().clone());
            from = page["next"].clone();
        }
        assert!(found.len() >= least, "{words}: {found:?}");
        let at_once = format!("/runs/{run}/search?text={}&limit=200", encoded(words));
        assert_eq!(
            desk.get("auditor", &at_once).await.json()["hits"],
            json!(found),
            "{words}"
        );
        let frames = desk.frames().await;
        for hit in &found {
            let frame = &frames[hit["frame"].as_u64().unwrap() as usize];
            let value = frame.pointer(hit["at"].as_str().unwrap()).unwrap();
            assert!(
                value
                    .as_str()
                    .unwrap()
                    .to_lowercase()
                    .contains(&words.to_lowercase()),
                "{hit}"
            );
            assert_eq!(hit["type"], frame["type"]);
        }
        let page = desk
            .get(
                "auditor",
                &format!("/inspector/runs/{run}/frames?search={}", encoded(words)),
            )
            .await;
        is_harmless(&page);
        for hit in &found {
            let link = format!("frame={0}#f{0}\"", hit["frame"]);
            assert!(page.text().contains(&link), "{hit}: {}", page.text());
        }
    }
}

/// Visits what is described of these routes.
pub(super) async fn all(api: &Described, run: &str) {
    for (below, status) in [
        ("payload?path=status", 200),
        ("payload?path=status&download=json", 200),
        ("payload?path=status&download=text", 200),
        ("payload?path=totals&download=text", 200),
        ("payload?path=zzz", 404),
        ("payload?frame=0", 200),
        ("payload?frame=0&at=/data/workflow", 200),
        ("payload?frame=0&at=zzz", 404),
        ("payload?frame=99999", 404),
        ("payload", 200),
        ("payload?at=/x", 400),
        ("payload?path=status&frame=1", 400),
        ("payload?path=status&at=/x", 400),
        ("payload?path=status&limit=0", 400),
        ("search?text=hello", 200),
        ("search", 400),
        ("search?text=", 400),
    ] {
        let answer = api.get(&format!("/runs/{run}/{below}")).await;
        assert_eq!(answer.status, status, "{below}: {}", answer.text());
        assert!(!answer.text().contains("zzz"), "{}", answer.text());
    }
    let page = format!("/inspector/runs/{run}/steps");
    for (below, status) in [
        ("greet", 200),
        ("greet?all=x", 200),
        ("greet?x=1", 400),
        ("zzz", 404),
    ] {
        let answer = api.get(&format!("{page}/{below}")).await;
        assert_eq!(answer.status, status, "{below}: {}", answer.text());
    }
    for run in ["absent", run.get(..8).unwrap()] {
        for path in [
            format!("/runs/{run}/payload?path=status"),
            format!("/runs/{run}/search?text=a"),
            format!("/inspector/runs/{run}/steps/greet"),
        ] {
            assert!([404, 409].contains(&api.get(&path).await.status), "{path}");
        }
    }
}
