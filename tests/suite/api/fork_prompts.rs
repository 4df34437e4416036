//! Prompts that a fork edits: over HTTP, and in the form of a page.

use serde_json::{Value, json};

use super::describe::Described;
use super::frames_page::words_of;
use super::pages::{BROWSER, is_harmless};
use crate::support::client::Answer;
use crate::support::model::{self, KEY, Model, Said};
use crate::support::{KitDir, Lab};

/// A step, a fan-out that shares its agent, and a child.
const ASKS: &str = r#"
params: {schema: {type: object, required: [list], properties: {list: {}}}}
pipeline:
  - {id: first, agent: ./agents/echo.agent.yaml, params: {msg: "first"}}
  - {id: each, depends_on: [first], agent: ./agents/echo.agent.yaml, for_each: {from: params.list}, params: {msg: "{{ item }}"}}
  - {id: call, depends_on: [each], workflow: ./inner.workflow.yaml}
"#;

const INNER: &str = r#"
visibility: sub-workflow
pipeline:
  - {id: last, agent: ./agents/reflects.agent.yaml, params: {msg: "last"}}
"#;

struct Desk {
    model: Model,
    _kit: KitDir,
    lab: Lab,
    run: String,
    /// The last frame before `each` asks.
    at_frame: u64,
}

impl Desk {
    async fn new() -> Self {
        let model = Model::scripted(|call| Said::answer(&call.user())).await;
        let kit = model::kit(&model, &[("asks", ASKS), ("inner", INNER)]);
        let lab = Lab::new(&kit, &[KEY]).await;
        let ended = lab.client.run("asks", json!({"list": ["a", "b"]})).await;
        let run = ended["run_id"].as_str().unwrap().to_owned();
        let frames = lab.client.frames(&run).await;
        let is_first = |frame: &Value| frame["type"] == "step.completed";
        let at_frame = frames.iter().position(is_first).unwrap() as u64;
        Self {
            model,
            _kit: kit,
            lab,
            run,
            at_frame,
        }
    }

    async fn fork(&self, body: Value) -> Answer {
        let path = format!("/runs/{}/fork", self.run);
        self.lab.client.post(&path, body.to_string()).await
    }

    /// Sends the form of the page of the frame, as a browser does.
    async fn submit(&self, fields: &[(&str, &str)]) -> Answer {
        let at_frame = self.at_frame.to_string();
        let back = format!("runs/{}/frames?frame={at_frame}", self.run);
        let form = url::form_urlencoded::Serializer::new(String::new())
            .append_pair("_back", &back)
            .append_pair("_next", "runs/{run_id}")
            .append_pair("at_frame:json", &at_frame)
            .extend_pairs(fields)
            .finish();
        let headers = [
            ("accept", BROWSER),
            ("origin", self.lab.engine.url.as_str()),
            ("content-type", "application/x-www-form-urlencoded"),
        ];
        let path = format!("/inspector/do/runs/{}/fork", self.run);
        self.lab.client.send("POST", &path, &headers, form).await
    }

    /// The definition that a frame brings.
    async fn definition(&self, run: &str, frame: u64) -> Value {
        let path = format!("/runs/{run}/frames?from={frame}&limit=1&expand=true");
        let frames = self.lab.client.get(&path).await.json();
        let definition = frames["frames"][0]["data"]["definition"].clone();
        assert!(definition.is_object(), "{frames}");
        definition
    }

    /// How many branches there are.
    async fn branches(&self) -> usize {
        let found = self.lab.client.get("/runs?flag=branch").await.json();
        found["runs"].as_array().unwrap().len()
    }
}

#[tokio::test]
async fn a_fork_asks_with_prompts_that_were_edited_as_often_as_its_check_says() {
    let desk = Desk::new().await;
    let mut body = json!({
        "at_frame": desk.at_frame,
        "prompts": {
            "each": {"system": "new words", "user": "{{ params.msg }}"},
            "call/last": {"reflect": "Look twice."},
        },
        "go": true,
        "dry_run": true,
    });
    let checked = desk.fork(body.clone()).await;
    assert_eq!(checked.status, 200, "{}", checked.text());
    let checked = checked.json();
    assert_eq!(desk.branches().await, 0, "a check records nothing");
    let expected = json!([
        {"agent": "agents/echo.agent.yaml", "prompt": "system", "steps": ["each"]},
        {"agent": "agents/reflects.agent.yaml", "prompt": "reflect", "steps": ["call/last"]},
    ]);
    assert_eq!(checked["prompts"], expected, "{checked}");
    assert_eq!(
        (&checked["bound"], &checked["fork_position"]),
        (&json!("prompts"), &json!(desk.at_frame + 1))
    );
    desk.model.forget();
    body["dry_run"] = json!(false);
    let made = desk.fork(body).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let branch = made.json()["branch_id"].as_str().unwrap().to_owned();
    let ended = desk.lab.client.ended(&branch).await;
    assert_eq!(ended["status"], "complete", "{ended}");
    let calls = desk.model.calls();
    let bound = &checked["estimate"]["prompts"]["llm_calls"];
    let asked = calls.len() as u64;
    let least = bound["at_least"].as_u64().unwrap();
    let most = bound["at_most"].as_u64().unwrap();
    assert!(
        (least..=most).contains(&asked) && least >= 2,
        "{bound}: {asked}"
    );
    let systems = |user: &str| {
        let about = calls.iter().filter(|call| call.user() == user);
        let system = about.map(|call| call.messages()[0].1.clone());
        system.collect::<Vec<_>>()
    };
    for item in ["a", "b"] {
        let systems = systems(item);
        assert!(
            systems.iter().all(|system| system.starts_with("new words")),
            "{systems:?}"
        );
    }
    assert!(systems("first").is_empty(), "it had ended before the fork");
    assert!(
        calls
            .iter()
            .any(|call| call.content().contains("Look twice."))
    );
    let api = Described::new(&desk.lab.client).await;
    let page = api
        .get(&format!("/inspector/diff?a={}&b={branch}", desk.run))
        .await;
    is_harmless(&page);
    let words = words_of(&page.text());
    assert!(
        words.contains("That is within what was expected"),
        "{words}"
    );
    // Of a branch, what holds in it is edited.
    let path = format!("/runs/{branch}/fork");
    let same = json!({"prompts": {"first": {"system": "new words"}}, "dry_run": true});
    let same = desk.lab.client.post(&path, same.to_string()).await.json();
    assert_eq!(
        (&same["prompts"], &same["bound"]),
        (&json!([]), &json!("unchanged"))
    );
}

#[tokio::test]
async fn a_prompt_that_cannot_be_used_is_refused_at_its_place_and_secrets_are_not_repeated() {
    let desk = Desk::new().await;
    let (_, secret) = KEY;
    let fault = "one\n{{ params.msg }} {{ params.msgg }}";
    for (prompts, path, message, hint) in [
        (
            json!({"first": {"user": fault}}),
            "/prompts/first/user",
            "line 2, column 28: the params of this agent do not declare \"msgg\"",
            "did you mean msg?",
        ),
        (
            json!({"first": {"system": "a {{ params.msg }}"}}),
            "/prompts/first/system",
            "line 1, column 3: it is static",
            "move what changes to prompt.user",
        ),
        (
            json!({"agents/echo.agent.yaml": {"system": format!("use {secret}")}}),
            "/prompts/agents~1echo.agent.yaml/system",
            "it contains a secret value",
            "models never see secrets",
        ),
        (
            json!({"call": {"system": "x"}}),
            "/prompts/call",
            "asks no model",
            "",
        ),
        (
            json!({"frist": {"system": "x"}}),
            "/prompts/frist",
            "no such agent step",
            "did you mean first?",
        ),
        (
            json!({"first": {"reflect": "x"}}),
            "/prompts/first/reflect",
            "no such prompt",
            "",
        ),
    ] {
        for dry_run in [true, false] {
            let refused = desk
                .fork(json!({"prompts": prompts, "dry_run": dry_run}))
                .await;
            let problem = refused.json();
            assert_eq!(
                (refused.status, &problem["code"]),
                (422, &json!("fork_refused")),
                "{problem}"
            );
            let first = &problem["errors"][0];
            assert_eq!(first["path"], path, "{problem}");
            let text = first["message"].as_str().unwrap();
            assert!(text.contains(message), "{problem}");
            let given = problem["hint"].as_str().unwrap_or_default();
            assert!(given.contains(hint), "{problem}");
            assert!(!refused.text().contains(secret), "{problem}");
        }
    }
    let definition = desk.definition(&desk.run, 0).await;
    let both = json!({"prompts": {"first": {"system": "x"}}, "definition": definition});
    let refused = desk.fork(both).await;
    assert_eq!(refused.status, 422, "{}", refused.text());
    assert!(
        refused
            .text()
            .contains("definition and prompts exclude each other")
    );
    let other = desk
        .fork(json!({"prompts": {"first": {"sytem": "x"}}}))
        .await;
    assert_eq!(other.status, 422, "{}", other.text());
    assert_eq!(desk.branches().await, 0);
}

#[tokio::test]
async fn the_form_of_a_fork_keeps_what_was_typed_and_says_what_is_wrong_or_what_follows() {
    let desk = Desk::new().await;
    let system = "/prompts/agents~1echo.agent.yaml/system";
    let user = "/prompts/agents~1echo.agent.yaml/user";
    let page = format!(
        "/inspector/runs/{}/frames?frame={}",
        desk.run, desk.at_frame
    );
    let shown = desk.lab.client.get(&page).await.text();
    let field = format!("name=\"{system}\" rows=\"2\" spellcheck=\"false\">\ns</textarea>");
    assert!(shown.contains(&field), "{shown}");
    let typed = "line 1\r\n</textarea><b>\u{200d}";
    let kept = "\nline 1\n&lt;/textarea&gt;&lt;b&gt;&#x200d;</textarea>";
    let refused = desk
        .submit(&[
            (system, typed),
            (user, "{{ params.msg"),
            ("reason", "I try"),
            ("effects", "execute"),
        ])
        .await;
    assert_eq!(refused.status, 422, "{}", refused.text());
    let text = refused.text();
    assert!(text.contains(kept), "{text}");
    assert!(text.contains(">\n{{ params.msg</textarea>"), "{text}");
    assert!(
        text.contains(">I try</textarea>") && text.contains("value=\"execute\" selected"),
        "{text}"
    );
    let words = words_of(&text);
    assert!(
        words.contains("line 1, column 1: the opening {{ is never closed"),
        "{words}"
    );
    assert!(
        text.contains("href=\"../../../runs\""),
        "links lead below /inspector/: {text}"
    );
    // An emptied prompt is no prompt that was left alone.
    let emptied = desk.submit(&[(system, "")]).await;
    assert!(
        words_of(&emptied.text()).contains("the prompt is empty"),
        "{}",
        emptied.text()
    );
    let no_json = desk.submit(&[(system, "kept"), ("set:json", "{")]).await;
    let text = no_json.text();
    assert!(
        text.contains("set is no JSON") && text.contains("\nkept</textarea>"),
        "{text}"
    );

    let check = [
        (system, "other"),
        (user, "{{ params.msg }}"),
        ("dry_run:json", "true"),
    ];
    let checked = desk.submit(&check).await;
    assert_eq!(checked.status, 200, "{}", checked.text());
    assert!(
        checked.text().contains("\nother</textarea>"),
        "{}",
        checked.text()
    );
    let words = words_of(&checked.text());
    assert!(words.contains("The branch can be made"), "{words}");
    assert!(
        words.contains("Changed: prompt.system of agents/echo.agent.yaml, asked by each."),
        "{words}"
    );
    let part = desk
        .submit(&[&check[..], &[("_part", "verdict")]].concat())
        .await;
    assert!(
        part.text().contains("data-verdict") && !part.text().contains("<textarea"),
        "{}",
        part.text()
    );
    assert_eq!(desk.branches().await, 0, "a check records nothing");

    let made = desk.submit(&check[..2]).await;
    assert_eq!(made.status, 303, "{}", made.text());
    let branch = made.headers["location"]
        .to_str()
        .unwrap()
        .rsplit('/')
        .next()
        .unwrap()
        .to_owned();
    let definition = desk.definition(&branch, desk.at_frame + 1).await;
    let echo = &definition["agents"]["agents/echo.agent.yaml"];
    assert_eq!(echo["prompt"]["system"], "other", "{echo}");
}
