//! Damaged ledgers: refused, or left alone once the damage is known; and what is still readable is
//! never told wrongly.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use ktsu::assemble::{self, Agents, LedgerPlace, OpenEngineError, Setup, reading};
use ktsu_damage::{Damage, DamageReportingReader, MAX_SEARCHED_BYTES};
use ktsu_ledger::store::{Filter, Reader, SqliteReader, StoreError};
use ktsu_ledger::{Hash, StreamId};
use rusqlite::Connection;
use serde_json::{Value, json};

use crate::support::process::Process;
use crate::support::{Client, KitDir, Lab, process};

const PAGE: usize = 4096;

fn kit() -> KitDir {
    let step = "pipeline: [{id: t, transform: {inputs: [params], ops: []}}]\n";
    KitDir::new(&[(
        "w",
        &format!("{step}output: {{map: {{all: '{{{{ step.t.result }}}}'}}}}\n"),
    )])
}

fn setup(path: &Path, kit: &KitDir) -> Setup {
    Setup {
        kit: kit.load(),
        environment: None,
        process: process(&[]),
        ledger: LedgerPlace::File(path.to_owned()),
        listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        clock: None,
        agents: Agents::Nowhere,
        own_url: None,
        certificates: None,
        service_token: None,
        standby: None,
        kit_checks: Default::default(),
        gateway: None,
        resume_unfinished: true,
        read_again: None,
    }
}

/// A closed ledger, and what its runs were answered with.
struct Sound {
    dir: tempfile::TempDir,
    envelopes: Vec<(String, Value)>,
}

impl Sound {
    async fn new(kit: &KitDir, inputs: &[Value]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let lab = Lab::on_file(&dir.path().join("ledger.db"), kit, &[]).await;
        let mut envelopes = Vec::new();
        for input in inputs {
            let envelope = lab.client.run("w", input.clone()).await;
            let run = envelope["run_id"].as_str().unwrap().to_owned();
            let answer = lab.client.get(&format!("/runs/{run}/envelope")).await;
            envelopes.push((run, answer.json()));
        }
        lab.close().await;
        Self { dir, envelopes }
    }

    fn bytes(&self) -> Vec<u8> {
        std::fs::read(self.dir.path().join("ledger.db")).unwrap()
    }

    /// The same ledger in another folder, as somebody has changed it.
    fn changed(&self, bytes: &[u8]) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        for beside in ["ledger.db.key", "ledger.db.signing-key"] {
            std::fs::copy(self.dir.path().join(beside), dir.path().join(beside)).unwrap();
        }
        let path = dir.path().join("ledger.db");
        std::fs::write(&path, bytes).unwrap();
        (dir, path)
    }
}

/// What a reader is told: every run is listed, and is what it was or called unreadable.
async fn told_rightly(client: &Client, envelopes: &[(String, Value)], place: &str) -> usize {
    let list = client.get("/runs?limit=1000").await;
    if list.status != 200 {
        assert_eq!(
            list.json()["code"],
            "unreadable",
            "{place}: {}",
            list.text()
        );
        return envelopes.len();
    }
    let list = list.json();
    let rows = list["runs"].as_array().unwrap();
    let mut unreadable = 0;
    for (run, before) in envelopes {
        let row = rows.iter().find(|row| row["run_id"] == run.as_str());
        let row = row.unwrap_or_else(|| panic!("{place}: {run} is not listed: {list}"));
        let answer = client.get(&format!("/runs/{run}/envelope")).await;
        match answer.status {
            200 => {
                assert_eq!(&answer.json(), before, "{place}");
                assert_eq!(row["status"], "complete", "{place}: {row}");
            }
            _ => {
                assert_eq!(answer.status, 500, "{place}: {}", answer.text());
                assert_eq!(answer.json()["code"], "unreadable", "{place}");
                assert_eq!(row["status"], "unreadable", "{place}: {row}");
                let seen = client.get(&format!("/runs/{run}")).await;
                assert_eq!(seen.json()["code"], "unreadable", "{place}");
                unreadable += 1;
            }
        }
    }
    unreadable
}

/// One page after the other is zeroed, or has some bytes changed.
#[tokio::test(flavor = "multi_thread")]
async fn every_page_damaged_is_refused_to_owners_and_never_read_wrongly() {
    let kit = kit();
    let inputs = [
        json!({"name": "first"}),
        json!({"name": "second", "much": "x".repeat(9_000)}),
        json!({"name": "third", "more": "y".repeat(70_000)}),
    ];
    let sound = Sound::new(&kit, &inputs).await;
    let bytes = sound.bytes();
    let pages = bytes.len() / PAGE;
    assert!(pages > 20, "{pages} pages");
    let (mut refused, mut unreadable, mut closed) = (0, 0, 0);
    for page in 0..pages {
        for kind in ["zeroed", "changed"] {
            let place = format!("page {} of {pages} {kind}", page + 1);
            let mut damaged = bytes.clone();
            let whole = &mut damaged[page * PAGE..(page + 1) * PAGE];
            match kind {
                "zeroed" => whole.fill(0),
                _ => whole[PAGE - 1_200..PAGE - 1_100]
                    .iter_mut()
                    .for_each(|byte| *byte ^= 0x55),
            }
            let (_dir, path) = sound.changed(&damaged);
            match assemble::open(setup(&path, &kit)).await {
                Err(OpenEngineError::Store(_)) => {
                    refused += 1;
                    assert_eq!(
                        std::fs::read(&path).unwrap(),
                        damaged,
                        "{place}: written on"
                    );
                }
                Err(other) => panic!("{place}: {other}"),
                // Bytes that nothing stands in: all is as it was, and it may go on.
                Ok(engine) => {
                    let client = Client::of(&engine.url);
                    let wrong = told_rightly(&client, &sound.envelopes, &place).await;
                    assert_eq!((wrong, kind), (0, "changed"), "{place}");
                    client.run("w", json!({})).await;
                    engine.close().await.unwrap();
                    continue;
                }
            }
            match reading::open(setup(&path, &kit)).await {
                Ok(reading) => {
                    let client = Client::of(&reading.url);
                    let health = client.get("/health").await;
                    assert_eq!(health.status, 503, "{place}: {}", health.text());
                    assert_eq!(health.json()["ledger"]["state"], "damaged", "{place}");
                    unreadable += told_rightly(&client, &sound.envelopes, &place).await;
                    assert_eq!(client.post("/invoke/w", "{}").await.status, 503, "{place}");
                    reading.close().await;
                }
                Err(OpenEngineError::Store(_)) => closed += 1,
                Err(other) => panic!("{place}: {other}"),
            }
            assert_eq!(
                std::fs::read(&path).unwrap(),
                damaged,
                "{place}: written on"
            );
        }
    }
    assert!(refused > pages, "{refused} of {pages} pages twice");
    assert!(unreadable > pages / 4, "{unreadable}");
    assert!(closed <= 8, "{closed} could not be opened at all");
}

/// A ledger too large to be searched at every start: damage is known once somebody meets it.
#[tokio::test(flavor = "multi_thread")]
async fn damage_that_a_reader_meets_stops_the_owner_and_the_next_start() {
    let kit = kit();
    let much = |name: usize| json!({"name": name, "much": format!("{name}").repeat(900_000)});
    let inputs: Vec<Value> = (0..10).map(much).collect();
    let sound = Sound::new(&kit, &inputs).await;
    let mut bytes = sound.bytes();
    assert!(bytes.len() as u64 > MAX_SEARCHED_BYTES);
    let (bad, good) = (&sound.envelopes[3].0, &sound.envelopes[4].0);
    let find = |from: usize, what: &str| {
        let found = bytes[from..].windows(what.len());
        from + found
            .clone()
            .position(|some| some == what.as_bytes())
            .unwrap()
    };
    let frame = find(0, &format!(r#""stream":"run:{bad}","seq":1,"#));
    let at = find(frame, r#""at":""#) + 7;
    bytes[at] ^= 1;
    let (dir, path) = sound.changed(&bytes);
    let marker = dir.path().join("ledger.db.damaged");

    let engine = assemble::open(setup(&path, &kit)).await.unwrap();
    let client = Client::of(&engine.url);
    client.run("w", json!({})).await;
    assert_eq!(client.get(&format!("/runs/{good}")).await.status, 200);
    assert_eq!(client.get("/health").await.status, 200);
    let met = client.get(&format!("/runs/{bad}")).await;
    assert_eq!(
        (met.status, &met.json()["code"]),
        (500, &json!("unreadable"))
    );
    let health = client.get("/health").await;
    assert_eq!(health.status, 503);
    assert_eq!(
        health.json()["ledger"]["state"],
        "damaged",
        "{}",
        health.text()
    );
    let late = client.post("/invoke/w", "{}").await;
    assert_eq!(late.json()["code"], "ledger_stopped", "{}", late.text());
    assert_eq!(client.get(&format!("/runs/{good}")).await.status, 200);
    assert!(marker.exists());
    assert!(
        engine.close().await.is_err(),
        "the owner knows why it stopped"
    );

    let again = assemble::open(setup(&path, &kit)).await;
    assert!(
        matches!(again, Err(OpenEngineError::Store(_))),
        "it is remembered"
    );
    let reading = reading::open(setup(&path, &kit)).await.unwrap();
    assert!(
        reading.damaged.as_ref().unwrap().contains(bad),
        "{:?}",
        reading.damaged
    );
    let client = Client::of(&reading.url);
    assert_eq!(told_rightly(&client, &sound.envelopes, "later").await, 1);
    reading.close().await;
    // The command ends, too.
    let (_elsewhere, other) = sound.changed(&bytes);
    let process = Process::start(kit.dir.path(), &other, &[]);
    let client = process.client();
    assert_eq!(client.get(&format!("/runs/{good}")).await.status, 200);
    assert_eq!(client.get(&format!("/runs/{bad}")).await.status, 500);
    assert_eq!(process.ended(), Some(2));
    // Where the list of runs has to be made again, the start itself meets it.
    let (_listless, listless) = sound.changed(&bytes);
    let tool = Connection::open(&listless).unwrap();
    tool.execute_batch("DELETE FROM index_rows").unwrap();
    drop(tool);
    let started = assemble::open(setup(&listless, &kit)).await;
    assert!(matches!(started, Err(OpenEngineError::Store(_))));
    // Put right again, it is searched once and goes on.
    let mut repaired = std::fs::read(&path).unwrap();
    repaired[at] ^= 1;
    std::fs::write(&path, repaired).unwrap();
    let engine = assemble::open(setup(&path, &kit)).await.unwrap();
    assert!(!marker.exists());
    engine.close().await.unwrap();
}

/// Every frame is what was appended, and one is missing at the end: only the list of runs says so.
#[tokio::test]
async fn a_run_without_its_last_frame_is_unreadable_and_not_one_that_continues() {
    let kit = kit();
    let sound = Sound::new(&kit, &[json!({"n": 1}), json!({"n": 2})]).await;
    let (_dir, path) = sound.changed(&sound.bytes());
    let run = &sound.envelopes[0].0;
    let tool = Connection::open(&path).unwrap();
    let names = "SELECT group_concat('DROP TRIGGER ' || name, ';') FROM sqlite_schema WHERE type = 'trigger'";
    let script: String = tool.query_row(names, [], |row| row.get(0)).unwrap();
    tool.execute_batch(&script).unwrap();
    let of = format!("stream = (SELECT id FROM streams WHERE name = 'run:{run}')");
    let last = format!("SELECT max(seq) FROM frames WHERE {of}");
    tool.execute_batch(&format!("DELETE FROM frames WHERE {of} AND seq = ({last})"))
        .unwrap();
    drop(tool);
    let refused = assemble::open(setup(&path, &kit)).await;
    assert!(matches!(refused, Err(OpenEngineError::Store(_))));
    let reading = reading::open(setup(&path, &kit)).await.unwrap();
    let client = Client::of(&reading.url);
    assert_eq!(told_rightly(&client, &sound.envelopes, "cut").await, 1);
    reading.close().await;
}

type Question = fn(&dyn Reader) -> Result<(), StoreError>;

#[tokio::test]
async fn damage_is_known_from_then_on_whatever_a_reader_asked_for_that_met_it() {
    let sound = Sound::new(&kit(), &[json!({"much": "x".repeat(90_000)})]).await;
    let bytes = sound.bytes();
    let questions: [Question; 7] = [
        |reader| reader.read(&stream(), 0, 10).map(drop),
        |reader| reader.tail(&stream()).map(drop),
        |reader| reader.streams(None, 10).map(drop),
        |reader| reader.blob_get(&Hash::ZERO).map(drop),
        |reader| reader.list(&Filter::default(), None, 10).map(drop),
        |reader| reader.row(&stream()).map(drop),
        |reader| reader.scan_frames(1, 10).map(drop),
    ];
    for (at, ask) in questions.into_iter().enumerate() {
        let (_dir, path) = sound.changed(&bytes);
        let damage = Damage::default();
        let reader = DamageReportingReader::new(SqliteReader::open(&path).unwrap(), damage.clone());
        assert!(ask(&reader).is_ok() && damage.reason().is_none(), "{at}");
        drop(reader);
        let reader = DamageReportingReader::new(SqliteReader::open(&path).unwrap(), damage.clone());
        // All but the first page, under the eyes of whoever has it open.
        let mut zeroed = bytes.clone();
        zeroed[PAGE..].fill(0);
        std::fs::write(&path, zeroed).unwrap();
        let met = ask(&reader);
        assert!(matches!(met, Err(StoreError::Damaged(_))), "{at}: {met:?}");
        assert!(damage.reason().is_some(), "{at}");
    }
}

fn stream() -> StreamId {
    StreamId::run("run_x").unwrap()
}

/// Runs some SQL on a ledger with the triggers out of the way.
fn forge(path: &Path, script: &str) {
    let tool = rusqlite::Connection::open(path).unwrap();
    tool.busy_timeout(std::time::Duration::from_secs(10))
        .unwrap();
    let mut named = tool
        .prepare("SELECT name FROM sqlite_schema WHERE type = 'trigger'")
        .unwrap();
    let names = named.query_map([], |row| row.get::<_, String>(0)).unwrap();
    let names: Vec<String> = names.map(Result::unwrap).collect();
    drop(named);
    for name in names {
        tool.execute_batch(&format!("DROP TRIGGER {name}")).unwrap();
    }
    tool.execute_batch(script).unwrap();
}

/// Where a run's frames are shown.
const SHOWN: [&str; 5] = ["/frames", "/frames?limit=1", "/trace", "/trace?frame=1", ""];

#[tokio::test(flavor = "multi_thread")]
async fn a_frame_that_is_gone_is_noticed_wherever_frames_are_shown() {
    let kit = kit();
    let cases = [
        (
            "the first is gone",
            "DELETE FROM frames WHERE seq = 0 AND STREAM",
        ),
        ("one is gone", "DELETE FROM frames WHERE seq = 1 AND STREAM"),
        (
            "the last is gone",
            "DELETE FROM frames WHERE STREAM AND seq = (SELECT max(seq) FROM frames WHERE STREAM)",
        ),
        ("all are gone", "DELETE FROM frames WHERE STREAM"),
    ];
    for (what, script) in cases {
        for shown in SHOWN {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("ledger.db");
            let engine = assemble::open(setup(&path, &kit)).await.unwrap();
            let client = Client::of(&engine.url);
            let envelope = client.run("w", json!({})).await;
            let run = envelope["run_id"].as_str().unwrap();
            let stream = format!("stream = (SELECT id FROM streams WHERE name = 'run:{run}')");
            forge(&path, &script.replace("STREAM", &stream));
            let place = format!("{what}: {shown}");
            let mut answer = client.get(&format!("/runs/{run}{shown}")).await;
            // A page of one frame is right as far as it goes; those behind it are not.
            for from in 1..20 {
                if answer.status != 200 || shown != "/frames?limit=1" {
                    break;
                }
                let next = format!("/runs/{run}/frames?limit=1&from={from}");
                answer = client.get(&next).await;
            }
            assert_eq!(answer.status, 500, "{place}: {}", answer.text());
            assert_eq!(answer.json()["code"], "unreadable", "{place}");
            let health = client.get("/health").await;
            let state = &health.json()["ledger"]["state"];
            assert_eq!((health.status, state), (503, &json!("damaged")), "{place}");
            let late = client.post("/invoke/w", "{}").await;
            assert_eq!(late.json()["code"], "ledger_stopped", "{place}");
            engine.close().await.unwrap_err();
        }
    }
}

/// A run that a person ended has no frame that says so behind the end of its last step.
#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_run_without_its_last_frame_is_unreadable() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = silent.local_addr().unwrap();
    let step = format!("pipeline: [{{id: hook, webhook: {{url: 'http://{at}/', body: {{}}}}}}]\n");
    let kit = KitDir::new(&[("w", &step)]);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ledger.db");
    let engine = assemble::open(setup(&path, &kit)).await.unwrap();
    let client = Client::of(&engine.url);
    let accepted = client.post("/invoke/w", "{}").await.json();
    let run = accepted["run_id"].as_str().unwrap();
    let cancelled = client.post(&format!("/runs/{run}/cancel"), "{}").await;
    assert_eq!(cancelled.status, 200, "{}", cancelled.text());
    let envelope = client.get(&format!("/runs/{run}/envelope")).await;
    assert_eq!(envelope.json()["status"], "cancelled");
    let of = format!("stream = (SELECT id FROM streams WHERE name = 'run:{run}')");
    let last =
        "DELETE FROM frames WHERE STREAM AND seq = (SELECT max(seq) FROM frames WHERE STREAM)";
    forge(&path, &last.replace("STREAM", &of));
    let envelope = client.get(&format!("/runs/{run}/envelope")).await;
    assert_eq!(envelope.json()["code"], "unreadable", "{}", envelope.text());
    engine.close().await.unwrap_err();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_of_frames_that_cannot_be_read_ends_with_the_reason() {
    let kit = kit();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ledger.db");
    let engine = assemble::open(setup(&path, &kit)).await.unwrap();
    let client = Client::of(&engine.url);
    let envelope = client.run("w", json!({})).await;
    let run = envelope["run_id"].as_str().unwrap();
    let stream = format!("(SELECT id FROM streams WHERE name = 'run:{run}')");
    let script = format!("DELETE FROM frames WHERE seq = 1 AND stream = {stream}");
    forge(&path, &script);
    let mut events = client.events(run, None).await;
    let (name, told) = events.named().await.expect("an event");
    assert_eq!(name, "problem");
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(
        (&told["code"], &told["status"]),
        (&json!("unreadable"), &json!(500))
    );
    assert!(events.next().await.is_none() && !events.broken);
    assert_eq!(client.get("/health").await.status, 503);
    engine.close().await.unwrap_err();
}

/// The index that finds streams by their names says another name than the frames do.
#[tokio::test(flavor = "multi_thread")]
async fn frames_that_are_found_by_another_name_than_their_own_are_unreadable_by_both() {
    let kit = kit();
    let sound = Sound::new(&kit, &[json!({})]).await;
    let run = sound.envelopes[0].0.clone();
    let tool = rusqlite::Connection::open(sound.dir.path().join("ledger.db")).unwrap();
    let root: i64 = tool
        .query_row(
            "SELECT rootpage FROM sqlite_schema WHERE name = 'sqlite_autoindex_streams_1'",
            [],
            |row| row.get(0),
        )
        .unwrap();
    drop(tool);
    let root = usize::try_from(root).unwrap();
    let mut bytes = sound.bytes();
    let page = &mut bytes[(root - 1) * PAGE..root * PAGE];
    let mut names = page.windows(run.len());
    let at = names.position(|some| some == run.as_bytes()).unwrap();
    page[at + 20] = b'z';
    let other = String::from_utf8(page[at..at + run.len()].to_vec()).unwrap();
    let (_dir, path) = sound.changed(&bytes);
    let reading = reading::open(setup(&path, &kit)).await.unwrap();
    let client = Client::of(&reading.url);
    let list = client.get("/runs").await.json();
    for row in list["runs"].as_array().unwrap() {
        assert_eq!(row["status"], "unreadable", "{list}");
    }
    for name in [&run, &other] {
        for shown in SHOWN {
            let answer = client.get(&format!("/runs/{name}{shown}")).await;
            let told = (answer.status, answer.json()["code"].clone());
            assert_eq!(told, (500, json!("unreadable")), "{name}{shown}");
        }
    }
    reading.close().await;
}

#[tokio::test]
async fn an_engine_that_does_not_sign_is_not_well() {
    let key = [("KTSU_SIGNING_KEY", "no key at all")];
    let lab = Lab::new(&kit(), &key).await;
    let told = async {
        loop {
            let health = lab.client.get("/health").await;
            match health.json()["evidence"]["signing"] == "ok" {
                true => tokio::task::yield_now().await,
                false => return health,
            }
        }
    };
    let health = crate::support::guarded("that nothing is signed", told).await;
    assert_eq!(health.status, 503);
    assert_eq!(health.json()["status"], "error");
    assert_eq!(health.json()["ledger"], json!({"state": "ok"}));
    assert_eq!(lab.client.run("w", json!({})).await["status"], "complete");
    lab.close().await;
}
