//! Verdicts in archives: both verifiers judge them again by the run beside them, and find forgeries
//! whose chain of hashes was made whole again.

mod judges;
mod replicas;

use std::collections::BTreeSet;
use std::path::Path;

use ktsu_eval::{EvalSpec, EvalWriter};
use ktsu_evidence::check::{ArchiveVerifyOptions, ClaimVerdict, verify};
use ktsu_evidence::export::ExportSelection;
use ktsu_history::evals;
use ktsu_ledger::event::{EvalStarted, Principal};
use ktsu_ledger::store::MemoryStore;
use ktsu_ledger::{Actor, Cause, Draft, Event, Hash, Link, StreamId, Timestamp};
use serde_json::Value;

use super::book::{Act, Book, rechained};
use super::{Python, put, verdict};
use crate::golden::goldens;
use crate::support::ledgers::Recorded;

/// Checks that both verifiers make again, whatever the run.
const SPEC: &str = "invariants:
  ended: {description: d, check: {type: output, expr: status, equals: complete}}
  begun: {description: d, weight: 0.3, gate: true, check: {type: trace, where: {type: run.created}, count: {equals: 1}}}
  none: {description: d, weight: 2, check: {type: trace, where: {type: 'kv.*'}, none: true}}
  first: {description: d, check: {type: trace, where: {type: run.created}, before: {type: '*'}}}
  order: {description: d, check: {type: trace, where: {type: 'llm.request,webhook.sent'}, before: {type: run.completed}}}
  late: {description: d, check: {type: trace, where: {type: step.completed}, after: {type: step.started}}}
  tools: {description: d, check: {type: trace, where: {tool: '*'}, count: {max: 1}}}
  full: {description: d, check: {type: trace, where: {tool: '*__*', status: ok}, count: {min: 1}}}
  server: {description: d, check: {type: trace, where: {server: '*e*', step: '*'}, count: {equals: 2}}}
  model: {description: d, check: {type: trace, where: {model: '*', type: 'tool.*'}, none: true}}
  calls: {description: d, check: {type: trace, where: {model: '*'}, count: {min: 2, max: 6}}}
  words: {description: d, check: {type: trace, where: {status: [approved, rejected, error, not_sent, '2*']}, none: true}}
  items: {description: d, check: {type: trace, where: {item: ['1*', 0]}, count: {max: 3}}}
  inside: {description: d, check: {type: trace, where: {scope: '*?*', type: 'step.*'}, none: true}}
  child: {description: d, check: {type: trace, where: {step: '*/*'}, none: true}}
  whole: {description: d, check: {type: trace, where: {scope: '', step: '*a*'}, count: {min: 1}}}
  people: {description: d, check: {type: trace, where: {actor: 'principal:*', type: 'approval.*'}, none: true}}
forbidden:
  - {name: failures, where: {type: '*.failed'}}
scoring: {pass_threshold: 0.5}
";

/// A check of each kind that the independent verifier leaves to ktsu.
const MORE: &str = "invariants:
  value: {description: d, check: {type: output, expr: 'length(steps)', min: 1}}
  text: {description: d, check: {type: output, expr: status, pattern: '^complete$'}}
  expression: {description: d, check: {type: trace, where: {expr: 'seq == `0`'}, count: {equals: 1}}}
  all: {description: d, check: {type: trace, where: {type: 'run.*'}, all: 'scope == `\"\"`'}}
  cost: {description: d, check: {type: trace, cost_usd: {max: 100}}}
  files: {description: d, check: {type: file_exists, path: a.txt}}
";

/// The eval of a recorded run, as an engine would append it.
fn eval_of(run: &Recorded, text: &str) -> Recorded {
    eval_of_runs(&[(run, None)], text)
}

/// The eval of runs, each judged or without a verdict for a reason; a suite, if the text has one.
fn eval_of_runs(runs: &[(&Recorded, Option<&str>)], text: &str) -> Recorded {
    let mut store = MemoryStore::new();
    let mut known = BTreeSet::new();
    for (run, _) in runs {
        if known.insert(&run.stream) {
            run.put(&mut store);
        }
    }
    let (spec, _) = EvalSpec::parse(Path::new("a.eval.yaml"), text).unwrap();
    let started = started(&spec, text);
    let (mut writer, mut events) = EvalWriter::begin(started, spec.pass_threshold);
    for (run, error) in runs {
        let checked = evals::check(&store, &run.stream, &spec.invariants, None).unwrap();
        let results = match error {
            None => Ok(checked.results),
            Some(error) => Err((*error).to_owned()),
        };
        events.extend(writer.judged(checked.started, results));
    }
    events.extend(writer.finish());
    let events = events.into_iter();
    let plain = |(cause, event)| (String::new(), cause, Event::Eval(event));
    sealed(&runs[0].0.stream, events.map(plain))
}

/// What an eval by a spec begins with.
fn started(spec: &EvalSpec, text: &str) -> EvalStarted {
    EvalStarted {
        by: Principal {
            auth: "none".to_owned(),
            id: "local".to_owned(),
        },
        checks: spec.as_json.clone(),
        engine: ktsu_workflow::admit::ENGINE.to_owned(),
        file: "a.eval.yaml".to_owned(),
        sandbox: text.contains("command_exit").then(|| "none".to_owned()),
        spec: text.to_owned(),
        spec_digest: Hash::of(text.as_bytes()),
        suite: spec.suite.as_ref().map(|suite| suite.recorded(None)),
    }
}

/// The stream of an eval whose first run is `run`.
fn sealed(
    run: &StreamId,
    events: impl IntoIterator<Item = (String, Vec<Cause>, Event)>,
) -> Recorded {
    let stream: StreamId = format!("eval:eval_{}", run.name()).parse().unwrap();
    let (mut prev, mut records) = (Hash::ZERO, Vec::new());
    for (seq, (scope, cause, event)) in (0..).zip(events) {
        let draft = Draft {
            scope,
            actor: Actor::Orchestrator,
            cause,
            event,
        };
        let link = Link {
            stream: stream.clone(),
            seq,
            prev,
        };
        let sealed = draft.seal(link, Timestamp::from_micros(9)).unwrap();
        assert!(sealed.blobs.is_empty());
        prev = sealed.record.hash;
        records.push(sealed.record);
    }
    Recorded {
        stream,
        records,
        blobs: Vec::new(),
    }
}

fn archive(run: &Recorded, eval: &Recorded) -> Vec<u8> {
    archive_of(&[run], eval)
}

fn archive_of(runs: &[&Recorded], eval: &Recorded) -> Vec<u8> {
    let mut acts: Vec<Act> = runs.iter().map(|run| Act::Run((*run).clone())).collect();
    acts.push(Act::Part(eval.clone(), 0..eval.records.len(), None));
    acts.push(Act::Checkpoint);
    Book::write(&acts).export(&ExportSelection {
        streams: runs.iter().map(|run| run.stream.clone()).collect(),
        evals: true,
        ..ExportSelection::default()
    })
}

/// What ktsu says about the verdicts of an archive.
fn judged(archive: &[u8]) -> (ClaimVerdict, String) {
    let report = verify(archive, &ArchiveVerifyOptions::default()).unwrap();
    let mut claims = report.claims.into_iter();
    let claim = claims.find(|claim| claim.claim == "evals").unwrap();
    (claim.verdict, claim.reason)
}

fn reason(said: &Value) -> String {
    let claims = said["claims"].as_array().unwrap();
    let claim = claims.iter().find(|one| one["claim"] == "evals").unwrap();
    claim["reason"].as_str().unwrap().to_owned()
}

/// Finished runs of every kind.
fn finished() -> Vec<(String, Recorded)> {
    let mut runs = goldens();
    runs.retain(|(name, run)| {
        let last = run.records.last().unwrap().decode_bare().unwrap();
        let ended = ["run.completed", "run.failed"].contains(&last.event.kind());
        let is_run = run.stream.kind() == "run";
        ended && is_run && last.scope.is_empty() && !name.contains("lost")
    });
    assert!(runs.len() >= 20, "{}", runs.len());
    runs
}

#[test]
fn both_verifiers_make_the_checks_of_every_golden_run_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut archives = Vec::new();
    for (name, run) in finished() {
        let archive = archive(&run, &eval_of(&run, SPEC));
        let (verdict, reason) = judged(&archive);
        assert_eq!(verdict, ClaimVerdict::Proven, "{name}: {reason}");
        assert_eq!(reason, "1 verdict follows from 18 checks made again");
        archives.push(put(folder.path(), &name, &archive));
    }
    let Some(python) = Python::find() else { return };
    for said in python.verify(&archives, &[]) {
        assert_eq!(verdict(&said, "evals"), "not_covered", "{said}");
        let reason = reason(&said);
        let completed = "1 verdict, 18 checks made again; the words";
        let failed = "1 verdict, 17 checks made again; only ktsu judges";
        assert!(
            reason.starts_with(completed) || reason.starts_with(failed) || !python.has_blake3,
            "{reason}"
        );
    }
}

#[test]
fn what_the_independent_verifier_reads_otherwise_it_does_not_call_wrong() {
    let spec = "invariants:\n  whole: {description: d, check: {type: output}}\n  \
                one: {description: d, check: {type: output, equals: 1}}\n  \
                odd: {description: d, check: {type: trace, where: {actor: \"orchestrator\\x1f\"}, none: true}}\n  \
                wide: {description: d, check: {type: trace, where: {actor: \"\\u2003orchestrator\\x85\"}, none: true}}\n";
    let folder = tempfile::tempdir().unwrap();
    let mut archives = Vec::new();
    for (name, run) in finished() {
        let archive = archive(&run, &eval_of(&run, spec));
        let (verdict, reason) = judged(&archive);
        assert_eq!(verdict, ClaimVerdict::Proven, "{name}: {reason}");
        archives.push(put(folder.path(), &name, &archive));
    }
    let Some(python) = Python::find() else { return };
    for said in python.verify(&archives, &[]) {
        assert_eq!(verdict(&said, "evals"), "not_covered", "{said}");
    }
}

#[test]
fn what_rests_on_more_than_the_run_is_named() {
    let (_, run) = finished().remove(0);
    let archive = archive(&run, &eval_of(&run, MORE));
    let (found, words) = judged(&archive);
    assert_eq!(found, ClaimVerdict::NotCovered);
    assert!(words.contains("a check of type file_exists"), "{words}");
    let Some(python) = Python::find() else { return };
    let folder = tempfile::tempdir().unwrap();
    let said = python.verify(&[put(folder.path(), "more", &archive)], &[]);
    assert_eq!(verdict(&said[0], "evals"), "not_covered", "{}", said[0]);
    assert!(
        reason(&said[0]).contains("0 checks made again"),
        "{}",
        said[0]
    );
}

#[test]
fn what_programs_found_is_named_and_not_judged_again() {
    const PROGRAMS: &str = "invariants:
  command: {description: d, check: {type: command_exit, command: 'true'}}
  script: {description: d, check: {type: custom, script: a.py}}
";
    let (_, run) = finished().remove(0);
    let archive = archive(&run, &eval_of(&run, PROGRAMS));
    let (found, words) = judged(&archive);
    assert_eq!(found, ClaimVerdict::NotCovered);
    assert!(words.contains("a check of type command_exit"), "{words}");
    assert!(words.contains("1 more"), "{words}");
    let Some(python) = Python::find() else { return };
    let folder = tempfile::tempdir().unwrap();
    let said = python.verify(&[put(folder.path(), "programs", &archive)], &[]);
    assert_eq!(verdict(&said[0], "evals"), "not_covered", "{}", said[0]);
    let words = reason(&said[0]);
    assert!(words.contains("checks of type command_exit"), "{words}");
}

#[test]
fn a_scenario_without_results_says_why_and_both_verifiers_read_it() {
    let (_, run) = finished().remove(0);
    let eval = eval_of_runs(&[(&run, None), (&run, Some("waiting"))], SPEC);
    let archive = archive(&run, &eval);
    let (found, words) = judged(&archive);
    assert_eq!(found, ClaimVerdict::Proven, "{words}");
    let python = Python::find();
    let folder = tempfile::tempdir().unwrap();
    if let Some(python) = &python {
        let said = python.verify(&[put(folder.path(), "waiting", &archive)], &[]);
        assert_eq!(verdict(&said[0], "evals"), "not_covered", "{}", said[0]);
    }
    // As if checks had been left out.
    let without = rechained(&eval, |_, body| {
        body.replacen(r#""error":"waiting","#, "", 1)
    });
    assert_forged(&run, &without, "no reason", python.as_ref(), folder.path());
}

#[test]
fn without_its_run_a_verdict_is_not_covered() {
    let (_, run) = finished().remove(0);
    let archive = archive(&run, &eval_of(&run, SPEC));
    // Exported without the flag, there is none.
    let whole = Book::write(&[Act::Run(run.clone()), Act::Checkpoint]);
    let (found, words) = judged(&whole.export_all());
    assert_eq!(
        (found, words.as_str()),
        (ClaimVerdict::Proven, "there is no verdict")
    );
    assert_eq!(judged(&archive).0, ClaimVerdict::Proven);
}

const FINISHED: usize = 20;

/// What is changed, in which frame, and how.
type Forgery = (&'static str, usize, &'static str, &'static str);

const FORGERIES: [Forgery; 11] = [
    ("a score", 2, r#""score":1"#, r#""score":0.5"#),
    ("a weight", 3, r#""weight":0.3"#, r#""weight":3"#),
    ("a gate", 3, r#""gate":true"#, r#""gate":false"#),
    ("a name", 2, r#""name":"ended""#, r#""name":"ends""#),
    (
        "a status alone",
        2,
        r#""status":"passed""#,
        r#""status":"failed""#,
    ),
    (
        "what was looked at",
        3,
        r#""frames":[0]"#,
        r#""frames":[1]"#,
    ),
    ("how many frames match", 3, r#""count":1"#, r#""count":2"#),
    (
        "the composite",
        FINISHED,
        r#""composite":0."#,
        r#""composite":0.0"#,
    ),
    (
        "the threshold",
        FINISHED,
        r#""pass_threshold":0.5"#,
        r#""pass_threshold":0.4"#,
    ),
    (
        "the totals",
        FINISHED + 1,
        r#""scenarios":1"#,
        r#""scenarios":2"#,
    ),
    (
        "the text of the spec",
        0,
        "equals: complete",
        "equals: finished",
    ),
];

/// The frame of an eval that names the end of its run, with another hash.
fn with_another_head(body: String) -> String {
    let at = body.find(r#""head":""#).unwrap() + r#""head":""#.len();
    let first = if body[at..].starts_with('0') {
        "1"
    } else {
        "0"
    };
    [&body[..at], first, &body[at + 1..]].concat()
}

/// The same eval with another text in one of its frames.
fn with_change(eval: &Recorded, wanted: usize, from: &str, to: &str) -> Recorded {
    let body = &eval.records[wanted].body;
    assert!(body.contains(from), "{from} is not in {body}");
    rechained(eval, |place, body| match place == wanted {
        true => body.replacen(from, to, 1),
        false => body,
    })
}

#[test]
fn a_verdict_that_was_changed_is_found_by_both_verifiers() {
    let (_, run) = finished()
        .into_iter()
        .find(|(_, run)| {
            let last = run.records.last().unwrap();
            last.body.contains("run.completed")
        })
        .unwrap();
    let eval = eval_of(&run, SPEC);
    let python = Python::find();
    let folder = tempfile::tempdir().unwrap();
    for (what, wanted, from, to) in FORGERIES {
        let forged = with_change(&eval, wanted, from, to);
        assert_forged(&run, &forged, what, python.as_ref(), folder.path());
    }
    let other = rechained(&eval, |place, body| match place {
        1 => with_another_head(body),
        _ => body,
    });
    assert_forged(
        &run,
        &other,
        "the head of the run",
        python.as_ref(),
        folder.path(),
    );
    // No version that is named makes the checks others than those of the text.
    let other = rechained(&eval, |place, body| match place {
        0 => body
            .replacen(r#""engine":""#, r#""engine":"other "#, 1)
            .replacen(r#""equals":"complete""#, r#""equals":"finished""#, 1),
        _ => body,
    });
    assert_forged(&run, &other, "the checks", python.as_ref(), folder.path());
    let frames = format!(r#""frames":{}"#, run.records.len());
    for (what, from, to) in [
        ("no frames", frames.as_str(), r#""frames":0"#),
        ("no run", r#""run":"run:"#, r#""run":"kv:"#),
    ] {
        let other = rechained(&eval, |place, body| match place {
            1 => body.replacen(from, to, 1),
            _ => body,
        });
        assert_forged(&run, &other, what, python.as_ref(), folder.path());
    }
    // A result that was turned, with the verdict that follows from it.
    let turned = rechained(&eval, |place, body| match place {
        4 => body
            .replacen(r#""passed":true"#, r#""passed":false"#, 1)
            .replacen(r#""score":1"#, r#""score":0"#, 1)
            .replacen(r#""status":"passed""#, r#""status":"failed""#, 1),
        FINISHED => with_composite(&eval, body),
        _ => body,
    });
    assert_forged(
        &run,
        &turned,
        "a result and its verdict",
        python.as_ref(),
        folder.path(),
    );
    let cut = Recorded {
        records: eval.records[..FINISHED].to_vec(),
        ..eval.clone()
    };
    let (found, words) = judged(&archive(&run, &cut));
    assert_eq!(found, ClaimVerdict::NotCovered, "{words}");
}

/// The verdict that follows once the third check fails.
fn with_composite(eval: &Recorded, body: String) -> String {
    let results = eval.records[2..FINISHED].iter().map(|record| {
        let frame: Value = serde_json::from_str(&record.body).unwrap();
        frame["data"].clone()
    });
    let (mut sum, mut total) = (0.0, 0.0);
    for result in results {
        let weight = result["weight"].as_f64().unwrap();
        let is_turned = result["name"] == "none";
        let score = if is_turned {
            0.0
        } else {
            result["score"].as_f64().unwrap()
        };
        sum += weight * score;
        total += weight;
    }
    let frame: Value = serde_json::from_str(&eval.records[FINISHED].body).unwrap();
    let before = format!(r#""composite":{}"#, frame["data"]["composite"]);
    let after = format!(r#""composite":{}"#, ktsu_eval::rounded(sum / total));
    body.replacen(&before, &after, 1)
}

fn assert_forged(
    run: &Recorded,
    forged: &Recorded,
    what: &str,
    python: Option<&Python>,
    folder: &Path,
) {
    assert_found(&archive(run, forged), what, python, folder);
}

/// Both verifiers find that an archive was forged.
fn assert_found(archive: &[u8], what: &str, python: Option<&Python>, folder: &Path) {
    let (found, words) = judged(archive);
    assert_eq!(found, ClaimVerdict::Failed, "{what}: {words}");
    let Some(python) = python else { return };
    if what == "the text of the spec" && !python.has_blake3 {
        return;
    }
    let said = python.verify(&[put(folder, &what.replace(' ', "-"), archive)], &[]);
    assert_eq!(verdict(&said[0], "evals"), "failed", "{what}: {}", said[0]);
}
