//! What runs were locked to, as evidence: a lock proves the definition it names and no other, and
//! both verifiers say so.

use ktsu_evidence::check::ClaimVerdict;
use ktsu_ledger::store::SqliteReader;
use ktsu_ledger::{Blob, CanonicalJson, Hash};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::book::{Act, Book, rechained, repacked};
use super::forgeries::{claim, judged};
use crate::locked::freeze;
use crate::support::ledgers::Recorded;
use crate::support::{KitDir, Lab};

const ONE: &str = "pipeline: [{id: t, transform: {inputs: [params], ops: []}}]\n";
const OTHER: &str = "pipeline: [{id: u, transform: {inputs: [params], ops: []}}]\n";

/// Runs of two workflows of a kit, locked if it is to be.
async fn recorded(locked: bool, text: &str) -> [Recorded; 2] {
    let kit = KitDir::new(&[("one", text), ("other", OTHER)]);
    if locked {
        freeze(kit.dir.path());
    }
    let desk = tempfile::tempdir().unwrap();
    let ledger = desk.path().join("ledger.db");
    let lab = Lab::on_file(&ledger, &kit, &[]).await;
    let mut runs = Vec::new();
    for name in ["one", "other"] {
        runs.push(lab.client.run(name, json!({})).await["run_id"].clone());
    }
    lab.close().await;
    let reader = SqliteReader::open(&ledger).unwrap();
    let read = |run: &Value| Recorded::read(&reader, run.as_str().unwrap());
    [read(&runs[0]), read(&runs[1])]
}

/// What `run.created` keeps apart in a place: the hash, and the text.
fn apart(run: &Recorded, path: &str) -> (Hash, String) {
    let ext = run.records[0].decode_bare().unwrap().ext;
    let hash = ext.iter().find(|one| one.path == path).unwrap().hash;
    let blob = run.blobs.iter().find(|blob| blob.hash == hash).unwrap();
    (hash, blob.text.to_string())
}

/// The run with another text in a place, hashed and chained as if it had always been there.
fn with(run: &Recorded, path: &str, text: &str) -> Recorded {
    let (old, before) = apart(run, path);
    let new = Hash::of(text.as_bytes());
    let mut run = rechained(run, |place, body| match place {
        0 => body.replace(
            &format!(
                r#"{{"bytes":{},"hash":"{old}","path":"{path}"}}"#,
                before.len()
            ),
            &format!(
                r#"{{"bytes":{},"hash":"{new}","path":"{path}"}}"#,
                text.len()
            ),
        ),
        _ => body,
    });
    let text = CanonicalJson::from(RawValue::from_string(text.to_owned()).unwrap());
    run.blobs.retain(|blob| blob.hash != old);
    run.blobs.push(Blob { hash: new, text });
    run
}

/// The verdict of both verifiers about the lock, from an operator with every key at hand.
fn lock_of(told: &str, runs: &[&Recorded]) -> ClaimVerdict {
    let mut acts: Vec<Act> = runs.iter().map(|run| Act::Run((*run).clone())).collect();
    acts.push(Act::Checkpoint);
    let book = Book::write(&acts);
    let key = book.first_key();
    let outcome = judged(told, &book.export_all(), &book.notes[0], Some(&key));
    // Nobody else notices: that is what the claim is for.
    for name in [
        "manifest",
        "chain",
        "blobs",
        "inclusion",
        "signatures",
        "key",
    ] {
        assert_eq!(
            claim(&outcome, name),
            ClaimVerdict::Proven,
            "{told}: {name}"
        );
    }
    claim(&outcome, "lock")
}

#[tokio::test]
async fn a_lock_proves_the_definition_it_names_and_no_other() {
    let [one, other] = recorded(true, ONE).await;
    let [free, _] = recorded(false, ONE).await;
    let [later, _] = recorded(true, "pipeline: []\n").await;
    assert_eq!(
        lock_of("both locked", &[&one, &other]),
        ClaimVerdict::Proven
    );
    assert_eq!(
        lock_of("one not locked", &[&one, &free]),
        ClaimVerdict::NotCovered
    );
    assert_eq!(lock_of("no run", &[]), ClaimVerdict::NotCovered);
    let (_, text) = apart(&one, "/lock");
    let whole: Value = serde_json::from_str(&text).unwrap();
    let changed = |change: &dyn Fn(&mut Value)| {
        let mut lock = whole.clone();
        change(&mut lock);
        lock.to_string()
    };
    let zeros = "0".repeat(64);
    for (told, text, verdict) in [
        ("as it was", text.clone(), ClaimVerdict::Proven),
        (
            "of a later kit",
            apart(&later, "/lock").1,
            ClaimVerdict::Failed,
        ),
        (
            "another definition",
            changed(&|lock| lock["entries"][0]["definition"] = json!(zeros)),
            ClaimVerdict::Failed,
        ),
        (
            "no definition",
            changed(&|lock| {
                drop(
                    lock["entries"][0]
                        .as_object_mut()
                        .unwrap()
                        .remove("definition"),
                )
            }),
            ClaimVerdict::Failed,
        ),
        (
            "no such workflow",
            changed(&|lock| drop(lock["entries"].as_array_mut().unwrap().remove(0))),
            ClaimVerdict::Failed,
        ),
        (
            "an agent of that path",
            changed(&|lock| lock["entries"][0]["kind"] = json!("agent")),
            ClaimVerdict::Failed,
        ),
        (
            "two of that path",
            changed(&|lock| {
                let entry = lock["entries"][0].clone();
                lock["entries"].as_array_mut().unwrap().push(entry);
            }),
            ClaimVerdict::Failed,
        ),
        (
            "entries that are none",
            changed(&|lock| lock["entries"] = json!({"0": lock["entries"][0]})),
            ClaimVerdict::Failed,
        ),
        (
            "among entries of other kinds",
            changed(&|lock| {
                lock["entries"]
                    .as_array_mut()
                    .unwrap()
                    .extend([json!(1), json!([])])
            }),
            ClaimVerdict::Proven,
        ),
        (
            "a format of later",
            changed(&|lock| lock["format"] = json!(2)),
            ClaimVerdict::NotCovered,
        ),
        (
            "a format that is no number",
            changed(&|lock| lock["format"] = json!(true)),
            ClaimVerdict::NotCovered,
        ),
        (
            "a format that is a fraction",
            changed(&|lock| lock["format"] = json!(1.0)),
            ClaimVerdict::NotCovered,
        ),
        ("a list", "[]".to_owned(), ClaimVerdict::NotCovered),
        (
            "a key twice",
            text.replacen('{', "{\"entries\":[],", 1),
            ClaimVerdict::Failed,
        ),
        (
            "keys out of order",
            text.replacen('{', "{\"z\":0,", 1),
            ClaimVerdict::Failed,
        ),
    ] {
        let bent = with(&one, "/lock", &text);
        assert_eq!(lock_of(told, &[&bent]), verdict, "{told}");
        assert_eq!(lock_of(told, &[&bent, &other]), verdict, "{told}");
    }
}

#[tokio::test]
async fn a_definition_that_takes_the_place_of_the_locked_one_is_found() {
    let [one, other] = recorded(true, ONE).await;
    let (digest, _) = apart(&one, "/definition");
    let (new, definition) = apart(&other, "/definition");
    // The definition and every word about it, and not the lock.
    let bent = with(&one, "/definition", &definition);
    let named = rechained(&bent, |_, body| {
        body.replace(
            &format!(r#""digest":"{digest}""#),
            &format!(r#""digest":"{new}""#),
        )
    });
    assert_eq!(
        lock_of("swapped and named", &[&named]),
        ClaimVerdict::Failed
    );
    assert_eq!(lock_of("swapped alone", &[&bent]), ClaimVerdict::Failed);
    let renamed = rechained(&one, |_, body| {
        body.replace(r#""workflow":"one""#, r#""workflow":"other""#)
    });
    assert_eq!(
        lock_of("another workflow", &[&renamed]),
        ClaimVerdict::Failed
    );
    // Without a lock there is nothing to hold it against.
    let bare = rechained(&one, |place, body| {
        if place > 0 {
            return body;
        }
        let at = body.find(r#",{"bytes":"#).unwrap();
        let end = at + body[at..].find('}').unwrap() + 1;
        let body = format!("{}{}", &body[..at], &body[end..]);
        body.replace(r#""lock":null,"#, "")
    });
    let bare = Recorded {
        blobs: bare
            .blobs
            .into_iter()
            .filter(|blob| blob.hash == digest)
            .collect(),
        ..bare
    };
    assert_eq!(lock_of("taken out", &[&bare]), ClaimVerdict::NotCovered);
}

#[tokio::test]
async fn a_lock_that_is_swapped_in_the_archive_alone_is_found_without_any_key() {
    let [one, other] = recorded(true, ONE).await;
    let book = Book::write(&[Act::Run(one.clone()), Act::Run(other), Act::Checkpoint]);
    let good = book.export_all();
    let (hash, text) = apart(&one, "/lock");
    let (digest, _) = apart(&one, "/definition");
    let bent = repacked(&good, |files| {
        let other = text.replace(&digest.to_string(), &"0".repeat(64));
        files.insert(format!("blobs/{hash}.json"), other.into_bytes());
    });
    let outcome = judged("bytes", &bent, &book.notes[0], None);
    assert_eq!(claim(&outcome, "lock"), ClaimVerdict::Failed);
    assert_eq!(claim(&outcome, "blobs"), ClaimVerdict::Failed);
    let gone = repacked(&good, |files| {
        drop(files.remove(&format!("blobs/{hash}.json")))
    });
    let outcome = judged("gone", &gone, &book.notes[0], None);
    assert_eq!(claim(&outcome, "lock"), ClaimVerdict::Failed);
}
