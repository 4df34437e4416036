//! The process of a run with worlds killed at random moments, and started again: the world is the one
//! of a run that nobody disturbed, and no reply that was recorded is asked again.
//!
//! `KTSU_KILLS` says how often (5 without it), `KTSU_TEST_SEED` which moments.

use std::collections::BTreeSet;

use ktsu_ledger::store::SqliteReader;
use ktsu_ledger::{verify, verify_file};

use super::{answered, goal, replays};
use crate::evidence;
use crate::support::ledgers::frames;
use crate::support::model::{KEY, Model};
use crate::support::process::Process;
use crate::support::random::RandomNumbers;
use crate::support::worlds::{self, Answers, GATE, Known, SURVEY_CALLS};
use crate::support::{KitDir, Sink};

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok();
    text.map(|text| text.parse().unwrap())
}

/// Calls during which the process may be killed.
const HELD: [&str; 5] = [
    "careless",
    "answer what",
    "doubt first who",
    "doubt second why",
    "dig why",
];

/// When to kill.
enum Moment {
    /// Once a frame of this number is recorded.
    Frame(u64),
    /// While this call is under way.
    Call(&'static str),
}

struct Engines {
    kit: KitDir,
    folder: tempfile::TempDir,
    sink: Sink,
    model: Model,
    answers: Answers,
}

impl Engines {
    async fn new(kit: impl Fn(&Model) -> KitDir) -> Self {
        let answers = Answers::default();
        let model = answers.model().await;
        Self {
            kit: kit(&model),
            folder: tempfile::tempdir().unwrap(),
            sink: Sink::new().await,
            model,
            answers,
        }
    }

    fn ledger(&self) -> std::path::PathBuf {
        self.folder.path().join("ledger.db")
    }

    fn start(&self) -> Process {
        let pairs = [KEY, ("HOOK", self.sink.url.as_str())];
        Process::start(self.kit.dir.path(), &self.ledger(), &pairs)
    }

    /// A run that nobody disturbs: its id and its world.
    async fn undisturbed(&self, world: &str) -> (String, Known) {
        let process = self.start();
        let envelope = process.client().run(world, goal()).await;
        assert_eq!(envelope["status"], "complete", "{envelope:#}");
        let run = envelope["run_id"].as_str().unwrap().to_owned();
        let known = Known::of(&process.client(), &run).await;
        process.stop();
        (run, known)
    }

    /// Starts a run and kills the engine; gives the run, and what was answered on record.
    async fn killed(&self, world: &str, moment: &Moment) -> (String, BTreeSet<String>) {
        self.model.forget();
        self.answers.hold(match moment {
            Moment::Call(held) => Some(held),
            Moment::Frame(_) => None,
        });
        let process = self.start();
        let client = process.client();
        let run = client.invoke(world, goal()).await;
        match moment {
            Moment::Frame(last) => {
                let mut events = client.events(&run, None).await;
                while let Some(event) = events.next().await {
                    if event.id >= *last {
                        break;
                    }
                }
            }
            Moment::Call(held) => {
                let is_held = |call: &crate::support::model::Call| call.user().contains(held);
                self.model.until(|calls| calls.iter().any(is_held)).await;
            }
        }
        process.kill();
        let reader = SqliteReader::open(&self.ledger()).unwrap();
        let known = answered(&frames(&reader, &run)).into_iter().collect();
        (run, known)
    }

    /// The run ends as if nothing had happened.
    async fn ends_well(
        &self,
        (run, recorded): (&str, &BTreeSet<String>),
        known: &Known,
        calls: usize,
        told: &str,
    ) {
        self.model.open(GATE);
        let process = self.start();
        let envelope = process.client().ended(run).await;
        assert_eq!(envelope["status"], "complete", "{told}: {envelope:#}");
        assert_eq!(Known::of(&process.client(), run).await, *known, "{told}");
        process.stop();
        let counts = self.model.counts();
        assert_eq!(counts.len(), calls, "{told}: {counts:#?}");
        for (messages, times) in counts {
            let most = if recorded.contains(&messages) { 1 } else { 2 };
            assert!(times <= most, "{told}: {times} times {messages}");
        }
    }

    /// Every frame of the ledger follows from those before it.
    fn is_sound(&self, runs: &[String]) {
        let options = verify::VerifyOptions::default();
        let report = verify_file(&self.ledger(), &options, &mut |_| {}).unwrap();
        assert_eq!(report.problems, []);
        let reader = SqliteReader::open(&self.ledger()).unwrap();
        for run in runs {
            replays(&frames(&reader, run), run);
        }
        evidence::holds(&reader, "killed and started again");
    }
}

#[tokio::test]
async fn a_world_that_asks_and_runs_outlives_its_process() {
    let mut random = RandomNumbers::seeded();
    let engines = Engines::new(worlds::survey).await;
    let (first, known) = engines.undisturbed("survey").await;
    assert_eq!(engines.model.counts().len(), SURVEY_CALLS);
    let reader = SqliteReader::open(&engines.ledger()).unwrap();
    let all = frames(&reader, &first).len() as u64;
    drop(reader);
    let mut runs = vec![first];
    for number in 0..number("KTSU_KILLS").unwrap_or(5) {
        let moment = match random.next(2) {
            0 => Moment::Frame(1 + random.next(all - 2)),
            _ => Moment::Call(HELD[random.next(HELD.len() as u64) as usize]),
        };
        let (run, recorded) = engines.killed("survey", &moment).await;
        let told = match moment {
            Moment::Frame(frame) => format!("{number}: {run} killed at frame {frame}"),
            Moment::Call(held) => format!("{number}: {run} killed while asked {held:?}"),
        };
        let run_of = (run.as_str(), &recorded);
        engines.ends_well(run_of, &known, SURVEY_CALLS, &told).await;
        runs.push(run);
    }
    engines.is_sound(&runs);
}

#[tokio::test]
async fn the_kits_of_worlds_outlive_their_process_while_their_model_is_asked() {
    for (name, held, calls) in [("diligence", "Short", 1), ("research", "risks", 3)] {
        let engines = Engines::new(|model| worlds::kando(name, model)).await;
        let (first, known) = engines.undisturbed(name).await;
        let (run, recorded) = engines.killed(name, &Moment::Call(held)).await;
        let run_of = (run.as_str(), &recorded);
        engines.ends_well(run_of, &known, calls, name).await;
        engines.is_sound(&[first, run]);
    }
}
