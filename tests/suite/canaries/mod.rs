//! Five hundred secrets, said back by the world in eight codings, stand in no place that data goes
//! to (spec S01); and in the same places they are found where nobody said what is secret.

mod needles;
mod places;
mod project;
mod provider_key;
mod world;

use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use needles::{CALLERS, Coding, KEYS, Needles, VARIABLES, canary, fits_a_url};
use places::Places;
use project::Told;
use world::World;

use ktsu_environment as environment;
use ktsu_secret::{Redactor, Secret};

use crate::support::process::Process;
use crate::support::{Client, KitDir};

/// A project at work, the world it talks to, and everything it said so far.
struct Stage {
    told: Told,
    world: World,
    kit: KitDir,
    /// Ledger, logs and whatever commands write.
    desk: tempfile::TempDir,
    engine: Option<Process>,
    starts: usize,
    /// The first run.
    first: String,
}

/// The runs that were played.
#[derive(Default)]
struct Played {
    /// The run, and the coding of what the world said to it.
    runs: Vec<(String, Coding)>,
}

impl Played {
    /// Those that commands are asked about, failing ones and branches among them: all commands
    /// read the same frames.
    fn shown(&self) -> impl Iterator<Item = (&str, Coding)> {
        let some = self.runs.iter();
        let some = some.filter(|(_, coding)| matches!(coding, Coding::Raw | Coding::Error));
        some.map(|(run, coding)| (run.as_str(), *coding))
    }
}

impl Stage {
    async fn new(told: Told) -> Self {
        let world = World::new().await;
        told.kit(&world.url).load();
        let mut stage = Self {
            told,
            kit: told.kit(&world.url),
            world,
            desk: tempfile::tempdir().unwrap(),
            engine: None,
            starts: 0,
            first: String::new(),
        };
        stage.start();
        stage
    }

    fn ledger(&self) -> PathBuf {
        self.desk.path().join("ledger.db")
    }

    /// The real binary, as talkative as it can be.
    fn start(&mut self) {
        self.starts += 1;
        let log = self.desk.path().join(format!("engine-{}.log", self.starts));
        let mut command = Command::new(env!("CARGO_BIN_EXE_ktsu"));
        command
            .args([
                "start",
                "--json",
                "--port",
                "0",
                "--runtime-port",
                "0",
                "--gateway-port",
                "0",
            ])
            .arg("--kit")
            .arg(self.kit.dir.path())
            .arg("--ledger")
            .arg(self.ledger())
            .env_clear()
            .env("KTSU_LOG", "trace")
            .envs(self.told.values(&self.world.url))
            .stderr(std::fs::File::create(log).unwrap())
            .current_dir(self.desk.path());
        self.engine = Some(Process::spawn(command));
    }

    fn client(&self) -> Client {
        self.engine.as_ref().unwrap().client()
    }

    /// A command on the ledger, without any variable of the project.
    fn ktsu(&self, arguments: &[&str]) -> (i32, Vec<u8>) {
        let output = Command::new(env!("CARGO_BIN_EXE_ktsu"))
            .args(arguments)
            .arg("--ledger")
            .arg(self.ledger())
            .current_dir(self.desk.path())
            .env_clear()
            .env("KTSU_LOG", "trace")
            .output()
            .unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.code().unwrap_or(-1), said)
    }

    /// Runs of all codings, with everything that people say about them, and what was answered.
    async fn play(&self, places: &mut Places) -> Played {
        let mut played = Played::default();
        for coding in Coding::ALL {
            let note = coding.say(0..CALLERS.end);
            let body =
                json!({"how": coding.name(), "note": {"list": [note], &coding.write(16): 1}});
            let run = self.invoke(places, "spill", coding, &body).await;
            played.runs.push((run, coding));
            let body = json!({"how": format!("<{}>", coding.name())});
            let run = self.invoke(places, "asks", coding, &body).await;
            if coding != Coding::Error {
                self.people(places, &run, coding, &mut played).await;
            }
            self.problems(places, &run, coding).await;
            played.runs.push((run, coding));
        }
        let refused = json!({"how": "<raw> refused"});
        let run = self.invoke(places, "asks", Coding::Raw, &refused).await;
        played.runs.push((run, Coding::Raw));
        for (run, coding) in &played.runs {
            self.look(places, run, *coding).await;
        }
        played
    }

    /// Starts a run and waits for its end.
    async fn invoke(
        &self,
        places: &mut Places,
        name: &str,
        coding: Coding,
        body: &Value,
    ) -> String {
        let path = format!("/invoke/{name}?wait=60");
        let how = body["how"].as_str().unwrap().replace(' ', "-");
        let key = format!("{name}-{how}-{}", coding.write(0));
        let headers = [("idempotency-key", key.as_str())];
        let answer = self
            .client()
            .send("POST", &path, &headers, body.to_string())
            .await;
        assert_eq!(answer.status, 200, "{name} {coding:?}: {}", answer.text());
        let run = answer.json()["run_id"].as_str().unwrap().to_owned();
        places.add("answer", coding, answer.body);
        run
    }

    /// What people say about a run, and a recompute of it.
    async fn people(&self, places: &mut Places, run: &str, coding: Coding, played: &mut Played) {
        let note = coding.say(0..VARIABLES);
        let reason = coding.say([24, 32]);
        let overlay = json!({"step": "a0", "field": "answer", "value": note, "reason": reason});
        let set = json!({"step.a0.output.answer": note});
        let fork = json!({"before": "last", "set": set, "reason": reason, "go": true});
        let resume = json!({"from": "last", "reason": reason});
        let same = json!({ "reason": reason });
        for (word, body) in [
            ("fork", same),
            ("overlay", overlay),
            ("fork", fork),
            ("resume", resume),
        ] {
            let path = format!("/runs/{run}/{word}");
            let answer = self.client().post(&path, body.to_string()).await;
            assert!(answer.status < 300, "{word} {coding:?}: {}", answer.text());
            if let Some(branch) = answer.json()["branch_id"].as_str() {
                if body.get("go").is_some() {
                    self.client().ended(branch).await;
                }
                played.runs.push((branch.to_owned(), coding));
            }
        }
        self.client().ended(run).await;
        if matches!(coding, Coding::Raw | Coding::Json) {
            let path = format!("/runs/{run}/recompute?wait=60");
            let answer = self.client().post(&path, "{}").await;
            assert_eq!(answer.status, 200, "{}", answer.text());
            let id = answer.json()["recompute_id"].as_str().unwrap().to_owned();
            let view = self.client().get(&format!("/runs/{id}/recompute")).await;
            places.add("recompute", coding, [answer.body, view.body].concat());
            let frames = self
                .client()
                .get(&format!("/runs/{id}/frames?expand=true"))
                .await;
            places.add("frames", coding, frames.body);
        }
    }

    /// Requests that are refused, with canaries wherever somebody could put one.
    async fn problems(&self, places: &mut Places, run: &str, coding: Coding) {
        let one = coding.write(40);
        let ask = async |places: &mut Places, path: String, body: Value| {
            let answer = self.client().post(&path, body.to_string()).await;
            assert!(answer.status < 500, "{path} {body}: {}", answer.text());
            places.add("problem", coding, answer.body);
        };
        let long = coding.say([0, 8]);
        ask(
            places,
            "/invoke/spill".to_owned(),
            json!({"how": coding.name(), &one: 1}),
        )
        .await;
        ask(places, "/invoke/spill".to_owned(), json!({ "how": long })).await;
        let fork = format!("/runs/{run}/fork");
        ask(
            places,
            fork.clone(),
            json!({"set": {format!("params.{one}"): 1}}),
        )
        .await;
        ask(places, fork.clone(), json!({ "before": one })).await;
        ask(places, fork, json!({ "at": one })).await;
        let overlay = json!({"step": one, "field": one, "value": 1, "reason": one});
        ask(places, format!("/runs/{run}/overlay"), overlay).await;
        ask(
            places,
            format!("/runs/{run}/resume"),
            json!({ "from": one }),
        )
        .await;
        ask(
            places,
            format!("/runs/{run}/recompute"),
            json!({ "step": one }),
        )
        .await;
    }

    /// Every route that shows a run.
    async fn look(&self, places: &mut Places, run: &str, coding: Coding) {
        for (place, below) in [
            ("run", ""),
            ("envelope", "/envelope"),
            ("frames", "/frames?expand=true"),
            ("frames without blobs", "/frames"),
            ("tree", "/trace"),
        ] {
            let answer = self.client().get(&format!("/runs/{run}{below}")).await;
            assert_eq!(answer.status, 200, "{below}: {}", answer.text());
            places.add(place, coding, answer.body);
        }
        let accept = [("accept", "text/event-stream")];
        let path = format!("/runs/{run}/frames");
        let events = self.client().send("GET", &path, &accept, "").await;
        assert_eq!(events.kind(), "text/event-stream");
        places.add("events", coding, events.body);
    }

    /// Every command that reads a ledger or makes a file of one.
    fn read(&self, places: &mut Places, played: &Played) {
        let kit = self.kit.dir.path().to_str().unwrap();
        for (run, coding) in played.shown() {
            for (place, arguments) in [
                ("cli frames", &["frames", run, "--json", "--expand"][..]),
                ("cli envelope", &["runs", "get", run]),
                ("cli trace json", &["trace", run, "--json"]),
                ("cli trace", &["trace", run]),
                ("cli mermaid", &["trace", run, "--mermaid"]),
                ("cli tree", &["trace", run, "--frames"]),
                ("cli replay", &["replay", run]),
                (
                    "cli html",
                    &["trace", run, "--html", &format!("{run}.html")],
                ),
                (
                    "cli baselines",
                    &["capture", run, "-o", &format!("{run}.baselines")],
                ),
                ("cli origin", &["trace", run, "--of", "output", "--json"]),
            ] {
                let (_, said) = self.ktsu(arguments);
                places.add(place, coding, said);
            }
            places.files(
                "cli html",
                coding,
                &self.desk.path().join(format!("{run}.html")),
            );
            places.files(
                "cli baselines",
                coding,
                &self.desk.path().join(format!("{run}.baselines")),
            );
        }
        let (first, last) = (&played.runs[0].0, &played.runs[played.runs.len() - 2].0);
        for (place, arguments) in [
            ("runs", &["runs", "--json"][..]),
            ("diff", &["diff", first, last]),
            ("diff json", &["diff", first, last, "--json"]),
            ("replays", &["replay", "--all", "--strict", "--json"]),
            ("against", &["replay", "--all", "--against", kit]),
            ("export", &["export", "--all", "-o", "export.jsonl"]),
            (
                "cloudevents",
                &[
                    "export",
                    "--all",
                    "--format",
                    "cloudevents",
                    "-o",
                    "events.jsonl",
                ],
            ),
            (
                "evidence",
                &["evidence", "export", first, last, "-o", "evidence.tar"],
            ),
            (
                "evidence verdict",
                &["evidence", "verify", "evidence.tar", "--json"],
            ),
            ("verify", &["verify", "--json"]),
            ("backup", &["backup", "backup.db"]),
            ("project", &["validate", kit]),
        ] {
            let (_, said) = self.ktsu(arguments);
            places.shared(place, said);
        }
        for (place, file) in [
            ("export", "export.jsonl"),
            ("cloudevents", "events.jsonl"),
            ("evidence", "evidence.tar"),
            ("backup", "backup.db"),
        ] {
            places.shared(place, std::fs::read(self.desk.path().join(file)).unwrap());
        }
    }

    /// What is counted, in both forms.
    async fn counted(&self, places: &mut Places) {
        for accept in ["text/plain", "application/openmetrics-text"] {
            let accept = [("accept", accept)];
            let answer = self.client().send("GET", "/metrics", &accept, "").await;
            assert_eq!(answer.status, 200);
            places.shared("metrics", answer.body);
        }
    }

    /// The files of the ledger as they lie on the disk, and the logs.
    fn raw(&self, places: &mut Places) {
        for entry in std::fs::read_dir(self.desk.path()).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            if name.starts_with("ledger") {
                places.shared(&name, std::fs::read(&path).unwrap());
            }
            if name.starts_with("engine") {
                places.shared("log", std::fs::read(&path).unwrap());
            }
        }
    }

    /// What a panic would say of everything that holds values.
    fn panics(&self, places: &mut Places) {
        let kit = self.kit.load();
        let process = self.told.values(&self.world.url).into_iter().collect();
        let root = kit.workflows["spill"].definition.root().unwrap();
        let resolved = environment::resolve(None, &root.plan.env, &process).unwrap();
        let secrets: Vec<&Secret> = resolved.secrets.values().collect();
        let redactor = Redactor::new(secrets.iter().copied());
        let lines = process
            .iter()
            .map(|(name, value)| format!("  {name}: {value:?}\n"));
        let file = self.desk.path().join("some.env.yaml");
        let text = lines.collect::<String>();
        std::fs::write(
            &file,
            format!("variables:\n{}", text.replace("\\u{e9}", "é")),
        )
        .unwrap();
        let read = environment::Environment::load(&file).unwrap();
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            panic!("{resolved:?} {secrets:?} {redactor:?} {read:?} {kit:?}")
        }));
        let said = panic.unwrap_err().downcast::<String>().unwrap();
        places.shared("panic", said.into_bytes());
    }

    /// Callers of the workflows that ask for a secret: each opens its own with its own.
    async fn callers(&self) {
        for number in CALLERS {
            let path = format!("/invoke/locked{number}?wait=60");
            let bearer = |text: String| format!("Bearer {text}");
            let right = bearer(self.told.kept(number));
            let wrong = bearer(self.told.kept(number + 1));
            for (secret, status) in [(right, 200), (wrong, 401)] {
                let headers = [("authorization", secret.as_str())];
                let body = json!({"note": canary(number)}).to_string();
                let answer = self.client().send("POST", &path, &headers, body).await;
                assert_eq!(answer.status, status, "{number}: {}", answer.text());
            }
        }
    }

    /// What real calls were to carry, they carried.
    fn sinks_got_theirs(&self) {
        let heard = self.world.heard();
        let told = heard
            .iter()
            .find(|one| one.body.contains("\"all\""))
            .unwrap();
        let body: Value = serde_json::from_str(&told.body).unwrap();
        for number in 0..VARIABLES {
            assert_eq!(
                body["all"][number],
                canary(number),
                "in the body of a webhook"
            );
            if fits_a_url(number) {
                assert!(told.path.contains(&canary(number)), "in a URL: {number}");
            }
        }
        for number in KEYS {
            let bearer = format!("Bearer {}", self.told.kept(number));
            let own = format!("/{number}/v1/");
            let mut asked = heard.iter().filter(|one| one.path.starts_with(&own));
            assert!(
                asked.any(|one| one.authorization == bearer),
                "a key: {number}"
            );
        }
    }
}

/// Plays everything and gathers every place.
async fn told(told: Told) -> (Stage, Places) {
    let mut places = Places::default();
    let mut stage = Stage::new(told).await;
    stage.callers().await;
    let mut played = stage.play(&mut places).await;
    stage.first = played.runs[0].0.clone();
    stage.sinks_got_theirs();
    // A run is under way, with its journal beside the ledger, when the engine is killed.
    let held = stage.client().invoke("held", json!({})).await;
    stage.world.until("/held").await;
    stage.raw(&mut places);
    stage.counted(&mut places).await;
    stage.engine.take().unwrap().kill();
    stage.raw(&mut places);
    stage.world.open();
    stage.start();
    let envelope = stage.client().ended(&held).await;
    assert_eq!(envelope["status"], "complete", "{envelope}");
    let heard = stage.world.heard();
    let then = heard
        .iter()
        .find(|one| one.path == "/hear/raw/then")
        .unwrap();
    assert!(
        then.body.contains(&canary(5)),
        "the secret was at hand again"
    );
    played.runs.push((held, Coding::Raw));
    stage.read(&mut places, &played);
    stage.raw(&mut places);
    stage.panics(&mut places);
    stage.counted(&mut places).await;
    stage.engine.take().unwrap().kill();
    (stage, places)
}

#[tokio::test(flavor = "multi_thread")]
async fn no_canary_is_found_in_any_place() {
    let (stage, places) = told(Told::Secret).await;
    let needles = Needles::new();
    let found = places.found(&needles);
    assert!(found.is_empty(), "canaries in\n{}", found.join("\n"));
    // Where a value came from ends at the template, in the frame and in the answer.
    let run = &stage.first;
    let (code, said) = stage.ktsu(&["trace", run, "--of", "env.C0"]);
    let said = String::from_utf8_lossy(&said).into_owned();
    assert_eq!(code, 0, "{said}");
    assert!(
        said.contains("[REDACTED]") && said.contains("computed from nothing recorded"),
        "{said}"
    );
    assert!(places.holds("frames", r#"{"template":"{{ env.C0 }}"}"#));
    // Nobody has the secrets any more, and every run follows from its inputs all the same.
    let (code, said) = stage.ktsu(&["replay", "--all", "--strict", "--json"]);
    let said = String::from_utf8_lossy(&said).into_owned();
    assert_eq!(code, 0, "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_redaction_canaries_are_found_in_every_place() {
    let (_, places) = told(Told::Nothing).await;
    let needles = Needles::new();
    // What has no payload to say even then: names of steps, verdicts, numbers, codes.
    let quiet = [
        "against",
        "cli mermaid",
        "evidence verdict",
        "ledger.db-shm",
        "ledger.db.key",
        "ledger.db.lock",
        "ledger.db.reserve",
        "ledger.db.signing-key",
        "log",
        "metrics",
        "project",
        "replays",
        "runs",
        "verify",
    ];
    assert_eq!(places.quiet(&needles), quiet);
    assert!(
        places.holds("log", "a model call failed") && places.holds("log", "model answered"),
        "logs are looked into"
    );
    assert!(places.holds("metrics", "ktsu_model_tokens_total"));
    // And what carries everything carries it in every coding.
    for place in ["answer", "envelope", "events", "frames", "problem"] {
        for coding in Coding::ALL {
            assert!(places.leaks(&needles, place, coding), "{place}: {coding:?}");
        }
    }
}

#[test]
fn the_search_finds_every_canary_in_every_coding() {
    let needles = Needles::new();
    for coding in Coding::ALL {
        let text = coding.say(0..needles::CANARIES);
        let hits = needles.find(text.as_bytes());
        for number in 0..needles::CANARIES {
            let form = places::form(coding);
            let hit = hits
                .iter()
                .any(|(one, as_, _)| (*one, *as_) == (number, form));
            assert!(hit, "{coding:?} of {number} is not found");
        }
        let inner = Value::String(text).to_string();
        assert!(!needles.find(inner.as_bytes()).is_empty());
    }
    assert!(needles.find(include_bytes!("mod.rs")).is_empty());
}
