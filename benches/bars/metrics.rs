//! What it costs to count and to show what is counted.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::{Request, StatusCode};
use ktsu_ledger::appender::Appender;
use ktsu_ledger::{Frame, Sealed};
use ktsu_telemetry::{Metrics, RunObserver, Telemetry};
use tokio::task::JoinSet;
use tower::ServiceExt as _;

use crate::table::{Row, Table, median, ms, thousands};
use crate::{Effort, disk, engine, plans};

const WORKFLOWS: usize = 200;
const TRANSFORMS: u32 = 10;
const AT_ONCE: usize = 64;

/// `GET /metrics` of an engine with many workflows after many runs, and what observing a run takes
/// beside the run.
pub(crate) fn measure(effort: Effort, table: &mut Table) {
    let runs = effort.of(10_000, 2_000);
    let folder = disk::folder();
    let names: Vec<String> = (0..WORKFLOWS).map(|at| format!("workflow_{at}")).collect();
    let made: Vec<_> = names
        .iter()
        .map(|name| (name.as_str(), plans::chain_as(name, TRANSFORMS, None)))
        .collect();
    let definitions: Vec<_> = made.iter().map(|(name, made)| (*name, made)).collect();
    let (scrape, bytes, run) = engine::runtime().block_on(async {
        let engine = Arc::new(engine::open(folder.path(), plans::kit(&definitions)).await);
        let started = Instant::now();
        let mut under_way = JoinSet::new();
        for at in 0..runs {
            if under_way.len() == AT_ONCE {
                under_way.join_next().await.unwrap().unwrap();
            }
            let (engine, name) = (Arc::clone(&engine), names[at % WORKFLOWS].clone());
            under_way.spawn(async move { engine::reply(&engine, &name).await });
        }
        while let Some(done) = under_way.join_next().await {
            done.unwrap();
        }
        let run = started.elapsed() / u32::try_from(runs).unwrap();
        let mut times = Vec::new();
        let mut bytes = 0;
        for _ in 0..50 {
            let request = Request::get("/metrics").body(Body::empty()).unwrap();
            let started = Instant::now();
            let answer = engine.router.clone().oneshot(request).await.unwrap();
            assert_eq!(answer.status(), StatusCode::OK);
            let body = axum::body::to_bytes(answer.into_body(), usize::MAX).await;
            times.push(started.elapsed());
            bytes = body.unwrap().len();
        }
        Arc::into_inner(engine).unwrap().close().await.unwrap();
        (median(&mut times), bytes, run)
    });
    table.add(Row {
        what: format!(
            "GET /metrics, {} runs of {WORKFLOWS} workflows, {} kB",
            thousands(runs as f64),
            bytes / 1000
        ),
        figure: ms(scrape),
        bare: String::new(),
        ratio: String::new(),
        bar: "≤ 20 ms".to_owned(),
        met: Some(scrape <= Duration::from_millis(20)),
    });
    let observing = observing();
    // What two processors spend in the time of one run.
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let whole = run.as_secs_f64() * processors as f64;
    let share = observing.as_secs_f64() / whole;
    table.add(Row {
        what: format!("observing a run of {TRANSFORMS} transforms, beside the run"),
        figure: format!("{:.2} µs", observing.as_secs_f64() * 1e6),
        bare: format!("the run: {:.0} µs of processor", whole * 1e6),
        ratio: format!("{:.2} %", share * 100.0),
        bar: "< 1 %".to_owned(),
        met: Some(share < 0.01),
    });
}

/// How long it takes to observe one run, from its frames.
fn observing() -> Duration {
    let recorded = plans::record(&plans::chain(TRANSFORMS, None), usize::MAX);
    let frames: Vec<&Frame> = recorded
        .sealed
        .iter()
        .map(|one: &Sealed| &one.frame)
        .collect();
    let appender = Appender::stopped("a bench");
    let telemetry = Telemetry::new(Metrics::default(), &appender, Vec::new());
    let rounds = 20_000;
    let started = Instant::now();
    for _ in 0..rounds {
        let mut observer = RunObserver::new(&telemetry, &recorded.state);
        observer.note(frames.iter().copied(), &recorded.state);
        observer.durable(Some(u64::MAX), "run_x");
        std::hint::black_box(&observer);
    }
    started.elapsed() / rounds
}
