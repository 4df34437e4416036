//! `ktsu dev`: an engine for a kit that is being written. Each save is checked; what is valid is loaded, and
//! can be run again.
//!
//! ```text
//! a file is saved ─▶ check ─not valid─▶ faults at their lines, here and on the kit's page; the kit loaded before remains,
//!                      │                at first one without workflows
//!                      └─valid─▶ the engine is opened again, at the same address ─▶ run again
//! Enter, at a terminal ─────────────────────────────────────────────────────────────▲
//! ```
//!
//! Runs that are under way when the engine is opened again continue with the definition that they began with.

mod watched;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use ktsu_config::render;
use ktsu_ledger::event::Effects;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use self::watched::WatchedFolder;
use super::approval_prompt::{is_attended, lines};
use super::embedded::{invoke_headers, note_recovered};
use super::envelope::{self, EnvelopeView};
use super::folder::Folder;
use super::follow::{StartRequest, Viewer, follow, invoke};
use super::input::effects_words;
use super::live::Live;
use super::location::{environment_of_process, ledger_location};
use super::logging::{self, LogFormat};
use super::output::{self, is_live, is_terminal, line, note, note_dim, transient};
use super::signals::{Signals, drain_and_close};
use super::validate::print_check;
use super::{Common, Failure, pages, text};
use ktsu_api::kit_checks::{KitChecks, KitVerdict};
use ktsu_assemble::{Engine, Setup};
use ktsu_kit::Kit;
use ktsu_opening::engine::{open, receiver};
use ktsu_opening::environment::{environment_file, load_environment, process_environment};
use ktsu_opening::input::{about_example, input_of, workflow_of};
use ktsu_opening::kit::no_kit;
use ktsu_opening::peer::{peer_of, token_header};
use ktsu_project::{self as project, CheckWith};
use ktsu_receiver::Receiver;

/// The time between two looks at the files.
const LOOK_INTERVAL: Duration = Duration::from_millis(150);

/// What `dev` takes.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    folder: Folder,
    /// The workflow to run [default: the kit's default, or its only one]
    workflow: Option<String>,
    /// The params, as JSON or from a file [default: examples/default.json of the kit]
    #[arg(long, value_name = "JSON|@FILE")]
    input: Option<String>,
    /// The environment file [default: the nearest environments/local.env.yaml, from the kit upward]
    #[arg(long, env = "KTSU_ENV", value_name = "FILE")]
    env: Option<PathBuf>,
    /// Whether webhooks and messages of the runs are sent
    #[arg(long, value_name = "WHAT", default_value = "execute", value_parser = effects_words())]
    effects: Effects,
    /// The port of 127.0.0.1; 0 for any free one
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// Opens the page of the list of runs in a browser
    #[arg(long)]
    open: bool,
}

/// Works on a kit until it is stopped.
pub(super) async fn run(common: &Common, arguments: Arguments) -> Result<ExitCode, Failure> {
    logging::start(LogFormat::Text, logging::default_level("warn"))?;
    let dir = arguments.folder.path();
    if !dir.is_dir() {
        return Err(no_kit(&dir));
    }
    let mut signals = Signals::new()?;
    let mut typed = is_attended().then(lines);
    let named = arguments.env.clone().or_else(environment_of_process);
    let environment = environment_file(named.as_deref(), &dir);
    let mut watched =
        WatchedFolder::new(&dir, environment.clone(), ledger_file(common, &arguments));
    if watched.is_cut() {
        note("warning: the folder has too many files: not every save is noticed");
    }
    let runs_alone = typed.is_none();
    let runs_now = runs_alone && arguments.input.is_some();
    let mut session = DevSession {
        common,
        port: arguments.port,
        arguments,
        dir,
        environment,
        kit: None,
        is_announced: false,
        checks: KitChecks::default(),
        opened: None,
        following: None,
    };
    if session.take_save(&mut signals).await? && runs_now {
        session.begin(&mut signals).await?;
    }
    let mut looks = tokio::time::interval(LOOK_INTERVAL);
    loop {
        tokio::select! {
            () = signals.next() => break,
            _ = looks.tick() => {
                session.must_work()?;
                if watched.has_changed() && session.take_save(&mut signals).await? && runs_alone {
                    session.begin(&mut signals).await?;
                }
            }
            typed = next_line(&mut typed) => match typed.as_deref().map(str::trim) {
                Some("") => session.begin(&mut signals).await?,
                Some("q") | None => break,
                Some(_) => session.offer(),
            },
            ended = next_end(&mut session.following) => session.show_end(ended)?,
        }
    }
    session.end(&mut signals).await?;
    Ok(ExitCode::SUCCESS)
}

/// The file of the ledger, if it is kept in one. What hinders to know it is reported later.
fn ledger_file(common: &Common, arguments: &Arguments) -> Option<PathBuf> {
    let environment = load_environment(arguments.env.as_deref(), &arguments.folder.path());
    let place = ledger_location(common, environment.ok()?.as_ref()).ok()?;
    place.ledger.file().map(Path::to_owned)
}

/// The next line that is typed; nothing comes without a terminal.
async fn next_line(typed: &mut Option<mpsc::Receiver<String>>) -> Option<String> {
    match typed {
        Some(typed) => typed.recv().await,
        None => std::future::pending().await,
    }
}

/// The end of the run that is shown.
async fn next_end(following: &mut Option<FollowedRun>) -> Result<String, Failure> {
    match following {
        Some(run) => run.envelope.as_mut().await,
        None => std::future::pending().await,
    }
}

/// A run that is shown until it ends, with its envelope.
struct FollowedRun {
    run_id: String,
    envelope: Pin<Box<dyn Future<Output = Result<String, Failure>>>>,
}

/// The engine of a kit, and the receiver of its webhooks.
struct OpenedKit {
    engine: Engine,
    kit: Arc<Kit>,
    _receiver: Option<Receiver>,
    /// ` --ledger PATH`, for the commands shown.
    flag: String,
}

/// The work on a kit.
struct DevSession<'a> {
    common: &'a Common,
    arguments: Arguments,
    dir: PathBuf,
    environment: Option<PathBuf>,
    /// The port of the pages, the same for every engine.
    port: u16,
    /// The kit that was valid last.
    kit: Option<Arc<Kit>>,
    /// True once the address of the pages has been printed.
    is_announced: bool,
    /// What pages show of the checks.
    checks: KitChecks,
    opened: Option<OpenedKit>,
    following: Option<FollowedRun>,
}

impl DevSession<'_> {
    /// Checks the files, and loads them if they are valid; `true` if they are.
    async fn take_save(&mut self, signals: &mut Signals) -> Result<bool, Failure> {
        let under = match &self.environment {
            Some(path) => CheckWith::File(path),
            None => CheckWith::Process,
        };
        let checked = project::check(&self.dir, under, &process_environment(), false);
        let is_sound = checked.is_sound();
        let is_first = self.kit.is_none();
        let verdict = json!({
            "valid": is_sound,
            "faults": render::json(&checked.faults),
            "environment": checked.unset,
        });
        // Who reads the verdict finds it on the page.
        self.checks.set(KitVerdict {
            is_sound,
            faults: checked.faults.clone(),
            unset: checked.unset.clone(),
        });
        if !self.common.json {
            print_check(&self.dir, &checked);
        }
        let is_waiting = self.opened.is_none() && is_first;
        if let Some(kit) = checked.kit.filter(|_| is_sound) {
            self.kit = Some(Arc::new(kit));
        }
        if is_sound || is_waiting {
            match self.open(signals).await {
                Ok(()) => {}
                // What hinders the pages, too, is among the faults, or is said once the kit is valid.
                Err(_) if !is_sound => {}
                // A ledger that cannot be owned is no fault of the kit.
                Err(failure) if is_first => return Err(failure),
                Err(failure) => {
                    output::fail(&failure);
                }
            }
        }
        self.announce();
        if self.common.json {
            line(&verdict.to_string());
        }
        if is_sound || is_waiting {
            self.offer();
        }
        Ok(is_sound && self.opened.is_some())
    }

    /// Prints the address of the pages, once there are any.
    fn announce(&mut self) {
        let opened = self.opened.as_ref().filter(|_| !self.is_announced);
        let Some(opened) = opened else { return };
        let engine = &opened.engine.url;
        let url = match self.kit {
            Some(_) => pages::address(engine, None),
            None => pages::kit_address(engine),
        };
        match self.common.json {
            true => pages::print_address(&url),
            false => {
                line(&url);
            }
        }
        if self.arguments.open {
            pages::browse(self.common, &url);
        }
        self.is_announced = true;
    }

    /// Says what can be typed.
    fn offer(&self) {
        if !is_attended() {
            return;
        }
        match (&self.opened, &self.kit) {
            (_, None) => note_dim("the kit can be run once it is valid; q ends"),
            (Some(_), Some(_)) => note_dim("Enter runs it, q ends"),
            (None, Some(_)) => {}
        }
    }

    /// Opens an engine for the kit in place of the one before.
    async fn open(&mut self, signals: &mut Signals) -> Result<(), Failure> {
        let kit = self.kit.clone();
        let kit = kit.unwrap_or_else(|| Arc::new(Kit::without_workflows(&self.dir)));
        self.close(signals).await?;
        let environment = load_environment(self.arguments.env.as_deref(), &kit.root)?;
        let place = ledger_location(self.common, environment.as_ref())?;
        let mut process = process_environment();
        let receiver = receiver(environment.as_ref(), &mut process, place.ledger.file()).await?;
        let setup = Setup {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, self.port)),
            kit_checks: self.checks.clone(),
            ..Setup::embedded(Arc::clone(&kit), environment, process, place.ledger)
        };
        let engine = open(setup).await?;
        note_recovered(&engine);
        let port = engine.url.rsplit_once(':');
        let port = port.and_then(|(_, port)| port.parse().ok());
        self.port = port.unwrap_or(self.port);
        self.opened = Some(OpenedKit {
            engine,
            kit,
            _receiver: receiver,
            flag: place.flag,
        });
        Ok(())
    }

    /// Runs the workflow; why it does not run is printed.
    async fn begin(&mut self, signals: &mut Signals) -> Result<(), Failure> {
        if self.kit.is_none() {
            self.offer();
            return Ok(());
        }
        if self.opened.is_none()
            && let Err(failure) = self.open(signals).await
        {
            output::fail(&failure);
        }
        let Some(opened) = &self.opened else {
            return Ok(());
        };
        match self.invoked(opened).await {
            Ok(run_id) => {
                let page = pages::address(&opened.engine.url, Some(&run_id));
                match self.common.json {
                    true => {
                        line(&json!({"run_id": run_id, "url": page}).to_string());
                    }
                    false => note(&page),
                }
                self.leave();
                self.follow(run_id)
            }
            Err(failure) => {
                output::fail(&failure);
                Ok(())
            }
        }
    }

    /// The id of a run that begins.
    async fn invoked(&self, opened: &OpenedKit) -> Result<String, Failure> {
        let OpenedKit { engine, kit, .. } = opened;
        let given = self.arguments.input.as_deref();
        let workflow = workflow_of(kit, self.arguments.workflow.as_deref())?;
        let request = StartRequest {
            workflow: &workflow,
            input: input_of(kit, &workflow, given)?,
            key: None,
            groups: BTreeMap::new(),
            references: None,
            effects: self.arguments.effects,
            no_cache: false,
            headers: invoke_headers(engine, kit, &workflow),
        };
        let peer = peer_of(engine, token_header()?);
        let begun = invoke(&peer, request).await;
        begun.map_err(|failure| about_example(failure, kit, &workflow, given))
    }

    /// Shows a run until it ends.
    fn follow(&mut self, run_id: String) -> Result<(), Failure> {
        let Some(opened) = &self.opened else {
            return Ok(());
        };
        let peer = peer_of(&opened.engine, token_header()?);
        let run = run_id.clone();
        let envelope = async move {
            let mut live = Live::new();
            let viewer = Viewer {
                live: Some(&mut live),
                ..Viewer::default()
            };
            follow(&peer, &run, viewer).await
        };
        self.following = Some(FollowedRun {
            run_id,
            envelope: Box::pin(envelope),
        });
        Ok(())
    }

    /// Shows the run no more that is shown, although it has not ended.
    fn leave(&mut self) {
        if let Some(run) = self.following.take() {
            if is_live() {
                transient("");
            }
            let run_id = &run.run_id;
            note_dim(&format!(
                "{run_id} continues as it began; its page shows it"
            ));
        }
    }

    /// Prints how the run that is shown has ended.
    fn show_end(&mut self, ended: Result<String, Failure>) -> Result<(), Failure> {
        let Some(run) = self.following.take() else {
            return Ok(());
        };
        let envelope = match ended {
            Ok(envelope) => envelope,
            Err(failure) => {
                output::fail(&failure);
                return Ok(());
            }
        };
        if self.common.json {
            let read: Value = serde_json::from_str(&envelope).unwrap_or_default();
            let body = json!({"run_id": run.run_id, "status": read["status"], "error": read["error"], "output": read["output"]});
            line(&body.to_string());
            return Ok(());
        }
        let flag = self.opened.as_ref().map_or("", |opened| &opened.flag);
        let all = format!("ktsu runs get {} --json{flag}", run.run_id);
        let shown = EnvelopeView {
            steps: !(is_live() && is_terminal()),
            all: &all,
        };
        envelope::print(&envelope, shown)?;
        self.offer();
        Ok(())
    }

    /// Fails once the ledger has stopped.
    fn must_work(&self) -> Result<(), Failure> {
        let failed = self.opened.as_ref();
        match failed.and_then(|opened| opened.engine.orchestrator.failed()) {
            Some(why) => Err(
                Failure::could_not_run(format!("the ledger has stopped: {why}"))
                    .hint("check the ledger with ktsu verify, then start again"),
            ),
            None => Ok(()),
        }
    }

    /// Closes the engine for good.
    async fn end(&mut self, signals: &mut Signals) -> Result<(), Failure> {
        self.following = None;
        let opened = self.opened.as_ref();
        let active = opened.map_or(0, |opened| opened.engine.orchestrator.active());
        self.close(signals).await?;
        if active > 0 {
            let runs = text::count(active, "unfinished run");
            note(&format!("{runs} will resume at the next start"));
        }
        Ok(())
    }

    /// Closes the engine; calls in flight are recorded first.
    async fn close(&mut self, signals: &mut Signals) -> Result<(), Failure> {
        self.leave();
        let Some(opened) = self.opened.take() else {
            return Ok(());
        };
        let closed = signals.unless_again(drain_and_close(opened.engine)).await;
        closed.map_err(Failure::could_not_run)
    }
}
