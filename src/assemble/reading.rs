//! `ktsu start --read-only`: the routes over a ledger that nobody here owns. Nothing is locked and
//! nothing is written, whatever is asked; a damaged ledger is served as far as it can be read.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ktsu_ledger::Ledger;
use ktsu_ledger::appender::Appender;
use ktsu_ledger::store::{Reader, StoreError};
use ktsu_ledger::verify::{Kind, Options};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::counted::{Counted, ORCHESTRATOR};
use super::{NotOpened, Setup, policy, serve, server_limits, url_of, values};
use ktsu_api::access::Access;
use ktsu_api::routes;
use ktsu_damage::{self as damage, Damage, Watched};
use ktsu_egress as egress;
use ktsu_environment::Principals;
use ktsu_history::listed::Listed;
use ktsu_history::verify;
use ktsu_orchestrator::{MAX_ACTIVE, Orchestrator, Parts, Standing, TokenKey, clock};
use ktsu_readers::Readers;
use ktsu_server::{self as server, Limits};
use ktsu_telemetry::{Metrics, Telemetry};

/// How long answers under way may take at the end.
const GRACE: Duration = Duration::from_secs(1);

/// Why nothing is written, as everything that would write is told.
const REASON: &str = "this engine was started with --read-only";

/// An engine that answers questions.
pub struct Reading {
    /// Where it listens.
    pub url: String,
    /// What is known to be damaged at the start, if anything is.
    pub damaged: Option<String>,
    serving: JoinHandle<()>,
    stop: watch::Sender<bool>,
}

/// Serves reading of a ledger file, whoever owns it.
///
/// # Errors
/// [`NotOpened`]; [`StoreError`] if so much is damaged that the file cannot be opened at all.
pub async fn open(setup: Setup, ledger: &Path) -> Result<Reading, NotOpened> {
    let (principals, environment) = values::of(&setup)?;
    let file = setup.environment.as_ref();
    let limits = file.map(|file| file.limits.clone()).unwrap_or_default();
    let damage = search(ledger)?;
    let listener = match principals.is_empty() {
        true => server::bind_loopback(setup.listen).await?,
        false => server::bind(setup.listen).await?,
    };
    let url = url_of(&listener)?;
    let appender = Appender::stopped(REASON);
    let counted = Counted::of(std::iter::empty());
    let parts = Parts {
        telemetry: Telemetry::new(Metrics::default(), &appender, counted.all()),
        appender,
        readers: readers(ledger, &damage),
        kit: setup.kit,
        environment,
        principals: Arc::clone(&principals),
        max_active: MAX_ACTIVE,
        tool_servers: Default::default(),
        egress: egress::Client::new(&policy(file))?,
        clock: setup.clock.unwrap_or_else(clock::system),
        runtime: None,
        groups: None,
        gateway: None,
        notary: Arc::default(),
        tokens: no_tokens()?,
        own_url: url.clone(),
        resume_unfinished: false,
        standing: Standing::reading(damage.clone()),
        secret: Arc::new(|_| None),
        provider_keys: Vec::new(),
    };
    let (orchestrator, _) = Orchestrator::start(parts).await.map_err(NotOpened::Other)?;
    let access = Access {
        principals: Arc::<Principals>::clone(&principals),
        within: false,
        body_bytes: limits.body_bytes,
    };
    let router = routes::router_for(orchestrator, access);
    let stop = watch::Sender::new(false);
    // Whoever follows a run that another engine goes on with is not waited for at the end.
    let most = Limits {
        grace: GRACE,
        ..counted.limits(ORCHESTRATOR, &server_limits(limits.connections))
    };
    Ok(Reading {
        url,
        damaged: damage.why().map(str::to_owned),
        serving: serve(listener, router, most, &stop),
        stop,
    })
}

impl Reading {
    /// Stops.
    pub async fn close(self) {
        self.stop.send_replace(true);
        let _ = self.serving.await;
    }
}

/// What is damaged, as far as it was looked for. A ledger in use moves on meanwhile, which the
/// verification takes into account.
fn search(ledger: &Path) -> Result<Damage, StoreError> {
    let damage = Damage::default();
    drop(Ledger::open(ledger).reader()?);
    if damage::is_searched(ledger) {
        let report = verify::ledger(ledger, &Options::default(), &mut |_| {})?;
        let mut problems = report.problems.iter();
        if let Some(problem) = problems.find(|problem| problem.kind != Kind::Index) {
            damage.found(&damage::in_words(problem));
        }
    }
    Ok(damage)
}

fn readers(ledger: &Path, damage: &Damage) -> Readers {
    let (ledger, damage) = (Ledger::open(ledger), damage.clone());
    Readers::new(move || {
        let watched = Watched::new(ledger.reader()?, damage.clone());
        let reader: Box<dyn Reader> = Box::new(Listed::knowing(watched, damage.clone()));
        Ok(reader)
    })
}

/// A key that nobody has: no attempt reports to an engine that only reads.
fn no_tokens() -> Result<TokenKey, NotOpened> {
    let mut key = [0; 32];
    getrandom::fill(&mut key).map_err(|error| NotOpened::Other(error.to_string()))?;
    Ok(TokenKey::new(key))
}
