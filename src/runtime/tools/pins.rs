//! Whether tools are as they were when they were locked.

use super::Tool;
use super::names::covered;
use crate::contract::runtime::ToolServer;

/// A tool is not what its lock says, or is gone.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the tool {tool} of the server {server} {how}; look at it, then type: ktsu lock --tools")]
pub(in crate::runtime) struct Drift {
    server: String,
    tool: String,
    how: &'static str,
}

/// Whether what may be called is as it was locked (seed 000, invariant 5).
pub(super) fn pinned(server: &ToolServer, permitted: &[&Tool]) -> Result<(), Drift> {
    if server.pins.is_empty() {
        return Ok(());
    }
    let drift = |tool: &str, how| {
        Err(Drift {
            server: server.name.clone(),
            tool: tool.to_owned(),
            how,
        })
    };
    for tool in permitted {
        match server.pins.get(&tool.name) {
            None => return drift(&tool.name, "is not in the lock"),
            Some(pin) if *pin != tool.digest => {
                return drift(&tool.name, "is not the one that was locked");
            }
            Some(_) => {}
        }
    }
    let offered = |name: &str| permitted.iter().any(|tool| tool.name == name);
    let mut pins = server.pins.keys();
    let gone = pins.find(|name| covered(&server.allowlist, name) && !offered(name));
    match gone {
        Some(name) => drift(name, "is not offered any more"),
        None => Ok(()),
    }
}
