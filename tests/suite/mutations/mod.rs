//! Two thousand generated mutations of good kits: nothing panics, nothing hangs, and what passes
//! validation never fails a run for a reason that stood in the files.
//!
//! `KTSU_TEST_SEED=7` takes other mutations, `KTSU_TEST_ONE=123` that one alone.

mod files;
mod kits;
mod misspelt;
mod mutate;
mod sound;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ktsu_egress::{self as egress, EgressPolicy};
use ktsu_gateway::Gateway;
use ktsu_kit::{self as kit, Kit};
use ktsu_ledger::appender::Options;
use ktsu_ledger::event::plan::Plan;
use ktsu_ledger::store::MemoryStore;
use serde_json::{Value, json};

use crate::support::{Sink, Within, campaign, process};
use kits::Original;
use mutate::{Chance, mutate, words};

/// How many mutations each kit gets in a full campaign.
const SHARES: [(&str, usize); 4] = [
    ("hello", 250),
    ("intake", 300),
    ("triage", 350),
    ("rich", 1100),
];

/// Codes of failures that stand in the files: whoever gets one was told too late.
const STATIC: [&str; 10] = [
    "command_not_supported",
    "internal",
    "internal_error",
    "invalid_request",
    "ledger_stopped",
    "report_refused",
    "run_failed",
    "runtime_refused",
    "secret_in_prompt",
    "unknown_group",
];

/// What became of a mutation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// The files were refused.
    Refused,
    /// They were taken, but not what its workflows were given.
    NotStarted,
    /// It ran, and every run ended well or for reasons of its data.
    Ran,
}

/// One kit with one or two mutations.
struct Case {
    seed: u64,
    number: usize,
    kit: &'static str,
    path: String,
    text: String,
}

impl Case {
    fn tell(&self) -> String {
        format!(
            "KTSU_TEST_SEED={} KTSU_TEST_ONE={} {}/{}:\n{}",
            self.seed, self.number, self.kit, self.path, self.text
        )
    }
}

fn number_of(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

fn seed() -> u64 {
    ktsu_campaign::seed()
}

/// How many mutations each kit gets now.
fn shares() -> impl Iterator<Item = (&'static str, usize)> {
    SHARES
        .iter()
        .map(|(name, share)| (*name, share / campaign(5, 1)))
}

/// The kit of a case.
fn original(kits: &[Original], number: usize) -> Option<&Original> {
    let mut before = 0;
    shares().find_map(|(name, share)| {
        before += share;
        let found = number < before;
        found.then(|| kits.iter().find(|kit| kit.name == name))?
    })
}

/// A case that lasts longer hangs.
const LONGEST: Duration = Duration::from_secs(60);
/// The cases of one process: engines that are let go of leave things behind.
const BATCH: usize = 125;
/// Which cases a child process takes, as `FROM..TO`.
const CASES: &str = "KTSU_TEST_CASES";

#[test]
fn no_mutation_of_a_good_kit_panics_hangs_or_fails_later_for_a_static_reason() {
    let all: usize = shares().map(|(_, share)| share).sum();
    let one = number_of("KTSU_TEST_ONE").map(|one| usize::try_from(one).unwrap());
    let (cases, batch) = match one {
        Some(one) => (one..one + 1, 1),
        None => (0..all, BATCH),
    };
    let starts = cases.clone().step_by(batch);
    let batches: Vec<_> = starts.map(|at| at..cases.end.min(at + batch)).collect();
    let waiting = Mutex::new(batches);
    let told = Mutex::new(Vec::<(usize, Value)>::new());
    let wrong = Mutex::new(Vec::<String>::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let Some(batch) = waiting.lock().unwrap().pop() else {
                        break;
                    };
                    let mut from = batch.start;
                    // A case that ends its process is told, and the next one goes on.
                    while from < batch.end {
                        let (done, broken) = process_of(from..batch.end);
                        from += done.len();
                        told.lock().unwrap().extend(done);
                        if let Some(why) = broken {
                            wrong
                                .lock()
                                .unwrap()
                                .push(format!("{why}\n{}", Bench::case(from).tell()));
                            from += 1;
                        }
                    }
                }
            });
        }
    });
    let mut wrong = wrong.into_inner().unwrap();
    let mut fates = BTreeMap::<String, usize>::new();
    for (number, said) in told.into_inner().unwrap() {
        let case = Bench::case(number);
        if let Some(why) = said["wrong"].as_str() {
            wrong.push(format!("{why}\n{}", case.tell()));
        }
        for code in said["codes"].as_array().into_iter().flatten() {
            *fates.entry(code.as_str().unwrap().to_owned()).or_default() += 1;
        }
        *fates
            .entry(said["fate"].as_str().unwrap_or("wrong").to_owned())
            .or_default() += 1;
    }
    eprintln!("{fates:#?}");
    assert!(
        wrong.is_empty(),
        "{} of {all}:\n{}",
        wrong.len(),
        wrong.join("\n----\n")
    );
    if one.is_none() {
        let count = |fate: &str| fates.get(fate).copied().unwrap_or_default();
        assert_eq!(count("Refused") + count("NotStarted") + count("Ran"), all);
        let (ran, refused) = (count("Ran"), count("Refused"));
        assert!(ran * 20 >= all * 3 && refused * 5 >= all * 2, "{fates:?}");
    }
}

/// Some cases in a process of their own: what became of each, and why it ended early if it did.
fn process_of(cases: Range<usize>) -> (Vec<(usize, Value)>, Option<String>) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "--ignored",
            "--nocapture",
            "mutations::cases_of_a_process",
        ])
        .env(CASES, format!("{}..{}", cases.start, cases.end))
        .env("KTSU_TEST_SEED", seed().to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (send, lines) = mpsc::channel();
    let out = BufReader::new(child.stderr.take().unwrap());
    let reading = std::thread::spawn(move || {
        for line in out.lines().map_while(Result::ok) {
            let _ = send.send(line);
        }
    });
    let mut done = Vec::new();
    let broken = loop {
        if done.len() == cases.len() {
            break None;
        }
        match lines.recv_timeout(LONGEST) {
            Ok(line) => {
                let said = line.split_once(MARK).map(|(_, said)| said);
                let said = said.map(|said| serde_json::from_str(said).unwrap());
                done.extend(said.map(|said| (cases.start + done.len(), said)));
            }
            Err(RecvTimeoutError::Timeout) => {
                child.kill().unwrap();
                break Some("it hangs".to_owned());
            }
            Err(RecvTimeoutError::Disconnected) => break Some("its process ended".to_owned()),
        }
    };
    let status = child.wait().unwrap();
    reading.join().unwrap();
    (done, broken.map(|why| format!("{why}: {status}")))
}

/// Begins a line that says what became of a case.
const MARK: &str = "became of it: ";

#[test]
#[ignore = "a part of the test above, in a process of its own"]
fn cases_of_a_process() {
    let cases = std::env::var(CASES).unwrap();
    let (from, to) = cases.split_once("..").unwrap();
    let bench = Bench::new();
    let kits = kits::all();
    let panics = Arc::new(AtomicUsize::new(0));
    let (counted, before) = (panics.clone(), std::panic::take_hook());
    // Panics of tasks end nothing but the task.
    std::panic::set_hook(Box::new(move |about| {
        counted.fetch_add(1, Ordering::Relaxed);
        before(about);
    }));
    for number in from.parse().unwrap()..to.parse().unwrap() {
        let case = Bench::case(number);
        let original = original(&kits, number).unwrap();
        put(&bench.place(case.kit, &case.path), &case.text);
        let tried = catch_unwind(AssertUnwindSafe(|| bench.try_out(original)));
        let said = match tried {
            _ if panics.swap(0, Ordering::Relaxed) > 0 => json!({"wrong": "a panic"}),
            Ok(Ok((fate, codes))) => json!({"fate": format!("{fate:?}"), "codes": codes}),
            Ok(Err(why)) => json!({ "wrong": why }),
            Err(_) => json!({"wrong": "a panic"}),
        };
        eprintln!("{MARK}{said}");
        put(
            &bench.place(case.kit, &case.path),
            &original.files[&case.path],
        );
    }
}

#[test]
fn the_kits_that_are_mutated_are_good() {
    let bench = Bench::new();
    for original in kits::all() {
        crate::support::load(&bench.folder.path().join(original.name));
        let (fate, said) = bench.try_out(&original).unwrap();
        assert_eq!(
            (original.name, fate),
            (original.name, Fate::Ran),
            "{said:?}"
        );
    }
}

/// Where mutated kits are written and run.
struct Bench {
    folder: tempfile::TempDir,
    sink: Sink,
    /// The sink lives here.
    _world: tokio::runtime::Runtime,
}

impl Bench {
    fn new() -> Self {
        let world = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let sink = world.block_on(Sink::new());
        let folder = tempfile::tempdir().unwrap();
        for kit in kits::all() {
            for (path, text) in &kit.files {
                put(&folder.path().join(kit.name).join(path), text);
            }
        }
        Self {
            folder,
            sink,
            _world: world,
        }
    }

    /// The mutation of a number.
    fn case(number: usize) -> Case {
        let kits = kits::all();
        let original = original(&kits, number).unwrap();
        let seed = seed();
        let mut chance = Chance::new(seed.wrapping_mul(1_000_003).wrapping_add(number as u64));
        chance.next();
        let paths: Vec<&String> = original.files.keys().collect();
        let path = chance.one(&paths).clone();
        let other = &original.files[chance.one(&paths)];
        let words = words(original.files.values());
        let mut text = mutate(&original.files[&path], &words, other, &mut chance);
        if chance.below(4) == 0 {
            text = mutate(&text, &words, other, &mut chance);
        }
        Case {
            seed,
            number,
            kit: original.name,
            path,
            text,
        }
    }

    fn place(&self, kit: &str, path: &str) -> PathBuf {
        self.folder.path().join(kit).join(path)
    }

    /// Validates the kit, and runs what passes.
    fn try_out(&self, original: &Original) -> Result<(Fate, BTreeSet<String>), String> {
        let Ok(kit) = kit::load(&self.folder.path().join(original.name)) else {
            return Ok((Fate::Refused, BTreeSet::new()));
        };
        let mut pairs = vec![("TOKEN", "a-secret-of-ours")];
        for name in ["SINK", "RECEIVER_URL"] {
            pairs.push((name, &self.sink.url));
        }
        if !has_values(&kit, &pairs) || !gateway_starts(&kit, &pairs) {
            return Ok((Fate::Refused, BTreeSet::new()));
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let ran = runtime.block_on(run(Arc::new(kit), original, &pairs));
        self.sink.forget();
        ran
    }
}

fn put(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

/// Whether every variable has a value: `start` refuses otherwise.
fn has_values(kit: &Kit, pairs: &[(&str, &str)]) -> bool {
    let process = process(pairs);
    kit.workflows.values().all(|workflow| {
        let root = workflow.definition.root();
        root.is_none_or(|root| ktsu_environment::resolve(None, &root.plan.env, &process).is_ok())
    })
}

/// Whether the gateway takes its file, as `start` and `validate` ask it to.
fn gateway_starts(kit: &Kit, pairs: &[(&str, &str)]) -> bool {
    let egress = egress::Client::new(&EgressPolicy {
        loopback: true,
        ..EgressPolicy::default()
    })
    .unwrap();
    let file = kit.root.join("gateway.yaml");
    !file.is_file() || Gateway::load(&file, None, &process(pairs), &egress).is_ok()
}

/// Runs every root workflow, and gathers the codes of what failed.
async fn run(
    kit: Arc<Kit>,
    original: &Original,
    pairs: &[(&str, &str)],
) -> Result<(Fate, BTreeSet<String>), String> {
    let roots: Vec<String> = kit.workflows.keys().cloned().collect();
    let within = Within::new(
        kit.clone(),
        MemoryStore::new(),
        Options::default(),
        pairs,
        None,
    )
    .await;
    let mut fate = Fate::NotStarted;
    let mut said = BTreeSet::new();
    for root in roots {
        let input = original
            .inputs
            .get(root.as_str())
            .cloned()
            .unwrap_or(json!({}));
        let answer = within
            .client
            .post(&format!("/invoke/{root}?wait=30"), input.to_string())
            .await;
        match answer.status {
            200 => fate = Fate::Ran,
            // A sub-workflow; what was given does not fit.
            404 | 422 => continue,
            _ => {
                return Err(format!(
                    "{root} is answered {}: {}",
                    answer.status,
                    answer.text()
                ));
            }
        }
        let run = answer.json()["run_id"].as_str().unwrap().to_owned();
        for frame in within.client.frames(&run).await {
            judge(&frame, &kit.workflows[&root].definition.plan, &mut said)
                .map_err(|why| format!("{root}: {why}"))?;
        }
    }
    Ok((fate, said))
}

/// The code of a failure, unless it is one that files must be refused for.
fn judge(frame: &Value, plan: &Plan, said: &mut BTreeSet<String>) -> Result<(), String> {
    let kind = frame["type"].as_str().unwrap_or_default();
    let data = &frame["data"];
    for error in [data, &data["error"], &data["outcome"]["error"]] {
        let Some(code) = error["code"].as_str() else {
            continue;
        };
        if code == "run_failed" && kind == "step.skipped" {
            continue;
        }
        if STATIC.contains(&code) {
            return Err(format!("{kind}: {error}"));
        }
        // So may a URL come from data.
        let step = data["step"].as_str().unwrap_or_default();
        if code == "webhook_refused" && files::has_plain_url(plan, step) {
            return Err(format!("{kind}: {error}"));
        }
        // What is given to a child or an agent may come from data, too.
        let params = code == "invalid_params";
        let hopeless = error.to_string().contains("no value is allowed");
        if params && hopeless {
            return Err(format!("{kind}: {error}"));
        }
        if let Some(why) = params.then(|| files::fault_of(plan)).flatten() {
            return Err(format!("{kind}: {why}: {error}"));
        }
        let mut words = format!("{kind} {code}");
        if let Some(message) = error["message"].as_str() {
            let _ = write!(words, ": {}", message.chars().take(90).collect::<String>());
        }
        said.insert(words);
    }
    Ok(())
}
