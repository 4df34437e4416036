//! The progress of an eval: the run that is judged next, and the totals of the scenarios so far.

use ktsu_ledger::event::{
    EvalFinished, EvalStatus, EvalSuite, ReplicaTotals, ScenarioAggregated, ScenarioFinished, Score,
};

use crate::aggregate::aggregated;

/// The verdicts of an eval so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tally {
    suite: Option<EvalSuite>,
    /// The composite at which a replica passes.
    pass_threshold: Score,
    /// The replicas of a scenario that has no verdict yet, each with the number of its frame.
    open: Vec<(u64, ScenarioFinished)>,
    totals: EvalFinished,
    /// The frames with the verdicts on scenarios.
    verdicts: Vec<u64>,
}

impl Tally {
    pub(crate) fn new(suite: Option<EvalSuite>, pass_threshold: Score) -> Self {
        let has_several = suite.as_ref().is_some_and(|suite| suite.replicas > 1);
        Self {
            suite,
            pass_threshold,
            open: Vec::new(),
            totals: EvalFinished {
                replicas: has_several.then(ReplicaTotals::default),
                ..EvalFinished::default()
            },
            verdicts: Vec::new(),
        }
    }

    /// The scenario and the replica that are judged next; none if what is next is a verdict on the
    /// replicas of a scenario.
    pub(crate) fn next_run(&self) -> Option<(u32, u32)> {
        let replica = u32::try_from(self.open.len()).unwrap_or(u32::MAX);
        self.aggregated()
            .is_none()
            .then_some((self.totals.scenarios, replica))
    }

    /// The composite at which a replica passes.
    pub(crate) fn pass_threshold(&self) -> f64 {
        self.pass_threshold.get()
    }

    /// Takes the verdict on the next run.
    pub(crate) fn add(&mut self, seq: u64, finished: ScenarioFinished) {
        match &mut self.totals.replicas {
            Some(replicas) => {
                replicas.add(finished.status);
                self.open.push((seq, finished));
            }
            None => self.count(seq, finished.status, false),
        }
    }

    /// The verdict on a scenario all of whose replicas have been judged.
    pub(crate) fn aggregated(&self) -> Option<ScenarioAggregated> {
        let suite = self.suite.as_ref().filter(|suite| suite.replicas > 1)?;
        let replicas = self.open.iter().map(|(_, finished)| finished);
        let threshold = self.pass_threshold.get();
        let is_whole = self.open.len() == suite.replicas as usize;
        is_whole.then(|| aggregated(replicas, suite.aggregation, threshold))
    }

    /// Takes the verdict on a scenario.
    pub(crate) fn close(&mut self, seq: u64, verdict: &ScenarioAggregated) {
        self.open.clear();
        self.count(seq, verdict.status, verdict.flaky);
    }

    fn count(&mut self, seq: u64, status: EvalStatus, is_flaky: bool) {
        let totals = &mut self.totals;
        totals.scenarios += 1;
        totals.flaky += u32::from(is_flaky);
        match status {
            EvalStatus::Passed => totals.passed += 1,
            EvalStatus::Failed => totals.failed += 1,
            EvalStatus::Error => totals.errors += 1,
        }
        self.verdicts.push(seq);
    }

    /// The frames with the verdicts on the replicas of the scenario that has none yet.
    pub(crate) fn open(&self) -> impl Iterator<Item = u64> {
        self.open.iter().map(|(seq, _)| *seq)
    }

    /// The frames with the verdicts on scenarios.
    pub(crate) fn verdicts(&self) -> impl Iterator<Item = u64> {
        self.verdicts.iter().copied()
    }

    /// The totals of the scenarios so far.
    pub(crate) fn totals(&self) -> EvalFinished {
        self.totals
    }

    /// Returns `true` if every scenario has a verdict.
    pub(crate) fn is_whole(&self) -> bool {
        let expected = self.suite.as_ref().map(|suite| suite.scenarios);
        self.open.is_empty() && expected.is_none_or(|expected| expected == self.totals.scenarios)
    }
}
