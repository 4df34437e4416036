//! `ktsu eval run`: runs what a spec names, once for each combination of its matrix, and judges every
//! run.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::Request;
use futures_util::{StreamExt as _, stream};
use serde_json::{Map, Value, json};

use super::check::{load, print_scenario};
use super::embedded::invoke_headers;
use super::engine::{
    ledger_location, load_environment, load_kit, open, peer_of, process_environment, receiver,
    token_header, warn_of,
};
use super::follow::{Invocation, invoke};
use super::input::workflow_of;
use super::layout::columns;
use super::logging::{self, LogFormat};
use super::output::{
    BAD, DIM, GOOD, WARN, line, note, note_dim, painted, print_failure, print_json, row,
};
use super::reading::find_run;
use super::signals::{Signals, drain_and_close};
use super::{Common, Failure, check, text};
use crate::assemble::{Engine, LedgerPlace, Setup};
use crate::eval_file::{self, EvalFile};
use ktsu_api::checks;
use ktsu_codes::EXIT_COULD_NOT_RUN;
use ktsu_environment::principals::LOCAL;
use ktsu_eval::{EvalSubject, EvalWriter, Scenario, Suite};
use ktsu_history::evals::{self, CheckedScenario, EvalReport};
use ktsu_kit::Kit;
use ktsu_ledger::StreamId;
use ktsu_ledger::event::{EvalStatus, Principal, ScenarioFinished};
use ktsu_ledger::store::StoreError;
use ktsu_orchestrator::{EvalStream, ReadKind};
use ktsu_peer::Peer;
use ktsu_projections::run::RunStatus;

/// How often it is looked whether a run waits for a person.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// The most columns for what distinguishes scenarios.
const MAX_LABEL: usize = 40;

/// The most bytes of an output in the report; `ktsu runs get` shows a larger one.
const MAX_OUTPUT: usize = 16 << 10;

/// Why there is no verdict on a run that waits for a person.
const WAITING: &str = "waiting";

#[derive(Debug, clap::Subcommand)]
pub(super) enum EvalCommand {
    /// Runs the subject of a spec, once for each combination of its matrix, and judges every run
    Run(Arguments),
}

/// What `eval run` takes.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The spec, evals/NAME.eval.yaml; or a kit, for every spec in its evals/ that has a subject
    spec: PathBuf,
    /// The kit [default: the folder that has the spec in its evals/]
    #[arg(long, value_name = "DIR", alias = "project-dir")]
    kit: Option<PathBuf>,
    /// The environment file [default: the nearest environments/local.env.yaml, from the kit upward]
    #[arg(long, env = "KTSU_ENV", value_name = "FILE")]
    env: Option<PathBuf>,
    /// How many scenarios run at a time
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=64))]
    parallel: u8,
}

/// A spec that has a subject.
struct SuiteFile {
    file: EvalFile,
    suite: Suite,
}

/// Runs suites.
pub(super) async fn run(common: &Common, arguments: Arguments) -> Result<ExitCode, Failure> {
    let (dir, suites) = suites(&arguments)?;
    let kit = load_kit(&dir)?;
    for suite in &suites {
        suite.can_run(&kit)?;
    }
    logging::start(LogFormat::Text, logging::default_level("warn"))?;
    let token = token_header()?;
    let mut signals = Signals::new()?;
    let environment = load_environment(arguments.env.as_deref(), &kit.root)?;
    let place = ledger_location(common, environment.as_ref());
    let mut process = process_environment();
    let _receiver = receiver(environment.as_ref(), &mut process, Some(&place.path)).await?;
    environment.iter().for_each(|file| warn_of(&file.warnings));
    let ledger = LedgerPlace::File(place.path.clone());
    let engine = open(Setup {
        resume_unfinished: false,
        ..Setup::embedded(Arc::clone(&kit), environment, process, ledger)
    })
    .await?;
    let bench = Bench {
        peer: peer_of(&engine, token),
        engine: &engine,
        kit: &kit,
        parallel: usize::from(arguments.parallel),
        is_quiet: common.json,
    };
    let judged = tokio::select! {
        judged = bench.judge_all(&suites) => Some(judged),
        () = signals.next() => None,
    };
    let closed = signals.unless_again(drain_and_close(engine)).await;
    let Some(judged) = judged else {
        let flag = &place.flag;
        print_failure(&format!(
            "interrupted: the verdicts so far are kept, ktsu evals{flag} lists them"
        ));
        return Ok(ExitCode::from(EXIT_COULD_NOT_RUN));
    };
    let reports = judged?;
    closed.map_err(Failure::could_not_run)?;
    show(common, &reports, &place.flag)
}

/// The kit, and the suites that are meant.
fn suites(arguments: &Arguments) -> Result<(PathBuf, Vec<SuiteFile>), Failure> {
    let spec = &arguments.spec;
    if !spec.is_dir() {
        let suite = SuiteFile::of(load(spec)?)?;
        let above = spec
            .parent()
            .filter(|folder| folder.ends_with(eval_file::FOLDER));
        let above = above.map(|folder| folder.join(".."));
        let kit = arguments.kit.clone().or(above).ok_or_else(|| {
            let words = format!("{} is in no kit's evals/", spec.display());
            Failure::could_not_run(words).hint("name the kit: --kit DIR")
        })?;
        return Ok((kit, vec![suite]));
    }
    let mut suites = Vec::new();
    for file in eval_file::files_of(spec) {
        let file = load(&spec.join(file))?;
        if file.spec.suite.is_some() {
            suites.push(SuiteFile::of(file)?);
        }
    }
    match suites.is_empty() {
        true => {
            let words = format!("no file in {}/evals has a subject", spec.display());
            Err(Failure::could_not_run(words).hint("subject: {workflow: NAME, params: {…}}"))
        }
        false => Ok((spec.clone(), suites)),
    }
}

impl SuiteFile {
    fn of(file: EvalFile) -> Result<Self, Failure> {
        let refused = |words: &str| {
            let path = file.spec.path.display();
            Failure::could_not_run(format!("{path}: {words}"))
        };
        let Some(suite) = file.spec.suite.clone() else {
            return Err(refused("the spec has no subject, so there is nothing to run")
                .hint("subject: {workflow: NAME, params: {…}}; or check a run: ktsu check RUN --spec FILE"));
        };
        if file.spec.needs_workspace() {
            return Err(refused(
                "checks of files need a workspace, which eval run does not make yet",
            )
            .hint("ktsu run, then ktsu check RUN --spec FILE --workspace DIR"));
        }
        if let Some(key) = suite.not_supported {
            let words = format!("this version of ktsu does not support the key {key}");
            return Err(refused(&words).hint("leave it out, or set replicas: 1"));
        }
        let is_run = matches!(suite.subject, EvalSubject::Run(_));
        if !is_run && !suite.executes_effects {
            return Err(
                refused("this version cannot hold back the webhooks of what it runs")
                    .hint("effects: execute, if they may be sent"),
            );
        }
        Ok(Self { file, suite })
    }

    /// Refuses a workflow that the kit does not have.
    fn can_run(&self, kit: &Kit) -> Result<(), Failure> {
        match &self.suite.subject {
            EvalSubject::Workflow { name, .. } => workflow_of(kit, name.as_deref()).map(drop),
            EvalSubject::Run(_) => Ok(()),
        }
    }
}

/// What suites are run with.
struct Bench<'e> {
    engine: &'e Engine,
    peer: Peer,
    kit: &'e Kit,
    parallel: usize,
    is_quiet: bool,
}

/// A scenario that was run.
struct RunScenario {
    run: StreamId,
    wall_ms: u64,
    /// Why there is no verdict.
    error: Option<&'static str>,
}

/// A suite that was judged.
struct JudgedSuite<'s> {
    suite: &'s SuiteFile,
    report: EvalReport,
    shown: Vec<ShownScenario>,
}

/// What is shown of a scenario beside its verdict.
struct ShownScenario {
    label: String,
    params: Map<String, Value>,
    wall_ms: u64,
    totals: Value,
    output: Value,
}

impl Bench<'_> {
    async fn judge_all<'s>(
        &self,
        suites: &'s [SuiteFile],
    ) -> Result<Vec<JudgedSuite<'s>>, Failure> {
        let mut judged = Vec::new();
        for suite in suites {
            judged.push(self.judge(suite).await?);
        }
        Ok(judged)
    }

    /// Runs the scenarios of a suite, and appends each verdict as soon as it is there.
    async fn judge<'s>(&self, suite: &'s SuiteFile) -> Result<JudgedSuite<'s>, Failure> {
        let orchestrator = &self.engine.orchestrator;
        let (spec, text) = (&suite.file.spec, suite.file.text.clone());
        let file = spec.path.display().to_string();
        let by = Principal {
            auth: "none".to_owned(),
            id: LOCAL.to_owned(),
        };
        let started = checks::started(orchestrator, spec, (&file, text), by)?;
        let mut eval = orchestrator.new_eval().map_err(Failure::of)?;
        let (mut writer, events) = EvalWriter::begin(started, spec.pass_threshold);
        self.append(&mut eval, events).await?;
        let scenarios = suite.suite.scenarios();
        if !self.is_quiet {
            let count = text::count(scenarios.len(), "scenario");
            note_dim(&format!("{file}: {count} as {}", eval.stream.name()));
        }
        let widths = scenarios.iter().map(|one| columns(scenario_id(&one.label)));
        let width = widths.max().unwrap_or(0).min(MAX_LABEL);
        let running = stream::iter(&scenarios)
            .map(|scenario| self.run_one(&suite.suite, scenario))
            .buffered(self.parallel);
        let mut running = std::pin::pin!(running);
        let mut shown = Vec::new();
        while let Some(ran) = running.next().await {
            let ran = ran?;
            let checked = self.check(&ran, suite).await?;
            let mut envelope = checked.envelope;
            let results = match ran.error {
                Some(error) => Err(error.to_owned()),
                None => Ok(checked.results),
            };
            let events = writer.scenario(checked.started, results);
            self.append(&mut eval, events).await?;
            if let Some(scenario) = scenarios.get(shown.len()) {
                if let Some(finished) = writer.last().filter(|_| !self.is_quiet) {
                    print_line(finished, &scenario.label, width, &ran);
                }
                shown.push(ShownScenario {
                    label: scenario.label.clone(),
                    params: scenario.params.clone(),
                    wall_ms: ran.wall_ms,
                    totals: envelope["totals"].take(),
                    output: shown_output(envelope["output"].take()),
                });
            }
        }
        self.append(&mut eval, writer.finish()).await?;
        let report = checks::report(orchestrator, eval.stream).await?;
        Ok(JudgedSuite {
            suite,
            report,
            shown,
        })
    }

    async fn append(
        &self,
        eval: &mut EvalStream,
        events: Vec<ktsu_eval::RecordedEvent>,
    ) -> Result<(), Failure> {
        let appended = self.engine.orchestrator.append_eval(eval, events).await;
        appended.map_err(Failure::of)
    }

    /// Runs a scenario to its end, or until it waits for a person; a run that waits is cancelled.
    async fn run_one(&self, suite: &Suite, scenario: &Scenario) -> Result<RunScenario, Failure> {
        let began = Instant::now();
        let named = match &suite.subject {
            EvalSubject::Run(run) => {
                let asked = run.clone();
                let found = self.engine.orchestrator.readers();
                let found = found.with(move |reader| Ok::<_, StoreError>(find_run(reader, &asked)));
                return Ok(RunScenario {
                    run: found.await??.0,
                    wall_ms: 0,
                    error: None,
                });
            }
            EvalSubject::Workflow { name, .. } => name.as_deref(),
        };
        let workflow = workflow_of(self.kit, named)?;
        let asked = Invocation {
            workflow: &workflow,
            input: Value::Object(scenario.params.clone()).to_string(),
            key: None,
            no_cache: false,
            headers: invoke_headers(self.engine, self.kit, &workflow),
        };
        let about = |failure: Failure| match scenario.label.as_str() {
            "" => failure,
            label => failure.about(label),
        };
        let id = invoke(&self.peer, asked).await.map_err(about)?;
        let error = self.wait_for(&id).await?;
        let run = StreamId::run(&id).map_err(Failure::of)?;
        let wall_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        Ok(RunScenario {
            run,
            wall_ms,
            error,
        })
    }

    /// Waits until a run has ended. One that waits for a person never will: it is cancelled.
    async fn wait_for(&self, id: &str) -> Result<Option<&'static str>, Failure> {
        let orchestrator = &self.engine.orchestrator;
        let ended = async {
            let ended = orchestrator.wait_until_ended(id).await;
            ended.map_err(|why| Failure::could_not_run(format!("the ledger has stopped: {why}")))
        };
        tokio::select! {
            ended = ended => return ended.map(|()| None),
            waits = self.waits(id) => waits?,
        }
        let body = json!({"reason": "an eval has no answer for it"}).to_string();
        let request = Request::post(format!("/runs/{id}/cancel")).body(Body::from(body));
        let request = request.map_err(Failure::of)?;
        // If it has ended meanwhile, that is its end.
        self.peer.call_and_read(request).await?;
        let ended = orchestrator.wait_until_ended(id).await;
        ended.map_err(|why| Failure::could_not_run(format!("the ledger has stopped: {why}")))?;
        Ok(Some(WAITING))
    }

    /// Returns once a run waits for a person.
    async fn waits(&self, id: &str) -> Result<(), Failure> {
        let stream = StreamId::run(id).map_err(Failure::of)?;
        let mut ticks = tokio::time::interval(LOOK_INTERVAL);
        loop {
            ticks.tick().await;
            let stream = stream.clone();
            let readers = self.engine.orchestrator.readers();
            let row = readers.with(move |reader| reader.row(&stream)).await?;
            if row.is_some_and(|row| row.status == RunStatus::Waiting.as_str()) {
                return Ok(());
            }
        }
    }

    /// Makes the checks of a run, unless there is an error instead.
    async fn check(
        &self,
        ran: &RunScenario,
        suite: &SuiteFile,
    ) -> Result<CheckedScenario, Failure> {
        let run = ran.run.clone();
        let invariants = match ran.error {
            Some(_) => Vec::new(),
            None => suite.file.spec.invariants.clone(),
        };
        let readers = self.engine.orchestrator.readers();
        let checked = readers.with_kind(ReadKind::Search, move |reader| {
            evals::check(reader, &run, &invariants, None)
        });
        let refused = |error| check::refusal(error, ran.run.name(), "");
        checked.await.map_err(refused)
    }
}

/// Shows what was judged; the exit code is 2 where there is any error, else 1 where any failed
/// (decision V5).
fn show(common: &Common, judged: &[JudgedSuite<'_>], flag: &str) -> Result<ExitCode, Failure> {
    let status = |status: &str| judged.iter().any(|one| one.report.status == status);
    let worst = match (status("error") || status("running"), status("failed")) {
        (true, _) => "error",
        (false, true) => "failed",
        (false, false) => "passed",
    };
    match (common.json, judged) {
        (true, [one]) => drop(print_json(&one.as_json())?),
        (true, many) => {
            let all: Vec<Value> = many.iter().map(JudgedSuite::as_json).collect();
            print_json(&json!({ "evals": all }))?;
        }
        (false, many) => many.iter().for_each(|one| one.print(flag)),
    }
    Ok(check::exit_code(worst))
}

impl JudgedSuite<'_> {
    /// Prints the checks of the scenarios that did not pass, and the totals.
    fn print(&self, flag: &str) {
        for (scenario, shown) in self.report.scenarios.iter().zip(&self.shown) {
            if scenario.status != "passed" || self.shown.len() == 1 {
                line("");
                line(&text::line(scenario_id(&shown.label)));
                print_scenario(scenario);
            }
        }
        let report = &self.report;
        let total = text::count(report.scenarios.len(), "scenario");
        line(&format!(
            "{total}: {} passed, {} failed, {} errors",
            report.passed, report.failed, report.errors
        ));
        let id = &report.eval_id;
        note(&painted(
            DIM,
            &format!("recorded as {id}: ktsu evals {id}{flag}"),
        ));
    }

    /// As results of evals are exchanged (seed 003).
    fn as_json(&self) -> Value {
        let (report, spec) = (&self.report, &self.suite.file.spec);
        let file = spec.path.display().to_string();
        let shown = self.shown.iter();
        let walls: Vec<u64> = shown.map(|shown| shown.wall_ms).collect();
        let mean = |total: u64| match walls.len() {
            0 => Value::Null,
            #[expect(clippy::cast_precision_loss, reason = "a mean for people")]
            count => json!(total as f64 / count as f64),
        };
        let sum = |name: &str| -> u64 {
            let all = self.shown.iter();
            all.filter_map(|one| one.totals[name].as_u64()).sum()
        };
        let scenarios = report.scenarios.iter().zip(&self.shown);
        let scenarios = scenarios.map(|(scenario, shown)| {
            let totals = &shown.totals;
            json!({
                "scenario_id": scenario_id(&shown.label),
                "run_id": scenario.run_id,
                "status": scenario.status,
                "parameters": shown.params,
                "wall_ms": shown.wall_ms,
                "tool_calls": totals["tool_calls"],
                "composite_score": scenario.composite,
                "agent_output": shown.output,
                "invariants": scenario.results,
                "error": scenario.error,
                "cost": {"input_tokens": totals["tokens_in"], "output_tokens": totals["tokens_out"],
                    "estimated_usd": totals["cost_usd"]},
                "reproducer": {"spec_file": file, "scenario_id": scenario_id(&shown.label),
                    "parameters": shown.params, "command": format!("ktsu eval run {file}")},
            })
        });
        let count = report.scenarios.len() as u64;
        json!({
            "eval_id": report.eval_id,
            "ran_at": report.at,
            "spec_id": report.spec.file,
            "spec_digest": report.spec.digest,
            "status": report.status,
            "total_scenarios": count,
            "passed": report.passed,
            "failed": report.failed,
            "errors": report.errors,
            "metrics": {
                "pass_rate": mean(report.passed),
                "mean_wall_ms": mean(walls.iter().sum()),
                "mean_tool_calls": mean(sum("tool_calls")),
                "total_cost_micro_usd": sum("cost_micro_usd"),
            },
            "scenarios": scenarios.collect::<Vec<Value>>(),
        })
    }
}

/// Prints the verdict on a scenario.
fn print_line(finished: &ScenarioFinished, label: &str, width: usize, ran: &RunScenario) {
    let style = match finished.status {
        EvalStatus::Passed => GOOD,
        EvalStatus::Failed => BAD,
        EvalStatus::Error => WARN,
    };
    let label = text::line(scenario_id(label));
    let composite = finished.composite.to_string();
    let words = format!("{} {}", ran.run.name(), text::duration(ran.wall_ms));
    row(&format!(
        "{}  {label:<width$}  {composite:<14}  {}",
        painted(style, &format!("{:<6}", finished.status.as_str())),
        painted(DIM, &words)
    ));
}

/// An output as the report has it; null if it is too large to be held for every scenario.
fn shown_output(output: Value) -> Value {
    match output.to_string().len() > MAX_OUTPUT {
        true => Value::Null,
        false => output,
    }
}

/// The name of a scenario.
fn scenario_id(label: &str) -> &str {
    match label {
        "" => "scenario",
        label => label,
    }
}
