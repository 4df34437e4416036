//! Runs that load worlds, as evidence: what somebody writes who has the operator's key, and makes the
//! chain whole again, is found by both verifiers, but for what no record can show, and for what only
//! deciding again shows.

use ktsu_evidence::check::ClaimVerdict;
use ktsu_ledger::Hash;
use serde_json::{Value, json};

use super::book::{Act, Book};
use super::forgeries::{claim, judged};
use super::mutants::{arranged, bodies, with};
use crate::support::ledgers::Recorded;
use crate::support::scenarios::worlds::record;

/// What becomes of a run with these frames, signed by whoever has the key.
fn found(told: &str, run: Recorded) -> (ClaimVerdict, ClaimVerdict) {
    let book = Book::write(&[Act::Run(run), Act::Checkpoint]);
    let key = book.first_key();
    let outcome = judged(told, &book.export_all(), &book.notes[0], Some(&key));
    for whole in ["manifest", "chain", "inclusion", "signatures", "key"] {
        assert_eq!(
            claim(&outcome, whole),
            ClaimVerdict::Proven,
            "{told}: {outcome:?}"
        );
    }
    (claim(&outcome, "world"), claim(&outcome, "replay"))
}

#[test]
fn honest_runs_that_load_worlds_are_proven() {
    for name in crate::support::scenarios::worlds::NAMES {
        let verdicts = found(name, record(name));
        assert_eq!(verdicts, (ClaimVerdict::Proven, ClaimVerdict::Proven), "{name}");
    }
}
