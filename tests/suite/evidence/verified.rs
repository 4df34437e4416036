//! `ktsu verify` of runs that load worlds, with the chain made whole again: what does not fold, and an
//! end that names another world.

use ktsu_history::verify;
use ktsu_ledger::Entry;
use ktsu_ledger::store::{SqliteStore, Store as _};
use ktsu_ledger::verify::{ProblemKind, VerifyOptions, VerifyProblem};
use serde_json::{Value, json};

use super::mutants::{bodies, with};
use crate::support::ledgers::Recorded;
use crate::support::scenarios::worlds::{NAMES, record};

/// What is found in a ledger with this run alone. Its row, which would differ, is left out.
fn problems(run: &Recorded) -> Vec<VerifyProblem> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let mut store = SqliteStore::open(&path).unwrap();
    let epoch = store.acquire().unwrap();
    let entry = Entry::from_records(&run.stream, run.records.clone(), run.blobs.clone());
    for outcome in store.append(epoch, &[entry.unwrap()]).unwrap() {
        outcome.unwrap();
    }
    drop(store);
    let report = verify::ledger(&path, &VerifyOptions::default(), &mut |_| {});
    report.unwrap().problems
}

fn edited(run: &Recorded, kind: &str, change: impl Fn(&mut Value)) -> (u64, Recorded) {
    let mut bodies = bodies(run);
    let at = bodies.iter().rposition(|body| body["type"] == kind);
    let at = at.unwrap();
    change(&mut bodies[at]["data"]);
    (at as u64, with(run, &bodies))
}

#[test]
fn a_run_that_loads_worlds_verifies_as_it_was_recorded_and_not_with_another_world_at_its_end() {
    for (name, end) in NAMES.into_iter().zip(["run.completed", "run.failed"]) {
        let run = record(name);
        assert_eq!(problems(&run), [], "{name}");
        let nothing = |data: &mut Value| drop(data.as_object_mut().unwrap().remove("world"));
        let other = |data: &mut Value| {
            let hash = data["world"].as_str().unwrap().replace("sha256:", "");
            let turned: String = hash.chars().rev().collect();
            data["world"] = json!(format!("sha256:{turned}"));
        };
        for change in [&nothing as &dyn Fn(&mut Value), &other] {
            let (at, forged) = edited(&run, end, change);
            let found = problems(&forged);
            assert_eq!(found.len(), 1, "{found:?}");
            assert_eq!(
                (found[0].kind, found[0].seq),
                (ProblemKind::Unreadable, Some(at))
            );
            assert!(
                found[0].message.contains("the world at the end is sha256:"),
                "{found:?}"
            );
        }
    }
}

/// Decision F8: refused when appending, found where it was appended all the same.
#[test]
fn a_patch_of_an_object_that_does_not_exist_is_found_by_verify() {
    let run = record("worlds");
    let (at, forged) = edited(&run, "object.patched", |data| {
        data["id"] = json!("Service-0")
    });
    let found = problems(&forged);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(
        (found[0].kind, found[0].seq),
        (ProblemKind::Unreadable, Some(at))
    );
    assert!(
        found[0]
            .message
            .contains("there is no object \"Service-0\""),
        "{found:?}"
    );
}
