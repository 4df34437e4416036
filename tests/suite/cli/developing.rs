//! `ktsu dev`: a kit that is saved again and again.

use std::io::{BufRead as _, BufReader, Lines};
use std::process::{ChildStdout, Stdio};

use axum::http::Request;
use serde_json::Value;

use super::{Desk, Owner, posting};
use crate::support::client::Client;
use crate::support::guarded;
use crate::support::sink::{Reply, Sink};
use crate::support::terminal::Terminal;

/// A workflow that gives a text.
fn giving(text: &str) -> String {
    format!(
        "kind: workflow
name: small
version: 1.0.0
params: {{schema: {{type: object, properties: {{n: {{type: integer, default: 1}}}}}}}}
pipeline: [{{id: t, transform: {{inputs: [{{from: params}}], ops: []}}}}]
output: {{map: {{text: {text}, n: \"{{{{ params.n }}}}\"}}}}
"
    )
}

const FILE: &str = "small/workflows/small.workflow.yaml";

/// The command without a terminal, and its lines.
struct Dev {
    owner: Owner,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Dev {
    fn new(desk: &Desk, arguments: &[&str]) -> Self {
        let all = [&["dev"], arguments, &["--json"]].concat();
        let mut command = desk.command(&all);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let url = String::new();
        let mut dev = Self {
            owner: Owner { url, child },
            lines,
        };
        let url = dev.next()["url"].as_str().unwrap().to_owned();
        url.split_once("/inspector/")
            .unwrap()
            .0
            .clone_into(&mut dev.owner.url);
        dev
    }

    /// The next line.
    #[track_caller]
    fn next(&mut self) -> Value {
        let line = self.lines.next().expect("it has ended").unwrap();
        serde_json::from_str(&line).unwrap()
    }

    /// The run that begins next.
    #[track_caller]
    fn begun(&mut self) -> String {
        let said = self.next();
        assert!(said["url"].is_string(), "{said}");
        said["run_id"].as_str().unwrap().to_owned()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_save_is_checked_and_what_is_valid_runs_again_with_the_same_params() {
    let desk = Desk::new();
    desk.write_kit("small", &giving("one"));
    let mut dev = Dev::new(&desk, &["small", "--input", r#"{"n": 7}"#]);
    assert_eq!(dev.next()["valid"], true);
    let first = dev.begun();
    let ended = dev.next();
    assert_eq!(ended["output"]["text"], "one", "{ended}");
    let pages = Client::of(&dev.owner.url);
    let follows = Request::get("/inspector/live");
    let mut changes = pages.listen(follows).await.unwrap().unwrap();
    desk.write_file(FILE, &(giving("two") + "nope: 1\n"));
    let verdict = dev.next();
    assert_eq!(verdict["valid"], false);
    assert_eq!(verdict["faults"][0]["code"], "unknown-key", "{verdict}");
    assert!(verdict["faults"][0]["line"].is_u64(), "{verdict}");
    let faulty = pages.get("/inspector/kit").await.text();
    for part in [
        "as it was before",
        "workflows/small.workflow.yaml:7:1",
        "<strong>nope</strong>: 1",
        "    6 │ ",
        "output: {map: {text: two",
        "ktsu explain unknown-key",
    ] {
        assert!(faulty.contains(part), "{part}: {faulty}");
    }
    let folder = desk.path().to_str().unwrap();
    assert!(!faulty.contains(folder), "{faulty}");
    // A page that is open loads it again.
    let is_seen = async {
        while let Some(change) = changes.next().await {
            if change.data.contains(r#""kit":true"#) {
                return true;
            }
        }
        false
    };
    assert!(guarded("the change of the kit", is_seen).await);
    // A save that changes nothing is none: the next verdict is on what is mended.
    desk.write_file(FILE, &giving("three"));
    assert_eq!(dev.next()["valid"], true);
    let second = dev.begun();
    let ended = dev.next();
    assert_eq!(ended["output"]["text"], "three", "{ended}");
    assert_eq!(ended["output"]["n"], 7);
    assert_ne!(first, second);
    let mended = pages.get("/inspector/kit").await.text();
    assert!(!mended.contains("nope"), "{mended}");
    for (run, definition) in [(first, "since changed"), (second, "as it is now")] {
        let shown = pages.get(&format!("/inspector/runs/{run}")).await.text();
        assert!(shown.contains("complete"), "{shown}");
        assert!(shown.contains(definition), "{definition}: {shown}");
    }
    assert_eq!(dev.owner.stop("INT"), (0, String::new()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_is_under_way_keeps_the_definition_that_it_began_with() {
    let desk = Desk::new();
    let sink = Sink::scripted(|_| Reply::When("end".to_owned(), 200)).await;
    let before = posting(&sink.url);
    desk.write_kit("post", &before);
    let mut dev = Dev::new(&desk, &["post", "--input", "{}"]);
    assert_eq!(dev.next()["valid"], true);
    let first = dev.begun();
    sink.until(|heard| heard.len() == 1).await;
    let after = before.replace("sent: ", "again: ");
    desk.write_file("post/workflows/post.workflow.yaml", &after);
    assert_eq!(dev.next()["valid"], true);
    let second = dev.begun();
    sink.open("end");
    let ended = dev.next();
    assert_eq!(ended["run_id"], second.as_str(), "{ended}");
    assert_eq!(ended["output"]["again"], true, "{ended}");
    let pages = Client::of(&dev.owner.url);
    let envelope = guarded("the first run", pages.ended(&first)).await;
    assert_eq!(envelope["output"]["sent"], true, "{envelope}");
    assert_eq!(dev.owner.stop("TERM").0, 0);
}

#[test]
fn at_a_terminal_faults_are_shown_at_their_lines_and_enter_runs_the_kit_again() {
    let desk = Desk::new();
    desk.write_kit("small", &giving("one"));
    let mut terminal = Terminal::of(desk.command(&["dev", "small"]), 120);
    terminal.until("Enter runs it", 1);
    terminal.types("");
    terminal.until("/inspector/runs/run_", 1);
    terminal.until("\"one\"", 1);
    desk.write_file(FILE, &(giving("two") + "nope: 1\n"));
    terminal.until("not valid", 1);
    terminal.shows(|screen| screen.text().contains("small.workflow.yaml:7:1"));
    desk.write_file(FILE, &giving("three"));
    terminal.until("Enter runs it", 3);
    terminal.types("");
    terminal.until("\"three\"", 1);
    terminal.types("q");
    let (code, screen) = terminal.ends();
    assert_eq!(code, 0, "{}", screen.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kit_that_was_never_valid_is_shown_by_its_faults_and_runs_once_it_is() {
    let desk = Desk::new();
    desk.write_kit("small", &(giving("one") + "nope: 1\n"));
    let mut dev = Dev::new(&desk, &["small", "--input", "{}"]);
    let verdict = dev.next();
    assert_eq!(verdict["faults"][0]["code"], "unknown-key", "{verdict}");
    let pages = Client::of(&dev.owner.url);
    let faulty = pages.get("/inspector/kit").await.text();
    for part in ["Kit small", "nothing is run", "<strong>nope</strong>: 1"] {
        assert!(faulty.contains(part), "{part}: {faulty}");
    }
    assert!(!faulty.contains("as it was before"), "{faulty}");
    assert_eq!(pages.get("/inspector/runs").await.status, 200);
    desk.write_file(FILE, &giving("two"));
    assert_eq!(dev.next()["valid"], true);
    let run = dev.begun();
    assert_eq!(dev.next()["output"]["text"], "two");
    let valid = pages.get("/inspector/kit").await.text();
    assert!(valid.contains("1 workflow"), "{valid}");
    let shown = pages.get(&format!("/inspector/runs/{run}")).await.text();
    assert!(shown.contains("complete"), "{shown}");
    assert_eq!(dev.owner.stop("INT"), (0, String::new()));
}

#[test]
fn at_a_terminal_a_kit_runs_once_it_is_valid() {
    let desk = Desk::new();
    desk.write_kit("small", &(giving("one") + "nope: 1\n"));
    let mut terminal = Terminal::of(desk.command(&["dev", "small"]), 120);
    terminal.until("/inspector/kit", 1);
    terminal.until("once it is valid", 1);
    terminal.types("");
    terminal.until("once it is valid", 2);
    desk.write_file(FILE, &giving("two"));
    terminal.until("Enter runs it", 1);
    terminal.types("");
    terminal.until("\"two\"", 1);
    terminal.types("q");
    let (code, screen) = terminal.ends();
    assert_eq!(code, 0, "{}", screen.text());
}

#[test]
fn what_hinders_pages_is_a_fault_of_the_kit_until_it_is_mended() {
    let desk = Desk::new();
    desk.write_kit("small", &giving("one"));
    desk.write_file("small/gateway.yaml", "providers: 1\n");
    let mut command = desk.command(&["dev", "small", "--json"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = || -> Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    assert_eq!(next()["valid"], false);
    desk.write_file("small/gateway.yaml", "{}\n");
    let said = next();
    let url = said["url"].as_str().unwrap_or_else(|| panic!("{said}"));
    let url = url.split_once("/inspector/").unwrap().0.to_owned();
    assert_eq!(next()["valid"], true);
    assert_eq!(Owner { url, child }.stop("INT").0, 0);
}

#[test]
fn what_is_no_folder_is_refused() {
    let desk = Desk::new();
    desk.ktsu(&["dev", "nowhere"])
        .is(2)
        .warns("nowhere is not a folder");
}
