//! Runs one workflow on an engine in this process: `ktsu run`, and `ktsu invoke` if no process owns
//! the ledger.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use axum::http::HeaderValue;
use ktsu_ledger::event::Effects;
use ktsu_ledger::event::plan::AuthScheme;

use super::approval_prompt::is_attended;
use super::envelope::{self, EnvelopeView};
use super::explain;
use super::follow::{StartRequest, Watch, invoke};
use super::layout::columns;
use super::location::LedgerLocation;
use super::logging::warn_of;
use super::logging::{self, LogFormat};
use super::output::{
    is_live, is_terminal, line, note, note_commands, note_dim, note_sheet, print_failure,
};
use super::signals::{Signals, drain_and_close};
use super::{Common, Failure, json, pages, text};
use ktsu_assemble::{Engine, LedgerPlace, Setup};
use ktsu_environment::Environment;
use ktsu_eval::Answers;
use ktsu_kit::Kit;
use ktsu_opening::engine::{open, receiver};
use ktsu_opening::environment::process_environment;
use ktsu_opening::peer::{peer_of, token_header};
use ktsu_opening::quoting::quoted;
use ktsu_receiver::Delivery;

/// The run to make, and its ledger.
pub(super) struct EmbeddedRun {
    pub(super) kit: Arc<Kit>,
    pub(super) workflow: String,
    pub(super) input: String,
    pub(super) key: Option<String>,
    /// The treatment of webhooks and messages: sent or suppressed.
    pub(super) effects: Effects,
    /// True if every model call is made.
    pub(super) no_cache: bool,
    pub(super) environment: Option<Environment>,
    /// Answers in place of people.
    pub(super) answers: Option<Arc<Answers>>,
    /// None: memory.
    pub(super) ledger: Option<LedgerLocation>,
    /// True if the page of the run is opened, and served until the command is stopped.
    pub(super) open: bool,
}

/// Runs it, shows it, and gives the exit code.
pub(super) async fn run(common: &Common, job: EmbeddedRun) -> Result<ExitCode, Failure> {
    logging::start(LogFormat::Text, logging::default_level("warn"))?;
    let token = token_header()?;
    let mut signals = Signals::new()?;
    let mut process = process_environment();
    let receiver = receiver(
        job.environment.as_ref(),
        &mut process,
        job.ledger.as_ref().and_then(|place| place.ledger.file()),
    )
    .await?;
    job.environment
        .iter()
        .for_each(|file| warn_of(&file.warnings));
    let ledger = match &job.ledger {
        Some(place) => place.ledger.clone(),
        None => LedgerPlace::Memory,
    };
    let kit = Arc::clone(&job.kit);
    let setup = Setup::embedded(kit, job.environment.clone(), process, ledger);
    let engine = open(setup).await?;
    note_recovered(&engine);
    let url = engine.url.clone();
    let outcome = run_and_follow(common, &engine, &job, (token, &mut signals)).await;
    let received = receiver.map(|receiver| {
        let mut kept = receiver.deliveries();
        for one in &mut kept {
            one.path = engine.orchestrator.redacted(&one.path);
        }
        (receiver.received(), kept)
    });
    let closed = match &job.ledger {
        Some(_) => signals.unless_again(drain_and_close(engine)).await,
        // Nothing would be kept of what is waited for.
        None => signals.unless_again(engine.close()).await,
    };
    let Some((run_id, envelope)) = outcome? else {
        // Interrupted; the message was printed already.
        return Ok(ExitCode::from(ktsu_codes::EXIT_COULD_NOT_RUN));
    };
    closed.map_err(Failure::could_not_run)?;
    if let Some((count, kept)) = received.filter(|(count, _)| *count > 0) {
        was_received_here(count, &kept);
    }
    let code = finish(common, &run_id, &envelope, job.ledger.as_ref());
    if let (true, Some(place)) = (job.open, job.ledger) {
        let page = (url.as_str(), run_id.as_str());
        serve_pages(place, job.environment, page, &mut signals).await;
    }
    code
}

/// Prints how many unfinished runs continue, and how many do not.
pub(super) fn note_recovered(engine: &Engine) {
    if engine.recovered.left > 0 {
        let runs = text::count(engine.recovered.left, "unfinished run");
        note(&format!("not resuming {runs} of other kits"));
    }
    if engine.recovered.other_rules > 0 {
        let runs = text::count(engine.recovered.other_rules, "unfinished run");
        note(&format!(
            "not resuming {runs} with decision rules of another ktsu version"
        ));
    }
    let left = engine.recovered.left + engine.recovered.other_rules;
    let count = engine.recovered.unfinished - left;
    if count > 0 {
        note(&format!(
            "resuming {}",
            text::count(count, "unfinished run")
        ));
    }
}

/// Serves the pages of a ledger that this process owned until now, at the same address, until the command
/// is stopped. From here on others may own the ledger.
async fn serve_pages(
    place: LedgerLocation,
    environment: Option<Environment>,
    (url, run_id): (&str, &str),
    signals: &mut Signals,
) {
    let port = url.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
    match pages::serve(place.ledger, environment, port.unwrap_or_default()).await {
        Ok(reading) => {
            note_dim(&format!(
                "{}  remains until Ctrl-C",
                pages::address(&reading.url, Some(run_id))
            ));
            signals.next().await;
            signals.unless_again(reading.close()).await;
        }
        // The run has its verdict all the same.
        Err(failure) => note(&format!(
            "warning: the pages are no longer served: {}",
            text::clean(failure.message())
        )),
    }
}

/// The run's id and envelope; nothing if it was interrupted.
async fn run_and_follow(
    common: &Common,
    engine: &Engine,
    job: &EmbeddedRun,
    (token, signals): (Option<HeaderValue>, &mut Signals),
) -> Result<Option<(String, String)>, Failure> {
    let peer = peer_of(engine, token);
    let asked = StartRequest {
        workflow: &job.workflow,
        input: job.input.clone(),
        key: job.key.as_deref(),
        groups: BTreeMap::new(),
        references: None,
        effects: job.effects,
        no_cache: job.no_cache,
        headers: invoke_headers(engine, &job.kit, &job.workflow),
    };
    let run_id = invoke(&peer, asked).await?;
    let workflow = text::line(&job.workflow);
    let named = format!("{workflow} as {run_id}");
    let width = note_sheet().width.unwrap_or(usize::MAX);
    match columns(&named) <= width {
        true => note_dim(&named),
        // The id is what people copy: it has a line of its own.
        false => {
            note_dim(&note_sheet().fit(&workflow));
            note_dim(&format!("  as {run_id}"));
        }
    }
    if job.open {
        let page = pages::address(&engine.url, Some(&run_id));
        match common.json {
            true => pages::print_address(&page),
            false => note(&page),
        }
        pages::browse(common, &page);
    }
    let watch = Watch {
        flag: job.ledger.as_ref().map_or("", |place| place.flag.as_str()),
        leaves_waiting: job.answers.is_some() && !is_attended(),
        answers: job.answers.clone(),
        ..Watch::default()
    };
    let Some(envelope) = watch.follow(&peer, &run_id, signals).await.transpose()? else {
        interrupted(&run_id, &job.kit.root, job.ledger.as_ref());
        return Ok(None);
    };
    if let Some(why) = engine.orchestrator.failed() {
        return Err(
            Failure::could_not_run(format!("the ledger has stopped: {why}"))
                .hint("check the ledger with ktsu verify, then run again"),
        );
    }
    if let Some(answers) = &job.answers
        && envelope::is_waiting(&envelope)
    {
        return Err(unanswered(&run_id, answers, job));
    }
    Ok(Some((run_id, envelope)))
}

/// The failure of a run that waits for an answer that the file does not have.
fn unanswered(run_id: &str, answers: &Answers, job: &EmbeddedRun) -> Failure {
    let file = answers.path.display();
    let words = format!("{run_id} waits for an answer that {file} does not have");
    let hint = match &job.ledger {
        Some(place) => format!(
            "ktsu approvals{flag}, then ktsu resume {run_id} --kit {kit}{flag}",
            flag = place.flag,
            kit = quoted(&job.kit.root)
        ),
        None => "add one, or leave out --ephemeral, so that the run is kept".to_owned(),
    };
    Failure::could_not_run(words).hint(hint)
}

/// The header with the secret that the workflow requires from its callers, which this engine knows.
pub(super) fn invoke_headers(engine: &Engine, kit: &Kit, workflow: &str) -> Vec<(String, String)> {
    let root = kit.workflows.get(workflow);
    let auth = root
        .and_then(|one| one.definition.root())
        .and_then(|root| root.plan.invoke.as_ref());
    let header = auth.and_then(|auth| {
        let secret = engine.orchestrator.invoke_secret(workflow, &auth.secret)?;
        let value = match auth.scheme {
            AuthScheme::Raw => secret.expose().to_owned(),
            AuthScheme::Bearer => format!("Bearer {}", secret.expose()),
        };
        Some((auth.header.clone(), value))
    });
    header.into_iter().collect()
}

fn was_received_here(count: u64, kept: &[Delivery]) {
    let webhooks = text::count(count, "webhook");
    note_dim(&format!(
        "  {webhooks} sent to the receiver of this command"
    ));
    for one in kept {
        let size = text::bytes(u64::try_from(one.body_bytes).unwrap_or(u64::MAX));
        let words = format!("    {} {} {size}", one.method, text::line(&one.path));
        note_dim(&note_sheet().fit(&words));
    }
}

fn interrupted(run_id: &str, kit: &Path, ledger: Option<&LedgerLocation>) {
    match ledger {
        Some(place) => {
            let (kit, flag) = (quoted(kit), &place.flag);
            print_failure(&format!(
                "interrupted: {run_id} is kept\n  \
                 ktsu resume {run_id} --kit {kit}{flag}  to continue it\n  \
                 ktsu cancel {run_id}{flag}  to end it"
            ));
        }
        None => print_failure(&format!(
            "interrupted: {run_id} is lost with its ledger in memory"
        )),
    }
}

/// Prints the envelope and where to look further; gives the exit code.
pub(super) fn finish(
    common: &Common,
    run_id: &str,
    envelope: &str,
    ledger: Option<&LedgerLocation>,
) -> Result<ExitCode, Failure> {
    if common.json {
        line(&json::pretty(envelope));
        return envelope::verdict(envelope);
    }
    let flag = ledger.map_or("", |place| place.flag.as_str());
    let all = match ledger {
        Some(_) => format!("ktsu runs get {run_id} --json{flag}"),
        None => "run again with --json".to_owned(),
    };
    let seen = is_live() && is_terminal();
    if seen {
        line("");
    }
    envelope::print(
        envelope,
        EnvelopeView {
            steps: !seen,
            all: &all,
        },
    )?;
    if ledger.is_some() {
        note("");
        note_dim("next");
        let mut commands = vec![
            (format!("ktsu trace {run_id}{flag}"), "causes and effects"),
            (format!("ktsu runs get {run_id}{flag}"), "this result again"),
            (format!("ktsu frames {run_id}{flag}"), "all recorded frames"),
            (format!("ktsu verify{flag}"), "check the ledger"),
        ];
        let read: serde_json::Value = serde_json::from_str(envelope).unwrap_or_default();
        if !read["world"].is_null() {
            let world = format!("ktsu world {run_id}{flag}");
            commands.insert(0, (world, "objects and relations"));
        }
        if let Some(code) = read["error"]["code"]
            .as_str()
            .filter(|code| explain::knows(code))
        {
            commands.push((format!("ktsu explain {code}"), "what the error means"));
        }
        note_commands(&commands);
    }
    envelope::verdict(envelope)
}
