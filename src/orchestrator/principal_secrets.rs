//! Secrets of principals: a run uses those of the principal that started it, as its first frame
//! records, for its whole life and in every branch.
//!
//! ```text
//! env.NAME ─▶ the starter's own value, otherwise the common one
//! ```

use ktsu_ledger::StreamId;
use ktsu_ledger::event::{EnvValue, Principal};
use ktsu_projections::run::RunState;

use super::human_commands::CommandError;
use super::secrets::RunSecrets;
use super::{Orchestrator, ReadKind, startup};
use ktsu_environment::Principals;
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

    /// The principal's own value. The name alone is sufficient: the token was checked when the run
    /// was started.
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

    /// Returns `true` if a run of this starter uses, or may use, the starter's own value: a
    /// principal that is missing from the configuration has its secrets again once it returns.
    fn may_be_personal(&self, starter: &Principal, name: &str) -> bool {
        let known = self.principals.contains(&starter.id);
        starter.auth == TOKEN_AUTHENTICATION
            && (!known || self.personal_secret(starter, name).is_some())
    }
}

impl Orchestrator {
    /// Keeps the tokens and keys of principals out of all that is recorded from now on.
    ///
    /// # Errors
    /// The plain variables whose value contains one of them: runs record those as they are.
    pub fn protect_principals(&self, principals: &Principals) -> Result<(), Vec<String>> {
        self.shared.secrets.protect(principals.secrets())
    }

    /// A secret variable of a run whose value the caller must not send elsewhere: one that the
    /// starter may have a value for, if the caller is somebody else, or, if the caller brings a
    /// definition, any value but the caller's own.
    ///
    /// Decided by the environment that the run recorded, as it is when the value is used: the
    /// definition may differ at each frame, and may omit what it uses.
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
            .with_kind(ReadKind::Run, move |reader| {
                startup::fold(&shared, reader, &stream)
            })
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
