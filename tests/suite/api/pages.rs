//! The pages of the inspector: what they show, and what they never do.

use std::collections::BTreeSet;

use base64::prelude::*;
use ktsu_evidence::page::verifier_page;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::describe::Described;
use crate::support::client::Answer;
use crate::support::model::{self, KEY, Model, Said};
use crate::support::{KitDir, Lab};

pub(super) const BROWSER: &str = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";

/// Texts that would run, load or hide something if they were markup.
pub(super) const HOSTILE: [&str; 8] = [
    "<script>alert(1)</script>",
    "\"><img src=x onerror=alert(1)>",
    "'><svg onload=alert(1)>",
    "</title></pre></textarea><iframe src=//evil.example>",
    "javascript:alert(1)",
    "&lt;b&gt; &amp; {{ params.x }}",
    "abc\u{202e}fed\u{2066}\u{200b}",
    "\u{1b}[31mred\u{0}\u{7f}",
];

/// The elements that pages have.
pub(crate) const TAGS: [&str; 53] = [
    "script", "article", "!DOCTYPE", "a", "aside", "body", "button", "code", "dd", "div", "dl",
    "dt", "footer", "form", "h1", "h2", "h3", "head", "header", "html", "input", "label", "link",
    "main", "meta", "nav", "option", "p", "pre", "rect", "section", "select", "span", "svg",
    "table", "tbody", "td", "text", "th", "thead", "title", "tr", "details", "summary", "textarea",
    "g", "path", "ol", "li", "del", "ins", "strong", "ul",
];

/// Visits what is described of the pages.
pub(super) async fn all(api: &Described, run: &str) {
    assert_eq!(api.get("/inspector/runs").await.status, 200);
    assert_eq!(api.get("/inspector/runs?colour=red").await.status, 400);
    for (query, status) in [
        (
            "text=a&workflow=&status=&principal=&since=&until=&min_cost=&flag=",
            200,
        ),
        (
            "since=2026-11&until=2026-11-20T10&min_cost=0.01&flag=asks&principal=ada",
            200,
        ),
        ("since=yesterday&until=&min_cost=much", 200),
    ] {
        let path = format!("/inspector/runs?{query}");
        assert_eq!(api.get(&path).await.status, status, "{path}");
    }
    assert_eq!(api.get("/inspector/api").await.status, 200);
    assert_eq!(api.get("/inspector/api?a=b").await.status, 400);
    assert_eq!(api.get("/inspector/evidence").await.status, 200);
    assert_eq!(api.get("/inspector/evidence?a=b").await.status, 400);
    for (query, status) in [
        ("", 200),
        ("?spec=a.eval.yaml&run=&before=", 200),
        ("?run=absent", 404),
        ("?before=eval_absent", 404),
        ("?colour=red", 400),
    ] {
        let path = format!("/inspector/evals{query}");
        assert_eq!(api.get(&path).await.status, status, "{path}");
    }
    let unfit = "/inspector/evals/absent?scenario=x";
    assert_eq!(api.get(unfit).await.status, 400);
    assert_eq!(api.get("/inspector/live?a=b").await.status, 400);
    for (path, status) in [
        ("kit", 200),
        ("kit?a=b", 400),
        ("kit/hello", 200),
        ("kit/hello?step=greet&all=params", 200),
        ("kit/hello?step=", 400),
        ("kit/hello?a=b", 400),
        ("kit/absent", 404),
    ] {
        let page = api.get(&format!("/inspector/{path}")).await;
        assert_eq!(page.status, status, "{path}");
    }
    assert_eq!(api.get("/inspector/inbox").await.status, 200);
    assert_eq!(api.get("/inspector/inbox?cursor=x").await.status, 400);
    for (query, status) in [
        (String::new(), 200),
        (format!("?a={run}&b={run}"), 200),
        (format!("?a={run}&b=absent"), 404),
        (format!("?a={run}&b={}", run.get(..8).unwrap()), 409),
        ("?colour=red".to_owned(), 400),
    ] {
        let page = api.get(&format!("/inspector/diff{query}")).await;
        assert_eq!(page.status, status, "{query}");
    }
    let signing = api.get("/inspector/sign-in").await;
    assert_eq!(
        signing.status, 303,
        "without principals, there is nothing to sign in to"
    );
    let page = format!("/inspector/runs/{run}");
    let shown = api.get(&page).await;
    assert_eq!(shown.status, 200);
    for (query, status) in [
        ("idle=x", 400),
        ("from=0&until=5", 200),
        ("until=5&step=greet", 200),
        ("from=5&until=5", 200),
        ("from=later", 400),
    ] {
        let path = format!("{page}?{query}");
        assert_eq!(api.get(&path).await.status, status, "{path}");
    }
    for (below, status) in [
        ("frames", 200),
        ("frames?frame=1", 200),
        ("frames?from=x", 400),
        ("graph", 200),
        ("graph?step=greet&open=greet", 200),
        ("graph?step=", 400),
        ("graph?colour=red", 400),
        ("why", 200),
        ("why?of=output", 200),
        ("why?not=absent", 200),
        ("why?of=", 400),
        ("why?of=output&not=greet", 400),
        ("world", 409),
        ("world?at=last", 400),
    ] {
        let answer = api.get(&format!("{page}/{below}")).await;
        assert_eq!(answer.status, status, "{below}");
    }
    for run in ["absent", run.get(..8).unwrap()] {
        for below in ["frames", "graph", "why", "world"] {
            let path = format!("/inspector/runs/{run}/{below}");
            assert!([404, 409].contains(&api.get(&path).await.status), "{path}");
        }
    }
    assert_eq!(api.get("/inspector/runs/absent").await.status, 404);
    let several = format!("/inspector/runs/{}", run.get(..8).unwrap());
    assert_eq!(api.get(&several).await.status, 409);
    let style = style(&shown.text());
    assert_eq!(api.get(&format!("/inspector/{style}")).await.status, 200);
    assert_eq!(
        api.get(&format!("/inspector/{style}?a=b")).await.status,
        400
    );
    assert_eq!(api.get("/inspector/style-0.css").await.status, 404);
    assert_eq!(api.get("/inspector/verify.html").await.status, 200);
}

/// The name of the style sheet that a page loads.
fn style(page: &str) -> String {
    let (_, rest) = page.split_once("rel=\"stylesheet\" href=\"").unwrap();
    let (link, _) = rest.split_once('"').unwrap();
    link.trim_start_matches("../").to_owned()
}

fn header<'a>(answer: &'a Answer, name: &str) -> &'a str {
    answer.headers[name].to_str().unwrap()
}

/// A page loads its style sheet, runs nothing, and says so to the browser.
pub(super) fn is_harmless(page: &Answer) {
    assert_eq!(page.kind(), "text/html; charset=utf-8");
    let policy = header(page, "content-security-policy");
    assert!(
        policy.starts_with("default-src 'none'; style-src 'self'; script-src 'self';"),
        "{policy}"
    );
    assert!(
        policy.contains("require-trusted-types-for 'script'"),
        "{policy}"
    );
    assert!(!policy.contains("unsafe"), "{policy}");
    assert_eq!(header(page, "x-content-type-options"), "nosniff");
    assert_eq!(header(page, "cache-control"), "no-store");
    let text = page.text();
    // What is recorded has no `<` on a page, so these are the page's own.
    for tag in text.split('<').skip(1) {
        let tag = tag.split('>').next().unwrap();
        let name = tag.trim_start_matches('/').split(' ').next().unwrap();
        assert!(TAGS.contains(&name), "<{tag}>");
        // Outside of quotes, which values do not end.
        let bare: String = tag.split('"').step_by(2).collect();
        if name == "script" {
            let is_own = tag.contains("src=\"live-") || tag.contains("../live-");
            assert!(tag == "/script" || is_own, "<{tag}>");
            continue;
        }
        for never in [" on", " style=", " src="] {
            assert!(!bare.contains(never), "<{tag}>");
        }
    }
    for part in text.split(" href=\"").skip(1) {
        let link = part.split('"').next().unwrap();
        let is_relative = !link.contains(':') && !link.starts_with('/');
        assert!(is_relative, "{link} does not work behind a prefix");
    }
    let hidden = |c: char| c.is_control() && c != '\n' && c != '\t';
    assert!(
        !text.contains(hidden) && !text.contains('\u{202e}'),
        "{text:?}"
    );
}

/// Whether the inbox has these questions, of whatever kind.
pub(super) async fn are_in_inbox(api: &Described, ids: &[&str], expected: bool) {
    let page = api.get("/inspector/inbox").await;
    is_harmless(&page);
    let text = page.text();
    for id in ids {
        assert_eq!(text.contains(id), expected, "{id}: {text}");
    }
}

/// A workflow with a fan-out, alone and as the child of another one; the model fails at `bad`.
pub(super) async fn lab() -> (KitDir, Lab, Described) {
    let model = Model::scripted(|call| match call.user().as_str() {
        "bad" => Said::json(&json!({"noanswer": 1})),
        user => Said::answer(user),
    })
    .await;
    let fan = r#"
params: {schema: {type: object, required: [list], properties: {list: {}}}}
pipeline:
  - {id: each, agent: ./agents/echo.agent.yaml, for_each: {from: params.list, max_failures: 1}, params: {msg: "{{ item }}"}}
  - {id: last, depends_on: [each], transform: {inputs: [{from: step.each.results}], ops: []}}
output: {map: {all: "{{ step.last.result }}"}}
"#;
    let parent = r#"
params: {schema: {type: object, required: [list], properties: {list: {}}}}
pipeline:
  - {id: call, workflow: ./fan.workflow.yaml, params: {list: "{{ params.list }}"}}
"#;
    let kit = model::kit(
        &model,
        &[
            ("fan", &format!("visibility: sub-workflow{fan}")),
            ("parent", parent),
            ("alone", fan),
        ],
    );
    let lab = Lab::new(&kit, &[KEY]).await;
    let api = Described::new(&lab.client).await;
    (kit, lab, api)
}

/// The script finds in each what changes, and the run whose changes it follows.
#[tokio::test]
async fn the_pages_of_a_run_follow_it() {
    let (_kit, lab, api) = lab().await;
    let run = lab.client.run("parent", json!({"list": ["a"]})).await;
    let run = run["run_id"].as_str().unwrap();
    for page in [
        run.to_owned(),
        format!("{run}/graph"),
        format!("{run}/graph?step=call"),
        format!("{run}/frames"),
        format!("{run}/frames?frame=3"),
        format!("{run}/steps/call"),
        format!("{run}%2Fcall"),
        format!("{run}%2Fcall/graph"),
        format!("{run}%2Fcall/frames"),
    ] {
        let text = api.get(&format!("/inspector/runs/{page}")).await.text();
        let subject = format!("data-live=\"{run}\"");
        assert_eq!(text.matches(&subject).count(), 1, "{page}: {text}");
        let parts = text.split("data-part=\"").skip(1);
        let parts: Vec<&str> = parts.filter_map(|part| part.split('"').next()).collect();
        let distinct: BTreeSet<&str> = parts.iter().copied().collect();
        assert!(
            parts.len() >= 2 && distinct.len() == parts.len(),
            "{page}: {parts:?}"
        );
    }
}

#[tokio::test]
async fn a_run_is_listed_and_shown_with_its_steps_items_and_children() {
    let (_kit, lab, api) = lab().await;
    let empty = api.get("/inspector/runs").await;
    is_harmless(&empty);
    assert!(
        empty.text().contains("No run is recorded yet"),
        "{}",
        empty.text()
    );
    let ended = lab
        .client
        .run("parent", json!({"list": ["a", "bad"]}))
        .await;
    let run = ended["run_id"].as_str().unwrap();
    for (query, is_listed) in [
        ("", true),
        ("?workflow=&status=", true),
        ("?workflow=parent&status=complete", true),
        ("?workflow=alone", false),
        ("?status=failed", false),
    ] {
        let list = api.get(&format!("/inspector/runs{query}")).await;
        is_harmless(&list);
        let link = format!("<a href=\"runs/{run}\">");
        assert_eq!(
            list.text().contains(&link),
            is_listed,
            "{query}: {}",
            list.text()
        );
    }
    let page = api.get(&format!("/inspector/runs/{run}")).await;
    is_harmless(&page);
    let text = page.text();
    for row in [
        "call",
        "call%2Feach",
        "call%2Feach.0",
        "call%2Feach.1",
        "call%2Flast",
    ] {
        let link = format!("<a href=\"{run}?step={row}\">");
        assert!(text.contains(&link), "{row}: {text}");
    }
    assert!(text.contains("schema_violation"), "{text}");
    let step = api
        .get(&format!("/inspector/runs/{run}?step=call/each.1"))
        .await;
    is_harmless(&step);
    let text = step.text();
    assert!(text.contains("aria-current=\"true\""), "{text}");
    assert!(
        text.contains("fake/gpt-4o-mini"),
        "the call of the model: {text}"
    );
    let none = api
        .get(&format!("/inspector/runs/{run}?step=call/each.9"))
        .await;
    assert!(
        none.text().contains("The run has no step"),
        "{}",
        none.text()
    );
    let child = api.get(&format!("/inspector/runs/{run}%2Fcall")).await;
    is_harmless(&child);
    let link = format!("<a href=\"{run}%2Fcall?step=call%2Feach\">");
    assert!(child.text().contains(&link), "{}", child.text());
}

#[tokio::test]
async fn of_many_items_those_have_rows_that_did_not_just_complete() {
    let (_kit, lab, api) = lab().await;
    let mut list: Vec<String> = (0..20).map(|n| format!("item {n}")).collect();
    list[7] = "bad".to_owned();
    let ended = lab.client.run("alone", json!({"list": list})).await;
    let run = ended["run_id"].as_str().unwrap();
    let rows = |page: &str| page.matches("?step=each.").count();
    let page = api.get(&format!("/inspector/runs/{run}")).await.text();
    assert_eq!(rows(&page), 1, "{page}");
    assert!(page.contains("?step=each.7\""), "{page}");
    let more = format!("<a href=\"{run}?items=all\">19 more, all complete</a>");
    assert!(page.contains(&more), "{page}");
    let all = api.get(&format!("/inspector/runs/{run}?items=all")).await;
    assert_eq!(rows(&all.text()), 20, "{}", all.text());
    let folded = api.get(&format!("/inspector/runs/{run}?step=each.3")).await;
    assert!(folded.text().contains("item 3"), "{}", folded.text());
}

#[tokio::test]
async fn what_is_recorded_is_text_on_the_page_whatever_it_is() {
    let (_kit, lab, api) = lab().await;
    for text in HOSTILE {
        let ended = lab
            .client
            .run("alone", json!({"list": [text, "bad"]}))
            .await;
        let run = ended["run_id"].as_str().unwrap();
        for query in ["", "?step=each.0", "?step=last"] {
            let page = api.get(&format!("/inspector/runs/{run}{query}")).await;
            is_harmless(&page);
        }
    }
    let sent = url::form_urlencoded::byte_serialize(HOSTILE[1].as_bytes());
    let sent: String = sent.collect();
    for path in ["/inspector/runs?workflow=", "/inspector/runs?status="] {
        is_harmless(&api.get(&format!("{path}{sent}")).await);
    }
}

#[tokio::test]
async fn a_browser_gets_a_page_for_what_cannot_be_shown_and_a_program_a_problem() {
    let (_kit, lab, api) = lab().await;
    for (path, status) in [
        ("/inspector/runs/absent", 404),
        ("/inspector/runs?colour=red", 400),
        ("/inspector/nothing", 404),
    ] {
        let headers = [("accept", BROWSER)];
        let page = lab.client.send("GET", path, &headers, "").await;
        assert_eq!(page.status, status, "{path}");
        is_harmless(&page);
        assert!(page.text().contains("All runs"), "{path}: {}", page.text());
        let problem = api.get(path).await;
        assert_eq!(problem.kind(), "application/problem+json", "{path}");
    }
    let home = [("accept", BROWSER)];
    let home = lab.client.send("GET", "/", &home, "").await;
    assert_eq!(home.status, 303);
    assert_eq!(header(&home, "location"), "inspector/runs");
    let posted = lab.client.post("/inspector/runs", "{}").await;
    assert_eq!(posted.status, 405);
}

#[tokio::test]
async fn the_verifier_of_evidence_is_served_as_it_is_written_and_may_not_connect() {
    let (_kit, _lab, api) = lab().await;
    let page = api.get("/inspector/verify.html").await;
    assert_eq!(page.status, 200);
    assert_eq!(page.kind(), "text/html; charset=utf-8");
    let text = page.text();
    assert_eq!(text, verifier_page().text);
    let policy = header(&page, "content-security-policy");
    assert!(policy.contains("connect-src 'none'"), "{policy}");
    assert!(text.contains(&format!("content=\"{policy}\"")), "{policy}");
    for element in ["script", "style"] {
        let (_, rest) = text.split_once(&format!("<{element}>")).unwrap();
        let (inner, _) = rest.split_once(&format!("</{element}>")).unwrap();
        let digest = BASE64_STANDARD.encode(Sha256::digest(inner));
        let named = format!("{element}-src 'sha256-{digest}'");
        assert!(policy.contains(&named), "{element}: {policy}");
    }
    assert!(header(&page, "cache-control").contains("no-store"));
}

#[tokio::test]
async fn a_style_sheet_is_kept_for_ever_under_the_name_of_its_content() {
    let (_kit, _lab, api) = lab().await;
    let page = api.get("/inspector/runs").await.text();
    let sheet = api.get(&format!("/inspector/{}", style(&page))).await;
    assert_eq!(sheet.kind(), "text/css; charset=utf-8");
    assert!(header(&sheet, "cache-control").contains("immutable"));
    let text = sheet.text();
    for never in ["url(", "@import", "http"] {
        assert!(!text.contains(never), "{never}");
    }
    assert!(text.len() < 150 * 1024);
}
