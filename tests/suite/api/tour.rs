//! Every status of every route, once.

use ktsu_ledger::appender::Options;
use ktsu_ledger::disk_space::DiskSpace;
use ktsu_ledger::store::{MemoryStore, Store as _};
use serde_json::json;

use super::describe::{Case, Described};
use super::{HOOK, lab};
use crate::support::{KitDir, Sink, Within};

/// A route or a status that is added without a line here fails this test.
#[tokio::test]
async fn every_described_answer_is_given_and_fits_its_description() {
    let sink = Sink::new().await;
    let (kit, _lab, api) = lab(&sink.url).await;
    let run = walk(&api).await;
    super::compared::all(&api, &run).await;
    refusals(&api, &run).await;
    super::steps::all(&api, &run).await;
    super::pages::all(&api, &run).await;
    super::step_page::all(&api, &run).await;
    let mut seen = api.seen();
    seen.extend(without_a_disk(&kit, &api).await);
    seen.extend(without_room(&kit, &api).await);
    seen.extend(super::recompute::all(&api).await);
    seen.extend(super::people::all(&api).await);
    seen.extend(super::steer::all(&api).await);
    seen.extend(super::hold::all(&api).await);
    seen.extend(super::evals::all(&api).await);
    seen.extend(super::reports::all(&api).await);
    seen.extend(super::approvals::all(&api).await);
    seen.extend(super::reviews::all(&api).await);
    seen.extend(super::suspensions::all(&api).await);
    seen.extend(super::world::all(&api).await);
    seen.extend(super::subscriptions::all(&api).await);
    seen.extend(super::posts::all(&api).await);
    seen.extend(super::access::all(&api).await);
    seen.extend(super::signed_in::all(&api).await);
    let described = api.described();
    let missing: Vec<&Case> = described.difference(&seen).collect();
    assert!(missing.is_empty(), "described, but never seen: {missing:?}");
}

async fn walk(api: &Described) -> String {
    assert_eq!(api.get("/").await.status, 200);
    assert_eq!(api.get("/health").await.status, 200);
    let accepted = api.post("/invoke/hello", "{}").await;
    assert_eq!(accepted.status, 202);
    let run = accepted.json()["run_id"].as_str().unwrap().to_owned();
    let whole = api.post("/invoke/whole?wait=60", "").await;
    assert_eq!(whole.status, 200);
    let whole = whole.json()["run_id"].as_str().unwrap().to_owned();
    for below in [
        "",
        "/envelope",
        "/state",
        "/frames",
        "/trace",
        "/trace?frame=3",
        "/skeleton",
        "/skeleton?items=0",
        "/evidence",
        "/trace?frame=3&direction=descendants",
        "/trace?of=status",
        "/trace?type=step.",
        "/frames?expand=true",
    ] {
        for run in [
            &run,
            &whole,
            &format!("{whole}%2Finner"),
            &format!("{whole}/inner"),
        ] {
            let answer = api.get(&format!("/runs/{run}{below}")).await;
            assert_eq!(answer.status, 200, "{run}{below}");
        }
    }
    for (run, status) in [
        (format!("{run}/fork"), 200),
        (format!("{run}/fork?at_frame=1"), 200),
        (format!("{run}/fork?at_frame=9999"), 422),
        (format!("{whole}%2Finner/fork"), 422),
    ] {
        assert_eq!(
            api.get(&format!("/runs/{run}")).await.status,
            status,
            "{run}"
        );
    }
    let check = r#"{"dry_run": true}"#;
    let checked = api.post(&format!("/runs/{run}/fork"), check).await;
    assert_eq!(checked.status, 200, "{}", checked.text());
    for (run, step) in [(&run, "greet"), (&whole, "after")] {
        let answer = api.get(&format!("/runs/{run}/trace?why_not={step}")).await;
        assert_eq!(answer.status, 200, "{step}: {}", answer.text());
    }
    assert_eq!(api.get("/runs?limit=1").await.status, 200);
    let request = axum::http::Request::get("/events");
    assert!(api.client.listen(request).await.unwrap().is_ok());
    api.saw("GET", "/events", 200);
    assert_eq!(api.get("/events?pattern=run.complete").await.status, 400);
    for path in ["/summaries", "/inspector/live"] {
        let request = axum::http::Request::get(path);
        assert!(api.client.listen(request).await.unwrap().is_ok());
        api.saw("GET", path, 200);
    }
    assert_eq!(api.get("/evidence").await.status, 200);
    assert_eq!(api.get("/evidence?a=b").await.status, 400);
    assert_eq!(api.get("/statistics").await.status, 200);
    let part = "/statistics?intervals=7&since=2026&until=2030-01-01&flag=branch&principal=local";
    assert_eq!(api.get(part).await.status, 200);
    assert_eq!(api.get("/statistics?intervals=0").await.status, 400);
    let narrow = "/runs?text=hello&principal=local&since=2026-01&min_cost_micro_usd=0";
    assert_eq!(api.get(narrow).await.status, 200);
    let page = [("accept", "text/html")];
    assert_eq!(api.call("GET", "/", &page, "").await.status, 303);
    run
}

async fn refusals(api: &Described, run: &str) {
    foreign(api, run).await;
    // Two runs begin alike: their ids begin with the time.
    let prefix = run.get(..8).unwrap();
    for below in [
        "",
        "/envelope",
        "/state",
        "/frames",
        "/trace",
        "/skeleton",
        "/evidence",
        "/fork",
        "/world",
    ] {
        assert_eq!(api.get(&format!("/runs/absent{below}")).await.status, 404);
        let several = api.get(&format!("/runs/{prefix}{below}")).await;
        assert_eq!(several.status, 409);
        assert_eq!(several.json()["code"], "ambiguous_id");
    }
    for (path, words) in [
        (format!("/runs/{run}/world?at=x"), "at must be an integer"),
        (
            format!("/runs/{run}/fork?at_frame=x"),
            "at_frame must be an integer",
        ),
        (
            format!("/runs/{run}/skeleton?items=10001"),
            "items must be an integer from 0 to 10000",
        ),
        (
            format!("/runs/{run}/evidence?at=1"),
            "unknown query parameter at",
        ),
        (
            format!("/runs/{run}/state?at=1"),
            "unknown query parameter at",
        ),
        (
            "/runs?colour=red".to_owned(),
            "unknown query parameter colour",
        ),
        ("/runs?%00%3Cx%3E=red".to_owned(), "unknown query parameter"),
        ("/runs?cursor=here".to_owned(), "cursor must be the `next`"),
        (
            "/runs?limit=-1".to_owned(),
            "limit must be an integer from 1 to 1000",
        ),
        (
            "/runs?limit=0".to_owned(),
            "limit must be an integer from 1 to 1000",
        ),
        (
            "/runs?limit=1001".to_owned(),
            "limit must be an integer from 1 to 1000",
        ),
        (
            "/approvals?limit=10001".to_owned(),
            "limit must be an integer from 1 to 10000",
        ),
        (
            "/approvals?cursor=here".to_owned(),
            "cursor must be the `next`",
        ),
        ("/runs?workflow=".to_owned(), "workflow is empty"),
        ("/runs?limit=1&limit=2".to_owned(), "limit appears twice"),
        (
            "/runs?status=foo".to_owned(),
            "status must be one of pending, running, waiting, complete, failed",
        ),
        ("/?x=1".to_owned(), "unknown query parameter x"),
        ("/health?deep=1".to_owned(), "unknown query parameter deep"),
        ("/metrics?deep=1".to_owned(), "unknown query parameter deep"),
        (
            format!("/runs/{run}?limit=1"),
            "unknown query parameter limit",
        ),
        (
            format!("/runs/{run}/envelope?expand=true"),
            "unknown query parameter expand",
        ),
        (
            format!("/runs/{run}/frames?form=1"),
            "unknown query parameter form",
        ),
        (
            format!("/runs/{run}/frames?from=x"),
            "from must be an integer",
        ),
        (
            format!("/runs/{run}/frames?limit=0"),
            "limit must be an integer from 1 to 10000",
        ),
        (
            format!("/runs/{run}/frames?expand=yes"),
            "expand must be true or false",
        ),
        (
            format!("/runs/{run}/trace?frames=1"),
            "unknown query parameter frames",
        ),
        (
            format!("/runs/{run}/trace?frame=x"),
            "frame must be an integer",
        ),
        (
            format!("/runs/{run}/trace?frame=1&direction=up"),
            "direction must be one of ancestors, descendants",
        ),
        (
            format!("/runs/{run}/trace?frame=1&of=status"),
            "exclude each other",
        ),
    ] {
        let answer = api.get(&path).await;
        assert_eq!(answer.status, 400, "{path}");
        assert_eq!(answer.json()["code"], "invalid_query");
        let detail = answer.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains(words), "{path}: {detail}");
    }
    assert_eq!(api.client.get("/openapi.json?x=1").await.status, 400);
    assert_eq!(
        api.get(&format!("/runs/{run}/trace?frame=9999"))
            .await
            .status,
        404
    );
    for nothing in [
        "of=step.zzz.x",
        "of=zzz..b",
        "of=zzz",
        "why_not=zzz",
        "why_not=zzz/zzz",
        "step=zzz",
        "step=zzz&type=step.",
    ] {
        let answer = api.get(&format!("/runs/{run}/trace?{nothing}")).await;
        assert_eq!(answer.status, 404, "{nothing}");
        assert!(!answer.text().contains("zzz"), "{}", answer.text());
    }
    for step in ["greet", "step.greet"] {
        let answer = api.get(&format!("/runs/{run}/trace?step={step}")).await;
        assert_eq!(answer.status, 200, "{step}: {}", answer.text());
    }
    for (query, words) in [
        ("direction=ancestors", "direction requires frame"),
        (
            "direction=descendants&of=status",
            "direction requires frame",
        ),
        ("frame=1&step=greet", "step cannot be combined"),
        ("of=status&type=run.", "type cannot be combined"),
        ("why_not=greet&step=greet", "step cannot be combined"),
    ] {
        let answer = api.get(&format!("/runs/{run}/trace?{query}")).await;
        assert_eq!(answer.status, 400, "{query}");
        assert_eq!(answer.json()["code"], "invalid_query");
        assert!(answer.text().contains(words), "{}", answer.text());
    }
    for (query, words) in [
        ("wait=x", "wait must be an integer from 0 to 3600"),
        ("wait=3601", "wait must be an integer from 0 to 3600"),
        ("weight=1", "unknown query parameter weight"),
    ] {
        let answer = api.post(&format!("/invoke/hello?{query}"), "{}").await;
        assert_eq!(answer.status, 400, "{query}");
        let detail = answer.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains(words), "{query}: {detail}");
    }
    for (workflow, headers, body, expected) in [
        ("hello", vec![], "nope", 400),
        ("locked", vec![("X-Key", "wrong")], "{}", 401),
        ("locked", vec![("X-Key", HOOK)], "{}", 202),
        ("absent", vec![], "{}", 404),
        ("hello", vec![("Idempotency-Key", "k")], "{}", 202),
        (
            "hello",
            vec![("Idempotency-Key", "k")],
            r#"{"msg":"other"}"#,
            409,
        ),
        ("hello", vec![("Idempotency-Key", "")], "{}", 400),
        ("hello", vec![("Idempotency-Key", "a b")], "{}", 400),
        (
            "hello",
            vec![("Idempotency-Key", "a"), ("Idempotency-Key", "b")],
            "{}",
            400,
        ),
        ("hello", vec![], r#"{"msg":5}"#, 422),
    ] {
        let path = format!("/invoke/{workflow}");
        let answer = api.call("POST", &path, &headers, body).await;
        assert_eq!(answer.status, expected, "{workflow} {headers:?} {body}");
    }
    let large = " ".repeat(1024 * 1024 + 1);
    assert_eq!(api.post("/invoke/hello", &large).await.status, 413);
}

/// 403, from every route: a page of another site asks.
async fn foreign(api: &Described, run: &str) {
    let before = api.get("/runs").await.body;
    for headers in [
        vec![("origin", "https://evil.example")],
        vec![("origin", "null")],
        vec![("sec-fetch-site", "cross-site")],
    ] {
        for (method, path) in [
            ("GET", "/".to_owned()),
            ("GET", "/health".to_owned()),
            ("GET", "/runs".to_owned()),
            ("GET", "/inspector/runs".to_owned()),
            ("GET", "/inspector/diff".to_owned()),
            ("GET", "/inspector/inbox".to_owned()),
            ("GET", "/inspector/api".to_owned()),
            ("GET", "/inspector/evals".to_owned()),
            ("GET", "/inspector/evals/eval_absent".to_owned()),
            ("GET", "/inspector/evidence".to_owned()),
            ("GET", "/inspector/kit".to_owned()),
            ("GET", "/inspector/kit/hello".to_owned()),
            ("GET", "/evidence".to_owned()),
            ("GET", "/inspector/live".to_owned()),
            ("GET", "/statistics".to_owned()),
            ("GET", "/summaries".to_owned()),
            ("GET", "/inspector/sign-in".to_owned()),
            ("GET", "/inspector/style-0.css".to_owned()),
            ("POST", "/invoke/hello".to_owned()),
            ("GET", format!("/runs/{run}")),
            ("GET", format!("/inspector/runs/{run}")),
            ("GET", format!("/inspector/runs/{run}/frames")),
            ("GET", format!("/inspector/runs/{run}/graph")),
            ("GET", format!("/inspector/runs/{run}/why")),
            ("GET", format!("/inspector/runs/{run}/world")),
            ("GET", format!("/inspector/runs/{run}/steps/greet")),
            ("GET", format!("/runs/{run}/payload")),
            ("GET", format!("/runs/{run}/search?text=a")),
            ("GET", format!("/runs/{run}/envelope")),
            ("GET", format!("/runs/{run}/evidence")),
            ("GET", format!("/runs/{run}/fork")),
            ("GET", format!("/runs/{run}/frames")),
            ("GET", format!("/runs/{run}/trace")),
            ("GET", format!("/runs/{run}/world")),
        ] {
            let answer = api.call(method, &path, &headers, "{}").await;
            assert_eq!(answer.status, 403, "{method} {path}");
            assert_eq!(answer.json()["code"], "foreign_origin");
        }
    }
    assert_eq!(api.get("/runs").await.body, before);
}

/// 503, from every route that tells it: another owner took the ledger, so this one has stopped.
async fn without_a_disk(kit: &KitDir, api: &Described) -> Vec<Case> {
    let store = MemoryStore::new();
    let within = Within::new(kit.load(), store.clone(), Options::default(), &[], None).await;
    let api = api.at(&within.client);
    store.clone().acquire().unwrap();
    let first = api.post("/invoke/hello", "{}").await;
    assert_eq!(first.status, 503);
    assert_eq!(first.json()["code"], "ledger_stopped");
    let health = api.get("/health").await;
    assert_eq!(health.status, 503);
    assert_eq!(health.json()["status"], "error");
    // Nothing was acknowledged, and what can be read is still read.
    assert_eq!(api.get("/runs").await.json(), json!({"runs": []}));
    api.seen().into_iter().collect()
}

/// 507: new runs are refused while the disk is nearly full.
async fn without_room(kit: &KitDir, api: &Described) -> Vec<Case> {
    let options = Options {
        disk_space: DiskSpace::by(1000, || Some(999)),
        ..Options::default()
    };
    let within = Within::new(kit.load(), MemoryStore::new(), options, &[], None).await;
    let api = api.at(&within.client);
    assert_eq!(api.post("/invoke/hello", "{}").await.status, 507);
    let health = api.get("/health").await;
    assert_eq!(health.status, 503);
    assert_eq!(health.json()["ledger"], json!({"state": "low_on_space"}));
    api.seen().into_iter().collect()
}
