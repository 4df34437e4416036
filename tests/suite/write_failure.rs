//! A start whose files cannot be written: the words are about writing, and no damage is claimed.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::json;

use crate::support::KitDir;

const WORKFLOW: &str = "pipeline: [{id: t, transform: {inputs: [], ops: []}}]\n";

/// Runs the workflow where no file may grow beyond some blocks of 512 bytes; `None`: any size.
fn run(kit: &Path, ledger: &Path, most: Option<u64>) -> Output {
    let limit = most.map_or_else(String::new, |most| {
        // The signal would end the process before the system's refusal reaches it.
        format!("trap '' XFSZ; ulimit -f {most}; ")
    });
    Command::new("sh")
        .args(["-c", &format!("{limit}exec \"$@\""), "sh"])
        .arg(env!("CARGO_BIN_EXE_ktsu"))
        .arg("run")
        .arg(kit)
        .args(["w", "--input", &json!({}).to_string(), "--ledger"])
        .arg(ledger)
        .env_clear()
        .output()
        .unwrap()
}

#[test]
fn a_write_error_at_start_is_named_as_one_and_claims_no_damage() {
    let kit = KitDir::new(&[("w", WORKFLOW)]);
    let folder = tempfile::tempdir().unwrap();
    let ledger = folder.path().join("ledger.db");
    for begun in [false, true] {
        if begun {
            let whole = run(kit.dir.path(), &ledger, None);
            assert!(whole.status.success(), "{whole:?}");
        }
        let refused = run(kit.dir.path(), &ledger, Some(8));
        let words = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{words}");
        let said = "cannot write to the ledger: writing to its files failed";
        assert!(words.contains(said), "{words}");
        for other in ["damaged", "ktsu verify", "disk I/O error"] {
            assert!(!words.contains(other), "{words}");
        }
    }
    let later = run(kit.dir.path(), &ledger, None);
    assert!(later.status.success(), "{later:?}");
}
