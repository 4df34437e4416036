//! The notary of an engine: its key, its witness, and what it goes on from.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::http::{HeaderMap, Method};
use ktsu_ledger::appender::Appender;
use ktsu_ledger::note::SigningKey;
use ktsu_ledger::store::{Store, Tail};
use ktsu_ledger::{Actor, StreamId};

use super::{LedgerPlace, NotOpened, Setup};
use crate::egress;
use crate::evidence::notary::{Feed, Notary, Parts};
use crate::evidence::store_stream::StoreStream;
use crate::evidence::witness::{Place, Post, Witness};
use crate::evidence::{facts, signing_key};
use crate::orchestrator::Clock;
use crate::readers::Readers;

/// The variable that names a witness; it goes before the environment file.
pub(super) const WITNESS: &str = "KTSU_WITNESS";

/// What the notary needs before the appender takes the store.
pub(super) struct Prepared {
    pub(super) feed: Feed,
    key: Option<Result<SigningKey, String>>,
    place: Option<Place>,
    size: u64,
    tail: Option<Tail>,
}

/// Looks at the ledger while nobody writes to it.
pub(super) fn prepare(setup: &Setup, store: &dyn Store) -> Result<Prepared, NotOpened> {
    let path = match &setup.ledger {
        LedgerPlace::File(path) => Some(path.as_path()),
        LedgerPlace::Memory => None,
    };
    let file = setup
        .environment
        .as_ref()
        .and_then(|file| file.witness.as_ref());
    let witness = setup
        .process
        .get(WITNESS)
        .or(file)
        .filter(|place| !place.is_empty());
    let place = witness.map(|place| place.parse::<Place>());
    let place = place
        .transpose()
        .map_err(|error| NotOpened::Other(error.to_string()))?;
    if let Some(path) = path {
        finish_rotation(path, store)?;
    }
    let key = signing_key::of(path, &setup.process);
    Ok(Prepared {
        feed: Feed::default(),
        key: Some(key.map_err(|error| error.to_string())),
        place,
        size: facts::size(store)?,
        tail: store.tail(&StreamId::store())?,
    })
}

/// Puts a key in its place that the ledger knows already, if something stopped in between.
fn finish_rotation(path: &std::path::Path, store: &dyn Store) -> Result<(), NotOpened> {
    let failed = |error: signing_key::NoKey| NotOpened::Other(error.to_string());
    let Some(next) = signing_key::waiting(path).map_err(failed)? else {
        return Ok(());
    };
    let keys = facts::read(store)?.keys;
    let public = next.public(keys.origin());
    match keys.in_force().is_some_and(|known| known.key == public) {
        true => signing_key::promote(path).map_err(failed),
        false => Ok(()),
    }
}

impl Prepared {
    /// The one place that appends to the stream `store`.
    pub(super) fn stream(&self, appender: &Appender, clock: &Clock) -> Arc<StoreStream> {
        let (appender, clock) = (appender.clone(), Arc::clone(clock));
        Arc::new(StoreStream::new(
            appender,
            clock,
            Actor::Orchestrator,
            self.tail,
        ))
    }

    /// Starts it.
    pub(super) fn start(
        &mut self,
        readers: &Readers,
        store: &Arc<StoreStream>,
        egress: &egress::Client,
    ) -> Result<Notary, NotOpened> {
        let none = || Err("there is no key".to_owned());
        let parts = Parts {
            readers: readers.clone(),
            store: Arc::clone(store),
            key: self.key.take().unwrap_or_else(none),
            witness: self
                .place
                .take()
                .map(|place| Witness::new(place, post(egress))),
        };
        let feed = std::mem::take(&mut self.feed);
        Notary::start(feed, parts, self.size).map_err(|error| NotOpened::Other(error.to_string()))
    }
}

/// How long a witness may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Posts by the one way out, from a thread that may block.
fn post(egress: &egress::Client) -> Post {
    let (egress, runtime) = (egress.clone(), tokio::runtime::Handle::current());
    Box::new(move |url, note| {
        let request = egress::Request {
            method: Method::POST,
            url: url.to_owned(),
            headers: HeaderMap::new(),
            body: Bytes::from(note),
            timeout: PATIENCE,
            keep: 0,
        };
        let answer = runtime.block_on(egress.send(request));
        let answer = answer.map_err(|error| error.to_string())?;
        match answer.status {
            200..=299 => Ok(()),
            other => Err(format!("it answered with {other}")),
        }
    })
}
