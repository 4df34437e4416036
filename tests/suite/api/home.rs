//! `GET /`: what is here, told to whoever may know it.

use std::collections::BTreeSet;

use ktsu::assemble::LedgerPlace;
use serde_json::{Value, json};

use super::describe::Described;
use super::pages::is_harmless;
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
        let page = lab.client.send("GET", "/inspector/api", &headers, "").await;
        assert_eq!(page.status, 401, "{token}");
        assert!(!page.text().contains("hello"), "{}", page.text());
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
async fn a_browser_is_led_to_the_pages_and_a_program_gets_json() {
    let (_kit, lab, api) = lab("http://127.0.0.1:9").await;
    let home = api.call("GET", "/", &[("accept", BROWSER)], "").await;
    assert_eq!(home.status, 303);
    let header = |name: &str| home.headers[name].to_str().unwrap().to_owned();
    assert_eq!(header("location"), "inspector/runs");
    assert!(header("vary").contains("accept"));
    let page = api.get("/inspector/api").await;
    is_harmless(&page);
    let text = page.text();
    assert!(text.contains("POST /invoke/hello"), "{text}");
    assert!(text.contains("requires the header X-Key"), "{text}");
    assert!(text.contains("GET /runs/{id}/trace"), "{text}");
    assert!(!text.contains(HOOK), "{text}");
    for accept in ["*/*", "application/json"] {
        let answer = api.call("GET", "/", &[("accept", accept)], "").await;
        assert_eq!(answer.kind(), "application/json");
    }
    let head = [("accept", BROWSER)];
    let head = lab.client.send("HEAD", "/", &head, "").await;
    assert_eq!((head.status, head.body.len()), (303, 0));
}
