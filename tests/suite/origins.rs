//! Where values came from and why steps are where they are, in runs that people had a say in.

use ktsu_history::provenance::{self, TraceError, TracedRun};
use ktsu_history::why_not::{self, WhyNot};
use ktsu_ledger::appender::Options;
use ktsu_ledger::event::StepEvent;
use ktsu_ledger::store::MemoryStore;
use ktsu_ledger::{Event, Frame, StreamId, branch};
use serde_json::{Value, json};

use crate::golden::goldens;
use crate::support::{Client, KitDir, Within};

const ROOT: &str = r#"
params: {schema: {type: object, properties: {n: {type: integer, default: 2}, m: {type: integer, default: 3}}}}
pipeline:
  - {id: a, transform: {inputs: [{from: "{v: params.n}"}], ops: []}}
  - {id: b, transform: {inputs: [{from: "{v: step.a.result.v}"}], ops: []}}
  - {id: c, transform: {inputs: [{from: "{v: step.b.result.v, p: params.n}"}], ops: []}}
output: {map: {a: "{{ step.a.result.v }}", b: "{{ step.b.result.v }}", c: "{{ step.c.result }}"}}
"#;

/// An engine, its ledger, and a run of that workflow.
struct Desk {
    store: MemoryStore,
    within: Within,
    run: String,
}

impl Desk {
    async fn new() -> Self {
        let store = MemoryStore::new();
        let kit = KitDir::new(&[("root", ROOT)]);
        let options = Options::default();
        let within = Within::new(kit.load(), store.clone(), options, &[], None).await;
        let run = within.client.run("root", json!({})).await["run_id"].clone();
        let run = run.as_str().unwrap().to_owned();
        Self { store, within, run }
    }

    fn frames(&self, run: &str) -> Vec<Frame> {
        branch::frames(&self.store, &StreamId::run(run).unwrap()).unwrap()
    }

    /// Where a value came from: the frame and the place of each origin.
    fn of(&self, run: &str, path: &str) -> Vec<(u64, String)> {
        origins(&self.frames(run), path)
    }

    async fn say(&self, word: &str, body: Value) -> Value {
        post(&self.within.client, &self.run, word, body).await
    }

    async fn overlay(&self, value: i64) -> u64 {
        let body = json!({"step": "a", "field": "result", "value": {"v": value}, "reason": "seen"});
        self.say("overlay", body).await["seq"].as_u64().unwrap()
    }

    async fn resume(&self, from: &str) -> Value {
        self.say("resume", json!({ "from": from })).await;
        self.within.client.ended(&self.run).await
    }

    /// A branch that went on to its end, and the number of its first frame.
    async fn fork(&self, mut body: Value) -> (String, u64) {
        body["go"] = json!(true);
        let branch = self.say("fork", body).await;
        let name = branch["branch_id"].as_str().unwrap().to_owned();
        let envelope = self.within.client.ended(&name).await;
        assert_eq!(envelope["status"], "complete", "{envelope}");
        (name, branch["fork_position"].as_u64().unwrap())
    }
}

async fn post(client: &Client, run: &str, word: &str, body: Value) -> Value {
    let path = format!("/runs/{run}/{word}");
    let answer = client.post(&path, body.to_string()).await;
    assert!(answer.status < 300, "{}", answer.text());
    answer.json()
}

fn origins(frames: &[Frame], path: &str) -> Vec<(u64, String)> {
    let story = TracedRun::of(frames).unwrap();
    let answer = provenance::answer(&story, "", path).unwrap();
    let origins = answer.origins.into_iter();
    origins.map(|one| (one.frame, one.at)).collect()
}

fn at(frame: u64, place: &str) -> Vec<(u64, String)> {
    vec![(frame, place.to_owned())]
}

#[tokio::test]
async fn a_value_names_the_params_of_the_fork_if_it_was_made_after_it() {
    let desk = Desk::new().await;
    let (branch, position) = desk
        .fork(json!({"before": "c", "set": {"params.n": 9}}))
        .await;
    assert_eq!(
        desk.of(&branch, "step.c.result.p"),
        at(position, "/params/n")
    );
    for made_before in [
        "step.a.result.v",
        "step.b.result.v",
        "step.c.result.v",
        "output.b",
    ] {
        assert_eq!(
            desk.of(&branch, made_before),
            at(0, "/params/n"),
            "{made_before}"
        );
    }
    assert_eq!(desk.of(&branch, "params.n"), at(position, "/params/n"));
    let whole = desk.fork(json!({"at": 0, "set": {"params.n": 9}})).await.0;
    assert_eq!(desk.of(&whole, "output.c.v"), at(0, "/params/n"));
}

#[tokio::test]
async fn a_step_under_way_at_the_fork_is_made_of_what_holds_after_it() {
    let desk = Desk::new().await;
    let frames = desk.frames(&desk.run);
    let started = frames.iter().find(
        |frame| matches!(&frame.event, Event::Step(StepEvent::Started(begun)) if begun.step == "c"),
    );
    let after = started.unwrap().seq + 1;
    let (branch, position) = desk
        .fork(json!({"at": after, "set": {"params.n": 9}}))
        .await;
    assert_eq!(position, after);
    assert_eq!(desk.of(&branch, "step.c.result.p"), at(after, "/params/n"));
}

#[tokio::test]
async fn a_value_set_by_a_fork_is_the_origin_of_what_is_made_of_it() {
    let desk = Desk::new().await;
    let set = json!({"step.b.output.result": {"v": 70}});
    let (branch, position) = desk.fork(json!({"before": "c", "set": set})).await;
    let said = position + 1;
    assert_eq!(desk.of(&branch, "output.c.v"), at(said, "/value/v"));
    assert_eq!(desk.of(&branch, "output.b"), at(said, "/value/v"));
    assert_eq!(desk.of(&branch, "step.c.result.p"), at(0, "/params/n"));
    let frames = desk.frames(&branch);
    let story = TracedRun::of(&frames).unwrap();
    let answer = provenance::answer(&story, "", "output.c.v").unwrap();
    let hops: Vec<_> = answer
        .chain
        .iter()
        .map(|hop| (hop.step.as_str(), hop.how))
        .collect();
    assert_eq!(
        hops,
        [("", "template"), ("c", "transform"), ("b", "overlay")]
    );
    assert_eq!(answer.origins[0].name, "b.result.v by local");
}

#[tokio::test]
async fn a_step_names_the_overlays_it_saw_and_none_that_came_later() {
    let desk = Desk::new().await;
    let first = desk.overlay(50).await;
    desk.resume("c").await;
    assert_eq!(
        desk.of(&desk.run, "step.b.result.v"),
        at(0, "/params/n"),
        "b ran before"
    );
    assert_eq!(desk.of(&desk.run, "output.b"), at(0, "/params/n"));
    assert_eq!(desk.of(&desk.run, "output.a"), at(first, "/value/v"));
    assert_eq!(desk.of(&desk.run, "step.a.result.v"), at(first, "/value/v"));
    let ended = desk.resume("b").await;
    assert_eq!(ended["output"]["b"], 50);
    assert_eq!(desk.of(&desk.run, "step.b.result.v"), at(first, "/value/v"));
    let second = desk.overlay(60).await;
    assert_eq!(
        desk.of(&desk.run, "step.b.result.v"),
        at(first, "/value/v"),
        "it saw the first"
    );
    assert_eq!(
        desk.of(&desk.run, "step.a.result.v"),
        at(second, "/value/v")
    );
    let ended = desk.resume("a").await;
    assert_eq!(
        ended["output"]["b"], 60,
        "an overlay stays over a step that begins again"
    );
    assert_eq!(desk.of(&desk.run, "output.c.v"), at(second, "/value/v"));
}

#[tokio::test]
async fn what_ran_under_the_definition_before_is_reported_by_that_definition() {
    let desk = Desk::new().await;
    let changed = ROOT
        .replace("{v: step.a.result.v}", "{v: params.m}")
        .replace("p: params.n", "p: params.m")
        .replace(
            "pipeline:\n",
            "pipeline:\n  - {id: first, transform: {inputs: [{from: \"{v: params.m}\"}], ops: []}}\n",
        );
    let kit = KitDir::new(&[("root", changed.as_str())]).load();
    let definition = kit.workflows["root"].definition.json.to_value();
    let (branch, _) = desk
        .fork(json!({"before": "c", "definition": definition}))
        .await;
    assert_eq!(desk.of(&branch, "step.b.result.v"), at(0, "/params/n"));
    assert_eq!(desk.of(&branch, "step.c.result.v"), at(0, "/params/n"));
    assert_eq!(desk.of(&branch, "step.c.result.p"), at(0, "/params/m"));
    assert_eq!(desk.of(&branch, "step.first.result.v"), at(0, "/params/m"));
}

fn why(frames: &[Frame], step: &str) -> WhyNot {
    let story = TracedRun::of(frames).unwrap();
    why_not::why_not(&story, "", step).unwrap_or_else(|error| panic!("{error}"))
}

/// The status, and of each reason the step and the words.
#[track_caller]
fn because(frames: &[Frame], step: &str, status: &str, reasons: &[(&str, &str)]) -> WhyNot {
    let why = why(frames, step);
    assert_eq!(why.status, status, "{why:#?}");
    assert_eq!(why.because.len(), reasons.len(), "{why:#?}");
    for (told, (step, words)) in why.because.iter().zip(reasons) {
        assert_eq!(told.step, *step, "{why:#?}");
        assert!(told.text.contains(words), "no {words:?} in {why:#?}");
    }
    why
}

fn golden(name: &str) -> Vec<Frame> {
    let found = goldens().into_iter().find(|(golden, _)| golden == name);
    found.unwrap().1.frames()
}

#[test]
fn a_step_is_reported_complete_failed_stopped_and_never_begun() {
    let frames = golden("v1-failure");
    let why = because(&frames, "fine", "complete", &[("fine", "it completed")]);
    assert!(why.because[0].frame.is_some());
    let failed = because(&frames, "a", "failed", &[("a", "it failed with ")]);
    let status = failed.because[0]
        .values
        .iter()
        .find(|one| one.at == "/status");
    assert_eq!(status.unwrap().value, json!(500));
    let text = "it failed with stopped";
    because(
        &frames,
        "slow",
        "failed",
        &[("slow", text), ("a", "it failed with ")],
    );
    let text = "the run failed before it began";
    because(
        &frames,
        "b",
        "skipped",
        &[("b", text), ("a", "it failed with ")],
    );
    let frames = golden("v1-failing-child");
    let text = "the run failed before it began";
    let why = because(
        &frames,
        "after",
        "skipped",
        &[("after", text), ("a/call", "it failed")],
    );
    assert_eq!(why.step, "after");
    because(
        &frames,
        "a/rest",
        "skipped",
        &[("a/rest", text), ("a/call", "it failed")],
    );
}

#[test]
fn a_condition_is_reported_with_the_values_that_decided_it() {
    let frames = golden("v1-conditions");
    let why = because(
        &frames,
        "no",
        "skipped",
        &[("no", "its condition params.go is false")],
    );
    let values = &why.because[0].values;
    assert_eq!(values.len(), 1, "{values:?}");
    assert_eq!(
        (values[0].name.as_str(), &values[0].value),
        ("params.go", &json!(false))
    );
    let text = "its condition length(params.go) has no value: ";
    let why = because(&frames, "broken", "skipped", &[("broken", text)]);
    assert_eq!(why.because[0].values[0].name, "params.go");
}

#[test]
fn what_an_agent_skipped_and_what_waited_for_it_leads_to_its_words() {
    let frames = golden("v1-agent-plain");
    let text = "its agent skipped it: nothing new";
    let why = because(&frames, "b", "skipped", &[("b", text)]);
    assert_eq!(why.because[0].values[0].value, json!("nothing new"));
    let needs = ("c", "a step it needs was skipped");
    because(&frames, "c", "skipped", &[needs, ("b", text)]);
}

#[test]
fn what_is_not_done_is_reported_by_what_it_waits_for() {
    let frames = golden("v1-failure");
    let sent = |frame: &Frame| frame.event.kind() == "webhook.sent";
    let sent = frames.iter().rposition(sent).unwrap();
    let text = "it waits for the answer to sending 1 of its webhook";
    because(&frames[..=sent], "a", "running", &[("a", text)]);
    let begun = "it has not begun: something it needs is not done";
    because(
        &frames[..=sent],
        "b",
        "pending",
        &[("b", begun), ("a", text)],
    );
    let frames = golden("v1-agent-child");
    let asked = |frame: &Frame| frame.event.kind() == "llm.request";
    let asked = frames.iter().position(asked).unwrap();
    let child = "it waits for the workflow it calls";
    let reasons = [
        ("after", begun),
        ("call", child),
        ("call/inner", child),
        ("call/inner/think", "it waits for its agent"),
    ];
    because(&frames[..=asked], "after", "pending", &reasons);
    let frames = golden("v1-agent-child");
    let none = [
        ("call/inner/think", "its workflow call/inner never began"),
        ("call", "it is about to begin"),
    ];
    let why = why(&frames[..1], "call/inner/think");
    assert_eq!(why.status, "pending");
    assert_eq!(why.because[0].text, none[0].1, "{why:#?}");
    assert!(
        why.because.last().unwrap().text.contains(none[1].1),
        "{why:#?}"
    );
}

#[test]
fn a_suppressed_webhook_says_who_suppressed_it() {
    let frames = golden("v1-children-suppress");
    let text = "webhooks of this child are suppressed";
    because(&frames, "a/b/call", "skipped", &[("a/b/call", text)]);
    let frames = golden("v7-without-effects");
    let text = "webhooks of this run are not sent: it was created with effects=suppress";
    because(&frames, "h", "skipped", &[("h", text)]);
    because(&frames, "c/call", "skipped", &[("c/call", text)]);
    let text = "webhooks of a branch are not sent unless";
    let branches = super::exports::streams();
    let suppressed = branches.iter().filter_map(|(name, one)| {
        let frames = one.frames();
        let skipped = |frame: &&Frame| {
            matches!(&frame.event, Event::Step(StepEvent::Skipped(skipped)) if skipped.step == "tell" && skipped.reason.as_str() == "webhooks_suppressed")
        };
        let there = frames.iter().any(|frame| skipped(&frame));
        (name.contains("branch_") && there).then_some(frames)
    });
    let mut told = 0;
    for frames in suppressed {
        because(&frames, "tell", "skipped", &[("tell", text)]);
        told += 1;
    }
    assert!(told >= 2, "{told}");
}

#[tokio::test]
async fn what_begins_again_and_what_waits_for_a_person_say_so() {
    let desk = Desk::new().await;
    let branch = desk.say("fork", json!({"before": "b"})).await;
    let branch = branch["branch_id"].as_str().unwrap();
    let frames = desk.frames(branch);
    let waits = "the branch waits for a person: ktsu resume branch_";
    let why = because(&frames, "b", "pending", &[("b", waits)]);
    assert_eq!(why.because[0].frame, Some(frames.len() as u64 - 1));
    let begun = "it has not begun";
    because(&frames, "c", "pending", &[("c", begun), ("b", waits)]);
    desk.resume("b").await;
    let frames = desk.frames(&desk.run);
    let resets: Vec<usize> = (0..frames.len())
        .filter(|at| frames[*at].event.kind() == "step.reset")
        .collect();
    assert_eq!(resets.len(), 2);
    let back = "it was taken back to begin again";
    let reasons = [
        ("c", back),
        ("c", begun),
        ("b", back),
        ("b", "it is about to begin"),
    ];
    let why = because(&frames[..=resets[1]], "c", "pending", &reasons);
    assert_eq!(why.because[0].frame, Some(resets[1] as u64));
    because(&frames, "c", "complete", &[("c", "it completed")]);
}

#[test]
fn a_step_that_is_not_there_is_reported_with_those_that_are() {
    let frames = golden("v1-failure");
    let story = TracedRun::of(&frames).unwrap();
    let error = why_not::why_not(&story, "", "nobody");
    let Err(TraceError::NotFound(error)) = error else {
        panic!("{error:?}");
    };
    assert_eq!(error.there, ["a", "b", "fine", "slow"]);
    assert!(why_not::why_not(&story, "", "a/inner").is_err());
}

/// The value of a fan-out was made of all replies, a field of one of its items of that one reply, and a part of
/// that field of no other.
#[test]
fn the_reply_of_an_item_is_on_the_path_of_its_own_fields_alone() {
    let mut all = goldens().into_iter();
    let (_, recorded) = all.find(|(name, _)| name == "v1-agent-fan-out").unwrap();
    let frames = recorded.frames();
    let story = TracedRun::of(&frames).unwrap();
    let replied = |path: &str| -> Vec<String> {
        let answer = provenance::answer(&story, "", path).unwrap();
        let chain = answer.chain.into_iter();
        let replies = chain.filter(|hop| hop.how == "reply");
        replies.map(|hop| hop.step).collect()
    };
    // The agent of item 1 gives nothing.
    assert_eq!(replied("step.each.results"), ["each.0", "each.2", "each.3"]);
    for (item, field) in [(0, "answer"), (2, "reason"), (3, "answer")] {
        for below in [String::new(), format!(".{field}")] {
            let path = format!("step.each.results[{item}]{below}");
            assert_eq!(replied(&path), [format!("each.{item}")], "{path}");
        }
    }
}
