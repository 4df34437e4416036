//! A ledger on EventStoreDB or KurrentDB: the port of stores (`ktsu_ledger::store`) on its client.
//!
//! ```text
//! EventStorePlace ─make──▶ the first event of the order stream           order
//!                 ─reader▶ Reader, Audit: of a local copy                reader, copy, cache
//!                 ─store─▶ Store: frames to their streams, then an order event   writer, log
//!                 ─snapshot▶ Audit of what the server has                scan
//! ```
//!
//! A run is a stream, and the data of its events are the bytes of its frames, so hashes, tree and evidence
//! are those of a file. Only what the order stream lists is committed.

mod address;
mod beat;
mod cache;
mod call_error;
mod client;
mod content;
mod copy;
mod fetch;
mod log;
mod order;
mod reader;
mod scan;
mod shared;
mod writer;

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use ktsu_ledger::canonical::CanonicalJson;
use ktsu_ledger::store::{
    AppendRefusal, Audit, Cursor, Filter, Lease, LedgerStatus, Maintenance, OwnerSight, OwnerState,
    OwnerWatch, Page, SqliteReader, Tail,
};
use ktsu_ledger::{
    Backend, Entry, Epoch, Hash, IndexRow, LedgerOwner, OwnError, Reader, Record, Store,
    StoreError, StreamId,
};
use parking_lot::Mutex;

use address::Address;
use beat::{order_end, owner_state};
use cache::CacheFolder;
use log::{EventLog, PutError};
use order::{BEATS, ORDER, OrderEvent};
use reader::CopyReader;
use scan::ServerReader;
use shared::SharedLedger;
use writer::EventWriter;

pub use address::ParseAddressError;
pub use order::FORMAT;

/// What is said of every server, until one was tested.
const UNTRIED: &str =
    "no release of ktsu has been run against a real EventStoreDB or KurrentDB server yet";

/// The place of a ledger: servers, and a name there.
#[derive(Clone)]
pub struct EventStorePlace {
    address: Address,
    cache: PathBuf,
    watch: Arc<OwnerWatch>,
    shared: Arc<Mutex<Option<Arc<SharedLedger>>>>,
}

impl fmt::Debug for EventStorePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("EventStorePlace")
            .field(&self.to_string())
            .finish()
    }
}

impl fmt::Display for EventStorePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)
    }
}

impl FromStr for EventStorePlace {
    type Err = ParseAddressError;

    fn from_str(text: &str) -> Result<Self, ParseAddressError> {
        Ok(Self::of(text.parse()?, std::env::temp_dir().join("ktsu")))
    }
}

impl EventStorePlace {
    fn of(address: Address, cache: PathBuf) -> Self {
        Self {
            address,
            cache,
            watch: Arc::default(),
            shared: Arc::default(),
        }
    }

    /// The place with a password, unless its address has one.
    #[must_use]
    pub fn with_password(self, password: &str) -> Self {
        Self::of(self.address.with_password(password), self.cache)
    }

    /// The place whose local copies are in a folder.
    #[must_use]
    pub fn with_cache(self, folder: &Path) -> Self {
        Self::of(self.address, folder.to_owned())
    }

    fn shared(&self) -> Arc<SharedLedger> {
        let mut shared = self.shared.lock();
        let made = shared.get_or_insert_with(|| {
            let folder = CacheFolder::of(&self.cache, &self.address.to_string());
            Arc::new(SharedLedger::new(EventLog::new(&self.address), folder))
        });
        Arc::clone(made)
    }

    fn owner_state(&self) -> Result<OwnerState, StoreError> {
        owner_state(&self.shared().log)
    }

    /// The end that writes; its owner comes after this state of the ledger, if one is given.
    fn store_after(&self, free: Option<OwnerState>) -> Result<Box<dyn Store>, StoreError> {
        let shared = self.shared();
        Ok(Box::new(EventStore {
            reader: CopyReader::new(&shared)?,
            writer: EventWriter::new(shared, free),
        }))
    }
}

impl Backend for EventStorePlace {
    fn make(&self) -> Result<bool, StoreError> {
        let shared = self.shared();
        let log = &shared.log;
        if !log.read(ORDER, 0, 1)?.is_empty() {
            copy::ledger_id(log)?;
            return Ok(false);
        }
        log.keep_last(BEATS)?;
        let made = OrderEvent::Made {
            format: FORMAT,
            ledger: uuid::Uuid::now_v7().to_string(),
        };
        match log.put(ORDER, None, made.at(0)?, "make the ledger") {
            Ok(()) => Ok(true),
            // Another process was faster.
            Err(PutError::Conflict) => copy::ledger_id(log).map(|_| false),
            Err(PutError::Store(StoreError::Unknown(why))) => {
                Err(StoreError::failed("make the ledger", why))
            }
            Err(PutError::Store(error)) => Err(error),
        }
    }

    fn name(&self) -> String {
        self.to_string()
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn snapshot(&self) -> Result<Box<dyn Reader>, StoreError> {
        Ok(Box::new(ServerReader::new(&self.shared())?))
    }

    fn reader(&self) -> Result<Box<dyn Reader>, StoreError> {
        Ok(Box::new(CopyReader::new(&self.shared())?))
    }

    fn store(&self) -> Result<Box<dyn Store>, StoreError> {
        self.store_after(None)
    }

    fn claim(&self) -> Result<Box<dyn Store>, OwnError> {
        copy::ledger_id(&self.shared().log)?;
        let free = self.watch.wait(&|| self.owner_state())?;
        Ok(self.store_after(Some(free))?)
    }

    fn look(&self) -> Result<OwnerSight, StoreError> {
        let shared = self.shared();
        shared.keep_warm()?;
        Ok(self.watch.sight(&owner_state(&shared.log)?))
    }

    fn status(&self) -> Result<LedgerStatus, StoreError> {
        let shared = self.shared();
        copy::ledger_id(&shared.log)?;
        let (epoch, position) = order_end(&shared.log)?;
        Ok(LedgerStatus {
            owner: owner_state(&shared.log)?.owner(),
            epoch: Some(epoch),
            position,
            warnings: vec![UNTRIED.to_owned()],
            ..LedgerStatus::default()
        })
    }

    fn owner(&self) -> Result<Option<LedgerOwner>, StoreError> {
        Ok(self.owner_state()?.owner())
    }
}

/// The end of a ledger that writes.
struct EventStore {
    reader: CopyReader,
    writer: EventWriter,
}

impl EventStore {
    /// The local copy, once it is known what is stored.
    fn now(&self) -> Result<&SqliteReader, StoreError> {
        match self.writer.settle()? {
            true => Ok(self.reader.view()),
            false => self.reader.now(),
        }
    }
}

impl Reader for EventStore {
    fn read(&self, stream: &StreamId, from: u64, limit: usize) -> Result<Vec<Record>, StoreError> {
        self.now()?.read(stream, from, limit)
    }

    fn tail(&self, stream: &StreamId) -> Result<Option<Tail>, StoreError> {
        self.now()?.tail(stream)
    }

    fn streams(&self, after: Option<&StreamId>, limit: usize) -> Result<Vec<StreamId>, StoreError> {
        self.now()?.streams(after, limit)
    }

    fn blob_get(&self, hash: &Hash) -> Result<Option<CanonicalJson>, StoreError> {
        self.now()?.blob_get(hash)
    }

    fn list(
        &self,
        filter: &Filter,
        cursor: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        self.now()?.list(filter, cursor, limit)
    }

    fn row(&self, stream: &StreamId) -> Result<Option<IndexRow>, StoreError> {
        self.now()?.row(stream)
    }

    fn by_key(&self, key: &str) -> Result<Option<IndexRow>, StoreError> {
        self.now()?.by_key(key)
    }

    fn audit(&self) -> Option<&dyn Audit> {
        self.reader.audit()
    }
}

impl Store for EventStore {
    fn acquire(&mut self) -> Result<Epoch, StoreError> {
        self.writer.acquire()
    }

    fn append(
        &mut self,
        epoch: Epoch,
        entries: &[Entry],
    ) -> Result<Vec<Result<u64, AppendRefusal>>, StoreError> {
        self.writer.append(epoch, entries)
    }

    fn reader(&self) -> Result<Box<dyn Reader>, StoreError> {
        Ok(Box::new(CopyReader::new(&self.writer.shared)?))
    }

    fn lease(&mut self) -> Option<&mut dyn Lease> {
        Some(&mut self.writer)
    }

    fn maintenance(&mut self) -> Option<&mut dyn Maintenance> {
        Some(&mut self.writer)
    }
}
