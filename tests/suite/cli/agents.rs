//! A recorded run of agents, looked at with every command that reads.

use std::collections::BTreeMap;

use ktsu_ledger::event::RunEvent;
use ktsu_ledger::frame::Link;
use ktsu_ledger::store::SqliteStore;
use ktsu_ledger::{
    Actor, Blob, CanonicalJson, Cause, Draft, Event, Hash, Record, Sealed, StreamId, Timestamp,
};
use serde_json::{Value, json};

use super::Desk;
use crate::support::ledgers::Recorded;

const RUN: &str = "run_0000000000000000000000000000a9e7";

/// The item whose first model failed.
const FELL_BACK: &str = "classify.4";

/// A run told frame by frame, 10 ms each.
#[derive(Default)]
struct Story {
    records: Vec<Record>,
    blobs: Vec<Blob>,
    /// The last frame about a step or an item.
    last: BTreeMap<String, u64>,
}

impl Story {
    /// Of a workflow of two agent steps; the second is a fan-out after the first.
    fn begun() -> Self {
        let agent = |id: &str, needs: Value, more: Value| {
            let mut plan = json!({"agent": "a", "file": "a", "max_tokens": 10});
            plan.as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            json!({"id": id, "needs": needs, "work": {"agent": plan}})
        };
        let each = json!({"for_each":
            {"concurrency": 0, "from": "step.think.list", "max_failures": -1}});
        let steps = json!([
            agent("think", json!([]), json!({})),
            agent("classify", json!([0]), each)
        ]);
        let file = json!({"group": "careful", "max_turns": 3, "name": "a", "output": {},
            "prompt": {"system": "s", "reflect": "again"}, "version": "1.0.0"});
        let plan = json!({"format": 1, "root": "w", "agents": {"a": file}, "workflows": {
            "w": {"name": "w", "version": "1.0.0", "visibility": "root", "webhooks": "execute",
                "steps": steps}}});
        let created = json!({"definition": plan, "digest": "", "engine": "test",
            "limits": {"turn_bytes": 65536, "turn_frames": 256}, "params": {},
            "principal": {"auth": "none", "id": "local"}, "rules": 1, "version": "1.0.0",
            "workflow": "w"});
        let mut story = Self::default();
        story.add("run.created", "", &created);
        story.add("run.started", "", &json!({}));
        story
    }

    fn next(&self) -> u64 {
        self.records.len() as u64
    }

    /// A frame that follows from the last one with that name, or about its step, or from any.
    fn add(&mut self, kind: &str, name: &str, data: &Value) -> u64 {
        let seq = self.next();
        let step = name.split('.').next().unwrap_or_default();
        let found = self.last.get(name).or_else(|| self.last.get(step));
        let cause = found.copied().or_else(|| seq.checked_sub(1));
        let draft = Draft {
            scope: String::new(),
            actor: match kind {
                "run.created" => "principal:local".parse().unwrap(),
                _ => Actor::Orchestrator,
            },
            cause: cause.into_iter().map(Cause::Here).collect(),
            event: event(kind, data),
        };
        let link = Link {
            stream: StreamId::run(RUN).unwrap(),
            seq,
            prev: self.records.last().map_or(Hash::ZERO, |record| record.hash),
        };
        let at = Timestamp::from_micros(1_000_000_000_000_000 + seq * 10_000);
        let Sealed { record, blobs, .. } = draft.seal(link, at).unwrap();
        self.records.push(record);
        self.blobs.extend(blobs);
        if !name.is_empty() {
            self.last.insert(name.to_owned(), seq);
        }
        seq
    }

    /// A frame about a task: `think`, or `classify.3`.
    fn task(&mut self, kind: &str, name: &str, mut data: Value) -> u64 {
        let (step, item) = match name.split_once('.') {
            Some((step, item)) => (step, Some(item.parse::<u32>().unwrap())),
            None => (name, None),
        };
        data["step"] = json!(step);
        if let Some(item) = item {
            data["item"] = json!(item);
        }
        if data.get("attempt").is_none() && kind != "item.started" {
            data["attempt"] = json!(1);
        }
        self.add(kind, name, &data)
    }

    /// A call and its answer: reports `n` and `n + 1`.
    fn call(&mut self, name: &str, attempt: u32, n: u32, more: Value) -> u64 {
        let mut asked = json!({"attempt": attempt, "digest": "sha256:aa", "group": "careful",
            "max_tokens": 10, "purpose": "turn", "report": report(n),
            "messages": [{"role": "user", "content": "is it \u{1b}[31mred?"}]});
        asked
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        let request = self.task("llm.request", name, asked);
        let mut answer = json!({"attempt": attempt, "content": "{\"a\": 1}", "cost_micro_usd": 1500,
            "duration_ms": 7, "input_hash": "sha256:aa", "model": "m", "output_hash": "sha256:bb",
            "prices": "2026-11", "provider": "p", "report": report(n + 1), "request": request,
            "tokens_in": 100, "tokens_out": 10});
        if name == FELL_BACK {
            let used = |cost: u64, sent: u64| json!({"cost_micro_usd": cost, "tokens_in": sent, "tokens_out": 5});
            answer["attempts"] = json!([
                {"duration_ms": 3, "model": "p/dear", "status": "server_error", "usage": used(900, 60)},
                {"duration_ms": 4, "model": "p/m", "status": "ok", "usage": used(600, 40)},
            ]);
        }
        self.task("llm.response", name, answer);
        request
    }

    fn finish(&mut self, name: &str, attempt: u32, n: u32, output: &Value) -> Value {
        let data = json!({"attempt": attempt, "outcome": {"output": output},
            "reason": "completed", "report": report(n)});
        let seq = self.task("agent.finished", name, data);
        json!({"frame": seq, "path": "/outcome/output"})
    }

    /// The first step, which reflects.
    fn think(&mut self) {
        self.task("step.started", "think", json!({}));
        self.task("worker.dispatched", "think", json!({}));
        let base = self.call("think", 1, 1, json!({}));
        let again = json!([{"role": "user", "content": "look again"}]);
        self.task(
            "agent.decided",
            "think",
            json!({"draft": {}, "report": report(3)}),
        );
        self.task("reflect.started", "think", json!({}));
        let more = json!({"base": base, "purpose": "reflect", "messages": again});
        self.call("think", 1, 4, more);
        let place = self.finish("think", 1, 6, &json!({"list": []}));
        self.task("step.completed", "think", json!({"output_from": place}));
    }

    fn item(&mut self, item: u32) {
        let name = format!("classify.{item}");
        self.task("item.started", &name, json!({}));
        self.task("worker.dispatched", &name, json!({}));
        let mut attempt = 1;
        if item == 9 {
            let lost = json!({"reason": "heartbeat", "runtime_alive": true});
            self.task("worker.lost", &name, lost);
            self.task("worker.dispatched", &name, json!({"attempt": 2}));
            attempt = 2;
        }
        self.call(&name, attempt, 1, json!({}));
        let place = self.finish(&name, attempt, 3, &json!({"n": item}));
        let end = match item {
            3 => json!({"code": "schema_violation", "message": "at /n", "raw_from": place}),
            5 => json!({"skipped": "too dull"}),
            _ => json!({"output_from": place}),
        };
        if item == 7 {
            let flags = json!({"field": "ktsu_flags", "value": ["odd"], "verdict": "noted"});
            self.task("reserved.evaluated", &name, flags);
        }
        let kind = if item == 3 {
            "item.failed"
        } else {
            "item.completed"
        };
        let mut end = end;
        end["attempt"] = json!(attempt);
        self.task(kind, &name, end);
    }

    fn classify(&mut self, items: u32) {
        let think = self.last["think"];
        self.last.insert("classify".to_owned(), think);
        self.task("step.started", "classify", json!({"items": items}));
        (0..items).for_each(|item| self.item(item));
        self.task("step.completed", "classify", json!({}));
        self.add("run.completed", "", &json!({}));
    }

    fn put(self, desk: &Desk) {
        let folder = desk.path().join(".ktsu");
        std::fs::create_dir_all(&folder).unwrap();
        let mut store = SqliteStore::open(&folder.join("ledger.db")).unwrap();
        let recorded = Recorded {
            stream: StreamId::run(RUN).unwrap(),
            records: self.records,
            blobs: self.blobs,
        };
        recorded.put(&mut store);
    }
}

fn report(n: u32) -> Value {
    json!({"digest": format!("d{n}"), "n": n})
}

/// Reads an event as a ledger holds it.
fn event(kind: &str, data: &Value) -> Event {
    let body = format!(
        r#"{{"v":1,"stream":"run:r","seq":0,"type":"{kind}","scope":"","actor":"runtime","cause":[],"at":"1970-01-01T00:00:00.000000Z","data":{},"ext":[],"prev":"{}"}}"#,
        CanonicalJson::from_value(data).unwrap().as_str(),
        Hash::ZERO
    );
    let hash = Hash::of(body.as_bytes());
    let record = Record { seq: 0, hash, body };
    let event = record.decode_bare().unwrap().event;
    assert!(!matches!(event, Event::Foreign { .. }), "{kind} is no type");
    assert!(kind != "run.created" || matches!(event, Event::Run(RunEvent::Created(_))));
    event
}

fn desk(items: u32) -> Desk {
    let desk = Desk::new();
    let mut story = Story::begun();
    story.think();
    story.classify(items);
    story.put(&desk);
    desk
}

/// The line that says some words, its spaces made one.
#[track_caller]
fn line_with<'a>(out: &'a str, words: &str) -> Vec<&'a str> {
    let line = out.lines().find(|line| line.contains(words));
    let line = line.unwrap_or_else(|| panic!("no {words:?} in\n{out}"));
    line.split_whitespace().collect()
}

#[test]
fn a_trace_shows_calls_with_tokens_time_and_cost_and_items_under_their_step() {
    let desk = desk(10);
    let said = desk.ktsu(&["trace", RUN]);
    said.is(0)
        .says("asks careful to reflect: p/m 100+10 tokens")
        .says("(after think)")
        .says("10 items, 1 failed, 1 skipped")
        .says("12 calls, 1 reflection, 1200+120 tokens");
    let words = |name: &str| line_with(&said.out, name).join(" ");
    assert!(words("✓ classify.0 ").ends_with("$0.0015 asks careful: p/m 100+10 tokens"));
    assert!(words("classify.3 ").contains("schema_violation: at /n"));
    assert!(words("classify.5 ").contains("skipped: too dull"));
    assert!(words("classify.7 ").contains("flags: odd"));
    assert!(words("classify.9 ").contains("attempt 2"));
    assert!(words("worker.lost").contains("no heartbeat"));
    for plain in ["agent.decided", "agent.finished", "llm.request"] {
        assert!(!said.out.contains(plain), "{plain} in\n{}", said.out);
    }
    let whole = desk.ktsu(&["trace", RUN, "--json"]).is(0).json();
    let items = whole["steps"][1]["items"].as_array().unwrap();
    assert_eq!(items.len(), 10);
    assert_eq!(items[9]["attempt"], 2);
    let kinds = items[9]["calls"].as_array().unwrap().iter();
    let kinds: Vec<&str> = kinds.map(|call| call["type"].as_str().unwrap()).collect();
    assert_eq!(
        kinds,
        [
            "worker.dispatched",
            "worker.lost",
            "worker.dispatched",
            "llm.request",
            "llm.response",
            "agent.finished"
        ]
    );
}

#[test]
fn a_trace_shows_every_model_that_was_asked_for_a_reply_and_counts_each_once() {
    // Among few items, and among so many that those that went as they should share a row.
    for items in [10, 200] {
        let desk = desk(items);
        let said = desk.ktsu(&["trace", RUN]);
        let words = |name: &str| line_with(&said.is(0).out, name).join(" ");
        assert!(words("p/dear ").ends_with("p/dear 3 ms $0.0009 server_error, 60+5 tokens"));
        assert!(words("· p/m ").ends_with("p/m 4 ms $0.0006 ok, 40+5 tokens"));
        let calls = u64::from(items) + 2;
        said.says(&format!(
            "{calls} calls, 1 reflection, {}+{} tokens",
            100 * calls,
            10 * calls
        ));
        let whole = desk.ktsu(&["trace", RUN, "--json"]).is(0).json();
        assert_eq!(whole["totals"]["cost_micro_usd"], 1500 * calls);
        let fell_back = &whole["steps"][1]["items"][4];
        assert_eq!(fell_back["metrics"]["cost_micro_usd"], 1500);
        let calls = fell_back["calls"].as_array().unwrap().iter();
        let answer = calls.filter_map(|call| call.get("answer")).next().unwrap();
        assert_eq!(answer["attempts"][0]["status"], "server_error");
        assert_eq!(answer["attempts"][1]["usage"]["tokens_in"], 40);
        let page = desk.path().join("page.html");
        desk.ktsu(&["trace", RUN, "--html", page.to_str().unwrap()])
            .is(0);
        let page = std::fs::read_to_string(page).unwrap();
        for cells in [
            "<td class=\"id\">p/dear</td><td>server_error</td><td class=\"number\">60 + 5</td>",
            "<td class=\"number\">3 ms</td><td class=\"number\">$0.000900</td>",
        ] {
            assert!(page.contains(cells), "{cells}");
        }
    }
}

#[test]
fn in_a_wide_fan_out_items_that_went_as_they_should_share_rows() {
    let desk = desk(200);
    let said = desk.ktsu(&["trace", RUN]);
    let shared = line_with(&said.is(0).out, "classify.10 … classify.199").join(" ");
    assert!(
        shared.ends_with("$0.285 190 items, 190 calls, 19000+1900 tokens"),
        "{shared}"
    );
    assert!(said.out.lines().count() < 25, "{}", said.out);
    for odd in ["classify.3 ", "classify.5 ", "classify.7 ", "classify.9 "] {
        said.says(odd);
    }
}

#[test]
fn a_frame_of_a_model_call_is_shown_with_its_texts_hashes_and_price() {
    let desk = desk(1);
    let frames = desk.ktsu(&["frames", RUN, "--json"]);
    let seq = |kind: &str, nth: usize| {
        let frames = frames.out.lines();
        let frames = frames.map(|line| serde_json::from_str::<Value>(line).unwrap());
        let mut found = frames.filter(|frame| frame["type"] == kind);
        found.nth(nth).unwrap()["seq"].to_string()
    };
    let answer = seq("llm.response", 1);
    let said = desk.ktsu(&["trace", RUN, &answer]);
    for words in [
        "p/m",
        "careful",
        "$0.0015, prices 2026-11",
        "100+10 tokens",
        "sha256:aa",
        "sha256:bb",
        "  is it \\u{1b}[31mred?\n",
        "  look again\n",
        "reply\n  {\"a\": 1}",
    ] {
        said.is(0).says(words);
    }
    let whole = desk.ktsu(&["trace", RUN, &answer, "--json"]).is(0).json();
    assert_eq!(whole["frame"]["data"]["content"], "{\"a\": 1}");
    assert_eq!(whole["chain"][0]["seq"].to_string(), answer);
    let end = seq("agent.finished", 0);
    desk.ktsu(&["trace", RUN, &end])
        .is(0)
        .says("outcome\n  {\n")
        .says("\"list\": []");
}

#[test]
fn an_envelope_has_items_counts_and_the_output_that_was_refused() {
    let desk = desk(10);
    let envelope = desk.ktsu(&["runs", "get", RUN]).is(0).json();
    assert_eq!(envelope["totals"]["cost_micro_usd"], 18_000);
    let step = &envelope["steps"][1];
    let counts = json!({"succeeded": 8, "failed": 1, "skipped": 1});
    assert_eq!(step["counts"], counts);
    assert_eq!(step["items"][3]["raw_output"], json!({"n": 3}));
    assert_eq!(step["items"][7]["flags"], json!(["odd"]));
    let failed = json!({"ktsu_error": "at /n", "item_index": 3});
    assert_eq!(step["output"]["results"][3], failed);
    desk.ktsu(&["verify"]).is(0);
}

#[test]
fn the_tree_of_frames_names_items() {
    let desk = desk(20);
    let tree = desk.ktsu(&["trace", RUN, "--frames"]);
    tree.is(0);
    let line = line_with(&tree.out, "worker.lost").join(" ");
    assert!(line.ends_with("classify.9 no heartbeat"), "{line}");
    let deepest = tree.out.lines().map(|line| line.matches('│').count()).max();
    assert!(deepest <= Some(2), "{}", tree.out);
}

#[test]
fn the_api_declares_every_member_that_agents_have_in_an_envelope() {
    let desk = desk(10);
    let shown = desk.ktsu(&["runs", "get", RUN]).is(0).json();
    let steps = shown["steps"].as_array().unwrap().iter();
    let reflected: Vec<_> = steps.map(|step| step["reflected"].clone()).collect();
    assert_eq!(reflected, [true, false]);
    let mut schema = ktsu_api::routes::openapi_document().clone();
    schema["$ref"] = json!("#/components/schemas/Envelope");
    let errors = jsonschema::validator_for(&schema).unwrap();
    let errors: Vec<String> = errors
        .iter_errors(&shown)
        .map(|error| format!("{} {error}", error.instance_path()))
        .collect();
    assert!(errors.is_empty(), "{errors:#?}");
}
