//! Budgets that are used up, and raised.

use ktsu_ledger::Timestamp;
use ktsu_ledger::event::{Decision, Principal, RunEvent, TimerKind};
use ktsu_projections::run::RunStatus;

use super::posts_tests::{request, topic};
use super::*;
use crate::admit::budget::{RaisedBudget, raise};
use crate::admit::intervention::{InterventionError, resume};
use crate::admit::post::PostError;
use crate::admit::report::{ReportAdmission, report};
use crate::admit::steer::{RunControl, steer};
use crate::driven_tests::{Say, output};
use crate::plans_tests::agent;
use crate::timers;

const SECOND: u64 = 1_000_000;

pub(super) fn ann() -> Principal {
    request(Vec::new()).by
}

pub(super) fn events(max_events: u64) -> RaisedBudget {
    RaisedBudget {
        max_events: Some(max_events),
        ..RaisedBudget::default()
    }
}

impl Driven {
    /// A person raises limits.
    pub(crate) fn raises(&mut self, raised: RaisedBudget) -> Result<(), InterventionError> {
        let now = Timestamp::from_micros(self.now + 1_000);
        let drafts = raise(&self.state, raised, ann(), None, now)?;
        self.inputs(drafts);
        Ok(())
    }

    pub(crate) fn resumes(&mut self, from: Option<&str>) -> Result<(), InterventionError> {
        let now = Timestamp::from_micros(self.now + 1_000);
        let from = from.map(str::to_owned);
        let draft = resume(&self.state, from, ann(), None, now)?;
        self.input(draft);
        Ok(())
    }

    pub(super) fn pauses(&mut self) {
        let draft = steer(&self.state, RunControl::Pause, ann(), None).unwrap();
        self.input(draft);
    }

    /// When the time of the budget is used up, if the run uses any.
    fn world_deadline(&self) -> Option<u64> {
        timers::next(&self.state).map(|timer| timer.until.as_micros())
    }

    /// The timer of the budget fires when it is due.
    pub(crate) fn uses_up_its_time(&mut self) {
        let due = self.world_deadline().expect("a timer is set");
        let early = Timestamp::from_micros(due - 1);
        assert!(timers::world_time_up(&self.state, early).is_none());
        let draft = timers::world_time_up(&self.state, Timestamp::from_micros(due));
        self.now = due - 1_000;
        self.input(draft.expect("the time is used up"));
    }

    fn used_seconds(&self) -> u64 {
        self.state.responding().unwrap().used_ms() / 1_000
    }

    fn reasons(&self) -> Vec<String> {
        let told = self.last("budget.exhausted");
        let reasons = told["reasons"].as_array().unwrap().iter();
        let reasons = reasons.map(|reason| reason.as_str().unwrap().to_owned());
        reasons.collect()
    }
}

fn hash(run: &Driven) -> String {
    run.state.responding().unwrap().head().hash()
}

fn budget(more: Value) -> Value {
    let mut budget = json!({"max_events": 1000, "max_llm_cost_micro_usd": 1_000_000,
        "max_recursion_depth": 50, "max_wall_ms": 100_000});
    merge(&mut budget, more);
    json!({"budget": budget})
}

#[test]
fn a_run_continues_where_its_budget_ended_and_comes_to_the_world_that_it_would_have_come_to() {
    let whole = run(json!([]), world(json!({})));
    for limit in 1..10 {
        let mut run = run(json!([]), world(budget(json!({"max_events": limit}))));
        assert_eq!(run.kinds().last().unwrap(), "run.failed");
        let left = &run.last("budget.exhausted")["dropped"];
        let left = left["outputs"].as_u64().unwrap() + left["triggers"].as_u64().unwrap();
        assert!(limit == 1 || left > 0, "{limit}");
        run.raises(events(limit + 1)).unwrap();
        if limit < 9 {
            assert_eq!(run.reasons(), [format!("max_events={}", limit + 1)]);
            run.raises(events(100)).unwrap();
        }
        assert_eq!(hash(&run), hash(&whole), "{limit}");
        assert_eq!(run.kinds().last().unwrap(), "run.completed");
        assert!(run.envelope().get("error").is_none());
        run.holds_together();
    }
}

#[test]
fn a_resumption_that_leaves_a_limit_used_up_is_refused_and_names_it() {
    let mut run = endless(json!({"max_events": 3, "max_recursion_depth": 2}));
    let frames = run.frames.len();
    for from in [None, Some("a")] {
        let refused = run.resumes(from).unwrap_err();
        let InterventionError::UsedUp(reasons) = refused else {
            panic!("{refused}");
        };
        assert_eq!(reasons, "max_events=3, max_recursion_depth=2");
    }
    let refused = run.raises(events(10)).unwrap_err();
    assert!(
        matches!(&refused, InterventionError::UsedUp(left) if left == "max_recursion_depth=2"),
        "{refused}"
    );
    let refused = run.raises(events(3)).unwrap_err();
    assert!(
        matches!(&refused, InterventionError::NotHigher(now) if now == "max_events=3"),
        "{refused}"
    );
    let refused = run.raises(RaisedBudget::default()).unwrap_err();
    assert!(matches!(refused, InterventionError::NothingRaised));
    assert_eq!(run.frames.len(), frames);
    let both = RaisedBudget {
        max_recursion_depth: Some(3),
        ..events(5)
    };
    run.raises(both).unwrap();
    // Depth 3 is reached with the fourth event, and ends the run before the fifth.
    assert_eq!(run.reasons(), ["max_recursion_depth=3"]);
    let raised = run
        .frames
        .iter()
        .find(|frame| frame.event.kind() == "budget.raised");
    let raised = raised.unwrap();
    assert_eq!(raised.actor.to_string(), "principal:ann");
    assert_eq!(raised.seq, frames as u64);
    run.holds_together();
    // Both limits are reached again, and the older of them holds as it was raised.
    let deeper = RaisedBudget {
        max_recursion_depth: Some(50),
        ..RaisedBudget::default()
    };
    run.raises(deeper).unwrap();
    assert_eq!(run.reasons(), ["max_events=5"]);
    run.holds_together();
}

#[test]
fn a_raised_budget_makes_room_for_posts_to_a_run_that_is_complete() {
    let mut run = run(json!([]), world(budget(json!({"max_events": 10}))));
    let ended = hash(&run);
    let refused = run.post(request(vec![topic("t2", "waves")]));
    assert_eq!(
        refused.unwrap_err(),
        PostError::Exhausted("max_events=10".to_owned())
    );
    run.raises(events(20)).unwrap();
    assert_eq!(run.kinds().last().unwrap(), "run.completed");
    assert_eq!(hash(&run), ended);
    run.post(request(vec![topic("t2", "waves")])).unwrap();
    assert_eq!(run.kinds().last().unwrap(), "run.completed");
    run.holds_together();
}

#[test]
fn a_budget_is_raised_while_a_run_is_paused_and_in_a_branch_that_waits() {
    let mut paused = working(budget(json!({})));
    paused.pauses();
    paused.raises(events(2000)).unwrap();
    let kinds = paused.kinds();
    assert_eq!(kinds[kinds.len() - 2..], ["budget.raised", "run.resumed"]);
    assert_eq!(paused.state.status(), RunStatus::Running);
    paused.says("a", &[Say::Reply { cost: 10 }, output(json!({"v": 1}))]);
    paused.is_whole();

    let exhausted = run(json!([]), world(budget(json!({"max_events": 4}))));
    let mut branch = exhausted.forked();
    assert_eq!(branch.state.status(), RunStatus::Failed);
    assert!(matches!(
        branch.resumes(None),
        Err(InterventionError::UsedUp(_))
    ));
    branch.raises(events(100)).unwrap();
    assert_eq!(branch.kinds().last().unwrap(), "run.completed");
    assert_eq!(hash(&branch), hash(&run(json!([]), world(json!({})))));
    branch.is_whole();
}

#[test]
fn the_budget_of_a_run_that_failed_otherwise_or_has_no_worlds_is_not_raised() {
    let wrong = emits(json!([object("Topic", json!({"txt": "no"}))]));
    let fails = responder("wrong", "object.created", "Topic", wrong);
    let mut failed = run(json!([]), world(json!({"responders": [fails]})));
    assert!(matches!(
        failed.raises(events(2000)),
        Err(InterventionError::NotRaisable("failed"))
    ));
    let plan = plan(json!({"main": workflow("main", json!([]))}));
    let mut without = Driven::invoke(plan, json!({"x": [1]}));
    assert!(matches!(
        without.raises(events(2000)),
        Err(InterventionError::NoWorlds)
    ));
}

/// A world beside a step that a runtime works on.
fn working(more: Value) -> Driven {
    let steps = json!([
        agent("a", json!([]), "plain", json!({})),
        transform("b", json!([0]), "step.a"),
    ]);
    let mut run = run(steps, world(more));
    run.asks("a");
    run
}

#[test]
fn the_time_of_a_budget_ends_a_run_and_its_steps_begin_again_once_it_is_raised() {
    let mut run = working(budget(json!({"max_wall_ms": 5_000})));
    run.uses_up_its_time();
    let kinds = run.kinds();
    let ends = &kinds[kinds.len() - 6..];
    assert_eq!(
        ends,
        [
            "timer.fired",
            "budget.exhausted",
            "agent.finished a",
            "step.failed a",
            "step.skipped b",
            "run.failed"
        ]
    );
    assert_eq!(run.reasons(), ["max_wall_seconds=5"]);
    assert_eq!(run.last("budget.exhausted")["elapsed_ms"], 5_000);
    assert_eq!(run.state.failing().unwrap().code, "budget_exhausted");
    run.holds_together();
    // A day later.
    run.now += 86_400 * SECOND;
    let enough = RaisedBudget {
        max_wall_ms: Some(8_500),
        ..RaisedBudget::default()
    };
    run.raises(enough).unwrap();
    let kinds = run.kinds();
    let resets = kinds.iter().filter(|kind| kind.starts_with("step.reset"));
    assert_eq!(resets.count(), 2, "{kinds:?}");
    // Nothing is refilled: three and a half seconds are left.
    let left = run.world_deadline().unwrap() - run.now;
    assert_eq!(left, 3_500_000);
    let mut done = run.cut(run.frames.len());
    done.does("a", json!({"v": 1}));
    assert_eq!(done.kinds().last().unwrap(), "run.completed");
    done.holds_together();
    run.uses_up_its_time();
    assert_eq!(run.reasons(), ["max_wall_seconds=8.5"]);
    run.holds_together();
}

#[test]
fn time_in_which_a_run_is_paused_waits_for_people_or_no_engine_runs_is_not_used_up() {
    let mut run = working(budget(json!({})));
    run.now += 10 * SECOND;
    run.pauses();
    assert_eq!(run.used_seconds(), 10);
    assert_eq!(run.world_deadline(), None);
    run.now += 3_600 * SECOND;
    run.resumes(None).unwrap();
    assert_eq!(run.used_seconds(), 10);
    let used = run.state.responding().unwrap().used_ms();
    let left = run.world_deadline().unwrap() - run.now;
    assert_eq!(left, (100_000 - used) * 1_000);

    let steps = json!([agent("a", json!([]), "acts", json!({}))]);
    let mut waits = super::run(steps, world(budget(json!({}))));
    waits.asks("a");
    waits.says("a", &[Say::Wants(vec!["delete-a"])]);
    waits.says("a", &[Say::Gate(0, "s".to_owned(), "delete-a".to_owned())]);
    assert_eq!(waits.state.status(), RunStatus::Waiting);
    let used = waits.state.responding().unwrap().used_ms();
    waits.now += 3_600 * SECOND;
    waits.decides("a", "ann", Decision::Approved, None).unwrap();
    assert_eq!(waits.state.responding().unwrap().used_ms(), used);
    assert!(waits.world_deadline().is_some());

    // A log that was cut in the middle of what follows from an input goes on a day later.
    let whole = super::run(json!([]), world(budget(json!({}))));
    let mut cut = whole.cut(5);
    let used = cut.state.responding().unwrap().used_ms();
    cut.now += 86_400 * SECOND;
    cut.restarts();
    let restarted = cut.frames.iter().any(|frame| {
        matches!(&frame.event, Event::Run(RunEvent::Continued(again))
            if again.why == ktsu_ledger::event::ContinueReason::Restart)
    });
    assert!(restarted);
    assert!(cut.state.responding().unwrap().used_ms() <= used + 10);
    cut.is_whole();
}

#[test]
fn a_timer_that_fires_early_is_no_frame_that_may_follow() {
    let run = working(budget(json!({"max_wall_ms": 5_000})));
    let due = run.world_deadline().unwrap();
    let draft = timers::world_time_up(&run.state, Timestamp::from_micros(due)).unwrap();
    let Event::Run(RunEvent::TimerFired(fired)) = &draft.event else {
        panic!("{draft:?}");
    };
    assert_eq!(fired.timer, TimerKind::WorldBudget);
    for (at, follows) in [(due - 1, false), (due, true)] {
        let at = Timestamp::from_micros(at);
        let sealed = draft.clone().seal(run.state.link(), at).unwrap();
        assert_eq!(run.state.check(&sealed.frame).is_ok(), follows);
    }
}

#[test]
fn what_models_cost_counts_against_the_budget_of_the_world_and_every_reason_is_named() {
    let cost = budget(json!({"max_llm_cost_micro_usd": 250}));
    // An exact fit.
    let mut run = working(cost.clone());
    run.replies("a", 250);
    assert_eq!(run.state.status(), RunStatus::Running);
    run.finishes("a", json!({"v": 1}));
    assert_eq!(run.kinds().last().unwrap(), "run.completed");
    run.holds_together();
    // One more is recorded, and nothing after it.
    let mut run = working(cost);
    run.replies("a", 251);
    assert_eq!(run.reasons(), ["max_llm_cost_usd=0.00025"]);
    assert_eq!(run.last("budget.exhausted")["cost_micro_usd"], 251);
    assert_eq!(run.kinds().last().unwrap(), "run.failed");
    run.holds_together();
    let enough = RaisedBudget {
        max_llm_cost_micro_usd: Some(300),
        ..RaisedBudget::default()
    };
    run.raises(enough).unwrap();
    run.does("a", json!({"v": 1}));
    assert_eq!(run.kinds().last().unwrap(), "run.completed");
    run.holds_together();
    // The time is over and the cost exceeded when a reply comes.
    let both = budget(json!({"max_llm_cost_micro_usd": 250, "max_wall_ms": 5_000}));
    let mut run = working(both);
    run.now += 6 * SECOND;
    run.replies("a", 251);
    assert_eq!(
        run.reasons(),
        ["max_llm_cost_usd=0.00025", "max_wall_seconds=5"]
    );
}

/// Two questions about a topic.
fn asking(cost: u64, more: Value) -> Driven {
    asking_within(json!({"max_llm_cost_micro_usd": cost}), more)
}

/// The same, within this budget.
pub(super) fn asking_within(limits: Value, more: Value) -> Driven {
    let ask = json!({"group": "std", "max_tokens": 10,
        "messages": [{"role": "user", "content": "{{ item }} {{ object.data.text }}?"}]});
    let note = json!({"make": {"object": {"type": "Note", "data": {"text": "{{ reply.text }}"}}}});
    let mut asks = json!({"for_each": {"items": ["who", "why"]}, "work": {"ask": ask},
        "then": [note]});
    merge(&mut asks, more);
    let asks = responder("asks", "object.created", "Topic", asks);
    let mut world = world(budget(limits));
    world["responders"] = json!([asks]);
    run(json!([]), world)
}

pub(super) fn open(run: &Driven) -> Vec<String> {
    let tasks = run.state.responding().unwrap().tasks();
    tasks.map(|task| task.context.address.to_string()).collect()
}

pub(super) fn answers(run: &mut Driven, address: &str, cost: u64) {
    run.asks(address);
    run.says(address, &[Say::Reply { cost }, output(json!("the moon"))]);
}

#[test]
fn no_model_is_asked_once_the_cost_has_reached_its_limit_and_asked_it_is_once_that_is_raised() {
    let mut run = asking(250, json!({"concurrency": 1}));
    let first = open(&run).remove(0);
    answers(&mut run, &first, 250);
    assert_eq!(run.reasons(), ["max_llm_cost_usd=0.00025"]);
    assert_eq!(run.kinds().last().unwrap(), "run.failed");
    run.holds_together();
    let enough = RaisedBudget {
        max_llm_cost_micro_usd: Some(251),
        ..RaisedBudget::default()
    };
    run.raises(enough).unwrap();
    let second = open(&run).pop().unwrap();
    assert_ne!(first, second);
    answers(&mut run, &second, 1);
    assert_eq!(run.kinds().last().unwrap(), "run.completed");
    let head = run.state.responding().unwrap().head();
    assert_eq!(head.of_type("Note").count(), 2);
    run.is_whole();
}

#[test]
fn a_question_under_way_is_stopped_with_the_budget_and_asked_again_once_that_is_raised() {
    let mut run = asking(250, json!({}));
    let addresses = open(&run);
    run.asks(&addresses[1]);
    let late = run.events(&addresses[1], 1, 2, &[Say::Reply { cost: 1 }]);
    answers(&mut run, &addresses[0], 251);
    let kinds = run.kinds();
    let stopped = format!("agent.finished {}", addresses[1]);
    assert!(kinds.contains(&stopped), "{kinds:?}");
    assert_eq!(kinds.last().unwrap(), "run.failed");
    run.is_whole();
    let late = report(&run.state, "", late, &Default::default());
    assert!(matches!(late, ReportAdmission::Stale), "{late:?}");
    let enough = RaisedBudget {
        max_llm_cost_micro_usd: Some(1_000),
        ..RaisedBudget::default()
    };
    run.raises(enough).unwrap();
    assert!(open(&run).contains(&addresses[1]));
    answers(&mut run, &addresses[1], 1);
    assert_eq!(run.kinds().last().unwrap(), "run.completed");
    let head = run.state.responding().unwrap().head();
    assert_eq!(head.of_type("Note").count(), 2);
    run.is_whole();
}
