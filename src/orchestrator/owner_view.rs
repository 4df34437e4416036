//! What a standby knows of the owner of its ledger.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ktsu_ledger::LedgerOwner;
use ktsu_ledger::store::OwnerSight;
use parking_lot::Mutex;

/// The last look of a standby at the owner. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct OwnerView {
    /// True if clients are referred to the owner.
    refers: bool,
    last: Arc<Mutex<Option<LastSight>>>,
}

#[derive(Debug)]
struct LastSight {
    sight: OwnerSight,
    at: Instant,
    /// The highest position of all looks.
    longest: u64,
    /// Set once it was shorter than that.
    shorter: Option<ShorterLedger>,
}

/// The owner of a ledger, as its standby shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenOwner {
    /// The process, if one owns the ledger.
    pub owner: Option<LedgerOwner>,
    /// How far the ledger has grown.
    pub position: u64,
    /// The time since the server of the ledger answered.
    pub age: Duration,
}

/// A ledger that lacks frames which it had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the ledger ends at position {now} and ended at {before} before: frames that were acknowledged are missing"
)]
pub struct ShorterLedger {
    now: u64,
    before: u64,
}

impl OwnerView {
    /// Nothing is seen yet. `refers`: whether clients that change something are referred to the owner, by its
    /// URL.
    pub fn new(refers: bool) -> Self {
        Self {
            refers,
            last: Arc::default(),
        }
    }

    /// Notes a look at the ledger.
    ///
    /// # Errors
    /// [`ShorterLedger`]; from then on it is not to be taken over.
    pub fn note(&self, sight: OwnerSight) -> Result<(), ShorterLedger> {
        let mut last = self.last.lock();
        let before = last.as_ref().map_or(0, |last| last.longest);
        let now = sight.position;
        let shorter = last.as_ref().and_then(|last| last.shorter);
        let shorter = shorter.or_else(|| (now < before).then_some(ShorterLedger { now, before }));
        *last = Some(LastSight {
            sight,
            at: Instant::now(),
            longest: before.max(now),
            shorter,
        });
        shorter.map_or(Ok(()), Err)
    }

    /// The owner, once it was looked at.
    pub fn latest(&self) -> Option<SeenOwner> {
        let last = self.last.lock();
        last.as_ref().map(|last| SeenOwner {
            owner: last.sight.owner.clone(),
            position: last.sight.position,
            age: last.at.elapsed(),
        })
    }

    /// The URL that clients are referred to.
    pub fn referral(&self) -> Option<String> {
        self.latest().filter(|_| self.refers)?.owner?.url
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sight(position: u64, url: Option<&str>) -> OwnerSight {
        OwnerSight {
            owner: Some(LedgerOwner {
                name: "process 7".to_owned(),
                url: url.map(str::to_owned),
            }),
            is_free: false,
            position,
        }
    }

    #[test]
    fn a_ledger_that_is_shorter_than_at_any_look_before_is_not_taken_over() {
        let view = OwnerView::default();
        assert_eq!(view.note(sight(7, None)), Ok(()));
        assert_eq!(view.note(sight(9, None)), Ok(()));
        let shorter = view.note(sight(8, None)).unwrap_err();
        assert_eq!((shorter.now, shorter.before), (8, 9));
        let later = view.note(sight(10, None));
        assert_eq!(later, Err(shorter), "what grew since is something else");
    }

    #[test]
    fn clients_are_referred_to_the_owner_only_where_that_is_wanted_and_its_url_is_known() {
        let url = Some("https://engine.example:5050");
        for (refers, named, referral) in [(true, url, url), (true, None, None), (false, url, None)]
        {
            let view = OwnerView::new(refers);
            assert_eq!(view.referral(), None, "nothing is seen yet");
            view.note(sight(1, named)).unwrap();
            assert_eq!(view.referral().as_deref(), referral);
        }
    }
}
