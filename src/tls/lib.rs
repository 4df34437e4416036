//! Certificates of services: what one shows, and which ones it trusts.
//!
//! A service that listens beyond its machine shows a certificate. A caller checks that certificate by an
//! authority of its own, or by those that the machine trusts. A service may ask its callers for certificates of the
//! same authority, beside their tokens.
//!
//! All of it is in PEM files, which are read again when they change: a certificate that is replaced in time costs no
//! restart. Files that are not valid change nothing.

mod error;
mod files;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use rustls::{ClientConfig, ServerConfig};
use tokio::time::MissedTickBehavior;

use self::files::PemTexts;

pub use error::TlsError;
pub use files::{Identity, TlsFiles};

/// The time between two looks at the files.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);

/// The certificates in force. Clones share them.
#[derive(Clone)]
pub struct Certificates(Arc<Inner>);

struct Inner {
    files: TlsFiles,
    in_force: RwLock<InForce>,
}

/// What was made of the files, and their texts.
struct InForce {
    texts: PemTexts,
    server: Option<Arc<ServerConfig>>,
    client: Arc<ClientConfig>,
}

impl Certificates {
    /// Reads the files.
    ///
    /// # Errors
    /// [`TlsError`], with the file.
    pub fn load(files: TlsFiles) -> Result<Self, TlsError> {
        let in_force = InForce::of(&files, files.read()?)?;
        Ok(Self(Arc::new(Inner {
            files,
            in_force: RwLock::new(in_force),
        })))
    }

    /// How a service encrypts what it receives; nothing if it shows no certificate.
    pub fn server(&self) -> Option<Arc<ServerConfig>> {
        self.0.in_force.read().server.clone()
    }

    /// How a caller encrypts what it sends.
    pub fn client(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.0.in_force.read().client)
    }

    /// Returns `true` if callers must show certificates, too.
    pub fn asks_clients(&self) -> bool {
        self.0.files.asks_clients
    }

    /// Reads the files again. Returns `true` if there was something new.
    ///
    /// # Errors
    /// [`TlsError`]; then what was in force stays.
    pub fn reload(&self) -> Result<bool, TlsError> {
        let texts = self.0.files.read()?;
        if texts == self.0.in_force.read().texts {
            return Ok(false);
        }
        let replacement = InForce::of(&self.0.files, texts)?;
        *self.0.in_force.write() = replacement;
        Ok(true)
    }

    /// Reads the files again whenever they have changed, for as long as it is polled. Says what is wrong with them
    /// once, not at every look.
    pub async fn keep_current(&self) {
        let mut looks = tokio::time::interval(LOOK_INTERVAL);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut said = None;
        loop {
            looks.tick().await;
            let own = self.clone();
            let Ok(reloaded) = tokio::task::spawn_blocking(move || own.reload()).await else {
                continue;
            };
            match reloaded {
                Ok(true) => {
                    tracing::info!("the certificates have changed; the new ones are in force")
                }
                Ok(false) => {}
                Err(error) if said.as_ref() != Some(&error) => {
                    tracing::error!(%error, "the certificates cannot be read again; those before stay in force");
                    said = Some(error);
                    continue;
                }
                Err(_) => continue,
            }
            said = None;
        }
    }
}

impl InForce {
    fn of(files: &TlsFiles, texts: PemTexts) -> Result<Self, TlsError> {
        Ok(Self {
            server: texts.server(files)?,
            client: texts.client(files)?,
            texts,
        })
    }
}
