//! The reasons why an eval cancels runs, as the runs record them.

/// It waits for a person.
pub(super) const WAITING: &str = "an eval has no answer for it";

/// It takes too long.
pub(super) const TIMEOUT: &str = "it takes longer than the limit of its eval";

/// It is begun anew.
pub(super) const BEGUN_ANEW: &str = "an eval was resumed";

/// The reason why there is no verdict on a run that was stopped for a recorded reason; none if it
/// is judged: it ended by itself, or a person ended it, even if the eval was about to cancel it.
pub(super) fn without_verdict(recorded: Option<&str>) -> Option<&'static str> {
    match recorded? {
        WAITING => Some("waiting"),
        TIMEOUT => Some("timeout"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{BEGUN_ANEW, TIMEOUT, WAITING, without_verdict};

    #[test]
    fn only_a_run_that_the_eval_has_cancelled_is_without_a_verdict() {
        assert_eq!(without_verdict(Some(TIMEOUT)), Some("timeout"));
        assert_eq!(without_verdict(Some(WAITING)), Some("waiting"));
        let others = [None, Some("not needed any more"), Some(BEGUN_ANEW)];
        assert_eq!(others.map(without_verdict), [None; 3]);
    }
}
