//! The independent verifier as files: short enough to be read, each pinned by the one that is run,
//! which runs nothing else that lies beside it, and says what it cannot judge alone.

use std::path::{Path, PathBuf};
use std::process::Command;

use ktsu_evidence::check::{ArchiveVerifyOptions, verify};
use ktsu_evidence::tar;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::book::{Act, Book, rechained, repacked};
use super::{Python, put, verdict};
use crate::golden::goldens;

const PARTS: [&str; 13] = [
    "verify.py",
    "verify_content.py",
    "verify_outputs.py",
    "verify_signed.py",
    "verify_calls.py",
    "verify_evals.py",
    "verify_commands.py",
    "verify_repeated.py",
    "verify_reviews.py",
    "verify_suspensions.py",
    "verify_world.py",
    "verify_queue.py",
    "verify_values.py",
];
const OF_CONTENT: [&str; 6] = [
    "blobs",
    "completeness",
    "extracts",
    "definitions",
    "lock",
    "verifier",
];
const OF_CALLS: [&str; 2] = ["approvals", "tools"];
const OF_SIGNED: [&str; 5] = ["inclusion", "signatures", "rotation", "key", "held"];

fn source(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/evidence");
    std::fs::read_to_string(folder.join(name)).unwrap()
}

#[test]
fn each_file_of_the_verifier_can_be_read_and_is_the_one_that_is_pinned() {
    let whole = source("verify.py");
    for name in PARTS {
        let text = source(name);
        assert!(text.lines().count() <= 520, "{name} has too many lines");
        let wide = text.lines().find(|line| line.chars().count() > 100);
        assert_eq!(wide, None, "{name} has a line that is too wide");
        let digest = Sha256::digest(text.as_bytes());
        let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        let pinned = whole.contains(&format!("    \"{name}\": \"{digest}\",\n"));
        assert!(
            pinned || name == "verify.py",
            "PARTS of verify.py has to say that {name} is {digest}"
        );
    }
    let guide = Sha256::digest(source("VERIFY.md").as_bytes());
    let guide: String = guide.iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(
        source("verify_content.py").contains(&format!("GUIDE = \"{guide}\"\n")),
        "GUIDE of verify_content.py has to say that VERIFY.md is {guide}"
    );
}

#[test]
fn an_archive_has_the_whole_verifier_and_names_it() {
    let run = goldens().swap_remove(0).1;
    let files = tar::read(&Book::unsigned(&run).export_all()).unwrap();
    let manifest: Value = serde_json::from_slice(&files["manifest.json"]).unwrap();
    for name in PARTS {
        assert_eq!(files[name], source(name).into_bytes());
        assert!(manifest["files"][name].is_object(), "{name}");
    }
}

/// A folder with some files of the verifier, and an archive in which a decision was changed by
/// somebody with every key.
struct Desk {
    folder: tempfile::TempDir,
    archive: PathBuf,
    key: PathBuf,
    program: String,
}

impl Desk {
    /// None where there is no Python.
    fn with(parts: &[&str]) -> Option<Self> {
        let python = Python::find()?;
        let golden = goldens();
        let mut runs = golden.into_iter();
        let (_, run) = runs.find(|(name, _)| name == "v1-tool-approved").unwrap();
        let changed = rechained(&run, |place, body| match place {
            10 => body.replacen("\"approved\"", "\"rejected\"", 1),
            _ => body,
        });
        let book = Book::write(&[Act::Run(changed), Act::Checkpoint]);
        let folder = tempfile::tempdir().unwrap();
        for part in parts {
            std::fs::write(folder.path().join(part), source(part)).unwrap();
        }
        let key = book.first_key().to_string();
        Some(Self {
            archive: put(folder.path(), "archive", &book.export_all()),
            key: put(folder.path(), "key", key.as_bytes()),
            folder,
            program: python.program,
        })
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// What it says, as an auditor starts it: in the folder, without options of Python.
    fn says(&self) -> Value {
        let mut command = Command::new(&self.program);
        command.current_dir(self.folder.path());
        let output = command
            .args(["verify.py", "--json"])
            .arg(&self.archive)
            .output();
        let output = output.unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.is_empty(), "{errors}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn reason(said: &Value, claim: &str) -> String {
        let mut claims = said["claims"].as_array().unwrap().iter();
        let found = claims.find(|one| one["claim"] == claim).unwrap();
        found["reason"].as_str().unwrap().to_owned()
    }
}

#[test]
fn without_its_parts_the_verifier_calls_nothing_proven_that_they_judge() {
    let Some(desk) = Desk::with(&PARTS) else {
        return;
    };
    let whole = desk.says();
    assert_eq!(verdict(&whole, "approvals"), "failed", "{whole}");
    assert_eq!(verdict(&whole, "signatures"), "proven", "{whole}");
    for (missing, unknown) in [
        ("verify_calls.py", &OF_CALLS[..]),
        ("verify_signed.py", &OF_SIGNED[..]),
        ("verify_content.py", &OF_CONTENT[..]),
        ("verify_outputs.py", &["outputs"][..]),
        ("verify_reviews.py", &["outputs"][..]),
        ("verify_suspensions.py", &["outputs"][..]),
        ("verify_world.py", &["world"][..]),
        ("verify_queue.py", &["world"][..]),
        ("verify_values.py", &["world"][..]),
        ("verify_evals.py", &["evals"][..]),
    ] {
        let there = PARTS.iter().filter(|part| **part != missing);
        let there: Vec<&str> = there.copied().collect();
        let desk = Desk::with(&there).unwrap();
        let said = desk.says();
        for one in unknown {
            assert_eq!(verdict(&said, one), "not_covered", "{one}: {said}");
            let reason = format!("{missing} is not beside this file");
            assert_eq!(Desk::reason(&said, one), reason);
        }
        let all = said["claims"].as_array().unwrap();
        let whole = whole["claims"].as_array().unwrap();
        for (ours, theirs) in whole.iter().zip(all) {
            let name = ours["claim"].as_str().unwrap();
            let known = !unknown.contains(&name) && name != "completeness";
            assert!(!known || ours == theirs, "{name}: {said}");
        }
    }
    let desk = Desk::with(&["verify.py"]).unwrap();
    let said = desk.says();
    let unknown = OF_CALLS.iter().chain(&OF_SIGNED).chain(&OF_CONTENT);
    for one in unknown.chain(&["outputs", "world", "evals"]) {
        assert_eq!(verdict(&said, one), "not_covered", "{one}: {said}");
    }
    // A question that nobody can answer is not left unanswered in silence.
    let mut command = Command::new(&desk.program);
    command.current_dir(desk.folder.path()).arg("verify.py");
    let output = command.arg(&desk.archive).arg("--key").arg(&desk.key);
    let output = output.output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(
        errors.contains("verify_signed.py is not beside"),
        "{errors}"
    );
}

#[test]
fn nothing_that_an_archive_could_have_put_beside_the_verifier_is_run() {
    let Some(desk) = Desk::with(&PARTS) else {
        return;
    };
    let honest = desk.says();
    let mark = "open('ran', 'a').write(__name__)\n";
    for name in [
        "json",
        "base64",
        "argparse",
        "types",
        "blake3",
        "verify",
        "sitecustomize",
    ] {
        if name != "verify" {
            desk.write(&format!("{name}.py"), mark);
        }
        desk.write(&format!("{name}/__init__.py"), mark);
    }
    assert_eq!(desk.says(), honest);
    desk.write("verify_calls.py", mark);
    let said = desk.says();
    for one in OF_CALLS {
        assert_eq!(verdict(&said, one), "not_covered", "{said}");
        let reason = "verify_calls.py beside this file is not the one that belongs to it";
        assert_eq!(Desk::reason(&said, one), reason);
    }
    let ran = desk.folder.path().join("ran");
    assert!(!ran.exists(), "{}", std::fs::read_to_string(ran).unwrap());
    let left = desk.folder.path().join("__pycache__");
    assert!(!left.exists(), "something is left behind");
}

#[test]
fn an_archive_with_the_verifier_in_one_file_is_still_one() {
    let run = goldens().swap_remove(0).1;
    let book = Book::write(&[Act::Run(run), Act::Checkpoint]);
    let old = repacked(&book.export_all(), |files| {
        files.retain(|name, _| !PARTS[1..].contains(&name.as_str()));
        files.insert(
            "verify.py".to_owned(),
            b"print('nothing failed')\n".to_vec(),
        );
    });
    let outcome = verify(&old, &ArchiveVerifyOptions::default()).unwrap();
    assert!(outcome.is_sound(), "{outcome:?}");
    let Some(python) = Python::find() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let said = python.verify(&[put(folder.path(), "old", &old)], &[]);
    assert_eq!(said[0]["sound"], true, "{said:?}");
    python.agrees(&outcome.claims, &said[0], "an old archive");
}

/// As on a machine where the package is not installed.
#[test]
fn without_blake3_what_is_not_covered_is_said_first_and_a_required_chain_is_a_failure() {
    let Some(python) = Python::find() else { return };
    let folder = tempfile::tempdir().unwrap();
    let run = goldens().swap_remove(0).1;
    let archive = put(folder.path(), "run", &Book::unsigned(&run).export_all());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/evidence/verify.py");
    let verify = |required: &[&str]| {
        let start = "import runpy, sys; sys.modules['blake3'] = None; sys.argv = sys.argv[1:]; \
                     runpy.run_path(sys.argv[0], run_name='__main__')";
        let mut command = Command::new(&python.program);
        command.args(["-c", start]).arg(&script).arg(&archive);
        let output = command.args(required).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (
            output.status.code(),
            text(output.stdout),
            text(output.stderr),
        )
    };
    let (code, said, _) = verify(&[]);
    assert_eq!(code, Some(0), "{said}");
    let mut lines = said.lines();
    let first = lines.next().unwrap();
    assert!(
        first.contains("nothing failed; not covered: chain, blobs"),
        "{first}"
    );
    let second = lines.next().unwrap();
    assert!(second.starts_with("  not covered chain"), "{second}");
    assert!(
        second.contains("blake3 is not installed (pip install blake3)"),
        "{second}"
    );
    let (code, _, errors) = verify(&["--require", "manifest", "--require", "chain"]);
    assert_eq!(code, Some(1));
    assert!(
        errors.contains("required and not proven: 'chain'"),
        "{errors}"
    );
    assert_eq!(verify(&["--require", "manifest"]).0, Some(0));
}
