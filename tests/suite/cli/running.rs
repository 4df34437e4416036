//! `ktsu run`: what it says, and what its exit code means.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::Stdio;
use std::sync::mpsc;

use super::{Desk, kit, posting, repository, send};

#[test]
fn the_answer_is_on_standard_output_and_the_rest_on_standard_error() {
    let desk = Desk::new();
    let said = desk.ktsu(&["run", &kit("hello"), "--input", r#"{"name":"Ada"}"#]);
    said.is(0)
        .says("✓ hello 1.0.0 complete")
        .says("STEP     TYPE       STATUS    TIME  NOTE\n")
        .says("greet    transform  complete")
        .says("  \"greeting\": \"Hello, Ada!\",\n")
        .warns("hello as run_")
        .warns("step greet complete 0 ms\nstep measure complete 0 ms\n")
        .warns("  ktsu trace run_")
        .warns("  ktsu verify ");
    assert!(!said.out.contains('\u{1b}') && !said.err.contains('\u{1b}'));
    assert!(!said.err.contains("--ledger"), "{said:#?}");
    assert!(desk.path().join(".ktsu/ledger.db").is_file());
}

#[test]
fn with_json_there_is_one_document() {
    let envelope = Desk::new()
        .ktsu(&["run", &kit("hello"), "--json"])
        .is(0)
        .json();
    assert_eq!(envelope["status"], "complete");
    assert_eq!(envelope["output"]["greeting"], "Hello, world!");
}

/// An example that no longer fits is no input that somebody has typed.
#[test]
fn params_that_come_from_a_stale_example_are_refused_with_its_name() {
    let desk = Desk::new();
    let workflow = "kind: workflow\nname: stale\nversion: 1.0.0\nparams: {schema: {type: object, \
                    required: [word], properties: {word: {type: string}}}}\npipeline: []\n";
    let kit = desk.write_kit("stale", workflow);
    let examples = desk.path().join("stale/examples");
    std::fs::create_dir_all(&examples).unwrap();
    std::fs::write(examples.join("default.json"), "{\"old\": 1}").unwrap();
    desk.ktsu(&["run", &kit])
        .is(2)
        .warns("examples/default.json: ")
        .warns("word")
        .warns("change examples/default.json, or pass other params: --input JSON");
    // What is typed is not the example's.
    let said = desk.ktsu(&["run", &kit, "--input", "{}"]);
    assert!(!said.is(2).err.contains("default.json"), "{said:?}");
    std::fs::write(examples.join("default.json"), "{\"old\"").unwrap();
    desk.ktsu(&["run", &kit])
        .is(2)
        .warns("examples/default.json: the input is not JSON");
}

#[test]
fn the_main_job_runs_with_children_and_webhooks() {
    let said = Desk::new().ktsu(&["run", &kit("intake")]);
    said.is(0)
        .says("✓ intake 1.0.0 complete")
        .says("\"handed_over\": true")
        .warns("step escalate/page complete ")
        .warns(" -> 200")
        .warns("2 webhooks sent to the receiver of this command");
}

#[test]
fn a_run_that_fails_is_reported_with_its_step_and_exit_code_1() {
    let environment = repository().join("environments/test.env.yaml");
    let environment = environment.to_str().unwrap();
    let desk = Desk::new();
    let said = desk.ktsu(&["run", &kit("intake"), "--env", environment]);
    said.is(1)
        .says("✗ intake 1.0.0 failed")
        .says("error in step escalate")
        .says("webhook_unreachable")
        .warns("step escalate/page failed ")
        .warns("step hand_over skipped ");
    let json = desk.ktsu(&["run", &kit("intake"), "--env", environment, "--json"]);
    assert_eq!(json.is(1).json()["status"], "failed");
}

#[test]
fn an_ephemeral_run_leaves_nothing_and_offers_nothing_to_look_at() {
    let desk = Desk::new();
    let said = desk.ktsu(&["run", &kit("hello"), "--ephemeral"]);
    said.is(0).says("Hello, world!");
    assert!(!said.err.contains("ktsu trace"), "{said:#?}");
    assert_eq!(std::fs::read_dir(desk.path()).unwrap().count(), 0);
}

#[test]
fn commands_to_look_further_name_a_ledger_that_is_not_the_usual_one() {
    let desk = Desk::new();
    let said = desk.ktsu(&["run", &kit("hello"), "--ledger", "other place/l.db"]);
    said.is(0).warns("ktsu verify --ledger 'other place/l.db'");
    desk.ktsu(&["verify", "--ledger", "other place/l.db"]).is(0);
}

#[test]
fn input_comes_from_a_file_and_a_goal_goes_where_one_is_taken() {
    let desk = Desk::new();
    std::fs::write(desk.path().join("in.json"), r#"{"name":"Grace"}"#).unwrap();
    let hello = kit("hello");
    desk.ktsu(&["run", &hello, "--input", "@in.json"])
        .is(0)
        .says("Hello, Grace!");
    desk.ktsu(&["run", &hello, "--input", "in.json"])
        .is(2)
        .warns("not JSON")
        .warns("--input @in.json");
    desk.ktsu(&["run", &hello, "--input", "{\n  \"name\": \"Grace\""])
        .is(2)
        .warns("the input is not JSON: the text ends within an object at line 2 column 17");
    desk.ktsu(&["run", &hello, "--input", "[1]"])
        .is(2)
        .warns("not a JSON object");
    desk.ktsu(&["run", &hello, "--input", r#"{"name":5}"#])
        .is(2)
        .warns("name");
    desk.ktsu(&["run", &hello, "--goal", "peace"])
        .is(2)
        .warns("no param `goal`");
    let aims = desk.write_kit(
        "aims",
        "kind: workflow
name: aims
version: 1.0.0
params:
  schema: {type: object, required: [goal], properties: {goal: {type: string}}}
pipeline:
  - id: same
    transform: {inputs: [{from: params}], ops: [{map: {expr: goal}}]}
output:
  map: {goal: \"{{ params.goal }}\"}
",
    );
    desk.ktsu(&["run", &aims, "--goal", "peace"])
        .is(0)
        .says("\"goal\": \"peace\"");
}

#[test]
fn what_is_in_the_data_does_not_reach_the_terminal() {
    let desk = Desk::new();
    let input = r#"{"name":"\u001b]0;owned\u0007\u009b2J\u202eAda"}"#;
    let said = desk.ktsu(&["run", &kit("hello"), "--input", input]);
    let steers = |text: &str| {
        let control = |one: char| one.is_control() && one != '\n';
        text.contains(control) || text.contains('\u{202e}')
    };
    assert!(!steers(&said.is(0).out) && !steers(&said.err), "{said:#?}");
    let json = desk.ktsu(&["run", &kit("hello"), "--input", input, "--json"]);
    assert!(!steers(&json.is(0).out));
    let text = json.json()["output"]["greeting"]
        .as_str()
        .map(str::to_owned);
    assert_eq!(
        text.as_deref(),
        Some("Hello, \u{1b}]0;owned\u{7}\u{9b}2J\u{202e}Ada!")
    );
}

/// A run waits for an answer; it is interrupted, and the next start carries it to its end.
#[test]
fn an_interrupted_run_continues_at_the_next_start() {
    let desk = Desk::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let post = desk.write_kit("post", &posting(&url));
    let (arrived, arrivals) = mpsc::channel();
    let (answer, answers) = mpsc::channel::<()>();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = [0; 4096];
            if stream.read(&mut request).unwrap_or(0) == 0 {
                continue;
            }
            arrived.send(()).unwrap();
            if answers.recv().is_err() {
                return;
            }
            let ok = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}";
            let _ = stream.write_all(ok);
        }
    });
    let child = desk
        .command(&["run", &post])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    arrivals.recv().unwrap();
    // Another terminal sees it under way, and follows it to where it stands.
    let runs = desk
        .ktsu(&["runs", "--json", "--status", "running"])
        .is(0)
        .json();
    let run = runs["runs"][0]["run_id"].as_str().unwrap().to_owned();
    send("INT", child.id());
    let output = child.wait_with_output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{err}");
    assert!(
        err.contains(&format!("interrupted: {run} is kept")),
        "{err}"
    );
    for next in ["ktsu resume ", "ktsu cancel "] {
        assert!(err.contains(&format!("{next}{run}")), "{err}");
    }
    desk.ktsu(&["frames", &run, "--follow"])
        .is(0)
        .warns("resumes at the next start");
    answer.send(()).unwrap();
    answer.send(()).unwrap();
    let owner = desk.start(&["--kit", &post]);
    arrivals.recv().unwrap();
    let followed = desk.ktsu(&["frames", &run, "--follow", "--json"]);
    let last = followed.is(0).out.lines().last().unwrap().to_owned();
    assert!(last.contains("\"run.completed\""), "{last}");
    let (code, _) = owner.stop("TERM");
    assert_eq!(code, 0);
    let envelope = desk.ktsu(&["runs", "get", &run]).is(0).json();
    assert_eq!(envelope["status"], "complete");
}
