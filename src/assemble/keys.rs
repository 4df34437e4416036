//! Rotates and revokes the signing key of a ledger that no process owns.

use std::collections::BTreeMap;

use ktsu_ledger::Actor;
use ktsu_ledger::StreamId;
use ktsu_ledger::appender::{Appender, Options};
use ktsu_ledger::event::{KeyAdded, KeyRevoked, StoreEvent};
use ktsu_ledger::keys::{Keys, TrustedKey};
use ktsu_ledger::lock::OwnerLock;
use ktsu_ledger::note::{self, SigningKey};
use ktsu_ledger::store::{Reader, Store};

use super::{LedgerPlace, OpenEngineError, ledger as place};
use ktsu_evidence::store_stream::StoreStream;
use ktsu_evidence::{facts, signing_key};
use ktsu_orchestrator::clock;

/// Why there is nothing to rotate beside a ledger that is kept elsewhere.
const NO_KEY_FILE: &str = "the ledger is not in a file, so its key is in KTSU_SIGNING_KEY, which ktsu \
     does not change: put another key there, which no earlier key will vouch for";

/// Makes a new key that the one in force vouches for, and puts it in its place.
///
/// # Errors
/// Why not, and what to type.
pub fn rotate(
    ledger: &LedgerPlace,
    process: &BTreeMap<String, String>,
) -> Result<Vec<TrustedKey>, String> {
    if process
        .get(signing_key::VARIABLE)
        .is_some_and(|key| !key.is_empty())
    {
        let variable = signing_key::VARIABLE;
        return Err(format!(
            "the key comes from {variable} or from the file that the environment names, which ktsu \
             does not change: unset it to rotate the key file next to the ledger, or put another \
             key there, which no earlier key will vouch for"
        ));
    }
    let Some(file) = ledger.file() else {
        return Err(NO_KEY_FILE.to_owned());
    };
    change(ledger, |keys| {
        let old =
            signing_key::load_or_create(Some(file), process).map_err(|error| error.to_string())?;
        in_force(keys, &old)?;
        let new = signing_key::make_next(file).map_err(|error| error.to_string())?;
        let (public, origin) = (new.public(keys.origin()), keys.origin());
        Ok(StoreEvent::KeyAdded(KeyAdded {
            id: public.id_text(),
            note: old.sign(origin, &note::key_added(origin, &public)),
            public_key: public.to_base64(),
            signed_by: old.public(origin).to_base64(),
        }))
    })?;
    signing_key::promote(file).map_err(|error| error.to_string())?;
    read_keys(ledger)
}

/// Revokes an earlier key.
///
/// # Errors
/// Why not, and what to type.
pub fn revoke(
    ledger: &LedgerPlace,
    process: &BTreeMap<String, String>,
    id: &str,
    reason: &str,
) -> Result<Vec<TrustedKey>, String> {
    change(ledger, |keys| {
        let ours = signing_key::load_or_create(ledger.file(), process)
            .map_err(|error| error.to_string())?;
        in_force(keys, &ours)?;
        let found = keys.all().iter().find(|known| known.key.id_text() == id);
        let found = found.ok_or(format!("there is no key {id}: see ktsu evidence key show"))?;
        if found.revoked.is_some() {
            return Err(format!("{id} is already revoked; nothing was written"));
        }
        let public = &found.key;
        if Some(public) == keys.in_force().map(|known| &known.key) {
            return Err(format!("{id} is in force: ktsu evidence key rotate first"));
        }
        let origin = keys.origin();
        Ok(StoreEvent::KeyRevoked(KeyRevoked {
            id: public.id_text(),
            note: ours.sign(origin, &note::key_revoked(origin, public)),
            public_key: public.to_base64(),
            reason: reason.to_owned(),
            signed_by: ours.public(origin).to_base64(),
        }))
    })?;
    read_keys(ledger)
}

fn in_force(keys: &Keys, ours: &SigningKey) -> Result<(), String> {
    let public = ours.public(keys.origin());
    match keys.in_force().is_some_and(|known| known.key == public) {
        true => Ok(()),
        false => {
            Err("the configured key is not the one in force: see ktsu evidence key show".to_owned())
        }
    }
}

/// Appends one fact about keys.
fn change(
    ledger: &LedgerPlace,
    fact: impl FnOnce(&Keys) -> Result<StoreEvent, String>,
) -> Result<(), String> {
    if ledger.file().is_some_and(|file| !file.is_file()) {
        return Err(format!("there is no ledger at {ledger}"));
    }
    let opened = place::open_with_room(ledger).map_err(|error| match error {
        OpenEngineError::Owned(_) => "an engine owns the ledger: stop it first".to_owned(),
        other => other.to_string(),
    });
    let place::OpenedLedger { lock, store, .. } = opened?;
    let facts = facts::read(store.as_ref()).map_err(|error| error.to_string())?;
    if facts.keys.all().is_empty() {
        return Err("this ledger has no signing key yet: the next run creates one".to_owned());
    }
    let fact = fact(&facts.keys)?;
    let tail = store
        .tail(&StreamId::store())
        .map_err(|error| error.to_string())?;
    append(lock, store, tail, fact)
}

fn append(
    lock: Option<OwnerLock>,
    store: Box<dyn Store>,
    tail: Option<ktsu_ledger::store::Tail>,
    fact: StoreEvent,
) -> Result<(), String> {
    let started = Appender::start(store, Options::default());
    let (appender, thread) = started.map_err(|error| error.to_string())?;
    let stream = StoreStream::new(appender, clock::system_clock(), Actor::Cli, tail);
    let appended = stream.append(vec![(Vec::new(), fact)]);
    drop(stream);
    place::close(lock, thread)?;
    appended.map(|_| ())
}

fn read_keys(ledger: &LedgerPlace) -> Result<Vec<TrustedKey>, String> {
    let readers = super::readers(ledger).map_err(|error| error.to_string())?;
    let read = |reader: &dyn Reader| facts::read(reader);
    let facts = readers
        .with_blocking(read)
        .map_err(|error| error.to_string())?;
    Ok(facts.keys.all().to_vec())
}
