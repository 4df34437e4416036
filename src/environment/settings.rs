//! The other settings of an environment file: `listen`, `servers`, `egress`, `limits`, `retention`,
//! `evidence`, `mcp`.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use ktsu_ledger::id::is_name;
use url::Url;

pub use super::limits::{MAX_ACTIVE_RUNS, MAX_BODY_BYTES, MAX_TRACE_WORK};
use super::limits::{MAX_CONNECTIONS, MAX_RETENTION_DAYS};
use super::shape;
use ktsu_config::fault::{Fault, FaultCode};
use ktsu_config::read::{ConfigReader, Fields};
use ktsu_config::yaml::YamlNode;
use ktsu_egress::address::is_entry;

/// The addresses at which services listen. What the command line says goes before.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListenSettings {
    /// The orchestrator; beyond loopback only where principals are configured (decision H5).
    pub orchestrator: Option<SocketAddr>,
    /// The runtime; beyond loopback only with principals and a certificate.
    pub runtime: Option<SocketAddr>,
    /// The gateway; beyond loopback only with principals and a certificate.
    pub gateway: Option<SocketAddr>,
}

/// What protects a service that other machines can reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ListenGuard {
    /// True if callers must show tokens.
    pub(super) authenticates: bool,
    /// True if connections are encrypted.
    pub(super) encrypts: bool,
}

/// The limits of an engine. What is absent is as much as this version can.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LimitSettings {
    /// Runs under way at once; further requests are refused and may be repeated.
    pub active_runs: Option<usize>,
    /// Connections at once.
    pub connections: Option<usize>,
    /// Bytes of a request's body.
    pub body_bytes: Option<usize>,
    /// The work that the answer to a trace over HTTP may take, in units of about a microsecond.
    pub trace_work: Option<u64>,
}

/// The time for which ended runs are kept. What is absent is kept for ever.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RetentionSettings {
    /// Runs that are complete, in days.
    pub complete_days: Option<u32>,
    /// Runs that failed or were cancelled, in days.
    pub failed_days: Option<u32>,
}

/// The witness that keeps checkpoints elsewhere, and the key that they are signed with.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EvidenceSettings {
    /// `file:PATH`, `command:…`, or a URL.
    pub witness: Option<String>,
    /// The file that holds the key.
    pub signing_key: Option<PathBuf>,
}

/// The permissions of agents that use ktsu as a tool server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct McpSettings {
    /// True if they may decide on approvals, of runs that they did not start.
    pub decide: bool,
}

/// `{decide}`.
pub(super) fn mcp(reader: &mut ConfigReader<'_>, node: &YamlNode) -> McpSettings {
    let Some(fields) = reader.shaped(node, &shape::MCP) else {
        return McpSettings::default();
    };
    let decide = fields.read("decide", |node| reader.flag(node, "mcp.decide"));
    McpSettings {
        decide: decide.unwrap_or(false),
    }
}

/// `{orchestrator, runtime, gateway}`, each `ADDRESS:PORT`.
pub(super) fn listen(
    reader: &mut ConfigReader<'_>,
    node: &YamlNode,
    guard: ListenGuard,
) -> ListenSettings {
    let Some(fields) = reader.shaped(node, &shape::LISTEN) else {
        return ListenSettings::default();
    };
    let listen = ListenSettings {
        orchestrator: address(reader, &fields, "orchestrator", guard),
        runtime: address(reader, &fields, "runtime", guard),
        gateway: address(reader, &fields, "gateway", guard),
    };
    let mut taken: Vec<SocketAddr> = Vec::new();
    for (name, address) in [
        ("orchestrator", listen.orchestrator),
        ("runtime", listen.runtime),
        ("gateway", listen.gateway),
    ] {
        let Some(address) = address.filter(|address| address.port() != 0) else {
            continue;
        };
        if let (true, Some(node)) = (taken.contains(&address), fields.get(name)) {
            reader.bad_value::<()>(node, format!("two services cannot listen on {address}"));
        }
        taken.push(address);
    }
    listen
}

fn address(
    reader: &mut ConfigReader<'_>,
    fields: &Fields<'_>,
    name: &str,
    guard: ListenGuard,
) -> Option<SocketAddr> {
    let node = fields.get(name)?;
    let text = reader.string(node, name)?;
    let plain = text.strip_prefix("localhost:");
    let plain = plain.map_or_else(|| text.to_owned(), |port| format!("127.0.0.1:{port}"));
    let Ok(address) = plain.parse::<SocketAddr>() else {
        let words = format!("{text:?} is not an address with a port");
        let fault = Fault::new(FaultCode::BadValue, node.place, words);
        return reader.reject(fault.hint("127.0.0.1:5050, [::1]:5050 or 0.0.0.0:5050"));
    };
    // What runtimes and gateways receive contains secrets of others.
    let needs_encryption = name != "orchestrator";
    let refused = match guard {
        _ if address.ip().is_loopback() => None,
        ListenGuard {
            authenticates: false,
            ..
        } => Some((
            "other machines could reach it, and callers are not authenticated",
            "configure principals, or listen on 127.0.0.1",
        )),
        ListenGuard {
            encrypts: false, ..
        } if needs_encryption => Some((
            "other machines could reach it, and what it receives contains secrets",
            "configure tls with certificate and key, or listen on 127.0.0.1",
        )),
        ListenGuard { .. } => None,
    };
    match refused {
        Some((words, hint)) => {
            reader.reject(Fault::new(FaultCode::OpenToAll, node.place, words).hint(hint))
        }
        None => Some(address),
    }
}

/// `ledger: PATH`, or `state: {driver: sqlite, dsn: PATH}`, which the earlier ktsu wrote.
pub(super) fn ledger(reader: &mut ConfigReader<'_>, fields: &Fields<'_>) -> Option<String> {
    let named = fields.read("ledger", |node| reader.string(node, "ledger"));
    if let (Some(""), Some(node)) = (named, fields.get("ledger")) {
        return reader.bad_value(node, "ledger is empty");
    }
    if let (Some((scheme, rest)), Some(node)) = (
        named.and_then(|address| address.split_once("://")),
        fields.get("ledger"),
    ) {
        let kind = scheme.strip_suffix("+discover").unwrap_or(scheme);
        let password = match kind {
            "postgres" | "postgresql" => "PGPASSWORD",
            "esdb" | "kurrentdb" | "kurrent" | "kdb" => "KTSU_EVENTSTORE_PASSWORD",
            _ => {
                let words = "ledger must be the path of a file, postgres://ROLE@HOST/DATABASE or \
                             esdb://HOST:2113";
                return reader.bad_value(node, words);
            }
        };
        let role = rest.split_once('@').map(|(role, _)| role);
        if role.is_some_and(|role| role.contains(':')) || rest.contains("password=") {
            let words = format!("ledger must not have a password: set the variable {password}");
            return reader.bad_value(node, words);
        }
    }
    let Some(node) = fields.get("state") else {
        return named.map(str::to_owned);
    };
    if let (Some(_), Some(place)) = (fields.key("ledger"), fields.key("state")) {
        let words = "state is another way to write ledger: keep one";
        reader.fault(Fault::new(FaultCode::DuplicateKey, place, words));
    }
    let state = reader.shaped(node, &shape::STATE)?;
    if let Some(node) = state.get("driver")
        && reader
            .string(node, "driver")
            .is_some_and(|driver| driver != "sqlite")
    {
        let words = "driver must be sqlite, which is the one there is";
        reader.bad_value::<()>(node, words);
    }
    let node = state.get("dsn")?;
    match reader.string(node, "dsn")? {
        "" => reader.bad_value(node, "dsn is empty"),
        path => Some(path.to_owned()),
    }
}

/// `NAME: {url}` for each tool server.
pub(super) fn servers(reader: &mut ConfigReader<'_>, node: &YamlNode) -> BTreeMap<String, String> {
    let mut servers = BTreeMap::new();
    for (key, node) in reader.members(node, "servers") {
        if !key.text.split('/').all(is_name) {
            let words = format!("{:?} cannot be the name of a tool server", key.text);
            reader.fault(Fault::new(FaultCode::BadValue, key.place, words));
        }
        let Some(fields) = reader.shaped(node, &shape::SERVER) else {
            continue;
        };
        if let Some(url) = fields.read("url", |node| http_url(reader, node)) {
            servers.insert(key.text.clone(), url);
        }
    }
    servers
}

/// A URL that requests are sent to.
pub(super) fn http_url(reader: &mut ConfigReader<'_>, node: &YamlNode) -> Option<String> {
    let text = reader.string(node, "url")?;
    let wrong = match Url::parse(text) {
        Ok(url) if !matches!(url.scheme(), "http" | "https") => Some("is not an http or https URL"),
        // A password in a URL would be a secret written out.
        Ok(url) if !url.username().is_empty() || url.password().is_some() => {
            let words = "the URL has a user or a password in it";
            let fault = Fault::new(FaultCode::LiteralSecret, node.place, words);
            return reader.reject(
                fault.hint("secrets are put into variables and named where they are needed"),
            );
        }
        Ok(url) => url.host_str().is_none().then_some("names no host"),
        Err(_) => Some("is not a URL"),
    };
    let Some(wrong) = wrong else {
        return Some(text.to_owned());
    };
    let fault = Fault::new(FaultCode::BadUrl, node.place, format!("{text:?} {wrong}"));
    reader.reject(fault.hint("url: https://example.com/path"))
}

/// `egress: {allow: […]}`.
pub(super) fn egress(reader: &mut ConfigReader<'_>, node: &YamlNode) -> Vec<String> {
    let mut hosts = Vec::new();
    let allow = reader
        .shaped(node, &shape::EGRESS)
        .and_then(|fields| fields.get("allow"));
    let list = allow.and_then(|node| reader.list(node, "egress.allow"));
    for node in list.unwrap_or_default() {
        let Some(entry) = reader.string(node, "an entry of egress.allow") else {
            continue;
        };
        match is_entry(entry) {
            true => hosts.push(entry.to_owned()),
            false => {
                let words = format!(
                    "{entry:?} is neither a host, a host with a port, nor an address range"
                );
                let fault = Fault::new(FaultCode::BadValue, node.place, words);
                reader.fault(fault.hint("desk.internal:8443, 10.20.0.0/16 or 127.0.0.1"));
            }
        }
    }
    hosts
}

/// `{active_runs, connections, body_bytes, trace_work}`.
pub(super) fn limits(reader: &mut ConfigReader<'_>, node: &YamlNode) -> LimitSettings {
    let Some(fields) = reader.shaped(node, &shape::LIMITS) else {
        return LimitSettings::default();
    };
    let mut number = |name: &str, least: i64, most: usize| {
        let node = fields.get(name)?;
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let whole = reader.integer(node, name, least, most)?;
        usize::try_from(whole).ok()
    };
    LimitSettings {
        active_runs: number("active_runs", 1, MAX_ACTIVE_RUNS),
        connections: number("connections", 1, MAX_CONNECTIONS),
        body_bytes: number("body_bytes", 1024, MAX_BODY_BYTES),
        trace_work: number("trace_work", 1000, MAX_TRACE_WORK).map(|units| units as u64),
    }
}

/// `{complete_days, failed_days}`.
pub(super) fn retention(reader: &mut ConfigReader<'_>, node: &YamlNode) -> RetentionSettings {
    let Some(fields) = reader.shaped(node, &shape::RETENTION) else {
        return RetentionSettings::default();
    };
    let mut days = |name: &str| {
        let days = reader.integer(fields.get(name)?, name, 1, MAX_RETENTION_DAYS)?;
        u32::try_from(days).ok()
    };
    RetentionSettings {
        complete_days: days("complete_days"),
        failed_days: days("failed_days"),
    }
}

/// `{witness, signing_key}`; a path is seen from the file's folder.
pub(super) fn evidence(
    reader: &mut ConfigReader<'_>,
    node: &YamlNode,
    file: &Path,
) -> EvidenceSettings {
    let Some(fields) = reader.shaped(node, &shape::EVIDENCE) else {
        return EvidenceSettings::default();
    };
    let mut text = |name: &str| {
        let node = fields.get(name)?;
        let text = reader.string(node, name)?;
        if text.is_empty() {
            return reader.bad_value(node, format!("{name} is empty"));
        }
        Some(text.to_owned())
    };
    let folder = file.parent().unwrap_or(Path::new(""));
    EvidenceSettings {
        witness: text("witness"),
        signing_key: text("signing_key").map(|path| folder.join(path)),
    }
}
