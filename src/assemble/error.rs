//! The reasons why an engine does not start.

use std::net::IpAddr;

use ktsu_config::fault::Faults;
use ktsu_egress as egress;
use ktsu_environment::ResolveError;
use ktsu_ledger::LedgerOwner;
use ktsu_ledger::lock::LockError;
use ktsu_ledger::store::StoreError;
use ktsu_server::BindError;
use ktsu_tls::TlsError;

/// The reasons why an engine does not start.
#[derive(Debug, thiserror::Error)]
pub enum OpenEngineError {
    /// Another process owns the ledger.
    #[error("another process owns the ledger")]
    Owned(Option<LedgerOwner>),
    /// The lock file cannot be used.
    #[error(transparent)]
    Lock(LockError),
    /// The ledger cannot be opened or read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Variables of a workflow have no value.
    #[error("workflow {workflow}: {error}")]
    Environment {
        /// The workflow that declares them.
        workflow: String,
        /// The fault of these variables.
        error: Box<ResolveError>,
    },
    /// Tokens or keys of principals have no usable values.
    #[error("the principals of the environment are not valid")]
    Principals(Faults),
    /// An entry of `egress.allow` is not valid.
    #[error(transparent)]
    Egress(#[from] egress::AllowlistEntryError),
    /// The address cannot be listened on.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// What a service receives from other machines contains secrets, and nothing encrypts it.
    #[error(
        "cannot listen on {0}: what other machines send contains secrets and would not be encrypted"
    )]
    NotEncrypted(IpAddr),
    /// The certificates cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// Subscriptions of the environment have secrets without usable values.
    #[error("the subscriptions of the environment are not valid")]
    Subscriptions(Faults),
    /// The gateway's file, or the environment's providers, have faults.
    #[error("the gateway configuration is not valid")]
    Gateway(Faults),
    /// Something else.
    #[error("{0}")]
    Other(String),
}

/// The error of which the words are all there is to say.
pub(super) fn other(error: impl std::fmt::Display) -> OpenEngineError {
    OpenEngineError::Other(error.to_string())
}
