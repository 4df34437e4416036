//! What people and peers post to runs that load worlds.

use ktsu_ledger::event::{Effects, ObjectCreated, Posted, Principal};
use ktsu_ledger::{CanonicalJson, Frame};

use super::*;
use crate::admit::intervention::{ForkCommand, ForkPosition, ForkRequest, fork};
use crate::admit::post::{
    EventMembers, MAX_POST_EVENTS, PostAdmission, PostCommand, PostError, PostedEvent, post,
};
use crate::driven_tests::history_tests::refolded;

fn members(value: Value) -> EventMembers {
    value.as_object().cloned().unwrap_or_default()
}

pub(super) fn topic(id: &str, text: &str) -> PostedEvent {
    posted("Topic", id, json!({"text": text}))
}

pub(super) fn posted(kind: &str, id: &str, data: Value) -> PostedEvent {
    PostedEvent::Object {
        id: Some(id.to_owned()),
        kind: kind.to_owned(),
        data: members(data),
    }
}

pub(super) fn patch(id: &str, patch: Value) -> PostedEvent {
    PostedEvent::Patch {
        id: id.to_owned(),
        patch: members(patch),
    }
}

fn belongs(source: &str, target: &str) -> PostedEvent {
    PostedEvent::Relation {
        id: None,
        kind: "belongs".to_owned(),
        source_id: source.to_owned(),
        target_id: target.to_owned(),
        data: EventMembers::new(),
    }
}

/// The request of a person.
pub(super) fn request(events: Vec<PostedEvent>) -> PostCommand {
    PostCommand {
        events,
        by: Principal {
            auth: "token".to_owned(),
            id: "ann".to_owned(),
        },
        key: None,
        expected: None,
    }
}

impl Driven {
    /// What comes of a request; what is admitted is recorded.
    pub(crate) fn post(&mut self, command: PostCommand) -> Result<PostAdmission, PostError> {
        let admitted = post(&self.definition, &self.state, command)?;
        if let PostAdmission::New { drafts, .. } = &admitted {
            self.inputs(drafts.clone());
        }
        Ok(admitted)
    }

    /// Events of history are posted again.
    pub(crate) fn posts_again(&mut self, frames: &[&Frame]) {
        let data = |json: &CanonicalJson| members(json.to_value());
        let event = |frame: &&Frame| {
            let Event::World(event) = &frame.event else {
                let posted = Posted::of(&frame.event).unwrap();
                return PostedEvent::Kit {
                    kind: frame.event.kind().to_owned(),
                    data: data(&posted.data),
                };
            };
            match event {
                WorldEvent::ObjectCreated(made) => PostedEvent::Object {
                    id: Some(made.id.clone()),
                    kind: made.kind.clone(),
                    data: data(&made.data),
                },
                WorldEvent::ObjectPatched(patched) => PostedEvent::Patch {
                    id: patched.id.clone(),
                    patch: data(&patched.patch),
                },
                WorldEvent::RelationCreated(made) => PostedEvent::Relation {
                    id: Some(made.id.clone()),
                    kind: made.kind.clone(),
                    source_id: made.source_id.clone(),
                    target_id: made.target_id.clone(),
                    data: data(&made.data),
                },
                WorldEvent::RelationRemoved(gone) => PostedEvent::Removal {
                    id: gone.id.clone(),
                },
                WorldEvent::Noted(note) => PostedEvent::Note {
                    data: data(&note.data),
                },
                other => panic!("{other:?} is not posted"),
            }
        };
        let events = frames.iter().map(event).collect();
        self.post(request(events)).unwrap();
    }
}

fn tides() -> Driven {
    run(json!([]), world(json!({})))
}

fn count(run: &Driven, kind: &str) -> usize {
    let head = run.state.responding().unwrap().head();
    head.of_type(kind).count()
}

fn ends(run: &Driven) -> usize {
    let kinds = run.kinds();
    let ends = kinds.iter().filter(|kind| *kind == "run.completed");
    ends.count()
}

#[test]
fn a_post_takes_up_a_run_that_is_complete_and_it_ends_again_with_another_world() {
    let mut run = tides();
    let hash = run.last("run.completed")["world"].clone();
    let before = run.frames.len();
    run.post(request(vec![topic("t2", "waves")])).unwrap();
    assert_eq!(count(&run, "Question"), 6);
    assert_eq!(count(&run, "Note"), 6);
    assert_eq!(ends(&run), 2);
    let posted = &run.frames[before];
    assert_eq!(posted.actor.to_string(), "principal:ann");
    assert!(posted.cause.is_empty());
    assert_ne!(run.last("run.completed")["world"], hash);
    let activity = run.state.responding().unwrap().activity();
    assert_eq!(activity.depth_of(posted.seq), Some(0));
    run.holds_together();
    // Nothing reacts to a remark, and the run ends again with the world that it had.
    let hash = run.last("run.completed")["world"].clone();
    let note = PostedEvent::Note {
        data: members(json!({"seen": true})),
    };
    run.post(request(vec![note])).unwrap();
    assert_eq!(ends(&run), 3);
    assert_eq!(run.last("run.completed")["world"], hash);
    run.holds_together();
}

#[test]
fn all_events_of_a_post_are_one_input_and_each_sees_what_those_before_it_made() {
    let mut run = tides();
    let before = run.frames.len();
    let events = vec![
        topic("t2", "waves"),
        patch("t2", json!({"text": "spring tides"})),
        PostedEvent::Object {
            id: None,
            kind: "Question".to_owned(),
            data: members(json!({"text": "when"})),
        },
        belongs("step/none", "t2"),
        PostedEvent::Removal {
            id: "nothing".to_owned(),
        },
    ];
    run.post(request(events)).unwrap();
    let frames = &run.frames[before..before + 5];
    let posts: Vec<_> = frames.iter().map(|frame| frame.event.posted()).collect();
    assert!(posts.iter().all(|post| *post == posts[0]), "{posts:?}");
    let kinds: Vec<_> = frames.iter().map(|frame| frame.event.kind()).collect();
    assert_eq!(
        kinds,
        [
            "object.created",
            "object.patched",
            "object.created",
            "relation.created",
            "relation.removed"
        ]
    );
    run.is_whole();
    // Responders to the first event see it without the second.
    let head = run.state.responding().unwrap().head();
    let texts = head.of_type("Question").map(|one| one.data.to_value());
    let texts: Vec<Value> = texts.map(|data| data["text"].clone()).collect();
    assert!(texts.contains(&json!("who: waves")), "{texts:?}");
    assert_eq!(
        head.object("t2").unwrap().data.to_value()["text"],
        "spring tides"
    );
    // The log is cut within the post only where it is forked.
    for cut in (1..before).chain(before + 5..run.frames.len()) {
        let mut again = run.cut(cut);
        again.restarts();
        if cut < before {
            again.posts_again(&frames.iter().collect::<Vec<_>>());
        }
        assert_eq!(count(&again, "Note"), count(&run, "Note"), "cut at {cut}");
        again.is_whole();
    }
    for cut in before + 1..before + 5 {
        let mut again = run.cut(cut);
        again.restarts();
        again.is_whole();
        again.post(request(vec![topic("t3", "more")])).unwrap();
        let n = again.state.responding().unwrap().next_post();
        assert_eq!(n, 3);
        again.is_whole();
    }
}

impl Driven {
    /// A branch that shares all frames of the run.
    pub(super) fn forked(&self) -> Self {
        let command = ForkCommand {
            branch_id: "branch_test".to_owned(),
            parent_run_id: "run_test".to_owned(),
            position: self.frames.len() as u64,
            request: ForkRequest {
                point: ForkPosition::End,
                by: request(Vec::new()).by,
                reason: None,
                effects: Effects::Suppress,
                definition: None,
                prompts: Default::default(),
                params: Vec::new(),
                overlays: Vec::new(),
                go: false,
            },
        };
        let at = self.state.at();
        let branch = fork(&self.frames, &self.definition, command, at).unwrap();
        let own = branch.turn.sealed.into_iter().map(|sealed| sealed.frame);
        let mut whole = self.cut(self.frames.len());
        whole.frames.extend(own);
        whole.cut(whole.frames.len())
    }

    /// The run with its first frames alone.
    pub(super) fn cut(&self, frames: usize) -> Self {
        let kept = &self.frames[..frames];
        let (state, details) = refolded(kept);
        Self {
            definition: std::sync::Arc::clone(&self.definition),
            state,
            details,
            memo: Default::default(),
            frames: kept.to_vec(),
            now: kept.last().unwrap().at.as_micros(),
        }
    }
}

#[test]
fn an_event_that_does_not_fit_refuses_the_whole_post() {
    let mut run = tides();
    let object = |kind: &str, data: Value| PostedEvent::Object {
        id: Some("t2".to_owned()),
        kind: kind.to_owned(),
        data: members(data),
    };
    let relation = |kind: &str, source: &str| PostedEvent::Relation {
        id: None,
        kind: kind.to_owned(),
        source_id: source.to_owned(),
        target_id: "t2".to_owned(),
        data: EventMembers::new(),
    };
    let head = run.state.responding().unwrap().head();
    let topic_id = head.of_type("Topic").next().unwrap().id.to_string();
    let cases = [
        (object("Tide", json!({})), "no type of objects \"Tide\""),
        (object("step", json!({})), "no type of objects \"step\""),
        (object("Topic", json!({})), "missing required field: text"),
        (
            object("Topic", json!({"text": "a", "ktsu_flags": []})),
            "\"ktsu_flags\" is reserved",
        ),
        (topic("step/a", "a"), "\"step/a\" stands for a step"),
        (patch("nobody", json!({})), "there is no object \"nobody\""),
        (patch("step/a", json!({})), "stands for a step"),
        (
            patch(&topic_id, json!({"ktsu_x": 1})),
            "\"ktsu_x\" is reserved",
        ),
        (relation("near", "a"), "no type of relations \"near\""),
        (
            relation("belongs", &topic_id),
            "does not relate the type of",
        ),
        (
            PostedEvent::Removal {
                id: "step/a".to_owned(),
            },
            "stands for a step",
        ),
        (
            PostedEvent::Note {
                data: members(json!({"ktsu_x": 1})),
            },
            "is reserved",
        ),
    ];
    let frames = run.frames.len();
    for (event, words) in cases {
        let refused = run.post(request(vec![topic("fine", "fine"), event.clone()]));
        let Err(PostError::Unfit { at: 1, why, .. }) = &refused else {
            panic!("{event:?}: {refused:?}");
        };
        assert!(why.contains(words), "{event:?}: {why}");
        assert_eq!(run.frames.len(), frames);
    }
    let question = PostedEvent::Object {
        id: None,
        kind: "Question".to_owned(),
        data: members(json!({"text": 5})),
    };
    let refused = run.post(request(vec![question]));
    assert!(
        matches!(&refused, Err(PostError::Unfit { violations, .. })
            if violations[0].path == "/text"),
        "{refused:?}"
    );
}

#[test]
fn requests_with_the_same_key_are_recorded_once_for_each_principal_and_stream() {
    let mut run = tides();
    let with_key = |events: Vec<PostedEvent>| PostCommand {
        key: Some("k1".to_owned()),
        ..request(events)
    };
    let several = || vec![topic("t2", "waves"), topic("t3", "wind")];
    let first = run.frames.len() as u64;
    run.post(with_key(several())).unwrap();
    let frames = run.frames.len();
    for _ in 0..2 {
        let again = run.post(with_key(several()));
        let same = matches!(again, Ok(PostAdmission::Repeated { n: 1, first: at }) if at == first);
        assert!(same, "{again:?}");
    }
    let other = run.post(with_key(vec![topic("t2", "waves")]));
    assert_eq!(other.unwrap_err(), PostError::KeyReused);
    assert_eq!(run.frames.len(), frames);
    let mut bob = with_key(several());
    bob.by.id = "bob".to_owned();
    let taken = run.post(bob);
    assert!(matches!(taken, Ok(PostAdmission::New { n: 2, .. })));
    // A run that is read from its frames knows its keys, and so does one that went on since.
    let mut again = run.cut(run.frames.len());
    let repeated = again.post(with_key(several()));
    assert!(matches!(repeated, Ok(PostAdmission::Repeated { n: 1, .. })));
    run.is_whole();
}

#[test]
fn a_precondition_names_the_last_frame_of_the_object_and_not_of_the_run() {
    let mut run = tides();
    run.post(request(vec![topic("t2", "waves")])).unwrap();
    let changed = |run: &Driven, id: &str| {
        let head = run.state.responding().unwrap().head();
        head.object(id).unwrap().changed
    };
    let seen = changed(&run, "t2");
    // Others move on, the object does not.
    run.post(request(vec![topic("t3", "wind")])).unwrap();
    let expecting = |expected: u64, events: Vec<PostedEvent>| PostCommand {
        expected: Some(expected),
        ..request(events)
    };
    let patched = |text: &str| vec![patch("t2", json!({"text": text}))];
    run.post(expecting(seen, patched("first"))).unwrap();
    let now = changed(&run, "t2");
    let stale = PostError::Stale {
        id: "t2".to_owned(),
        expected: seen,
        actual: Some(now),
    };
    assert_eq!(
        run.post(expecting(seen, patched("second"))).unwrap_err(),
        stale
    );
    run.post(expecting(now, patched("third"))).unwrap();
    // Any later frame of the run will do: nobody changed the object since.
    run.post(request(vec![topic("t4", "sand")])).unwrap();
    let last = run.state.next_seq() - 1;
    assert!(last > changed(&run, "t2"));
    run.post(expecting(last, patched("fourth"))).unwrap();
    let last = run.state.next_seq() - 1;
    let expected = last + 1;
    let beyond = run.post(expecting(expected, patched("fifth"))).unwrap_err();
    assert_eq!(beyond, PostError::NoSuchFrame { expected, last });
    let now = changed(&run, "t2");
    let missing = run.post(expecting(now, vec![topic("t9", "new")]));
    assert!(matches!(
        missing,
        Err(PostError::Stale { actual: None, .. })
    ));
    let several = vec![topic("t2", "a"), topic("t3", "b")];
    let about = run.post(expecting(now, several));
    assert_eq!(about.unwrap_err(), PostError::NoSubject(2));
    let note = PostedEvent::Note {
        data: EventMembers::new(),
    };
    assert_eq!(
        run.post(expecting(now, vec![note])).unwrap_err(),
        PostError::NoSubject(0)
    );
    let relation = belongs("a", "b");
    run.post(request(vec![relation.clone()])).unwrap();
    let id = relation.subject(1, 0).unwrap();
    let head = run.state.responding().unwrap().head();
    let seen = head.relation(&id).unwrap().changed;
    let removal = || vec![PostedEvent::Removal { id: id.clone() }];
    assert!(run.post(expecting(now, removal())).is_err());
    run.post(expecting(seen, removal())).unwrap();
}

#[test]
fn a_post_that_would_exceed_the_budget_is_refused_and_an_exact_fit_is_not() {
    let budget = json!({"budget": {"max_events": 12, "max_llm_cost_micro_usd": 1,
        "max_recursion_depth": 2, "max_wall_ms": 100_000}});
    let mut run = run(json!([]), world(budget));
    let note = || PostedEvent::Note {
        data: EventMembers::new(),
    };
    let frames = run.frames.len();
    let refused = run.post(request(vec![note(), note(), note()]));
    assert_eq!(
        refused.unwrap_err(),
        PostError::Exhausted("max_events=12".to_owned())
    );
    assert_eq!(run.frames.len(), frames);
    run.post(request(vec![note(), note()])).unwrap();
    assert_eq!(run.kinds().last().unwrap(), "run.completed");
    assert!(matches!(
        run.post(request(vec![note()])),
        Err(PostError::Exhausted(_))
    ));
    run.holds_together();
}

#[test]
fn a_run_that_failed_takes_no_posts_and_says_why() {
    let mut exhausted = endless(json!({"max_events": 5}));
    let refused = exhausted.post(request(vec![topic("t", "t")]));
    assert_eq!(
        refused.unwrap_err(),
        PostError::Exhausted("max_events=5".to_owned())
    );
    let wrong = emits(json!([object("Topic", json!({"txt": "no"}))]));
    let fails = responder("wrong", "object.created", "Topic", wrong);
    let mut failed = run(json!([]), world(json!({"responders": [fails]})));
    let refused = failed.post(request(vec![topic("t", "t")]));
    assert_eq!(refused.unwrap_err(), PostError::NotOpen("failed"));
    let plan = plan(json!({"main": workflow("main", json!([]))}));
    let mut without = Driven::invoke(plan, json!({"x": [1]}));
    let refused = without.post(request(vec![topic("t", "t")]));
    assert_eq!(refused.unwrap_err(), PostError::NoWorlds);
}

#[test]
fn responders_react_to_events_that_a_kit_has_named() {
    let seen = emits(json!([object(
        "Note",
        json!({"about": "{{ event.data.level }}", "by": "{{ event.actor }}"})
    )]));
    let mut hears = responder("hears", "x.incidents.alert", "Topic", seen);
    hears.as_object_mut().unwrap().remove("type");
    let mut run = run(json!([]), world(json!({"responders": [hears]})));
    let alert = |level: &str| PostedEvent::Kit {
        kind: "x.incidents.alert".to_owned(),
        data: members(json!({"level": level})),
    };
    run.post(request(vec![alert("high"), alert("low")]))
        .unwrap();
    let head = run.state.responding().unwrap().head();
    let notes = head.of_type("Note").map(|note| note.data.to_value());
    let notes: Vec<Value> = notes.collect();
    assert_eq!(
        notes,
        [
            json!({"about": "high", "by": "principal:ann"}),
            json!({"about": "low", "by": "principal:ann"})
        ]
    );
    run.is_whole();
}

#[test]
fn a_post_of_the_most_events_is_one_turn_and_what_follows_is_more() {
    let mut run = tides();
    let events: Vec<_> = (0..MAX_POST_EVENTS)
        .map(|at| PostedEvent::Object {
            id: Some(format!("n{at}")),
            kind: "Note".to_owned(),
            data: EventMembers::new(),
        })
        .collect();
    let before = run.frames.len();
    run.post(request(events)).unwrap();
    assert_eq!(run.frames.len() - before, MAX_POST_EVENTS + 2);
    assert_eq!(count(&run, "Note"), 3 + MAX_POST_EVENTS);
    run.is_whole();
}

#[test]
fn a_branch_of_a_complete_run_takes_posts_once_it_is_resumed_and_has_keys_of_its_own() {
    let mut run = tides();
    let with_key = |text: &str| PostCommand {
        key: Some("k1".to_owned()),
        ..request(vec![topic("t2", text)])
    };
    run.post(with_key("waves")).unwrap();
    let mut branch = run.forked();
    let early = branch.post(with_key("wind")).unwrap_err();
    assert!(matches!(early, PostError::NotResumed), "{early}");
    assert_eq!(branch.kinds().last().unwrap(), "branch.created");
    branch.resumes(None).unwrap();
    assert_eq!(branch.kinds().last().unwrap(), "run.resumed");
    assert!(branch.resumes(None).is_err(), "it was resumed before");
    let taken = branch.post(with_key("wind"));
    assert!(matches!(taken, Ok(PostAdmission::New { n: 2, .. })));
    assert_eq!(branch.kinds().last().unwrap(), "run.completed");
    assert_eq!(count(&branch, "Question"), 9);
    let repeated = branch.post(with_key("wind"));
    assert!(matches!(repeated, Ok(PostAdmission::Repeated { .. })));
    branch.is_whole();
}

#[test]
fn a_branch_of_a_complete_run_under_earlier_rules_takes_posts_at_once() {
    let mut plan = plan(json!({"main": workflow("main", json!([]))}));
    plan["worlds"] = json!({"worlds/w.world.yaml": world(json!({}))});
    let run = Driven::invoke_under(5, plan, json!({"goal": "tides", "x": [1]}));
    let mut branch = run.forked();
    branch.post(request(vec![topic("t2", "waves")])).unwrap();
    assert_eq!(branch.kinds().last().unwrap(), "run.completed");
    branch.is_whole();
}

#[test]
fn frames_of_a_post_are_adjacent_and_come_from_one_request() {
    let mut run = tides();
    run.post(request(vec![topic("t2", "waves")])).unwrap();
    // The last frame of the run is its end, so another event of post 1 comes too late.
    let event = |n: u64| {
        Event::World(WorldEvent::ObjectCreated(ObjectCreated {
            by: Some(request(Vec::new()).by),
            data: CanonicalJson::from_value(&json!({"text": "late"})).unwrap(),
            derived: None,
            id: "late".to_owned(),
            key: None,
            kind: "Topic".to_owned(),
            post: Some(ktsu_ledger::event::Post {
                digest: "d".to_owned(),
                key: None,
                n,
            }),
        }))
    };
    let check = |n: u64| {
        let draft = ktsu_ledger::Draft {
            scope: String::new(),
            actor: ktsu_ledger::Actor::Principal("ann".to_owned()),
            cause: Vec::new(),
            event: event(n),
        };
        let sealed = draft.seal(run.state.link(), run.state.at()).unwrap();
        run.state.check(&sealed.frame)
    };
    assert!(check(1).is_err());
    assert!(check(3).is_err());
    assert_eq!(check(2), Ok(()));
}
