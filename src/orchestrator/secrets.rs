//! Secrets and their redaction.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ktsu_ledger::event::EnvValue;
use parking_lot::RwLock;
use serde_json::Value;

use super::SecretLookup;
use ktsu_environment::{Principals, VariableValues};
use ktsu_secret::{Redactor, Secret};
use ktsu_workflow::definition::Definition;
use ktsu_workflow::expression::{NameLookup, Root, from_value};
use ktsu_workflow::rules::DecisionRules;
use ktsu_workflow::template::Template;

/// Values of the environment and keys of principals, and the redactor that knows all that is secret.
pub(super) struct RunSecrets {
    pub(super) environment: BTreeMap<String, VariableValues>,
    pub(super) principals: Arc<Principals>,
    protected: RwLock<Protected>,
    look_up: SecretLookup,
}

/// The secrets that are kept out of all that is recorded. It grows: subscriptions are added with
/// keys of their own.
struct Protected {
    redactor: Arc<Redactor>,
    /// Keys that neither the kit nor a principal has: of providers and of subscriptions.
    keys: Arc<Vec<Secret>>,
}

impl RunSecrets {
    pub(super) fn new(
        environment: BTreeMap<String, VariableValues>,
        principals: Arc<Principals>,
        provider_keys: Vec<Secret>,
        look_up: SecretLookup,
    ) -> Self {
        let redactor = redactor_of(&environment, &principals, &provider_keys);
        Self {
            environment,
            principals,
            protected: RwLock::new(Protected {
                redactor: Arc::new(redactor),
                keys: Arc::new(provider_keys),
            }),
            look_up,
        }
    }

    /// The redactor for everything that is recorded.
    pub(super) fn redactor(&self) -> Arc<Redactor> {
        Arc::clone(&self.protected.read().redactor)
    }

    /// From now on these keys are kept out of all that is recorded.
    ///
    /// # Errors
    /// The plain variables whose value contains one of them: runs record those as they are.
    pub(super) fn protect<'a>(
        &self,
        added: impl IntoIterator<Item = &'a Secret>,
    ) -> Result<(), Vec<String>> {
        let added: Vec<&Secret> = added.into_iter().collect();
        let finds = Redactor::new(added.iter().copied());
        let values = self.environment.values().flat_map(|one| &one.values);
        let shown: BTreeSet<&String> = values
            .filter(|(_, value)| finds.finds(value))
            .map(|(name, _)| name)
            .collect();
        if !shown.is_empty() {
            return Err(shown.into_iter().cloned().collect());
        }
        let mut protected = self.protected.write();
        let mut keys = protected.keys.to_vec();
        for key in added {
            let known = keys.contains(key) || self.principals.secrets().any(|one| one == key);
            if !known {
                keys.push(key.clone());
            }
        }
        if keys.len() > protected.keys.len() {
            let redactor = redactor_of(&self.environment, &self.principals, &keys);
            protected.redactor = Arc::new(redactor);
            protected.keys = Arc::new(keys);
        }
        Ok(())
    }

    /// The redactor for text that people send about a run: covers the secrets of the current kit
    /// and those of the run's own definition.
    pub(super) fn redactor_for(&self, definition: &Definition) -> Arc<Redactor> {
        let declared = definition.declared();
        let secret = declared.iter().filter(|variable| variable.secret);
        let mut own: Vec<Secret> = secret.filter_map(|one| (self.look_up)(one)).collect();
        let kit = || {
            let resolved = self.environment.values();
            resolved.flat_map(|one| one.secrets.values())
        };
        // Mostly they are the kit's: the forms of a secret cost more than a look.
        own.retain(|one| !kit().any(|known| known == one));
        if own.is_empty() {
            return self.redactor();
        }
        let keys = Arc::clone(&self.protected.read().keys);
        let others = self.principals.secrets().chain(keys.iter());
        Arc::new(Redactor::new(kit().chain(others).chain(&own)))
    }

    /// The environment as `run.created` records it: secrets by name only (decision K3).
    pub(super) fn recorded_env(&self, workflow: &str) -> BTreeMap<String, EnvValue> {
        let Some(resolved) = self.environment.get(workflow) else {
            return BTreeMap::new();
        };
        let values = resolved.values.iter();
        let plain = values.map(|(name, value)| (name.clone(), EnvValue::Value(value.clone())));
        let secret = resolved
            .secrets
            .keys()
            .chain(&resolved.principal_secrets)
            .map(|name| (name.clone(), EnvValue::Secret));
        plain.chain(secret).collect()
    }

    /// The secret callers of a workflow must show, if its template resolves.
    pub(super) fn invoke_secret(&self, workflow: &str, template: &str) -> Option<Secret> {
        let resolved = self.environment.get(workflow)?;
        let template = Template::text(template).ok()?;
        let rendered = template.render(
            &EnvironmentOnly(resolved),
            &|_| false,
            DecisionRules::NEWEST,
        );
        let rendered = rendered.ok()?;
        rendered.value.as_str().map(Secret::new)
    }
}

fn redactor_of(
    environment: &BTreeMap<String, VariableValues>,
    principals: &Principals,
    keys: &[Secret],
) -> Redactor {
    let kit = environment.values().flat_map(|one| one.secrets.values());
    Redactor::new(kit.chain(principals.secrets()).chain(keys))
}

/// The environment of a workflow, and nothing else.
struct EnvironmentOnly<'a>(&'a VariableValues);

impl NameLookup for EnvironmentOnly<'_> {
    fn get(&self, root: &Root) -> Option<jmespath::Rcvar> {
        let Root::Env(name) = root else { return None };
        let secret = self.0.secrets.get(name).map(Secret::expose);
        let value = secret.or_else(|| self.0.values.get(name).map(String::as_str))?;
        Some(from_value(&Value::from(value)))
    }
}
