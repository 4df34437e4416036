//! Two thousand generated mutations of good kits: nothing panics, nothing hangs, and what passes
//! validation never fails a run for a reason that stood in the files.
//!
//! `KTSU_TEST_SEED=7` takes other mutations, `KTSU_TEST_ONE=123` that one alone.

mod kits;
mod mutate;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use ktsu::egress::{self, Policy};
use ktsu::gateway::Gateway;
use ktsu::kit::{self, Kit};
use ktsu_ledger::appender::Options;
use ktsu_ledger::store::MemoryStore;
use serde_json::{Value, json};

use crate::support::{Sink, Within, process};
use kits::Original;
use mutate::{Chance, mutate, words};

/// How many mutations each kit gets.
const SHARES: [(&str, usize); 4] = [
    ("hello", 250),
    ("intake", 300),
    ("triage", 350),
    ("rich", 1100),
];

/// Codes of failures that stand in the files: whoever gets one was told too late.
const STATIC: [&str; 12] = [
    "command_not_supported",
    "internal",
    "internal_error",
    "invalid_params",
    "invalid_request",
    "ledger_stopped",
    "report_refused",
    "run_failed",
    "runtime_refused",
    "secret_in_prompt",
    "unknown_group",
    "webhook_refused",
];

/// What became of a mutation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    /// The files were refused.
    Refused,
    /// They were taken, but not what its workflows were given.
    NotStarted,
    /// It ran, and every run ended well or for reasons of its data.
    Ran,
}

/// Ends the process if a case takes far too long: a hang cannot be reported otherwise.
struct Watchdog {
    state: Arc<(Mutex<Watched>, Condvar)>,
}

#[derive(Default)]
struct Watched {
    case: String,
    count: usize,
    over: bool,
}

impl Watchdog {
    fn new() -> Self {
        let state: Arc<(Mutex<Watched>, Condvar)> = Arc::default();
        let watched = state.clone();
        std::thread::spawn(move || {
            let (state, changed) = &*watched;
            let mut now = state.lock().unwrap();
            while !now.over {
                let before = now.count;
                let waited = changed.wait_timeout_while(now, Duration::from_secs(60), |now| {
                    now.count == before && !now.over
                });
                let (next, timeout) = waited.unwrap();
                now = next;
                if timeout.timed_out() {
                    eprintln!("a case hangs:\n{}", now.case);
                    std::process::abort();
                }
            }
        });
        Self { state }
    }

    fn begins(&self, case: String) {
        let (state, changed) = &*self.state;
        let mut now = state.lock().unwrap();
        now.count += 1;
        now.case = case;
        changed.notify_all();
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        let (state, changed) = &*self.state;
        state.lock().unwrap().over = true;
        changed.notify_all();
    }
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

#[test]
fn no_mutation_of_a_good_kit_panics_hangs_or_fails_later_for_a_static_reason() {
    let seed = number_of("KTSU_TEST_SEED").unwrap_or(1);
    let one = number_of("KTSU_TEST_ONE");
    let kits = kits::all();
    let next = AtomicUsize::new(0);
    let cases: Vec<&Original> = SHARES
        .iter()
        .flat_map(|(name, share)| {
            let kit = kits.iter().find(|kit| kit.name == *name).unwrap();
            std::iter::repeat_n(kit, *share)
        })
        .collect();
    let fates = Mutex::new(BTreeMap::<(&str, Fate), usize>::new());
    let codes = Mutex::new(BTreeMap::<String, usize>::new());
    let wrong = Mutex::new(Vec::<String>::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let watchdog = Watchdog::new();
                let bench = Bench::new();
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(original) = cases.get(number) else {
                        break;
                    };
                    if one.is_some_and(|one| one != number as u64) {
                        continue;
                    }
                    let case = bench.write(original, seed, number);
                    watchdog.begins(case.tell());
                    let tried = catch_unwind(AssertUnwindSafe(|| bench.try_out(original)));
                    match tried {
                        Ok(Ok((fate, said))) => {
                            *fates.lock().unwrap().entry((case.kit, fate)).or_default() += 1;
                            for code in said {
                                *codes.lock().unwrap().entry(code).or_default() += 1;
                            }
                        }
                        Ok(Err(why)) => wrong
                            .lock()
                            .unwrap()
                            .push(format!("{why}\n{}", case.tell())),
                        Err(_) => wrong
                            .lock()
                            .unwrap()
                            .push(format!("a panic\n{}", case.tell())),
                    }
                    bench.restore(original, &case);
                }
            });
        }
    });
    let fates = fates.into_inner().unwrap();
    eprintln!("{fates:?}\n{:#?}", codes.into_inner().unwrap());
    let wrong = wrong.into_inner().unwrap();
    assert!(
        wrong.is_empty(),
        "{} of {}:\n{}",
        wrong.len(),
        cases.len(),
        wrong.join("\n----\n")
    );
    if one.is_none() {
        let ran: usize = fates
            .iter()
            .filter(|((_, fate), _)| *fate == Fate::Ran)
            .map(|(_, n)| n)
            .sum();
        let refused: usize = fates
            .iter()
            .filter(|((_, fate), _)| *fate == Fate::Refused)
            .map(|(_, n)| n)
            .sum();
        assert!(
            ran >= 300 && refused >= 800,
            "{ran} ran, {refused} were refused"
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

    /// A mutation in its place.
    fn write(&self, original: &Original, seed: u64, number: usize) -> Case {
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
        put(&self.folder.path().join(original.name).join(&path), &text);
        Case {
            seed,
            number,
            kit: original.name,
            path,
            text,
        }
    }

    fn restore(&self, original: &Original, case: &Case) {
        put(
            &self.folder.path().join(case.kit).join(&case.path),
            &original.files[&case.path],
        );
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
        root.is_none_or(|root| ktsu::environment::resolve(None, &root.plan.env, &process).is_ok())
    })
}

/// Whether the gateway takes its file, as `start` and `validate` ask it to.
fn gateway_starts(kit: &Kit, pairs: &[(&str, &str)]) -> bool {
    let egress = egress::Client::new(&Policy {
        loopback: true,
        ..Policy::default()
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
    let within = Within::new(kit, MemoryStore::new(), Options::default(), pairs, None).await;
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
            // A sub-workflow; what was given does not fit; tools are not built.
            404 | 422 | 501 => continue,
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
            judge(&frame, &mut said).map_err(|why| format!("{root}: {why}"))?;
        }
    }
    Ok((fate, said))
}

/// The code of a failure, unless it is one that files must be refused for.
fn judge(frame: &Value, said: &mut BTreeSet<String>) -> Result<(), String> {
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
        let mut words = code.to_owned();
        if let Some(message) = error["message"].as_str() {
            let _ = write!(words, ": {}", message.chars().take(90).collect::<String>());
        }
        said.insert(words);
    }
    Ok(())
}
