//! Responders that wait before they look (`after`).

use ktsu_ledger::event::{FiringVerdict, RunEvent, TimerFired, TimerKind};
use ktsu_ledger::{Cause, Draft, Frame, Timestamp};
use ktsu_projections::run::{RunState, RunStatus};
use ktsu_projections::world::{MAX_TIMERS, Responding};

use super::budget_tests::events;
use super::posts_tests::{patch, posted, request};
use super::*;
use crate::admit;
use crate::admit::steer::{RunControl, steer};
use crate::driven_tests::{Say, output};
use crate::simulate::{compare, simulate};
use crate::timers;

pub(super) const MINUTE: u64 = 60_000;

impl Driven {
    /// Time passes until the next responder has waited long enough. Whether one waited.
    pub(crate) fn waits_for_responder(&mut self) -> bool {
        let next = self.state.responding().and_then(Responding::next_timer);
        let Some(due) = next.map(|next| next.due) else {
            return false;
        };
        if self.state.status() != RunStatus::Running {
            return false;
        }
        // An input is a millisecond after the one before it.
        self.now = self.now.max(due.as_micros() - 1_000);
        let early = Timestamp::from_micros(due.as_micros() - 1);
        let after = |draft: Draft| matches!(&draft.event, Event::Run(RunEvent::TimerFired(fired)) if fired.timer == TimerKind::After);
        assert!(!timers::due(&self.state, early).is_some_and(after));
        self.input(timers::due(&self.state, due).expect("it is due"));
        true
    }

    /// The verdicts of a responder, in order.
    fn verdicts(&self, responder: &str) -> Vec<FiringVerdict> {
        let fired = self.frames.iter().filter_map(|frame| match &frame.event {
            Event::World(WorldEvent::Fired(fired)) => Some(&fired.candidates),
            _ => None,
        });
        let of = fired.flatten().filter(|one| one.responder == responder);
        of.map(|one| one.verdict).collect()
    }

    fn minutes_of(&self, kind: &str) -> Vec<u64> {
        let begin = self.frames[0].at;
        let of = self.frames.iter().filter(|one| one.event.kind() == kind);
        of.map(|one| one.at.millis_since(begin) / MINUTE).collect()
    }

    fn count(&self, kind: &str) -> usize {
        let head = self.state.responding().unwrap().head();
        head.of_type(kind).count()
    }

    fn timer_count(&self) -> usize {
        self.state.responding().unwrap().timer_count()
    }

    fn incident(&self) -> String {
        let head = self.state.responding().unwrap().head();
        head.of_type("Incident").next().unwrap().id.to_string()
    }
}

/// Pages somebody about an incident that is still open a quarter of an hour later.
pub(super) fn escalates(more: Value) -> Value {
    let mut page = emits(json!([object(
        "Page",
        json!({"about": "{{ object.data.text }}", "event": "{{ event.type }}"})
    )]));
    page["after_ms"] = json!(15 * MINUTE);
    page["when"] = json!("object.data.status == 'open'");
    merge(&mut page, more);
    responder("escalates", "object.created", "Incident", page)
}

fn incidents(responders: Value) -> Value {
    let open = json!({"text": "{{ goal }}", "status": "open"});
    world(json!({
        "goal": [object("Incident", open)],
        "objects": {"Incident": {}, "Page": {}, "Note": {}},
        "relations": {},
        "responders": responders,
    }))
}

pub(super) fn begun(responders: Value) -> Driven {
    run(json!([]), incidents(responders))
}

#[test]
fn a_responder_with_after_looks_when_its_timer_fires_and_the_run_waits_until_then() {
    let mut run = begun(json!([escalates(json!({}))]));
    assert_eq!(run.state.status(), RunStatus::Running);
    assert!(!run.state.worlds_are_idle());
    assert_eq!(run.verdicts("escalates"), [FiringVerdict::Postponed]);
    let timer = timers::next(&run.state).unwrap();
    assert_eq!(timer.until.millis_since(run.frames[0].at), 15 * MINUTE);
    assert_eq!(timer.span_ms, 15 * MINUTE);
    assert!(run.waits_for_responder());
    let kinds = run.kinds();
    let end = &kinds[kinds.len() - 5..];
    assert_eq!(
        end,
        [
            "timer.fired",
            "responder.fired",
            "object.created",
            "run.continued",
            "run.completed"
        ]
    );
    let [.., timer, fired, page, _, _] = run.frames.as_slice() else {
        panic!("{kinds:?}");
    };
    let incident = run
        .frames
        .iter()
        .find(|one| one.event.kind() == "object.created");
    assert_eq!(timer.cause, [Cause::Here(incident.unwrap().seq)]);
    assert_eq!(fired.cause, [Cause::Here(timer.seq)]);
    assert_eq!(page.cause, [Cause::Here(timer.seq)]);
    // The event of a page follows from the incident, however long that took.
    let activity = run.state.responding().unwrap().activity();
    assert_eq!(activity.depth_of(page.seq), Some(1));
    run.holds_together();
}

#[test]
fn it_sees_the_world_as_of_its_timer_and_the_event_as_it_was() {
    let mut run = begun(json!([escalates(json!({}))]));
    run.now += 10 * MINUTE * 1_000;
    run.post(request(vec![patch(
        &run.incident(),
        json!({"status": "closed"}),
    )]))
    .unwrap();
    assert!(run.waits_for_responder());
    let verdicts = [FiringVerdict::Postponed, FiringVerdict::False];
    assert_eq!(run.verdicts("escalates"), verdicts);
    assert_eq!(run.count("Page"), 0);
    run.holds_together();

    // Debounce: what was patched is compared with what it is now.
    let mut quiet = emits(json!([object(
        "Note",
        json!({
        "patch": "{{ patch.n }}", "before": "{{ before.data.n }}", "now": "{{ object.data.n }}",
        "pages": "{{ pages }}"})
    )]));
    quiet["after_ms"] = json!(5 * MINUTE);
    quiet["when"] = json!("object.data.n == patch.n");
    quiet["with"] = json!([{"name": "pages", "find": {"count": {"type": "Page"}}}]);
    let quiet = responder("quiet", "object.patched", "Incident", quiet);
    let mut run = begun(json!([escalates(json!({"after_ms": 8 * MINUTE})), quiet]));
    for (n, minutes) in [(1, 3), (2, 4), (3, 4)] {
        let until = Timestamp::from_micros(run.now + minutes * MINUTE * 1_000);
        while timers::due(&run.state, until).is_some() {
            run.waits_for_responder();
        }
        run.now = until.as_micros();
        run.post(request(vec![patch(&run.incident(), json!({"n": n}))]))
            .unwrap();
    }
    while run.waits_for_responder() {}
    let head = run.state.responding().unwrap().head();
    let notes: Vec<Value> = head
        .of_type("Note")
        .map(|one| one.data.to_value())
        .collect();
    let last = json!({"patch": 3, "before": 2, "now": 3, "pages": 1});
    assert_eq!(notes, [last]);
    assert_eq!(run.minutes_of("timer.fired"), [8, 8, 12, 16]);
    assert_eq!(run.kinds().last().unwrap(), "run.completed");
    run.is_whole();
}

#[test]
fn ends_of_a_relation_are_as_of_the_timer_and_the_relation_itself_as_of_the_event() {
    let mut late = emits(json!([object(
        "Note",
        json!({
        "status": "{{ target.data.status }}", "relation": "{{ relation.type }}"})
    )]));
    late["after_ms"] = json!(MINUTE);
    let late = responder("late", "relation.created", "about", late);
    let about = json!({"make": {"relation": {"type": "about", "from": "{{ note.id }}",
        "to": "{{ object.id }}"}}});
    let note = json!({"as": "note", "make": {"object": {"type": "Page", "data": {}}}});
    let relates = responder(
        "relates",
        "object.created",
        "Incident",
        emits(json!([note, about])),
    );
    let mut world = incidents(json!([late, relates]));
    world["relations"] = json!({"about": {}});
    let mut run = run(json!([]), world);
    run.post(request(vec![patch(
        &run.incident(),
        json!({"status": "closed"}),
    )]))
    .unwrap();
    assert!(run.waits_for_responder());
    let head = run.state.responding().unwrap().head();
    let notes: Vec<Value> = head
        .of_type("Note")
        .map(|one| one.data.to_value())
        .collect();
    assert_eq!(notes, [json!({"status": "closed", "relation": "about"})]);
    run.holds_together();
}

/// Three responders that wait with each incident, and two incidents in one turn.
fn several() -> Driven {
    let makes = |name: &str, minutes: u64| {
        let mut makes = emits(json!([object("Note", json!({"by": name}))]));
        makes["after_ms"] = json!(minutes * MINUTE);
        responder(name, "object.created", "Incident", makes)
    };
    let mut world = incidents(json!([makes("b", 2), makes("a", 2), makes("c", 1)]));
    let open = object("Incident", json!({"text": "{{ goal }}"}));
    world["goal"] = json!([open, open]);
    run(json!([]), world)
}

#[test]
fn timers_fire_in_the_order_of_their_time_then_of_their_events_then_of_responders() {
    let mut run = several();
    assert_eq!(run.timer_count(), 6);
    while run.waits_for_responder() {}
    let fired = run.frames.iter().filter_map(|frame| match &frame.event {
        Event::Run(RunEvent::TimerFired(fired)) => {
            let Some(Cause::Here(event)) = frame.cause.first() else {
                panic!("{frame:?}");
            };
            Some((fired.responder.clone().unwrap(), *event))
        }
        _ => None,
    });
    let fired: Vec<(String, u64)> = fired.collect();
    let events = [fired[0].1, fired[1].1];
    assert!(events[0] < events[1]);
    let expected = [("c", 0), ("c", 1), ("b", 0), ("a", 0), ("b", 1), ("a", 1)];
    let expected = expected.map(|(name, at)| (name.to_owned(), events[at]));
    assert_eq!(fired, expected);
    assert_eq!(run.count("Note"), 6);
    run.holds_together();
}

#[test]
fn a_timer_that_fires_early_out_of_turn_twice_or_for_no_one_is_no_frame_that_may_follow() {
    let run = several();
    let due = timers::next(&run.state).unwrap().until;
    let draft = timers::due(&run.state, due).unwrap();
    let follows = |run: &Driven, draft: &Draft, at: Timestamp| {
        let sealed = draft.clone().seal(run.state.link(), at).unwrap();
        run.state.check(&sealed.frame).is_ok()
    };
    let of = |change: &dyn Fn(&mut Draft, &mut TimerFired)| {
        let mut changed = draft.clone();
        let Event::Run(RunEvent::TimerFired(mut fired)) = changed.event.clone() else {
            panic!("{draft:?}");
        };
        change(&mut changed, &mut fired);
        changed.event = Event::Run(RunEvent::TimerFired(fired));
        changed
    };
    assert!(follows(&run, &draft, due));
    let early = Timestamp::from_micros(due.as_micros() - 1);
    assert!(!follows(&run, &draft, early));
    let later = due.plus_millis(60 * MINUTE);
    let event = draft.cause[0].clone();
    let Cause::Here(event) = event else {
        panic!("{event:?}");
    };
    for (told, changed) in [
        (
            "another responder",
            of(&|_, fired| fired.responder = Some("a".to_owned())),
        ),
        ("nobody", of(&|_, fired| fired.responder = None)),
        ("a step", of(&|_, fired| fired.step = Some("a".to_owned()))),
        (
            "another event",
            of(&|draft, _| draft.cause = vec![Cause::Here(event + 1)]),
        ),
        ("no event", of(&|draft, _| draft.cause = Vec::new())),
        (
            "two events",
            of(&|draft, _| draft.cause.push(Cause::Here(0))),
        ),
        (
            "another timer",
            of(&|_, fired| fired.timer = TimerKind::WorldBudget),
        ),
    ] {
        assert!(!follows(&run, &changed, later), "{told}");
    }
    let mut again = run;
    again.waits_for_responder();
    assert!(!follows(&again, &draft, later), "twice");
    let paused = several();
    let pause = steer(
        &paused.state,
        RunControl::Pause,
        super::budget_tests::ann(),
        None,
    );
    let mut paused = paused;
    paused.input(pause.unwrap());
    assert_eq!(timers::next(&paused.state), None);
}

#[test]
fn a_candidate_that_waits_is_not_evaluated_at_once_nor_one_that_does_not_wait_later() {
    let run = begun(json!([escalates(json!({}))]));
    for (kind, verdict) in [
        ("responder.fired", FiringVerdict::False),
        ("responder.fired", FiringVerdict::Failed),
    ] {
        let at = run.frames.iter().position(|one| one.event.kind() == kind);
        let forged = cut_with(&run, at.unwrap(), verdict);
        assert!(forged, "{verdict:?}");
    }
    let mut whole = begun(json!([escalates(json!({}))]));
    whole.waits_for_responder();
    let last = whole
        .frames
        .iter()
        .rposition(|one| one.event.kind() == "responder.fired");
    assert!(cut_with(&whole, last.unwrap(), FiringVerdict::Postponed));
}

/// Whether a `responder.fired` with another verdict does not follow there.
fn cut_with(run: &Driven, at: usize, verdict: FiringVerdict) -> bool {
    let before = run.cut(at);
    let frame = &run.frames[at];
    let Event::World(WorldEvent::Fired(mut fired)) = frame.event.clone() else {
        panic!("{frame:?}");
    };
    let told = &mut fired.candidates[0];
    (told.verdict, told.entries, told.items) = (verdict, 0, None);
    let draft = Draft {
        scope: String::new(),
        actor: frame.actor.clone(),
        cause: frame.cause.clone(),
        event: Event::World(WorldEvent::Fired(fired)),
    };
    let sealed = draft.seal(before.state.link(), frame.at).unwrap();
    before.state.check(&sealed.frame).is_err()
}

#[test]
fn waiting_uses_up_no_time_of_the_budget_but_work_meanwhile_does() {
    // An hour of waiting, in a world that may work for 100 seconds.
    let mut run = begun(json!([escalates(json!({"after_ms": 60 * MINUTE}))]));
    let responding = run.state.responding().unwrap();
    assert!(responding.used_ms() < 1_000);
    run.now += 30 * MINUTE * 1_000;
    run.post(request(vec![patch(
        &run.incident(),
        json!({"text": "still"}),
    )]))
    .unwrap();
    run.waits_for_responder();
    assert_eq!(run.kinds().last().unwrap(), "run.completed");
    assert!(run.state.responding().unwrap().used_ms() < 1_000);
    run.holds_together();

    // While a model is asked, time passes.
    let ask = json!({"work": {"ask": {"group": "std", "max_tokens": 10,
        "messages": [{"role": "user", "content": "?"}]}}, "then": []});
    let asks = responder("asks", "object.created", "Incident", ask);
    let mut run = begun(json!([escalates(json!({})), asks]));
    let until = timers::next(&run.state).unwrap().until;
    assert_eq!(until.millis_since(run.frames[0].at), 100_000);
    run.uses_up_its_time();
    assert_eq!(run.last("budget.exhausted")["dropped"]["timers"], 1);
    assert_eq!(run.kinds().last().unwrap(), "run.failed");
    run.is_whole();
}

#[test]
fn a_run_that_ended_sets_no_timer_and_one_that_is_resumed_again_sets_those_it_had() {
    let makes = emits(json!([
        object("Page", json!({})),
        object("Page", json!({}))
    ]));
    let makes = responder("makes", "object.created", "Incident", makes);
    let mut world = incidents(json!([escalates(json!({})), makes]));
    world["budget"]["max_events"] = json!(2);
    let mut run = run(json!([]), world);
    assert_eq!(run.kinds().last().unwrap(), "run.failed");
    let dropped = &run.last("budget.exhausted")["dropped"];
    assert_eq!(*dropped, json!({"outputs": 1, "timers": 1, "triggers": 0}));
    assert_eq!(timers::next(&run.state), None);
    assert_eq!(
        timers::due(&run.state, run.state.at().plus_millis(60 * MINUTE)),
        None
    );
    run.raises(events(10)).unwrap();
    assert_eq!(run.state.status(), RunStatus::Running);
    assert!(run.waits_for_responder());
    assert_eq!(run.count("Page"), 3);
    assert_eq!(run.kinds().last().unwrap(), "run.completed");
    run.is_whole();

    let mut stopped = begun(json!([escalates(json!({}))]));
    let cancel = steer(
        &stopped.state,
        RunControl::Cancel,
        super::budget_tests::ann(),
        None,
    );
    stopped.input(cancel.unwrap());
    assert_eq!(stopped.state.status(), RunStatus::Cancelled);
    assert_eq!(timers::next(&stopped.state), None);
    stopped.is_whole();
}

#[test]
fn pauses_and_jumps_of_the_clock_are_not_waited() {
    let mut run = begun(json!([escalates(json!({}))]));
    let begin = run.frames[0].at;
    let due = |run: &Driven| {
        let until = timers::next(&run.state).unwrap().until;
        until.millis_since(begin) / MINUTE
    };
    assert_eq!(due(&run), 15);
    run.pauses();
    assert_eq!(timers::next(&run.state), None);
    run.now += 20 * MINUTE * 1_000;
    run.resumes(None).unwrap();
    assert_eq!(due(&run), 35);
    let clock = Timestamp::from_micros(run.now + 30 * MINUTE * 1_000);
    run.now = clock.as_micros() - 1_000;
    run.input(admit::jumped(&run.state, clock, 30 * MINUTE).unwrap());
    assert_eq!(due(&run), 65);
    // What happens now is waited with as long as ever.
    run.post(request(vec![posted(
        "Incident",
        "t",
        json!({"status": "open"}),
    )]))
    .unwrap();
    assert_eq!(run.timer_count(), 2);
    run.waits_for_responder();
    assert_eq!(due(&run), 65);
    run.waits_for_responder();
    assert_eq!(run.kinds().last().unwrap(), "run.completed");
    run.is_whole();
}

#[test]
fn a_branch_waits_with_what_its_run_waited_with() {
    let mut run = begun(json!([escalates(json!({}))]));
    let mut branch = run.forked();
    assert_eq!(branch.timer_count(), 1);
    assert_eq!(timers::next(&branch.state), None, "it is not begun");
    branch.resumes(None).unwrap();
    assert_eq!(timers::next(&branch.state), timers::next(&run.state));
    branch.waits_for_responder();
    branch.is_whole();
    run.waits_for_responder();
    let world = |run: &Driven| run.state.responding().unwrap().head().hash();
    assert_eq!(world(&branch), world(&run));
}

#[test]
fn questions_and_workflows_wait_too_and_their_ids_are_those_of_the_event() {
    let ask = json!({"after_ms": MINUTE,
        "work": {"ask": {"group": "std", "max_tokens": 10,
            "messages": [{"role": "user", "content": "{{ object.data.status }}?"}]}},
        "then": [object("Note", json!({"text": "{{ reply.text }} {{ object.data.status }}"}))]});
    let part = |after: Value| {
        let mut runs = json!({"work": {"run": {"workflow": "part", "webhooks": "suppress",
                "params": {"x": ["{{ object.data.status }}"]}}},
            "then": [object("Page", json!({"text": "{{ result.x }}"}))]});
        merge(&mut runs, after);
        responder("runs", "object.created", "Incident", runs)
    };
    let begin = |responders: Value| {
        let mut part = workflow("part", json!([transform("t", json!([]), "params.x")]));
        part["visibility"] = json!("sub-workflow");
        part["output"] = json!({"map": {"x": "{{ step.t.result[0] }}"}});
        let mut plan = plan(json!({"main": workflow("main", json!([])), "part": part}));
        plan["worlds"] = json!({"worlds/w.world.yaml": incidents(responders)});
        Driven::invoke(plan, json!({"goal": "tides", "x": [1]}))
    };
    let asks = responder("asks", "object.created", "Incident", ask);
    let mut run = begin(json!([asks, part(json!({"after_ms": MINUTE}))]));
    run.post(request(vec![patch(
        &run.incident(),
        json!({"status": "old"}),
    )]))
    .unwrap();
    assert_eq!(run.state.responding().unwrap().tasks().count(), 0);
    run.waits_for_responder();
    run.waits_for_responder();
    let tasks = run.state.responding().unwrap().tasks();
    let open: Vec<String> = tasks.map(|one| one.context.address.to_string()).collect();
    let [asked] = open.as_slice() else {
        panic!("{open:?}");
    };
    run.asks(asked);
    run.says(asked, &[Say::Reply { cost: 1 }, output(json!("so"))]);
    let head = run.state.responding().unwrap().head();
    let only = |kind: &str| head.of_type(kind).next().unwrap();
    assert_eq!(only("Note").data.to_value(), json!({"text": "so old"}));
    assert_eq!(only("Page").data.to_value(), json!({"text": "old"}));
    // One that does not wait makes an object of the same id.
    let at_once = begin(json!([part(json!({}))]));
    let page = at_once.state.responding().unwrap().head();
    assert_eq!(page.of_type("Page").next().unwrap().id, only("Page").id);
    run.holds_together();
}

#[test]
fn no_more_timers_are_set_than_a_run_may_have() {
    // A hundred responders that wait with each of a hundred objects, and with one more.
    let waits = (0..100).map(|at| {
        let mut waits = emits(json!([]));
        waits["after_ms"] = json!(MINUTE);
        responder(&format!("r{at}"), "object.created", "Note", waits)
    });
    let mut many = emits(json!([object("Note", json!({}))]));
    let items: Vec<u32> = (0..101).collect();
    many["for_each"] = json!({"items": items});
    let many = responder("many", "object.created", "Incident", many);
    let responders: Vec<Value> = std::iter::once(many).chain(waits).collect();
    let run = begun(json!(responders));
    assert_eq!(run.timer_count(), MAX_TIMERS);
    let verdicts = run.verdicts("r0");
    let (last, others) = verdicts.split_last().unwrap();
    assert_eq!(*last, FiringVerdict::Failed);
    assert!(others.iter().all(|one| *one == FiringVerdict::Postponed));
    let refused = run.last("responder.fired");
    assert_eq!(
        refused["candidates"][0]["reason"],
        "10000 timers of responders are set already"
    );
    let told = RunState::fold(&run.frames).unwrap();
    assert_eq!(told.responding().unwrap().timer_count(), MAX_TIMERS);
}

#[test]
fn a_simulation_waits_as_its_definition_says() {
    let mut run = begun(json!([escalates(json!({}))]));
    run.now += 10 * MINUTE * 1_000;
    run.post(request(vec![patch(
        &run.incident(),
        json!({"status": "closed"}),
    )]))
    .unwrap();
    run.waits_for_responder();
    let own = &run.definition;
    let base = simulate(&run.frames, own, own).unwrap();
    let parts = |frames: &[Frame]| -> Vec<(String, Vec<Cause>, Value)> {
        let parts = frames.iter().map(|one| {
            let kind = one.event.kind().to_owned();
            (kind, one.cause.clone(), one.event.data())
        });
        parts.collect()
    };
    assert_eq!(parts(&base.frames), parts(&run.frames));
    let timer = |frames: &[Frame]| {
        frames
            .iter()
            .find(|one| one.event.kind() == "timer.fired")
            .map(|one| one.at)
    };
    assert_eq!(timer(&base.frames), timer(&run.frames));
    assert_eq!(base.unused_inputs, []);
    for (after, pages) in [(5, 1), (15, 0), (25, 0)] {
        let mut plan: Value = serde_json::from_str(own.json.as_str()).unwrap();
        let world = &mut plan["worlds"]["worlds/w.world.yaml"];
        world["responders"][0]["after_ms"] = json!(after * MINUTE);
        let plan = serde_json::from_value(plan).unwrap();
        let definition = std::sync::Arc::new(crate::definition::Definition::compile(plan).unwrap());
        let other = simulate(&run.frames, own, &definition).unwrap();
        assert_eq!(other.state.status(), RunStatus::Complete, "{after}");
        let head = other.state.responding().unwrap().head();
        assert_eq!(head.of_type("Page").count(), pages, "{after}");
        let found = compare(&run.frames, &base, &other).unwrap();
        // The time that an event waits is part of what the definition does with it.
        assert_eq!(found.is_empty(), after == 15, "{after}: {found:#?}");
    }
}
