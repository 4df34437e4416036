//! The subscriptions of an engine: their secrets, and the client that sends to them.

use std::collections::BTreeMap;
use std::sync::Arc;

use ktsu_egress as egress;
use ktsu_environment::subscription_secrets::{self, ResolvedSubscription, secret_value};
use ktsu_environment::subscriptions::MAX_SUBSCRIPTIONS;
use ktsu_ledger::appender::Appender;
use ktsu_orchestrator::MicrosClock;
use ktsu_readers::ReaderPool;
use ktsu_subscriptions::{EventFeed, SubscriptionParts, Subscriptions};

use super::network::policy;
use super::{OpenEngineError, Setup};

/// More connections to a host than all subscriptions together may have in flight: none of them waits
/// for another one.
const CONNECTIONS_PER_HOST: usize = MAX_SUBSCRIPTIONS * ktsu_delivery::MAX_IN_FLIGHT;

/// The subscriptions of the environment file, secrets looked up.
pub(super) fn declared(setup: &Setup) -> Result<Vec<ResolvedSubscription>, OpenEngineError> {
    let declared = subscription_secrets::resolve(setup.environment.as_ref(), &setup.process);
    declared.map_err(OpenEngineError::Subscriptions)
}

/// The subscriptions of an engine, which send nothing yet.
pub(super) fn subscriptions(
    setup: &Setup,
    declared: Vec<ResolvedSubscription>,
    feed: &EventFeed,
    appender: &Appender,
    readers: &ReaderPool,
    clock: &MicrosClock,
) -> Result<Subscriptions, OpenEngineError> {
    let policy = policy(setup.environment.as_ref());
    let egress = egress::Client::with_connections_per_host(&policy, CONNECTIONS_PER_HOST)?;
    let environment = setup.environment.clone();
    let process: BTreeMap<String, String> = setup.process.clone();
    Ok(Subscriptions::new(SubscriptionParts {
        feed: feed.clone(),
        appender: appender.clone(),
        readers: readers.clone(),
        clock: Arc::clone(clock),
        egress,
        secret: Arc::new(move |name| secret_value(environment.as_ref(), &process, name)),
        declared,
    }))
}
