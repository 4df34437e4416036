//! A sample of every type of frame about worlds.

use ktsu_ledger::event::*;
use ktsu_ledger::{CanonicalJson, Event};

/// Every type about worlds.
pub(crate) fn world_samples(text: &str, value: &CanonicalJson) -> Vec<Event> {
    let name = || text.to_owned();
    let by = || {
        Some(Principal {
            auth: name(),
            id: name(),
        })
    };
    let post = || {
        Some(Post {
            digest: name(),
            key: Some(name()),
            n: 3,
        })
    };
    let derived = || Derivation {
        entry: 1,
        item: Some(2),
        responder: Some(name()),
    };
    let events = [
        WorldEvent::ObjectCreated(ObjectCreated {
            by: by(),
            data: value.clone(),
            derived: None,
            id: name(),
            key: Some(name()),
            kind: name(),
            post: post(),
        }),
        WorldEvent::ObjectCreated(ObjectCreated {
            by: None,
            data: CanonicalJson::null(),
            derived: Some(Derivation::default()),
            id: name(),
            key: None,
            kind: name(),
            post: None,
        }),
        WorldEvent::ObjectPatched(ObjectPatched {
            by: None,
            derived: Some(derived()),
            id: name(),
            patch: value.clone(),
            post: None,
            withheld: value.clone(),
        }),
        WorldEvent::RelationCreated(RelationCreated {
            by: by(),
            data: value.clone(),
            derived: None,
            id: name(),
            kind: name(),
            post: post(),
            source_id: name(),
            target_id: name(),
        }),
        WorldEvent::RelationRemoved(RelationRemoved {
            by: None,
            derived: Some(derived()),
            id: name(),
            post: None,
        }),
        WorldEvent::Noted(Note {
            by: by(),
            data: value.clone(),
            derived: None,
            post: post(),
        }),
        WorldEvent::Fired(ResponderFired {
            candidates: vec![
                Candidate {
                    after_ms: None,
                    entries: 2,
                    fails: false,
                    items: Some(3),
                    reason: None,
                    responder: name(),
                    task: Some(TaskKind::Ask),
                    verdict: FiringVerdict::Fired,
                },
                Candidate {
                    after_ms: None,
                    entries: 0,
                    fails: true,
                    items: None,
                    reason: Some(name()),
                    responder: name(),
                    task: None,
                    verdict: FiringVerdict::Failed,
                },
            ],
        }),
        WorldEvent::Completed(ResponderCompleted {
            address: name(),
            responder: name(),
            skipped: vec![SkippedEntry {
                entry: 1,
                reason: name(),
            }],
        }),
        WorldEvent::Failed(ResponderFailed {
            address: Some(name()),
            code: name(),
            entry: Some(1),
            item: Some(2),
            message: name(),
            responder: name(),
        }),
        WorldEvent::Rejected(OutputRejected {
            code: name(),
            derived: derived(),
            errors: vec![Violation {
                message: name(),
                path: "/a".to_owned(),
                rule: "type".to_owned(),
            }],
            kind: name(),
            message: name(),
            output: value.clone(),
        }),
        WorldEvent::Loaded(KitLoaded {
            worlds: vec![LoadedWorld {
                name: name(),
                path: name(),
                version: name(),
            }],
        }),
        WorldEvent::BudgetExhausted(WorldBudgetExhausted {
            cost_micro_usd: 1,
            depth: 2,
            dropped: Dropped {
                outputs: 3,
                timers: 0,
                triggers: 4,
            },
            elapsed_ms: 5,
            event_count: 6,
            reasons: vec![name()],
        }),
        WorldEvent::BudgetRaised(BudgetRaised {
            by: Principal {
                auth: name(),
                id: name(),
            },
            max_events: Some(1),
            max_llm_cost_micro_usd: Some(2),
            max_recursion_depth: Some(3),
            max_wall_ms: Some(4),
            reason: Some(name()),
        }),
    ];
    events.into_iter().map(Event::World).collect()
}
