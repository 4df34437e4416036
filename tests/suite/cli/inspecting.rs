//! `ktsu inspect`: the pages of a ledger without an engine.

use super::{Desk, kit};
use crate::support::client::Client;
use crate::support::process::Process;

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
