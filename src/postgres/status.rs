//! What an operator wants to know of a ledger and its server.

use ktsu_ledger::store::{LedgerStatus, Replica, StoreError};
use tokio_postgres::Row;

use crate::owner_row::owner_row;
use crate::queries::PostgresQueries;
use crate::server::ServerDurability;
use crate::values::{column, unsigned};

/// What is said of a server whose disk alone has what was acknowledged.
const NO_STANDBY: &str = "the server of the ledger has no synchronous standby: what was acknowledged \
                          is lost if its disk is";

/// What is said where the address permits that.
const UNSAFE: &str = "the server of the ledger may lose what it acknowledged: durability=unsafe of its \
                      address permits that";

/// What is said of a server that waits for one that is not there.
const WAITING: &str = "no standby is connected to the server of the ledger, and every append waits for \
                       one (synchronous_standby_names)";

/// The state of a ledger.
pub(crate) fn of(ledger: &PostgresQueries) -> Result<LedgerStatus, StoreError> {
    let row = owner_row(ledger)?;
    let question = "SELECT coalesce(sum(pg_total_relation_size(to_regclass(name))), 0)::bigint
         FROM unnest(ARRAY['ledger', 'streams', 'frames', 'blobs', 'removals', 'index_rows']) AS name";
    let sizes = ledger.ask(question, &Vec::new)?;
    let replicas = replicas(ledger)?;
    let warning = warning(ledger, &replicas)?;
    Ok(LedgerStatus {
        owner: row.owner(),
        epoch: Some(row.epoch),
        position: row.head,
        bytes: sizes.first().map_or(Ok(0), |row| unsigned(row, 0))?,
        replicas,
        warnings: warning.map(str::to_owned).into_iter().collect(),
    })
}

/// What may lose acknowledged frames, or lets every append wait, if anything.
fn warning(
    ledger: &PostgresQueries,
    replicas: &[Replica],
) -> Result<Option<&'static str>, StoreError> {
    if ledger.durability() == ServerDurability::Unsafe {
        return Ok(Some(UNSAFE));
    }
    let question = "SELECT current_setting('synchronous_standby_names') = ''";
    let rows = ledger.ask(question, &Vec::new)?;
    let waits_for_none = rows.first().map_or(Ok(false), |row| column(row, 0))?;
    let is_declared = ledger.durability() == ServerDurability::Provider;
    Ok(match (waits_for_none, replicas.is_empty()) {
        (true, _) if is_declared => None,
        (true, _) => Some(NO_STANDBY),
        (false, true) => Some(WAITING),
        (false, false) => None,
    })
}

fn replicas(ledger: &PostgresQueries) -> Result<Vec<Replica>, StoreError> {
    // A role without pg_monitor sees that there are some, and neither state nor place.
    let question = "SELECT coalesce(application_name, ''),
           sync_state IN ('sync', 'quorum'),
           CASE WHEN pg_is_in_recovery() OR flush_lsn IS NULL THEN NULL
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
