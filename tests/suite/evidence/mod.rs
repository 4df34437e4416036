//! Archives of evidence: good ones are accepted, tampered ones are not, by two verifiers that share
//! no code; and what is no archive is refused without harm.
//!
//! The Python verifier runs with `KTSU_PYTHON` where that is set (a virtual environment with
//! `blake3`), else with `python3`; without the package what rests on BLAKE3 is not covered by it.

pub(crate) mod book;
mod browser;
mod cached;
mod commands;
pub(crate) mod effects;
mod evals;
mod forgeries;
mod locks;
mod malformed;
mod mutants;
mod outputs;
mod parts;
mod people;
mod repeated;
mod reviews;
mod suspensions;
mod transfer;
mod verified;
mod worlds;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use ktsu_evidence::archive::FRAMES;
use ktsu_evidence::check::{ArchiveVerifyOptions, Claim, ClaimVerdict, EvidenceReport, verify};
use ktsu_evidence::export::{ExportSelection, export};
use ktsu_evidence::{notes, tar};
use ktsu_ledger::store::Reader;
use serde_json::Value;

use crate::golden::goldens;
use crate::support::campaign;
use crate::support::ledgers::Recorded;
use book::{Act, Book, rechained, repacked};
use browser::Browser;
pub(crate) use forgeries::claim;
pub(crate) use people::outcome_of;

/// Runs that differ from one number to the next.
fn runs(number: usize) -> Vec<Recorded> {
    let all = goldens();
    let small: Vec<Recorded> = all
        .into_iter()
        .map(|(_, run)| run)
        .filter(|run| run.records.len() < 60)
        .collect();
    (0..5)
        .map(|place| small[(number * 3 + place) % small.len()].clone())
        .collect()
}

/// What an honest operator writes: the second checkpoint is the one the auditor holds.
fn honest(number: usize) -> Vec<Act> {
    let [first, second, third, fourth, fifth]: [Recorded; 5] = runs(number).try_into().unwrap();
    let fork = third.records.len() as u64 / 2 + 1;
    vec![
        Act::Run(first),
        Act::Checkpoint,
        Act::Run(second),
        Act::Run(third.clone()),
        Act::Branch(third, fork),
        Act::Rotate,
        Act::Run(fourth),
        Act::Checkpoint,
        Act::Run(fifth),
        Act::Checkpoint,
    ]
}

fn against(book: &Book) -> ArchiveVerifyOptions {
    ArchiveVerifyOptions {
        held: notes(&book.notes[1]).unwrap(),
        key: Some(book.first_key()),
        ..ArchiveVerifyOptions::default()
    }
}

/// What the operator does instead, with every key at hand; the archive that comes of it.
fn tampered(class: &str, number: usize) -> Vec<u8> {
    let mut acts = honest(number);
    let run = |acts: &[Act], at: usize| match &acts[at] {
        Act::Run(run) => run.clone(),
        other => panic!("{other:?}"),
    };
    let frame = number % 3;
    match class {
        "edit" => {
            return repacked(&Book::write(&acts).export_all(), |files| {
                let text = String::from_utf8(files[FRAMES].clone()).unwrap();
                // What is said of the ledger itself has another time.
                let mut lines = text.lines().enumerate().skip(number + 3);
                let dated = lines.find(|(_, line)| line.contains("\"at\":\"202"));
                let edited = dated.unwrap().0;
                let lines = text.lines().enumerate();
                let edited = lines.map(|(at, line)| match at == edited {
                    true => line.replacen("\"at\":\"202", "\"at\":\"201", 1) + "\n",
                    false => format!("{line}\n"),
                });
                files.insert(FRAMES.to_owned(), edited.collect::<String>().into_bytes());
            });
        }
        "re-chain" => {
            let changed = rechained(&run(&acts, 2), |place, body| match place == frame {
                true => body.replacen("\"at\":\"202", "\"at\":\"201", 1),
                false => body,
            });
            acts[2] = Act::Run(changed);
        }
        "truncate" => {
            let whole = run(&acts, 2);
            let kept = whole.records.len() - 1 - frame;
            acts[2] = Act::Run(whole.cut(kept));
        }
        "drop run" => drop(acts.remove([0, 2, 6][frame])),
        "reorder" => acts.swap(0, 2),
        "splice" => {
            let other = run(&acts, 8);
            acts.remove(8);
            acts.insert(frame, Act::Run(other));
        }
        "split view" => {
            // Another ledger under the same name, from after the first checkpoint on.
            let other = run(&acts, 8);
            acts[2] = Act::Run(other);
            acts.truncate(8);
        }
        "rollback" => acts.truncate(5),
        "old key" => acts[9] = Act::OldKey,
        "forged key id" => acts[9] = Act::Forged,
        "backdate" => {
            let earlier = rechained(&run(&acts, 6), |_, body| {
                body.replacen("\"at\":\"202", "\"at\":\"201", 1)
            });
            acts[6] = Act::Run(earlier);
        }
        "checkpoint removal" => drop(acts.remove([1, 7, 7][frame])),
        "blob swap" => {
            return repacked(&Book::write(&acts).export_all(), |files| {
                let blobs = files.keys().filter(|name| name.starts_with("blobs/"));
                let blobs: Vec<String> = blobs.cloned().collect();
                let name = blobs[number % blobs.len()].clone();
                let other = String::from_utf8(files[&name].clone()).unwrap();
                let other = other.replacen('a', "b", 1).into_bytes();
                let config = name.replace("blobs/", "config/");
                if files.contains_key(&config) {
                    files.insert(config, other.clone());
                }
                files.insert(name, other);
            });
        }
        "fork-parent swap" => {
            let parent = run(&acts, 2);
            let position = parent.records.len() as u64 / 2 + 1;
            acts[4] = Act::Branch(parent, position);
        }
        other => panic!("{other}"),
    }
    Book::write(&acts).export_all()
}

const CLASSES: [&str; 14] = [
    "edit",
    "re-chain",
    "truncate",
    "drop run",
    "reorder",
    "splice",
    "split view",
    "rollback",
    "old key",
    "forged key id",
    "backdate",
    "checkpoint removal",
    "blob swap",
    "fork-parent swap",
];

fn is_accepted(outcome: &Result<EvidenceReport, String>) -> bool {
    outcome.as_ref().is_ok_and(EvidenceReport::is_sound)
}

fn failed_of(outcome: &Result<EvidenceReport, String>) -> Vec<String> {
    let claims = outcome
        .as_ref()
        .map(|outcome| outcome.claims.clone())
        .unwrap_or_default();
    let failed = claims
        .iter()
        .filter(|claim| claim.verdict == ClaimVerdict::Failed);
    failed
        .map(|claim| format!("{}: {}", claim.claim, claim.reason))
        .collect()
}

#[test]
fn fourteen_classes_of_tampering_are_rejected_by_all_verifiers_given_one_held_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let (python, browser) = (Python::find(), Browser::find());
    for number in 0..campaign(4, 20) {
        let book = Book::write(&honest(number));
        let against = against(&book);
        let good = book.export_all();
        let outcome = verify(&good, &against);
        assert!(
            is_accepted(&outcome),
            "{number}: {:?} {:?}",
            outcome.is_err(),
            failed_of(&outcome)
        );
        let folder = folder.path().join(number.to_string());
        std::fs::create_dir(&folder).unwrap();
        let mut archives = vec![put(&folder, "good", &good)];
        let mut outcomes = vec![outcome];
        for class in CLASSES {
            let bytes = tampered(class, number);
            assert_ne!(bytes, good, "{class} {number} changes nothing");
            let outcome = verify(&bytes, &against);
            assert!(!is_accepted(&outcome), "{class} {number} was accepted");
            archives.push(put(&folder, &class.replace(' ', "-"), &bytes));
            outcomes.push(outcome);
        }
        let held = put(&folder, "held", book.notes[1].as_bytes());
        let key = put(&folder, "key", book.first_key().to_string().as_bytes());
        if let Some(browser) = &browser {
            let said = browser.verify(&archives, &[("--checkpoint", &held), ("--key", &key)]);
            for ((archive, said), outcome) in archives.iter().zip(&said).zip(&outcomes) {
                let name = archive.file_stem().unwrap().to_string_lossy();
                browser.agrees(outcome, said, &format!("{name} {number}"));
                assert_eq!(
                    said["sound"] == true,
                    name == "good",
                    "{name} {number}: {said}"
                );
            }
        }
        let Some(python) = &python else { continue };
        let said = python.verify(&archives, &[("--checkpoint", &held), ("--key", &key)]);
        for ((archive, said), outcome) in archives.iter().zip(&said).zip(&outcomes) {
            let name = archive.file_stem().unwrap().to_string_lossy();
            // Where it cannot check the chain, what rests on a broken one may look otherwise to it.
            if let Ok(outcome) = outcome
                && (python.has_blake3 || name == "good")
            {
                python.agrees(&outcome.claims, said, &format!("{name} {number}"));
            }
            let covered = python.has_blake3 || name != "blob-swap";
            if name == "good" {
                assert_eq!(said["sound"], true, "{said}");
            } else if covered {
                assert_ne!(said["sound"], true, "{name} {number} was accepted: {said}");
            } else {
                assert_eq!(verdict(said, "blobs"), "not_covered");
            }
        }
    }
}

#[test]
fn good_archives_get_the_same_verdicts_from_all_verifiers() {
    let folder = tempfile::tempdir().unwrap();
    let (mut archives, mut verdicts) = (Vec::new(), Vec::new());
    for number in 0..campaign(12, 50) {
        let mut acts = honest(number);
        // Some end without a checkpoint, some with a run that nothing covers.
        acts.truncate(acts.len() - number % 4);
        let book = Book::write(&acts);
        let streams = runs(number);
        for (which, streams) in [&[][..], &streams[..1], &streams[2..3], &streams[1..4]]
            .iter()
            .enumerate()
        {
            let wanted = ExportSelection {
                all: which == 0,
                streams: streams.iter().map(|run| run.stream.clone()).collect(),
                ..ExportSelection::default()
            };
            let bytes = book.export(&wanted);
            assert_eq!(
                bytes,
                book.export(&wanted),
                "the same question, the same bytes"
            );
            let outcome = verify(&bytes, &ArchiveVerifyOptions::default()).unwrap();
            assert!(outcome.is_sound(), "{:?}", failed_of(&Ok(outcome)));
            verdicts.push(Ok(outcome));
            archives.push(put(folder.path(), &format!("{number}-{which}"), &bytes));
        }
    }
    assert_eq!(archives.len(), 4 * campaign(12, 50));
    if let Some(browser) = Browser::find() {
        let said = browser.verify(&archives, &[]);
        assert_eq!(said.len(), archives.len());
        for (outcome, said) in verdicts.iter().zip(&said) {
            browser.agrees(outcome, said, "a good archive");
        }
    }
    let Some(python) = Python::find() else { return };
    let said = python.verify(&archives, &[]);
    assert_eq!(said.len(), archives.len());
    for (outcome, said) in verdicts.iter().zip(&said) {
        let claims = &outcome.as_ref().unwrap().claims;
        python.agrees(claims, said, "a good archive");
    }
}

#[test]
fn damaged_archives_are_refused_without_harm() {
    let wanted = ExportSelection {
        streams: vec![runs(0)[0].stream.clone()],
        ..ExportSelection::default()
    };
    let good = Book::write(&honest(0)).export(&wanted);
    let files = tar::read(&good).unwrap();
    // Two texts can mean one manifest; every other byte is named by it.
    let manifest = find(&good, b"\"all\"") - 600..find(&good, b"proofs/tree.json\0");
    let mut chance = Chance(7);
    let folder = tempfile::tempdir().unwrap();
    let mut some = Vec::new();
    for number in 0..campaign(1_000, 5_000) {
        let mut bytes = good.clone();
        let at = chance.below(bytes.len());
        match number % 5 {
            0 => bytes.truncate(at),
            1 => bytes[at] ^= 1 << chance.below(8),
            2 => drop(bytes.drain(at..(at + 1 + chance.below(600)).min(good.len()))),
            3 => bytes.insert(at, b'7'),
            _ => {
                let header = at / 512 * 512;
                bytes[header + 124..header + 135].copy_from_slice(b"77777777777");
            }
        }
        if bytes == good {
            continue;
        }
        let accepted = is_accepted(&verify(&bytes, &ArchiveVerifyOptions::default()));
        assert!(!accepted || manifest.contains(&at), "{number} at {at}");
        if number % 25 == 0 {
            some.push(put(folder.path(), &number.to_string(), &bytes));
        }
    }
    assert!(files.len() > 10);
    if let Some(browser) = Browser::find() {
        for said in browser.verify(&some, &[]) {
            assert!(said["sound"] != true, "{said}");
        }
    }
    let Some(python) = Python::find() else { return };
    for said in python.verify(&some, &[]) {
        assert!(said["sound"] != true, "{said}");
    }
}

/// Both verifiers find nothing wrong with a ledger that an engine wrote.
pub(crate) fn holds(reader: &dyn Reader, told: &str) {
    let (archive, outcome) = sound(reader, told);
    let Some(python) = Python::find() else { return };
    let folder = tempfile::tempdir().unwrap();
    let said = python.verify(&[put(folder.path(), "all", &archive)], &[]);
    python.agrees(&outcome.claims, &said[0], told);
}

/// As [`holds`], of an archive; and the independent verifier leaves nothing about worlds out but what is
/// evaluated.
pub(crate) fn archive_holds(archive: &[u8], told: &str) {
    let outcome = verify(archive, &ArchiveVerifyOptions::default());
    assert!(is_accepted(&outcome), "{told}: {:?}", failed_of(&outcome));
    let claims = outcome.unwrap().claims;
    for name in ["world", "replay", "tools"] {
        let claim = claims.iter().find(|one| one.claim == name).unwrap();
        assert_eq!(claim.verdict, ClaimVerdict::Proven, "{told}: {claim:?}");
    }
    let Some(python) = Python::find() else { return };
    let folder = tempfile::tempdir().unwrap();
    let said = python.verify(&[put(folder.path(), "archive", archive)], &[]);
    python.agrees(&claims, &said[0], told);
    let theirs = said[0]["claims"].as_array().unwrap();
    let world = theirs.iter().find(|one| one["claim"] == "world").unwrap();
    let words = world["reason"].as_str().unwrap();
    assert!(words.contains("follow from others"), "{told}: {world}");
    assert!(!words.contains("not covered"), "{told}: {world}");
}

/// As [`holds`], by ktsu alone; the archive, and what is said of it.
pub(crate) fn sound(reader: &dyn Reader, told: &str) -> (Vec<u8>, EvidenceReport) {
    let wanted = ExportSelection {
        all: true,
        ..ExportSelection::default()
    };
    let archive = export(reader, &wanted).unwrap().bytes;
    let outcome = verify(&archive, &ArchiveVerifyOptions::default());
    assert!(is_accepted(&outcome), "{told}: {:?}", failed_of(&outcome));
    (archive, outcome.unwrap())
}

fn find(bytes: &[u8], wanted: &[u8]) -> usize {
    bytes
        .windows(wanted.len())
        .position(|window| window == wanted)
        .unwrap()
}

/// Numbers that look like chance and are the same every time.
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % limit
    }
}

fn put(folder: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.join(format!("{name}.tar"));
    std::fs::write(&path, bytes).unwrap();
    path
}

fn verdict(said: &Value, claim: &str) -> Value {
    let claims = said["claims"].as_array().cloned().unwrap_or_default();
    let found = claims.iter().find(|one| one["claim"] == claim);
    found.map(|one| one["verdict"].clone()).unwrap_or_default()
}

/// The independent verifier.
struct Python {
    program: String,
    has_blake3: bool,
}

impl Python {
    fn find() -> Option<Self> {
        let program = std::env::var("KTSU_PYTHON").unwrap_or_else(|_| "python3".to_owned());
        let asked = Command::new(&program)
            .args(["-c", "import blake3"])
            .output();
        let Ok(asked) = asked else {
            crate::support::not_tested(&format!("the independent verifier: there is no {program}"));
            return None;
        };
        let has_blake3 = asked.status.success();
        if !has_blake3 {
            crate::support::not_tested("chains by the independent verifier: Python has no blake3");
        }
        Some(Self {
            program,
            has_blake3,
        })
    }

    /// It comes to the same verdict about each claim, of those it can judge.
    fn agrees(&self, claims: &[Claim], said: &Value, told: &str) {
        let mut all = claims.iter();
        let whole = all.any(|one| one.claim == "blobs" && one.verdict == ClaimVerdict::Proven);
        // What makes frames unreadable is found by both, elsewhere; whether worlds can be judged
        // then depends on how far each of them reads.
        let is_broken = claims.iter().any(|one| {
            let failed = one.claim != "world" && one.verdict == ClaimVerdict::Failed;
            failed && verdict(said, one.claim) == "failed"
        });
        // A decision about a world that is missing: ktsu finds it by making all decisions again, the
        // other among what it knows of worlds.
        let failed = |name: &str| {
            let is = |one: &Claim| one.claim == name && one.verdict == ClaimVerdict::Failed;
            claims.iter().any(is)
        };
        let is_missed = failed("replay") && verdict(said, "world") == "failed";
        for claim in claims {
            let mut ours = claim.verdict;
            match (claim.claim, self.has_blake3) {
                // What only ktsu makes again: decisions, tables.
                ("replay" | "derived", _) | ("chain" | "blobs" | "tools", false) => continue,
                // What expressions make of outputs, only ktsu evaluates.
                ("outputs", _) if ours == ClaimVerdict::Proven => {
                    let theirs = verdict(said, "outputs");
                    let word = theirs.as_str().unwrap_or_default();
                    assert!(["proven", "not_covered"].contains(&word), "{told}: {said}");
                    continue;
                }
                // What guards and templates make of triggers and replies, only ktsu evaluates.
                ("world", _) if is_broken || is_missed => continue,
                ("world", _) if ours != ClaimVerdict::Failed => {
                    let theirs = verdict(said, "world");
                    let word = theirs.as_str().unwrap_or_default();
                    assert!(["proven", "not_covered"].contains(&word), "{told}: {said}");
                    continue;
                }
                // What speaks against a lock is found without, unless it is a hash alone.
                ("lock", false) if !whole => continue,
                ("lock", false) if ours == ClaimVerdict::Proven => ours = ClaimVerdict::NotCovered,
                _ => {}
            }
            let ours = serde_json::to_value(ours).unwrap();
            let name = claim.claim;
            assert_eq!(ours, verdict(said, name), "{told}: {name} {said}");
        }
    }

    /// What it says of each archive, all in one process.
    fn verify(&self, archives: &[PathBuf], options: &[(&str, &PathBuf)]) -> Vec<Value> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/evidence/verify.py");
        let mut command = Command::new(&self.program);
        command.arg("-I").arg(script).arg("--json").args(archives);
        for (name, value) in options {
            command.arg(name).arg(value);
        }
        let output = command.output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.is_empty(), "{errors}");
        let lines = String::from_utf8(output.stdout).unwrap();
        let said: Vec<Value> = lines
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let by_file: BTreeMap<String, Value> = said
            .into_iter()
            .map(|one| (one["file"].as_str().unwrap().to_owned(), one))
            .collect();
        archives
            .iter()
            .map(|path| by_file[&path.display().to_string()].clone())
            .collect()
    }
}
