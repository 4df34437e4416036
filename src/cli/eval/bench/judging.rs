//! Judging a run that has ended, and what is read of it.

use ktsu_api::checks;
use ktsu_api::judges::EvalLog;
use ktsu_eval::{ServiceRecords, Workspace};
use ktsu_history::checked_run::{CheckedRun, CheckedRunError};
use ktsu_history::evals::{self, BesideRun, CheckedScenario};
use ktsu_ledger::StreamId;
use ktsu_orchestrator::ReadKind;

use super::super::super::{Failure, check};
use super::super::ended::EndedReplica;
use super::super::folders::{KeptOfRun, RunFolder};
use super::super::suites::SuiteFile;
use super::SuiteRunner;

/// The record of what a run left, and the workspace for its checks.
type Left = (KeptOfRun, Option<Box<dyn Workspace + Send>>);

impl SuiteRunner<'_> {
    /// Makes the checks of a run, unless there is an error instead. Its folder is gone afterwards.
    pub(super) async fn check(
        &self,
        mut ended: EndedReplica,
        suite: &SuiteFile,
        (log, (scenario, replica)): (&EvalLog, (usize, u32)),
    ) -> Result<(EndedReplica, CheckedScenario), Failure> {
        let (run, spec) = (ended.run.clone(), &suite.file.spec);
        let refused = |error: CheckedRunError| check::refusal(error, run.name(), "");
        let invariants = match ended.error {
            Some(_) => Vec::new(),
            None => spec.invariants.clone(),
        };
        let (readers, asked) = (self.engine.orchestrator.readers(), run.clone());
        let folder = ended.folder.take();
        if folder.is_none() && (ended.error.is_some() || !spec.asks_models()) {
            let checked = readers.with_kind(ReadKind::Search, move |reader| {
                evals::check(reader, &asked, &invariants, None)
            });
            return Ok((ended, checked.await.map_err(refused)?));
        }
        let read = readers.with_kind(ReadKind::Search, move |reader| {
            CheckedRun::read(reader, &asked, None)
        });
        let read = read.await.map_err(refused)?;
        let (kept, workspace) = left(folder).await?;
        // What is recorded is what is checked, so that anyone can check it again.
        let redacted = |json| self.engine.orchestrator.redacted_json(&json);
        let kept = KeptOfRun {
            services: kept.services.map(redacted),
            workspace: kept.workspace.map(redacted),
        };
        let services = kept.services.as_ref().map(ServiceRecords::of);
        let (workspace, replies) = match ended.error.is_none() && spec.asks_models() {
            false => (workspace, None),
            true => {
                let place = (u32::try_from(scenario).unwrap_or(u32::MAX), replica);
                let (workspace, files) = checks::overview(spec, workspace)
                    .await
                    .map_err(Failure::of)?;
                let beside = (files, services.as_ref());
                let replies = log.replies(place, &run, spec, &read, beside).await;
                (workspace, Some(replies.map_err(Failure::of)?))
            }
        };
        let (orchestrator, asked) = (self.engine.orchestrator.clone(), run.clone());
        // Programs take minutes, and there are few readers.
        let judged = tokio::task::spawn_blocking(move || {
            let beside = BesideRun {
                workspace: workspace.as_ref().map(|it| it.as_ref() as &dyn Workspace),
                services: services.as_ref(),
                replies: replies.as_ref(),
            };
            let mut checked = evals::check_read(read, &asked, &invariants, beside);
            checks::redact(&orchestrator, &invariants, &mut checked.results);
            checked.started.services = kept.services;
            checked.started.workspace = kept.workspace;
            checked
        });
        Ok((ended, judged.await.map_err(Failure::of)?))
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

    /// The cost of runs, in millionths of a US dollar.
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

/// The state that a run left, if it had a folder.
async fn left(folder: Option<RunFolder>) -> Result<Left, Failure> {
    let Some(folder) = folder else {
        return Ok((KeptOfRun::default(), None));
    };
    let left = tokio::task::spawn_blocking(move || folder.judged());
    let left = left.await.map_err(Failure::of)??;
    Ok((left.kept, Some(left.checks)))
}
