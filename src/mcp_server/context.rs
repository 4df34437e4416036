//! The state that the tools share: where they find kits and engines, and what they may do.

use std::path::Path;
use std::sync::Arc;

use ktsu_peer::Peer;

use super::access::{Admission, CallerAccess, ToolPrincipals, ToolRoute, admit_by_owner};
use super::answer::AnswerError;
use super::engines::{EngineKeeper, EngineLease, EnginePurpose};
use ktsu_assemble::OpenEngineError;
use ktsu_environment::Principals;
use ktsu_opening::engine::start_failure;
use ktsu_opening::environment::process_environment;
use ktsu_opening::kit::load_kit;

/// The beginning of the idempotency keys of runs that agents start. Keys are recorded, so a later
/// server knows these runs, too.
pub(super) const KEY_PREFIX: &str = "mcp:";
/// The reason that is recorded for branches that agents make.
pub(super) const FORK_REASON: &str = "mcp: fork_run";

/// See the module documentation.
pub(super) struct ToolContext {
    /// The engine behind the tools.
    pub(super) engines: Arc<EngineKeeper>,
    /// True if agents may decide on approvals.
    pub(super) may_decide: bool,
    /// The principals that may call.
    pub(super) principals: ToolPrincipals,
}

/// A call's connection to the engine.
pub(super) struct EngineLink {
    /// The connection.
    pub(super) peer: Peer,
    /// True if another process owns the ledger.
    pub(super) is_elsewhere: bool,
    _lease: EngineLease,
}

impl ToolContext {
    /// Decides whether a caller may use a route, before anything is looked up.
    ///
    /// # Errors
    /// The refusal, which says nothing else.
    pub(super) async fn admit(
        &self,
        caller: &CallerAccess,
        route: ToolRoute,
    ) -> Result<Admission, AnswerError> {
        let client = match caller {
            CallerAccess::Client(_) => Some(self.principals.admit(caller, route)?),
            CallerAccess::Process(_) => None,
        };
        let elsewhere = self.engines.elsewhere().await;
        let elsewhere = elsewhere.map_err(|error| error.without_details("owner"))?;
        let Some(url) = elsewhere else {
            // The process that started this one has the files: where another owns the ledger, that
            // one alone decides, here nobody else can.
            return match client {
                Some(client) => Ok(client),
                None => Ok(self.principals.admit(caller, route)?),
            };
        };
        let owner = admit_by_owner(&url, caller, route).await?;
        Ok(Admission {
            may_operate: owner.may_operate && client.is_none_or(|client| client.may_operate),
        })
    }

    /// Decides whether a caller may use a route of an engine for a folder, by the environment file
    /// of that folder, before anything else of it is read.
    ///
    /// # Errors
    /// The refusal, or that the environment file is not valid.
    pub(super) async fn admit_to(
        &self,
        folder: &Path,
        caller: &CallerAccess,
        route: ToolRoute,
    ) -> Result<(), AnswerError> {
        if self.engines.elsewhere().await?.is_some() {
            return Ok(());
        }
        let environment = self.engines.environment_of(folder)?;
        let principals = Principals::resolve(environment.as_ref(), &process_environment());
        let principals =
            principals.map_err(|faults| start_failure(OpenEngineError::Principals(faults)))?;
        let principals = ToolPrincipals::Known(Arc::new(principals));
        principals.admit(caller, route)?;
        Ok(())
    }

    /// A connection to read with.
    ///
    /// # Errors
    /// There is no ledger, or its owner does not answer.
    pub(super) async fn reading(&self, caller: &CallerAccess) -> Result<EngineLink, AnswerError> {
        self.link(caller, EnginePurpose::Read).await
    }

    /// A connection for what continues runs: with the kit that was named at the start, if one was.
    ///
    /// # Errors
    /// The kit is not valid, or the ledger cannot be opened.
    pub(super) async fn steering(&self, caller: &CallerAccess) -> Result<EngineLink, AnswerError> {
        let purpose = match self.engines.kit().cloned() {
            Some(folder) => {
                // As `start_run` names it: the same kit is served by the same engine.
                let folder = folder.canonicalize().unwrap_or(folder);
                let loaded = tokio::task::spawn_blocking(move || load_kit(&folder)).await;
                let kit = loaded.map_err(|_| AnswerError::new("loading the kit failed"))??;
                EnginePurpose::Run(kit)
            }
            None => EnginePurpose::Append,
        };
        self.link(caller, purpose).await
    }

    /// A connection for a purpose.
    ///
    /// # Errors
    /// The ledger cannot be opened, or its owner does not answer.
    pub(super) async fn link(
        &self,
        caller: &CallerAccess,
        purpose: EnginePurpose,
    ) -> Result<EngineLink, AnswerError> {
        let lease = self.engines.lease(purpose).await?;
        Ok(EngineLink {
            peer: lease.peer(caller)?,
            is_elsewhere: lease.is_elsewhere(),
            _lease: lease,
        })
    }
}
