//! The certificates of an engine or a service: from its environment file, or the variables of its process.

use std::collections::BTreeMap;
use std::path::PathBuf;

use ktsu_environment::Environment;
use ktsu_peer::ConnectionPool;
use ktsu_tls::{Certificates, Identity, TlsError, TlsFiles};

/// The variables that take precedence over the environment file.
const CERTIFICATE: &str = "KTSU_TLS_CERTIFICATE";
const KEY: &str = "KTSU_TLS_KEY";
const AUTHORITY: &str = "KTSU_TLS_AUTHORITY";

/// The certificates to show and to trust; none if nothing is configured and no URL is encrypted.
///
/// # Errors
/// [`TlsError`].
pub fn certificates<'u>(
    environment: Option<&Environment>,
    process: &BTreeMap<String, String>,
    urls: impl IntoIterator<Item = &'u str>,
) -> Result<Option<Certificates>, TlsError> {
    let files = files(environment, process);
    let is_encrypted = |url: &str| url.starts_with("https://");
    match files == TlsFiles::default() && !urls.into_iter().any(is_encrypted) {
        true => Ok(None),
        false => Certificates::load(files).map(Some),
    }
}

/// Connections to a service at a URL, for a client of the command line.
///
/// # Errors
/// [`TlsError`].
pub fn connections(
    process: &BTreeMap<String, String>,
    url: &str,
) -> Result<ConnectionPool, TlsError> {
    let certificates = match url.starts_with("https://") {
        true => certificates(None, process, [url])?,
        false => None,
    };
    Ok(ConnectionPool::new(certificates))
}

fn files(environment: Option<&Environment>, process: &BTreeMap<String, String>) -> TlsFiles {
    let mut files = environment.map(|file| file.tls.clone()).unwrap_or_default();
    let named = |variable: &str| {
        let value = process.get(variable).filter(|value| !value.is_empty());
        value.map(PathBuf::from)
    };
    if let (Some(certificate), Some(key)) = (named(CERTIFICATE), named(KEY)) {
        files.identity = Some(Identity { certificate, key });
    }
    if let Some(authority) = named(AUTHORITY) {
        files.authority = Some(authority);
    }
    files
}
