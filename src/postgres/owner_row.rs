//! The row that says who owns a ledger, and the wait until nothing does.

use std::sync::{Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use ktsu_ledger::store::StoreError;
use ktsu_ledger::store::lease::LEASE;
use ktsu_ledger::{LedgerOwner, OwnError};

use crate::holder::Holder;
use crate::queries::PostgresQueries;
use crate::values::{column, damaged, unsigned};

/// The time between two looks at the row.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// The row.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct OwnerRow {
    pub(crate) epoch: u64,
    pub(crate) head: u64,
    pub(crate) beat: u64,
    /// The text of a [`Holder`]; empty if nothing owns the ledger.
    holder: String,
    url: String,
}

impl OwnerRow {
    /// The row at present.
    pub(crate) fn of(ledger: &PostgresQueries) -> Result<Self, StoreError> {
        let question = "SELECT epoch, head, beat, holder, url FROM ledger WHERE id = 1";
        let rows = ledger.ask(question, &Vec::new)?;
        let row = rows
            .first()
            .ok_or_else(|| damaged("it has no owner's row"))?;
        Ok(Self {
            epoch: unsigned(row, 0)?,
            head: unsigned(row, 1)?,
            beat: unsigned(row, 2)?,
            holder: column(row, 3)?,
            url: column(row, 4)?,
        })
    }

    /// The owner; `None` if there is none, or this machine knows that it has ended.
    pub(crate) fn owner(&self) -> Option<LedgerOwner> {
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
#[derive(Debug)]
pub(crate) struct OwnerWatch {
    /// On a server that writes: one that follows could show an owner that has long been replaced.
    ledger: PostgresQueries,
    seen: Mutex<Option<(OwnerRow, Instant)>>,
}

impl OwnerWatch {
    /// A watch on the owner of a ledger.
    pub(crate) fn new(ledger: PostgresQueries) -> Self {
        Self {
            ledger,
            seen: Mutex::default(),
        }
    }

    /// The ledger that is watched.
    pub(crate) fn ledger(&self) -> &PostgresQueries {
        &self.ledger
    }

    /// The row at present, and whether another process may become the owner after it.
    pub(crate) fn look(&self) -> Result<(OwnerRow, bool), StoreError> {
        let row = OwnerRow::of(&self.ledger)?;
        let is_free = self.is_free(&row, Instant::now());
        Ok((row, is_free))
    }

    fn is_free(&self, row: &OwnerRow, now: Instant) -> bool {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let since = match &*seen {
            Some((before, since)) if !row.has_changed_since(before) => *since,
            Some(_) | None => {
                *seen = Some((row.clone(), now));
                now
            }
        };
        row.owner().is_none() || now.duration_since(since) >= LEASE
    }

    /// The state of a ledger that nothing owns, or whose owner has done nothing for a whole lease.
    ///
    /// # Errors
    /// [`OwnError::Held`] as soon as an owner does something.
    pub(crate) fn wait(&self) -> Result<OwnerRow, OwnError> {
        let (first, mut is_free) = self.look()?;
        let mut now = first.clone();
        while !is_free {
            sleep(LOOK_INTERVAL);
            (now, is_free) = self.look()?;
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

    /// The row of a process that is at work somewhere.
    fn row(beat: u64) -> OwnerRow {
        OwnerRow {
            beat,
            holder: "elsewhere 7 boot namespace 1".to_owned(),
            ..OwnerRow::default()
        }
    }

    #[test]
    fn an_owner_is_gone_once_it_has_done_nothing_for_a_lease_of_the_one_who_watches() {
        let server = "postgres://a@localhost/x".parse().unwrap();
        let watch = OwnerWatch::new(PostgresQueries::new(&server));
        let begin = Instant::now();
        let after = |seconds| begin + Duration::from_secs(seconds);
        assert!(!watch.is_free(&row(1), after(0)));
        assert!(!watch.is_free(&row(1), after(4)));
        // It beats, and the time begins anew.
        assert!(!watch.is_free(&row(2), after(4)));
        assert!(!watch.is_free(&row(2), after(8)));
        assert!(watch.is_free(&row(2), after(9)));
        let given_up = OwnerRow {
            holder: String::new(),
            ..row(3)
        };
        assert!(watch.is_free(&given_up, after(9)));
    }
}
