//! The ended runs that are due for removal.
//!
//! A family goes together: a run, the branches that were forked from it, from those, and so on, and
//! the recomputes of any of them. A branch reads the frames of its parent, and the evidence of a run
//! includes what was forked and recomputed from it. So nothing of a family is due before all of it
//! is, and its children are removed before their parents. Evals go with the run that they are about,
//! however young they are: checking a run does not make it be kept longer.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ktsu_ledger::event::StoreEvent;
use ktsu_ledger::{StreamId, Timestamp};

use crate::index::RunRow;
use crate::run::RunStatus;

/// The times for which ended runs are kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RetentionLimits {
    /// Runs that are complete, in days; `None`: for ever.
    pub complete_days: Option<u32>,
    /// Runs that failed or were cancelled, in days; `None`: for ever.
    pub failed_days: Option<u32>,
}

const DAY_MICROS: u64 = 24 * 60 * 60 * 1_000_000;

impl RetentionLimits {
    /// The shortest limit, in microseconds; `None` if nothing is ever due.
    pub fn least_us(&self) -> Option<u64> {
        let days = self.complete_days.into_iter().chain(self.failed_days);
        days.min().map(|days| u64::from(days) * DAY_MICROS)
    }

    /// Returns `true` if a run ended longer ago than its limit. A run that has not ended is never
    /// due.
    fn admits(&self, run: &EndedRun, now: Timestamp) -> bool {
        let days = match run.status {
            Some(RunStatus::Complete) => self.complete_days,
            Some(RunStatus::Failed | RunStatus::Cancelled) => self.failed_days,
            Some(RunStatus::Pending | RunStatus::Running | RunStatus::Waiting) | None => None,
        };
        let (Some(days), Some(ended)) = (days, run.ended_at) else {
            return false;
        };
        let age_us = now.as_micros().saturating_sub(ended.as_micros());
        age_us >= u64::from(days) * DAY_MICROS
    }
}

/// The facts by which a run, a branch, a recompute or an eval is due for removal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedRun {
    /// Its stream.
    pub stream: StreamId,
    /// Its status; nothing of an eval, and of a run that cannot be read, which is never due.
    pub status: Option<RunStatus>,
    /// Time at which it ended, if it has.
    pub ended_at: Option<Timestamp>,
    /// The stream that it was forked from, or is a recompute or a verdict of.
    pub parent: Option<StreamId>,
    /// Of an eval, every run that it judges: a hold on one of them keeps it.
    pub judges: Vec<StreamId>,
}

impl EndedRun {
    /// An eval, once for each run that it judges: it goes with the first of them that is removed,
    /// since its reasons may quote any of their outputs.
    pub fn evals(stream: &StreamId, runs: &BTreeSet<StreamId>) -> Vec<Self> {
        let of_run = |run: &StreamId| Self {
            stream: stream.clone(),
            status: None,
            ended_at: None,
            parent: Some(run.clone()),
            judges: runs.iter().cloned().collect(),
        };
        runs.iter().map(of_run).collect()
    }

    /// The status as the record of a removal names it.
    pub fn status_name(&self) -> &'static str {
        self.status.map_or("eval", RunStatus::as_str)
    }

    fn is_eval(&self) -> bool {
        self.stream.is_eval()
    }

    /// The facts in the row of a list. `of`: the run that a recompute is of, which its row does not
    /// say.
    pub fn of_row(stream: &StreamId, row: &RunRow, of: Option<StreamId>) -> Self {
        let parent = row.parent_run_id.as_deref();
        Self {
            stream: stream.clone(),
            status: RunStatus::named(&row.status),
            ended_at: row.ended_at,
            parent: of.or_else(|| parent.and_then(|parent| StreamId::run(parent).ok())),
            judges: Vec::new(),
        }
    }
}

/// Branches, recomputes and evals by the run at the top of their family, children before their parents.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Families(BTreeMap<StreamId, Vec<EndedRun>>);

impl Families {
    /// Sorts children into families. Whoever has a parent that is not among them belongs to that
    /// parent's family, or begins one if it names no parent.
    pub fn of(children: Vec<EndedRun>) -> Self {
        let known: BTreeSet<StreamId> = children.iter().map(|one| one.stream.clone()).collect();
        let mut families: BTreeMap<StreamId, Vec<EndedRun>> = BTreeMap::new();
        let mut below: BTreeMap<StreamId, Vec<EndedRun>> = BTreeMap::new();
        let mut open: VecDeque<(StreamId, EndedRun)> = VecDeque::new();
        for child in children {
            match child.parent.clone() {
                Some(parent) if known.contains(&parent) => {
                    below.entry(parent).or_default().push(child);
                }
                Some(parent) => open.push_back((parent, child)),
                None => open.push_back((child.stream.clone(), child)),
            }
        }
        while let Some((root, child)) = open.pop_front() {
            let next = below.remove(&child.stream).unwrap_or_default();
            open.extend(next.into_iter().map(|next| (root.clone(), next)));
            families.entry(root).or_default().push(child);
        }
        for members in families.values_mut() {
            members.reverse();
        }
        Self(families)
    }

    /// The runs at the top of families.
    pub fn roots(&self) -> impl Iterator<Item = &StreamId> {
        self.0.keys()
    }

    /// The children of a run, theirs before them.
    fn below(&self, root: &StreamId) -> &[EndedRun] {
        self.0.get(root).map_or(&[], Vec::as_slice)
    }

    /// The runs to be removed with a run, in this order and the run itself last; nothing unless all
    /// of it is due and none of it is held. `root` is absent if the top of the family is not
    /// recorded.
    pub fn due(
        &self,
        name: &StreamId,
        root: Option<&EndedRun>,
        held: &Holds,
        limits: RetentionLimits,
        now: Timestamp,
    ) -> Vec<EndedRun> {
        let below = self.below(name);
        let of_root = root.filter(|root| below.iter().all(|one| one.stream != root.stream));
        let members: Vec<&EndedRun> = below.iter().chain(of_root).collect();
        let is_due = |one: &&EndedRun| {
            let mut named = std::iter::once(&one.stream).chain(&one.judges);
            (one.is_eval() || limits.admits(one, now)) && !named.any(|it| held.0.contains(it))
        };
        match members.iter().all(is_due) {
            true => members.into_iter().cloned().collect(),
            false => Vec::new(),
        }
    }
}

/// The runs under legal hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Holds(BTreeSet<StreamId>);

impl Holds {
    /// Takes a fact of the stream `store`.
    pub fn apply(&mut self, event: &StoreEvent) {
        if let StoreEvent::HoldPlaced(hold) = event {
            self.0.insert(hold.stream.clone());
        } else if let StoreEvent::HoldLifted(hold) = event {
            self.0.remove(&hold.stream);
        }
    }

    /// Returns `true` if a run is held.
    pub fn contains(&self, stream: &StreamId) -> bool {
        self.0.contains(stream)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use ktsu_ledger::event::{HoldLifted, HoldPlaced, Principal};

    use super::*;

    const LIMITS: RetentionLimits = RetentionLimits {
        complete_days: Some(10),
        failed_days: Some(30),
    };

    fn at(day: u64) -> Timestamp {
        Timestamp::from_micros(day * DAY_MICROS)
    }

    fn run(name: &str, status: &str, ended: Option<u64>, parent: Option<&str>) -> EndedRun {
        EndedRun {
            stream: StreamId::run(name).unwrap(),
            status: RunStatus::named(status),
            ended_at: ended.map(at),
            parent: parent.map(|parent| StreamId::run(parent).unwrap()),
            judges: Vec::new(),
        }
    }

    fn due(root: &EndedRun, children: Vec<EndedRun>, held: &Holds, now: u64) -> Vec<String> {
        let families = Families::of(children);
        let due = families.due(&root.stream, Some(root), held, LIMITS, at(now));
        due.iter().map(|one| one.stream.name().to_owned()).collect()
    }

    #[test]
    fn a_run_is_due_when_it_ended_longer_ago_than_the_limit_of_its_status() {
        for (status, ended, now, expected) in [
            ("complete", Some(100), 109, false),
            ("complete", Some(100), 110, true),
            ("failed", Some(100), 129, false),
            ("failed", Some(100), 130, true),
            ("cancelled", Some(100), 130, true),
            // A clock that went back removes nothing.
            ("complete", Some(100), 50, false),
            ("complete", None, 1000, false),
            ("waiting", Some(100), 1000, false),
            ("running", None, 1000, false),
            ("pending", None, 1000, false),
            ("unreadable", Some(100), 1000, false),
        ] {
            let root = run("run_a", status, ended, None);
            let found = due(&root, Vec::new(), &Holds::default(), now);
            assert_eq!(!found.is_empty(), expected, "{status} {ended:?} {now}");
        }
    }

    #[test]
    fn an_eval_goes_with_its_run_and_does_not_keep_it() {
        let root = run("run_a", "complete", Some(100), None);
        let name = |text: &str| text.parse::<StreamId>().unwrap();
        let of = |runs: &[&str]| {
            let runs = runs.iter().map(|run| name(run)).collect();
            EndedRun::evals(&name("eval:eval_a"), &runs)
        };
        let eval = || of(&["run:run_a"]);
        let due_at = |now| due(&root, eval(), &Holds::default(), now);
        assert_eq!(due_at(109), Vec::<String>::new());
        assert_eq!(due_at(110), ["eval_a", "run_a"]);
        let mut held = Holds::default();
        held.0.insert(name("run:run_a"));
        assert_eq!(due(&root, eval(), &held, 110), Vec::<String>::new());
        // One of several runs goes with the first of them, unless another is held.
        let two = || of(&["run:run_a", "run:run_b"]);
        assert_eq!(
            due(&root, two(), &Holds::default(), 110),
            ["eval_a", "run_a"]
        );
        let mut other = Holds::default();
        other.0.insert(name("run:run_b"));
        assert_eq!(due(&root, two(), &other, 110), Vec::<String>::new());
        // One that outlived its run goes alone.
        let families = Families::of(eval());
        let left = families.due(&name("run:run_a"), None, &Holds::default(), LIMITS, at(110));
        assert_eq!(left, eval());
    }

    #[test]
    fn without_a_limit_nothing_is_due() {
        let root = run("run_a", "failed", Some(0), None);
        let limits = RetentionLimits {
            complete_days: Some(1),
            failed_days: None,
        };
        let families = Families::default();
        let due = families.due(
            &root.stream,
            Some(&root),
            &Holds::default(),
            limits,
            at(9999),
        );
        assert!(due.is_empty());
        assert_eq!(RetentionLimits::default().least_us(), None);
        assert_eq!(limits.least_us(), Some(DAY_MICROS));
    }

    #[test]
    fn a_family_goes_together_children_first() {
        let root = run("run_a", "complete", Some(0), None);
        let children = |last: &str, ended| {
            vec![
                run("branch_b", "complete", Some(5), Some("run_a")),
                run("branch_c", last, ended, Some("branch_b")),
                run("recompute_d", "complete", Some(5), Some("branch_c")),
                run("branch_x", "running", None, Some("run_other")),
            ]
        };
        let none = Holds::default();
        let found = due(&root, children("complete", Some(6)), &none, 100);
        assert_eq!(found, ["recompute_d", "branch_c", "branch_b", "run_a"]);
        for (status, ended) in [
            ("complete", Some(95)),
            ("waiting", None),
            ("failed", Some(80)),
        ] {
            assert!(due(&root, children(status, ended), &none, 100).is_empty());
        }
    }

    #[test]
    fn children_of_each_other_are_never_due() {
        let children = vec![
            run("branch_b", "complete", Some(0), Some("branch_c")),
            run("branch_c", "complete", Some(0), Some("branch_b")),
        ];
        assert_eq!(Families::of(children).roots().count(), 0);
    }

    #[test]
    fn a_recompute_of_nothing_recorded_is_a_family_of_its_own() {
        let alone = run("recompute_b", "complete", Some(0), None);
        let families = Families::of(vec![alone.clone()]);
        let root = families.roots().next().unwrap();
        let due = families.due(root, None, &Holds::default(), LIMITS, at(100));
        assert_eq!(due, [alone]);
    }

    #[test]
    fn a_hold_keeps_a_run_and_its_whole_family_until_it_is_lifted() {
        let root = run("run_a", "complete", Some(0), None);
        let child = run("branch_b", "complete", Some(0), Some("run_a"));
        let by = Principal {
            auth: "token".to_owned(),
            id: "ada".to_owned(),
        };
        for stream in [&root.stream, &child.stream] {
            let (stream, reason) = (stream.clone(), "a dispute".to_owned());
            let mut holds = Holds::default();
            holds.apply(&StoreEvent::HoldPlaced(HoldPlaced {
                by: by.clone(),
                reason: reason.clone(),
                stream: stream.clone(),
            }));
            assert!(holds.contains(&stream));
            assert!(due(&root, vec![child.clone()], &holds, 100).is_empty());
            holds.apply(&StoreEvent::HoldLifted(HoldLifted {
                by: by.clone(),
                reason,
                stream,
            }));
            assert_eq!(due(&root, vec![child.clone()], &holds, 100).len(), 2);
        }
    }

    #[test]
    fn a_million_forks_of_forks_are_one_family() {
        let name = |at: u32| match at {
            0 => "run_0".to_owned(),
            at => format!("branch_{at:07}"),
        };
        let children = (1..=1_000_000)
            .rev()
            .map(|at| run(&name(at), "complete", Some(0), Some(&name(at - 1))));
        let root = run("run_0", "complete", Some(0), None);
        let found = due(&root, children.collect(), &Holds::default(), 100);
        assert_eq!(found.len(), 1_000_001);
        assert_eq!(found.first(), Some(&name(1_000_000)));
    }
}
