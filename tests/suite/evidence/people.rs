//! What agents did, and on whose word, as evidence: from an operator with every key at hand who
//! changes what was asked, said or answered, and makes the chain whole again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ktsu_evidence::check::{ClaimVerdict, EvidenceReport};
use ktsu_evidence::tar;
use ktsu_ledger::Timestamp;

use super::book::{Act, Book, rechained};
use super::forgeries::{claim, judged};
use super::mutants::arranged;
use crate::golden::goldens;
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
pub(crate) fn outcome_of(told: &str, run: Recorded) -> EvidenceReport {
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
                ClaimVerdict::Proven,
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
        assert_eq!(
            claim(&outcome, "approvals"),
            ClaimVerdict::Proven,
            "{outcome:?}"
        );
    }
}

#[tokio::test]
async fn a_wait_moves_with_a_clock_that_jumps_forward_and_both_verifiers_say_so() {
    for name in ["tool-late", "tool-soft"] {
        let acting = all().into_iter().find(|acting| acting.name == name);
        // Each of the first looks at the clock finds it an hour ahead of the look before.
        let looks = AtomicU64::new(0);
        let hours = move || looks.fetch_add(1, Ordering::SeqCst).min(40) * 3_600_000_000;
        let clock = Arc::new(move || Timestamp::from_micros(MOMENT + hours()));
        let run = acting.unwrap().by(clock).record().await;
        let kinds = run.records.iter().map(|one| one.decode_bare().unwrap());
        let kinds: Vec<String> = kinds.map(|one| one.event.kind().to_owned()).collect();
        assert!(kinds.iter().any(|kind| kind == "clock.jumped"), "{kinds:?}");
        let outcome = outcome_of(name, run);
        for name_of in ["approvals", "replay"] {
            let verdict = claim(&outcome, name_of);
            assert_eq!(verdict, ClaimVerdict::Proven, "{name}: {outcome:?}");
        }
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
            5,
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
            "a decision when the wait was over",
            "late",
            vec![
                (8, "approval.expired", "approval.decided"),
                (
                    8,
                    "\"actor\":\"orchestrator\"",
                    "\"actor\":\"principal:ann\"",
                ),
                (
                    8,
                    "\"request\":7",
                    "\"by\":{\"auth\":\"token\",\"id\":\"ann\"},\"decision\":\"rejected\",\"digest\":\
                     \"d88775a5e63750fdc32c2ffeb7d3b456e0ca8cb74a2b71fad447eb67e05d7d30\",\"request\":7",
                ),
            ],
            "approvals",
            8,
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
            "another tool that it may call",
            "calls",
            vec![
                (7, "\"server\":\"desk\"", "\"server\":\"book\""),
                (7, "\"tool\":\"read\"", "\"tool\":\"write\""),
            ],
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
            19,
        ),
        (
            "a doubt of another call",
            "doubt-ends",
            who(12, "\"called\":8", "\"called\":7"),
            "tools",
            12,
        ),
        (
            "a doubt that nobody settled",
            "doubt-again",
            who(11, "\"approved\"", "\"happened\""),
            "approvals",
            13,
        ),
    ];
    let mut others = Vec::new();
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
            assert_eq!(
                claim(&outcome, whole),
                ClaimVerdict::Proven,
                "{told}: {whole}"
            );
        }
        let found = outcome.claims.iter().find(|one| one.claim == expected);
        let found = found.unwrap();
        assert_eq!(found.verdict, ClaimVerdict::Failed, "{told}: {outcome:?}");
        if found.frame != Some(frame) {
            others.push(format!("{told}: {:?}: {}", found.frame, found.reason));
        }
    }
    assert_eq!(others, Vec::<String>::new());
}

#[test]
fn a_result_or_a_decision_that_is_taken_out_is_missed() {
    let mut others = Vec::new();
    for (name, gone, expected, frame) in [
        ("calls", 12, "tools", 12),
        ("calls", 19, "tools", 19),
        ("again", 13, "tools", 14),
        ("doubt-ends", 12, "tools", 8),
        ("approved", 10, "approvals", 11),
        ("quorum", 8, "approvals", 10),
        ("rejected", 8, "approvals", 8),
        ("late", 8, "approvals", 8),
        ("recovers", 8, "approvals", 9),
    ] {
        let told = format!("{name} without {gone}");
        let golden = golden(name);
        let kept = (0..golden.records.len()).filter(|at| *at != gone);
        let run = arranged(&golden, &kept.collect::<Vec<_>>());
        let outcome = outcome_of(&told, run.clone());
        let found = outcome.claims.iter().find(|one| one.claim == expected);
        let found = found.unwrap();
        assert_eq!(found.verdict, ClaimVerdict::Failed, "{told}: {outcome:?}");
        let frame = Some(format!("{}#{frame}", run.stream));
        if found.frame != frame {
            others.push(format!("{told}: {:?}: {}", found.frame, found.reason));
        }
    }
    assert_eq!(others, Vec::<String>::new());
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
