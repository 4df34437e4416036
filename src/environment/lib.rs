//! Environment files: the settings that differ between machines, and nothing else (seed 000,
//! invariant 13; decisions C3 and K3).

pub mod authentication;
mod entry_name;
mod limits;
pub mod principals;
mod resolve;
pub mod settings;
pub mod shape;
pub mod subscription_secrets;
pub mod subscriptions;
mod tls;
mod variable;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

pub use ktsu_ledger::event::plan::Variable;

pub use authentication::Principals;
use ktsu_config::fault::Faults;
use ktsu_config::outline;
use ktsu_config::read::{self, ConfigReader, Fields};
use ktsu_config::yaml::{self, YamlNode, YamlValue};
use ktsu_tls::TlsFiles;
use principals::PrincipalDeclaration;
pub use resolve::{ResolveError, VariableValues, resolve, resolve_each, resolve_for};
use settings::{
    EvidenceSettings, LimitSettings, ListenGuard, ListenSettings, McpSettings, RetentionSettings,
};
use subscriptions::SubscriptionDeclaration;

/// One `environments/NAME.env.yaml`.
#[derive(Clone, PartialEq)]
pub struct Environment {
    /// The file.
    pub path: PathBuf,
    /// Its own name, or that of the file.
    pub name: String,
    /// Values of variables; the process environment goes before them.
    pub variables: BTreeMap<String, String>,
    /// Providers of the gateway, each as it stands, for the gateway to check; they replace those of
    /// `gateway.yaml` by name.
    pub providers: Vec<YamlNode>,
    /// The file as read, for faults that are found later; reports show [`Environment::outline`].
    pub text: String,
    /// The principals that may ask (decision H5). Empty: only this machine may, without
    /// authentication.
    pub principals: Vec<PrincipalDeclaration>,
    /// The addresses at which services listen.
    pub listen: ListenSettings,
    /// The URL of each tool server, by its name.
    pub servers: BTreeMap<String, String>,
    /// The limits of an engine.
    pub limits: LimitSettings,
    /// The place of the ledger.
    pub ledger: Option<String>,
    /// The variable that gets the URL of a local webhook receiver, if `ktsu run` starts one.
    pub receiver: Option<String>,
    /// Hosts that outgoing requests may reach although they are private (decision K6).
    pub egress_allow: Vec<String>,
    /// The subscriptions to frames.
    pub subscriptions: Vec<SubscriptionDeclaration>,
    /// The witness that keeps checkpoints elsewhere, and the key that they are signed with.
    pub evidence: EvidenceSettings,
    /// The permissions of agents that use ktsu as a tool server.
    pub mcp: McpSettings,
    /// The certificates that services show and trust.
    pub tls: TlsFiles,
    /// The time for which ended runs are kept.
    pub retention: RetentionSettings,
    /// Faults that are not serious enough to refuse the file.
    pub warnings: Faults,
}

/// Without what is in it: which values are secret, workflows say and not this file.
impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Environment");
        shown.field("path", &self.path).finish_non_exhaustive()
    }
}

/// The suffix of the names of environment files.
pub const SUFFIX: &str = ".env.yaml";

/// The key whose entries have values that may be secret.
const VARIABLES: &str = "variables";

impl Environment {
    /// Reads a file, or says everything that is wrong with it.
    pub fn load(path: &Path) -> Result<Self, Faults> {
        Self::load_in(Path::new(""), path)
    }

    /// As [`Environment::load`], for a file below `root`; faults show paths relative to it.
    pub fn load_in(root: &Path, file: &Path) -> Result<Self, Faults> {
        let mut faults = Faults::default();
        let read = Self::read(root, file, &mut faults);
        // Nobody sees its values, whatever is wrong with it and whatever its name is.
        for text in faults.sources.values_mut() {
            *text = outline::of(text, VARIABLES);
        }
        match read {
            Some(mut environment) if !faults.has_errors() => {
                faults.sort();
                environment.warnings = faults;
                Ok(environment)
            }
            Some(_) | None => {
                faults.sort();
                Err(faults)
            }
        }
    }

    /// The text as it may be shown.
    pub fn outline(&self) -> String {
        outline::of(&self.text, VARIABLES)
    }

    /// The nearest `environments/local.env.yaml`, from a kit's folder upward.
    pub fn find(kit: &Path) -> Option<PathBuf> {
        let start = kit.canonicalize().ok()?;
        let mut candidates = start
            .ancestors()
            .map(|folder| folder.join("environments").join("local.env.yaml"));
        candidates.find(|path| path.is_file())
    }

    fn read(root: &Path, file: &Path, faults: &mut Faults) -> Option<Self> {
        let path = root.join(file);
        let text = read::source(&path, file, faults)?;
        let node = read::tree(&text, file, faults)?;
        let mut reader = ConfigReader::new(file, &text);
        let environment = from_node(&mut reader, &path, &node);
        faults.faults.append(&mut reader.faults);
        environment
    }
}

fn from_node(
    reader: &mut ConfigReader<'_>,
    path: &Path,
    node: &yaml::YamlNode,
) -> Option<Environment> {
    let file = path
        .file_name()
        .map(|name| name.to_string_lossy().into_owned());
    let file = file.unwrap_or_default();
    let stem = file.strip_suffix(SUFFIX).unwrap_or(&file);
    let mut environment = Environment {
        path: path.to_owned(),
        name: stem.to_owned(),
        variables: BTreeMap::new(),
        providers: Vec::new(),
        text: reader.text.to_owned(),
        principals: Vec::new(),
        listen: ListenSettings::default(),
        servers: BTreeMap::new(),
        limits: LimitSettings::default(),
        ledger: None,
        receiver: None,
        egress_allow: Vec::new(),
        subscriptions: Vec::new(),
        evidence: EvidenceSettings::default(),
        mcp: McpSettings::default(),
        tls: TlsFiles::default(),
        retention: RetentionSettings::default(),
        warnings: Faults::default(),
    };
    if matches!(node.data, YamlValue::Null) {
        return Some(environment);
    }
    let fields = reader.shaped(node, &shape::ENVIRONMENT)?;
    if let Some(name) = fields.read("name", |node| reader.string(node, "name")) {
        name.clone_into(&mut environment.name);
    }
    environment.variables = variables(reader, &fields);
    if let Some(node) = fields.get("providers") {
        let providers = reader.list(node, "providers").unwrap_or_default();
        // What they say is for the gateway, if one of its groups names them.
        for node in providers {
            reader.open_map(node, "the provider");
        }
        environment.providers = providers.to_vec();
    }
    if let Some(place) = fields.key("principals") {
        environment.principals = principals::read(reader, place, fields.get("principals"));
    }
    if let Some(node) = fields.get("tls") {
        environment.tls = tls::read(reader, node, path);
    }
    if let Some(node) = fields.get("listen") {
        let guard = ListenGuard {
            authenticates: fields.key("principals").is_some(),
            encrypts: environment.tls.identity.is_some(),
        };
        environment.listen = settings::listen(reader, node, guard);
    }
    if let Some(node) = fields.get("servers") {
        environment.servers = settings::servers(reader, node);
    }
    if let Some(node) = fields.get("limits") {
        environment.limits = settings::limits(reader, node);
    }
    if let Some(node) = fields.get("retention") {
        environment.retention = settings::retention(reader, node);
    }
    environment.ledger = settings::ledger(reader, &fields);
    environment.receiver = fields.read("receiver", |node| {
        let fields = reader.shaped(node, &shape::RECEIVER)?;
        let variable = fields.get("variable")?;
        reader
            .string(variable, "receiver.variable")
            .map(str::to_owned)
    });
    if let Some(node) = fields.get("egress") {
        environment.egress_allow = settings::egress(reader, node);
    }
    if let Some(node) = fields.get("subscriptions") {
        environment.subscriptions = subscriptions::read(reader, node);
    }
    if let Some(node) = fields.get("evidence") {
        environment.evidence = settings::evidence(reader, node, path);
    }
    if let Some(node) = fields.get("mcp") {
        environment.mcp = settings::mcp(reader, node);
    }
    Some(environment)
}

fn variables(reader: &mut ConfigReader<'_>, fields: &Fields<'_>) -> BTreeMap<String, String> {
    let mut variables = BTreeMap::new();
    if let Some(node) = fields.get(VARIABLES) {
        for (key, node) in reader.members(node, VARIABLES) {
            let value = reader.string(node, &key.text);
            variables.extend(value.map(|value| (key.text.clone(), value.to_owned())));
        }
    }
    variables
}

#[cfg(test)]
mod tests;
