//! A ledger on PostgreSQL: the same commands, one owner, and nothing that the file has and it has not.
//! Skipped, with a note, where PostgreSQL is not installed.

use std::sync::Arc;

use ktsu_ledger::store::SqliteStore;

use serde_json::json;

use super::{Desk, Said, kit};
use crate::golden::goldens;
use crate::support::guarded;
use crate::support::postgres::Server;
use crate::support::process::Process;

/// 32 bytes in hexadecimal digits.
pub(super) const KEY: &str = "5ad1a7c3f2b84e0991d6c3b27a64f08e13c5d7e9f0a1b2c3d4e5f60718293a4b";

/// A ledger on a server, and a desk to work with it.
pub(super) struct Place {
    pub(super) desk: Desk,
    pub(super) server: Arc<Server>,
    pub(super) address: String,
}

impl Place {
    /// A schema in which nothing is made yet.
    fn empty() -> Option<Self> {
        let server = Server::get()?;
        let address = server.address(&server.schema());
        Some(Self {
            desk: Desk::new(),
            server,
            address,
        })
    }

    pub(super) fn new() -> Option<Self> {
        let place = Self::empty()?;
        place.ktsu(&["ledger", "init"]).is(0);
        Some(place)
    }

    /// On a server that may be stopped.
    pub(super) fn alone() -> Option<Self> {
        let server = Arc::new(Server::alone()?);
        let address = server.address(&server.schema());
        let place = Self {
            desk: Desk::new(),
            server,
            address,
        };
        place.ktsu(&["ledger", "init"]).is(0);
        Some(place)
    }

    pub(super) fn ktsu(&self, arguments: &[&str]) -> Said {
        let mut command = self.desk.command(arguments);
        command.env("KTSU_LEDGER", &self.address);
        Said::of(command.env("KTSU_SIGNING_KEY", KEY))
    }

    fn run(&self) -> String {
        let said = self.ktsu(&["run", &kit("hello"), "--json"]);
        said.is(0).json()["run_id"].as_str().unwrap().to_owned()
    }

    /// An engine that stays.
    fn start(&self) -> Process {
        let kit = std::path::PathBuf::from(kit("hello"));
        let key = ("KTSU_SIGNING_KEY", KEY);
        Process::start(&kit, std::path::Path::new(&self.address), &[key])
    }

    /// Holds the owner's row for some seconds, in which the server answers nothing about it.
    pub(super) fn hold_owner(&self, seconds: u32) {
        let (_, schema) = self.address.rsplit_once("%3D").unwrap();
        let ledger = format!("{schema}.ledger");
        self.server.sql(&format!(
            "DO $$ BEGIN PERFORM 1 FROM {ledger} FOR UPDATE; PERFORM pg_sleep({seconds}); END $$"
        ));
    }

    pub(super) fn status(&self) -> serde_json::Value {
        self.ktsu(&["ledger", "status", "--json"]).is(0).json()
    }
}

#[test]
fn a_ledger_is_made_once_and_then_every_command_works_on_it() {
    let Some(place) = Place::empty() else { return };
    place
        .ktsu(&["runs"])
        .is(2)
        .warns("has no ledger: ktsu ledger init makes one");
    place.ktsu(&["ledger", "init"]).is(0).says("is made");
    place
        .ktsu(&["ledger", "init"])
        .is(0)
        .says("was made before");
    let run = place.run();
    place.ktsu(&["runs"]).is(0).says(&run);
    place.ktsu(&["trace", &run]).is(0).says("greet");
    place.ktsu(&["frames", &run]).is(0).says("run.completed");
    place.ktsu(&["replay", "--all", "--strict"]).is(0);
    place
        .ktsu(&["fork", &run, "--at", "3", "--kit", &kit("hello")])
        .is(0);
    place.ktsu(&["verify"]).is(0).says("is sound");
    let archive = ["evidence", "export", &run, "-o", "evidence.tar"];
    place.ktsu(&archive).is(0);
    place
        .desk
        .ktsu(&["evidence", "verify", "evidence.tar"])
        .is(0);
    let status = place.status();
    assert_eq!(status["status"]["owner"], json!(null));
    assert!(
        status["status"]["position"].as_u64().unwrap() > 12,
        "{status}"
    );
    let warned = place.ktsu(&["ledger", "status"]);
    warned.is(0).warns("no synchronous standby");
}

#[test]
fn an_export_of_a_server_is_that_of_a_file_byte_for_byte_both_ways() {
    let Some(place) = Place::new() else { return };
    place.desk.hello();
    place.desk.hello();
    place
        .desk
        .ktsu(&["export", "--all", "-o", "file.jsonl"])
        .is(0);
    place.ktsu(&["import", "file.jsonl"]).is(0);
    place.ktsu(&["export", "--all", "-o", "server.jsonl"]).is(0);
    let read = |name: &str| std::fs::read(place.desk.path().join(name)).unwrap();
    assert_eq!(read("file.jsonl"), read("server.jsonl"));
    let back = ["import", "server.jsonl", "--ledger", "back.db"];
    place.desk.ktsu(&back).is(0);
    place
        .desk
        .ktsu(&["export", "--all", "--ledger", "back.db", "-o", "back.jsonl"])
        .is(0);
    assert_eq!(read("file.jsonl"), read("back.jsonl"));
    place.ktsu(&["verify"]).is(0);
}

#[test]
fn a_ledger_is_copied_to_a_server_and_back_with_one_root() {
    let Some(place) = Place::empty() else { return };
    place.desk.hello();
    let to = ["ledger", "copy", "--to", &place.address, "--json"];
    let there = place.desk.ktsu(&to).is(0).json();
    place.ktsu(&["verify"]).is(0).says("is sound");
    place.ktsu(&["replay", "--all", "--strict"]).is(0);
    let back = place.ktsu(&["ledger", "copy", "--to", "back.db", "--json"]);
    assert_eq!(back.is(0).json()["root"], there["root"]);
    let verified = ["verify", "--ledger", "back.db"];
    place.desk.ktsu(&verified).is(0);
    // What is there already is compared, and nothing else is written.
    let again = place.desk.ktsu(&to).is(0).json();
    assert_eq!(again["root"], there["root"]);
    // The server has a run more than the file, which is not lost by a copy over it.
    place.run();
    place
        .desk
        .ktsu(&to)
        .is(2)
        .warns("the target has another frame");
    place.ktsu(&["verify"]).is(0);
}

#[test]
fn a_server_is_backed_up_beside_its_owner_and_restored_to_another_one_with_one_root() {
    let Some(place) = Place::new() else { return };
    let owner = place.start();
    place.ktsu(&["invoke", "hello", "--wait"]).is(0);
    place.ktsu(&["backup", "copy.db"]).is(0).says("verified");
    place
        .ktsu(&["backup", "copy.db"])
        .is(2)
        .warns("already exists");
    owner.stop();
    let other = place.server.address(&place.server.schema());
    let desk = &place.desk;
    let restored = desk.ktsu(&["restore", "copy.db", "--to", &other]);
    restored.is(0).says("is restored").warns("KTSU_SIGNING_KEY");
    desk.ktsu(&["verify", "--ledger", &other]).is(0);
    let root = |ledger: &str, to: &str| {
        let copied = ["ledger", "copy", "--ledger", ledger, "--to", to, "--json"];
        desk.ktsu(&copied).is(0).json()["root"].clone()
    };
    desk.ktsu(&["restore", "copy.db", "--to", "back.db"]).is(0);
    assert_eq!(root("back.db", "a.db"), root(&other, "b.db"));
    // Nothing is left beside the copy.
    let left = std::fs::read_dir(desk.path()).unwrap().flatten();
    let left = left.filter(|file| file.file_name().to_string_lossy().starts_with(".tmp"));
    assert_eq!(left.count(), 0);
    // What is there is not overwritten.
    place.run();
    let taken = desk.ktsu(&["restore", "copy.db", "--to", &place.address]);
    taken.is(2).warns("the target has another frame");
}

#[test]
fn goldens_are_copied_verified_and_replayed_from_a_server_with_one_root() {
    let Some(place) = Place::new() else { return };
    let file = place.desk.path().join("golden.db");
    let mut store = SqliteStore::open(&file).unwrap();
    for (_, golden) in goldens() {
        golden.put(&mut store);
    }
    drop(store);
    let copy = [
        "ledger",
        "copy",
        "--ledger",
        "golden.db",
        "--to",
        &place.address,
    ];
    let there = place
        .desk
        .ktsu(&[&copy[..], &["--json"]].concat())
        .is(0)
        .json();
    let back = ["ledger", "copy", "--to", "back.db", "--json"];
    let back = place.ktsu(&back).is(0).json();
    assert_eq!(back["root"], there["root"]);
    assert!(there["frames"].as_u64().unwrap() > 500, "{there}");
    place.ktsu(&["verify"]).is(0);
    let exported = |ledger: &str, name: &str| {
        let export = ["export", "--all", "--ledger", ledger, "-o", name];
        place.desk.ktsu(&export).is(0);
        std::fs::read(place.desk.path().join(name)).unwrap()
    };
    let first = exported("golden.db", "a.jsonl");
    assert_eq!(first, exported(&place.address, "b.jsonl"));
    assert_eq!(first, exported("back.db", "c.jsonl"));
    let replayed = |ledger: &str| {
        let replay = ["replay", "--all", "--strict", "--ledger", ledger, "--json"];
        place.desk.ktsu(&replay).json()
    };
    assert_eq!(replayed(&place.address), replayed("golden.db"));
}

#[test]
fn an_engine_without_the_signing_key_does_not_start_and_owns_nothing() {
    let Some(place) = Place::new() else { return };
    let mut command = place.desk.command(&["run", &kit("hello")]);
    Said::of(command.env("KTSU_LEDGER", &place.address))
        .is(2)
        .warns("KTSU_SIGNING_KEY")
        .warns("openssl rand -base64 32");
    assert_eq!(place.status()["status"]["epoch"], 0);
}

#[test]
fn a_second_engine_learns_who_the_first_is_until_that_is_killed() {
    let Some(place) = Place::new() else { return };
    let first = place.start();
    for command in [
        &["run", &kit("hello")][..],
        &["start", "--port", "0", "--kit", &kit("hello")],
    ] {
        place
            .ktsu(command)
            .is(2)
            .warns(&format!("process {}", first.pid))
            .warns(&first.url);
    }
    let owner = place.status()["status"]["owner"].clone();
    assert_eq!(owner["url"], first.url.as_str());
    let invoked = place.ktsu(&["invoke", "hello", "--wait", "--json"]);
    invoked.is(0);
    first.kill();
    // The same machine knows at once that it has ended.
    place.run();
    assert_eq!(place.status()["status"]["owner"], json!(null));
    place.ktsu(&["verify"]).is(0);
}

#[tokio::test]
async fn a_standby_serves_what_can_be_read_and_takes_over_once_the_owner_is_gone() {
    let Some(place) = Place::new() else { return };
    let first = place.start();
    let run = first.client().run("hello", json!({})).await["run_id"].clone();
    let run = run.as_str().unwrap().to_owned();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port().to_string();
    drop(free);
    let mut command = place
        .desk
        .command(&["start", "--standby", "--json", "--port", &port]);
    command.args([
        "--runtime-port",
        "0",
        "--gateway-port",
        "0",
        "--kit",
        &kit("hello"),
    ]);
    command.env("KTSU_LEDGER", &place.address);
    let standby = Process::spawn({
        command.env("KTSU_SIGNING_KEY", KEY);
        command
    });
    let client = standby.client();
    let seen = client.get(&format!("/runs/{run}/envelope")).await;
    assert_eq!(seen.json()["status"], "complete");
    let refused = client.post("/invoke/hello", "{}").await;
    assert!(refused.status >= 400, "{}", refused.text());
    // What the owner does next is seen, too.
    let next = first.client().run("hello", json!({})).await["run_id"].clone();
    let next = next.as_str().unwrap().to_owned();
    assert_eq!(client.get(&format!("/runs/{next}")).await.status, 200);
    first.kill();
    let taken_over = async {
        while place.status()["status"]["epoch"] != 2 {
            tokio::task::yield_now().await;
        }
    };
    guarded("the takeover", taken_over).await;
    // Between the two nothing listens.
    let answers = async {
        loop {
            let answer = client.try_send("GET", "/health", &[], "").await;
            if answer.is_some_and(|answer| answer.status == 200) {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    guarded("an answer of the new owner", answers).await;
    let run = client.run("hello", json!({})).await["run_id"].clone();
    assert!(run.as_str().is_some(), "{run}");
    standby.stop();
    place.ktsu(&["verify"]).is(0);
    let file = [
        "start",
        "--standby",
        "--ledger",
        "a.db",
        "--kit",
        &kit("hello"),
    ];
    place
        .desk
        .ktsu(&file)
        .is(2)
        .warns("a standby needs a ledger on a server");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_that_was_suspended_beyond_its_lease_answers_and_writes_nothing_more_and_ends() {
    let Some(place) = Place::new() else { return };
    let first = place.start();
    first.client().run("hello", json!({})).await;
    first.freeze();
    // It neither answers nor beats, and so another one takes over after the lease.
    let asker = first.client();
    let asked = tokio::spawn(async move { asker.try_send("GET", "/runs", &[], "").await });
    let second = place.start();
    let run = second.client().run("hello", json!({})).await;
    assert_eq!(
        place.status()["status"]["owner"]["url"],
        second.url.as_str()
    );
    first.signal("CONT");
    let answer = guarded("its answer", asked).await.unwrap();
    assert_ne!(answer.map(|answer| answer.status), Some(200));
    let ended = tokio::task::spawn_blocking(move || first.ended());
    assert_eq!(guarded("its end", ended).await.unwrap(), Some(2));
    let run = run["run_id"].as_str().unwrap().to_owned();
    place.ktsu(&["runs", "get", &run]).is(0);
    second.stop();
    assert_eq!(place.status()["status"]["owner"], json!(null));
    place.ktsu(&["verify"]).is(0);
    drop(place.server);
}
