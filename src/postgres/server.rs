//! The servers of an address, and how they are reached.

use std::net::IpAddr;
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
        if config.get_hosts().len() > 1 && parameter(address, "target_session_attrs").is_none() {
            // What was appended has to be seen at once, which a server that follows does not promise.
            config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        // One that only prefers encryption would do without where something is in between.
        if !matches!(parameter(address, "sslmode"), Some("disable" | "require")) {
            // What leaves the machine is encrypted unless the address says otherwise.
            config.ssl_mode(match is_here(&config) {
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

/// The value of a parameter of an address.
fn parameter<'a>(address: &'a str, name: &str) -> Option<&'a str> {
    let (_, parameters) = address.rsplit_once('?')?;
    let mut pairs = parameters
        .split('&')
        .filter_map(|pair| pair.split_once('='));
    pairs
        .find(|(found, _)| *found == name)
        .map(|(_, value)| value)
}

/// Returns `true` if every host of an address is this machine.
pub(crate) fn is_here(config: &Config) -> bool {
    let is_named = |host: &Host| match host {
        Host::Unix(_) => true,
        Host::Tcp(name) => {
            let address: Option<IpAddr> = name.parse().ok();
            name == "localhost" || address.is_some_and(|address| address.is_loopback())
        }
    };
    config.get_hosts().iter().all(is_named)
        && config.get_hostaddrs().iter().all(IpAddr::is_loopback)
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
                "postgres://a@localhost/x?hostaddr=192.0.2.2",
                SslMode::Require,
            ),
            ("postgres://a@db.example/x?sslmode=prefer", SslMode::Require),
            (
                "postgres://a:sslmode=disable@db.example/x",
                SslMode::Require,
            ),
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
