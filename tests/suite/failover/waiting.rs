//! A client waits at a standby for the end of a run that the owner works on.

use serde_json::json;

use super::{Place, beside};
use crate::support::guarded;
use crate::support::postgres::Server;
use crate::support::sink::Reply;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_standby_does_not_take_a_run_of_the_owner_for_ended() {
    let Some(server) = beside(Server::get) else {
        return;
    };
    let (_, schema) = beside(|| server.ledger());
    let place = Place::new(server.address(&schema)).await;
    place.sink.follow(|_| Reply::When("go".to_owned(), 200));
    let (owner, standby) = (place.engine(), place.engine());
    let ask = async |engine: &str, wait: &str| {
        let client = crate::support::Client::of(engine);
        let path = format!("/invoke/work{wait}");
        let body = json!({"token": "t"}).to_string();
        client
            .send("POST", &path, &[("Idempotency-Key", "t")], body)
            .await
    };
    let begun = ask(&owner.url, "").await;
    assert_eq!(begun.status, 202, "{}", begun.text());
    let early = ask(&standby.url, "?wait=1").await;
    assert_eq!(early.status, 202, "{}", early.text());
    assert_eq!(early.json()["run_id"], begun.json()["run_id"]);
    let url = standby.url.clone();
    let ended = tokio::spawn(async move { ask(&url, "?wait=60").await });
    place.sink.open("go");
    let ended = guarded("the end", ended).await.unwrap();
    assert_eq!(ended.status, 200, "{}", ended.text());
    assert_eq!(ended.json()["status"], "complete");
    beside(|| standby.kill());
    beside(|| owner.kill());
}
