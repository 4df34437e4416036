//! Runs the scenarios of suites, and judges each run as soon as it has ended; verdicts are appended in
//! the order of the suite.

mod judging;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::Request;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use serde_json::json;

use super::super::answering::give;

use super::super::check_bench::not_checked;
use super::super::embedded::invoke_headers;
use super::super::follow::{StartRequest, invoke};
use super::super::output::note_dim;
use super::super::{Failure, text};
use super::again;
use super::ended::{EndedReplica, KnownRun, KnownRuns};
use super::folders::{RunFolder, RunFolders, SuitePlace, fresh};
use super::job::{BenchArguments, Job};
use super::judged::{JudgedReplica, JudgedSuite, ShownRun, sum};
use super::report::SuiteProgress;
use super::stops::{BEGUN_ANEW, TIMEOUT, WAITING, without_verdict};
use super::suites::SuiteFile;
use super::tool_bridge::ToolBridge;
use super::turns::Turns;
use ktsu_api::checks;
use ktsu_api::judges::EvalLog;
use ktsu_assemble::Engine;
use ktsu_environment::principals::LOCAL;
use ktsu_eval::{EvalRecord, EvalSubject, EvalWriter, Scenario};
use ktsu_history::approvals::requests_of_run;
use ktsu_history::evals::CheckedScenario;
use ktsu_history::fold;
use ktsu_kit::Kit;
use ktsu_ledger::event::{Effects, Principal};
use ktsu_ledger::store::StoreError;
use ktsu_ledger::{StreamId, branch};
use ktsu_opening::find::{find_run, unfinished};
use ktsu_opening::input::workflow_of;
use ktsu_orchestrator::ReadKind;
use ktsu_peer::Peer;
use ktsu_projections::approvals::ApprovalStatus;
use ktsu_projections::run::RunStatus;
use ktsu_sandbox::Interrupt;

/// The time between two checks of whether a run waits for a person.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// The same, where there are answers to give.
const ANSWER_INTERVAL: Duration = Duration::from_millis(10);

/// The most times that a replica is begun anew.
const MAX_BEGINNINGS: u32 = 100;

/// The engine, the kit and the settings that suites are run with.
pub(super) struct SuiteRunner<'e> {
    engine: &'e Engine,
    peer: Peer,
    kit: &'e Kit,
    parallel: usize,
    is_quiet: bool,
    /// The most that the runs of a suite may cost, in place of what it says itself.
    cost_limit: Option<u64>,
    without_sandbox: bool,
    /// Ends the programs beside runs.
    interrupt: Interrupt,
    under_way: UnderWay,
}

/// The id of the eval that is being made.
#[derive(Clone, Default)]
pub(super) struct UnderWay(Rc<RefCell<Option<String>>>);

/// The state in which an earlier process left a run.
enum Left {
    /// It is new, or it has ended by itself.
    Nothing,
    /// It had not ended.
    Unfinished,
    /// It was cancelled, to be begun anew.
    Abandoned,
    /// It was cancelled, because there can be no verdict on it.
    Cancelled(&'static str),
}

/// The part of a suite that is run.
struct Plan<'p> {
    suite: &'p SuiteFile,
    /// The eval.
    id: &'p str,
    scenarios: &'p [Scenario],
    /// Runs that are judged as they are, by scenario and replica.
    known: &'p KnownRuns,
    /// The source of the folders of runs, if they have any.
    folders: Option<&'p Arc<RunFolders>>,
    is_resumed: bool,
    log: &'p EvalLog,
}

/// A suite while it is judged.
struct Judging<'s> {
    suite: &'s SuiteFile,
    log: EvalLog,
    scenarios: Rc<[Scenario]>,
    shown: Vec<ShownRun>,
    /// True if an earlier process began it: runs may be there.
    is_resumed: bool,
    /// Runs that are judged as they are, by scenario and replica.
    known: KnownRuns,
    /// The source of the folders of runs, if they have any.
    folders: Option<Arc<RunFolders>>,
}

impl UnderWay {
    /// The id, if there is one.
    pub(super) fn get(&self) -> Option<String> {
        self.0.borrow().clone()
    }
}

impl<'e> SuiteRunner<'e> {
    pub(super) fn new(
        engine: &'e Engine,
        peer: Peer,
        kit: &'e Kit,
        arguments: &BenchArguments,
        is_quiet: bool,
    ) -> Self {
        Self {
            engine,
            peer,
            kit,
            parallel: usize::from(arguments.parallel),
            is_quiet,
            cost_limit: arguments.cost_limit,
            without_sandbox: arguments.no_sandbox,
            interrupt: Interrupt::default(),
            under_way: UnderWay::default(),
        }
    }

    /// Ends the programs beside runs, once it is set.
    pub(super) fn interrupt(&self) -> Interrupt {
        self.interrupt.clone()
    }

    pub(super) fn under_way(&self) -> UnderWay {
        self.under_way.clone()
    }

    /// Judges everything that is asked for.
    pub(super) async fn judge<'s>(&self, job: &'s Job) -> Result<Vec<JudgedSuite<'s>>, Failure> {
        let mut judged = Vec::new();
        match job {
            Job::New(suites) => {
                for suite in suites {
                    let judging = self.begin(suite).await?;
                    judged.push(self.finish(judging).await?);
                }
            }
            Job::Rest(rest) => {
                let (suite, stream, record) = rest.as_ref();
                let judging = self.resume(suite, stream, record).await?;
                judged.push(self.finish(judging).await?);
            }
            Job::Errors(errors) => {
                let (suite, stream, record) = errors.as_ref();
                let mut judging = self.begin(suite).await?;
                judging.known = KnownRun::with_verdict(stream, record);
                judged.push(self.finish(judging).await?);
            }
            Job::Score(score) => {
                let (suite, stream, record) = score.as_ref();
                let mut judging = self.begin(suite).await?;
                judging.known = KnownRun::all(stream, record);
                judged.push(self.finish(judging).await?);
            }
        }
        Ok(judged)
    }

    async fn begin<'s>(&self, suite: &'s SuiteFile) -> Result<Judging<'s>, Failure> {
        let orchestrator = &self.engine.orchestrator;
        let (spec, text) = (&suite.file.spec, suite.file.text.clone());
        let file = spec.path.display().to_string();
        let by = Principal {
            auth: "none".to_owned(),
            id: LOCAL.to_owned(),
        };
        let started = checks::started(orchestrator, spec, (&file, text), by);
        let mut started = started.map_err(not_checked)?;
        started.suite = Some(suite.suite.recorded(suite.only.as_deref()));
        started.sandbox = suite.sandbox_word(self.without_sandbox).map(str::to_owned);
        let folders = self.folders(suite).await?;
        let log = checks::begin(
            orchestrator,
            &self.engine.models,
            started,
            spec.pass_threshold,
        );
        Ok(Judging {
            suite,
            log: log.await.map_err(Failure::of)?,
            scenarios: Rc::clone(&suite.scenarios),
            shown: Vec::new(),
            is_resumed: false,
            known: KnownRuns::new(),
            folders,
        })
    }

    /// Continues after what is recorded.
    async fn resume<'s>(
        &self,
        suite: &'s SuiteFile,
        stream: &StreamId,
        record: &EvalRecord,
    ) -> Result<Judging<'s>, Failure> {
        let Some(writer) = EvalWriter::resume(record) else {
            let words = format!("{} ends within a run", stream.name());
            return Err(Failure::could_not_run(words).hint("to see what is damaged: ktsu verify"));
        };
        let folders = self.folders(suite).await?;
        let word = suite.sandbox_word(self.without_sandbox);
        again::has_the_same_sandbox(record, word)?;
        if let Some(folders) = &folders {
            let readers = self.engine.orchestrator.readers();
            again::has_the_same_files(readers, (stream, record), folders).await?;
        }
        let eval = self.engine.orchestrator.open_eval(stream.clone()).await;
        let mut shown = Vec::with_capacity(record.runs.len());
        for judged in &record.runs {
            let CheckedScenario {
                envelope, tools, ..
            } = self.recorded(&judged.started.run).await?;
            let abandoned = self.cost_of(&judged.started.abandoned).await?;
            let wall_ms = envelope["totals"]["duration_ms"].as_u64();
            shown.push(ShownRun::of(
                (envelope, tools),
                wall_ms.unwrap_or_default(),
                abandoned,
            ));
        }
        let eval = (eval.map_err(Failure::of)?, writer);
        let (engine, before) = (self.engine, Some(record.clone()));
        Ok(Judging {
            suite,
            log: EvalLog::new(&engine.orchestrator, &engine.models, eval, before),
            scenarios: Rc::clone(&suite.scenarios),
            shown,
            is_resumed: true,
            known: KnownRuns::new(),
            folders,
        })
    }

    /// The source of the folders of runs, if they have any.
    async fn folders(&self, suite: &SuiteFile) -> Result<Option<Arc<RunFolders>>, Failure> {
        let bridge = match suite.suite.services.tools.is_empty() {
            true => None,
            false => Some(Arc::new(ToolBridge::listen().await.map_err(Failure::of)?)),
        };
        let place = SuitePlace {
            above: suite.above.clone(),
            kit: self.kit.root.clone(),
            without_sandbox: self.without_sandbox || !suite.needs_sandbox(),
            interrupt: self.interrupt.clone(),
            bridge,
        };
        let suite = suite.suite.clone();
        let made = tokio::task::spawn_blocking(move || RunFolders::new(&suite, place));
        Ok(made.await.map_err(Failure::of)??.map(Arc::new))
    }

    /// Runs what is left of a suite, and appends each verdict as soon as it is there.
    async fn finish<'s>(&self, mut judging: Judging<'s>) -> Result<JudgedSuite<'s>, Failure> {
        let suite = judging.suite;
        let id = judging.log.stream().name().to_owned();
        self.under_way.0.replace(Some(id.clone()));
        let places = judging.places().await?;
        let mut progress =
            SuiteProgress::new(&judging.scenarios, suite.suite.replicas, self.is_quiet);
        if !self.is_quiet {
            let file = suite.file.spec.path.display();
            let count = text::count(places.len(), "run");
            note_dim(&format!("{file}: {count} as {id}"));
        }
        let mut spent = sum(judging.shown.iter().map(ShownRun::cost));
        let limit = self.cost_limit.or(suite.suite.limits.cost_micro_usd);
        let known = std::mem::take(&mut judging.known);
        let (folders, log) = (judging.folders.clone(), &judging.log);
        let plan = Plan {
            suite,
            id: &id,
            scenarios: &Rc::clone(&judging.scenarios),
            known: &known,
            folders: folders.as_ref(),
            is_resumed: judging.is_resumed,
            log,
        };
        let mut rest = places.iter().enumerate().peekable();
        let (mut running, mut turns) = (FuturesUnordered::new(), Turns::new());
        loop {
            while running.len() < self.parallel
                && let Some((number, place)) = rest.next_if(|(number, place)| {
                    let cost = spent.saturating_add(log.cost_micro_usd());
                    let is_over = limit.is_some_and(|limit| cost >= limit);
                    turns.may_begin(*number) && (!is_over || known.contains_key(place))
                })
            {
                let judged = self.judge_one(&plan, *place);
                running.push(async move { judged.await.map(|judged| (number, judged)) });
            }
            let Some((number, judged)) = running.next().await.transpose()? else {
                break;
            };
            spent = spent.saturating_add(judged.shown.cost());
            let bytes = judged.bytes();
            turns.hold(number, judged, bytes);
            while let Some(judged) = turns.take() {
                let place = log.next_run().await.map_err(Failure::of)?;
                let events = log.judged(judged.started, judged.results).await;
                let cost = spent.saturating_add(log.cost_micro_usd());
                progress.show(place, &events.map_err(Failure::of)?, &judged.shown, cost);
                judging.shown.push(judged.shown);
            }
        }
        progress.end();
        let left_out = judging.places().await?.len();
        if left_out == 0 {
            log.finish().await.map_err(Failure::of)?;
            self.under_way.0.replace(None);
        }
        let orchestrator = &self.engine.orchestrator;
        let report = checks::report(orchestrator, log.stream().clone()).await;
        let report = report.map_err(not_checked)?;
        Ok(JudgedSuite {
            suite,
            report,
            scenarios: judging.scenarios,
            shown: judging.shown,
            left_out,
        })
    }

    /// Runs a replica of a scenario, and judges it.
    async fn judge_one(
        &self,
        plan: &Plan<'_>,
        place: (usize, u32),
    ) -> Result<JudgedReplica, Failure> {
        let known = match plan.known.get(&place) {
            Some(known) => {
                let readers = self.engine.orchestrator.readers();
                known.ended(plan.folders, readers).await?
            }
            None => None,
        };
        let ended = match (known, plan.scenarios.get(place.0)) {
            (Some(ended), _) => ended,
            (None, Some(scenario)) => {
                let key = format!("{}/{}/{}", plan.id, place.0, place.1);
                let folder = fresh(plan.folders, scenario).await?;
                let begin = (plan.is_resumed, folder);
                self.run_one(plan.suite, scenario, &key, begin).await?
            }
            (None, None) => return Err(Failure::could_not_run("there is no such scenario")),
        };
        let (ended, mut checked) = self.check(ended, plan.suite, (plan.log, place)).await?;
        let abandoned = self.cost_of(&ended.abandoned).await?;
        checked.started.abandoned = ended.abandoned;
        Ok(JudgedReplica::of(
            checked,
            (ended.wall_ms, abandoned),
            ended.error,
        ))
    }

    /// Runs a replica to its end, or until it waits for what nothing answers or takes too long; such a
    /// run is cancelled. One that an earlier process left unfinished is cancelled, and begun anew.
    async fn run_one(
        &self,
        suite: &SuiteFile,
        scenario: &Scenario,
        key: &str,
        (is_resumed, folder): (bool, Option<RunFolder>),
    ) -> Result<EndedReplica, Failure> {
        let began = Instant::now();
        let named = match &suite.suite.subject {
            EvalSubject::Run(run) => {
                let asked = run.clone();
                let found = self.engine.orchestrator.readers();
                let found = found.with(move |reader| Ok::<_, StoreError>(find_run(reader, &asked)));
                return Ok(EndedReplica::recorded(found.await??.0));
            }
            EvalSubject::Workflow { name, .. } => name.as_deref(),
        };
        let workflow = workflow_of(self.kit, named)?;
        let mut abandoned = Vec::new();
        let run = loop {
            let key = format!("{key}/{}", abandoned.len());
            let asked = StartRequest {
                workflow: &workflow,
                input: serde_json::to_string(&scenario.params).map_err(Failure::of)?,
                key: Some(&key),
                groups: scenario.groups.clone(),
                effects: match suite.suite.executes_effects {
                    true => Effects::Execute,
                    false => Effects::Suppress,
                },
                no_cache: false,
                references: folder.as_ref().map(|it| Arc::clone(&it.references)),
                headers: invoke_headers(self.engine, self.kit, &workflow),
            };
            let about = |failure: Failure| match scenario.label.as_str() {
                "" => failure,
                label => failure.about(label),
            };
            let id = invoke(&self.peer, asked).await.map_err(about)?;
            let run = StreamId::run(&id).map_err(Failure::of)?;
            let left = match is_resumed && abandoned.len() < MAX_BEGINNINGS as usize {
                true => self.left(&run, folder.is_some()).await?,
                false => Left::Nothing,
            };
            match left {
                Left::Nothing => break (run, None),
                Left::Cancelled(error) => break (run, Some(error)),
                Left::Unfinished => self.cancel(&run, BEGUN_ANEW).await?,
                Left::Abandoned => {}
            }
            abandoned.push(run);
        };
        let (run, before) = run;
        let error = match before {
            Some(error) => Some(error),
            None => self.wait_for(&run, suite).await?,
        };
        let wall_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        Ok(EndedReplica {
            run,
            wall_ms,
            abandoned,
            error,
            folder,
        })
    }

    /// The state in which an earlier process left a run. The folder that a run had is not there any
    /// more.
    async fn left(&self, run: &StreamId, has_folder: bool) -> Result<Left, Failure> {
        let orchestrator = &self.engine.orchestrator;
        if orchestrator.watch(run.name()).is_some() || orchestrator.knows_references(run.name()) {
            return Ok(Left::Nothing);
        }
        let ended = if has_folder {
            Left::Abandoned
        } else {
            Left::Nothing
        };
        if self.unfinished(run).await?.is_some() {
            return Ok(Left::Unfinished);
        }
        let reason = self.reason_of_stop(run).await?;
        Ok(match reason.as_deref() {
            Some(BEGUN_ANEW) => Left::Abandoned,
            reason => without_verdict(reason).map_or(ended, Left::Cancelled),
        })
    }

    /// The reason with which a run was cancelled.
    async fn reason_of_stop(&self, run: &StreamId) -> Result<Option<String>, Failure> {
        let asked = run.clone();
        let readers = self.engine.orchestrator.readers();
        let frames = readers.with_kind(ReadKind::Run, move |reader| branch::frames(reader, &asked));
        let fold = fold(&frames.await?).map_err(Failure::of)?;
        let stop = fold.state().stopped_by();
        Ok(stop.and_then(|stop| stop.word.reason.clone()))
    }

    /// The status of a run that has not ended.
    async fn unfinished(&self, run: &StreamId) -> Result<Option<RunStatus>, Failure> {
        let run = run.clone();
        let readers = self.engine.orchestrator.readers();
        Ok(readers.with(move |reader| unfinished(reader, &run)).await?)
    }

    /// Waits until a run has ended; why there is no verdict, if it is cancelled for that.
    async fn wait_for(
        &self,
        run: &StreamId,
        suite: &SuiteFile,
    ) -> Result<Option<&'static str>, Failure> {
        let too_long = async {
            match suite.suite.limits.timeout_ms {
                Some(limit) => tokio::time::sleep(Duration::from_millis(limit)).await,
                None => std::future::pending().await,
            }
        };
        let reason = tokio::select! {
            ended = self.ended(run) => return ended.map(|()| None),
            waits = self.waits(run, suite) => {
                waits?;
                WAITING
            }
            () = too_long => TIMEOUT,
        };
        self.cancel(run, reason).await?;
        // It may have ended by itself, or by a person, before that.
        Ok(without_verdict(self.reason_of_stop(run).await?.as_deref()))
    }

    /// Cancels a run, and waits for its end. If it has ended meanwhile, that is its end.
    async fn cancel(&self, run: &StreamId, reason: &str) -> Result<(), Failure> {
        let body = json!({ "reason": reason }).to_string();
        let path = format!("/runs/{}/cancel", run.name());
        let request = Request::post(path).body(Body::from(body));
        self.peer
            .call_and_read(request.map_err(Failure::of)?)
            .await?;
        self.ended(run).await
    }

    /// Waits until a run has ended.
    async fn ended(&self, run: &StreamId) -> Result<(), Failure> {
        let ended = self.engine.orchestrator.wait_until_ended(run.name()).await;
        match ended {
            // What moves the run may be gone because the run has ended.
            Err(why) if self.unfinished(run).await?.is_some() => {
                let words = format!("the ledger has stopped: {why}");
                Err(Failure::could_not_run(words))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Returns once a run waits for a person, and the suite has no answer.
    async fn waits(&self, run: &StreamId, suite: &SuiteFile) -> Result<(), Failure> {
        let people = suite.suite.people.as_ref();
        let interval = people.map_or(LOOK_INTERVAL, |_| ANSWER_INTERVAL);
        let mut ticks = tokio::time::interval(interval);
        loop {
            ticks.tick().await;
            if self.unfinished(run).await? != Some(RunStatus::Waiting) {
                continue;
            }
            let Some(people) = people else {
                return Ok(());
            };
            let asked = run.clone();
            let readers = self.engine.orchestrator.readers();
            let asked = readers.with(move |reader| requests_of_run(reader, &asked));
            let mut pending = asked.await?;
            pending.retain(|record| record.status() == ApprovalStatus::Pending);
            let mut is_answered = pending.is_empty();
            for record in pending {
                give(&self.peer, people, record, |answered| {
                    is_answered |= answered.refused.is_none();
                })
                .await;
            }
            if !is_answered {
                return Ok(());
            }
        }
    }
}

impl Judging<'_> {
    /// The scenarios and replicas that have no verdict, in order.
    async fn places(&self) -> Result<Vec<(usize, u32)>, Failure> {
        let (first, replica) = self.log.next_run().await.map_err(Failure::of)?;
        let (first, replicas) = (first as usize, self.suite.suite.replicas);
        let scenarios = first..self.scenarios.len();
        let places = scenarios.flat_map(move |scenario| {
            let begins = if scenario == first { replica } else { 0 };
            (begins..replicas).map(move |replica| (scenario, replica))
        });
        Ok(places.collect())
    }
}
