//! Effects as evidence: a run that was created without them sent no webhook and no message, and
//! another one left none out, whatever an operator with every key writes instead.

use ktsu_evidence::check::ClaimVerdict;
use ktsu_ledger::store::SqliteReader;
use serde_json::{Value, json};

use super::commands::{find, forged, judged, missed};
use super::forgeries::claim;
use super::verdict;
use crate::support::ledgers::Recorded;
use crate::support::model::{self, Call, KEY, Model, Said};
use crate::support::{Lab, Sink};

const JUDGE: &str = "name: judge\nversion: 1.0.0\nmodel: std\n\
     prompt: {system: You judge., user: all of it}\ncommands: {emit: ['claim.*']}\n\
     output: {schema: {type: object}}\n";
const CHILD: &str = "visibility: sub-workflow\nwebhooks: execute\n\
     params: {schema: {type: object, required: [sink], properties: {sink: {type: string}}}}\n\
     pipeline: [{id: call, webhook: {url: '{{ params.sink }}/call'}}]\n";

fn emits(call: &Call) -> Said {
    match call.turn() {
        0 => Said::calls(&[("emit", json!({"topic": "claim.judged", "payload": 1}))]),
        _ => Said::json(&json!({"verdict": "true"})),
    }
}

/// A run of a pipeline.
async fn recorded(pipeline: &str, query: &str) -> Recorded {
    let (model, sink) = (Model::scripted(emits).await, Sink::new().await);
    let main = format!("env: [{{name: SINK}}]\npipeline:\n{pipeline}");
    let kit = model::kit(&model, &[("main", &main), ("child", CHILD)]);
    let kit = kit.with("agents/judge.agent.yaml", JUDGE);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let lab = Lab::on_file(&path, &kit, &[KEY, ("SINK", &sink.url)]).await;
    let run = lab.client.invoke(&format!("main{query}"), json!({})).await;
    let envelope = lab.client.ended(&run).await;
    assert_eq!(envelope["status"], "complete", "{envelope:#}");
    lab.close().await;
    Recorded::read(&SqliteReader::open(&path).unwrap(), &run)
}

const AGENT: &str = "  - {id: a, agent: ./agents/judge.agent.yaml}\n";
const HOOK: &str = "  - {id: h, webhook: {url: '{{ env.SINK }}/h'}}\n";
const CALL: &str = "  - {id: c, workflow: ./child.workflow.yaml, webhooks: execute, \
     params: {sink: '{{ env.SINK }}'}}\n";
const SUPPRESS: &str = "?effects=suppress";

/// A run without effects that would have all of them.
pub(crate) async fn recorded_without() -> Recorded {
    recorded(&[AGENT, HOOK, CALL].concat(), SUPPRESS).await
}

/// The run with another word about its effects in its first frame.
fn said(run: &Recorded, effects: Option<&str>) -> Recorded {
    forged(run, |all| {
        let data = all[0]["data"].as_object_mut().unwrap();
        match effects {
            Some(effects) => drop(data.insert("effects".to_owned(), json!(effects))),
            None => drop(data.remove("effects")),
        }
    })
}

fn assert_proven(run: &Recorded) {
    let (outcome, said) = judged(run);
    assert!(outcome.is_sound(), "{outcome:?}");
    assert_eq!(claim(&outcome, "outputs"), ClaimVerdict::Proven);
    if let Some(said) = said {
        assert_eq!(said["sound"], true, "{said:#}");
        assert_ne!(verdict(&said, "outputs"), "failed", "{said:#}");
    }
}

#[tokio::test]
async fn what_a_run_says_of_its_effects_is_what_it_did_for_both_verifiers() {
    let mut lost = Vec::new();
    for (what, pipeline) in [("an emit", AGENT), ("a webhook", HOOK), ("a child's", CALL)] {
        let silent = recorded(pipeline, SUPPRESS).await;
        let loud = recorded(pipeline, "").await;
        assert_proven(&silent);
        assert_proven(&loud);
        for (words, run, effects) in [
            ("held back, and said to be sent", &silent, None),
            ("held back, and said to be sent", &silent, Some("execute")),
            ("sent, and said to be held back", &loud, Some("suppress")),
        ] {
            let what = format!("{what}: {words}");
            lost.extend(missed(&what, &said(run, effects), false));
        }
    }
    assert_eq!(lost, Vec::<String>::new());
}

#[tokio::test]
async fn a_message_of_a_run_without_effects_is_suppressed_for_both_verifiers() {
    let run = recorded_without().await;
    assert_proven(&run);
    let any = |_: &Value| true;
    let sent = forged(&run, |all| {
        let at = find(all, "command.requested", any);
        all[at]["data"]
            .as_object_mut()
            .unwrap()
            .remove("suppressed");
    });
    assert_eq!(missed("an emit", &sent, false), Vec::<String>::new());
}
