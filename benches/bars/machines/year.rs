//! What grows with a ledger on PostgreSQL, and what does not: a tenth of what a busy team records in a
//! year, 50 million frames.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ktsu::assemble::LedgerPlace;
use ktsu_ledger::Ledger;
use ktsu_ledger::store::{Filter, SqliteStore};
use ktsu_ledger::verify::VerifyOptions;

use super::process;
use crate::postgres::Server;
use crate::steps::{self, Load};
use crate::table::{Row, Table, median, ms, thousands};
use crate::{Effort, disk, engine, say};

/// The times that a page of runs is read.
const PAGES: usize = 20;

/// Fills a ledger, and measures what is done with it as a whole.
pub(crate) fn measure(effort: Effort, table: &mut Table) {
    let Ok(Some(server)) = std::panic::catch_unwind(Server::get) else {
        return say("NOT MEASURED: year, for want of a PostgreSQL server");
    };
    let wanted = effort.of(5_000_000, 200_000);
    let place = LedgerPlace::Backend(Arc::new(server.ledger().0));
    let ledger = Ledger::open(&place);
    let position = || ledger.status().unwrap().position;
    let mut row = |what: &str, early: String, late: String| {
        table.add(Row {
            what: format!("on PostgreSQL: {what}"),
            figure: late,
            bare: early,
            ratio: String::new(),
            bar: String::new(),
            met: None,
        });
    };
    let early = fill(&place, Duration::from_secs(1));
    let few = position();
    let before = Looks::of(&place);
    while position() < wanted {
        fill(&place, Duration::from_secs(effort.of(10, 1)));
    }
    let late = fill(&place, Duration::from_secs(1));
    let many = position();
    let after = Looks::of(&place);
    let label = |frames: u64| thousands(frames as f64);
    row("frames in the ledger", label(few), label(many));
    for (what, of) in [
        ("a run of 100 pure steps, 64 at once: p50", 0),
        ("an engine starts", 1),
        ("a page of 50 runs", 2),
    ] {
        let of_looks = |load: &Load, looks: &Looks| match of {
            0 => ms(median(&mut load.times.clone())),
            1 => ms(looks.start),
            _ => ms(looks.page),
        };
        row(what, of_looks(&early, &before), of_looks(&late, &after));
    }
    let bytes = ledger.status().unwrap().bytes;
    row(
        "bytes on the server",
        String::new(),
        format!(
            "{}, {} a frame",
            thousands(bytes as f64),
            thousands(bytes as f64 / many as f64)
        ),
    );
    let frames_each = |took: Duration| {
        let rate = thousands(many as f64 / took.as_secs_f64());
        format!("{:.1} s, {rate} frames/s", took.as_secs_f64())
    };
    let begun = Instant::now();
    let options = VerifyOptions::default();
    let report = ktsu_history::verify::ledger(&place, &options, &mut |_| {}).unwrap();
    assert_eq!(report.problems, []);
    row("verify", String::new(), frames_each(begun.elapsed()));
    let folder = disk::folder();
    let mut copy = SqliteStore::open(&folder.path().join("copy.db")).unwrap();
    let source = ledger.snapshot().unwrap();
    let begun = Instant::now();
    ktsu_ledger::copy::copy(source.as_ref(), &mut copy, &mut |_| {}).unwrap();
    row(
        "a copy to a file, compared",
        String::new(),
        frames_each(begun.elapsed()),
    );
}

/// Runs for some time.
fn fill(place: &LedgerPlace, time: Duration) -> Load {
    engine::runtime().block_on(async {
        let engine = engine::open_on(place.clone(), steps::kit(), process()).await;
        let load = steps::sustain(&engine, time).await;
        engine.close().await.unwrap();
        load
    })
}

/// How long it takes to look at a ledger.
struct Looks {
    /// From nothing to an owner that serves.
    start: Duration,
    /// A page of runs.
    page: Duration,
}

impl Looks {
    fn of(place: &LedgerPlace) -> Self {
        let begun = Instant::now();
        let start = engine::runtime().block_on(async {
            let engine = engine::open_on(place.clone(), steps::kit(), process()).await;
            let start = begun.elapsed();
            engine.close().await.unwrap();
            start
        });
        let reader = Ledger::open(place).reader().unwrap();
        let mut pages: Vec<Duration> = (0..PAGES)
            .map(|_| {
                let begun = Instant::now();
                let page = reader.list(&Filter::default(), None, 50).unwrap();
                assert_eq!(page.rows.len(), 50);
                begun.elapsed()
            })
            .collect();
        Self {
            start,
            page: median(&mut pages),
        }
    }
}
