//! The verdict on a scenario from those on its replicas (seed 003, decision V5).

use ktsu_ledger::event::{
    EvalStatus, EvalSuite, PassEstimate, ReplicaAggregation, ReplicaTotals, ScenarioAggregated,
    ScenarioFinished, Score,
};

use crate::score::rounded;
use crate::suite::MAX_REPLICAS;

/// Returns `true` if the replicas of a suite can be aggregated: as many as a spec may have, and no
/// more drawn of them than there are.
pub(crate) fn is_possible(suite: &EvalSuite) -> bool {
    let drawn = match suite.aggregation {
        ReplicaAggregation::AtLeast(k) => k,
        ReplicaAggregation::PassAt(estimate) | ReplicaAggregation::PassHat(estimate) => estimate.k,
        ReplicaAggregation::All
        | ReplicaAggregation::Any
        | ReplicaAggregation::Majority
        | ReplicaAggregation::Mean => 1,
    };
    (1..=MAX_REPLICAS).contains(&suite.replicas) && (1..=suite.replicas).contains(&drawn)
}

/// The verdict on a scenario, from those on all of its replicas, in their order.
pub(crate) fn aggregated<'r>(
    replicas: impl IntoIterator<Item = &'r ScenarioFinished>,
    aggregation: ReplicaAggregation,
    pass_threshold: f64,
) -> ScenarioAggregated {
    let (mut totals, mut sum, mut scenario) = (ReplicaTotals::default(), 0.0_f64, 0);
    for replica in replicas {
        totals.add(replica.status);
        sum += replica.composite.get();
        scenario = replica.scenario;
    }
    let (passed, all) = (totals.passed, totals.all());
    let composite = rounded(sum / f64::from(all.max(1)));
    let (passes, estimate) = match aggregation {
        ReplicaAggregation::All => (passed == all, None),
        ReplicaAggregation::Any => (passed > 0, None),
        ReplicaAggregation::Majority => (u64::from(passed) * 2 > u64::from(all), None),
        ReplicaAggregation::Mean => (composite >= pass_threshold, None),
        ReplicaAggregation::AtLeast(least) => (passed >= least, None),
        ReplicaAggregation::PassAt(asked) => {
            let no_pass = drawn_from(all - passed, all, asked.k);
            at(asked, 1.0 - no_pass)
        }
        ReplicaAggregation::PassHat(asked) => at(asked, drawn_from(passed, all, asked.k)),
    };
    let status = match passes {
        _ if totals.errors > 0 || all == 0 => EvalStatus::Error,
        true => EvalStatus::Passed,
        false => EvalStatus::Failed,
    };
    ScenarioAggregated {
        composite: Score::new(composite),
        estimate: estimate.map(Score::new),
        flaky: totals.passed > 0 && totals.failed > 0,
        passed: status == EvalStatus::Passed,
        replicas: totals,
        scenario,
        status,
    }
}

/// True if an estimate reaches its threshold, and the estimate.
fn at(asked: PassEstimate, estimate: f64) -> (bool, Option<f64>) {
    let estimate = rounded(estimate);
    (estimate >= asked.threshold.get(), Some(estimate))
}

/// The probability that `k` of `all`, drawn without putting them back, are all of the `some`:
/// C(some, k) / C(all, k), factor by factor.
fn drawn_from(some: u32, all: u32, k: u32) -> f64 {
    let drawn = 0..k.min(all);
    drawn.fold(1.0, |product, at| {
        let left = some.saturating_sub(at);
        product * (f64::from(left) / f64::from(all - at))
    })
}
