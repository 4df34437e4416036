//! A suite with everything that runs beside a run, killed at random moments and finished: a folder, a tool
//! server, a database, an HTTP server, a webhook, and a model that judges.
//!
//! Three moments; twenty with `KTSU_CAMPAIGN=full`. `KTSU_TEST_SEED` chooses which.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ktsu_ledger::store::{Reader as _, SqliteReader};
use serde_json::{Value, json};

use super::{Desk, Said};
use crate::support::random::RandomNumbers;
use crate::support::{campaign, not_tested};

/// A webhook, then an agent that writes a note with a tool.
const FILES: [(&str, &str); 6] = [
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
];

/// A tool server that writes to the folder, the database and the HTTP server of its run.
const SERVER: &str = r#"
import glob, json, subprocess, sys, urllib.request
psql = sorted(glob.glob("/usr/lib/postgresql/*/bin/psql"))[-1]
database, api = sys.argv[1:]
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked or "method" not in asked:
        continue
    def say(result):
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
    if asked["method"] == "initialize":
        say({"protocolVersion": asked["params"]["protocolVersion"], "capabilities": {"tools": {}},
             "serverInfo": {"name": "disk", "version": "1"}})
    elif asked["method"] == "tools/list":
        say({"tools": [{"name": "write", "inputSchema": {"type": "object"}}]})
    elif asked["method"] == "tools/call":
        given = asked["params"]["arguments"]
        with open(given["path"], "a") as file:
            file.write(given["text"])
        subprocess.run([psql, "-X", "-d", database, "-c", "INSERT INTO notes VALUES ('%s')" % given["text"]],
                       check=True, capture_output=True)
        request = urllib.request.Request(api + "/mails", given["text"].encode())
        with urllib.request.urlopen(request, timeout=20) as reply:
            say({"content": [{"type": "text", "text": "wrote %s, %d" % (given["path"], reply.status)}]})
"#;

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

/// Frames of runs and evals, if nothing is killed, about.
const FRAMES: u64 = 200;

/// How long something may take that has to happen.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits for something, without a sleep of a fixed length.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        thread::yield_now();
    }
}

/// A desk with the suite, and a folder for temporary files that nothing else uses.
struct Bench(Desk);

impl Bench {
    fn new() -> Self {
        let desk = Desk::new();
        for (path, text) in FILES {
            desk.write_file(path, text);
        }
        desk.write_file("w/program/server.py", SERVER);
        desk.write_file("w/files/a.txt", "first\n");
        desk.write_file("w/evals/w.eval.yaml", SPEC);
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
        let output = self.command(arguments).output().unwrap();
        Said {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
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

    /// How many frames there are of runs and evals.
    fn frames(&self) -> u64 {
        let Ok(reader) = SqliteReader::open(&self.0.path().join(".ktsu/ledger.db")) else {
            return 0;
        };
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
        let is_due = || match frames {
            0 => !self.leftovers().is_empty(),
            frames => self.frames() >= frames,
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
fn no_run_is_in_vain(bench: &Bench, report: &Value, told: &str) {
    let (mut judged, mut abandoned) = (BTreeSet::new(), BTreeSet::new());
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    for scenario in report["scenarios"].as_array().unwrap() {
        for replica in scenario["replicas"].as_array().unwrap() {
            assert!(judged.insert(text(&replica["run_id"])), "{told}");
            let left = replica["abandoned"].as_array().into_iter().flatten();
            left.for_each(|run| assert!(abandoned.insert(text(run)), "{told}"));
        }
    }
    assert_eq!(judged.len(), 6, "{told}");
    let runs = bench
        .ktsu(&["runs", "--json", "--limit", "100"])
        .is(0)
        .json();
    let runs = runs["runs"].as_array().unwrap().iter();
    let runs: BTreeSet<String> = runs.map(|run| text(&run["run_id"])).collect();
    assert!(judged.is_disjoint(&abandoned), "{told}");
    assert_eq!(runs, &judged | &abandoned, "{told}");
}

/// No question about a run that has a reply is asked again, and no replica has two verdicts.
fn nothing_is_done_twice(record: &[Value], told: &str) {
    let (mut replied, mut finished) = (BTreeSet::new(), BTreeSet::new());
    let mut asked = BTreeMap::new();
    for frame in record {
        let data = &frame["data"];
        match frame["type"].as_str().unwrap() {
            "llm.request" => {
                let question = format!("{} {} {}", frame["cause"], data["step"], data["attempt"]);
                assert!(
                    !replied.contains(&question),
                    "{told}: asked again: {question}"
                );
                asked.insert(frame["seq"].clone().to_string(), question);
            }
            "llm.response" => {
                let question = &asked[&data["request"].to_string()];
                assert!(replied.insert(question.clone()), "{told}: {question}");
            }
            "scenario.finished" => {
                let replica = format!("{} {}", data["scenario"], data["replica"]);
                assert!(finished.insert(replica), "{told}: {frame}");
            }
            _ => {}
        }
    }
    assert_eq!(finished.len(), 6, "{told}");
}

/// What an eval is killed at, and what its rest is killed at, if it is, in frames from its beginning.
#[derive(Debug, Clone, Copy)]
struct Moment {
    first: u64,
    again: Option<u64>,
}

/// Moments in every part of an eval; that of preparing is the first of a full campaign.
fn moments(count: u64) -> Vec<Moment> {
    let mut random = RandomNumbers::seeded();
    let part = FRAMES / count;
    let one = |at: u64| Moment {
        first: at * part
            + if at == 0 && count > 3 {
                0
            } else {
                1 + random.next(part)
            },
        again: (at % 4 == 1).then(|| 1 + random.next(FRAMES / 4)),
    };
    (0..count).map(one).collect()
}

/// Kills an eval, finishes it, and compares the verdicts; whether it was killed in time, and whether a process
/// of a service was at work then.
fn outlives(moment: Moment, expected: &Value) -> bool {
    let told = format!("{moment:?}");
    let bench = Bench::new();
    let mut was_killed = bench.is_killed_at(moment.first);
    if let Some(again) = moment.again {
        was_killed &= bench.is_killed_at(bench.frames() + again);
    }
    let before = bench.record();
    let is_finished = |record: &[Value]| {
        record
            .last()
            .is_some_and(|it| it["type"] == "eval.finished")
    };
    let report = match is_finished(&before) {
        true => bench.ktsu(&["evals", &bench.eval().unwrap(), "--json"]),
        false => {
            let next = bench.next();
            bench.ktsu(&next.iter().map(String::as_str).collect::<Vec<_>>())
        }
    };
    let report = report.is(1).json();
    assert_eq!(&verdicts(&report), expected, "{told}: {report:#}");
    assert_eq!(bench.leftovers(), Vec::<PathBuf>::new(), "{told}");
    assert!(!bench.has_processes(), "{told}");
    let after = bench.record();
    assert_eq!(before, after[..before.len()], "{told}");
    nothing_is_done_twice(&after, &told);
    no_run_is_in_vain(&bench, &report, &told);
    bench.ktsu(&["verify"]).is(0);
    was_killed
}

#[test]
fn a_suite_with_services_and_judges_has_the_same_verdicts_wherever_it_is_killed() {
    let bench = Bench::new();
    let said = bench.ktsu(&["eval", "run", "w", "--parallel", "3", "--json"]);
    let missing = [
        "there is no sandbox",
        "sandbox does not work",
        "there is no PostgreSQL",
    ];
    if missing.iter().any(|words| said.err.contains(words)) {
        not_tested(&format!("suites that are killed: {}", said.err));
        return;
    }
    let report = said.is(1).json();
    assert_eq!(
        (&report["passed"], &report["failed"]),
        (&json!(1), &json!(1)),
        "{report:#}"
    );
    let frames = bench.frames();
    assert!((FRAMES - 10..FRAMES + 20).contains(&frames), "{frames}");
    let expected = verdicts(&report);
    let moments = moments(campaign(3, 20) as u64);
    let killed = AtomicUsize::new(0);
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while let Some(moment) = moments.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let was_killed = outlives(*moment, &expected);
                    killed.fetch_add(usize::from(was_killed), Ordering::Relaxed);
                }
            });
        }
    });
    let killed = killed.into_inner();
    assert!(
        killed * 4 >= moments.len() * 3,
        "{killed} of {}",
        moments.len()
    );
}
