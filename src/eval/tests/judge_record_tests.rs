//! The record of checks that a model makes: judged again, tampered with, and resumed.

use ktsu_ledger::event::{AgentEvent, EvalEvent, EvalStatus, LlmResponse, Purpose};
use ktsu_ledger::{CanonicalJson, Event, Frame};
use serde_json::{Value, json};

use super::model_judge_tests::{Eval, file, frames, score, text, user};
use super::record_tests::checked;
use super::support::{envelope, paid};
use crate::{EvalRecord, EvalWriter, JudgeReplies, Subject, judge_again};

const ENGINE: &str = "ktsu 1";

/// The frames of an eval with three samples, one of which was repaired.
fn eval_with_calls() -> (Value, Vec<Frame>) {
    let (mut eval, envelope) = (Eval::new(&file(", samples: 3")), envelope());
    let reply = |at| match at {
        1 => text("no"),
        3 => score(0.8),
        _ => score(0.6),
    };
    let found = eval.ask(&envelope, None, Vec::new(), reply, usize::MAX);
    let (_, frames) = eval.judged(&envelope, &found);
    (envelope, frames)
}

fn again(envelope: &Value, frames: &[Frame]) -> Result<crate::JudgedAgain, (u64, &'static str)> {
    let short = |fault: crate::RecordFault| (fault.seq, fault.reason);
    let record = EvalRecord::of(frames).map_err(short)?;
    let (spec, views) = (record.spec(ENGINE).unwrap().unwrap(), paid());
    let subject = Subject {
        envelope,
        frames: &views,
        workspace: None,
        services: None,
        replies: None,
    };
    judge_again(&record, &record.runs[0], &spec, &subject, ENGINE).map_err(short)
}

#[test]
fn the_recorded_replies_give_the_result_again_and_their_cost_is_that_of_the_eval() {
    let (envelope, frames) = eval_with_calls();
    let record = EvalRecord::of(&frames).unwrap();
    let usage = record.usage();
    assert_eq!(
        (usage.llm_calls, usage.repair_calls, usage.cost_micro_usd),
        (4, 1, 120)
    );
    let found = again(&envelope, &frames).unwrap();
    assert_eq!((found.judged, found.not_covered.len()), (1, 0));
    // The other samples and the repair extend the first request, whose texts are recorded once.
    let kinds: Vec<(u32, Purpose, Option<u64>)> = frames
        .iter()
        .filter_map(|frame| match &frame.event {
            Event::Agent(AgentEvent::Request(request)) => {
                Some((request.attempt, request.purpose, request.base))
            }
            _ => None,
        })
        .collect();
    let expected = [
        (1, Purpose::Turn, None),
        (2, Purpose::Turn, Some(1)),
        (3, Purpose::Turn, Some(1)),
        (2, Purpose::Repair, Some(2)),
    ];
    assert_eq!(kinds, expected);
}

#[test]
fn a_changed_reply_request_or_result_is_found() {
    let (envelope, frames) = eval_with_calls();
    let at = |kind: &str| {
        frames
            .iter()
            .position(|it| it.event.kind() == kind)
            .unwrap()
    };
    let changed = |at: usize, change: &dyn Fn(&mut Event)| {
        let mut frames = frames.clone();
        change(&mut frames[at].event);
        again(&envelope, &frames).unwrap_err()
    };
    let answered = |change: fn(&mut LlmResponse)| {
        changed(at("llm.response"), &move |event| match event {
            Event::Agent(AgentEvent::Response(answer)) => change(answer),
            other => panic!("{other:?}"),
        })
    };
    let digest = "its digest is not that of what the model replied";
    let (seq, reason) = answered(|answer| answer.content = Some(CanonicalJson::string("{}")));
    assert_eq!((seq, reason), (4, digest));
    // With its digest made right, the result no longer follows from it.
    let (_, reason) = answered(|answer| {
        let content = CanonicalJson::string(r#"{"score": 1}"#);
        answer.output_hash = ktsu_workflow::admit::report::sha256(&content);
        answer.content = Some(content);
    });
    assert_eq!(reason, "the run gives another result of this check");
    let (_, reason) = answered(|answer| answer.input_hash = "sha256:0".to_owned());
    assert_eq!(reason, "it is not the reply to its request");
    let (_, reason) = answered(|answer| answer.request = 9);
    assert_eq!(reason, "it is not the reply to a request");
    let (_, reason) = changed(at("llm.request"), &|event| match event {
        Event::Agent(AgentEvent::Request(request)) => request.group = "large".to_owned(),
        other => panic!("{other:?}"),
    });
    assert_eq!(reason, "its digest is not that of what the model is asked");
    let (_, reason) = changed(at("check.result"), &|event| match event {
        Event::Eval(EvalEvent::Checked(result)) => result.reason.push('!'),
        other => panic!("{other:?}"),
    });
    assert_eq!(reason, "the run gives another result of this check");
    // Another run gives another question.
    let mut other = envelope.clone();
    other["output"] = json!("something else");
    let reason = again(&other, &frames).unwrap_err().1;
    assert_eq!(reason, "the run gives another result of this check");
}

#[test]
fn a_verdict_of_a_model_that_was_not_asked_is_found() {
    let (envelope, frames) = eval_with_calls();
    let without: Vec<Frame> = frames
        .into_iter()
        .filter(|frame| !matches!(frame.event, Event::Agent(_)))
        .collect();
    assert_eq!(
        again(&envelope, &without).unwrap_err().1,
        "no model was asked"
    );
}

#[test]
fn calls_of_another_run_check_or_place_are_refused() {
    let (envelope, frames) = eval_with_calls();
    for (change, words) in [
        (
            (|frame| frame.scope = "0.1".to_owned()) as fn(&mut Frame),
            "the run that it is about is judged, or is none of the eval",
        ),
        (
            |frame| frame.scope = "00.0".to_owned(),
            "its scope is no run of the eval",
        ),
        (|frame| frame.cause.truncate(1), "it names no run"),
        (
            |frame| match &mut frame.event {
                Event::Agent(AgentEvent::Request(request)) => request.step = "other".to_owned(),
                other => panic!("{other:?}"),
            },
            "it is of no check that asks a model",
        ),
    ] {
        let mut frames = frames.clone();
        change(&mut frames[1]);
        assert_eq!(again(&envelope, &frames).unwrap_err().1, words);
    }
}

#[test]
fn an_eval_that_was_interrupted_asks_only_what_has_no_reply() {
    for most in 0..4 {
        let (mut eval, envelope) = (Eval::new(&file(", samples: 3")), envelope());
        let reply = |at| if at == 1 { text("no") } else { score(0.5) };
        eval.ask(&envelope, None, Vec::new(), reply, most);
        let record = EvalRecord::of(&frames(eval.recorded.clone())).unwrap();
        let views = paid();
        let run = checked("run_a", &views).run;
        let known = record.calls_of((0, 0), &run, views.len() as u64);
        eval.writer = EvalWriter::resume(&record).unwrap();
        let found = eval.ask(&envelope, None, known, reply, usize::MAX);
        assert_eq!(eval.asked.len(), 4, "{most}");
        let (results, frames) = eval.judged(&envelope, &found);
        assert_eq!(results[0].status, EvalStatus::Passed);
        assert_eq!(again(&envelope, &frames).unwrap().judged, 1);
    }
}

#[test]
fn what_was_judged_of_a_workspace_is_not_in_the_run_and_said_to_be_not_covered() {
    let (mut eval, envelope) = (Eval::new(&file(", input_from: workspace")), envelope());
    let found = eval.ask(
        &envelope,
        Some("a.txt: hello"),
        Vec::new(),
        |_| score(1),
        usize::MAX,
    );
    assert!(user(&eval.asked[0]).contains("\na.txt: hello\n"));
    let (results, mut frames) = eval.judged(&envelope, &found);
    assert_eq!(results[0].status, EvalStatus::Passed);
    let found = again(&envelope, &frames).unwrap();
    assert_eq!(found.judged, 1);
    assert_eq!(
        found.not_covered.into_iter().collect::<Vec<_>>(),
        ["llm_as_judge"]
    );
    let at = frames
        .iter()
        .position(|it| it.event.kind() == "check.result");
    if let Event::Eval(EvalEvent::Checked(result)) = &mut frames[at.unwrap()].event {
        result.reason.push('!');
    }
    let reason = again(&envelope, &frames).unwrap_err().1;
    assert_eq!(reason, "the run gives another result of this check");
}

#[test]
fn a_check_that_asked_nothing_says_why() {
    let (eval, envelope) = (Eval::new(&file("")), envelope());
    let refused = [("good".to_owned(), "no gateway".to_owned())];
    let found = JudgeReplies {
        calls: Vec::new(),
        refused: refused.into(),
    };
    let (results, frames) = eval.judged(&envelope, &found);
    assert_eq!(
        (results[0].status, &*results[0].reason),
        (EvalStatus::Error, "no gateway")
    );
    let found = again(&envelope, &frames).unwrap();
    assert_eq!((found.judged, found.not_covered.len()), (0, 1));
}
