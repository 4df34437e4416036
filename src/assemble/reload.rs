//! The settings that a running engine reads again: its principals, their roles and their tokens.

use std::collections::BTreeMap;

use super::values;
use ktsu_api::access::PrincipalsInForce;
use ktsu_config::fault::Faults;
use ktsu_environment::{Environment, Principals};
use ktsu_orchestrator::Orchestrator;

/// The principals of a running engine, and what it takes to replace them.
#[derive(Clone)]
pub struct PrincipalReload {
    pub(super) in_force: PrincipalsInForce,
    pub(super) orchestrator: Orchestrator,
    /// The process environment, as at the start.
    pub(super) process: BTreeMap<String, String>,
}

/// The reasons why the principals stay as they were.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// Tokens or keys have no usable values.
    #[error("the principals are not valid")]
    Principals(Faults),
    /// A change that needs a restart: where an engine listens and what it may call depends on
    /// whether there are principals.
    #[error("the environment file has no principals any more, which needs a restart")]
    NoneLeft,
    /// As [`ReloadError::NoneLeft`].
    #[error("the environment file had no principals before, so they need a restart")]
    FirstOnes,
    /// Runs record plain variables as they are.
    #[error("a token or key of a principal is in the value of {0}: declare it with secret: true")]
    ShownBy(String),
    /// Runs record definitions as they are.
    #[error(
        "a token or key of a principal is written out in the definition of {workflow}, at {places}"
    )]
    WrittenIn {
        /// The workflow.
        workflow: String,
        /// The places, as JSON Pointers.
        places: String,
    },
}

impl PrincipalReload {
    /// Takes the principals of an environment file. Gives how many there are now.
    ///
    /// # Errors
    /// [`ReloadError`]; then the principals stay as they were.
    pub fn reload(&self, environment: Option<&Environment>) -> Result<usize, ReloadError> {
        let principals = Principals::resolve(environment, &self.process);
        let principals = principals.map_err(ReloadError::Principals)?;
        match (self.in_force.get().is_empty(), principals.is_empty()) {
            (true, true) => return Ok(0),
            (false, true) => return Err(ReloadError::NoneLeft),
            (true, false) => return Err(ReloadError::FirstOnes),
            (false, false) => {}
        }
        let written = values::defined_with(self.orchestrator.kit(), principals.secrets());
        if let Some((workflow, places)) = written {
            let places = places.join(", ");
            return Err(ReloadError::WrittenIn { workflow, places });
        }
        // First: no request may bring a token that would be recorded.
        let protected = self.orchestrator.protect_principals(&principals);
        protected.map_err(|shown| ReloadError::ShownBy(shown.join(", ")))?;
        let count = environment.map_or(0, |file| file.principals.len());
        self.in_force.replace(principals);
        Ok(count)
    }
}
