//! The row that says who owns a ledger.

use ktsu_ledger::store::{OwnerState, StoreError};

use crate::queries::PostgresQueries;
use crate::values::{column, damaged, unsigned};

/// The row at present.
pub(crate) fn owner_row(ledger: &PostgresQueries) -> Result<OwnerState, StoreError> {
    let question = "SELECT epoch, head, beat, holder, url FROM ledger WHERE id = 1";
    let rows = ledger.ask(question, &Vec::new)?;
    let row = rows
        .first()
        .ok_or_else(|| damaged("it has no owner's row"))?;
    Ok(OwnerState {
        epoch: unsigned(row, 0)?,
        head: unsigned(row, 1)?,
        beat: unsigned(row, 2)?,
        holder: column(row, 3)?,
        url: column(row, 4)?,
    })
}
