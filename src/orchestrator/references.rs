//! The values behind names of a run where it runs: `{{ workspace }}`, and tool servers that are
//! elsewhere. The names are recorded and their values never, so that runs which differ in nothing
//! else have equal inputs (decision V6).

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};

use ktsu_ledger::event::EnvValue;
use ktsu_ledger::event::plan::ServerPlan;
use parking_lot::Mutex;

/// The prefix of the recorded names of tool servers.
const OF_SERVERS: &str = "servers.";

/// The values behind the names of one run. It means something as long as its maker holds it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct References {
    /// By name: `{{ NAME }}` in params and in arguments of tools stands for the value.
    pub values: BTreeMap<String, String>,
    /// Tool servers that are elsewhere, by their own name.
    pub servers: BTreeMap<String, ReferencedServer>,
    /// Variables of the environment that have a reference in place of their values.
    pub variables: BTreeMap<String, String>,
}

/// A tool server that is elsewhere for one run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReferencedServer {
    /// Its URL.
    pub url: String,
    /// Values of names where it runs, in place of [`References::values`].
    pub values: BTreeMap<String, String>,
}

/// The references of runs that were created here, by the id of the run.
#[derive(Debug, Default)]
pub(super) struct RunReferences(Mutex<HashMap<String, Weak<References>>>);

impl References {
    /// The names, as `run.created` has them.
    pub(super) fn names(&self) -> Vec<String> {
        let servers = self.servers.keys();
        let servers = servers.map(|name| format!("{OF_SERVERS}{name}"));
        let mut names: Vec<String> = servers.chain(self.values.keys().cloned()).collect();
        names.sort();
        names
    }

    /// The variables of a run, with references in place of the values of some. A secret stays one.
    pub(super) fn replace_in(&self, env: &mut BTreeMap<String, EnvValue>) {
        for (name, reference) in &self.variables {
            if let Some(EnvValue::Value(value)) = env.get_mut(name) {
                value.clone_from(reference);
            }
        }
    }

    /// The texts that webhooks get in place of each reference.
    pub(super) fn own_texts(&self) -> BTreeMap<String, String> {
        texts_of(&self.values)
    }

    /// The URL of a tool server, if it is elsewhere.
    pub(super) fn url(&self, server: &ServerPlan) -> Option<&str> {
        let server = self.servers.get(server.own_name())?;
        Some(&server.url)
    }

    /// The texts that a tool server gets in place of each reference.
    pub(super) fn texts(&self, server: &ServerPlan) -> BTreeMap<String, String> {
        let elsewhere = self.servers.get(server.own_name());
        texts_of(elsewhere.map_or(&self.values, |server| &server.values))
    }
}

/// Values by the references that stand for them, as they are written.
fn texts_of(values: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let values = values.iter();
    values
        .map(|(name, value)| (format!("{{{{ {name} }}}}"), value.clone()))
        .collect()
}

impl RunReferences {
    pub(super) fn insert(&self, run: &str, references: &Arc<References>) {
        let mut known = self.0.lock();
        known.retain(|_, references| references.strong_count() > 0);
        known.insert(run.to_owned(), Arc::downgrade(references));
    }

    /// Those of a run; none if it was created elsewhere, or they mean nothing any more.
    pub(super) fn get(&self, run: &str) -> Option<Arc<References>> {
        self.0.lock().get(run)?.upgrade()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(value: &str) -> BTreeMap<String, String> {
        [("workspace".to_owned(), value.to_owned())].into()
    }

    #[test]
    fn names_are_recorded_in_order_and_values_are_not() {
        let server = ReferencedServer {
            url: "http://127.0.0.1:1".to_owned(),
            values: values("/work"),
        };
        let references = References {
            values: values("/tmp/x"),
            servers: [("files".to_owned(), server)].into(),
            ..References::default()
        };
        assert_eq!(references.names(), ["servers.files", "workspace"]);
    }

    #[test]
    fn references_mean_nothing_once_their_maker_has_dropped_them() {
        let (known, made) = (RunReferences::default(), Arc::new(References::default()));
        known.insert("run_1", &made);
        assert!(known.get("run_1").is_some() && known.get("run_2").is_none());
        drop(made);
        assert!(known.get("run_1").is_none());
        known.insert("run_2", &Arc::default());
        assert_eq!(known.0.lock().len(), 1);
    }
}
