//! The only crate that names concrete parts: which store, which clock, which client.
//!
//! [`open`] starts an engine in the steps of `start`, each of which takes the one before.

mod agents;
mod certificates;
mod counted;
mod delivery;
mod disk_full;
mod engine;
mod error;
pub mod import;
mod key;
pub mod keys;
mod ledger;
mod ledger_status;
mod network;
mod notary;
mod place;
pub mod reading;
pub mod reload;
pub mod servers;
mod service;
mod service_access;
mod setup;
mod start;
pub mod tool_server;
pub mod values;

pub use agents::{group_prices, routing_digests};
pub use certificates::{certificates, connections};
pub use engine::Engine;
pub use error::OpenEngineError;
pub use key::check_keys;
pub use ktsu_ledger::LedgerPlace;
pub use ledger::readers;
pub use place::{LedgerPlaceError, place_of};
pub use service::{RuntimeSetup, Service, ServiceSetup, open_gateway, open_runtime};
pub use setup::{Agents, Setup};
pub use start::open;
pub use values::mismatch;
