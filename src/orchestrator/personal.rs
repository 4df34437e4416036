//! Keys of principals: a run acts with those of whoever started it, as its first frame says, for as
//! long as it lives and in every branch of it.
//!
//! ```text
//! env.NAME ─▶ a value the starter has of its own, else the one for everybody
//! ```

use ktsu_ledger::StreamId;
use ktsu_ledger::event::Principal;
use ktsu_projections::run::RunState;

use super::people::NotDone;
use super::{Orchestrator, Shared, recover};
use crate::environment::people::BY_TOKEN;
use crate::secret::Secret;
use crate::workflow::definition::Definition;

impl Shared {
    /// The value of a secret variable in a run.
    pub(super) fn secret_of<'a>(&'a self, state: &'a RunState, name: &str) -> Option<&'a Secret> {
        let own = self.own_secret(&state.created().principal, name);
        own.or_else(|| {
            let workflow = &state.outline().root().plan.name;
            self.environment.get(workflow)?.secrets.get(name)
        })
    }

    /// The value a principal has of its own. A name alone is worth nothing: it was asked for its
    /// token when the run was started.
    pub(super) fn own_secret(&self, principal: &Principal, name: &str) -> Option<&Secret> {
        let known = principal.auth == BY_TOKEN;
        let own = known.then(|| self.principals.secret(&principal.id, name));
        own.flatten()
    }

    /// A secret of a workflow that has no value in a run of this principal: only those who have one
    /// of their own may start it.
    pub(super) fn lacks_value(&self, workflow: &str, principal: &Principal) -> Option<String> {
        let resolved = self.environment.get(workflow)?;
        let mut personal = resolved.personal.iter();
        let lacking = personal.find(|name| self.own_secret(principal, name).is_none());
        lacking.cloned()
    }
}

impl Orchestrator {
    /// A secret variable that a run would use, under this definition or its own, with a value that
    /// is somebody else's: of the principal who started it, or of everybody where the definition is
    /// the speaker's.
    ///
    /// # Errors
    /// [`NotDone::Unreadable`].
    pub async fn key_of_another(
        &self,
        run: &StreamId,
        speaker: &Principal,
        definition: Option<&Definition>,
    ) -> Result<Option<String>, NotDone> {
        let (shared, stream) = (self.shared.clone(), run.clone());
        let folded = self
            .shared
            .readers
            .with(move |reader| recover::fold(&shared, reader, &stream))
            .await;
        let (own, state) = folded.map_err(|lost| NotDone::Unreadable(lost.to_string()))?;
        let starter = &state.created().principal;
        let declared = definition.unwrap_or(&own).root();
        let declared = declared.map_or(&[][..], |root| &root.plan.env);
        let mut secrets = declared.iter().filter(|variable| variable.secret);
        let is_theirs = |name: &str| {
            let personal = self.shared.own_secret(starter, name).is_some();
            match (personal, definition) {
                (true, _) => starter != speaker,
                (false, Some(_)) => true,
                (false, None) => false,
            }
        };
        let found = secrets.find(|variable| is_theirs(&variable.name));
        Ok(found.map(|variable| variable.name.clone()))
    }
}
