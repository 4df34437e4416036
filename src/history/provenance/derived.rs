//! A derived value: whatever has inputs, a rule and an output.
//!
//! The output of a step is made of its inputs by an expression or an agent, that of a scope by its
//! template, and an object, a relation or a command of a world is made of its trigger by a responder.
//! Two adapters say how values were made: [`super::hops`] for those of workflows, and
//! [`super::world_answer`] for those of worlds. The walk from a value back to its origins, and the
//! answer that it leads to, are the same for both.

use std::collections::VecDeque;

use serde_json::Value;

use super::answer::{Decider, DeciderRole, FrameCache, Hop, ProvenanceAnswer};
use super::story::TracedRun;
use super::story::path::FieldPath;
use ktsu_workflow::expression::provenance::FramePointer;

/// The most hops in an answer.
const MAX_HOPS: usize = 1000;

/// The derivation of a value.
pub(super) struct Derived<V> {
    /// The rule: the hops through what made it.
    pub(super) rule: Vec<Hop>,
    /// The values that it was made of.
    pub(super) inputs: Vec<V>,
}

/// Says how the values of a kind were made.
pub(super) trait Derivations {
    /// A value.
    type Value;
    /// True if the inputs of a value come before the values beside it.
    const DEPTH_FIRST: bool;
    /// True if the walk continues once the answer has [`MAX_HOPS`] hops: it looks for origins, too.
    const WALKS_WHEN_FULL: bool;

    /// The derivation of a value.
    fn derive(&mut self, value: Self::Value) -> Derived<Self::Value>;
}

/// A value, and what the walk back from it found.
pub(super) struct DerivedValue<'p, O> {
    /// The field.
    pub(super) asked: FieldPath,
    /// Its value.
    pub(super) value: Value,
    /// The hops on the way back.
    pub(super) chain: Vec<Hop>,
    /// The places where it began.
    pub(super) origins: O,
    /// The places that only decided.
    pub(super) deciders: Vec<(DeciderRole, &'p FramePointer)>,
}

/// Walks from some values back to their origins, as far as the bound on the work allows.
pub(super) fn walk<D: Derivations>(
    story: &TracedRun<'_>,
    derivations: &mut D,
    first: Vec<D::Value>,
) -> Vec<Hop> {
    let mut hops = Vec::new();
    let mut open = VecDeque::from(first);
    while let Some(value) = open.pop_front() {
        let room = MAX_HOPS.saturating_sub(hops.len());
        if story.memo.is_over() || (room == 0 && !D::WALKS_WHEN_FULL) {
            break;
        }
        let Derived { rule, inputs } = derivations.derive(value);
        hops.extend(rule.into_iter().take(room));
        match D::DEPTH_FIRST {
            true => inputs
                .into_iter()
                .rev()
                .for_each(|one| open.push_front(one)),
            false => open.extend(inputs),
        }
    }
    hops
}

impl<'p, O: IntoIterator<Item = &'p FramePointer>> DerivedValue<'p, O> {
    /// The answer to where it came from; `path` is what was asked.
    pub(super) fn answer(self, story: &TracedRun<'_>, path: &str) -> ProvenanceAnswer {
        let mut frames = FrameCache::new(story);
        let places = frames.origins(self.deciders.iter().map(|(_, place)| *place));
        let roles = self.deciders.iter().map(|(why, _)| *why);
        let deciders = roles.zip(places).map(|(why, place)| Decider { why, place });
        let mut deciders: Vec<Decider> = deciders.collect();
        deciders.sort_by_key(|one| one.why);
        ProvenanceAnswer {
            run_id: story.state().stream().name().to_owned(),
            path: path.to_owned(),
            value: self.value,
            chain: self.chain,
            origins: frames.origins(self.origins),
            deciders,
            scope: self.asked.scope,
            pointer: self.asked.pointer,
        }
    }
}
