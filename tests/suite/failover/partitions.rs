//! The machine of the server of a ledger, or that of the server which follows it, is cut off from all
//! others, while clients work with the engines of every machine.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ktsu_ledger::{Ledger, LedgerPlace};
use ktsu_postgres::PostgresPlace;

use super::clients::{CLIENTS, Clients};
use super::network::{Machine, address, has_all, hello, in_a_network, is_inside};
use super::{beside, is_in_time};
use crate::support::load::{PACE, in_order};
use crate::support::postgres::Server;
use crate::support::process::Process;
use crate::support::{Client, KitDir, guarded};

/// Finds a transaction that waits for the standby of its server; an error if there is none.
const WAITS: &str = "SELECT 1 / count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
/// The longest time after which an owner without its server has ended.
const END: Duration = Duration::from_secs(30);

#[test]
fn a_primary_that_is_cut_off_acknowledges_nothing_and_the_promoted_one_has_everything() {
    in_a_network("partitions::the_primary_is_cut_off");
}

#[test]
fn an_owner_waits_for_a_replica_that_is_cut_off_and_answers_reads_until_it_gives_up() {
    in_a_network("partitions::the_replica_is_cut_off");
}

/// Three machines: of an engine alone, of the primary, and of the server that follows it.
struct Machines {
    /// The servers first: their machines are needed to stop them.
    replica: Server,
    primary: Server,
    all: [Machine; 3],
    schema: String,
    kit: KitDir,
}

impl Machines {
    fn new() -> Self {
        let here = Machine::here();
        let second = Machine::linked(2, &[&here]);
        let third = Machine::linked(3, &[&here, &second]);
        let primary = Server::elsewhere(second.around(), &second.address()).unwrap();
        let addresses = [second.address(), third.address()];
        let (_, schema) = primary.ledger();
        let addresses = addresses.each_ref().map(String::as_str);
        let replica = primary.standby_elsewhere(third.around(), addresses);
        Self {
            replica,
            primary,
            all: [here, second, third],
            schema,
            kit: hello(),
        }
    }

    /// An engine that asks the server of one machine first.
    fn engine(&self, machine: &Machine, first: &Machine) -> Process {
        let [_, servers @ ..] = &self.all;
        let mut servers = servers.each_ref();
        servers.sort_by_key(|server| server.address() != first.address());
        let address = address(&servers, &self.schema);
        beside(|| machine.engine(&self.kit, &address))
    }

    /// The ledger on the server of a machine alone.
    fn place(&self, machine: &Machine) -> LedgerPlace {
        let place: PostgresPlace = address(&[machine], &self.schema).parse().unwrap();
        LedgerPlace::Backend(Arc::new(place))
    }

    /// Waits until something waits on the primary for the server that follows it.
    async fn waits(&self) {
        let waits = async {
            while beside(|| self.primary.refusal(WAITS)).is_some() {
                tokio::time::sleep(PACE).await;
            }
        };
        guarded("a wait for the standby of the server", waits).await;
    }
}

/// Waits until an engine has ended by itself; its exit code.
async fn ended(engine: Process) -> Option<i32> {
    let ended = tokio::task::spawn_blocking(move || engine.ended());
    guarded("the end of an engine", ended).await.unwrap()
}

/// The ledger of a machine has every acknowledged run, and its positions are dense.
async fn is_sound(place: &LedgerPlace, acknowledged: &[String]) {
    has_all(place, acknowledged).await;
    let reader = beside(|| Ledger::open(place).reader()).unwrap();
    let frames = beside(|| in_order(reader.as_ref()));
    assert!(frames.len() > acknowledged.len());
}

/// What the first test starts.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "another test starts this in a namespace of its own"]
async fn the_primary_is_cut_off() {
    if !is_inside() {
        return;
    }
    let machines = beside(Machines::new);
    let [here, second, third] = &machines.all;
    // Every engine asks the server first that it will not reach.
    let owner = machines.engine(here, second);
    let standby = machines.engine(third, second);
    let behind = machines.engine(second, third);
    let at_owner = Clients::begin(&owner.url, here.entrance());
    let at_standby = Clients::begin(&standby.url, third.entrance());
    let at_behind = Clients::begin(&behind.url, second.entrance());
    at_owner.acknowledged(CLIENTS * 4).await;
    let before = at_owner.count();
    beside(|| [here, third].map(|other| second.cut_from(other)));
    let cut = Instant::now();
    beside(|| machines.replica.promote());
    tokio::select! {
        () = at_owner.acknowledged(CLIENTS * 2) => eprintln!("the owner works on"),
        () = at_standby.acknowledged(CLIENTS * 2) => eprintln!("the standby is the owner"),
    }
    is_in_time(cut.elapsed());
    // The engine beside the old primary becomes its owner there, as far as that can say.
    machines.waits().await;
    eprintln!("both sides write after {:?}", cut.elapsed());
    // It becomes no owner there, and waits.
    let refused = at_behind.refused();
    at_owner.acknowledged(CLIENTS).await;
    while at_behind.refused() < refused + CLIENTS {
        tokio::time::sleep(PACE).await;
    }
    assert_eq!(beside(|| at_behind.end()), [""; 0]);
    let acknowledged = beside(|| [at_owner.end(), at_standby.end()]).concat();
    is_sound(&machines.place(third), &acknowledged).await;
    let count = acknowledged.len();
    assert!(count > before, "{before} of {count} before the cut");
    eprintln!("{count} runs acknowledged, {before} of them before the cut");
    beside(|| [owner, standby, behind].map(Process::kill));
}

/// The owner answers questions, about what is acknowledged.
async fn is_readable(client: &Client) -> bool {
    let runs = client.try_send("GET", "/runs", &[], "").await;
    let Some(runs) = runs.filter(|it| it.status == 200) else {
        return false;
    };
    let run = runs.json()["runs"][0]["run_id"]
        .as_str()
        .unwrap()
        .to_owned();
    let path = format!("/runs/{run}/envelope");
    let envelope = client.try_send("GET", &path, &[], "");
    envelope.await.is_some_and(|it| it.status == 200)
}

/// What the second test starts.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "another test starts this in a namespace of its own"]
async fn the_replica_is_cut_off() {
    if !is_inside() {
        return;
    }
    let machines = beside(Machines::new);
    let [here, second, third] = &machines.all;
    let owner = machines.engine(here, third);
    let standby = machines.engine(third, third);
    let at_owner = Clients::begin(&owner.url, here.entrance());
    let at_standby = Clients::begin(&standby.url, third.entrance());
    at_owner.acknowledged(CLIENTS * 4).await;

    // For a moment: what waits is acknowledged late.
    let cut = || beside(|| [here, second].map(|other| third.cut_from(other)));
    let mend = || beside(|| [here, second].map(|other| third.mend(other)));
    cut();
    machines.waits().await;
    let before = at_owner.count();
    assert!(is_readable(&owner.client()).await);
    assert_eq!(at_owner.count(), before, "acknowledged on one disk alone");
    mend();
    let mended = Instant::now();
    at_owner.acknowledged(CLIENTS * 4).await;
    eprintln!("the owner works on {:?} later", mended.elapsed());

    // For longer than a lease.
    cut();
    let since = Instant::now();
    machines.waits().await;
    let before = at_owner.count();
    let client = owner.client();
    let ended = tokio::spawn(ended(owner));
    let mut reads = 0;
    while !ended.is_finished() {
        reads += usize::from(is_readable(&client).await);
        tokio::time::sleep(PACE).await;
    }
    assert_eq!(ended.await.unwrap(), Some(2));
    eprintln!(
        "the owner has ended after {:?}; {reads} reads",
        since.elapsed()
    );
    assert!(reads > 0 && since.elapsed() < END);
    assert_eq!(at_owner.count(), before, "acknowledged on one disk alone");
    // Its unit starts it again: it serves what can be read, and nothing may be changed yet.
    let again = machines.engine(here, third);
    assert!(is_readable(&again.client()).await);
    assert_eq!(at_standby.count(), 0);
    assert_eq!(at_owner.count(), before, "acknowledged on one disk alone");
    mend();
    let mended = Instant::now();
    // It would find out by itself after some seconds.
    beside(|| machines.replica.crash());
    tokio::select! {
        () = at_owner.acknowledged(CLIENTS * 2) => eprintln!("the owner works again"),
        () = at_standby.acknowledged(CLIENTS * 2) => eprintln!("the standby is the owner"),
    }
    eprintln!("{:?} after the end of the cut", mended.elapsed());
    let acknowledged = beside(|| [at_owner.end(), at_standby.end()]).concat();
    is_sound(&machines.place(second), &acknowledged).await;
    eprintln!("{} runs acknowledged", acknowledged.len());
    beside(|| [again, standby].map(Process::kill));
}
