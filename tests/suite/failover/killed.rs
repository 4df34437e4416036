//! The owner is killed under load.

use std::time::Instant;

use super::{Place, beside, clients, failovers, is_in_time};
use crate::support::load::Load;
use crate::support::postgres::Server;
use crate::support::random::RandomNumbers;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_standby_takes_over_from_a_killed_owner_and_nothing_is_lost_or_done_twice() {
    let Some(server) = beside(Server::alone) else {
        return;
    };
    let mut random = RandomNumbers::seeded();
    let (_, schema) = beside(|| server.ledger());
    let place = Place::new(server.address(&schema)).await;
    let load = Load::begin(clients());
    let mut owner = place.engine();
    for _ in 0..failovers() {
        let standby = place.engine();
        load.engines(&[&owner.url, &standby.url]);
        load.acknowledged(clients()).await;
        // A moment by chance: a webhook has arrived, and its answer is not recorded.
        let heard = place.sink.heard().len() + random.next(64) as usize;
        place.sink.until(|all| all.len() > heard).await;
        load.is_at_work();
        let killed = Instant::now();
        beside(|| owner.kill());
        let (accepted, url) = load.accepted().await;
        assert_eq!(url, standby.url);
        is_in_time(accepted - killed);
        owner = standby;
    }
    load.acknowledged(clients()).await;
    load.finish(&owner.client()).await;
    beside(|| owner.kill());
    let work = beside(|| load.compare(&place.ledger(), &place.sink.heard()));
    eprintln!("{} owners killed: {work}", failovers());
}
