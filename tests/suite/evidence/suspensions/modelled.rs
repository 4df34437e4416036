//! Suspensions that a model asks for by the tool `suspend`: whatever it says is recorded, so that both
//! verifiers judge its outputs as well; and recomputes, which ask no one.

use ktsu::assemble::LedgerPlace;
use ktsu_evidence::check::ClaimVerdict;
use ktsu_ledger::store::SqliteReader;
use serde_json::{Value, json};

use super::super::forgeries::claim;
use super::super::holds;
use super::super::reviews::forge::{Forge, judged, missed, of_judge};
use super::NONE;
use crate::support::Lab;
use crate::support::ledgers::Recorded;
use crate::support::model::{self, Call, KEY, Model, Said};

const SEEKER: &str = "name: seeker\nversion: 1.0.0\nmodel: std\nmax_turns: 4\n\
     params: {schema: {type: object}}\n\
     prompt: {system: You seek., user: '{{ to_string(params.text) }}'}\n\
     commands: {emit: ['claim.*'], suspend: true}\n\
     output: {schema: {type: object, required: [verdict], properties: {verdict: {type: string}}}}\n";
const MAIN: &str = "
pipeline:
  - {id: a, agent: ./agents/seeker.agent.yaml, params: {text: '{{ resume.data.text }}'},
     resume: {schema: {type: object}}}
output: {map: {verdict: '{{ step.a.verdict }}'}}
";

/// Asks for a text, unless it has one.
fn says(call: &Call) -> Said {
    match (call.user().as_str(), call.turn()) {
        ("null", _) => suspends(call),
        (text, _) => Said::json(&json!({"verdict": text})),
    }
}

/// Asks for a text in any case.
fn suspends(call: &Call) -> Said {
    let emit = json!({"topic": "claim.seen", "payload": 1});
    let suspend = json!({"reason": "a text", "checkpoint": {"page": 3}});
    match call.turn() {
        0 => Said::calls(&[("emit", emit), ("suspend", suspend)]),
        _ => Said::json(&json!({"verdict": "none yet"})),
    }
}

#[tokio::test]
async fn suspensions_by_a_model_and_their_recomputes_are_accepted_by_both_verifiers() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = folder.path().join("ledger.db");
    let model = Model::scripted(says).await;
    let kit = model::kit(&model, &[("main", MAIN)]).with("agents/seeker.agent.yaml", SEEKER);
    let lab = Lab::in_environment(
        LedgerPlace::File(ledger.clone()),
        &kit,
        "egress: {allow: [127.0.0.1]}\n",
        &[KEY],
    )
    .await;
    let run = lab.client.invoke("main", json!({})).await;
    let mut events = lab.client.events(&run, None).await;
    while let Some(event) = events.next().await {
        let frame: Value = serde_json::from_str(&event.data).unwrap();
        if frame["type"] == "suspend.requested" {
            let path = format!("/runs/{run}/steps/a/resume");
            let body = json!({"data": {"text": "clause 7"}}).to_string();
            let answer = lab.client.post(&path, body).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
        }
    }
    let envelope = lab.client.ended(&run).await;
    assert_eq!(envelope["output"]["verdict"], "clause 7", "{envelope:#}");
    let path = format!("/runs/{run}/recompute?wait=60");
    let recomputed = lab.client.post(&path, "{}").await;
    assert!(recomputed.status < 300, "{}", recomputed.text());
    model.say(suspends);
    let recomputed = lab.client.post(&path, "{}").await;
    assert!(recomputed.status < 300, "{}", recomputed.text());
    lab.close().await;
    let reader = SqliteReader::open(&ledger).unwrap();
    holds(&reader, "by a model");

    let forge = Forge::of_run(Recorded::read(&reader, &run));
    let (outcome, _) = judged(&forge.run);
    assert_eq!(
        claim(&outcome, "outputs"),
        ClaimVerdict::Proven,
        "{outcome:?}"
    );
    let end = of_judge(&forge.all, "agent.finished");
    let checkpoint = forge.changed(|all| {
        all[end]["data"]["outcome"]["commands"][1]["checkpoint"] = json!({"page": 4});
    });
    let lost = missed(vec![("another checkpoint", "outputs", checkpoint)]);
    assert_eq!(lost, NONE);
}
