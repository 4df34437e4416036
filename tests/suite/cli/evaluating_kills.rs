//! Suites that are killed at random moments and finished: one with everything that runs beside a run (a
//! folder, a tool server, a database, an HTTP server, a webhook, and a model that judges), whose runs begin
//! anew unless they have a verdict, and one of agents and judges alone, whose runs are judged once they have ended.
//!
//! One moment and three; twenty each with `KTSU_CAMPAIGN=full`. `KTSU_TEST_SEED` chooses which.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use ktsu_ledger::store::{Reader as _, SqliteReader};
use serde_json::{Value, json};

use super::evaluating_services::program;
use super::{Desk, Said};
use crate::support::random::RandomNumbers;
use crate::support::{campaign, not_tested, until};

/// A webhook, then an agent that writes a note with a tool.
const FILES: [(&str, &str); 8] = [
    (
        "w/workflows/w.workflow.yaml",
        "kind: workflow\nname: w\nversion: 1.0.0\n\
         params: {schema: {type: object, required: [at, api, text], properties: {at: {type: string}, \
         api: {type: string}, text: {type: string}}}}\npipeline:\n  \
         - {id: hook, webhook: {url: '{{ params.api }}/hook', body: {text: '{{ params.text }}'}}}\n  \
         - {id: a, depends_on: [hook], agent: ../agents/writer.agent.yaml, \
         params: {at: '{{ params.at }}', text: '{{ params.text }}'}}\n\
         output: {map: {said: '{{ step.a.said }}'}}\n",
    ),
    (
        "w/agents/writer.agent.yaml",
        "name: writer\nversion: 1.0.0\nmodel: std\n\
         params: {schema: {type: object, required: [at, text], properties: {at: {type: string}, text: {type: string}}}}\n\
         prompt: {system: You write., user: 'Write {{ params.text }} to {{ params.at }}/note.txt'}\n\
         servers: [{name: disk, path: ../servers/disk.server.yaml}]\n\
         output: {schema: {type: object, properties: {said: {type: string}}}}\n",
    ),
    (
        "w/servers/disk.server.yaml",
        "name: disk\nversion: 1.0.0\nurl: http://127.0.0.1:9/mcp\n",
    ),
    (
        "w/gateway.yaml",
        "providers: [{name: desk, type: scripted, config: {rules: rules.yaml}}]\n\
         model_groups: [{name: std, models: [desk/m]}, {name: judges, models: [desk/j]}]\n",
    ),
    (
        "w/rules.yaml",
        "values:\n  text: {from: user, pattern: '\\AWrite (\\w+) to'}\n  \
         path: {from: user, pattern: ' to (.+)\\z'}\n  said: {from: tool, pattern: '(.+)'}\n\
         rules:\n  - {when: {model: j, any: rude}, reply: {score: 0.2, passed: false, reason: it insults}, delay_ms: 10}\n  \
         - {when: {model: j}, reply: {score: 0.9, passed: true, reason: it is friendly}, delay_ms: 10}\n  \
         - when: {turn: 1}\n    tool_calls: [{name: write, arguments: {path: '{{ path }}', text: '{{ text }}'}}]\n\
         default:\n  reply: {said: '{{ said }}'}\n",
    ),
    (
        "w/evals/sql/schema.sql",
        "CREATE TABLE notes (text text);\n",
    ),
    ("w/files/a.txt", "first\n"),
    ("w/evals/w.eval.yaml", SPEC),
];

/// What a tool server does that writes to the folder, the database and the HTTP server of its run.
const WRITE: &str = r#"with open(given["path"], "a") as file:
    file.write(given["text"])
subprocess.run([psql, "-X", "-d", database, "-c", "INSERT INTO notes VALUES ('%s')" % given["text"]],
               check=True, capture_output=True)
request = urllib.request.Request(api + "/mails", given["text"].encode())
with urllib.request.urlopen(request, timeout=20) as reply:
    said = "wrote %s, %d" % (given["path"], reply.status)"#;

/// What it does first.
const SETUP: &str = r#"import glob, subprocess, urllib.request
psql = sorted(glob.glob("/usr/lib/postgresql/*/bin/psql"))[-1]
database, api = sys.argv[1:]"#;

/// Two scenarios with three replicas each; the judge lets one of the scenarios fail.
const SPEC: &str = "subject: {params: {at: '{{ workspace }}', api: '{{ services.mail.url }}'}}\n\
    matrix: {params.text: [polite, rude]}\nreplicas: 3\nworkspace: {from: ../files}\nservices:\n  \
    db: {type: postgres, init: [sql/schema.sql]}\n  \
    mail: {type: http_mock, record: true, routes: [{path: /mails, method: POST, status: 202}, {path: /hook}]}\n  \
    disk: {type: mcp, from: ../program, command: [python3, '{{ program }}/server.py', '{{ services.db.url }}', \
    '{{ services.mail.url }}']}\ninvariants:\n  \
    wrote: {description: d, check: {type: file_content, path: note.txt, pattern: '\\A(polite|rude)\\z'}}\n  \
    kept: {description: d, check: {type: command_exit, command: cmp a.txt note.txt, exit_code: 1}}\n  \
    booked: {description: d, check: {type: sql, service: db, query: SELECT count(*) FROM notes, equals: 1}}\n  \
    mailed: {description: d, check: {type: http_mock_assertions, service: mail, assertions: \
    [{field: 'requests[*].path', equals: [/hook, /mails]}]}}\n  \
    said: {description: d, check: {type: output, expr: output.said, equals: 'wrote {{ workspace }}/note.txt, 202'}}\n  \
    friendly: {description: d, weight: 2, check: {type: llm_as_judge, model: judges, criteria: Is it friendly?, \
    input_from: mail.last_request.body, samples: 2}}\nscoring: {pass_threshold: 0.8}\n";

/// An agent without tools, and a judge who is asked more often than there may be calls at a time.
const PLAIN: [(&str, &str); 5] = [
    (
        "w/workflows/w.workflow.yaml",
        "kind: workflow\nname: w\nversion: 1.0.0\n\
         params: {schema: {type: object, required: [text], properties: {text: {type: string}}}}\n\
         pipeline: [{id: a, agent: ../agents/writer.agent.yaml, params: {text: '{{ params.text }}'}}]\n\
         output: {map: {said: '{{ step.a.said }}'}}\n",
    ),
    (
        "w/agents/writer.agent.yaml",
        "name: writer\nversion: 1.0.0\nmodel: std\n\
         params: {schema: {type: object, required: [text], properties: {text: {type: string}}}}\n\
         prompt: {system: You write., user: 'Be {{ params.text }}'}\n\
         output: {schema: {type: object, properties: {said: {type: string}}}}\n",
    ),
    FILES[3],
    (
        "w/rules.yaml",
        "values:\n  text: {from: user, pattern: '\\ABe (\\w+)'}\nrules:\n  \
         - {when: {model: j, any: rude}, reply: {score: 0.2, passed: false, reason: it insults}, delay_ms: 20}\n  \
         - {when: {model: j}, reply: {score: 0.9, passed: true, reason: it is friendly}, delay_ms: 20}\n\
         default:\n  reply: {said: 'a {{ text }} mail'}\n",
    ),
    (
        "w/evals/w.eval.yaml",
        "subject: {}\nmatrix: {params.text: [polite, rude]}\nreplicas: 3\ninvariants:\n  \
         said: {description: d, check: {type: output, expr: output.said, contains: mail}}\n  \
         friendly: {description: d, check: {type: llm_as_judge, model: judges, criteria: Is it friendly?, samples: 20}}\n\
         scoring: {pass_threshold: 0.8}\n",
    ),
];

/// A desk with the suite, and a folder for temporary files that nothing else uses.
struct Bench(Desk);

impl Bench {
    fn new(files: &[(&str, &str)]) -> Self {
        let desk = Desk::new();
        for (path, text) in files {
            desk.write_file(path, text);
        }
        desk.write_file("w/program/server.py", &program(SETUP, WRITE));
        let bench = Self(desk);
        fs::create_dir(bench.temporary()).unwrap();
        // The user that programs run as has to reach it.
        for folder in bench.temporary().ancestors().take(2) {
            fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
        }
        bench
    }

    fn temporary(&self) -> PathBuf {
        self.0.path().join("tmp")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.0.command(arguments);
        command.env("TMPDIR", self.temporary());
        command
    }

    fn ktsu(&self, arguments: &[&str]) -> Said {
        Said::of(&mut self.command(arguments))
    }

    /// The only eval, if it has begun.
    fn eval(&self) -> Option<String> {
        let said = self.ktsu(&["evals", "--json"]);
        let evals = serde_json::from_str::<Value>(&said.out).ok()?;
        let all = evals["evals"].as_array()?;
        assert!(all.len() < 2, "{evals:#}");
        Some(all.first()?["eval_id"].as_str()?.to_owned())
    }

    /// The command that leads to the verdict from here: the suite, or the rest of its eval.
    fn next(&self) -> Vec<String> {
        let words = match self.eval() {
            Some(eval) => format!("eval resume {eval} --kit w"),
            None => "eval run w".to_owned(),
        };
        let words = words + " --parallel 3 --json";
        words.split(' ').map(str::to_owned).collect()
    }

    /// How many frames there are of runs and evals, by a reader that is opened once the ledger is there.
    fn frames(&self, reader: &mut Option<SqliteReader>) -> u64 {
        if reader.is_none() {
            *reader = SqliteReader::open(&self.0.path().join(".ktsu/ledger.db")).ok();
        }
        let Some(reader) = reader else { return 0 };
        let streams = reader.streams(None, 100).unwrap_or_default();
        let tails = streams.iter().filter_map(|one| reader.tail(one).ok()?);
        tails.map(|tail| tail.seq + 1).sum()
    }

    /// Whether a process is left whose words or mounts have a folder for temporary files of this desk.
    fn has_processes(&self) -> bool {
        let desk = self.0.path().file_name().unwrap().to_string_lossy();
        let words = format!("{desk}/tmp/");
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let texts =
            processes.flat_map(|one| ["cmdline", "mountinfo"].map(|file| one.path().join(file)));
        let mut texts = texts.filter_map(|path| fs::read(path).ok());
        texts.any(|text| String::from_utf8_lossy(&text).contains(&words))
    }

    fn leftovers(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.temporary()).unwrap().flatten();
        entries.map(|entry| entry.path()).collect()
    }

    /// Runs the next command until there are so many frames, and kills it; false if it was done before.
    fn is_killed_at(&self, frames: u64) -> bool {
        let arguments = self.next();
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let mut command = self.command(&arguments);
        let mut child = command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut reader = None;
        let mut is_due = || match frames {
            0 => !self.leftovers().is_empty(),
            frames => self.frames(&mut reader) >= frames,
        };
        until("the frames do not appear", || {
            is_due() || has_ended(&mut child)
        });
        let was_at_work = !has_ended(&mut child);
        child.kill().unwrap();
        child.wait().unwrap();
        until("something runs on", || !self.has_processes());
        was_at_work
    }

    /// The verdicts, once the eval is finished.
    fn finish(&self) -> Said {
        let next = self.next();
        self.ktsu(&next.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// What is recorded of the eval.
    fn record(&self) -> Vec<Value> {
        let Some(eval) = self.eval() else {
            return Vec::new();
        };
        let said = self.ktsu(&["frames", &eval, "--json", "--expand"]);
        let lines = said.is(0).out.lines();
        lines
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}

fn has_ended(child: &mut Child) -> bool {
    child.try_wait().unwrap().is_some()
}

/// The verdicts as people see them: of scenarios, of their replicas and of the checks of each.
fn verdicts(report: &Value) -> Value {
    let of = |value: &Value, names: &[&str]| -> Value {
        let one = |name: &&str| ((*name).to_owned(), value[*name].clone());
        names
            .iter()
            .map(one)
            .collect::<serde_json::Map<_, _>>()
            .into()
    };
    let each = |value: &Value, one: &dyn Fn(&Value) -> Value| -> Value {
        value.as_array().unwrap().iter().map(one).collect()
    };
    let check = |it: &Value| of(it, &["name", "status", "score", "weight", "reason"]);
    let replica = |it: &Value| {
        let own = of(
            it,
            &[
                "status",
                "composite_score",
                "error",
                "exit_code",
                "agent_output",
                "tool_calls",
            ],
        );
        json!([own, each(&it["invariants"], &check)])
    };
    let scenario = |it: &Value| {
        let own = of(
            it,
            &[
                "scenario_id",
                "status",
                "composite_score",
                "flaky",
                "parameters",
            ],
        );
        json!([own, each(&it["replicas"], &replica)])
    };
    let totals = of(report, &["passed", "failed", "errors", "flaky", "replicas"]);
    json!([totals, each(&report["scenarios"], &scenario)])
}

/// Every run has one place: it has a verdict, or was abandoned by one. Each replica has one verdict.
fn no_run_is_in_vain(bench: &Bench, report: &Value, context: &str) {
    let (mut judged, mut abandoned) = (BTreeSet::new(), BTreeSet::new());
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    for scenario in report["scenarios"].as_array().unwrap() {
        for replica in scenario["replicas"].as_array().unwrap() {
            assert!(judged.insert(text(&replica["run_id"])), "{context}");
            let left = replica["abandoned"].as_array().into_iter().flatten();
            left.for_each(|run| assert!(abandoned.insert(text(run)), "{context}"));
        }
    }
    assert_eq!(judged.len(), 6, "{context}");
    let runs = bench
        .ktsu(&["runs", "--json", "--limit", "100"])
        .is(0)
        .json();
    let runs = runs["runs"].as_array().unwrap().iter();
    let runs: BTreeSet<String> = runs.map(|run| text(&run["run_id"])).collect();
    assert!(judged.is_disjoint(&abandoned), "{context}");
    assert_eq!(runs, &judged | &abandoned, "{context}");
}

/// No question about a run that has a reply is asked again, and no replica has two verdicts.
fn nothing_is_done_twice(record: &[Value], context: &str) {
    let (mut replied, mut finished) = (BTreeSet::new(), BTreeSet::new());
    let mut asked = BTreeMap::new();
    for frame in record {
        let data = &frame["data"];
        match frame["type"].as_str().unwrap() {
            "llm.request" => {
                let question = format!("{} {} {}", frame["cause"], data["step"], data["attempt"]);
                assert!(
                    !replied.contains(&question),
                    "{context}: asked again: {question}"
                );
                asked.insert(frame["seq"].clone().to_string(), question);
            }
            "llm.response" => {
                let question = &asked[&data["request"].to_string()];
                assert!(replied.insert(question.clone()), "{context}: {question}");
            }
            "scenario.finished" => {
                let replica = format!("{} {}", data["scenario"], data["replica"]);
                assert!(finished.insert(replica), "{context}: {frame}");
            }
            _ => {}
        }
    }
    assert_eq!(finished.len(), 6, "{context}");
}

/// What an eval is killed at, and what its rest is killed at, if it is, in frames from its beginning.
#[derive(Debug, Clone, Copy)]
struct Moment {
    first: u64,
    again: Option<u64>,
}

/// Moments in every part of an eval of so many frames; a full campaign begins with that of preparing.
fn moments(count: u64, frames: u64) -> Vec<Moment> {
    let mut random = RandomNumbers::seeded();
    // The last frames are appended so soon after one another that the eval would end first.
    let part = frames * 9 / 10 / count;
    let mut one = |at: u64| Moment {
        first: at * part + 1 + random.next(part),
        again: (at % 4 == 2).then(|| 1 + random.next(frames / 4)),
    };
    let mut moments: Vec<Moment> = (0..count).map(&mut one).collect();
    if count > 3 {
        moments[0].first = 0;
    }
    moments
}

/// What was there when an eval was killed.
#[derive(Debug, Clone, Copy)]
struct Killed {
    /// It had not ended.
    in_time: bool,
    /// Replies about runs that had no verdict, and got one.
    replies: usize,
}

/// How many replies a verdict rests on that had them before it was begun anew.
fn kept_replies(before: &[Value], after: &[Value]) -> usize {
    let of = |record: &[Value], kind: &str| -> Vec<Value> {
        let frames = record.iter().filter(|frame| frame["type"] == kind);
        frames.cloned().collect()
    };
    let judged = |record: &[Value]| -> BTreeSet<String> {
        let started = of(record, "scenario.started");
        let run = |frame: &Value| frame["data"]["run"].as_str().unwrap().to_owned();
        started.iter().map(run).collect()
    };
    let later = &judged(after) - &judged(before);
    let about = |reply: &Value| {
        let request = &before[usize::try_from(reply["data"]["request"].as_u64().unwrap()).unwrap()];
        let run = request["cause"][1].as_str().unwrap().split('#').next();
        run.unwrap().to_owned()
    };
    let replies = of(before, "llm.response");
    replies
        .iter()
        .filter(|reply| later.contains(&about(reply)))
        .count()
}

/// Kills an eval, finishes it, and compares the verdicts.
fn outlives(files: &[(&str, &str)], moment: Moment, expected: &Value) -> Killed {
    let context = format!("{moment:?}");
    let bench = Bench::new(files);
    let mut in_time = bench.is_killed_at(moment.first);
    if let Some(again) = moment.again {
        in_time &= bench.is_killed_at(bench.frames(&mut None) + again);
    }
    let before = bench.record();
    let last = before.last().map(|frame| &frame["type"]);
    if last.is_some_and(|kind| kind == "eval.finished") {
        return Killed {
            in_time: false,
            replies: 0,
        };
    }
    let report = bench.finish().is(1).json();
    assert_eq!(&verdicts(&report), expected, "{context}: {report:#}");
    assert_eq!(bench.leftovers(), Vec::<PathBuf>::new(), "{context}");
    assert!(!bench.has_processes(), "{context}");
    let after = bench.record();
    assert_eq!(before, after[..before.len()], "{context}");
    nothing_is_done_twice(&after, &context);
    no_run_is_in_vain(&bench, &report, &context);
    bench.ktsu(&["verify"]).is(0);
    let replies = kept_replies(&before, &after);
    Killed { in_time, replies }
}

/// A suite that is not killed, and so many that are, of which about half have to be killed in time; none where the
/// machine has not what it needs, which is said.
fn all_outlive(files: &[(&str, &str)], count: usize) -> Option<Vec<Killed>> {
    let bench = Bench::new(files);
    let said = bench.ktsu(&["eval", "run", "w", "--parallel", "3", "--json"]);
    let missing = [
        "there is no sandbox",
        "sandbox does not work",
        "there is no PostgreSQL",
    ];
    if missing.iter().any(|words| said.err.contains(words)) {
        not_tested(&format!("suites that are killed: {}", said.err));
        return None;
    }
    let report = said.is(1).json();
    let found = (&report["passed"], &report["failed"]);
    assert_eq!(found, (&json!(1), &json!(1)), "{report:#}");
    let expected = verdicts(&report);
    let moments = moments(count as u64, bench.frames(&mut None));
    let killed: Vec<Killed> = moments
        .iter()
        .map(|moment| outlives(files, *moment, &expected))
        .collect();
    let in_time = killed.iter().filter(|one| one.in_time).count();
    assert!(in_time * 2 + 1 >= count, "{killed:?}");
    Some(killed)
}

#[test]
fn a_suite_with_services_and_judges_has_the_same_verdicts_wherever_it_is_killed() {
    let killed = all_outlive(&FILES, campaign(1, 20));
    // The folder of a run is gone with it, so what was asked about it is of no use.
    assert!(killed.is_none_or(|all| all.iter().all(|one| one.replies == 0)));
}

#[test]
fn a_suite_of_judges_that_is_killed_asks_only_what_has_no_reply() {
    let killed = all_outlive(&PLAIN, campaign(3, 20)).unwrap();
    assert!(killed.iter().any(|one| one.replies > 0), "{killed:?}");
}
