//! A part of the time of a run, and the parts beside it, within it and around it.

/// A part of the time of a run, in milliseconds since it was created. It is never empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeRange {
    from_ms: u64,
    until_ms: u64,
}

impl TimeRange {
    /// From one moment to a later one; none if it is not later.
    pub fn new(from_ms: u64, until_ms: u64) -> Option<Self> {
        (from_ms < until_ms).then_some(Self { from_ms, until_ms })
    }

    /// The whole of a run; of one that took no time, its first millisecond.
    pub(crate) fn whole(end_ms: u64) -> Self {
        Self {
            from_ms: 0,
            until_ms: end_ms.max(1),
        }
    }

    /// What a step took, with a little time before and after it.
    pub(crate) fn around(from_ms: u64, until_ms: u64) -> Self {
        let beside = (until_ms.saturating_sub(from_ms) / 20).max(1);
        Self {
            from_ms: from_ms.saturating_sub(beside),
            until_ms: until_ms.max(from_ms).saturating_add(beside),
        }
    }

    pub(crate) fn begin_ms(self) -> u64 {
        self.from_ms
    }

    pub(crate) fn until_ms(self) -> u64 {
        self.until_ms
    }

    pub(crate) fn length(self) -> u64 {
        self.until_ms - self.from_ms
    }

    /// Returns `true` if something that took a time was not yet, or not any more, within the range.
    pub(crate) fn leaves_out(self, from_ms: u64, until_ms: u64) -> bool {
        from_ms > self.until_ms || until_ms < self.from_ms
    }

    /// Twice as much of a run, around the same middle; none if that is all of it.
    pub(crate) fn wider(self, end_ms: u64) -> Option<Self> {
        let half = self.length().div_ceil(2);
        let wider = Self {
            from_ms: self.from_ms.saturating_sub(half),
            until_ms: self.until_ms.saturating_add(half).min(end_ms.max(1)),
        };
        (wider.from_ms < wider.until_ms && wider != Self::whole(end_ms)).then_some(wider)
    }

    /// As much of the run that begins half of it earlier; none where nothing is earlier.
    pub(crate) fn earlier(self) -> Option<Self> {
        let by = self.length().div_ceil(2).min(self.from_ms);
        (by > 0).then(|| Self {
            from_ms: self.from_ms - by,
            until_ms: self.until_ms - by,
        })
    }

    /// As much of the run that begins half of it later; none where nothing is later.
    pub(crate) fn later(self, end_ms: u64) -> Option<Self> {
        let by = self.length().div_ceil(2);
        let by = by.min(end_ms.saturating_sub(self.until_ms));
        (by > 0).then(|| Self {
            from_ms: self.from_ms + by,
            until_ms: self.until_ms + by,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(from_ms: u64, until_ms: u64) -> TimeRange {
        TimeRange::new(from_ms, until_ms).unwrap()
    }

    #[test]
    fn a_range_is_never_empty() {
        assert_eq!(TimeRange::new(5, 5), None);
        assert_eq!(TimeRange::new(6, 5), None);
        assert_eq!(TimeRange::whole(0).length(), 1);
        assert_eq!(TimeRange::around(7, 7), range(6, 8));
        assert_eq!(TimeRange::around(0, 100), range(0, 105));
    }

    #[test]
    fn ranges_beside_it_are_as_long_and_stay_within_the_run() {
        assert_eq!(range(100, 200).earlier(), Some(range(50, 150)));
        assert_eq!(range(10, 110).earlier(), Some(range(0, 100)));
        assert_eq!(range(0, 100).earlier(), None);
        assert_eq!(range(100, 200).later(1_000), Some(range(150, 250)));
        assert_eq!(range(850, 950).later(1_000), Some(range(900, 1_000)));
        assert_eq!(range(900, 1_000).later(1_000), None);
        // What lies beyond the end has nothing later.
        assert_eq!(range(5_000, u64::MAX).later(1_000), None);
    }

    #[test]
    fn a_wider_range_has_twice_the_time_and_at_last_the_whole_run() {
        assert_eq!(range(100, 200).wider(1_000), Some(range(50, 250)));
        assert_eq!(range(0, 100).wider(1_000), Some(range(0, 150)));
        assert_eq!(range(200, 900).wider(1_000), None);
        assert_eq!(range(5_000, u64::MAX).wider(1_000), None);
    }
}
