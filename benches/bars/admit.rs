//! How long a client waits for its 202.

use std::time::{Duration, Instant};

use ktsu::assemble::Engine;

use crate::table::{Row, Table, median, ms, percentile, thousands};
use crate::{Effort, disk, engine, plans, waiting};

/// Runs that are under way throughout, waiting for an answer.
const ACTIVE: usize = 1_000;
/// Clients at once, each sending its next request when the last is acknowledged.
const CLIENTS: usize = 64;

/// Runs of ten transforms are admitted while a thousand others are under way.
pub(crate) fn measure(effort: Effort, table: &mut Table) {
    let runs: usize = effort.of(10_000, 2_000);
    let folder = disk::folder();
    let mut times = engine::runtime().block_on(async {
        let url = waiting::hanging().await;
        let hang = plans::chain(1, Some(&url));
        let chain = plans::chain(10, None);
        let kit = plans::kit(&[("hang", &hang), ("chain", &chain)]);
        let engine = engine::open(folder.path(), kit).await;
        waiting::start(&engine.orchestrator, "hang", ACTIVE).await;
        let times = admitted(&engine, CLIENTS, runs).await;
        engine.close().await.unwrap();
        times
    });
    let (half, late) = (median(&mut times), percentile(&mut times, 99));
    let sync = disk::Bare::new().sync(16 * 1024, 100);
    table.add(Row {
        what: format!(
            "{} runs admitted by {CLIENTS} clients, {} others under way: p99",
            thousands(runs as f64),
            thousands(ACTIVE as f64)
        ),
        figure: format!("{} (median {})", ms(late), ms(half)),
        bare: format!("sync of 16 KiB: {}", ms(sync)),
        ratio: format!("{:.1} syncs", late.as_secs_f64() / sync.as_secs_f64()),
        bar: "≤ 50 ms".to_owned(),
        met: Some(late <= Duration::from_millis(50)),
    });
}

/// Starts runs of `chain` by so many clients, and gives how long each waited for its 202.
pub(crate) async fn admitted(engine: &Engine, clients: usize, runs: usize) -> Vec<Duration> {
    let clients: Vec<_> = (0..clients)
        .map(|client| {
            let orchestrator = engine.orchestrator.clone();
            tokio::spawn(async move {
                let mut times = Vec::new();
                for _ in (client..runs).step_by(clients) {
                    let started = Instant::now();
                    engine::invoke(&orchestrator, "chain").await;
                    times.push(started.elapsed());
                }
                times
            })
        })
        .collect();
    let mut times = Vec::new();
    for client in clients {
        times.extend(client.await.unwrap());
    }
    times
}
