//! `GET /`: what is here, told to whoever may know it.

use std::collections::BTreeSet;

use ktsu::assemble::LedgerPlace;
use serde_json::{Value, json};

use super::describe::Described;
use super::{HOOK, lab};
use crate::support::{KitDir, Lab};

const ENVIRONMENT: &str = "
variables: {T_OLGA: token-of-olga, T_VERA: token-of-vera, T_RITA: token-of-rita}
principals:
  - {name: olga, token: {env: T_OLGA}, roles: [operator]}
  - {name: vera, token: {env: T_VERA}, roles: [viewer]}
  - {name: rita, token: {env: T_RITA}, roles: [runtime]}
";
const BROWSER: &str = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";

fn names(list: &Value, name: &str) -> BTreeSet<String> {
    let list = list.as_array().unwrap().iter();
    list.map(|one| one[name].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn where_no_one_is_asked_for_a_token_every_root_workflow_and_route_is_reported() {
    let (_kit, _lab, api) = lab("http://127.0.0.1:9").await;
    let home = api.get("/").await.json();
    assert_eq!(home["name"], "ktsu");
    assert_eq!(home["version"], env!("CARGO_PKG_VERSION"));
    let local = json!({"required": false, "principal": "local"});
    assert_eq!(home["authentication"], local);
    let told: Vec<&str> = vec!["hello", "locked", "thinking", "whole"];
    let workflows = names(&home["workflows"], "name");
    assert_eq!(workflows.iter().collect::<Vec<_>>(), told);
    let asks = &home["workflows"][1];
    assert_eq!(asks["header"], "X-Key");
    assert!(!home.to_string().contains(HOOK));
    let paths = names(&home["routes"], "path");
    for path in ["/invoke/{workflow}", "/runs/{id}/trace", "/openapi.json"] {
        assert!(paths.contains(path), "{paths:?}");
    }
    let among_services = ["report", "complete", "tools", "heartbeat"];
    for word in among_services {
        assert!(!paths.iter().any(|path| path.contains(word)), "{paths:?}");
    }
    for route in home["routes"].as_array().unwrap() {
        let words = route["description"].as_str().unwrap();
        assert!(words.ends_with('.') && words.len() > 10, "{route}");
    }
}

#[tokio::test]
async fn a_stranger_learns_what_health_says_and_how_to_show_a_token() {
    let kit = KitDir::new(&[
        ("hello", "pipeline: []\n"),
        ("part", "visibility: sub-workflow\npipeline: []\n"),
    ]);
    let lab = Lab::in_environment(LedgerPlace::Memory, &kit, ENVIRONMENT, &[]).await;
    let api = Described::new(&lab.client).await;
    let open = BTreeSet::from(["/health", "/openapi.json"].map(str::to_owned));
    for token in ["", "Bearer token-of-nobody", "Basic eA=="] {
        let headers = [("authorization", token)];
        let headers = if token.is_empty() { &[][..] } else { &headers };
        let home = api.call("GET", "/", headers, "").await.json();
        assert_eq!(home["workflows"], json!([]), "{token}");
        assert_eq!(names(&home["routes"], "path"), open, "{token}");
        assert_eq!(home["authentication"]["required"], true);
        assert_eq!(home["authentication"]["principal"], Value::Null);
        let how = home["authentication"]["how"].as_str().unwrap();
        assert!(how.contains("Authorization: Bearer TOKEN"), "{how}");
        let headers = [("authorization", token), ("accept", BROWSER)];
        let page = lab.client.send("GET", "/", &headers, "").await;
        assert!(!page.text().contains("hello"), "{}", page.text());
        assert!(page.text().contains("Bearer TOKEN"), "{}", page.text());
    }
    // Each principal is told what their roles are for.
    for (who, workflows, can, cannot) in [
        (
            "olga",
            json!(["hello"]),
            "/runs/{id}/pause",
            "/runs/{id}/steps/{step}/approval/decide",
        ),
        ("vera", json!([]), "/runs/{id}/trace", "/invoke/{workflow}"),
        ("rita", json!([]), "/health", "/runs"),
    ] {
        let token = format!("Bearer token-of-{who}");
        let home = api.call("GET", "/", &[("authorization", &token)], "").await;
        let home = home.json();
        let by_token = json!({"required": true, "principal": who});
        assert_eq!(home["authentication"], by_token);
        assert_eq!(json!(names(&home["workflows"], "name")), workflows, "{who}");
        let paths = names(&home["routes"], "path");
        assert!(
            paths.contains(can) && !paths.contains(cannot),
            "{who}: {paths:?}"
        );
    }
    lab.close().await;
}

#[tokio::test]
async fn a_browser_gets_a_page_that_loads_and_runs_nothing() {
    let (_kit, lab, api) = lab("http://127.0.0.1:9").await;
    let page = api.call("GET", "/", &[("accept", BROWSER)], "").await;
    assert_eq!(page.status, 200);
    assert_eq!(page.kind(), "text/html; charset=utf-8");
    let header = |name: &str| page.headers[name].to_str().unwrap().to_owned();
    let policy = header("content-security-policy");
    assert!(
        policy.starts_with("default-src 'none'; style-src 'sha256-"),
        "{policy}"
    );
    assert!(policy.contains("frame-ancestors 'none'"), "{policy}");
    assert!(!policy.contains("unsafe"), "{policy}");
    assert_eq!(header("x-content-type-options"), "nosniff");
    assert!(header("vary").contains("accept"));
    let text = page.text();
    for never in [
        "<script", "src=", "http://", "https://", "style=", "@import", "url(",
    ] {
        assert!(!text.contains(never), "{never} in {text}");
    }
    assert!(text.contains("<td>POST /invoke/hello</td>"), "{text}");
    assert!(text.contains("href=\"/openapi.json\""), "{text}");
    // The style is the one that the policy names.
    use sha2::Digest as _;
    let (_, style) = text.split_once("<style>").unwrap();
    let (style, _) = style.split_once("</style>").unwrap();
    use base64::Engine as _;
    let digest = base64::prelude::BASE64_STANDARD.encode(sha2::Sha256::digest(style));
    assert!(policy.contains(&format!("'sha256-{digest}'")), "{policy}");
    for accept in ["*/*", "application/json"] {
        let answer = api.call("GET", "/", &[("accept", accept)], "").await;
        assert_eq!(answer.kind(), "application/json");
        assert!(answer.headers.get("content-security-policy").is_none());
    }
    let head = lab
        .client
        .send("HEAD", "/", &[("accept", BROWSER)], "")
        .await;
    assert_eq!((head.status, head.body.len()), (200, 0));
}
