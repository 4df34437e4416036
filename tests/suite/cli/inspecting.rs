//! `ktsu inspect`: the pages of a ledger without an engine; `ktsu run --open`: those of a run.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use super::{Desk, kit, posting, send};
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
