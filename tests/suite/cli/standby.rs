//! Standbys of a ledger on PostgreSQL: what they say of themselves and of the owner, whom they refer clients to,
//! and commands that are not done when the owner is lost.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};
use tokio::runtime::Handle;

use super::on_postgres::{KEY, Place};
use super::{Said, kit, posting};
use crate::support::guarded;
use crate::support::load::PACE;
use crate::support::process::Process;
use crate::support::services::free;
use crate::support::sink::{Reply, Sink};

/// An engine of a kit; each has a port of its own.
fn engine(place: &Place, kit: &Path, port: u16, more: &[&str]) -> Process {
    let port = port.to_string();
    let mut command = place.desk.command(&["start", "--json", "--port", &port]);
    command.args(["--runtime-port", "0", "--gateway-port", "0"]);
    command.arg("--kit").arg(kit).args(more);
    command
        .env("KTSU_LEDGER", &place.address)
        .env("KTSU_SIGNING_KEY", KEY);
    Process::spawn(command)
}

async fn health(of: &Process) -> Value {
    of.client().get("/health").await.json()
}

/// What an engine says that it is; nothing while it does not answer.
async fn role_of(engine: &Process) -> Option<Value> {
    let client = engine.client();
    let health = client.try_send("GET", "/health", &[], String::new());
    health.await.map(|health| health.json()["role"].clone())
}

#[tokio::test]
async fn a_standby_says_that_it_is_one_and_what_it_sees_of_the_owner() {
    let Some(place) = Place::new() else { return };
    let hello = kit("hello");
    let [first, second, _] = free();
    let owner = engine(&place, hello.as_ref(), first, &[]);
    owner.client().run("hello", json!({})).await;
    let standby = engine(&place, hello.as_ref(), second, &["--standby"]);
    let of_owner = health(&owner).await;
    assert_eq!(of_owner["role"], "owner", "{of_owner:#}");
    assert_eq!(of_owner["standby"], Value::Null);
    let seen = health(&standby).await;
    assert_eq!(
        (&seen["role"], &seen["ledger"]["state"]),
        (&json!("standby"), &json!("read_only"))
    );
    assert_eq!(seen["standby"]["owner_url"], owner.url, "{seen:#}");
    assert!(seen["standby"]["position"].as_u64() > Some(1), "{seen:#}");
    assert!(seen["standby"]["age_ms"].as_u64() < Some(5_000), "{seen:#}");
    // A server whose disk alone has the frames is named by its owner.
    let warned = async {
        while health(&owner).await["ledger"]["warnings"].is_null() {
            tokio::task::yield_now().await;
        }
    };
    guarded("the warning", warned).await;
    let metrics = owner.client().get("/metrics").await.text();
    assert!(metrics.contains("ktsu_ledger_epoch 1\n"), "{metrics}");
    assert!(metrics.contains("ktsu_ledger_replicas 0\n"), "{metrics}");
    assert!(metrics.contains("ktsu_ledger_up 1\n"), "{metrics}");
    let metrics = standby.client().get("/metrics").await.text();
    for is_there in [
        "ktsu_ledger_role{role=\"standby\"} 1\n",
        "ktsu_ledger_view_age_seconds 0.",
    ] {
        assert!(metrics.contains(is_there), "{metrics}");
    }
    assert!(!metrics.contains("ktsu_ledger_up"), "{metrics}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_refuses_for_now_what_it_cannot_look_up_while_its_server_is_away() {
    let Some(place) = Place::alone() else { return };
    let hello = kit("hello");
    let [first, second, _] = free();
    let _owner = engine(&place, hello.as_ref(), first, &[]);
    let standby = engine(&place, hello.as_ref(), second, &["--standby"]);
    tokio::task::block_in_place(|| place.server.stop_at_once());
    let key = [("idempotency-key", "k-1")];
    let asked = standby.client();
    let answer = asked.try_send("POST", "/invoke/hello", &key, "{}".to_owned());
    let answer = guarded("an answer", answer).await.expect("an answer");
    assert_eq!(answer.status, 503, "{}", answer.text());
    assert_eq!(answer.json()["code"], "ledger_stopped");
    let is_unwell = async {
        while health(&standby).await["ledger"]["state"] != "stopped" {
            tokio::time::sleep(PACE).await;
        }
    };
    guarded("a state", is_unwell).await;
    let health = health(&standby).await;
    let why = health["ledger"]["why"].as_str().unwrap();
    assert!(why.starts_with("the ledger has not answered for"), "{why}");
}

#[test]
fn a_standby_that_is_started_while_its_server_is_away_waits_for_it() {
    let Some(place) = Place::alone() else { return };
    place.server.stop_at_once();
    let hello = kit("hello");
    let mut start = vec!["start", "--standby", "--port", "0", "--kit", &hello];
    start.extend(["--gateway-port", "0", "--runtime-port", "0"]);
    let mut command = place.desk.command(&start);
    command
        .env("KTSU_LEDGER", &place.address)
        .env("KTSU_SIGNING_KEY", KEY)
        .stderr(Stdio::piped());
    let mut started = command.spawn().unwrap();
    let log = BufReader::new(started.stderr.take().unwrap());
    let mut log = log.lines().map(Result::unwrap);
    assert!(log.any(|line| line.contains("the ledger does not answer")));
    place.server.start_again();
    assert!(log.any(|line| line.contains("ready")));
    started.kill().unwrap();
    started.wait().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invocation_between_two_owners_waits_for_the_next_one() {
    let Some(place) = Place::new() else { return };
    let hello = kit("hello");
    let [first, second, _] = free();
    engine(&place, hello.as_ref(), first, &[]).kill();
    let mut command = place.desk.command(&["invoke", "hello", "--wait"]);
    command.env("KTSU_LEDGER", &place.address);
    let invoked = tokio::task::spawn_blocking(move || command.output().unwrap());
    let _next = engine(&place, hello.as_ref(), second, &[]);
    let output = guarded("the end of the command", invoked).await.unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{err}");
}

#[test]
fn a_standby_with_another_signing_key_is_refused() {
    let Some(place) = Place::new() else { return };
    place.ktsu(&["run", &kit("hello")]).is(0);
    let other = ["start", "--standby", "--port", "0", "--kit", &kit("hello")];
    let mut command = place.desk.command(&other);
    command.env("KTSU_LEDGER", &place.address);
    command.env("KTSU_SIGNING_KEY", KEY.replace('a', "b"));
    Said::of(&mut command)
        .is(2)
        .warns("every engine of a ledger needs the same one");
    assert_eq!(place.status()["status"]["owner"], Value::Null);
}

#[test]
fn a_standby_whose_ports_are_in_use_is_refused_before_it_takes_anything() {
    let Some(place) = Place::new() else { return };
    place.ktsu(&["run", &kit("hello")]).is(0);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let hello = kit("hello");
    let mut start = vec!["start", "--standby", "--port", "0", "--kit", &hello];
    start.extend(["--gateway-port", "0", "--runtime-port", &port]);
    let mut command = place.desk.command(&start);
    command.env("KTSU_LEDGER", &place.address);
    command.env("KTSU_SIGNING_KEY", KEY);
    Said::of(&mut command).is(2).warns("--runtime-port");
    assert_eq!(place.status()["status"]["owner"], Value::Null);
}

/// Meanwhile nothing can own the ledger, and what is there can be read.
#[tokio::test(flavor = "multi_thread")]
async fn a_standby_waits_where_its_server_does_not_let_it_take_over() {
    let Some(place) = Place::new() else { return };
    let hello = kit("hello");
    let [first, second, _] = free();
    let owner = engine(&place, hello.as_ref(), first, &[]);
    let standby = engine(&place, hello.as_ref(), second, &["--standby"]);
    // It tries, in vain, and serves what can be read again.
    let is_served = async {
        while role_of(&standby).await.is_some() {
            tokio::time::sleep(PACE).await;
        }
        while role_of(&standby).await.is_none() {
            tokio::time::sleep(PACE).await;
        }
        assert_eq!(role_of(&standby).await, Some(json!("standby")));
        assert_eq!(standby.client().get("/runs").await.status, 200);
    };
    tokio::task::block_in_place(|| {
        std::thread::scope(|scope| {
            scope.spawn(|| place.hold_owner(15));
            assert_eq!(owner.ended(), Some(2));
            Handle::current().block_on(guarded("reads", is_served));
        });
    });
    let owns = async {
        while role_of(&standby).await != Some(json!("owner")) {
            tokio::time::sleep(PACE).await;
        }
    };
    guarded("the takeover", owns).await;
    standby.client().run("hello", json!({})).await;
}

/// A token that was revoked while an engine was a standby does not come back with its takeover.
#[tokio::test]
async fn principals_that_a_standby_read_again_are_in_force_once_it_owns_the_ledger() {
    let Some(place) = Place::new() else { return };
    let hello = kit("hello");
    let env = place.desk.path().join("env.yaml");
    let with = |more: &str| {
        let text = format!(
            "variables: {{T_ADA: token-of-ada, T_VIC: token-of-vic}}\nprincipals:\n  \
             - {{name: ada, token: {{env: T_ADA}}, roles: [admin]}}\n{more}"
        );
        std::fs::write(&env, text).unwrap();
    };
    with("  - {name: vic, token: {env: T_VIC}, roles: [viewer]}\n");
    let [first, second, _] = free();
    let named = ["--env", env.to_str().unwrap()];
    let owner = engine(&place, hello.as_ref(), first, &named);
    let standby = engine(
        &place,
        hello.as_ref(),
        second,
        &[&named[..], &["--standby"]].concat(),
    );
    let asked = async |token: &str| {
        let headers = [("authorization", token)];
        let client = standby.client();
        let answer = client.try_send("GET", "/runs", &headers, String::new());
        answer.await.map(|answer| answer.status)
    };
    assert_eq!(asked("Bearer token-of-vic").await, Some(200));
    with("");
    standby.signal("HUP");
    let revoked = async {
        while asked("Bearer token-of-vic").await != Some(401) {
            tokio::time::sleep(PACE).await;
        }
    };
    guarded("the revocation", revoked).await;
    owner.kill();
    let owns = async {
        loop {
            if role_of(&standby).await == Some(json!("owner")) {
                break;
            }
            let vic = asked("Bearer token-of-vic").await;
            assert!(matches!(vic, None | Some(401)), "{vic:?}");
            tokio::time::sleep(PACE).await;
        }
    };
    guarded("the takeover", owns).await;
    assert_eq!(asked("Bearer token-of-vic").await, Some(401));
    assert_eq!(asked("Bearer token-of-ada").await, Some(200));
}

#[tokio::test]
async fn a_standby_with_a_url_of_its_own_refers_what_changes_something_to_the_owner() {
    let Some(place) = Place::new() else { return };
    let hello = kit("hello");
    let [first, second, third] = free();
    let url = |port: u16| format!("http://127.0.0.1:{port}");
    let owner = engine(&place, hello.as_ref(), first, &["--own-url", &url(first)]);
    let named = engine(
        &place,
        hello.as_ref(),
        second,
        &["--standby", "--own-url", &url(second)],
    );
    let unnamed = engine(&place, hello.as_ref(), third, &["--standby"]);
    let asked = "/invoke/hello?effects=suppress";
    let referred = named.client().post(asked, "{}").await;
    assert_eq!(referred.status, 307, "{}", referred.text());
    let location = format!("{}{asked}", owner.url);
    assert_eq!(referred.headers["location"], location);
    assert_eq!(named.client().get("/runs").await.status, 200);
    let refused = unnamed.client().post(asked, "{}").await;
    assert_eq!(refused.status, 503, "{}", refused.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invocation_that_waits_ends_at_the_next_owner_and_starts_one_run() {
    let Some(place) = Place::new() else { return };
    let sink = Sink::scripted(|_| Reply::When("answer".into(), 200)).await;
    let posts = place.desk.write_kit("post", &posting(&sink.url));
    let posts = place.desk.path().join(posts);
    let [first, second, _] = free();
    let owner = engine(&place, &posts, first, &[]);
    let _standby = engine(&place, &posts, second, &["--standby"]);
    let mut command = place.desk.command(&["invoke", "post", "--wait", "--json"]);
    command
        .env("KTSU_LEDGER", &place.address)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let invoked = tokio::task::spawn_blocking(move || command.output().unwrap());
    sink.until(|heard| heard.len() == 1).await;
    owner.kill();
    sink.until(|heard| heard.len() == 2).await;
    sink.open("answer");
    let output = guarded("the end of the command", invoked).await.unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{err}");
    let envelope: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(envelope["status"], "complete", "{envelope:#}");
    let heard = sink.heard();
    assert_eq!(heard[0].id, heard[1].id, "the same delivery");
    let runs = place.ktsu(&["runs", "--json"]).is(0).json();
    assert_eq!(runs["runs"].as_array().map(Vec::len), Some(1), "{runs:#}");
}
