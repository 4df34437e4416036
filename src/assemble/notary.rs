//! The notary of an engine: its key, its witness, and its starting point.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::http::{HeaderMap, Method};
use ktsu_ledger::appender::Appender;
use ktsu_ledger::event::StoreEvent;
use ktsu_ledger::note::SigningKey;
use ktsu_ledger::store::{Reader, Tail};
use ktsu_ledger::{Actor, StreamId};

use super::error::other;
use super::{OpenEngineError, Setup};
use ktsu_egress as egress;
use ktsu_environment::Environment;
use ktsu_evidence::store_stream::StoreStream;
use ktsu_evidence::witness::{PostNote, Witness, WitnessTarget};
use ktsu_evidence::{facts, signing_key};
use ktsu_orchestrator::MicrosClock;

/// The variable that names a witness; it goes before the environment file.
pub(super) const WITNESS: &str = "KTSU_WITNESS";

/// The key, and the end of the ledger, that a new owner finds.
pub(super) struct KeyFile {
    pub(super) key: Result<SigningKey, String>,
    /// The number of frames that the ledger holds.
    pub(super) size: u64,
    tail: Option<Tail>,
}

/// The configured witness, if any.
pub(super) fn place(
    environment: Option<&Environment>,
    process: &BTreeMap<String, String>,
) -> Result<Option<WitnessTarget>, OpenEngineError> {
    let file = environment.and_then(|file| file.evidence.witness.as_ref());
    let (from, witness) = match process.get(WITNESS) {
        Some(witness) => (WITNESS, Some(witness)),
        None => ("evidence.witness", file),
    };
    let place = witness.filter(|place| !place.is_empty());
    let place = place
        .map(|place| place.parse::<WitnessTarget>())
        .transpose();
    place.map_err(|error| OpenEngineError::Other(format!("{from}: {error}")))
}

/// Reads what the notary needs from a ledger before its new owner writes.
pub(super) fn look(setup: &Setup, reader: &dyn Reader) -> Result<KeyFile, OpenEngineError> {
    let path = setup.ledger.file();
    if let Some(path) = path {
        finish_rotation(path, reader)?;
    }
    let key = signing_key::load_or_create(path, &setup.process);
    Ok(KeyFile {
        key: key.map_err(|error| error.to_string()),
        size: facts::size(reader)?,
        tail: reader.tail(&StreamId::store())?,
    })
}

/// Puts a key in its place that the ledger knows already, if something stopped in between.
fn finish_rotation(path: &std::path::Path, reader: &dyn Reader) -> Result<(), OpenEngineError> {
    let failed = |error: signing_key::SigningKeyError| OpenEngineError::Other(error.to_string());
    let Some(next) = signing_key::pending(path).map_err(failed)? else {
        return Ok(());
    };
    let keys = facts::read(reader)?.keys;
    let public = next.public(keys.origin());
    match keys.in_force().is_some_and(|known| known.key == public) {
        true => signing_key::promote(path).map_err(failed),
        false => Ok(()),
    }
}

impl KeyFile {
    /// The one place that appends to the stream `store`.
    pub(super) fn stream(&self, appender: &Appender, clock: &MicrosClock) -> Arc<StoreStream> {
        let (appender, clock) = (appender.clone(), Arc::clone(clock));
        let actor = Actor::Orchestrator;
        Arc::new(StoreStream::new(appender, clock, actor, self.tail))
    }
}

/// A witness, reached through the egress client.
pub(super) fn witness(place: WitnessTarget, egress: &egress::Client) -> Witness {
    Witness::new(place, post(egress))
}

/// The time that a witness may take to answer.
const WITNESS_TIMEOUT: Duration = Duration::from_secs(10);

/// Posts through the egress client, from a blocking thread.
fn post(egress: &egress::Client) -> PostNote {
    let (egress, runtime) = (egress.clone(), tokio::runtime::Handle::current());
    Box::new(move |url, note| {
        let request = egress::EgressRequest {
            method: Method::POST,
            url: url.to_owned(),
            headers: HeaderMap::new(),
            body: Bytes::from(note),
            timeout: WITNESS_TIMEOUT,
            keep: 0,
            is_to_itself: false,
        };
        let answer = runtime.block_on(egress.send(request));
        let answer = answer.map_err(|error| error.to_string())?;
        match answer.status {
            200..=299 => Ok(()),
            other => Err(format!("it answered with {other}")),
        }
    })
}

/// Appends a fact about the ledger as a whole.
pub(super) async fn note_parts(
    facts: &Arc<StoreStream>,
    event: StoreEvent,
) -> Result<(), OpenEngineError> {
    let facts = Arc::clone(facts);
    let noted = tokio::task::spawn_blocking(move || facts.append(vec![(Vec::new(), event)]));
    let noted = noted.await.map_err(other)?;
    noted.map(drop).map_err(OpenEngineError::Other)
}
