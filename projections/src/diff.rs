//! The differences of two runs: where they diverge, and which results differ.
//!
//! Whatever differs between any two runs ([`crate::normalize`]) is ignored. Frames are matched by
//! subject, not by number, so that one additional frame does not make all later ones differ.

use std::collections::{BTreeMap, HashMap};

use ktsu_ledger::{Frame, Hash};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::envelope::{Envelope, EnvelopeFold};
use crate::normalize::{self, FrameKey, NormalizedFrame};
use crate::run::{FoldError, RunState};
use crate::value_diff::{self, ValueDifference};

/// One of the two.
#[derive(Debug, Clone, Copy)]
pub struct Side<'a> {
    /// The frames of its whole run.
    pub frames: &'a [Frame],
    /// The inline child that is looked at; empty for the run itself.
    pub scope: &'a str,
}

/// What differs between two runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Diff {
    /// How many frames at the beginning are the same frames, by their hashes.
    pub shared: u64,
    /// The first place where something differs that both could have in common.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first: Option<FirstDifference>,
    /// The envelopes, field by field; steps by id.
    pub envelope: Vec<ValueDifference>,
    /// Steps whose status differs, children's too, by path.
    pub steps: Vec<StepStatusChange>,
    /// Frames that stand in the first only.
    pub only_a: Vec<UnmatchedFrame>,
    /// Frames that stand in the second only.
    pub only_b: Vec<UnmatchedFrame>,
    /// Frames that stand in both and say something else.
    pub changed: Vec<FrameChange>,
    /// What each used.
    pub used: UsageComparison,
}

/// Where two runs part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FirstDifference {
    /// The number.
    pub seq: u64,
    /// The frame the first has there, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub a: Option<ComparedFrame>,
    /// The frame the second has there, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub b: Option<ComparedFrame>,
}

/// A frame, shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ComparedFrame {
    /// What it is about.
    #[serde(flatten)]
    pub key: FrameKey,
    /// What it says, without what no two runs share.
    pub data: Value,
}

/// A frame, named.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UnmatchedFrame {
    /// Its number.
    pub seq: u64,
    /// What it is about.
    #[serde(flatten)]
    pub key: FrameKey,
}

/// A frame that both have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FrameChange {
    /// Its number in the first.
    pub a: u64,
    /// Its number in the second.
    pub b: u64,
    /// What it is about.
    #[serde(flatten)]
    pub key: FrameKey,
    /// Its `data`, place by place.
    pub changes: Vec<ValueDifference>,
}

/// A step that ended otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StepStatusChange {
    /// Its path: `triage`, `child/triage`.
    pub step: String,
    /// Its status in the first; absent: there is no such step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub a: Option<String>,
    /// Its status in the second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub b: Option<String>,
}

/// What two runs used. A difference in what was used alone is no difference between them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UsageComparison {
    /// The first.
    pub a: UsageTotals,
    /// The second.
    pub b: UsageTotals,
    /// The second less the first.
    pub difference: UsageTotals,
}

/// Cost and calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UsageTotals {
    /// Millionths of a US dollar.
    pub cost_micro_usd: i64,
    /// Model calls.
    pub llm_calls: i64,
    /// Tokens sent.
    pub tokens_in: i64,
    /// Tokens received.
    pub tokens_out: i64,
}

/// The reason why two runs cannot be compared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CompareError {
    /// One does not fold.
    #[error(transparent)]
    Fold(#[from] FoldError),
    /// There is no such inline child.
    #[error("{run} has no child {scope}")]
    NoChild {
        /// The run.
        run: String,
        /// The child's path.
        scope: String,
    },
}

impl Diff {
    /// Returns `true` if nothing differs but what no two runs share.
    pub fn is_empty(&self) -> bool {
        self.envelope.is_empty()
            && self.steps.is_empty()
            && self.only_a.is_empty()
            && self.only_b.is_empty()
            && self.changed.is_empty()
    }

    /// The same, seen from the other side.
    #[must_use]
    pub fn inverse(self) -> Self {
        let turned = |changes: Vec<ValueDifference>| {
            changes.into_iter().map(ValueDifference::inverse).collect()
        };
        let mut changed: Vec<FrameChange> = self
            .changed
            .into_iter()
            .map(|one| FrameChange {
                a: one.b,
                b: one.a,
                key: one.key,
                changes: turned(one.changes),
            })
            .collect();
        changed.sort_by(order);
        Self {
            shared: self.shared,
            first: self.first.map(|first| FirstDifference {
                seq: first.seq,
                a: first.b,
                b: first.a,
            }),
            envelope: turned(self.envelope),
            steps: self
                .steps
                .into_iter()
                .map(|one| StepStatusChange {
                    step: one.step,
                    a: one.b,
                    b: one.a,
                })
                .collect(),
            only_a: self.only_b,
            only_b: self.only_a,
            changed,
            used: UsageComparison::of(self.used.b, self.used.a),
        }
    }
}

/// The differences between two runs, branches or inline children.
///
/// # Errors
/// [`CompareError`].
pub fn diff(a: Side<'_>, b: Side<'_>) -> Result<Diff, CompareError> {
    let (fold_a, fold_b) = (EnvelopeFold::of(a.frames)?, EnvelopeFold::of(b.frames)?);
    diff_of_folds((a, &fold_a), (b, &fold_b))
}

/// The same, of frames that are folded already.
///
/// # Errors
/// [`CompareError::NoChild`].
pub fn diff_of_folds(
    (a, fold_a): (Side<'_>, &EnvelopeFold),
    (b, fold_b): (Side<'_>, &EnvelopeFold),
) -> Result<Diff, CompareError> {
    let (seen_a, seen_b) = (seen(a, fold_a)?, seen(b, fold_b)?);
    let changes = value_diff::diff(&normalize::envelope(&seen_a), &normalize::envelope(&seen_b));
    let changes = changes
        .into_iter()
        .filter(|change| !is_usage_change(change));
    let (kept_a, kept_b) = (
        normalize::frames(a.frames, a.scope),
        normalize::frames(b.frames, b.scope),
    );
    let (only_a, only_b, changed) = match_frames(&kept_a, &kept_b);
    let numbers = only_a.iter().chain(&only_b).map(|one| one.seq);
    let numbers = numbers.chain(changed.iter().map(|one| one.a.min(one.b)));
    let first = numbers.min().map(|seq| FirstDifference {
        seq,
        a: frame_at(&kept_a, seq),
        b: frame_at(&kept_b, seq),
    });
    Ok(Diff {
        shared: shared_prefix_length(a.frames, b.frames),
        first,
        envelope: changes.collect(),
        steps: steps(fold_a, a.scope, fold_b, b.scope),
        only_a,
        only_b,
        changed,
        used: UsageComparison::of(UsageTotals::of(&seen_a), UsageTotals::of(&seen_b)),
    })
}

fn seen(side: Side<'_>, fold: &EnvelopeFold) -> Result<Envelope, CompareError> {
    let envelope = fold.envelope(side.scope);
    envelope.ok_or_else(|| CompareError::NoChild {
        run: fold.state().stream().name().to_owned(),
        scope: side.scope.to_owned(),
    })
}

/// Returns `true` if a change is one of usage, which is compared apart, in [`UsageComparison`].
fn is_usage_change(change: &ValueDifference) -> bool {
    let mut path = change.path.split('/').skip(1);
    match path.next() {
        Some("totals") => true,
        Some("steps") => {
            let mut rest = path.skip(1);
            match rest.next() {
                Some("metrics") => true,
                Some("items") => rest.nth(1) == Some("metrics"),
                _ => false,
            }
        }
        _ => false,
    }
}

/// Number of frames at the beginning that are the same frames. Each frame's hash covers the one
/// before it.
fn shared_prefix_length(a: &[Frame], b: &[Frame]) -> u64 {
    let same = |(a, b): &(&Frame, &Frame)| a.hash == b.hash && a.hash != Hash::ZERO;
    a.iter().zip(b).take_while(same).count() as u64
}

fn match_frames(
    a: &[NormalizedFrame<'_>],
    b: &[NormalizedFrame<'_>],
) -> (Vec<UnmatchedFrame>, Vec<UnmatchedFrame>, Vec<FrameChange>) {
    let mut by_key: HashMap<&FrameKey, &NormalizedFrame<'_>> =
        b.iter().map(|kept| (&kept.key, kept)).collect();
    let mut only_a = Vec::new();
    let mut changed = Vec::new();
    for one in a {
        match by_key.remove(&one.key) {
            None => only_a.push(unmatched(one)),
            Some(other) if one.frame.hash == other.frame.hash => {}
            Some(other) => {
                let changes = value_diff::diff(&one.data, &other.data);
                if !changes.is_empty() {
                    changed.push(FrameChange {
                        a: one.frame.seq,
                        b: other.frame.seq,
                        key: one.key.clone(),
                        changes,
                    });
                }
            }
        }
    }
    let only_b = b.iter().filter(|kept| by_key.contains_key(&kept.key));
    changed.sort_by(order);
    (only_a, only_b.map(unmatched).collect(), changed)
}

/// The same from either side.
fn order(one: &FrameChange, other: &FrameChange) -> std::cmp::Ordering {
    let place = |changed: &FrameChange| (changed.a.min(changed.b), changed.a.max(changed.b));
    place(one)
        .cmp(&place(other))
        .then_with(|| one.key.cmp(&other.key))
}

fn unmatched(kept: &NormalizedFrame<'_>) -> UnmatchedFrame {
    UnmatchedFrame {
        seq: kept.frame.seq,
        key: kept.key.clone(),
    }
}

fn frame_at(kept: &[NormalizedFrame<'_>], seq: u64) -> Option<ComparedFrame> {
    let at = kept
        .binary_search_by_key(&seq, |kept| kept.frame.seq)
        .ok()?;
    kept.get(at).map(|kept| ComparedFrame {
        key: kept.key.clone(),
        data: kept.data.clone(),
    })
}

fn steps(a: &EnvelopeFold, of_a: &str, b: &EnvelopeFold, of_b: &str) -> Vec<StepStatusChange> {
    let (a, b) = (statuses(a.state(), of_a), statuses(b.state(), of_b));
    let mut paths: Vec<&String> = a.keys().chain(b.keys()).collect();
    paths.sort_unstable();
    paths.dedup();
    let differ = paths
        .into_iter()
        .filter(|path| a.get(*path) != b.get(*path));
    differ
        .map(|path| StepStatusChange {
            step: path.clone(),
            a: a.get(path).map(|status| (*status).to_owned()),
            b: b.get(path).map(|status| (*status).to_owned()),
        })
        .collect()
}

/// The status of every step within a scope, by its path below it.
fn statuses(state: &RunState, outer: &str) -> BTreeMap<String, &'static str> {
    let mut statuses = BTreeMap::new();
    for scope in state.scopes() {
        let Some(below) = normalize::relative(&scope.path, outer) else {
            continue;
        };
        for (plan, step) in scope.shape.plan.steps.iter().zip(&scope.steps) {
            let path = match below {
                "" => plan.id.clone(),
                below => format!("{below}/{}", plan.id),
            };
            statuses.insert(path, step.status.as_str());
        }
    }
    statuses
}

impl UsageTotals {
    fn of(envelope: &Envelope) -> Self {
        let signed = |amount: u64| i64::try_from(amount).unwrap_or(i64::MAX);
        Self {
            cost_micro_usd: signed(envelope.totals.cost_micro_usd),
            llm_calls: signed(envelope.totals.llm_calls),
            tokens_in: signed(envelope.totals.tokens_in),
            tokens_out: signed(envelope.totals.tokens_out),
        }
    }
}

impl UsageComparison {
    fn of(a: UsageTotals, b: UsageTotals) -> Self {
        Self {
            a,
            b,
            difference: UsageTotals {
                cost_micro_usd: b.cost_micro_usd.saturating_sub(a.cost_micro_usd),
                llm_calls: b.llm_calls.saturating_sub(a.llm_calls),
                tokens_in: b.tokens_in.saturating_sub(a.tokens_in),
                tokens_out: b.tokens_out.saturating_sub(a.tokens_out),
            },
        }
    }
}
