//! Ledgers: where they usually are, who owns one, and what to do where one cannot be read.

use std::net::{TcpStream, ToSocketAddrs as _};
use std::path::Path;
use std::time::Duration;

use ktsu_ledger::store::{SIDE_FILES, StoreError};
use ktsu_ledger::{Ledger, LedgerPlace};

use crate::Failure;
use crate::files::missing_folder;
use crate::quoting::quoted;
use ktsu_history::RunReadError;

/// The default location of the ledger.
pub const DEFAULT_LEDGER: &str = ".ktsu/ledger.db";

/// The advice for a damaged ledger.
pub const DAMAGED_HINT: &str = "to see what is damaged: ktsu verify; to serve what can be read: \
                                  ktsu start --read-only; to restore a backup: ktsu restore BACKUP --to FILE";

/// The same where not even that can be served.
pub const UNSERVABLE_HINT: &str =
    "to see what is damaged: ktsu verify; to restore a backup: ktsu restore BACKUP --to FILE";

/// The longest wait for an owner to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// No ledger has fewer bytes.
const MIN_LEDGER_BYTES: u64 = 100;

/// The advice for a file that was a ledger.
pub fn restore_hint(path: &Path) -> String {
    format!(
        "if this was a ledger, put the original file back; or move it and its side files ({}) \
         away, then: ktsu restore BACKUP --to {}",
        SIDE_FILES.join(", "),
        quoted(path)
    )
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        if let StoreError::NotALedger { path, .. } = &error
            && std::fs::metadata(path).is_ok_and(|found| found.len() < MIN_LEDGER_BYTES)
        {
            return Self::could_not_run(error.to_string()).hint(restore_hint(path));
        }
        if let StoreError::Unreachable { .. } = &error {
            return Self::lost(error.to_string());
        }
        let hint = match &error {
            StoreError::Missing(_) => {
                Some("create one: ktsu run kits/hello; or name one: --ledger FILE")
            }
            StoreError::Damaged(_) => Some(DAMAGED_HINT),
            StoreError::WrongRow(_) => Some("the next start rebuilds the list of runs"),
            StoreError::NotALedger { .. }
            | StoreError::NewerFormat { .. }
            | StoreError::Fenced { .. }
            | StoreError::KeyTwice(_)
            | StoreError::Unknown(_)
            | StoreError::Unreachable { .. }
            | StoreError::Failed { .. } => None,
        };
        let no_folder = match &error {
            // The usual one is created with its folder.
            StoreError::Missing(path) if path != Path::new(DEFAULT_LEDGER) => missing_folder(path),
            _ => None,
        };
        let failure = match no_folder {
            Some(folder) => {
                let words = format!("{error}: there is no folder {}", folder.display());
                Self::could_not_run(words)
            }
            None => Self::of(error),
        };
        match hint {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }
}

impl From<RunReadError> for Failure {
    fn from(error: RunReadError) -> Self {
        match error {
            RunReadError::Store(error) => error.into(),
            RunReadError::Cut | RunReadError::Fold(_) | RunReadError::Definition(_) => {
                Self::could_not_run(error.to_string()).hint("to see what is damaged: ktsu verify")
            }
        }
    }
}

/// The URL at which the process that owns a ledger listens; `None` if no process owns it.
pub fn owner_url(ledger: &LedgerPlace) -> Result<Option<String>, Failure> {
    let Some(owner) = Ledger::open(ledger).owner()? else {
        return Ok(None);
    };
    // An owner on another machine may be gone without a word; what opens the ledger waits for that.
    if ledger.file().is_none() && !owner.url.as_deref().is_some_and(is_listening) {
        return Ok(None);
    }
    owner.url.map(Some).ok_or_else(|| {
        Failure::could_not_run(format!(
            "{ledger} is owned by a process that is not listening"
        ))
        .hint("try again in a moment")
    })
}

/// Returns `true` if something accepts connections at a URL.
fn is_listening(url: &str) -> bool {
    let host = url.split("://").nth(1).unwrap_or(url);
    let host = host.split('/').next().unwrap_or(host);
    let Ok(addresses) = host.to_socket_addrs() else {
        return false;
    };
    let mut addresses = addresses;
    addresses.any(|address| TcpStream::connect_timeout(&address, CONNECT_TIMEOUT).is_ok())
}
