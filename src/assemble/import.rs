//! Imports runs of another ledger, after verifying all of them.

use std::path::Path;

use ktsu_ledger::Actor;
use ktsu_ledger::appender::{Appender, Options};
use ktsu_ledger::event::{StoreEvent, StoreOpened};
use ktsu_ledger::store::Reader;

use super::{LedgerPlace, OpenEngineError, ledger as place, readers};
use ktsu_evidence::store_stream::StoreStream;
use ktsu_evidence::transfer::{self, ImportPlan};
use ktsu_orchestrator::clock;
use ktsu_workflow::admit::ENGINE;

/// The amount that was imported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Imported {
    /// Frames.
    pub frames: u64,
    /// Streams.
    pub streams: u64,
    /// Streams that were here already.
    pub known: u64,
}

/// The first frame of a ledger names it: that of an imported run would name every ledger that took
/// it in first.
fn open(appender: &Appender) -> Result<(), String> {
    let stream = StoreStream::new(appender.clone(), clock::system_clock(), Actor::Cli, None);
    let opened = StoreOpened {
        engine: ENGINE.to_owned(),
        epoch: appender.epoch().0,
        pid: std::process::id(),
    };
    let fact = (Vec::new(), StoreEvent::Opened(opened));
    stream.append(vec![fact]).map(|_| ())
}

/// The reasons why nothing was imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The lines are invalid, or contradict the ledger.
    #[error("{0}")]
    Lines(String),
    /// The ledger cannot be used.
    #[error(transparent)]
    Ledger(#[from] OpenEngineError),
}

impl From<String> for ImportError {
    fn from(why: String) -> Self {
        Self::Lines(why)
    }
}

/// Appends the frames of an export to a ledger, which is created if it does not exist.
///
/// # Errors
/// Why nothing was written.
pub fn import(
    ledger: impl Into<LedgerPlace>,
    lines: impl AsRef<[u8]>,
) -> Result<Imported, ImportError> {
    let ledger = &ledger.into();
    let text = lines.as_ref();
    let checked = if ledger.file().is_none_or(Path::is_file) {
        let opened = readers(ledger).map_err(OpenEngineError::from)?;
        let check = |reader: &dyn Reader| Ok(transfer::check(text, Some(reader)));
        opened
            .with_blocking::<_, ktsu_ledger::StoreError>(check)
            .map_err(OpenEngineError::from)??
    } else {
        transfer::check(text, None)?
    };
    let ImportPlan {
        entries,
        frames,
        already_present: known,
    } = checked;
    let streams = entries.len() as u64;
    let place::OpenedLedger { lock, store, .. } = place::open_with_room(ledger)?;
    let reader: &dyn Reader = store.as_ref();
    let first = reader
        .scan_frames(1, 1)
        .map_err(|error| error.to_string())?;
    let started = Appender::start(store, Options::default());
    let (appender, thread) = started.map_err(|error| error.to_string())?;
    if first.is_empty() {
        open(&appender)?;
    }
    for entry in entries {
        appender.append(entry).map_err(|error| error.to_string())?;
    }
    drop(appender);
    place::close(lock, thread)?;
    Ok(Imported {
        frames,
        streams,
        known,
    })
}
