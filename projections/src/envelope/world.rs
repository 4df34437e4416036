//! The view of a run's world in its envelope: how much is in it, and which questions could not be
//! answered.

use std::collections::BTreeMap;

use ktsu_ledger::Timestamp;
use serde::Serialize;
use utoipa::ToSchema;

use crate::world::Responding;

/// How much a world holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WorldSummary {
    /// How many objects there are of each type.
    pub objects: BTreeMap<String, u64>,
    /// How many relations there are of each type.
    pub relations: BTreeMap<String, u64>,
    /// `sha256:` and a digest of all of them, as the end of the run recorded it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub world_hash: Option<String>,
    /// Responders that wait before they look at something, the first to look first; of many the first
    /// 100.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waits: Vec<ResponderWait>,
}

/// A responder that waits before it looks at something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ResponderWait {
    /// Who waits.
    pub responder: String,
    /// The frame of what it waits with.
    pub event: u64,
    /// Until when.
    #[schema(value_type = String)]
    pub until: Timestamp,
}

/// The most responders that an envelope says wait.
const MAX_WAITS_SHOWN: usize = 100;

/// What did not stop a run, and somebody should know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EnvelopeWarning {
    /// A stable code: `unknown_group`, `tool_not_offered`, or the error code of a failure.
    pub code: String,
    /// For people.
    pub message: String,
    /// The responder that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub responder: Option<String>,
    /// The step that it is about, as `id` or `call/id`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
}

impl WorldSummary {
    /// The world of a run, and the hash with which that ended.
    pub(super) fn of(responding: &Responding, world_hash: Option<String>, is_open: bool) -> Self {
        let world = responding.head();
        let waits = responding.timers().take(match is_open {
            true => MAX_WAITS_SHOWN,
            false => 0,
        });
        let waits = waits.map(|timer| ResponderWait {
            responder: timer.responder.to_owned(),
            event: timer.event.seq,
            until: timer.due,
        });
        Self {
            waits: waits.collect(),
            objects: counts(world.objects_by_type()),
            relations: counts(world.relations_by_type()),
            world_hash,
        }
    }
}

fn counts(by_type: BTreeMap<&str, usize>) -> BTreeMap<String, u64> {
    let counts = by_type.into_iter();
    counts
        .map(|(kind, count)| (kind.to_owned(), count as u64))
        .collect()
}

/// The warnings of a run, which did not stop it: questions without a reply, and failures of
/// responders that say `on_error: continue`.
pub(super) fn warnings(responding: &Responding) -> Vec<EnvelopeWarning> {
    let mut all = unanswered(responding);
    let failures = responding.failures().iter();
    all.extend(failures.map(|(responder, failures)| {
        let message = match failures.count {
            1 => format!("failed: {}", failures.message),
            count => format!("failed {count} times, at first: {}", failures.message),
        };
        EnvelopeWarning {
            code: failures.code.clone(),
            message,
            responder: Some(responder.clone()),
            step: None,
        }
    }));
    all
}

/// A warning for each responder whose questions have no reply, since no gateway knows its model group.
fn unanswered(responding: &Responding) -> Vec<EnvelopeWarning> {
    let mut by_responder: BTreeMap<&str, u64> = BTreeMap::new();
    for task in responding.unanswered() {
        *by_responder.entry(&task.responder).or_default() += 1;
    }
    let warning = |(responder, count): (&str, u64)| {
        let questions = match count {
            1 => "a question has".to_owned(),
            count => format!("{count} questions have"),
        };
        EnvelopeWarning {
            code: "unknown_group".to_owned(),
            message: format!("{questions} no reply: no gateway knows the model group"),
            responder: Some(responder.to_owned()),
            step: None,
        }
    };
    by_responder.into_iter().map(warning).collect()
}
