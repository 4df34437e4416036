//! Outputs that people approved, and what they replaced of them: whatever later frames take from such
//! an output has to name the values that hold.

use std::collections::{BTreeMap, BTreeSet};

use ktsu_ledger::event::{Reference, StepInput};

/// The place of an output in the frame that ends its task.
const OUTPUT: &str = "/outcome/output";
/// The place of replaced fields in a decision.
const OVERLAY: &str = "/overlay/";

/// A step: its scope and its id.
type StepAddress = (String, String);

/// The person who replaced a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Replaced {
    /// The person who decided, in this frame.
    ByReview(u64),
    /// Another person, later.
    Later,
}

/// The reviewed outputs of a run.
#[derive(Debug, Default)]
pub(super) struct ReviewedOutputs {
    /// By the frame that ends the task; with the step once it has completed.
    outcomes: BTreeMap<u64, Option<StepAddress>>,
    /// By the frame that completes the step.
    ends: BTreeMap<u64, StepAddress>,
    /// The fields that people replaced in the output of each step: in the review of its present
    /// attempt, or later for all of its attempts.
    replaced: BTreeMap<StepAddress, BTreeMap<String, Replaced>>,
    /// Every decision on a review, with the step that it is about.
    decisions: BTreeMap<u64, StepAddress>,
    /// The fields of decisions that hold, or held until another was set.
    held: BTreeSet<(u64, String)>,
}

impl ReviewedOutputs {
    /// Returns `true` if no output was reviewed.
    pub(super) fn is_empty(&self) -> bool {
        self.outcomes.is_empty()
    }

    /// People are to approve an outcome.
    pub(super) fn ask(&mut self, finished: u64) {
        self.outcomes.insert(finished, None);
    }

    /// A person decides.
    pub(super) fn decide(&mut self, seq: u64, (scope, step): (&str, &str)) {
        let at = (scope.to_owned(), step.to_owned());
        self.decisions.insert(seq, at);
    }

    /// A step completes with an outcome that people approved, and replaced these fields of.
    pub(super) fn complete(
        &mut self,
        (scope, step): (&str, &str),
        (finished, completed): (u64, u64),
        overlay: impl Iterator<Item = (String, u64)>,
    ) {
        let at = (scope.to_owned(), step.to_owned());
        self.outcomes.insert(finished, Some(at.clone()));
        self.ends.insert(completed, at.clone());
        let replaced = self.replaced.entry(at).or_default();
        for (field, seq) in overlay {
            self.held.insert((seq, field.clone()));
            replaced.insert(field, Replaced::ByReview(seq));
        }
    }

    /// A person replaces a field of a step that has completed.
    pub(super) fn replace(&mut self, scope: &str, step: &str, field: &str) {
        let at = (scope.to_owned(), step.to_owned());
        let replaced = self.replaced.entry(at).or_default();
        replaced.insert(field.to_owned(), Replaced::Later);
    }

    /// A step begins again: what was replaced in reviews of its outcomes does not hold any more.
    pub(super) fn begin_step(&mut self, scope: &str, step: &str) {
        let at = (scope.to_owned(), step.to_owned());
        if let Some(replaced) = self.replaced.get_mut(&at) {
            replaced.retain(|_, by| *by == Replaced::Later);
            let decisions = &self.decisions;
            self.held.retain(|(seq, _)| decisions.get(seq) != Some(&at));
        }
    }

    /// A child begins anew: nothing that was replaced within holds.
    pub(super) fn begin(&mut self, scope: &str) {
        let within = format!("{scope}/");
        self.replaced
            .retain(|(at, _), _| at != scope && !at.starts_with(&within));
    }

    /// The fault in the inputs of a step.
    pub(super) fn judge<'i>(
        &self,
        mut inputs: impl Iterator<Item = &'i StepInput>,
    ) -> Option<&'static str> {
        inputs.find_map(|input| match input {
            StepInput::Ref(place) => self.judge_place(place),
            StepInput::Value { from, .. } => self.judge_sources(from),
            StepInput::Template(_) => None,
        })
    }

    /// The fault in a value that is taken from this place.
    pub(super) fn judge_place(&self, place: &Reference) -> Option<&'static str> {
        if let Some(path) = place.path.strip_prefix(OVERLAY) {
            let there = self.held.contains(&(place.frame, first_name(path)));
            let known = self.decisions.contains_key(&place.frame);
            return (known && !there).then_some("no decision that holds has what it takes");
        }
        let path = place.path.strip_prefix(OUTPUT)?;
        let Some(step) = self.outcomes.get(&place.frame)? else {
            return Some("it takes an output that people have not approved");
        };
        let replaced = self.replaced.get(step)?;
        let wrong = match path.strip_prefix('/') {
            None => !replaced.is_empty(),
            Some(path) => matches!(replaced.get(&first_name(path)), Some(Replaced::ByReview(_))),
        };
        wrong.then_some("it takes what the person who approved the output replaced")
    }

    /// The fault in a value that is computed from these frames.
    fn judge_sources(&self, from: &[u64]) -> Option<&'static str> {
        let held = |seq: u64| self.held.range((seq, String::new())..).next();
        let held = |seq: u64| held(seq).is_some_and(|(frame, _)| *frame == seq);
        let stray = |seq: &&u64| self.decisions.contains_key(*seq) && !held(**seq);
        if from.iter().any(|seq| stray(&seq)) {
            return Some("no decision that holds has what it takes");
        }
        let missing = |step: &StepAddress| {
            let replaced = self.replaced.get(step);
            let mut replaced = replaced.into_iter().flatten();
            replaced.any(|(_, by)| matches!(by, Replaced::ByReview(seq) if !from.contains(seq)))
        };
        let mut ends = from.iter().filter_map(|seq| self.ends.get(seq));
        ends.any(missing)
            .then_some("it takes what the person who approved the output replaced")
    }
}

/// The first name of a JSON pointer whose slash is left out.
fn first_name(path: &str) -> String {
    let name = path.split('/').next().unwrap_or_default();
    name.replace("~1", "/").replace("~0", "~")
}
