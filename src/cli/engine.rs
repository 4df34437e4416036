//! Opening kits, environments and engines, with failures a person can act on.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::http::HeaderValue;
use axum::middleware::map_request;
use ktsu_ledger::lock::{LockError, LockHolder};
use ktsu_ledger::reserve::is_disk_full;
use ktsu_ledger::store::StoreError;

use super::reading::{UNSERVABLE_HINT, restore_hint};
use super::{Common, Failure, folder};
use ktsu_assemble::reading::ReadOnlyEngine;
use ktsu_assemble::{self as assemble, Engine, LedgerPlace, OpenEngineError, Setup};
use ktsu_config::fault::{FaultCode, Faults, Severity};
use ktsu_config::render;
use ktsu_contract::TOKEN_HEADER;
use ktsu_environment::Environment;
use ktsu_kit::{self as kit, Kit};
use ktsu_peer::Peer;
use ktsu_receiver::Receiver;
use ktsu_server::BindError;

/// The default location of the ledger.
pub(super) const DEFAULT_LEDGER: &str = ".ktsu/ledger.db";

/// A ledger, as commands name it.
#[derive(Debug, Clone)]
pub(super) struct LedgerLocation {
    /// The file.
    pub(super) path: PathBuf,
    /// What to add to a command so that it finds the ledger: nothing, or ` --ledger FILE`.
    pub(super) flag: String,
}

/// The ledger: the one named, else the environment's, else the usual one below the working
/// directory.
pub(super) fn ledger_location(
    common: &Common,
    environment: Option<&Environment>,
) -> LedgerLocation {
    let found = |environment: Option<&Environment>| {
        let named = environment.and_then(|environment| environment.ledger.as_ref());
        named.map_or_else(|| PathBuf::from(DEFAULT_LEDGER), PathBuf::from)
    };
    let path = match &common.ledger {
        Some(path) => path.clone(),
        None => found(environment),
    };
    // What a command without the flag would look at.
    let usual = match std::env::var_os("KTSU_LEDGER").filter(|path| !path.is_empty()) {
        Some(path) => PathBuf::from(path),
        None => found(nearby_environment().ok().flatten().as_ref()),
    };
    let flag = if path == usual {
        String::new()
    } else {
        format!(" --ledger {}", quoted(&path))
    };
    LedgerLocation { path, flag }
}

/// The ledger a command without a kit means.
pub(super) fn nearby_ledger(common: &Common) -> Result<LedgerLocation, Failure> {
    let environment = match common.ledger {
        Some(_) => None,
        None => nearby_environment()?,
    };
    Ok(ledger_location(common, environment.as_ref()))
}

fn nearby_environment() -> Result<Option<Environment>, Failure> {
    let kit = folder::of_process().unwrap_or_else(|| PathBuf::from("."));
    load_environment(environment_of_process().as_deref(), &kit)
}

/// A path as a shell takes it.
pub(super) fn quoted(path: &Path) -> String {
    quoted_text(&path.display().to_string())
}

/// A text as a shell takes it.
pub(super) fn quoted_text(text: &str) -> String {
    let plain = |one: char| one.is_alphanumeric() || "/._-+:@%=".contains(one);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

/// Loads a kit; if it is not valid, the failure lists every fault.
pub(super) fn load_kit(dir: &Path) -> Result<Arc<Kit>, Failure> {
    if !dir.is_dir() {
        return Err(no_kit(dir));
    }
    let refused = |faults| invalid(&faults, dir);
    kit::load(dir).map(Arc::new).map_err(refused)
}

/// Loads a kit; with `locked`, refuses one that differs from its lock.
pub(super) fn load_kit_as(dir: &Path, locked: bool) -> Result<Arc<Kit>, Failure> {
    let kit = load_kit(dir)?;
    let held = if locked { kit.must_be_locked() } else { Ok(()) };
    held.map_err(|faults| not_locked(&faults, dir))?;
    Ok(kit)
}

/// What `validate` would refuse.
pub(super) fn invalid(faults: &Faults, dir: &Path) -> Failure {
    let words = faults_text("the kit is not valid", &from_here(faults, dir));
    Failure::could_not_run(words).hint(format!("ktsu validate {}", quoted(dir)))
}

/// Whether all that is wrong is that there is no lock file.
pub(super) fn lacks_lock(faults: &Faults) -> bool {
    let mut all = faults.faults.iter();
    all.all(|fault| fault.code == FaultCode::LockMissing)
}

/// The failure for a kit that has no lock or differs from it.
fn not_locked(faults: &Faults, dir: &Path) -> Failure {
    let (verdict, what) = match lacks_lock(faults) {
        true => ("the kit has no lock file", "write one"),
        false => ("the kit differs from its lock", "update the lock"),
    };
    let hint = format!("to {what}: ktsu lock {}", quoted(dir));
    Failure::could_not_run(faults_text(verdict, &from_here(faults, dir))).hint(hint)
}

/// Faults of a kit with paths from the working directory, which terminals and editors can open.
pub(super) fn from_here(faults: &Faults, dir: &Path) -> Faults {
    if dir == Path::new(".") {
        return faults.clone();
    }
    faults.with_paths(|file| {
        let within = dir.join(file);
        // Environment files have such paths already.
        let is_own = file.is_relative() && !file.as_os_str().is_empty() && !file.starts_with(dir);
        let is_environment = file.to_string_lossy().ends_with(ENVIRONMENT_FILE);
        match is_own && !is_environment && within.exists() {
            true => within,
            false => file.to_owned(),
        }
    })
}

/// How environment files are called.
const ENVIRONMENT_FILE: &str = ".env.yaml";

/// A headline followed by the rendered faults.
pub(super) fn faults_text(verdict: &str, faults: &Faults) -> String {
    let shown = render::text(faults, false);
    format!("{verdict}\n\n{}", shown.trim_end())
}

/// The failure over a file that is not valid.
pub(super) fn invalid_file(verdict: &str, faults: &Faults) -> Failure {
    Failure::could_not_run(faults_text(verdict, faults))
}

/// There is nothing to read.
pub(super) fn no_kit(dir: &Path) -> Failure {
    let words = format!("{} is not a folder", dir.display());
    Failure::could_not_run(words).hint("a kit is a folder with workflows/, such as kits/hello")
}

/// The environment file that is used: the one named, else the nearest `environments/local.env.yaml`,
/// by its way from the working directory where it is below that.
pub(super) fn environment_file(named: Option<&Path>, kit: &Path) -> Option<PathBuf> {
    if let Some(path) = named {
        return Some(path.to_owned());
    }
    let found = Environment::find(kit)?;
    let here = Path::new(".").canonicalize().ok();
    let short = here.and_then(|here| Some(found.strip_prefix(here).ok()?.to_owned()));
    Some(short.unwrap_or(found))
}

/// The environment file that `KTSU_ENV` names.
pub(super) fn environment_of_process() -> Option<PathBuf> {
    let named = std::env::var_os("KTSU_ENV").filter(|path| !path.is_empty());
    named.map(PathBuf::from)
}

/// The environment file: the one named, else the nearest `environments/local.env.yaml`.
pub(super) fn load_environment(
    named: Option<&Path>,
    kit: &Path,
) -> Result<Option<Environment>, Failure> {
    let Some(path) = environment_file(named, kit) else {
        return Ok(None);
    };
    must_be_file(&path)?;
    let loaded = Environment::load(&path).map(Some);
    loaded.map_err(|faults| invalid_file("the environment file is not valid", &faults))
}

/// An environment file that is not there is no verdict on it.
pub(super) fn must_be_file(path: &Path) -> Result<(), Failure> {
    if path.is_file() {
        return Ok(());
    }
    let words = format!("no environment file at {}", path.display());
    Err(Failure::could_not_run(words)
        .hint("name one: --env FILE, such as environments/local.env.yaml"))
}

/// Logs the warnings of a file.
pub(super) fn warn_of(warnings: &Faults) {
    let warnings = warnings.faults.iter();
    for fault in warnings.filter(|fault| fault.severity == Severity::Warning) {
        tracing::warn!(
            file = %fault.file.display(),
            line = fault.line,
            code = fault.code.text(),
            "{}",
            fault.message
        );
    }
}

/// The client's token from `KTSU_TOKEN`. A value that cannot be sent is an error: without it a
/// command would act as another principal.
pub(super) fn client_token() -> Result<Option<String>, Failure> {
    let Some(given) = std::env::var_os("KTSU_TOKEN").filter(|token| !token.is_empty()) else {
        return Ok(None);
    };
    let token = given.into_string().ok();
    match token.filter(|token| HeaderValue::from_str(token).is_ok()) {
        Some(token) => Ok(Some(token)),
        None => Err(header_failure()),
    }
}

/// As [`client_token`], as a header carries it.
pub(super) fn token_header() -> Result<Option<HeaderValue>, Failure> {
    let token = client_token()?.map(HeaderValue::try_from);
    token.transpose().map_err(|_| header_failure())
}

fn header_failure() -> Failure {
    let words = "KTSU_TOKEN is not a token: it has a line break, a control character or bytes that are not UTF-8";
    Failure::could_not_run(words).hint("export KTSU_TOKEN=\"$(cat FILE)\", or unset KTSU_TOKEN")
}

/// A connection to the engine in this process, which needs no token. If a token is given, it is
/// sent all the same, to act as its principal.
pub(super) fn peer_of(engine: &Engine, token: Option<HeaderValue>) -> Peer {
    peer_within(&engine.router, token)
}

/// As [`peer_of`], to the routes of an engine in this process.
pub(super) fn peer_within(router: &Router, token: Option<HeaderValue>) -> Peer {
    let Some(token) = token else {
        return Peer::Local(router.clone());
    };
    let showing = move |mut request: Request| {
        let token = token.clone();
        request.headers_mut().insert(TOKEN_HEADER, token);
        std::future::ready(request)
    };
    Peer::Local(router.clone().layer(map_request(showing)))
}

/// The process environment of a command that signs without a kit.
pub(super) fn signing_environment() -> Result<BTreeMap<String, String>, Failure> {
    let mut process = process_environment();
    let put = assemble::values::put_signing_key(nearby_environment()?.as_ref(), &mut process);
    put.map_err(|refused| Failure::could_not_run(refused.to_string()))?;
    Ok(process)
}

/// The process environment, without values that are not UTF-8.
pub(super) fn process_environment() -> BTreeMap<String, String> {
    let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
        Some((name.into_string().ok()?, value.into_string().ok()?))
    };
    std::env::vars_os().filter_map(text).collect()
}

/// How many deliveries a local receiver remembers.
const MAX_DELIVERIES: usize = 20;

/// Starts the webhook receiver that the environment declares, unless its variable already has a
/// value.
pub(super) async fn receiver(
    environment: Option<&Environment>,
    process: &mut BTreeMap<String, String>,
    ledger: Option<&Path>,
) -> Result<Option<Receiver>, Failure> {
    let variable = environment.and_then(|one| one.receiver.clone());
    let Some(variable) = variable.filter(|variable| !process.contains_key(variable)) else {
        return Ok(None);
    };
    let noted = ledger.map(|ledger| {
        let mut name = ledger.as_os_str().to_owned();
        name.push(".receiver");
        PathBuf::from(name)
    });
    let before = noted
        .as_ref()
        .and_then(|path| std::fs::read_to_string(path).ok());
    let port: Option<u16> = before.and_then(|port| port.trim().parse().ok());
    let receiver = Receiver::start_at(port.unwrap_or(0), MAX_DELIVERIES).await;
    let receiver = receiver.map_err(Failure::of)?;
    let url = receiver.url();
    if let (Some(path), None) = (&noted, port) {
        // The port is remembered so that resumed runs still reach the receiver.
        let port = url.rsplit(':').next().unwrap_or_default();
        let folder = path.parent().map_or(Ok(()), std::fs::create_dir_all);
        let _ = folder.and_then(|()| std::fs::write(path, port));
    }
    process.insert(variable, url);
    Ok(Some(receiver))
}

/// Opens an engine that only reads.
pub(super) async fn open_reading(setup: Setup, ledger: &Path) -> Result<ReadOnlyEngine, Failure> {
    let opened = assemble::reading::open(setup, ledger).await;
    opened.map_err(|refused| match refused {
        OpenEngineError::Store(error @ StoreError::Damaged(_)) => {
            Failure::could_not_run(error.to_string()).hint(UNSERVABLE_HINT)
        }
        refused => explain(refused, &ledger.display().to_string()),
    })
}

/// Opens an engine.
pub(super) async fn open(setup: Setup) -> Result<Engine, Failure> {
    let path = match &setup.ledger {
        LedgerPlace::File(path) => path.display().to_string(),
        LedgerPlace::Memory => "memory".to_owned(),
        LedgerPlace::Backend(_) => "backend".to_owned(),
    };
    assemble::open(setup).await.map_err(|refused| {
        let full = may_be_disk_full(&refused) && is_disk_full(Path::new(&path));
        let failure = explain(refused, &path);
        match full {
            true => failure.hint(DISK_FULL_HINT),
            false => failure,
        }
    })
}

/// The hint if the disk is too full to start.
const DISK_FULL_HINT: &str =
    "the disk is full: free some space, or read the ledger with ktsu start --read-only";

/// Whether a full disk may have caused this error.
fn may_be_disk_full(refused: &OpenEngineError) -> bool {
    matches!(
        refused,
        OpenEngineError::Store(StoreError::Failed { .. })
            | OpenEngineError::Lock(LockError::Io { .. } | LockError::NotMade(_))
            | OpenEngineError::Other(_)
    )
}

/// Why a ledger or an engine was not opened, and what to type.
pub(super) fn explain(refused: OpenEngineError, path: &str) -> Failure {
    match refused {
        OpenEngineError::Owned(holder) => owned(path, holder.as_ref()),
        OpenEngineError::Environment { workflow, error } => {
            let name = error.first().unwrap_or_default();
            let hint = match error.without.iter().any(|(other, _)| other == name) {
                true => format!(
                    "export {name}=… for all principals, or name it under `secrets` of each"
                ),
                false => {
                    format!("export {name}=…, or set it under `variables` of the environment file")
                }
            };
            Failure::could_not_run(format!("workflow {workflow}: {error}")).hint(hint)
        }
        OpenEngineError::Bind(error) => {
            let failure = Failure::of(&error);
            match error {
                BindError::System { source, .. } if source.kind() == ErrorKind::AddrInUse => {
                    failure.hint("choose another port: --port 6050 (--runtime-port, --gateway-port), or --port 0 for any free port")
                }
                BindError::NotLoopback(_) => failure
                    .hint("--host 127.0.0.1; an orchestrator with principals may listen elsewhere"),
                BindError::System { .. } => failure,
            }
        }
        OpenEngineError::Gateway(faults) => {
            invalid_file("the gateway configuration is not valid", &faults)
        }
        OpenEngineError::Principals(faults) => {
            invalid_file("the principals are not valid", &faults)
        }
        OpenEngineError::Subscriptions(faults) => {
            invalid_file("the subscriptions are not valid", &faults)
        }
        OpenEngineError::Lock(refused) => not_locked_as_owner(&refused),
        OpenEngineError::Store(error) => error.into(),
        other => Failure::could_not_run(chain(&other)),
    }
}

/// Explains why this file cannot be owned, with a hint.
fn not_locked_as_owner(refused: &LockError) -> Failure {
    let failure = Failure::could_not_run(chain(refused));
    match refused {
        LockError::SecondName { .. } => failure.hint(
            "remove the other names, or mount its folder instead of the file; to work on a \
             copy: ktsu backup FILE",
        ),
        LockError::HeldElsewhere(_) => failure.hint("use the path that its owner uses"),
        LockError::Emptied { path, .. } => failure.hint(restore_hint(path)),
        LockError::LogMissing { log, lock, .. } => failure.hint(format!(
            "put {} back next to it; or restore a backup: ktsu restore BACKUP --to FILE; or, to \
             continue without it, remove {}",
            quoted(log),
            quoted(lock)
        )),
        LockError::Held(_) | LockError::NotMade(_) | LockError::Io { .. } => failure,
    }
}

/// Why a service without a ledger does not start.
pub(super) fn start_failure(refused: OpenEngineError) -> Failure {
    explain(refused, "")
}

/// Another process has the ledger: who it is, and what to type.
fn owned(path: &str, holder: Option<&LockHolder>) -> Failure {
    let who = match holder {
        Some(holder) if holder.pid > 0 => format!("process {}", holder.pid),
        Some(_) | None => "another process".to_owned(),
    };
    match holder.and_then(|holder| holder.url.as_ref()) {
        Some(url) => Failure::could_not_run(format!("{path} is owned by {who} at {url}")).hint(
            "to run a workflow there: ktsu invoke WORKFLOW --wait; to use another ledger: \
             --ledger FILE",
        ),
        None => Failure::could_not_run(format!("{path} is owned by {who}"))
            .hint("wait until it ends, or use another ledger: --ledger FILE"),
    }
}

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut words = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_words = cause.to_string();
        if !words.contains(&cause_words) {
            words.push_str(": ");
            words.push_str(&cause_words);
        }
        next = cause.source();
    }
    words
}
