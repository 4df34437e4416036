//! The address of a ledger: servers, a user, and the name of the ledger there.

use std::fmt;
use std::str::FromStr;

use kurrentdb::{ClientSettings, Credentials};

/// The schemes that the client knows.
const SCHEMES: [&str; 4] = ["esdb", "kurrentdb", "kurrent", "kdb"];
/// The parameter that names a ledger, where a server has several.
const LEDGER: &str = "ledger";
/// The parameters that name files, or say how long the client waits before it connects.
const CONNECT: [(&str, &str); 2] = [("discoveryInterval", "20"), ("maxDiscoverAttempts", "5")];

/// The text is not the address of a ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not an address such as esdb://HOST:2113")]
pub struct ParseAddressError;

/// The address of a ledger.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Address {
    scheme: String,
    user: Option<String>,
    password: Option<String>,
    /// One or several, separated by commas.
    hosts: String,
    parameters: Vec<(String, String)>,
    ledger: Option<String>,
}

impl FromStr for Address {
    type Err = ParseAddressError;

    fn from_str(text: &str) -> Result<Self, ParseAddressError> {
        let (scheme, rest) = text.split_once("://").ok_or(ParseAddressError)?;
        let kind = scheme.strip_suffix("+discover").unwrap_or(scheme);
        if !SCHEMES.contains(&kind) {
            return Err(ParseAddressError);
        }
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (user, hosts) = match place.rsplit_once('@') {
            Some((user, hosts)) => (Some(user), hosts),
            None => (None, place),
        };
        let (user, password) = match user.map(|user| user.split_once(':').unwrap_or((user, ""))) {
            Some((user, password)) => (Some(decoded(user)?), Some(decoded(password)?)),
            None => (None, None),
        };
        let mut address = Self {
            scheme: scheme.to_owned(),
            user,
            password: password.filter(|password| !password.is_empty()),
            hosts: hosts.trim_end_matches('/').to_owned(),
            parameters: Vec::new(),
            ledger: None,
        };
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').ok_or(ParseAddressError)?;
            match name == LEDGER {
                true => address.ledger = Some(named(value)?),
                false => address.parameters.push((name.to_owned(), value.to_owned())),
            }
        }
        let settings = address.settings(None).parse::<ClientSettings>();
        match settings.is_ok_and(|settings| !settings.hosts().is_empty()) {
            true => Ok(address),
            false => Err(ParseAddressError),
        }
    }
}

/// The name of a ledger, which begins the names of its streams.
fn named(name: &str) -> Result<String, ParseAddressError> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    match !name.is_empty() && name.len() <= 64 && name.bytes().all(is_plain) {
        true => Ok(name.to_owned()),
        false => Err(ParseAddressError),
    }
}

/// Without the password.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://", self.scheme)?;
        if let Some(user) = &self.user {
            write!(f, "{}@", encoded(user))?;
        }
        f.write_str(&self.hosts)?;
        let shown = self.parameters.iter().filter(|(name, _)| name == "tls");
        let shown = shown.map(|(name, value)| format!("{name}={value}"));
        let ledger = self.ledger.iter().map(|name| format!("{LEDGER}={name}"));
        let shown: Vec<String> = shown.chain(ledger).collect();
        match shown.is_empty() {
            true => Ok(()),
            false => write!(f, "?{}", shown.join("&")),
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Address").field(&self.to_string()).finish()
    }
}

impl Address {
    /// The address with a password, unless it has one.
    pub(crate) fn with_password(mut self, password: &str) -> Self {
        if self.password.is_none() {
            self.password = Some(password.to_owned());
        }
        self
    }

    /// The user and the password.
    pub(crate) fn credentials(&self) -> Option<Credentials> {
        let password = self.password.clone().unwrap_or_default();
        let user = self.user.clone()?;
        Some(Credentials::new(user, password))
    }

    /// The name of a stream of the ledger, on the server.
    pub(crate) fn stream(&self, name: &str) -> String {
        match &self.ledger {
            Some(ledger) => format!("{ledger}/{name}"),
            None => name.to_owned(),
        }
    }

    /// The address as the client reads it, without the user, whose name it would not decode; of one server,
    /// if one is given.
    pub(crate) fn settings(&self, server: Option<&(String, u32)>) -> String {
        let (scheme, hosts) = match server {
            Some((host, port)) => {
                let scheme = self.scheme.strip_suffix("+discover");
                (scheme.unwrap_or(&self.scheme), format!("{host}:{port}"))
            }
            None => (self.scheme.as_str(), self.hosts.clone()),
        };
        let given = self.parameters.iter().cloned();
        let is_given = |name: &str| {
            let mut given = self.parameters.iter();
            given.any(|(given, _)| given.eq_ignore_ascii_case(name))
        };
        let more = CONNECT.iter().filter(|(name, _)| !is_given(name));
        let more = more.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let parameters = given
            .chain(more)
            .map(|(name, value)| format!("{name}={value}"));
        let parameters: Vec<String> = parameters.collect();
        format!("{scheme}://{hosts}?{}", parameters.join("&"))
    }
}

/// A text as a part of an address has it.
fn encoded(text: &str) -> String {
    let bytes = text.bytes().map(|byte| match byte.is_ascii_alphanumeric() {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    });
    bytes.collect()
}

/// The text that a part of an address has.
fn decoded(part: &str) -> Result<String, ParseAddressError> {
    let (mut bytes, mut rest) = (Vec::new(), part.as_bytes());
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (digits, after) = rest.split_at_checked(2).ok_or(ParseAddressError)?;
        let digits = std::str::from_utf8(digits).map_err(|_| ParseAddressError)?;
        bytes.push(u8::from_str_radix(digits, 16).map_err(|_| ParseAddressError)?);
        rest = after;
    }
    String::from_utf8(bytes).map_err(|_| ParseAddressError)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_without_its_password_and_names_a_ledger_of_the_server() {
        let text = "esdb://ann:s3cret@a:2113,b:2113?tls=false&ledger=team";
        let address: Address = text.parse().unwrap();
        assert_eq!(
            address.to_string(),
            "esdb://ann@a:2113,b:2113?tls=false&ledger=team"
        );
        assert_eq!(address.stream("run:x"), "team/run:x");
        let settings = address.settings(Some(&("c".to_owned(), 7)));
        assert!(settings.starts_with("esdb://c:7?tls=false&"), "{settings}");
        assert!(!settings.contains("ledger"));
        for scheme in ["kurrentdb", "kdb", "esdb+discover"] {
            assert!(format!("{scheme}://a:1").parse::<Address>().is_ok());
        }
        for wrong in [
            "esdb://",
            "http://a:1",
            "esdb://a:port",
            "esdb://a?ledger=a/b",
        ] {
            assert_eq!(wrong.parse::<Address>(), Err(ParseAddressError), "{wrong}");
        }
        let user = |address: &str| {
            let address: Address = address.parse().unwrap();
            address.with_password("other").credentials()
        };
        let same = Some(Credentials::new("an n", "p:@"));
        assert_eq!(user("kdb://an%20n:p%3A%40@a"), same);
        assert_eq!(user("kdb://ann@a"), Some(Credentials::new("ann", "other")));
    }
}
