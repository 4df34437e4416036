//! What the tools share: where they find kits and engines, and what they may do.

use std::path::PathBuf;
use std::sync::Arc;

use ktsu_peer::Peer;

use super::answer::AnswerError;
use super::engines::{CallerAccess, EngineKeeper, EngineLease, EnginePurpose};
use crate::cli::engine::load_kit;

/// The beginning of the idempotency keys of runs that agents start. Keys are recorded, so a later
/// server knows these runs, too.
pub(super) const KEY_PREFIX: &str = "mcp:";
/// The reason that is recorded for branches that agents make.
pub(super) const FORK_REASON: &str = "mcp: fork_run";

/// See the module documentation.
pub(super) struct ToolContext {
    /// The engine behind the tools.
    pub(super) engines: Arc<EngineKeeper>,
    /// The working directory, below which kits are.
    pub(super) root: PathBuf,
    /// Whether agents may decide on approvals.
    pub(super) may_decide: bool,
}

/// A call's connection to the engine.
pub(super) struct EngineLink {
    /// The connection.
    pub(super) peer: Peer,
    /// Whether another process owns the ledger.
    pub(super) is_elsewhere: bool,
    _lease: EngineLease,
}

impl ToolContext {
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
            peer: lease.peer(caller),
            is_elsewhere: lease.is_elsewhere(),
            _lease: lease,
        })
    }
}
