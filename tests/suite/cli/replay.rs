//! Recorded runs, decided again by the real binary.

use std::path::{Path, PathBuf};
use std::process::Command;

use ktsu_ledger::Hash;
use ktsu_ledger::store::SqliteStore;
use rusqlite::Connection;
use serde_json::Value;

use super::Desk;
use crate::golden::goldens;

/// A ledger that holds every golden run.
pub(super) fn golden_desk() -> Desk {
    let desk = Desk::new();
    let folder = desk.path().join(".ktsu");
    std::fs::create_dir_all(&folder).unwrap();
    let mut store = SqliteStore::open(&folder.join("ledger.db")).unwrap();
    for (_, golden) in goldens() {
        golden.put(&mut store);
    }
    desk
}

fn ledger(desk: &Desk) -> PathBuf {
    desk.path().join(".ktsu/ledger.db")
}

/// The id of a golden run.
pub(super) fn run_of(name: &str) -> String {
    let found = goldens().into_iter().find(|(golden, _)| golden == name);
    found.unwrap().1.stream.name().to_owned()
}

/// Opens a ledger as a forger would: nothing refuses a change.
fn forger(path: &Path) -> Connection {
    let tool = Connection::open(path).unwrap();
    let names = "SELECT name FROM sqlite_master WHERE type = 'trigger'";
    let names: Vec<String> = tool
        .prepare(names)
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    for name in names {
        tool.execute_batch(&format!("DROP TRIGGER {name}")).unwrap();
    }
    tool
}

/// Changes the frames of a run and makes its chain whole again.
pub(super) fn forge(desk: &Desk, run: &str, change: impl Fn(i64, String) -> Option<String>) {
    let tool = forger(&ledger(desk));
    let frames: Vec<(i64, i64, String)> = tool
        .prepare(
            "SELECT pos, seq, body FROM frames WHERE stream = \
             (SELECT id FROM streams WHERE name = ?1) ORDER BY seq",
        )
        .unwrap()
        .query_map([format!("run:{run}")], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        })
        .unwrap()
        .map(Result::unwrap)
        .collect();
    let mut prev = Hash::ZERO;
    for (pos, seq, body) in frames {
        let Some(body) = change(seq, body) else {
            tool.execute("DELETE FROM frames WHERE pos = ?1", [pos])
                .unwrap();
            continue;
        };
        let (open, _) = body.rsplit_once(",\"prev\":\"").unwrap();
        let body = format!("{open},\"prev\":\"{prev}\"}}");
        prev = Hash::of(body.as_bytes());
        tool.execute(
            "UPDATE frames SET body = ?1, hash = ?2 WHERE pos = ?3",
            (body, prev.as_bytes().as_slice(), pos),
        )
        .unwrap();
    }
}

#[test]
fn every_golden_run_is_decided_again_byte_for_byte() {
    let desk = golden_desk();
    let told = desk.ktsu(&["replay", "--all", "--strict", "--json"]);
    let told = told.is(0).json();
    assert_eq!(told["ok"], true);
    let runs = told["runs"].as_array().unwrap();
    assert_eq!(runs.len(), goldens().len());
    for (_, golden) in goldens() {
        let id = golden.stream.name();
        let run = runs.iter().find(|run| run["run_id"] == id).unwrap();
        assert_eq!(run["verdict"], "ok", "{run}");
        assert_eq!(run["head"], golden.head().to_string(), "{run}");
        assert_eq!(run["frames"], golden.records.len(), "{run}");
    }
    let one = run_of("v1-transforms");
    desk.ktsu(&["replay", &one, "--strict"])
        .is(0)
        .says("ok run_")
        .says(
            runs.iter()
                .find(|run| run["run_id"] == one.as_str())
                .unwrap()["head"]
                .as_str()
                .unwrap(),
        );
}

#[test]
fn a_replay_without_more_folds_the_run_and_shows_its_envelope() {
    let desk = golden_desk();
    let one = run_of("v1-transforms");
    let told = desk.ktsu(&["replay", &one, "--json"]).is(0).json();
    let got = desk.ktsu(&["runs", "get", &one, "--json"]).is(0).json();
    assert_eq!(told["envelope"], got);
    assert_eq!(told["replay"]["head"].as_str().unwrap().len(), 64);
    desk.ktsu(&["replay", &one])
        .is(0)
        .says("folded:")
        .says("head ");
}

#[test]
fn the_first_divergence_says_where_and_which_side_is_history() {
    let desk = golden_desk();
    let run = run_of("v1-transforms");
    let output = |body: &str| {
        let body: Value = serde_json::from_str(body).unwrap();
        body["type"] == "step.completed"
    };
    forge(&desk, &run, |_, body| {
        let forged = match output(&body) {
            true => body.replacen("\"result\":", "\"forged\":true,\"result\":", 1),
            false => body,
        };
        Some(forged)
    });
    let said = desk.ktsu(&["replay", &run, "--strict"]);
    said.is(1)
        .says("diverged run_")
        .says("data at /data/output/forged differs")
        .says("history has true, the recorded inputs lead to nothing");
    let told = desk
        .ktsu(&["replay", &run, "--strict", "--json"])
        .is(1)
        .json();
    let divergence = &told["runs"][0]["divergence"];
    assert_eq!(divergence["kind"], "data");
    assert_eq!(divergence["field"], "/data/output/forged");
    assert_eq!(divergence["history"], true);
    assert!(divergence.get("decided").is_none());
    let all = desk.ktsu(&["replay", "--all", "--strict"]);
    let others = goldens().len() - 1;
    all.is(1)
        .says(&format!("{others} of {} runs ok", others + 1));
}

#[test]
fn a_frame_more_or_less_is_a_divergence_in_length() {
    let desk = golden_desk();
    let run = run_of("v1-transforms");
    forge(&desk, &run, |_, body| {
        (!body.contains("\"type\":\"run.completed\"")).then_some(body)
    });
    let told = desk
        .ktsu(&["replay", &run, "--strict", "--json"])
        .is(1)
        .json();
    let divergence = &told["runs"][0]["divergence"];
    assert_eq!(divergence["kind"], "length");
    assert_eq!(divergence["decided"], "run.completed");
    assert!(divergence.get("history").is_none());
}

#[test]
fn a_run_of_other_rules_is_not_judged() {
    let desk = golden_desk();
    let run = run_of("v1-transforms");
    forge(&desk, &run, |_, body| {
        let next = format!("\"rules\":{}", ktsu_workflow::rules::RULES + 1);
        Some(body.replacen("\"rules\":1", &next, 1))
    });
    desk.ktsu(&["replay", &run, "--strict"])
        .is(2)
        .says(&format!(
            "decision rules {}",
            ktsu_workflow::rules::RULES + 1
        ))
        .says(&format!("has rules 1 to {}", ktsu_workflow::rules::RULES));
    desk.ktsu(&["replay", &run]).is(0);
}

#[test]
fn what_is_missing_is_an_error_and_never_asked_for() {
    let desk = golden_desk();
    let run = run_of("v1-agent-plain");
    forge(&desk, &run, |seq, body| (seq > 0).then_some(body));
    desk.ktsu(&["replay", &run, "--strict"]).is(2);
    let tool = forger(&ledger(&desk));
    tool.execute("DELETE FROM blobs", []).unwrap();
    let other = run_of("v1-transforms");
    desk.ktsu(&["replay", &other, "--strict"])
        .is(2)
        .says("could not run")
        .says("is missing");
    desk.ktsu(&["replay", "run_none", "--strict"])
        .is(2)
        .warns("there is no run run_none");
    desk.ktsu(&["replay"]).is(2).warns("--all");
}

#[test]
fn a_stream_without_a_root_is_not_judged() {
    let desk = golden_desk();
    let run = run_of("v1-transforms");
    // The numbers move up, so that only the beginning is missing.
    let tool = forger(&ledger(&desk));
    let stream: i64 = tool
        .query_row(
            "SELECT id FROM streams WHERE name = ?1",
            [format!("run:{run}")],
            |row| row.get(0),
        )
        .unwrap();
    tool.execute("DELETE FROM frames WHERE stream = ?1 AND seq = 0", [stream])
        .unwrap();
    tool.execute(
        "UPDATE frames SET seq = seq - 1 WHERE stream = ?1",
        [stream],
    )
    .unwrap();
    drop(tool);
    forge(&desk, &run, |seq, body| {
        Some(body.replacen(
            &format!("\"seq\":{}", seq + 1),
            &format!("\"seq\":{seq}"),
            1,
        ))
    });
    for more in [&[][..], &["--strict"]] {
        let said = desk.ktsu(&[&["replay", run.as_str()], more].concat());
        said.is(2);
        let words = format!("{}{}", said.out, said.err);
        assert!(words.contains("no root"), "{said:#?}");
    }
}

#[test]
fn no_replay_opens_a_socket() {
    let desk = golden_desk();
    for arguments in [&["replay", "--all", "--strict"][..], &["replay", "--all"]] {
        opens_no_socket(&desk, arguments);
    }
}

/// A replay that ends well, with every call to the network traced.
pub(super) fn opens_no_socket(desk: &Desk, arguments: &[&str]) {
    let calls = desk.path().join("calls");
    let mut strace = Command::new("strace");
    strace
        .args(["-f", "-e", "trace=network", "-o"])
        .arg(&calls)
        .arg(env!("CARGO_BIN_EXE_ktsu"))
        .args(arguments)
        .current_dir(desk.path());
    match strace.output() {
        Ok(done) if done.status.success() => {}
        Ok(done) if !calls.exists() => {
            let why = String::from_utf8_lossy(&done.stderr).into_owned();
            crate::support::not_tested(&format!("that a replay opens no socket; strace: {why}"));
            return;
        }
        Ok(done) => panic!("{done:?}"),
        Err(error) => {
            crate::support::not_tested(&format!("that a replay opens no socket; strace: {error}"));
            return;
        }
    }
    let trace = std::fs::read_to_string(&calls).unwrap();
    assert!(trace.contains("exited with 0"), "{trace}");
    let opened: Vec<&str> = trace.lines().filter(|line| line.contains('(')).collect();
    assert_eq!(opened, [] as [&str; 0], "{arguments:?}");
    std::fs::remove_file(&calls).unwrap();
}
