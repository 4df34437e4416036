//! Verdicts of models in archives: both verifiers make them again from the recorded replies.

use ktsu_eval::{JudgeQuestion, JudgeReplies, JudgeStep, JudgeSubject};
use ktsu_evidence::check::ClaimVerdict;
use ktsu_history::checked_run::CheckedRun;
use ktsu_ledger::CanonicalJson;
use ktsu_ledger::event::{AgentEvent, LlmResponse};
use serde_json::json;

use super::*;

const JUDGED: &str = "invariants:
  good: {description: d, check: {type: llm_as_judge, model: large, criteria: Is it good?, samples: 3, pass_threshold: 0.6}}
";

/// The eval of a run that a model judged with these replies, in turn.
fn eval_with(run: &Recorded, replies: &[&str]) -> Recorded {
    let mut store = MemoryStore::new();
    run.put(&mut store);
    let (spec, _) = EvalSpec::parse(Path::new("a.eval.yaml"), JUDGED).unwrap();
    let started = started(&spec, JUDGED);
    let checked = CheckedRun::read(&store, &run.stream, None).unwrap();
    let (mut writer, events) = EvalWriter::begin(started, spec.pass_threshold);
    let mut recorded: Vec<(String, Vec<_>, Event)> = Vec::new();
    let plain = |(cause, event)| (String::new(), cause, Event::Eval(event));
    recorded.extend(events.into_iter().map(plain));
    let about = (run.stream.clone(), checked.frames.len() as u64 - 1);
    let agents = |(scope, cause, event): (_, _, AgentEvent)| (scope, cause, Event::Agent(event));
    let (mut calls, mut replies) = (Vec::new(), replies.iter());
    let (invariant, check) = spec.judges().next().unwrap();
    let question = {
        let subject = JudgeSubject {
            envelope: &checked.envelope,
            files: None,
            services: None,
        };
        JudgeQuestion::of(&invariant.name, check, &subject).unwrap()
    };
    loop {
        match question.next(&calls) {
            JudgeStep::Done => break,
            JudgeStep::Record(requests) => {
                let (begun, frames) = writer.requests((0, 0), &about, requests);
                calls.extend(begun);
                recorded.extend(frames.into_iter().map(agents));
            }
            JudgeStep::Send(waiting) => {
                for request in waiting {
                    let call = calls.iter_mut().find(|call| call.request == request);
                    let call = call.unwrap();
                    let text = CanonicalJson::string(replies.next().unwrap());
                    let reply = json!({"attempt": call.sample(), "content": text,
                        "cost_micro_usd": 7, "duration_ms": 1, "input_hash": "", "model": "m",
                        "output_hash": "", "provider": "p", "request": request, "step": "good",
                        "tokens_in": 1, "tokens_out": 1});
                    let reply: LlmResponse = serde_json::from_value(reply).unwrap();
                    let frame = writer.answer((0, 0), call, reply).unwrap();
                    recorded.push(agents(frame));
                }
            }
        }
    }
    let replies = JudgeReplies {
        calls,
        ..JudgeReplies::default()
    };
    let invariants = &spec.invariants;
    let found = {
        let beside = evals::BesideRun {
            replies: Some(&replies),
            ..evals::BesideRun::default()
        };
        evals::check_read(checked, &run.stream, invariants, beside)
    };
    let mut events = writer.judged(found.started, Ok(found.results));
    events.extend(writer.finish());
    recorded.extend(events.into_iter().map(plain));
    sealed(&run.stream, recorded)
}

const REPLIES: [&str; 4] = [
    r#"{"score": 0.9, "passed": true, "reason": "good"}"#,
    "It is fine.",
    "```json\n{\"score\": 7, \"reason\": \"very good\"}\n```",
    r#"{"score": 0.4, "passed": false, "reason": "so-so"}"#,
];

#[test]
fn both_verifiers_make_the_score_again_from_the_replies() {
    let (_, run) = finished().remove(0);
    let eval = eval_with(&run, &REPLIES);
    let body = &eval.records[10].body;
    assert!(body.contains(r#""score":0.9,"status":"passed""#), "{body}");
    let archive = archive(&run, &eval);
    let (found, words) = judged(&archive);
    assert_eq!(
        (found, &*words),
        (
            ClaimVerdict::Proven,
            "1 verdict follows from 1 check made again"
        )
    );
    let Some(python) = Python::find() else { return };
    let folder = tempfile::tempdir().unwrap();
    let said = python.verify(&[put(folder.path(), "judged", &archive)], &[]);
    assert_eq!(verdict(&said[0], "evals"), "not_covered", "{}", said[0]);
    let words = reason(&said[0]);
    assert!(
        words.starts_with("1 verdict, 1 check made again; only ktsu judges"),
        "{words}"
    );
    assert!(words.ends_with("what a model was asked"), "{words}");
    for claim in said[0]["claims"].as_array().unwrap() {
        assert_ne!(claim["verdict"], "failed", "{claim}");
    }
}

#[test]
fn a_reply_or_a_result_that_was_changed_is_found_by_both_verifiers() {
    let (_, run) = finished().remove(0);
    let eval = eval_with(&run, &REPLIES);
    let (python, folder) = (Python::find(), tempfile::tempdir().unwrap());
    for (what, wanted, from, to) in [
        ("a reply", 4, r#"\"score\": 0.9"#, r#"\"score\": 0.3"#),
        (
            "the question of a reply",
            4,
            r#""request":1"#,
            r#""request":2"#,
        ),
        ("a score", 10, r#""score":0.9"#, r#""score":0.8"#),
        (
            "what was looked at",
            10,
            r#""frames":[4,"#,
            r#""frames":[5,"#,
        ),
        (
            "the scope of a question",
            1,
            r#""scope":"0.0""#,
            r#""scope":"0.1""#,
        ),
    ] {
        let forged = with_change(&eval, wanted, from, to);
        assert_forged(&run, &forged, what, python.as_ref(), folder.path());
    }
    // A reply with its digest made right.
    let text = r#"{"score": 0.1}"#;
    let old = REPLIES[0];
    let digest = |text: &str| ktsu_workflow::admit::report::sha256(&CanonicalJson::string(text));
    let forged = rechained(&eval, |_, body| {
        let written = CanonicalJson::string(old);
        body.replace(written.as_str(), CanonicalJson::string(text).as_str())
            .replace(&digest(old), &digest(text))
    });
    assert_forged(
        &run,
        &forged,
        "another reply",
        python.as_ref(),
        folder.path(),
    );
}
