//! Built-in agents and tool servers: files like any other, read by the same readers (seed 000,
//! invariants 4 and 24). Their name is their path: `ktsu/NAME@VERSION`.

use super::reference::split;
use ktsu_codes::nearest;
use ktsu_config::fault::{Fault, FaultCode};
use ktsu_config::yaml::SourceSpan;

/// The prefix of the names of first-party agents and servers.
const PREFIX: &str = "ktsu/";

/// The model group of a built-in agent whose step names none.
pub(super) const GROUP: &str = "default";

/// The param of a built-in agent that holds the text it looks at.
pub(super) const SOURCE: &str = "source_field";

/// A file within this program.
struct BuiltIn {
    /// As steps name it.
    path: &'static str,
    text: &'static str,
}

const AGENTS: [BuiltIn; 1] = [BuiltIn {
    path: "ktsu/secure-parser@1.0.0",
    text: include_str!("builtin/secure-parser.agent.yaml"),
}];

/// The server that an agent has if its file says what it may command.
pub(super) const COMMANDS: &str = "ktsu/commands";

const SERVERS: [BuiltIn; 3] = [
    BuiltIn {
        path: "ktsu/commands@1.0.0",
        text: include_str!("builtin/commands.server.yaml"),
    },
    BuiltIn {
        path: "ktsu/envelope@1.0.0",
        text: include_str!("builtin/envelope.server.yaml"),
    },
    BuiltIn {
        path: "ktsu/kv@1.0.0",
        text: include_str!("builtin/kv.server.yaml"),
    },
];

/// The text of a built-in agent or server, by its path.
pub fn text(path: &str) -> Option<&'static str> {
    let found = AGENTS.iter().chain(&SERVERS).find(|one| one.path == path);
    found.map(|one| one.text)
}

/// Returns `true` if a reference means an agent or a server of this program and not a file.
pub(super) fn is_builtin(name: &str) -> bool {
    name.starts_with(PREFIX) && !split(name).0.ends_with(".yaml")
}

/// The path of the built-in agent that a step names.
pub(super) fn resolve(reference: &str, place: SourceSpan) -> Result<String, Fault> {
    let (name, version) = split(reference);
    let fault = |code, words| Fault::new(code, place, words);
    let same = |one: &&BuiltIn| split(one.path).0 == name;
    let known: Vec<&str> = AGENTS.iter().map(|one| one.path).collect();
    if !AGENTS.iter().any(|one| same(&one)) {
        let words = format!("there is no built-in agent {name:?}");
        let bare: Vec<&str> = known.iter().map(|path| split(path).0).collect();
        let near = nearest(name, bare);
        return Err(match near {
            Some(near) => fault(FaultCode::AgentNotFound, words).hint(format!(
                "did you mean {}?",
                known
                    .iter()
                    .find(|path| split(path).0 == near)
                    .unwrap_or(&near)
            )),
            None => fault(FaultCode::AgentNotFound, words).hint(format!(
                "there is {}; files of this kit are agents/NAME.agent.yaml",
                known.join(", ")
            )),
        });
    }
    let versions: Vec<&str> = AGENTS
        .iter()
        .filter(same)
        .filter_map(|one| split(one.path).1)
        .collect();
    let has = versions.join(", ");
    let Some(version) = version else {
        let words = format!("{name} has versions, and the step says none");
        let hint = format!("write {name}@{}", versions.last().unwrap_or(&""));
        return Err(fault(FaultCode::VersionMismatch, words).hint(hint));
    };
    match AGENTS.iter().find(|one| one.path == reference) {
        Some(found) => Ok(found.path.to_owned()),
        None if semver::Version::parse(version).is_err() => {
            let words = format!("{version:?} is not a semantic version");
            Err(fault(FaultCode::BadVersion, words).hint(format!("{name} has {has}")))
        }
        None => {
            let words = format!("the step wants version {version} of {name}, which has {has}");
            let hint = format!("write {name}@{}", versions.last().unwrap_or(&""));
            Err(fault(FaultCode::VersionMismatch, words).hint(hint))
        }
    }
}

/// The path of the built-in server that an agent names, with or without its version.
pub(super) fn resolve_server(reference: &str, place: SourceSpan) -> Result<String, Fault> {
    let (name, version) = split(reference);
    let fault = |code, words| Fault::new(code, place, words);
    let Some(found) = SERVERS.iter().find(|one| split(one.path).0 == name) else {
        let words = format!("there is no built-in server {name:?}");
        let fault = fault(FaultCode::UnknownServer, words);
        let bare = SERVERS.iter().map(|one| split(one.path).0);
        return Err(fault.suggest_or(
            name,
            bare.clone(),
            format!("there is {}", bare.collect::<Vec<_>>().join(", ")),
        ));
    };
    let has = split(found.path).1.unwrap_or_default();
    match version {
        None => Ok(found.path.to_owned()),
        Some(version) if version == has => Ok(found.path.to_owned()),
        Some(version) if semver::Version::parse(version).is_err() => {
            let words = format!("{version:?} is not a semantic version");
            Err(fault(FaultCode::BadVersion, words).hint(format!("{name} has {has}")))
        }
        Some(version) => {
            let words = format!("the agent wants version {version} of {name}, which has {has}");
            Err(fault(FaultCode::VersionMismatch, words).hint(format!("write {name}@{has}")))
        }
    }
}
