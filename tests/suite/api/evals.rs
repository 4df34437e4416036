//! Every status of checks and of their verdicts, once.

use std::collections::BTreeSet;

use ktsu_ledger::appender::Options;
use ktsu_ledger::store::MemoryStore;
use serde_json::json;

use super::describe::{Case, Described};
use super::unable;
use crate::support::ledgers::Recorded;
use crate::support::{KitDir, Within};

const HELLO: &str =
    "pipeline: [{id: greet, transform: {inputs: [{from: \"{a: `1`}\"}], ops: []}}]\n";

const SPEC: &str = "invariants: {begun: {description: d, check: {type: trace, \
                    where: {type: run.created}, count: {equals: 1}}}}\n";

fn body(run: &str, spec: &str) -> String {
    json!({"run": run, "spec": spec}).to_string()
}

pub(super) async fn all(described: &Described) -> BTreeSet<Case> {
    let outer = "pipeline: [{id: in, workflow: ./hello.workflow.yaml}]\n";
    let kit = KitDir::new(&[("hello", HELLO), ("outer", outer)]);
    let store = MemoryStore::new();
    let within = Within::new(kit.load(), store.clone(), Options::default(), &[], None).await;
    let api = described.at(&within.client);
    let run = within.client.run("outer", json!({})).await;
    let run = run["run_id"].as_str().unwrap().to_owned();
    let recorded = Recorded::read(&store, &run);
    let _another = within.client.run("outer", json!({})).await;
    let prefix = run.get(..8).unwrap();
    let large = " ".repeat(1024 * 1024 + 1);
    let file = "invariants: {f: {check: {type: file_exists, path: a.txt}}}";
    let long_file = json!({"run": run, "spec": SPEC, "file": "x".repeat(501)}).to_string();
    let query = "invariants: {f: {check: {type: sql, service: db, query: SELECT 1, equals: 1}}}";
    let later = "invariants: {f: {check: {type: command_exit, command: 'true'}}}";
    let judge =
        "invariants: {g: {check: {type: llm_as_judge, model: fast, criteria: Is it good?}}}";
    let of_files = judge.replace("model: fast", "model: fast, input_from: workspace");
    for (path, body, status, code) in [
        ("/checks", body(&run, judge), 200, ""),
        ("/checks", body(&run, &of_files), 422, "check_not_supported"),
        ("/checks", "nope".to_owned(), 400, "invalid_json"),
        ("/checks?x=1", body(&run, SPEC), 400, "invalid_query"),
        ("/checks", body("absent", SPEC), 404, "run_not_found"),
        ("/checks", body(prefix, SPEC), 409, "ambiguous_id"),
        (
            "/checks",
            body(&format!("{run}/in"), SPEC),
            409,
            "invalid_run_state",
        ),
        ("/checks", large, 413, "body_too_large"),
        ("/checks", "[]".to_owned(), 422, "not_an_object"),
        (
            "/checks",
            json!({"run": run}).to_string(),
            422,
            "invalid_request",
        ),
        (
            "/checks",
            body(&run, "invariants: {a: {check: {type: ouput}}}"),
            422,
            "eval_invalid",
        ),
        ("/checks", body(&run, file), 422, "check_not_supported"),
        ("/checks", long_file, 422, "invalid_request"),
        ("/checks", body(&run, later), 422, "check_not_supported"),
        ("/checks", body(&run, query), 422, "check_not_supported"),
        ("/checks", body(&run, SPEC), 200, ""),
    ] {
        let answer = api.post(path, &body).await;
        assert_eq!(answer.status, status, "{path} {body}: {}", answer.text());
        if status != 200 {
            assert_eq!(answer.json()["code"], code, "{}", answer.text());
        }
    }
    let unasked = api.post("/checks", &body(&run, judge)).await.json();
    let reason = &unasked["scenarios"][0]["results"][0]["reason"];
    assert_eq!(
        reason,
        "no model gateway is known here, so no model can judge"
    );
    let checked = api.post("/checks", &body(&run, SPEC)).await.json();
    let id = checked["eval_id"].as_str().unwrap();
    for (path, status) in [
        ("/evals".to_owned(), 200),
        (format!("/evals?run={run}&limit=1"), 200),
        ("/evals?run=absent".to_owned(), 404),
        (format!("/evals?run={prefix}"), 409),
        ("/evals?limit=0".to_owned(), 400),
        (format!("/evals/{id}"), 200),
        (format!("/evals/{id}?x=1"), 400),
        (format!("/inspector/evals/{id}"), 200),
        (format!("/inspector/evals?run={prefix}"), 409),
        (format!("/inspector/evals?run={run}&before={id}"), 200),
        ("/evals/absent".to_owned(), 404),
        (format!("/runs/{id}/frames"), 200),
        (format!("/runs/{id}/trace"), 200),
        (format!("/runs/{id}/trace?frame=2"), 200),
        (format!("/runs/{id}/trace?of=status"), 400),
        ("/runs/eval_absent/frames".to_owned(), 404),
        // Only what shows frames has evals, too.
        (format!("/runs/{id}"), 404),
        (format!("/runs/{id}/envelope"), 404),
    ] {
        let answer = api.get(&path).await;
        assert_eq!(answer.status, status, "{path}: {}", answer.text());
    }
    assert_eq!(api.get(&format!("/evals/{id}")).await.json(), checked);
    let page = api.get(&format!("/inspector/evals/{id}")).await.text();
    let frame = format!("../runs/{run}/frames?frame=0#f0");
    for shown in [
        "begun",
        "run.created",
        &frame,
        "No check has another result",
    ] {
        assert!(page.contains(shown), "{shown}: {page}");
    }
    let evil = [("origin", "https://evil.example")];
    let answer = api.call("POST", "/checks", &evil, &body(&run, SPEC)).await;
    assert_eq!(answer.json()["code"], "foreign_origin");
    let mut seen = api.seen();
    let bodies = [("/checks", body(&run, SPEC))];
    seen.extend(unable::posts(described, &kit, &recorded, &bodies).await.0);
    seen
}

#[tokio::test]
async fn no_request_brings_results_of_its_own() {
    let kit = KitDir::new(&[("hello", HELLO)]);
    let within = Within::new(
        kit.load(),
        MemoryStore::new(),
        Options::default(),
        &[],
        None,
    )
    .await;
    let run = within.client.run("hello", json!({})).await;
    let run = run["run_id"].as_str().unwrap().to_owned();
    for more in ["results", "passed", "composite", "eval_id", "workspace"] {
        let mut body = json!({"run": run, "spec": SPEC});
        body[more] = json!([]);
        let answer = within.client.post("/checks", body.to_string()).await;
        assert_eq!(answer.status, 422, "{more}");
    }
    let listed = within.client.get("/evals").await.json();
    assert_eq!(listed, json!({"evals": []}));
}
