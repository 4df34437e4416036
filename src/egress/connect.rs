//! Connections: names are resolved and checked in one step; TLS is loaded when it is first needed.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect;

use super::address::{AddressKind, AddressRules, RequestTarget};
use super::{EgressError, EgressErrorCode};

/// The source of the addresses of names.
#[derive(Clone)]
pub(super) enum NameSource {
    /// The system's resolver.
    System,
    /// A table, so that tests can let a name point anywhere.
    #[cfg(test)]
    Table(std::collections::BTreeMap<String, Vec<IpAddr>>),
}

/// The most time a connection takes to be made, TLS included. Who has less time says so himself.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Up to four clients, built when first needed. Plain HTTP needs no certificates, whose loading
/// takes longer than a whole run of a small workflow; hosts listed by name have connections of
/// their own, so that one opened to a listed host:port is never reused for an unlisted one.
pub(super) struct GuardedConnections {
    rules: Arc<AddressRules>,
    names: NameSource,
    clients: [OnceLock<Option<reqwest::Client>>; 4],
}

impl GuardedConnections {
    pub(super) fn new(rules: Arc<AddressRules>, names: NameSource) -> Self {
        let clients = Default::default();
        Self {
            rules,
            names,
            clients,
        }
    }

    /// Sends and waits for the head of the answer.
    pub(super) async fn send(
        &self,
        target: RequestTarget,
        method: Method,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<reqwest::Response, EgressError> {
        let secure = target.url.scheme() == "https";
        let slot = usize::from(secure) * 2 + usize::from(target.listed);
        let client = self.clients[slot].get_or_init(|| self.build(secure, target.listed).ok());
        let Some(client) = client else {
            let message = "TLS is not available: no certificate authorities found";
            return Err(EgressError::new(EgressErrorCode::Unreachable, message));
        };
        client
            .request(method, target.url)
            .headers(headers)
            .body(body)
            .send()
            .await
            .map_err(|error| failure(&error, &target.place))
    }

    fn build(&self, secure: bool, listed: bool) -> reqwest::Result<reqwest::Client> {
        // reqwest takes the process's provider of cryptography; an error says one is there already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let resolver = GuardedResolver {
            rules: Arc::clone(&self.rules),
            names: self.names.clone(),
            listed,
        };
        let client = reqwest::Client::builder()
            .dns_resolver(resolver)
            .redirect(redirect::Policy::none())
            .retry(reqwest::retry::never())
            .no_proxy()
            .referer(false)
            .http1_only()
            .connect_timeout(CONNECT_TIMEOUT)
            .pool_idle_timeout(Duration::from_secs(30))
            .pool_max_idle_per_host(32)
            .user_agent(concat!("ktsu/", env!("CARGO_PKG_VERSION")));
        if secure {
            // The certificate authorities of this machine, by the platform's verifier.
            client.https_only(true).build()
        } else {
            client.tls_certs_only([]).build()
        }
    }
}

/// A resolver that hands out permitted addresses only, so that the address checked is the address
/// connected to. An address spelled out in the URL never comes here: [`AddressRules::target`] checked it.
struct GuardedResolver {
    rules: Arc<AddressRules>,
    names: NameSource,
    listed: bool,
}

/// Every address of a name is one we do not connect to.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct RefusedAddressError(String);

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let (rules, names, listed) = (Arc::clone(&self.rules), self.names.clone(), self.listed);
        Box::pin(async move {
            let found = look_up(&names, name.as_str()).await?;
            let judge = |address: &IpAddr| rules.permits(*address, listed);
            let permitted: Vec<SocketAddr> = found
                .iter()
                .filter(|address| judge(address).is_ok())
                .map(|address| SocketAddr::new(*address, 0))
                .collect();
            let refused: Option<(&IpAddr, AddressKind)> = found
                .iter()
                .find_map(|address| judge(address).err().map(|kind| (address, kind)));
            match refused {
                Some((address, kind)) if permitted.is_empty() => {
                    let message = format!("{} resolves to {address}, {kind}", name.as_str());
                    Err(RefusedAddressError(message).into())
                }
                Some(_) | None => Ok(Box::new(permitted.into_iter()) as Addrs),
            }
        })
    }
}

async fn look_up(names: &NameSource, name: &str) -> io::Result<Vec<IpAddr>> {
    match names {
        NameSource::System => {
            let found = tokio::net::lookup_host((name, 0)).await?;
            Ok(found.map(|address| address.ip()).collect())
        }
        #[cfg(test)]
        NameSource::Table(table) => table
            .get(name)
            .cloned()
            .ok_or_else(|| io::Error::from(io::ErrorKind::NotFound)),
    }
}

/// The failure of a request before the head of the answer, in our words.
fn failure(error: &reqwest::Error, place: &str) -> EgressError {
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        if let Some(RefusedAddressError(message)) = inner.downcast_ref() {
            return EgressError::new(EgressErrorCode::Refused, message.as_str());
        }
        cause = inner.source();
    }
    let message = if error.is_builder() {
        "the request cannot be built".to_owned()
    } else if error.is_dns() {
        format!("the name of {place} does not resolve")
    } else if error.is_connect() {
        format!("no connection to {place}")
    } else {
        let message = format!("the connection to {place} broke before an answer");
        return EgressError::new(EgressErrorCode::Unreachable, message).after_sending();
    };
    EgressError::new(EgressErrorCode::Unreachable, message)
}
