//! What an operator with every key writes instead of a review, and who finds it.

use ktsu_evidence::check::{ArchiveVerifyOptions, ClaimVerdict, EvidenceReport, verify};
use serde_json::{Value, json};

use super::super::book::Book;
use super::super::forgeries::claim;
use super::super::mutants::{arranged, bodies, with};
use super::super::{Python, put, verdict};
use crate::support::ledgers::Recorded;
use crate::support::scenarios::reviews::Reviewed;

/// The first frame of a type that fits.
pub(in super::super) fn find(all: &[Value], kind: &str, fits: impl Fn(&Value) -> bool) -> usize {
    let found = all.iter().position(|one| one["type"] == kind && fits(one));
    found.unwrap_or_else(|| panic!("no such {kind}"))
}

pub(in super::super) fn any(_: &Value) -> bool {
    true
}

/// The place of the command of a type of the judge.
pub(in super::super) fn command(all: &[Value], kind: &str) -> usize {
    find(all, "command.requested", |one| one["data"]["type"] == kind)
}

/// The place of a frame about the judged step.
pub(in super::super) fn of_judge(all: &[Value], kind: &str) -> usize {
    find(all, kind, |one| {
        one["scope"] == "" && one["data"]["step"] == "a"
    })
}

/// A run, and what an operator makes of it.
pub(in super::super) struct Forge {
    pub(in super::super) run: Recorded,
    pub(in super::super) all: Vec<Value>,
}

impl Forge {
    pub(in super::super) async fn of(reviewed: &Reviewed) -> Self {
        Self::of_run(reviewed.record().await)
    }

    pub(in super::super) fn of_run(run: Recorded) -> Self {
        let all = bodies(&run);
        Self { run, all }
    }

    pub(in super::super) fn data(&self, kind: &str) -> Value {
        self.all[find(&self.all, kind, any)]["data"].clone()
    }

    /// With some frames changed.
    pub(in super::super) fn changed(&self, change: impl FnOnce(&mut Vec<Value>)) -> Recorded {
        let mut all = self.all.clone();
        change(&mut all);
        assert_ne!(all, self.all, "nothing is changed");
        with(&self.run, &all)
    }

    /// With what the first frame of a type says changed.
    pub(in super::super) fn told(&self, kind: &str, change: impl FnOnce(&mut Value)) -> Recorded {
        let at = find(&self.all, kind, any);
        self.changed(|all| change(&mut all[at]["data"]))
    }

    /// Without some frames.
    pub(in super::super) fn without(&self, gone: &[usize]) -> Recorded {
        let kept = (0..self.all.len()).filter(|at| !gone.contains(at));
        arranged(&self.run, &kept.collect::<Vec<_>>())
    }

    /// With a frame moved to before another.
    pub(in super::super) fn moved(&self, from: usize, before: usize) -> Recorded {
        let mut order: Vec<usize> = (0..self.all.len()).collect();
        order.remove(from);
        let to = order.iter().position(|one| *one == before).unwrap();
        order.insert(to, from);
        arranged(&self.run, &order)
    }

    /// With one more frame behind another: of another type, about the same.
    pub(in super::super) fn with_more(&self, behind: usize, kind: &str, data: Value) -> Recorded {
        let mut order: Vec<usize> = (0..self.all.len()).collect();
        order.insert(behind + 1, (behind + 1).min(self.all.len() - 1));
        let run = arranged(&self.run, &order);
        let mut all = bodies(&run);
        all[behind + 1] = all[behind].clone();
        all[behind + 1]["actor"] = json!("orchestrator");
        all[behind + 1]["type"] = json!(kind);
        all[behind + 1]["data"] = data;
        (all[behind + 1]["seq"], all[behind + 1]["cause"]) = (json!(behind + 1), json!([behind]));
        with(&run, &all)
    }

    /// A command of the judge's outcome, as it would be carried out.
    pub(in super::super) fn emit(&self) -> Value {
        let finished = of_judge(&self.all, "agent.finished");
        let mut data = self.all[command(&self.all, "review")]["data"].clone();
        data["command"] = json!({"frame": finished, "path": "/outcome/commands/0"});
        (data["index"], data["type"], data["topic"]) =
            (json!(0), json!("emit"), json!("claim.judged"));
        data
    }
}

/// What ktsu and, where there is one, the independent verifier say of a run.
pub(in super::super) fn judged(run: &Recorded) -> (EvidenceReport, Option<Value>) {
    let bytes = Book::unsigned(run).export_all();
    let outcome = verify(&bytes, &ArchiveVerifyOptions::default()).unwrap();
    let said = Python::find().map(|python| {
        let folder = tempfile::tempdir().unwrap();
        python
            .verify(&[put(folder.path(), "run", &bytes)], &[])
            .remove(0)
    });
    (outcome, said)
}

/// Which verifiers do not find these forgeries by the claims that they belong to.
pub(in super::super) fn missed(forgeries: Vec<(&str, &str, Recorded)>) -> Vec<String> {
    let mut missed = Vec::new();
    for (told, name, run) in forgeries {
        let (outcome, said) = judged(&run);
        let whole = [claim(&outcome, "chain"), claim(&outcome, "blobs")];
        assert_eq!(whole, [ClaimVerdict::Proven; 2], "{told}: {outcome:?}");
        if claim(&outcome, name) != ClaimVerdict::Failed {
            missed.push(format!("ktsu, {name}: {told}"));
        }
        if said.is_some_and(|said| verdict(&said, name) != "failed") {
            missed.push(format!("verify.py, {name}: {told}"));
        }
    }
    missed
}
