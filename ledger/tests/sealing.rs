//! What sealing a frame hands back is what reading its bytes gives.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use ktsu_ledger::event::{
    ContinueReason, Continued, Reference, RunEvent, RunStarted, StepCompleted, StepEvent,
    StepInput, StepStarted,
};
use ktsu_ledger::{
    Actor, CanonicalJson, Cause, Draft, Event, FrameError, Hash, Link, StreamId, Timestamp,
};

fn link() -> Link {
    Link {
        stream: StreamId::run("run_1").unwrap(),
        seq: 7,
        prev: Hash::of(b"before"),
    }
}

fn draft(event: Event) -> Draft {
    Draft {
        scope: "call/\"inner\"".to_owned(),
        actor: Actor::Principal("ada".to_owned()),
        cause: vec![
            Cause::Here(3),
            Cause::There(StreamId::run("run_2").unwrap(), 5),
        ],
        event,
    }
}

fn completed(output: CanonicalJson) -> Event {
    Event::Step(StepEvent::Completed(StepCompleted {
        attempt: 1,
        output: Some(output),
        output_from: None,
        step: "a".to_owned(),
        stripped: Vec::new(),
    }))
}

fn started() -> Event {
    let reference = Reference {
        frame: 0,
        path: "/params".to_owned(),
    };
    let computed = StepInput::Value {
        from: vec![1, 2],
        value: CanonicalJson::null(),
    };
    let input = BTreeMap::from([
        ("/inputs/0".to_owned(), StepInput::Ref(reference)),
        ("/inputs/1".to_owned(), computed),
        (
            "/url".to_owned(),
            StepInput::Template("{{ env.X }}".to_owned()),
        ),
    ]);
    Event::Step(StepEvent::Started(StepStarted {
        attempt: 1,
        input,
        resume_step: None,
        step: "a".to_owned(),
        items: None,
    }))
}

#[test]
fn a_sealed_frame_is_what_its_bytes_say() {
    let large = CanonicalJson::string(&"x".repeat(70_000));
    let foreign = Event::Foreign {
        kind: "x.kit.\"odd\"".to_owned(),
        data: CanonicalJson::null(),
    };
    for event in [
        completed(CanonicalJson::null()),
        completed(CanonicalJson::string("é\n\u{0}")),
        completed(large),
        started(),
        Event::Run(RunEvent::Started(RunStarted::default())),
        Event::Run(RunEvent::Continued(Continued {
            why: ContinueReason::Bound,
        })),
        foreign,
    ] {
        let at = Timestamp::from_micros(1_790_000_000_123_456);
        let sealed = draft(event).seal(link(), at).unwrap();
        let mut blobs = |hash: &Hash| {
            let found = sealed.blobs.iter().find(|blob| blob.hash == *hash);
            Ok::<_, FrameError>(found.map(|blob| blob.text.clone()))
        };
        assert_eq!(sealed.record.decode(&mut blobs).as_ref(), Ok(&sealed.frame));
    }
}

#[test]
fn an_output_of_null_reads_back_as_none_and_so_is_held_live() {
    let sealed = draft(completed(CanonicalJson::null())).seal(link(), Timestamp::default());
    let Event::Step(StepEvent::Completed(held)) = sealed.unwrap().frame.event else {
        panic!("another event");
    };
    assert_eq!(held.output, None);
}

#[test]
fn an_actor_that_would_not_read_back_is_refused() {
    let mut draft = draft(started());
    draft.actor = Actor::Principal("a\"b".to_owned());
    let sealed = draft.seal(link(), Timestamp::default());
    assert!(matches!(sealed, Err(FrameError::Malformed(_))));
}
