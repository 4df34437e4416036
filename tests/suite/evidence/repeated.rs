//! What a recompute repeats of its run, as evidence: no result of it can be made up, not even by an
//! operator who makes the chain whole again.

use ktsu_evidence::check::{ClaimVerdict, EvidenceReport};
use ktsu_ledger::store::SqliteReader;
use serde_json::{Value, json};

use super::book::{Act, Book, rechained};
use super::forgeries::{claim, judged};
use crate::support::ledgers::Recorded;
use crate::support::scenarios::tools::all;

/// A run with two approved calls and a rejected one, and its recompute, which repeats them.
async fn recomputed() -> [Recorded; 2] {
    let folder = tempfile::tempdir().unwrap();
    let ledger = folder.path().join("ledger.db");
    let acting = all().into_iter().find(|one| one.name == "tool-two-gates");
    let (stage, run) = acting.unwrap().play(&ledger).await;
    let path = format!("/runs/{run}/recompute?wait=60");
    let verdict = stage.of("eva").post(&path, json!({}).to_string()).await;
    let verdict = verdict.json();
    assert_eq!(verdict["status"], "clean", "{verdict:#}");
    stage.lab.close().await;
    let reader = SqliteReader::open(&ledger).unwrap();
    let id = verdict["recompute_id"].as_str().unwrap();
    [&run, id].map(|name| Recorded::read(&reader, name))
}

fn outcome_of(told: &str, [run, recompute]: [Recorded; 2]) -> EvidenceReport {
    let book = Book::write(&[Act::Run(run), Act::Run(recompute), Act::Checkpoint]);
    let key = book.first_key();
    judged(told, &book.export_all(), &book.notes[0], Some(&key))
}

/// The frames of a recompute that repeat a result, and the one that has a result of its own.
fn places(recompute: &Recorded) -> (Vec<usize>, usize) {
    let data = |body: &str| serde_json::from_str::<Value>(body).unwrap()["data"].take();
    let records = recompute.records.iter().enumerate();
    let data: Vec<(usize, Value)> = records.map(|(at, one)| (at, data(&one.body))).collect();
    let repeats = |(at, data): &(usize, Value)| data["recorded"].is_object().then_some(*at);
    let live =
        |(_, data): &&(usize, Value)| data["called"].is_number() && data["content"].is_array();
    let own = data.iter().find(live).unwrap().0;
    (data.iter().filter_map(repeats).collect(), own)
}

/// What is changed: a frame of the recompute, or one of the run; and how.
type Edit<'a> = (usize, &'a dyn Fn(&str) -> String);

#[tokio::test]
async fn no_result_of_a_recompute_can_be_made_up() {
    let honest = recomputed().await;
    let outcome = outcome_of("honest", honest.clone());
    for name in ["chain", "causes", "tools", "approvals", "replay"] {
        assert_eq!(
            claim(&outcome, name),
            ClaimVerdict::Proven,
            "{name}: {outcome:?}"
        );
    }
    let mut claims = outcome.claims.iter();
    let definitions = claims.find(|one| one.claim == "definitions").unwrap();
    // What a recompute names is made for it alone.
    assert_eq!(definitions.reason, "1 definition matches its run");
    let (repeats, own) = places(&honest[1]);
    let [first, rejected, last] = repeats[..] else {
        panic!("{repeats:?}")
    };
    let replace = |from: &'static str, to: &'static str| {
        move |body: &str| {
            assert!(body.contains(from), "{from}: {body}");
            body.replacen(from, to, 1)
        }
    };
    let other = replace("drop 1 done", "drop 1 fine");
    let server = replace("\"server\":\"desk\"", "\"server\":\"book\"");
    let tool = replace("\"tool\":\"drop\"", "\"tool\":\"ask\"");
    let allowed = replace("\"not_sent\":\"rejected\",", "");
    let error = replace("\"is_error\":true,", "");
    let bare = |body: &str| {
        let from = body.find("\"recorded\":").unwrap();
        let to = from + body[from..].find("\"report\":").unwrap();
        format!("{}{}", &body[..from], &body[to..])
    };
    let recorded = |body: &str| {
        let from = body.find("\"recorded\":").unwrap();
        let to = from + body[from..].find("\"report\":").unwrap();
        body[from..to].to_owned()
    };
    let taken = recorded(&honest[1].records[first].body);
    let claimed = |body: &str| body.replace("\"report\":", &format!("{taken}\"report\":"));
    let swapped = |body: &str| {
        let own = recorded(body);
        let body = body.replace(&own, &taken);
        body.replace("drop 4 done", "drop 1 done")
    };
    let cases: [(&str, &[Edit<'_>]); 11] = [
        ("another content", &[(first, &other)]),
        ("what the first frame does not bring", &[(0, &other)]),
        (
            "another content, brought so",
            &[(0, &other), (first, &other)],
        ),
        (
            "another server, brought so",
            &[(0, &server), (first, &server)],
        ),
        ("another tool, brought so", &[(0, &tool), (first, &tool)]),
        ("a rejection made a result", &[(rejected, &allowed)]),
        ("an error made a result", &[(rejected, &error)]),
        ("a result of nowhere", &[(first, &bare)]),
        ("a rejection of nobody", &[(rejected, &bare)]),
        (
            "a result of its own that claims to be recorded",
            &[(own, &claimed)],
        ),
        ("the result of another call", &[(last, &swapped)]),
    ];
    for (told, edits) in cases {
        let [run, recompute] = honest.clone();
        let bent = rechained(&recompute, |place, body| {
            let edits = edits.iter().filter(|(at, _)| *at == place);
            edits.fold(body, |body, (_, edit)| edit(&body))
        });
        let outcome = outcome_of(told, [run, bent]);
        for whole in ["manifest", "chain", "inclusion", "signatures", "key"] {
            assert_eq!(
                claim(&outcome, whole),
                ClaimVerdict::Proven,
                "{told}: {whole}"
            );
        }
        let wanted = match told {
            "a rejection of nobody" => "approvals",
            _ => "tools",
        };
        assert_eq!(
            claim(&outcome, wanted),
            ClaimVerdict::Failed,
            "{told}: {outcome:?}"
        );
    }
}
