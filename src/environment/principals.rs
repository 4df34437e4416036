//! `principals:` of an environment file: who may send requests, what they may do, and keys of their
//! own (decision H5). Secrets are not contained here, only the names of the variables that have
//! them.

use std::collections::{BTreeMap, BTreeSet};

use super::{entry_name, shape};
use ktsu_config::fault::{Fault, FaultCode};
use ktsu_config::read::ConfigReader;
use ktsu_config::variables::is_variable;
use ktsu_config::yaml::{SourceSpan, YamlNode, YamlValue};

/// A role of a principal. Each route says which of these it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PrincipalRole {
    /// Looks at runs, envelopes, traces and differences.
    Viewer,
    /// Starts runs, and says something about recorded ones.
    Operator,
    /// Looks, and decides what is put before a person.
    Approver,
    /// Looks at everything that is recorded.
    Auditor,
    /// Everything.
    Admin,
    /// A runtime process: says that it is alive, and calls gateways.
    Runtime,
    /// An orchestrator process: gives tasks to runtimes, and calls gateways.
    Orchestrator,
}

impl PrincipalRole {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Viewer,
        Self::Operator,
        Self::Approver,
        Self::Auditor,
        Self::Admin,
        Self::Runtime,
        Self::Orchestrator,
    ];

    /// The word of the file.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Approver => "approver",
            Self::Auditor => "auditor",
            Self::Admin => "admin",
            Self::Runtime => "runtime",
            Self::Orchestrator => "orchestrator",
        }
    }

    /// Returns `true` if it permits decisions on approvals.
    pub const fn approves(self) -> bool {
        match self {
            Self::Approver | Self::Admin => true,
            Self::Viewer | Self::Operator | Self::Auditor | Self::Runtime | Self::Orchestrator => {
                false
            }
        }
    }

    /// Returns `true` if it permits starting runs, which needs a value for every secret.
    pub const fn invokes(self) -> bool {
        match self {
            Self::Operator | Self::Admin => true,
            Self::Viewer | Self::Approver | Self::Auditor | Self::Runtime | Self::Orchestrator => {
                false
            }
        }
    }

    /// Returns `true` if it is that of a service of an engine, and of no person.
    pub const fn is_of_service(self) -> bool {
        match self {
            Self::Runtime | Self::Orchestrator => true,
            Self::Viewer | Self::Operator | Self::Approver | Self::Auditor | Self::Admin => false,
        }
    }
}

/// The name of every caller if no tokens are required.
pub const LOCAL: &str = "local";

/// A variable that holds something secret: `{env: NAME}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretReference {
    /// The variable.
    pub variable: String,
    /// The place in the file that names it.
    pub place: SourceSpan,
}

/// A principal as the file declares it: no value has been looked up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrincipalDeclaration {
    /// The name, as frames record it behind `principal:`.
    pub name: String,
    /// The variable that holds the token.
    pub token: SecretReference,
    /// The roles that it has.
    pub roles: BTreeSet<PrincipalRole>,
    /// Its own values for secret variables of workflows, by their names.
    pub secrets: BTreeMap<String, SecretReference>,
}

/// Reads the list. Whoever writes the key wants somebody kept out, so an empty one is a fault.
pub(super) fn read(
    reader: &mut ConfigReader<'_>,
    place: SourceSpan,
    node: Option<&YamlNode>,
) -> Vec<PrincipalDeclaration> {
    let list = node.map(|node| reader.list(node, "principals"));
    let entries = match list {
        Some(None) => return Vec::new(),
        Some(Some(entries)) => entries,
        None => &[],
    };
    if entries.is_empty() {
        let fault = Fault::new(FaultCode::BadValue, place, "principals is empty");
        let hint = "- {name: ada, token: {env: ADA_TOKEN}, roles: [operator]}; or remove the key";
        reader.fault(fault.hint(hint));
    }
    let mut found: Vec<PrincipalDeclaration> = Vec::new();
    let mut names: BTreeMap<String, usize> = BTreeMap::new();
    for node in entries {
        found.extend(principal(reader, node, &mut names));
    }
    found
}

fn principal(
    reader: &mut ConfigReader<'_>,
    node: &YamlNode,
    names: &mut BTreeMap<String, usize>,
) -> Option<PrincipalDeclaration> {
    let fields = reader.shaped(node, &shape::PRINCIPAL)?;
    let name = fields.read("name", |node| {
        entry_name::read(reader, node, "principal", reserved, names)
    });
    let token = fields.read("token", |node| reference(reader, node, "token"));
    let roles = fields.read("roles", |node| roles_of(reader, node));
    let secrets = fields.get("secrets");
    let secrets = secrets.map(|node| secrets_of(reader, node));
    Some(PrincipalDeclaration {
        name: name?,
        token: token?,
        roles: roles?,
        secrets: secrets.unwrap_or_default(),
    })
}

/// The reason why a name is not allowed for a principal of a file, if it is not.
fn reserved(name: &str) -> Option<String> {
    let words = "local is reserved for callers where no tokens are required";
    (name == LOCAL).then(|| words.to_owned())
}

fn roles_of(reader: &mut ConfigReader<'_>, node: &YamlNode) -> Option<BTreeSet<PrincipalRole>> {
    let known = PrincipalRole::ALL.map(PrincipalRole::as_str);
    let mut roles = BTreeSet::new();
    let mut sound = true;
    let entries = reader.list(node, "roles")?;
    for entry in entries {
        let Some(word) = reader.string(entry, "a role") else {
            sound = false;
            continue;
        };
        match PrincipalRole::ALL
            .into_iter()
            .find(|role| role.as_str() == word)
        {
            Some(role) => drop(roles.insert(role)),
            None => {
                let words = format!("there is no role {word:?}");
                let fault = Fault::new(FaultCode::UnknownRole, entry.place, words);
                let roles = format!("the roles: {}", known.join(", "));
                reader.fault(fault.suggest_or(word, known, roles));
                sound = false;
            }
        }
    }
    if entries.is_empty() {
        let fault = Fault::new(FaultCode::BadValue, node.place, "roles is empty");
        return reader.reject(fault.hint(format!("the roles: {}", known.join(", "))));
    }
    sound.then_some(roles)
}

fn secrets_of(reader: &mut ConfigReader<'_>, node: &YamlNode) -> BTreeMap<String, SecretReference> {
    let mut secrets = BTreeMap::new();
    for (key, node) in reader.members(node, "secrets") {
        if !is_variable(&key.text) {
            let words = format!(
                "{:?} is not the name of a variable: letters, digits and _",
                key.text
            );
            reader.fault(Fault::new(FaultCode::BadValue, key.place, words));
        }
        if let Some(reference) = reference(reader, node, &key.text) {
            secrets.insert(key.text.clone(), reference);
        }
    }
    secrets
}

/// `{env: NAME}` or `"{{ env.NAME }}"`. Any other text where this belongs is a secret written out,
/// which the message does not repeat.
pub(super) fn reference(
    reader: &mut ConfigReader<'_>,
    node: &YamlNode,
    what: &str,
) -> Option<SecretReference> {
    if let YamlValue::Text(text) = &node.data
        && let Some(variable) = only_variable(text)
    {
        return Some(SecretReference {
            variable: variable.to_owned(),
            place: node.place,
        });
    }
    if !matches!(node.data, YamlValue::Map(_)) {
        let words = format!("{what} is written out: put the secret into a variable");
        let fault = Fault::new(FaultCode::LiteralSecret, node.place, words);
        return reader.reject(fault.hint(format!("{what}: {{env: NAME_OF_A_VARIABLE}}")));
    }
    let node = reader.shaped(node, &shape::VALUE)?.get("env")?;
    let variable = reader.string(node, "env")?;
    if !is_variable(variable) {
        // It may be the secret itself, put in the wrong place.
        let words = format!("{what}.env is not the name of a variable: letters, digits and _");
        return reader.bad_value(node, words);
    }
    Some(SecretReference {
        variable: variable.to_owned(),
        place: node.place,
    })
}

/// The variable that a template is, and nothing else.
fn only_variable(text: &str) -> Option<&str> {
    let inner = text.trim().strip_prefix("{{")?.strip_suffix("}}")?;
    let name = inner.trim().strip_prefix("env.")?;
    is_variable(name).then_some(name)
}
