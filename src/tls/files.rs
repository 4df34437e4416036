//! The PEM files, and what is made of them.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use rustls_platform_verifier::BuilderVerifierExt as _;

use crate::TlsError;

/// The most bytes of a file: a bundle of every public authority has a fifth of that.
const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// The protocol that services speak.
const PROTOCOL: &[u8] = b"http/1.1";

/// The files of a service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// What it shows to those who call it, and to those whom it calls.
    pub identity: Option<Identity>,
    /// The authority whose certificates it trusts; those of the machine if there is none.
    pub authority: Option<PathBuf>,
    /// True if callers must show a certificate of the authority.
    pub asks_clients: bool,
}

/// A certificate and its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The certificate, followed by those between it and the authority.
    pub certificate: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

/// A chain of certificates, and the key of the first.
type KeyedCertificates = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// The texts of the files.
#[derive(PartialEq, Eq)]
pub(super) struct PemTexts {
    identity: Option<(Vec<u8>, Vec<u8>)>,
    authority: Option<Vec<u8>>,
}

impl TlsFiles {
    pub(super) fn read(&self) -> Result<PemTexts, TlsError> {
        let identity = match &self.identity {
            Some(own) => Some((read(&own.certificate)?, read(&own.key)?)),
            None => None,
        };
        let authority = self.authority.as_deref().map(read).transpose()?;
        Ok(PemTexts {
            identity,
            authority,
        })
    }
}

impl PemTexts {
    /// How a service with these files encrypts what it receives.
    pub(super) fn server(&self, files: &TlsFiles) -> Result<Option<Arc<ServerConfig>>, TlsError> {
        let Some((certificates, key)) = self.identity(files)? else {
            return Ok(None);
        };
        let builder = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|_| TlsError::NoneTrusted)?;
        let config = match files.asks_clients {
            true => builder
                .with_client_cert_verifier(self.client_verifier(files)?)
                .with_single_cert(certificates, key),
            false => builder
                .with_no_client_auth()
                .with_single_cert(certificates, key),
        };
        let mut config = config.map_err(|_| mismatch(files))?;
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        Ok(Some(Arc::new(config)))
    }

    /// How a caller with these files encrypts what it sends.
    pub(super) fn client(&self, files: &TlsFiles) -> Result<Arc<ClientConfig>, TlsError> {
        let builder = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|_| TlsError::NoneTrusted)?;
        let builder = match self.roots(files)? {
            Some(roots) => builder.with_root_certificates(roots),
            None => builder
                .with_platform_verifier()
                .map_err(|_| TlsError::NoneTrusted)?,
        };
        let config = match self.identity(files)? {
            Some((certificates, key)) => builder
                .with_client_auth_cert(certificates, key)
                .map_err(|_| mismatch(files))?,
            None => builder.with_no_client_auth(),
        };
        Ok(Arc::new(config))
    }

    fn client_verifier(&self, files: &TlsFiles) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
        let roots = self.roots(files)?.ok_or(TlsError::NoAuthority)?;
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider());
        verifier.build().map_err(|_| TlsError::NoAuthority)
    }

    fn identity(&self, files: &TlsFiles) -> Result<Option<KeyedCertificates>, TlsError> {
        let (Some((certificate, key)), Some(own)) = (&self.identity, &files.identity) else {
            return Ok(None);
        };
        let certificates = certificates(certificate, &own.certificate)?;
        let key = PrivateKeyDer::from_pem_slice(key);
        let key = key.map_err(|_| TlsError::NoKey(own.key.clone()))?;
        Ok(Some((certificates, key)))
    }

    fn roots(&self, files: &TlsFiles) -> Result<Option<RootCertStore>, TlsError> {
        let (Some(text), Some(path)) = (&self.authority, &files.authority) else {
            return Ok(None);
        };
        let mut roots = RootCertStore::empty();
        for authority in certificates(text, path)? {
            let added = roots.add(authority);
            added.map_err(|_| TlsError::BadAuthority(path.clone()))?;
        }
        Ok(Some(roots))
    }
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    let unreadable = |error: std::io::Error| TlsError::Unreadable {
        path: path.to_owned(),
        why: error.kind().to_string(),
    };
    let mut text = Vec::new();
    let file = File::open(path).map_err(unreadable)?;
    let mut bounded = file.take(MAX_FILE_BYTES + 1);
    bounded.read_to_end(&mut text).map_err(unreadable)?;
    match text.len() as u64 > MAX_FILE_BYTES {
        true => Err(TlsError::TooLarge {
            path: path.to_owned(),
            most: MAX_FILE_BYTES,
        }),
        false => Ok(text),
    }
}

/// The certificates of a file; at least one.
fn certificates(text: &[u8], path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) | Err(_) => Err(TlsError::NoCertificate(path.to_owned())),
    }
}

fn mismatch(files: &TlsFiles) -> TlsError {
    match files.identity.clone() {
        Some(Identity { certificate, key }) => TlsError::Mismatch { certificate, key },
        None => TlsError::NoneTrusted,
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}
