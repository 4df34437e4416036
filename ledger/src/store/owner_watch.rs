//! What a ledger on a server shows of its owner, and the wait until nothing owns it.

use std::thread::sleep;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::holder::Holder;
use super::lease::LEASE;
use super::{LedgerOwner, OwnerSight, StoreError};
use crate::place::OwnError;

/// The time between two looks at an owner.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// What a ledger shows of its owner.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OwnerState {
    /// How often its owner has changed.
    pub epoch: u64,
    /// Rises with every append.
    pub head: u64,
    /// Rises whenever the owner renews its ownership.
    pub beat: u64,
    /// The text of a [`Holder`]; empty if nothing owns the ledger.
    pub holder: String,
    /// The URL at which the owner listens; empty if it does not.
    pub url: String,
}

impl OwnerState {
    /// The owner; `None` if there is none, or this machine knows that it has ended.
    pub fn owner(&self) -> Option<LedgerOwner> {
        let holder: Holder = self.holder.parse().ok()?;
        (!holder.has_ended()).then(|| LedgerOwner {
            name: holder.name(),
            url: Some(self.url.clone()).filter(|url| !url.is_empty()),
        })
    }

    /// Returns `true` if the owner has done something since.
    fn has_changed_since(&self, earlier: &Self) -> bool {
        (self.epoch, self.head, self.beat) != (earlier.epoch, earlier.head, earlier.beat)
    }
}

/// What a process has seen of an owner, and for how long it is the same.
#[derive(Debug, Default)]
pub struct OwnerWatch {
    seen: Mutex<Option<(OwnerState, Instant)>>,
}

impl OwnerWatch {
    /// Returns `true` if another process may become the owner after this state, which was read just now.
    pub fn is_free(&self, state: &OwnerState) -> bool {
        self.is_free_at(state, Instant::now())
    }

    fn is_free_at(&self, state: &OwnerState, now: Instant) -> bool {
        let mut seen = self.seen.lock();
        let since = match &*seen {
            Some((before, since)) if !state.has_changed_since(before) => *since,
            Some(_) | None => {
                *seen = Some((state.clone(), now));
                now
            }
        };
        state.owner().is_none() || now.duration_since(since) >= LEASE
    }

    /// What a process sees that waits for its turn, of this state, which was read just now.
    pub fn sight(&self, state: &OwnerState) -> OwnerSight {
        OwnerSight {
            owner: state.owner(),
            is_free: self.is_free(state),
            position: state.head,
        }
    }

    /// The state of a ledger that nothing owns, or whose owner has done nothing for a whole lease.
    ///
    /// # Errors
    /// [`OwnError::Held`] as soon as an owner does something; those of the look.
    pub fn wait(
        &self,
        look: &dyn Fn() -> Result<OwnerState, StoreError>,
    ) -> Result<OwnerState, OwnError> {
        let first = look()?;
        let (mut now, mut is_free) = (first.clone(), self.is_free(&first));
        while !is_free {
            sleep(LOOK_INTERVAL);
            now = look()?;
            is_free = self.is_free(&now);
            let owner = now.owner().filter(|_| now.has_changed_since(&first));
            if let Some(owner) = owner {
                return Err(OwnError::Held(owner));
            }
        }
        Ok(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The state of a ledger whose owner is at work somewhere.
    fn state(beat: u64) -> OwnerState {
        OwnerState {
            beat,
            holder: "elsewhere 7 boot namespace 1".to_owned(),
            ..OwnerState::default()
        }
    }

    #[test]
    fn an_owner_is_gone_once_it_has_done_nothing_for_a_lease_of_the_one_who_watches() {
        let watch = OwnerWatch::default();
        let begin = Instant::now();
        let after = |seconds| begin + Duration::from_secs(seconds);
        assert!(!watch.is_free_at(&state(1), after(0)));
        assert!(!watch.is_free_at(&state(1), after(4)));
        // It beats, and the time begins anew.
        assert!(!watch.is_free_at(&state(2), after(4)));
        assert!(!watch.is_free_at(&state(2), after(8)));
        assert!(watch.is_free_at(&state(2), after(9)));
        let given_up = OwnerState {
            holder: String::new(),
            ..state(3)
        };
        assert!(watch.is_free_at(&given_up, after(9)));
    }
}
