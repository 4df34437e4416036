//! The server of the ledger is lost under load, and the one that follows it takes its place.

use std::time::Instant;

use super::{Place, beside, clients, failovers, is_in_time};
use crate::support::load::Load;
use crate::support::postgres::Server;
use crate::support::random::RandomNumbers;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_promoted_synchronous_server_has_everything_that_was_acknowledged() {
    let mut random = RandomNumbers::seeded();
    for round in 0..failovers() {
        let Some(primary) = beside(Server::alone) else {
            return;
        };
        let (_, schema) = beside(|| primary.ledger());
        let replica = beside(|| primary.standby());
        // First one whose follower has been away for a moment, during which nothing is acknowledged.
        let is_away = round % 2 == 0;
        lose(&primary, (&replica, is_away), &schema, &mut random).await;
    }
}

async fn lose(
    primary: &Server,
    (replica, is_away): (&Server, bool),
    schema: &str,
    random: &mut RandomNumbers,
) {
    let place = Place::new(primary.address_behind(replica, schema)).await;
    let load = Load::begin(clients());
    let engines = [place.engine(), place.engine()];
    load.engines(&[&engines[0].url, &engines[1].url]);
    load.acknowledged(clients()).await;
    // A moment by chance, in the middle of the work.
    let more = random.next(clients() as u64) as usize;
    load.acknowledged(1 + more).await;
    load.is_at_work();
    if is_away {
        beside(|| replica.stop_at_once());
    }
    let lost = Instant::now();
    beside(|| primary.stop_at_once());
    if is_away {
        beside(|| replica.start_again());
    }
    beside(|| replica.promote());
    let promoted = Instant::now();
    let (accepted, url) = load.accepted().await;
    eprintln!("the other server writes after {:?}", promoted - lost);
    is_in_time(accepted - promoted);
    load.acknowledged(clients()).await;
    let owner = engines.iter().find(|engine| engine.url == url).unwrap();
    load.finish(&owner.client()).await;
    for engine in engines {
        beside(|| engine.kill());
    }
    let work = beside(|| load.compare(&place.ledger(), &place.sink.heard()));
    eprintln!("a primary lost: {work}");
}
