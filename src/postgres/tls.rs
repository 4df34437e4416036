//! An encrypted connection, whose server proves that it is the one of the address.

use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, InvalidDnsNameError, ServerName};
use rustls::{ClientConfig, RootCertStore};
use rustls_platform_verifier::BuilderVerifierExt as _;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;

use crate::query_error::QueryError;

/// Makes connections that are encrypted.
#[derive(Clone)]
pub(crate) struct Tls {
    connector: TlsConnector,
}

impl Tls {
    /// Trusts the authorities of a PEM file, or those of the machine.
    pub(crate) fn new(authorities: Option<&Path>) -> Result<Self, QueryError> {
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions();
        let builder = builder.map_err(|_| QueryError::NoAuthorities)?;
        let config = match authorities {
            Some(path) => builder.with_root_certificates(roots(path)?),
            None => builder
                .with_platform_verifier()
                .map_err(|_| QueryError::NoAuthorities)?,
        };
        Ok(Self {
            connector: Arc::new(config.with_no_client_auth()).into(),
        })
    }
}

/// The authorities of a PEM file.
fn roots(path: &Path) -> Result<RootCertStore, QueryError> {
    let found = CertificateDer::pem_file_iter(path).map_err(|_| QueryError::NoAuthorities)?;
    let mut roots = RootCertStore::empty();
    for authority in found {
        let authority = authority.map_err(|_| QueryError::NoAuthorities)?;
        roots
            .add(authority)
            .map_err(|_| QueryError::NoAuthorities)?;
    }
    match roots.is_empty() {
        true => Err(QueryError::NoAuthorities),
        false => Ok(roots),
    }
}

/// What connects to one server.
pub(crate) struct ServerTls {
    tls: Tls,
    name: ServerName<'static>,
}

/// An encrypted stream of bytes.
pub(crate) struct Encrypted<S>(tokio_rustls::client::TlsStream<S>);

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> MakeTlsConnect<S> for Tls {
    type Stream = Encrypted<S>;
    type TlsConnect = ServerTls;
    type Error = InvalidDnsNameError;

    fn make_tls_connect(&mut self, host: &str) -> Result<ServerTls, InvalidDnsNameError> {
        Ok(ServerTls {
            tls: self.clone(),
            name: ServerName::try_from(host.to_owned())?,
        })
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> TlsConnect<S> for ServerTls {
    type Stream = Encrypted<S>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Encrypted<S>>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        let connecting = self.tls.connector.connect(self.name, stream);
        Box::pin(async move { connecting.await.map(Encrypted) })
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for Encrypted<S> {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Encrypted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(task, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Encrypted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(task, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(task)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(task)
    }
}
