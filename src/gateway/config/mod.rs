//! `gateway.yaml`: the providers, the model groups, and their prices.
//!
//! ```text
//! files --load--> Config (checked, no values) --resolve--> providers with keys, or all faults
//! ```
//!
//! Loading starts nothing and needs no keys, so that `validate` can do it. The providers of an
//! environment file replace those of `gateway.yaml` by name: that is how the same kit uses a script
//! on one machine and a real provider on the next. A provider of the environment that no group
//! names belongs to another kit and is ignored; of one that is replaced, only the variables are
//! checked, which then need no value.

mod groups;
mod providers;
pub(crate) mod shape;
#[cfg(test)]
mod tests;
mod text;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use ktsu_codes::nearest;
use ktsu_config::fault::{Fault, FaultCode, Faults};
use ktsu_config::read::{self, ConfigReader};
use ktsu_config::variables::declared;
use ktsu_config::yaml::{SourceSpan, YamlNode};
use ktsu_environment::{self as environment, Environment, Variable, VariableValues};

pub use groups::{Group, ProviderModel, Strategy};
use providers::ConfigOrigin;
pub(super) use providers::{ProviderKind, ProviderPlan, RateLimit, RemoteProvider};

/// The settings that a gateway is built from.
#[derive(Debug, Clone, Default)]
pub struct Config {
    groups: Vec<Group>,
    providers: Vec<ProviderPlan>,
    /// The variables that need a value, each with its place.
    variables: Vec<(Variable, SourceSpan)>,
    file: PathBuf,
    sources: BTreeMap<PathBuf, String>,
}

/// The content of `gateway.yaml` by itself, and the additions of an environment, while it is read.
#[derive(Default)]
struct ConfigDraft {
    variables: Vec<(Variable, SourceSpan)>,
    groups: Vec<groups::ParsedGroup>,
    providers: Vec<ProviderPlan>,
    /// Names of providers that are there, broken or not.
    names: BTreeSet<String>,
    /// Variables that only what is replaced mentions.
    idle: Vec<String>,
}

impl Config {
    /// Reads `gateway.yaml` and what it names, or says everything that is wrong.
    pub fn load(file: &Path, environment: Option<&Environment>) -> Result<Self, Faults> {
        Self::load_in(Path::new(""), file, environment)
    }

    /// As [`Config::load`], for a file below `root`; faults show paths relative to it.
    pub fn load_in(
        root: &Path,
        file: &Path,
        environment: Option<&Environment>,
    ) -> Result<Self, Faults> {
        let mut faults = Faults::default();
        let real = root.join(file);
        if !root.as_os_str().is_empty() && !read::is_within(root, &real) {
            let words = "the file is a link that leads out of the kit";
            let fault = Fault::new(FaultCode::ChildOutsideKit, SourceSpan::default(), words);
            faults.add(fault.in_file(file));
            return Err(faults);
        }
        let origin = ConfigOrigin {
            real: &real,
            shown: file,
            kept: true,
        };
        let draft = ConfigDraft::read(&origin, environment, &mut faults);
        faults.sort();
        match draft {
            Some(draft) if !faults.has_errors() => Ok(draft.finish(file, faults.sources)),
            Some(_) | None => Err(faults),
        }
    }

    /// The groups, in file order.
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// The names of the groups, to check that an agent's group exists.
    pub fn group_names(&self) -> impl Iterator<Item = &str> {
        self.groups.iter().map(|group| group.name.as_str())
    }

    pub(super) fn providers(&self) -> &[ProviderPlan] {
        &self.providers
    }

    /// Values for the variables: the process environment, then the environment file, then the
    /// defaults.
    pub(super) fn resolve(
        &self,
        environment: Option<&Environment>,
        process: &BTreeMap<String, String>,
    ) -> Result<VariableValues, Faults> {
        let mut all = VariableValues::default();
        let mut faults = self.no_faults();
        for (variable, place) in &self.variables {
            match environment::resolve(environment, std::slice::from_ref(variable), process) {
                Ok(resolved) => {
                    all.values.extend(resolved.values);
                    all.secrets.extend(resolved.secrets);
                }
                Err(error) => faults.add(no_value(variable, *place, &error).in_file(&self.file)),
            }
        }
        if faults.has_errors() {
            return Err(faults);
        }
        Ok(all)
    }

    /// Room for faults, with the texts they stand in.
    pub(super) fn no_faults(&self) -> Faults {
        Faults {
            faults: Vec::new(),
            sources: self.sources.clone(),
        }
    }
}

fn no_value(variable: &Variable, place: SourceSpan, error: &environment::ResolveError) -> Fault {
    if error.missing.is_empty() {
        return Fault::new(FaultCode::ShortSecret, place, error.to_string());
    }
    let words = format!("the variable {:?} has no value", variable.name);
    let hint = format!(
        "export {}=…, or put it under variables: of the environment file",
        variable.name
    );
    Fault::new(FaultCode::NoValue, place, words).hint(hint)
}

impl ConfigDraft {
    fn read(
        origin: &ConfigOrigin<'_>,
        environment: Option<&Environment>,
        faults: &mut Faults,
    ) -> Option<Self> {
        let text = read::source(origin.real, origin.shown, faults)?;
        let node = read::tree(&text, origin.shown, faults)?;
        let mut reader = ConfigReader::new(origin.shown, &text);
        let mut draft = Self::default();
        if let Some(fields) = reader.shaped(&node, &shape::GATEWAY) {
            if let Some(node) = fields.get("env") {
                draft.variables = declared(&mut reader, node);
            }
            if let Some(node) = fields.get("model_groups") {
                draft.groups = groups::read(&mut reader, node);
            }
            let replaced = draft.environment(environment, faults);
            let list = fields.read("providers", |node| reader.list(node, "providers"));
            let list = list.unwrap_or_default();
            draft.own(&mut reader, list, &replaced, origin, faults);
            draft.check_models(&mut reader);
        }
        faults.faults.append(&mut reader.faults);
        Some(draft)
    }

    /// Takes in the environment's providers that a group names; all their names.
    fn environment(
        &mut self,
        environment: Option<&Environment>,
        faults: &mut Faults,
    ) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        let Some(environment) = environment else {
            return names;
        };
        let path = &environment.path;
        let origin = ConfigOrigin {
            real: path,
            shown: path,
            kept: false,
        };
        let mut reader = ConfigReader::new(path, &environment.text);
        for node in &environment.providers {
            let Some(name) = providers::name(&mut reader, node) else {
                continue;
            };
            if !names.insert(name.to_owned()) {
                twice(&mut reader, name, node);
            } else if self.is_named(name) {
                let plan = providers::read(&mut reader, node, name, &origin, faults);
                self.take(&mut reader, plan);
            }
        }
        faults.faults.append(&mut reader.faults);
        faults.sources.insert(path.clone(), environment.outline());
        self.names.extend(names.iter().cloned());
        names
    }

    /// Takes in the providers of `gateway.yaml` that are not replaced.
    fn own(
        &mut self,
        reader: &mut ConfigReader<'_>,
        list: &[YamlNode],
        replaced: &BTreeSet<String>,
        origin: &ConfigOrigin<'_>,
        faults: &mut Faults,
    ) {
        let mut names = BTreeSet::new();
        for node in list {
            let Some(name) = providers::name(reader, node) else {
                continue;
            };
            if !names.insert(name.to_owned()) {
                twice(reader, name, node);
            } else if replaced.contains(name) {
                text::mentioned(&node.to_value(), &mut self.idle);
            } else {
                let plan = providers::read(reader, node, name, origin, faults);
                self.take(reader, plan);
            }
        }
        self.names.extend(names);
    }

    fn is_named(&self, provider: &str) -> bool {
        let mut models = self.groups.iter().flat_map(|read| &read.group.models);
        models.any(|model| model.provider == provider)
    }

    /// Keeps a provider; its variables must be declared.
    fn take(&mut self, reader: &mut ConfigReader<'_>, plan: Option<ProviderPlan>) {
        let Some(plan) = plan else {
            return;
        };
        for text in plan.texts() {
            for name in text.variables() {
                let declared = self
                    .variables
                    .iter()
                    .map(|(variable, _)| variable.name.as_str());
                if declared.clone().any(|other| other == name) {
                    continue;
                }
                let words = format!("env.{name} is not declared");
                let fault = Fault::new(FaultCode::UndeclaredVariable, text.place, words);
                reader.fault(fault.suggest_or(
                    name,
                    declared,
                    format!("add {{name: {name}}} to env: of gateway.yaml"),
                ));
            }
        }
        self.providers.push(plan);
    }

    fn check_models(&self, reader: &mut ConfigReader<'_>) {
        for read in &self.groups {
            for (model, place) in read.group.models.iter().zip(&read.places) {
                let name = model.provider.as_str();
                if self.names.contains(name) {
                    continue;
                }
                let words = format!("there is no provider {name:?}");
                let fault = Fault::new(FaultCode::UnknownProvider, *place, words);
                let names = self.names.iter().map(String::as_str);
                reader.fault(match nearest(name, names) {
                    Some(near) => fault.hint(format!("did you mean {near}/{}?", model.id)),
                    None => fault.hint("declare it under providers:"),
                });
            }
        }
    }

    fn finish(self, file: &Path, sources: BTreeMap<PathBuf, String>) -> Config {
        let texts = self.providers.iter().flat_map(ProviderPlan::texts);
        let used: BTreeSet<&str> = texts.flat_map(text::ConfigText::variables).collect();
        let needed = |variable: &Variable| {
            used.contains(variable.name.as_str()) || !self.idle.contains(&variable.name)
        };
        Config {
            variables: self
                .variables
                .iter()
                .filter(|(one, _)| needed(one))
                .cloned()
                .collect(),
            groups: self.groups.into_iter().map(|read| read.group).collect(),
            providers: self.providers,
            file: file.to_owned(),
            sources,
        }
    }
}

fn twice(reader: &mut ConfigReader<'_>, name: &str, node: &YamlNode) {
    let words = format!("two providers are called {name:?}");
    reader.fault(Fault::new(FaultCode::DuplicateName, node.place, words));
}
