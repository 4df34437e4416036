//! `ktsu test --twice`: every task once more, on the replies and the results that its first run recorded.
//!
//! ```text
//! first runs ─frames─▶ a file of replies ─▶ a gateway that gives them ─▶ second runs, in memory
//! ```
//!
//! An agent that is a function of its input, of replies and of results gives the same again (seed 004).

use std::io::{BufWriter, Write as _};
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Value, json};

use super::Failure;
use super::baseline_run::{BaselineFile, BaselineRunResult, answer, step_of};
use ktsu_assemble::{LedgerPlace, Setup};
use ktsu_baseline::{Baseline, CaptureOptions, RepeatedRun, capture, compare};
use ktsu_environment::Environment;
use ktsu_kit::Kit;
use ktsu_opening::engine::open;
use ktsu_opening::environment::process_environment;

/// The most bytes of recorded replies: what a scripted provider reads.
const MAX_REPLIES: u64 = 256 << 20;

/// The first runs, as far as the second ones need them.
pub(super) struct FirstRuns {
    folder: tempfile::TempDir,
    replies: BufWriter<std::fs::File>,
    bytes: u64,
    captured: Vec<Option<Baseline>>,
}

impl FirstRuns {
    pub(super) fn new() -> Result<Self, Failure> {
        let folder = tempfile::tempdir().map_err(unwritable)?;
        let file = std::fs::File::create(folder.path().join("replies.jsonl"));
        Ok(Self {
            replies: BufWriter::new(file.map_err(unwritable)?),
            folder,
            bytes: 0,
            captured: Vec::new(),
        })
    }

    /// Takes the next run. One that gave no output is not repeated.
    pub(super) fn take(&mut self, answered: &BaselineRunResult) -> Result<(), Failure> {
        let (mut captured, _) = capture(&answered.recorded, &CaptureOptions::default());
        captured.truncate(1);
        self.captured.push(captured.pop());
        for frame in &answered.frames {
            let event = &frame.event;
            let line = json!({"seq": frame.seq, "type": event.kind(), "data": event.data()});
            let line = line.to_string();
            self.bytes += u64::try_from(line.len()).unwrap_or(u64::MAX) + 1;
            if self.bytes > MAX_REPLIES {
                let words = "the recorded replies of these baselines are larger than 256 MiB";
                let failure = Failure::could_not_run(words);
                return Err(failure.hint("test fewer of them with --twice at once"));
            }
            writeln!(self.replies, "{line}").map_err(unwritable)?;
        }
        Ok(())
    }

    /// Runs each task again, one after the other, so that replies to equal requests keep their order.
    pub(super) async fn repeat(
        mut self,
        kit: &Arc<Kit>,
        environment: Option<&Environment>,
        given: &[BaselineFile],
    ) -> Result<Vec<Option<RepeatedRun>>, Failure> {
        self.replies.flush().map_err(unwritable)?;
        let mut environment = environment.cloned();
        environment.iter_mut().for_each(|one| one.providers.clear());
        let ledger = LedgerPlace::Memory;
        let mut setup =
            Setup::embedded(Arc::clone(kit), environment, process_environment(), ledger);
        setup.gateway = Some(self.gateway(kit)?);
        let engine = open(setup).await?;
        let mut repeated = Vec::new();
        for (one, first) in given.iter().zip(&self.captured) {
            let Some(first) = first else {
                repeated.push(None);
                continue;
            };
            let results = first.results();
            let results = results.map_err(|unfit| one.failed(&unfit.to_string()))?;
            let again = answer(&engine, kit, one, &results).await?;
            let (_, found) = step_of(kit, one)?;
            let plan = again.recorded.plan.agents.get(&found.agent.file);
            let task = again.recorded.tasks.first();
            let compared = compare(first, task, found.step, plan.map(Arc::as_ref));
            repeated.push(Some(RepeatedRun::of(compared)));
        }
        engine.close().await.map_err(Failure::could_not_run)?;
        Ok(repeated)
    }

    /// A gateway whose only provider gives what was recorded.
    fn gateway(&self, kit: &Kit) -> Result<PathBuf, Failure> {
        let agents = kit.workflows.values();
        let agents = agents.flat_map(|workflow| workflow.definition.plan.agents.values());
        let groups: std::collections::BTreeSet<&str> =
            agents.map(|agent| agent.group.as_str()).collect();
        let groups = groups.into_iter().map(|name| {
            let price = json!({"model": "recorded", "input_per_million_usd": 0, "output_per_million_usd": 0});
            json!({"name": name, "models": ["recorded/recorded"], "pricing": [price]})
        });
        let file = json!({
            "providers": [{"name": "recorded", "type": "scripted", "config": {"replies_from": "replies.jsonl"}}],
            "model_groups": groups.collect::<Vec<Value>>(),
        });
        let path = self.folder.path().join("gateway.yaml");
        std::fs::write(&path, file.to_string()).map_err(unwritable)?;
        Ok(path)
    }
}

fn unwritable(error: std::io::Error) -> Failure {
    Failure::could_not_run(format!("no temporary file can be written: {error}"))
        .hint("TMPDIR names the folder of temporary files")
}
