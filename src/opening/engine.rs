//! Opening engines, and closing them.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ktsu_ledger::LedgerOwner;
use ktsu_ledger::lock::LockError;
use ktsu_ledger::reserve::is_disk_full;
use ktsu_ledger::store::StoreError;

use crate::Failure;
use crate::faults::invalid_file;
use crate::ledger::{UNSERVABLE_HINT, restore_hint};
use crate::quoting::quoted;
use ktsu_assemble::reading::ReadOnlyEngine;
use ktsu_assemble::{self as assemble, Engine, LedgerPlace, OpenEngineError, Setup};
use ktsu_environment::Environment;
use ktsu_orchestrator::AwaitedEffects;
use ktsu_receiver::Receiver;
use ktsu_server::BindError;

/// Number of deliveries that a local receiver remembers.
const MAX_DELIVERIES: usize = 20;

/// The time that calls in flight may take to be recorded, unless an option says otherwise.
pub const DRAIN_TIME: Duration = Duration::from_secs(30);

/// The time that draining may take before a command says that it waits.
const NOTICE_TIME: Duration = Duration::from_millis(300);

/// Starts the webhook receiver that the environment declares, unless its variable already has a
/// value.
pub async fn receiver(
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
pub async fn open_reading(setup: Setup) -> Result<ReadOnlyEngine, Failure> {
    let name = setup.ledger.to_string();
    let opened = assemble::reading::open(setup).await;
    opened.map_err(|refused| match refused {
        OpenEngineError::Store(error @ StoreError::Damaged(_)) => {
            Failure::could_not_run(error.to_string()).hint(UNSERVABLE_HINT)
        }
        refused => explain(refused, &name),
    })
}

/// Opens an engine.
pub async fn open(setup: Setup) -> Result<Engine, Failure> {
    let place = setup.ledger.clone();
    let opened = assemble::open(setup).await;
    opened.map_err(|refused| not_opened(refused, &place))
}

/// Opens an engine; gives the reason where another one owns the ledger, or its server does not answer for now.
pub async fn open_if_free(setup: Setup) -> Result<Result<Engine, String>, Failure> {
    let place = setup.ledger.clone();
    match assemble::open(setup).await {
        Ok(engine) => Ok(Ok(engine)),
        Err(
            busy @ (OpenEngineError::Owned(_)
            | OpenEngineError::Store(
                StoreError::Fenced { .. } | StoreError::Unknown(_) | StoreError::Unreachable { .. },
            )),
        ) => Ok(Err(busy.to_string())),
        Err(refused) => Err(not_opened(refused, &place)),
    }
}

/// The failure for an engine that was not opened, and what to type.
fn not_opened(refused: OpenEngineError, place: &LedgerPlace) -> Failure {
    let full = may_be_disk_full(&refused) && place.file().is_some_and(is_disk_full);
    let failure = explain(refused, &place.to_string());
    match full {
        true => failure.hint(DISK_FULL_HINT),
        false => failure,
    }
}

/// The hint if the disk is too full to start.
const DISK_FULL_HINT: &str =
    "the disk is full: free some space, or read the ledger with ktsu start --read-only";

/// Returns `true` if a full disk may have caused this error.
fn may_be_disk_full(refused: &OpenEngineError) -> bool {
    matches!(
        refused,
        OpenEngineError::Store(StoreError::Failed { .. })
            | OpenEngineError::Lock(LockError::Io { .. } | LockError::NotMade(_))
            | OpenEngineError::Other(_)
    )
}

/// The failure for a ledger or an engine that was not opened, and what to type.
pub fn explain(refused: OpenEngineError, path: &str) -> Failure {
    match refused {
        OpenEngineError::Owned(holder) => owned(path, holder.as_ref()),
        OpenEngineError::Environment { workflow, error } => {
            let failure = Failure::could_not_run(format!("workflow {workflow}: {error}"));
            match error.first() {
                None => failure,
                Some(name) if error.without.iter().any(|(other, _)| other == name) => {
                    failure.hint(format!(
                        "export {name}=… for all principals, or name it under `secrets` of each"
                    ))
                }
                Some(name) => failure.hint(format!(
                    "export {name}=…, or set it under `variables` of the environment file"
                )),
            }
        }
        OpenEngineError::Bind(error) => {
            let failure = Failure::of(&error);
            match error {
                BindError::System { source, .. } if source.kind() == ErrorKind::AddrInUse => {
                    failure.hint("choose another port: --port 6050 (--runtime-port, --gateway-port), or --port 0 for any free port")
                }
                BindError::NotLoopback(_) => failure
                    .hint("--host 127.0.0.1; with principals it may listen elsewhere, a runtime or gateway with one that has the role orchestrator"),
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
        refused @ OpenEngineError::NotEncrypted(_) => Failure::could_not_run(chain(&refused)).hint(
            "tls: {certificate: own.pem, key: own.key} in the file of --env, or --host 127.0.0.1",
        ),
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

/// The failure for a service without a ledger that does not start.
pub fn start_failure(refused: OpenEngineError) -> Failure {
    explain(refused, "")
}

/// Another process has the ledger: who it is, and what to type.
fn owned(path: &str, owner: Option<&LedgerOwner>) -> Failure {
    let who = owner.map_or("another process", |owner| owner.name.as_str());
    match owner.and_then(|owner| owner.url.as_ref()) {
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

/// Closes the engine of a command. The calls in flight are recorded first, so that nothing is paid for
/// twice; a webhook without an answer is sent again by the next start, under its delivery id.
/// `note` prints a line for the person who waits.
pub async fn drain_and_close(engine: Engine, note: fn(&str)) -> Result<(), String> {
    let notice = async {
        tokio::time::sleep(NOTICE_TIME).await;
        let seconds = DRAIN_TIME.as_secs();
        note(&format!(
            "recording the calls in flight, for at most {seconds} s; Ctrl-C ends at once"
        ));
        std::future::pending::<()>().await;
    };
    tokio::select! {
        _ = engine.drain(AwaitedEffects::Calls, DRAIN_TIME) => {}
        () = notice => {}
    }
    engine.close().await
}
