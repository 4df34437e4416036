//! The programs that serve in a folder.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The number of programs that serve in a folder. All clones are the same one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Occupancy(Arc<(Mutex<Occupants>, Condvar)>);

#[derive(Debug, Default)]
struct Occupants {
    count: usize,
    /// True if no further ones are let in.
    is_closed: bool,
}

/// A program that serves in a folder, until this is dropped.
#[derive(Debug)]
pub(crate) struct Occupant {
    occupancy: Occupancy,
    stays: bool,
}

impl Occupancy {
    /// Lets a program in, unless it is closed.
    pub(crate) fn enter(&self) -> Option<Occupant> {
        let mut occupants = self.occupants();
        if occupants.is_closed {
            return None;
        }
        occupants.count += 1;
        Some(Occupant {
            occupancy: self.clone(),
            stays: false,
        })
    }

    /// Lets no further programs in, and waits so long until those that are in have ended; false if one has
    /// not.
    pub(crate) fn close(&self, most: Duration) -> bool {
        let mut occupants = self.occupants();
        occupants.is_closed = true;
        let (_, changed) = &*self.0;
        let waited = changed.wait_timeout_while(occupants, most, |all| all.count > 0);
        let (occupants, _) = waited.unwrap_or_else(PoisonError::into_inner);
        occupants.count == 0
    }

    fn occupants(&self) -> MutexGuard<'_, Occupants> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Occupant {
    /// Counts it for good: it may not have ended.
    pub(crate) fn stay(mut self) {
        self.stays = true;
    }
}

impl Drop for Occupant {
    fn drop(&mut self) {
        if !self.stays {
            self.occupancy.occupants().count -= 1;
            self.occupancy.0.1.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_folder_is_closed_only_once_all_of_its_programs_have_ended() {
        let occupancy = Occupancy::default();
        let [first, second] = [occupancy.enter().unwrap(), occupancy.enter().unwrap()];
        drop(first);
        assert!(!occupancy.close(Duration::ZERO));
        assert!(occupancy.enter().is_none());
        drop(second);
        assert!(occupancy.close(Duration::ZERO));
        let occupancy = Occupancy::default();
        occupancy.enter().unwrap().stay();
        assert!(!occupancy.close(Duration::ZERO));
    }
}
