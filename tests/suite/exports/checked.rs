//! Runs that were checked, and the verdicts (decision V1).

use ktsu_ledger::appender::Options;
use ktsu_ledger::store::MemoryStore;
use serde_json::json;

use super::{agents, ended, fork, kit, post, ticking};
use crate::support::scenarios::TOKEN;
use crate::support::sink::Reply;
use crate::support::{Sink, Within};

pub(super) const NAME: &str = "v7-checked";

/// A verdict of every kind; the text of the second is long enough to be a blob.
const PASSES: &str = "invariants:
  summed: {description: d, gate: true, check: {type: output, expr: output.sum.many, equals: 2}}
  asked: {description: d, weight: 0.3, check: {type: trace, where: {type: llm.request, step: [think, each]}, count: {min: 3}}}
  cheap: {description: d, weight: 0.2, check: {type: trace, model_calls: {max: 2}}}
forbidden:
  - {where: {tool: '*'}}
scoring: {pass_threshold: 0.92}
";

/// Records the ledger.
pub(super) async fn store() -> MemoryStore {
    let sink = Sink::new().await;
    sink.follow(|heard| match heard.path.as_str() {
        _ if agents::asks_a_model(heard) => agents::model(heard),
        _ => Reply::Now(200, r#"{"received":true}"#.to_owned()),
    });
    let store = MemoryStore::new();
    let pairs = [("SINK", sink.url.as_str()), ("TOKEN", TOKEN)];
    let options = Options::default();
    let kit = kit("said:");
    let within = Within::new(kit.load(), store.clone(), options, &pairs, Some(ticking())).await;
    let client = &within.client;
    let run = ended(client, &client.invoke("root", json!({})).await, "complete").await;
    let branch = fork(client, &run, json!({"before": "tell", "go": true})).await;
    ended(client, &branch, "complete").await;
    let failing = PASSES.replace("pass_threshold: 0.92", "pass_threshold: 1");
    let long = format!("{failing}# {}\n", "long ".repeat(14_000));
    let error = "invariants: {odd: {description: d, check: {type: output, expr: 'abs(output)'}}}\n";
    for (run, spec, status) in [
        (&run, PASSES, "passed"),
        (&run, &long, "failed"),
        (&branch, PASSES, "passed"),
        (&branch, error, "error"),
    ] {
        let said = post(client, "/checks", json!({"run": run, "spec": spec}), 200).await;
        assert_eq!(said["status"], status, "{said:#}");
    }
    store
}
