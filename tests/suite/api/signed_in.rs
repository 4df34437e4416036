//! Browsers at engines with principals: they sign in, see what their principal may see, and decide by forms.

use std::collections::BTreeSet;

use ktsu_ledger::LedgerPlace;
use serde_json::{Value, json};

use super::access::{environment, token};
use super::describe::{Case, Described};
use super::pages::{BROWSER, is_harmless};
use crate::support::client::{Answer, Client};
use crate::support::{KitDir, Lab};

/// A judge that asks for a review, a clerk that waits for data, and a step that takes its time.
fn kit() -> KitDir {
    let judge = "name: judge\nversion: 1.0.0\nmodel: std\n\
         prompt: {system: You judge., user: Judge it.}\ncommands: {review: true}\n\
         output: {schema: {type: object, properties: {verdict: {enum: [good, bad]}}}}\n";
    let clerk = "name: clerk\nversion: 1.0.0\nmodel: std\n\
         params: {schema: {type: object, properties: {text: {type: [string, 'null']}}}}\n\
         prompt: {system: You read., user: 'text {{ params.text }}.'}\ncommands: {suspend: true}\n\
         output: {schema: {type: object, properties: {verdict: {type: string}}}}\n";
    let rules = "values: {text: {from: user, pattern: 'text (.+)[.]'}}
rules:
  - {when: {text: '.'}, reply: {verdict: read}}
  - {when: {turn: 1, tools: [suspend]}, tool_calls: [{name: suspend, arguments: {reason: it is missing, checkpoint: 1}}]}
  - {when: {turn: 1}, tool_calls: [{name: review, arguments: {reason: it matters}}]}
default: {reply: {verdict: good}}
";
    let reads = "pipeline:\n  - {id: a, agent: ./agents/clerk.agent.yaml, \
         params: {text: '{{ resume.data.text }}'}, resume: {schema: {type: object, required: [text]}}}\n";
    KitDir::new(&[
        (
            "judged",
            "pipeline: [{id: a, agent: ./agents/judge.agent.yaml}]\n",
        ),
        ("reads", reads),
        (
            "hello",
            "pipeline: [{id: greet, transform: {inputs: [{from: \"{a: `1`}\"}], ops: []}}]\n",
        ),
    ])
    .with("agents/judge.agent.yaml", judge)
    .with("agents/clerk.agent.yaml", clerk)
    .with(
        "gateway.yaml",
        "providers: [{name: desk, type: scripted, config: {rules: rules.yaml}}]\n\
         model_groups: [{name: std, models: [desk/m]}]\n",
    )
    .with("rules.yaml", rules)
}

async fn lab() -> (KitDir, Lab) {
    let kit = kit();
    let lab = Lab::in_environment(LedgerPlace::Memory, &kit, &environment(), &[]).await;
    (kit, lab)
}

/// A browser, which shows its cookie and the page that it comes from.
pub(super) struct Browser<'l> {
    client: Client,
    origin: String,
    cookie: String,
    lab: &'l Lab,
}

impl<'l> Browser<'l> {
    fn of(lab: &'l Lab) -> Self {
        Self {
            client: Client::of(&lab.engine.url),
            origin: lab.engine.url.clone(),
            cookie: "ktsu-0=none".to_owned(),
            lab,
        }
    }

    /// One in which a principal of a role has signed in.
    pub(super) async fn signed_in(lab: &'l Lab, role: &str) -> Self {
        let mut browser = Self::of(lab);
        let form = format!("token={}&to=inbox", token(role));
        let begun = browser.post("/inspector/sign-in", &form).await;
        assert_eq!(
            (begun.status, &begun.headers["location"]),
            (303, &"inbox".parse().unwrap())
        );
        let cookie = begun.headers["set-cookie"].to_str().unwrap();
        assert!(cookie.contains("; HttpOnly; SameSite=Lax"), "{cookie}");
        browser.cookie = cookie.split(';').next().unwrap().to_owned();
        browser
    }

    pub(super) async fn get(&self, path: &str) -> Answer {
        let headers = [("accept", BROWSER), ("cookie", &self.cookie)];
        self.client.send("GET", path, &headers, "").await
    }

    pub(super) async fn post(&self, path: &str, form: &str) -> Answer {
        let headers = [
            ("accept", BROWSER),
            ("cookie", &self.cookie),
            ("origin", &self.origin),
            ("content-type", "application/x-www-form-urlencoded"),
        ];
        self.client
            .send("POST", path, &headers, form.to_owned())
            .await
    }

    /// The one form of a page that is sent to a path which ends like this, filled in.
    async fn submit(&self, page: &str, ending: &str, fill: &[(&str, &str)]) -> Answer {
        let text = self.get(page).await.text();
        let form = form_of(&text, ending).unwrap_or_else(|| panic!("{page} has no form: {text}"));
        self.send_form(page, form, fill).await
    }

    /// A form of a page, filled in.
    pub(super) async fn send_form(&self, page: &str, form: Form, fill: &[(&str, &str)]) -> Answer {
        let mut fields = form.hidden;
        fields.extend(
            fill.iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned())),
        );
        let sent = url::form_urlencoded::Serializer::new(String::new())
            .extend_pairs(fields)
            .finish();
        let base = url::Url::parse(&format!("{}{page}", self.lab.engine.url)).unwrap();
        let action = base.join(&form.action).unwrap();
        self.post(action.path(), &sent).await
    }
}

/// A form of a page that changes something.
pub(super) struct Form {
    pub(super) action: String,
    pub(super) hidden: Vec<(String, String)>,
    /// The decisions that its buttons send, or one that is empty.
    pub(super) decisions: Vec<String>,
}

pub(super) fn forms_of(page: &str) -> Vec<Form> {
    let forms = page.split("<form ").skip(1);
    let forms = forms.filter_map(|form| {
        let form = form.split("</form>").next()?;
        let action = attribute(form, "action").filter(|_| form.contains("method=\"post\""))?;
        let hidden = form
            .split("<input ")
            .skip(1)
            .filter(|input| input.starts_with("type=\"hidden\""));
        let hidden = hidden.map(|input| {
            (
                attribute(input, "name").unwrap(),
                attribute(input, "value").unwrap(),
            )
        });
        // One that checks the form sends no decision.
        let buttons = form.split("<button").skip(1);
        let buttons = buttons.filter(|button| !button.starts_with(" name=\"dry_run"));
        let decisions = buttons.map(|button| {
            let tag = button.split('>').next().unwrap();
            attribute(tag, "value").unwrap_or_default()
        });
        Some(Form {
            hidden: hidden.collect(),
            decisions: decisions.collect(),
            action,
        })
    });
    forms.collect()
}

fn form_of(page: &str, ending: &str) -> Option<Form> {
    let mut forms = forms_of(page).into_iter();
    forms.find(|form| form.action.ends_with(ending))
}

fn attribute(tag: &str, name: &str) -> Option<String> {
    let (_, rest) = tag.split_once(&format!("{name}=\""))?;
    rest.split('"')
        .next()
        .map(|value| value.replace("&amp;", "&"))
}

/// A run of a workflow that waits for people.
async fn waiting(lab: &Lab, workflow: &str) -> String {
    let admin = Client::showing(&lab.engine.url, &token("admin"));
    let run = admin.invoke(workflow, json!({})).await;
    let mut events = admin.events(&run, None).await;
    while !events.next().await.unwrap().data.contains(".requested\"") {}
    run
}

async fn envelope(lab: &Lab, run: &str) -> Value {
    Client::showing(&lab.engine.url, &token("admin"))
        .ended(run)
        .await
}

/// Visits what is described of signing in and out.
pub(super) async fn all(described: &Described) -> BTreeSet<Case> {
    let (_kit, lab) = lab().await;
    let api = described.at(&lab.client);
    assert_eq!(api.get("/inspector/sign-in?a=b").await.status, 400);
    let origin = [("origin", lab.engine.url.as_str())];
    let form = format!("token={}", token("viewer"));
    let large = "x".repeat(17 * 1024);
    for (path, form, status) in [
        ("/inspector/sign-in", form.as_str(), 303),
        ("/inspector/sign-in", "token=x", 401),
        ("/inspector/sign-in", "token=x&token=y", 422),
        ("/inspector/sign-in", &large, 413),
        ("/inspector/sign-in?a=b", &form, 400),
        ("/inspector/sign-out", "", 303),
        ("/inspector/sign-out?a=b", "", 400),
    ] {
        let answer = api.call("POST", path, &origin, form).await;
        assert_eq!(answer.status, status, "{path} {}", answer.text());
    }
    api.seen()
}

#[tokio::test]
async fn a_page_that_asks_for_a_principal_has_the_form_to_sign_in_and_continues_where_one_wanted_to()
 {
    let (_kit, lab) = lab().await;
    let stranger = Browser::of(&lab);
    let asked = stranger.get("/inspector/runs?status=failed").await;
    assert_eq!(asked.status, 401);
    is_harmless(&asked);
    let text = asked.text();
    assert!(
        text.contains("name=\"to\" value=\"runs?status=failed\""),
        "{text}"
    );
    let below = stranger.get("/inspector/runs/some-run").await.text();
    assert!(below.contains("action=\"../sign-in\""), "{below}");
    let page = stranger.get("/inspector/sign-in?to=//evil.example").await;
    is_harmless(&page);
    assert!(
        page.text().contains("name=\"to\" value=\"runs\""),
        "{}",
        page.text()
    );
    let wrong = stranger
        .post("/inspector/sign-in", "token=token-of-none&to=inbox")
        .await;
    assert_eq!(wrong.status, 401);
    assert!(
        wrong.text().contains("No principal has this token"),
        "{}",
        wrong.text()
    );
    assert!(!wrong.headers.contains_key("set-cookie"));
    let form = format!("token={}&to=https%3A%2F%2Fevil.example", token("viewer"));
    let begun = stranger.post("/inspector/sign-in", &form).await;
    assert_eq!(
        (begun.status, &begun.headers["location"]),
        (303, &"runs".parse().unwrap())
    );
}

#[tokio::test]
async fn a_cookie_counts_for_pages_alone_and_until_one_signs_out() {
    let (_kit, lab) = lab().await;
    let viewer = Browser::signed_in(&lab, "viewer").await;
    let page = viewer.get("/inspector/runs").await;
    assert_eq!(page.status, 200);
    is_harmless(&page);
    assert!(
        page.text().contains("<span class=\"who\">viewer</span>"),
        "{}",
        page.text()
    );
    let of_proxy = [
        ("accept", BROWSER),
        ("cookie", viewer.cookie.as_str()),
        ("authorization", "Basic dTpw"),
    ];
    let behind = viewer
        .client
        .send("GET", "/inspector/runs", &of_proxy, "")
        .await;
    assert_eq!(behind.status, 200, "what a proxy asks for is no token");
    for program in ["/runs", "/approvals", "/metrics"] {
        assert_eq!(viewer.get(program).await.status, 401, "{program}");
    }
    let elsewhere = Browser {
        cookie: viewer.cookie.replace("ktsu-", "ktsu-x"),
        ..Browser::of(&lab)
    };
    assert_eq!(elsewhere.get("/inspector/runs").await.status, 401);
    let out = viewer.post("/inspector/sign-out", "").await;
    assert_eq!(
        (out.status, &out.headers["location"]),
        (303, &"sign-in".parse().unwrap())
    );
    assert!(
        out.headers["set-cookie"]
            .to_str()
            .unwrap()
            .contains("Max-Age=0")
    );
    assert_eq!(viewer.get("/inspector/runs").await.status, 401);
}

#[tokio::test]
async fn a_form_of_another_site_or_of_another_port_changes_nothing() {
    let (_kit, lab) = lab().await;
    let run = waiting(&lab, "judged").await;
    let admin = Browser::signed_in(&lab, "admin").await;
    let path = format!("/inspector/do/runs/{run}/steps/a/review/decide");
    for origin in ["https://evil.example", "http://127.0.0.1:1", "null"] {
        let other = Browser {
            origin: origin.to_owned(),
            cookie: admin.cookie.clone(),
            ..Browser::of(&lab)
        };
        for path in [&path, "/inspector/sign-in", "/inspector/sign-out"] {
            let refused = other.post(path, "decision=approved").await;
            assert_eq!(refused.status, 403, "{origin} {path}: {}", refused.text());
        }
    }
    let headers = [("cookie", admin.cookie.as_str())];
    let without = admin
        .client
        .send("POST", &path, &headers, "decision=approved")
        .await;
    assert_eq!(without.status, 403, "no browser sends a form like that");
    assert_eq!(
        admin.get("/inspector/inbox").await.status,
        200,
        "still signed in"
    );
    for path in [
        format!("/inspector/do/runs/{run}/hold"),
        format!("/inspector/do/runs/{run}/pause?reason=x"),
    ] {
        let none = admin.post(&path, "").await;
        assert_eq!(none.status, 404, "{path} is the form of no page");
    }
    let stranger = Browser::of(&lab).post(&path, "decision=approved").await;
    assert_eq!(stranger.status, 401);
    assert!(stranger.text().contains("Sign in"), "{}", stranger.text());
    let decided = admin.post(&path, "decision=approved").await;
    assert_eq!(decided.status, 303, "{}", decided.text());
}

#[tokio::test]
async fn an_outcome_is_decided_by_a_form_with_a_reason_and_who_comes_second_hears_of_it() {
    let (_kit, lab) = lab().await;
    let run = waiting(&lab, "judged").await;
    let [first, second] = [
        Browser::signed_in(&lab, "approver").await,
        Browser::signed_in(&lab, "admin").await,
    ];
    let page = first.get("/inspector/inbox").await;
    is_harmless(&page);
    // Enter in a field of one line would press the first button, which approves.
    let forms = page.text();
    let form = forms.split("class=\"decide\"").nth(1).unwrap();
    let fields = form
        .split("</form>")
        .next()
        .unwrap()
        .split("<input ")
        .skip(1);
    assert!(
        fields
            .into_iter()
            .all(|field| field.starts_with("type=\"hidden\"")),
        "{form}"
    );
    let late = second.get("/inspector/inbox").await.text();
    let form = form_of(&late, "/review/decide").unwrap();
    let decided = first
        .submit(
            "/inspector/inbox",
            "/review/decide",
            &[("reason", "it is\r\nfine"), ("decision", "approved")],
        )
        .await;
    assert_eq!(decided.status, 303, "{}", decided.text());
    assert_eq!(decided.headers["location"], "../../../../../../inbox");
    assert!(
        !first
            .get("/inspector/inbox")
            .await
            .text()
            .contains("/review/decide")
    );
    assert_eq!(envelope(&lab, &run).await["status"], "complete");
    let admin = Client::showing(&lab.engine.url, &token("admin"));
    let record = admin
        .get(&format!("/runs/{run}/steps/a/review"))
        .await
        .json();
    let vote = record["votes"][0].to_string();
    assert!(
        vote.contains("\"approver\"") && vote.contains("it is\\nfine"),
        "{vote}"
    );
    let mut fields = form.hidden;
    fields.push(("decision".to_owned(), "rejected".to_owned()));
    let sent = url::form_urlencoded::Serializer::new(String::new())
        .extend_pairs(fields)
        .finish();
    let again = second
        .post(&format!("/inspector/{}", form.action), &sent)
        .await;
    assert_eq!(again.status, 409);
    is_harmless(&again);
    let text = again.text();
    assert!(text.contains("approved by approver"), "by whom: {text}");
    assert!(
        text.contains("href=\"../../../../../../inbox\">Back</a>"),
        "{text}"
    );
}

#[tokio::test]
async fn a_step_gets_its_data_by_a_form_that_says_what_is_wrong_with_them() {
    let (_kit, lab) = lab().await;
    let run = waiting(&lab, "reads").await;
    let approver = Browser::signed_in(&lab, "approver").await;
    for (data, why) in [("{", "data is no JSON"), ("{}", "text")] {
        let refused = approver
            .submit("/inspector/inbox", "/resume", &[("data:json", data)])
            .await;
        assert_eq!(refused.status, 422, "{}", refused.text());
        is_harmless(&refused);
        assert!(refused.text().contains(why), "{}", refused.text());
    }
    let data = [("data:json", "{\"text\": \"clause 7\"}")];
    let given = approver.submit("/inspector/inbox", "/resume", &data).await;
    assert_eq!(given.status, 303, "{}", given.text());
    let ended = envelope(&lab, &run).await;
    assert_eq!(ended["output"]["verdict"], "read", "{ended:#}");
}

#[tokio::test]
async fn a_run_is_paused_resumed_and_cancelled_from_its_page() {
    let (_kit, lab) = lab().await;
    let run = waiting(&lab, "reads").await;
    let operator = Browser::signed_in(&lab, "operator").await;
    let page = format!("/inspector/runs/{run}");
    for (verb, is_next) in [("pause", "resume"), ("resume", "pause")] {
        let done = operator
            .submit(&page, &format!("{run}/{verb}"), &[("reason", "a look")])
            .await;
        assert_eq!(done.status, 303, "{}", done.text());
        assert_eq!(done.headers["location"], format!("../../../runs/{run}"));
        let text = operator.get(&page).await.text();
        assert!(
            form_of(&text, &format!("{run}/{is_next}")).is_some(),
            "{verb}: {text}"
        );
    }
    let done = operator.submit(&page, &format!("{run}/cancel"), &[]).await;
    assert_eq!(done.status, 303, "{}", done.text());
    assert_eq!(envelope(&lab, &run).await["status"], "cancelled");
    let text = operator.get(&page).await.text();
    assert!(
        !text.contains("/inspector/do") && !text.contains("do/runs"),
        "{text}"
    );
}

#[tokio::test]
async fn a_branch_is_made_after_a_frame_with_other_values_and_its_page_is_shown() {
    let (_kit, lab) = lab().await;
    let admin = Client::showing(&lab.engine.url, &token("admin"));
    let ended = admin.run("hello", json!({})).await;
    let run = ended["run_id"].as_str().unwrap();
    let operator = Browser::signed_in(&lab, "operator").await;
    let frames = admin.frames(run).await;
    let is_done = |frame: &&Value| frame["type"] == "step.completed";
    let done = frames.iter().find(is_done).unwrap()["seq"]
        .as_u64()
        .unwrap();
    let page = format!("/inspector/runs/{run}/frames?frame={done}");
    is_harmless(&operator.get(&page).await);
    let refused = operator
        .submit(&page, "/fork", &[("set:json", "{\"nothing\": 1}")])
        .await;
    assert_eq!(refused.status, 422, "{}", refused.text());
    is_harmless(&refused);
    let back = format!("href=\"../../../runs/{run}/frames?frame={done}#f{done}\">Frame {done}</a>");
    assert!(refused.text().contains(&back), "{}", refused.text());
    assert!(
        refused.text().contains("set cannot change"),
        "{}",
        refused.text()
    );
    let fill = [
        ("set:json", "{\"step.greet.output.result\": [{\"a\": 2}]}"),
        ("effects", "suppress"),
        ("go:json", "true"),
        ("reason", "what if"),
    ];
    let made = operator.submit(&page, "/fork", &fill).await;
    assert_eq!(made.status, 303, "{}", made.text());
    let next = made.headers["location"].to_str().unwrap();
    let branch = next.strip_prefix("../../../runs/").unwrap();
    let ended = envelope(&lab, branch).await;
    assert_eq!(ended["status"], "complete", "{ended:#}");
    let text = operator
        .get(&format!("/inspector/runs/{branch}"))
        .await
        .text();
    assert!(text.contains("a branch") && text.contains(run), "{text}");
    let viewer = Browser::signed_in(&lab, "viewer").await;
    assert!(!viewer.get(&page).await.text().contains("/fork\""));
}
