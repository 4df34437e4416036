//! `ktsu start --standby`: serves what can be read, until nothing owns the ledger.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use ktsu_ledger::store::StoreError;
use ktsu_ledger::{Ledger, LedgerPlace};

use super::super::output::note;
use super::super::signals::{ServiceSignal, Signals};
use super::super::{Common, Failure};
use super::ready::ready;
use super::reload::StartLog;
use ktsu_assemble::{Agents, OpenEngineError, Setup};
use ktsu_environment::Environment;
use ktsu_opening::engine::{open_reading, start_failure};
use ktsu_orchestrator::OwnerView;
use ktsu_server::BindError;

/// The time between two looks at the owner.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Refuses a ledger that only one machine can own, and an engine without the ports of an owner.
pub(super) fn check(ledger: &LedgerPlace, agents: &Agents) -> Result<(), Failure> {
    if !ledger.is_shared() {
        let words = format!("a standby needs a ledger on a server, and {ledger} is a file");
        let hint = "--ledger postgres://ROLE@HOST/DATABASE";
        return Err(Failure::could_not_run(words).hint(hint));
    }
    // What it would need as the owner is missed now, and not when it has taken over.
    check_ports(agents)
}

/// Refuses an engine without the keys of an owner.
async fn check_keys(setup: Setup) -> Result<Setup, Failure> {
    let checking = move || ktsu_assemble::check_keys(&setup).map(|()| setup);
    let checked = tokio::task::spawn_blocking(checking).await;
    let checked = checked.map_err(Failure::of)?;
    checked.map_err(|refused| Failure::could_not_run(refused.to_string()))
}

/// Refuses ports of services at which something else listens.
pub(super) fn check_ports(agents: &Agents) -> Result<(), Failure> {
    let Agents::Here { runtime, gateway } = agents else {
        return Ok(());
    };
    for address in runtime.iter().chain(gateway).copied() {
        TcpListener::bind(address).map_err(|source| {
            let refused = BindError::System { address, source };
            start_failure(OpenEngineError::Bind(refused))
        })?;
    }
    Ok(())
}

/// The setup of an engine that only reads, of one that writes.
pub(super) fn reading(setup: Setup) -> Setup {
    Setup {
        agents: Agents::Nowhere,
        resume_unfinished: false,
        ..setup
    }
}

/// Serves what can be read until the ledger is free, and a moment has come if one is given; `false` if it was
/// stopped before.
pub(super) async fn until_free(
    common: &Common,
    (setup, owner, not_before): (Setup, &OwnerView, Option<Instant>),
    read_again: &mut Option<Environment>,
    (signals, logs): (&mut Signals, &mut StartLog),
) -> Result<bool, Failure> {
    let place = setup.ledger.clone();
    let is_early = || not_before.is_some_and(|moment| Instant::now() < moment);
    let mut looks = tokio::time::interval(LOOK_INTERVAL);
    let mut outlook = look(&place, owner).await;
    if outlook == Outlook::Unreachable {
        tracing::warn!(ledger = %place, "the ledger does not answer; a standby once it does");
    }
    while outlook == Outlook::Unreachable {
        tokio::select! {
            signal = signals.next_of_service() => match signal {
                ServiceSignal::Stop => return Ok(false),
                ServiceSignal::Reload => *read_again = logs.reload(None).or(read_again.take()),
            },
            _ = looks.tick() => outlook = look(&place, owner).await,
        }
    }
    let setup = check_keys(setup).await?;
    if !is_early() && outlook == Outlook::Free {
        return Ok(true);
    }
    let setup = Setup {
        standby: Some(owner.clone()),
        ..reading(setup)
    };
    let engine = open_reading(setup).await?;
    tracing::info!(ledger = %place, url = engine.url, "ready as a standby");
    ready(common, "the ktsu standby", &engine.url);
    let is_free = loop {
        tokio::select! {
            signal = signals.next_of_service() => match signal {
                ServiceSignal::Stop => break false,
                ServiceSignal::Reload => {
                    // The owner that it may become has these principals, and not those of its start.
                    let accepted = logs.reload(Some(&engine.principals));
                    *read_again = accepted.or(read_again.take());
                }
            },
            _ = looks.tick() => {
                logs.report_dropped();
                match look(&place, owner).await {
                    Outlook::Free if !is_early() => break true,
                    Outlook::Free | Outlook::Waiting | Outlook::Unreachable => {}
                    Outlook::Shorter(why) => engine.report_damage(&why),
                }
            }
        }
    };
    signals.unless_again(engine.close()).await;
    if is_free {
        tracing::info!(ledger = %place, "taking over");
        if !common.json {
            note("the owner of the ledger is gone: taking over");
        }
    }
    Ok(is_free)
}

/// What a look at the ledger says.
#[derive(Debug, PartialEq, Eq)]
enum Outlook {
    /// It may be taken over.
    Free,
    /// Not yet.
    Waiting,
    /// Its server does not answer for now, and may be about to be replaced by its own standby.
    Unreachable,
    /// It lacks what it had: it is never taken over.
    Shorter(String),
}

async fn look(place: &LedgerPlace, owner: &OwnerView) -> Outlook {
    let ledger = Ledger::open(place);
    let looked = tokio::task::spawn_blocking(move || ledger.look()).await;
    let sight = match looked {
        Ok(Ok(sight)) => sight,
        Ok(Err(StoreError::Unreachable { .. })) => return Outlook::Unreachable,
        Ok(Err(_)) | Err(_) => return Outlook::Waiting,
    };
    let is_free = sight.is_free;
    match owner.note(sight) {
        Err(shorter) => Outlook::Shorter(shorter.to_string()),
        Ok(()) if is_free => Outlook::Free,
        Ok(()) => Outlook::Waiting,
    }
}
