//! Whether pages that follow what changes slow the runs that they follow.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ktsu::assemble::Engine;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::table::{Row, Table, median, ms};
use crate::{Effort, disk, engine, plans};

/// Transforms of a run that is measured.
const STEPS: u32 = 100;
/// Runs that have ended before.
const RUNS: usize = 1_000;
/// The time between two other runs, each of which is a change.
const BETWEEN_CHANGES: Duration = Duration::from_millis(20);
/// Clients that follow all changes.
const FOLLOWERS: usize = 20;
/// The share of its speed that a run keeps.
const LEAST: f64 = 0.95;

/// One run at a time of an engine whose changes 20 clients follow, and of an engine without any, in turn. In each,
/// 50 other runs begin and end every second.
pub(crate) fn measure(effort: Effort, table: &mut Table) {
    let rounds = effort.of(300, 60);
    let (alone_in, watched_in) = (disk::folder(), disk::folder());
    let (mut alone, mut watched) = (Vec::new(), Vec::new());
    let received = Arc::new(AtomicU64::new(0));
    engine::runtime().block_on(async {
        let (one, chain) = (plans::chain(1, None), plans::chain(STEPS, None));
        let kit = || plans::kit(&[("chain", &chain), ("one", &one)]);
        let without = engine::open(alone_in.path(), kit()).await;
        let with = engine::open(watched_in.path(), kit()).await;
        for _ in 0..effort.of(RUNS, 100) {
            engine::reply(&without, "one").await;
            engine::reply(&with, "one").await;
        }
        let mut tasks = JoinSet::new();
        for _ in 0..FOLLOWERS {
            let stream = follow(&with.url).await;
            tasks.spawn(count(stream, Arc::clone(&received)));
        }
        for engine in [&without, &with] {
            let orchestrator = engine.orchestrator.clone();
            tasks.spawn(async move {
                let mut changes = tokio::time::interval(BETWEEN_CHANGES);
                loop {
                    changes.tick().await;
                    engine::invoke(&orchestrator, "one").await;
                }
            });
        }
        for _ in 0..rounds {
            alone.push(one_run(&without).await);
            watched.push(one_run(&with).await);
        }
        tasks.shutdown().await;
        without.close().await.unwrap();
        with.close().await.unwrap();
    });
    let (alone, watched) = (median(&mut alone), median(&mut watched));
    let ratio = alone.as_secs_f64() / watched.as_secs_f64();
    let bytes = received.load(Ordering::Relaxed) / FOLLOWERS as u64;
    assert!(bytes > 0, "nothing was followed");
    table.add(Row {
        what: format!(
            "a run of {STEPS} pure steps beside 50 other runs a second, all of which {FOLLOWERS} clients follow, of \
             {} KiB each, median of {rounds}",
            bytes / 1024
        ),
        figure: ms(watched),
        bare: format!("without clients: {}", ms(alone)),
        ratio: format!("{ratio:.2} of its speed"),
        bar: format!("≥ {LEAST:.2}"),
        met: Some(ratio >= LEAST),
    });
}

async fn one_run(engine: &Engine) -> Duration {
    let started = Instant::now();
    engine::reply(engine, "chain").await;
    started.elapsed()
}

/// A connection on which the summaries of runs that change have begun to come.
async fn follow(url: &str) -> TcpStream {
    let host = url.trim_start_matches("http://");
    let mut stream = TcpStream::connect(host).await.unwrap();
    let request =
        format!("GET /summaries HTTP/1.1\r\nhost: {host}\r\naccept: text/event-stream\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut begin = [0; 15];
    stream.read_exact(&mut begin).await.unwrap();
    assert_eq!(&begin, b"HTTP/1.1 200 OK");
    stream
}

async fn count(mut stream: TcpStream, received: Arc<AtomicU64>) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(bytes @ 1..) = stream.read(&mut buffer).await {
        received.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}
