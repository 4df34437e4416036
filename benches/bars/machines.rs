//! A ledger on PostgreSQL: beside what one connection inserts into the same tables of the same server,
//! without and with a synchronous standby, and beside DBOS on that server.

mod bare;
mod dbos;
pub(crate) mod year;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ktsu::assemble::LedgerPlace;
use ktsu_ledger::store::{MAX_PAGE, RawFrame};

use crate::postgres::Server;
use crate::steps::{self, RUNS, STEPS};
use crate::table::{Row, Table, ms, percentile, thousands};
use crate::{Effort, agents, disk, engine, say};
use bare::BareInsert;

/// A signing key, as 32 bytes in base64.
const KEY: &str = "QkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkI=";
/// The least part of the bare rate.
const LEAST: f64 = 0.5;
/// How many frames are inserted again and again.
const SAMPLE: usize = 50_000;

/// Starts a server of its own, where that is possible, and measures on it.
pub(crate) fn measure(effort: Effort, table: &mut Table) {
    // A server that does not start has said why.
    let Ok(Some(server)) = std::panic::catch_unwind(Server::get) else {
        return say("NOT MEASURED: machines, for want of a PostgreSQL server");
    };
    let steps = many_runs(effort, table, &server, "");
    one_agent_step(effort, table, &server, false);
    one_agent_step(effort, table, &server, true);
    beside_dbos(effort, table, &server, steps);
    let _standby = server.standby();
    many_runs(effort, table, &server, ", with a synchronous standby");
}

fn process() -> BTreeMap<String, String> {
    BTreeMap::from([("KTSU_SIGNING_KEY".to_owned(), KEY.to_owned())])
}

/// 64 runs at once, against one connection that does nothing but insert their frames; steps per second.
fn many_runs(effort: Effort, table: &mut Table, server: &Server, how: &str) -> f64 {
    let time = Duration::from_secs(effort.of(6, 2));
    let place = LedgerPlace::Backend(Arc::new(server.ledger().0));
    let mut load = engine::runtime().block_on(async {
        let engine = engine::open_on(place.clone(), steps::kit(), process()).await;
        let load = steps::sustain(&engine, time).await;
        engine.close().await.unwrap();
        load
    });
    let (sample, group) = (frames(&place), load.group());
    let mut bare = BareInsert::open(server);
    let time = Duration::from_secs(effort.of(3, 1));
    let (one_a_run, as_large) = (
        bare.rate(&sample, RUNS, time),
        bare.rate(&sample, group, time),
    );
    let rate = load.frames() as f64 / load.took.as_secs_f64();
    let median = percentile(&mut load.times, 50);
    let slow = percentile(&mut load.times, 99);
    table.add(Row {
        what: format!("on PostgreSQL{how}: durable pure steps, {RUNS} runs of {STEPS} at once"),
        figure: format!(
            "{} frames/s, {} steps/s; a run p50 {}, p99 {}",
            thousands(rate),
            thousands(load.steps()),
            ms(median),
            ms(slow)
        ),
        bare: format!(
            "one connection, groups of {RUNS} frames: {} frames/s",
            thousands(one_a_run)
        ),
        ratio: format!("{:.2}", rate / one_a_run),
        bar: format!("≥ {LEAST}"),
        met: Some(rate >= LEAST * one_a_run),
    });
    table.add(Row {
        what: format!("the same against groups as large as its own commits, {group} frames"),
        figure: format!("{} frames/s", thousands(rate)),
        bare: format!("{} frames/s", thousands(as_large)),
        ratio: format!("{:.2}", rate / as_large),
        bar: String::new(),
        met: None,
    });
    load.steps()
}

/// The first frames of a ledger.
fn frames(place: &LedgerPlace) -> Vec<RawFrame> {
    let LedgerPlace::Backend(backend) = place else {
        panic!("the ledger is on a server");
    };
    let (reader, mut frames) = (backend.reader().unwrap(), Vec::new());
    while frames.len() < SAMPLE {
        let page = reader.scan_frames(frames.len() as u64 + 1, MAX_PAGE);
        let page = page.unwrap();
        if page.is_empty() {
            break;
        }
        frames.extend(page);
    }
    frames
}

/// A run of one agent step, request to reply, less the time of its model call without an engine. The
/// statement of the bare insert is prepared, and so the bar is for that.
fn one_agent_step(effort: Effort, table: &mut Table, server: &Server, is_prepared: bool) {
    let rounds = effort.of(200, 40);
    let folder = disk::folder();
    let place = match is_prepared {
        true => server.prepared(),
        false => server.ledger().0,
    };
    let place = LedgerPlace::Backend(Arc::new(place));
    let how = if is_prepared {
        ", statements prepared"
    } else {
        ""
    };
    let mut bare = BareInsert::open(server);
    let alone = engine::runtime().block_on(async {
        let kit = agents::kit(folder.path(), Duration::ZERO);
        let engine = engine::open_on(place.clone(), kit, process()).await;
        agents::run(&engine, "one", &serde_json::json!({"msg": "first"})).await;
        let frame = frames(&place).pop().unwrap();
        let beside = || tokio::task::block_in_place(|| bare.commit(&frame, 3));
        let alone = agents::alone(&engine, folder.path(), rounds, beside).await;
        engine.close().await.unwrap();
        alone
    });
    let (overhead, commit) = (alone.overhead(), alone.bare);
    let bar = 3 * commit + Duration::from_micros(500);
    table.add(Row {
        what: format!(
            "on PostgreSQL{how}: agent step beyond its model call ({}), median of {rounds}",
            ms(alone.effect)
        ),
        figure: ms(overhead),
        bare: format!("a commit of one frame: {}", ms(commit)),
        ratio: format!(
            "{:.1} commits",
            overhead.as_secs_f64() / commit.as_secs_f64()
        ),
        bar: format!("≤ 3 commits + 0.5 ms = {}", ms(bar)),
        met: is_prepared.then_some(overhead <= bar),
    });
}

fn beside_dbos(effort: Effort, table: &mut Table, server: &Server, steps: f64) {
    const TIMES: f64 = 40.0;
    let measured = dbos::steps(server, RUNS, effort.of(6, 2));
    let (version, theirs) = match measured {
        Ok(measured) => measured,
        Err(why) => return say(&format!("NOT MEASURED: DBOS, {why}")),
    };
    table.add(Row {
        what: format!("the same steps beside DBOS {version} on the same server, {RUNS} at once"),
        figure: format!("{} steps/s", thousands(steps)),
        bare: format!("DBOS: {} steps/s", thousands(theirs)),
        ratio: format!("{:.0} times", steps / theirs),
        bar: format!("≥ {TIMES} times"),
        met: Some(steps >= TIMES * theirs),
    });
}
