//! The servers of an address, and how they are reached.

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};

use crate::statements::CommitPolicy;

/// The port of a server whose address has none.
const DEFAULT_PORT: u16 = 5432;
/// The longest wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The servers of an address, and how they are reached.
#[derive(Debug, Clone)]
pub(crate) struct PostgresServer {
    pub(crate) config: Config,
    /// What the address says of how durable the servers are.
    pub(crate) durability: ServerDurability,
    /// True if the address says that no pooler is between: `statements=prepared`.
    pub(crate) is_direct: bool,
    /// The authorities that vouch for the servers, in place of those of the machine.
    pub(crate) authorities: Option<PathBuf>,
    /// True once it has answered: from then on it is taken to come back.
    has_answered: Arc<AtomicBool>,
}

/// The parameter of an address that says that no pooler is between.
const STATEMENTS: &str = "statements";

/// What an address says of how durable its servers are: `durability=` of its parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServerDurability {
    /// Nothing: they must not lose what they acknowledged, as far as they say.
    Checked,
    /// `provider`: their provider replicates what they acknowledge, in a way that they do not show.
    Provider,
    /// `unsafe`: they may lose what they acknowledged.
    Unsafe,
}

impl ServerDurability {
    const PARAMETER: &str = "durability";

    /// The parameter that says so, if one does.
    const fn parameter(self) -> Option<&'static str> {
        match self {
            Self::Checked => None,
            Self::Provider => Some("durability=provider"),
            Self::Unsafe => Some("durability=unsafe"),
        }
    }

    fn of(address: &str) -> Result<Self, ParsePlaceError> {
        match parameter(address, Self::PARAMETER) {
            None => Ok(Self::Checked),
            Some("provider") => Ok(Self::Provider),
            Some("unsafe") => Ok(Self::Unsafe),
            Some(_) => Err(ParsePlaceError::Durability),
        }
    }

    /// When a transaction counts as stored.
    pub(crate) const fn commit_policy(self) -> CommitPolicy {
        match self {
            Self::Checked | Self::Provider => CommitPolicy::Durable,
            Self::Unsafe => CommitPolicy::AsServer,
        }
    }
}

/// The text is not the address of a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ParsePlaceError {
    /// It is not complete, or a parameter of it is unknown.
    #[error("not an address such as postgres://ROLE@HOST/DATABASE")]
    Address,
    /// Its `durability` has no meaning.
    #[error("durability of an address is provider or unsafe")]
    Durability,
    /// Its `statements` has no meaning.
    #[error("statements of an address is prepared, where no pooler is between")]
    Statements,
}

impl FromStr for PostgresServer {
    type Err = ParsePlaceError;

    fn from_str(address: &str) -> Result<Self, ParsePlaceError> {
        let schemes = ["postgres://", "postgresql://"];
        if !schemes.iter().any(|scheme| address.starts_with(scheme)) {
            return Err(ParsePlaceError::Address);
        }
        let durability = ServerDurability::of(address)?;
        let is_direct = match parameter(address, STATEMENTS) {
            None => false,
            Some("prepared") => true,
            Some(_) => return Err(ParsePlaceError::Statements),
        };
        let of_client = without_parameter(address, ServerDurability::PARAMETER);
        let of_client = without_parameter(&of_client, STATEMENTS);
        let config = of_client.parse();
        let mut config: Config = config.map_err(|_| ParsePlaceError::Address)?;
        config
            .application_name("ktsu")
            .tcp_user_timeout(CONNECT_TIMEOUT)
            .keepalives_idle(CONNECT_TIMEOUT);
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_TIMEOUT);
        }
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
        Ok(Self {
            config,
            durability,
            is_direct,
            authorities: None,
            has_answered: Arc::default(),
        })
    }
}

/// Its address without the password; of the options only those that say where the ledger is.
impl fmt::Display for PostgresServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let role = self.config.get_user().map(|role| format!("{role}@"));
        let hosts = self.config.get_hosts().iter().map(|host| match host {
            Host::Tcp(name) => name.clone(),
            Host::Unix(folder) => folder_as_host(folder),
        });
        let ports = self.config.get_ports();
        let hosts = hosts.enumerate().map(|(at, host)| {
            let port = ports.get(at).or(ports.first());
            let port = port.filter(|port| **port != DEFAULT_PORT);
            port.map_or_else(|| host.clone(), |port| format!("{host}:{port}"))
        });
        let hosts: Vec<String> = hosts.collect();
        let database = self.config.get_dbname().unwrap_or_default();
        let role = role.unwrap_or_default();
        write!(f, "postgres://{role}{}/{database}", hosts.join(","))?;
        let options = self.config.get_options();
        let options = options.map(|options| format!("options={}", as_parameter(options)));
        let encryption = match (self.config.get_ssl_mode(), is_here(&self.config)) {
            (SslMode::Disable, false) => Some("sslmode=disable".to_owned()),
            (SslMode::Require, true) => Some("sslmode=require".to_owned()),
            _ => None,
        };
        let durability = self.durability.parameter().map(str::to_owned);
        let statements = self.is_direct.then(|| format!("{STATEMENTS}=prepared"));
        let shown = options.into_iter().chain(encryption);
        let shown = shown.chain(durability).chain(statements);
        let shown: Vec<String> = shown.collect();
        match shown.is_empty() {
            true => Ok(()),
            false => write!(f, "?{}", shown.join("&")),
        }
    }
}

/// A text as a parameter of an address has it.
fn as_parameter(text: &str) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.,".contains(byte);
    let bytes = text.bytes().map(|byte| match plain(&byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    });
    bytes.collect()
}

impl PostgresServer {
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

/// An address without a parameter.
fn without_parameter(address: &str, name: &str) -> String {
    let Some((place, parameters)) = address.rsplit_once('?') else {
        return address.to_owned();
    };
    let pairs = parameters.split('&');
    let is_other = |pair: &&str| pair.split_once('=').is_none_or(|(found, _)| found != name);
    let kept: Vec<&str> = pairs.filter(is_other).collect();
    match kept.is_empty() {
        true => place.to_owned(),
        false => format!("{place}?{}", kept.join("&")),
    }
}

/// Returns `true` if every host of an address is this machine.
fn is_here(config: &Config) -> bool {
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
fn folder_as_host(folder: &Path) -> String {
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
            let server = address.parse::<PostgresServer>().unwrap();
            assert_eq!(server.config.get_ssl_mode(), mode, "{address}");
        }
    }

    #[test]
    fn an_address_says_how_durable_its_servers_are() {
        for (parameters, durability) in [
            ("", ServerDurability::Checked),
            ("?durability=provider", ServerDurability::Provider),
            ("?durability=unsafe", ServerDurability::Unsafe),
        ] {
            let address = format!("postgres://a@localhost/x{parameters}");
            let server: PostgresServer = address.parse().unwrap();
            assert_eq!(server.durability, durability);
            assert_eq!(server.to_string(), address);
        }
        let among = "postgres://a@localhost/x?options=-csearch_path%3Dy&durability=unsafe";
        assert_eq!(among.parse::<PostgresServer>().unwrap().to_string(), among);
        let unknown = "postgres://a@localhost/x?durability=some".parse::<PostgresServer>();
        assert_eq!(unknown.unwrap_err(), ParsePlaceError::Durability);
        let both = "postgres://a@localhost/x?durability=provider&statements=prepared";
        assert_eq!(both.parse::<PostgresServer>().unwrap().to_string(), both);
        let unknown = "postgres://a@localhost/x?statements=named".parse::<PostgresServer>();
        assert_eq!(unknown.unwrap_err(), ParsePlaceError::Statements);
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
            let server = address.parse::<PostgresServer>().unwrap();
            assert_eq!(server.config.get_target_session_attrs(), target);
        }
    }
}
