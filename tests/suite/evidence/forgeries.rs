//! Forgeries that need no key: what is cut off, what is put on behind, and whose key it is. Both
//! verifiers come to one verdict about each.

use std::collections::BTreeSet;
use std::process::Command;

use ktsu_evidence::archive::{FRAMES, MANIFEST, Manifest, PLACES, Range, TREE, Tree};
use ktsu_evidence::check::{ArchiveVerifyOptions, ClaimVerdict, EvidenceReport, verify};
use ktsu_evidence::export::ExportSelection;
use ktsu_evidence::tar::Files;
use ktsu_evidence::{notes, tar};
use ktsu_ledger::Hash;
use ktsu_ledger::event::OPEN;
use ktsu_ledger::merkle::{Node, multiproof};
use ktsu_ledger::note::PublicKey;
use ktsu_ledger::store::Audit as _;
use ktsu_ledger::verify::{self as ledger, ProblemKind};

use super::book::{Act, Book, rechained, repacked};
use super::browser::Browser;
use super::{Python, put, runs, verdict};
use crate::support::ledgers::Recorded;

/// What a verifier says of a claim.
pub(crate) fn claim(outcome: &EvidenceReport, name: &str) -> ClaimVerdict {
    let found = outcome.claims.iter().find(|one| one.claim == name);
    found.unwrap().verdict
}

/// The outcome, the same from all verifiers, against the last note of a book and perhaps a key.
pub(super) fn judged(
    told: &str,
    bytes: &[u8],
    held: &str,
    key: Option<&PublicKey>,
) -> EvidenceReport {
    let against = ArchiveVerifyOptions {
        held: notes(held).unwrap(),
        key: key.cloned(),
        ..ArchiveVerifyOptions::default()
    };
    let outcome = verify(bytes, &against).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let archive = put(folder.path(), "archive", bytes);
    let held = put(folder.path(), "held", held.as_bytes());
    let mut options = vec![("--checkpoint", &held)];
    let text = key.map(PublicKey::to_string).unwrap_or_default();
    let file = put(folder.path(), "key", text.as_bytes());
    options.extend(key.map(|_| ("--key", &file)));
    if let Some(python) = Python::find() {
        let said = python.verify(std::slice::from_ref(&archive), &options);
        python.agrees(&outcome.claims, &said[0], told);
    }
    if let Some(browser) = Browser::find() {
        let said = browser.verify(&[archive], &options);
        browser.agrees(&Ok(outcome.clone()), &said[0], told);
    }
    outcome
}

/// The outcome for each of these ledgers, the same from both verifiers. Each was signed by whoever has
/// the key, so that nothing is wrong with it but what its runs and branches say.
pub(super) fn judged_by_both(ledgers: &[(&str, Vec<Recorded>)]) -> Vec<EvidenceReport> {
    let folder = tempfile::tempdir().unwrap();
    let (mut outcomes, mut archives) = (Vec::new(), Vec::new());
    for (at, (told, runs)) in ledgers.iter().enumerate() {
        let mut acts: Vec<Act> = runs.iter().cloned().map(Act::Run).collect();
        acts.push(Act::Checkpoint);
        let book = Book::write(&acts);
        let against = ArchiveVerifyOptions {
            held: notes(&book.notes[0]).unwrap(),
            key: Some(book.first_key()),
            ..ArchiveVerifyOptions::default()
        };
        let bytes = book.export_all();
        let outcome = verify(&bytes, &against).unwrap();
        for whole in [
            "manifest",
            "chain",
            "inclusion",
            "signatures",
            "key",
            "held",
        ] {
            let verdict = claim(&outcome, whole);
            assert_eq!(verdict, ClaimVerdict::Proven, "{told}: {outcome:?}");
        }
        archives.push(put(folder.path(), &at.to_string(), &bytes));
        outcomes.push(outcome);
    }
    if let Some(python) = Python::find() {
        let said = python.verify(&archives, &[]);
        for (((told, _), outcome), said) in ledgers.iter().zip(&outcomes).zip(&said) {
            let claims = outcome.claims.iter();
            // It was not given what these need.
            let claims = claims.filter(|one| !["key", "held"].contains(&one.claim));
            python.agrees(&claims.cloned().collect::<Vec<_>>(), said, told);
        }
    }
    outcomes
}

/// The archive without some lines, as whoever has the ledger and no key would make it.
pub(super) fn without(book: &Book, archive: &[u8], dropped: impl Fn(&str, u64) -> bool) -> Vec<u8> {
    repacked(archive, |files| {
        let (mut places, mut bodies) = (String::new(), String::new());
        let mut shown = BTreeSet::new();
        let tree: Tree = serde_json::from_slice(&files[TREE]).unwrap();
        for (at, (line, body)) in rows(files).into_iter().enumerate() {
            let cells: Vec<&str> = line.split(',').collect();
            if at > 0 && dropped(cells[1], cells[2].parse().unwrap()) {
                continue;
            }
            places += &format!("{line}\n");
            if at > 0 {
                bodies += &format!("{body}\n");
                shown.insert(cells[0].parse::<u64>().unwrap() - 1);
            }
        }
        shown.retain(|index| *index < tree.size);
        let sizes = notes(&book.notes.concat()).unwrap();
        let sizes = sizes.iter().map(|note| note.size).collect();
        let leaves = book.store.scan_frames(1, 10_000).unwrap();
        let leaves: Vec<Node> = leaves.iter().map(|it| Node::leaf(&it.body)).collect();
        let leaves = &leaves[..usize::try_from(tree.size).unwrap()];
        let hashes = multiproof::prove(leaves, &shown, &sizes);
        let tree = Tree { hashes, ..tree };
        files.insert(TREE.to_owned(), serde_json::to_vec(&tree).unwrap());
        files.retain(|name, _| {
            let hash = name.strip_prefix("blobs/").or(name.strip_prefix("config/"));
            hash.is_none_or(|hash| bodies.contains(hash.trim_end_matches(".json")))
        });
        put_rows(files, &places, bodies);
    })
}

/// The lines of both tables; the first is that of the columns.
fn rows(files: &Files) -> Vec<(String, String)> {
    let text = |name: &str| String::from_utf8(files[name].clone()).unwrap();
    let bodies = format!("\n{}", text(FRAMES));
    let rows = text(PLACES);
    let rows = rows.lines().zip(bodies.lines());
    rows.map(|(line, body)| (line.to_owned(), body.to_owned()))
        .collect()
}

fn put_rows(files: &mut Files, places: &str, bodies: String) {
    let mut manifest: Manifest = serde_json::from_slice(&files[MANIFEST]).unwrap();
    manifest.streams.clear();
    for line in places.lines().skip(1) {
        let cells: Vec<&str> = line.split(',').collect();
        let head: Hash = cells[3].parse().unwrap();
        let fresh = Range {
            first: cells[2].parse().unwrap(),
            frames: 0,
            head,
        };
        let range = manifest.streams.entry(cells[1].to_owned()).or_insert(fresh);
        range.frames += 1;
        range.head = head;
    }
    let manifest = serde_json::to_vec_pretty(&manifest).unwrap();
    files.insert(MANIFEST.to_owned(), manifest);
    files.insert(PLACES.to_owned(), places.as_bytes().to_vec());
    files.insert(FRAMES.to_owned(), bodies.into_bytes());
}

/// The archive with another last frame, hashed again: the checkpoint's own, which no tree covers.
pub(super) fn with_last(archive: &[u8], change: impl Fn(&str) -> String) -> Vec<u8> {
    repacked(archive, |files| {
        let mut rows = rows(files);
        let (line, body) = rows.last_mut().unwrap();
        *body = change(body);
        let at = line.rfind(',').unwrap() + 1;
        line.replace_range(at.., &Hash::of(body.as_bytes()).to_string());
        let places: String = rows.iter().map(|(line, _)| format!("{line}\n")).collect();
        let bodies = rows.iter().skip(1).map(|(_, body)| format!("{body}\n"));
        put_rows(files, &places, bodies.collect());
    })
}

#[test]
fn what_came_after_a_run_was_resumed_again_cannot_be_cut_off() {
    let run = runs(1).remove(0);
    let half = run.records.len() / 2;
    let resumed = |status: Option<&'static str>| {
        Book::write(&[
            Act::Part(run.clone(), 0..half, Some("failed")),
            Act::Checkpoint,
            Act::Part(run.clone(), half..run.records.len(), status),
            Act::Checkpoint,
        ])
    };
    for (status, cut_is) in [
        (Some(OPEN), ClaimVerdict::Failed),
        // Signed before heads of open runs were recorded: no better than the truth.
        (None, ClaimVerdict::NotCovered),
    ] {
        let book = resumed(status);
        let good = book.export_all();
        let held = &book.notes[1];
        let outcome = judged("good", &good, held, None);
        assert!(outcome.is_sound(), "{outcome:?}");
        assert_eq!(claim(&outcome, "completeness"), ClaimVerdict::NotCovered);
        let stream = run.stream.to_string();
        let cut = without(&book, &good, |name, seq| {
            name == stream && seq >= half as u64
        });
        let outcome = judged("cut", &cut, held, None);
        assert_eq!(claim(&outcome, "inclusion"), ClaimVerdict::Proven);
        assert_eq!(claim(&outcome, "completeness"), cut_is, "{outcome:?}");
    }
}

#[test]
fn frames_behind_the_last_checkpoint_prove_nothing() {
    let run = runs(2).remove(0);
    let whole = 0..run.records.len();
    let book = Book::write(&[
        Act::Part(run.clone(), whole.clone(), None),
        Act::Checkpoint,
        Act::Part(run.clone(), whole.end..whole.end, Some("complete")),
    ]);
    let outcome = judged("unsigned head", &book.export_all(), &book.notes[0], None);
    assert_eq!(claim(&outcome, "completeness"), ClaimVerdict::NotCovered);
    assert_eq!(claim(&outcome, "inclusion"), ClaimVerdict::NotCovered);
    // The frame of the last checkpoint is no part of the tree: what it says is held against it.
    let book = Book::write(&[Act::Run(run), Act::Checkpoint]);
    let bent = with_last(&book.export_all(), |body| {
        let at = body.find("\"frontier\":[\"").unwrap() + 13;
        let digit = if body[at..].starts_with('0') {
            "1"
        } else {
            "0"
        };
        format!("{}{digit}{}", &body[..at], &body[at + 1..])
    });
    let outcome = judged("frontier", &bent, &book.notes[0], None);
    assert_eq!(claim(&outcome, "signatures"), ClaimVerdict::Failed);
}

#[test]
fn a_part_of_a_ledger_is_not_called_complete() {
    let book = Book::write(&super::honest(1));
    let streams = vec![runs(1)[0].stream.clone()];
    let wanted = ExportSelection {
        streams,
        ..ExportSelection::default()
    };
    let outcome = judged("part", &book.export(&wanted), &book.notes[2], None);
    assert_eq!(claim(&outcome, "completeness"), ClaimVerdict::NotCovered);
    let outcome = judged("all", &book.export_all(), &book.notes[2], None);
    assert_eq!(claim(&outcome, "completeness"), ClaimVerdict::Proven);
}

#[test]
fn only_a_key_that_signed_or_vouches_for_the_one_that_did_proves_whose_ledger_it_is() {
    let run = runs(3).remove(0);
    let start = [Act::Run(run)];
    let book = |more: &[Act]| Book::write(&[&start, more].concat());
    let judge = |told: &str, more: &[Act], key: u8| {
        let book = book(more);
        let held = book.notes.last().unwrap();
        let outcome = judged(told, &book.export_all(), held, Some(&book.key(key)));
        claim(&outcome, "key")
    };
    let signed = [Act::Rotate, Act::Checkpoint];
    assert_eq!(judge("first", &signed, 1), ClaimVerdict::Proven);
    assert_eq!(judge("second", &signed, 2), ClaimVerdict::Proven);
    // Whoever signed first can vouch for a key that everybody knows.
    let vouched = [Act::Checkpoint, Act::Rotate];
    assert_eq!(judge("vouched for", &vouched, 2), ClaimVerdict::Failed);
    let revoked = [Act::Rotate, Act::Revoke(1), Act::Checkpoint];
    assert_eq!(judge("revoked", &revoked, 1), ClaimVerdict::Failed);
    assert_eq!(judge("not revoked", &revoked, 2), ClaimVerdict::Proven);
}

#[test]
fn what_is_no_frame_to_one_verifier_is_none_to_the_other() {
    let book = Book::write(&[Act::Run(runs(4).remove(0)), Act::Checkpoint]);
    let good = book.export_all();
    let size = format!("\"size\":{}", notes(&book.notes[0]).unwrap()[0].size);
    for (told, from, to) in [
        ("a version that is no number", "\"v\":1", "\"v\":true"),
        ("a fraction for a number", "\"v\":1", "\"v\":1.0"),
        (
            "an actor nobody knows",
            "\"actor\":\"orchestrator\"",
            "\"actor\":\"nobody\"",
        ),
        ("a time that is none", "T00:00:00.", "T24:00:00."),
        ("a day that is none", "1970-01-01T", "1970-02-30T"),
        ("a cause that is none", "\"cause\":[]", "\"cause\":[1.5]"),
        ("a scope that is none", "\"scope\":\"\"", "\"scope\":null"),
        ("keys out of order", size.as_str(), "\"a\":1"),
    ] {
        let bent = with_last(&good, |body| body.replacen(from, to, 1));
        assert_ne!(bent, good, "{told}");
        let outcome = verify(&bent, &ArchiveVerifyOptions::default()).unwrap();
        assert_eq!(claim(&outcome, "chain"), ClaimVerdict::Failed, "{told}");
        let folder = tempfile::tempdir().unwrap();
        let bent = [put(folder.path(), "bent", &bent)];
        if let Some(browser) = Browser::find() {
            let said = browser.verify(&bent, &[]);
            assert_eq!(verdict(&said[0], "chain"), "failed", "{told}: {said:?}");
        }
        let Some(python) = Python::find() else {
            continue;
        };
        let said = python.verify(&bent, &[]).remove(0);
        assert_eq!(verdict(&said, "chain"), "failed", "{told}: {said}");
    }
}

#[test]
fn a_manifest_that_one_verifier_does_not_read_the_other_does_not_read_either() {
    let book = Book::write(&[Act::Run(runs(5).remove(0)), Act::Checkpoint]);
    let good = book.export_all();
    let folder = tempfile::tempdir().unwrap();
    for (number, (from, to)) in [
        ("\"all\": true", "\"all\": true,\n  \"also\": 1"),
        ("\"format\": 1", "\"format\": true"),
        ("\"format\": 1", "\"format\": 1.0"),
        ("\"engine\": \"", "\"engine\": 5, \"enginf\": \""),
        ("\"all\": true", "\"all\": true, \"all\": true"),
        ("\"runs\": []", "\"runs\": [5]"),
    ]
    .into_iter()
    .enumerate()
    {
        let mut files = tar::read(&good).unwrap();
        let manifest = String::from_utf8(files[MANIFEST].clone()).unwrap();
        let bent = manifest.replacen(from, to, 1);
        assert_ne!(bent, manifest, "{to}");
        files.insert(MANIFEST.to_owned(), bent.into_bytes());
        let bytes = tar::write(&files).unwrap();
        assert!(
            verify(&bytes, &ArchiveVerifyOptions::default()).is_err(),
            "{to}"
        );
        let path = [put(folder.path(), &number.to_string(), &bytes)];
        if let Some(browser) = Browser::find() {
            let said = browser.verify(&path, &[]);
            assert!(said[0]["error"].is_string(), "{to}: {said:?}");
        }
        let Some(python) = Python::find() else {
            continue;
        };
        let said = python.verify(&path, &[]).remove(0);
        assert!(said["error"].is_string(), "{to}: {said}");
    }
}

#[test]
fn a_file_of_checkpoints_is_read_alike_or_refused_by_all() {
    let book = Book::write(&super::honest(2));
    let folder = tempfile::tempdir().unwrap();
    let archive = put(folder.path(), "archive", &book.export_all());
    let (one, two) = (&book.notes[0], &book.notes[1]);
    for (told, text, count) in [
        ("one", one.clone(), 1),
        ("as a witness appends them", format!("{one}\n{two}\n"), 2),
        ("as `cat >>` appends them", format!("{one}{two}"), 2),
        ("nothing", String::new(), 0),
        ("empty lines", "\n\n\n".to_owned(), 0),
        ("no note", "hello\n".to_owned(), 0),
        (
            "no signature",
            one.split("\n\n").next().unwrap().to_owned() + "\n\n",
            0,
        ),
        ("other line ends", one.replace('\n', "\r\n"), 0),
        ("something behind", format!("{one}and more\n"), 0),
    ] {
        let read = notes(&text);
        assert_eq!(read.as_ref().map_or(0, Vec::len), count, "{told}: {read:?}");
        assert_eq!(read.is_ok(), count > 0, "{told}");
        let held = put(folder.path(), "held", text.as_bytes());
        // The page takes an empty text for none that was given.
        if let Some(browser) = Browser::find().filter(|_| !text.is_empty()) {
            let said = browser.verify(std::slice::from_ref(&archive), &[("--checkpoint", &held)]);
            let found = verdict(&said[0], "held");
            assert_eq!(found == "proven", count > 0, "{told}: {said:?}");
        }
        let Some(python) = Python::find() else {
            continue;
        };
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/src/evidence/verify.py");
        let mut command = Command::new(&python.program);
        command.arg("-I").arg(script).arg(&archive);
        let output = command.arg("--checkpoint").arg(&held).output().unwrap();
        let code = if count > 0 { 0 } else { 2 };
        assert_eq!(output.status.code(), Some(code), "{told}: {output:?}");
    }
}

/// What verifying a ledger itself, without an archive, finds wrong with its checkpoints.
fn problems(acts: &[Act]) -> (u64, Vec<ProblemKind>, Book) {
    let book = Book::write(acts);
    let options = ledger::VerifyOptions::default();
    let report = ledger::verify(&book.store, &options, &mut |_| {});
    let kinds = report.problems.iter().map(|one| one.kind).collect();
    (report.checkpoints, kinds, book)
}

#[test]
fn a_ledger_is_not_sound_if_other_frames_or_another_key_were_signed() {
    let run = runs(4).remove(0);
    let all = |run: &Recorded| Act::Part(run.clone(), 0..run.records.len(), None);
    let (signed, found, book) = problems(&[all(&run), Act::Checkpoint]);
    assert_eq!((signed, found), (1, vec![]));
    // Each frame follows from the one before, and none is what the checkpoint was signed over.
    let earlier = |_, body: String| body.replacen("\"at\":\"202", "\"at\":\"201", 1);
    let changed = all(&rechained(&run, earlier));
    let (signed, found, _) = problems(&[changed, Act::Copied(book.store)]);
    assert_eq!((signed, found), (0, vec![ProblemKind::Checkpoint]));
    let (signed, found, _) = problems(&[all(&run), Act::Forged]);
    assert_eq!((signed, found), (0, vec![ProblemKind::Checkpoint]));
}
