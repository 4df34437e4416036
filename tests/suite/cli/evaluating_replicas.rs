//! Suites that run each scenario several times, answer for people, end by their limits, and are finished
//! after they were interrupted.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::process::Stdio;
use std::sync::mpsc::{self, Receiver};

use serde_json::{Value, json};

use super::evaluating::GATED;
use super::{Desk, posting, send};
use crate::support::{GUARD, until};

/// A server whose answers have these statuses, in the order of the requests; 0 is no answer at all.
/// Every request is announced.
fn hook(statuses: impl Iterator<Item = u16> + Send + 'static) -> (String, Receiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (arrived, arrivals) = mpsc::channel();
    std::thread::spawn(move || {
        let mut held = Vec::new();
        for (stream, status) in listener.incoming().zip(statuses) {
            let mut stream = stream.unwrap();
            read_request(&mut BufReader::new(&stream));
            let _ = arrived.send(());
            match status {
                0 => held.push(stream),
                status => {
                    let answer = format!(
                        "HTTP/1.1 {status} OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{{}}"
                    );
                    let _ = stream.write_all(answer.as_bytes());
                }
            }
        }
    });
    (url, arrivals)
}

/// Waits for the next request, as long as a slow machine may need.
fn arrives(arrivals: &Receiver<()>) {
    arrivals.recv_timeout(GUARD).unwrap();
}

fn read_request(request: &mut impl std::io::BufRead) {
    let (mut line, mut length) = (String::new(), 0);
    while request.read_line(&mut line).unwrap_or(0) > 2 {
        let lower = line.to_lowercase();
        if let Some(value) = lower.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        line.clear();
    }
    let mut body = vec![0; length];
    request.read_exact(&mut body).unwrap();
}

/// A desk with a workflow that posts to a URL, and a suite.
fn desk(url: &str, suite: &str) -> Desk {
    let desk = Desk::new();
    let flow = posting(url)
        + "    code: \"{{ step.send.status_code }}\"\nparams: {schema: {type: object, properties: {a: {}}}}\n";
    desk.write_kit("post", &flow);
    let checks = "effects: execute\nsubject: {}\ninvariants:\n  \
        ok: {description: d, check: {type: output, expr: output.code, equals: 200}}\n";
    desk.write_file("post/evals/p.eval.yaml", &format!("{checks}{suite}"));
    desk
}

fn statuses(value: &Value) -> Vec<&str> {
    let all = value.as_array().unwrap().iter();
    all.map(|one| one["status"].as_str().unwrap()).collect()
}

#[test]
fn two_by_two_scenarios_with_three_replicas_are_twelve_runs_and_their_totals_add_up() {
    let (url, _) = hook((0..).map(|at| if at % 3 == 1 { 202 } else { 200 }));
    let suite = "matrix: {params.a: [1, 2], params.b: [x, y]}\nreplicas: 3\n\
        scoring: {replica_aggregation: majority}\n";
    let desk = desk(&url, suite);
    let said = desk.ktsu(&["eval", "run", "post", "--json", "--parallel", "1"]);
    let report = said.is(0).json();
    let scenarios = report["scenarios"].as_array().unwrap();
    assert_eq!(scenarios.len(), 4);
    let expected = ["a=1, b=x", "a=1, b=y", "a=2, b=x", "a=2, b=y"];
    for (scenario, name) in scenarios.iter().zip(expected) {
        assert_eq!(scenario["scenario_id"], name);
        assert_eq!(scenario["status"], "passed");
        assert_eq!(scenario["flaky"], true);
        assert_eq!(
            statuses(&scenario["replicas"]),
            ["passed", "failed", "passed"]
        );
    }
    let totals = ["total_scenarios", "passed", "failed", "errors", "flaky"];
    assert_eq!(
        totals.map(|name| report[name].as_u64().unwrap()),
        [4, 4, 0, 0, 4]
    );
    assert_eq!(
        report["replicas"],
        json!({"errors": 0, "failed": 4, "passed": 8})
    );
    let runs = desk.ktsu(&["runs", "--json"]).is(0).json();
    assert_eq!(runs["runs"].as_array().unwrap().len(), 12);
    desk.ktsu(&["verify"]).is(0);
    let id = report["eval_id"].as_str().unwrap();
    desk.ktsu(&["evidence", "export", id, "-o", "e.tar"]).is(0);
    desk.ktsu(&["evidence", "verify", "e.tar"])
        .is(0)
        .says("1 verdict follows from 12 checks made again");
    // The recorded verdict is the same.
    let recorded = desk.ktsu(&["evals", id, "--json"]).is(0).json();
    assert_eq!(recorded["flaky"], 4);
    desk.ktsu(&["evals", id])
        .is(0)
        .says("passed, flaky: 2 of 3 replicas passed");
    desk.ktsu(&["evals"]).is(0).says("12 runs");
}

#[test]
fn the_aggregation_changes_the_verdict() {
    for (aggregation, code, status) in [
        ("all", 1, "failed"),
        ("any", 0, "passed"),
        ("{at_least: 3}", 1, "failed"),
        ("{pass_at: {k: 2, threshold: 1}}", 0, "passed"),
        ("{pass_hat: {k: 2, threshold: 0.5}}", 1, "failed"),
    ] {
        let (url, _) = hook([200, 202, 200].into_iter());
        let suite = format!("replicas: 3\nscoring: {{replica_aggregation: {aggregation}}}\n");
        let desk = desk(&url, &suite);
        let said = desk.ktsu(&["eval", "run", "post", "--parallel", "1"]);
        said.is(code)
            .says("1 flaky; replicas: 2 passed, 1 failed, 0 errors");
        let all = said.out.lines().find(|line| line.contains("2 of 3 passed"));
        assert!(all.unwrap().starts_with(status), "{aggregation}: {said:#?}");
        if code == 1 {
            said.says("scenario #2")
                .says("output.code is 202, expected 200");
        }
    }
}

#[test]
fn the_command_of_a_scenario_runs_it_alone() {
    let (url, _) = hook(std::iter::repeat(200));
    let desk = desk(&url, "matrix: {params.a: [1, it's]}\n");
    let report = desk.ktsu(&["eval", "run", "post", "--json"]).is(0).json();
    let reproducer = &report["scenarios"][1]["reproducer"];
    assert_eq!(reproducer["parameters"], json!({"a": "it's"}));
    let command = reproducer["command"].as_str().unwrap();
    assert_eq!(
        command,
        r"ktsu eval run post/evals/p.eval.yaml --scenario='a=it'\''s'"
    );
    let arguments = [
        "eval",
        "run",
        "post/evals/p.eval.yaml",
        "--scenario",
        "a=it's",
        "--json",
    ];
    let again = desk.ktsu(&arguments).is(0).json();
    assert_eq!(again["total_scenarios"], 1);
    let (again, first) = (&again["scenarios"][0], &report["scenarios"][1]);
    for name in [
        "scenario_id",
        "parameters",
        "status",
        "composite_score",
        "agent_output",
        "reproducer",
    ] {
        assert_eq!(again[name], first[name], "{name}");
    }
    let none = ["eval", "run", "post", "--scenario", "a=3"];
    desk.ktsu(&none)
        .is(2)
        .warns("there is no scenario \"a=3\"")
        .warns("--scenario=a=1");
    desk.ktsu(&["verify"]).is(0);
    // What was given is given again. Of several suites, one has to have the scenario.
    desk.write_file("env.yaml", "name: e\n");
    let suite =
        "subject: {}\neffects: execute\ninvariants: {a: {description: d, check: {type: output}}}\n";
    desk.write_file("post/evals/q.eval.yaml", suite);
    desk.write_file(
        "alone.eval.yaml",
        &format!("matrix: {{params.a: ['-x', 2]}}\n{suite}"),
    );
    let arguments = [
        "eval",
        "run",
        "alone.eval.yaml",
        "--kit",
        "post",
        "--env",
        "env.yaml",
    ];
    let arguments = [&arguments[..], &["--ledger", "l.db", "--json"]].concat();
    let report = desk.ktsu(&arguments).is(0).json();
    let command = report["scenarios"][0]["reproducer"]["command"]
        .as_str()
        .unwrap();
    assert_eq!(
        command,
        "ktsu eval run alone.eval.yaml --kit post --env env.yaml --ledger l.db --scenario=a=-x"
    );
    let words: Vec<&str> = command.split(' ').skip(1).collect();
    desk.ktsu(&words).is(0).says("1 scenario: 1 passed");
    let one = ["eval", "run", "post", "--scenario", "a=1"];
    desk.ktsu(&one).is(0).says("1 scenario: 1 passed");
    desk.ktsu(&none).is(2).warns("there is no scenario \"a=3\"");
    // That of an eval that was resumed or retried finds its file, too.
    let id = report["eval_id"].as_str().unwrap();
    let retry = [
        "eval", "retry", id, "--kit", "post", "--ledger", "l.db", "--json",
    ];
    let report = desk.ktsu(&retry).is(0).json();
    let command = &report["scenarios"][1]["reproducer"]["command"];
    let words = "ktsu eval run alone.eval.yaml --kit post --ledger l.db --scenario=a=2";
    assert_eq!(command, words);
}

#[test]
fn answers_of_the_suite_are_recorded_as_those_of_an_eval() {
    let desk = Desk::new();
    for (path, text) in GATED {
        desk.write_file(path, text);
    }
    let suite = |people: &str| {
        format!(
            "subject: {{}}\neffects: execute\npeople: {people}\ninvariants:\n  \
             kept: {{description: d, check: {{type: output, expr: output.kept, equals: true}}}}\n  \
             by: {{description: d, check: {{type: trace, where: {{type: approval.decided, actor: 'principal:eval-ada'}}, count: {{equals: 1}}}}}}\n"
        )
    };
    let path = "gated/evals/g.eval.yaml";
    desk.write_file(
        path,
        &suite("[{match: {tool: kv-set}, by: ada, decision: approved, reason: fine}]"),
    );
    let report = desk.ktsu(&["eval", "run", "gated", "--json"]).is(0).json();
    assert_eq!(report["passed"], 1);
    // What they do not answer is an error, as without them.
    desk.write_file(path, &suite("[{match: {tool: other}, decision: approved}]"));
    let report = desk.ktsu(&["eval", "run", "gated", "--json"]).is(2).json();
    assert_eq!(report["scenarios"][0]["error"], "waiting");
    desk.write_file(path, &suite("[{match: {tool: kv-set}, decision: maybe}]"));
    desk.ktsu(&["eval", "run", "gated"])
        .is(2)
        .warns("g.eval.yaml:3:");
    desk.ktsu(&["verify"]).is(0);
}

#[test]
fn a_run_beyond_the_time_limit_is_an_error_and_is_cancelled() {
    let (url, _) = hook(std::iter::repeat(0));
    let desk = desk(&url, "limits: {timeout: 100ms}\n");
    let report = desk.ktsu(&["eval", "run", "post", "--json"]).is(2).json();
    assert_eq!(report["scenarios"][0]["error"], "timeout");
    assert_eq!(report["errors"], 1);
    let runs = desk.ktsu(&["runs", "--json"]).is(0).json();
    assert_eq!(runs["runs"][0]["status"], "cancelled");
    desk.ktsu(&["verify"]).is(0);
}

#[test]
fn a_run_that_ends_before_it_is_cancelled_has_a_verdict() {
    let steps: String = (0..40)
        .map(|at| {
            format!("  - {{id: t{at}, transform: {{inputs: [{{from: '`{at}`'}}], ops: []}}}}\n")
        })
        .collect();
    let flow = format!(
        "kind: workflow\nname: w\nversion: 1.0.0\npipeline:\n{steps}\
         output: {{map: {{a: '{{{{ step.t39.result }}}}'}}}}\n"
    );
    let desk = Desk::new();
    desk.write_kit("w", &flow);
    desk.write_file(
        "w/evals/w.eval.yaml",
        "subject: {}\nreplicas: 50\nlimits: {timeout: 1ms}\n\
         invariants: {a: {description: d, check: {type: output}}}\n",
    );
    // About half of the runs end while they are being cancelled.
    let said = desk.ktsu(&["eval", "run", "w", "--json"]);
    let report: Value = serde_json::from_str(&said.out).unwrap_or_else(|_| panic!("{said:?}"));
    let runs = ["runs", "--json", "--limit", "50"];
    let runs = desk.ktsu(&runs).is(0).json();
    let runs = runs["runs"].as_array().unwrap();
    for judged in report["scenarios"][0]["replicas"].as_array().unwrap() {
        let mut runs = runs.iter();
        let run = runs.find(|run| run["run_id"] == judged["run_id"]).unwrap();
        let found = (judged["error"].as_str(), run["status"].as_str().unwrap());
        let known = [(None, "complete"), (Some("timeout"), "cancelled")];
        assert!(known.contains(&found), "{found:?}");
    }
}

#[test]
fn reports_for_other_tools_are_written_to_files() {
    let (url, _) = hook([200, 202].into_iter());
    let desk = desk(&url, "matrix: {params.a: [plain, '<b>|&\"']}\n");
    let arguments = [
        "eval",
        "run",
        "post",
        "--parallel",
        "1",
        "--junit",
        "j.xml",
        "--markdown",
        "m.md",
    ];
    desk.ktsu(&arguments).is(1);
    let read = |name: &str| std::fs::read_to_string(desk.path().join(name)).unwrap();
    let (junit, markdown) = (read("j.xml"), read("m.md"));
    for words in [
        r#"<testsuite name="p.eval.yaml" tests="2" skipped="0" errors="0" failures="1""#,
        r#"<testcase name="a=plain" classname="p.eval.yaml""#,
        r#"<testcase name="a=&lt;b&gt;|&amp;&quot;" classname="p.eval.yaml""#,
        "ok: output.code is 202, expected 200",
    ] {
        assert!(junit.contains(words), "{words}: {junit}");
    }
    for words in [
        "2 scenarios: 1 passed, 1 failed, 0 errors. 50.0% passed",
        r#"| a=\<b\>\|\&" | failed | 0 | `run"#,
        "expected 200",
    ] {
        assert!(markdown.contains(words), "{words}: {markdown}");
    }
    desk.ktsu(&["eval", "run", "post", "--junit", "none/j.xml"])
        .is(2)
        .warns("cannot write none/j.xml");
}

/// An eval of six runs whose third is under way, ended by a signal; so many more of its beginnings are not
/// answered, each of which is announced.
fn interrupted(signal: &str, more: usize) -> (Desk, String, Receiver<()>) {
    let held = std::iter::repeat_n(0, 1 + more);
    let (url, arrivals) = hook(
        [200, 202]
            .into_iter()
            .chain(held)
            .chain(std::iter::repeat(200)),
    );
    let desk = desk(&url, "matrix: {params.a: [1, 2]}\nreplicas: 3\n");
    let mut child = desk
        .command(&["eval", "run", "post", "--parallel", "1"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    for _ in 0..3 {
        arrives(&arrivals);
    }
    // The verdicts on the first two are there before the third is under way, but for the disk.
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let judged = [lines.next(), lines.next()].map(|line| line.unwrap().unwrap());
    assert!(judged[1].starts_with("failed"), "{judged:?}");
    send(signal, child.id());
    let code = child.wait().unwrap().code();
    let mut said = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut said)
        .unwrap();
    let id = said.split(" as ").nth(1).unwrap();
    let id: String = id.chars().take_while(|one| !one.is_whitespace()).collect();
    if signal != "KILL" {
        assert_eq!(code, Some(2), "{said}");
        let words = format!("what is judged is kept: ktsu eval resume {id} --kit post");
        assert!(said.contains(&words), "{said}");
    }
    (desk, id, arrivals)
}

#[test]
fn an_interrupted_eval_is_finished_without_running_again_what_it_has_judged() {
    for signal in ["INT", "KILL"] {
        let (desk, id, _) = interrupted(signal, 0);
        let before = desk.ktsu(&["evals", &id, "--json"]).is(2).json();
        assert_eq!(before["status"], "running", "{signal}");
        let judged = before["scenarios"][0]["replicas"].as_array().unwrap().len();
        let report = desk
            .ktsu(&["eval", "resume", &id, "--kit", "post", "--json"])
            .is(1)
            .json();
        assert_eq!(report["eval_id"], id.as_str());
        let names = ["total_scenarios", "passed", "failed", "flaky"];
        assert_eq!(
            names.map(|name| report[name].as_u64().unwrap()),
            [2, 1, 1, 1]
        );
        assert_eq!(
            report["replicas"],
            json!({"errors": 0, "failed": 1, "passed": 5})
        );
        // What was judged is as it was.
        let after = desk.ktsu(&["evals", &id, "--json"]).is(1).json();
        for at in 0..judged {
            let at = |report: &Value| report["scenarios"][0]["replicas"][at].clone();
            assert_eq!(at(&before), at(&after));
        }
        // The one under way was cancelled, and begun anew: seven runs for six verdicts.
        let third = &report["scenarios"][0]["replicas"][2];
        let abandoned = third["abandoned"][0].as_str().unwrap();
        let runs = desk.ktsu(&["runs", "--json"]).is(0).json();
        let runs = runs["runs"].as_array().unwrap();
        assert_eq!(runs.len(), 7, "{signal}");
        let status = |run: &Value| run["status"].as_str().unwrap().to_owned();
        for run in runs {
            let expected = if run["run_id"] == abandoned {
                "cancelled"
            } else {
                "complete"
            };
            assert_eq!(status(run), expected, "{signal}");
        }
        desk.ktsu(&["verify"]).is(0);
        let again = desk.ktsu(&["eval", "resume", &id, "--kit", "post"]);
        again
            .is(2)
            .warns("is finished, so there is nothing to resume");
    }
}

#[test]
fn a_slow_run_keeps_no_other_from_beginning_and_those_that_ended_are_judged_later() {
    let held = [0].into_iter().chain(std::iter::repeat(200));
    let (url, arrivals) = hook(held);
    let desk = desk(&url, "replicas: 5\n");
    let mut child = desk
        .command(&["eval", "run", "post", "--parallel", "2"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // One of the first two is not answered.
    (0..5).for_each(|_| arrives(&arrivals));
    let complete = || {
        let runs = desk.ktsu(&["runs", "--json"]).is(0).json();
        let runs = statuses(&runs["runs"]);
        runs.iter().filter(|status| **status == "complete").count()
    };
    until("four complete runs", || complete() >= 4);
    send("INT", child.id());
    child.wait().unwrap();
    let mut said = String::new();
    let mut err = child.stderr.take().unwrap();
    err.read_to_string(&mut said).unwrap();
    let id = said.split("eval resume ").nth(1).unwrap();
    let id = id.split(' ').next().unwrap();
    let arguments = ["eval", "resume", id, "--kit", "post", "--json"];
    let report = desk.ktsu(&arguments).is(0).json();
    assert_eq!(
        report["replicas"],
        json!({"errors": 0, "failed": 0, "passed": 5})
    );
    // Only the one that had not ended ran again.
    arrives(&arrivals);
    assert!(arrivals.try_recv().is_err());
    desk.ktsu(&["verify"]).is(0);
}

#[test]
fn an_eval_may_be_interrupted_again_while_it_is_finished() {
    let (desk, id, arrivals) = interrupted("KILL", 1);
    let resume = [
        "eval",
        "resume",
        &id,
        "--kit",
        "post",
        "--parallel",
        "1",
        "--json",
    ];
    let mut child = desk
        .command(&resume)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    arrives(&arrivals);
    child.kill().unwrap();
    child.wait().unwrap();
    let report = desk.ktsu(&resume).is(1).json();
    assert_eq!(
        report["replicas"],
        json!({"errors": 0, "failed": 1, "passed": 5})
    );
    let third = &report["scenarios"][0]["replicas"][2];
    assert_eq!(third["status"], "passed");
    assert_eq!(third["abandoned"].as_array().unwrap().len(), 2);
    let runs = desk.ktsu(&["runs", "--json"]).is(0).json();
    let runs = runs["runs"].as_array().unwrap();
    let with = |status: &str| runs.iter().filter(|run| run["status"] == status).count();
    assert_eq!((with("complete"), with("cancelled"), runs.len()), (6, 2, 8));
    desk.ktsu(&["verify"]).is(0);
}

#[test]
fn a_run_that_was_cancelled_because_it_waits_has_no_verdict_after_an_interruption_either() {
    let (url, arrivals) = hook([0].into_iter().chain(std::iter::repeat(200)));
    let desk = Desk::new();
    for (path, text) in GATED {
        desk.write_file(path, text);
    }
    let flow = format!(
        "kind: workflow\nname: gated\nversion: 1.0.0\n\
         params: {{schema: {{type: object, required: [wait], properties: {{wait: {{type: boolean}}}}}}}}\n\
         pipeline:\n  - {{id: send, condition: '!(params.wait)', webhook: {{url: {url}/hook}}}}\n  \
         - {{id: a, condition: params.wait, agent: ./agents/keeper.agent.yaml}}\n"
    );
    desk.write_file(GATED[0].0, &flow);
    let spec = "subject: {}\neffects: execute\nmatrix: {params.wait: [false, true]}\ninvariants:\n  \
        none: {description: d, check: {type: trace, where: {type: note}, none: true}}\n";
    desk.write_file("gated/evals/g.eval.yaml", spec);
    let mut child = desk
        .command(&["eval", "run", "gated"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    arrives(&arrivals);
    let is_cancelled = || {
        let runs = desk
            .ktsu(&["runs", "--status", "cancelled", "--json"])
            .json();
        runs["runs"].as_array().unwrap().len() == 1
    };
    assert!((0..1_000).any(|_| is_cancelled()), "nothing is cancelled");
    child.kill().unwrap();
    child.wait().unwrap();
    let evals = desk.ktsu(&["evals", "--json"]).is(0).json();
    let id = evals["evals"][0]["eval_id"].as_str().unwrap().to_owned();
    let report = desk.ktsu(&["eval", "resume", &id, "--kit", "gated", "--json"]);
    let report = report.is(2).json();
    assert_eq!(statuses(&report["scenarios"]), ["passed", "error"]);
    assert_eq!(report["scenarios"][1]["error"], "waiting");
    desk.ktsu(&["verify"]).is(0);
}

#[test]
fn what_has_no_verdict_runs_again_alone() {
    let (url, arrivals) = hook([200, 0, 202, 200].into_iter());
    let suite = "matrix: {params.a: [1, 2, 3]}\nlimits: {timeout: 500ms}\n";
    let desk = desk(&url, suite);
    let first = desk.ktsu(&["eval", "run", "post", "--json", "--parallel", "1"]);
    let first = first.is(2).json();
    assert_eq!(statuses(&first["scenarios"]), ["passed", "error", "failed"]);
    let id = first["eval_id"].as_str().unwrap();
    let second = desk.ktsu(&["eval", "retry", id, "--kit", "post", "--json"]);
    let second = second.is(1).json();
    assert_eq!(
        statuses(&second["scenarios"]),
        ["passed", "passed", "failed"]
    );
    assert_ne!(second["eval_id"], first["eval_id"]);
    let run = |report: &Value, at: usize| report["scenarios"][at]["run_id"].clone();
    let same = [0, 1, 2].map(|at| run(&first, at) == run(&second, at));
    assert_eq!(same, [true, false, true]);
    assert_eq!(arrivals.try_iter().count(), 4, "one request more");
    desk.ktsu(&["verify"]).is(0);
    let (url, _) = hook(std::iter::repeat(0));
    let held = self::desk(&url, "limits: {cost_usd: 0}\n");
    let said = held.ktsu(&["eval", "run", "post"]);
    let id = said
        .is(2)
        .err
        .split("ktsu eval resume ")
        .nth(1)
        .unwrap()
        .to_owned();
    let id = id.split(' ').next().unwrap();
    held.ktsu(&["eval", "retry", id, "--kit", "post"])
        .is(2)
        .warns("is not finished")
        .warns(&format!("ktsu eval resume {id} --kit post"));
}

#[test]
fn no_further_run_begins_once_the_limit_of_cost_is_reached() {
    let (url, arrivals) = hook(std::iter::repeat(200));
    let desk = desk(&url, "matrix: {params.a: [1, 2]}\nlimits: {cost_usd: 0}\n");
    let said = desk.ktsu(&["eval", "run", "post"]);
    said.is(2)
        .warns("2 runs not begun, because the limit of cost is reached: $0.00");
    assert!(arrivals.try_recv().is_err(), "nothing was sent");
    let hint = said.err.split("ktsu eval resume ").nth(1).unwrap();
    let id = hint.split(' ').next().unwrap();
    let more = ["eval", "resume", id, "--kit", "post", "--cost-limit", "1"];
    desk.ktsu(&more).is(0).says("2 scenarios: 2 passed");
    desk.ktsu(&["eval", "run", "post", "--cost-limit=-1"])
        .is(2)
        .warns("an amount such as 2.50");
}
