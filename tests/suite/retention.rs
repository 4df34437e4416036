//! Runs that ended long ago are removed, and everything else stays as it was.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ktsu::assemble::LedgerPlace;
use ktsu_api::checks;
use ktsu_eval::{EvalSpec, EvalWriter};
use ktsu_evidence::export::{ExportSelection, export};
use ktsu_history::evals;
use ktsu_ledger::event::{Effects, Principal};
use ktsu_ledger::store::{Filter, Reader as _, SqliteReader};
use ktsu_ledger::{StreamId, Timestamp};
use ktsu_orchestrator::{CommandError, MicrosClock};
use ktsu_workflow::admit::intervention::{ForkPosition, ForkRequest};
use serde_json::{Value, json};

use crate::support::process::Process;
use crate::support::{Client, KitDir, Lab, campaign, guarded};

const DAY: u64 = 24 * 60 * 60 * 1_000_000;
/// The first of January 2024.
const THEN: u64 = 1_704_067_200_000_000;
const KEEP: &str = "retention: {complete_days: 10, failed_days: 30}\n";

fn kit() -> KitDir {
    KitDir::new(&[
        (
            "w",
            r#"
params: {schema: {type: object, properties: {text: {type: string, default: x}}}}
pipeline:
  - {id: t, transform: {inputs: [{from: params.text}], ops: []}}
"#,
        ),
        (
            "f",
            r#"
pipeline:
  - {id: t, webhook: {url: "http://127.0.0.1:1/"}}
"#,
        ),
    ])
}

/// A clock that goes with the time from some moment on, and can be moved.
fn moved() -> (Arc<AtomicU64>, MicrosClock) {
    let micros = Arc::new(AtomicU64::new(THEN));
    let read = Arc::clone(&micros);
    let clock = move || Timestamp::from_micros(read.fetch_add(1, Ordering::SeqCst));
    (micros, Arc::new(clock))
}

struct Desk {
    lab: Lab,
    time: Arc<AtomicU64>,
    _kit: KitDir,
    folder: tempfile::TempDir,
}

impl Desk {
    async fn new() -> Self {
        Self::from(THEN).await
    }

    /// With a clock that begins there.
    async fn from(then: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (time, clock) = moved();
        time.store(then, Ordering::SeqCst);
        let kit = kit();
        let place = LedgerPlace::File(folder.path().join("ledger.db"));
        let lab = Lab::in_environment_at(place, &kit, KEEP, &[], Some(clock)).await;
        Self {
            lab,
            time,
            _kit: kit,
            folder,
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("ledger.db")
    }

    fn reader(&self) -> SqliteReader {
        SqliteReader::open(&self.path()).unwrap()
    }

    async fn run(&self, workflow: &str, body: Value) -> String {
        let envelope = self.lab.client.run(workflow, body).await;
        envelope["run_id"].as_str().unwrap().to_owned()
    }

    async fn days(&self, days: u64) -> u64 {
        self.time.fetch_add(days * DAY, Ordering::SeqCst);
        self.lab
            .engine
            .orchestrator
            .remove_due_runs()
            .await
            .unwrap()
    }

    async fn status(&self, run: &str) -> u16 {
        self.lab.client.get(&format!("/runs/{run}")).await.status
    }

    async fn hold(&self, run: &str, release: bool) -> u16 {
        let body = json!({"reason": "a dispute", "release": release}).to_string();
        let path = format!("/runs/{run}/hold");
        self.lab.client.post(&path, body).await.status
    }

    /// Stops the engine and verifies everything.
    async fn sound(self) -> tempfile::TempDir {
        let path = self.path();
        self.lab.close().await;
        sound(&path);
        self.folder
    }
}

fn sound(path: &Path) {
    let report = ktsu_history::verify::ledger(path, &Default::default(), &mut |_| {}).unwrap();
    assert_eq!(report.problems, vec![]);
    assert_eq!(report.unreferenced_blobs, 0);
}

fn big(salt: &str) -> Value {
    json!({"text": salt.repeat(70_000)})
}

#[tokio::test]
async fn a_run_is_removed_when_the_limit_of_its_status_has_passed() {
    let desk = Desk::new().await;
    let complete = desk.run("w", big("a")).await;
    let failed = desk.run("f", json!({})).await;
    assert_eq!(desk.days(9).await, 0);
    assert_eq!(desk.days(1).await, 1);
    let answer = desk.lab.client.get(&format!("/runs/{complete}")).await;
    let told = answer.json();
    assert_eq!((answer.status, &told["code"]), (410, &json!("run_removed")));
    let words = told["detail"].as_str().unwrap();
    assert!(
        words.contains("2024-01-11 by retention; it was complete"),
        "{told}"
    );
    assert_eq!(desk.status(&failed).await, 200);
    assert_eq!(desk.days(19).await, 0);
    assert_eq!(desk.days(1).await, 1);
    assert_eq!(desk.status(&failed).await, 410);
    let list = desk.lab.client.get("/runs").await.json();
    assert_eq!(list["runs"], json!([]), "{list}");
    // Nothing is left to remove, and new runs are not affected.
    assert_eq!(desk.days(0).await, 0);
    let next = desk.run("w", big("a")).await;
    assert_eq!(desk.status(&next).await, 200);
    desk.sound().await;
}

#[tokio::test]
async fn a_held_run_stays_until_the_hold_is_released() {
    let desk = Desk::new().await;
    let run = desk.run("w", json!({})).await;
    assert_eq!(desk.hold(&run, true).await, 409);
    assert_eq!(desk.hold(&run, false).await, 200);
    assert_eq!(desk.hold(&run, false).await, 409);
    let other = desk.run("w", json!({})).await;
    assert_eq!(desk.days(100).await, 1);
    assert_eq!(
        (desk.status(&run).await, desk.status(&other).await),
        (200, 410)
    );
    assert_eq!(desk.hold(&other, false).await, 410);
    assert_eq!(desk.hold(&run, true).await, 200);
    assert_eq!(desk.days(0).await, 1);
    assert_eq!(desk.status(&run).await, 410);
    desk.sound().await;
}

#[tokio::test]
async fn a_hold_outlives_the_engine() {
    let desk = Desk::new().await;
    let run = desk.run("w", json!({})).await;
    assert_eq!(desk.hold(&run, false).await, 200);
    let time = desk.time.load(Ordering::SeqCst);
    let folder = desk.sound().await;
    let clock: MicrosClock = Arc::new(move || Timestamp::from_micros(time + 100 * DAY));
    let place = LedgerPlace::File(folder.path().join("ledger.db"));
    let kit = kit();
    let lab = Lab::in_environment_at(place, &kit, KEEP, &[], Some(clock)).await;
    assert_eq!(lab.engine.orchestrator.remove_due_runs().await, Ok(0));
    assert_eq!(lab.client.get(&format!("/runs/{run}")).await.status, 200);
    lab.close().await;
}

/// A run that is due, and an engine that starts that many days later.
async fn started_later(days: u64) -> (Lab, String, Arc<AtomicU64>, tempfile::TempDir) {
    let desk = Desk::new().await;
    let run = desk.run("w", json!({})).await;
    let then = desk.time.load(Ordering::SeqCst);
    let folder = desk.sound().await;
    let (lab, time) = started(&folder, then + days * DAY).await;
    (lab, run, time, folder)
}

async fn started(folder: &tempfile::TempDir, at: u64) -> (Lab, Arc<AtomicU64>) {
    let (time, clock) = moved();
    time.store(at, Ordering::SeqCst);
    let place = LedgerPlace::File(folder.path().join("ledger.db"));
    let lab = Lab::in_environment_at(place, &kit(), KEEP, &[], Some(clock)).await;
    (lab, time)
}

/// A wrong clock must not delete what is to be kept, however often the engine is restarted with it.
#[tokio::test]
async fn nothing_is_removed_for_a_day_after_a_start_whose_clock_is_far_ahead() {
    let (lab, run, _, folder) = started_later(15).await;
    let health = lab.client.get("/health").await;
    assert_eq!(health.status, 200, "{}", health.text());
    let told = health.json()["retention"].as_str().unwrap().to_owned();
    assert!(
        told.contains(" d ahead of what was recorded before"),
        "{told}"
    );
    assert!(told.ends_with("24 h are left"), "{told}");
    assert_eq!(lab.engine.orchestrator.remove_due_runs().await, Ok(0));
    lab.close().await;
    let hour = DAY / 24;
    let (lab, time) = started(&folder, THEN + 15 * DAY + 20 * hour).await;
    let told = lab.client.get("/health").await.json()["retention"].to_string();
    assert!(told.contains(" h are left"), "{told}");
    // The wall clock alone does not end it.
    time.fetch_add(100 * DAY, Ordering::SeqCst);
    assert_eq!(lab.engine.orchestrator.remove_due_runs().await, Ok(0));
    assert_eq!(lab.client.get(&format!("/runs/{run}")).await.status, 200);
    lab.close().await;
}

#[tokio::test]
async fn runs_are_removed_once_a_day_was_recorded_since_the_clock_was_ahead() {
    let (lab, run, time, folder) = started_later(15).await;
    let then = time.load(Ordering::SeqCst);
    for _ in 0..2 {
        time.fetch_add(DAY * 6 / 10, Ordering::SeqCst);
        lab.client.run("w", json!({})).await;
    }
    lab.close().await;
    let (lab, _) = started(&folder, then + DAY * 13 / 10).await;
    assert_eq!(
        lab.client.get("/health").await.json()["retention"],
        Value::Null
    );
    let removed = async {
        while lab.client.get(&format!("/runs/{run}")).await.status != 410 {
            tokio::task::yield_now().await;
        }
    };
    guarded("a removal", removed).await;
    lab.close().await;
    // A start within a day of the last frame has nothing to doubt either.
    let (lab, _, _, _folder) = started_later(0).await;
    assert_eq!(
        lab.client.get("/health").await.json()["retention"],
        Value::Null
    );
    lab.close().await;
}

#[tokio::test]
async fn a_fork_keeps_its_parent_and_they_go_together() {
    let desk = Desk::new().await;
    let run = desk.run("w", json!({})).await;
    desk.time.fetch_add(9 * DAY, Ordering::SeqCst);
    let fork = json!({"at": 2, "go": true}).to_string();
    let answer = desk
        .lab
        .client
        .post(&format!("/runs/{run}/fork"), fork)
        .await;
    let branch = answer.json()["branch_id"].as_str().unwrap().to_owned();
    desk.lab.client.ended(&branch).await;
    assert_eq!(desk.days(5).await, 0);
    assert_eq!(
        (desk.status(&run).await, desk.status(&branch).await),
        (200, 200)
    );
    assert_eq!(desk.days(5).await, 2);
    assert_eq!(
        (desk.status(&run).await, desk.status(&branch).await),
        (410, 410)
    );
    desk.sound().await;
}

#[tokio::test]
async fn a_verdict_goes_with_its_run_and_does_not_keep_it() {
    let desk = Desk::new().await;
    let run = desk.run("w", json!({})).await;
    let held = desk.run("w", json!({})).await;
    desk.days(9).await;
    let spec =
        "invariants: {a: {description: d, check: {type: output, expr: status, equals: complete}}}";
    let mut evals = Vec::new();
    for run in [&run, &held] {
        let body = json!({"run": run, "spec": spec}).to_string();
        let checked = desk.lab.client.post("/checks", body).await.json();
        assert_eq!(checked["status"], "passed");
        evals.push(checked["eval_id"].as_str().unwrap().to_owned());
    }
    assert_eq!(desk.hold(&held, false).await, 200);
    assert_eq!(desk.days(1).await, 2);
    let status = async |eval: &str| {
        let answer = desk.lab.client.get(&format!("/evals/{eval}")).await;
        answer.status
    };
    assert_eq!(
        (desk.status(&run).await, desk.status(&held).await),
        (410, 200)
    );
    assert_eq!(
        (status(&evals[0]).await, status(&evals[1]).await),
        (410, 200)
    );
    assert_eq!(desk.hold(&held, true).await, 200);
    assert_eq!(desk.days(0).await, 2);
    assert_eq!(status(&evals[1]).await, 410);
    desk.sound().await;
}

/// Has the engine append an eval of several runs.
async fn judged(desk: &Desk, runs: &[&String]) -> String {
    let spec = "invariants: {a: {description: d, check: {type: output, expr: status, pattern: .}}}";
    let (parsed, _) = EvalSpec::parse(Path::new("a.eval.yaml"), spec).unwrap();
    let orchestrator = &desk.lab.engine.orchestrator;
    let by = Principal {
        auth: "none".to_owned(),
        id: "local".to_owned(),
    };
    let text = ("a.eval.yaml", spec.to_owned());
    let started = checks::started(orchestrator, &parsed, text, by).unwrap();
    let (mut writer, mut events) = EvalWriter::begin(started, parsed.pass_threshold);
    let reader = desk.reader();
    for run in runs {
        let stream = StreamId::run(run).unwrap();
        let checked = evals::check(&reader, &stream, &parsed.invariants, None).unwrap();
        events.extend(writer.judged(checked.started, Ok(checked.results)));
    }
    events.extend(writer.finish());
    let mut eval = orchestrator.new_eval().unwrap();
    orchestrator.append_eval(&mut eval, events).await.unwrap();
    eval.stream.name().to_owned()
}

#[tokio::test]
async fn an_eval_of_several_runs_goes_with_the_first_unless_another_is_held() {
    let desk = Desk::new().await;
    // What failed is kept for longer than what is complete.
    let (failed, first, second) = (
        desk.run("f", json!({})).await,
        desk.run("w", json!({})).await,
        desk.run("w", json!({})).await,
    );
    let eval = judged(&desk, &[&failed, &first, &second]).await;
    let status = async || {
        let answer = desk.lab.client.get(&format!("/evals/{eval}")).await;
        answer.status
    };
    assert_eq!(desk.hold(&failed, false).await, 200);
    assert_eq!(desk.days(10).await, 0);
    assert_eq!(status().await, 200);
    assert_eq!(desk.hold(&failed, true).await, 200);
    // Both complete runs, and the eval once.
    assert_eq!(desk.days(0).await, 3);
    assert_eq!(status().await, 410);
    assert_eq!(desk.status(&first).await, 410);
    assert_eq!(desk.status(&failed).await, 200);
    desk.sound().await;
}

#[tokio::test]
async fn a_paused_run_stays_whatever_its_age() {
    let desk = Desk::new().await;
    let run = desk.run("w", json!({})).await;
    // A branch that waits to be continued is parked like a paused run.
    let fork = json!({"at": 2}).to_string();
    let answer = desk
        .lab
        .client
        .post(&format!("/runs/{run}/fork"), fork)
        .await;
    assert_eq!(answer.json()["status"], "waiting", "{}", answer.text());
    assert_eq!(desk.days(1000).await, 0);
    desk.sound().await;
}

#[tokio::test]
async fn an_archive_of_a_removed_run_verifies_and_so_does_one_of_all_that_is_left() {
    let desk = Desk::new().await;
    let run = desk.run("w", big("a")).await;
    let stream = StreamId::run(&run).unwrap();
    let kept = desk.run("f", json!({})).await;
    // Checkpoints follow at once; a close signs what is left.
    let time = desk.time.load(Ordering::SeqCst);
    let folder = desk.sound().await;
    let path = folder.path().join("ledger.db");
    let one = ExportSelection {
        streams: vec![stream.clone()],
        ..ExportSelection::default()
    };
    let all = ExportSelection {
        all: true,
        ..ExportSelection::default()
    };
    let reader = SqliteReader::open(&path).unwrap();
    let before = export(&reader, &one).unwrap();
    drop(reader);
    let (clock_time, clock) = moved();
    clock_time.store(time, Ordering::SeqCst);
    let (place, kit) = (LedgerPlace::File(path.clone()), kit());
    let lab = Lab::in_environment_at(place, &kit, KEEP, &[], Some(clock)).await;
    let removed = || async { lab.client.get(&format!("/runs/{run}")).await.status == 410 };
    clock_time.fetch_add(15 * DAY, Ordering::SeqCst);
    lab.engine.orchestrator.remove_due_runs().await.unwrap();
    assert!(removed().await);
    lab.close().await;
    sound(&path);
    let reader = SqliteReader::open(&path).unwrap();
    for archive in [before, export(&reader, &all).unwrap()] {
        let file = folder.path().join("archive.tar");
        std::fs::write(&file, &archive.bytes).unwrap();
        let verified = std::process::Command::new(env!("CARGO_BIN_EXE_ktsu"))
            .args(["evidence", "verify"])
            .arg(&file)
            .env_clear()
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&verified.stdout);
        assert_eq!(verified.status.code(), Some(0), "{told}");
    }
    assert!(
        reader
            .tail(&StreamId::run(&kept).unwrap())
            .unwrap()
            .is_some()
    );
    assert!(reader.tail(&stream).unwrap().is_none());
}

#[tokio::test]
async fn followers_pass_over_removed_runs_and_a_freed_key_starts_another() {
    let desk = Desk::new().await;
    let headers = [("Idempotency-Key", "k")];
    let ask = async || {
        let answer = desk
            .lab
            .client
            .send("POST", "/invoke/w?wait=30", &headers, "{}")
            .await;
        answer.json()["run_id"].as_str().unwrap().to_owned()
    };
    let first = ask().await;
    assert_eq!(ask().await, first);
    let second = desk.run("f", json!({})).await;
    assert_eq!(desk.days(10).await, 1);
    let next = ask().await;
    assert_ne!(next, first);
    let feed = desk.lab.engine.orchestrator.events();
    let mut seen = BTreeSet::new();
    let mut from = 1;
    loop {
        let page = feed.page(from, |_| true).await.unwrap();
        from = page.next;
        seen.extend(page.frames.iter().map(|frame| frame.run.name().to_owned()));
        if page.is_end {
            break;
        }
    }
    assert!(seen.contains(&second) && seen.contains(&next), "{seen:?}");
    desk.sound().await;
}

/// How many runs are in the ledger.
fn left(path: &Path) -> usize {
    let reader = SqliteReader::open(path).unwrap();
    let filter = Filter::default();
    reader.list(&filter, None, 10_000).unwrap().rows.len()
}

/// Runs that are due, and runs that are not.
const RUNS: usize = 80;
const YOUNG_RUNS: usize = 12;

#[tokio::test]
async fn an_owner_that_is_killed_while_it_removes_leaves_whole_runs_only() {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = u64::try_from(now.unwrap().as_micros()).unwrap();
    let desk = Desk::from(now - 11 * DAY).await;
    let run = async |at: usize| match at % 20 {
        0 => desk.run("w", big(&(at % 7).to_string())).await,
        _ => desk.run("w", json!({})).await,
    };
    let runs = futures_util::future::join_all((0..RUNS).map(run)).await;
    assert_eq!(desk.hold(&runs[7], false).await, 200);
    // The ledger was in use since, so that its owners need not doubt their clock.
    for _ in 0..YOUNG_RUNS {
        desk.time.fetch_add(DAY * 9 / 10, Ordering::SeqCst);
        desk.run("w", json!({})).await;
    }
    let folder = desk.sound().await;
    let path = folder.path().join("ledger.db");
    let environment = folder.path().join("keep.env.yaml");
    std::fs::write(&environment, KEEP).unwrap();
    let (kit, environment) = (kit(), environment.to_str().unwrap().to_owned());
    let mut before = left(&path);
    assert_eq!(before, RUNS + YOUNG_RUNS);
    let mut kills = 0;
    while before > 1 + YOUNG_RUNS {
        let process = Process::start(kit.dir.path(), &path, &[("KTSU_ENV", &environment)]);
        let removed = async {
            while left(&path) == before {
                tokio::task::yield_now().await;
            }
        };
        guarded("a removal", removed).await;
        process.kill();
        kills += 1;
        sound(&path);
        let now = left(&path);
        assert!(now < before);
        before = now;
    }
    assert!(kills > 1, "everything was removed at once");
    let reader = SqliteReader::open(&path).unwrap();
    let held = StreamId::run(&runs[7]).unwrap();
    assert!(
        reader.tail(&held).unwrap().is_some(),
        "a held run was removed"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn many_runs_are_aged_out_while_clients_invoke() {
    let desk = Desk::new().await;
    let runs = campaign(320, 100_000);
    let invoke = async |client: &Client, count: usize| {
        for _ in 0..count {
            let answer = client.post("/invoke/w?wait=60", "{}").await;
            assert_eq!(answer.status, 200, "{}", answer.text());
        }
    };
    let clients: Vec<Client> = (0..16).map(|_| Client::of(&desk.lab.engine.url)).collect();
    let each = runs / clients.len();
    futures_util::future::join_all(clients.iter().map(|client| invoke(client, each))).await;
    let old = left_of(&desk);
    assert_eq!(old, each * clients.len());
    desk.time.fetch_add(11 * DAY, Ordering::SeqCst);
    let done = AtomicBool::new(false);
    let answered = AtomicU64::new(0);
    let while_removing = async |client: &Client| {
        while !done.load(Ordering::SeqCst) {
            invoke(client, 1).await;
            answered.fetch_add(1, Ordering::SeqCst);
        }
    };
    let sweep = async {
        let removed = desk.lab.engine.orchestrator.remove_due_runs().await;
        done.store(true, Ordering::SeqCst);
        removed
    };
    let clients = futures_util::future::join_all(clients.iter().map(while_removing));
    let (removed, _) = tokio::join!(sweep, clients);
    assert_eq!(removed, Ok(old as u64));
    let answered = usize::try_from(answered.load(Ordering::SeqCst)).unwrap();
    assert!(answered > 0);
    assert_eq!(left_of(&desk), answered);
    desk.sound().await;
}

/// Between the answer that a run exists and the fork of it, a sweep can be faster.
#[tokio::test]
async fn the_fork_of_a_run_that_was_just_removed_says_so() {
    let desk = Desk::new().await;
    let run = desk.run("w", json!({})).await;
    assert_eq!(desk.days(11).await, 1);
    let stream = StreamId::run(&run).unwrap();
    for point in [ForkPosition::At(2), ForkPosition::End] {
        let request = ForkRequest {
            point,
            by: Principal {
                auth: "none".to_owned(),
                id: "local".to_owned(),
            },
            reason: None,
            effects: Effects::Suppress,
            definition: None,
            prompts: Default::default(),
            params: Vec::new(),
            overlays: Vec::new(),
            go: false,
        };
        let forked = desk.lab.engine.orchestrator.fork(&stream, request).await;
        assert!(matches!(forked, Err(CommandError::Removed)), "{forked:?}");
    }
    desk.sound().await;
}

#[tokio::test]
async fn an_engine_that_is_opened_for_a_hold_removes_nothing() {
    let desk = Desk::new().await;
    let (held, other) = (
        desk.run("w", json!({})).await,
        desk.run("w", json!({})).await,
    );
    let path = desk.path();
    let env = desk.folder.path().join("local.env.yaml");
    std::fs::write(&env, KEEP).unwrap();
    let folder = desk.sound().await;
    let done = std::process::Command::new(env!("CARGO_BIN_EXE_ktsu"))
        .args(["hold", &held, "--reason", "a dispute", "--env"])
        .arg(&env)
        .arg("--ledger")
        .arg(&path)
        .output()
        .unwrap();
    assert!(done.status.success(), "{done:?}");
    let reader = SqliteReader::open(&path).unwrap();
    for run in [held, other] {
        let stream = StreamId::run(&run).unwrap();
        assert!(reader.tail(&stream).unwrap().is_some(), "{run}");
    }
    drop(folder);
}

fn left_of(desk: &Desk) -> usize {
    let reader = desk.reader();
    let (mut count, mut cursor) = (0, None);
    loop {
        let page = reader
            .list(&Filter::default(), cursor.as_ref(), 10_000)
            .unwrap();
        count += page.rows.len();
        cursor = page.next;
        if cursor.is_none() {
            return count;
        }
    }
}
