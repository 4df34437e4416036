//! Judging a run that has ended, and what is read of it.

use ktsu_api::checks;
use ktsu_history::checked_run::CheckedRun;
use ktsu_history::evals::{self, CheckedScenario};
use ktsu_ledger::StreamId;
use ktsu_orchestrator::ReadKind;

use super::super::super::{Failure, check};
use super::super::ended::EndedRun;
use super::super::suites::SuiteFile;
use super::Bench;

impl Bench<'_> {
    /// Makes the checks of a run, unless there is an error instead. Its folder is gone afterwards.
    pub(super) async fn check(
        &self,
        mut ended: EndedRun,
        suite: &SuiteFile,
    ) -> Result<(EndedRun, CheckedScenario), Failure> {
        let run = ended.run.clone();
        let readers = self.engine.orchestrator.readers();
        let refused = |error| check::refusal(error, run.name(), "");
        let invariants = match ended.error {
            Some(_) => Vec::new(),
            None => suite.file.spec.invariants.clone(),
        };
        let asked = run.clone();
        let Some(folder) = ended.folder.take() else {
            let checked = readers.with_kind(ReadKind::Search, move |reader| {
                evals::check(reader, &asked, &invariants, None)
            });
            return Ok((ended, checked.await.map_err(refused)?));
        };
        let read = readers.with_kind(ReadKind::Search, move |reader| {
            CheckedRun::read(reader, &asked, None)
        });
        let (read, asked) = (read.await.map_err(refused)?, run.clone());
        let orchestrator = self.engine.orchestrator.clone();
        // Programs take minutes, and there are few readers.
        let judged = tokio::task::spawn_blocking(move || {
            let (change, workspace) = folder.judged()?;
            let mut checked = evals::check_read(read, &asked, &invariants, Some(&*workspace));
            checks::redact(&orchestrator, &invariants, &mut checked.results);
            checked.started.workspace = Some(orchestrator.redacted_json(&change));
            Ok::<_, Failure>(checked)
        });
        Ok((ended, judged.await.map_err(Failure::of)??))
    }

    /// A run that has ended, without checks.
    pub(super) async fn recorded(&self, run: &StreamId) -> Result<CheckedScenario, Failure> {
        let asked = run.clone();
        let readers = self.engine.orchestrator.readers();
        let read = readers.with_kind(ReadKind::Run, move |reader| {
            evals::check(reader, &asked, &[], None)
        });
        let refused = |error| check::refusal(error, run.name(), "");
        read.await.map_err(refused)
    }

    /// What runs have cost, in millionths of a US dollar.
    pub(super) async fn cost_of(&self, runs: &[StreamId]) -> Result<u64, Failure> {
        let mut cost = 0_u64;
        for run in runs {
            let envelope = self.recorded(run).await?.envelope;
            let of_run = envelope["totals"]["cost_micro_usd"].as_u64();
            cost = cost.saturating_add(of_run.unwrap_or_default());
        }
        Ok(cost)
    }
}
