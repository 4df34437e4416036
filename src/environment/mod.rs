//! Environment files: what differs between one machine and the next, and nothing else (seed 000,
//! invariant 13; decisions C3 and K3).

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

pub use ktsu_ledger::event::plan::Variable;
use serde_json::Value;

use crate::kit::fault::{Fault, FaultCode, Faults};
use crate::kit::read::{self, Fields, Reader};
use crate::kit::yaml::{self, Data, Node};
use crate::secret::{MIN_LENGTH, Secret};

/// One `environments/NAME.env.yaml`.
#[derive(Clone, PartialEq)]
pub struct Environment {
    /// The file.
    pub path: PathBuf,
    /// Its own name, or that of the file.
    pub name: String,
    /// Values of variables; the process environment goes before them.
    pub variables: BTreeMap<String, String>,
    /// Providers of the gateway, each as it stands, for the gateway to judge; they replace those of
    /// `gateway.yaml` by name.
    pub providers: Vec<Node>,
    /// The file as read, for whoever finds a fault in it later.
    pub text: String,
    /// Principals, as they stand (decision H5). Nothing judges by them yet, so a file that has
    /// them is refused.
    pub principals: Value,
    /// Where the ledger is.
    pub ledger: Option<String>,
    /// The variable that gets the URL of a local webhook receiver, if `ktsu run` starts one.
    pub receiver: Option<String>,
    /// Hosts that outgoing requests may reach although they are private (decision K6).
    pub egress_allow: Vec<String>,
    /// Who keeps checkpoints elsewhere: `file:PATH`, `command:…`, or a URL.
    pub witness: Option<String>,
}

/// Without what is in it: which values are secret, workflows say and not this file.
impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Environment");
        shown.field("path", &self.path).finish_non_exhaustive()
    }
}

/// Values of all declared variables.
#[derive(Debug, Clone, Default)]
pub struct Resolved {
    /// Those that may be shown.
    pub values: BTreeMap<String, String>,
    /// Those that may not.
    pub secrets: BTreeMap<String, Secret>,
}

/// Why variables have no usable values: a boot error that names all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolveError {
    /// Declared, with neither value nor default.
    pub missing: Vec<String>,
    /// Secrets shorter than [`MIN_LENGTH`].
    pub short: Vec<String>,
}

impl fmt::Display for ResolveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let missing = self.missing.join(", ");
        let short = self.short.join(", ");
        if !missing.is_empty() {
            write!(f, "no value for {missing}")?;
        }
        if !missing.is_empty() && !short.is_empty() {
            f.write_str("; ")?;
        }
        if !short.is_empty() {
            write!(f, "secrets need at least {MIN_LENGTH} characters: {short}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ResolveError {}

const KEYS: [&str; 8] = [
    "egress",
    "evidence",
    "ledger",
    "name",
    "principals",
    "providers",
    "receiver",
    "variables",
];

impl Environment {
    /// Reads a file, or says everything that is wrong with it.
    pub fn load(path: &Path) -> Result<Self, Faults> {
        let mut faults = Faults::default();
        match Self::read(path, &mut faults) {
            Some(environment) if !faults.has_errors() => Ok(environment),
            Some(_) | None => {
                faults.sort();
                Err(faults)
            }
        }
    }

    /// The nearest `environments/local.env.yaml`, from a kit's folder upward.
    pub fn find(kit: &Path) -> Option<PathBuf> {
        let start = kit.canonicalize().ok()?;
        let mut candidates = start
            .ancestors()
            .map(|folder| folder.join("environments").join("local.env.yaml"));
        candidates.find(|path| path.is_file())
    }

    fn read(path: &Path, faults: &mut Faults) -> Option<Self> {
        let text = read::source(path, path, faults)?;
        let node = read::tree(&text, path, faults)?;
        let mut reader = Reader::new(path, &text);
        let environment = from_node(&mut reader, path, &node);
        faults.faults.append(&mut reader.faults);
        environment
    }
}

fn from_node(reader: &mut Reader<'_>, path: &Path, node: &yaml::Node) -> Option<Environment> {
    let file = path
        .file_name()
        .map(|name| name.to_string_lossy().into_owned());
    let file = file.unwrap_or_default();
    let stem = file.strip_suffix(".env.yaml").unwrap_or(&file);
    let mut environment = Environment {
        path: path.to_owned(),
        name: stem.to_owned(),
        variables: BTreeMap::new(),
        providers: Vec::new(),
        text: reader.text.to_owned(),
        principals: Value::Null,
        ledger: None,
        receiver: None,
        egress_allow: Vec::new(),
        witness: None,
    };
    if matches!(node.data, Data::Null) {
        return Some(environment);
    }
    let fields = reader.map(node, "the environment", &KEYS)?;
    if let Some(name) = fields
        .get("name")
        .and_then(|node| reader.string(node, "name"))
    {
        name.clone_into(&mut environment.name);
    }
    environment.variables = variables(reader, &fields);
    let principals = fields.get("principals").map(Node::to_value);
    environment.principals = principals.unwrap_or_default();
    if let Some(node) = fields.get("providers") {
        let providers = reader.list(node, "providers");
        environment.providers = providers.unwrap_or_default().to_vec();
    }
    // With or without a value: who wrote the key expects not everybody to be let in.
    if let Some(place) = fields.key("principals") {
        let words = "principals are not built yet: nobody would be kept out";
        let fault = Fault::new(FaultCode::PrincipalsNotBuilt, place, words);
        reader.fault(fault.hint("remove the block; ktsu listens on loopback only"));
    }
    let ledger = fields
        .get("ledger")
        .and_then(|node| reader.string(node, "ledger"));
    environment.ledger = ledger.map(str::to_owned);
    environment.receiver = fields.get("receiver").and_then(|node| {
        let fields = reader.map(node, "receiver", &["variable"])?;
        let variable = reader.required(&fields, "variable", "receiver")?;
        reader
            .string(variable, "receiver.variable")
            .map(str::to_owned)
    });
    environment.egress_allow = allowed(reader, &fields);
    environment.witness = fields.get("evidence").and_then(|node| {
        let fields = reader.map(node, "evidence", &["witness"])?;
        let witness = reader.required(&fields, "witness", "evidence")?;
        let witness = reader.string(witness, "evidence.witness");
        witness.map(str::to_owned)
    });
    Some(environment)
}

fn variables(reader: &mut Reader<'_>, fields: &Fields<'_>) -> BTreeMap<String, String> {
    let mut variables = BTreeMap::new();
    if let Some(node) = fields.get("variables")
        && reader.open_map(node, "variables").is_some()
        && let Data::Map(members) = &node.data
    {
        for (key, node) in members {
            let value = reader.string(node, &key.text);
            variables.extend(value.map(|value| (key.text.clone(), value.to_owned())));
        }
    }
    variables
}

fn allowed(reader: &mut Reader<'_>, fields: &Fields<'_>) -> Vec<String> {
    let mut hosts = Vec::new();
    let allow = fields.get("egress").and_then(|node| {
        let fields = reader.map(node, "egress", &["allow"])?;
        reader.required(&fields, "allow", "egress")
    });
    let list = allow.and_then(|node| reader.list(node, "egress.allow"));
    for node in list.unwrap_or_default() {
        let host = reader.string(node, "an entry of egress.allow");
        hosts.extend(host.map(str::to_owned));
    }
    hosts
}

/// The values of declared variables: the process environment goes before the file, the file
/// before the default. Set and empty counts as set.
pub fn resolve(
    environment: Option<&Environment>,
    declared: &[Variable],
    process: &BTreeMap<String, String>,
) -> Result<Resolved, ResolveError> {
    let mut resolved = Resolved::default();
    let mut error = ResolveError {
        missing: Vec::new(),
        short: Vec::new(),
    };
    for variable in declared {
        let name = &variable.name;
        let file = || environment.and_then(|environment| environment.variables.get(name));
        let value = process
            .get(name)
            .or_else(file)
            .or(variable.default.as_ref());
        match value {
            None => error.missing.push(name.clone()),
            Some(value) if variable.secret && value.chars().count() < MIN_LENGTH => {
                error.short.push(name.clone());
            }
            Some(value) if variable.secret => {
                resolved
                    .secrets
                    .insert(name.clone(), Secret::new(value.clone()));
            }
            Some(value) => drop(resolved.values.insert(name.clone(), value.clone())),
        }
    }
    if error.missing.is_empty() && error.short.is_empty() {
        Ok(resolved)
    } else {
        Err(error)
    }
}

#[cfg(test)]
mod tests;
