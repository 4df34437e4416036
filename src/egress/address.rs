//! The rules on addresses that may be reached.
//!
//! URLs are parsed by the WHATWG rules, which recognise every disguised form of an IPv4 address
//! (octal, hexadecimal, a single number, fewer parts, a trailing dot) and convert it to four plain
//! numbers. There is only one parser of hosts, so the address that is checked is the one that is
//! connected to.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use reqwest::Url;

use super::{EgressError, EgressErrorCode};

/// The kind of an address, as far as it concerns whether to connect to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressKind {
    /// Anywhere on the internet.
    Public,
    /// This machine.
    Loopback,
    /// RFC 1918, and IPv6 site-local.
    Private,
    /// RFC 4193.
    UniqueLocal,
    /// The link only.
    LinkLocal,
    /// Carrier-grade NAT, RFC 6598.
    Shared,
    /// The address at which clouds hand credentials to every caller.
    Metadata,
    /// An IPv4 address dressed as IPv6.
    Mapped,
    /// For documentation, benchmarks, tunnels, the future.
    Reserved,
    /// Nowhere; in practice this machine.
    Unspecified,
    /// Many machines.
    Multicast,
}

impl AddressKind {
    /// The kind of an address.
    pub fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => of_v4(address),
            IpAddr::V6(address) => of_v6(address),
        }
    }
}

impl fmt::Display for AddressKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Public => "a public address",
            Self::Loopback => "a loopback address",
            Self::Private => "a private address",
            Self::UniqueLocal => "a unique-local address",
            Self::LinkLocal => "a link-local address",
            Self::Shared => "a carrier-grade NAT address",
            Self::Metadata => "a cloud metadata address",
            Self::Mapped => "an IPv4-mapped address",
            Self::Reserved => "a reserved address",
            Self::Unspecified => "the unspecified address",
            Self::Multicast => "a multicast address",
        })
    }
}

fn of_v4(address: Ipv4Addr) -> AddressKind {
    match address.octets() {
        [169, 254, 169, 254] | [168, 63, 129, 16] | [100, 100, 100, 200] | [192, 0, 0, 192] => {
            AddressKind::Metadata
        }
        [0, ..] => AddressKind::Unspecified,
        [127, ..] => AddressKind::Loopback,
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] => AddressKind::Private,
        [169, 254, ..] => AddressKind::LinkLocal,
        [100, 64..=127, ..] => AddressKind::Shared,
        [192, 0, 0 | 2, _]
        | [192, 88, 99, _]
        | [198, 18 | 19, ..]
        | [198, 51, 100, _]
        | [203, 0, 113, _]
        | [240..=255, ..] => AddressKind::Reserved,
        [224..=239, ..] => AddressKind::Multicast,
        [..] => AddressKind::Public,
    }
}

fn of_v6(address: Ipv6Addr) -> AddressKind {
    if let Some(inner) = address.to_ipv4_mapped() {
        let kind = of_v4(inner);
        return if kind == AddressKind::Public {
            AddressKind::Mapped
        } else {
            kind
        };
    }
    let segments = address.segments();
    match segments {
        [0, 0, 0, 0, 0, 0, 0, 0] => AddressKind::Unspecified,
        [0, 0, 0, 0, 0, 0, 0, 1] => AddressKind::Loopback,
        // NAT64: what an IPv6-only network uses to reach IPv4, so the inner address counts.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            of_v4(Ipv4Addr::from(u32::from(high) << 16 | u32::from(low)))
        }
        [0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254] => AddressKind::Metadata,
        [0xfc00..=0xfdff, ..] => AddressKind::UniqueLocal,
        [0xfe80..=0xfebf, ..] => AddressKind::LinkLocal,
        [0xfec0..=0xfeff, ..] => AddressKind::Private,
        [0xff00..=0xffff, ..] => AddressKind::Multicast,
        // Teredo and other protocol assignments, documentation, 6to4.
        [0x2001, 0..=0x1ff | 0xdb8, ..] | [0x2002, ..] | [0x3fff, 0..=0xfff, ..] => {
            AddressKind::Reserved
        }
        [0x2000..=0x3fff, ..] => AddressKind::Public,
        [..] => AddressKind::Reserved,
    }
}

/// An entry of [`super::EgressPolicy::allow`] that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is neither a host, a host with a port, nor an address range")]
pub struct AllowlistEntryError(pub String);

/// Returns `true` if a text can be an entry of a policy.
pub fn is_entry(text: &str) -> bool {
    AddressRules::default().add(text).is_some()
}

/// A policy, read.
#[derive(Debug, Default)]
pub(super) struct AddressRules {
    /// Lower case, without a trailing dot; with a port or for any.
    hosts: Vec<(String, Option<u16>)>,
    ranges: Vec<IpNet>,
    loopback: bool,
}

/// A URL that may be sent to, as far as can be told before its name is resolved.
#[derive(Debug)]
pub(super) struct RequestTarget {
    pub(super) url: Url,
    /// Host and port: what shares connections and places.
    pub(super) place: String,
    /// The host stands in the policy by name, so its addresses are not checked again.
    pub(super) listed: bool,
}

impl AddressRules {
    pub(super) fn new(allow: &[String], loopback: bool) -> Result<Self, AllowlistEntryError> {
        let mut rules = Self {
            loopback,
            ..Self::default()
        };
        for entry in allow {
            rules
                .add(entry)
                .ok_or_else(|| AllowlistEntryError(entry.clone()))?;
        }
        Ok(rules)
    }

    fn add(&mut self, entry: &str) -> Option<()> {
        if let Some((address, bits)) = entry.split_once('/') {
            let range = IpNet::new(address.parse().ok()?, bits.parse().ok()?);
            self.ranges.push(range.ok()?);
            return Some(());
        }
        if let Ok(address) = entry.parse::<IpAddr>() {
            self.ranges.push(address.into());
            return Some(());
        }
        let (host, port) = match entry.rsplit_once(':') {
            Some((host, port)) => (host, Some(port.parse().ok()?)),
            None => (entry, None),
        };
        // Read as a URL reads it, so that both sides of a comparison are written alike.
        let url = Url::parse(&format!("http://{host}/")).ok()?;
        let plain = url.path() == "/" && url.port().is_none() && url.username().is_empty();
        let host = url.host_str().filter(|_| plain)?;
        self.hosts.push((bare(host).to_owned(), port));
        Some(())
    }

    /// Reads and judges a URL. A name is judged again when it resolves, see [`AddressRules::permits`].
    pub(super) fn target(&self, url: &str) -> Result<RequestTarget, EgressError> {
        let (url, host, port) = read(url)?;
        let listed = self.lists(&host, port);
        if let Some(address) = literal(&host) {
            self.permits(address, listed)
                .map_err(|kind| refused(format!("{address} is {kind}")))?;
        }
        let place = format!("{host}:{port}");
        Ok(RequestTarget { url, place, listed })
    }

    /// Reads a URL that leads to this process itself: a loopback address, whether the policy allows it or
    /// not.
    pub(super) fn own_target(&self, url: &str) -> Result<RequestTarget, EgressError> {
        let (url, host, port) = read(url)?;
        let listed = self.lists(&host, port);
        match literal(&host) {
            Some(address) if address.is_loopback() => {
                let place = format!("{host}:{port}");
                Ok(RequestTarget { url, place, listed })
            }
            Some(_) | None => Err(refused(format!("{host} is not this process"))),
        }
    }

    /// Judges a name that is always this machine, before anything resolves it.
    pub(super) fn check_name(&self, url: &str) -> Result<(), EgressError> {
        let target = self.target(url)?;
        let host = target.url.host_str().map(bare).unwrap_or_default();
        let is_local = is_this_machine(host);
        let loopback = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
        let may_reach = |address: &IpAddr| self.permits(*address, target.listed).is_ok();
        match is_local && !loopback.iter().any(may_reach) {
            true => {
                let words = format!("{host} is {}", AddressKind::Loopback);
                Err(EgressError::new(EgressErrorCode::Refused, words))
            }
            false => Ok(()),
        }
    }

    /// Checks that an address may be connected to; `listed` if the policy lists its host by name.
    pub(super) fn permits(&self, address: IpAddr, listed: bool) -> Result<(), AddressKind> {
        let kind = AddressKind::of(address);
        match kind {
            AddressKind::Public => Ok(()),
            // No entry makes these a host one could mean.
            AddressKind::Unspecified | AddressKind::Multicast => Err(kind),
            AddressKind::Loopback if self.loopback => Ok(()),
            _ => {
                let canonical = address.to_canonical();
                let within = |range: &IpNet| range.contains(&canonical);
                (listed || self.ranges.iter().any(within))
                    .then_some(())
                    .ok_or(kind)
            }
        }
    }

    fn lists(&self, host: &str, port: u16) -> bool {
        self.hosts
            .iter()
            .any(|(name, only)| name == bare(host) && only.is_none_or(|only| only == port))
    }
}

fn refused(message: String) -> EgressError {
    EgressError::new(EgressErrorCode::Refused, message)
}

/// Reads a URL that can be sent to: with its host and port.
fn read(url: &str) -> Result<(Url, String, u16), EgressError> {
    let url = Url::parse(url).map_err(|_| refused("the URL cannot be read".to_owned()))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(refused("only http and https are sent to".to_owned()));
    }
    let host = url.host_str().map(str::to_owned);
    let (Some(host), Some(port)) = (host, url.port_or_known_default()) else {
        return Err(refused("the URL has no host".to_owned()));
    };
    Ok((url, host, port))
}

/// Returns `true` if a name is always this machine: those of RFC 6761, and those that systems give
/// it.
fn is_this_machine(host: &str) -> bool {
    const NAMES: [&str; 4] = [
        "localhost",
        "localhost.localdomain",
        "ip6-localhost",
        "ip6-loopback",
    ];
    NAMES.contains(&host) || host.ends_with(".localhost")
}

/// A host without the dot that marks it as absolute.
fn bare(host: &str) -> &str {
    host.strip_suffix('.').unwrap_or(host)
}

/// The address a URL's host spells out, if it does.
fn literal(host: &str) -> Option<IpAddr> {
    let inner = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    inner.unwrap_or(host).parse().ok()
}

#[cfg(test)]
mod tests;
