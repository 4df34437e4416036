//! `verify.html`, run by Node: of each claim that it covers, it gives the verdict that the other two
//! verifiers give, and it says of every other claim that it does not cover it.
//!
//! It runs with `KTSU_NODE` where that is set, else with `node`.

use std::path::{Path, PathBuf};
use std::process::Command;

use ktsu_evidence::archive::MANIFEST;
use ktsu_evidence::check::{ArchiveVerifyOptions, Claim, EvidenceReport, verify};
use ktsu_evidence::page::{modules, sha256, verifier_page};
use ktsu_evidence::tar;
use ktsu_ledger::{Hash, strict};
use serde_json::{Value, json};

use super::book::{Act, Book};
use super::forgeries::{with_last, without};
use super::{put, runs, verdict};

/// The claims that the page covers.
const COVERED: [&str; 10] = [
    "manifest",
    "chain",
    "causes",
    "blobs",
    "completeness",
    "inclusion",
    "signatures",
    "rotation",
    "key",
    "held",
];

/// The verifier of the page.
pub(super) struct Browser {
    program: String,
    folder: tempfile::TempDir,
}

impl Browser {
    pub(super) fn find() -> Option<Self> {
        let program = std::env::var("KTSU_NODE").unwrap_or_else(|_| "node".to_owned());
        let asked = Command::new(&program).arg("--version").output();
        let version = asked.map(|asked| String::from_utf8_lossy(&asked.stdout).into_owned());
        let version = version.unwrap_or_default();
        let major = version.trim_start_matches('v').split('.').next();
        if major.and_then(|major| major.parse().ok()) < Some(20) {
            let found = format!("verify.html: there is no {program} of version 20 or later");
            crate::support::not_tested(&found);
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let script = modules() + include_str!("browser.mjs");
        std::fs::write(folder.path().join("verify.mjs"), script).unwrap();
        Some(Self { program, folder })
    }

    fn run(&self, arguments: &[&str]) -> Vec<Value> {
        let mut command = Command::new(&self.program);
        command.arg("--no-warnings");
        command.arg(self.folder.path().join("verify.mjs"));
        let output = command.args(arguments).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.is_empty() && output.status.success(), "{errors}");
        let lines = String::from_utf8(output.stdout).unwrap();
        let lines = lines
            .lines()
            .map(|line| serde_json::from_str(line).unwrap());
        lines.collect()
    }

    /// The verdicts on each archive, all in one process.
    pub(super) fn verify(&self, archives: &[PathBuf], options: &[(&str, &PathBuf)]) -> Vec<Value> {
        let archives = archives.iter().map(|path| path.to_str().unwrap());
        let options = options.iter();
        let options = options.flat_map(|(name, path)| [*name, path.to_str().unwrap()]);
        let found = self.run(&archives.chain(options).collect::<Vec<_>>());
        assert!(!found.is_empty());
        found
    }

    /// Checks that it comes to the verdicts of ktsu about an archive.
    pub(super) fn agrees(
        &self,
        outcome: &Result<EvidenceReport, String>,
        said: &Value,
        label: &str,
    ) {
        match outcome {
            Ok(outcome) => agree(&outcome.claims, said, label),
            Err(error) => assert!(said["error"].is_string(), "{label}: {error}: {said}"),
        }
    }
}

fn agree(claims: &[Claim], said: &Value, label: &str) {
    let theirs = said["claims"].as_array().map_or(0, Vec::len);
    assert_eq!(theirs, claims.len(), "{label}: {said}");
    for claim in claims {
        let name = claim.claim;
        let expected = match COVERED.contains(&name) {
            true => serde_json::to_value(claim.verdict).unwrap(),
            false => json!("not_covered"),
        };
        let found = verdict(said, name);
        assert_eq!(found, expected, "{label}: {name}: {claim:?} {said}");
    }
}

#[test]
fn blake3_in_the_page_is_blake3_at_every_border_of_its_tree() {
    let Some(browser) = Browser::find() else {
        return;
    };
    let mut lengths: Vec<usize> = vec![0, 1, 2, 63, 64, 65, 127, 128, 129];
    for chunks in [1, 2, 3, 4, 5, 7, 8, 9, 16, 31, 100] {
        lengths.extend([chunks * 1024 - 1, chunks * 1024, chunks * 1024 + 1]);
    }
    let asked: Vec<String> = lengths.iter().map(usize::to_string).collect();
    let asked: Vec<&str> = asked.iter().map(String::as_str).collect();
    let found = browser.run(&[&["hashes"], &asked[..]].concat());
    assert_eq!(found.len(), lengths.len());
    for (length, found) in lengths.iter().zip(&found) {
        let bytes: Vec<u8> = (0..*length).map(|at| (at % 251) as u8).collect();
        assert_eq!(*found, Hash::of(&bytes).to_string(), "{length}");
    }
    let empty = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262";
    assert_eq!(found[0], empty);
}

#[test]
fn json_is_read_exactly_by_the_page_or_refused_as_ktsu_refuses_it() {
    let Some(browser) = Browser::find() else {
        return;
    };
    let deep = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
    let texts = [
        "0",
        "-1",
        "9007199254740991",
        "9007199254740993",
        "-9007199254740993",
        "18446744073709551615",
        "-9223372036854775808",
        "{\"a\":1,\"b\":{\"__proto__\":2}}",
        "{\"\u{e000}\":1,\"\u{10000}\":2}",
        "\"\\ud83d\\ude00\\n\"",
        " [ 1 , null ] ",
        "[[],{},\"\"]",
        &deep(64),
        // Not these.
        "18446744073709551616",
        "-9223372036854775809",
        "1e999",
        "01",
        "+1",
        ".5",
        "1.",
        "NaN",
        "{\"a\":1,\"a\":1}",
        "{\"b\":1,\"a\":1}",
        "{\"\u{10000}\":1,\"\u{e000}\":2}",
        "[{\"a\":1,\"\\u0061\":1}]",
        "\"\\ud800\"",
        "\"\\x\"",
        "\"\n\"",
        "\"open",
        "[1,]",
        "[1",
        "{\"a\"}",
        "{\"a\":1",
        "1 2",
        "",
        &deep(65),
    ];
    let folder = tempfile::tempdir().unwrap();
    let file = put(
        folder.path(),
        "texts",
        json!(&texts[..]).to_string().as_bytes(),
    );
    let found = browser.run(&["json", file.to_str().unwrap()]);
    assert_eq!(found.len(), texts.len());
    for (text, found) in texts.iter().zip(&found) {
        let refused = strict::check_value(text).is_err();
        assert_eq!(found["refused"].is_string(), refused, "{text}: {found}");
        let number: Option<i128> = text.parse().ok().filter(|_| !refused);
        let exact = match number {
            Some(number) if number.abs() < 1 << 53 => json!(number as i64),
            Some(number) => json!(format!("{number}n")),
            None => continue,
        };
        assert_eq!(found["read"], exact, "{text}");
    }
}

#[test]
fn a_number_that_floating_point_would_round_is_compared_exactly() {
    let Some(browser) = Browser::find() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let book = Book::write(&[Act::Run(runs(4).remove(0)), Act::Checkpoint]);
    let good = book.export_all();
    let cause = |cause: &str| {
        with_last(&good, |body| {
            body.replacen("\"cause\":[]", &format!("\"cause\":[{cause}]"), 1)
        })
    };
    // As a floating-point number, the second is the position that frame names.
    let archives = [
        ("beyond 2^53", cause("9007199254740993")),
        ("beyond 2^64", cause("18446744073709551616")),
        ("below zero", cause("-1")),
    ];
    for (label, bytes) in &archives {
        assert_ne!(*bytes, good, "{label}");
        let outcome = verify(bytes, &ArchiveVerifyOptions::default());
        let said = browser.verify(&[put(folder.path(), "archive", bytes)], &[]);
        browser.agrees(&outcome, &said[0], label);
        assert_eq!(said[0]["sound"], false, "{label}: {said:?}");
    }
}

/// An archive whose last frame, the checkpoint, has another text between these two marks.
fn with_member(archive: &[u8], member: &str, change: impl Fn(&str) -> String) -> Vec<u8> {
    let mark = format!("\"{member}\":\"");
    let bent = with_last(archive, |body| {
        let from = body.rfind(&mark).unwrap() + mark.len();
        let to = from + body[from..].find('"').unwrap();
        format!(
            "{}{}{}",
            &body[..from],
            change(&body[from..to]),
            &body[to..]
        )
    });
    assert_ne!(bent, archive, "{member}");
    bent
}

#[test]
fn a_checkpoint_and_a_manifest_changed_member_by_member_get_the_verdicts_of_ktsu() {
    let Some(browser) = Browser::find() else {
        return;
    };
    let book = Book::write(&[Act::Run(runs(4).remove(0)), Act::Rotate, Act::Checkpoint]);
    let good = book.export_all();
    let turned = |text: &str| {
        let other = if text.starts_with('0') { "1" } else { "0" };
        format!("{other}{}", &text[1..])
    };
    let mut archives = vec![("nothing".to_owned(), good.clone())];
    for member in ["prev", "root", "key", "origin"] {
        archives.push((member.to_owned(), with_member(&good, member, turned)));
    }
    // The last letters of the signature, and of the root that it is over.
    let note = |from: &str, to: &str| with_member(&good, "note", |note| note.replacen(from, to, 1));
    let text = &book.notes[0];
    let (above, signature) = text.trim_end().rsplit_once(' ').unwrap();
    let letter = if signature.as_bytes()[40] == b'A' {
        "B"
    } else {
        "A"
    };
    let forged = format!("{}{letter}{}", &signature[..40], &signature[41..]);
    archives.push(("signature".to_owned(), note(signature, &forged)));
    let size = above.split('\n').nth(1).unwrap();
    archives.push(("size".to_owned(), note(&format!("\\n{size}\\n"), "\\n1\\n")));
    let dropped = runs(4)[0].stream.to_string();
    let without = without(&book, &good, |stream, _| stream == dropped);
    archives.push(("dropped run".to_owned(), without));
    let files = tar::read(&good).unwrap();
    let manifest: Value = serde_json::from_slice(&files[MANIFEST]).unwrap();
    for (member, value) in [
        ("blake3", json!("0".repeat(64))),
        ("sha256", json!("0".repeat(64))),
        ("bytes", json!(1)),
        ("derived", json!(true)),
    ] {
        let (mut files, mut manifest) = (files.clone(), manifest.clone());
        manifest["files"]["frames.csv"][member] = value;
        let text = serde_json::to_vec(&manifest).unwrap();
        files.insert(MANIFEST.to_owned(), text);
        archives.push((member.to_owned(), tar::write(&files).unwrap()));
    }
    let folder = tempfile::tempdir().unwrap();
    let paths = archives
        .iter()
        .map(|(name, bytes)| put(folder.path(), name, bytes));
    let said = browser.verify(&paths.collect::<Vec<_>>(), &[]);
    for ((label, bytes), said) in archives.iter().zip(&said) {
        let outcome = verify(bytes, &ArchiveVerifyOptions::default());
        browser.agrees(&outcome, said, label);
        assert_eq!(said["sound"] == true, label == "nothing", "{label}: {said}");
    }
}

/// The header of a tar file with another size, and the sum that belongs to it.
fn sized(archive: &[u8], digits: &[u8; 11]) -> Vec<u8> {
    let mut bytes = archive.to_vec();
    bytes[124..135].copy_from_slice(digits);
    bytes[148..156].copy_from_slice(b"        ");
    let sum: u32 = bytes[..512].iter().map(|byte| u32::from(*byte)).sum();
    bytes[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    bytes
}

#[test]
fn a_header_that_promises_more_than_there_is_is_refused_before_anything_is_read() {
    let Some(browser) = Browser::find() else {
        return;
    };
    let good = Book::unsigned(&runs(0)[0]).export_all();
    let folder = tempfile::tempdir().unwrap();
    let size = std::str::from_utf8(&good[124..135]).unwrap();
    let same = sized(&good, size.as_bytes().try_into().unwrap());
    assert_eq!(same, good);
    let huge = sized(&good, b"77777777777");
    let cut = &good[..good.len() - 512];
    let more = [&good[..], &[0; 512]].concat();
    for (label, bytes, reason) in [
        ("huge", &huge[..], "longer than the archive"),
        ("nothing", &[], "ends early"),
        ("cut", cut, "data after its end"),
        ("more", &more, "data after its end"),
    ] {
        let said = browser.verify(&[put(folder.path(), label, bytes)], &[]);
        let error = said[0]["error"].as_str().unwrap_or_default();
        assert!(error.contains(reason), "{label}: {said:?}");
        let outcome = verify(bytes, &ArchiveVerifyOptions::default());
        browser.agrees(&outcome, &said[0], label);
    }
}

#[test]
fn every_import_of_a_module_is_of_one_before_it() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/evidence/page");
    let joined = modules();
    let mut found = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|ending| ending != "js") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let title = text.lines().next().unwrap();
        let at = joined.find(title).expect("a module of the page");
        for line in text.lines().filter(|line| line.starts_with("import ")) {
            let (names, from) = line.split_once(" from \"./").expect("one line");
            let from = std::fs::read_to_string(path.with_file_name(&from[..from.len() - 2]));
            let from = from.unwrap();
            assert!(
                joined.find(from.lines().next().unwrap()).unwrap() < at,
                "{line}"
            );
            let names = names.trim_start_matches("import { ").trim_end_matches(" }");
            for name in names.split(", ") {
                let used = text.matches(name).count() > 1;
                assert!(
                    used && from.contains(&format!(" {name}")),
                    "{path:?}: {name}"
                );
            }
        }
        found += 1;
    }
    assert_eq!(found, 8);
    assert_eq!(sha256().len(), 64);
    assert!(verifier_page().text.contains(&joined));
}
