use ktsu_ledger::Hash;
use proptest::prelude::*;

use ktsu_ledger::event::{CheckResult, EvalStatus, LookedAt, Score};

use crate::{rounded, verdict};

fn result(index: u32, weight: f64, score: f64) -> CheckResult {
    let passed = score >= 1.0;
    CheckResult {
        check: "output".to_owned(),
        duration_ms: 0,
        gate: false,
        index,
        looked_at: LookedAt {
            count: 0,
            digest: Hash::ZERO,
            frames: Vec::new(),
        },
        name: format!("n{index}"),
        passed,
        reason: String::new(),
        replica: 0,
        scenario: 0,
        score: Score::new(score),
        status: match passed {
            true => EvalStatus::Passed,
            false => EvalStatus::Failed,
        },
        weight: Score::new(weight),
    }
}

fn results(parts: &[(f64, f64)]) -> Vec<CheckResult> {
    let parts = parts.iter().enumerate();
    let parts = parts.map(|(at, (weight, score))| result(at as u32, *weight, *score));
    parts.collect()
}

fn assert_verdict(parts: &[(f64, f64)], threshold: f64, composite: f64, status: EvalStatus) {
    let found = verdict(&results(parts), threshold);
    assert_eq!(
        (found.composite, found.status),
        (composite, status),
        "{parts:?}"
    );
}

#[test]
fn the_composite_is_the_weighted_mean_of_the_scores() {
    use EvalStatus::{Failed, Passed};
    assert_verdict(&[(1.0, 1.0), (0.3, 0.0)], 0.85, 0.769230769231, Failed);
    let three = |b, c| [(1.0, 1.0), (0.3, b), (0.2, c)];
    assert_verdict(&three(1.0, 0.0), 0.85, 0.866666666667, Passed);
    assert_verdict(&three(0.0, 1.0), 0.85, 0.8, Failed);
}

#[test]
fn a_composite_that_equals_the_threshold_passes() {
    use EvalStatus::Passed;
    assert_verdict(&[(1.0, 1.0), (0.3, 0.0), (0.2, 1.0)], 0.8, 0.8, Passed);
    // In doubles the sum of three tenths is not 0.3, and the quotient is not 0.7.
    assert_verdict(&[(0.1, 1.0); 3], 1.0, 1.0, Passed);
    assert_verdict(&[(0.7, 1.0), (0.1, 0.0), (0.2, 0.0)], 0.7, 0.7, Passed);
    assert_verdict(&[(1.0, 0.0)], 0.0, 0.0, Passed);
}

#[test]
fn a_gate_is_met_only_by_a_score_of_1() {
    let mut results = results(&[(1.0, 0.99), (9.0, 1.0)]);
    results[0].gate = true;
    let found = verdict(&results, 0.5);
    assert_eq!((found.composite, found.status), (0.0, EvalStatus::Failed));
    results[0].score = Score::new(1.0);
    assert_eq!(verdict(&results, 1.0).status, EvalStatus::Passed);
}

#[test]
fn a_check_that_could_not_be_made_is_neither_passed_nor_failed() {
    let mut results = results(&[(1.0, 1.0), (1.0, 0.0)]);
    results[1].status = EvalStatus::Error;
    let found = verdict(&results, 0.5);
    assert_eq!((found.composite, found.status), (0.5, EvalStatus::Error));
}

#[test]
fn sums_go_by_the_index_whatever_the_order_of_the_results() {
    let mut results = results(&[(0.1, 1.0), (0.2, 0.3), (0.3, 0.7), (1e9, 0.5), (1e-9, 0.1)]);
    let before = verdict(&results, 0.5);
    results.reverse();
    assert_eq!(verdict(&results, 0.5), before);
}

#[test]
fn results_that_no_check_gives_have_no_verdict() {
    for (weight, score) in [(1.0, 1.1), (1.0, -0.1), (-1.0, 1.0), (0.0, 1.0)] {
        let found = verdict(&results(&[(weight, score)]), 0.0);
        assert_eq!(found.status, EvalStatus::Error, "{weight} {score}");
    }
    assert_eq!(verdict(&[], 0.0).status, EvalStatus::Error);
}

#[test]
fn ties_are_rounded_to_the_even_digit() {
    // Both are exact in binary, and end in 5 at the thirteenth decimal.
    assert_eq!(rounded(1.0 / 8192.0), 0.000_122_070_312);
    assert_eq!(rounded(3.0 / 8192.0), 0.000_366_210_938);
    assert_eq!(rounded(f64::MIN_POSITIVE), 0.0);
    assert_eq!(rounded(4.9e-13), 0.0);
    assert_eq!(rounded(5.1e-13), 1e-12);
    assert_eq!(rounded(1.0), 1.0);
    assert!(rounded(f64::NAN).is_nan());
}

fn as_written(number: f64) -> f64 {
    format!("{number:.12}").parse().unwrap()
}

proptest! {
    #![proptest_config(ktsu_campaign::config(512))]

    #[test]
    fn a_number_is_rounded_as_exact_decimals_are(number in 0.0..=1.0_f64) {
        prop_assert_eq!(rounded(number), as_written(number));
    }

    #[test]
    fn a_tie_is_rounded_as_exact_decimals_are(odd in 0_u32..4096) {
        let tie = f64::from(odd * 2 + 1) / 8192.0;
        prop_assert_eq!(rounded(tie), as_written(tie));
    }

    #[test]
    fn a_small_number_is_rounded_as_exact_decimals_are(bits in 0_u64..0x3ff0_0000_0000_0000) {
        let number = f64::from_bits(bits);
        prop_assert_eq!(rounded(number), as_written(number));
    }

    #[test]
    fn a_result_reads_back_as_it_is_written(score in 0.0..=1.0_f64, weight in 0.0..9.0_f64) {
        let result = result(3, weight, score);
        let text = serde_json::to_string(&result).unwrap();
        prop_assert_eq!(&serde_json::from_str::<CheckResult>(&text).unwrap(), &result);
    }
}
