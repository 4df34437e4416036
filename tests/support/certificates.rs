//! Certificates of an authority that only a test trusts.

use std::fs;
use std::path::Path;
use std::time::Duration;

use ktsu_peer::ConnectionPool;
use ktsu_tls::{Certificates, TlsFiles};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

/// See the module documentation.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

/// A day that every certificate of these tests is valid around, or before.
const DAY: Duration = Duration::from_secs(24 * 3600);

impl Authority {
    pub(crate) fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Self {
            issuer: Issuer::new(params, key),
            pem,
        }
    }

    /// Writes the authority's own certificate.
    pub(crate) fn write(&self, path: &Path) {
        fs::write(path, &self.pem).unwrap();
    }

    /// Writes `NAME.pem` and `NAME.key`, for every address of the tests.
    pub(crate) fn issue(&self, folder: &Path, name: &str) {
        self.issue_until(folder, name, std::time::SystemTime::now() + DAY);
    }

    /// The same; it was valid until yesterday.
    pub(crate) fn issue_expired(&self, folder: &Path, name: &str) {
        self.issue_until(folder, name, std::time::SystemTime::now() - DAY);
    }

    fn issue_until(&self, folder: &Path, name: &str, until: std::time::SystemTime) {
        let machines = (1..=4).map(|number| format!("10.41.1.{number}"));
        let names = ["localhost", "127.0.0.1"].map(str::to_owned);
        let names: Vec<String> = names.into_iter().chain(machines).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.not_before = (until - 3 * DAY).into();
        params.not_after = until.into();
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        fs::write(folder.join(format!("{name}.pem")), certificate.pem()).unwrap();
        fs::write(folder.join(format!("{name}.key")), key.serialize_pem()).unwrap();
    }
}

/// Connections that trust the authority of a file.
pub(crate) fn connections(authority: &Path) -> ConnectionPool {
    let files = TlsFiles {
        authority: Some(authority.to_owned()),
        ..TlsFiles::default()
    };
    ConnectionPool::new(Some(Certificates::load(files).unwrap()))
}
