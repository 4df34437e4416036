//! Commands as evidence: what an agent commanded is what its model asked for, its step declares and its
//! children were given, whatever an operator with every key writes instead and makes whole again.

use ktsu_evidence::check::{ArchiveVerifyOptions, ClaimVerdict, EvidenceReport, verify};
use ktsu_ledger::store::SqliteReader;
use ktsu_ledger::{Blob, CanonicalJson, Hash};
use serde_json::{Value, json};

use super::book::Book;
use super::forgeries::claim;
use super::mutants::{arranged, bodies, with};
use super::{Python, put, verdict};
use crate::golden::goldens;
use crate::support::Lab;
use crate::support::ledgers::Recorded;
use crate::support::model::{self, Call, KEY, Model, Said};

const JUDGE: &str = "name: judge\nversion: 1.0.0\nmodel: std\nmax_turns: 6\n\
     prompt: {system: You judge., user: all of it}\n\
     commands: {emit: ['claim.*'], invoke: [verify, plain]}\n\
     output: {schema: {type: object, required: [verdict], properties: {verdict: {type: string}}}}\n";
const CHECKER: &str = "name: checker\nversion: 1.0.0\nmodel: std\n\
     params: {schema: {type: object, required: [claim], properties: {claim: {type: string}}}}\n\
     prompt: {system: You check., user: '{{ params.claim }}'}\n\
     output: {schema: {type: object, required: [said], properties: {said: {type: string}}}}\n";
const CHILD: &str = "visibility: sub-workflow\nparams: {schema: {type: object, \
     required: [claim], properties: {claim: {type: string}, note: {type: string, default: none}}}}\n";
const MAIN: &str = "
pipeline:
  - id: a
    agent: ./agents/judge.agent.yaml
    may_invoke:
      verify: {workflow: ./verify.workflow.yaml, concurrency: 1, max_items: 3}
      plain: ./plain.workflow.yaml
";

/// What the judge asks for: two commands that are told, one that is refused, and two that run
/// workflows.
fn judges(call: &Call) -> Said {
    match (call.user().as_str(), call.turn()) {
        ("all of it", 0) => Said::calls(&[
            (
                "emit",
                json!({"topic": "claim.judged", "payload": {"n": 1}}),
            ),
            ("emit", json!({"topic": "money.sent", "payload": 5})),
        ]),
        ("all of it", 1) => Said::calls(&[(
            "fanout",
            json!({"step": "verify", "inputs": [{"claim": "p"}, {"claim": "q"}]}),
        )]),
        ("all of it", 2) => Said::calls(&[
            ("invoke", json!({"step": "plain", "input": {"claim": "z"}})),
            ("emit", json!({"topic": "claim.seen", "payload": 2})),
        ]),
        ("all of it", _) => Said::json(&json!({"verdict": "true"})),
        (claim, _) => Said::json(&json!({"said": claim.to_uppercase()})),
    }
}

/// A run in which a model commands by its tools.
async fn told() -> Recorded {
    let model = Model::scripted(judges).await;
    let verify = format!(
        "{CHILD}pipeline: [{{id: v, agent: ./agents/checker.agent.yaml, \
         params: {{claim: '{{{{ params.claim }}}}'}}}}]\n"
    );
    let plain = format!(
        "{CHILD}pipeline: [{{id: v, transform: {{inputs: ['{{{{ params.claim }}}}']}}}}]\n"
    );
    let flows = [
        ("main", MAIN),
        ("verify", verify.as_str()),
        ("plain", plain.as_str()),
    ];
    let kit = model::kit(&model, &flows)
        .with("agents/judge.agent.yaml", JUDGE)
        .with("agents/checker.agent.yaml", CHECKER);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let lab = Lab::on_file(&path, &kit, &[KEY]).await;
    let envelope = lab.client.run("main", json!({})).await;
    assert_eq!(envelope["status"], "complete", "{envelope:#}");
    lab.close().await;
    let run = envelope["run_id"].as_str().unwrap();
    Recorded::read(&SqliteReader::open(&path).unwrap(), run)
}

/// A run whose commands its runtime gave without any tools, decided by rules 5.
fn given() -> Recorded {
    let mut all = goldens().into_iter();
    all.find(|(name, _)| name == "v5-agent-invoke").unwrap().1
}

/// The first frame of a type that fits.
pub(super) fn find(all: &[Value], kind: &str, fits: impl Fn(&Value) -> bool) -> usize {
    let found = all.iter().position(|one| one["type"] == kind && fits(one));
    found.unwrap_or_else(|| panic!("no such {kind}"))
}

fn any(_: &Value) -> bool {
    true
}

/// The end of the judge's task.
fn finished(all: &[Value]) -> usize {
    find(all, "agent.finished", |one| one["scope"] == "")
}

/// The command that is told about a topic.
fn emitted(topic: &str) -> impl Fn(&Value) -> bool {
    move |one| one["data"]["topic"] == topic
}

/// The run with some of its frames changed, the chain made whole.
pub(super) fn forged(run: &Recorded, change: impl FnOnce(&mut Vec<Value>)) -> Recorded {
    let mut all = bodies(run);
    change(&mut all);
    with(run, &all)
}

/// The run with one more `command.requested`, behind a frame, and what its outcome says of it.
fn commanded(run: &Recorded, behind: usize, command: &Value) -> Recorded {
    let mut order: Vec<usize> = (0..run.records.len()).collect();
    order.insert(behind + 1, behind + 1);
    forged(&arranged(run, &order), |all| {
        all[behind + 1] = all[behind].clone();
        (all[behind + 1]["seq"], all[behind + 1]["cause"]) = (json!(behind + 1), json!([behind]));
        let at = finished(all);
        let list = all[at]["data"]["outcome"]["commands"].as_array_mut();
        let list = list.unwrap();
        let index = list.len();
        list.push(command.clone());
        let data = &mut all[behind + 1]["data"];
        data["index"] = json!(index);
        data["command"]["path"] = json!(format!("/outcome/commands/{index}"));
        data["type"] = command["type"].clone();
        data["topic"] = command["topic"].clone();
        data.as_object_mut().unwrap().remove("target");
    })
}

/// The run under a definition with another text in it, which it names.
fn defined(run: &Recorded, from: &str, to: &str) -> Recorded {
    let mut run = run.clone();
    let mut all = bodies(&run);
    let old = all[0]["data"]["digest"].as_str().unwrap().to_owned();
    let blob = run.blobs.iter_mut();
    let blob = blob.into_iter().find(|one| one.hash.to_string() == old);
    let blob = blob.unwrap();
    let text = blob.text.as_str().replacen(from, to, 1);
    assert_ne!(text, blob.text.as_str(), "{from}");
    *blob = Blob {
        hash: Hash::of(text.as_bytes()),
        text: CanonicalJson::from_value(&serde_json::from_str(&text).unwrap()).unwrap(),
    };
    let hash = json!(blob.hash.to_string());
    all[0]["data"]["digest"] = hash.clone();
    let bytes = text.len();
    for one in all[0]["ext"].as_array_mut().unwrap() {
        if one["path"] == "/definition" {
            (one["hash"], one["bytes"]) = (hash.clone(), json!(bytes));
        }
    }
    with(&run, &all)
}

/// What ktsu and, where there is one, the independent verifier say of a run.
pub(super) fn judged(run: &Recorded) -> (EvidenceReport, Option<Value>) {
    let bytes = Book::unsigned(run).export_all();
    let outcome = verify(&bytes, &ArchiveVerifyOptions::default()).unwrap();
    let said = Python::find().map(|python| {
        let folder = tempfile::tempdir().unwrap();
        python
            .verify(&[put(folder.path(), "run", &bytes)], &[])
            .remove(0)
    });
    (outcome, said)
}

fn reason(said: &Value, claim: &str) -> String {
    let claims = said["claims"].as_array().unwrap();
    let one = claims.iter().find(|one| one["claim"] == claim).unwrap();
    one["reason"].as_str().unwrap().to_owned()
}

/// Who misses a forgery. Both verifiers have to find it, the independent one by its claim about
/// outputs; `ours` says whether ktsu finds it by that claim, too, and not only by deciding again.
pub(super) fn missed(what: &str, run: &Recorded, ours: bool) -> Vec<String> {
    let (outcome, said) = judged(run);
    let mut missed = Vec::new();
    if outcome.is_sound() || (ours && claim(&outcome, "outputs") != ClaimVerdict::Failed) {
        missed.push(format!("ktsu: {what}"));
    }
    if said.is_some_and(|said| verdict(&said, "outputs") != "failed") {
        missed.push(format!("verify.py: {what}"));
    }
    missed
}

#[tokio::test]
async fn commands_that_no_call_of_the_model_gave_are_found_by_both_verifiers() {
    let run = told().await;
    let (outcome, said) = judged(&run);
    assert!(outcome.is_sound(), "{outcome:?}");
    assert_eq!(claim(&outcome, "outputs"), ClaimVerdict::Proven);
    if let Some(said) = said {
        assert_eq!(said["sound"], true, "{said:#}");
        let words = reason(&said, "outputs");
        assert!(words.contains("expressions"), "nothing else: {words}");
    }
    let command = |all: &mut Vec<Value>, kind: &str| -> usize {
        let at = finished(all);
        let list = all[at]["data"]["outcome"]["commands"].as_array().unwrap();
        list.iter().position(|one| one["type"] == kind).unwrap()
    };
    let mut lost = Vec::new();
    let payload = forged(&run, |all| {
        let (at, emit) = (finished(all), command(all, "emit"));
        all[at]["data"]["outcome"]["commands"][emit]["payload"]["n"] = json!(2);
    });
    lost.extend(missed("the payload of an emit", &payload, true));
    let topic = forged(&run, |all| {
        let (at, emit) = (finished(all), command(all, "emit"));
        let requested = find(all, "command.requested", emitted("claim.judged"));
        all[at]["data"]["outcome"]["commands"][emit]["topic"] = json!("claim.lost");
        all[requested]["data"]["topic"] = json!("claim.lost");
    });
    lost.extend(missed("the topic of an emit, in both frames", &topic, true));
    let input = forged(&run, |all| {
        let (at, fanout) = (finished(all), command(all, "fanout"));
        all[at]["data"]["outcome"]["commands"][fanout]["inputs"][0]["claim"] = json!("x");
    });
    lost.extend(missed("an input of a fanout", &input, true));
    let order = forged(&run, |all| {
        let (at, fanout) = (finished(all), command(all, "fanout"));
        let inputs = &mut all[at]["data"]["outcome"]["commands"][fanout]["inputs"];
        inputs.as_array_mut().unwrap().swap(0, 1);
    });
    lost.extend(missed("the order of the inputs of a fanout", &order, true));
    let behind = find(&bodies(&run), "command.requested", emitted("claim.seen"));
    let more = json!({"type": "emit", "topic": "money.sent", "payload": 5});
    let refused = commanded(&run, behind, &more);
    lost.extend(missed("a refused call as a command", &refused, true));
    let more = json!({"type": "emit", "topic": "claim.other", "payload": 5});
    let added = commanded(&run, behind, &more);
    lost.extend(missed("a command that was never called for", &added, true));
    let turned = forged(&refused, |all| {
        let refusal = |one: &Value| one["data"]["is_error"] == true;
        let at = find(all, "tool.returned", refusal);
        all[at]["data"].as_object_mut().unwrap().remove("is_error");
        all[at]["data"]["content"] = json!([{"text": "{\"accepted\":true}", "type": "text"}]);
    });
    lost.extend(missed("a refused call that was accepted", &turned, false));
    assert_eq!(lost, Vec::<String>::new());
}

#[tokio::test]
async fn commands_that_differ_from_what_is_declared_are_found_by_both_verifiers() {
    let run = told().await;
    let mut lost = Vec::new();
    let held = forged(&run, |all| {
        let at = find(all, "command.requested", emitted("claim.judged"));
        let now = all[at]["data"]["suppressed"] == true;
        all[at]["data"]["suppressed"] = json!(!now);
    });
    lost.extend(missed("suppressed, turned", &held, false));
    let given = given();
    let frames = bodies(&given);
    let mut frames = frames.iter();
    let behind = frames.rposition(|one| one["type"] == "command.requested");
    let more = json!({"type": "emit", "topic": "money.sent", "payload": 1});
    let undeclared = commanded(&given, behind.unwrap(), &more);
    lost.extend(missed(
        "an undeclared command in both places",
        &undeclared,
        false,
    ));
    let fewer = defined(&given, "\"max_items\":3", "\"max_items\":1");
    lost.extend(missed("more inputs than max_items", &fewer, false));
    let filled = forged(&given, |all| {
        let at = find(all, "run.started", |one| one["scope"] == "a/verify.0");
        all[at]["data"]["input"]["/params/note"]["value"]["value"] = json!("some");
    });
    lost.extend(missed("a default that was filled in", &filled, false));
    let dropped = forged(&given, |all| {
        let at = find(all, "run.started", |one| one["scope"] == "a/verify.0");
        let input = all[at]["data"]["input"].as_object_mut().unwrap();
        input.remove("/params/note");
    });
    lost.extend(missed("a default that was not filled in", &dropped, false));
    let sends = forged(&given, |all| {
        let at = find(all, "run.started", |one| one["scope"] == "a/verify.1");
        all[at]["data"]["webhooks"] = json!("execute");
    });
    lost.extend(missed("whether a child sends webhooks", &sends, false));
    for kind in ["command.requested", "command.completed", "step.completed"] {
        let attempt = forged(&given, |all| {
            let at = find(all, kind, |one| one["scope"] == "");
            all[at]["data"]["attempt"] = json!(2);
        });
        lost.extend(missed(&format!("the attempt of {kind}"), &attempt, false));
    }
    let swapped = forged(&given, |all| {
        let of = |scope: &'static str| move |one: &Value| one["scope"] == scope;
        let first = find(all, "run.completed", of("a/verify.0"));
        let second = find(all, "run.completed", of("a/verify.1"));
        let output = all[first]["data"]["output_from"].take();
        all[first]["data"]["output_from"] = all[second]["data"]["output_from"].take();
        all[second]["data"]["output_from"] = output;
    });
    lost.extend(missed("outputs of children, swapped", &swapped, false));
    let ends = forged(&given, |all| {
        let at = find(all, "command.completed", any);
        let children = all[at]["data"]["children"].as_array_mut();
        children.unwrap().swap(0, 1);
    });
    lost.extend(missed("ends of children, swapped", &ends, true));
    assert_eq!(lost, Vec::<String>::new());
}

/// Another number for a command of the judge's outcome, in every frame that names it.
fn exchanged(all: &mut [Value], one: u64, other: u64) {
    let is_of_judge = |body: &Value| body["scope"] == "" && body["data"]["step"] == "a";
    for body in all.iter_mut() {
        let (of_judge, kind) = (is_of_judge(body), body["type"].clone());
        if of_judge && (kind == "command.requested" || kind == "command.completed") {
            let index = &mut body["data"]["index"];
            match index.as_u64() {
                Some(at) if at == one => *index = json!(other),
                Some(at) if at == other => *index = json!(one),
                _ => {}
            }
        }
        let place = |at: u64| format!("/outcome/commands/{at}");
        let text = body.to_string().replace(&place(one), "/outcome/commands/?");
        let text = text.replace(&place(other), &place(one));
        let text = text.replace("/outcome/commands/?", &place(other));
        *body = serde_json::from_str(&text).unwrap();
    }
    let at = finished(all);
    let list = all[at]["data"]["outcome"]["commands"].as_array_mut();
    let at = |at: u64| usize::try_from(at).unwrap();
    list.unwrap().swap(at(one), at(other));
}

/// The run with a frame moved to before another.
fn moved(run: &Recorded, from: usize, before: usize) -> Recorded {
    let mut order: Vec<usize> = (0..run.records.len()).collect();
    order.remove(from);
    let to = order.iter().position(|one| *one == before).unwrap();
    order.insert(to, from);
    arranged(run, &order)
}

#[tokio::test]
async fn commands_in_another_order_than_that_of_the_calls_are_found_by_both_verifiers() {
    let run = told().await;
    let all = bodies(&run);
    let at = finished(&all);
    let list = all[at]["data"]["outcome"]["commands"].as_array().unwrap();
    let place = |fits: &dyn Fn(&Value) -> bool| -> u64 {
        let at = list.iter().position(fits).unwrap();
        u64::try_from(at).unwrap()
    };
    let invoke = place(&|one| one["type"] == "invoke");
    let seen = place(&|one| one["topic"] == "claim.seen");
    assert!(invoke < seen, "the call of the invoke comes first");
    // The result of the later call is first, and its command, too.
    let called = |tool: &'static str| {
        let sent = all
            .iter()
            .rposition(|one| one["type"] == "tool.called" && one["data"]["tool"] == tool);
        let sent = sent.unwrap();
        find(&all, "tool.returned", |one| one["data"]["called"] == sent)
    };
    let (first, second) = (called("invoke"), called("emit"));
    let order = match first < second {
        true => moved(&run, second, first),
        false => run.clone(),
    };
    let order = forged(&order, |all| exchanged(all, invoke, seen));
    assert_eq!(
        missed("the order of the results", &order, true),
        Vec::<String>::new()
    );
}

#[test]
fn commands_out_of_their_phases_are_found_by_both_verifiers() {
    let mut run = goldens().into_iter();
    let run = run.find(|(name, _)| name == "v6-agent-emits").unwrap().1;
    let all = bodies(&run);
    let requested = |index: u64| {
        find(&all, "command.requested", |one| {
            one["data"]["index"] == index
        })
    };
    // An emit, an invoke, an emit and a fanout.
    let [emit, invoke, fanout] = [0, 1, 3].map(requested);
    let started = |scope: &'static str| find(&all, "run.started", |one| one["scope"] == scope);
    let ended = all
        .iter()
        .rposition(|one| one["type"] == "command.completed");
    let mut lost = Vec::new();
    for (told, from, before) in [
        ("an emit before what runs", emit, invoke),
        ("an emit among what runs", emit, fanout),
        (
            "an emit before the first child",
            emit,
            started("a/verify.0"),
        ),
        ("an emit between the children", emit, started("a/verify.1")),
        (
            "an emit before the last command ended",
            emit,
            ended.unwrap(),
        ),
        ("emits that descend", requested(2), emit),
        ("what runs, descending", fanout, invoke),
        (
            "a command that runs, after a child began",
            fanout,
            started("a/verify.0") + 1,
        ),
    ] {
        lost.extend(missed(told, &moved(&run, from, before), true));
    }
    let noted = |before: usize| {
        let mut order: Vec<usize> = (0..all.len()).collect();
        order.insert(before, before);
        forged(&arranged(&run, &order), |all| {
            let at = finished(all);
            all[at]["data"]["outcome"]["events"] = json!([{"type": "claim.read"}]);
            let place = json!({"frame": at, "path": "/outcome/events/0"});
            let command = all.iter().find(|one| one["type"] == "command.requested");
            let mut note = command.unwrap().clone();
            (note["type"], note["seq"]) = (json!("note"), json!(before));
            note["cause"] = json!([before - 1]);
            note["data"] = json!({"attempt": 1, "event": place, "index": 0, "step": "a",
                "type": "claim.read"});
            all[before] = note;
        })
    };
    let (outcome, said) = judged(&noted(emit));
    let honest = claim(&outcome, "outputs");
    assert_ne!(
        honest,
        ClaimVerdict::Failed,
        "where notes belong: {outcome:?}"
    );
    assert!(said.is_none_or(|said| verdict(&said, "outputs") != "failed"));
    for (told, before) in [
        ("a note before the children", started("a/verify.0")),
        ("a note between the children", started("a/verify.1")),
        ("a note after an emit", emit + 1),
    ] {
        lost.extend(missed(told, &noted(before), true));
    }
    assert_eq!(lost, Vec::<String>::new());
}

#[test]
fn commands_that_a_runtime_gives_without_tools_are_said_to_be_not_covered_by_both_verifiers() {
    let (outcome, said) = judged(&given());
    assert!(outcome.is_sound(), "{outcome:?}");
    assert_eq!(claim(&outcome, "outputs"), ClaimVerdict::NotCovered);
    let Some(said) = said else { return };
    assert_eq!(verdict(&said, "outputs"), "not_covered", "{said:#}");
    assert!(
        reason(&said, "outputs").contains("no call of a tool gave its commands"),
        "{said:#}"
    );
}
