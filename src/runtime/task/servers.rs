//! The tool servers of a dispatch, and opening sessions with them.

use axum::http::HeaderName;
use url::Url;
use url::form_urlencoded::Serializer;

use super::{AgentTaskContext, Toolbox};
use crate::alternatives;
use crate::callbacks::Backoff;
use crate::conversation;
use crate::tools::catalogue::Catalogue;
use crate::tools::sessions::OpenSessionError;
use crate::tools::{McpServer, ToolError, ToolErrorCode};
use ktsu_contract::report::{FailureDetails, Finished};
use ktsu_contract::runtime::{InvokeAgent, ToolServer};
use ktsu_peer::{Peer, PeerError};
use ktsu_secret::Secret;

/// The prefix of the URL of one of the orchestrator's own servers.
const OWN: &str = "ktsu:";

impl AgentTaskContext {
    /// Opens what the task may call.
    pub(super) async fn open(&self, bench: &mut Toolbox) -> Result<(), OpenSessionError> {
        bench.catalogue = Catalogue::of(&self.invoke.tool_servers);
        let servers = self.servers().await?;
        let Toolbox {
            catalogue,
            sessions,
            open,
        } = bench;
        sessions.open(&self.tools, servers, catalogue).await?;
        *open = true;
        Ok(())
    }

    /// Those of which something may be called.
    async fn servers(&self) -> Result<Vec<(&ToolServer, McpServer)>, OpenSessionError> {
        let mut opened = Vec::new();
        for server in &self.invoke.tool_servers {
            if server.allowlist.is_empty() {
                continue;
            }
            let one = self.server(server).await.map_err(|message| {
                let error = ToolError::unsent(ToolErrorCode::Refused, message);
                OpenSessionError::Unreachable(server.name.clone(), error)
            })?;
            opened.push((server, one));
        }
        Ok(opened)
    }

    async fn server(&self, server: &ToolServer) -> Result<McpServer, String> {
        let (url, builtin) = match server.url.strip_prefix(OWN) {
            None => (server.url.clone(), None),
            Some(name) => {
                let (peer, path) = self.own_server(&own_url(&self.invoke, name)?).await?;
                (path, Some(peer))
            }
        };
        let auth = match (&server.auth_header, &server.auth_value) {
            (Some(header), Some(value)) => {
                let header = header.parse::<HeaderName>();
                let header =
                    header.map_err(|_| "auth_header is not a valid header name".to_owned())?;
                Some((header, Secret::new(value.clone())))
            }
            (None, _) => None,
            (Some(_), None) => return Err("auth_header comes without auth_value".to_owned()),
        };
        Ok(McpServer {
            name: server.name.clone(),
            url,
            builtin,
            auth,
            params: server.params.clone(),
        })
    }

    /// The way to one of the orchestrator's own servers. A process that recovers its runs sends tasks
    /// out before its orchestrator takes requests: whoever calls bounds the wait for it.
    async fn own_server(&self, url: &str) -> Result<(Peer, String), String> {
        let mut backoff = Backoff::default();
        loop {
            match alternatives::server(&self.orchestrator, url) {
                Ok(peer) => return Ok(peer),
                Err(error @ PeerError::NoResponse { .. }) => {
                    self.silence.warn_once("the orchestrator", "ktsu:", &error);
                }
                Err(error) => return Err(error.to_string()),
            }
            backoff.wait().await;
        }
    }
}

/// The end of a task that cannot begin.
pub(super) fn unopened(error: &OpenSessionError) -> Finished {
    match error {
        OpenSessionError::Drift(_) => conversation::broken("tool_drift", error.to_string()),
        OpenSessionError::Unreachable(server, failed) => {
            tracing::warn!(server, code = %failed.code, "cannot use a tool server");
            let error = FailureDetails {
                code: "tool_server_unreachable".to_owned(),
                message: error.to_string(),
                retryable: true,
            };
            conversation::failed("error", error, None)
        }
    }
}

/// The URL of one of the orchestrator's own servers: under the origin of the callbacks, with the
/// task and its token in the query.
fn own_url(task: &InvokeAgent, name: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if name.is_empty() || !name.chars().all(plain) {
        return Err("its URL names no server of ktsu's own".to_owned());
    }
    let callback =
        Url::parse(&task.callback_url).map_err(|_| "callback_url is no URL".to_owned())?;
    let mut query = callback.query_pairs();
    let token = query.find_map(|(name, value)| (name == "token").then_some(value));
    let token = token.ok_or_else(|| "callback_url has no token".to_owned())?;
    let query = Serializer::new(String::new())
        .append_pair("run", &task.run_id)
        .append_pair("step", &task.step_id)
        .append_pair("attempt", &task.attempt.to_string())
        .append_pair("token", &token)
        .finish();
    let origin = callback.origin().ascii_serialization();
    Ok(format!("{origin}/tools/ktsu/{name}?{query}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_own_server_is_under_the_origin_of_the_callbacks_with_the_task_in_its_query() {
        let task = json!({
            "run_id": "run_1/call", "step_id": "s.2", "attempt": 3, "system": "", "user_message": "",
            "model": {"group": "g"}, "callback_url": "http://h:1/runs/run_1%2Fcall/steps/s.2/complete?token=a%2Bb%26c",
        });
        let mut task: InvokeAgent = serde_json::from_value(task).unwrap();
        assert_eq!(
            own_url(&task, "kv").unwrap(),
            "http://h:1/tools/ktsu/kv?run=run_1%2Fcall&step=s.2&attempt=3&token=a%2Bb%26c"
        );
        for name in ["", "../x", "a/b", "a?b"] {
            assert!(own_url(&task, name).is_err(), "{name}");
        }
        task.callback_url = "http://h/c".to_owned();
        assert!(own_url(&task, "kv").is_err());
    }
}
