//! Given frames, when another arrives, then it is accepted or refused.

use std::collections::BTreeMap;

use ktsu_ledger::event::{
    Limits, OutputChecked, Principal, RunCompleted, RunCreated, RunEvent, RunFailed, RunStarted,
    SkipReason, StepCompleted, StepEvent, StepFailed, StepSkipped, StepStarted, TimerFired,
    WebhookAnswer, WebhookEvent, WebhookSent,
};
use ktsu_ledger::{Actor, Cause, Draft, Sealed};
use serde_json::json;

use super::*;
use crate::life::Rule;

mod agents_tests;
mod person_tests;
mod steer_tests;
mod worlds_tests;

/// A run given by its frames.
struct Given {
    state: RunState,
}

fn created(steps: Value) -> Event {
    let plan = json!({"format": 1, "root": "w", "workflows": {
        "w": {"name": "w", "version": "1.0.0", "visibility": "root", "webhooks": "execute",
            "policy": {"timeout_ms": 5000}, "steps": steps},
        "c": {"name": "c", "version": "1.0.0", "visibility": "sub-workflow", "webhooks": "execute",
            "steps": [{"id": "in", "work": {"transform": {}}}]}}});
    Event::Run(RunEvent::Created(Box::new(RunCreated {
        definition: CanonicalJson::from_value(&plan).unwrap(),
        digest: String::new(),
        effects: None,
        engine: "test".to_owned(),
        env: BTreeMap::new(),
        idempotency_digest: None,
        idempotency_key: None,
        limits: Limits::default(),
        lock: None,
        no_cache: false,
        of: None,
        params: CanonicalJson::from_value(&json!({"n": 1})).unwrap(),
        principal: Principal {
            auth: "none".to_owned(),
            id: "local".to_owned(),
        },
        references: Vec::new(),
        results: Vec::new(),
        rules: 1,
        version: "1.0.0".to_owned(),
        workflow: "w".to_owned(),
    })))
}

fn two_transforms() -> Value {
    json!([{"id": "a", "work": {"transform": {}}},
           {"id": "b", "needs": [0], "work": {"transform": {}}}])
}

fn one_webhook() -> Value {
    json!([{"id": "w", "work": {"webhook": {"method": "POST", "timeout_ms": 1, "url": "http://x/",
        "retry": {"attempts": 2, "backoff_ms": 100, "on": ["server_error"]}}}}])
}

impl Given {
    fn a_run(steps: Value) -> Self {
        Self::begun(created(steps))
    }

    fn a_run_without_effects(steps: Value) -> Self {
        let mut event = created(steps);
        if let Event::Run(RunEvent::Created(created)) = &mut event {
            created.effects = Some(ktsu_ledger::event::Effects::Suppress);
        }
        Self::begun(event)
    }

    fn begun(created: Event) -> Self {
        let first = draft("", created)
            .seal(link("run:r", 0, Hash::ZERO), at(0))
            .unwrap();
        let state = RunState::fold([&first.frame]).unwrap();
        Self { state }.then(started_run())
    }

    /// The frame as it would be appended.
    fn seal(&self, scope: &str, event: Event) -> Sealed {
        draft(scope, event)
            .seal(self.state.link(), self.state.at())
            .unwrap()
    }

    #[track_caller]
    fn then(mut self, event: Event) -> Self {
        let sealed = self.seal("", event);
        self.state.apply(&sealed.frame).unwrap();
        self
    }

    #[track_caller]
    fn then_in(mut self, scope: &str, event: Event) -> Self {
        let sealed = self.seal(scope, event);
        self.state.apply(&sealed.frame).unwrap();
        self
    }

    #[track_caller]
    fn refuses(&self, event: Event) {
        self.broken_by(event);
    }

    /// The rule that a frame breaks.
    #[track_caller]
    fn broken_by(&self, event: Event) -> Rule {
        let sealed = self.seal("", event);
        match self.state.check(&sealed.frame) {
            Err(TransitionError::Refused(refusal)) => refusal.rule,
            other => panic!("{other:?}"),
        }
    }
}

fn draft(scope: &str, event: Event) -> Draft {
    Draft {
        scope: scope.to_owned(),
        actor: Actor::Orchestrator,
        cause: Vec::new(),
        event,
    }
}

fn link(stream: &str, seq: u64, prev: Hash) -> Link {
    Link {
        stream: stream.parse().unwrap(),
        seq,
        prev,
    }
}

fn at(micros: u64) -> Timestamp {
    Timestamp::from_micros(micros)
}

fn started_run() -> Event {
    Event::Run(RunEvent::Started(RunStarted::default()))
}

fn completed_run() -> Event {
    Event::Run(RunEvent::Completed(RunCompleted::default()))
}

fn failed_run() -> Event {
    Event::Run(RunEvent::Failed(RunFailed {
        code: "x".to_owned(),
        message: String::new(),
        step: None,
        world: None,
    }))
}

fn started(step: &str) -> Event {
    Event::Step(StepEvent::Started(StepStarted {
        attempt: 1,
        input: BTreeMap::new(),
        step: step.to_owned(),
        items: None,
        resume_step: None,
    }))
}

/// The beginning of the workflow `c` as an inline child.
fn child_started() -> Event {
    Event::Run(RunEvent::Started(RunStarted {
        input: BTreeMap::new(),
        plan: Some("c".to_owned()),
        webhooks: None,
    }))
}

fn completed(step: &str) -> Event {
    Event::Step(StepEvent::Completed(StepCompleted {
        attempt: 1,
        output: Some(CanonicalJson::from_value(&json!({"of": step})).unwrap()),
        output_from: None,
        step: step.to_owned(),
        stripped: Vec::new(),
    }))
}

fn failed(step: &str) -> Event {
    Event::Step(StepEvent::Failed(StepFailed {
        attempt: 1,
        code: "x".to_owned(),
        message: String::new(),
        raw: None,
        step: step.to_owned(),
        raw_from: None,
    }))
}

fn skipped(step: &str, reason: SkipReason) -> Event {
    Event::Step(StepEvent::Skipped(StepSkipped {
        detail: None,
        reason,
        step: step.to_owned(),
    }))
}

fn checked(step: &str, valid: bool) -> Event {
    Event::Step(StepEvent::OutputChecked(OutputChecked {
        attempt: 1,
        errors: Vec::new(),
        step: step.to_owned(),
        valid,
        item: None,
    }))
}

fn sent(sending: u32) -> Event {
    Event::Webhook(WebhookEvent::Sent(WebhookSent {
        approval: None,
        attempt: 1,
        body_hash: String::new(),
        delivery_id: String::new(),
        method: "POST".to_owned(),
        sending,
        step: "w".to_owned(),
        target: "x".to_owned(),
    }))
}

fn answered(sending: u32, status: u16) -> Event {
    let answer = WebhookAnswer {
        approval: None,
        attempt: 1,
        code: None,
        duration_ms: 1,
        response: CanonicalJson::null(),
        sending,
        status: Some(status),
        step: "w".to_owned(),
        truncated: false,
    };
    Event::Webhook(match status {
        200..300 => WebhookEvent::Delivered(answer),
        _ => WebhookEvent::Failed(answer),
    })
}

fn fired(timer: ktsu_ledger::event::TimerKind, step: Option<&str>) -> Event {
    Event::Run(RunEvent::TimerFired(TimerFired {
        responder: None,
        step: step.map(str::to_owned),
        timer,
    }))
}

#[test]
fn a_step_cannot_complete_before_it_is_started() {
    Given::a_run(two_transforms()).refuses(completed("a"));
}

#[test]
fn a_step_cannot_start_before_what_it_needs_is_settled() {
    let run = Given::a_run(two_transforms());
    run.refuses(started("b"));
    let run = run.then(skipped("a", SkipReason::ConditionFalse));
    run.then(started("b"));
}

#[test]
fn a_step_ends_once() {
    let run = Given::a_run(two_transforms())
        .then(started("a"))
        .then(completed("a"));
    run.refuses(completed("a"));
    run.refuses(failed("a"));
    run.refuses(started("a"));
    run.refuses(skipped("a", SkipReason::ConditionFalse));
}

#[test]
fn an_output_the_air_lock_refused_cannot_complete_the_step() {
    let run = Given::a_run(two_transforms())
        .then(started("a"))
        .then(checked("a", false));
    run.refuses(completed("a"));
    run.then(failed("a"));
}

#[test]
fn a_run_cannot_end_while_a_step_is_unsettled() {
    let run = Given::a_run(two_transforms()).then(started("a"));
    run.refuses(completed_run());
    run.refuses(failed_run());
}

#[test]
fn a_failing_run_starts_and_completes_nothing_more() {
    let run = Given::a_run(two_transforms())
        .then(started("a"))
        .then(failed("a"));
    assert_eq!(run.state.failing().map(|failing| failing.seq), Some(3));
    run.refuses(started("b"));
    let run = run.then(skipped("b", SkipReason::RunFailed));
    run.refuses(completed_run());
    let run = run.then(failed_run());
    assert_eq!(run.state.status(), RunStatus::Failed);
    run.refuses(failed_run());
}

#[test]
fn nothing_follows_a_run_that_ended() {
    let run = Given::a_run(json!([])).then(completed_run());
    run.refuses(started_run());
    run.refuses(fired(ktsu_ledger::event::TimerKind::RunTimeout, None));
}

#[test]
fn a_webhook_is_answered_only_while_it_is_on_its_way() {
    let run = Given::a_run(one_webhook()).then(started("w"));
    run.refuses(answered(1, 200));
    run.refuses(completed("w"));
    let run = run.then(sent(1));
    run.refuses(sent(2));
    run.refuses(answered(2, 200));
    let run = run.then(answered(1, 204));
    run.refuses(answered(1, 204));
    run.then(completed("w"));
}

#[test]
fn a_declared_retry_waits_for_its_timer_and_no_longer_than_declared() {
    let retry = ktsu_ledger::event::TimerKind::Retry;
    let run = Given::a_run(one_webhook())
        .then(started("w"))
        .then(sent(1))
        .then(answered(1, 503));
    assert_eq!(run.state.retries().collect::<Vec<_>>(), [StepKey::of(0, 0)]);
    assert_eq!(run.state.todo(), None);
    run.refuses(sent(2));
    let run = run.then(fired(retry, Some("w")));
    run.refuses(fired(retry, Some("w")));
    let run = run.then(sent(2)).then(answered(2, 503));
    assert_eq!(run.state.retries().count(), 0, "two attempts are declared");
    assert_eq!(run.state.todo(), Some(Todo::Step(StepKey::of(0, 0))));
}

#[test]
fn a_status_no_retry_is_declared_for_ends_the_webhook() {
    let run = Given::a_run(one_webhook())
        .then(started("w"))
        .then(sent(1))
        .then(answered(1, 404));
    assert_eq!(run.state.retries().count(), 0);
}

#[test]
fn a_child_opens_once_under_the_step_that_names_it() {
    let steps =
        json!([{"id": "call", "work": {"workflow": {"workflow": "c", "webhooks": "execute"}}}]);
    let run = Given::a_run(steps);
    let early = run.seal("call", child_started());
    assert!(
        run.state.check(&early.frame).is_err(),
        "its step has not started"
    );
    let run = run.then(started("call")).then_in("call", child_started());
    let again = run.seal("call", child_started());
    assert!(run.state.check(&again.frame).is_err());
    let run = run
        .then_in("call", started("in"))
        .then_in("call", completed("in"))
        .then_in("call", completed_run());
    assert_eq!(run.state.todo(), Some(Todo::Step(StepKey::of(0, 0))));
}

#[test]
fn what_is_not_in_its_place_is_refused() {
    let run = Given::a_run(two_transforms());
    let link = run.state.link();
    let now = run.state.at();
    let seal = |link: Link, at: Timestamp, cause: Vec<Cause>| {
        let mut draft = draft("", started("a"));
        draft.cause = cause;
        run.state.check(&draft.seal(link, at).unwrap().frame)
    };
    let gap = Link {
        seq: 3,
        ..link.clone()
    };
    assert_eq!(
        seal(gap, now, vec![]),
        Err(TransitionError::Sequence {
            expected: 2,
            got: 3
        })
    );
    let unlinked = Link {
        prev: Hash::ZERO,
        ..link.clone()
    };
    assert_eq!(seal(unlinked, now, vec![]), Err(TransitionError::Chain));
    let elsewhere = Link {
        stream: "run:other".parse().unwrap(),
        ..link.clone()
    };
    assert_eq!(seal(elsewhere, now, vec![]), Err(TransitionError::Stream));
    assert_eq!(
        seal(link.clone(), now, vec![Cause::Here(2)]),
        Err(TransitionError::Cause(2))
    );
    assert_eq!(seal(link, now, vec![Cause::Here(1)]), Ok(()));
}

#[test]
fn an_unknown_type_makes_the_stream_read_only_and_a_kits_own_does_not() {
    let run = Given::a_run(two_transforms());
    let foreign = |kind: &str| Event::Foreign {
        kind: kind.to_owned(),
        data: CanonicalJson::null(),
    };
    let unknown = run.seal("", foreign("step.teleported"));
    assert_eq!(
        run.state.check(&unknown.frame),
        Err(TransitionError::Unknown("step.teleported".to_owned()))
    );
    run.then(foreign("x.kit.note"));
}

#[test]
fn the_fold_costs_the_same_whatever_came_before() {
    // The sets a frame touches are those of its own step and of who waits for it; this pins that
    // the set of things to decide empties as the run goes on.
    let steps: Vec<Value> = (0..200)
        .map(|n| {
            let needs = if n == 0 { json!([]) } else { json!([n - 1]) };
            json!({"id": format!("s{n}"), "needs": needs, "work": {"transform": {}}})
        })
        .collect();
    let mut run = Given::a_run(json!(steps));
    for n in 0..200 {
        assert_eq!(run.state.todo(), Some(Todo::Step(StepKey::of(0, n))));
        assert_eq!(run.state.todo.len(), 1);
        run = run
            .then(started(&format!("s{n}")))
            .then(completed(&format!("s{n}")));
    }
    assert_eq!(run.state.todo(), Some(Todo::End { scope: 0 }));
}

#[test]
fn children_of_children_are_folded_to_a_depth_that_is_bounded() {
    let child = |at: usize| {
        let key = format!("w{at:06}");
        json!({"workflow": {"webhooks": "execute", "workflow": key}})
    };
    let plan = |levels: usize, last: Value| {
        let workflow = |at: usize| {
            let work = match at == levels {
                true => last.clone(),
                false => child(at + 1),
            };
            (
                format!("w{at:06}"),
                json!({"name": "w", "version": "1.0.0", "visibility": "root",
                "webhooks": "execute", "steps": [{"id": "in", "work": work}]}),
            )
        };
        let workflows: serde_json::Map<String, Value> = (0..=levels).map(workflow).collect();
        let plan = json!({"format": 1, "root": "w000000", "workflows": workflows});
        Outline::from_definition(&CanonicalJson::from_value(&plan).unwrap()).map(|_| ())
    };
    let ends = json!({"transform": {}});
    assert_eq!(plan(64, ends.clone()), Ok(()));
    assert_eq!(plan(65, ends.clone()), Err(PlanError::Levels));
    assert_eq!(plan(20_000, ends), Err(PlanError::Levels));
    let circle = child(0);
    assert_eq!(plan(2, circle), Err(PlanError::Levels));
}

#[test]
fn a_refusal_names_the_rule_that_the_frame_breaks() {
    let begun = Given::a_run(two_transforms());
    assert_eq!(begun.broken_by(started("b")), Rule::Ready);
    assert_eq!(begun.broken_by(completed("a")), Rule::Running);
    assert_eq!(begun.broken_by(started_run()), Rule::ScopeOrder);
    assert_eq!(begun.broken_by(completed_run()), Rule::ScopeOrder);
    let running = begun.then(started("a"));
    assert_eq!(
        running.broken_by(skipped("a", SkipReason::RunFailed)),
        Rule::OutcomeOrder
    );
    let refused = running.then(checked("a", false));
    assert_eq!(refused.broken_by(completed("a")), Rule::Output);
    let failing = refused.then(failed("a"));
    assert_eq!(failing.broken_by(started("b")), Rule::Failing);
    assert_eq!(failing.broken_by(completed_run()), Rule::Failing);
    let sent = Given::a_run(one_webhook()).then(started("w"));
    assert_eq!(sent.broken_by(completed("w")), Rule::Output);
    let mut again = completed("a");
    if let Event::Step(StepEvent::Completed(done)) = &mut again {
        done.attempt = 2;
    }
    let running = Given::a_run(two_transforms()).then(started("a"));
    assert_eq!(running.broken_by(again), Rule::Attempt);
}
