//! Agents of this program: files like any other, read by the same reader, and nothing more (seed
//! 000, invariant 24). Their name is their path: `ktsu/NAME@VERSION`.

use super::fault::{Fault, FaultCode};
use super::reference::split;
use super::step::AgentCall;
use crate::workflow::nearest;

/// How the names of first-party agents begin.
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

const ALL: [BuiltIn; 1] = [BuiltIn {
    path: "ktsu/secure-parser@1.0.0",
    text: include_str!("builtin/secure-parser.agent.yaml"),
}];

/// The text of a built-in agent, by its path in definitions.
pub fn text(path: &str) -> Option<&'static str> {
    let found = ALL.iter().find(|one| one.path == path);
    found.map(|one| one.text)
}

/// Whether a reference means an agent of this program and not a file.
pub(super) fn is_meant(name: &str) -> bool {
    name.starts_with(PREFIX) && !split(name).0.ends_with(".yaml")
}

/// The path of the built-in agent that a step names.
pub(super) fn resolve(call: &AgentCall) -> Result<String, Fault> {
    let (name, version) = split(&call.name);
    let fault = |code, words| Fault::new(code, call.place, words);
    let same = |one: &&BuiltIn| split(one.path).0 == name;
    let known: Vec<&str> = ALL.iter().map(|one| one.path).collect();
    if !ALL.iter().any(|one| same(&one)) {
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
    let versions: Vec<&str> = ALL
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
    match ALL.iter().find(|one| one.path == call.name) {
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
