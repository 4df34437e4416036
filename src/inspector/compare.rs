//! What differs between two runs, sorted by step: what both pages of a step would show.

use std::collections::{BTreeMap, BTreeSet};

use ktsu_history::diff::ComparedSpans;
use ktsu_history::skeleton::{RunSkeleton, StepSpan};
use ktsu_projections::normalize::FrameKey;
use ktsu_projections::step_name::{path_in, split_scope};
use ktsu_projections::value_diff::ValueDifference;

/// The parts of two runs, aligned.
#[derive(Debug, Default)]
pub(crate) struct AlignedRuns<'c> {
    /// Differences of params.
    pub(crate) params: Vec<Difference<'c>>,
    /// Differences of the runs as a whole.
    pub(crate) whole: Vec<Difference<'c>>,
    /// Steps that differ, in the order of both.
    pub(crate) changed: Vec<AlignedStep<'c>>,
    /// Steps that are equal.
    pub(crate) equal: Vec<AlignedStep<'c>>,
}

/// A step of two runs.
#[derive(Debug, Default)]
pub(crate) struct AlignedStep<'c> {
    /// Its path from what is compared.
    pub(crate) path: String,
    /// In the first run.
    pub(crate) a: Option<&'c StepSpan>,
    /// In the second run.
    pub(crate) b: Option<&'c StepSpan>,
    /// What differs.
    pub(crate) differences: Vec<Difference<'c>>,
    /// Frames about it in the first only.
    pub(crate) only_a: Vec<u64>,
    /// Frames about it in the second only.
    pub(crate) only_b: Vec<u64>,
}

impl AlignedStep<'_> {
    fn differs(&self) -> bool {
        let of = |step: Option<&StepSpan>| step.map(|step| step.status);
        !self.differences.is_empty()
            || !self.only_a.is_empty()
            || !self.only_b.is_empty()
            || of(self.a) != of(self.b)
    }
}

/// A place where two runs have other values.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Difference<'c> {
    /// What differs, in words.
    pub(crate) name: String,
    /// The frames that say it, if frames do.
    pub(crate) frames: Option<(u64, u64)>,
    /// The two values.
    pub(crate) change: &'c ValueDifference,
}

/// Two runs, aligned by step.
pub(crate) fn align(compared: &ComparedSpans) -> AlignedRuns<'_> {
    let diff = &compared.comparison.diff;
    let (a, b) = (steps_of(&compared.a), steps_of(&compared.b));
    let mut steps: BTreeMap<String, AlignedStep<'_>> = BTreeMap::new();
    let mut runs = AlignedRuns::default();
    for change in &diff.envelope {
        let (part, rest) = first_of(&change.path);
        let difference = |name: &str| Difference {
            name: words(name),
            frames: None,
            change,
        };
        match part.as_str() {
            "params" if !rest.is_empty() => runs.params.push(difference(rest)),
            "params" => runs.params.push(difference(&change.path)),
            "steps" => {
                let (step, rest) = first_of(rest);
                let step = steps.entry(step).or_default();
                // That of a step that one of them does not have is on its row.
                if !rest.is_empty() {
                    step.differences.push(difference(rest));
                }
            }
            _ => runs.whole.push(difference(&change.path)),
        }
    }
    for frame in &diff.changed {
        if is_of_interest(&frame.key) {
            let step = steps.entry(place(&frame.key)).or_default();
            step.differences
                .extend(frame.changes.iter().map(|change| Difference {
                    name: frame_words(&frame.key, &change.path),
                    frames: Some((frame.a, frame.b)),
                    change,
                }));
        }
    }
    for frame in &diff.only_a {
        let step = steps.entry(place(&frame.key)).or_default();
        step.only_a.push(frame.seq);
    }
    for frame in &diff.only_b {
        let step = steps.entry(place(&frame.key)).or_default();
        step.only_b.push(frame.seq);
    }
    // What concerns the runs as a whole is in their envelopes.
    steps.remove("");
    let paths = in_order(&a, &b, steps.keys());
    let by_path = |steps: Vec<(String, _)>| steps.into_iter().collect::<BTreeMap<_, _>>();
    let (a, b) = (by_path(a), by_path(b));
    for path in paths {
        let step = AlignedStep {
            a: a.get(&path).copied(),
            b: b.get(&path).copied(),
            ..steps.remove(&path).unwrap_or_default()
        };
        let step = AlignedStep { path, ..step };
        match step.differs() {
            true => runs.changed.push(step),
            false => runs.equal.push(step),
        }
    }
    runs
}

/// The steps of a run and of its children, by their paths from it.
fn steps_of(run: &RunSkeleton) -> Vec<(String, &StepSpan)> {
    let (_, scope) = split_scope(&run.run_id);
    let mut steps = Vec::new();
    let mut open: Vec<&StepSpan> = run.steps.iter().rev().collect();
    while let Some(step) = open.pop() {
        let below = step.path.strip_prefix(scope).unwrap_or(&step.path);
        steps.push((below.trim_start_matches('/').to_owned(), step));
        let children = step.children.iter().rev();
        open.extend(children.flat_map(|child| child.steps.iter().rev()));
    }
    steps
}

/// The paths of both, in the order of the first; those that only the second has are behind the one before them.
fn in_order<'p>(
    a: &[(String, &StepSpan)],
    b: &[(String, &StepSpan)],
    others: impl Iterator<Item = &'p String>,
) -> Vec<String> {
    let of_a: BTreeSet<&str> = a.iter().map(|(path, _)| path.as_str()).collect();
    let mut behind: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut before = "";
    for (path, _) in b {
        match of_a.contains(path.as_str()) {
            true => before = path,
            false => behind.entry(before).or_default().push(path),
        }
    }
    let mut paths: Vec<&str> = behind.remove("").unwrap_or_default();
    for (path, _) in a {
        paths.push(path);
        paths.extend(behind.remove(path.as_str()).unwrap_or_default());
    }
    let known: BTreeSet<&str> = paths.iter().copied().collect();
    let others = others.filter(|path| !known.contains(path.as_str()));
    let paths = paths.iter().map(|path| (*path).to_owned());
    paths.chain(others.cloned()).collect()
}

/// The step that a frame is about, or the one that runs the child that it is about.
fn place(key: &FrameKey) -> String {
    match &key.step {
        Some(step) => path_in(&key.scope, step),
        None => key.scope.clone(),
    }
}

/// Returns `true` for what envelopes do not have: what was asked and answered, and what happened in children.
fn is_of_interest(key: &FrameKey) -> bool {
    let asks = ["llm.", "tool.", "webhook."];
    asks.iter().any(|kind| key.kind.starts_with(kind)) || !key.scope.is_empty()
}

/// What of a frame differs, in words.
fn frame_words(key: &FrameKey, path: &str) -> String {
    let kind = match key.kind.as_str() {
        "llm.request" => "prompt",
        "llm.response" => "reply",
        other => other,
    };
    let item = key.item.map(|item| format!("item {item}, "));
    let attempt = key.attempt.filter(|attempt| *attempt > 1);
    let attempt = attempt.map(|attempt| format!("attempt {attempt}, "));
    let nth = (key.nth > 0).then(|| format!(" {}", key.nth + 1));
    let about = key.about.as_ref().map(|about| format!(" {about}"));
    let parts = [item, attempt, Some(kind.to_owned()), about, nth];
    format!(
        "{}: {}",
        parts.into_iter().flatten().collect::<String>(),
        words(path)
    )
}

/// The first name of a JSON pointer, and the rest of it.
fn first_of(path: &str) -> (String, &str) {
    let path = path.strip_prefix('/').unwrap_or(path);
    let end = path.find('/').unwrap_or(path.len());
    let (name, rest) = path.split_at(end);
    (unescaped(name), rest)
}

/// A JSON pointer as people write paths.
fn words(path: &str) -> String {
    let names = path.split('/').skip(1).map(unescaped);
    names.collect::<Vec<_>>().join(".")
}

fn unescaped(name: &str) -> String {
    name.replace("~1", "/").replace("~0", "~")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pointer_is_shown_as_a_path() {
        assert_eq!(words("/items/3/output/a~1b"), "items.3.output.a/b");
        assert_eq!(
            first_of("/steps/x~1y/output"),
            ("steps".to_owned(), "/x~1y/output")
        );
        assert_eq!(first_of("/x~1y"), ("x/y".to_owned(), ""));
    }
}
