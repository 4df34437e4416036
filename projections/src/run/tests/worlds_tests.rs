//! Frames about worlds: where they are legal, in what order, and what they leave to react to.

use ktsu_ledger::event::{
    Candidate, ContinueReason, Continued, Derivation, FiringVerdict, ObjectCreated, ObjectPatched,
    OverlaySet, PersonEvent, Post, RelationCreated, ResponderFired, WorldEvent,
};

use super::*;
use crate::world::responding::WorldRefusal;
use crate::world::{TriggerSubject, World};

/// A run of one step whose world has two responders to things and one to completed steps.
fn a_world() -> Given {
    let responder = |name: &str, on: &str, kind: Value| json!({"name": name, "on": [on], "type": kind, "work": {"emit": []}});
    let Event::Run(RunEvent::Created(mut created)) = created(json!([
        {"id": "a", "work": {"transform": {}}},
        {"id": "b", "work": {"transform": {}}}
    ])) else {
        unreachable!("created makes run.created")
    };
    let mut plan = created.definition.to_value();
    plan["worlds"] = json!({"worlds/w.world.yaml": {
    "name": "w", "version": "1.0.0", "objects": {"Thing": {}},
    "budget": {"max_events": 9, "max_llm_cost_micro_usd": 1, "max_recursion_depth": 5,
        "max_wall_ms": 1000},
    "edges": [responder("edge", "relation.created", json!([]))],
    "responders": [
        responder("first", "object.created", json!(["Thing"])),
        responder("second", "object.created", json!(["Thing"])),
        responder("after", "step.completed", json!([])),
        responder("patched", "object.patched", json!([])),
    ]}});
    created.definition = CanonicalJson::from_value(&plan).unwrap();
    let first = draft("", Event::Run(RunEvent::Created(created)));
    let first = first.seal(link("run:r", 0, Hash::ZERO), at(0)).unwrap();
    let state = RunState::fold([&first.frame]).unwrap();
    Given { state }.then(started_run())
}

fn thing(id: &str, derived: Option<Derivation>, post: Option<u64>) -> WorldEvent {
    WorldEvent::ObjectCreated(ObjectCreated {
        by: post.map(|_| ann()),
        data: CanonicalJson::null(),
        derived,
        id: id.to_owned(),
        key: None,
        kind: "Thing".to_owned(),
        post: post.map(post_of),
    })
}

fn patch(id: &str, n: u64) -> WorldEvent {
    WorldEvent::ObjectPatched(ObjectPatched {
        by: Some(ann()),
        derived: None,
        id: id.to_owned(),
        patch: CanonicalJson::from_value(&json!({"x": 1})).unwrap(),
        post: Some(post_of(n)),
        withheld: CanonicalJson::null(),
    })
}

fn near(derived: Derivation) -> WorldEvent {
    WorldEvent::RelationCreated(RelationCreated {
        by: None,
        data: CanonicalJson::null(),
        derived: Some(derived),
        id: "r".to_owned(),
        kind: "near".to_owned(),
        post: None,
        source_id: "t".to_owned(),
        target_id: "u".to_owned(),
    })
}

fn ann() -> Principal {
    Principal {
        auth: "token".to_owned(),
        id: "ann".to_owned(),
    }
}

fn post_of(n: u64) -> Post {
    Post {
        digest: String::new(),
        key: None,
        n,
    }
}

fn output(responder: &str, item: Option<u32>, entry: u32) -> Derivation {
    Derivation {
        entry,
        item,
        responder: Some(responder.to_owned()),
    }
}

fn fired(candidates: &[(&str, u32)]) -> WorldEvent {
    let candidates = candidates.iter().map(|(responder, entries)| Candidate {
        after_ms: None,
        entries: *entries,
        fails: false,
        items: (*entries > 0).then_some(2),
        reason: None,
        responder: (*responder).to_owned(),
        task: None,
        verdict: match entries {
            0 => FiringVerdict::False,
            _ => FiringVerdict::Fired,
        },
    });
    WorldEvent::Fired(ResponderFired {
        candidates: candidates.collect(),
    })
}

impl Given {
    fn seal_world(&self, event: WorldEvent, cause: Option<u64>) -> Sealed {
        let actor = match (event.by(), event.derived()) {
            (Some(by), _) => Actor::Principal(by.id.clone()),
            (None, Some(derived)) => {
                let responder = derived.responder.as_deref();
                Actor::Responder(responder.unwrap_or("goal").to_owned())
            }
            (None, None) => Actor::Orchestrator,
        };
        let draft = Draft {
            actor,
            cause: cause.map(Cause::Here).into_iter().collect(),
            ..draft("", Event::World(event))
        };
        draft.seal(self.state.link(), self.state.at()).unwrap()
    }

    #[track_caller]
    fn then_world(mut self, event: WorldEvent, cause: Option<u64>) -> Self {
        let sealed = self.seal_world(event, cause);
        self.state.apply(&sealed.frame).unwrap();
        self
    }

    fn refusal(&self, event: WorldEvent, cause: Option<u64>) -> Option<WorldRefusal> {
        let sealed = self.seal_world(event, cause);
        match self.state.check(&sealed.frame) {
            Err(TransitionError::World(refusal)) => Some(refusal),
            _ => None,
        }
    }

    fn head(&self) -> &World {
        self.state.responding().unwrap().head()
    }
}

fn idle() -> Event {
    let why = ContinueReason::Idle;
    Event::Run(RunEvent::Continued(Continued { why }))
}

#[test]
fn a_run_that_loads_no_worlds_takes_no_events_about_them() {
    let run = Given::a_run(two_transforms());
    assert!(run.state.responding().is_none());
    let sealed = run.seal_world(thing("t", None, Some(1)), None);
    assert_eq!(
        run.state.check(&sealed.frame),
        Err(TransitionError::NoWorlds)
    );
    let run = a_world();
    let mut sealed = run.seal_world(thing("t", None, Some(1)), None);
    assert_eq!(run.state.check(&sealed.frame), Ok(()));
    sealed.frame.scope = "child".to_owned();
    let refused = run.state.check(&sealed.frame);
    assert_eq!(refused, Err(TransitionError::Scope("child".to_owned())));
    let steps = run
        .then(started("a"))
        .then(completed("a"))
        .then(started("b"))
        .then(completed("b"));
    let last = steps.state.next_seq() - 1;
    let seen = fired(&[("after", 0)]);
    let ended = steps.then_world(seen.clone(), Some(last - 2));
    assert!(ended.state.check(&ended.seal("", idle()).frame).is_err());
    let ended = ended.then_world(seen, Some(last));
    let too_soon = ended.state.check(&ended.seal("", completed_run()).frame);
    assert!(too_soon.is_err(), "it ends once nothing is due");
    let ended = ended.then(idle()).then(completed_run());
    let sealed = ended.seal_world(thing("t", None, Some(1)), None);
    assert_eq!(
        ended.state.check(&sealed.frame),
        Ok(()),
        "a post takes it up"
    );
}

#[test]
fn what_is_posted_has_a_person_and_the_number_of_its_post() {
    let run = a_world();
    assert_eq!(
        run.refusal(thing("t", None, Some(2)), None),
        Some(WorldRefusal::Post {
            expected: 1,
            got: 2
        })
    );
    assert_eq!(
        run.refusal(thing("t", None, None), None),
        Some(WorldRefusal::Origin)
    );
    let both = thing("t", Some(output("first", None, 0)), Some(1));
    assert_eq!(run.refusal(both, None), Some(WorldRefusal::Origin));
    assert_eq!(
        run.refusal(thing("step/a", None, Some(1)), None),
        Some(WorldRefusal::StepObject("step/a".to_owned()))
    );
    // F8
    assert_eq!(
        run.refusal(patch("t", 1), None),
        Some(WorldRefusal::UnknownObject("t".to_owned()))
    );
    let mut forged = run.seal_world(thing("t", None, Some(1)), None);
    forged.frame.actor = Actor::Principal("bob".to_owned());
    let refused = run.state.check(&forged.frame);
    assert_eq!(refused, Err(WorldRefusal::Actor.into()));
    // Two events of one post, then the next.
    let run = run
        .then_world(thing("t", None, Some(1)), None)
        .then_world(patch("t", 1), None)
        .then_world(patch("t", 2), None);
    assert_eq!(run.state.responding().unwrap().next_post(), 3);
    assert_eq!(run.head().object("t").unwrap().changed, 4);
}

#[test]
fn responders_take_one_trigger_after_another_and_make_what_is_left_of_it_in_order() {
    let candidates = [("first", 1), ("second", 2)];
    let run = a_world()
        .then_world(thing("t", None, Some(1)), None)
        .then_world(thing("u", None, Some(1)), None);
    assert_eq!(
        run.refusal(fired(&candidates), Some(3)),
        Some(WorldRefusal::Trigger)
    );
    assert_eq!(
        run.refusal(fired(&candidates[..1]), Some(2)),
        Some(WorldRefusal::Candidates)
    );
    let output_of = |name: &str, item, entry| near(output(name, Some(item), entry));
    assert_eq!(
        run.refusal(output_of("first", 0, 0), Some(2)),
        Some(WorldRefusal::Output)
    );
    let run = run.then_world(fired(&candidates), Some(2));
    for (name, item, entry) in [("first", 2, 0), ("first", 0, 1), ("third", 0, 0)] {
        let refusal = run.refusal(output_of(name, item, entry), Some(2));
        assert_eq!(refusal, Some(WorldRefusal::Output), "{name}");
    }
    let left = |run: &Given| {
        let firing = run.state.responding().unwrap().firing();
        firing.map_or(0, |firing| firing.left(0))
    };
    assert_eq!(left(&run), 6);
    // The second item of the first responder makes nothing.
    let run = run.then_world(output_of("first", 0, 0), Some(2));
    let run = run.then_world(output_of("second", 0, 1), Some(2));
    assert_eq!(left(&run), 2);
    assert_eq!(
        run.refusal(output_of("first", 1, 0), Some(2)),
        Some(WorldRefusal::Output)
    );
    // Nor does the rest: the next trigger says so.
    assert_eq!(
        run.refusal(output_of("second", 1, 0), Some(3)),
        Some(WorldRefusal::Output)
    );
    let run = run.then_world(fired(&[("first", 0), ("second", 0)]), Some(3));
    let responding = run.state.responding().unwrap();
    let (trigger, world) = responding.current().unwrap();
    assert_eq!(
        (trigger.seq, trigger.kind.as_str()),
        (5, "relation.created")
    );
    assert!(matches!(&trigger.subject, TriggerSubject::Relation(one) if *one.id == *"r"));
    assert_eq!(world.relation_count(), 1);
    assert_eq!(responding.queued_triggers(), 1);
    assert_eq!(responding.activity().events(), 4);
    assert_eq!(responding.activity().depth_of(5), Some(1));
}

#[test]
fn a_completed_step_is_an_object_that_an_overlay_patches() {
    let run = a_world().then(started("a")).then(completed("a"));
    let object = run.head().object("step/a").unwrap();
    assert_eq!(
        (&*object.kind, object.data.to_value()),
        ("step", json!({"of": "a"}))
    );
    let responding = run.state.responding().unwrap();
    let (trigger, _) = responding.current().unwrap();
    assert_eq!(trigger.kind, "step.completed");
    assert_eq!(responding.activity().events(), 0);
    let run = run.then(Event::Person(PersonEvent::OverlaySet(OverlaySet {
        by: ann(),
        field: "of".to_owned(),
        reason: "counted".to_owned(),
        step: "a".to_owned(),
        value: CanonicalJson::from_value(&json!(7)).unwrap(),
    })));
    let object = run.head().object("step/a").unwrap();
    assert_eq!(object.data.to_value(), json!({"of": 7}));
    let responding = run.state.responding().unwrap();
    assert_eq!(responding.queued_triggers(), 1);
    // The first trigger still sees what the step came to.
    let (_, world) = responding.current().unwrap();
    assert_eq!(
        world.object("step/a").unwrap().data.to_value(),
        json!({"of": "a"})
    );
    let (next, _) = responding.after_current().unwrap();
    assert_eq!((next.seq, next.kind.as_str()), (4, "object.patched"));
}

#[test]
fn an_event_of_a_kit_is_numbered_with_the_other_posts_and_means_nothing_elsewhere() {
    let event = |n: u64| Event::Foreign {
        kind: "x.kit.alert".to_owned(),
        data: CanonicalJson::from_value(&json!({
            "by": {"auth": "token", "id": "ann"}, "data": {"a": 1},
            "post": {"digest": "", "n": n}}))
        .unwrap(),
    };
    let post = |run: &Given, n: u64| {
        let mut sealed = run.seal("", event(n));
        sealed.frame.actor = Actor::Principal("ann".to_owned());
        sealed.frame
    };
    let mut run = a_world();
    let expected = WorldRefusal::Post {
        expected: 1,
        got: 2,
    };
    assert_eq!(run.state.check(&post(&run, 2)), Err(expected.into()));
    let mut inside = post(&run, 1);
    inside.scope = "child".to_owned();
    let refused = run.state.check(&inside);
    assert_eq!(refused, Err(TransitionError::Scope("child".to_owned())));
    let frame = post(&run, 1);
    run.state.apply(&frame).unwrap();
    let responding = run.state.responding().unwrap();
    assert_eq!(
        (responding.next_post(), responding.activity().events()),
        (2, 1)
    );
    let elsewhere = Given::a_run(two_transforms());
    assert_eq!(elsewhere.state.check(&post(&elsewhere, 7)), Ok(()));
}
