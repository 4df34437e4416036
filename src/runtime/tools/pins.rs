//! A check that tools are still as they were locked, and as they were offered to the model.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::names::is_covered;
use super::{ServerTool, ToolError, ToolErrorCode};
use ktsu_contract::runtime::ToolServer;

/// A tool is not what its lock says, or what the model was told; or is gone.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the tool {tool} of the server {server} {}; look at it, then {}", how.words(), how.hint())]
pub(crate) struct ToolDriftError {
    server: String,
    tool: String,
    how: DriftKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DriftKind {
    /// The lock knows no such tool.
    New,
    /// The lock has another digest.
    Other,
    /// It is locked, and not offered.
    Gone,
    /// It is not what the model was told.
    Changed,
    /// The model was told of it, and it is not offered.
    Withdrawn,
}

impl DriftKind {
    fn words(self) -> &'static str {
        match self {
            Self::New => "is not in the lock",
            Self::Other => "is not the one that was locked",
            Self::Gone | Self::Withdrawn => "is not offered any more",
            Self::Changed => "is not the tool that the model was shown",
        }
    }

    fn hint(self) -> &'static str {
        match self {
            Self::New | Self::Other | Self::Gone => "type: ktsu lock --tools",
            Self::Changed | Self::Withdrawn => "start the run again",
        }
    }
}

/// The terms for the calls of one server as long as the task lasts.
#[derive(Debug)]
pub(super) struct ToolAgreement {
    server: String,
    allowlist: Vec<String>,
    pins: Option<BTreeMap<String, String>>,
    /// The digests of what the model was told of, by name.
    offered_digests: BTreeMap<String, String>,
}

impl ToolAgreement {
    /// The terms that follow from what is listed first.
    pub(super) fn of(server: &ToolServer, offered: &[Arc<ServerTool>]) -> Self {
        let told = offered
            .iter()
            .filter(|tool| is_covered(&server.allowlist, &tool.name))
            .map(|tool| (tool.name.clone(), tool.digest.clone()));
        Self {
            server: server.name.clone(),
            allowlist: server.allowlist.clone(),
            pins: server.pins.clone(),
            offered_digests: told.collect(),
        }
    }

    /// Checks that a tool may be called by what is listed now. Without a lock other tools may come
    /// and go, but none that was offered to the model may have changed.
    pub(super) fn check(
        &self,
        offered: &[Arc<ServerTool>],
        called: &str,
    ) -> Result<(), ToolDriftError> {
        let permitted = offered.iter().map(Arc::as_ref);
        let permitted: Vec<&ServerTool> = permitted
            .filter(|tool| is_covered(&self.allowlist, &tool.name))
            .collect();
        let drift = |tool: &str, how| drift(&self.server, tool, how);
        check_against_lock(
            &self.server,
            &self.allowlist,
            self.pins.as_ref(),
            &permitted,
        )?;
        let other = |tool: &&&ServerTool| {
            let told = self.offered_digests.get(&tool.name);
            told.is_some_and(|digest| *digest != tool.digest)
        };
        if let Some(tool) = permitted.iter().find(other) {
            return Err(drift(&tool.name, DriftKind::Changed));
        }
        match permitted.iter().any(|tool| tool.name == called) {
            true => Ok(()),
            false => Err(drift(called, DriftKind::Withdrawn)),
        }
    }
}

/// A call that is not made for it.
impl From<ToolDriftError> for ToolError {
    fn from(drift: ToolDriftError) -> Self {
        Self::unsent(ToolErrorCode::ToolsChanged, drift.to_string())
    }
}

/// Checks that what may be called is as it was locked (seed 000, invariant 5). Without a lock
/// everything is as it was; where nothing was permitted, nothing may be.
pub(super) fn check_against_lock(
    server: &str,
    allowlist: &[String],
    pins: Option<&BTreeMap<String, String>>,
    permitted: &[&ServerTool],
) -> Result<(), ToolDriftError> {
    let Some(pins) = pins else { return Ok(()) };
    for tool in permitted {
        match pins.get(&tool.name) {
            None => return Err(drift(server, &tool.name, DriftKind::New)),
            Some(pin) if *pin != tool.digest => {
                return Err(drift(server, &tool.name, DriftKind::Other));
            }
            Some(_) => {}
        }
    }
    let offered = |name: &str| permitted.iter().any(|tool| tool.name == name);
    let mut pins = pins.keys();
    let gone = pins.find(|name| is_covered(allowlist, name) && !offered(name));
    gone.map_or(Ok(()), |name| Err(drift(server, name, DriftKind::Gone)))
}

fn drift(server: &str, tool: &str, how: DriftKind) -> ToolDriftError {
    ToolDriftError {
        server: server.to_owned(),
        tool: tool.to_owned(),
        how,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tools(offered: &[(&str, &str)]) -> Vec<Arc<ServerTool>> {
        let tool = |&(name, digest): &(&str, &str)| {
            Arc::new(ServerTool {
                name: name.to_owned(),
                digest: digest.to_owned(),
                ..ServerTool::default()
            })
        };
        offered.iter().map(tool).collect()
    }

    fn server(pins: Option<&[(&str, &str)]>) -> ToolServer {
        let owned = |&(name, digest): &(&str, &str)| (name.to_owned(), digest.to_owned());
        ToolServer {
            name: "s".to_owned(),
            allowlist: vec!["r*".to_owned()],
            pins: pins.map(|pins| pins.iter().map(owned).collect()),
            ..ToolServer::default()
        }
    }

    #[test]
    fn a_list_that_is_read_again_may_differ_in_what_concerns_no_one() {
        let first = tools(&[("read", "1"), ("rest", "1"), ("write", "1")]);
        let agreed = ToolAgreement::of(&server(None), &first);
        for (now, end) in [
            (&[("read", "1"), ("rest", "1"), ("write", "1")][..], None),
            // Not permitted, not called, not told.
            (&[("read", "1"), ("rest", "1"), ("write", "2")], None),
            (&[("read", "1")], None),
            (&[("read", "1"), ("rest", "1"), ("run", "1")], None),
            (
                &[("read", "2"), ("rest", "1")],
                Some("read of the server s is not the tool that the model was shown"),
            ),
            (
                &[("read", "1"), ("rest", "2")],
                Some("rest of the server s is not the tool that the model was shown"),
            ),
            (
                &[("rest", "1")],
                Some("read of the server s is not offered any more"),
            ),
            (&[], Some("read of the server s is not offered any more")),
        ] {
            let held = agreed
                .check(&tools(now), "read")
                .map_err(|it| it.to_string());
            let end =
                end.map(|how| format!("the tool {how}; look at it, then start the run again"));
            assert_eq!(held.err(), end, "{now:?}");
        }
    }

    #[test]
    fn what_is_locked_is_held_against_the_lock_each_time() {
        let pins: &[(&str, &str)] = &[("read", "1"), ("rest", "1")];
        let first = tools(&[("read", "1"), ("rest", "1")]);
        let agreed = ToolAgreement::of(&server(Some(pins)), &first);
        let now = tools(&[("read", "1"), ("rest", "1"), ("write", "9")]);
        assert_eq!(agreed.check(&now, "read"), Ok(()));
        for now in [
            &[("read", "1"), ("rest", "1"), ("run", "1")][..],
            &[("read", "1")],
            &[("read", "1"), ("rest", "2")],
        ] {
            let drift = agreed.check(&tools(now), "read").unwrap_err();
            assert!(drift.to_string().ends_with("then type: ktsu lock --tools"));
        }
    }
}
