//! What agents did, and on whose word, as evidence: from an operator with every key at hand who
//! changes what was asked, said or answered, and makes the chain whole again.

use ktsu::evidence::check::{Outcome, Verdict};
use ktsu::evidence::tar;
use ktsu_ledger::{Record, Timestamp};
use serde_json::{Value, json};

use super::book::{Act, Book, rechained};
use super::forgeries::{claim, judged};
use crate::golden::{goldens, written};
use crate::support::ledgers::Recorded;
use crate::support::scenarios::MOMENT;
use crate::support::scenarios::tools::all;
use crate::support::stopped;

fn golden(name: &str) -> Recorded {
    let name = format!("v1-tool-{name}");
    let found = goldens().into_iter().find(|(golden, _)| *golden == name);
    found.unwrap().1
}

/// What both verifiers say of a run that is signed as it stands.
fn outcome_of(told: &str, run: Recorded) -> Outcome {
    let book = Book::write(&[Act::Run(run), Act::Checkpoint]);
    let key = book.first_key();
    judged(told, &book.export_all(), &book.notes[0], Some(&key))
}

#[test]
fn honest_runs_prove_their_calls_and_decisions() {
    for (name, run) in goldens() {
        if !name.starts_with("v1-tool-") {
            continue;
        }
        let outcome = outcome_of(&name, run);
        for name_of in ["tools", "approvals", "replay"] {
            assert_eq!(
                claim(&outcome, name_of),
                Verdict::Proven,
                "{name}: {outcome:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_wait_ends_when_its_time_has_come_whatever_the_clock_says() {
    for name in ["tool-late", "tool-soft"] {
        let acting = all().into_iter().find(|acting| acting.name == name);
        let clock = stopped(Timestamp::from_micros(MOMENT));
        let run = acting.unwrap().by(clock).record().await;
        let outcome = outcome_of(name, run);
        assert_eq!(claim(&outcome, "approvals"), Verdict::Proven, "{outcome:?}");
    }
}

/// One text in one frame, changed.
type Change = (usize, &'static str, &'static str);

#[test]
fn what_people_said_and_tools_gave_cannot_be_bent() {
    let who =
        |at: usize, from: &'static str, to: &'static str| -> Vec<Change> { vec![(at, from, to)] };
    let cases: Vec<(&str, &str, Vec<Change>, &str, u64)> = vec![
        (
            "an approval made a rejection",
            "approved",
            who(10, "\"approved\"", "\"rejected\""),
            "approvals",
            12,
        ),
        (
            "a rejection made an approval",
            "rejected",
            who(8, "\"rejected\"", "\"approved\""),
            "approvals",
            9,
        ),
        (
            "a rejection made an approval where the agent goes on",
            "recovers",
            who(8, "\"rejected\"", "\"approved\""),
            "approvals",
            10,
        ),
        (
            "other arguments",
            "approved",
            who(5, "{\"n\":1}", "{\"n\":7}"),
            "tools",
            12,
        ),
        (
            "a decision on other arguments",
            "approved",
            who(10, "\"digest\":\"", "\"digest\":\"0"),
            "approvals",
            10,
        ),
        (
            "a decision of another question",
            "approved",
            who(10, "\"request\":9", "\"request\":8"),
            "approvals",
            10,
        ),
        (
            "one person twice",
            "quorum",
            vec![
                (9, "principal:bob", "principal:ann"),
                (9, "\"id\":\"bob\"", "\"id\":\"ann\""),
            ],
            "approvals",
            9,
        ),
        (
            "somebody else's name",
            "quorum",
            who(9, "\"id\":\"bob\"", "\"id\":\"eva\""),
            "approvals",
            9,
        ),
        (
            "whoever started the run",
            "quorum",
            vec![
                (9, "principal:bob", "principal:pia"),
                (9, "\"id\":\"bob\"", "\"id\":\"pia\""),
            ],
            "approvals",
            9,
        ),
        (
            "one person where two are needed",
            "quorum",
            who(7, "\"quorum\":2", "\"quorum\":1"),
            "approvals",
            7,
        ),
        (
            "a call without its approval",
            "approved",
            who(12, "\"approval\":9,", ""),
            "approvals",
            12,
        ),
        (
            "an approval of another call",
            "two-gates",
            who(23, "\"approval\":20", "\"approval\":9"),
            "approvals",
            23,
        ),
        (
            "a tool that the definition does not permit",
            "calls",
            who(7, "\"tool\":\"read\"", "\"tool\":\"shut\""),
            "tools",
            7,
        ),
        (
            "a result of another call",
            "calls",
            who(19, "\"called\":18", "\"called\":7"),
            "tools",
            19,
        ),
        (
            "a result made a refusal",
            "calls",
            vec![
                (19, "\"called\":18,", ""),
                (
                    19,
                    "\"report\":",
                    "\"not_sent\":\"unknown_tool\",\"report\":",
                ),
            ],
            "tools",
            18,
        ),
        (
            "a doubt of another call",
            "doubt-ends",
            who(12, "\"called\":8", "\"called\":7"),
            "tools",
            8,
        ),
        (
            "a doubt that nobody settled",
            "doubt-again",
            who(11, "\"approved\"", "\"happened\""),
            "approvals",
            13,
        ),
    ];
    for (told, name, changes, expected, frame) in cases {
        let run = golden(name);
        let changed = rechained(&run, |place, body| {
            let mut changed = body;
            for (at, from, to) in &changes {
                if *at == place {
                    assert!(changed.contains(from), "{told}: {changed}");
                    changed = changed.replacen(from, to, 1);
                }
            }
            changed
        });
        let frame = format!("{}#{frame}", run.stream);
        let outcome = outcome_of(told, changed);
        for whole in ["manifest", "chain", "inclusion", "signatures", "key"] {
            assert_eq!(claim(&outcome, whole), Verdict::Proven, "{told}: {whole}");
        }
        let found = outcome.claims.iter().find(|one| one.claim == expected);
        let found = found.unwrap();
        assert_eq!(found.verdict, Verdict::Failed, "{told}: {outcome:?}");
        assert_eq!(found.frame, Some(frame), "{told}: {}", found.reason);
    }
}

/// The run without a frame, every number behind it moved up.
fn without(run: &Recorded, gone: u64) -> Recorded {
    // A cause that is gone is the frame before it.
    fn moved(value: &mut Value, names: Option<u64>, gone: u64) {
        match value {
            Value::Object(members) => members.iter_mut().for_each(|(name, member)| {
                let from = match name.as_str() {
                    "cause" => Some(gone),
                    "again" | "approval" | "base" | "called" | "frame" | "request" | "response"
                    | "seq" => Some(gone + 1),
                    _ => None,
                };
                moved(member, from, gone);
            }),
            Value::Array(items) => items.iter_mut().for_each(|item| moved(item, names, gone)),
            Value::Number(number) => {
                let seq = number
                    .as_u64()
                    .filter(|seq| names.is_some_and(|from| *seq >= from));
                if let Some(seq) = seq {
                    *value = json!(seq - 1);
                }
            }
            _ => {}
        }
    }
    let kept = run.records.iter().filter(|record| record.seq != gone);
    let records = kept.map(|record| -> Record {
        let mut body: Value = serde_json::from_str(&record.body).unwrap();
        moved(&mut body, None, gone);
        written(body["seq"].as_u64().unwrap(), &body)
    });
    let mut run = run.clone();
    run.records = records.collect();
    rechained(&run, |_, body| body)
}

#[test]
fn a_result_or_a_decision_that_is_taken_out_is_missed() {
    for (name, gone, expected, frame) in [
        ("calls", 12, "tools", 9),
        ("calls", 19, "tools", 18),
        ("again", 13, "tools", 11),
        ("doubt-ends", 12, "tools", 8),
        ("approved", 10, "approvals", 11),
        ("quorum", 8, "approvals", 10),
        ("rejected", 8, "approvals", 8),
        ("late", 8, "approvals", 8),
        ("recovers", 8, "approvals", 9),
    ] {
        let told = format!("{name} without {gone}");
        let run = without(&golden(name), gone);
        let outcome = outcome_of(&told, run.clone());
        let found = outcome.claims.iter().find(|one| one.claim == expected);
        let found = found.unwrap();
        assert_eq!(found.verdict, Verdict::Failed, "{told}: {outcome:?}");
        let frame = Some(format!("{}#{frame}", run.stream));
        assert_eq!(found.frame, frame, "{told}: {}", found.reason);
    }
}

fn approvals_of(run: Recorded) -> String {
    let book = Book::write(&[Act::Run(run), Act::Checkpoint]);
    let files = tar::read(&book.export_all()).unwrap();
    String::from_utf8(files["derived/approvals.csv"].clone()).unwrap()
}

#[test]
fn tables_say_who_approved_what_and_what_came_of_it() {
    let approvals = approvals_of(golden("quorum"));
    let rows: Vec<Vec<&str>> = approvals
        .lines()
        .map(|line| line.split(',').collect())
        .collect();
    assert_eq!(rows.len(), 3, "{approvals}");
    assert!(
        rows.iter().all(|row| row.len() == rows[0].len()),
        "{approvals}"
    );
    let at = |row: usize, name: &str| {
        let column = rows[0].iter().position(|one| *one == name).unwrap();
        rows[row][column]
    };
    for (row, by, frame) in [(1, "ann", "8"), (2, "bob", "9")] {
        let told = [
            "by",
            "decided",
            "proposer",
            "independent",
            "executed",
            "status",
            "auth",
        ];
        let told = told.map(|name| at(row, name));
        assert_eq!(told, [by, frame, "pia", "true", "11", "approved", "token"]);
        assert_eq!(at(row, "digest").len(), 64);
    }
    assert_eq!((at(1, "scope"), at(2, "scope")), ("", ""));
    // What a child asks is told apart from what another one asks under the same name.
    let child = rechained(&golden("quorum"), |_, text| {
        text.replace("\"scope\":\"\"", "\"scope\":\"call\"")
    });
    let table = approvals_of(child);
    let mut rows = table.lines().skip(1);
    assert!(rows.all(|row| row.ends_with(",call")), "{table}");
    // A call in doubt that was sent again says which frame sent it.
    let table = approvals_of(golden("doubt-again"));
    assert!(table.contains(",approved,13,11,approved,"), "{table}");
    let book = Book::write(&[Act::Run(golden("calls")), Act::Checkpoint]);
    let files = tar::read(&book.export_all()).unwrap();
    let tools = String::from_utf8(files["derived/tools.csv"].clone()).unwrap();
    let outcomes: Vec<&str> = tools
        .lines()
        .skip(1)
        .map(|line| line.split(',').nth(12).unwrap())
        .collect();
    assert_eq!(outcomes, ["result", "result", "error", "result"], "{tools}");
}
