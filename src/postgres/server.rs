//! The servers of an address, and how they are reached.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};

/// The servers of an address, and how they are reached.
#[derive(Debug, Clone)]
pub(crate) struct PostgresServer {
    pub(crate) config: Config,
    /// The authorities that vouch for the servers, in place of those of the machine.
    pub(crate) authorities: Option<PathBuf>,
    /// True once it has answered: from then on it is taken to come back.
    has_answered: Arc<AtomicBool>,
}

impl PostgresServer {
    /// The servers of an address, whose text may leave open what its configuration has a value for.
    pub(crate) fn new(mut config: Config, address: &str) -> Self {
        if config.get_hosts().len() > 1 && !address.contains("target_session_attrs=") {
            // What was appended has to be seen at once, which a server that follows does not promise.
            config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        if !address.contains("sslmode=") {
            // What leaves the machine is encrypted unless the address says otherwise.
            config.ssl_mode(match config.get_hosts().iter().all(is_here) {
                true => SslMode::Disable,
                false => SslMode::Require,
            });
        }
        Self {
            config,
            authorities: None,
            has_answered: Arc::default(),
        }
    }

    /// Notes that it has answered.
    pub(crate) fn note_answer(&self) {
        self.has_answered.store(true, Ordering::Relaxed);
    }

    /// Returns `true` if it has ever answered this process.
    pub(crate) fn has_answered(&self) -> bool {
        self.has_answered.load(Ordering::Relaxed)
    }
}

/// Returns `true` for a host on this machine.
fn is_here(host: &Host) -> bool {
    match host {
        Host::Unix(_) => true,
        Host::Tcp(name) => {
            let address: Option<std::net::IpAddr> = name.parse().ok();
            name == "localhost" || address.is_some_and(|address| address.is_loopback())
        }
    }
}

/// The path of a folder as the host of an address has it.
pub(crate) fn folder_as_host(folder: &Path) -> String {
    folder.display().to_string().replace('/', "%2F")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_leaves_the_machine_is_encrypted_unless_the_address_says_otherwise() {
        for (address, mode) in [
            ("postgres://a@localhost/x", SslMode::Disable),
            ("postgres://a@[::1]/x", SslMode::Disable),
            ("postgres://a@%2Frun/x", SslMode::Disable),
            ("postgres://a@db.example/x", SslMode::Require),
            ("postgres://a@localhost,db.example/x", SslMode::Require),
            (
                "postgres://a@db.example/x?sslmode=disable",
                SslMode::Disable,
            ),
            ("postgres://a@localhost/x?sslmode=require", SslMode::Require),
        ] {
            let server = PostgresServer::new(address.parse().unwrap(), address);
            assert_eq!(server.config.get_ssl_mode(), mode, "{address}");
        }
    }

    #[test]
    fn of_several_servers_the_one_that_writes_is_read_unless_the_address_says_otherwise() {
        for (address, target) in [
            ("postgres://a@one/x", TargetSessionAttrs::Any),
            ("postgres://a@one,two/x", TargetSessionAttrs::ReadWrite),
            (
                "postgres://a@one,two/x?target_session_attrs=any",
                TargetSessionAttrs::Any,
            ),
        ] {
            let server = PostgresServer::new(address.parse().unwrap(), address);
            assert_eq!(server.config.get_target_session_attrs(), target);
        }
    }
}
