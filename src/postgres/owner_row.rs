//! The row that says who owns a ledger, and the wait until nothing does.

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

/// The state of a ledger that nothing owns, or whose owner has done nothing for a whole lease.
///
/// # Errors
/// [`OwnError::Held`] as soon as an owner does something.
pub(crate) fn wait_until_free(ledger: &PostgresQueries) -> Result<OwnerRow, OwnError> {
    let first = OwnerRow::of(ledger)?;
    let started = Instant::now();
    let mut now = first.clone();
    while let Some(owner) = now.owner() {
        if now.has_changed_since(&first) {
            return Err(OwnError::Held(owner));
        }
        if started.elapsed() >= LEASE {
            break;
        }
        sleep(LOOK_INTERVAL);
        now = OwnerRow::of(ledger)?;
    }
    Ok(now)
}
