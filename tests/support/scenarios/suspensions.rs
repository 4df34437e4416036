//! Runs whose agent suspends its step until it has data, with a runtime of its own, and the
//! people who give them.

use std::path::Path;
use std::sync::Arc;

use ktsu::assemble::LedgerPlace;
use ktsu_ledger::store::SqliteReader;
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::super::ledgers::Recorded;
use super::super::sink::{Heard, Reply};
use super::super::{Client, KitDir, Lab, Sink};

const PEOPLE: [(&str, &str); 4] = [
    ("pia", "operator"),
    ("ann", "approver"),
    ("bob", "approver"),
    ("eva", "admin"),
];

const SEEKER: &str = "name: seeker\nversion: 1.0.0\nmodel: std\n\
     params: {schema: {type: object}}\n\
     prompt: {system: You seek., user: all of it}\n\
     commands: {emit: ['claim.*'], invoke: [verify], suspend: {roles: [operator], timeout: 2h}}\n\
     output: {schema: {type: object, required: [verdict], properties: {verdict: {type: string}}}}\n";
/// One that continues in the place of another.
const READER: &str = "name: reader\nversion: 1.0.0\nmodel: std\n\
     params: {schema: {type: object}}\n\
     prompt: {system: You read., user: all of it}\n\
     commands: {emit: ['claim.*'], suspend: {roles: [approver], timeout: 3h}}\n\
     output: {schema: {type: object, required: [verdict], properties: {verdict: {type: string}}}}\n";
/// Steps that another may be resumed to.
const READS: &str = "
  - {id: read, on: resume, agent: ./agents/reader.agent.yaml,
     params: {page: '{{ resume.checkpoint.page }}', text: '{{ resume.data.text }}', all: '{{ resume }}'},
     resume: {timeout: 4h}}
  - {id: reread, on: resume, agent: ./agents/seeker.agent.yaml,
     params: {text: '{{ resume.data.text }}'}}
  - {id: b,";
/// One that does not declare that it suspends its step.
const PLAIN: &str = "name: plain\nversion: 1.0.0\nmodel: std\n\
     params: {schema: {type: object, required: [claim], properties: {claim: {type: string}}}}\n\
     prompt: {system: You check., user: '{{ params.claim }}'}\n\
     output: {schema: {type: object, required: [said], properties: {said: {type: string}}}}\n";
const STARTER: &str = "name: starter\nversion: 1.0.0\nmodel: std\n\
     prompt: {system: You start., user: start}\n\
     commands: {invoke: [sought]}\n\
     output: {schema: {type: object, properties: {verdict: {type: string}}}}\n";
const VERIFY: &str = "visibility: sub-workflow\nparams: {schema: {type: object, \
     required: [claim], properties: {claim: {type: string}}}}\n\
     pipeline: [{id: v, transform: {inputs: ['{{ params.claim }}']}}]\n";
const MAIN: &str = "
pipeline:
  - {id: first, transform: {inputs: [], ops: []}}
  - id: a
    depends_on: [first]
    agent: ./agents/seeker.agent.yaml
    may_invoke: {verify: ./verify.workflow.yaml}
    params: {page: '{{ resume.checkpoint.page }}', text: '{{ resume.data.text }}', all: '{{ resume }}'}
    resume: RESUME
  - {id: b, depends_on: [a], agent: ./agents/plain.agent.yaml, params: {claim: '{{ step.a.verdict }}'}}
output: {map: {verdict: '{{ step.a.verdict }}', said: '{{ step.b.said }}'}}
";
/// One beside which another step is at work.
const BESIDE: &str = "
  - {id: z, agent: ./agents/plain.agent.yaml, params: {claim: beside}}
output: {map: {verdict: '{{ step.a.verdict }}', said: '{{ step.z.said }}'}}
";
const OUTER: &str = "pipeline: [{id: call, workflow: ./inner.workflow.yaml}]\n";
const INVOKING: &str = "
pipeline:
  - {id: s, agent: ./agents/starter.agent.yaml, may_invoke: {sought: ./sought.workflow.yaml}}
";
/// `resume:` of the step, unless a test says otherwise: with other roles and another time than its
/// agent has.
const RESUME: &str = "{timeout: 1h, roles: [approver], schema: {type: object, required: [text], \
     properties: {text: {type: string}}}}";

/// What becomes of a suspension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Word {
    /// This person gives this text.
    Data(&'static str, &'static str),
    /// This text is given by the link of the step.
    Link(&'static str),
    /// It comes while the run is paused.
    Paused(&'static str),
    /// It comes while the run is paused, which is then cancelled.
    Discarded(&'static str),
    /// The run is cancelled.
    Cancel,
    /// The step beside it fails.
    FailBeside,
    /// Its time is waited for.
    Wait,
    /// The run is left as it is.
    Leave,
}

/// A run with a suspension. The agent asks again where the text is `more`, and fails once where it is
/// `fail`.
#[derive(Clone)]
pub(crate) struct Suspended {
    /// `main`, `outer`, `invoking` or `beside`.
    pub(crate) workflow: &'static str,
    /// `resume:` of the step, as YAML.
    pub(crate) resume: &'static str,
    /// Whether the outcome that asks has other commands, and events.
    pub(crate) siblings: bool,
    pub(crate) events: bool,
    /// The step that continues, if not the suspended one.
    pub(crate) resume_step: Option<&'static str>,
    /// What becomes of each suspension, in their order.
    pub(crate) words: Vec<Word>,
    /// The step that begins again once the run has failed.
    pub(crate) again: Option<&'static str>,
}

/// An engine with a ledger file, and everybody's way to it.
pub(crate) struct SuspendStage {
    pub(crate) lab: Lab,
    beside: Arc<Notify>,
    _runtime: Sink,
}

fn token(who: &str) -> String {
    format!("token-of-{who}")
}

fn emit(topic: &str) -> Value {
    json!({"type": "emit", "topic": topic, "payload": {"n": 1}})
}

impl Suspended {
    /// A run of `main` with other commands and events, resumed once.
    pub(crate) fn resumed() -> Self {
        Self::with(&[Word::Data("ann", "clause 7")])
    }

    /// As [`Self::resumed`], with these words.
    pub(crate) fn with(words: &[Word]) -> Self {
        Self {
            workflow: "main",
            resume: RESUME,
            siblings: true,
            events: true,
            resume_step: None,
            words: words.to_vec(),
            again: None,
        }
    }

    fn suspend(&self, page: u64) -> Value {
        let mut command = json!({"type": "suspend", "reason": "the contract is missing",
            "checkpoint": {"page": page}});
        if let Some(step) = self.resume_step {
            command["resumeStep"] = json!(step);
        }
        command
    }

    /// What the seeker says to a task, and the reader in its place.
    fn seeks(&self, task: &Value) -> Value {
        let text = task["resume"]["data"]["text"].as_str();
        let output = json!({"verdict": text});
        match (text, task["attempt"].as_u64()) {
            (Some("fail"), Some(..=2)) => {
                json!({"status": "failed", "error": {"code": "down", "message": "it is down"}})
            }
            (None | Some("more"), _) => {
                let mut commands = vec![self.suspend(3)];
                let reads = task["agent_name"] == "reader";
                if self.siblings && !reads {
                    let verify =
                        json!({"type": "invoke", "step": "verify", "input": {"claim": "p"}});
                    commands = vec![
                        emit("claim.seen"),
                        self.suspend(3),
                        verify,
                        emit("claim.more"),
                    ];
                }
                let events = match self.events {
                    true => json!([{"type": "looked"}, {"type": "missed"}]),
                    false => json!([]),
                };
                json!({"status": "ok", "output": {"so_far": 1}, "events": events, "commands": commands})
            }
            (Some(_), _) => {
                json!({"status": "ok", "output": output, "commands": [emit("claim.judged")]})
            }
        }
    }

    async fn completes(&self, heard: &Heard, beside: &Notify) {
        let task = heard.json();
        let mut body = match task["agent_name"].as_str() {
            Some("seeker" | "reader") => self.seeks(&task),
            Some("starter") => json!({"status": "ok", "output": {"verdict": "none"}, "commands": [
                {"type": "invoke", "step": "sought", "input": {}}]}),
            _ => {
                let said = task["user_message"].as_str().unwrap();
                let waits = said == "beside" && task["attempt"] == 1;
                if waits {
                    beside.notified().await;
                }
                match waits {
                    true => json!({"status": "failed", "error": "it is down"}),
                    false => json!({"status": "ok", "output": {"said": said}}),
                }
            }
        };
        (body["run_id"], body["step_id"]) = (task["run_id"].clone(), task["step_id"].clone());
        let url = task["callback_url"].as_str().unwrap();
        let (host, path) = place(url);
        // The task may have ended meanwhile.
        Client::of(&host).post(&path, body.to_string()).await;
    }

    fn kit(&self) -> KitDir {
        let mut main = MAIN.replace("RESUME", self.resume);
        if self.resume_step.is_some() {
            main = main.replace("\n  - {id: b,", READS);
        }
        let beside = match main.split_once("  - {id: b,") {
            Some((begin, _)) => format!("{begin}{}", BESIDE.trim_start_matches('\n')),
            None => main.clone(),
        };
        let inner = format!("visibility: sub-workflow\n{main}");
        KitDir::new(&[
            ("main", &main),
            ("beside", &beside),
            ("outer", OUTER),
            ("inner", &inner),
            ("invoking", INVOKING),
            ("sought", &inner),
            ("verify", VERIFY),
        ])
        .with("agents/seeker.agent.yaml", SEEKER)
        .with("agents/reader.agent.yaml", READER)
        .with("agents/plain.agent.yaml", PLAIN)
        .with("agents/starter.agent.yaml", STARTER)
    }

    async fn stage(&self, ledger: &Path) -> SuspendStage {
        let (own, beside) = (self.clone(), Arc::new(Notify::new()));
        let notified = beside.clone();
        let runtime = Sink::scripted(move |heard| {
            if heard.path == "/invoke" {
                let (heard, own, notified) = (heard.clone(), own.clone(), notified.clone());
                tokio::spawn(async move { own.completes(&heard, &notified).await });
            }
            Reply::Now(202, String::new())
        })
        .await;
        let mut text = "variables:\n".to_owned();
        for (who, _) in PEOPLE {
            text.push_str(&format!("  T_{who}: {}\n", token(who)));
        }
        text.push_str("principals:\n");
        for (who, role) in PEOPLE {
            text.push_str(&format!(
                "  - {{name: {who}, token: {{env: T_{who}}}, roles: [{role}]}}\n"
            ));
        }
        let place = LedgerPlace::File(ledger.to_owned());
        let lab = Lab::remote_in(place, &self.kit(), &text, &[], &runtime.url).await;
        SuspendStage {
            lab,
            beside,
            _runtime: runtime,
        }
    }

    /// Plays it to its end, or to where it is left; the engine is left open.
    pub(crate) async fn play(&self, ledger: &Path) -> (SuspendStage, String) {
        let stage = self.stage(ledger).await;
        let run = stage.of("pia").invoke(self.workflow, json!({})).await;
        let seen = self.attend(&stage, &run, None).await;
        if let Some(from) = self.again {
            let body = json!({"from": from}).to_string();
            let path = format!("/runs/{run}/retry");
            let answer = stage.of("eva").post(&path, body).await;
            assert!(answer.status < 300, "{}", answer.text());
            self.attend(&stage, &run, seen).await;
        }
        (stage, run)
    }

    /// Follows a run or a branch to its end, from behind a frame on, and says a word about each
    /// suspension in it. Gives the last frame.
    pub(crate) async fn attend(
        &self,
        stage: &SuspendStage,
        run: &str,
        last: Option<u64>,
    ) -> Option<u64> {
        let (mut events, mut seen) = (stage.of("eva").events(run, last).await, last);
        let (mut words, mut of_stream) = (self.words.iter(), None);
        if last.is_some() {
            words.next();
        }
        while let Some(event) = events.next().await {
            let frame: Value = serde_json::from_str(&event.data).unwrap();
            seen = Some(event.id);
            let stream = frame["stream"].as_str().unwrap();
            if frame["type"] != "suspend.requested" || !stream.ends_with(run) {
                continue;
            }
            of_stream = words.next().or(of_stream);
            let word = of_stream.copied().unwrap();
            let scope = frame["scope"].as_str().unwrap();
            if word == Word::Leave {
                break;
            }
            stage.say(run, scope, word).await;
        }
        seen
    }

    /// Plays it, and reads what was recorded.
    pub(crate) async fn record(&self) -> Recorded {
        let folder = tempfile::tempdir().unwrap();
        let ledger = folder.path().join("ledger.db");
        let (stage, run) = self.play(&ledger).await;
        stage.lab.close().await;
        Recorded::read(&SqliteReader::open(&ledger).unwrap(), &run)
    }
}

impl SuspendStage {
    pub(crate) fn of(&self, who: &str) -> Client {
        Client::showing(&self.lab.engine.url, &token(who))
    }

    async fn say(&self, run: &str, scope: &str, word: Word) {
        let inner = match scope {
            "" => run.to_owned(),
            scope => format!("{run}%2F{}", scope.replace('/', "%2F")),
        };
        let data = |text: &str| json!({"data": {"text": text}, "reason": "found it"}).to_string();
        let path = format!("/runs/{inner}/steps/a/resume");
        match word {
            Word::Data(who, text) => self.post(who, &path, &data(text)).await,
            Word::Link(text) => {
                let link = format!("/runs/{inner}/steps/a/suspend/link");
                let answer = self.of("ann").post(&link, "").await;
                assert_eq!(answer.status, 200, "{}", answer.text());
                let url = answer.json()["url"].as_str().unwrap().to_owned();
                let (host, path) = place(&url);
                let answer = Client::of(&host).post(&path, data(text)).await;
                assert_eq!(answer.status, 200, "{}", answer.text());
            }
            Word::Paused(text) => {
                self.post("eva", &format!("/runs/{run}/pause"), "{}").await;
                self.post("ann", &path, &data(text)).await;
                self.post("eva", &format!("/runs/{run}/resume"), "{}").await;
            }
            Word::Discarded(text) => {
                self.post("eva", &format!("/runs/{run}/pause"), "{}").await;
                self.post("ann", &path, &data(text)).await;
                self.post("eva", &format!("/runs/{run}/cancel"), "{}").await;
            }
            Word::Cancel => self.post("eva", &format!("/runs/{run}/cancel"), "{}").await,
            Word::FailBeside => self.beside.notify_one(),
            Word::Wait | Word::Leave => {}
        }
    }

    async fn post(&self, who: &str, path: &str, body: &str) {
        let answer = self.of(who).post(path, body.to_owned()).await;
        assert!(answer.status < 300, "{who} {path}: {}", answer.text());
    }
}

/// The server of a URL, and the rest.
fn place(url: &str) -> (String, String) {
    let rest = url.strip_prefix("http://").unwrap();
    let (host, path) = rest.split_at(rest.find('/').unwrap());
    (format!("http://{host}"), path.to_owned())
}
