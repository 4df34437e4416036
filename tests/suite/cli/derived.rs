//! Rows are derived: whatever becomes of them, and of single frames, nothing stops and nothing lies.

use std::process::Stdio;
use std::time::Duration;

use rusqlite::Connection;

use super::{Desk, kit};

/// A look at the ledger past its owner.
fn tool(desk: &Desk) -> Connection {
    Connection::open(desk.path().join(".ktsu/ledger.db")).unwrap()
}

/// Runs some SQL with the triggers out of the way, and puts them back.
fn forge(desk: &Desk, script: &str) {
    let tool = tool(desk);
    let mut statement = tool
        .prepare("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'")
        .unwrap();
    let triggers: Vec<(String, String)> = statement
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    drop(statement);
    for (name, _) in &triggers {
        tool.execute_batch(&format!("DROP TRIGGER {name}")).unwrap();
    }
    tool.execute_batch(script).unwrap();
    for (_, text) in &triggers {
        tool.execute_batch(text).unwrap();
    }
}

fn number(desk: &Desk, question: &str) -> u64 {
    let number: i64 = tool(desk)
        .query_row(question, [], |row| row.get(0))
        .unwrap();
    u64::try_from(number).unwrap()
}

fn rows(desk: &Desk) -> u64 {
    number(desk, "SELECT count(*) FROM index_rows")
}

/// The frames of a run, as SQL.
fn of(run: &str) -> String {
    format!("stream = (SELECT id FROM streams WHERE name = 'run:{run}')")
}

#[test]
fn without_rows_every_reading_command_answers_from_the_frames() {
    let desk = Desk::new();
    let (one, two) = (desk.hello(), desk.hello());
    let before = desk.ktsu(&["runs"]);
    forge(&desk, "DELETE FROM index_rows");
    assert_eq!(desk.ktsu(&["runs"]).is(0).out, before.out);
    let end = &one[one.len() - 12..];
    desk.ktsu(&["runs", "get", end]).is(0).says(&one);
    desk.ktsu(&["trace", end]).is(0).says("greet");
    desk.ktsu(&["frames", end]).is(0).says("run.completed");
    desk.ktsu(&["verify"])
        .is(0)
        .says("2 runs that are not in it");
    desk.ktsu(&["verify", end]).is(0).says(&one);
    assert_eq!(rows(&desk), 0, "whoever looks does not write");
    // One row of two is no better.
    desk.hello();
    forge(
        &desk,
        &format!("DELETE FROM index_rows WHERE stream = 'run:{two}'"),
    );
    desk.ktsu(&["runs"]).is(0).says(&two);
    desk.hello();
    assert_eq!(rows(&desk), 4, "the next start makes them again");
    desk.ktsu(&["verify"]).is(0);
}

#[test]
fn rows_that_someone_changed_are_repeated() {
    for script in [
        "UPDATE index_rows SET status = 'running', open = 1",
        "UPDATE index_rows SET digest = zeroblob(32)",
        "UPDATE index_rows SET stream = 'run:else'",
        "UPDATE index_rows SET row = 'x', stream = 'y'",
    ] {
        let desk = Desk::new();
        let run = desk.hello();
        let before = desk.ktsu(&["runs"]);
        forge(&desk, script);
        if !script.contains("stream") {
            assert_eq!(desk.ktsu(&["runs"]).is(0).out, before.out, "{script}");
        }
        desk.ktsu(&["verify"]).is(1);
        desk.hello();
        desk.ktsu(&["runs"])
            .is(0)
            .says(&format!("{run}  hello     complete"));
        desk.ktsu(&["verify"]).is(0);
    }
}

#[test]
fn a_damaged_run_is_listed_as_unreadable_and_its_ledger_is_not_written_on() {
    let desk = Desk::new();
    let (one, two) = (desk.hello(), desk.hello());
    let change = |from: &str, to: &str| {
        let body = format!("replace(body, '{from}', '{to}')");
        forge(
            &desk,
            &format!(
                "UPDATE frames SET body = {body} WHERE seq = 1 AND {}",
                of(&one)
            ),
        );
    };
    change("\"type\":", "\"tpye\":");
    // Whether or not the list of runs still says something else.
    for script in ["", "DELETE FROM index_rows"] {
        forge(&desk, script);
        let before = (rows(&desk), number(&desk, "SELECT epoch FROM meta"));
        desk.ktsu(&["runs"])
            .is(0)
            .says(&format!("{one}  hello     unreadable"))
            .says(&format!("{two}  hello     complete"));
        for arguments in [
            &["run", &kit("hello")][..],
            &["start", "--port", "0", "--kit", &kit("hello")],
        ] {
            desk.ktsu(arguments)
                .is(2)
                .warns("the ledger is damaged")
                .warns(&format!("run:{one}#1"))
                .warns("ktsu start --read-only")
                .warns("ktsu restore");
        }
        let after = (rows(&desk), number(&desk, "SELECT epoch FROM meta"));
        assert_eq!(after, before, "nothing was written");
    }
    desk.ktsu(&["runs", "get", &two]).is(0);
    desk.ktsu(&["runs", "get", &one]).is(2).warns("ktsu verify");
    desk.ktsu(&["verify"]).is(1).says(&format!("run:{one}#1: "));
    // Once somebody has put the frame back, the next start reads it.
    forge(
        &desk,
        &format!(
            "UPDATE frames SET body = replace(body, '\"tpye\":', '\"type\":') WHERE {}",
            of(&one)
        ),
    );
    desk.hello();
    desk.ktsu(&["runs"])
        .is(0)
        .says(&format!("{one}  hello     complete"));
    desk.ktsu(&["verify"]).is(0);
}

#[test]
fn a_tail_cut_off_before_later_runs_is_named() {
    let desk = Desk::new();
    let (one, two) = (desk.hello(), desk.hello());
    let last = number(
        &desk,
        &format!("SELECT max(seq) FROM frames WHERE {}", of(&one)),
    );
    let first = last - 1;
    forge(
        &desk,
        &format!("DELETE FROM frames WHERE seq >= {first} AND {}", of(&one)),
    );
    desk.ktsu(&["verify"])
        .is(1)
        .says("2 frames are gone; positions ")
        .says(&format!("between run:{one}#{} and ", first - 1))
        .says(&format!(
            "run:{one}#{first}: frames are missing from here on"
        ));
    desk.ktsu(&["runs"])
        .is(0)
        .says(&format!("{one}  hello     unreadable"))
        .says(&format!("{two}  hello     complete"));
    desk.ktsu(&["runs", "get", &one])
        .is(2)
        .warns("say less than the list of runs does");
    let json = desk.ktsu(&["verify", "--json"]).is(1).json();
    let problems = json["report"]["problems"].as_array().unwrap();
    let named = |problem: &&serde_json::Value| problem["stream"] == format!("run:{one}");
    let named: Vec<_> = problems.iter().filter(named).collect();
    assert_eq!((named.len(), &named[0]["seq"]), (1, &first.into()));
    // Whatever else is wrong, the cut is told.
    forge(
        &desk,
        &format!(
            "UPDATE frames SET body = '{{}}' WHERE seq = 0 AND {}",
            of(&two)
        ),
    );
    desk.ktsu(&["verify"])
        .is(1)
        .says(&format!("run:{two}#0: "))
        .says(&format!(
            "run:{one}#{first}: frames are missing from here on"
        ));
    // All of it.
    forge(&desk, &format!("DELETE FROM frames WHERE {}", of(&one)));
    desk.ktsu(&["verify"])
        .is(1)
        .says(&format!("run:{one}#0: all its frames are missing"));
}

#[test]
fn frames_with_a_gap_are_neither_shown_nor_exported() {
    for gone in ["0", "1", "(SELECT max(seq) FROM frames WHERE STREAM)"] {
        let desk = Desk::new();
        let run = desk.hello();
        let script = format!("DELETE FROM frames WHERE STREAM AND seq = {gone}");
        forge(&desk, &script.replace("STREAM", &of(&run)));
        for command in [
            &["frames", &run][..],
            &["trace", &run],
            &["export", &run, "-o", "run.jsonl"],
            &["export", &run, "--format", "cloudevents"],
            &["evidence", "export", &run, "-o", "run.tar"],
        ] {
            let said = desk.ktsu(command);
            assert_ne!(said.code, 0, "{gone} {command:?}: {}", said.out);
        }
        desk.ktsu(&["export", "--all"]).is(2).warns("missing");
        assert!(!desk.path().join("run.jsonl").exists());
    }
}

#[test]
fn someone_holding_the_write_lock_for_a_while_stops_nothing() {
    let desk = Desk::new();
    let owner = desk.start(&["--kit", &kit("hello")]);
    let first = desk.ktsu(&["invoke", "hello", "--json"]);
    first.is(0);
    let tool = tool(&desk);
    tool.execute_batch("BEGIN IMMEDIATE").unwrap();
    let waiting = desk
        .command(&["invoke", "hello", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_secs(3));
    desk.ktsu(&["runs"]).is(0);
    desk.ktsu(&["verify"]).is(0);
    tool.execute_batch("ROLLBACK").unwrap();
    let waited = waiting.wait_with_output().unwrap();
    assert!(waited.status.success(), "{waited:?}");
    let (code, err) = owner.stop("TERM");
    assert_eq!(code, 0, "{err}");
}
