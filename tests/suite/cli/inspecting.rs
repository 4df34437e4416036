//! `ktsu inspect`: the pages of a ledger or an archive without an engine; `ktsu run --open`: those of a run.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;

use super::{Desk, Owner, kit, posting, send};
use crate::support::client::{Answer, Client};
use crate::support::guarded;
use crate::support::process::Process;
use crate::support::sink::{Reply, Sink};

#[tokio::test]
async fn the_pages_of_a_ledger_are_served_without_an_engine_beside_one_and_change_nothing() {
    let desk = Desk::new();
    let run = desk.hello();
    let command = desk.command(&["inspect", run.get(4..).unwrap(), "--no-open", "--json"]);
    let inspect = Process::spawn(command);
    let (engine, page) = inspect.url.split_once("/inspector/").unwrap();
    assert_eq!(page, format!("runs/{run}"));
    let pages = Client::of(engine);
    let shown = pages.get(&format!("/inspector/{page}")).await;
    assert_eq!(shown.status, 200);
    assert!(shown.text().contains(&run), "{}", shown.text());
    // What others do meanwhile is there at the next look.
    let next = desk.hello();
    let list = pages.get("/inspector/runs").await.text();
    assert!(list.contains(&next) && list.contains(&run), "{list}");
    let kit = pages.get("/inspector/kit").await.text();
    assert!(
        kit.contains("This engine serves no kit") && kit.contains("ktsu dev KIT"),
        "{kit}"
    );
    assert!(!list.contains(">Kit</a>"), "{list}");
    let invoked = pages.post("/invoke/hello", "{}").await;
    assert_eq!(
        invoked.status,
        404,
        "it has no workflow: {}",
        invoked.text()
    );
    inspect.signal("INT");
    assert_eq!(inspect.ended(), Some(0));
}

#[test]
fn a_ledger_or_a_run_that_is_not_there_is_said_to_be_missing() {
    let desk = Desk::new();
    desk.ktsu(&["inspect", "--no-open"])
        .is(2)
        .warns("ktsu run kits/hello");
    desk.ktsu(&["run", &kit("hello"), "--json"]).is(0);
    desk.ktsu(&["inspect", "nothing", "--no-open"])
        .is(2)
        .warns("nothing");
}

/// The page once it is as wanted. In between, nothing may listen at its address.
async fn shows(pages: &Client, path: &str, wanted: impl Fn(&Answer) -> bool) -> Answer {
    let looking = async {
        loop {
            match pages.try_send("GET", path, &[], "").await {
                Some(page) if wanted(&page) => return page,
                Some(_) | None => tokio::task::yield_now().await,
            }
        }
    };
    guarded(path, looking).await
}

#[tokio::test]
async fn the_page_of_a_run_is_served_while_it_runs_and_after_its_end_with_the_exit_code_of_the_run()
{
    for (status, code, ended) in [(200, 0, "complete"), (404, 1, "failed")] {
        let desk = Desk::new();
        let sink = Sink::scripted(move |_| Reply::When("end".to_owned(), status)).await;
        desk.write_kit("post", &posting(&sink.url));
        let mut command = desk.command(&["run", "post", "--open", "--json"]);
        let said = desk.path().join("said");
        command.stderr(std::fs::File::create(&said).unwrap());
        let run = Process::spawn(command);
        let (engine, page) = run.url.split_once("/inspector/").unwrap();
        let (pages, page) = (Client::of(engine), format!("/inspector/{page}"));
        sink.until(|heard| heard.len() == 1).await;
        let shown = pages.get(&page).await;
        assert_eq!(shown.status, 200);
        assert!(shown.text().contains("running"), "{}", shown.text());
        sink.open("end");
        // Once the ledger is free, another command owns it, and the page is still there.
        shows(&pages, "/health", |health| {
            health.json()["role"] == "reader"
        })
        .await;
        let shown = pages.get(&page).await.text();
        assert!(
            shown.contains(ended) && !shown.contains("running"),
            "{shown}"
        );
        let next = desk.hello();
        let list = pages.get("/inspector/runs").await.text();
        assert!(list.contains(&next), "{list}");
        run.signal("INT");
        assert_eq!(run.ended(), Some(code));
        assert_eq!(std::fs::read_to_string(said).unwrap(), "");
    }
}

#[test]
fn the_address_of_the_page_of_a_run_is_printed_beside_its_answer() {
    let desk = Desk::new();
    let mut command = desk.command(&["run", &kit("hello"), "--open"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let said: Vec<String> = lines
        .by_ref()
        .map(Result::unwrap)
        .take_while(|line| !line.contains("Ctrl-C"))
        .collect();
    send("TERM", child.id());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(
        String::from_utf8(output.stdout)
            .unwrap()
            .contains("\"greeting\"")
    );
    let is_address = |line: &String| {
        line.starts_with("http://127.0.0.1:") && line.contains("/inspector/runs/run_")
    };
    assert!(said.iter().any(is_address), "{said:#?}");
}

/// A command that serves pages, and what it says of them first.
fn opened(desk: &Desk, arguments: &[&str]) -> (Owner, Value) {
    let mut command = desk.command(arguments);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    out.read_line(&mut line).unwrap();
    let Ok(said) = serde_json::from_str::<Value>(&line) else {
        let output = child.wait_with_output().unwrap();
        panic!("{line} {}", String::from_utf8_lossy(&output.stderr));
    };
    let url = said["url"].as_str().unwrap().to_owned();
    (Owner { url, child }, said)
}

/// The files below a folder, each with its bytes.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => drop(found.insert(path.clone(), std::fs::read(&path).unwrap())),
        }
    }
    found
}

#[tokio::test]
async fn the_runs_of_an_archive_have_pages_beside_what_was_not_covered_and_nothing_is_written() {
    let desk = Desk::new();
    let (run, other) = (desk.hello(), desk.hello());
    let auditor = Desk::new();
    let archive = auditor.path().join("run.tar").display().to_string();
    desk.ktsu(&["evidence", "export", &run, "-o", &archive])
        .is(0);
    let before = files(auditor.path());
    let arguments = [
        "inspect",
        "run.tar",
        run.get(4..).unwrap(),
        "--no-open",
        "--json",
    ];
    let (inspect, said) = opened(&auditor, &arguments);
    let (engine, page) = inspect.url.split_once("/inspector/").unwrap();
    assert_eq!(page, format!("runs/{run}"));
    let claims = said["archive"]["claims"].as_array().unwrap();
    let has = |verdict: &str| claims.iter().any(|claim| claim["verdict"] == verdict);
    assert!(
        has("proven") && has("not_covered") && !has("failed"),
        "{said}"
    );
    let pages = Client::of(engine);
    for path in [
        page.to_owned(),
        format!("{page}/frames"),
        format!("{page}/why?of=output.greeting"),
    ] {
        let shown = pages.get(&format!("/inspector/{path}")).await;
        assert_eq!(shown.status, 200, "{path}");
        assert!(shown.text().contains(&run), "{path}: {}", shown.text());
    }
    let list = pages.get("/inspector/runs").await.text();
    assert!(list.contains(&run) && !list.contains(&other), "{list}");
    let frames = pages.get(&format!("/runs/{run}/frames")).await.json();
    let printed = desk.ktsu(&["frames", &run, "--json"]);
    let printed = printed.is(0).out.lines();
    let printed: Vec<Value> = printed
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(frames["frames"], Value::from(printed));
    assert_eq!(inspect.stop("INT"), (0, String::new()));
    assert_eq!(files(auditor.path()), before);
}

#[test]
fn an_archive_of_which_a_claim_failed_is_not_shown() {
    let desk = Desk::new();
    let run = desk.hello();
    desk.ktsu(&["evidence", "export", &run, "-o", "run.tar"])
        .is(0);
    let mut bytes = std::fs::read(desk.path().join("run.tar")).unwrap();
    let begin = b"\"greeting\"";
    let at = bytes
        .windows(begin.len())
        .position(|some| some == begin)
        .unwrap();
    bytes[at + 1] = b'G';
    std::fs::write(desk.path().join("changed.tar"), bytes).unwrap();
    desk.ktsu(&["inspect", "changed.tar", "--no-open"])
        .is(2)
        .warns("changed.tar is not shown: manifest failed: ")
        .warns("ktsu evidence verify changed.tar");
    std::fs::write(desk.path().join("short.tar"), "ustar").unwrap();
    desk.ktsu(&["inspect", "short.tar", "--no-open"])
        .is(2)
        .warns("short.tar is not shown: not an archive of evidence");
    let large = std::fs::File::create(desk.path().join("large.tar")).unwrap();
    large.set_len(4 * 1024 * 1024 * 1024 + 1).unwrap();
    desk.ktsu(&["inspect", "large.tar", "--no-open"])
        .is(2)
        .warns("at most 4.0 GiB are read");
    desk.ktsu(&["inspect", "nowhere.tar", "--no-open"])
        .is(2)
        .warns("cannot read nowhere.tar");
}

#[tokio::test]
async fn a_ledger_file_is_named_before_the_run() {
    let desk = Desk::new();
    let run = desk.hello();
    let elsewhere = Desk::new();
    let ledger = desk.path().join(".ktsu/ledger.db").display().to_string();
    let (inspect, _) = opened(
        &elsewhere,
        &["inspect", &ledger, &run, "--no-open", "--json"],
    );
    let (engine, page) = inspect.url.split_once("/inspector/").unwrap();
    let shown = Client::of(engine).get(&format!("/inspector/{page}")).await;
    assert!(shown.text().contains(&run), "{}", shown.text());
    assert_eq!(inspect.stop("INT"), (0, String::new()));
    elsewhere.write_file("notes.db", "what is written here is no ledger");
    elsewhere
        .ktsu(&["inspect", "notes.db", "--no-open"])
        .is(2)
        .warns("notes.db is not a ledger");
    elsewhere
        .ktsu(&["inspect", "nowhere.db", "--no-open"])
        .is(2)
        .warns("there is no ledger at ")
        .warns("nowhere.db");
    elsewhere
        .ktsu(&["inspect", "nowhere", &run, "--no-open"])
        .is(2)
        .warns("there is no file nowhere");
}
