//! Which addresses may be reached.
//!
//! URLs are read by the WHATWG rules, which know every way to disguise an IPv4 address (octal,
//! hexadecimal, one number, fewer parts, a trailing dot) and turn it into four plain numbers. So
//! there is one reader of hosts, and what it read is what is judged and connected to.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use reqwest::Url;

use super::{Failure, FailureCode};

/// What an address is for, as far as it concerns whether to connect to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
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
    /// Where clouds hand credentials to whoever asks.
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

impl Kind {
    /// What an address is for.
    pub fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => of_v4(address),
            IpAddr::V6(address) => of_v6(address),
        }
    }
}

impl fmt::Display for Kind {
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

fn of_v4(address: Ipv4Addr) -> Kind {
    match address.octets() {
        [169, 254, 169, 254] | [168, 63, 129, 16] | [100, 100, 100, 200] | [192, 0, 0, 192] => {
            Kind::Metadata
        }
        [0, ..] => Kind::Unspecified,
        [127, ..] => Kind::Loopback,
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] => Kind::Private,
        [169, 254, ..] => Kind::LinkLocal,
        [100, 64..=127, ..] => Kind::Shared,
        [192, 0, 0 | 2, _]
        | [192, 88, 99, _]
        | [198, 18 | 19, ..]
        | [198, 51, 100, _]
        | [203, 0, 113, _]
        | [240..=255, ..] => Kind::Reserved,
        [224..=239, ..] => Kind::Multicast,
        [..] => Kind::Public,
    }
}

fn of_v6(address: Ipv6Addr) -> Kind {
    if let Some(inner) = address.to_ipv4_mapped() {
        let kind = of_v4(inner);
        return if kind == Kind::Public {
            Kind::Mapped
        } else {
            kind
        };
    }
    let segments = address.segments();
    match segments {
        [0, 0, 0, 0, 0, 0, 0, 0] => Kind::Unspecified,
        [0, 0, 0, 0, 0, 0, 0, 1] => Kind::Loopback,
        // NAT64: what an IPv6-only network uses to reach IPv4, so the inner address counts.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            of_v4(Ipv4Addr::from(u32::from(high) << 16 | u32::from(low)))
        }
        [0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254] => Kind::Metadata,
        [0xfc00..=0xfdff, ..] => Kind::UniqueLocal,
        [0xfe80..=0xfebf, ..] => Kind::LinkLocal,
        [0xfec0..=0xfeff, ..] => Kind::Private,
        [0xff00..=0xffff, ..] => Kind::Multicast,
        // Teredo and other protocol assignments, documentation, 6to4.
        [0x2001, 0..=0x1ff | 0xdb8, ..] | [0x2002, ..] | [0x3fff, 0..=0xfff, ..] => Kind::Reserved,
        [0x2000..=0x3fff, ..] => Kind::Public,
        [..] => Kind::Reserved,
    }
}

/// An entry of [`super::Policy::allow`] that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is neither a host, a host with a port, nor an address range")]
pub struct BadEntry(pub String);

/// A policy, read.
#[derive(Debug, Default)]
pub(super) struct Rules {
    /// Lower case, without a trailing dot; with a port or for any.
    hosts: Vec<(String, Option<u16>)>,
    ranges: Vec<(IpAddr, u8)>,
    loopback: bool,
}

/// A URL that may be sent to, as far as can be told before its name is resolved.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) url: Url,
    /// Host and port: what shares connections and places.
    pub(super) place: String,
    /// The host stands in the policy by name, so its addresses are not judged again.
    pub(super) listed: bool,
}

impl Rules {
    pub(super) fn new(allow: &[String], loopback: bool) -> Result<Self, BadEntry> {
        let mut rules = Self {
            loopback,
            ..Self::default()
        };
        for entry in allow {
            rules.add(entry).ok_or_else(|| BadEntry(entry.clone()))?;
        }
        Ok(rules)
    }

    fn add(&mut self, entry: &str) -> Option<()> {
        if let Some((address, bits)) = entry.split_once('/') {
            let address: IpAddr = address.parse().ok()?;
            let bits: u8 = bits.parse().ok()?;
            let widest = if address.is_ipv4() { 32 } else { 128 };
            if bits > widest {
                return None;
            }
            self.ranges.push((address, bits));
            return Some(());
        }
        if let Ok(address) = entry.parse::<IpAddr>() {
            self.ranges
                .push((address, if address.is_ipv4() { 32 } else { 128 }));
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

    /// Reads and judges a URL. A name is judged again when it resolves, see [`Rules::permits`].
    pub(super) fn target(&self, url: &str) -> Result<Target, Failure> {
        let refused = |message: String| Failure::new(FailureCode::Refused, message);
        let url = Url::parse(url).map_err(|_| refused("the URL cannot be read".to_owned()))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(refused("only http and https are sent to".to_owned()));
        }
        let (Some(host), Some(port)) = (url.host_str(), url.port_or_known_default()) else {
            return Err(refused("the URL has no host".to_owned()));
        };
        let listed = self.lists(host, port);
        if let Some(address) = literal(host) {
            self.permits(address, listed)
                .map_err(|kind| refused(format!("{address} is {kind}")))?;
        }
        let place = format!("{host}:{port}");
        Ok(Target { url, place, listed })
    }

    /// Whether an address may be connected to; `listed` if its host stands in the policy by name.
    pub(super) fn permits(&self, address: IpAddr, listed: bool) -> Result<(), Kind> {
        let kind = Kind::of(address);
        match kind {
            Kind::Public => Ok(()),
            // No entry makes these a host one could mean.
            Kind::Unspecified | Kind::Multicast => Err(kind),
            Kind::Loopback if self.loopback => Ok(()),
            Kind::Loopback
            | Kind::Private
            | Kind::UniqueLocal
            | Kind::LinkLocal
            | Kind::Shared
            | Kind::Metadata
            | Kind::Mapped
            | Kind::Reserved => {
                let canonical = address.to_canonical();
                let within = |range: &(IpAddr, u8)| contains(*range, canonical);
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

fn contains((network, bits): (IpAddr, u8), address: IpAddr) -> bool {
    let same = |network: u128, address: u128, width: u32| {
        let dropped = width.saturating_sub(u32::from(bits));
        network.checked_shr(dropped).unwrap_or(0) == address.checked_shr(dropped).unwrap_or(0)
    };
    match (network, address) {
        (IpAddr::V4(network), IpAddr::V4(address)) => {
            same(u32::from(network).into(), u32::from(address).into(), 32)
        }
        (IpAddr::V6(network), IpAddr::V6(address)) => same(network.into(), address.into(), 128),
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(allow: &[&str], loopback: bool) -> Rules {
        let allow: Vec<String> = allow.iter().map(|&entry| entry.to_owned()).collect();
        Rules::new(&allow, loopback).expect("entries")
    }

    fn goes(rules: &Rules, url: &str) -> bool {
        rules.target(url).is_ok()
    }

    #[test]
    fn every_spelling_of_a_local_address_is_refused() {
        let rules = rules(&[], false);
        for host in [
            "127.0.0.1",
            "127.1",
            "127.0.1",
            "127.255.255.254",
            "127.0.0.1.",
            "0x7f.1",
            "0x7f000001",
            "0x7F.0X0.0.0x1",
            "0177.0.0.1",
            "0177.1",
            "017700000001",
            "2130706433",
            "127.0.0.0x1",
            "%31%32%37.0.0.1",
            "１２７.0.0.1",
            "127。0。0。1",
            "①②⑦.0.0.1",
            "0.0.0.0",
            "0",
            "0x0",
            "0.1.2.3",
            "10.0.0.1",
            "012.0.0.1",
            "10.1",
            "167772161",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.0.1",
            "192.168.257",
            "0xc0a80001",
            "100.64.0.1",
            "100.127.255.255",
            "100.100.100.200",
            "169.254.0.1",
            "169.254.169.254",
            "0xa9fea9fe",
            "2852039166",
            "0251.0376.0251.0376",
            "168.63.129.16",
            "192.0.0.192",
            "192.0.2.1",
            "198.18.0.1",
            "198.51.100.7",
            "203.0.113.9",
            "192.88.99.1",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
            "[::]",
            "[::1]",
            "[0:0:0:0:0:0:0:1]",
            "[::127.0.0.1]",
            "[::7f00:1]",
            "[::ffff:127.0.0.1]",
            "[::ffff:7f00:1]",
            "[::FFFF:10.0.0.1]",
            "[::ffff:169.254.169.254]",
            "[::ffff:8.8.8.8]",
            "[64:ff9b::10.0.0.1]",
            "[64:ff9b::7f00:1]",
            "[64:ff9b:1::1]",
            "[fc00::1]",
            "[fd12:3456::1]",
            "[fd00:ec2::254]",
            "[fe80::1]",
            "[febf::1]",
            "[fec0::1]",
            "[ff02::1]",
            "[2001:db8::1]",
            "[2001::1]",
            "[2002:7f00:1::]",
            "[100::1]",
            "[3fff::1]",
            "[4000::1]",
        ] {
            for url in [format!("http://{host}/"), format!("https://{host}:8080/x")] {
                assert!(!goes(&rules, &url), "{url}");
            }
        }
    }

    #[test]
    fn userinfo_and_odd_schemes_do_not_hide_the_host() {
        let rules = rules(&["hooks.example"], false);
        for url in [
            "http://hooks.example@127.0.0.1/",
            "http://hooks.example:80@10.0.0.1/",
            "http://a:b@[::1]/",
            "http:\\\\127.0.0.1\\",
            "http:/127.0.0.1/",
            "http:127.0.0.1",
            "http://127.0.0.1\\@hooks.example/",
            "ht\ntp://127.0.0.1/",
            " http://127.0.0.1/",
            "file:///etc/passwd",
            "gopher://8.8.8.8/",
            "data:text/plain,x",
            "ftp://8.8.8.8/",
            "ws://8.8.8.8/",
            "javascript:1",
            "unix:/run/x",
            "//8.8.8.8/",
            "8.8.8.8",
            "",
            "http://",
            "http://[fe80::1%25eth0]/",
            "http://256.1.1.1/",
            "http://1.2.3.4.5/",
            "http://a b/",
            "http://8.8.8.8:99999/",
            "http://08.8.8.8/",
        ] {
            assert!(!goes(&rules, url), "{url}");
        }
    }

    #[test]
    fn public_addresses_and_names_pass_the_first_look() {
        let rules = rules(&[], false);
        for host in [
            "8.8.8.8",
            "1.1.1.1",
            "172.32.0.1",
            "100.128.0.1",
            "[2606:4700::1111]",
            "[64:ff9b::808:808]",
            "hooks.example",
            "hooks.example.",
            "bücher.example",
            "localhost",
        ] {
            assert!(goes(&rules, &format!("https://{host}/a?b#c")), "{host}");
        }
    }

    #[test]
    fn loopback_can_be_allowed_and_nothing_else_with_it() {
        let rules = rules(&[], true);
        for host in ["127.0.0.1", "127.9.9.9", "[::1]", "2130706433"] {
            assert!(goes(&rules, &format!("http://{host}/")), "{host}");
        }
        for host in ["0.0.0.0", "[::]", "10.0.0.1", "169.254.169.254"] {
            assert!(!goes(&rules, &format!("http://{host}/")), "{host}");
        }
    }

    #[test]
    fn listed_ranges_hosts_and_ports_are_allowed_exactly() {
        let rules = rules(
            &[
                "10.1.0.0/16",
                "192.168.7.7",
                "fd00::/8",
                "172.16.0.1:8080",
                "[fe80::1]:80",
            ],
            false,
        );
        for url in [
            "http://10.1.2.3/",
            "http://0xa010203/",
            "http://[::ffff:10.1.2.3]/",
            "http://192.168.7.7:99/",
            "http://[fd12::1]/",
            "http://172.16.0.1:8080/",
            "http://[fe80::1]/",
        ] {
            assert!(goes(&rules, url), "{url}");
        }
        for url in [
            "http://10.2.0.1/",
            "http://192.168.7.8/",
            "http://[fc00::1]/",
            "http://172.16.0.1/",
            "http://172.16.0.1:8081/",
            "http://[fe80::1]:81/",
            "http://[fe80::2]/",
        ] {
            assert!(!goes(&rules, url), "{url}");
        }
    }

    #[test]
    fn the_unspecified_address_cannot_be_listed() {
        let rules = rules(&["0.0.0.0/0", "::/0"], true);
        assert!(goes(&rules, "http://10.0.0.1/"));
        assert!(goes(&rules, "http://[fe80::1]/"));
        for host in ["0.0.0.0", "0.0.0.1", "[::]", "224.0.0.1", "[ff02::1]"] {
            assert!(!goes(&rules, &format!("http://{host}/")), "{host}");
        }
    }

    #[test]
    fn host_names_compare_without_case_and_final_dot() {
        let rules = rules(&["Intranet.Example", "hooks.example:8080"], false);
        assert!(rules.lists("intranet.example.", 1));
        assert!(rules.lists("hooks.example", 8080));
        assert!(!rules.lists("hooks.example", 80));
        assert!(!rules.lists("a.intranet.example", 1));
    }

    #[test]
    fn entries_that_cannot_be_read_are_errors() {
        for entry in [
            "",
            "10.0.0.0/33",
            "::/129",
            "10.0.0.0/",
            "a/b",
            "a:b",
            "a:99999",
            "a@b",
            "a b",
            "http://a",
        ] {
            let refused = Rules::new(&[entry.to_owned()], false);
            assert_eq!(
                refused.map(drop),
                Err(BadEntry(entry.to_owned())),
                "{entry}"
            );
        }
    }
}
