//! The scale of a time line: from milliseconds to places, with idle time compressed where wanted.

use crate::time_range::TimeRange;

/// Idle time is compressed where it is longer than this part of the whole.
const LONG_GAP: u64 = 25;
/// The part of the width that a compressed gap takes, at most a third for all of them.
const GAP_WIDTH: f64 = 0.04;

/// A scale over a part of the time of a run, for a drawing of a width of 1.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TimeScale {
    /// Where parts begin: in milliseconds, and as places.
    parts: Vec<(u64, f64)>,
    range: TimeRange,
    /// The gaps that are compressed: begin and end in milliseconds.
    pub(crate) gaps: Vec<(u64, u64)>,
}

impl TimeScale {
    /// Every millisecond is as wide as any other.
    pub(crate) fn even(range: TimeRange) -> Self {
        Self {
            parts: vec![(range.begin_ms(), 0.0)],
            range,
            gaps: Vec::new(),
        }
    }

    /// Long times in which nothing was at work take little room. `busy` are the times of work, in any
    /// order.
    pub(crate) fn compressed(range: TimeRange, busy: &[(u64, u64)]) -> Self {
        let gaps = long_gaps(range, busy);
        if gaps.is_empty() {
            return Self::even(range);
        }
        let left_out: u64 = gaps.iter().map(|(from, until)| until - from).sum();
        let gap_width = GAP_WIDTH.min(1.0 / 3.0 / gaps.len() as f64);
        let work = range.length().saturating_sub(left_out).max(1);
        let per_ms = (1.0 - gap_width * gaps.len() as f64) / work as f64;
        let (mut parts, mut at_ms, mut x) = (Vec::new(), range.begin_ms(), 0.0);
        for (from, until) in &gaps {
            parts.push((at_ms, x));
            x += (from - at_ms) as f64 * per_ms;
            parts.push((*from, x));
            x += gap_width;
            at_ms = *until;
        }
        parts.push((at_ms, x));
        Self { parts, range, gaps }
    }

    /// Where its parts begin and end: in milliseconds, and as places. Between them, it is even.
    pub(crate) fn points(&self) -> impl Iterator<Item = (u64, f64)> {
        let end = (self.range.until_ms(), 1.0);
        self.parts.iter().copied().chain([end])
    }

    /// The place of a moment, from 0 to 1.
    pub(crate) fn at(&self, ms: u64) -> f64 {
        let ms = ms.clamp(self.range.begin_ms(), self.range.until_ms());
        let next = self.parts.partition_point(|(from, _)| *from <= ms);
        let (from, x) = self
            .parts
            .get(next.wrapping_sub(1))
            .copied()
            .unwrap_or_default();
        let (until, end) = self
            .parts
            .get(next)
            .copied()
            .unwrap_or((self.range.until_ms(), 1.0));
        if until <= from {
            return end;
        }
        x + (end - x) * ((ms - from) as f64 / (until - from) as f64)
    }
}

/// The share of a time in which nothing was at work, in percent.
pub(crate) fn idle_percent(range: TimeRange, busy: &[(u64, u64)]) -> f64 {
    let idle: u64 = gaps(range, busy)
        .iter()
        .map(|(from, until)| until - from)
        .sum();
    idle as f64 * 100.0 / range.length() as f64
}

fn long_gaps(range: TimeRange, busy: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut found = gaps(range, busy);
    found.retain(|(from, until)| (until - from).saturating_mul(LONG_GAP) > range.length());
    found
}

/// The times in which nothing was at work, in order.
fn gaps(range: TimeRange, busy: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let end_ms = range.until_ms();
    let mut busy = busy.to_vec();
    busy.sort_unstable();
    let (mut found, mut at_ms) = (Vec::new(), range.begin_ms());
    for (from, until) in busy {
        if from > at_ms {
            found.push((at_ms, from.min(end_ms)));
        }
        at_ms = at_ms.max(until);
    }
    if at_ms < end_ms {
        found.push((at_ms, end_ms));
    }
    found.retain(|(from, until)| from < until);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(end_ms: u64) -> TimeRange {
        TimeRange::whole(end_ms)
    }

    #[test]
    fn an_even_scale_is_a_straight_line() {
        let scale = TimeScale::even(whole(200));
        assert_eq!((scale.at(0), scale.at(50), scale.at(200)), (0.0, 0.25, 1.0));
        assert_eq!(scale.at(900), 1.0, "nothing is beyond the end");
        assert_eq!(TimeScale::even(whole(0)).at(0), 0.0);
    }

    #[test]
    fn a_long_gap_takes_little_room_and_everything_keeps_its_order() {
        let busy = [(112_400, 113_000), (0, 400)];
        let scale = TimeScale::compressed(whole(113_000), &busy);
        assert_eq!(scale.gaps, [(400, 112_400)]);
        let places: Vec<f64> = [0, 200, 400, 60_000, 112_400, 112_700, 113_000]
            .into_iter()
            .map(|ms| scale.at(ms))
            .collect();
        assert!(places.is_sorted(), "{places:?}");
        assert_eq!((places[0], places[6]), (0.0, 1.0));
        let gap = places[4] - places[2];
        assert!((gap - GAP_WIDTH).abs() < 1e-9, "{gap}");
        let work = places[2] / (places[6] - places[4]);
        assert!((work - 400.0 / 600.0).abs() < 1e-9, "{work}");
    }

    #[test]
    fn a_part_of_the_time_has_its_own_gaps() {
        let busy = [(0, 100), (900, 1_000), (9_000, 9_100)];
        let range = TimeRange::new(50, 1_000).unwrap();
        let scale = TimeScale::compressed(range, &busy);
        assert_eq!(scale.gaps, [(100, 900)]);
        assert_eq!(
            (scale.at(0), scale.at(50), scale.at(9_000)),
            (0.0, 0.0, 1.0)
        );
        assert_eq!(
            idle_percent(TimeRange::new(100, 500).unwrap(), &busy),
            100.0
        );
        let points: Vec<u64> = scale.points().map(|(ms, _)| ms).collect();
        assert_eq!(points, [50, 100, 900, 1_000]);
    }

    #[test]
    fn many_gaps_leave_most_of_the_room_to_work() {
        let busy: Vec<_> = (0..20).map(|n| (n * 1_000, n * 1_000 + 1)).collect();
        let scale = TimeScale::compressed(whole(20_000), &busy);
        assert_eq!(scale.gaps.len(), 20);
        let gaps: f64 = scale
            .gaps
            .iter()
            .map(|(a, b)| scale.at(*b) - scale.at(*a))
            .sum();
        assert!(gaps < 0.34, "{gaps}");
    }

    #[test]
    fn idle_is_what_no_work_covers() {
        assert_eq!(
            idle_percent(whole(100), &[(0, 10), (5, 30), (90, 95)]),
            65.0
        );
        assert_eq!(idle_percent(whole(100), &[(0, 100), (10, 20)]), 0.0);
    }
}
