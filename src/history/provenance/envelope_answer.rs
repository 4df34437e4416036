//! The origins of a field of an envelope, and what else decided that it is there.

use std::collections::BTreeMap;

use ktsu_projections::run::StepKey;
use ktsu_workflow::expression::EvaluatedValue;
use ktsu_workflow::expression::provenance::Provenance;

use super::answer::{DeciderRole, ProvenanceAnswer};
use super::derived::DerivedValue;
use super::hops;
use super::story::TracedRun;
use super::story::path::{FieldNotFoundError, FieldPath, not_found};

/// The origins of a field of an envelope; `within` is the child that was asked about.
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
    let choosers = field.choosers();
    for (why, marks) in [
        (DeciderRole::KeptGoing, &kept),
        (DeciderRole::Chose, &choosers),
    ] {
        for place in marks.iter().filter(|place| !origins.covers(place)) {
            deciders.insert(place, why);
        }
    }
    let deciders = deciders.into_iter().map(|(place, why)| (why, place));
    let found = DerivedValue {
        value: field.to_value(),
        chain: hops::chain(story, &asked, &origins),
        origins: origins.iter(),
        deciders: deciders.collect(),
        asked,
    };
    Ok(found.answer(story, path))
}

impl TracedRun<'_> {
    /// The places that could have ended the run before a field was there.
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
                        let track = self.step(StepKey::of(scope, position));
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
