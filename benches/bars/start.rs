//! Starting on a large ledger.

use std::path::Path;
use std::time::{Duration, Instant};

use ktsu_ledger::store::{Entry, IndexRow, Maintenance as _, SqliteStore, Store, WalCheckpoint};
use ktsu_projections::index::RunRow;
use ktsu_workflow::definition::Definition;

use crate::plans::Recorded;
use crate::table::{Row, Table, ms, thousands};
use crate::{Effort, disk, engine, plans, waiting};

/// Runs that have not ended: each is as long as those that have.
const UNFINISHED: usize = 1_000;
/// Entries of one transaction.
const GROUP: usize = 32;

/// From opening the file to an engine that listens, every unfinished run under way again.
pub(crate) fn measure(effort: Effort, table: &mut Table) {
    let frames: usize = effort.of(1_000_000, 100_000);
    let unfinished = effort.of(UNFINISHED, UNFINISHED / 10);
    let folder = disk::folder();
    let runtime = engine::runtime();
    let url = runtime.block_on(waiting::hanging());
    let (chain, hang) = (plans::chain(100, None), plans::chain(100, Some(&url)));
    let mut stored = fill(folder.path(), &hang, unfinished);
    while stored < frames {
        stored += fill(folder.path(), &chain, 200.min((frames - stored) / 200 + 1));
    }
    let kit = plans::kit(&[("chain", &chain), ("hang", &hang)]);
    let started = Instant::now();
    let (engine, time) = runtime.block_on(async {
        let engine = engine::open(folder.path(), kit).await;
        let time = started.elapsed();
        (engine, time)
    });
    assert_eq!(engine.recovered.unfinished, unfinished as u64);
    assert_eq!(engine.recovered.unreadable, 0);
    runtime.block_on(engine.close()).unwrap();
    table.add(Row {
        what: format!(
            "start on {} frames with {} unfinished runs of 200",
            thousands(stored as f64),
            thousands(unfinished as f64)
        ),
        figure: ms(time),
        bare: String::new(),
        ratio: String::new(),
        bar: "≤ 2 s with 1,000,000 and 1,000".to_owned(),
        met: (!effort.quick).then_some(time <= Duration::from_secs(2)),
    });
}

/// Stores runs of a definition; gives the number of their frames.
pub(crate) fn fill(folder: &Path, definition: &Definition, runs: usize) -> usize {
    let mut store = SqliteStore::open(&folder.join("ledger.db")).unwrap();
    let epoch = store.acquire().unwrap();
    let mut frames = 0;
    let mut group = Vec::new();
    for number in 0..runs {
        let recorded = plans::record(definition, usize::MAX);
        frames += recorded.sealed.len();
        let row = row(&recorded);
        let (entry, _) = Entry::from_sealed(recorded.sealed).unwrap();
        group.push(entry.with_index(row).unwrap());
        if group.len() == GROUP || number + 1 == runs {
            let outcomes = store.append(epoch, &group).unwrap();
            assert!(outcomes.iter().all(Result::is_ok));
            group.clear();
            store.checkpoint(WalCheckpoint::Incremental).unwrap();
        }
    }
    frames
}

/// The row that the engine keeps of a run.
pub(crate) fn row(recorded: &Recorded) -> IndexRow {
    let row = RunRow::from_state(&recorded.state);
    IndexRow {
        stream: recorded.state.stream().clone(),
        workflow: row.workflow.clone(),
        status: row.status.clone(),
        open: !recorded.state.status().is_terminal(),
        created_us: row.created_at.as_micros(),
        key: None,
        row: row.to_json(),
    }
}
