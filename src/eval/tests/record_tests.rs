use ktsu_ledger::event::{
    CheckResult, EvalEvent, EvalFinished, EvalStarted, EvalStatus, Principal, ScenarioStarted,
    Score,
};
use ktsu_ledger::{Actor, Cause, Event, Frame, Hash, StreamId, Timestamp};

use super::support::{envelope, paid, spec};
use crate::{EvalRecord, EvalWriter, Subject, judge, judge_again};

const TEXT: &str = "invariants:
  team: {description: d, check: {type: output, expr: output.team, equals: network}}
  paid: {description: d, weight: 0.5, check: {type: trace, where: {tool: pay, type: tool.called}, count: {equals: 1}}}
  file: {description: d, weight: 0, check: {type: file_exists, path: a.txt}}
forbidden:
  - {where: {tool: refund}}
scoring: {pass_threshold: 0.9}
";

pub(super) const ENGINE: &str = "ktsu 1";

fn subject<'s>(envelope: &'s serde_json::Value, frames: &'s [crate::FrameView]) -> Subject<'s> {
    Subject {
        envelope,
        frames,
        workspace: None,
        services: None,
        replies: None,
    }
}

pub(super) fn started(text: &str) -> EvalStarted {
    EvalStarted {
        by: Principal {
            auth: "none".to_owned(),
            id: "local".to_owned(),
        },
        checks: spec(text).as_json,
        engine: ENGINE.to_owned(),
        file: "a.eval.yaml".to_owned(),
        sandbox: None,
        spec: text.to_owned(),
        spec_digest: Hash::of(text.as_bytes()),
        suite: None,
    }
}

/// What is recorded of a run that is checked.
pub(super) fn checked(run: &str, frames: &[crate::FrameView]) -> ScenarioStarted {
    ScenarioStarted {
        abandoned: Vec::new(),
        frames: frames.len() as u64,
        head: frames.last().unwrap().hash,
        replica: 0,
        run: StreamId::run(run).unwrap(),
        scenario: 0,
        services: None,
        workspace: None,
    }
}

/// The events of an eval of the run that paid.
fn events(text: &str) -> Vec<(Vec<Cause>, EvalEvent)> {
    let (envelope, frames) = (envelope(), paid());
    let spec = spec(text);
    let results = judge(&spec, &subject(&envelope, &frames));
    let scenario = checked("run_a", &frames);
    let (mut writer, mut events) = EvalWriter::begin(started(text), spec.pass_threshold);
    events.extend(writer.judged(scenario, Ok(results)));
    events.extend(writer.finish());
    events
}

pub(super) fn frames(events: Vec<(Vec<Cause>, EvalEvent)>) -> Vec<Frame> {
    let stream: StreamId = "eval:eval_a".parse().unwrap();
    let frame = |(seq, (cause, event)): (u64, (Vec<Cause>, EvalEvent))| Frame {
        stream: stream.clone(),
        seq,
        scope: String::new(),
        actor: Actor::Orchestrator,
        cause,
        at: Timestamp::from_micros(1),
        event: Event::Eval(event),
        ext: Vec::new(),
        prev: Hash::ZERO,
        hash: Hash::ZERO,
    };
    (0..).zip(events).map(frame).collect()
}

fn record(text: &str) -> EvalRecord {
    EvalRecord::of(&frames(events(text))).unwrap()
}

/// Why the record of changed events is refused, and at which frame.
fn refused(change: impl FnOnce(&mut Vec<(Vec<Cause>, EvalEvent)>)) -> (u64, &'static str) {
    let mut events = events(TEXT);
    change(&mut events);
    let fault = EvalRecord::of(&frames(events)).unwrap_err();
    (fault.seq, fault.reason)
}

fn result(events: &mut [(Vec<Cause>, EvalEvent)], at: usize) -> &mut CheckResult {
    match &mut events[at].1 {
        EvalEvent::Checked(result) => result,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_record_says_what_was_checked_and_what_was_found() {
    let record = record(TEXT);
    let scenario = &record.runs[0];
    let found: Vec<_> = scenario
        .results
        .iter()
        .map(|(seq, one)| (*seq, one.index, one.name.as_str(), one.status))
        .collect();
    use EvalStatus::{Error, Passed};
    let expected = [
        (2, 0, "team", Passed),
        (3, 1, "paid", Passed),
        (4, 2, "file", Error),
        (5, 3, "forbidden[0]", Passed),
    ];
    assert_eq!(found, expected);
    let finished = scenario.finished.as_ref().unwrap();
    assert_eq!((finished.status, finished.passed), (Error, false));
    let totals = EvalFinished {
        errors: 1,
        scenarios: 1,
        ..EvalFinished::default()
    };
    assert_eq!(record.finished, Some(totals));
    assert_eq!(
        record.spec(ENGINE).unwrap().unwrap().as_json,
        record.started.checks
    );
}

#[test]
fn the_scenario_follows_from_the_end_of_its_run_and_the_verdict_from_the_results() {
    let causes: Vec<Vec<String>> = events(TEXT)
        .iter()
        .map(|(cause, _)| cause.iter().map(Cause::to_string).collect())
        .collect();
    let last = format!("run:run_a#{}", paid().len() - 1);
    assert_eq!(causes[0], [""; 0]);
    assert_eq!(causes[1], ["0", &last]);
    assert_eq!(causes[2..6], [["1"], ["1"], ["1"], ["1"]]);
    assert_eq!(causes[6], ["2", "3", "4", "5"]);
    assert_eq!(causes[7], ["6"]);
}

#[test]
fn what_contradicts_itself_or_is_out_of_order_is_refused_at_its_frame() {
    let next = "it is not the result of the next check of the spec";
    let contradicts = "its score and its status contradict each other";
    let order = "it is out of order";
    for (fault, expected) in [
        (
            refused(|all| drop(all.remove(0))),
            (0, "an eval begins with eval.started"),
        ),
        (refused(|all| drop(all.remove(1))), (1, order)),
        (refused(|all| drop(all.remove(3))), (3, next)),
        (
            refused(|all| drop(all.remove(5))),
            (5, "checks of the spec have no result"),
        ),
        (refused(|all| drop(all.remove(6))), (6, order)),
        (refused(|all| all.swap(2, 3)), (2, next)),
        (
            refused(|all| all.push(all[7].clone())),
            (8, "it follows the end of the eval"),
        ),
        (
            refused(|all| result(all, 2).weight = Score::new(2.0)),
            (2, next),
        ),
        (refused(|all| result(all, 2).gate = true), (2, next)),
        (
            refused(|all| result(all, 3).check = "output".to_owned()),
            (3, next),
        ),
        (refused(|all| result(all, 2).scenario = 1), (2, next)),
        (
            refused(|all| result(all, 2).passed = false),
            (2, contradicts),
        ),
        (
            refused(|all| result(all, 2).score = Score::new(1.5)),
            (2, contradicts),
        ),
        (
            refused(|all| result(all, 4).score = Score::new(1.0)),
            (4, contradicts),
        ),
    ] {
        assert_eq!(fault, expected);
    }
    let verdict = refused(|all| {
        if let EvalEvent::ScenarioFinished(finished) = &mut all[6].1 {
            finished.composite = Score::new(0.5);
        }
    });
    assert_eq!(verdict, (6, "its verdict does not follow from its results"));
    for change in [
        |started: &mut ScenarioStarted| started.frames = 0,
        |started: &mut ScenarioStarted| started.run = StreamId::store(),
    ] {
        let no_run = refused(|all| {
            if let EvalEvent::ScenarioStarted(started) = &mut all[1].1 {
                change(started);
            }
        });
        assert_eq!(no_run, (1, "it names no run"));
    }
    let totals = refused(|all| {
        if let EvalEvent::Finished(finished) = &mut all[7].1 {
            finished.passed = 1;
        }
    });
    assert_eq!(totals, (7, "its totals are not those of its scenarios"));
    let digest = refused(|all| {
        if let EvalEvent::Started(started) = &mut all[0].1 {
            started.spec.push('\n');
        }
    });
    assert_eq!(digest, (0, "its spec has another digest"));
}

#[test]
fn checks_that_are_not_those_of_the_text_are_found() {
    let other = TEXT.replace("equals: network", "equals: support");
    let mut events = events(TEXT);
    if let EvalEvent::Started(started) = &mut events[0].1 {
        started.spec_digest = Hash::of(other.as_bytes());
        started.spec = other;
    }
    let record = EvalRecord::of(&frames(events)).unwrap();
    for engine in [ENGINE, "ktsu 9"] {
        let fault = record.spec(engine).unwrap_err();
        assert_eq!(fault.reason, "its checks are not those of its spec");
    }
}

#[test]
fn judging_again_gives_the_recorded_results_and_names_what_it_cannot_judge() {
    let record = record(TEXT);
    let (spec, scenario) = (record.spec(ENGINE).unwrap().unwrap(), &record.runs[0]);
    let (envelope, frames) = (envelope(), paid());
    let again = |engine: &str, record: &EvalRecord| {
        let scenario = &record.runs[0];
        judge_again(
            record,
            scenario,
            &spec,
            &subject(&envelope, &frames),
            engine,
        )
    };
    let judged = again(ENGINE, &record).unwrap();
    assert_eq!(judged.judged, 3);
    assert!(judged.not_covered.iter().eq(["file_exists"].iter()));
    // Of a run that did something else, the first result that differs is named.
    let fewer = &frames[..frames.len() - 1];
    let fewer = fewer.iter().filter(|frame| frame.kind != "tool.called");
    let fewer: Vec<crate::FrameView> = fewer.cloned().collect();
    let other = judge_again(
        &record,
        scenario,
        &spec,
        &subject(&envelope, &fewer),
        ENGINE,
    );
    assert_eq!(other.unwrap_err().seq, 3);
    // The words of a reason are those of the version that judged.
    let mut words = record.clone();
    words.runs[0].results[0].1.reason = "other words".to_owned();
    assert_eq!(again(ENGINE, &words).unwrap_err().seq, 2);
    words.started.engine = "ktsu 0".to_owned();
    assert_eq!(again(ENGINE, &words).unwrap().judged, 3);
}

#[test]
fn numbers_of_a_record_read_back_as_they_are_written() {
    for (number, text) in [
        (1.0, "1"),
        (0.0, "0"),
        (-0.0, "0"),
        (0.3, "0.3"),
        (0.769_230_769_231, "0.769230769231"),
        (1e9, "1000000000"),
        (f64::NAN, "0"),
    ] {
        let score = Score::new(number);
        let written = serde_json::to_string(&score).unwrap();
        assert_eq!(written, text);
        assert_eq!(serde_json::from_str::<Score>(&written).unwrap(), score);
    }
}

#[test]
fn scenarios_follow_one_another_and_one_without_results_has_a_reason() {
    let (envelope, frames_of_run) = (envelope(), paid());
    let spec = spec(TEXT);
    let results = judge(&spec, &subject(&envelope, &frames_of_run));
    let run = |name: &str| checked(name, &frames_of_run);
    let (mut writer, mut events) = EvalWriter::begin(started(TEXT), spec.pass_threshold);
    events.extend(writer.judged(run("run_a"), Ok(results)));
    events.extend(writer.judged(run("run_b"), Err("waiting".to_owned())));
    events.extend(writer.finish());
    let frames = frames(events.clone());
    let record = EvalRecord::of(&frames).unwrap();
    let ended: Vec<_> = record
        .runs
        .iter()
        .map(|one| {
            let finished = one.finished.as_ref().unwrap();
            (
                one.started.scenario,
                finished.error.as_deref(),
                finished.status,
            )
        })
        .collect();
    use EvalStatus::Error;
    assert_eq!(ended, [(0, None, Error), (1, Some("waiting"), Error)]);
    assert_eq!(record.finished.unwrap().errors, 2);
    let causes = frames.iter().map(|frame| frame.cause.clone());
    let causes: Vec<Vec<Cause>> = causes.collect();
    assert_eq!(
        causes[8],
        [Cause::Here(7)],
        "the reason follows from the scenario"
    );
    assert_eq!(causes[9], [Cause::Here(6), Cause::Here(8)]);
    // A reason beside results, or neither.
    for (at, error) in [(6, Some("waiting".to_owned())), (8, None)] {
        let mut events = events.clone();
        if let EvalEvent::ScenarioFinished(finished) = &mut events[at].1 {
            finished.error = error;
        }
        let fault = EvalRecord::of(&self::frames(events)).unwrap_err();
        assert_eq!(fault.seq, at as u64);
        assert_eq!(fault.reason, "checks of the spec have no result");
    }
}
