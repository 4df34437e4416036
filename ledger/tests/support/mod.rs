//! Frames and ledgers to test with.

#![allow(dead_code, clippy::unwrap_used)]

use ktsu_ledger::event::{
    Limits, Principal, RunCompleted, RunCreated, RunEvent, StepCompleted, StepEvent, StoreEvent,
    StoreOpened,
};
use ktsu_ledger::store::{Entry, IndexRow};
use ktsu_ledger::{
    Actor, CanonicalJson, Cause, Draft, Event, Hash, Link, Sealed, StreamId, Timestamp,
};

/// The stream of a run.
pub(crate) fn run(name: &str) -> StreamId {
    StreamId::run(name).unwrap()
}

/// A draft of a step that completed with an output.
pub(crate) fn completed(step: &str, output: CanonicalJson) -> Draft {
    Draft {
        scope: String::new(),
        actor: Actor::Orchestrator,
        cause: Vec::new(),
        event: Event::Step(StepEvent::Completed(StepCompleted {
            attempt: 1,
            output: Some(output),
            output_from: None,
            step: step.to_owned(),
            stripped: Vec::new(),
        })),
    }
}

/// The small draft most tests are content with.
pub(crate) fn ended() -> Draft {
    Draft {
        scope: String::new(),
        actor: Actor::Orchestrator,
        cause: Vec::new(),
        event: Event::Run(RunEvent::Completed(RunCompleted::default())),
    }
}

/// A fact about the ledger.
pub(crate) fn opened(epoch: u64) -> Draft {
    Draft {
        scope: String::new(),
        actor: Actor::Orchestrator,
        cause: Vec::new(),
        event: Event::Store(StoreEvent::Opened(StoreOpened {
            engine: "ktsu 0.0.0".to_owned(),
            epoch,
            pid: 1,
        })),
    }
}

/// With other causes.
pub(crate) fn caused(mut draft: Draft, cause: Vec<Cause>) -> Draft {
    draft.cause = cause;
    draft
}

/// Seals drafts one after another behind a frame.
pub(crate) fn seal(
    stream: &StreamId,
    after: Option<(u64, Hash)>,
    drafts: Vec<Draft>,
) -> Vec<Sealed> {
    let (mut seq, mut prev) = after.map_or((0, Hash::ZERO), |(seq, hash)| (seq + 1, hash));
    let mut sealed = Vec::new();
    for draft in drafts {
        let link = Link {
            stream: stream.clone(),
            seq,
            prev,
        };
        let at = Timestamp::from_micros(1_790_000_000_000_000 + seq);
        let next = draft.seal(link, at).unwrap();
        (seq, prev) = (seq + 1, next.record.hash);
        sealed.push(next);
    }
    sealed
}

/// An entry of some drafts behind a frame.
pub(crate) fn entry(stream: &StreamId, after: Option<(u64, Hash)>, drafts: Vec<Draft>) -> Entry {
    Entry::from_sealed(seal(stream, after, drafts)).unwrap().0
}

/// An index row.
pub(crate) fn row(stream: &StreamId, workflow: &str, status: &str, created_us: u64) -> IndexRow {
    IndexRow {
        stream: stream.clone(),
        workflow: workflow.to_owned(),
        status: status.to_owned(),
        open: status != "complete",
        created_us,
        key: None,
        row: CanonicalJson::parse(format!(r#"{{"status":"{status}"}}"#).as_bytes()).unwrap(),
    }
}

/// A value of about so many bytes.
pub(crate) fn payload(bytes: usize, salt: u64) -> CanonicalJson {
    let text: String = (0..bytes)
        .map(|place| char::from(b'a' + ((place as u64 * 7 + salt) % 26) as u8))
        .collect();
    CanonicalJson::string(&text)
}

/// The stream of the ledger as a whole.
pub(crate) fn store_stream() -> StreamId {
    StreamId::store()
}

/// An accepted invocation; its definition becomes a blob.
pub(crate) fn created(workflow: &str) -> Draft {
    let definition = format!(r#"{{"format":1,"root":"{workflow}","workflows":{{}}}}"#);
    Draft {
        scope: String::new(),
        actor: Actor::Principal("local".to_owned()),
        cause: Vec::new(),
        event: Event::Run(RunEvent::Created(Box::new(RunCreated {
            digest: Hash::of(definition.as_bytes()).to_string(),
            definition: CanonicalJson::parse(definition.as_bytes()).unwrap(),
            effects: None,
            references: Vec::new(),
            engine: "ktsu 0.0.0".to_owned(),
            env: Default::default(),
            idempotency_digest: None,
            idempotency_key: None,
            limits: Limits::default(),
            lock: None,
            no_cache: false,
            of: None,
            params: CanonicalJson::parse(b"{}").unwrap(),
            principal: Principal {
                auth: "none".to_owned(),
                id: "local".to_owned(),
            },
            results: Vec::new(),
            rules: 1,
            version: "1.0.0".to_owned(),
            workflow: workflow.to_owned(),
        }))),
    }
}
