//! Samples of events about reviews and suspensions.

use std::collections::BTreeMap;

use ktsu_ledger::event::plan::{ApprovalTimeout, ReviewPolicy, SuspendPolicy, TimeoutBehavior};
use ktsu_ledger::event::*;
use ktsu_ledger::{CanonicalJson, Event};

/// Every type, with all that is optional there and with none of it.
pub(crate) fn samples(text: &str, value: &CanonicalJson) -> Vec<Event> {
    let both = [false, true].into_iter();
    both.flat_map(|full| of(text, value, full)).collect()
}

fn of(text: &str, value: &CanonicalJson, full: bool) -> [Event; 8] {
    let step = || text.to_owned();
    let indexes = || match full {
        true => vec![0, 2],
        false => Vec::new(),
    };
    [
        Event::Step(StepEvent::Commanded(StepCommand {
            attempt: 2,
            command: Reference {
                frame: 3,
                path: "/outcome/commands/1".to_owned(),
            },
            index: 1,
            item: None,
            step: step(),
            suppressed: full,
            target: None,
            topic: None,
            kind: CommandKind::Review,
        })),
        Event::Step(StepEvent::Commanded(StepCommand {
            attempt: 2,
            command: Reference {
                frame: 3,
                path: "/outcome/commands/0".to_owned(),
            },
            index: 0,
            item: None,
            step: step(),
            suppressed: full,
            target: None,
            topic: None,
            kind: CommandKind::Suspend,
        })),
        Event::Step(StepEvent::SuspendRequested(SuspendRequested {
            attempt: 2,
            command: 6,
            policy: SuspendPolicy {
                roles: full.then(step).into_iter().collect(),
                schema: full.then(|| value.clone()),
                timeout_ms: 5000,
            },
            step: step(),
        })),
        Event::Person(PersonEvent::SuspendResumed(Box::new(SuspendResumed {
            attempt: 2,
            by: Principal {
                auth: text.to_owned(),
                id: text.to_owned(),
            },
            data: match full {
                true => value.clone(),
                false => CanonicalJson::default(),
            },
            reason: full.then(step),
            request: 8,
            step: step(),
        }))),
        Event::Step(StepEvent::CommandsDeferred(CommandsDeferred {
            attempt: 2,
            indexes: indexes(),
            request: 6,
            step: step(),
        })),
        Event::Step(StepEvent::CommandsDiscarded(CommandsDiscarded {
            attempt: 2,
            decision: 9,
            indexes: indexes(),
            step: step(),
        })),
        Event::Step(StepEvent::ReviewRequested(ReviewRequested {
            attempt: 2,
            command: 6,
            policy: ReviewPolicy {
                not_by_proposer: full,
                quorum: 2,
                roles: full.then(step).into_iter().collect(),
                timeout: ApprovalTimeout {
                    behavior: TimeoutBehavior::Reject,
                    ms: 5000,
                },
            },
            step: step(),
        })),
        Event::Person(PersonEvent::ReviewDecided(Box::new(ReviewDecided {
            attempt: 2,
            by: Principal {
                auth: text.to_owned(),
                id: text.to_owned(),
            },
            decision: match full {
                true => ReviewDecision::Approved,
                false => ReviewDecision::Rejected,
            },
            overlay: match full {
                true => BTreeMap::from([(text.to_owned(), value.clone())]),
                false => BTreeMap::new(),
            },
            reason: full.then(step),
            request: 8,
            step: step(),
        }))),
    ]
}
