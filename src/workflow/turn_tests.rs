//! Given frames, when an input, then frames.

use serde_json::{Value, json};

use ktsu_ledger::event::plan::Plan;
use ktsu_ledger::event::{Principal, WebhookAnswer, WebhookEvent};
use ktsu_ledger::{Frame, Json};
use ktsu_projections::envelope::EnvelopeFold;

use super::*;
use crate::workflow::admit::{self, Answer, Invocation};

/// A run driven by hand.
struct Driven {
    definition: Definition,
    state: RunState,
    memo: Memo,
    frames: Vec<Frame>,
    now: u64,
}

impl Driven {
    fn invoke(plan: Value, body: Value) -> Self {
        let plan: Plan = serde_json::from_str(&plan.to_string()).unwrap();
        let definition = Definition::compile(plan).unwrap();
        let draft = admit::invocation(
            &definition,
            Invocation {
                body,
                env: Default::default(),
                idempotency: None,
                principal: Principal {
                    auth: "none".to_owned(),
                    id: "local".to_owned(),
                },
            },
        )
        .unwrap();
        let memo = Memo::default();
        let at = Timestamp::from_micros(1_000_000);
        let stream = StreamId::run("run_test").unwrap();
        let (state, turn) = begin(&definition, stream, draft, at, &memo).unwrap();
        let mut driven = Self {
            definition,
            state,
            memo,
            frames: Vec::new(),
            now: 1_000_000,
        };
        driven.record(turn);
        driven
    }

    fn record(&mut self, turn: Turn) {
        self.frames
            .extend(turn.sealed.into_iter().map(|sealed| sealed.frame));
        if turn.more {
            self.input(continued(&self.state, Why::Bound));
        }
    }

    fn input(&mut self, draft: Draft) {
        self.now += 1_000;
        let at = Timestamp::from_micros(self.now);
        let turn = take(&self.definition, &mut self.state, draft, at, &self.memo).unwrap();
        self.record(turn);
    }

    fn answer(&mut self, scope: &str, step: &str, sending: u32, status: u16) {
        let answer = Answer {
            scope: scope.to_owned(),
            answer: WebhookAnswer {
                attempt: 1,
                code: (status >= 300).then(|| "webhook_status".to_owned()),
                duration_ms: 3,
                response: Json::null(),
                sending,
                status: Some(status),
                step: step.to_owned(),
                truncated: false,
            },
        };
        let draft = admit::answer(&self.state, answer).expect("the run waits for it");
        self.input(draft);
    }

    fn kinds(&self) -> Vec<String> {
        let name = |frame: &Frame| {
            let scope = if frame.scope.is_empty() {
                String::new()
            } else {
                format!("{}:", frame.scope)
            };
            let step = match &frame.event {
                Event::Step(event) => format!(" {}", event.step()),
                Event::Webhook(event) => format!(" {}", event.step()),
                _ => String::new(),
            };
            format!("{scope}{}{step}", frame.event.kind())
        };
        self.frames.iter().map(name).collect()
    }

    fn envelope(&self) -> Value {
        let fold = EnvelopeFold::of(&self.frames).unwrap();
        serde_json::to_value(fold.envelope("").unwrap()).unwrap()
    }

    /// Whatever was decided follows from the inputs alone, and a log cut anywhere ends the same.
    fn holds_together(&self) {
        replay(&self.definition, &self.frames).unwrap();
        for cut in 1..self.frames.len() {
            self.resume_from(cut);
        }
    }

    fn resume_from(&self, cut: usize) {
        let kept = &self.frames[..cut];
        let state = RunState::fold(kept).unwrap();
        let mut again = Self {
            definition: Definition::compile(self.definition.plan.clone()).unwrap(),
            state,
            memo: Memo::default(),
            frames: kept.to_vec(),
            now: kept.last().unwrap().at.as_micros(),
        };
        for draft in admit::restart(
            &again.definition,
            &again.state,
            Timestamp::from_micros(again.now),
            false,
        ) {
            again.input(draft);
        }
        // Whatever the run waits for is answered as history has it.
        while let Some((path, id, status)) = self.recorded_answer(&again.state) {
            again.answer(&path, &id, 1, status);
        }
        let (mut expected, mut got) = (self.envelope(), again.envelope());
        for envelope in [&mut expected, &mut got] {
            strip_times(envelope);
        }
        assert_eq!(got, expected, "cut at {cut}: {:?}", again.kinds());
        replay(&again.definition, &again.frames).unwrap();
    }

    /// The first answer in history that a state waits for.
    fn recorded_answer(&self, state: &RunState) -> Option<(String, String, u16)> {
        self.frames.iter().find_map(|frame| {
            let Event::Webhook(WebhookEvent::Delivered(answer) | WebhookEvent::Failed(answer)) =
                &frame.event
            else {
                return None;
            };
            let waits = state.unanswered().into_iter().any(|(scope, step)| {
                let scope = state.scope(scope).unwrap();
                scope.path == frame.scope && scope.shape.step(step).unwrap().id == answer.step
            });
            waits.then(|| {
                (
                    frame.scope.clone(),
                    answer.step.clone(),
                    answer.status.unwrap(),
                )
            })
        })
    }
}

fn strip_times(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|name, _| !name.ends_with("_at") && name != "duration_ms");
            members.values_mut().for_each(strip_times);
        }
        Value::Array(items) => items.iter_mut().for_each(strip_times),
        _ => {}
    }
}

fn workflow(name: &str, steps: Value) -> Value {
    json!({"name": name, "steps": steps, "version": "1.0.0", "visibility": "root",
           "webhooks": "execute"})
}

fn plan(workflows: Value) -> Value {
    json!({"format": 1, "root": "main", "workflows": workflows})
}

fn transform(id: &str, needs: Value, input: &str) -> Value {
    json!({"id": id, "needs": needs,
           "work": {"transform": {"inputs": [input], "ops": ["flatten"]}}})
}

fn webhook(id: &str, needs: Value, url: &str) -> Value {
    json!({"id": id, "needs": needs, "work": {"webhook":
        {"method": "POST", "timeout_ms": 1000, "url": url, "body": {"n": "{{ params.n }}"}}}})
}

#[test]
fn a_chain_of_transforms_ends_in_its_first_turn() {
    let steps = json!([
        transform("a", json!([]), "params.list"),
        transform("b", json!([0]), "step.a.result")
    ]);
    let run = Driven::invoke(
        plan(json!({"main": workflow("main", steps)})),
        json!({"list": [[1], 2]}),
    );
    assert_eq!(
        run.kinds(),
        [
            "run.created",
            "run.started",
            "step.started a",
            "step.completed a",
            "step.started b",
            "step.completed b",
            "run.completed"
        ]
    );
    assert_eq!(run.envelope()["output"], json!({"result": [1, 2]}));
    run.holds_together();
}

#[test]
fn effects_are_announced_before_pure_steps_and_each_answer_is_a_turn() {
    let steps = json!([
        transform("a", json!([]), "params.list"),
        webhook("w", json!([]), "http://x/{{ params.n }}"),
        webhook("v", json!([0]), "http://y/"),
        transform("z", json!([1, 2]), "step.w"),
    ]);
    let mut run = Driven::invoke(
        plan(json!({"main": workflow("main", steps)})),
        json!({"list": [], "n": 7}),
    );
    assert_eq!(
        run.kinds()[2..],
        [
            "step.started w",
            "webhook.sent w",
            "step.started a",
            "step.completed a",
            "step.started v",
            "webhook.sent v"
        ]
    );
    run.answer("", "v", 1, 204);
    run.answer("", "w", 1, 200);
    assert_eq!(run.envelope()["status"], "complete");
    assert_eq!(
        run.envelope()["steps"][3]["output"],
        json!({"result": {"sent": true, "status_code": 200}})
    );
    run.holds_together();
}

#[test]
fn a_failure_stops_skips_and_fails_in_one_append() {
    let child = workflow(
        "child",
        json!([
            webhook("in", json!([]), "http://c/"),
            transform("after", json!([0]), "step.in")
        ]),
    );
    let steps = json!([
        webhook("w", json!([]), "http://x/"),
        {"id": "call", "work": {"workflow": {"workflow": "child", "webhooks": "execute",
            "params": {"n": "{{ params.n }}"}}}},
        transform("z", json!([1]), "step.call"),
    ]);
    let mut run = Driven::invoke(
        plan(json!({"main": workflow("main", steps), "child": child})),
        json!({"n": 1}),
    );
    let before = run.frames.len();
    run.answer("call", "in", 1, 500);
    assert_eq!(
        run.kinds()[before..],
        [
            "call:webhook.failed in",
            "call:step.failed in",
            "call:step.skipped after",
            "call:run.failed",
            "step.failed w",
            "step.failed call",
            "step.skipped z",
            "run.failed"
        ]
    );
    let envelope = run.envelope();
    assert_eq!(envelope["error"]["step"], "call/in");
    assert_eq!(envelope["error"]["code"], "webhook_status");
    assert_eq!(envelope["steps"][0]["error"]["code"], "stopped");
    run.holds_together();
}

#[test]
fn a_child_hands_its_output_up_by_reference() {
    let mut child = workflow("child", json!([transform("in", json!([]), "params.list")]));
    child["params"] = json!({"properties": {"extra": {"default": 5}}});
    let steps = json!([
        transform("a", json!([]), "params.list"),
        {"id": "call", "needs": [0], "work": {"workflow": {"workflow": "child", "webhooks": "execute",
            "params": {"list": "{{ step.a.result }}"}}}},
        transform("z", json!([1]), "step.call.result"),
    ]);
    let run = Driven::invoke(
        plan(json!({"main": workflow("main", steps), "child": child})),
        json!({"list": [[1], [2]]}),
    );
    assert_eq!(run.envelope()["output"], json!({"result": [1, 2]}));
    let fold = EnvelopeFold::of(&run.frames).unwrap();
    let child = fold.envelope("call").unwrap();
    assert_eq!(child.params, json!({"extra": 5, "list": [1, 2]}));
    let by_value = run.frames.iter().filter(|frame| {
        matches!(&frame.event,
        Event::Step(ktsu_ledger::event::StepEvent::Completed(done)) if done.output.is_some())
    });
    assert_eq!(
        by_value.count(),
        3,
        "the step that holds the child refers to its output"
    );
    run.holds_together();
}

#[test]
fn a_turn_ends_at_its_bound_and_goes_on() {
    let steps: Vec<Value> = (0..300)
        .map(|n| {
            let needs = if n == 0 { json!([]) } else { json!([n - 1]) };
            transform(&format!("s{n}"), needs, "params.list")
        })
        .collect();
    let run = Driven::invoke(
        plan(json!({"main": workflow("main", json!(steps))})),
        json!({"list": []}),
    );
    let turns = run
        .kinds()
        .iter()
        .filter(|kind| *kind == "run.continued")
        .count();
    assert!(turns >= 2, "{turns}");
    assert_eq!(run.envelope()["status"], "complete");
    replay(&run.definition, &run.frames).unwrap();
}

#[test]
fn a_changed_decision_is_caught_even_when_it_is_linked_again() {
    let steps = json!([
        transform("a", json!([]), "params.list"),
        transform("b", json!([0]), "step.a.result")
    ]);
    let run = Driven::invoke(
        plan(json!({"main": workflow("main", steps)})),
        json!({"list": [[1], 2]}),
    );
    let changed = 3;
    let mut link = Link {
        stream: run.frames[0].stream.clone(),
        seq: 0,
        prev: Hash::ZERO,
    };
    let mut forged = Vec::new();
    for (number, frame) in run.frames.iter().enumerate() {
        let mut event = frame.event.clone();
        if let (true, Event::Step(ktsu_ledger::event::StepEvent::Completed(done))) =
            (number == changed, &mut event)
        {
            done.output = Some(Json::parse(br#"{"result":[9]}"#).unwrap());
        }
        let draft = Draft {
            scope: frame.scope.clone(),
            actor: frame.actor.clone(),
            cause: frame.cause.clone(),
            event,
        };
        let sealed = draft.seal(link.clone(), frame.at).unwrap();
        link = Link {
            seq: link.seq + 1,
            prev: sealed.record.hash,
            stream: link.stream,
        };
        forged.push(sealed.frame);
    }
    assert!(RunState::fold(&forged).is_ok(), "the chain itself is whole");
    assert_eq!(
        replay(&run.definition, &forged).unwrap_err().seq,
        changed as u64
    );
}

#[test]
fn what_is_handed_down_inside_a_param_is_a_reference_too() {
    let inner = workflow(
        "inner",
        json!([transform("in", json!([]), "params.z.b[0]")]),
    );
    let child = workflow(
        "child",
        json!([
            transform("in", json!([]), "params.a.b[0]"),
            {"id": "deeper", "work": {"workflow": {"workflow": "inner", "webhooks": "execute",
                "params": {"z": {"b": ["{{ params.a.b[0] }}"]}}}}},
        ]),
    );
    let steps = json!([{"id": "call", "work": {"workflow": {"workflow": "child", "webhooks": "execute",
        "params": {"a": {"b": ["{{ params.list }}", "n={{ params.n }}"], "c": 1}}}}}]);
    let run = Driven::invoke(
        plan(json!({"main": workflow("main", steps), "child": child, "inner": inner})),
        json!({"list": [[1], [2]], "n": 3}),
    );
    let fold = EnvelopeFold::of(&run.frames).unwrap();
    let params = |path: &str| fold.envelope(path).unwrap().params;
    assert_eq!(
        params("call"),
        json!({"a": {"b": [[[1], [2]], "n=3"], "c": 1}})
    );
    assert_eq!(params("call/deeper"), json!({"z": {"b": [[[1], [2]]]}}));
    assert_eq!(run.envelope()["output"], json!({"result": [1, 2]}));
    let given = |step: &str| {
        let of_step = run.frames.iter().find_map(|frame| match &frame.event {
            Event::Step(ktsu_ledger::event::StepEvent::Started(started))
                if started.step == step =>
            {
                Some(serde_json::to_value(&started.input).unwrap())
            }
            _ => None,
        });
        of_step.unwrap()
    };
    let list = json!({"ref": {"frame": 0, "path": "/params/list"}});
    assert_eq!(given("call")["/params/a/b/0"], list);
    assert_eq!(
        given("call")["/params/a"]["value"]["value"],
        json!({"b": [null, "n=3"], "c": 1})
    );
    assert_eq!(
        given("deeper")["/params/z/b/0"],
        list,
        "through both children to its first place"
    );
    run.holds_together();
}

#[test]
fn a_cut_after_the_verdict_ends_the_step_from_the_verdict() {
    let mut step = transform("a", json!([]), "params.list");
    step["schema"] = json!({"type": "array"});
    let run = Driven::invoke(
        plan(json!({"main": workflow("main", json!([step]))})),
        json!({"list": [1]}),
    );
    assert_eq!(
        run.kinds()[3..5],
        ["step.output_checked a", "step.completed a"]
    );
    run.holds_together();
    let cut = run.frames[..4].to_vec();
    let state = RunState::fold(&cut).unwrap();
    let unit = next(&run.definition, &state, &Memo::default()).unwrap();
    assert_eq!(unit[0].cause, [ktsu_ledger::Cause::Here(3)]);
}
