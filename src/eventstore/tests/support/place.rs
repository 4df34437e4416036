//! Ledgers to test with: on the double, and on a server where one is named.

#![allow(dead_code, clippy::unwrap_used)]

use std::path::Path;

use ktsu_eventstore::EventStorePlace;
use ktsu_ledger::Backend as _;
use uuid::Uuid;

use crate::double::Double;

/// The variable that names a server.
const SERVER: &str = "KTSU_TEST_EVENTSTORE";

/// A double, and a folder for local copies.
pub(crate) struct Places {
    pub(crate) double: Double,
    folder: tempfile::TempDir,
}

impl Places {
    pub(crate) fn new() -> Self {
        Self::on(Double::new())
    }

    pub(crate) fn on(double: Double) -> Self {
        Self {
            double,
            folder: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The place of an address, whose local copies are of this test.
    pub(crate) fn at(&self, address: &str) -> EventStorePlace {
        let place: EventStorePlace = address.parse().unwrap();
        place.with_cache(&self.folder().join(Uuid::now_v7().to_string()))
    }

    /// The ledger of a name on the double, as another machine sees it.
    pub(crate) fn named(&self, ledger: &str) -> EventStorePlace {
        self.at(&self.double.address(0, ledger))
    }

    /// A new ledger on the double.
    pub(crate) fn ledger(&self) -> EventStorePlace {
        self.made(self.named("x"))
    }

    fn made(&self, place: EventStorePlace) -> EventStorePlace {
        assert!(place.make().unwrap());
        assert!(!place.make().unwrap());
        place
    }

    /// The same ledger, as another machine sees it.
    pub(crate) fn elsewhere(&self, place: &EventStorePlace) -> EventStorePlace {
        self.at(&place.to_string())
    }

    /// A new ledger on every server there is.
    pub(crate) fn all(&self) -> Vec<EventStorePlace> {
        let mut places = vec![self.made(self.named(&Uuid::now_v7().to_string()))];
        if let Ok(address) = std::env::var(SERVER) {
            let sign = if address.contains('?') { '&' } else { '?' };
            let name = Uuid::now_v7();
            places.push(self.made(self.at(&format!("{address}{sign}ledger={name}"))));
        }
        places
    }
}
