//! The reasons why certificates cannot be used.

use std::path::PathBuf;

/// The reasons why certificates cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read {}: {why}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's error.
        why: String,
    },
    /// A file is too large to be a certificate or a key.
    #[error("{} has more than {most} bytes, which no certificate has", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The most bytes.
        most: u64,
    },
    /// A file without a certificate in it.
    #[error("{} has no certificate: it must be a PEM file with BEGIN CERTIFICATE", .0.display())]
    NoCertificate(PathBuf),
    /// A file without a key in it.
    #[error("{} has no private key: it must be a PEM file with BEGIN PRIVATE KEY", .0.display())]
    NoKey(PathBuf),
    /// An authority that cannot be one.
    #[error("{} has a certificate that cannot be an authority", .0.display())]
    BadAuthority(PathBuf),
    /// The key is not that of the certificate, or of a kind that is not supported.
    #[error("the key in {} does not fit the certificate in {}", key.display(), certificate.display())]
    Mismatch {
        /// The file of the certificate.
        certificate: PathBuf,
        /// The file of the key.
        key: PathBuf,
    },
    /// Callers are to show certificates, and no authority is named that could have issued them.
    #[error(
        "tls.clients needs tls.authority: the authority that issues the certificates of callers"
    )]
    NoAuthority,
    /// The authorities that this machine trusts cannot be found.
    #[error("this machine has no authorities that it trusts: name one in tls.authority")]
    NoneTrusted,
}

impl TlsError {
    /// The file that is wrong, if one is.
    pub fn path(&self) -> Option<&std::path::Path> {
        match self {
            Self::Unreadable { path, .. } | Self::TooLarge { path, .. } => Some(path),
            Self::NoCertificate(path) | Self::NoKey(path) | Self::BadAuthority(path) => Some(path),
            Self::Mismatch { key, .. } => Some(key),
            Self::NoAuthority | Self::NoneTrusted => None,
        }
    }
}
