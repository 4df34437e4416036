//! What an operator wants to know of a ledger and its server.

use ktsu_ledger::store::{LedgerStatus, Replica, StoreError};
use tokio_postgres::Row;

use crate::owner_row::OwnerRow;
use crate::queries::PostgresQueries;
use crate::values::{column, unsigned};

/// What is said of a server whose disk alone has what was acknowledged.
const NO_STANDBY: &str = "the server of the ledger has no synchronous standby: what was acknowledged \
                          is lost if its disk is";

/// The state of a ledger.
pub(crate) fn of(ledger: &PostgresQueries) -> Result<LedgerStatus, StoreError> {
    let row = OwnerRow::of(ledger)?;
    let question = "SELECT coalesce(sum(pg_total_relation_size(to_regclass(name))), 0)::bigint
         FROM unnest(ARRAY['ledger', 'streams', 'frames', 'blobs', 'removals', 'index_rows']) AS name";
    let sizes = ledger.ask(question, &Vec::new)?;
    Ok(LedgerStatus {
        owner: row.owner(),
        epoch: Some(row.epoch),
        position: row.head,
        bytes: sizes.first().map_or(Ok(0), |row| unsigned(row, 0))?,
        replicas: replicas(ledger)?,
        warnings: warning(ledger)?.into_iter().collect(),
    })
}

/// What may lose acknowledged frames, if anything.
pub(crate) fn warning(ledger: &PostgresQueries) -> Result<Option<String>, StoreError> {
    let question = "SELECT current_setting('synchronous_standby_names') = ''";
    let rows = ledger.ask(question, &Vec::new)?;
    let is_alone = rows.first().map_or(Ok(false), |row| column(row, 0))?;
    Ok(is_alone.then(|| NO_STANDBY.to_owned()))
}

fn replicas(ledger: &PostgresQueries) -> Result<Vec<Replica>, StoreError> {
    // A role without pg_monitor sees that there are some, and neither state nor place.
    let question = "SELECT coalesce(application_name, ''),
           coalesce(sync_state IN ('sync', 'quorum'), false),
           CASE WHEN pg_is_in_recovery() THEN NULL
             ELSE greatest(pg_wal_lsn_diff(pg_current_wal_flush_lsn(), flush_lsn), 0)::bigint END
         FROM pg_stat_replication ORDER BY 1";
    let rows = ledger.ask(question, &Vec::new)?;
    rows.iter().map(replica).collect()
}

fn replica(row: &Row) -> Result<Replica, StoreError> {
    let behind: Option<i64> = column(row, 2)?;
    Ok(Replica {
        name: column(row, 0)?,
        is_synchronous: column(row, 1)?,
        behind: behind.and_then(|bytes| u64::try_from(bytes).ok()),
    })
}
