//! Runs with worlds, driven without effects: where their values came from, and why responders did
//! what they did.

use ktsu_ledger::event::{
    AgentEvent, AgentFinished, ClaimedMetrics, ContinueReason, Effects, FinishReason, LlmRequest,
    ObjectCreated, Post, Principal, Purpose, ReportReference, WorldEvent,
};
use ktsu_ledger::{Actor, CanonicalJson, Draft, Event, Frame, StreamId, Timestamp};
use ktsu_projections::diff::{self, Diff, Side};
use ktsu_projections::run::RunState;
use ktsu_projections::world::WorldComparison;
use serde_json::{Value, json};

use crate::provenance::{self, FieldNotFoundError, ProvenanceAnswer, TraceError, TracedRun};
use crate::why_not::{self, WhyNot};
use crate::world_timeline::world_timeline;
use ktsu_workflow::admit::report::{self, ReportAdmission};
use ktsu_workflow::admit::{self, Invocation};
use ktsu_workflow::definition::Definition;
use ktsu_workflow::next::Memo;
use ktsu_workflow::turn::{self, Turn};

/// A run that is given its inputs by hand.
pub(crate) struct WorldRun {
    definition: Definition,
    state: RunState,
    memo: Memo,
    now: u64,
    pub(crate) frames: Vec<Frame>,
}

fn principal(id: &str) -> Principal {
    Principal {
        auth: "none".to_owned(),
        id: id.to_owned(),
    }
}

impl WorldRun {
    /// A run of a world, and of the workflows that its responders run.
    pub(crate) fn of(world: Value, workflows: Value) -> Self {
        let main = json!({"name": "main", "steps": [], "version": "1.0.0", "visibility": "root",
            "webhooks": "execute"});
        let mut plan = json!({"agents": {}, "format": 1, "root": "main",
            "workflows": {"main": main}, "worlds": {"worlds/w.world.yaml": world}});
        for (name, workflow) in workflows.as_object().into_iter().flatten() {
            plan["workflows"][name] = workflow.clone();
        }
        let definition = Definition::compile(serde_json::from_value(plan).unwrap()).unwrap();
        let asked = Invocation {
            body: json!({"goal": "tides"}),
            env: Default::default(),
            idempotency: None,
            lock: None,
            effects: Effects::Execute,
            no_cache: false,
            references: Vec::new(),
            principal: principal("local"),
        };
        let at = Timestamp::from_micros(1);
        let (memo, stream) = (Memo::default(), StreamId::run("run_x").unwrap());
        let created = admit::invocation(&definition, asked).unwrap();
        let (state, first) = turn::begin(&definition, stream, created, at, &memo).unwrap();
        let mut run = Self {
            definition,
            state,
            memo,
            now: 1,
            frames: Vec::new(),
        };
        run.record(first);
        run
    }

    fn record(&mut self, turn: Turn) {
        let frames = turn.sealed.into_iter().map(|sealed| sealed.frame);
        self.frames.extend(frames);
        if turn.more {
            self.inputs(vec![turn::continuation(&self.state, ContinueReason::Bound)]);
        } else if self.state.worlds_are_idle() {
            self.inputs(vec![turn::continuation(&self.state, ContinueReason::Idle)]);
        }
    }

    fn inputs(&mut self, drafts: Vec<Draft>) {
        self.now += 1_000;
        let at = Timestamp::from_micros(self.now);
        let taken = turn::apply_report(&self.definition, &mut self.state, drafts, at, &self.memo);
        self.record(taken.unwrap());
    }

    /// The addresses of what is asked and has not ended.
    pub(crate) fn open(&self) -> Vec<String> {
        let tasks = self.state.responding().unwrap().tasks();
        tasks.map(|task| task.context.address.to_string()).collect()
    }

    /// A model's reply.
    pub(crate) fn reply(&mut self, address: &str, output: Value) {
        let outcome = json!({ "output": output });
        let event = AgentEvent::Finished(Box::new(AgentFinished {
            attempt: 1,
            item: None,
            metrics: Some(ClaimedMetrics::default()),
            outcome: CanonicalJson::from_value(&outcome).unwrap(),
            reason: FinishReason::Completed,
            report: Some(ReportReference {
                digest: ktsu_ledger::Hash::of(address.as_bytes()).to_string(),
                n: 0,
            }),
            step: address.to_owned(),
        }));
        match report::report(&self.state, "", vec![event], &Default::default()) {
            ReportAdmission::Accepted(drafts) => self.inputs(drafts),
            other => panic!("{other:?}"),
        }
    }

    /// The runtime reports the request of a question.
    fn asks(&mut self, address: &str) {
        let messages = json!([{"role": "user", "content": "What?"}]);
        let event = AgentEvent::Request(LlmRequest {
            attempt: 1,
            base: None,
            digest: String::new(),
            group: "std".to_owned(),
            item: None,
            max_tokens: 10,
            messages: CanonicalJson::from_value(&messages).unwrap(),
            purpose: Purpose::Turn,
            report: ReportReference {
                digest: ktsu_ledger::Hash::of(b"asks").to_string(),
                n: 1,
            },
            routing: None,
            step: address.to_owned(),
            temperature_millionths: None,
            tools: None,
        });
        match report::report(&self.state, "", vec![event], &Default::default()) {
            ReportAdmission::Accepted(drafts) => self.inputs(drafts),
            other => panic!("{other:?}"),
        }
    }

    /// A person posts an object while something is under way.
    pub(crate) fn post(&mut self, id: &str, kind: &str, data: &Value) {
        let by = principal("ada");
        let n = self.state.responding().unwrap().next_post();
        let event = WorldEvent::ObjectCreated(ObjectCreated {
            by: Some(by.clone()),
            data: CanonicalJson::from_value(data).unwrap(),
            derived: None,
            id: id.to_owned(),
            key: None,
            kind: kind.to_owned(),
            post: Some(Post {
                digest: ktsu_ledger::Hash::of(id.as_bytes()).to_string(),
                key: None,
                n,
            }),
        });
        self.inputs(vec![Draft {
            scope: String::new(),
            actor: Actor::Principal(by.id),
            cause: Vec::new(),
            event: Event::World(event),
        }]);
    }

    pub(crate) fn id(&self, kind: &str, nth: usize) -> String {
        let head = self.state.responding().unwrap().head();
        head.of_type(kind).nth(nth).unwrap().id.to_string()
    }

    fn of_path(&self, path: &str) -> ProvenanceAnswer {
        let story = TracedRun::of(&self.frames).unwrap();
        provenance::answer(&story, "", path).unwrap()
    }

    fn why_not(&self, name: &str, object: Option<&str>) -> WhyNot {
        let story = TracedRun::of(&self.frames).unwrap();
        why_not::why_not_of(&story, "", name, object).unwrap()
    }
}

fn not_found(story: &TracedRun<'_>, path: &str) -> FieldNotFoundError {
    match provenance::answer(story, "", path) {
        Err(TraceError::NotFound(refused)) => refused,
        other => panic!("{path}: {other:?}"),
    }
}

fn diff(a: &WorldRun, b: &WorldRun) -> Diff {
    let side = |run| Side {
        frames: run,
        scope: "",
    };
    diff::diff(side(&a.frames), side(&b.frames)).unwrap()
}

fn worlds(a: &WorldRun, b: &WorldRun) -> WorldComparison {
    let state = |run: &WorldRun| RunState::fold(&run.frames).unwrap();
    let (a, b) = (state(a), state(b));
    let head = |state: &RunState| state.responding().unwrap().head().clone();
    WorldComparison::between(&head(&a), &head(&b))
}

fn object(kind: &str, data: Value) -> Value {
    json!({"make": {"object": {"type": kind, "data": data}}})
}

fn world(responders: Value) -> Value {
    json!({
        "name": "w", "version": "1.0.0",
        "budget": {"max_events": 1000, "max_llm_cost_micro_usd": 1_000_000,
            "max_recursion_depth": 100_000, "max_wall_ms": 100_000},
        "goal": [object("Topic", json!({"text": "{{ goal }}", "state": "open"}))],
        "objects": {"Topic": {}, "Question": {}, "Note": {}},
        "relations": {"about": {}},
        "responders": responders,
    })
}

/// A topic becomes two questions; a model answers each, and what it says is noted once.
fn asking() -> Value {
    let question = json!({"as": "question", "make": {"object": {"type": "Question",
        "data": {"text": "{{ item }} {{ object.data.text }}?", "topic": "{{ object.id }}"}}}});
    let about = json!({"make": {"relation":
        {"type": "about", "from": "{{ question.id }}", "to": "{{ object.id }}"}}});
    json!([
        {"name": "questions", "on": ["object.created"], "type": ["Topic"],
            "for_each": {"items": ["What are", "Why are"]}, "work": {"emit": [question, about]}},
        {"name": "asks", "on": ["object.created"], "type": ["Question"],
            "with": [{"name": "topic", "find": {"object": "{{ object.data.topic }}"}}],
            "when": "topic.data.state == 'open'", "concurrency": 1,
            "work": {"ask": {"group": "std", "max_tokens": 10, "messages":
                [{"role": "user", "content": "{{ object.data.text }}"}]}},
            "then": [{"make": {"patch": {"id": "{{ object.id }}",
                "data": {"answer": "{{ reply.text }}", "of": "{{ topic.data.text }}"}}}}]},
        {"name": "notes", "on": ["object.patched"], "type": ["Question"], "changed": ["answer"],
            "work": {"emit": [{"key": "once", "make": {"object": {"type": "Note",
                "data": {"text": "{{ object.data.answer }} ({{ object.data.of }})"}}}}]}},
        {"name": "links", "on": ["object.created"], "type": ["Note"],
            "with": [{"name": "other", "find": {"object": "{{ object.data.question }}"}}],
            "when": "other",
            "work": {"emit": [{"make": {"relation":
                {"type": "about", "from": "{{ object.id }}", "to": "{{ other.id }}"}}}]}},
        {"name": "breaks", "on": ["object.created"], "type": ["Note"],
            "when": "length(object.data.nothing)", "work": {"emit": []}},
        {"name": "never", "on": ["relation.removed"], "type": ["about"], "work": {"emit": []}},
    ])
}

fn answered() -> WorldRun {
    let mut run = WorldRun::of(world(asking()), json!({}));
    while let Some(address) = run.open().first().cloned() {
        run.reply(&address, json!(format!("reply {}", run.frames.len())));
    }
    assert_eq!(run.frames.last().unwrap().event.kind(), "run.completed");
    run
}

fn origins(answer: &ProvenanceAnswer) -> Vec<(&str, &str)> {
    let all = answer.origins.iter();
    all.map(|one| (one.kind.as_str(), one.at.as_str()))
        .collect()
}

fn hows(answer: &ProvenanceAnswer) -> Vec<(&str, &str)> {
    let all = answer.chain.iter();
    all.map(|hop| (hop.responder.as_deref().unwrap_or_default(), hop.how))
        .collect()
}

#[test]
fn a_field_is_followed_through_templates_to_the_goal_of_the_run() {
    let run = answered();
    let answer = run.of_path("Question[0].text");
    assert_eq!(answer.value, json!("What are tides?"));
    assert_eq!(
        answer.pointer,
        format!("/objects/{}/data/text", run.id("Question", 0))
    );
    assert_eq!(hows(&answer), [("questions", "emit"), ("", "goal")]);
    assert_eq!(origins(&answer), [("run.created", "/params/goal")]);
    assert_eq!(answer.chain[0].text, "{{ item }} {{ object.data.text }}?");
    // The same by the whole id, by the beginning of it, and with `data` spelt out.
    let id = run.id("Question", 0);
    for path in [
        format!("{id}.text"),
        format!("{}.data.text", &id[..id.len() - 1]),
    ] {
        assert_eq!(run.of_path(&path).origins, answer.origins, "{path}");
    }
}

#[test]
fn a_field_is_followed_through_patches_and_replies_and_names_the_guard_that_chose_it() {
    let run = answered();
    let answer = run.of_path("Note.text");
    assert_eq!(
        origins(&answer),
        [
            ("run.created", "/params/goal"),
            ("agent.finished", "/outcome/output")
        ]
    );
    let hows = hows(&answer);
    for hop in [
        ("notes", "emit"),
        ("asks", "then"),
        ("asks", "reply"),
        ("", "goal"),
    ] {
        assert!(hows.contains(&hop), "{hop:?} in {hows:?}");
    }
    // The guard of the question looked at the state of the topic, which is no part of the value.
    let topic = answer
        .deciders
        .iter()
        .find(|one| one.place.at == "/data/state");
    assert_eq!(topic.unwrap().place.value, json!("open"));
    // A note is made once: only the first reply is in it.
    let finished = run
        .frames
        .iter()
        .find(|frame| frame.event.kind() == "agent.finished");
    assert_eq!(answer.origins[1].frame, finished.unwrap().seq);
}

#[test]
fn an_end_of_a_relation_is_the_object_it_names() {
    let run = answered();
    let head = run.state.responding().unwrap().head();
    let relation = head.relations()[0].id.to_string();
    let answer = run.of_path(&format!("relation {relation}.target_id"));
    assert_eq!(answer.value, json!(run.id("Topic", 0)));
    assert_eq!(origins(&answer), [("object.created", "/id")]);
    assert_eq!(hows(&answer), [("questions", "emit")]);
}

#[test]
fn what_a_workflow_of_a_responder_gives_is_followed_into_it_and_back_to_its_params() {
    let call = json!({"name": "calls", "on": ["object.created"], "type": ["Topic"],
        "work": {"run": {"workflow": "deeper", "webhooks": "suppress", "params":
            {"about": "{{ object.data.text }}", "list": ["{{ object.data.state }}"]}}},
        "then": [{"make": {"object": {"type": "Note", "data": {"text": "{{ result.said }}"}}}}]});
    let deeper = json!({"name": "deeper", "version": "1.0.0", "visibility": "root",
        "webhooks": "suppress", "output": {"map": {"said": "about {{ params.about }}, {{ step.one.result[0] }}"}},
        "steps": [{"id": "one", "needs": [],
            "work": {"transform": {"inputs": ["params.list"], "ops": ["flatten"]}}}]});
    let run = WorldRun::of(world(json!([call])), json!({"deeper": deeper}));
    assert_eq!(run.frames.last().unwrap().event.kind(), "run.completed");
    let answer = run.of_path("Note.text");
    assert_eq!(answer.value, json!("about tides, open"));
    assert_eq!(origins(&answer), [("run.created", "/params/goal")]);
    let hows = hows(&answer);
    for hop in [
        ("calls", "then"),
        ("", "template"),
        ("calls", "params"),
        ("", "goal"),
    ] {
        assert!(hows.contains(&hop), "{hop:?} in {hows:?}");
    }
}

#[test]
fn what_a_person_posted_is_an_origin_and_a_field_that_is_not_there_is_refused() {
    let mut run = WorldRun::of(world(asking()), json!({}));
    run.post(
        "note-1",
        "Note",
        &json!({"text": "by hand", "question": run.id("Question", 1)}),
    );
    let answer = run.of_path("note-1.text");
    assert_eq!(origins(&answer), [("object.created", "/data/text")]);
    assert_eq!(answer.origins[0].name, "note-1: text by ada");
    assert!(answer.chain.is_empty());
    let story = TracedRun::of(&run.frames).unwrap();
    for (path, there) in [
        ("note-1.words", "text"),
        ("Question.text", "Question-"),
        ("zzz", "Note"),
    ] {
        let refused = not_found(&story, path);
        assert!(
            refused.there.iter().any(|one| one.starts_with(there)),
            "{path}: {refused:?}"
        );
    }
    let first = run.id("Question", 0);
    for (path, words) in [
        (
            "Question[9].text",
            "there is no Question[9]: there are 2, Question[0] to Question[1]".to_owned(),
        ),
        (
            "Note[1].text",
            "there is no Note[1]: Note[0] is the only one of its type".to_owned(),
        ),
        ("Question[0].nope", format!("{first} has no field nope")),
    ] {
        let refused = not_found(&story, path);
        assert_eq!(refused.message, words);
    }
}

#[test]
fn a_trace_counts_the_events_that_the_budget_counts() {
    let mut run = WorldRun::of(world(asking()), json!({}));
    let address = run.open().first().cloned().unwrap();
    run.asks(&address);
    let calls = run.frames.iter();
    let calls = calls.filter(|frame| frame.event.kind() == "llm.request");
    assert_eq!(calls.count(), 1);
    let counted = run.state.responding().unwrap().activity().events();
    assert_eq!(world_timeline(&run.frames).unwrap().events, counted);
}

#[test]
fn a_long_chain_is_followed_in_work_that_grows_with_it_and_not_with_its_square() {
    let work = [100, 400].map(|count: u32| {
        let step = json!({"name": "counts", "on": ["object.created"], "type": ["Topic", "Note"],
            "when": format!("(object.data.n || `0`) < `{count}`"),
            "work": {"emit": [object("Note", json!({"n": "{{ sum([object.data.n || `0`, `1`]) }}"}))]}});
        let run = WorldRun::of(world(json!([step])), json!({}));
        let story = TracedRun::of(&run.frames).unwrap();
        let answer = provenance::answer(&story, "", &format!("Note[{}].n", count - 1)).unwrap();
        assert_eq!(answer.value, json!(count));
        assert_eq!(answer.chain.len(), count as usize);
        (story.worlds().unwrap().work, run.frames.len())
    });
    for (work, frames) in work {
        assert!(work <= frames, "{work} look-ups for {frames} frames");
    }
}

#[test]
fn a_responder_that_did_not_react_names_its_guard_and_what_it_saw() {
    let run = answered();
    let why = run.why_not("links", None);
    assert_eq!(why.status, "did not react");
    assert!(
        why.because[0]
            .text
            .ends_with("its guard other is null; other = null"),
        "{why:?}"
    );
    let why = run.why_not("breaks", None);
    assert_eq!(why.status, "did not react");
    assert!(
        why.because[0].text.contains("could not be evaluated"),
        "{why:?}"
    );
    let why = run.why_not("never", None);
    assert_eq!(why.status, "never triggered");
    assert!(
        why.because[0]
            .text
            .starts_with("it reacts to relation.removed of about")
    );
    assert!(
        why.because
            .iter()
            .any(|one| one.text == "instead: relation.created of about, 2 times, last here")
    );
}

#[test]
fn a_responder_that_made_nothing_names_the_key_that_was_there() {
    let run = answered();
    let why = run.why_not("notes", Some("Question[1]"));
    assert_eq!(
        (why.status.as_str(), why.because.len()),
        ("did not react", 1)
    );
    let note = run.id("Note", 0);
    assert!(
        why.because[0]
            .text
            .ends_with(&format!("an object with its key exists already: {note}"))
    );
    let made = run.why_not("notes", Some("Question[0]"));
    assert_eq!(made.status, "reacted");
    assert!(
        made.because
            .iter()
            .any(|one| one.text.contains("made 1 of 1")),
        "{made:?}"
    );
}

#[test]
fn a_question_that_waits_names_the_concurrency_that_keeps_it() {
    let run = WorldRun::of(world(asking()), json!({}));
    let second = run.id("Question", 1);
    let why = run.why_not("asks", Some(&second));
    assert!(
        why.because[0]
            .text
            .ends_with("waits: 1 are under way, and concurrency is 1"),
        "{why:?}"
    );
    let story = TracedRun::of(&run.frames).unwrap();
    let refused = why_not::why_not_of(&story, "", "ask", None);
    let Err(TraceError::NotFound(refused)) = refused else {
        panic!("{refused:?}");
    };
    assert!(refused.there.contains(&"asks".to_owned()), "{refused:?}");
    assert!(why_not::why_not_of(&story, "", "asks", Some("Topic[7]")).is_err());
}

#[test]
fn a_responder_whose_budget_ended_first_says_so() {
    let mut world = world(asking());
    world["budget"]["max_events"] = json!(2);
    let run = WorldRun::of(world, json!({}));
    let why = run.why_not("questions", None);
    assert!(
        why.because
            .iter()
            .any(|one| one.text.contains("the budget was used up first")),
        "{why:?}"
    );
    let why = run.why_not("asks", None);
    assert_eq!(why.status, "waiting");
    assert!(why.because[0].text.contains("max_events=2"), "{why:?}");
}

/// Questions without `concurrency`, answered in an order.
fn answered_in(order: [usize; 2], says: &str) -> WorldRun {
    let mut responders = asking();
    responders[1]["concurrency"] = Value::Null;
    responders[2]["work"] = json!({"emit": []});
    let mut run = WorldRun::of(world(responders), json!({}));
    let open = run.open();
    for at in order {
        run.reply(&open[at], json!(format!("{says} {at}")));
    }
    assert_eq!(run.frames.last().unwrap().event.kind(), "run.completed");
    run
}

#[test]
fn runs_whose_replies_came_in_another_order_do_not_differ() {
    let (one, other) = (answered_in([0, 1], "reply"), answered_in([1, 0], "reply"));
    assert!(worlds(&one, &other).is_empty());
    let diff = diff(&one, &other);
    assert!(diff.is_empty(), "{diff:#?}");
}

#[test]
fn two_worlds_differ_in_named_objects_relations_and_fields() {
    let (one, mut other) = (answered_in([0, 1], "reply"), answered());
    let second = answered_in([0, 1], "word");
    let found = worlds(&one, &second);
    let questions = [one.id("Question", 0), one.id("Question", 1)];
    let mut ids: Vec<&str> = questions.iter().map(String::as_str).collect();
    ids.sort_unstable();
    let patched: Vec<&str> = found
        .patched_objects
        .iter()
        .map(|one| one.id.as_str())
        .collect();
    assert_eq!(patched, ids);
    let change = &found.patched_objects[0].changes;
    assert_eq!((change.len(), change[0].path.as_str()), (1, "/data/answer"));
    assert_eq!(found.ids().to_string(), "~2 objects patched");
    // A note more, seen from both sides.
    let note = other.id("Note", 0);
    assert_eq!(
        worlds(&one, &other).added_objects,
        std::slice::from_ref(&note)
    );
    assert_eq!(worlds(&other, &one).removed_objects, [note]);
    other.frames.truncate(1);
    let found = worlds(&one, &other);
    assert_eq!(
        (found.removed_objects.len(), found.removed_relations.len()),
        (3, 2)
    );
}
