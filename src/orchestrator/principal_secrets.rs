//! Keys of principals: a run acts with those of whoever started it, as its first frame says, for as
//! long as it lives and in every branch of it.
//!
//! ```text
//! env.NAME ─▶ a value the starter has of its own, else the one for everybody
//! ```

use ktsu_ledger::StreamId;
use ktsu_ledger::event::{EnvValue, Principal};
use ktsu_projections::run::RunState;

use super::human_commands::CommandError;
use super::secrets::RunSecrets;
use super::{Orchestrator, startup};
use ktsu_environment::authentication::TOKEN_AUTHENTICATION;
use ktsu_secret::Secret;
use ktsu_workflow::definition::Definition;

impl RunSecrets {
    /// The value of a secret variable in a run.
    pub(super) fn secret_lookup<'a>(
        &'a self,
        state: &'a RunState,
        name: &str,
    ) -> Option<&'a Secret> {
        let own = self.personal_secret(&state.created().principal, name);
        own.or_else(|| {
            let workflow = &state.outline().root().plan.name;
            self.environment.get(workflow)?.secrets.get(name)
        })
    }

    /// The value a principal has of its own. A name alone is worth nothing: it was asked for its
    /// token when the run was started.
    pub(super) fn personal_secret(&self, principal: &Principal, name: &str) -> Option<&Secret> {
        let known = principal.auth == TOKEN_AUTHENTICATION;
        let own = known.then(|| self.principals.secret(&principal.id, name));
        own.flatten()
    }

    /// A secret of a workflow that has no value in a run of this principal: only those who have one
    /// of their own may start it.
    pub(super) fn lacks_value(&self, workflow: &str, principal: &Principal) -> Option<String> {
        let resolved = self.environment.get(workflow)?;
        let mut personal = resolved.principal_secrets.iter();
        let lacking = personal.find(|name| self.personal_secret(principal, name).is_none());
        lacking.cloned()
    }

    /// Whether a run that this principal started acts with a value of its own, or may: whoever is
    /// not known at the moment has its keys again once it is.
    fn may_be_personal(&self, starter: &Principal, name: &str) -> bool {
        let known = self.principals.contains(&starter.id);
        starter.auth == TOKEN_AUTHENTICATION
            && (!known || self.personal_secret(starter, name).is_some())
    }
}

impl Orchestrator {
    /// A secret variable of a run with a value that is not for the speaker to send elsewhere: one
    /// the starter may have of its own, where somebody else speaks, or, where a definition is
    /// brought that knows of it, any but the speaker's own.
    ///
    /// What the run recorded of its environment decides, as it does when the value is used: the
    /// definition may be another at each frame, and may leave out what it uses.
    ///
    /// # Errors
    /// [`CommandError::Unreadable`].
    pub async fn key_of_another(
        &self,
        run: &StreamId,
        speaker: &Principal,
        definition: Option<&Definition>,
    ) -> Result<Option<String>, CommandError> {
        let (shared, stream) = (self.shared.clone(), run.clone());
        let folded = self
            .shared
            .readers
            .with(move |reader| startup::fold(&shared, reader, &stream))
            .await;
        let (_, state) = folded.map_err(|lost| CommandError::Unreadable(lost.to_string()))?;
        let created = state.created();
        let starter = &created.principal;
        let brought = definition.map(Definition::variables).unwrap_or_default();
        let is_theirs = |name: &str| match starter == speaker {
            true => {
                brought.contains(name)
                    && self.shared.secrets.personal_secret(speaker, name).is_none()
            }
            false => brought.contains(name) || self.shared.secrets.may_be_personal(starter, name),
        };
        let recorded = created.env.iter();
        let mut secrets = recorded.filter(|(_, value)| **value == EnvValue::Secret);
        let found = secrets.find(|(name, _)| is_theirs(name));
        Ok(found.map(|(name, _)| name.clone()))
    }
}
