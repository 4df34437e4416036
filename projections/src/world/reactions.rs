//! The reactions of responders: who reacts to what.

use std::collections::BTreeMap;
use std::sync::Arc;

use ktsu_ledger::CanonicalJson;
use ktsu_ledger::event::plan::world::{OnError, ResponderPlan, WorldPlan};

use super::candidates::CandidateIndex;
use super::index::IndexedFields;
use super::object;

/// The facts about the responders of its worlds that the state of a run needs.
#[derive(Debug, Default)]
pub struct Reactions {
    /// In the order in which they act: the edges of all worlds, then the others, each in the order
    /// of worlds and of their files.
    responders: Vec<ReactingResponder>,
    index: CandidateIndex,
    fields: Arc<IndexedFields>,
}

/// A responder.
#[derive(Debug)]
struct ReactingResponder {
    name: Arc<str>,
    after_ms: Option<u64>,
    changed: Vec<String>,
    goes_on: bool,
}

impl Reactions {
    /// From the worlds of a definition, by path.
    pub fn of(worlds: &BTreeMap<String, Arc<WorldPlan>>) -> Arc<Self> {
        let edges = worlds.values().flat_map(|world| &world.edges);
        let others = worlds.values().flat_map(|world| &world.responders);
        let all: Vec<&ResponderPlan> = edges.chain(others).collect();
        let responders = all.iter().map(|plan| ReactingResponder {
            name: plan.name.as_str().into(),
            after_ms: plan.after_ms,
            changed: plan.changed.clone(),
            goes_on: plan.on_error == OnError::Continue,
        });
        Arc::new(Self {
            responders: responders.collect(),
            index: CandidateIndex::of(all.into_iter()),
            fields: IndexedFields::of_plans(worlds.values().map(Arc::as_ref)),
        })
    }

    /// The fields that are looked up.
    pub fn fields(&self) -> &Arc<IndexedFields> {
        &self.fields
    }

    /// Positions of the responders that react to an event, ascending. `kind` is the type of the
    /// object or the relation it is about; `patch` what it replaces in an object.
    pub fn candidates(
        &self,
        event: &str,
        kind: Option<&str>,
        patch: Option<&CanonicalJson>,
    ) -> Vec<u32> {
        let found = self.index.find(event, kind).iter().copied();
        let Some(patch) = patch else {
            return found.collect();
        };
        let members = object::members(patch);
        let reacts = |place: &u32| {
            let responder = self.responders.get(*place as usize);
            let changed = responder.map_or(&[][..], |responder| &responder.changed);
            changed.is_empty() || changed.iter().any(|field| members.contains_key(field))
        };
        found.filter(reacts).collect()
    }

    /// Returns `true` if a run continues when this responder fails.
    pub fn goes_on(&self, responder: &str) -> bool {
        let mut all = self.responders.iter();
        all.any(|one| one.goes_on && *one.name == *responder)
    }

    /// The time that a responder waits with what it reacts to, in milliseconds.
    pub fn after_ms(&self, place: u32) -> Option<u64> {
        self.responders.get(place as usize)?.after_ms
    }

    /// The place of a responder.
    pub fn place(&self, responder: &str) -> Option<u32> {
        let found = (0u32..).zip(&self.responders);
        let mut found = found.filter(|(_, one)| *one.name == *responder);
        found.next().map(|(place, _)| place)
    }

    /// The name of a responder.
    pub fn name(&self, place: u32) -> Option<&Arc<str>> {
        Some(&self.responders.get(place as usize)?.name)
    }
}
