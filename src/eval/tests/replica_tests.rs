//! Replicas: how their verdicts become one, and how they are recorded.

use ktsu_ledger::event::{
    EvalEvent, EvalFinished, EvalStarted, EvalStatus, EvalSuite, PassEstimate, ReplicaAggregation,
    ReplicaTotals, ScenarioAggregated, ScenarioFinished, Score,
};
use ktsu_ledger::{Cause, StreamId};

use super::record_tests::{checked, frames, started};
use super::support::{envelope, faults, paid, spec};
use crate::aggregate::{aggregated, is_possible};
use crate::{CausedEvent, EvalRecord, EvalWriter, Subject, judge};

use EvalStatus::{Error, Failed, Passed};
use ReplicaAggregation::{All, Any, AtLeast, Majority, Mean, PassAt, PassHat};

/// A replica that ended so, with this composite.
fn replica(status: EvalStatus, composite: f64) -> ScenarioFinished {
    ScenarioFinished {
        composite: Score::new(composite),
        error: None,
        pass_threshold: Score::new(0.5),
        passed: status == Passed,
        replica: 0,
        scenario: 7,
        status,
    }
}

/// The verdict on `passed` replicas with composite 1, and `failed` ones with composite 0.
fn verdict(passed: usize, failed: usize, aggregation: ReplicaAggregation) -> ScenarioAggregated {
    let replicas = std::iter::repeat_n(replica(Passed, 1.0), passed);
    let replicas: Vec<ScenarioFinished> = replicas
        .chain(std::iter::repeat_n(replica(Failed, 0.0), failed))
        .collect();
    aggregated(&replicas, aggregation, 0.5)
}

fn estimate(k: u32, threshold: f64) -> PassEstimate {
    let threshold = Score::new(threshold);
    PassEstimate { k, threshold }
}

#[test]
fn each_aggregation_passes_from_its_number_of_replicas_on() {
    for (aggregation, passes_from) in [
        (All, 5),
        (Any, 1),
        (Majority, 3),
        // The mean of five composites, each 1 or 0, against a threshold of 0.5.
        (Mean, 3),
        (AtLeast(2), 2),
        // C(5 - c, 2) / C(5, 2) is 1, 0.6, 0.3, 0.1, 0, 0.
        (PassAt(estimate(2, 0.7)), 2),
        // C(c, 2) / C(5, 2) is 0, 0, 0.1, 0.3, 0.6, 1.
        (PassHat(estimate(2, 0.3)), 3),
    ] {
        for passed in 0..=5_usize {
            let found = verdict(passed, 5 - passed, aggregation);
            let expected = if passed >= passes_from {
                Passed
            } else {
                Failed
            };
            assert_eq!(found.status, expected, "{aggregation:?}, {passed} pass");
            assert_eq!(found.passed, expected == Passed);
            assert_eq!(found.flaky, (1..5).contains(&passed));
            assert_eq!(found.scenario, 7);
        }
    }
    // Half is not more than half.
    assert_eq!(verdict(2, 2, Majority).status, Failed);
    // A mean that equals the threshold passes.
    assert_eq!(verdict(2, 2, Mean).status, Passed);
}

#[test]
fn the_estimates_are_those_of_drawing_without_putting_back() {
    let at = |passed, failed, k| verdict(passed, failed, PassAt(estimate(k, 1.0))).estimate;
    let hat = |passed, failed, k| verdict(passed, failed, PassHat(estimate(k, 1.0))).estimate;
    let score = |number| Some(Score::new(number));
    assert_eq!(at(1, 9, 1), score(0.1));
    assert_eq!(at(3, 7, 5), score(0.916_666_666_667));
    assert_eq!(at(6, 4, 5), score(1.0));
    assert_eq!(hat(9, 1, 1), score(0.9));
    assert_eq!(hat(7, 3, 5), score(0.083_333_333_333));
    assert_eq!(hat(4, 6, 5), score(0.0));
    assert_eq!(hat(10, 0, 10), score(1.0));
    assert_eq!(verdict(3, 2, All).estimate, None);
}

#[test]
fn a_replica_without_a_verdict_leaves_the_scenario_without_one_and_is_not_flaky_alone() {
    for aggregation in [
        All,
        Any,
        Majority,
        Mean,
        AtLeast(1),
        PassAt(estimate(1, 0.0)),
    ] {
        let replicas = [replica(Passed, 1.0), replica(Error, 0.0)];
        let found = aggregated(&replicas, aggregation, 0.5);
        assert_eq!(
            (found.status, found.passed, found.flaky),
            (Error, false, false)
        );
        let totals = ReplicaTotals {
            errors: 1,
            failed: 0,
            passed: 1,
        };
        assert_eq!(found.replicas, totals);
        assert_eq!(found.composite, Score::new(0.5));
    }
}

#[test]
fn no_more_can_be_drawn_than_there_are() {
    let suite = |replicas, aggregation| EvalSuite {
        aggregation,
        only: None,
        replicas,
        scenarios: 1,
    };
    assert!(is_possible(&suite(3, AtLeast(3))));
    for (replicas, aggregation) in [
        (3, AtLeast(4)),
        (3, PassAt(estimate(4, 0.5))),
        (3, PassHat(estimate(0, 0.5))),
        (0, All),
        (1_001, All),
        (u32::MAX, PassHat(estimate(u32::MAX, 0.5))),
    ] {
        assert!(!is_possible(&suite(replicas, aggregation)), "{replicas}");
    }
}

const CHECKS: &str = "invariants: {team: {description: d, check: {type: output, expr: output.team, equals: network}}}\n";

/// A spec with replicas.
fn several(aggregation: &str) -> String {
    format!(
        "subject: {{}}\nreplicas: 3\nmatrix: {{params.a: [1, 2]}}\nscoring: {{replica_aggregation: {aggregation}}}\n{CHECKS}"
    )
}

/// The first fault of a text.
fn first(text: &str) -> String {
    faults(text).remove(0).2
}

#[test]
fn every_aggregation_of_a_file_is_read() {
    for (text, expected) in [
        ("all", All),
        ("any", Any),
        ("majority", Majority),
        ("mean", Mean),
        ("{at_least: 2}", AtLeast(2)),
        (
            "{pass_at: {k: 2, threshold: 0.5}}",
            PassAt(estimate(2, 0.5)),
        ),
        (
            "{pass_hat: {k: 3, threshold: 1}}",
            PassHat(estimate(3, 1.0)),
        ),
    ] {
        let suite = spec(&several(text)).suite.unwrap().recorded(None);
        assert_eq!(
            (suite.aggregation, suite.replicas, suite.scenarios),
            (expected, 3, 2)
        );
        let written = serde_json::to_value(&suite).unwrap();
        assert_eq!(serde_json::from_value::<EvalSuite>(written).unwrap(), suite);
    }
    for (text, words) in [
        ("most", "replica_aggregation"),
        ("{at_least: 4}", "fewer replicas"),
        ("{at_least: 0}", "at_least"),
        ("{pass_at: {k: 2}}", "threshold"),
        ("{pass_at: {k: 4, threshold: 0.5}}", "fewer replicas"),
        ("{pass_at: {k: 1, threshold: 2}}", "threshold"),
        ("{at_least: 1, pass_at: {k: 1, threshold: 1}}", "pass_at"),
    ] {
        let found = first(&several(text));
        assert!(found.contains(words), "{text}: {found}");
    }
    let one = several("{at_least: 2}").replace("replicas: 3", "replicas: 1");
    assert!(first(&one).contains("fewer replicas"));
    let run = several("all").replace("subject: {}", "subject: {run: run_a}");
    assert!(first(&run).contains("it ran once"));
    let many = several("all")
        .replace("replicas: 3", "replicas: 1000")
        .replace("[1, 2]", "[1,2,3,4,5,6,7,8,9,10,11]");
    assert!(first(&many).contains("more than 10000 runs"));
}

/// An eval of two scenarios with three replicas each, the second of which fails in the first scenario.
fn events(text: &str) -> Vec<CausedEvent> {
    let (mut writer, mut events) = begin(text);
    for at in 0..6 {
        events.extend(judged(&mut writer, text, at));
    }
    events.extend(writer.finish());
    events
}

fn begin(text: &str) -> (EvalWriter, Vec<CausedEvent>) {
    let spec = spec(text);
    let started = EvalStarted {
        suite: spec.suite.as_ref().map(|suite| suite.recorded(None)),
        ..started(text)
    };
    EvalWriter::begin(started, spec.pass_threshold)
}

/// The events of the run with this number.
fn judged(writer: &mut EvalWriter, text: &str, at: usize) -> Vec<CausedEvent> {
    let (mut envelope, frames) = (envelope(), paid());
    if at == 1 {
        envelope["output"]["team"] = "other".into();
    }
    let subject = Subject {
        envelope: &envelope,
        frames: &frames,
        workspace: None,
        services: None,
        replies: None,
    };
    let results = judge(&spec(text), &subject);
    writer.judged(checked(&format!("run_{at}"), &frames), Ok(results))
}

#[test]
fn a_scenario_is_judged_after_its_last_replica_and_both_are_totalled() {
    let record = EvalRecord::of(&frames(events(&several("majority")))).unwrap();
    let places = record
        .runs
        .iter()
        .map(|run| (run.started.scenario, run.started.replica));
    let expected = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)];
    assert_eq!(places.collect::<Vec<_>>(), expected);
    let verdicts = record.aggregated.iter();
    let verdicts: Vec<_> = verdicts
        .map(|one| (one.scenario, one.status, one.flaky))
        .collect();
    assert_eq!(verdicts, [(0, Passed, true), (1, Passed, false)]);
    let totals = EvalFinished {
        flaky: 1,
        passed: 2,
        replicas: Some(ReplicaTotals {
            errors: 0,
            failed: 1,
            passed: 5,
        }),
        scenarios: 2,
        ..EvalFinished::default()
    };
    assert_eq!(record.finished, Some(totals));
    let all = EvalRecord::of(&frames(events(&several("all")))).unwrap();
    assert_eq!((all.totals().passed, all.totals().failed), (1, 1));
}

#[test]
fn the_verdict_on_all_replicas_follows_from_theirs_and_the_end_from_those() {
    // Each replica has three frames; the first verdict on all is frame 10.
    let events = events(&several("majority"));
    assert!(matches!(events[10].1, EvalEvent::Aggregated(_)));
    assert!(matches!(events[20].1, EvalEvent::Aggregated(_)));
    let here = |seqs: &[u64]| seqs.iter().copied().map(Cause::Here).collect::<Vec<_>>();
    assert_eq!(events[10].0, here(&[3, 6, 9]));
    assert_eq!(events[20].0, here(&[13, 16, 19]));
    assert_eq!(events[21].0, here(&[10, 20]));
}

#[test]
fn an_eval_is_continued_after_any_of_its_runs_with_the_same_frames() {
    let text = several("majority");
    let whole = events(&text);
    for done in 0..6 {
        let (mut writer, mut events) = begin(&text);
        for at in 0..done {
            events.extend(judged(&mut writer, &text, at));
        }
        let record = EvalRecord::of(&frames(events.clone())).unwrap();
        let mut writer = EvalWriter::resume(&record).unwrap();
        for at in done..6 {
            assert_eq!(writer.next_run(), ((at / 3) as u32, (at % 3) as u32));
            events.extend(judged(&mut writer, &text, at));
        }
        events.extend(writer.finish());
        assert_eq!(events, whole, "after {done}");
    }
    let ended = EvalRecord::of(&frames(whole)).unwrap();
    assert!(EvalWriter::resume(&ended).is_none(), "it has ended");
    let within = frames(events(&text)[..3].to_vec());
    let within = EvalRecord::of(&within).unwrap();
    assert!(
        EvalWriter::resume(&within).is_none(),
        "it ends within a run"
    );
}

/// Why a changed record is refused, and at which frame.
fn refused(change: impl FnOnce(&mut Vec<CausedEvent>)) -> (u64, &'static str) {
    let mut events = events(&several("majority"));
    change(&mut events);
    let fault = EvalRecord::of(&frames(events)).unwrap_err();
    (fault.seq, fault.reason)
}

#[test]
fn a_record_of_replicas_that_contradicts_itself_is_refused_at_its_frame() {
    let order = "it is out of order";
    for (fault, expected) in [
        (refused(|all| drop(all.remove(10))), (10, order)),
        (refused(|all| drop(all.drain(7..10))), (7, order)),
        (
            refused(|all| drop(all.drain(11..21))),
            (11, "scenarios have no verdict"),
        ),
        (
            refused(|all| {
                if let EvalEvent::Aggregated(verdict) = &mut all[10].1 {
                    verdict.flaky = false;
                }
            }),
            (10, "its verdict does not follow from its replicas"),
        ),
        (
            refused(|all| {
                if let EvalEvent::ScenarioStarted(started) = &mut all[4].1 {
                    started.replica = 2;
                }
            }),
            (4, order),
        ),
        (
            refused(|all| {
                if let EvalEvent::Checked(result) = &mut all[5].1 {
                    result.replica = 0;
                }
            }),
            (5, "it is not the result of the next check of the spec"),
        ),
        (
            refused(|all| {
                if let EvalEvent::ScenarioFinished(finished) = &mut all[6].1 {
                    finished.replica = 0;
                }
            }),
            (6, "its verdict does not follow from its results"),
        ),
        (
            refused(|all| {
                if let EvalEvent::ScenarioStarted(started) = &mut all[4].1 {
                    started.abandoned = vec![StreamId::store()];
                }
            }),
            (4, "it names no run"),
        ),
        (
            refused(|all| {
                if let EvalEvent::Finished(finished) = &mut all[21].1 {
                    finished.flaky = 0;
                }
            }),
            (21, "its totals are not those of its scenarios"),
        ),
        (
            refused(|all| suite(all, |suite| suite.aggregation = AtLeast(4))),
            (0, "its replicas cannot be aggregated"),
        ),
        (
            refused(|all| suite(all, |suite| suite.aggregation = All)),
            (10, "its verdict does not follow from its replicas"),
        ),
    ] {
        assert_eq!(fault, expected);
    }
    // What a spec says is compared with what was run.
    for change in [
        (|suite: &mut EvalSuite| suite.aggregation = Any) as fn(&mut EvalSuite),
        |suite| suite.only = Some("a=3".to_owned()),
    ] {
        let mut events = events(&several("majority"));
        suite(&mut events, change);
        let record = EvalRecord::of(&frames(events[..1].to_vec())).unwrap();
        let fault = record.spec("ktsu 1").unwrap_err();
        assert_eq!(fault.reason, "its checks are not those of its spec");
    }
}

fn suite(events: &mut [CausedEvent], change: impl FnOnce(&mut EvalSuite)) {
    if let EvalEvent::Started(started) = &mut events[0].1
        && let Some(suite) = &mut started.suite
    {
        change(suite);
    }
}
