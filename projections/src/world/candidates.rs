//! The responders that react to an event, found without looking at the others.

use std::collections::{BTreeMap, BTreeSet};

use ktsu_ledger::event::plan::world::ResponderPlan;

/// The responders of a run by event and by type of object or relation.
#[derive(Debug, Default)]
pub struct CandidateIndex {
    by_event: BTreeMap<String, CandidatesOfEvent>,
    /// Of events that nobody names: those that react to every event.
    otherwise: CandidatesOfEvent,
}

/// Positions among all responders, ascending.
#[derive(Debug, Default)]
struct CandidatesOfEvent {
    /// By the types that are named; each has those that react to any type as well.
    by_type: BTreeMap<String, Vec<u32>>,
    /// Of types that nobody names.
    otherwise: Vec<u32>,
}

const EVERY: &str = "*";

impl CandidateIndex {
    /// Of responders in the order in which they act.
    pub fn of<'p>(plans: impl Iterator<Item = &'p ResponderPlan> + Clone) -> Self {
        let events = plans.clone().flat_map(|plan| &plan.on);
        let events: BTreeSet<&String> = events.filter(|event| *event != EVERY).collect();
        let by_event = events.into_iter().map(|event| {
            let found = CandidatesOfEvent::of(event, plans.clone());
            (event.clone(), found)
        });
        Self {
            by_event: by_event.collect(),
            otherwise: CandidatesOfEvent::of(EVERY, plans),
        }
    }

    /// The positions of those that react to an event about an object or a relation of this type,
    /// ascending.
    pub fn find(&self, event: &str, kind: Option<&str>) -> &[u32] {
        let of_event = self.by_event.get(event).unwrap_or(&self.otherwise);
        let of_type = kind.and_then(|kind| of_event.by_type.get(kind));
        of_type.unwrap_or(&of_event.otherwise)
    }
}

impl CandidatesOfEvent {
    fn of<'p>(event: &str, plans: impl Iterator<Item = &'p ResponderPlan>) -> Self {
        let reacts = |plan: &ResponderPlan| plan.on.iter().any(|on| on == event || on == EVERY);
        let reacting: Vec<(u32, &ResponderPlan)> = (0u32..)
            .zip(plans)
            .filter(|(_, plan)| reacts(plan))
            .collect();
        let of = |kind: Option<&String>| {
            let takes = |plan: &ResponderPlan| {
                plan.types.is_empty() || kind.is_some_and(|kind| plan.types.contains(kind))
            };
            let taking = reacting.iter().filter(|(_, plan)| takes(plan));
            taking.map(|(place, _)| *place).collect()
        };
        let types = reacting.iter().flat_map(|(_, plan)| &plan.types);
        let types: BTreeSet<&String> = types.collect();
        Self {
            by_type: types
                .into_iter()
                .map(|kind| (kind.clone(), of(Some(kind))))
                .collect(),
            otherwise: of(None),
        }
    }
}
