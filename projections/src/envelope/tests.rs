//! Given frames of agents, then what their steps and items show.

use ktsu_ledger::frame::Link;
use ktsu_ledger::{Actor, Draft, Event, Frame, Hash, Record, StreamId};
use serde_json::{Value, json};

use super::EnvelopeFold;

/// A run told frame by frame, a second each.
struct Story {
    frames: Vec<Frame>,
}

impl Story {
    /// Of a workflow with the steps `think`, an agent; `each`, a fan-out; `call`, a child with an
    /// agent `inner`.
    fn begun() -> Self {
        let agent = |id: &str, more: Value| {
            let mut plan = json!({"agent": "a", "file": "a", "max_tokens": 10});
            plan.as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            json!({"id": id, "work": {"agent": plan}})
        };
        let for_each = json!({"for_each":
            {"concurrency": 0, "from": "params.list", "max_failures": 1}});
        let steps = json!([
            agent("think", json!({})),
            agent("each", for_each),
            {"id": "call", "work": {"workflow": {"workflow": "c", "webhooks": "execute"}}},
        ]);
        let workflow = |name: &str, steps: Value| {
            json!({"name": name, "version": "1.0.0", "visibility": "root",
                   "webhooks": "execute", "steps": steps})
        };
        let file = json!({"group": "g", "max_turns": 3, "name": "a", "output": {},
            "prompt": {"system": "s", "reflect": "again"}, "version": "1.0.0"});
        let plan = json!({"format": 1, "root": "w", "agents": {"a": file}, "workflows": {
            "w": workflow("w", steps), "c": workflow("c", json!([agent("inner", json!({}))]))}});
        let created = json!({"definition": plan, "digest": "", "engine": "test",
            "limits": {"turn_bytes": 65536, "turn_frames": 256}, "params": {},
            "principal": {"auth": "none", "id": "local"}, "rules": 1, "version": "1.0.0",
            "workflow": "w"});
        let story = Self { frames: Vec::new() };
        story
            .then("", "run.created", created)
            .then("", "run.started", json!({}))
    }

    #[track_caller]
    fn then(mut self, scope: &str, kind: &str, data: Value) -> Self {
        let link = Link {
            stream: StreamId::run("run_r").unwrap(),
            seq: self.frames.len() as u64,
            prev: self.frames.last().map_or(Hash::ZERO, |frame| frame.hash),
        };
        let draft = Draft {
            scope: scope.to_owned(),
            actor: Actor::Orchestrator,
            cause: Vec::new(),
            event: event(kind, &data),
        };
        let at = ktsu_ledger::Timestamp::from_micros(link.seq * 1_000_000);
        self.frames.push(draft.seal(link, at).unwrap().frame);
        self
    }

    /// A frame about a task of the step: `think`, or `each` with an item.
    #[track_caller]
    fn of(self, step: &str, item: Option<u32>, kind: &str, mut data: Value) -> Self {
        data["step"] = json!(step);
        if let Some(item) = item {
            data["item"] = json!(item);
        }
        if kind != "item.started" {
            data["attempt"] = data.get("attempt").cloned().unwrap_or(json!(1));
        }
        self.then("", kind, data)
    }

    #[track_caller]
    fn started(self, step: &str, items: Option<u32>) -> Self {
        let story = self.of(step, None, "step.started", json!({"items": items}));
        match items {
            None => story.of(step, None, "worker.dispatched", json!({})),
            Some(_) => story,
        }
    }

    #[track_caller]
    fn item(self, item: u32) -> Self {
        self.of("each", Some(item), "item.started", json!({})).of(
            "each",
            Some(item),
            "worker.dispatched",
            json!({}),
        )
    }

    /// A call and its answer: reports `n` and `n + 1`.
    #[track_caller]
    fn called(self, step: &str, item: Option<u32>, n: u32, purpose: &str) -> Self {
        let request = json!({"digest": "", "group": "g", "max_tokens": 10, "messages": [],
            "purpose": purpose, "report": report(n)});
        let answer = json!({"content": "{}", "cost_micro_usd": 1500, "duration_ms": 7,
            "input_hash": "", "model": format!("m{n}"), "output_hash": "", "provider": "p",
            "report": report(n + 1), "request": self.frames.len(), "tokens_in": 100,
            "tokens_out": 10});
        self.of(step, item, "llm.request", request)
            .of(step, item, "llm.response", answer)
    }

    #[track_caller]
    fn finished(self, step: &str, item: Option<u32>, n: u32, output: &Value) -> Self {
        let data = json!({"outcome": {"output": output}, "reason": "completed",
            "report": report(n)});
        self.of(step, item, "agent.finished", data)
    }

    #[track_caller]
    fn evaluated(self, step: &str, item: Option<u32>, field: &str, value: Value) -> Self {
        let data = json!({"field": field, "value": value, "verdict": "noted"});
        self.of(step, item, "reserved.evaluated", data)
    }

    /// The step of the run, or the run's totals.
    fn shows(&self, step: &str) -> Value {
        let fold = EnvelopeFold::of(&self.frames).unwrap();
        let envelope = serde_json::to_value(fold.envelope("").unwrap()).unwrap();
        if step == "totals" {
            return envelope["totals"].clone();
        }
        let steps = envelope["steps"].as_array().unwrap();
        steps.iter().find(|one| one["id"] == step).unwrap().clone()
    }

    fn last(&self) -> u64 {
        self.frames.len() as u64 - 1
    }
}

fn report(n: u32) -> Value {
    json!({"digest": format!("d{n}"), "n": n})
}

/// Reads an event as a ledger holds it.
fn event(kind: &str, data: &Value) -> Event {
    let body = format!(
        r#"{{"v":1,"stream":"run:r","seq":0,"type":"{kind}","scope":"","actor":"runtime","cause":[],"at":"1970-01-01T00:00:00.000000Z","data":{},"ext":[],"prev":"{}"}}"#,
        ktsu_ledger::CanonicalJson::from_value(data)
            .unwrap()
            .as_str(),
        Hash::ZERO
    );
    let hash = Hash::of(body.as_bytes());
    let record = Record { seq: 0, hash, body };
    record.decode_bare().unwrap().event
}

fn completed_item(item: u32) -> Value {
    json!({"item": item, "output_from": {"frame": 1, "path": "/outcome/output"}})
}

#[test]
fn an_agent_step_shows_what_its_agent_said_and_which_model_answered_last() {
    let output = json!({"a": 1, "ktsu_flags": ["x", 2, "y"], "ktsu_confidence": 0.25});
    let story = Story::begun()
        .started("think", None)
        .called("think", None, 1, "turn")
        .called("think", None, 3, "repair");
    let story = story.finished("think", None, 5, &output);
    let place = json!({"frame": story.last(), "path": "/outcome/output"});
    let story = story
        .evaluated("think", None, "ktsu_confidence", json!(0.25))
        .evaluated("think", None, "ktsu_flags", json!(["x", 2, "y"]))
        .evaluated("think", None, "ktsu_rationale", json!("because"))
        .of(
            "think",
            None,
            "step.completed",
            json!({"output_from": place, "stripped": ["ktsu_flags"]}),
        );
    let shown = story.shows("think");
    assert_eq!(shown["status"], "complete");
    assert_eq!(shown["output"], json!({"a": 1}));
    assert_eq!(shown["flags"], json!(["x", "y"]));
    assert_eq!(shown["rationale"], "because");
    assert_eq!(shown["confidence"], json!(0.25));
    assert_eq!(shown["model"], "p/m3");
    assert_eq!(shown["reflected"], false);
    assert_eq!(shown["metrics"]["llm_calls"], 2);
    assert_eq!(shown["metrics"]["repair_calls"], 1);
    assert_eq!(shown["metrics"]["tokens_in"], 200);
    assert_eq!(shown["metrics"]["cost_micro_usd"], 3000);
    assert!(shown["metrics"].get("reflect_calls").is_none(), "{shown}");
    for absent in ["counts", "items", "raw_output"] {
        assert!(shown.get(absent).is_none(), "{absent}: {shown}");
    }
}

#[test]
fn only_agent_steps_say_whether_they_reflected() {
    let story = Story::begun();
    assert_eq!(story.shows("think")["reflected"], false);
    assert_eq!(story.shows("each")["reflected"], false);
    assert!(story.shows("call").get("reflected").is_none());
    assert!(
        story.shows("each").get("counts").is_none(),
        "it has not begun"
    );
}

#[test]
fn a_failed_agent_step_shows_the_output_that_was_refused() {
    let refused = json!({"a": "no number", "ktsu_rationale": "r"});
    let story = Story::begun().started("think", None);
    let story = story.finished("think", None, 1, &refused);
    let place = json!({"frame": story.last(), "path": "/outcome/output"});
    let failed =
        |place: &Value| json!({"code": "schema_violation", "message": "at /a", "raw_from": place});
    let shown = story
        .of("think", None, "step.failed", failed(&place))
        .shows("think");
    assert_eq!(shown["raw_output"], refused);
    assert_eq!(shown["error"]["code"], "schema_violation");
    assert!(shown.get("output").is_none());
}

#[test]
fn what_an_agent_has_to_show_for_its_error_is_its_raw_output() {
    let outcome = json!({"error": {"code": "max_turns_exceeded", "message": "m",
        "retryable": false}, "raw_output": "half a thought"});
    let story = Story::begun().started("think", None).of(
        "think",
        None,
        "agent.finished",
        json!({"outcome": outcome, "reason": "max_turns", "report": report(1)}),
    );
    let place = json!({"frame": story.last(), "path": "/outcome/raw_output"});
    let failed = json!({"code": "max_turns_exceeded", "message": "m", "raw_from": place});
    let shown = story
        .of("think", None, "step.failed", failed)
        .shows("think");
    assert_eq!(shown["raw_output"], "half a thought");
}

#[test]
fn items_are_listed_one_by_one_and_their_sum_on_the_step() {
    let story = Story::begun()
        .started("each", Some(3))
        .item(0)
        .called("each", Some(0), 1, "turn")
        .item(1)
        .called("each", Some(1), 1, "turn")
        .of(
            "each",
            Some(1),
            "agent.decided",
            json!({"draft": {}, "report": report(3)}),
        )
        .of("each", Some(1), "reflect.started", json!({}))
        .called("each", Some(1), 4, "reflect")
        .item(2)
        .finished("each", Some(0), 3, &json!({"n": 0}))
        .evaluated("each", Some(0), "ktsu_flags", json!(["odd"]))
        .of("each", Some(0), "item.completed", completed_item(0));
    let under_way = story.shows("each");
    assert_eq!(
        under_way["counts"],
        json!({"succeeded": 1, "failed": 0, "skipped": 0})
    );
    assert_eq!(under_way["items"][1]["status"], "running");
    let story = story.finished("each", Some(1), 6, &json!({"n": 1})).of(
        "each",
        Some(1),
        "item.completed",
        json!({"skipped": "no use"}),
    );
    let refused = json!({"n": "two"});
    let story = story.finished("each", Some(2), 1, &refused);
    let place = json!({"frame": story.last(), "path": "/outcome/output"});
    let failed = json!({"code": "schema_violation", "message": "at /n", "raw_from": place});
    let story = story.of("each", Some(2), "item.failed", failed).of(
        "each",
        None,
        "step.completed",
        json!({}),
    );
    let shown = story.shows("each");
    assert_eq!(
        shown["counts"],
        json!({"succeeded": 1, "failed": 1, "skipped": 1})
    );
    assert_eq!(shown["reflected"], true, "one of its items did");
    assert!(shown.get("flags").is_none(), "the items have them");
    assert_eq!(shown["metrics"]["llm_calls"], 3);
    assert_eq!(shown["metrics"]["reflect_calls"], 1);
    assert_eq!(shown["metrics"]["cost_micro_usd"], 4500);
    let skipped = json!({"skipped": true, "reason": "no use", "item_index": 1});
    let failed = json!({"ktsu_error": "at /n", "item_index": 2});
    assert_eq!(
        shown["output"],
        json!({"results": [{"n": 0}, skipped, failed]})
    );
    let items = shown["items"].as_array().unwrap();
    let of = |name: &str| {
        items
            .iter()
            .map(|item| item[name].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(of("id"), ["each.0", "each.1", "each.2"]);
    assert_eq!(of("item"), [0, 1, 2]);
    assert_eq!(of("attempt"), [1, 1, 1]);
    assert_eq!(of("status"), ["complete", "skipped", "failed"]);
    assert_eq!(of("reflected"), [false, true, false]);
    assert_eq!(of("output"), [json!({"n": 0}), skipped, Value::Null]);
    assert_eq!(items[0]["flags"], json!(["odd"]));
    assert_eq!(items[0]["model"], "p/m1");
    assert_eq!(items[1]["skip_reason"], "no use");
    assert_eq!(items[2]["raw_output"], refused);
    assert_eq!(items[2]["error"]["code"], "schema_violation");
    let calls = items.iter().map(|item| &item["metrics"]["llm_calls"]);
    assert_eq!(calls.collect::<Vec<_>>(), [1, 2, 0]);
    assert!(items[0]["metrics"]["duration_ms"].as_u64() > Some(0));
    assert!(items.iter().all(|item| item["ended_at"].is_string()));
}

/// A task that ends in the last four frames.
fn ended(story: Story) -> Story {
    let story = story
        .called("think", None, 1, "turn")
        .finished("think", None, 3, &json!({"a": 1}));
    let place = json!({"frame": story.last(), "path": "/outcome/output"});
    story.of(
        "think",
        None,
        "step.completed",
        json!({"output_from": place}),
    )
}

#[test]
fn what_the_clock_jumped_over_is_no_time_of_steps_and_runs() {
    let plain = ended(Story::begun().started("think", None).then(
        "",
        "clock.jumped",
        json!({"clock": "1970-01-01T00:00:03.000000Z", "last": "1970-01-01T00:00:03.000000Z"}),
    ));
    let jumped = ended(Story::begun().started("think", None).then(
        "",
        "clock.jumped",
        json!({"clock": "1970-01-01T00:00:04.000000Z", "forward_ms": 900,
            "last": "1970-01-01T00:00:03.000000Z"}),
    ));
    let took = |story: &Story, of: &str| {
        let shown = story.shows(of);
        let used = if of == "totals" {
            &shown
        } else {
            &shown["metrics"]
        };
        used["duration_ms"].as_u64().unwrap()
    };
    for of in ["think", "totals"] {
        assert_eq!(took(&plain, of) - took(&jumped, of), 900, "{of}");
    }
}

#[test]
fn items_that_never_started_count_as_skipped_once_the_step_has_ended() {
    let story = Story::begun().started("each", Some(5)).item(0).item(1);
    let stop = |story: Story, item: u32, code: &str| {
        let finished = json!({"outcome": {"error": {"code": code, "message": "m",
            "retryable": false}}, "reason": "stopped"});
        let failed = json!({"code": code, "message": "m"});
        story.of("each", Some(item), "agent.finished", finished).of(
            "each",
            Some(item),
            "item.failed",
            failed,
        )
    };
    let story = stop(story, 0, "injection_attempt");
    assert_eq!(story.shows("each")["counts"]["skipped"], 0);
    let failed = json!({"code": "injection_attempt", "message": "item 0: m"});
    let shown = stop(story, 1, "stopped")
        .of("each", None, "step.failed", failed)
        .shows("each");
    assert_eq!(
        shown["counts"],
        json!({"succeeded": 0, "failed": 2, "skipped": 3})
    );
    assert_eq!(shown["items"].as_array().unwrap().len(), 2);
    assert_eq!(shown["items"][1]["error"]["code"], "stopped");
    assert_eq!(shown["error"]["code"], "injection_attempt");
}

#[test]
fn a_lost_worker_makes_a_second_attempt_and_its_calls_count() {
    let lost = json!({"reason": "heartbeat", "runtime_alive": true});
    let shown = Story::begun()
        .started("each", Some(1))
        .item(0)
        .called("each", Some(0), 1, "turn")
        .of("each", Some(0), "worker.lost", lost)
        .of("each", Some(0), "worker.dispatched", json!({"attempt": 2}))
        .shows("each");
    assert_eq!(shown["items"][0]["attempt"], 2);
    assert_eq!(shown["items"][0]["metrics"]["llm_calls"], 1);
    assert_eq!(shown["attempt"], 1);
}

#[test]
fn a_runtime_that_reports_its_end_alone_is_believed() {
    let claimed = json!({"cost_micro_usd": 9, "llm_calls": 2, "model": "p/own",
        "reflect_calls": 1, "tokens_in": 5, "tokens_out": 6, "tool_calls": 0});
    let finished = json!({"metrics": claimed, "outcome": {"output": {}},
        "reason": "completed", "report": report(0)});
    let shown = Story::begun()
        .started("think", None)
        .of("think", None, "agent.finished", finished)
        .shows("think");
    assert_eq!(shown["model"], "p/own");
    assert_eq!(shown["reflected"], true);
    assert_eq!(shown["metrics"]["tokens_out"], 6);
}

#[test]
fn what_a_child_uses_is_its_parents_and_counts_once_in_the_totals() {
    let inner = |kind: &str, data: Value| (kind.to_owned(), data);
    let call = [
        inner("run.started", json!({"plan": "c"})),
        inner("step.started", json!({"attempt": 1, "step": "inner"})),
        inner("worker.dispatched", json!({"attempt": 1, "step": "inner"})),
        inner(
            "llm.request",
            json!({"attempt": 1, "step": "inner", "digest": "", "group": "g", "max_tokens": 1,
                "messages": [], "purpose": "turn", "report": report(1)}),
        ),
    ];
    let mut story = Story::begun().of("call", None, "step.started", json!({}));
    for (kind, data) in call {
        story = story.then("call", &kind, data);
    }
    let answer = json!({"attempt": 1, "step": "inner", "content": "{}", "cost_micro_usd": 7,
        "duration_ms": 1, "input_hash": "", "model": "m", "output_hash": "", "provider": "p",
        "report": report(2), "request": story.last(), "tokens_in": 1, "tokens_out": 1});
    let story = story.then("call", "llm.response", answer);
    assert_eq!(story.shows("totals")["cost_micro_usd"], 7);
    assert_eq!(story.shows("totals")["llm_calls"], 1);
    assert_eq!(story.shows("call")["metrics"]["cost_micro_usd"], 7);
    assert!(story.shows("call").get("model").is_none());
}
