//! The settings that a running service reads again at SIGHUP: the log level and, if it has
//! principals, their roles and tokens. What is not valid changes nothing.

use std::path::PathBuf;

use crate::Failure;
use crate::logging::warn_of;
use crate::logging::{self, DefaultFilter, LogFormat, ServiceLog};
use crate::signals::{ServiceSignal, Signals};
use ktsu_assemble::reload::{PrincipalReload, ReloadError};
use ktsu_config::fault::{Faults, Severity};
use ktsu_environment::Environment;
use ktsu_opening::environment::{environment_file, load_environment};

/// The sources of settings that are read again.
pub(super) struct ReloadSettings {
    /// True if only errors are wanted in the log.
    pub(super) errors_only: bool,
    /// True if the environment file is looked at.
    pub(super) is_read: bool,
    /// The environment file that was named.
    pub(super) env: Option<PathBuf>,
    /// The folder in which others are looked for.
    pub(super) kit: PathBuf,
}

impl ReloadSettings {
    /// The filter of the log if `KTSU_LOG` is not set.
    fn filter(&self, file: Option<&Environment>) -> DefaultFilter {
        let level = || file?.variables.get("LOG_LEVEL").cloned();
        match self.errors_only {
            true => DefaultFilter::Errors,
            false => DefaultFilter::Level(level()),
        }
    }

    /// The environment file, if there is one.
    fn load(&self) -> Result<Option<Environment>, Failure> {
        match self.is_read {
            true => load_environment(self.env.as_deref(), &self.kit),
            false => Ok(None),
        }
    }

    /// The environment file of this moment; none where it cannot be used, which the log says then.
    fn load_again(&self) -> Option<Option<Environment>> {
        let path = environment_file(self.env.as_deref(), &self.kit).filter(|_| self.is_read);
        let Some(path) = path else {
            return Some(None);
        };
        if !path.is_file() {
            let file = path.display();
            tracing::error!(%file, "SIGHUP: the environment file is gone; {UNCHANGED}");
            return None;
        }
        match Environment::load(&path) {
            Ok(file) => Some(Some(file)),
            Err(faults) => {
                report(&faults);
                tracing::error!("SIGHUP: the environment file is not valid; {UNCHANGED}");
                None
            }
        }
    }
}

/// The outcome of a refused reload.
const UNCHANGED: &str = "what was read before stays in force";

/// Logs the errors of a file, each with its place.
fn report(faults: &Faults) {
    let errors = faults.faults.iter();
    for fault in errors.filter(|fault| fault.severity == Severity::Error) {
        tracing::error!(
            file = %fault.file.display(),
            line = fault.line,
            column = fault.column,
            code = fault.code.text(),
            "SIGHUP: {}",
            fault.message
        );
    }
}

/// The log of a service, and what is read again.
pub(super) struct StartLog {
    log: ServiceLog,
    settings: ReloadSettings,
}

impl StartLog {
    /// Starts logging. Errors in the environment file are reported elsewhere.
    pub(super) fn open(format: LogFormat, settings: ReloadSettings) -> Result<Self, Failure> {
        let file = settings.load().ok().flatten();
        let log = logging::serve(format, settings.filter(file.as_ref()))?;
        Ok(Self { log, settings })
    }

    /// Logs how many lines were dropped since the last report.
    pub(super) fn report_dropped(&mut self) {
        self.log.report_dropped();
    }

    /// Reads the environment file again; gives it if it is in force now.
    pub(super) fn reload(&self, principals: Option<&PrincipalReload>) -> Option<Environment> {
        let file = self.settings.load_again()?;
        file.iter().for_each(|file| warn_of(&file.warnings));
        let known = principals.map_or(Ok(0), |principals| principals.reload(file.as_ref()));
        let known = match known {
            Ok(known) => known,
            Err(error) => {
                if let ReloadError::Principals(faults) = &error {
                    report(faults);
                }
                tracing::error!("SIGHUP: {error}; {UNCHANGED}");
                return None;
            }
        };
        let filter = self.settings.filter(file.as_ref());
        if self.log.filter_by(filter).is_err() {
            tracing::warn!("SIGHUP: RUST_LOG and LOG_LEVEL give no valid level");
        }
        match known {
            0 => tracing::info!("SIGHUP: read the log level; other changes need a restart"),
            principals => tracing::info!(
                principals,
                "SIGHUP: read the log level, and roles and tokens of principals; other changes, and \
                 keys of principals, need a restart"
            ),
        }
        file
    }

    /// Waits for a signal to stop.
    pub(super) async fn until_stop(
        &self,
        signals: &mut Signals,
        principals: Option<&PrincipalReload>,
    ) {
        while signals.next_of_service().await == ServiceSignal::Reload {
            self.reload(principals);
        }
    }
}
