//! Values of secrets, at the moment of sending: to a webhook, or to a runtime that calls tools.
//! Nothing here is recorded.

use jmespath::Rcvar;
use ktsu_projections::run::{RunState, TaskId};
use serde_json::Value;

use crate::Shared;
use ktsu_secret::Secret;
use ktsu_workflow::expression::{InvokedMention, NameLookup, Root, from_value};
use ktsu_workflow::next::{Memo, ScopedNames};

/// The names of a scope, and the values of the secrets its run declares.
pub(super) struct SecretValues<'a> {
    names: ScopedNames<'a>,
    shared: &'a Shared,
    state: &'a RunState,
}

impl<'a> SecretValues<'a> {
    /// The names that a step sees, or one of its items.
    pub(super) fn new(
        shared: &'a Shared,
        state: &'a RunState,
        memo: &'a Memo,
        place: TaskId,
    ) -> Self {
        let names =
            ScopedNames::new(state, place.step.scope(), memo).of_step(place.step.position());
        Self {
            names: match place.item {
                Some(item) => names.with_item(item),
                None => names,
            },
            shared,
            state,
        }
    }

    /// The first secret among these names without a value here.
    ///
    /// An effect that needs it waits: the missing value is a property of this environment and must
    /// not become a recorded answer. The next start that has the value continues.
    pub(super) fn missing_value(&self, roots: impl IntoIterator<Item = Root>) -> Option<String> {
        let lacks = |root: Root| match root {
            Root::Env(name) => {
                let lacked = self.names.is_secret(&name) && self.secret(&name).is_none();
                lacked.then_some(name)
            }
            Root::Params
            | Root::Step(_)
            | Root::Item
            | Root::ItemIndex
            | Root::Resume
            | Root::Name(_) => None,
        };
        roots.into_iter().find_map(lacks)
    }

    /// Returns `true` if a step has to wait for a secret, which is then logged.
    pub(super) fn waits_for_secret(
        &self,
        step: &str,
        roots: impl IntoIterator<Item = Root>,
    ) -> bool {
        let Some(secret) = self.missing_value(roots) else {
            return false;
        };
        let run = self.state.stream().name();
        tracing::warn!(run, step, "waiting for a start with the secret {secret}");
        true
    }

    fn secret(&self, name: &str) -> Option<&str> {
        let secret = self.shared.secrets.secret_lookup(self.state, name);
        secret.map(Secret::expose)
    }
}

impl NameLookup for SecretValues<'_> {
    fn get(&self, root: &Root) -> Option<Rcvar> {
        match root {
            Root::Env(name) if self.names.is_secret(name) => {
                Some(from_value(&Value::from(self.secret(name)?)))
            }
            other => self.names.get(other),
        }
    }

    fn invoked(&self, id: &str, mention: InvokedMention) -> Option<Rcvar> {
        self.names.invoked(id, mention)
    }
}
