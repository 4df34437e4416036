//! Runs that are started while others are removed, whose time to be kept is over.

use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use ktsu::assemble::Engine;
use ktsu_environment::Environment;
use ktsu_ledger::{StreamId, Timestamp};
use ktsu_orchestrator::MicrosClock;

use crate::table::{Row, Table, median, ms, percentile, thousands};
use crate::{Effort, admit, disk, engine, plans};

/// Clients at once, each sending its next request when the last is acknowledged.
const CLIENTS: usize = 8;
const HOUR_MICROS: u64 = 3_600_000_000;

/// What clients wait for their 202 on an engine that removes runs, against one that does not.
pub(crate) fn measure(effort: Effort, table: &mut Table) {
    let old: usize = effort.of(20_000, 2_000);
    let runs: usize = effort.of(8_000, 1_000);
    let folder = disk::folder();
    let (mut quiet, mut during, removed) = engine::runtime().block_on(async {
        // The old runs ended forty hours ago; one since, so that no clock seems to be wrong.
        for (hours, count) in [(40, old), (20, 1)] {
            let engine = open(folder.path(), hours, None).await;
            admit::admitted(&engine, CLIENTS, count).await;
            engine.close().await.unwrap();
        }
        let engine = open(folder.path(), 0, None).await;
        let quiet = admit::admitted(&engine, CLIENTS, runs).await;
        engine.close().await.unwrap();
        let engine = open(folder.path(), 0, Some(a_day(folder.path()))).await;
        let before = noted(&engine).await;
        let during = admit::admitted(&engine, CLIENTS, runs).await;
        let removed = noted(&engine).await - before;
        engine.close().await.unwrap();
        (quiet, during, removed)
    });
    assert!(removed > 0, "nothing was removed meanwhile");
    let late = percentile(&mut during, 99);
    let without = percentile(&mut quiet, 99);
    let ratio = late.as_secs_f64() / without.as_secs_f64();
    table.add(Row {
        what: format!(
            "{} runs admitted by {CLIENTS} clients while {} others are removed: p99",
            thousands(runs as f64),
            thousands(removed as f64)
        ),
        figure: format!("{} (median {})", ms(late), ms(median(&mut during))),
        bare: format!(
            "nothing removed: {} ({})",
            ms(without),
            ms(median(&mut quiet))
        ),
        ratio: format!("{ratio:.2}"),
        bar: "≤ 1.5".to_owned(),
        met: Some(ratio <= 1.5),
    });
}

/// An engine whose clock is so many hours late.
async fn open(folder: &Path, hours: u64, environment: Option<Environment>) -> Engine {
    let kit = plans::kit(&[("chain", &plans::chain(10, None))]);
    let clock: MicrosClock = Arc::new(move || {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let now = u64::try_from(now.as_micros()).unwrap();
        Timestamp::from_micros(now - hours * HOUR_MICROS)
    });
    engine::open_at(folder, kit, environment, clock).await
}

/// An environment that keeps runs for a day.
fn a_day(folder: &Path) -> Environment {
    let file = folder.join("a-day.env.yaml");
    std::fs::write(&file, "retention: {complete_days: 1, failed_days: 1}\n").unwrap();
    Environment::load(&file).unwrap()
}

/// How many facts about the ledger as a whole are recorded: one for each run that is removed.
async fn noted(engine: &Engine) -> u64 {
    let readers = engine.orchestrator.readers();
    let tail = readers.with(|reader| reader.tail(&StreamId::store()));
    tail.await.unwrap().map_or(0, |tail| tail.seq + 1)
}
