//! The composite score of a scenario, and its verdict (decisions V2 and V4).

use ktsu_ledger::event::{CheckResult, EvalStatus};

/// The verdict on a scenario.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScenarioVerdict {
    /// The status of the scenario.
    pub status: EvalStatus,
    /// The composite score, rounded to 12 decimals. A check that could not be made counts as 0.
    pub composite: f64,
}

/// The verdict that follows from results, in the order of their index.
pub fn verdict<'r>(
    results: impl IntoIterator<Item = &'r CheckResult>,
    pass_threshold: f64,
) -> ScenarioVerdict {
    let mut ordered: Vec<&CheckResult> = results.into_iter().collect();
    ordered.sort_by_key(|result| result.index);
    let composite = composite(&ordered);
    let is_error = |result: &&CheckResult| result.status == EvalStatus::Error;
    let status = match composite {
        _ if ordered.iter().any(is_error) => EvalStatus::Error,
        None => EvalStatus::Error,
        Some(_) if !meets_gates(&ordered) => EvalStatus::Failed,
        Some(composite) if composite >= pass_threshold => EvalStatus::Passed,
        Some(_) => EvalStatus::Failed,
    };
    ScenarioVerdict {
        status,
        composite: composite.unwrap_or(0.0),
    }
}

/// The rounded composite; none where scores or weights are not what a spec and a check can give.
fn composite(ordered: &[&CheckResult]) -> Option<f64> {
    let (mut sum, mut total) = (0.0_f64, 0.0_f64);
    for result in ordered {
        let (weight, score) = (result.weight.get(), result.score.get());
        if !(0.0..=1.0).contains(&score) || weight < 0.0 {
            return None;
        }
        sum += weight * score;
        total += weight;
    }
    if !total.is_finite() || total <= 0.0 {
        return None;
    }
    Some(match meets_gates(ordered) {
        true => rounded(sum / total),
        false => 0.0,
    })
}

/// Returns `true` if every gate has score 1: a scenario fails without, whatever its threshold (seed
/// 003).
fn meets_gates(ordered: &[&CheckResult]) -> bool {
    let mut gates = ordered.iter().filter(|result| result.gate);
    gates.all(|gate| gate.score.get() >= 1.0)
}

/// A number from 0 to 1, its exact binary value rounded to 12 decimals, half to even. Anything else
/// is returned as it is.
pub fn rounded(number: f64) -> f64 {
    const UNITS: u128 = 1_000_000_000_000;
    if !(0.0..=1.0).contains(&number) {
        return number;
    }
    // The number is mantissa / 2^shift, exactly; the mantissa has 53 bits, so the product has 93.
    let bits = number.to_bits();
    let exponent = bits >> 52;
    let mantissa = bits & ((1 << 52) - 1);
    let (mantissa, shift) = match exponent {
        0 => (mantissa, 1_074),
        _ => (mantissa | 1 << 52, 1_075 - exponent),
    };
    let product = u128::from(mantissa) * UNITS;
    // Everything below half a unit is 0.
    if shift > 95 {
        return 0.0;
    }
    let (whole, rest) = (product >> shift, product & ((1 << shift) - 1));
    let half = 1_u128 << (shift - 1);
    let is_up = rest > half || (rest == half && whole & 1 == 1);
    let units = u64::try_from(whole + u128::from(is_up)).unwrap_or_default();
    // Both are exact, and division rounds to the nearest: the number that the decimals read as.
    #[expect(clippy::cast_precision_loss, reason = "at most 10^12, which is exact")]
    let number = units as f64 / 1e12;
    number
}
