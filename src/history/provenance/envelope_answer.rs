//! Where a field of an envelope came from, and what else decided that it is there.

use std::collections::BTreeMap;

use ktsu_workflow::expression::EvaluatedValue;
use ktsu_workflow::expression::provenance::Provenance;

use super::answer::{Decider, DeciderRole, FrameCache, ProvenanceAnswer};
use super::hops;
use super::path::{FieldNotFoundError, FieldPath, not_found};
use super::story::TracedRun;

/// Where a field of an envelope came from; `within` is the child that was asked about.
///
/// # Errors
/// [`FieldNotFoundError`].
pub(super) fn answer(
    story: &TracedRun<'_>,
    within: &str,
    path: &str,
) -> Result<ProvenanceAnswer, FieldNotFoundError> {
    let asked = FieldPath::find(story, within, path)?;
    let gone = || not_found(path, Vec::new());
    let envelope = story.envelope(&asked.scope).ok_or_else(gone)?;
    let field = envelope.find(&asked.pointer).ok_or_else(gone)?;
    let origins = field.sources().flat();
    let kept = story.kept_going(&asked);
    let mut deciders = BTreeMap::new();
    for (why, marks) in [
        (DeciderRole::KeptGoing, &kept),
        (DeciderRole::Chose, &field.choosers()),
    ] {
        for place in marks.iter().filter(|place| !origins.covers(place)) {
            deciders.insert(place.clone(), why);
        }
    }
    let mut frames = FrameCache::new(story);
    let places = frames.origins(deciders.keys());
    let places = deciders.values().zip(places);
    let deciders = places.map(|(why, place)| Decider { why: *why, place });
    let mut deciders: Vec<Decider> = deciders.collect();
    deciders.sort_by_key(|one| one.why);
    Ok(ProvenanceAnswer {
        run_id: story.state().stream().name().to_owned(),
        path: path.to_owned(),
        value: field.to_value(),
        chain: hops::chain(story, &asked, &origins),
        origins: frames.origins(origins.iter()),
        deciders,
        scope: asked.scope,
        pointer: asked.pointer,
    })
}

impl TracedRun<'_> {
    /// What could have ended the run before a field was there.
    pub fn kept_going(&self, asked: &FieldPath) -> Provenance {
        let mut segments = asked.pointer.split('/').skip(1);
        let scope = self.state().scope_at(&asked.scope);
        match segments.next() {
            // What a run was given is there from the beginning; a child has to be reached.
            Some("params" | "env" | "run_id" | "workflow" | "version" | "created_at")
                if asked.scope.is_empty() =>
            {
                Provenance::default()
            }
            Some("steps") => {
                let position = segments.next().and_then(|at| at.parse().ok());
                match (segments.next(), position, scope) {
                    (Some("id" | "type"), ..) if asked.scope.is_empty() => Provenance::default(),
                    (Some("output"), Some(position), Some(scope)) => {
                        let track = self.step(scope, position);
                        let ended = track.and_then(|track| track.ended);
                        self.survival_marks(ended.unwrap_or(u64::MAX))
                    }
                    _ => self.survival_marks(u64::MAX),
                }
            }
            _ => self.survival_marks(u64::MAX),
        }
    }
}
