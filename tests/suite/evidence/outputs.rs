//! Outputs held against replies and answers; tables made again; the verifier in an archive; and
//! archives that are larger than what anybody holds in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufWriter, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use ktsu_evidence::archive::{FRAMES, FileDigester, MANIFEST, Manifest, PLACES, Range, describe};
use ktsu_evidence::check::{ArchiveVerifyOptions, ClaimVerdict, EvidenceReport, verify};
use ktsu_evidence::tar::{self, Files};
use ktsu_ledger::Hash;

use super::book::{Act, Book, rechained, repacked};
use super::mutants::{arranged, bodies, with};
use super::{Python, put, verdict};
use crate::golden::goldens;
use crate::support::ledgers::Recorded;

fn golden(name: &str) -> Recorded {
    let mut all = goldens().into_iter();
    all.find(|(golden, _)| golden == name).unwrap().1
}

fn archive(run: Recorded) -> Vec<u8> {
    Book::write(&[Act::Run(run), Act::Checkpoint]).export_all()
}

fn of(outcome: &EvidenceReport, claim: &str) -> ClaimVerdict {
    let mut claims = outcome.claims.iter();
    claims.find(|one| one.claim == claim).unwrap().verdict
}

fn reason(outcome: &EvidenceReport, claim: &str) -> String {
    let mut claims = outcome.claims.iter();
    claims
        .find(|one| one.claim == claim)
        .unwrap()
        .reason
        .clone()
}

/// A golden run with one frame of a type changed, and everything that hangs from its bytes.
fn changed(name: &str, kind: &str, from: &str, to: &str) -> Recorded {
    let run = golden(name);
    let kind = format!("\"type\":\"{kind}\"");
    let holds = |body: &str| body.contains(&kind) && body.contains(from);
    let place = run.records.iter().position(|one| holds(&one.body));
    let place = place.unwrap_or_else(|| panic!("{name}: no {kind} has {from}"));
    rechained(&run, |at, body| match at == place {
        true => body.replacen(from, to, 1),
        false => body,
    })
}

#[test]
fn an_output_that_no_reply_and_no_answer_gave_is_found_by_both_verifiers() {
    let honest = [
        golden("v1-agent-plain"),
        golden("v1-agent-reflect"),
        golden("v1-agent-repair"),
        golden("v1-agent-fan-out"),
        golden("v1-conditions"),
    ];
    let forged = [
        // What the agent is said to have given.
        changed(
            "v1-agent-plain",
            "agent.finished",
            "\"answer\":\"sure\"",
            "\"answer\":\"no\"",
        ),
        changed(
            "v1-agent-repair",
            "agent.finished",
            "\"answer\":\"",
            "\"answer\":\"not ",
        ),
        // What its step is said to have left out of that, or where it stands.
        changed(
            "v1-agent-plain",
            "step.completed",
            "\"ktsu_zzz\"",
            "\"ktsu_zzy\"",
        ),
        changed(
            "v1-agent-plain",
            "step.completed",
            "\"frame\":6",
            "\"frame\":5",
        ),
        // How its webhook is said to have been answered.
        changed(
            "v1-conditions",
            "step.completed",
            "\"status_code\":200",
            "\"status_code\":201",
        ),
    ];
    let python = Python::find();
    let folder = tempfile::tempdir().unwrap();
    let (mut archives, mut outcomes) = (Vec::new(), Vec::new());
    for (number, run) in honest.iter().chain(&forged).enumerate() {
        let bytes = archive(run.clone());
        let outcome = verify(&bytes, &ArchiveVerifyOptions::default()).unwrap();
        let expected = match number < honest.len() {
            true => ClaimVerdict::Proven,
            false => ClaimVerdict::Failed,
        };
        assert_eq!(of(&outcome, "outputs"), expected, "{number}: {outcome:?}");
        archives.push(put(folder.path(), &number.to_string(), &bytes));
        outcomes.push(outcome);
    }
    let Some(python) = python else { return };
    for (said, outcome) in python.verify(&archives, &[]).iter().zip(&outcomes) {
        python.agrees(&outcome.claims, said, "outputs");
    }
}

#[test]
fn what_expressions_made_is_said_to_be_not_covered_where_no_one_evaluates_them() {
    let run = changed(
        "v1-agent-plain",
        "run.completed",
        "\"after sure\"",
        "\"after all\"",
    );
    let bytes = archive(run);
    let outcome = verify(&bytes, &ArchiveVerifyOptions::default()).unwrap();
    assert_eq!(of(&outcome, "replay"), ClaimVerdict::Failed);
    let Some(python) = Python::find() else { return };
    let folder = tempfile::tempdir().unwrap();
    let said = python.verify(&[put(folder.path(), "run", &bytes)], &[]);
    assert_eq!(verdict(&said[0], "outputs"), "not_covered", "{said:?}");
    let claims = said[0]["claims"].as_array().unwrap();
    let outputs = claims.iter().find(|one| one["claim"] == "outputs").unwrap();
    let words = outputs["reason"].as_str().unwrap();
    assert!(words.contains("computed by expressions"), "{words}");
}

/// A secret stood where the reply had the answer: what the agent gave may be right or wrong.
#[test]
fn an_output_whose_reply_is_hidden_is_said_to_be_not_covered_by_both_verifiers() {
    let said = "\\\"answer\\\":\\\"sure\\\"";
    let hidden = said.replace("sure", "[REDACTED]");
    let bytes = archive(changed("v1-agent-plain", "llm.response", said, &hidden));
    let words = "its reply, as it is recorded, is not such an object";
    let outcome = verify(&bytes, &ArchiveVerifyOptions::default()).unwrap();
    assert_eq!(of(&outcome, "outputs"), ClaimVerdict::NotCovered);
    let why = reason(&outcome, "outputs");
    assert!(why.contains(words), "{why}");
    let Some(python) = Python::find() else { return };
    let folder = tempfile::tempdir().unwrap();
    let said = python.verify(&[put(folder.path(), "run", &bytes)], &[]);
    assert_eq!(verdict(&said[0], "outputs"), "not_covered", "{said:?}");
    let claims = said[0]["claims"].as_array().unwrap();
    let outputs = claims.iter().find(|one| one["claim"] == "outputs").unwrap();
    let why = outputs["reason"].as_str().unwrap();
    assert!(why.contains(words), "{why}");
}

/// The frame is dropped, its report is that of the next one, and the chain is whole.
#[test]
fn an_end_for_a_budget_that_no_frame_says_was_used_up_is_found_by_both_verifiers() {
    let folder = tempfile::tempdir().unwrap();
    for (name, claim) in [
        ("v2-agent-budget", "outputs"),
        ("v3-worlds-exhausted", "world"),
    ] {
        let run = golden(name);
        let (honest, all) = (archive(run.clone()), bodies(&run));
        let used_up = all.iter().position(|one| one["type"] == "budget.exhausted");
        let used_up = used_up.unwrap();
        let kept: Vec<usize> = (0..all.len()).filter(|at| *at != used_up).collect();
        let mut whole = bodies(&arranged(&run, &kept));
        if all[used_up]["data"].get("report").is_some() {
            whole[used_up]["data"]["report"]["n"] = all[used_up]["data"]["report"]["n"].clone();
        }
        let forged = archive(with(&run, &whole));
        let verdicts = [&honest, &forged].map(|bytes| {
            let outcome = verify(bytes, &ArchiveVerifyOptions::default()).unwrap();
            assert_eq!(of(&outcome, "chain"), ClaimVerdict::Proven, "{name}");
            outcome.is_sound()
        });
        assert_eq!(verdicts, [true, false], "{name}");
        let Some(python) = Python::find() else {
            continue;
        };
        let archives = [("honest", &honest), ("forged", &forged)];
        let archives = archives.map(|(told, bytes)| put(folder.path(), told, bytes));
        let said = python.verify(&archives, &[]);
        assert_eq!(said[0]["sound"], true, "{name}: {}", said[0]);
        assert_eq!(verdict(&said[1], claim), "failed", "{name}: {}", said[1]);
    }
}

/// Earlier exports have a timeline without a policy for browsers, which is right all the same.
#[test]
fn a_timeline_of_an_earlier_version_is_what_the_frames_say() {
    let good = archive(golden("v1-agent-plain"));
    let earlier = repacked(&good, |files| {
        let timeline = files.get_mut("derived/timeline.html").unwrap();
        let text = String::from_utf8(timeline.clone()).unwrap();
        let lines = text
            .lines()
            .filter(|line| !line.starts_with("<meta http-equiv"));
        let text: String = lines.map(|line| format!("{line}\n")).collect();
        *timeline = text.into_bytes();
    });
    let outcome = verify(&earlier, &ArchiveVerifyOptions::default()).unwrap();
    assert_eq!(of(&outcome, "derived"), ClaimVerdict::Proven);
}

#[test]
fn tables_for_people_are_repeated_and_compared() {
    let good = archive(golden("v1-agent-plain"));
    let outcome = verify(&good, &ArchiveVerifyOptions::default()).unwrap();
    assert_eq!(of(&outcome, "derived"), ClaimVerdict::Proven);
    let names = [
        "derived/costs.csv",
        "derived/changes.csv",
        "derived/approvals.csv",
        "derived/tools.csv",
        "derived/timeline.html",
    ];
    for name in names {
        let forged = repacked(&good, |files| {
            files
                .get_mut(name)
                .unwrap()
                .extend_from_slice(b"run:run_x,1,2,3,4\n");
        });
        let outcome = verify(&forged, &ArchiveVerifyOptions::default()).unwrap();
        assert_eq!(of(&outcome, "derived"), ClaimVerdict::Failed, "{name}");
        assert!(reason(&outcome, "derived").starts_with(name));
    }
    let more = repacked(&good, |files| {
        // A browser does nothing with the timeline but show it.
        let timeline = String::from_utf8(files["derived/timeline.html"].clone()).unwrap();
        assert!(timeline.contains("Content-Security-Policy"), "{timeline}");
        assert!(timeline.contains("default-src 'none'"), "{timeline}");
        files.insert("derived/verdict.html".to_owned(), b"all is well".to_vec());
    });
    assert_eq!(
        of(
            &verify(&more, &ArchiveVerifyOptions::default()).unwrap(),
            "derived"
        ),
        ClaimVerdict::Failed
    );
    // Another version may make other tables: then it is said aloud that nobody looked.
    let older = repacked(&good, |files| {
        files.insert("derived/costs.csv".to_owned(), b"of old\n".to_vec());
        let mut manifest: Manifest = serde_json::from_slice(&files[MANIFEST]).unwrap();
        manifest.engine = "ktsu 0.0.9".to_owned();
        files.insert(MANIFEST.to_owned(), serde_json::to_vec(&manifest).unwrap());
    });
    let outcome = verify(&older, &ArchiveVerifyOptions::default()).unwrap();
    assert_eq!(of(&outcome, "derived"), ClaimVerdict::NotCovered);
    assert!(reason(&outcome, "derived").contains("ktsu 0.0.9"));
}

#[test]
fn a_verifier_or_a_guide_that_no_one_knows_is_said_to_be_not_covered() {
    let good = archive(golden("v1-agent-plain"));
    let outcome = verify(&good, &ArchiveVerifyOptions::default()).unwrap();
    assert_eq!(of(&outcome, "verifier"), ClaimVerdict::Proven);
    let folder = tempfile::tempdir().unwrap();
    let mut archives = vec![put(folder.path(), "good", &good)];
    for (number, name) in ["verify.py", "VERIFY.md", "verify_calls.py", "other.py"]
        .iter()
        .enumerate()
    {
        let forged = repacked(&good, |files| {
            files.insert((*name).to_owned(), b"print('nothing failed')\n".to_vec());
        });
        let outcome = verify(&forged, &ArchiveVerifyOptions::default()).unwrap();
        assert_eq!(of(&outcome, "verifier"), ClaimVerdict::NotCovered, "{name}");
        assert!(reason(&outcome, "verifier").starts_with(name), "{name}");
        archives.push(put(folder.path(), &number.to_string(), &forged));
    }
    let Some(python) = Python::find() else { return };
    for (number, said) in python.verify(&archives, &[]).iter().enumerate() {
        let expected = if number == 0 { "proven" } else { "not_covered" };
        assert_eq!(verdict(said, "verifier"), expected, "{said}");
    }
}

#[test]
fn the_independent_verifier_says_with_its_exit_code_that_it_came_to_no_verdict() {
    let Some(python) = Python::find() else { return };
    let folder = tempfile::tempdir().unwrap();
    let good = put(folder.path(), "good", &archive(golden("v1-agent-plain")));
    let none = put(folder.path(), "none", b"no archive");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/evidence/verify.py");
    let run = |archives: &[&PathBuf], before: &str| {
        let mut command = Command::new(&python.program);
        // As `python3 verify.py`, with something in its way.
        let start = "import runpy, sys; sys.argv = sys.argv[1:]; exec(sys.argv.pop(0)); \
                     runpy.run_path(sys.argv[0], run_name='__main__')";
        command
            .args(["-c", start, before])
            .arg(&script)
            .args(archives);
        let output = command.output().unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    assert_eq!(run(&[&good], "pass").0, Some(0));
    assert_eq!(run(&[&none, &good], "pass").0, Some(2));
    assert_eq!(run(&[&folder.path().join("nothing")], "pass").0, Some(2));
    // A defect of its own, a machine without memory, a reader that is gone: no verdict.
    for broken in [
        "import hashlib; hashlib.sha256 = None",
        "import json\ndef none(*_, **__): raise MemoryError()\njson.loads = none",
        "import sys; sys.version_info = (3, 7)",
    ] {
        let (code, errors) = run(&[&good], broken);
        assert_eq!(code, Some(2), "{broken}: {errors}");
        assert!(!errors.contains("Traceback"), "{broken}: {errors}");
    }
}

/// How large the archive is that is verified piece by piece, in MiB.
const LARGE: u64 = 192;
/// Says otherwise: `4096` is what the promise is about.
const LARGE_VARIABLE: &str = "KTSU_TEST_LARGE_ARCHIVE_MIB";
/// The most memory that a verifier may have taken, in KiB.
const MAX_RESIDENT: u64 = 128 * 1024;

/// The length of a text in a frame: close to the most that a frame may have.
const TEXT: usize = 200 * 1024;

/// The header of a file in an archive.
fn header(name: &str, size: u64) -> Vec<u8> {
    let file = Files::from([(name.to_owned(), Vec::new())]);
    let mut header = tar::write(&file).unwrap();
    header.truncate(512);
    header[124..135].copy_from_slice(format!("{size:011o}").as_bytes());
    header[148..156].copy_from_slice(b"        ");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    header
}

/// A good archive, and with it a run of frames that are as large as they may be, and a blob; all of
/// it written piece by piece.
fn large(path: &Path, mib: u64) {
    let blob = (mib - mib / 8) * 1024 * 1024;
    let (mut zeros, none) = (FileDigester::default(), vec![0; 1024 * 1024]);
    (0..blob / (1024 * 1024)).for_each(|_| zeros.take(&none));
    let blob_hash = zeros.finish("").blake3;
    let blob_name = format!("blobs/{blob_hash}.json");
    let mut files = tar::read(&archive(golden("v1-agent-plain"))).unwrap();
    let mut manifest: Manifest = serde_json::from_slice(&files[MANIFEST]).unwrap();
    let (mut bodies, mut places) = (files.remove(FRAMES).unwrap(), files.remove(PLACES).unwrap());
    let known = u64::try_from(bodies.iter().filter(|byte| **byte == b'\n').count()).unwrap();
    let beside = path.with_extension("frames");
    let mut out = BufWriter::new(File::create(&beside).unwrap());
    let mut described = FileDigester::default();
    let count = mib * 1024 * 1024 / 8 / TEXT as u64;
    let (text, mut prev) = ("x".repeat(TEXT), Hash::ZERO);
    for seq in 0..count {
        let (text, ext) = match seq {
            0 => (
                "null".to_owned(),
                format!(r#"{{"bytes":{blob},"hash":"{blob_hash}","path":"/text"}}"#),
            ),
            _ => (format!("{text:?}"), String::new()),
        };
        let body = format!(
            r#"{{"v":1,"stream":"run:run_large","seq":{seq},"type":"note.made","scope":"","actor":"orchestrator","cause":[],"at":"2027-01-15T08:00:00.000000Z","data":{{"text":{text}}},"ext":[{ext}],"prev":"{prev}"}}"#
        );
        prev = Hash::of(body.as_bytes());
        writeln!(places, "{},run:run_large,{seq},{prev}", known + seq + 1).unwrap();
        described.take(&bodies);
        out.write_all(&bodies).unwrap();
        bodies = format!("{body}\n").into_bytes();
    }
    described.take(&bodies);
    out.write_all(&bodies).unwrap();
    drop(out);
    let range = Range {
        first: 0,
        frames: count,
        head: prev,
    };
    manifest.streams.insert("run:run_large".to_owned(), range);
    manifest
        .files
        .insert(PLACES.to_owned(), describe(PLACES, &places));
    let frames = described.finish(FRAMES);
    let sizes = BTreeMap::from([(FRAMES.to_owned(), frames.bytes), (blob_name.clone(), blob)]);
    manifest.files.insert(FRAMES.to_owned(), frames);
    let mut zeros = FileDigester::default();
    (0..blob / (1024 * 1024)).for_each(|_| zeros.take(&none));
    manifest
        .files
        .insert(blob_name.clone(), zeros.finish(&blob_name));
    files.insert(PLACES.to_owned(), places);
    // Tables of another version: those of this one would have to tell of the large run.
    manifest.engine = "ktsu 0.0.9".to_owned();
    files.insert(MANIFEST.to_owned(), serde_json::to_vec(&manifest).unwrap());
    let mut out = File::create(path).unwrap();
    let names: BTreeSet<&String> = files.keys().chain(sizes.keys()).collect();
    for name in names {
        let size = sizes.get(name).copied();
        let size = size.unwrap_or_else(|| files[name].len() as u64);
        out.write_all(&header(name, size)).unwrap();
        match files.get(name) {
            Some(file) => out.write_all(file).unwrap(),
            None if *name == blob_name => {
                // Nothing is stored for what is nothing but zeros.
                out.seek(SeekFrom::Current(i64::try_from(size).unwrap()))
                    .unwrap();
            }
            None => {
                std::io::copy(&mut File::open(&beside).unwrap(), &mut out).unwrap();
            }
        }
        let padding = usize::try_from(size.next_multiple_of(512) - size).unwrap();
        out.write_all(&vec![0; padding]).unwrap();
    }
    out.write_all(&[0; 1024]).unwrap();
    std::fs::remove_file(beside).unwrap();
}

/// The most memory that a process had, in KiB, as the system counts it for those that ended.
fn resident(command: &mut Command) -> (Option<i32>, u64) {
    let folder = tempfile::tempdir().unwrap();
    let told = folder.path().join("told");
    let script = "import resource, subprocess, sys\n\
                  code = subprocess.run(sys.argv[2:], stdout=subprocess.DEVNULL).returncode\n\
                  most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss\n\
                  open(sys.argv[1], 'w').write('%d %d' % (code, most))";
    let mut measured = Command::new("python3");
    measured.args(["-c", script]).arg(&told);
    measured.arg(command.get_program()).args(command.get_args());
    assert!(measured.status().unwrap().success());
    let told = std::fs::read_to_string(told).unwrap();
    let (code, most) = told.split_once(' ').unwrap();
    (code.parse().ok(), most.parse().unwrap())
}

#[test]
fn a_large_archive_is_verified_in_little_memory_by_both_verifiers() {
    let mib = std::env::var(LARGE_VARIABLE).ok();
    let mib = mib.map_or(LARGE, |mib| mib.parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large.tar");
    large(&path, mib);
    let Some(python) = Python::find() else {
        eprintln!("no Python here: nobody measures");
        return;
    };
    let mut ours = Command::new(env!("CARGO_BIN_EXE_ktsu"));
    ours.args(["evidence", "verify"]).arg(&path);
    let mut theirs = Command::new(&python.program);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/evidence/verify.py");
    theirs.arg("-I").arg(script).arg(&path);
    for (who, command) in [("ktsu", &mut ours), ("verify.py", &mut theirs)] {
        let (code, most) = resident(command);
        assert_eq!(code, Some(0), "{who}");
        assert!(most < MAX_RESIDENT, "{who} took {most} KiB for {mib} MiB");
    }
}
