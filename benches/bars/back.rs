//! Looking back at a ledger file: the whole of it verified, an archive of evidence made, forks of
//! a long run, and where a value of one came from.

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::{Request, StatusCode};
use ktsu::assemble::Engine;
use ktsu_evidence::export::{self, ExportSelection};
use ktsu_history as history;
use ktsu_history::provenance::{self, TracedRun};
use ktsu_ledger::merkle::Node;
use ktsu_ledger::store::{Audit as _, Entry, MAX_PAGE, Reader, SqliteReader, SqliteStore, Store};
use ktsu_ledger::verify::VerifyOptions;
use ktsu_ledger::{Hash, StreamId};
use ktsu_workflow::definition::Definition;
use serde_json::{Value, json};
use tempfile::TempDir;
use tower::ServiceExt as _;

use crate::table::{Row, Table, median, ms, per_second, thousands};
use crate::{Effort, disk, engine, plans, start};

/// Frames of one run.
const LONG: u32 = 100_000;

/// `ktsu verify`: chain, strict reading, checkpoints, pages, folds, rows; on one thread.
pub(crate) fn verify(effort: Effort, table: &mut Table) {
    let wanted: usize = effort.of(1_000_000, 100_000);
    let (_folder, path) = signed(wanted);
    let bare = hashed(&path);
    let (started, busy) = (Instant::now(), processor());
    let report = history::verify::ledger(&path, &VerifyOptions::default(), &mut |_| {}).unwrap();
    let (time, busy) = (started.elapsed(), processor() - busy);
    assert!(report.is_sound(), "{:?}", report.problems);
    assert!(report.frames >= wanted as u64 && report.signed_frames > 0);
    table.add(Row {
        what: format!(
            "verify of {} frames, {} runs, {} checkpoints; {:.1} s of one processor",
            thousands(report.frames as f64),
            thousands(report.streams as f64 - 1.0),
            report.checkpoints,
            busy.as_secs_f64()
        ),
        figure: format!("{:.2} s", time.as_secs_f64()),
        bare: format!("reading and hashing alone: {:.2} s", bare.as_secs_f64()),
        ratio: format!("{:.2}", time.as_secs_f64() / bare.as_secs_f64()),
        bar: "≤ 10 s with 1,000,000".to_owned(),
        met: (!effort.quick).then_some(time <= Duration::from_secs(10)),
    });
}

/// `ktsu evidence export --all`.
pub(crate) fn export(effort: Effort, table: &mut Table) {
    let wanted: usize = effort.of(100_000, 20_000);
    let (_folder, path) = signed(wanted);
    let bare = hashed(&path);
    let reader = SqliteReader::open(&path).unwrap();
    let all = ExportSelection {
        all: true,
        ..ExportSelection::default()
    };
    let started = Instant::now();
    let made = export::export(&reader, &all).unwrap();
    let time = started.elapsed();
    assert!(made.frames >= wanted as u64 && made.unsigned == 0);
    table.add(Row {
        what: format!(
            "evidence of {} frames: an archive of {:.0} MiB",
            thousands(made.frames as f64),
            made.bytes.len() as f64 / 1024.0 / 1024.0
        ),
        figure: ms(time),
        bare: format!("reading and hashing alone: {}", ms(bare)),
        ratio: format!("{:.2}", time.as_secs_f64() / bare.as_secs_f64()),
        bar: "≤ 10 s with 100,000".to_owned(),
        met: (!effort.quick).then_some(time <= Duration::from_secs(10)),
    });
}

/// A ledger of finished runs, signed by an engine that was opened on it.
fn signed(frames: usize) -> (TempDir, PathBuf) {
    let folder = disk::folder();
    let chain = plans::chain(100, None);
    let mut stored = 0;
    while stored < frames {
        stored += start::fill(folder.path(), &chain, 200.min((frames - stored) / 200 + 1));
    }
    let runtime = engine::runtime();
    let kit = plans::kit(&[("chain", &chain)]);
    let engine = runtime.block_on(engine::open(folder.path(), kit));
    // Its notary signs what is not signed yet before it ends.
    runtime.block_on(engine.close()).unwrap();
    let path = folder.path().join("ledger.db");
    (folder, path)
}

/// The time of reading every frame and taking both of its digests.
fn hashed(path: &Path) -> Duration {
    let reader = SqliteReader::open(path).unwrap();
    let started = Instant::now();
    let mut from = 1;
    loop {
        let page = reader.scan_frames(from, MAX_PAGE).unwrap();
        let Some(last) = page.last() else { break };
        from = last.position + 1;
        for frame in &page {
            black_box((Hash::of(&frame.body), Node::leaf(&frame.body)));
        }
    }
    started.elapsed()
}

/// What this process has used of its processors.
fn processor() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    // The name of the program, which may hold anything, ends with the last parenthesis.
    let numbers = stat.rsplit_once(')').unwrap().1.split_whitespace();
    let ticks: Vec<u64> = numbers
        .skip(11)
        .take(2)
        .map(|n| n.parse().unwrap())
        .collect();
    // A tick of this interface is ten milliseconds on every Linux.
    Duration::from_millis(ticks.iter().sum::<u64>() * 10)
}

/// Forks of one run at frame 10 and at frame 100,000, in turn, through the routes; and where a
/// value at the end of it came from.
pub(crate) fn fork(effort: Effort, table: &mut Table) {
    let rounds = effort.of(100, 20);
    let late = effort.of(u64::from(LONG), 20_000);
    let folder = disk::folder();
    let chain = plans::chain(u32::try_from(late / 2).unwrap(), None);
    let run = store_one(folder.path(), &chain);
    let mut bare = disk::Bare::new();
    let (mut early_times, mut late_times, mut syncs) = (Vec::new(), Vec::new(), Vec::new());
    let (mut early_bytes, mut late_bytes) = (0, 0);
    engine::runtime().block_on(async {
        let kit = plans::kit(&[("chain", &chain)]);
        let engine = engine::open(folder.path(), kit).await;
        let reader = SqliteReader::open(&folder.path().join("ledger.db")).unwrap();
        for _ in 0..rounds {
            for (at, times, bytes) in [
                (10, &mut early_times, &mut early_bytes),
                (late, &mut late_times, &mut late_bytes),
            ] {
                let started = Instant::now();
                let branch = fork_at(&engine, &run, at).await;
                times.push(started.elapsed());
                *bytes = stored_bytes(&reader, &branch, at);
                // Beside each fork, so that both meet the same disk.
                syncs.push(bare.sync(4096, 3));
            }
        }
        engine.close().await.unwrap();
    });
    let (early, late_time) = (median(&mut early_times), median(&mut late_times));
    let sync = median(&mut syncs);
    let bar = 2 * sync + Duration::from_micros(300);
    let late = thousands(late as f64);
    for (at, time) in [("10", early), (&late, late_time)] {
        table.add(Row {
            what: format!("fork at frame {at}, request to reply, median of {rounds}"),
            figure: ms(time),
            bare: format!("sync of 4 KiB: {}", ms(sync)),
            ratio: format!("{:.1} syncs", time.as_secs_f64() / sync.as_secs_f64()),
            bar: format!("≤ 2 syncs + 0.3 ms = {}", ms(bar)),
            met: Some(time <= bar),
        });
    }
    let ratio = late_time.as_secs_f64() / early.as_secs_f64();
    table.add(Row {
        what: format!("fork at frame {late} against frame 10: time, and bytes of frame and row"),
        figure: format!("{}, {late_bytes} B", ms(late_time)),
        bare: format!("frame 10: {}, {early_bytes} B", ms(early)),
        ratio: format!("{ratio:.2}, {:+} B", late_bytes - early_bytes),
        bar: "the same (≤ 1.2, ≤ 16 B of digits)".to_owned(),
        met: Some(ratio <= 1.2 && (late_bytes - early_bytes).abs() <= 16),
    });
}

async fn fork_at(engine: &Engine, run: &StreamId, at: u64) -> StreamId {
    let request = Request::post(format!("/runs/{}/fork", run.name()))
        .header("content-type", "application/json")
        .body(Body::from(json!({ "at": at }).to_string()))
        .unwrap();
    let response = engine.router.clone().oneshot(request).await.unwrap();
    let status = response.status();
    let body = axum::body::to_bytes(response.into_body(), usize::MAX);
    let body = body.await.unwrap();
    assert_eq!(status, StatusCode::CREATED, "{body:?}");
    let body: Value = serde_json::from_slice(&body).unwrap();
    StreamId::run(body["branch_id"].as_str().unwrap()).unwrap()
}

/// What a branch takes: all of its own frames, and its row.
fn stored_bytes(reader: &SqliteReader, branch: &StreamId, at: u64) -> i64 {
    let frames = reader.read(branch, 0, MAX_PAGE).unwrap();
    assert_eq!(frames.first().map(|first| first.seq), Some(at));
    let frames: usize = frames.iter().map(|record| record.body.len()).sum();
    let row = reader.row(branch).unwrap().unwrap();
    i64::try_from(frames + row.row.as_str().len()).unwrap()
}

/// Stores one run in entries of a thousand frames.
fn store_one(folder: &Path, definition: &Definition) -> StreamId {
    let recorded = plans::record(definition, usize::MAX);
    let stream = recorded.state.stream().clone();
    let row = start::row(&recorded);
    let mut store = SqliteStore::open(&folder.join("ledger.db")).unwrap();
    let epoch = store.acquire().unwrap();
    let mut sealed = recorded.sealed.into_iter().peekable();
    while sealed.peek().is_some() {
        let (entry, _) = Entry::from_sealed(sealed.by_ref().take(1_000).collect()).unwrap();
        let entry = match sealed.peek() {
            Some(_) => entry,
            None => entry.with_index(row.clone()).unwrap(),
        };
        let outcomes = store.append(epoch, &[entry]).unwrap();
        assert!(outcomes.iter().all(Result::is_ok));
    }
    stream
}

/// `trace --of`: the field that came the longest way.
pub(crate) fn of(effort: Effort, table: &mut Table) {
    let steps = effort.of(LONG, 10_000) / 2;
    let recorded = plans::record(&plans::chain(steps, None), usize::MAX);
    let frames: Vec<_> = recorded
        .sealed
        .into_iter()
        .map(|sealed| sealed.frame)
        .collect();
    let mut story_times = Vec::new();
    let mut answer_times = Vec::new();
    let mut origins = 0;
    for _ in 0..5 {
        let started = Instant::now();
        let story = TracedRun::of(&frames).unwrap();
        story_times.push(started.elapsed());
        let started = Instant::now();
        let answer = provenance::answer(&story, "", "output.last.result[0].number").unwrap();
        answer_times.push(started.elapsed());
        origins = answer.origins.len();
    }
    let (decided, answered) = (median(&mut story_times), median(&mut answer_times));
    table.add(Row {
        what: format!(
            "trace --of the output of a run of {} frames ({origins} origin), after load, median \
             of 5",
            thousands(frames.len() as f64)
        ),
        figure: ms(decided + answered),
        bare: format!("deciding the run again: {}", ms(decided)),
        ratio: format!(
            "{} frames/s",
            thousands(per_second(frames.len(), decided + answered))
        ),
        bar: String::new(),
        met: None,
    });
}
